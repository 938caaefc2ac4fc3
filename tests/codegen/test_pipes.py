"""Where additions have pipes of their own, some of a tile's pass through those of multiply-adds; results are the same bits."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import Buffer, Const, For, KernelIR, Load, LoopKind, Op, Space, Store, Var
from polyker.codegen.llvm.jit.detect import host, target
from polyker.codegen.llvm.operations import copied, fused
from polyker.codegen.llvm.text import IRBuilder, Reg
from polyker.codegen.passes.x86.balance_ports import Pipes, lone
from polyker.ir.dtypes import DType
from polyker.machine.known import known
from polyker.machine.model import Target
from polyker.structs import replace
from tests.codegen.interpret import run as interpret
from tests.codegen.support import build, call, index
from tests.covering import each
from tests.passes import emit

TEXTS = {
    "sum of differences": "C[i,j] += abs(A[i,k] - B[k,j])",
    "largest sum": "C[i,j] max= A[i,k] + B[k,j]",
    "largest of the smaller": "C[i,j] max= minimum(A[i,k], B[k,j])",
    "smallest of the larger": "C[i,j] min= maximum(A[i,k], B[k,j] - 1)",
    "largest difference": "C[i,j] max= abs(A[i,k] - B[k,j])",
    "largest sum of three": "C[i,j] max= A[i,k] + B[k,j] + 0.5",
    "squares": "C[i,j] += (A[i,k] - B[k,j])**2",
    "squares as products": "C[i,j] += (A[i,k] - B[k,j]) * (A[i,k] - B[k,j])",
    "difference from a row": "C[i,j] max= A[i,k] - B[k,j]",
    "difference from a column": "C[i,j] max= B[k,j] - A[i,k]",
    "sum of extrema": "C[i,j] += maximum(A[i,k], B[k,j])",
    "selected": "C[i,j] += where(A[i,k] + B[k,j] > 0, A[i,k] - B[k,j], B[k,j] + A[i,k])",
}


def wide(*, apart: bool) -> Target:
    if host().vector_bytes < 64:
        pytest.skip("vectors of 64 bytes are needed")
    return replace(host(), name=f"apart {apart}", add_pipes=2 * apart)


def both(text: str, kind: object, rows: int = 61, terms: int = 70, columns: int = 150) -> tuple[pk.Kernel, pk.Kernel]:
    """Return the kernels for a core whose additions have pipes of their own, and for one where they have not."""
    types = {"A": kind[rows, terms], "B": kind[terms, columns]}  # type: ignore[index]
    one, two = (pk.op(text).compile(**types, target=wide(apart=apart), threads=1) for apart in (True, False))
    return one, two


@pytest.mark.parametrize(("name", "kind"), each([*TEXTS], [pk.f32, pk.f64]))
def test_results_are_the_same_bits(name: str, kind: object) -> None:
    rng = np.random.default_rng(len(name))
    dtype = "f4" if kind is pk.f32 else "f8"
    A, B = rng.standard_normal((61, 70)).astype(dtype), rng.standard_normal((70, 150)).astype(dtype)
    A[:, 3], A[9], B[3] = -0.0, 1e-40, 0.0
    apart, plain = both(TEXTS[name], kind)
    np.testing.assert_array_equal(apart(A=A, B=B).view("u1"), plain(A=A, B=B).view("u1"))
    A[7, 5], B[5, 60], B[8, 2], A[20, 8] = np.inf, -np.inf, np.finfo(dtype).max, np.nan
    np.testing.assert_array_equal(apart(A=A, B=B), plain(A=A, B=B))


def inner(kernel: pk.Kernel, least: int) -> list[str]:
    """Return the parts of the assembly between labels and jumps that have so many operations on whole registers."""
    parts = re.split(r"^\.L\w+:|^\tj\w+\t.*$", str(kernel.source("asm")), flags=re.M)
    return [p for p in parts if len(re.findall(r"\tv(add|sub|max|min)ps.*zmm|\tvf\w+ps.*zmm", p)) >= least]


@pytest.mark.parametrize("text", ["C[i,j] += abs(A[i,k] - B[k,j])", "C[i,j] += abs(B[k,j] - A[i,k])"])
def test_totals_become_multiply_adds(text: str) -> None:
    types = {"A": pk.f32[61, 400], "B": pk.f32[400, 150]}
    core = known()["cpu:znver4"]  # LLVM's own schedule of another core keeps what is spread in registers
    apart, plain = (
        pk.op(text).compile(**types, target=replace(core, name=f"pipes {pipes}", add_pipes=pipes), threads=1)
        for pipes in (2, 0)
    )
    tiles = inner(apart, 24)
    assert tiles
    for p in tiles:
        assert (
            p.count("\tvf") == p.count("vsubps") == p.count("1to16") >= 12
        )  # what is spread is subtracted, from memory
        assert "vaddps" not in p
        assert "vbroadcast" not in p
    assert not any("\tvf" in p for p in inner(plain, 24))


def test_a_tile_that_transposes_its_operand_has_its_totals_moved() -> None:
    kernel = pk.op("C[i,j] += abs(A[i,k] - B[j,k])").compile(
        A=pk.f32[24, 24], B=pk.f32[24, 24], target=wide(apart=True), threads=1
    )
    tiles = [p for p in inner(kernel, 24) if "vunpck" in p]
    assert tiles
    assert all(p.count("\tvf") == p.count("vsubps") and "vaddps" not in p for p in tiles)


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_product_is_added_as_it_is(sign: str) -> None:
    apart, _ = both(f"C[i,j] += {sign}((A[i,k] - B[k,j] - 1) * (A[i,k] + B[k,j]))", pk.f32, terms=400)
    tiles = inner(apart, 24)
    assert tiles
    assert not any("vmulps" in p for p in tiles)


def test_sums_of_extrema_have_their_totals_moved() -> None:
    apart, plain = both("C[i,j] += maximum(A[i,k], B[k,j])", pk.f32, terms=400)
    assert any(p.count("\tvf") >= 10 and "vaddps" not in p for p in inner(apart, 20))
    assert not any("\tvf" in p for p in inner(plain, 20))


def test_a_square_subtracts_from_memory() -> None:
    apart, _ = both("C[i,j] += (A[i,k] - B[k,j])**2", pk.f32, terms=400)
    tiles = inner(apart, 24)
    assert tiles
    for p in tiles:
        assert p.count("\tvf") == p.count("vsubps") == p.count("1to16") >= 12
        assert "vmulps" not in p
        assert "vbroadcast" not in p


@pytest.mark.parametrize("term", ["A[i,k] + B[k,j]", "A[i,k] - B[k,j]", "B[k,j] - A[i,k]"])
def test_a_sum_in_an_extremum_overwrites_a_copy(term: str) -> None:
    apart, _ = both(f"C[i,j] max= {term}", pk.f32, terms=400)
    tiles = [p for p in inner(apart, 24) if "vcmpunord" not in p]
    assert tiles
    for p in tiles:
        assert p.count("\tvf") == p.count("1to16") == p.count("vmaxps") >= 12
        assert "vaddps" not in p
        assert "vbroadcast" not in p


def test_what_one_vector_has_alone_may_stay_in_memory() -> None:
    read, fixed = Load("A", (Var("k"),), pk.f32), Load("A", (Const(0),), pk.f32)
    vectors = []
    for var in ("v", "w"):
        loop = For(var, Const(0), Const(16), (), kind=LoopKind.VECTOR, lanes=16)
        element = Load("B", (Var(var),), pk.f32)
        vectors.append(replace(loop, body=(Store("C", element.indices, Op("add", (element, read, fixed), pk.f32)),)))
    tile = For("k", Const(0), Const(8), tuple(vectors))
    assert lone(replace(tile, body=tile.body[:1])) == {read}  # the other one is in a register before the loop
    tested = replace(read, predicate=Op("lt", (Var("k"), Const(4)), pk.bool_), other=Const(0.0, pk.f32))
    store = Store("C", (Var("v"),), Op("add", (Load("B", (Var("v"),), pk.f32), tested), pk.f32))
    assert lone(replace(tile, body=(replace(vectors[0], body=(store,)),))) == frozenset()
    assert lone(tile) == frozenset()


def tile(stored: Callable[[int, Op], Store], lanes: int = 16, kind: DType = pk.f32) -> KernelIR:
    """Return a loop over six terms of four vectors; `stored`: the store of each, of its number and x[lanes n + lane] - y[k]."""
    buffers = (Buffer(n, kind, (Const(64),), (Const(1),), Space.ARGUMENT, n == "s") for n in "xys")
    vectors = []
    for n in range(4):
        term = Op("sub", (Load("x", (index("add", lanes * n, f"v{n}"),), kind), Load("y", (Var("k"),), kind)), kind)
        body = (stored(n, term),)
        vectors.append(For(f"v{n}", Const(0), Const(lanes), body, kind=LoopKind.VECTOR, lanes=lanes, trip=lanes))
    return KernelIR("kernel", tuple(buffers), (), (For("k", Const(0), Const(6), tuple(vectors), trip=6),))


@pytest.mark.parametrize("form", ["abs", "neg", "square"])
@pytest.mark.parametrize("moves", [True, False])
def test_lanes_are_added_up_to_one_element(form: str, moves: bool) -> None:
    def stored(n: int, term: Op) -> Store:
        element = Load("s", (index("add", 6 * n, "k") if moves else Const(n),), pk.f32)
        square = Op("pow", (term, Const(2.0, pk.f32)), pk.f32)
        value = square if form == "square" else Op(form, (term,), pk.f32)
        return Store("s", element.indices, Op("add", (element, value), pk.f32))

    kernel = tile(stored)
    arrays = {n: np.arange(64, dtype="f4") * 7 % 23 for n in "xys"}
    expected = {n: a.copy() for n, a in arrays.items()}
    assert interpret(kernel, expected, {}) == 0
    assert call(build(emit(kernel, wide(apart=True)), host()), list(arrays.values()), []) == 0
    np.testing.assert_array_equal(arrays["s"], expected["s"])


@pytest.mark.parametrize(
    ("text", "shape", "loops"),
    [("S[i,r] += -A[i,r,k]", (10, 4, 16), ("k", "r")), ("S[i] += -A[i,j] for k in 0:16", (4, 40), ("k", "i"))],
)
def test_negative_terms_of_all_lanes_are_added_up(text: str, shape: tuple[int, ...], loops: tuple[str, str]) -> None:
    op, A = pk.op(text), np.ones(shape, "f4")
    schedule = op.schedule(pk.f32[shape], auto=False)
    if "j" in text:
        schedule = schedule["S"].interchange("j", "i", "k")
    vector, rows = loops
    schedule = schedule["S"].vectorise(**{vector: 16})["S"].unroll(**{rows: 4})
    kernel = op.compile(schedule=schedule)
    np.testing.assert_array_equal(kernel(A), pk.op(text)(A))


def test_a_negative_product_is_added_as_it_is() -> None:
    def stored(n: int, term: Op) -> Store:
        element = Load("s", (index("add", 16 * n, f"v{n}"),), pk.f32)
        less = Op("sub", (term, Const(1.0, pk.f32)), pk.f32)
        product = Op("mul", (term, less), pk.f32)
        return Store("s", element.indices, Op("add", (element, Op("neg", (product,), pk.f32)), pk.f32))

    assert "fmul" not in emit(tile(stored), wide(apart=True))


@pytest.mark.parametrize("op", ["fused_add", "fused_sub"])
def test_copies_of_one_value_stay_apart(op: str) -> None:
    b = IRBuilder(avx512=True)
    x = Reg("%x", "float", 16, 0)
    one, two = copied(b, x), copied(b, x)
    assert one != two
    fused(b, op.removeprefix("fused_"), one, two, pk.f32)
    lines = [line for region in b.regions for line in region.lines]
    assert len(lines) == len(set(lines)) == 4


def test_extrema_become_comparisons_where_nothing_else_can_move() -> None:
    apart, plain = both("C[i,j] max= minimum(A[i,k], B[k,j])", pk.f32, terms=400)
    free = [p for p in inner(apart, 20) if "vcmpunord" not in p]
    assert any(p.count("vcmpltps") >= 8 and p.count("vm") >= 24 for p in free)
    assert not any("vcmpltps" in p for p in inner(plain, 30))


def test_products_and_memory_stay() -> None:
    for text in ("C[i,j] += A[i,k] * B[k,j]", "C[i,j] = A[i,j] + B[i,j]", "C[j] += abs(A[i,j])"):
        types = {n: pk.f32[96, 96] for n in "AB" if f"{n}[" in text}
        kernels = (pk.op(text).compile(**types, target=wide(apart=apart), threads=1) for apart in (True, False))
        one, two = (str(k.source("llvm")) for k in kernels)
        assert one == two


@pytest.mark.parametrize(
    ("pipes", "double_pumped"),
    [(Pipes(48, 0, 0), 96), (Pipes(24, 24, 24), 72), (Pipes(0, 10, 30), 40), (Pipes(1, 9, 0), 18)],
)
def test_a_tile_takes_what_the_fullest_pipes_take(pipes: Pipes, double_pumped: int) -> None:
    assert pipes.double_pumped == double_pumped


def test_columns_of_few_rows_beside_whole_vectors() -> None:
    """Vectors of 2 have no registers of their own."""
    for rows in (33, 34):
        apart, plain = both("C[i,j] max= A[i,k] + B[k,j]", pk.f32, rows, 30, 12)
        A, B = np.random.default_rng(1).random((rows, 30), "f4"), np.random.default_rng(2).random((30, 12), "f4")
        np.testing.assert_array_equal(apart(A=A, B=B), plain(A=A, B=B))


def test_known_processors() -> None:
    assert not target("cpu:x86-64-v4").has_separate_adders


@pytest.mark.parametrize(("lanes", "kind"), [(4, pk.f32), (8, pk.f32), (2, pk.f64), (4, pk.f64), (8, pk.f64)])
@pytest.mark.parametrize(("op", "inner", "moved"), [("larger", "sub", 'asm ""'), ("smaller", "larger", "mask.cmp.p")])
def test_parts_of_registers_are_as_whole_ones(lanes: int, kind: DType, op: str, inner: str, moved: str) -> None:
    def kernel(op: str, inner: str) -> KernelIR:
        def stored(n: int, term: Op) -> Store:
            element = Load("s", (index("add", lanes * n, f"v{n}"),), kind)
            return Store("s", element.indices, Op(op, (element, replace(term, op=inner)), kind))

        return tile(stored, lanes, kind)

    arrays = {
        n: np.arange(64, dtype=kind.name.replace("f", "float")) * m % 23 for n, m in (("x", 7), ("y", 5), ("s", 3))
    }
    expected = {n: a.copy() for n, a in arrays.items()}
    tested = {"larger": "maximum", "smaller": "minimum"}
    assert interpret(kernel(tested[op], tested.get(inner, inner)), expected, {}) == 0
    text = emit(kernel(op, inner), wide(apart=True))
    assert moved in text
    assert call(build(text, host()), list(arrays.values()), []) == 0
    np.testing.assert_array_equal(arrays["s"], expected["s"])


@pytest.mark.parametrize("lanes", [2, 3, 32])
def test_vectors_that_fill_no_register_are_added(lanes: int) -> None:
    b = IRBuilder(avx512=True)
    x = Reg("%x", "float", lanes, 0)
    fused(b, "add", x, copied(b, x), pk.f32)
    assert not any("asm" in line for region in b.regions for line in region.lines)
