"""Random kernels: the interpreter and machine code agree bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyker.codegen.ir.verify import verify
from polyker.codegen.passes.simplify import simplify, unroll
from polyker.errors import InternalError
from tests.codegen.interpret import run
from tests.codegen.kernels import random_case
from tests.codegen.support import check_same


@settings(max_examples=90, deadline=None)
@given(st.integers(0, 2**32))
def test_machine_code_does_what_the_interpreter_does(seed):
    case = random_case(seed)
    verify(case.kernel)
    check_same(case.kernel, case.arrays, case.integers, strides=case.strides)


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cpu:x86-64-v2"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_narrower_vector_units_give_the_same(target, seed):
    case = random_case(seed)
    check_same(case.kernel, case.arrays, case.integers, target, case.strides)


@pytest.mark.parametrize("change", [unroll, simplify])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_rewritten_kernel_means_the_same(change, seed):
    case = random_case(seed)
    changed = change(case.kernel)
    verify(changed)
    before = {k: v.copy() for k, v in case.arrays.items()}
    after = {k: v.copy() for k, v in case.arrays.items()}
    counts: list[dict[str, np.ndarray]] = [{}, {}]
    try:
        status = run(case.kernel, before, case.integers, stores=counts[0])
    except InternalError:  # an illegal vectorisation
        return
    assert run(changed, after, case.integers, stores=counts[1]) == status
    if status == 0:
        for name in case.arrays:
            assert np.array_equal(before[name], after[name])
            # A place that is seen to be one for all lanes is stored to once.
            assert np.array_equal(counts[0][name] > 0, counts[1][name] > 0)
