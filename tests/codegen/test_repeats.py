"""Register tiles that the emitter repeats: the same text as of their copies written out, and what else is unrolled before."""

import numpy as np
import pytest

from polyker.codegen.ir.kernel import (
    Buffer,
    For,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Prefetch,
    Space,
    StmtBlock,
    Store,
)
from polyker.codegen.ir.verify import verify
from polyker.codegen.ir.walk import statements
from polyker.codegen.llvm.jit.detect import target
from polyker.codegen.llvm.loops.parallel import is_even
from polyker.codegen.passes.fold_lanes import merge_folds
from polyker.codegen.passes.scalar_replacement import carry
from polyker.codegen.passes.simplify import unroll
from polyker.codegen.passes.whole_partial_tiles import fill
from polyker.ir.dtypes import f32, i64
from polyker.ir.layout import DENSE
from polyker.structs import replace
from tests.codegen.matrix import matrix_product
from tests.codegen.support import C, V, check_same, index
from tests.passes import emit, scheduled
from tests.schedule.support import case

CASES = {
    "product": ("C[i,j] += A[i,k] * B[k,j]", {"A": "61,70", "B": "70,75"}),
    "transposed": ("C[j,i] += A[k,i] * B[j,k]", {"A": "300,130", "B": "140,300"}),
    "masked": ("C[i,j] += A[i,k] * B[k,j]", {"A": "13,9", "B": "9,21"}),
    "packed": ("C[i,j] += A[i,k] * B[k,j]", {"A": "200,520", "B": "520,190"}),
    "rows": ("S[i] += A[i,j]", {"A": "45,133"}),
    "columns": ("S[j] += A[i,j]", {"A": "45,133"}),
    "distance": ("C[i,j] += abs(A[i,k] - B[k,j])", {"A": "40,30", "B": "30,50"}),
    "largest": ("C[i,j] max= A[i,k] + B[k,j]", {"A": "40,33", "B": "33,50"}),
    "asked for": ("O[i] += X[i,k] * w[k]", {"X": "4001,1021", "w": "1021"}),
    "convolution": ("Y[o,x] += X[c,x+r] * W[o,c,r]", {"X": "8,66", "W": "20,8,3"}),
}


def nests(kernel: KernelIR) -> list[For]:
    return [s for s in statements(kernel.body) if isinstance(s, For) and s.kind is LoopKind.UNROLL]


TARGETS = {
    "v3": target("cpu:x86-64-v3"),
    "v4": target("cpu:x86-64-v4"),
    "apart": replace(target("cpu:x86-64-v4"), add_pipes=2),
    "arm": target("aarch64-linux-gnu"),
}


# Each type on two targets, each target with two types.
PAIRS = [(d, aim) for n, d in enumerate(("f32", "f64", "c64", "i32")) for m, aim in enumerate(TARGETS) if (n + m) % 2]


# Each case on each target, in two types or more.
@pytest.mark.parametrize(
    ("name", "dtype", "aim"), [(c, *PAIRS[(n + k) % 8]) for n, c in enumerate(CASES) for k in (0, 1, 2, 3)]
)
def test_copies_have_the_same_text(name: str, dtype: str, aim: str) -> None:
    text, shapes = CASES[name]
    found = case(text, **{n: f"{dtype}[{s}]" for n, s in shapes.items()})
    layouts = (DENSE,) * len({*found.typed.inputs, *found.typed.outputs})
    kernel = fill(scheduled(found.typed, layouts, TARGETS[aim])[2].kernel, TARGETS[aim].vector_registers)
    forms = [carry(merge_folds(unroll(kernel, tiles=tiles))) for tiles in (False, True)]
    for form in forms:
        verify(form)
    assert not nests(forms[1])
    assert nests(forms[0]) or name in ("rows", "columns")
    assert emit(forms[0], TARGETS[aim]) == emit(forms[1], TARGETS[aim])


