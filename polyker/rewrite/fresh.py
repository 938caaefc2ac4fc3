"""Names that a program does not use yet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from polyker.ir.dtypes import DType
from polyker.ir.expr import Expr, Literal
from polyker.ir.typed import Role, TypedNode, TypedProgram, TypedTensor


@dataclass
class Fresh:
    """Gives names for statements, tensors and iterators; collects the temporaries made."""

    program: TypedProgram
    tensors: list[TypedTensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        def highest(names: list[str]) -> int:
            return max((int(n[1:]) for n in names if n[1:].isdigit()), default=-1) + 1

        statements = list(self.program.statements())
        self._statement = highest([s.name for s in statements])
        self._tensor = highest([t.name for t in self.program.tensors])
        self._iterator = highest([i for s in statements for i in s.iterators] + [i for i, _ in self.program.labels])

    def statement(self) -> str:
        """Return a new statement's name."""
        self._statement += 1
        return f"S{self._statement - 1}"

    def iterator(self) -> str:
        """Return a new iterator's name."""
        self._iterator += 1
        return f"i{self._iterator - 1}"

    def temporary(self, label: str, dtype: DType, shape: tuple[Expr, ...]) -> str:
        """Add a temporary and return its name."""
        name = f"t{self._tensor}"
        self._tensor += 1
        self.tensors.append(TypedTensor(name, label, dtype, shape, Role.TEMPORARY))
        return name

    def finish(self, body: tuple[TypedNode, ...]) -> TypedProgram:
        """Return the program with a new body and the temporaries made so far."""
        return replace(self.program, tensors=(*self.program.tensors, *self.tensors), body=body)


def identity(op: str, dtype: DType) -> Literal:
    """Return the identity of a reduction in a type: 0, 1, -inf or the least value, +inf or the greatest, false, true."""
    if op in ("add", "any"):
        return Literal(False if dtype.kind == "b" else 0, dtype)
    if op in ("mul", "all"):
        return Literal(True if dtype.kind == "b" else 1, dtype)
    if op not in ("max", "min"):
        raise ValueError(f"no identity for {op}")
    lowest = op == "max"
    if dtype.kind == "b":
        return Literal(not lowest, dtype)
    if dtype.kind == "f":
        return Literal(float("-inf" if lowest else "inf"), dtype)
    bits = 8 * dtype.itemsize
    if dtype.kind == "u":
        return Literal(0 if lowest else 2**bits - 1, dtype)
    return Literal(-(2 ** (bits - 1)) if lowest else 2 ** (bits - 1) - 1, dtype)
