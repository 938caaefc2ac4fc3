"""The operators and contractions of the demo on `cuda-sim`."""

import numpy as np
import pytest

from tests.gpu.operators import CONTRACTIONS, OPERATORS, check
from tests.gpu.support import needs_compiler

pytestmark = needs_compiler


@pytest.mark.parametrize("case", [*OPERATORS, *CONTRACTIONS], ids=lambda c: c.id)
def test_the_operator_gives_numpys_result(case):
    kernel = check(case, "cuda-sim")
    assert "one thread" not in kernel.source("schedule") or case.id == "scalar"


def test_there_are_thirty_operators_and_forty_eight_contractions():
    assert (len(OPERATORS), len(CONTRACTIONS)) == (30, 48)
    assert all(np.prod(shape) < 4000 for c in (*OPERATORS, *CONTRACTIONS) for _, _, shape in c.arrays)
