"""Every program of PolyBench, in the notation, gives what plain loops give."""

import numpy as np
import pytest

import polyker as pk
from benchmarks.polybench import CLASSES
from benchmarks.polybench.case import near, results
from benchmarks.polybench.suite import all_cases, select
from polyker.structs import replace

CASES = {case.name: case for case in all_cases()}
pytestmark = pytest.mark.filterwarnings("ignore:.*(divide|invalid value).*:RuntimeWarning")


def fresh(inputs):
    return [value.copy() if isinstance(value, np.ndarray) else value for value in inputs.values()]


def test_all_thirty_programs_are_there():
    assert len(CASES) == 30
    assert [case.name for case in select("jacobi-*")] == ["jacobi-1d", "jacobi-2d"]


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_plain_loops_at_the_least_size(name):
    case = CASES[name]
    inputs = case.inputs("MINI")
    given = fresh(inputs)
    found = pk.op(case.text).compile(*given)(*given)
    assert case.check(inputs, results(found), results(case.loops(*fresh(inputs)))) == ""
    assert all(np.array_equal(a, b) for a, b in zip(given, inputs.values(), strict=True))  # arguments stay as they are


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_numpy_at_the_small_size(name):
    case = CASES[name]
    inputs = case.inputs("SMALL")
    found = pk.op(case.text).compile(*inputs.values())(*inputs.values())
    assert case.check(inputs, results(found), results(case.numpy(*fresh(inputs)))) == ""


@pytest.mark.parametrize("name", CASES)
def test_classes_grow_and_the_inputs_that_change_are_named(name):
    case = CASES[name]
    assert len(case.extents) == len(CLASSES)
    assert sorted(case.extents) == list(case.extents)
    inputs = case.inputs("MINI")
    given = fresh(inputs)
    case.loops(*given)
    changed = {n for (n, a), b in zip(inputs.items(), given, strict=True) if not np.array_equal(a, b)}
    assert changed <= set(case.changed) <= set(inputs)


def test_a_wrong_result_is_found():
    want = (np.ones(4),)
    assert near(1e-6)({}, (np.array([1, 1, 1, 1.1]),), want)
    assert near(1e-6)({}, (np.array([1, 1, 1, np.nan]),), want)
    assert near(1e-6)({}, (np.ones(5),), want)
    assert near(1e-6)({}, (np.array([1, 2]),), (np.array([1, 3]),))
    assert near(1e-6)({}, want, (np.full(4, np.nan),))
    assert not near(1e-6)({}, want, want)


def test_a_wrong_factorisation_is_found():
    case = CASES["gramschmidt"]
    inputs = case.inputs("MINI")
    Q, R = case.loops(*fresh(inputs))
    assert case.check(inputs, (Q, R), (Q, R)) == ""
    assert case.check(inputs, (Q * 1.001, R), (Q, R))
    assert case.check(inputs, (-Q, -R), (Q, R))


def test_a_peer_that_takes_too_long_counts_as_the_limit(monkeypatch):
    from benchmarks.polybench import run

    monkeypatch.setattr(run, "LIMIT", 60.0)
    answers = [(None, "numpy"), ({"seconds": {"polyker": 2.0, "numba": 4.0}, "compile": 0.1, "fault": ""}, "")]
    monkeypatch.setattr(run, "attempt", lambda name, peers, options: answers.pop(0))
    row = run.outcome("lu", ["numba", "numpy"], None)
    assert row["late"] == ["numpy"]
    assert run.ratio(row, "numpy") == 30.0
    assert run.ratio(row, "numba") == 2.0
    assert ">60000" in run.line("lu", row, ["numba", "numpy"])


def test_a_process_that_fails_is_a_fault_of_the_program(monkeypatch):
    from benchmarks.polybench import run

    monkeypatch.setattr(run, "attempt", lambda name, peers, options: (None, "MemoryError"))
    assert run.outcome("lu", ["numba"], None)["fault"] == "no result: MemoryError"


def test_the_command_measures_a_program_in_a_process_of_its_own(capsys):
    from benchmarks.__main__ import main

    assert main(["polybench", "--size", "MINI", "--case", "trisolv", "--peers", "numpy", "--rounds", "1"]) == 0
    said = capsys.readouterr().out
    assert "1 of 1 right" in said
    assert "geometric mean against numpy" in said


def test_a_case_whose_text_is_wrong_fails(capsys, monkeypatch):
    case = CASES["trisolv"]
    inputs = case.inputs("MINI")
    broken = replace(case, text=case.text.replace("b[i] -", "b[i] +"))
    found = pk.op(broken.text).compile(*inputs.values())(*inputs.values())
    assert case.check(inputs, results(found), results(case.loops(*inputs.values()))) != ""
