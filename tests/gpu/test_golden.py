"""The printed CUDA text of one small kernel of each family, to be read by people; `--update-golden` writes it anew."""

import pytest

import polyker as pk

FAMILIES = {
    "elementwise": ("Z[i] = relu(X[i]) * 2 + Y[i]", (pk.f32[1000], pk.f32[1000])),
    "gather": ("E[b,d] = T[idx[b], d]", (pk.f32[100, 64], pk.i32[8])),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_text_is_as_it_was(family, golden):
    text, types = FAMILIES[family]
    printed = pk.op(text).compile(*types, target="cuda:sm_90a").source("cuda")
    golden(f"cuda/{family}.cu", f"// {text}\n{printed[printed.index('// t0:') :]}")
