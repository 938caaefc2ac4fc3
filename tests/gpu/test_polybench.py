"""PolyBench's programs on `cuda-sim`: time loops on the host, recurrences in threads, reductions in triangles."""

import numpy as np
import pytest

import polyker as pk
from benchmarks.polybench.case import results
from benchmarks.polybench.suite import all_cases
from tests.gpu.support import needs_compiler

pytestmark = [needs_compiler, pytest.mark.filterwarnings("ignore:.*(divide|invalid value).*:RuntimeWarning")]


@pytest.mark.parametrize("case", all_cases(), ids=lambda c: c.name)
def test_results_are_those_of_plain_loops(case):
    inputs = case.inputs("MINI")
    given, plain = ([v.copy() if isinstance(v, np.ndarray) else v for v in inputs.values()] for _ in range(2))
    found = pk.op(case.text).compile(*given, target="cuda-sim")(*given)
    assert case.check(inputs, results(found), results(case.loops(*plain))) == ""
