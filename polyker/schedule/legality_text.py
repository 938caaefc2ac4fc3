"""How the proof of legality names instances, tensors and dependences to people."""

from __future__ import annotations

import islpy as isl

from polyker.poly.scop import Scop

KINDS = {
    "raw": "read-after-write",
    "war": "write-after-read",
    "waw": "write-after-write",
    "reduction": "reduction",
}


def label(scop: Scop, tensor: str) -> str:
    """Return the user's name of a tensor."""
    return scop.program.tensor(tensor).label


def instances(scop: Scop, pairs: isl.Map) -> tuple[str, str]:
    """Return the texts of two related instances, with numbers, such as `S1(i=3, t=4)`.

    Where sizes are symbols isl chooses them, and the second text says which it chose.
    """
    point = isl.Map.from_basic_map(pairs.sample())
    sizes = _sizes(scop, point.domain())
    return instance(scop, point.domain()), instance(scop, point.range()) + sizes


def instance(scop: Scop, domain: isl.Set) -> str:
    """Return the text of one instance of a set."""
    point = domain.sample_point()
    statement = scop.statement(domain.get_tuple_name())
    names = dict(scop.program.labels)
    values = [
        f"{names.get(i, i)}={point.get_coordinate_val(isl.dim_type.set, d)}" for d, i in enumerate(statement.iterators)
    ]
    return f"{statement.name}({', '.join(values)})"


def _sizes(scop: Scop, domain: isl.Set) -> str:
    point = domain.sample_point()
    names = dict(scop.program.sizes)
    count = domain.dim(isl.dim_type.param)
    chosen = [
        f"{names.get(domain.get_dim_name(isl.dim_type.param, d), '?')} = {point.get_coordinate_val(isl.dim_type.param, d)}"
        for d in range(count)
    ]
    return f" (with {', '.join(chosen)})" if chosen else ""
