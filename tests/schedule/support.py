"""Programs for the tests of schedules: bound to fixed sizes, run under a schedule, compared with the plain interpreter."""

from __future__ import annotations

import warnings
from functools import cached_property, lru_cache

import numpy as np
from msgspec import Struct

from polyker.codegen.ir.kernel import Space
from polyker.codegen.ir.verify import verify
from polyker.codegen.lowering.lower import Lowered
from polyker.codegen.passes.simplify import unroll
from polyker.einsum_frontend import parse
from polyker.errors.schedules import GATHERED
from polyker.ir.dtypes import parse_type
from polyker.ir.expr import Literal
from polyker.ir.layout import DENSE
from polyker.ir.program import Program
from polyker.ir.typed import Role, TypedProgram
from polyker.machine.model import Target
from polyker.poly.binding.bind import bind
from polyker.poly.scop import Scop, build_scop
from polyker.reference import interpret
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.rewrite.normalise.start_reductions import start_reductions
from polyker.rewrite.sharing.inline_values import inline_values
from polyker.schedule.nests.text_order import default_schedule
from polyker.schedule.tree.nodes import ScheduleTree
from tests.codegen.interpret import run as interpret_kernel
from tests.codegen.support import run_native
from tests.passes import auto_schedule, lower

# A machine with vectors of four floats, so that small extents have full and partial vectors; the code runs anywhere.
SMALL = "cpu:x86-64-v2"


class Case(Struct, dict=True):
    """A program with the types and sizes it is bound to."""

    text: str
    types: dict[str, str]
    sizes: dict[str, int | str]  # a name for a size that stays a symbol

    @cached_property
    def program(self) -> Program:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse(self.text)

    @cached_property
    def typed(self) -> TypedProgram:
        return bind(self.program, {k: parse_type(v) for k, v in self.types.items()}, self.sizes)

    @cached_property
    def flat(self) -> TypedProgram:
        return start_reductions(extract_reductions(self.typed))

    @cached_property
    def scop(self) -> Scop:
        return build_scop(self.flat)

    @property
    def start(self) -> ScheduleTree:
        return default_schedule(self.flat)

    def automatic(self, target: Target, *, inline: bool = False) -> tuple[Scop, ScheduleTree]:
        flat = inline_values(self.flat) if inline else self.flat
        program, schedule = auto_schedule(flat, target, lambda _: DENSE)
        return build_scop(program), schedule

    def arrays(self) -> dict[str, np.ndarray]:
        """Integer-valued, index-coded data; what subscripts another tensor stays small."""
        found = {}
        for salt, name in enumerate(self.program.inputs):
            kind = parse_type(self.types[name])
            shape = tuple(int(n) for n in kind.shape)
            at = np.arange(int(np.prod(shape)))
            values = (at * 5 + salt) % 3 if name.startswith("idx") else (at * 7 + at // 5 + salt) % 11 - 5
            found[name] = values.reshape(shape).astype(kind.dtype.numpy)
        return found

    @cached_property
    def expected(self) -> tuple[np.ndarray, ...]:
        return tuple(interpret(self.program, self.arrays(), self.sizes))


@lru_cache(64)
def case(text: str, **given: str | int) -> Case:
    """Return a program bound to types (texts such as "f64[4,5]") and sizes (ints); tests of the same one share its values."""
    types = {k: v for k, v in given.items() if isinstance(v, str)}
    return Case(text, types, {k: v for k, v in given.items() if isinstance(v, int)})


def lowered(scop: Scop, schedule: ScheduleTree) -> Lowered:
    count = len({*scop.program.inputs, *scop.program.outputs})
    result = lower(scop, schedule, (DENSE,) * count, GATHERED)
    verify(result.kernel)
    return result


def run(
    scop: Scop, schedule: ScheduleTree, arrays: dict[str, np.ndarray], *, native: bool = False
) -> tuple[np.ndarray, ...]:
    """Run a program of fixed sizes under a schedule, by the kernel interpreter or as machine code."""
    found = lowered(scop, schedule)
    buffers = {}
    for buffer in found.kernel.buffers:
        own = next((t for t in found.scratch if t.name == buffer.name), None)
        tensor = scop.program.tensor(buffer.name) if own is None else own
        shape = tuple(int(e.value.real) for e in tensor.shape if isinstance(e, Literal))
        if tensor.role in (Role.INPUT, Role.INOUT):
            buffers[buffer.name] = arrays[tensor.label].astype(tensor.dtype.numpy).copy()
        else:
            assert buffer.space is not Space.STACK
            assert np.prod(shape, dtype=float) < 1e6, f"{tensor.label} of shape {shape} is in memory"
            buffers[buffer.name] = np.full(shape, 99, tensor.dtype.numpy)
    if native:
        kernel = unroll(found.kernel)
        verify(kernel)
        status = run_native(kernel, buffers, {})
    else:
        status = interpret_kernel(found.kernel, buffers, {})
    assert status == 0
    return tuple(buffers[name] for name in scop.program.outputs)


def assert_same(case: Case, scop: Scop, schedule: ScheduleTree, *, native: bool = False) -> None:
    """Assert that a schedule gives what the plain interpreter gives."""
    for got, wanted in zip(run(scop, schedule, case.arrays(), native=native), case.expected, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted, str(schedule))
