"""From a program to the programs of its derivatives, as texts: by reverse mode (vjp, grad) and by forward mode (jvp)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from polyker.errors.base import failure
from polyker.errors.gradients import INDEPENDENT, NO_FLOATS, NO_REVERSE, NOT_A_NUMBER, NOT_AN_OUTPUT, NOT_VARIED
from polyker.grad.adjoint import contributions, derivative
from polyker.grad.bound import PlainLoop, PlainNode, PlainStatement, bound
from polyker.grad.derivation import Derivation, statements_in
from polyker.grad.forms.blocks import with_blocks
from polyker.grad.forms.counts import with_counts
from polyker.grad.forms.shifts import with_shifts
from polyker.grad.forms.terms import with_terms
from polyker.grad.forms.versions import changing_tensors, with_versions
from polyker.grad.loops import carrying_indices, downwards, nested
from polyker.grad.places import places
from polyker.grad.residuals import forward_text, residuals
from polyker.grad.values import ONE, ZERO, mul
from polyker.grad.writers import writers_of
from polyker.ir.expr import Expr, Literal, Pad, Range, Read, walk
from polyker.ir.program import Loop, Node, Program, Statement
from polyker.ir.quasi_affine import indices_of

REAL_PARTS = "compute with real and imaginary parts in tensors of their own"
# Of a tensor, its gradient at some subscripts.
Bar: TypeAlias = Callable[[tuple[Expr, ...]], Expr]


def derivative_texts(
    kind: str,
    program: Program,
    fixed: Mapping[str, int],
    wrt: Sequence[str] | None,
    of: Sequence[str] | None,
    memory: int | None,
) -> tuple[str, ...]:
    """Return the programs of a derivative by inputs `wrt` and of outputs `of`, None for all: of "residuals" two, else one.

    "vjp" takes the gradients by outputs to those by inputs, "residuals" too, after a forward pass that returns what it reads;
    "grad" is of one number; "jvp" takes changes of inputs to those of outputs. Raises GradientError, ArgumentError.
    """
    d, of, wrt = _begun(program, fixed, wrt, of, memory)
    if kind in ("vjp", "residuals"):
        return _vjp(d, of, wrt, keep=kind == "residuals")
    return (_grad(d, of, wrt),) if kind == "grad" else (_jvp(d, of, wrt),)


def _vjp(d: Derivation, of: Sequence[str], wrt: Sequence[str], *, keep: bool) -> tuple[str, ...]:
    """Return the program of reverse mode; with `keep` a forward pass that returns residuals, and the one that reads these."""
    given = {name: d.given(name) for name in of}
    grads = _reverse(d, wrt, of, lambda name: lambda at: Read(given[name], at))
    kept = residuals(d) if keep else ()
    backward = d.text("vjp", list(given.values()), grads, kept)
    if not keep:
        return (backward,)
    return forward_text(d, kept) if kept else str(d.program), backward


def _grad(d: Derivation, of: Sequence[str], wrt: Sequence[str]) -> str:
    """Return the program of the gradient of one number; raises GradientError where it is none."""
    for name in of:
        if rank := len(d.source.shapes[name]):
            raise failure(NOT_A_NUMBER, name=name, rank=rank)
    return d.text("grad", (), _reverse(d, wrt, of, lambda name: lambda at: ONE))


def _jvp(d: Derivation, of: Sequence[str], wrt: Sequence[str]) -> str:
    """Return the program of forward mode."""
    active = _active(d, wrt, of)
    tangents = {name: d.tensor(f"d{name}", name) for name in wrt}
    for tensor in dict.fromkeys(s.target for s in d.source.statements if s.target in active):
        tangents[tensor] = d.tensor(f"d{tensor}", tensor)
    d.made += _forward(d, d.source.nodes, active, tangents)
    return d.text("jvp", [tangents[name] for name in wrt], [tangents[_result(d, name)] for name in of])


def _forward(
    d: Derivation, nodes: Sequence[PlainNode], active: frozenset[str], tangents: Mapping[str, str]
) -> list[Node]:
    """Return what computes the changes of the tensors of some nodes."""
    made: list[Node] = []
    of_block = writers_of(nodes)
    for node in nodes:
        if isinstance(node, PlainLoop):
            body = _forward(d, node.body, active, tangents)
            made += [Loop(node.range, (*d.of_block(node, body), *body))] if body else []
            continue
        if node.target not in active:
            continue
        writers = of_block[node.target]
        is_weighed = writers.op not in ("set", "add")
        # A weight is of the whole value: it is known where the last term is.
        terms = writers.statements if is_weighed else (node,)
        if is_weighed and node is not writers.statements[-1]:
            continue
        weigh = d.weights(node.target, writers, made)
        for s in terms:
            value = derivative(
                s.expr, active.__contains__, lambda r: Read(tangents[r.tensor], r.subscripts, _padded(r))
            )
            op = "add" if is_weighed else s.op
            made.append(Statement(tangents[s.target], s.subscripts, op, mul(weigh(s), value), s.ranges, s.conditions))
    return made


def varied(program: Program, fixed: Mapping[str, int]) -> dict[str, frozenset[str]]:
    """Return of each output the inputs that it changes with, of those that floats may be given for; raises GradientError."""
    d, of, _ = _begun(program, fixed, None, None, independent=True)
    floats = {name for name in program.inputs if d.source.dtypes[name].kind == "f"}
    return {name: frozenset(_behind(d, [name]) & floats) for name in of}


def _padded(read: Read) -> Pad | None:
    """Return the padding of a read's change: what stands for elements outside does not change."""
    if read.pad is not None and read.pad.mode == "constant":
        return Pad("constant", Literal(0))
    return read.pad


