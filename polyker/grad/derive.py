"""From a program to the programs of its derivatives, as texts: by reverse mode (vjp, grad) and by forward mode (jvp)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from polyker.errors.base import failure
from polyker.errors.gradients import INDEPENDENT, NO_FLOATS, NOT_A_NUMBER, NOT_AN_OUTPUT, NOT_VARIED
from polyker.grad.adjoint import contributions, derivative
from polyker.grad.bound import PlainProgram, PlainStatement, bound
from polyker.grad.places import places
from polyker.grad.values import ONE, mul
from polyker.grad.writers import Writers, weights, writers_of
from polyker.ir.expr import Call, Expr, IndexExpr, Literal, Pad, Range, Read, SizeExpr, walk
from polyker.ir.program import Declared, Program, Statement
from polyker.ir.quasi_affine import lit
from polyker.structs import replace


class Derivation(Struct):
    """A program that is being made of another: statements, and the tensors that it has besides the other's.

    `like` has, for each such tensor, the tensor whose shape it has.
    """

    program: Program
    source: PlainProgram
    writers: Mapping[str, Writers]
    made: list[Statement] = field(default_factory=list)
    like: dict[str, str] = field(default_factory=dict)
    sizes: dict[tuple[str, int], str] = field(default_factory=dict)

    def tensor(self, wanted: str, like: str) -> str:
        """Return the name of a new tensor with the shape of another."""
        name = self.source.names.fresh(wanted)
        self.like[name] = like
        return name

    def given(self, like: str) -> str:
        """Return the name of a new input with the shape of another tensor; it gives extents that no shape can say."""
        name = self.tensor(f"d{like}", like)
        for d, extent in enumerate(self.source.shapes[like]):
            if not _is_sayable(extent):
                self.sizes[like, d] = self.source.names.fresh(f"{name}{d}")
        return name

    def shape(self, tensor: str) -> tuple[Expr, ...] | None:
        """Return the shape of a tensor; None where no text can say it, and of a size among the parameters."""
        like = self.like.get(tensor, tensor)
        if like not in self.source.shapes:
            return None
        extents = tuple(
            SizeExpr(self.sizes[like, d]) if (like, d) in self.sizes else extent
            for d, extent in enumerate(self.source.shapes[like])
        )
        return extents if all(map(_is_sayable, extents)) else None

    def weights(self, tensor: str) -> Callable[[PlainStatement], Expr]:
        """Return the derivative of a tensor's element by a term of a statement; adds the statements that it needs."""
        names: dict[str, str] = {}

        def emit(what: str, statement: Statement) -> str:
            if what not in names:
                names[what] = self.tensor(f"{tensor}_{what}", tensor)
            self.made.append(replace(statement, target=names[what]))
            return names[what]

        return weights(tensor, self.writers[tensor], emit)

    def everywhere(self, target: str, value: Callable[[tuple[Expr, ...]], Expr]) -> None:
        """Add a statement that sets all elements of a tensor."""
        extents = self.shape(target)
        assert extents is not None  # it has that of an input
        indices = tuple(self.source.names.fresh(f"d{n}") for n in range(len(extents)))
        at = tuple(IndexExpr(i) for i in indices)
        ranges = tuple(Range(i, lit(0), n) for i, n in zip(indices, extents, strict=True))
        self.made.append(Statement(target, at, "set", value(at), ranges))

    def text(self, kind: str, more: Sequence[str], outputs: Sequence[str]) -> str:
        """Return the program: with inputs `more` than the other's, and the statements of the other that it needs, first."""
        kept = [*self._needed(), *self.made]
        p, targets = self.program, [s.target for s in kept]
        read = {r.tensor for s in kept for r in s.reads()}
        parameters = [*p.parameters, *more]
        for name in p.inputs:
            others = [self._declared(n) for n in (*parameters, *outputs, *targets) if n != name]
            if name not in read and sizes_in([self._declared(name)], []).isdisjoint(sizes_in(others, kept)):
                parameters.remove(name)  # it is needed for nothing, not even for its shape
        declared = map(self._declared, dict.fromkeys((*parameters, *outputs, *targets)))
        made = Program(
            name=f"{p.name or 'op'}_{kind}", declared=True, inputs=(), outputs=tuple(outputs), temporaries=(),
            parameters=tuple(parameters), sizes=(), body=tuple(kept),
            types=tuple(d for d in declared if d.shape is not None or d.dtype is not None),
        )  # fmt: skip
        return str(made)

    def _declared(self, name: str) -> Declared:
        given = self.program.declaration(self.like.get(name, name))
        return Declared(name, given.dtype if given is not None else None, self.shape(name))

    def _needed(self) -> list[Statement]:
        """Return the statements of the source whose values are read."""
        wanted = {r.tensor for s in self.made for r in s.reads()}
        kept: list[Statement] = []
        for a in reversed(self.source.assignments):
            if a.target in wanted:
                statement = Statement(a.target, a.subscripts, a.op, a.expr, a.ranges, a.conditions)
                kept.append(statement)
                wanted |= {r.tensor for r in statement.reads()}
        return kept[::-1]


