"""The printed CUDA text of one small kernel of each family, to be read by people; `--update-golden` writes it anew."""

import pytest

import polyker as pk

PRODUCT, ROW_SUMS = "C[i,j] += A[i,k] * B[k,j]", "s[i] += X[i,j]"
TILED = {"i.tile": "block.y", "j.tile": "block.x", "i.point": "thread.y", "j.point": "thread.x"}
# The text, its types, and by hand the schedule's tiles and mapping: what is printed for it changes with the printer alone.
FAMILIES = {
    "product": (PRODUCT, (pk.f32[20, 12], pk.f32[12, 40]), {"i": 8, "j": 32}, TILED),
    "symbolic_product": (PRODUCT, (pk.f32["M", "K"], pk.f32["K", "N"]), {"i": 8, "j": 32}, TILED),
    "row_sums": (ROW_SUMS, (pk.f32[64, 200],), {"i": 32}, {"i.tile": "block.x", "i.point": "thread.x"}),
    "transpose": ("T[j,i] = X[i,j]", (pk.f32[40, 70],), {"i": 8, "j": 32}, TILED),
    "elementwise": (
        "Z[i] = relu(X[i]) * 2 + Y[i]",
        (pk.f32[1000], pk.f32[1000]),
        {"i": 256},
        {"i.tile": "block.x", "i.point": "thread.x"},
    ),
    "gather": ("E[i,j] = T[idx[i], j]", (pk.f32[100, 64], pk.i32[8]), {"i": 8, "j": 32}, TILED),
    "recurrence": ("S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:60", (pk.f32[50, 60],), {}, {}),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_text_is_as_it_was(family, golden):
    text, types, tiles, mapping = FAMILIES[family]
    schedule = pk.op(text).schedule(*types, target="cuda:sm_90a", auto=False)
    schedule = schedule.tile(**tiles) if tiles else schedule
    schedule = schedule.map(mapping) if mapping else schedule
    printed = pk.op(text).compile(*types, schedule=schedule).source("cuda")
    golden(f"cuda/{family}.cu", f"// {text}\n{printed[printed.index('// t0:') :]}")
