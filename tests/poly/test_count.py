"""Counts against enumeration: boxes, triangles, bands, strides, tiles, unions; of fixed and of symbolic sizes."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyker.poly.count import count
from polyker.poly.isl import read_set
from polyker.poly.quasi_polynomial import atom, constant, evaluate, floor, plus, power, scaled, substitute, sum_over

CONTEXT = "[n, m] -> { : n >= 0 and m >= 0 }"
SHAPES = (
    "0 <= i < n and 0 <= j < m",
    "0 <= i < n and 0 <= j <= i",
    "0 <= i < n and i < j < n and j < m",
    "0 <= i < n and 0 <= j < m and -{a} <= i - j <= {b}",
    "0 <= i < n and 0 <= j < m and i mod {a} = 0",
    "0 <= i < n and 0 <= j < m and (i + j) mod {a} = 0",
    "0 <= {a}*i < n and 0 <= j < m",
    "0 <= i < n and 0 <= {a}*j <= i + {b}",
    "0 <= i < n and {a}*floor(i/{a}) <= j < {a}*floor(i/{a}) + {a} and j < n",
    "0 <= i < n and 0 <= j < m and 0 <= {b}*i + j - 1 < n",
    "(0 <= i < n and j = 0) or (0 <= j < m and i <= {a} and i >= 0)",
    "0 <= i < n and 0 <= j < floor(i/{a})",
    "exists (e : i = {a}*e) and 0 <= i < n and 0 <= j < m",
    "0 <= i and i + {a}*j < n and j >= 0",
)

# Of four dimensions, in groups that share sizes alone; interleaved, and some empty for sizes at which others are not.
PRODUCTS = (
    "0 <= i < n and 0 <= k < 3 and 0 <= i + k - {a} < n and 0 <= j < m and j <= l < 2*m - {b}",
    "0 <= i < n and i <= k < m and 0 <= j < n and 0 <= l < m and (j + l) mod {a} = 0 and n + m > {b}",
    "0 <= i < n and 0 <= l <= i and j = 2*k and 0 <= k < m and m <= n",
    "0 <= i < n - {a} and 0 <= j < m - {b} and j <= k < m and 0 <= l < 2",
    "(0 <= i < n and i <= k < n and j = 0 and l = {a}) or (0 <= i < m and k = -1 and 0 <= j <= l < {b})",
    "0 <= i < n and {a}*floor(i/{a}) <= j < {a}*floor(i/{a}) + {a} and j < n and 0 <= k < m and k <= l < m",
)


def fixed(shape: str, n: int, m: int, dimensions: str = "i, j") -> str:
    return f"{{ [{dimensions}] : exists (n, m : n = {n} and m = {m} and ({shape})) }}"


@pytest.mark.parametrize("shape", SHAPES)
@given(st.integers(0, 9), st.integers(0, 7), st.integers(1, 5), st.integers(0, 4))
@settings(max_examples=6, deadline=None)
def test_a_count_is_what_enumeration_gives(shape: str, n: int, m: int, a: int, b: int) -> None:
    text = shape.format(a=a, b=b)
    points = read_set(fixed(text, n, m))
    wanted = points.count_val().to_python()
    assert count(points).number == wanted
    symbolic = count(read_set(f"[n, m] -> {{ [i, j] : {text} }}"), read_set(CONTEXT))
    found = symbolic.at({"n": n, "m": m})
    assert found == wanted if symbolic.exact else found >= wanted


@pytest.mark.parametrize("shape", PRODUCTS)
@given(st.integers(0, 6), st.integers(0, 6), st.integers(1, 4), st.integers(0, 3))
@settings(max_examples=6, deadline=None)
def test_a_product_counts_as_its_factors_do(shape: str, n: int, m: int, a: int, b: int) -> None:
    text = shape.format(a=a, b=b)
    points = read_set(fixed(text, n, m, "i, j, k, l"))
    wanted = points.count_val().to_python()
    assert count(points).number == wanted
    symbolic = count(read_set(f"[n, m] -> {{ [i, j, k, l] : {text} }}"), read_set(CONTEXT))
    assert symbolic.exact
    assert symbolic.at({"n": n, "m": m}) == wanted


@pytest.mark.parametrize("size", [0, 1, 96, 97, 98, 200, 291])
def test_tiles_of_any_size_are_counted_exactly(size: int) -> None:
    shape = "0 <= i < n and 97*floor(i/97) <= j < 97*floor(i/97) + 97 and j < n"
    found = count(read_set(f"[n] -> {{ [i, j] : {shape} }}"), read_set("[n] -> { : n >= 0 }"))
    assert found.exact
    assert found.at({"n": size}) == read_set(fixed(shape, size, 0)).count_val().to_python()


@pytest.mark.parametrize("shape", SHAPES)
def test_counts_of_symbolic_sizes_are_exact_for_small_factors(shape: str) -> None:
    found = count(read_set(f"[n, m] -> {{ [i, j] : {shape.format(a=3, b=1)} }}"), read_set(CONTEXT))
    assert found.exact


def test_a_set_that_the_sums_do_not_reach_is_bounded_and_says_so() -> None:
    shape = "0 <= i < n and 0 <= j < n and i mod 100 = j mod 100"
    found = count(read_set(f"[n] -> {{ [i, j] : {shape} }}"), read_set("[n] -> { : n >= 0 }"))
    assert not found.exact
    assert found.at({"n": 200}) >= read_set(fixed(shape, 200, 0)).count_val().to_python()


def test_a_set_without_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="bounded"):
        count(read_set("{ [i] : i >= 0 }"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[n] -> { [i, j] : 0 <= i < n and 0 <= j <= i }", "n**2/2 + n/2"),
        ("[n, m] -> { [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < 3 }", "3*m*n"),
        ("[n] -> { [i] : 0 <= 2*i < n }", "floor(n/2 + 1/2)"),
        ("[n, m] -> { [i] : 0 <= i < n and i < m }", "Piecewise((m, m - n <= 0), (n, m - n >= 1), (0, True))"),
        ("{ [i, j] : 0 <= i < 10 and 0 <= j <= i }", "55"),
        ("{ [i, j] : 0 <= i < 1000 and 32*floor(i/32) <= j < 32*floor(i/32) + 32 and j < 1000 }", "31808"),
        ("{ [] }", "1"),
        ("{ [i] : 1 = 0 }", "0"),
    ],
)
def test_counts_read_as_one_would_write_them(text: str, wanted: str) -> None:
    assert str(count(read_set(text), read_set(CONTEXT)).symbolic({})) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "[n, c, f, h, w] -> { [a, b, d, x, y, r, s] : 0 <= a < n and 0 <= b < f and 0 <= d < c and 0 <= x < h and "
        "0 <= y < w and 0 <= r < 3 and 0 <= s < 3 and 0 <= x + r - 1 < h and 0 <= y + s - 1 < w }",
        "{ [a, b, c] : 0 <= a < 100000 and 0 <= b <= a and 0 <= c <= b }",
        "[n] -> { [a, b, c] : 0 <= a < n and a <= b < n and b <= c < n }",
    ],
)
def test_a_count_takes_under_50_ms(text: str) -> None:
    points = read_set(text)
    count(points)
    start = time.process_time()
    count(points)
    assert time.process_time() - start < 0.05


def test_sums_of_powers_are_those_of_a_loop() -> None:
    x, n = atom("x"), atom("n")
    for degree in range(6):
        found = sum_over(power(plus(x, n), degree), "x", constant(2), n, 3)
        for size in range(5):
            wanted = sum((y + size) ** degree for y in range(2, 2 + 3 * size + 1, 3))
            assert evaluate(found, {"n": size}) == wanted


def test_floors_take_out_what_divides_evenly() -> None:
    inside = plus(plus(scaled(atom("n"), 6), scaled(atom("m"), 4)), constant(7))
    found = floor(inside, 3)
    for n in range(4):
        for m in range(4):
            assert evaluate(found, {"n": n, "m": m}) == (6 * n + 4 * m + 7) // 3
    assert evaluate(substitute(found, {"m": plus(scaled(atom("n"), 3), constant(1))}), {"n": 2}) == (12 + 28 + 7) // 3
    assert evaluate(scaled(found, Fraction(1, 2)), {"n": 0, "m": 0}) == 1