@pytest.mark.parametrize("masked", [False, True])
def test_those_of_sizes_that_the_call_gives(masked: bool) -> None:
    kernel = matrix_product(3, 2, 8, masked=masked)
    kept = unroll(kernel, tiles=False)
    assert len(nests(kept)) == 6
    assert emit(kept, TARGETS["v3"]) == emit(unroll(kernel), TARGETS["v3"])


def nest(statement: Store, hi: KExpr = C(8), lo: KExpr = C(0), trip: int | None = 8) -> For:
    vector = For("v", lo, hi, (statement,), kind=LoopKind.VECTOR, lanes=8, trip=trip)
    return For("r", C(0), C(4), (vector,), kind=LoopKind.UNROLL, lanes=4, trip=4)


def stays(inner: For, around: StmtBlock = (), *buffers: Buffer) -> bool:
    """Whether the emitter repeats a nest that stands behind statements."""
    kernel = KernelIR("k", (*XY, *buffers), ("N",), (*around, inner))
    return nests(unroll(kernel, tiles=False)) == [inner]


SHAPE = (C(64), C(64))
X = Buffer("X", f32, SHAPE, (C(64), C(1)), Space.ARGUMENT)
XY = (X, replace(X, name="Y", writable=True))
INDEX = Buffer("I", i64, (C(64),), (C(1),), Space.ARGUMENT)
ROW = (V("r"), index("add", 8, "v"))
X_AT, Y_AT = Load("X", ROW, f32), Load("Y", ROW, f32)


def test_a_tile_stays() -> None:
    assert stays(nest(Store("Y", ROW, X_AT)))
    assert stays(nest(Store("Y", ROW, Op("add", (Y_AT, X_AT), f32))))
    assert stays(nest(Store("Y", ROW, X_AT), index("minimum", 8, index("sub", 20, index("mul", 7, "r"))), trip=None))
    assert stays(nest(Store("Y", ROW, X_AT), index("minimum", 8, index("sub", "N", "r")), trip=None))


def test_what_passes_look_at_copy_by_copy_is_unrolled() -> None:
    before = Load("Y", (index("sub", "r", 1), ROW[1]), f32)
    assert not stays(nest(Store("Y", ROW, Op("add", (before, X_AT), f32))))  # elements that a loop may carry
    assert not stays(nest(Store("Y", (V("r"), C(0)), X_AT)))  # folds into one element
    assert not stays(nest(Store("Y", (V("v"), V("r")), X_AT)))  # across rows
    assert not stays(nest(Store("Y", (V("r"), index("mul", 2, "v")), X_AT)))  # apart from each other
    assert not stays(nest(Store("Y", ROW, X_AT), C(9), C(1)))
    asks = Prefetch(
        "X", (V("r"), index("mul", 8, index("floordiv", index("add", "v", 4), 8)))
    )  # of several vectors' lines
    row = nest(Store("Y", ROW, X_AT))
    assert not stays(replace(row, body=(replace(row.body[0], body=(asks, *row.body[0].body)),)))
    found = Load("I", (V("r"),), i64)
    assert not stays(nest(Store("Y", ROW, Load("X", (found, V("v")), f32))), (), INDEX)
    assert not stays(
        nest(Store("Y", ROW, Load("X", (V("g"), V("v")), f32))), (Let("g", Load("I", (C(0),), i64)),), INDEX
    )


def test_nests_in_loops_whose_iterations_go_together_are_unrolled() -> None:
    inner = nest(Store("Y", ROW, X_AT))
    for kind, kept in ((LoopKind.SERIAL, 1), (LoopKind.PARALLEL, 1), (LoopKind.TRANSPOSE, 0), (LoopKind.STREAM, 0)):
        loop = For("t", C(0), C(2), (inner,), kind=kind, trip=2)
        kernel = KernelIR("k", XY, (), (loop,))
        assert len(nests(unroll(kernel, tiles=False))) == kept


