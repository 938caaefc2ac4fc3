"""The polyhedral description of a typed program: domains, access relations, and the order that the text says.

Statements carry no inline reductions any more (polyker.rewrite.normalise.extract_reductions lifts them). Relations are exact for
quasi-affine subscripts; a gathered dimension, and a dimension padded by edge, wrap or reflect, may reach any element of its
extent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import ClassVar

import islpy as isl
from msgspec import Struct

from polyker.ir.expr import Expr, Read
from polyker.ir.quasi_affine import is_quasi_affine, print_affine
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement
from polyker.poly.boxes import values_along
from polyker.poly.isl import read_map, read_set
from polyker.structs import PartlyCompared


class ScopAccess(PartlyCompared, frozen=True, dict=True):
    """One access of a statement: `relation` is {S[iterators] -> tensor[element]} within the domain.

    `is_update`: the target of a reduction, which is read, combined and written. `subscripts`: () where they do not say which
    element. The relation is made when it is asked for: most inputs are never asked.
    """

    UNCOMPARED: ClassVar = frozenset({"make"})

    statement: str
    tensor: str
    subscripts: tuple[Expr, ...]
    is_write: bool
    make: Callable[[], isl.Map]
    is_update: bool = False

    @cached_property
    def relation(self) -> isl.Map:
        """The access relation."""
        return self.make()

    @cached_property
    def inverse(self) -> isl.Map:
        """{tensor[element] -> S[iterators]}."""
        return self.relation.reverse()


def domain_text(domain: isl.Set, name: str) -> str:
    """Return the text of a set as the domain of a statement."""
    named = domain if domain.get_tuple_name() == name else domain.set_tuple_name(name)
    return str(named.to_str())  # str(named) leaves 32 bytes behind


class Scop(Struct, frozen=True):
    """Domains, accesses and original order of a typed program.

    `order`: statement -> {S[iterators] -> [time]}, times of one length; lexicographic order is the text's order.
    `places`: statement -> its place in the text, one number a level of loops.
    """

    program: TypedProgram
    context: isl.Set
    domains: dict[str, isl.Set]
    accesses: tuple[ScopAccess, ...]
    order: dict[str, isl.Map]
    places: dict[str, tuple[int, ...]]

    def statement(self, name: str) -> TypedStatement:
        """Return the statement of that name."""
        return next(s for s in self.program.statements() if s.name == name)


def build_scop(program: TypedProgram) -> Scop:
    """Return the polyhedral description of a program without inline reductions."""
    context = read_set(program.context)
    domains = {s.name: read_set(s.domain) for s in program.statements()}
    if program.sizes:
        domains = {s: d.intersect_params(context) for s, d in domains.items()}
    accesses = tuple(a for s in program.statements() for a in _accesses(program, s, domains[s.name]))
    order, places = _original_order(program)
    return Scop(program, context, domains, accesses, order, places)


def parameters(program: TypedProgram) -> str:
    """Return isl's parameter tuple of a program, such as `[n0, n1] -> `."""
    return f"[{', '.join(n for n, _ in program.sizes)}] -> " if program.sizes else ""


def access_relation(program: TypedProgram, statement: TypedStatement, tensor: str, subscripts: tuple[Expr, ...]) -> str:
    """Return the isl text of {S[iterators] -> tensor[element]}, not yet within the domain; gathers reach every element."""
    elements, bounds = [], []
    extents = program.tensor(tensor).shape
    for d, (subscript, extent) in enumerate(zip(subscripts, extents, strict=True)):
        if is_quasi_affine(subscript):
            elements.append(print_affine(subscript))
        else:
            elements.append(f"a{d}")
            bounds.append(f"0 <= a{d} < {print_affine(extent)}")
    where = " : " + " and ".join(bounds) if bounds else ""
    return (
        f"{parameters(program)}{{ {statement.name}[{', '.join(statement.iterators)}] -> "
        f"{tensor}[{', '.join(elements)}]{where} }}"
    )


def instances_within(
    program: TypedProgram, statement: TypedStatement, tensor: str, subscripts: tuple[Expr, ...]
) -> isl.Set:
    """Return the instances of a statement, of its domain or not, whose access is to an element of the tensor."""
    access = read_map(access_relation(program, statement, tensor, subscripts))
    return access.intersect_range(read_set(tensor_box(program, tensor))).domain()


def elements_written(program: TypedProgram, statement: TypedStatement) -> isl.Set:
    """Return the elements of its target that a statement writes."""
    return elements_reached(program, statement, statement.target, statement.subscripts)


