"""Where each temporary lives, and how many bytes it takes there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from polyker.codegen.ir.kernel import Const, For, KernelIR, Load, LoopKind, Space, Store, Var
from polyker.codegen.ir.polynomial import value_of
from polyker.codegen.ir.walk import allocated, expressions, statements, subexpressions
from polyker.codegen.passes.simplify import unroll
from polyker.explain.amounts import Amounts
from polyker.explain.report import Amount, Intermediate
from polyker.ir.dtypes import DType
from polyker.ir.typed import Role, TypedProgram, TypedTensor
from polyker.poly.isl import read_set
from polyker.poly.scop import tensor_box
from polyker.runtime.memory import arena
from polyker.schedule.tree.nodes import Promotion, ScheduleTree, Tree, scopes


def intermediates_of(
    written: TypedProgram,
    program: TypedProgram,
    schedule: ScheduleTree,
    kernel: KernelIR,
    amounts: tuple[Amounts, Amounts],
    labels: Mapping[str, str],
) -> Iterator[Intermediate]:
    """Yield the temporaries of the program as written (inline reductions as statements), then those that the schedule made.

    `amounts`: those of the program as written, and as scheduled.
    """
    used = {n for s in program.statements() for n in (s.target, *(r.tensor for r in s.reads()))}
    held = _buffers(schedule.tree)
    in_registers = registers(kernel)
    lent: dict[str, int] = {}  # by all threads together
    for buffer, size in _lent(kernel, amounts[1].values).items():
        tensor_name = buffer.rpartition("_")[0]
        lent[tensor_name] = max(size, lent.get(tensor_name, 0))
    known = {t.name: t for t in written.tensors if t.role is Role.TEMPORARY}
    known |= {t.name: t for t in program.tensors if t.role is Role.TEMPORARY and t.name not in known}
    for name, tensor in known.items():
        from_text = any(t.name == name for t in written.tensors)
        if name not in used and not from_text:
            continue
        label = labels.get(name, tensor.label)
        whole = whole_bytes(written, name, tensor.dtype, amounts[0]) if from_text else None
        if name in held:
            yield _buffer(label, tensor, held[name], name in in_registers, lent.get(name), whole)
        elif name not in used:
            yield Intermediate(label, whole, "not stored", 0, from_text, "computed where it is read")
        else:
            whole = whole_bytes(program, name, tensor.dtype, amounts[1]) if whole is None else whole
            yield Intermediate(label, whole, "memory", whole, from_text)


def whole_bytes(program: TypedProgram, name: str, dtype: DType, amounts: Amounts) -> Amount:
    """Return the bytes of all elements of a tensor."""
    return amounts(read_set(tensor_box(program, name)))[0] * dtype.itemsize


def _buffer(
    label: str, tensor: TypedTensor, promotions: list[Promotion], constant: bool, lent: int | None, whole: Amount | None
) -> Intermediate:
    """Return a temporary that lives in buffers of scopes.

    `constant`: each access has a constant place; `lent`: bytes in memory that the call brings, if they lie there; `whole`: the
    bytes of all its elements, if the text names it.
    """
    largest = max(promotions, key=Promotion.elements)
    size = largest.elements() * tensor.dtype.itemsize if lent is None else lent
    place = "memory" if lent is not None else "registers" if constant else "stack"
    extents = " x ".join(str(n) for n in largest.modulo) or "1"
    why = f"{extents} elements at a time"
    return Intermediate(label, size if whole is None else whole, place, size, whole is not None, why)


def _buffers(tree: Tree) -> dict[str, list[Promotion]]:
    found: dict[str, list[Promotion]] = {}
    for scope in scopes(tree):
        for p in scope.promotions:
            found.setdefault(p.tensor, []).append(p)
    return found


def registers(kernel: KernelIR) -> frozenset[str]:
    """Return the tensors of which every buffer on the stack has a constant place in each access once loops are unrolled."""
    kernel = unroll(kernel)
    stack = {b.name for b in allocated(kernel.body)}
    lanes = {s.var for s in statements(kernel.body) if isinstance(s, For) and s.kind is LoopKind.VECTOR}
    touched: set[str] = set()
    moving: set[str] = set()
    for stmt in statements(kernel.body):
        places = [
            (e.buffer, e.indices) for expr in expressions(stmt) for e in subexpressions(expr) if isinstance(e, Load)
        ]
        if isinstance(stmt, Store):
            places.append((stmt.buffer, stmt.indices))
        for buffer, indices in places:
            # The last subscript may be a vector's lane: a whole register.
            names = {e.name for i in indices for e in subexpressions(i) if isinstance(e, Var)}
            if not all(isinstance(i, Const) for i in indices[:-1]) or not names <= lanes:
                moving.add(buffer)
            touched.add(buffer)
    tensors = {b.rpartition("_")[0] for b in stack & touched}
    return frozenset(t for t in tensors if not any(b.rpartition("_")[0] == t for b in moving))


def _lent(kernel: KernelIR, values: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes of each temporary in memory; one whose size is not known has none."""
    found = {}
    for b in kernel.buffers:
        if b.space is Space.SCRATCH:
            extents = [value_of(e, values) for e in b.shape]
            found[b.name] = prod(max(0, n or 0) for n in extents) * b.dtype.itemsize
    return found


def arena_bytes(kernel: KernelIR, values: Mapping[str, int]) -> int:
    """Return the bytes of the block in which the temporaries in memory lie, for the sizes of a call."""
    found = _lent(kernel, values)
    place = {name: n for n, name in enumerate(found)}
    disjoint, in_place = ({frozenset((place[a], place[b])) for a, b in p} for p in (kernel.disjoint, kernel.in_place))
    return arena(list(found.values()), disjoint, in_place, kernel.lifetimes)[1]
