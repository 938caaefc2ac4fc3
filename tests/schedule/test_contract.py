"""Sums of products are taken in steps: each order means the same, the cheapest is chosen, and what may not be is left alone."""

from __future__ import annotations

import re
from itertools import permutations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.cost.temporaries import insist
from polyker.ir.expr import Literal
from polyker.ir.layout import DENSE
from polyker.ir.typed import TypedProgram
from polyker.machine.model import Cache
from polyker.poly.scop import build_scop
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.rewrite.normalise.start_reductions import start_reductions
from polyker.rewrite.normalise.widen_reductions import widen_reductions
from polyker.rewrite.reductions.contraction_order import contract
from polyker.schedule import auto
from polyker.schedule.legality.prove import prove
from polyker.schedule.nests.text_order import default_schedule
from polyker.structs import replace
from tests.artifacts import compiled_of, generated
from tests.schedule.support import Case, assert_same, case

TARGET = target("cpu:x86-64-v4")

GATHERED = """f(idx: i64[N], A: f64[N,K], B: f64[K,J], D: f64[J], H: f64[M]) -> H:
    H[idx[i]] += A[i,k] * B[k,j] * D[j]"""

ONTO = """f(C: f64[N], A: f64[N,K], B: f64[K,J], D: f64[J]) -> C:
    C[i] += A[i,k] * B[k,j] * D[j]"""

