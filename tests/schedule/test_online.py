"""Pairs of reductions by blocks of a row give what two passes give, special values too; short rows are left alone."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.cost.temporaries import insist
from polyker.ir.layout import DENSE
from polyker.ir.typed import TypedProgram
from polyker.poly.scop import build_scop
from polyker.rewrite.reductions.online_pairs import one_pass
from polyker.schedule.legality.prove import prove
from polyker.schedule.nests.text_order import default_schedule
from tests.passes import auto_schedule
from tests.schedule.support import SMALL, Case, case, run

TARGET = target(SMALL)
SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[m](X[i,m])))"
PAIRS = {
    "a softmax": (SOFTMAX, 1),
    "a logarithm of sums": ("O[i] = logsumexp[k](X[i,k])", 1),
    "a shift of something else": ("M[i] max= X[i,k];  O[i] = M[i];  S[i] += exp(X[i,k] - M[i] / 2)", 1),
    "a variance": ("O[i] = mean[k]((X[i,k] - mean[l](X[i,l])) ** 2)", 1),
    "a variance in statements": (
        "m[i] = mean[k](X[i,k])\nd[i] = m[i] + 1\nO[i] = sum[k]((X[i,k] - d[i]) * (X[i,k] - d[i])) + m[i]", 1,
    ),
    "a place": ("O[i] = argmax[k](X[i,k])", 1),
    "a place and its value": ("O[i] = argmin[k](X[i,k] * 2);  M[i] = min[k](X[i,k] * 2)", 1),
    "part of a row": ("O[i] = logsumexp[k in 1:12](X[i,k])", 1),
    "along the other dimension": ("O[j] = argmax[k](X[k,j])", 1),
}  # fmt: skip
APART = {
    "one pass anyway": "M[i] max= X[i,k];  S[i] += exp(X[i,k] - a[i])",
    "another row": "M[i] max= X[i,k] for i in 0:6;  S[i] += exp(X[i+1,k] - M[i]) for i in 0:5",
    "other elements": "M[i] max= X[i,k] for k in 0:9;  S[i] += exp(X[i,k] - M[i])",
    "a place of another value": "M[i] max= X[i,k];  p[i] max= where(X[i,k] == M[i] / 2, k, -9223372036854775808)",
    "what is not chosen counts": "M[i] max= X[i,k];  p[i] max= where(X[i,k] == M[i], k, 0)",
    "a triangle": "O[i] = logsumexp[k](X[i,k] where k <= i)",
    "a row that changes": "f(X: f64[6,13]) -> X, S:\n    M[i] max= X[i,k]\n    X[i,0] = 1\n    S[i] += exp(X[i,k] - M[i])",
}


def blocked(found: Case) -> tuple[TypedProgram, int]:
    """Return the program by blocks of four elements, and how many pairs it has."""
    with insist(0):
        program, notes = one_pass(found.flat, TARGET)
    return program, len(notes)


def results(found: Case, program: TypedProgram, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    scop, schedule = build_scop(program), default_schedule(program)
    prove(scop, schedule)
    return run(scop, schedule, arrays)


@pytest.mark.parametrize("shape", ["f64[6,13]", "f32[6,16]"])
@pytest.mark.parametrize("name", PAIRS)
def test_blocks_give_what_two_passes_give(name: str, shape: str) -> None:
    text, pairs = PAIRS[name]
    found = case(text, X=shape)
    program, count = blocked(found)
    assert count == pairs
    for got, want in zip(results(found, program, found.arrays()), found.expected, strict=True):
        np.testing.assert_allclose(
            got, want, rtol=1e-12 if "f64" in shape else 2e-6, atol=1e-6 if "f32" in shape else 1e-12
        )


@pytest.mark.parametrize("name", APART)
def test_what_is_no_such_pair_is_left_alone(name: str) -> None:
    found = case(APART[name], X="f64[6,13]", **({"a": "f64[6]"} if "a[i]" in APART[name] else {}))
    assert blocked(found)[1] == 0


ROWS = [
    (0.0, -0.0),
    (np.inf,),
    (-np.inf,),
    (np.nan,),
    (np.inf, -np.inf),
    (np.inf, np.nan),
    (-np.inf, 1e300),
    (-1e300, 700.0),
]


SQUARES = "M[i] += X[i,k];  O[i] += (X[i,k] - {}) ** 2"
SHIFTS = [
    "minimum(M[i], 0.1)",
    "where(M[i] < 0, 0.5, 1.5)",
    "M[i] * -1",
]  # may be infinite; is not; is the other infinity


@pytest.mark.parametrize(
    "text",
    [
        "O[i] = logsumexp[k](X[i,k])",
        SOFTMAX,
        "O[i] = argmax[k](X[i,k])",
        PAIRS["a variance"][0],
        *map(SQUARES.format, SHIFTS),
    ],
)
def test_infinities_and_no_numbers_are_those_of_two_passes(text: str) -> None:
    X = np.tile(np.arange(13.0) - 5, (3 * len(ROWS), 1))
    for n, row in enumerate(ROWS):
        X[3 * n, : len(row)] = row  # in the first block,
        X[3 * n + 1, 6 : 6 + len(row)] = row  # another,
        X[3 * n + 2] = np.resize(row, 13)  # and everywhere
    found = case(text, X=f"f64[{len(X)},13]")
    program, count = blocked(found)
    assert count == 1
    with np.errstate(all="ignore"):
        got, want = (results(found, p, {"X": X})[0] for p in (program, found.flat))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_only_rows_that_no_cache_holds_are_read_by_blocks() -> None:
    text = "O[i] = mean[k]((X[i,k] - mean[l](X[i,l])) ** 2)"
    assert one_pass(case(text, X="f32[4,4096]").flat, TARGET)[1] == ()
    assert len(one_pass(case(text, X=f"f32[2,{1 << 26}]").flat, TARGET)[1]) == 1


def test_a_variance_of_a_long_row_is_within_the_bounds_of_sums() -> None:
    with insist(0):
        kernel = pk.op("O = mean[k]((x[k] - mean[l](x[l])) ** 2)").compile(pk.f32[4099])
    x = (1000 + np.random.default_rng(1).standard_normal(4099)).astype("f4")
    assert "read each row once" in str(kernel.explain())
    want = x.astype("f8").var()
    assert abs(kernel(x) - want) <= 1e-5 * want


@pytest.mark.parametrize("elements", [9_000_000, 9_000_001])
def test_the_two_reductions_of_a_block_run_together(elements: int) -> None:
    """Also where their results for whole rows could share fewer loops, and where the last block has fewer elements."""
    wide = target("cpu:x86-64-v4")
    program, _ = one_pass(case("O[a] = mean[k]((X[a,k] - mean[l](X[a,l])) ** 2)", X=f"f32[4,{elements}]").flat, wide)
    notes = [str(n) for n in auto_schedule(program, wide, lambda _: DENSE)[1].notes]
    together = [n for n in notes if "run together" in n and ", i5 by 1" in n]
    assert len(together) == 1
    names = together[0].split(": run together")[0].split(", ")
    assert [n for n in notes if "vectors of 16" in n and n.split(":")[0] in names] == [
        n for n in notes if "terms" in n and n.split(":")[0] in names
    ]
