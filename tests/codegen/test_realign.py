"""Vectors that lie across others are made of these, and are the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.ir.kernel import Buffer, Const, Space
from polyker.codegen.llvm.access.memory import BufferPointer, element_type, load_vector, offset_pointer
from polyker.codegen.llvm.access.realign import realigned
from polyker.codegen.llvm.jit.detect import target
from polyker.codegen.llvm.text import IRBuilder, Reg, Region, const
from polyker.ir.dtypes import DType
from polyker.structs import replace
from tests.schedule.support import SMALL

HALVES = replace(target(SMALL), native_bytes=target(SMALL).vector_bytes // 2)
INVARIANT = "align 4, !invariant.load !0, !alias.scope !6"


def place(name: str, space: Space = Space.ARGUMENT, dtype: DType = pk.f32, *, writable: bool = False) -> BufferPointer:
    """Return a buffer as the emitter knows it, its pointer of the same name."""
    buffer = Buffer(name, dtype, (Const(99),), (Const(1),), space, writable)
    invariant = space is Space.ARGUMENT and not writable
    metadata = INVARIANT.removeprefix("align 4") if invariant else ", !alias.scope !6" if writable else ""
    return BufferPointer(buffer, Reg(f"%{name}", "ptr", 1, 0), element_type(dtype), dtype.itemsize, invariant, metadata)


X, ACC = place("x"), place("acc", Space.STACK, writable=True)._replace(metadata="")


def load(b: IRBuilder, at: int, of: BufferPointer = X, root: Reg | None = None) -> str:
    """Load a vector of four elements that begins there; return its register."""
    return load_vector(b, of, offset_pointer(b, of, root or of.pointer, const(at, "i64")), 4, None).re.text


def shuffled(b: IRBuilder, names: dict[int, str], registers: int = 32) -> list[int]:
    """Return where the vectors begin that are made of others."""
    lines = [line for region in b.regions for line in region.lines]
    made = {line.split()[0] for line in realigned(lines, registers) if "= shufflevector" in line}
    return [at for at, name in names.items() if name in made]


def of_places(*places: int, registers: int = 32, of: BufferPointer = X, sums: int = 0) -> list[int]:
    """Return where the vectors begin that are made of others, of those that begin at these places."""
    b = IRBuilder()
    for n in range(sums):
        load(b, 4 * n, ACC)
    return shuffled(b, {at: load(b, at, of) for at in places}, registers)


def test_a_vector_across_two_others_is_the_end_of_one_and_the_start_of_the_next() -> None:
    b = IRBuilder()
    *_, name = (load(b, at) for at in (0, 4, 1))
    made = realigned(b.top.lines, 32)
    assert made[:-5] == [str(line) for line in b.top.lines[:-1]]
    assert made[-5:] == [
        f"  {name}.low.at = getelementptr float, ptr %x, i64 0",
        f"  {name}.low = load <4 x float>, ptr {name}.low.at, {INVARIANT}",
        f"  {name}.high.at = getelementptr float, ptr %x, i64 4",
        f"  {name}.high = load <4 x float>, ptr {name}.high.at, {INVARIANT}",
        f"  {name} = shufflevector <4 x float> {name}.low, <4 x float> {name}.high, <4 x i32> <i32 1, i32 2, i32 3, i32 4>",
    ]


def test_nothing_is_loaded_that_was_not() -> None:
    assert of_places(0, 4, 1) == [1]
    assert of_places(0, 1, 2, 3) == []  # no second one
    assert of_places(0, 4, 5) == []  # none behind it
    b = IRBuilder()
    names = {0: load(b, 0)}
    b.start_block("other")  # another piece of code
    assert shuffled(b, names | {at: load(b, at) for at in (4, 1)}) == []


def test_what_moves_out_of_a_loop_is_of_the_piece_of_code_before_it() -> None:
    b = IRBuilder()
    names = {at: load(b, at) for at in (0, 4)}
    b.regions.append(Region("body"))
    assert shuffled(b, names | {1: load(b, 1)}) == [1]
    counted = Reg("%counted", "ptr", 1, b.level)
    assert shuffled(b, {at: load(b, at, root=counted) for at in (4, 1)}) == []
    assert shuffled(b, {at: load(b, at, root=counted) for at in (0, 4, 1)}) == [1]


def test_every_second_place_is_made_of_others_and_the_rest_are_loaded() -> None:
    places = [at + shift for shift in range(4) for at in (0, 4, 8)]
    assert of_places(*places) == [1, 5, 3, 7]


def test_what_may_be_stored_to_meanwhile_is_loaded() -> None:
    assert of_places(0, 4, 1, of=place("y", writable=True)) == []
    assert of_places(0, 4, 1, of=ACC) == []


def test_vectors_that_others_are_made_of_have_registers_beside_the_sums() -> None:
    assert of_places(0, 4, 1, sums=8, registers=13) == [1]
    assert of_places(0, 4, 1, sums=8, registers=12) == []


def test_pointers_behind_pointers_are_told_by_where_they_lead() -> None:
    for of, expected in ((X, [1]), (place("z", dtype=pk.f64), [])):
        b = IRBuilder()
        names = {at: load(b, at) for at in (0, 1)}
        behind = offset_pointer(b, of, X.pointer, const(-4, "i64"))
        behind = offset_pointer(b, of, behind, const(8, "i64"))
        assert shuffled(b, names | {4: load(b, 0, root=behind)}) == expected


@pytest.mark.parametrize(
    "text", ["y[i] += x[i+k] * w[k]", "y[i+k] += x[i] * w[k]", "y[i] = x[i] + x[i+1] * x[i+2] for i in 0:3999"]
)
def test_filters_and_stencils_shuffle_where_vectors_pass_in_halves(text: str) -> None:
    types = {"x": pk.f32[4001], "w": pk.f32[64]}
    given_types = {name: types[name] for name in types if f"{name}[" in text}
    for halves in (True, False):
        machine = replace(HALVES, native_bytes=HALVES.native_bytes * halves, vector_registers=32)
        ir = str(pk.op(text).compile(**given_types, target=machine, threads=1).source("llvm"))
        assert (".low = load" in ir) == halves


@given(
    st.sampled_from(
        ["y[i] += x[i+k] * w[k]", "y[i+k] += x[i] * w[k]", "y[i] += x[2*i+k] * w[k]", "y[j,i] += x[j,i+k] * w[k]"]
    ),
    st.integers(1, 70),
    st.integers(0, 90),
    st.sampled_from(["f4", "f8", "i4"]),
    st.sampled_from([16, 32]),
)
@settings(max_examples=10, deadline=None)
def test_sums_over_windows_give_what_numpy_gives(text: str, taps: int, more: int, dtype: str, registers: int) -> None:
    shape = (3, taps + more) if "j" in text else (taps + more,)
    rng = np.random.default_rng(taps * 100 + more)
    x, w = (rng.integers(-5, 6, s).astype(dtype) for s in (shape, taps))
    kernel = pk.op(text).compile(x=x, w=w, target=replace(HALVES, vector_registers=registers), threads=1)
    rows = np.atleast_2d(x)
    if "i+k]" in text.split("+=")[0]:
        want = np.array([np.convolve(r, w) for r in rows])
    else:
        want = np.array([np.correlate(r, w, "valid") for r in rows])[:, :: 2 if "2*i" in text else 1]
    np.testing.assert_array_equal(np.atleast_2d(kernel(x=x, w=w)), want)
