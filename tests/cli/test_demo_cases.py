"""The demo's operators in the notation say the same as their NumPy spellings, and its checks catch wrong results."""

import math
from fractions import Fraction

import numpy as np
import pytest

from polyker.cli.demo_cases import (
    CONTRACTION_FLOP,
    contraction,
    load,
    operators,
    read_data,
    scale_contraction,
    scale_down,
)
from polyker.cli.demo_check import compare_exact, compare_random, exact_inputs, outputs, random_inputs
from polyker.cli.demo_numpy import SPELLINGS
from polyker.einsum_frontend import parse
from polyker.reference import interpret
from polyker.structs import replace

CONTRACTIONS = read_data("contractions.json")["contractions"]
OPERATORS = {case.id: case for case in operators("f32", elements=150)}


def interpreted(case, arguments):
    """Run a case's text in the plain interpreter; sizes come from `fixed` and `arguments`."""
    program = parse(case.text, sizes=tuple(case.fixed))
    arrays = {name: value for name, value in arguments.items() if name not in case.arguments}
    return interpret(program, arrays, {**case.fixed, **case.arguments})


def small_contraction(row, dtype="f32"):
    """Return a contraction with sizes 2, 3, 2, 3, …: distinct neighbours show a swapped index."""
    return contraction(row, {label: 2 + n % 2 for n, label in enumerate(row[dtype])}, dtype)


def test_there_are_30_operators_and_48_contractions():
    assert (len(read_data("operators.json")["operators"]), len(CONTRACTIONS), len(load())) == (30, 48, 78)
    assert set(SPELLINGS) == {row["id"] for row in read_data("operators.json")["operators"]}


@pytest.mark.parametrize("case", OPERATORS.values(), ids=OPERATORS)
def test_the_text_says_what_the_numpy_spelling_says(case):
    arguments = random_inputs(case)
    got = interpreted(case, arguments)
    verdict = compare_random(case, arguments, got, case.numpy(**arguments))
    assert verdict.passed, verdict.detail


@pytest.mark.parametrize("case", [c for c in OPERATORS.values() if c.exact], ids=lambda c: c.id)
def test_exact_data_gives_equal_bits(case):
    arguments = exact_inputs(case)
    assert arguments is not None
    assert compare_exact(interpreted(case, arguments), case.numpy(**arguments)) == ""


@pytest.mark.parametrize("row", CONTRACTIONS, ids=lambda row: row["id"])
def test_a_contraction_says_what_its_einsum_says(row):
    case = small_contraction(row)
    arguments = exact_inputs(case)
    assert compare_exact(interpreted(case, arguments), case.numpy(**arguments)) == ""


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_exact_inputs_stay_exact_when_summed(dtype):
    for case in [*operators(dtype, elements=5000), *(small_contraction(row, dtype) for row in CONTRACTIONS)]:
        arguments = exact_inputs(case)
        if arguments is None:
            assert not case.exact
            continue
        wide = {
            k: np.asarray(v).astype(np.longdouble) if np.asarray(v).dtype.kind == "f" else v
            for k, v in arguments.items()
        }
        for narrow, exact in zip(outputs(case.numpy(**arguments)), outputs(case.numpy(**wide)), strict=True):
            assert np.array_equal(narrow, exact.astype(narrow.dtype)), case.id


def test_a_wrong_element_is_found_in_exact_and_in_random_data():
    case = OPERATORS["tmm"]
    arguments = random_inputs(case)
    right = case.numpy(**arguments)
    wrong = right.copy()
    wrong[-1, -1] += 1e-2
    assert compare_random(case, arguments, right, right).passed
    assert "1 elements of output 0 are outside gamma_n" in compare_random(case, arguments, wrong, right).detail
    assert "1 elements of output 0 differ" in compare_exact(wrong, right)
    assert "output 0 is float64" in compare_exact(right.astype(np.float64), right)


def test_nan_is_not_within_the_bound():
    for name in ("tmm", "softmax"):
        case = OPERATORS[name]
        arguments = random_inputs(case)
        right = case.numpy(**arguments)
        wrong = right.copy()
        wrong[0, 0] = np.nan
        assert not compare_random(case, arguments, wrong, right).passed


def test_an_error_over_four_times_numpys_is_found():
    case = OPERATORS["softmax"]
    arguments = random_inputs(case)
    right = case.numpy(**arguments)
    assert "over 4 times" in compare_random(case, arguments, right * np.float32(1 + 1e-5), right).detail


def test_a_wrong_contraction_in_f64_is_found_by_its_samples():
    case = small_contraction(CONTRACTIONS[0], "f64")
    arguments = random_inputs(case)
    right = case.numpy(**arguments)
    assert compare_random(case, arguments, right, right).passed
    assert not compare_random(case, arguments, right * (1 + 1e-13), right).passed


def test_contraction_sizes_come_near_the_aim_and_keep_their_multiples_of_8():
    for row in CONTRACTIONS:
        for dtype in ("f32", "f64"):
            sizes = scale_contraction(row[dtype], CONTRACTION_FLOP)
            assert 0.2e9 < 2 * math.prod(sizes.values()) < 0.45e9
            for label, size in sizes.items():
                assert size % (8 if row[dtype][label] % 8 == 0 else 4) == 0
                assert size <= row[dtype][label]


def test_sizes_are_scaled_down_together_but_not_below_4():
    sizes = scale_down({"A": 1000, "B": 100, "R": 3}, [["A", "B"], ["R", "7"]], 2000)
    assert sizes["R"] == 3
    assert sizes["A"] * sizes["B"] + 21 <= 2000
    assert abs(Fraction(sizes["A"], sizes["B"]) - 10) < 1


def test_operands_are_at_most_1_gib_and_reduced_ones_are_marked():
    for case in operators("f32", every_shape=True):
        assert all(4 * math.prod(shape) <= 2**30 for _, _, shape in case.arrays), case.id
    marks = {shape["status"] for row in read_data("operators.json")["operators"] for shape in row["shapes"]}
    assert marks == {"published", "chosen", "reduced"}


def test_a_case_prints_its_sizes():
    assert replace(OPERATORS["tmm"], sizes={"M": 2, "K": 3}).shape() == "M=2 K=3"


def test_every_shape_runs_once():
    shapes = [(case.id, case.shape()) for case in operators("f32", every_shape=True)]
    assert len(shapes) == len(set(shapes))
    assert [shape for name, shape in shapes if name == "kron3_3"] == [
        "M=256 D0=16 D1=16 D2=16 N0=32",
        "M=256 D0=16 D1=16 D2=16 N0=64",
    ]
