"""Operators and kernels as their users see them."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ArgumentError, CompileTimeout, DTypeError, PolykerError, ShapeError
from tests.runtime.support import coded

MATMUL = "C[i,j] += A[i,k] * B[k,j]"
HEAT = """heat(A: f64[N,N], steps) -> A:
    for t in 0:steps:
        B[i,j] = 0.25 * (A[i-1,j] + A[i+1,j] + A[i,j-1] + A[i,j+1])  for i in 1:N-1, j in 1:N-1
        A[i,j] = B[i,j]                                              for i in 1:N-1, j in 1:N-1
"""


def heat_by_numpy(a: np.ndarray, steps: int) -> np.ndarray:
    a = a.copy()
    for _ in range(steps):
        a[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
    return a


def test_arguments_go_by_position_by_name_and_mixed() -> None:
    mm, a, b = pk.op(MATMUL), coded((3, 4)), coded((4, 5))
    for result in (mm(a, b), mm(A=a, B=b), mm(a, B=b), mm(B=b, A=a)):
        np.testing.assert_array_equal(result, a @ b)


def test_out_is_returned_itself_as_array_tuple_or_dict() -> None:
    mm, a, b, out = pk.op(MATMUL), coded((3, 4)), coded((4, 5)), np.empty((3, 5), np.float32)
    assert mm(a, b, out=out) is out
    assert mm(a, b, out=(out,)) is out
    assert mm(a, b, out={"C": out}) is out
    np.testing.assert_array_equal(out, a @ b)


def test_several_outputs_come_as_a_namedtuple_and_out_may_name_some() -> None:
    stats = pk.op("total += x[i]; most max= x[i]; twice[i] = 2 * x[i]")
    x = coded((9,))
    result = stats(x)
    assert result._fields == ("total", "most", "twice")
    assert (result.total, result.most) == (x.sum(), x.max())
    twice = np.empty(9, np.float32)
    again = stats(x, out={"twice": twice})
    assert again.twice is twice and again.total == x.sum()
    third = stats(x, out=(None, np.empty((), np.float32), twice))
    assert third[1].shape == () and third.twice is twice


def test_names_of_outputs_that_cannot_be_fields_get_underscores() -> None:
    for text, fields in [
        ("_a[i] = x[i]; class[i] = x[i]", ("a", "class_")),
        ("count[i] = x[i]; index[i] = x[i]", ("count_", "index_")),
        ("a[i] = x[i]; _a[i] = x[i]; __[i] = x[i]", ("a", "a_", "result")),
    ]:
        result = pk.op(text)(np.arange(3.0))
        assert result._fields == fields
        assert all((r == np.arange(3.0)).all() for r in result)


def test_sizes_are_given_by_keyword_or_fixed() -> None:
    conv = pk.op("O[h] += X[h+r-1; pad=0] * K[r]  for h in 0:H")
    x, k = coded((20,)), coded((3,))
    full = np.convolve(x, k[::-1])[1:21]
    for height in (0, 1, 7, 20):
        np.testing.assert_array_equal(conv(x, k, H=height), full[:height])
        np.testing.assert_array_equal(conv(x, k, H=np.int32(height)), full[:height])
    strided = pk.op("O[i] += X[s*i+r] * W[r]", s=2)
    np.testing.assert_array_equal(strided(x, k), np.correlate(x, k)[::2])
    with pytest.raises(PolykerError, match="H"):
        conv(x, k)


def test_sizes_among_the_parameters_of_a_declaration_go_by_position_too() -> None:
    heat, a = pk.op(HEAT), coded((7, 7), np.float64)
    np.testing.assert_array_equal(heat(a, 3), heat_by_numpy(a, 3))
    np.testing.assert_array_equal(heat(A=a, steps=0), a)
    with pytest.raises(ArgumentError, match="`steps` is missing"):
        heat(a)
    np.testing.assert_array_equal(pk.op(HEAT, steps=2)(a), heat_by_numpy(a, 2))


@pytest.mark.parametrize("value", [-1, 1.5, "3", True, None, 1 << 62, 1 << 400, np.array([3])])
def test_a_size_that_is_no_natural_number_below_2_62_is_refused(value: object) -> None:
    fill = pk.op("y[i] = x for i in 0:N")
    with pytest.raises(ArgumentError, match="`N`"):
        fill(1.0, N=value)


def test_infer_gives_types_without_compiling() -> None:
    mm = pk.op(MATMUL)
    assert mm.infer(A=pk.f32[8, 4], B=pk.f32[4, 9]) == pk.f32[8, 9]
    assert mm.infer(coded((2, 3)), pk.f64[3, 1]) == pk.f64[2, 1]
    assert mm.infer("f32[M,K]", "f32[K,N]") == pk.f32["M", "N"]
    assert pk.op("s += x[i]; t[i] = f64(x[i])").infer(pk.f32[3])._asdict() == {"s": pk.f32[()], "t": pk.f64[3]}
    with pytest.raises(ShapeError):
        mm.infer(pk.f32[8, 4], pk.f32[5, 9])


def test_a_kernel_takes_its_shapes_with_any_strides() -> None:
    k = pk.op(MATMUL).compile(pk.f32[4, 6], pk.f32[6, 5])
    a, b = coded((6, 4)).T, coded((12, 5))[::-2]
    np.testing.assert_array_equal(k(a, b), a @ b)
    out = np.zeros((5, 4), np.float32).T
    assert k(a, b, out=out) is out
    np.testing.assert_array_equal(out, a @ b)
    np.testing.assert_array_equal(k(B=b, A=a), a @ b)


def test_a_kernel_refuses_other_shapes_and_types() -> None:
    k = pk.op(MATMUL).compile(pk.f32[4, 6], pk.f32[6, 5])
    with pytest.raises(ShapeError, match=r"`A` has shape \(4, 5\), the kernel was compiled for f32\[4, 6\]"):
        k(coded((4, 5)), coded((5, 5)))
    with pytest.raises(ShapeError):
        k(coded((4, 6, 1)), coded((6, 5)))
    with pytest.raises(DTypeError, match="`B` is f64"):
        k(coded((4, 6)), coded((6, 5), np.float64))


def test_a_symbolic_kernel_takes_all_sizes_that_agree() -> None:
    k = pk.op(MATMUL).compile(pk.f32["M", "K"], pk.f32["K", "N"])
    for m, n, depth in [(1, 1, 1), (0, 3, 2), (3, 4, 0), (17, 33, 8)]:
        a, b = coded((m, depth)), coded((depth, n))
        np.testing.assert_array_equal(k(a, b), a @ b)
    with pytest.raises(ShapeError, match=r"`K` is 3 by dimension 1 of `A`, and 4 by dimension 0 of `B`"):
        k(coded((2, 3)), coded((4, 2)))


def test_sizes_left_open_at_compile_are_given_at_the_call_and_fixed_ones_cannot_change() -> None:
    conv = pk.op("O[h] += X[h+r-1; pad=0] * K[r]  for h in 0:H")
    x, w = coded((20,)), coded((3,))
    free, bound = conv.compile(x, w), conv.compile(x, w, H=5)
    np.testing.assert_array_equal(free(x, w, H=9), conv(x, w, H=9))
    np.testing.assert_array_equal(bound(x, w), conv(x, w, H=5))
    np.testing.assert_array_equal(bound(x, w, H=5), conv(x, w, H=5))
    with pytest.raises(ShapeError, match="`H` is 5 by the kernel, and 6 by the call"):
        bound(x, w, H=6)
    with pytest.raises(ArgumentError, match="size `H` is not known"):
        free(x, w)


def test_after_three_shapes_one_symbolic_kernel_serves_the_rest() -> None:
    from polyker.api.compiling import kernels

    kernels.clear()
    text = "C[i,j] += A[i,k] * B[k,j] - 0 * B[k,j]"
    mm = pk.op(text)
    for n in range(1, 12):
        a, b = coded((n, n + 1)), coded((n + 1, 4))
        np.testing.assert_array_equal(mm(a, b), a @ b)
    made = [key[1] for key, _ in kernels.ready()]
    symbolic = [types for types in made if any(isinstance(d, str) for t in types for d in t.shape)]
    assert len(made) == 4 and len(symbolic) == 1
    assert symbolic[0][0].shape[1] == symbolic[0][1].shape[0]


def test_the_symbolic_kernel_still_refuses_shapes_that_do_not_fit() -> None:
    mm = pk.op(MATMUL)
    for n in range(1, 6):
        mm(coded((n, n)), coded((n, n)))
    with pytest.raises(ShapeError, match="k"):
        mm(coded((7, 8)), coded((9, 10)))


@pytest.mark.parametrize("specialize", ["always", "never", "auto"])
def test_every_way_of_specialising_gives_the_same_values(specialize: str) -> None:
    with pk.options(specialize=specialize):
        conv = pk.op("conv(X: f32[N,C,H,W], K: f32[F,C,3,3]) -> O:\n"
                     "    O[n,f,h,w] += X[n,c,h+r-1,w+s-1; pad=0] * K[f,c,r,s]  for h in 0:H, w in 0:W")  # fmt: skip
        for h in range(1, 6):
            x, k = coded((2, 2, h, 4)), coded((3, 2, 3, 3))
            padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
            np.testing.assert_array_equal(conv(x, k), np.einsum("nchwrs,fcrs->nfhw", windows, k))


def test_dots_broadcast_the_same_with_symbolic_sizes() -> None:
    with pk.options(specialize="never"):
        scale = pk.op("C[...,i] = A[...,i] * B[...,i]")
        for lead in [(3, 4), (1, 4), (3, 1), (1, 1)]:
            a, b = coded((3, 4, 5)), coded((*lead, 5), salt=2)
            np.testing.assert_array_equal(scale(a, b), a * b)


def test_check_compares_with_the_interpreter_and_prints_the_largest_error() -> None:
    result = pk.op(MATMUL).check(coded((3, 4)), coded((4, 5)))
    assert result.ulp == 0 and str(result) == "C: float32[3, 5]: equal (15 elements)"
    random = np.random.default_rng(1).random((2, 40, 40)).astype(np.float32)
    result = pk.op(MATMUL).check(*random)
    assert 0 < result.ulp < 64
    assert "largest error" in str(result) and "ulp at [" in str(result)


def test_acc_is_taken_from_the_call_or_the_options_and_shown() -> None:
    x = np.full(3000, 1.0, np.float16)
    total = pk.op("s += x[i]")
    assert total(x) == 3000
    wide = total.compile(np.ones(3000, np.float32), acc="f64")
    assert "acc=f64" in repr(wide)
    with pk.options(acc=pk.f64):
        value = np.float32(1) + np.zeros(1 << 14, np.float32)
        value[0] = 2.0**25
        assert total(value) == np.float32(np.sum(value, dtype=np.float64))


def test_fastmath_is_a_set_of_flags_and_shown() -> None:
    k = pk.op(MATMUL).compile(pk.f32[4, 4], pk.f32[4, 4], fastmath={"nnan", "contract"})
    assert k.fastmath == ("nnan", "contract") and "fastmath={nnan, contract}" in repr(k)
    assert "fastmath=none" in repr(pk.op(MATMUL).compile(pk.f32[4, 4], pk.f32[4, 4]))
    with pytest.raises(ArgumentError, match="`fastmath` is 'quick'"):
        pk.op(MATMUL).compile(pk.f32[4, 4], pk.f32[4, 4], fastmath="quick")


def test_source_has_every_stage() -> None:
    k = pk.op(MATMUL).compile(pk.f32[4, 4], pk.f32[4, 4])
    for stage in ("program", "isl", "schedule", "loops", "llvm", "asm"):
        assert k.source(stage).strip()
    assert "define" in k.source("llvm")
    assert pk.op(MATMUL).source() == "C[i, j] += A[i, k] * B[k, j]"
    assert pk.op(MATMUL).source("loops", pk.f32[4, 4], pk.f32[4, 4]) == k.source("loops")
    assert str(k.schedule) == repr(k.schedule)
    assert "C[i, j]" in str(k.schedule)
    with pytest.raises(ArgumentError, match="no stage `assembler`"):
        k.source("assembler")


def test_what_is_not_made_yet_says_so_by_name() -> None:
    mm = pk.op(MATMUL)
    for name, call in {
        "tune": lambda: pk.tune(mm, None),
    }.items():
        with pytest.raises(NotImplementedError, match=name):
            call()


def test_operators_and_kernels_print_what_they_are() -> None:
    mm = pk.op(MATMUL)
    assert repr(mm) == "<polyker.Operator C[i, j] += A[i, k] * B[k, j]>"
    assert str(mm).splitlines() == [
        "C[i, j] += A[i, k] * B[k, j]",
        "inputs:  A: any[?, ?], B: any[?, ?]",
        "outputs: C: any[?, ?]",
        "ranges:  i in 0:A.shape[0]",
        "         j in 0:B.shape[1]",
        "         k in 0:A.shape[1] = B.shape[0]",
    ]
    k = mm.compile(pk.f32["M", 4], pk.f32[4, "N"])
    assert repr(k) == "<polyker.Kernel (A: f32[M, 4], B: f32[4, N]) -> C, target=cpu, acc=f32, fastmath=none>"
    heat = str(pk.op(HEAT))
    assert "inputs:  A: f64[N, N]" in heat and "temporaries: B: any[?, ?]" in heat and "sizes:   N, steps" in heat
    assert "t in 0:steps" in heat and "i in 1:N - 1" in heat


def ranges_of(operator: pk.Operator) -> list[str]:
    return str(operator).partition("ranges:  ")[2].splitlines()


def test_operators_print_each_range_and_what_bounded_it() -> None:
    assert ranges_of(pk.op("D[i] = X[i+1] - X[i]")) == ["i in 0:X.shape[0] - 1, from X[i], X[i+1]"]
    assert ranges_of(pk.op("O[i] = X[2*i] + Y[i//3]")) == [
        "i in 0:minimum((X.shape[0] - 1)//2 + 1, 3*Y.shape[0]), from X[2*i], Y[i//3]"
    ]
    assert ranges_of(pk.op("S[0] = 0; S[t+1] = S[t] + X[t]")) == ["t in 0:X.shape[0]"]
    conv = ranges_of(pk.op("f(X: f32[N,W], K: f32[3]) -> O:\n    O[n,w] = sum[r](X[n,2*w+r] * K[r])"))
    assert conv == [
        "n in 0:X.shape[0]",
        "         w in 0:(W - 3)//2 + 1, from X[n,2*w+r]",
        "         r in 0:K.shape[0]",
    ]
    assert (
        ranges_of(pk.op("O[...,i] = X[...,i+1] * Y[i,...]"))[0]
        == "i in 0:minimum(X.shape[-1] - 1, Y.shape[0]), from Y[i,...], X[...,i+1]"
    )
    strided = "O[i] += X[s*i+r] * K[r]"
    assert ranges_of(pk.op(strided, s=2))[0] == "i in 0:(X.shape[0] - K.shape[0])//2 + 1, from X[s*i+r]"
    assert ranges_of(pk.op("O[i,j] = X[i+j]")) == []


def test_infer_says_each_range_and_what_bounded_it() -> None:
    diff = pk.op("D[i] = X[i+1] - X[i]")
    assert diff.infer(pk.f32[10]).ranges == ("i in 0:9, from X[i], X[i+1]",)
    assert diff.infer(pk.f32["N"]).ranges == ("i in 0:N - 1, from X[i], X[i+1]",)
    assert diff.infer(pk.f32[10]) == pk.f32[9]
    assert hash(diff.infer(pk.f32[10])) == hash(pk.f32[9])


def test_a_timeout_in_the_past_is_a_compile_timeout() -> None:
    with pytest.raises(CompileTimeout, match=r"timeout=|longer"):
        pk.op("C[i,j] += A[i,k] * B[k,j] + A[i,k]").compile(pk.f32[33, 34], pk.f32[34, 35], timeout=1e-6)


def test_the_environment_is_read_at_use(monkeypatch: pytest.MonkeyPatch) -> None:
    mm, a = pk.op("C[i,j] += A[i,k] * B[k,j] + B[k,j]"), coded((3, 3))
    expected = np.einsum("ik,kj->ij", a + 1, a)
    monkeypatch.setenv("POLYKER_INTERPRET", "1")
    from polyker.api.compiling import kernels

    kernels.clear()
    out = np.empty((3, 3), np.float32)
    np.testing.assert_array_equal(mm(a, a), expected)
    assert mm(a, a, out=out) is out and (out == expected).all()
    assert len(kernels) == 0
    monkeypatch.setenv("POLYKER_INTERPRET", "0")
    np.testing.assert_array_equal(mm(a, a), expected)
    assert len(kernels) == 1
    monkeypatch.setenv("POLYKER_TARGET", "wasm32")
    with pytest.raises(PolykerError, match="wasm32"):
        mm(a, a)
    assert "wasm32" in repr(mm.compile(a, a))
    monkeypatch.delenv("POLYKER_TARGET")
    monkeypatch.setenv("POLYKER_COMPILE_TIMEOUT", "1e-6")
    with pytest.raises(CompileTimeout):
        mm.compile(coded((5, 5)), coded((5, 5)))
    monkeypatch.setenv("POLYKER_COMPILE_TIMEOUT", "soon")
    with pytest.raises(ArgumentError, match="POLYKER_COMPILE_TIMEOUT"):
        mm.compile(coded((6, 6)), coded((6, 6)))


def test_code_for_other_machines_is_made_and_not_run() -> None:
    mm = pk.op(MATMUL)
    for target in ("aarch64-linux-gnu", "wasm32"):
        k = mm.compile(pk.f32[4, 4], pk.f32[4, 4], target=target)
        assert k.source("asm")
        with pytest.raises(ImportError, match="another machine"):
            k(coded((4, 4)), coded((4, 4)))
    with pytest.raises(PolykerError, match="nonsense"):
        mm.compile(pk.f32[4, 4], pk.f32[4, 4], target="nonsense")


def test_the_builder_gives_the_same_operator_as_the_text() -> None:
    i, j, k = pk.indices("i j k")
    A, B, C = pk.tensors("A B C")
    built = pk.op(C[i, j].add(A[i, k] * B[k, j]).where(j <= i))
    assert built.program == pk.op("C[i,j] += A[i,k] * B[k,j] where j <= i").program
    a = coded((6, 6))
    np.testing.assert_array_equal(built(a, a), np.tril(a @ a))


@pytest.mark.parametrize("definition", [(), (3,), (None,), (b"C[i] = A[i]",), ("C[i] = A[i]", 3)])
def test_what_defines_no_operator_is_refused(definition: tuple[object, ...]) -> None:
    with pytest.raises(ArgumentError, match="text or from statements"):
        pk.op(*definition)


def test_a_gather_outside_raises_an_index_error_with_the_place() -> None:
    pick = pk.op("y[i] = x[n[i]]")
    for bad in (3, -1, 1 << 40):
        with pytest.raises(IndexError, match="x"):
            pick(np.arange(3.0), np.array([0, bad]))
    np.testing.assert_array_equal(pick(np.arange(3.0), np.array([2, 0])), [2, 0])
    with pytest.raises(DTypeError):
        pick(np.arange(3.0), np.array([0.0, 1.0]))


def test_statements_of_the_builder_may_be_in_a_list_or_a_tuple() -> None:
    i, j, k = pk.indices("i j k")
    A, T, S = pk.tensors("A T S")
    steps = T[i, j].set(A[i, j] * 2), S[i].add(T[i, k] + 0 * T[i, k]), T.typed(pk.f32)
    program = pk.op(*steps).program
    assert pk.op(steps).program == pk.op(list(steps)).program == program
    assert pk.op([steps[0]]).program == pk.op(steps[0]).program
    assert pk.op([pk.declare("f", [A], [S], *steps)]).program.name == "f"
    (n,) = pk.sizes("n")
    assert pk.op([S[i].set(A[i + n])], n=2).fixed == {"n": 2}


def test_the_lines_of_a_text_may_be_in_a_list() -> None:
    assert pk.op(HEAT.splitlines()).identity == pk.op(HEAT.rstrip("\n")).identity
    assert pk.op(("O[i] += X[s*i+r] * W[r]",), s=2).fixed == {"s": 2}
    with pytest.raises(pk.ParseError, match="line 2") as caught:
        pk.op(["T[i] = X[i]", "O[i] = T[i] +"])
    assert caught.value.span is not None


@pytest.mark.parametrize("given", [[], (), [[]], [3], ["O[i] = X[i]", 3], [["O[i] = X[i]"]], {1, 2}, [None] * 2])
def test_other_lists_define_no_operator(given: object) -> None:
    with pytest.raises(ArgumentError, match="PK744"):
        pk.op(given)


def test_a_list_that_cannot_be_read_defines_no_operator() -> None:
    class Broken(list):  # type: ignore[type-arg]
        def __iter__(self) -> object:  # type: ignore[override]
            raise RuntimeError

    with pytest.raises(ArgumentError, match="not from Broken"):
        pk.op(Broken(["O[i] = X[i]"]))
