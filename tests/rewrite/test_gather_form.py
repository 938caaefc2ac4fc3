"""Scattered terms, gathered element by element: transposed convolutions and full products of polynomials."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.cost.own_distances import elements_apart
from polyker.poly.scop import build_scop
from polyker.rewrite.reductions.gather_form import gather_terms
from polyker.schedule.legality.prove import prove
from polyker.schedule.nests.text_order import default_schedule
from tests.schedule.support import assert_same, case

LINE = "f(X: f64[N], K: f64[M]) -> O:\n    O: f64[P]\n    "
SCATTERED = {
    "stride 1": (LINE + "O[i+r] += X[i] * K[r]", "X=7 K=3 O=9"),
    "stride 2": (LINE + "O[2*i+r] += X[i] * K[r]", "X=5 K=4 O=12"),
    "stride 2, taps that are no multiple": (LINE + "O[2*i+r] += X[i] * K[r]", "X=6 K=5 O=15"),
    "the larger of each": (LINE + "O[3*i+r] max= X[i] + K[r]", "X=4 K=7 O=16"),
    "one that counts down": (LINE + "O[i-r+2] += X[i] * K[r]", "X=7 K=3 O=9"),
    "a longer one that counts down": (LINE + "O[r-i+6] += X[i] * K[r]", "X=7 K=3 O=9"),
    "both": (LINE + "O[8-i-r] += X[i] * K[r]", "X=7 K=3 O=9"),
    "steps that count down": (LINE + "O[8-2*i+r] += X[i] * K[r]", "X=5 K=4 O=12"),
    "of a part": (LINE + "O[i-r+2] max= X[i] + K[r]  for i in 2:6, r in 0:3", "X=7 K=3 O=9"),
    "the shorter one counts": (LINE + "O[r+i] += X[i] * K[r] + i", "X=3 K=8 O=10"),
}
APART = {
    "no two in one element": (LINE + "O[3*i+r] += X[i] * K[r]", "X=4 K=3 O=12"),
    "phases that count down": (LINE + "O[2*i-r+3] += X[i] * K[r]", "X=5 K=4 O=12"),
    "each in a row of its own": (LINE + "O[i+r] += X[i] * K[r]  for i in 0:4, r in 0:1", "X=4 K=3 O=4"),
}


def made(text: str, sizes: str):
    extents = dict(part.split("=") for part in sizes.split())
    text = text.replace("f64[P]", f"f64[{extents.pop('O')}]")
    return case(text, **{name: f"f64[{n}]" for name, n in extents.items()})


def always(*_: object) -> bool:
    return True


@pytest.mark.parametrize("name", SCATTERED)
def test_results_are_apart_and_what_the_text_says(name: str) -> None:
    found = made(*SCATTERED[name])
    gathered = gather_terms(found.flat, always)
    statement = next(s for s in gathered.statements() if s.op != "set")
    kept = tuple(i for i in statement.iterators if i not in statement.reduced)
    assert statement.reduced and elements_apart(gathered, statement, kept) == kept
    scop, plain = build_scop(gathered), default_schedule(gathered)
    prove(scop, plain)
    assert_same(found, scop, plain)


@pytest.mark.parametrize("name", APART)
def test_terms_that_are_apart_stay_as_they_are(name: str) -> None:
    program = made(*APART[name]).flat
    assert gather_terms(program, always) is program


@pytest.mark.parametrize("shape", [(3, 5, 40, 3, 1), (4, 8, 40, 4, 2), (2, 3, 33, 5, 3)])
def test_transposed_convolutions(shape: tuple[int, ...]) -> None:
    channels, filters, extent, taps, stride = shape
    rng = np.random.default_rng(0)
    x, k = rng.random((channels, extent, extent)), rng.random((channels, filters, taps, taps))
    out = (extent - 1) * stride + taps
    want = np.zeros((filters, out, out))
    for r in range(taps):
        for s in range(taps):
            end = (extent - 1) * stride + 1
            want[:, r : r + end : stride, s : s + end : stride] += np.einsum("chw,cf->fhw", x, k[:, :, r, s])
    text = (
        f"f(X: f64[C,H,W], K: f64[C,F,R,S]) -> O:\n    O: f64[{filters},{out},{out}]\n"
        f"    O[f,{stride}*h+r,{stride}*w+s] += X[c,h,w] * K[c,f,r,s]"
    )
    np.testing.assert_allclose(pk.op(text).compile(x, k, threads=1)(x, k), want, rtol=1e-10)


def test_a_full_convolution_runs_along_its_results() -> None:
    a, b = np.random.default_rng(1).random(1000), np.random.default_rng(2).random(50)
    kernel = pk.op("f(X: f64[N], K: f64[M]) -> O:\n    O: f64[1049]\n    O[i+j] += X[i] * K[j]").compile(
        a, b, threads=1
    )
    np.testing.assert_allclose(kernel(a, b), np.convolve(a, b), rtol=1e-10)
