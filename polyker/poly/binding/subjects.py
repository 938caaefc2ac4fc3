"""Statements over generated names: indices numbered in execution order, scopes, accesses, `...` spelled out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from polyker.errors.base import Span
from polyker.errors.shapes import BAD_CONDITION, NO_RANGE, NOT_AFFINE, TOO_MANY_INDICES, WRONG_RANK
from polyker.ir.expr import (
    Dots,
    Expr,
    IndexExpr,
    Literal,
    Pad,
    Range,
    Read,
    Reduce,
    SizeExpr,
    children,
    reads_values,
    rebuild,
    replace_parts,
    transform,
    walk,
)
from polyker.ir.program import Statement
from polyker.poly.affine import Affine, NotAffine, Restriction, affine_of, constant, expr_of, restriction_of
from polyker.poly.binding.context import BindingContext
from polyker.structs import replace

# Most indices of a statement with its loops, as in the front end (chosen).
MAX_INDICES = 32


class IndexScope(Struct, frozen=True, eq=False):
    """Indices that are bound together: a loop's, a statement's or an inline reduction's.

    `given`: the ranges that the text gives, index -> (lo, hi). `op`: of an inline reduction, else None.
    """

    indices: tuple[str, ...]
    given: Mapping[str, tuple[Affine, Affine]]
    conditions: tuple[Restriction, ...]
    parent: IndexScope | None
    op: str | None = None
    span: Span | None = None

    def chain(self) -> tuple[IndexScope, ...]:
        """Return the scopes around it and itself, outermost first."""
        return (*(self.parent.chain() if self.parent else ()), self)

    def visible(self) -> tuple[str, ...]:
        """Return all indices that an access inside can use, outermost first."""
        return tuple(i for scope in self.chain() for i in scope.indices)


class AffineAccess(Struct, frozen=True, eq=False):
    """A tensor's element that a statement reads or writes; a subscript is None where it is gathered.

    `bare` has the index of each subscript that is, as written, one index alone (whatever the sizes are).
    """

    tensor: str
    subscripts: tuple[Affine | None, ...]
    scope: IndexScope
    pad: Pad | None
    is_write: bool
    text: str
    span: Span | None
    spans: tuple[Span | None, ...]
    bare: tuple[str | None, ...]

    def place(self, d: int) -> Span | None:
        """Return where subscript `d` stands in the text, or else the access."""
        return (self.spans[d] if d < len(self.spans) else None) or self.span


class BoundStatement(Struct, frozen=True, eq=False):
    """A statement over generated names, its reads in the order of the text.

    `target_indices`: the own indices that stand on the left; the others are reduced. `scopes`: the scope of each inline
    reduction by the name of its first index. `conditions`: those of `where` that read values.
    """

    number: int
    statement: Statement
    loops: tuple[str, ...]
    scope: IndexScope
    target: AffineAccess
    subscripts: tuple[Expr, ...]
    expr: Expr
    reads: tuple[AffineAccess, ...]
    target_indices: tuple[str, ...]
    scopes: Mapping[str, IndexScope]
    conditions: tuple[Expr, ...] = ()

    @property
    def iterators(self) -> tuple[str, ...]:
        """All iterators in execution order, the loops' first."""
        return self.loops + self.scope.indices

    @property
    def sets_elements(self) -> bool:
        """Whether each instance sets an element of its own: `=` does, but at gathered places."""
        return self.statement.op == "set" and None not in self.target.subscripts

    @property
    def reduced(self) -> tuple[str, ...]:
        """The own indices that stand only on the right."""
        return tuple(i for i in self.scope.indices if i not in self.target_indices)


