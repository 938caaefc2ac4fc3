"""Instance-wise dependences, against all pairs of instances that touch one element."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from polyker.poly.dependences import dependences
from tests.poly.test_scop import MORE, pairs_of
from tests.schedule.enumeration import Truth
from tests.schedule.programs import PROGRAMS
from tests.schedule.random_programs import random_case
from tests.schedule.support import Case, case


def assert_dependences_are_exact(found: Case) -> None:
    truth = Truth(found.flat)
    said = defaultdict(set)
    for d in dependences(found.scop):
        for source, sink in pairs_of(d.relation):
            said[(d.source, source), (d.sink, sink), d.tensor].add(d.kind)
    seen = {(a, b, tensor): combine for a, b, tensor, combine in truth.clashes}
    assert set(said) == set(seen), found.text
    for key, kinds in said.items():
        assert (kinds == {"reduction"}) is seen[key], (found.text, key)
        assert truth.order[key[0]] < truth.order[key[1]]


@pytest.mark.parametrize("name", [*PROGRAMS, *MORE])
def test_dependences_are_the_pairs_that_share_a_element(name: str) -> None:
    assert_dependences_are_exact({**PROGRAMS, **MORE}[name])


@pytest.mark.parametrize("seed", range(30, 60))
def test_dependences_of_random_programs_are_exact(seed: int) -> None:
    assert_dependences_are_exact(random_case(random.Random(seed)))


def kinds(text: str, **given: str | int) -> dict[tuple[str, str, str], set[str]]:
    found = defaultdict(set)
    for d in dependences(case(text, **given).scop):
        found[d.source, d.sink, d.kind].add(d.tensor)
    return found


def test_the_kinds_are_named_by_what_comes_first() -> None:
    found = kinds("f(A: f64[N]) -> A:\n    B[i] = A[i]\n    A[i] = B[i] + 1\n    A[i] = A[i] * 2", A="f64[4]")
    assert set(found) == {
        ("S0", "S1", "raw"), ("S0", "S1", "war"), ("S1", "S2", "raw"), ("S1", "S2", "waw"), ("S0", "S2", "war"),
    }  # fmt: skip


def test_terms_of_one_reduction_are_relaxed_but_not_against_other_statements() -> None:
    found = kinds("C[i] += A[i,k];  C[i] += B[i,k];  D[i] = C[i]", A="f64[3,4]", B="f64[3,4]")
    assert ("S0", "S0", "reduction") in found
    assert ("S1", "S1", "reduction") in found
    assert ("S0", "S1", "waw") in found
    assert ("S3", "S0", "waw") in found  # the start, before the terms
    assert ("S1", "S2", "raw") in found


def test_a_reduction_that_reads_its_own_target_is_not_relaxed_there() -> None:
    found = kinds("f(A: f64[N]) -> A:\n    A[i] += A[j] for i in 0:3, j in 0:i", A="f64[3]")
    assert ("S0", "S0", "raw") in found
    assert ("S0", "S0", "reduction") in found


def test_reads_alone_make_no_dependence() -> None:
    assert not kinds("O[i] = X[i] + X[i+1] for i in 0:3", X="f64[4]")