def _is_sayable(extent: Expr) -> bool:
    """Whether a text may have an expression as an extent."""
    return all(not isinstance(e, Call) or e.op in ("add", "mul", "neg", "floordiv", "mod") for e in walk(extent))


def sizes_in(types: Iterable[Declared], statements: Iterable[Statement]) -> set[str]:
    """Return the sizes that shapes and statements speak of."""
    exprs = [e for d in types for e in d.shape or ()]
    for s in statements:
        exprs += [*s.subscripts, s.expr, *s.conditions, *(e for r in s.ranges for e in (r.lo, r.hi) if e is not None)]
    return {part.name for e in exprs for part in walk(e) if isinstance(part, SizeExpr)}


def vjp_text(program: Program, fixed: Mapping[str, int], wrt: Sequence[str] | None, of: Sequence[str] | None) -> str:
    """Return the program that takes the gradients by outputs to those by inputs."""
    d, of, wrt = _begun(program, fixed, wrt, of)
    given = {name: d.given(name) for name in of}
    grads = _reverse(d, wrt, of, lambda name: lambda at: Read(given[name], at))
    return d.text("vjp", list(given.values()), grads)


def grad_text(program: Program, fixed: Mapping[str, int], wrt: Sequence[str] | None, of: Sequence[str] | None) -> str:
    """Return the program of the gradient of one number by inputs."""
    d, of, wrt = _begun(program, fixed, wrt, of)
    for name in of:
        if rank := len(d.source.shapes[name]):
            raise failure(NOT_A_NUMBER, name=name, rank=rank)
    return d.text("grad", (), _reverse(d, wrt, of, lambda name: lambda at: ONE))


def jvp_text(program: Program, fixed: Mapping[str, int], wrt: Sequence[str] | None, of: Sequence[str] | None) -> str:
    """Return the program that takes changes of inputs to those of outputs."""
    d, of, wrt = _begun(program, fixed, wrt, of)
    active = _active(d, wrt, of)
    tangents = {name: d.tensor(f"d{name}", name) for name in wrt}
    for tensor in dict.fromkeys(a.target for a in d.source.assignments):
        if tensor not in active:
            continue
        tangents[tensor] = d.tensor(f"d{tensor}", tensor)
        weigh, writers = d.weights(tensor), d.writers[tensor]
        for a in writers.statements:
            value = derivative(
                a.expr, active.__contains__, lambda r: Read(tangents[r.tensor], r.subscripts, _padded(r))
            )
            op = "set" if a.op == "set" and writers.op in ("set", "add") else "add"
            d.made.append(Statement(tangents[tensor], a.subscripts, op, mul(weigh(a), value), a.ranges, a.conditions))
    return d.text("jvp", [tangents[name] for name in wrt], [tangents[name] for name in of])


def _padded(read: Read) -> Pad | None:
    """Return the padding of a read's change: what stands for elements outside does not change."""
    if read.pad is not None and read.pad.mode == "constant":
        return Pad("constant", Literal(0))
    return read.pad


