"""The 30 operators of Tensor Comprehensions and the 48 contractions of TCCG on `cuda-sim`, at small sizes with partial blocks."""

import numpy as np
import pytest

import polyker as pk
from polyker.demo_cases import contraction, operators, read_data
from polyker.demo_check import compare_exact, compare_random, exact_inputs, random_inputs
from tests.gpu.support import needs_compiler

pytestmark = needs_compiler

OPERATORS = operators("f32", cells=2500)
SIZES = (3, 5, 2, 7, 4, 9)
CONTRACTIONS = [
    contraction(row, {label: SIZES[n % len(SIZES)] for n, label in enumerate(row["f32"])}, "f32")
    for row in read_data("contractions.json")["contractions"]
]


@pytest.mark.parametrize("case", [*OPERATORS, *CONTRACTIONS], ids=lambda c: c.id)
def test_the_operator_gives_numpys_result(case):
    arguments = exact_inputs(case)
    data = random_inputs(case) if arguments is None else arguments
    sizes = {k: v for k, v in case.arguments.items() if k not in data}
    kernel = pk.op(case.text, **case.fixed).compile(**data, **sizes, target="cuda-sim")
    assert "one thread" not in kernel.source("schedule") or case.id == "scalar"
    got = kernel(**data, **sizes)
    want = case.numpy(**data)
    if arguments is None:
        verdict = compare_random(case, data, got, want)
        assert verdict.passed, verdict.detail
    else:
        assert compare_exact(got, want) == ""


def test_there_are_thirty_operators_and_forty_eight_contractions():
    assert (len(OPERATORS), len(CONTRACTIONS)) == (30, 48)
    assert all(np.prod(shape) < 4000 for c in (*OPERATORS, *CONTRACTIONS) for _, _, shape in c.arrays)
