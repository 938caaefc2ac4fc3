"""Name instances, tensors and dependences in the messages of the proof of legality."""

from __future__ import annotations

import islpy as isl

from polyker.poly.scop import Scop

KINDS = {
    "raw": "read-after-write",
    "war": "write-after-read",
    "waw": "write-after-write",
    "reduction": "reduction",
    "reuse": "reuse",
}


def label(scop: Scop, tensor: str) -> str:
    """Return the user's name of a tensor."""
    return scop.program.tensor(tensor).label


def instances(scop: Scop, pairs: isl.Map) -> tuple[str, str]:
    """Return the texts of two related instances, with numbers, such as `S1(i=3, t=4)`.

    Where sizes are symbols isl chooses them, and the second text says which it chose.
    """
    first, second = _two(pairs)
    return instance(scop, first), instance(scop, second) + _sizes(scop, first)


def instances_and_element(scop: Scop, pairs: isl.Map, tensor: str) -> tuple[str, str, str]:
    """Return the texts of two related instances, as `instances` does, and of an element of the tensor that both use, `A[2,
    3]`."""
    first, second = _two(pairs)
    one, other = (instance(scop, first), instance(scop, second) + _sizes(scop, first))
    elements = [
        a.relation.intersect_domain(first).range().intersect(b.relation.intersect_domain(second).range())
        for a in scop.accesses
        for b in scop.accesses
        if (a.statement, b.statement) == (first.get_tuple_name(), second.get_tuple_name())
        and a.tensor == b.tensor == tensor
        and (a.is_write or b.is_write)
    ]
    found = next((c for c in elements if not c.is_empty()), None)
    if found is None:
        return one, other, f"the same element of {label(scop, tensor)}"
    point = found.sample_point()
    places = [str(point.get_coordinate_val(isl.dim_type.set, d)) for d in range(found.dim(isl.dim_type.set))]
    return one, other, label(scop, tensor) + (f"[{', '.join(places)}]" if places else "")


# Most parts of a relation of which the least pair is looked for (chosen; bounds isl's time).
_MAX_SEARCHED_PARTS = 8


def _two(pairs: isl.Map) -> tuple[isl.Set, isl.Set]:
    """Return two related instances, each as a set of one point: for the least sizes, the least first one, where that is found
    quickly."""
    found = pairs
    if pairs.n_basic_map() <= _MAX_SEARCHED_PARTS:
        for kind in (isl.dim_type.param, isl.dim_type.in_):
            for d in range(found.dim(kind)):
                found = _least(found, kind, d)
    point = isl.Map.from_basic_map(found.sample())
    return point.domain(), point.range()


def _least(pairs: isl.Map, kind: isl.dim_type, d: int) -> isl.Map:
    """Return the pairs with the least value of a size, or of an iterator of the first instance."""
    values = pairs.domain()
    count = values.dim(isl.dim_type.set)
    if kind == isl.dim_type.param:
        values = values.move_dims(isl.dim_type.set, count, kind, d, 1)
        value = values.dim_min_val(count)
    else:
        value = values.dim_min_val(d)
    fixed = pairs.fix_val(kind, d, value) if value.is_int() else pairs
    return pairs if fixed.is_empty() else fixed


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