CASES = {
    "a bilinear form": case("C[n,o] += X[n,i] * W[o,i,j] * Y[n,j]", X="f64[3,4]", W="f64[2,4,5]", Y="f64[3,5]"),
    "a chain of matrices": case(
        "C[i,m] += A[i,j] * B[j,k] * D[k,l] * E[l,m]", A="f64[2,3]", B="f64[3,4]", D="f64[4,5]", E="f64[5,2]"
    ),
    "factors that share an index of the result": case(
        "O[i,r] += X[i,j,k] * A[j,r] * B[k,r]", X="f64[3,4,5]", A="f64[4,2]", B="f64[5,2]"
    ),
    "an index that one factor alone has": case("C[i] += A[i,k,l] * B[k]", A="f64[3,4,5]", B="f64[4]"),
    "two sums with nothing in common": case("s[] += A[i] * B[j]", A="f64[3]", B="f64[5]"),
    "an index that no factor has": case("C[i] += A[i,k] * B[k] * D[i] for l in 0:3", A="f64[3,4]", B="f64[4]", D="f64[3]"),
    "scalars, signs and constants": case(
        "C[i] += -A[i,k] * 3 * s * B[k,j] * D[j]", A="f64[3,4]", B="f64[4,2]", D="f64[2]", s="f64[]"
    ),
    "any, of what all have": case("C[i] any= A[i,k] > 0 and B[k,j] > 1 and D[j] < 2", A="f64[3,4]", B="f64[4,5]", D="f64[5]"),
    "all, of what any has": case("C[i] all= A[i,k] > 3 or B[k,j] > -9 or D[j] > 9", A="f64[3,4]", B="f64[4,5]", D="f64[5]"),
    "the greatest of least values": case(
        "C[i] max= minimum(minimum(A[i,k] - 9, B[k,j] - 9), D[j] - 9)", A="f64[3,4]", B="f64[4,5]", D="f64[5]"
    ),
    "integers that wrap": case("C[i] += A[i,k] * B[k,j] * D[j]", A="i8[3,4]", B="i8[4,5]", D="u8[5]"),
    "complex numbers": case("C[i] += A[i,k] * conj(B[k,j]) * D[j]", A="c128[3,4]", B="c128[4,5]", D="c128[5]"),
    "half precision": case("C[i] += A[i,k] * B[k,j] * D[j]", A="f16[3,4]", B="f16[4,5]", D="f16[5]"),
    "windows": case("O[h] += X[h+r] * K[r,c] * D[c]", X="f64[9]", K="f64[3,4]", D="f64[4]"),
    "windows of two factors": case("O[h] += X[h+r] * Y[2*h+c] * K[r,c]", X="f64[9]", Y="f64[20]", K="f64[3,4]"),
    "padded reads": case(
        "O[h] += X[h+r-1; pad=2] * K[r,c] * D[c-1; pad=wrap] for h in 0:H", X="f64[7]", K="f64[3,4]", D="f64[4]", H=7
    ),
    "gathered reads": case("O[b] += T[idx[b,l],d] * W[d,e] * V[l]", T="f64[3,5]", idx="i64[2,4]", W="f64[5,2]", V="f64[4]"),
    "a result that is gathered": case(GATHERED, idx="i64[5]", A="f64[5,4]", B="f64[4,3]", D="f64[3]", H="f64[3]"),
    "onto what is there": case(ONTO, C="f64[3]", A="f64[3,4]", B="f64[4,5]", D="f64[5]"),
    "a condition on one factor's indices": case(
        "C[i] += A[i,j] * B[j,k] * D[k] where k <= j", A="f64[3,4]", B="f64[4,5]", D="f64[5]"
    ),
    "a condition on the result's indices": case(
        "C[i,l] += A[i,j] * B[j,k] * D[k,l] where l <= i", A="f64[4,3]", B="f64[3,2]", D="f64[2,4]"
    ),
    "a condition that ties factors": case(
        "C[i] += A[i,j] * B[j,k] * D[k] where i + j + k < 6", A="f64[3,4]", B="f64[4,5]", D="f64[5]"
    ),
    "ranges that do not begin at 0": case(
        "C[i] += A[i,j] * B[j,k] * D[k] for j in 1:4, k in 2:5", A="f64[3,4]", B="f64[4,5]", D="f64[5]"
    ),
    "no terms": case("C[i] += A[i,j] * B[j,k] * D[k]", A="f64[3,4]", B="f64[4,0]", D="f64[0]"),
    "one term": case("C[i] += A[i,j] * B[j,k] * D[k]", A="f64[3,1]", B="f64[1,1]", D="f64[1]"),
    "an inline sum": case(
        "C[i] = 1 + sum[j,k](A[i,j] * B[j,k] * D[k]) * A[i,0]", A="f64[3,4]", B="f64[4,5]", D="f64[5]"
    ),
    "many factors": case(
        "C[a] += A[a,b] * B[b,c] * D[c,d] * E[d,e] * F[e,f] * G[f]",
        A="f64[2,3]", B="f64[3,2]", D="f64[2,3]", E="f64[3,2]", F="f64[2,3]", G="f64[3]",
    ),
}  # fmt: skip


def in_steps(found: Case, rank: int) -> TypedProgram:
    """Return a program with its products in the steps of a rank."""
    with insist(rank):
        program = contract(extract_reductions(found.typed), TARGET, lambda _: DENSE).program
    return widen_reductions(start_reductions(program))


@pytest.mark.parametrize("name", CASES)
def test_every_order_means_the_same(name: str) -> None:
    found = CASES[name]
    seen = set()
    for rank in range(4):
        program = in_steps(found, rank)
        text = repr(program.body)
        if text not in seen:
            seen.add(text)
            scop, schedule = build_scop(program), default_schedule(program)
            prove(scop, schedule)
            assert_same(found, scop, schedule)
    apart = len(list(in_steps(found, 0).statements())) > len(list(widen_reductions(found.flat).statements()))
    assert apart == (name not in ("a condition that ties factors", "no terms"))


def shapes_of(text: str, *, large: bool = False, **shapes: tuple[int | str, ...]) -> list[tuple[int, ...]]:
    """Return the shapes of the temporaries that a program of f32 is taken in steps with, the sorted extents of each."""
    program = extract_reductions(case(text, **{n: f"f32[{','.join(map(str, s))}]" for n, s in shapes.items()}).typed)
    found = contract(program, TARGET, lambda _: DENSE, large=large)
    assert bool(found.notes) == (found.program != program)
    known = {t.name for t in program.tensors}
    made = [t for t in found.program.tensors if t.name not in known]
    return [tuple(sorted(int(e.value.real) if isinstance(e, Literal) else 0 for e in t.shape)) for t in made]


