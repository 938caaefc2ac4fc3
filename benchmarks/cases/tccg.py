"""The 48 contractions of the TCCG benchmark in f64: sizes shrunk together, and the same with every size odd."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.case import Case
from benchmarks.einsum_case import einsum
from polyker.cli.demo_cases import read_data, scale_contraction

FLOP = 0.6e9


def cases() -> Iterator[Case]:
    """Yield the family; a group is one of TCCG's, or its odd sizes."""
    for row in read_data("contractions.json")["contractions"]:
        make = partial(einsum, row["einsum"], "f64")
        sizes = scale_contraction(row["f64"], FLOP)
        yield Case(f"tccg/{row['id']}", "tccg", row["group"], make, sizes)
        odd = {k: v + 1 - v % 2 for k, v in sizes.items()}
        yield Case(f"tccg/{row['id']}-odd", "tccg", f"{row['group']}-odd", make, odd)
