"""Domains, access relations and the text's order, against the points that the expressions themselves give."""

from __future__ import annotations

import random

import islpy as isl
import pytest

from polyker.poly.scop import build_scop
from tests.schedule.enumeration import Truth
from tests.schedule.programs import PROGRAMS
from tests.schedule.random_programs import random_case
from tests.schedule.support import Case, case


def pairs_of(relation: isl.Map) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the pairs of a bounded relation."""
    found = set()
    inner = relation.dim(isl.dim_type.in_)
    count = inner + relation.dim(isl.dim_type.out)

    def keep(point: isl.Point) -> None:
        values = tuple(point.get_coordinate_val(isl.dim_type.set, d).to_python() for d in range(count))
        found.add((values[:inner], values[inner:]))

    flat = relation.reset_tuple_id(isl.dim_type.in_).reset_tuple_id(isl.dim_type.out).wrap().flatten()
    flat.foreach_point(keep)
    return found


def assert_accesses_are_exact(found: Case) -> None:
    truth = Truth(found.flat)
    for tensor in {a.tensor for a in found.scop.accesses}:
        for write in (True, False):
            said = {
                (a.statement, point, element)
                for a in found.scop.accesses
                if a.tensor == tensor and a.is_write is write
                for point, element in pairs_of(a.relation)
            }
            seen = {
                (instance[0], instance[1], t.element)
                for instance, touches in truth.touches[tensor].items()
                for t in touches
                if t.write is write
            }
            assert said == seen, (found.text, tensor, write)


MORE = {
    "edge padding": case("O[i] = X[i-1; pad=edge] for i in 0:5", X="f64[5]"),
    "a gather with an affine dimension": case("O[l,d] = T[idx[l], d+1] for d in 0:3", T="f64[3,4]", idx="i64[5]"),
    "floors and remainders": case("O[i] = X[i//2] + Y[i%3] for i in 0:8", X="f64[4]", Y="f64[3]"),
    "a gather in a gather": case("O[l] = T[idx[idx2[l]]]", T="f64[3]", idx="i64[4]", idx2="i64[5]"),
    "a single element": case("s[] = x[2]", x="f64[4]"),
}


@pytest.mark.parametrize("name", [*PROGRAMS, *MORE])
def test_access_relations_hold_the_elements_that_the_expressions_reach(name: str) -> None:
    assert_accesses_are_exact({**PROGRAMS, **MORE}[name])


@pytest.mark.parametrize("seed", range(30))
def test_access_relations_of_random_programs_are_exact(seed: int) -> None:
    assert_accesses_are_exact(random_case(random.Random(seed)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_order_of_the_text_is_that_of_its_loops_and_statements(name: str) -> None:
    found = PROGRAMS[name]
    truth = Truth(found.flat)
    times = {
        (s, point): time
        for s, order in found.scop.order.items()
        for point, time in pairs_of(order.intersect_domain(found.scop.domains[s]))
    }
    assert sorted(times, key=times.__getitem__) == sorted(truth.order, key=truth.order.__getitem__)
    assert len(set(times.values())) == len(times)


def test_the_target_of_a_reduction_is_an_update_and_that_of_an_assignment_is_not() -> None:
    scop = PROGRAMS["matmul"].scop
    assert {(a.statement, a.is_update) for a in scop.accesses if a.is_write} == {("S1", False), ("S0", True)}


def test_domains_are_within_what_is_known_of_the_sizes() -> None:
    from polyker.ir.dtypes import parse_type
    from polyker.poly.binding.bind import bind

    flat = bind(PROGRAMS["transpose"].program, {"X": parse_type("f64[M,N]")}, {})
    scop = build_scop(flat)
    for domain in scop.domains.values():
        assert domain.params().is_subset(scop.context)


def test_two_reads_of_one_place_are_one_access() -> None:
    found = case("O[i] = X[i] * X[i] + X[i+1] for i in 0:4", X="f64[5]")
    assert sum(not a.is_write for a in found.scop.accesses) == 2