def _begun(
    program: Program,
    fixed: Mapping[str, int],
    wrt: Sequence[str] | None,
    of: Sequence[str] | None,
    memory: int | None = None,
    *,
    independent: bool = False,
) -> tuple[Derivation, list[str], list[str]]:
    """Return a derivation with nothing made, the outputs and the inputs; raises ArgumentError for names that are none.

    `independent`: no input need be one that an output changes with.
    """
    plain = bound(program, fixed)
    plain = with_blocks(plain, changing_tensors(plain), memory)
    source = with_terms(with_versions(with_shifts(with_counts(plain))))
    floats = {name for name, dtype in source.dtypes.items() if dtype.kind == "f"}
    inputs, outputs = ([n for n in names if n in floats] for names in (program.inputs, program.outputs))
    for name in of or ():
        if name not in outputs:
            raise failure(NOT_AN_OUTPUT, name=name, known=", ".join(outputs))
    for name in wrt or ():
        if name not in inputs:
            raise failure(NOT_VARIED, name=name, known=", ".join(inputs))
    for what, names in (("input", inputs), ("output", outputs)):
        if not names and not independent:
            _refuse_complex(source.statements)
            raise failure(NO_FLOATS, what=what)
    found = Derivation(program, fixed, source)
    chosen = list(of or outputs)
    reached = _behind(found, chosen)
    if wrt is None:
        wrt = [name for name in inputs if name in reached]
    for name in wrt:
        if name not in reached:
            raise failure(INDEPENDENT, of=", ".join(chosen), wrt=name)
    if of is None and not independent:  # of outputs those that depend on an input
        pairs = [(s.target, _sources(found, s)) for s in found.source.statements]
        moving = _reached(pairs, set(wrt), back=False)
        chosen = [name for name in outputs if _result(found, name) in moving]
    if not wrt and not independent:
        raise failure(INDEPENDENT, of=", ".join(chosen), wrt=", ".join(program.inputs))
    active = _active(found, wrt, chosen)
    _refuse_complex([s for s in source.statements if s.target in active])
    return found, chosen, list(wrt)


def _refuse_complex(statements: Iterable[PlainStatement]) -> None:
    """Raise GradientError for statements that compute with complex numbers."""
    for s in statements:
        if s.own.acc.is_complex or any(e.dtype is not None and e.dtype.is_complex for e in walk(s.own.expr)):
            reason = "it is computed with complex numbers"
            raise failure(NO_REVERSE, span=s.own.span, tensor=s.target, reason=reason, advice=REAL_PARTS)


def _result(d: Derivation, output: str) -> str:
    """Return the name of what an output is in the end: of an argument that is changed it is another tensor."""
    return d.source.results.get(output, output)


def _sources(d: Derivation, s: PlainStatement) -> set[str]:
    """Return the tensors that the value of a statement changes with."""
    floats = {name for name, dtype in d.source.dtypes.items() if dtype.kind == "f"}
    return {c.read.tensor for c in contributions(s.expr, ONE, lambda name: name in floats - d.source.constant)}


def _reached(pairs: Iterable[tuple[str, set[str]]], found: set[str], *, back: bool) -> set[str]:
    """Return tensors with all that they come from (`back`), or that comes from them; pairs are targets with their sources."""
    pairs, known = list(pairs), -1
    while known != len(found):
        known = len(found)
        for target, sources in pairs:
            if back and target in found:
                found |= sources
            elif not back and sources & found:
                found.add(target)
    return found


