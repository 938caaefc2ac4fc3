"""Syntax to Program: names resolved, statements checked, inputs, outputs and temporaries told apart."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct

from polyker.einsum_frontend.check import (
    bounds,
    check_affine,
    check_binders,
    check_measure,
    check_no_reads,
    check_range,
    check_statement,
)
from polyker.einsum_frontend.check import expressions as expressions_of
from polyker.einsum_frontend.names import MAX_OPERANDS, MAX_STATEMENTS, did_you_mean
from polyker.einsum_frontend.resolve import Kinds, NamePlace, classify, occurrences, resolve, resolve_range
from polyker.einsum_frontend.syntax import Syntax
from polyker.errors.base import Span, failure
from polyker.errors.syntax import (
    ASSIGNED_INPUT,
    DUPLICATE,
    NO_OUTPUT,
    RANK,
    READ_TOO_EARLY,
    REUSED,
    TENSOR_NEEDED,
    TOO_MANY_OPERANDS,
    TOO_MANY_STATEMENTS,
    UNDEFINED_OUTPUT,
    UNKNOWN_NAME,
    UNUSED_PARAMETER,
)
from polyker.ir.expr import Dots, Expr, Read, SizeExpr, walk
from polyker.ir.program import Declared, Loop, Node, Program, Statement
from polyker.structs import replace


class Placed(Struct, frozen=True):
    """A statement with its number in the text and the numbers of the loops around it."""

    statement: Statement
    number: int
    loops: tuple[int, ...]


def lower(syntax: Syntax, sizes: Collection[str] = (), indices: Collection[str] = ()) -> Program:
    """Return the checked program; `sizes` and `indices` are names that are so wherever they stand.

    Raises ParseError or ShapeError, with the place where the rule is broken.
    """
    _check_measures(syntax)
    kinds = classify(syntax, sizes, indices)
    body = tuple(_resolve_node(n, kinds, ()) for n in syntax.body)
    types = _types(syntax, kinds)
    placed = list(_place(body, (), [0, 0]))
    reads: dict[str, Span | None] = {}
    for p in placed:
        for read in _reads(p.statement):
            reads.setdefault(read.tensor, read.span)
    defined: dict[str, Span | None] = {}
    for p in placed:
        defined.setdefault(p.statement.target, p.statement.target_span)
    if syntax.header is None:
        inputs = parameters = tuple(name for name in reads if name not in defined)
        outputs = _outputs(placed, defined)
    else:
        parameters = tuple(p.name for p in syntax.header.parameters)
        inputs = tuple(name for name in parameters if name not in kinds.sizes)
        outputs = tuple(o.name for o in syntax.header.outputs)
    temporaries = tuple(name for name in defined if name not in outputs and name not in inputs)
    program = Program(
        syntax.header.name if syntax.header else None,
        syntax.header is not None,
        inputs,
        outputs,
        temporaries,
        parameters,
        _sizes(types, [p for p in parameters if p in kinds.sizes], body),
        body,
        types,
        syntax.source,
    )
    _check_roles(program, syntax, kinds, reads, defined)
    _check_early(program, placed)
    _check_ranks(program, placed)
    return program


def _check_measures(syntax: Syntax) -> None:
    count = 0

    def visit(body: tuple[Node, ...]) -> None:
        nonlocal count
        for node in body:
            if isinstance(node, Loop):
                for limit in bounds(node.range):
                    check_measure(limit)
                visit(node.body)
                continue
            count += 1
            if count > MAX_STATEMENTS:
                raise failure(TOO_MANY_STATEMENTS, span=node.span, limit=MAX_STATEMENTS)
            for expr in expressions_of(node):
                check_measure(expr)

    visit(syntax.body)
    header = (*syntax.header.parameters, *syntax.header.outputs) if syntax.header else ()
    for declared in (*header, *syntax.types):
        for dimension in declared.shape or ():
            check_measure(dimension)


# Resolving.


def _resolve_node(node: Node, kinds: Kinds, loops: tuple[str, ...]) -> Node:
    if isinstance(node, Statement):
        return _resolve_statement(node, kinds, loops)
    extent = node.range
    if extent.index in loops:
        raise failure(REUSED, span=extent.span, index=extent.index, what="loop")
    check_no_reads((extent,))
    resolved = resolve_range(extent, kinds, frozenset(loops))
    check_range(resolved)
    inner = (*loops, extent.index)
    return replace(node, range=resolved, body=tuple(_resolve_node(n, kinds, inner) for n in node.body))


def _resolve_statement(statement: Statement, kinds: Kinds, loops: tuple[str, ...]) -> Statement:
    check_binders(statement, loops)
    subscripted = (o for e in (Read(statement.target, statement.subscripts), statement.expr, *statement.conditions)
                   for o in occurrences(e, NamePlace.VALUE))  # fmt: skip
    free = {o.name for o in subscripted if o.free and o.place in (NamePlace.ALONE, NamePlace.SUBSCRIPT)}
    scope = frozenset((free & kinds.indices) | {r.index for r in statement.ranges} | set(loops))
    resolved = replace(
        statement,
        subscripts=tuple(resolve(s, kinds, scope, NamePlace.SUBSCRIPT) for s in statement.subscripts),
        expr=resolve(statement.expr, kinds, scope),
        ranges=tuple(resolve_range(r, kinds, scope) for r in statement.ranges),
        conditions=tuple(resolve(c, kinds, scope, NamePlace.WHERE) for c in statement.conditions),
    )
    check_statement(resolved, loops)
    return resolved


def _types(syntax: Syntax, kinds: Kinds) -> tuple[Declared, ...]:
    """Return what is declared of tensors: parameters, outputs, then lines, each with its sizes resolved."""
    header = (*syntax.header.parameters, *syntax.header.outputs) if syntax.header else ()
    out: list[Declared] = []
    for declared in (*header, *syntax.types):
        if declared.dtype is None and declared.shape is None:
            continue
        if any(d.name == declared.name for d in out):
            raise failure(DUPLICATE, span=declared.span, what="the type of", name=declared.name)
        shape = declared.shape
        if shape is not None:
            shape = tuple(resolve(s, kinds, frozenset(), NamePlace.SHAPE) for s in shape)
            for dimension in shape:
                check_affine(dimension, NamePlace.SHAPE)
        out.append(replace(declared, shape=shape))
    order = {d.name: i for i, d in reversed(list(enumerate(header)))}
    return tuple(sorted(out, key=lambda d: order.get(d.name, len(order))))


# Roles.


def _place(body: tuple[Node, ...], loops: tuple[int, ...], numbers: list[int]) -> Iterator[Placed]:
    for node in body:
        if isinstance(node, Loop):
            numbers[1] += 1
            yield from _place(node.body, (*loops, numbers[1]), numbers)
        else:
            numbers[0] += 1
            yield Placed(node, numbers[0], loops)


def _reads(statement: Statement) -> Iterator[Read]:
    """Yield the accesses that a statement reads, in the order of the text, a gathered tensor before its index."""
    for expr in (*statement.subscripts, statement.expr, *statement.conditions):
        yield from (e for e in walk(expr) if isinstance(e, Read))


def _outputs(placed: list[Placed], defined: Collection[str]) -> tuple[str, ...]:
    """Return the tensors that only the statements that define them read, in order of definition."""
    readers: dict[str, set[int]] = {name: set() for name in defined}
    writers: dict[str, set[int]] = {name: set() for name in defined}
    for p in placed:
        writers[p.statement.target].add(p.number)
        for read in _reads(p.statement):
            if read.tensor in readers:
                readers[read.tensor].add(p.number)
    return tuple(name for name in defined if readers[name] <= writers[name])


def _sizes(types: tuple[Declared, ...], parameters: Collection[str], body: tuple[Node, ...]) -> tuple[str, ...]:
    """Return the sizes, in order: of the declared shapes, the parameters, then of the statements."""
    found: dict[str, None] = {}

    def visit(expr: Expr) -> None:
        found.update((e.name, None) for e in walk(expr) if isinstance(e, SizeExpr))

    def visit_body(nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                for limit in bounds(node.range):
                    visit(limit)
                visit_body(node.body)
            else:
                for expr in expressions_of(node):
                    visit(expr)

    for declared in types:
        for dimension in declared.shape or ():
            visit(dimension)
    found.update((name, None) for name in parameters)
    visit_body(body)
    return tuple(found)


def _check_roles(
    program: Program, syntax: Syntax, kinds: Kinds, reads: dict[str, Span | None], defined: dict[str, Span | None]
) -> None:
    for what, names in (("inputs", program.inputs), ("outputs", program.outputs)):
        if len(names) > MAX_OPERANDS:
            raise failure(TOO_MANY_OPERANDS, count=len(names), what=what, limit=MAX_OPERANDS)
    for declared in syntax.types:
        if declared.name not in defined and (program.declared or declared.name not in reads):
            raise failure(UNDEFINED_OUTPUT, span=declared.span, what="declared tensor", name=declared.name)
    if syntax.header is None:
        if not program.outputs:
            raise failure(NO_OUTPUT)
        return
    _check_header(program, syntax, kinds, reads, defined)


def _check_header(
    program: Program, syntax: Syntax, kinds: Kinds, reads: dict[str, Span | None], defined: dict[str, Span | None]
) -> None:
    header = syntax.header
    assert header is not None
    for what, names in (("parameter", header.parameters), ("output", header.outputs)):
        for i, declared in enumerate(names):
            if declared.name in {d.name for d in names[:i]}:
                raise failure(DUPLICATE, span=declared.span, what=what, name=declared.name)
    for declared in header.outputs:
        if declared.name in kinds.sizes | kinds.indices:
            kind = "a size" if declared.name in kinds.sizes else "an index"
            raise failure(TENSOR_NEEDED, span=declared.span, name=declared.name, kind=kind)
        if declared.name not in defined:
            raise failure(UNDEFINED_OUTPUT, span=declared.span, what="output", name=declared.name)
    for name, span in reads.items():
        if name not in program.inputs and name not in defined:
            hint = did_you_mean(name, (*program.parameters, *defined))
            raise failure(UNKNOWN_NAME, span=span, hint=hint, name=name)
    used = reads.keys() | defined.keys() | set(_sizes(program.types, (), program.body))
    for declared in header.parameters:
        if declared.name in defined and declared.name not in program.outputs:
            raise failure(ASSIGNED_INPUT, span=defined[declared.name], name=declared.name)
        if declared.name not in used and not _gives_a_size(declared.name, program):
            raise failure(UNUSED_PARAMETER, span=declared.span, name=declared.name)


def _gives_a_size(parameter: str, program: Program) -> bool:
    """Whether a size of a tensor's declared shape stands elsewhere: then the tensor is there for its shape."""
    others = tuple(d for d in program.types if d.name != parameter)
    own = program.declaration(parameter)
    return own is not None and not {*_sizes((own,), (), ())}.isdisjoint(_sizes(others, (), program.body))


