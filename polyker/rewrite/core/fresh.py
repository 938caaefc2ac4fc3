"""Make fresh names for a program."""

from __future__ import annotations

from msgspec import Struct, field

from polyker.ir.dtypes import DType
from polyker.ir.expr import Expr
from polyker.ir.reductions import identity as identity
from polyker.ir.typed import Outside, Role, TypedNode, TypedProgram, TypedStatement, TypedTensor
from polyker.poly.isl import Set
from polyker.poly.scop import domain_text
from polyker.structs import replace


class Fresh(Struct, dict=True):
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

    def iterators(self, count: int) -> tuple[str, ...]:
        """Return so many new iterators' names."""
        return tuple(self.iterator() for _ in range(count))

    def sets(
        self,
        points: Set,
        iterators: tuple[str, ...],
        place: tuple[str, tuple[Expr, ...]],
        value: Expr,
        like: TypedStatement | None = None,
        outer: int = 0,
    ) -> TypedStatement:
        """Return a new statement that sets elements of a tensor, `place` being its name and their subscripts.

        `points`: the values of the iterators. `like`: the statement whose place in the text it has.
        """
        assert value.dtype is not None
        name, span = self.statement(), None if like is None else like.span
        return TypedStatement(
            name, iterators, outer, domain_text(points, name), *place, "set", value, value.dtype, (), span
        )

    def temporary(self, label: str, dtype: DType, shape: tuple[Expr, ...], outside: Outside | None = None) -> str:
        """Add a temporary and return its name."""
        name = f"t{self._tensor}"
        self._tensor += 1
        self.tensors.append(TypedTensor(name, label, dtype, shape, Role.TEMPORARY, outside=outside))
        return name

    def finish(self, body: tuple[TypedNode, ...]) -> TypedProgram:
        """Return the program with a new body and the temporaries made so far."""
        return replace(self.program, tensors=(*self.program.tensors, *self.tensors), body=body)
