"""Put the kernel of a large program together from the kernels of its parts: calls, memory between them, and guards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from polyker.codegen.argument_layout import argument_buffer, argument_names, extent, integer_name, scratch_buffer
from polyker.codegen.ir.kernel import Buffer, KernelIR, KExpr, PartCall, Var
from polyker.codegen.lowering.lower import Lowered
from polyker.ir.expr import Call, Expr, SizeExpr, transform
from polyker.ir.layout import Layout
from polyker.ir.typed import Role, TypedProgram, TypedTensor
from polyker.record.records import Failure, Integer
from polyker.structs import replace


class PartKernel(Struct, frozen=True, eq=False):
    """The kernel of a part after all passes, with what it takes; `products`: its integers that are products of two sizes."""

    lowered: Lowered
    products: tuple[tuple[str, tuple[str, str]], ...]


class PartUse(Struct, frozen=True, eq=False):
    """One call of a part: the number of its kernel, the names of its tensors and sizes in the program, and its guards."""

    number: int
    tensors: Mapping[str, str]
    sizes: Mapping[str, str]
    guards: Mapping[int, Failure]


def assembled(
    program: TypedProgram, layouts: Sequence[Layout], kernels: Sequence[PartKernel], uses: Sequence[PartUse]
) -> Lowered:
    """Return the kernel that runs parts in their order; `layouts`: of the program's arguments.

    What parts pass to each other and what each needs for itself lies in scratch memory, which what is not needed at the same time
    shares.
    """
    arguments = argument_names(program)
    integers = [Integer(name) for name, _ in program.sizes]
    buffers: list[Buffer] = []
    alignments = _alignments(kernels, uses)
    for name, layout in zip(arguments, layouts, strict=True):
        buffer, strides = argument_buffer(program.tensor(name), layout)
        buffers.append(replace(buffer, alignment=alignments.get(name, 0)))
        integers += strides
    memory = _Memory(program, frozenset(arguments))
    calls = tuple(memory.call(k, use, kernels[use.number]) for k, use in enumerate(uses))
    buffers += map(scratch_buffer, memory.scratch)
    names = tuple(map(integer_name, integers))
    kernel = KernelIR(
        "kernel", tuple(buffers), names, calls, disjoint=frozenset(memory.disjoint), in_place=frozenset(memory.in_place),
        parts=tuple(k.lowered.kernel for k in kernels), lifetimes=memory.lifetimes(),
    )  # fmt: skip
    return Lowered(kernel, arguments, tuple(memory.scratch), tuple(integers), memory.guards)


def _alignments(kernels: Sequence[PartKernel], uses: Sequence[PartUse]) -> dict[str, int]:
    """Return the bytes that each tensor's address has to be a multiple of."""
    found: dict[str, int] = {}
    for use in uses:
        part = kernels[use.number].lowered
        for name, buffer in zip(part.arguments, part.kernel.buffers, strict=False):
            whole = use.tensors[name]
            found[whole] = max(found.get(whole, 0), buffer.alignment)
    return found


class _Memory:
    """The calls, and the memory that they need, in the order in which they run."""

    def __init__(self, program: TypedProgram, arguments: frozenset[str]) -> None:
        self.tensors, self.given = {t.name: t for t in program.tensors}, arguments
        self.scratch: list[TypedTensor] = []
        self.spans: dict[str, tuple[int, int]] = {}
        self.disjoint: set[tuple[str, str]] = set()
        self.in_place: set[tuple[str, str]] = set()
        self.guards: dict[int, Failure] = {}

    def call(self, number: int, use: PartUse, part: PartKernel) -> PartCall:
        """Return a call of a part, what it needs noted."""
        sizes: dict[str, Expr] = {own: SizeExpr(whole) for own, whole in use.sizes.items()}
        for name, (a, b) in part.products:
            sizes[name] = Call("mul", (sizes[a], sizes[b]))
        names = dict(use.tensors)
        lowered, kernel = part.lowered, part.lowered.kernel
        for tensor in lowered.scratch:
            # Its own: no other part sees it.
            names[tensor.name] = own = f"{tensor.name}.{number}"
            shape = tuple(_sized(e, sizes) for e in tensor.shape)
            label = self.tensors[use.tensors[tensor.name]].label if tensor.name in use.tensors else tensor.label
            self._needed(replace(tensor, name=own, label=label, shape=shape, role=Role.TEMPORARY), number)
        buffers = tuple(names[b.name] for b in kernel.buffers)
        for name in buffers:
            if name in self.tensors and name not in self.given:
                self._needed(self.tensors[name], number)
        self.disjoint |= {(names[a], names[b]) for a, b in kernel.disjoint}
        self.in_place |= {(names[a], names[b]) for a, b in kernel.in_place}
        codes = len(self.guards)
        for code, failure in use.guards.items():
            self.guards[codes + code] = failure
        return PartCall(use.number, buffers, tuple(_integer(i, use, sizes) for i in lowered.integers), codes)

    def _needed(self, tensor: TypedTensor, number: int) -> None:
        if tensor.name not in self.spans:
            self.scratch.append(tensor)
        first, _ = self.spans.get(tensor.name, (number, number))
        self.spans[tensor.name] = first, number

    def lifetimes(self) -> tuple[tuple[int, int], ...]:
        """Return the first and the last call that needs each temporary."""
        return tuple(self.spans[t.name] for t in self.scratch)


def _sized(shape: Expr, sizes: Mapping[str, Expr]) -> Expr:
    return transform(shape, lambda e: sizes.get(e.name, e) if isinstance(e, SizeExpr) else e)


def _integer(integer: Integer, use: PartUse, sizes: Mapping[str, Expr]) -> KExpr:
    """Return an integer of a part in terms of the kernel's."""
    if integer.dimension is None:
        return extent(sizes[integer.name])
    return Var(integer_name(replace(integer, name=use.tensors[integer.name])))