def test_a_copy_with_more_lanes_than_are_promised_does_not_run() -> None:
    beyond = index("sub", index("mul", 5, "r"), 3)  # -3, 2, 7 and 12 of 8 lanes
    kernel = KernelIR("k", XY, (), (nest(Store("Y", ROW, X_AT), beyond, trip=None),))
    assert len(nests(unroll(kernel, tiles=False))) == 1
    assert emit(unroll(kernel, tiles=False), TARGETS["v3"]) == emit(unroll(kernel), TARGETS["v3"])


def test_copies_of_copies_that_are_more_than_promised_do_not_run() -> None:
    inner = replace(nest(Store("Y", (V("r"), index("add", index("mul", 8, "u"), "v")), X_AT)), var="u")
    beyond = index("sub", index("mul", 5, "r"), 3)  # -3, 2, 7 and 12 of 8 copies
    loop = replace(nest(Store("Y", ROW, X_AT)), body=(replace(inner, hi=beyond, lanes=8, trip=None),))
    kernel = KernelIR("k", XY, (), (loop,))
    assert nests(unroll(kernel, tiles=False)) == [loop, loop.body[0]]
    text = emit(unroll(kernel), TARGETS["v3"])
    assert text.count("store <8") == 9
    assert emit(unroll(kernel, tiles=False), TARGETS["v3"]) == text


@pytest.mark.parametrize("first", [True, False])
def test_a_serial_loop_may_have_the_variable_of_a_nest(first: bool) -> None:
    inner = nest(Store("Y", ROW, X_AT))
    loop = replace(inner, kind=LoopKind.SERIAL, lanes=0)
    kernel = KernelIR("k", XY, (), (inner, loop, inner) if first else (loop, inner, loop))
    assert nests(unroll(kernel, tiles=False))[0] == inner
    assert emit(unroll(kernel, tiles=False), TARGETS["v3"]) == emit(unroll(kernel), TARGETS["v3"])


def test_a_nest_may_have_the_variable_of_a_serial_loop_seen_before() -> None:
    place = (V("s"), V("r"), V("v"))
    cubes = (
        Buffer("X", f32, (C(8), C(8), C(64)), (C(512), C(64), C(1)), Space.ARGUMENT),
        Buffer("Y", f32, (C(8), C(8), C(64)), (C(512), C(64), C(1)), Space.ARGUMENT, True),
    )
    rows = nest(Store("Y", place, Op("add", (Load("Y", place, f32), Load("X", place, f32)), f32)))
    two = replace(rows, hi=C(2), lanes=2, trip=2)

    def loop(body: For, kind: LoopKind) -> For:
        return For("s", C(0), C(3), (body,), kind=kind, lanes=3 if kind is LoopKind.UNROLL else 0, trip=3)

    kernel = KernelIR(
        "k", cubes, (), (loop(two, LoopKind.SERIAL), loop(rows, LoopKind.UNROLL), loop(rows, LoopKind.SERIAL))
    )
    arrays = {"X": np.arange(8 * 8 * 64, dtype="f4").reshape(8, 8, 64), "Y": np.zeros((8, 8, 64), "f4")}
    assert check_same(unroll(kernel, tiles=False), arrays, {}) == 0
    assert emit(unroll(kernel, tiles=False), TARGETS["v3"]) == emit(unroll(kernel), TARGETS["v3"])


@pytest.mark.parametrize(("kind", "even"), [(LoopKind.UNROLL, True), (LoopKind.SERIAL, False)])
def test_tiles_that_end_with_the_rows_make_no_parallel_loop_uneven(kind: LoopKind, even: bool) -> None:
    left = index("minimum", 4, index("sub", 30, index("mul", 4, "t")))
    inner = replace(nest(Store("Y", ROW, X_AT)), hi=left, trip=None, kind=kind)
    assert is_even(For("t", C(0), C(8), (inner,), kind=LoopKind.PARALLEL, trip=8)) == even
