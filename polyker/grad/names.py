"""Names of the notation for what a typed program calls otherwise, and types with a size for each dimension."""

from __future__ import annotations

import re
from collections.abc import Iterator

from polyker.errors.base import failure
from polyker.errors.gradients import NO_REVERSE
from polyker.ir.dtypes import DTYPES, DType, TensorType, f64, i64
from polyker.ir.expr import (
    BITWISE,
    FUNCTIONS,
    REDUCTIONS,
    Call,
    Cast,
    Dots,
    Expr,
    IndexExpr,
    Literal,
    Read,
    SizeExpr,
    rebuild,
    walk,
)
from polyker.ir.program import Program
from polyker.ir.typed import TypedProgram
from polyker.record.signatures import signature_of
from polyker.structs import replace

DECLARE = "declare shapes, such as `X: f64[B,N,M]`, or write indices instead"
_WORDS = ("for", "in", "where", "and", "or", "not", "pad", "inf", "nan", "True", "False")


class Names:
    """Names of the notation for the generated ones of a typed program; `fresh` names are none of the program's."""

    def __init__(self, typed: TypedProgram, program: Program) -> None:
        words = {*FUNCTIONS, *REDUCTIONS, *DTYPES, *_WORDS}
        self._taken = words | {
            *program.inputs,
            *program.outputs,
            *program.temporaries,
            *program.sizes,
            *program.parameters,
        }
        self.tensors: dict[str, str] = {}
        given = {*program.inputs, *program.outputs, *program.temporaries}
        for t in typed.tensors:
            self.tensors[t.name] = t.label if t.label in given else self.fresh(re.sub(r"\W+", "_", t.label).strip("_"))
        self.sizes = dict(typed.sizes)
        labels = dict(typed.labels)
        self.indices: dict[str, str] = {}
        for name in dict.fromkeys(i for s in typed.statements() for i in s.iterators):
            label = labels.get(name, name)
            self.indices[name] = self.fresh(label if label.isidentifier() else name)

    def fresh(self, wanted: str) -> str:
        """Return a name that nothing has: this one, or with a number behind it."""
        found, number = wanted, 1
        while found in self._taken:
            found, number = f"{wanted}_{number}", number + 1
        self._taken.add(found)
        return found

    def plain(self, expr: Expr, casts: frozenset[DType]) -> Expr:
        """Return an expression in names of the notation, without types; of conversions those to a type in `casts` stay."""

        def change(e: Expr) -> Expr:
            match e:
                case Cast(to=to, arg=arg):
                    return Cast(to, change(arg)) if to in casts else change(arg)
                case IndexExpr(name=name):
                    return IndexExpr(self.indices.get(name, name))
                case SizeExpr(name=name):
                    return SizeExpr(self.sizes.get(name, name))
                case Literal(value=value):
                    return _constant(value)
                case Call(op="mul", args=(Literal(value=-1), arg)):
                    return Call("neg", (change(arg),))
                case Read(tensor=tensor):
                    made = rebuild(e, change)
                    assert isinstance(made, Read)
                    return replace(made, tensor=self.tensors[tensor], dtype=None)
                case _:
                    return replace(rebuild(e, change), dtype=None)

        return change(expr)


def symbolic_types(program: Program) -> dict[str, TensorType]:
    """Return types with a size for each dimension of the inputs, one for those that have to agree."""
    ranks: dict[str, int] = {}
    integers: set[str] = set()
    for s in program.statements():
        for read in s.reads():
            known = program.declaration(read.tensor)
            is_known = read.tensor not in program.inputs or (known is not None and known.shape is not None)
            if not is_known and any(isinstance(e, Dots) for e in read.subscripts):
                reason = "`...` stands for any number of dimensions"
                raise failure(NO_REVERSE, span=read.span or s.span, tensor=read.tensor, reason=reason, advice=DECLARE)
        for read in s.reads():
            ranks.setdefault(read.tensor, len(read.subscripts))
            integers |= {e.tensor for sub in read.subscripts for e in walk(sub) if isinstance(e, Read)}
        integers |= {e.tensor for sub in s.subscripts for e in walk(sub) if isinstance(e, Read)}
        bits = (
            c
            for e in (s.expr, *s.conditions)
            for c in walk(e)
            if isinstance(c, Call) and c.op in (*BITWISE, "popcount")
        )
        integers |= {e.tensor for c in bits for e in walk(c) if isinstance(e, Read)}
        ranks.setdefault(s.target, len(s.subscripts))
    groups = {place: group[0] for group in signature_of(program).agreeing for place in group}
    taken = {*program.inputs, *program.outputs, *program.temporaries, *program.sizes}
    named: dict[object, str] = {}
    found: dict[str, TensorType] = {}
    for name in program.inputs:
        declared = program.declaration(name)
        shape: list[int | str] = []
        given = declared.shape if declared is not None and declared.shape is not None else (None,) * ranks.get(name, 0)
        for d, extent in enumerate(given):
            match extent:
                case Literal(value=int(value)):
                    shape.append(value)
                case SizeExpr(name=size):
                    shape.append(size)
                case _:
                    place = groups.get((name, d), (name, d))
                    if place not in named:
                        named[place] = next(n for n in _candidates(f"{place[0]}{place[1]}") if n not in taken)
                        taken.add(named[place])
                    shape.append(named[place])
        dtype = declared.dtype if declared is not None and declared.dtype is not None else None
        found[name] = TensorType(dtype or (i64 if name in integers else f64), tuple(shape))
    return found


def _candidates(name: str) -> Iterator[str]:
    yield name
    while True:
        name += "_"
        yield name


def _constant(value: bool | int | float | complex) -> Expr:
    """Return a constant as texts have it: below zero it is a negative."""
    is_below = isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0
    return Call("neg", (Literal(-value),)) if is_below else Literal(value)
