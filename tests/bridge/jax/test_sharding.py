"""Sharding rules that follow from the notation, and what XLA makes of them on two devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import polyker as pk
from polyker.bridge.splitting import split_rule

ROOT = Path(__file__).parents[3]

# The rule of a program by the ranks of its tensors, what is whole, and what combines parts of results.
RULES = {
    "product": (
        "C[i,j] += A[i,k] * B[k,j]", {"A": 2, "B": 2, "C": 2}, "i k, k j -> i j", "", {"k": {0: "add"}}
    ),
    "largest": ("m[i] max= x[i,j]", {"m": 1, "x": 2}, "i j -> i", "", {"j": {0: "max"}}),
    "a number": ("Y[i] = a * X[i]", {"a": 0, "X": 1, "Y": 1}, ", i -> i", "", {}),
    "window": ("O[n,i] += X[n,i+r] * W[r]", {"O": 2, "X": 2, "W": 1}, "n whole, r -> n i", "whole r i", {}),
    "diagonal": ("t[j] += A[i,i,j]", {"A": 3, "t": 1}, "i i_again_1 j -> j", "i i_again_1", {}),
    "transposed twice": ("C[i,j] = A[i,j] * A[j,i]", {"A": 2, "C": 2}, "i i_again_1 -> i i_again_1", "i i_again_1", {}),
    "softmax": ("P[i,j] = exp(X[i,j]) / sum[k](exp(X[i,k]))", {"X": 2, "P": 2}, "i j -> i j", "j", {}),
    "statements": ("T[i] = sum[k](A[i,k]); O[i,j] = T[i] * B[i,j]", {"A": 2, "B": 2, "O": 2}, "i k, i j -> i j", "k", {}),
    "recurrence": ("S[b,0] = X[b,0]; S[b,t] = S[b,t-1] + X[b,t] for t in 1:T", {"X": 2, "S": 2}, "b t -> b t", "t", {}),
    "value of an index": ("Y[i,j] = X[i,j] * i", {"X": 2, "Y": 2}, "i j -> i j", "i", {}),
    "condition": (
        "L[i,j] += A[i,k] * B[j,k] where j <= i", {"A": 2, "B": 2, "L": 2}, "i k, j k -> i j", "i j", {"k": {0: "add"}}
    ),
    "gather": ("O[i,d] = T[I[i],d]", {"T": 2, "I": 1, "O": 2}, "whole d, i -> i d", "whole", {}),
    "declared extent": ("f(X: f32[N,3]) -> Y:\n    Y[i,j] = X[i,j]", {"X": 2, "Y": 2}, "i j -> i j", "j", {}),
    "value of an extent": ("f(X: f32[N]) -> Y:\n    Y[i] = X[i] / N", {"X": 1, "Y": 1}, "i -> i", "i", {}),
    "given size": ("Y[i] = X[i] for i in 0:N", {"X": 1, "Y": 1}, "i -> i", "i", {}),
    "in-out sum": ("f(C: f32[N], A: f32[N,K]) -> C:\n    C[i] += A[i,k]", {"C": 1, "A": 2}, "i, i k -> i", "k", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_the_rule_of_a_program(name: str) -> None:
    text, ranks, wanted, whole, reduced = RULES[name]
    found = split_rule(pk.op(text).program, (), ranks)
    assert found is not None
    assert str(found) == wanted
    assert found.whole == frozenset(whole.split())
    assert found.reduced == reduced


def test_extents_that_differ_make_dimensions_whole() -> None:
    rule = split_rule(pk.op("Y[i] = X[i; pad=0] + Z[i]").program, (), {"X": 1, "Z": 1, "Y": 1})
    assert rule is not None
    assert rule.for_shapes([(3,), (3,)], [(3,)]) is rule
    other = rule.for_shapes([(2,), (3,)], [(3,)])
    assert len(other.whole) == 3


@pytest.fixture(scope="module")
def devices() -> dict[str, Any]:
    pytest.importorskip("jax", reason="jax is an extra, and not installed")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.bridge.jax.two_devices"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-4000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def test_two_devices_compute_what_one_does(devices: dict[str, Any]) -> None:
    assert {name: case["right"] for name, case in devices.items()} == dict.fromkeys(devices, True)


@pytest.mark.parametrize(
    ("name", "spec", "collectives"),
    [
        ("rows", ["('d', None)"], []),
        ("reduced", ["()"], ["all-reduce"]),
        ("odd", ["(None, 'd')"], []),
        ("largest", ["()"], ["all-reduce"]),
        ("softmax rows", ["('d', None)"], []),
        ("window, batch", ["('d', None)"], []),
        ("window", ["()"], ["all-gather"]),
        ("diagonal", ["('d',)"], []),
        ("gradient", ["('d', None)", "()"], ["all-reduce"]),
        ("batch", ["('d', None, None)"], []),
        ("shard_map", ["('d', None)"], []),
        ("explicit axes", ["('d', None)"], []),
        ("gradient in shard_map", ["('d', None)", "()"], ["all-reduce"]),
    ],
)
def test_what_is_split_is_not_gathered(
    devices: dict[str, Any], name: str, spec: list[str], collectives: list[str]
) -> None:
    assert devices[name]["spec"] == spec
    assert devices[name]["collectives"] == collectives