class Namer(Struct):
    """Renames one statement: `env` maps the user's indices, `sizes` the sizes."""

    context: BindingContext
    sizes: Mapping[str, Affine]
    reads: list[AffineAccess] = field(default_factory=list)
    scopes: dict[str, IndexScope] = field(default_factory=dict)

    def rename(self, expr: Expr, env: Mapping[str, str], scope: IndexScope) -> Expr:
        """Return the expression over generated names; its reads are recorded."""
        match expr:
            case IndexExpr(name=name):
                return replace(expr, name=env[name])
            case SizeExpr(name=name):
                return replace(expr_of(self.sizes[name]), span=expr.span)
            case Read():
                place = len(self.reads)
                subscripts = tuple(self.subscript(s, env, scope) for s in expr.subscripts)
                self.reads.insert(place, self.access(expr.tensor, subscripts, expr, scope))
                return replace(expr, subscripts=subscripts)
            case Reduce():
                return self._reduction(expr, env, scope)
            case _:
                return rebuild(expr, lambda child: self.rename(child, env, scope))

    def subscript(self, expr: Expr, env: Mapping[str, str], scope: IndexScope) -> Expr:
        """Return a subscript over generated names, as the plain expression of its form unless it gathers."""
        renamed = self.rename(expr, env, scope)
        if isinstance(renamed, (IndexExpr, Literal)) or any(isinstance(e, Read) for e in walk(renamed)):
            return renamed
        return replace(expr_of(self.affine(renamed)), span=expr.span)

    def _reduction(self, expr: Reduce, env: Mapping[str, str], outer: IndexScope) -> Expr:
        names = {r.index: self.context.iterator(r.index) for r in expr.ranges}
        inner = {**env, **names}
        given = self.given(expr.ranges, inner)
        conditions = self.conditions(expr.conditions, inner)
        scope = IndexScope(tuple(names.values()), given, conditions, outer, expr.op, expr.span)
        self.scopes[scope.indices[0]] = scope
        body = self.rename(expr.body, inner, scope)
        values = tuple(self.rename(c, inner, scope) for c in expr.conditions if reads_values(c))
        ranges = tuple(Range(names[r.index], span=r.span) for r in expr.ranges)
        return replace(expr, ranges=ranges, body=body, conditions=values)

    def access(
        self, tensor: str, subscripts: tuple[Expr, ...], read: Read, scope: IndexScope, is_write: bool = False
    ) -> AffineAccess:
        """Return the access of a read or target whose subscripts are renamed already."""
        forms = tuple(self._subscript(s) for s in subscripts)
        shown = ", ".join("..." if f is None else self.context.show(f) for f in forms)
        text = source_text(read.span) or (f"{tensor}[{shown}]" if forms else tensor)
        spans = tuple(s.span for s in read.subscripts)
        bare = tuple(
            s.name if isinstance(s, IndexExpr) and isinstance(w, IndexExpr) else None
            for s, w in zip(subscripts, read.subscripts, strict=True)
        )
        return AffineAccess(tensor, forms, scope, read.pad, is_write, text, read.span, spans, bare)

    def _subscript(self, expr: Expr) -> Affine | None:
        if any(isinstance(e, Read) for e in walk(expr)):
            return None
        return self.affine(expr)

    def affine(self, expr: Expr) -> Affine:
        """Return the form of a renamed expression, or raise the error that explains it."""
        try:
            return affine_of(expr)
        except NotAffine as error:
            text = source_text(error.expr.span) or "the expression"
            raise self.context.error(NOT_AFFINE, error.expr.span or expr.span, text=text, why=error.why) from None

    def given(self, ranges: tuple[Range, ...], env: Mapping[str, str]) -> dict[str, tuple[Affine, Affine]]:
        """Return the ranges that the text gives, over generated names."""
        found = {}
        for r in ranges:
            if r.lo is not None and r.hi is not None:
                lo, hi = (self.affine(self._pure(e, env)) for e in (r.lo, r.hi))
                found[env[r.index]] = (lo, hi)
        return found

    def conditions(self, exprs: tuple[Expr, ...], env: Mapping[str, str]) -> tuple[Restriction, ...]:
        """Return the conjunction of the `where` conditions that read no values, over generated names."""
        found: list[Restriction] = []
        for expr in (e for e in exprs if not reads_values(e)):
            try:
                found.append(restriction_of(self._pure(expr, env)))
            except NotAffine as error:
                text = source_text(error.expr.span or expr.span) or "the condition"
                span = error.expr.span or expr.span
                if not error.why:
                    raise self.context.error(BAD_CONDITION, span, text=text) from None
                raise self.context.error(NOT_AFFINE, span, text=text, why=error.why) from None
        return tuple(found)

    def _pure(self, expr: Expr, env: Mapping[str, str]) -> Expr:
        def named(e: Expr) -> Expr | None:
            match e:
                case IndexExpr(name=name):
                    return replace(e, name=env[name])
                case SizeExpr(name=name):
                    return replace(expr_of(self.sizes[name]), span=e.span)
                case Read() | Reduce():
                    return e
                case _:
                    return None

        return replace_parts(expr, named)


def source_text(span: Span | None) -> str:
    """Return the text that a span covers, its line breaks as blanks; "" without a span."""
    return " ".join(span.source.text[span.start : span.end].split()) if span else ""


