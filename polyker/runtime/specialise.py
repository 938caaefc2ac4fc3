"""Decide whether a kernel is made for one shape or for symbolic sizes, and which dimensions share a symbol."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msgspec import Struct, field

from polyker.ir.dtypes import TensorType
from polyker.record.records import Signature

MAX_SHAPE_KERNELS = 3  # shapes that get a kernel of their own before the symbolic one is made (chosen)


class Family(Struct):
    """What an operator has met of operands that differ in their extents alone."""

    seen: set[Hashable] = field(default_factory=set)
    symbolic: bool = True

    def wants_symbolic(self, shape: Hashable, mode: str) -> bool:
        """Whether this call is for the symbolic kernel; notes the shape."""
        if mode == "never":
            return self.symbolic
        if mode == "always" or not self.symbolic or shape in self.seen:
            return False
        if len(self.seen) < MAX_SHAPE_KERNELS:
            self.seen.add(shape)
            return False
        return True


def symbolic_types(signature: Signature, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """Return the types with a symbol for each dimension; dimensions that must agree share one.

    Kept as they are: dimensions declared as constants, and where `...` may stand for a dimension those of extent 1,
    which broadcast.
    """
    first = {d: group[0] for group in signature.agreeing for d in group}
    symbols: dict[tuple[str, int], int | str] = {}
    for declared in signature.declared:
        for d, extent in enumerate(declared.shape or ()):
            if isinstance(extent, (str, int)):
                symbols.setdefault(first.get((declared.name, d), (declared.name, d)), extent)
    taken = {*signature.sizes, *signature.inputs, *signature.outputs, *signature.temporaries}
    out = []
    for name, type_ in zip(signature.inputs, types, strict=True):
        shape: list[int | str] = []
        for d, actual in enumerate(type_.shape):
            if actual == 1 and name in signature.broadcast:
                shape.append(1)
                continue
            root = first.get((name, d), (name, d))
            if root not in symbols:
                symbol = f"{root[0]}_{root[1]}"
                while symbol in taken:
                    symbol += "_"
                taken.add(symbol)
                symbols[root] = symbol
            shape.append(symbols[root])
        out.append(TensorType(type_.dtype, tuple(shape), type_.weak))
    return tuple(out)