def _check_early(program: Program, placed: list[Placed]) -> None:
    """Raise ParseError at a read that no statement before it, beside it in a loop, or it itself can have defined."""
    writers: dict[str, list[Placed]] = {}
    for p in placed:
        writers.setdefault(p.statement.target, []).append(p)
    for p in placed:
        for read in _reads(p.statement):
            if read.tensor in program.inputs:
                continue
            if not any(w.number <= p.number or set(w.loops) & set(p.loops) for w in writers.get(read.tensor, ())):
                raise failure(READ_TOO_EARLY, span=read.span, name=read.tensor)


def _check_ranks(program: Program, placed: list[Placed]) -> None:
    """Raise ShapeError where one tensor has two numbers of subscripts; `...` stands for any number."""
    exact: dict[str, int] = {d.name: len(d.shape) for d in program.types if d.shape is not None}
    least: dict[str, tuple[int, Span | None]] = {}
    for p in placed:
        s = p.statement
        for read in (Read(s.target, s.subscripts, span=s.target_span), *_reads(s)):
            rank = sum(not isinstance(i, Dots) for i in read.subscripts)
            if rank < len(read.subscripts):
                if rank > least.get(read.tensor, (-1, None))[0]:
                    least[read.tensor] = rank, read.span
            elif exact.setdefault(read.tensor, rank) != rank:
                raise failure(RANK, span=read.span, tensor=read.tensor, found=rank, wanted=exact[read.tensor])
    for name, (rank, span) in least.items():
        if rank > exact.get(name, rank):
            raise failure(RANK, span=span, tensor=name, found=f"at least {rank}", wanted=exact[name])