def _active(d: Derivation, wrt: Sequence[str], of: Sequence[str]) -> frozenset[str]:
    """Return the tensors that change with inputs, and with which outputs change."""
    pairs = [(s.target, _sources(d, s)) for s in d.source.statements if s.target not in d.source.constant]
    return frozenset(_reached(pairs, set(wrt), back=False) & _behind(d, of))


def _behind(d: Derivation, of: Sequence[str]) -> set[str]:
    """Return the tensors that outputs change with."""
    pairs = ((s.target, _sources(d, s)) for s in d.source.statements if s.target not in d.source.constant)
    return _reached(pairs, {_result(d, name) for name in of}, back=True)


def _reverse(d: Derivation, wrt: Sequence[str], of: Sequence[str], given: Callable[[str], Bar]) -> list[str]:
    """Add the statements of reverse mode, and return the gradients by inputs; `given` has those by outputs."""
    active = _active(d, wrt, of)
    read = {name for s in d.source.statements if s.target in active for name in _sources(d, s)}
    outputs = {_result(d, name): name for name in of}
    bars: dict[str, str] = {}
    values: dict[str, Bar] = {}
    for tensor in sorted(active, key=list(d.source.shapes).index):
        if tensor in outputs and tensor not in read:
            values[tensor] = given(outputs[tensor])
            continue
        bars[tensor] = d.tensor(f"d{tensor}", tensor)
        if tensor in outputs:  # what is returned and read: its gradient begins with what is given
            d.made.append(d.everywhere(bars[tensor], given(outputs[tensor])))
        values[tensor] = lambda at, name=bars[tensor]: Read(name, at)  # type: ignore[misc]
    made = _backward(d, d.source.nodes, active, bars, values)
    begun = {s.target for s in statements_in(d.made)}
    steps = {n.range.index for n in d.source.nodes if isinstance(n, PlainLoop)}
    for node in made:
        in_steps = isinstance(node, Loop) and node.range.index in steps  # of which there may be none
        for s in statements_in((node,)):
            # A sum at a constant place says nothing of the elements elsewhere.
            if in_steps or not all(map(indices_of, s.subscripts)):
                if s.target in d.like and s.target not in begun and not d.is_local(s.target):
                    d.made.append(d.everywhere(s.target, ZERO))
                begun.add(s.target)
    d.made += made
    return [bars[name] for name in wrt]


def _backward(
    d: Derivation,
    nodes: Sequence[PlainNode],
    active: frozenset[str],
    bars: Mapping[str, str],
    values: Mapping[str, Bar],
    around: tuple[Range, ...] = (),
) -> list[Node]:
    """Return what adds to the gradients of all that some nodes read, from the last to the first; `around`: the loops' ranges."""
    made: list[Node] = []
    of_block = writers_of(nodes)
    for node in reversed(nodes):
        if isinstance(node, PlainLoop):
            body = _backward(d, node.body, active, bars, values, (*around, node.range))
            made += [downwards(node.range, body, d.of_block(node, body))] if body else []
        elif node.target in active and not (carrying := carrying_indices(node)):
            weigh = d.weights(node.target, of_block[node.target], made)
            made += _gathered(d, node, weigh, active, bars, values, around)
        elif node.target in active:  # a recurrence, whose weights are 1: from its last element to its first
            body = list(_gathered(d, node, lambda _: ONE, active, bars, values, around))
            made += nested(body, [r for r in node.ranges if r.index in carrying])
    return made


def _gathered(
    d: Derivation,
    s: PlainStatement,
    weigh: Callable[[PlainStatement], Expr],
    active: frozenset[str],
    bars: Mapping[str, str],
    values: Mapping[str, Bar],
    around: tuple[Range, ...],
) -> list[Node]:
    """Return what adds to the gradients of what a statement reads."""
    made: list[Node] = []
    bar = mul(values[s.target](s.subscripts), weigh(s))
    for c in contributions(s.expr, bar, active.__contains__):
        ranges, shape = (*around, *s.ranges), d.source.shapes[c.read.tensor]
        for subscripts, conditions in places(c.read, shape, ranges, s.conditions):
            made.append(
                Statement(bars[c.read.tensor], subscripts, "add", c.chosen, s.ranges, (*s.conditions, *conditions))
            )
    return made