CHAIN = "C[i,m] += A[i,j] * B[j,k] * D[k,m]"
BILINEAR = "C[n,o] += X[n,i] * W[o,i,j] * Y[n,j]"
MTTKRP = "O[i,r] += X[i,j,k] * A[j,r] * B[k,r]"


def test_a_chain_of_matrices_begins_where_that_is_cheaper() -> None:
    assert shapes_of(CHAIN, A=(500, 20), B=(20, 400), D=(400, 300)) == [(20, 300)]
    assert shapes_of(CHAIN, A=(30, 400), B=(400, 20), D=(20, 500)) == [(20, 30)]
    long = "C[a,e] += A[a,b] * B[b,c] * D[c,d] * E[d,e]"
    assert shapes_of(long, A=(300, 20), B=(20, 300), D=(300, 20), E=(20, 300)) in ([(20, 20), (20, 300)],)


def test_a_vector_goes_through_a_chain_first() -> None:
    text = "y[a] += A[a,b] * B[b,c] * D[c,d] * E[d,e] * F[e,f] * x[f]"
    square = dict.fromkeys("ABDEF", (100, 100))
    assert shapes_of(text, **square, x=(100,)) == [(100,)] * 4


def test_operators_of_tensors_take_the_known_steps() -> None:
    assert shapes_of("C[n] += X[n,i] * W[i,j] * Y[n,j]", X=(512, 255), W=(255, 256), Y=(512, 256)) in (
        [(255, 512)],
        [(256, 512)],
    )
    assert shapes_of(BILINEAR, X=(64, 127), W=(32, 127, 128), Y=(64, 128)) in ([(32, 64, 127)], [(32, 64, 128)])
    assert shapes_of(MTTKRP, X=(50, 60, 400), A=(60, 32), B=(400, 32)) == [(32, 50, 60)]
    assert shapes_of(MTTKRP, X=(500, 60, 40), A=(60, 32), B=(40, 32)) == [(32, 40, 60)]
    tucker = "G[a,b,c] += X[i,j,k] * U[a,i] * V[b,j] * W[c,k]"
    found = shapes_of(tucker, X=(160, 180, 200), U=(32, 160), V=(24, 180), W=(40, 200))
    assert found == [(24, 160, 200), (24, 32, 200)]


def test_what_one_factor_alone_is_summed_over_is_summed_first() -> None:
    assert {*shapes_of("s[] += A[i,k] * B[k,j]", A=(200, 30), B=(30, 300))} == {(30,)}


def test_nothing_is_done_where_it_does_not_pay() -> None:
    assert shapes_of("C[i,j] += A[i,k] * B[k,j]", A=(200, 300), B=(300, 400)) == []
    assert shapes_of("C[i] += A[i,k] * B[i,k] * D[i,k]", A=(200, 300), B=(200, 300), D=(200, 300)) == []
    assert shapes_of(CHAIN, A=(3, 4), B=(4, 5), D=(5, 2)) == []
    assert shapes_of("C[i,j] += A[i,k] * B[k,j] * D[k]", A=(20, 3), B=(3, 400), D=(3,)) == []


def test_no_temporary_is_larger_than_the_last_cache_and_all_operands() -> None:
    # Each of the two orders needs one of 2 GiB, of which a part is enough while both steps run together for each o.
    shapes = {"X": (1 << 15, 128), "W": (128, 128, 128), "Y": (1 << 15, 128)}
    assert shapes_of(BILINEAR, **shapes) == []
    assert shapes_of(BILINEAR, **shapes, large=True) == [(128, 128, 1 << 15)]
    # The last sum is over all that the temporary has.
    text = "s[] += X[n,i] * W[o,i,j] * Y[n,j] * Z[n,o]"
    assert (128, 128, 1 << 15) not in shapes_of(text, **shapes, Z=(1 << 15, 128), large=True)


