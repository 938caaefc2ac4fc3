"""The list of benchmark cases: every text means what its reference and its peers' spellings compute."""

import numpy as np
import pytest

import polyker as pk
from benchmarks.__main__ import FAMILIES, PEERS
from benchmarks.case import arrays
from benchmarks.cases import FAMILIES as LISTED
from benchmarks.cases import all_cases, select
from benchmarks.check import expected, wrong
from benchmarks.contestants import peer
from benchmarks.einsum_case import matmul

CASES = all_cases()


def distinct():
    """Yield one case for each text, fixed sizes and dtypes, with its problem at small sizes."""
    seen = set()
    for case in CASES:
        problem = case.small()
        key = problem.text, tuple(problem.fixed.items()), tuple(o.dtype for o in problem.inputs)
        if key not in seen:
            seen.add(key)
            yield case, problem


def test_names_are_unique_and_say_the_family():
    assert len({c.name for c in CASES}) == len(CASES)
    assert all(c.name.startswith(c.family + "/") for c in CASES)
    assert tuple(LISTED) == FAMILIES
    assert {c.family for c in CASES} == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_text_has_the_shapes_that_the_list_says(family):
    for case in select((family,)):
        for problem in (case.problem(), case.small()):
            operator = pk.op(problem.text, **problem.fixed)
            inferred = operator.infer(**{o.name: getattr(pk, o.dtype)[o.shape] for o in problem.inputs})
            (found,) = inferred.values() if isinstance(inferred, dict) else [inferred]
            assert (found.dtype.name, tuple(found.shape)) == (problem.output.dtype, problem.output.shape), case.name
            assert operator.program.inputs == tuple(o.name for o in problem.inputs), case.name


@pytest.mark.parametrize("family", FAMILIES)
def test_the_interpreter_and_numpy_agree_with_the_reference(family, monkeypatch):
    monkeypatch.setenv("POLYKER_INTERPRET", "1")
    checked = 0
    for case, problem in distinct():
        if case.family != family:
            continue
        inputs = arrays(case.name, problem)
        want = expected(problem, inputs)
        assert not wrong(problem, np.asarray(pk.op(problem.text, **problem.fixed)(*inputs)), want), case.name
        rival = peer("numpy", problem, inputs)
        assert rival is None or not wrong(problem, rival.result(), want), case.name
        checked += 1
    assert checked


def test_every_case_has_a_peer():
    for case in CASES:
        assert set(case.problem().spellings) & set(PEERS), case.name
        assert set(case.problem().spellings) <= set(PEERS), case.name


def test_tccg_is_all_there_within_its_range_of_work():
    cases = select(("tccg",))
    assert len(cases) == 2 * 48
    assert all(0.3e9 <= case.problem().flops <= 1.5e9 for case in cases)
    assert all(v % 2 for case in cases if case.group.endswith("-odd") for v in case.sizes.values())


def test_inputs_depend_on_the_name_alone_and_are_aligned():
    case = select(pattern="memory/gathers/bags-small")[0]
    first, again, other = (arrays(name, case.small()) for name in (case.name, case.name, "another"))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert all(a.ctypes.data % 64 == 0 and a.flags.c_contiguous for a in first)
    assert first[1].max() < case.small().inputs[1].bound


def test_an_einsum_is_a_matrix_product_only_where_it_is_one():
    assert matmul(["ik", "kj"], "ij") is not None
    assert matmul(["bik", "bkj"], "bij") is not None
    assert matmul(["ki", "k"], "i") is not None
    assert matmul(["ik", "kj"], "ji").swapped
    for terms, target in ((["abk", "kj"], "abj"), (["ikl", "klj"], "ij"), (["i", "j"], "ij"), (["bik", "bkj"], "ijb")):
        assert matmul(terms, target) is None
