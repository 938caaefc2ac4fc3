"""Short reductions that become values keep the identity where they have no terms."""

import numpy as np

import polyker as pk


def test_elements_that_a_condition_leaves_without_terms_hold_the_identity():
    x = np.arange(1.0, 7.0)
    # F[0] has no term; F is not stored, and read as a whole.
    found = pk.op("F[k] += X[k] * W[s] where s < k; D += F[r]")(x, np.array([2.0]))
    assert found == 2 * x[1:].sum()