def elements_reached(
    program: TypedProgram, statement: TypedStatement, tensor: str, subscripts: tuple[Expr, ...]
) -> isl.Set:
    """Return the elements of a tensor that affine subscripts of a statement reach."""
    relation = read_map(access_relation(program, statement, tensor, subscripts))
    return relation.intersect_domain(read_set(statement.domain)).range()


def map_onto(
    program: TypedProgram, statement: TypedStatement, columns: Iterable[str], name: str = "", where: str = ""
) -> isl.Map:
    """Return {S[iterators] -> name[columns]} of isl texts over a statement's iterators, such as some of the iterators."""
    condition = f" : {where}" if where else ""
    source = f"{statement.name}[{', '.join(statement.iterators)}]"
    return read_map(f"{parameters(program)}{{ {source} -> {name}[{', '.join(columns)}]{condition} }}")


def image(
    program: TypedProgram, statement: TypedStatement, columns: Iterable[str], name: str = "", where: str = ""
) -> isl.Set:
    """Return the values that isl texts over a statement's iterators take together in its instances."""
    return read_set(statement.domain).apply(map_onto(program, statement, columns, name, where))


def values_taken(program: TypedProgram, statement: TypedStatement, columns: Sequence[str]) -> isl.Set:
    """Return the values that isl texts over a statement's iterators take together, such as some of the iterators."""
    return map_onto(program, statement, columns).intersect_domain(read_set(statement.domain)).range()


def tensor_box(program: TypedProgram, tensor: str) -> str:
    """Return the isl text of the set of a tensor's elements."""
    shape = program.tensor(tensor).shape
    names = [f"a{d}" for d in range(len(shape))]
    bounds = " and ".join(f"0 <= {a} < {print_affine(e)}" for a, e in zip(names, shape, strict=True))
    return f"{parameters(program)}{{ {tensor}[{', '.join(names)}]{' : ' + bounds if bounds else ''} }}"


def _accesses(program: TypedProgram, statement: TypedStatement, domain: isl.Set) -> Iterator[ScopAccess]:
    def target() -> isl.Map:
        text = access_relation(program, statement, statement.target, statement.subscripts)
        return read_map(text).intersect_domain(domain)

    yield ScopAccess(statement.name, statement.target, statement.subscripts, True, target, statement.op != "set")
    for read in dict.fromkeys(statement.reads()):
        # Outside the tensor, edge, wrap and reflect read another element than the subscripts say.
        exact = read.pad is None or read.pad.mode == "constant"
        make = partial(read_relation, program, statement, read, domain)
        yield ScopAccess(statement.name, read.tensor, read.subscripts if exact else (), False, make)


def read_relation(program: TypedProgram, statement: TypedStatement, read: Read, domain: isl.Set) -> isl.Map:
    """Return {S[iterators] -> tensor[element]} of a read; a padded one outside the tensor reads nothing, or other elements."""
    relation = read_map(access_relation(program, statement, read.tensor, read.subscripts)).intersect_domain(domain)
    if read.pad is None:
        return relation
    box = read_set(tensor_box(program, read.tensor))
    if read.pad.mode != "constant":
        # Where a subscript leaves the tensor, the element has another one that is inside: any is the safe answer.
        reached = relation.range()
        for d in range(len(read.subscripts)):
            if not values_along(reached, d).is_subset(values_along(box, d)):
                relation = relation.project_out(isl.dim_type.out, d, 1).insert_dims(isl.dim_type.out, d, 1)
        relation = relation.set_tuple_name(isl.dim_type.out, read.tensor)
    return relation.intersect_range(box)


def _original_order(program: TypedProgram) -> tuple[dict[str, isl.Map], dict[str, tuple[int, ...]]]:
    times: dict[str, list[str]] = {}
    places: dict[str, tuple[int, ...]] = {}

    def visit(body: tuple[TypedNode, ...], prefix: list[str], around: tuple[int, ...]) -> None:
        for place, node in enumerate(body):
            if isinstance(node, TypedLoop):
                visit(node.body, [*prefix, str(place), node.iterator], (*around, place))
            else:
                times[node.name] = [*prefix, str(place), *node.iterators[node.outer :]]
                places[node.name] = (*around, place)

    visit(program.body, [], ())
    length = max((len(t) for t in times.values()), default=0)
    head = parameters(program)
    order = {
        s.name: read_map(
            f"{head}{{ {s.name}[{', '.join(s.iterators)}] -> "
            f"[{', '.join(times[s.name] + ['0'] * (length - len(times[s.name])))}] }}"
        )
        for s in program.statements()
    }
    return order, places