def scratch_bytes(kernel: pk.Kernel) -> int:
    """Return the bytes of f32 that a kernel needs besides its arguments."""
    sizes = re.findall(r"f32\[([0-9, ]+)\][^\n]*, scratch", generated(kernel, "loops"))
    return sum(4 * int(np.prod([int(n) for n in s.split(",")])) for s in sizes)


def test_a_large_temporary_is_made_only_where_a_part_of_it_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    types = {"X": pk.f32[4096, 128], "W": pk.f32[64, 128, 128], "Y": pk.f32[4096, 128]}
    machine = replace(target("cpu:x86-64-v4"), caches=(Cache(48 << 10), Cache(1 << 20), Cache(32 << 20)))
    with pk.options(scratch_bytes=100 << 20):
        together = pk.op(BILINEAR).compile(**types, target=machine)
        assert "in steps" in generated(together, "schedule")
        assert scratch_bytes(together) < 8 << 20  # of 128 MiB
        monkeypatch.setattr(auto, "best_fusion", lambda *_: None)
        apart = pk.op(BILINEAR + "  # apart").compile(**types, target=machine)
        assert "in steps" not in generated(apart, "schedule")
    large = pk.op(BILINEAR + "  # apart").compile(**types, target=machine)
    assert scratch_bytes(large) >= 128 << 20


def test_sizes_that_are_symbols_allow_temporaries_of_as_many_dimensions_as_an_operand_or_the_result() -> None:
    bilinear = "C[n] += X[n,i] * W[i,j] * Y[n,j]"
    assert len(shapes_of(bilinear, X=("N", "I"), W=("I", "J"), Y=("N", "J"))) == 1
    assert all(len(s) <= 3 for s in shapes_of(MTTKRP, X=("I", "J", "K"), A=("J", "R"), B=("K", "R")))


@pytest.mark.parametrize("sizes", [(60, 60, 60, 60), (30, 200, 17, 90), (500, 20, 400, 18)])
def test_the_order_of_a_symbolic_contraction_is_that_of_the_sizes_of_the_call(sizes: tuple[int, ...]) -> None:
    i, j, k, l = sizes  # noqa: E741
    rng = np.random.default_rng(1)
    a, b, d = rng.random((i, j)), rng.random((j, k)), rng.random((k, l))
    kernel = pk.op("C[i,l] += A[i,j] * B[j,k] * D[k,l]").compile(
        A=pk.f64["I", "J"], B=pk.f64["J", "K"], D=pk.f64["K", "L"]
    )
    np.testing.assert_allclose(kernel(a, b, d), a @ b @ d, rtol=1e-12)
    *_, plan = compiled_of(kernel).plans.values()  # that of this call: the kernels of other sizes are kept with it
    sizes_of = dict(zip(plan.executable.artifact().kernel.integers, plan.integers))
    first = re.search(r"first (\S+) over", generated(plan.executable.artifact(), "schedule"))[1]
    shape = re.search(rf"# {first}: f64\[(.*?)\]", generated(plan.executable.artifact(), "loops"))[1].split(", ")
    left = i * j * k + i * k * l <= j * k * l + i * j * l
    assert [int(sizes_of.get(n, n)) for n in shape] == ([i, k] if left else [j, l])