def _begun(
    program: Program, fixed: Mapping[str, int], wrt: Sequence[str] | None, of: Sequence[str] | None
) -> tuple[Derivation, list[str], list[str]]:
    """Return a derivation with nothing made, the outputs and the inputs; raises ArgumentError for names that are none."""
    source = bound(program, fixed)
    floats = {name for name, dtype in source.dtypes.items() if dtype.kind == "f"}
    inputs, outputs = ([n for n in names if n in floats] for names in (program.inputs, program.outputs))
    for name in of or ():
        if name not in outputs:
            raise failure(NOT_AN_OUTPUT, name=name, known=", ".join(outputs))
    for name in wrt or ():
        if name not in inputs:
            raise failure(NOT_VARIED, name=name, known=", ".join(inputs))
    for what, names in (("input", inputs), ("output", outputs)):
        if not names:
            raise failure(NO_FLOATS, what=what)
    found = Derivation(program, source, writers_of(source))
    chosen = list(of or outputs)
    if wrt is None:
        reached = _behind(found, chosen)
        wrt = [name for name in inputs if name in reached]
    for name in wrt:
        if name not in _behind(found, chosen):
            raise failure(INDEPENDENT, of=", ".join(chosen), wrt=name)
    if not wrt:
        raise failure(INDEPENDENT, of=", ".join(chosen), wrt=", ".join(program.inputs))
    return found, chosen, list(wrt)


def _sources(d: Derivation, a: PlainStatement) -> set[str]:
    """Return the tensors that the value of a statement changes with."""
    floats = {name for name, dtype in d.source.dtypes.items() if dtype.kind == "f"}
    return {c.read.tensor for c in contributions(a.expr, ONE, lambda name: name in floats - d.source.constant)}


def _behind(d: Derivation, of: Sequence[str]) -> set[str]:
    """Return the tensors that outputs change with."""
    found = set(of)
    for a in reversed(d.source.assignments):
        if a.target in found and a.target not in d.source.constant:
            found |= _sources(d, a)
    return found


def _active(d: Derivation, wrt: Sequence[str], of: Sequence[str]) -> frozenset[str]:
    """Return the tensors that change with inputs, and with which outputs change."""
    varied = set(wrt)
    for a in d.source.assignments:
        if a.target not in d.source.constant and varied & _sources(d, a):
            varied.add(a.target)
    return frozenset(varied & _behind(d, of))


def _reverse(
    d: Derivation, wrt: Sequence[str], of: Sequence[str], given: Callable[[str], Callable[[tuple[Expr, ...]], Expr]]
) -> list[str]:
    """Add the statements of reverse mode, and return the gradients by inputs; `given` has those by outputs, by subscripts."""
    active = _active(d, wrt, of)
    read = {name for a in d.source.assignments if a.target in active for name in _sources(d, a)}
    bars: dict[str, str] = {}
    values: dict[str, Callable[[tuple[Expr, ...]], Expr]] = {}
    for tensor in sorted(active, key=list(d.source.shapes).index):
        if tensor in of and tensor not in read:
            values[tensor] = given(tensor)
            continue
        bars[tensor] = d.tensor(f"d{tensor}", tensor)
        if tensor in of:  # what is returned and read: its gradient begins with what is given
            d.everywhere(bars[tensor], given(tensor))
        values[tensor] = lambda at, name=bars[tensor]: Read(name, at)  # type: ignore[misc]
    for tensor in reversed(list(dict.fromkeys(a.target for a in d.source.assignments))):
        if tensor not in active:
            continue
        weigh = d.weights(tensor)
        for a in d.writers[tensor].statements:
            bar = mul(values[tensor](a.subscripts), weigh(a))
            for c in contributions(a.expr, bar, active.__contains__):
                for subscripts, conditions in places(c.read, d.source.shapes[c.read.tensor]):
                    d.made.append(
                        Statement(
                            bars[c.read.tensor], subscripts, "add", c.chosen, a.ranges, (*a.conditions, *conditions)
                        )
                    )
    return [bars[name] for name in wrt]


TEXTS = {"vjp": vjp_text, "grad": grad_text, "jvp": jvp_text}