def free_indices(expr: Expr, bound: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the indices that an expression uses and no inline reduction in it binds, in the order of the text."""
    match expr:
        case IndexExpr(name=name):
            if name not in bound:
                yield name
        case Reduce(ranges=ranges):
            inner = bound | {r.index for r in ranges}
            for child in children(expr):
                yield from free_indices(child, inner)
        case _:
            for child in children(expr):
                yield from free_indices(child, bound)


def name_statement(
    context: BindingContext,
    sizes: Mapping[str, Affine],
    number: int,
    statement: Statement,
    loops: Mapping[str, str],
    outer: IndexScope | None,
) -> BoundStatement:
    """Return a statement without `...` over generated names; `loops` maps the loops' indices, outermost first."""
    left = [i for s in statement.subscripts for i in free_indices(s)]
    right = [i for e in (statement.expr, *statement.conditions) for i in free_indices(e)]
    order = dict.fromkeys([r.index for r in statement.ranges] + left + right)
    own = [i for i in order if i not in loops]
    if len(own) + len(loops) > MAX_INDICES:
        count = len(own) + len(loops)
        raise context.error(TOO_MANY_INDICES, statement.span, count=count, limit=MAX_INDICES)
    env = {**loops, **{i: context.iterator(i) for i in own}}
    namer = Namer(context, sizes)
    given = namer.given(statement.ranges, env)
    conditions = namer.conditions(statement.conditions, env)
    scope = IndexScope(tuple(env[i] for i in own), given, conditions, outer, None, statement.span)
    subscripts = tuple(namer.subscript(s, env, scope) for s in statement.subscripts)
    as_read = Read(statement.target, statement.subscripts, span=statement.target_span)
    target = namer.access(statement.target, subscripts, as_read, scope, is_write=True)
    expr = namer.rename(statement.expr, env, scope)
    values = tuple(namer.rename(c, env, scope) for c in statement.conditions if reads_values(c))
    targets = tuple(env[i] for i in own if i in left)
    return BoundStatement(
        number,
        statement,
        tuple(loops.values()),
        scope,
        target,
        subscripts,
        expr,
        tuple(namer.reads),
        targets,
        namer.scopes,
        values,
    )


def expand_dots(
    context: BindingContext, statement: Statement, shapes: Mapping[str, tuple[Affine, ...] | None]
) -> Statement:
    """Return the statement with each `...` spelled out: batch indices, or 0 where an extent 1 is broadcast.

    Raises:
        ShapeError: where a tensor has fewer dimensions than subscripts, or no tensor tells how many there are.
    """
    dotted = [r for r in statement.reads() if any(isinstance(s, Dots) for s in r.subscripts)]
    target = any(isinstance(s, Dots) for s in statement.subscripts)
    if not dotted and not target:
        return statement
    as_read = Read(statement.target, statement.subscripts, span=statement.target_span)
    batches = [b for r in (*dotted, as_read) if (b := _batch(context, r, shapes)) is not None]
    if not batches:
        why = "no tensor tells how many dimensions it stands for"
        raise context.error(NO_RANGE, statement.span, index="...", why=why)
    count = max(len(b) for b in batches)
    widest = [
        any(not (b[d - count].is_constant and b[d - count].const == 1) for b in batches if len(b) >= count - d)
        for d in range(count)
    ]

    def subscripts_of(read: Read) -> tuple[Expr, ...]:
        batch = _batch(context, read, shapes)
        size = count if batch is None else len(batch)
        spelled: list[Expr] = []
        for d in range(count - size, count):
            broadcast = batch is not None and batch[d - count] == constant(1) and widest[d]
            spelled.append(Literal(0) if broadcast and read is not as_read else IndexExpr(f"...{d}"))
        at = next((k for k, s in enumerate(read.subscripts) if isinstance(s, Dots)), None)
        if at is None:
            return read.subscripts
        return (*read.subscripts[:at], *spelled, *read.subscripts[at + 1 :])

    def spell(expr: Expr) -> Expr:
        return replace(expr, subscripts=subscripts_of(expr)) if isinstance(expr, Read) else expr

    left = tuple(transform(s, spell) for s in subscripts_of(as_read))
    conditions = tuple(transform(c, spell) for c in statement.conditions)
    return replace(statement, subscripts=left, expr=transform(statement.expr, spell), conditions=conditions)


def _batch(
    context: BindingContext, read: Read, shapes: Mapping[str, tuple[Affine, ...] | None]
) -> tuple[Affine, ...] | None:
    shape = shapes.get(read.tensor)
    at = next((k for k, s in enumerate(read.subscripts) if isinstance(s, Dots)), None)
    if shape is None or at is None:
        return None
    size = len(shape) - (len(read.subscripts) - 1)
    if size < 0:
        raise rank_error(context, read, shape)
    return shape[at : at + size]


def rank_error(context: BindingContext, read: Read | AffineAccess, shape: tuple[Affine, ...]) -> Exception:
    """Return the error of a tensor that is subscripted with the wrong number of subscripts."""
    shown = f"[{', '.join(context.show(e) for e in shape)}]"
    text = read.text if isinstance(read, AffineAccess) else source_text(read.span) or read.tensor
    return context.error(
        WRONG_RANK,
        read.span,
        access=text,
        subscripts=len(read.subscripts),
        tensor=read.tensor,
        rank=len(shape),
        shape=shown,
    )
