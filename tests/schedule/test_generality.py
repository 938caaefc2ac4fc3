"""A schedule depends on what a program does, not on what its parts are called."""

from __future__ import annotations

import re

import pytest

import polyker as pk
from tests.artifacts import generated

PROGRAMS = {
    "product": ("C[i,j] += A[i,k] * B[k,j]", "Z[u,v] += X[u,w] * Y[w,v]", {"A": (300, 400), "B": (400, 700)}),
    "contraction": (
        "C[d,c,b,a] += A[f,d,e,a] * B[e,c,f,b]",
        "Z[p,q,r,s] += X[u,p,t,s] * Y[t,q,u,r]",
        {"A": (9, 20, 8, 17), "B": (8, 21, 9, 16)},
    ),
    "convolution": (
        "O[f,h,w] += X[c,h+r,w+s] * K[f,c,r,s]",
        "Z[a,b,d] += X[e,b+g,d+k] * Y[a,e,g,k]",
        {"X": (16, 30, 30), "K": (32, 16, 3, 3)},
    ),
    "distance": ("D[i,j] += abs(A[i,k] - B[j,k])", "Z[x,y] += abs(X[x,z] - Y[y,z])", {"A": (60, 50), "B": (70, 50)}),
    "mttkrp": (
        "O[i,r] += X[i,j,k] * A[j,r] * B[k,r]",
        "P[z,a] += T[z,c,b] * S[c,a] * U[b,a]",
        {"X": (50, 60, 70), "A": (60, 32), "B": (70, 32)},
    ),
    "softmax": (
        "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))",
        "Q[a,b] = exp(Y[a,b] - max[c](Y[a,c])) / sum[d](exp(Y[a,d] - max[c](Y[a,c])))",
        {"X": (50, 300)},
    ),
}


def schedule(text: str, shapes: list[tuple[int, ...]]) -> str:
    return str(generated(pk.op(text).compile(*(pk.f32[s] for s in shapes)), "schedule"))


def without_names(text: str) -> str:
    """Return a schedule in which the user's own names are left out of the notes."""
    return re.sub(r"(?m)^(S\d+: )\w+ is", r"\1_ is", re.sub(r"(?m)^\w+ is (not )?stored", "_ is stored", text))


@pytest.mark.parametrize("name", PROGRAMS)
def test_names_change_nothing(name: str) -> None:
    first, second, shapes = PROGRAMS[name]
    assert without_names(schedule(first, [*shapes.values()])) == without_names(schedule(second, [*shapes.values()]))


def tile(text: str) -> list[str]:
    """Return what a schedule's notes say of the tile, the iterators' names left out."""
    note = next(n for n in reversed(text.splitlines()) if "vectors of" in n)
    return re.findall(r"\d+", re.sub(r"[iSt]\d+", "", note))


@pytest.mark.parametrize("name", ["product", "contraction", "convolution", "mttkrp"])
def test_the_order_of_factors_changes_nothing(name: str) -> None:
    text, _, shapes = PROGRAMS[name]
    target, product = text.split(" += ")
    swapped = f"{target} += {' * '.join(reversed(product.split(' * ')))}"
    assert tile(schedule(text, [*shapes.values()])) == tile(schedule(swapped, [*reversed(shapes.values())]))
