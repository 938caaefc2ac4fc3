"""Forms of isl's affine expressions."""

from __future__ import annotations

from typing import Any

from polyker.poly import isl
from polyker.poly.affine import Affine, constant, quotient, variable


def form_of_aff(aff: Any) -> Affine | None:
    """Return an `isl.Aff` over the sizes as a form; None for a fraction that is no floor."""
    denominator = aff.get_denominator_val().to_python()
    total = constant(int((aff.get_constant_val() * denominator).to_python()))
    for k in range(aff.dim(isl.dim.param)):
        coefficient = (aff.get_coefficient_val(isl.dim.param, k) * denominator).to_python()
        if coefficient:
            total = total + variable(aff.get_dim_name(isl.dim.param, k)) * coefficient
    for k in range(aff.dim(isl.dim.div)):
        coefficient = (aff.get_coefficient_val(isl.dim.div, k) * denominator).to_python()
        if coefficient:
            div = aff.get_div(k)
            divisor = div.get_denominator_val().to_python()
            scaled = form_of_aff(div.scale_val(div.get_denominator_val()))
            if scaled is None:
                return None
            total = total + quotient("floordiv", scaled, divisor) * coefficient
    return total if denominator == 1 else None
