"""Iteration domains, index ranges and access relations of a program as data: isl texts, and the user's names.

isl never sees a user's name, which may be a word of its language: tensors are `t0 t1 …` there, sizes `n0 …`, iterators `i0 …`,
statements `S0 …`, and the inline reductions of a statement `S0R0 S0R1 …`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Literal as OneOf
from typing import TypeAlias

import islpy as isl
from msgspec import Struct, json

from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Expr, Literal, Read, Reduce, children
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.ir.typed_printing import labels_of, print_expr, relabel
from polyker.poly.affine import expr_of
from polyker.poly.forms import form_of_aff
from polyker.poly.isl import isl_job, read_set
from polyker.poly.scop import Scop, build_scop, domain_text, read_relation
from polyker.structs import replace

FORMAT, VERSION = "polyker.polyhedra", 1
# A bound: an integer, or an expression in sizes where these are symbols.
Bound: TypeAlias = int | str


class AccessSets(Struct, frozen=True):
    """What the instances of a statement access of one tensor, by the user's name of it.

    `relation`: isl text of {instance -> element}, within the domain. `kind`: an update reads the element, combines and writes it.
    `exact`: whether the elements are those accessed; else they may be, as of a gather, whose indices are values.
    """

    tensor: str
    kind: OneOf["read", "write", "update"]
    relation: str
    exact: bool


class StatementSets(Struct, frozen=True):
    """A statement, or an inline reduction in it: what it runs over, and what it accesses.

    `name`: as schedules have it, `C`, the second that defines C `C#2`, a reduction in it `C.sum`. `space`: the name in isl.
    `op`: set, or the reduction. `indices`: the user's names of the domain's dimensions, in the order of execution; those of the
    loops around it come first, and of a reduction those of the statement. `ranges`: (index, lo, hi) of each, half open: the box
    around the domain. `domain`: isl text. `accesses`: the write first; those of inline reductions are among them.
    `reductions`: the inline reductions, each over a domain of more dimensions. `order`: isl text of {instance -> time}, whose
    lexicographic order is that of the text; None of a reduction.
    """

    name: str
    space: str
    op: str
    indices: tuple[str, ...]
    ranges: tuple[tuple[str, Bound, Bound], ...]
    domain: str
    accesses: tuple[AccessSets, ...]
    reductions: tuple[StatementSets, ...] = ()
    order: str | None = None


class Polyhedra(Struct, frozen=True):
    """The polyhedral description of a program for given types, in the order of its statements.

    `context`: isl text of what holds of the sizes. `names`: the user's names of tensors, sizes, iterators and statements, by
    those in isl. Statements that no output depends on are left out.
    """

    context: str
    statements: tuple[StatementSets, ...]
    names: Mapping[str, str]

    def to_json(self) -> str:
        """Return it as JSON: an object with `format` and `version`, and objects of the fields of each part."""
        head = {"format": FORMAT, "version": VERSION}
        return json.encode({**head, **{n: getattr(self, n) for n in self.__struct_fields__}}).decode()


@isl_job("polyhedra")
def polyhedra_of(program: TypedProgram) -> Polyhedra:
    """Return the description of a typed program as it is written, before any rewrite."""
    scop, labels = build_scop(program), labels_of(program)
    count: dict[str, int] = {}
    statements = []
    for statement in program.statements():
        target = labels[statement.target]
        count[target] = count.get(target, 0) + 1
        name = target if count[target] == 1 else f"{target}#{count[target]}"
        labels[statement.name] = name
        statements.append(_Description(scop, labels, statement, name).found())
    return Polyhedra(str(scop.context.to_str()), tuple(statements), labels)


class _Description:
    """Describes one statement and the inline reductions in it."""

    def __init__(self, scop: Scop, labels: dict[str, str], statement: TypedStatement, name: str) -> None:
        self.scop, self.program, self.labels, self.statement, self.name = scop, scop.program, labels, statement, name
        self.count: dict[str, int] = {}
        self.reductions = 0

    def found(self) -> StatementSets:
        """Return the statement."""
        s, domain = self.statement, self.scop.domains[self.statement.name]
        write = next(a for a in self.scop.accesses if a.statement == s.name and a.is_write)
        exact = all(map(is_quasi_affine, s.subscripts))
        target = _access(self.labels[s.target], "update" if write.is_update else "write", write.relation, exact)
        accesses, reductions = self._inside(s, domain, (*s.subscripts, s.expr))
        order = self.scop.order[s.name].intersect_domain(domain)
        found = self._sets(self.name, s, domain, [target, *(a for a, _ in accesses)], reductions)
        return replace(found, order=str(order.to_str()))

    def _inside(
        self, around: TypedStatement, domain: isl.Set, exprs: Iterable[Expr]
    ) -> tuple[list[tuple[AccessSets, isl.Map]], list[StatementSets]]:
        """Return what expressions read over a domain, each with its relation, and the reductions in them."""
        found: list[tuple[AccessSets, isl.Map]] = []
        reductions = []

        def reads(tensor: str, relation: isl.Map, exact: bool) -> None:
            same = (a.tensor == tensor and a.exact == exact and relation.is_equal(other) for a, other in found)
            if not any(same):
                found.append((_access(tensor, "read", relation, exact), relation))

        for part in _parts(exprs):
            if isinstance(part, Read):
                plain = part.pad is None or part.pad.mode == "constant"
                exact = plain and all(map(is_quasi_affine, part.subscripts))
                reads(self.labels[part.tensor], read_relation(self.program, around, part, domain), exact)
                continue
            inner, accesses = self._reduction(around, part)
            reductions.append(inner)
            for access, relation in accesses:
                outer = relation.project_out(isl.dim_type.in_, len(around.iterators), len(part.ranges))
                reads(access.tensor, outer.set_tuple_name(isl.dim_type.in_, around.name), access.exact)
        return found, reductions

    def _reduction(
        self, around: TypedStatement, part: Reduce
    ) -> tuple[StatementSets, list[tuple[AccessSets, isl.Map]]]:
        assert part.domain is not None
        space = f"{self.statement.name}R{self.reductions}"
        self.reductions += 1
        self.count[part.op] = self.count.get(part.op, 0) + 1
        number = self.count[part.op]
        name = f"{self.name}.{part.op}" + (f"#{number}" if number > 1 else "")
        self.labels[space] = name
        domain = read_set(part.domain).set_tuple_name(space).intersect_params(self.scop.context)
        iterators = (*around.iterators, *(r.index for r in part.ranges))
        inner = replace(around, name=space, iterators=iterators, op=part.op)
        accesses, reductions = self._inside(inner, domain, (part.body, *part.conditions))
        return self._sets(name, inner, domain, [a for a, _ in accesses], reductions), accesses

    def _sets(
        self,
        name: str,
        s: TypedStatement,
        domain: isl.Set,
        accesses: Sequence[AccessSets],
        reductions: Sequence[StatementSets],
    ) -> StatementSets:
        indices = tuple(self.labels[i] for i in s.iterators)
        ranges = tuple((index, *self._ends(domain, d)) for d, index in enumerate(indices))
        text = domain_text(domain, s.name)
        return StatementSets(name, s.name, s.op, indices, ranges, text, tuple(accesses), tuple(reductions))

    def _ends(self, domain: isl.Set, dimension: int) -> tuple[Bound, Bound]:
        """Return the least value of a dimension and the one after the greatest; 0 and 0 of nothing."""
        if domain.is_empty():
            return 0, 0
        greatest = domain.dim_max(dimension)
        after = greatest.add(
            isl.PwAff.from_aff(isl.Aff.zero_on_domain(greatest.get_domain_space()).add_constant_val(1))
        )
        return self._bound(domain.dim_min(dimension), "minimum"), self._bound(after, "maximum")

    def _bound(self, bound: isl.PwAff, wide: str) -> Bound:
        """Return an end of a range; `wide`: how its pieces are combined where it is neither their minimum nor their maximum."""
        pieces = [aff for _, aff in bound.coalesce().get_pieces()]
        forms = [form_of_aff(aff) for aff in pieces]
        exprs = [expr_of(form) for form in forms if form is not None]
        if len(exprs) < len(pieces):
            return relabel(str(bound.to_str()), self.labels)
        if len(pieces) == 1:
            (only,) = exprs
            return int(only.value.real) if isinstance(only, Literal) else print_expr(only, self.labels)
        for op, combined in (("minimum", isl.PwAff.min), ("maximum", isl.PwAff.max)):
            whole = reduce(combined, map(isl.PwAff.from_aff, pieces))
            if whole.intersect_domain(bound.domain()).is_equal(bound):
                wide = op
                break
        return print_expr(Call(wide, tuple(dict.fromkeys(exprs)), i64), self.labels)


def _access(tensor: str, kind: OneOf["read", "write", "update"], relation: isl.Map, exact: bool) -> AccessSets:
    return AccessSets(tensor, kind, str(relation.to_str()), exact)


def _parts(exprs: Iterable[Expr]) -> Iterator[Read | Reduce]:
    """Yield the reads and the reductions of expressions in the order of the text, but not what stands in the reductions."""
    stack = list(reversed([*exprs]))
    while stack:
        part = stack.pop()
        if isinstance(part, (Read, Reduce)):
            yield part
        if not isinstance(part, Reduce):
            stack += reversed(children(part))