def test_it_is_said_what_was_done_and_why() -> None:
    kernel = pk.op(CHAIN).compile(A=pk.f32[500, 20], B=pk.f32[20, 400], D=pk.f32[400, 300])
    note = next(n for n in generated(kernel, "schedule").splitlines() if "factors" in n)
    assert re.search(r"S\d+: the sum of 3 factors is taken in steps: first t\d+ over i\d+; the model wins \d+%", note)


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_neither_names_nor_the_order_of_the_factors_change_the_steps(order: tuple[int, ...]) -> None:
    factors = {"X[i,j,k]": (50, 60, 40), "A[j,r]": (60, 32), "B[k,r]": (40, 32)}
    plain = shapes_of(f"O[i,r] += {' * '.join(factors)}", X=(50, 60, 40), A=(60, 32), B=(40, 32))
    swapped = " * ".join([*factors][n] for n in order)
    named = swapped.translate(str.maketrans("ijkrXAB", "wzqaTVU"))
    assert shapes_of(f"P[w,a] += {named}", T=(50, 60, 40), V=(60, 32), U=(40, 32)) == plain


LABELS = "ijkl"


@st.composite
def contractions(draw: st.DrawFn) -> tuple[str, list[np.ndarray], int]:
    """Return an einsum of several factors, its operands of odd, single and no elements in memory of any strides, and a rank."""
    sizes = {x: draw(st.sampled_from([0, 1, 2, 3, 5, 7])) for x in LABELS}
    count = draw(st.integers(2, 4))
    terms = [draw(st.lists(st.sampled_from(LABELS), min_size=1, max_size=3, unique=True)) for _ in range(count)]
    used = sorted({x for t in terms for x in t})
    target = draw(st.lists(st.sampled_from(used), max_size=2, unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    operands = []
    for t in terms:
        steps = [draw(st.sampled_from([1, 1, -1, 2, -3])) for _ in t]
        whole = rng.standard_normal([sizes[x] * abs(s) for x, s in zip(t, steps, strict=True)])
        operands.append(whole[tuple(slice(None, None, s) for s in steps)])
    return f"{','.join(map(''.join, terms))}->{''.join(target)}", operands, draw(st.integers(0, 3))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(contractions())
def test_any_contraction_in_any_order_is_numpys(drawn: tuple[str, list[np.ndarray], int]) -> None:
    subscripts, operands, rank = drawn
    wanted = np.einsum(subscripts, *operands)
    size = np.einsum(subscripts, *map(np.abs, operands))
    with insist(rank):
        found = pk.einsum(subscripts, *operands)
    assert found.shape == wanted.shape
    assert (abs(found - wanted) <= 1e-13 * size).all()


def test_a_symbolic_kernel_in_steps_is_right_for_sizes_of_all_sorts() -> None:
    text = "C[n] += X[n,i] * W[i,j] * Y[n,j]"
    with insist(0):
        kernel = pk.op(text).compile(X=pk.f64["N", "I"], W=pk.f64["I", "J"], Y=pk.f64["N", "J"])
    assert "t5" in generated(kernel, "loops")
    rng = np.random.default_rng(1)
    for n, i, j in ((3, 4, 5), (1, 1, 1), (17, 33, 9), (4, 0, 3), (3, 2, 0), (0, 2, 2)):
        X, W, Y = rng.standard_normal((n, i)), rng.standard_normal((i, j)), np.full((n, j), np.nan if i == 0 else 2.0)
        np.testing.assert_allclose(kernel(X, W, Y), np.einsum("ni,ij,nj->n", X, W, Y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_every_result_that_depends_on_it(bad: float) -> None:
    rng = np.random.default_rng(2)
    shapes = {"X": (6, 5), "W": (5, 7), "Y": (6, 7)}
    for name, shape in shapes.items():
        for element in np.ndindex(shape):
            operands = {n: rng.standard_normal(s) for n, s in shapes.items()}
            operands[name][element] = bad
            with insist(0):
                found = pk.op("C[n] += X[n,i] * W[i,j] * Y[n,j]")(**operands)
            reached = np.ones(6, bool) if name == "W" else np.arange(6) == element[0]
            assert (np.isnan(found) if np.isnan(bad) else ~np.isfinite(found))[reached].all()
            assert np.isfinite(found[~reached]).all()
