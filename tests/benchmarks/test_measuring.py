"""Timing in turns, the checks of results, and the figures over many cases, with a clock and calls of our own."""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import contestants, machine, process, report, summary, threads_all, timing
from benchmarks.__main__ import main
from benchmarks.case import Case, Operand, Problem, arrays, empty
from benchmarks.check import expected, gamma, wrong
from benchmarks.contestants import Contestant
from benchmarks.einsum_case import einsum
from benchmarks.machine import Machine
from benchmarks.run import Outcome, Settings, run_case
from benchmarks.timing import LEAST, MOST, Times, in_turns
from polyker.structs import replace


class Fake:
    """A clock, and calls that take a given time on it."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def clock(self):
        return self.now

    def call(self, name, *seconds):
        """Return a call that takes these seconds, the last of them from then on."""
        left = list(seconds)

        def run():
            self.log.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


def test_times_are_seconds_a_call():
    fake = Fake()
    found = in_turns({"a": fake.call("a", 1e-5), "b": fake.call("b", 5e-5)}, rounds=5, clock=fake.clock)
    assert found["a"].median == pytest.approx(1e-5)
    assert found["b"].median == pytest.approx(5e-5)
    assert len(found["a"].rounds) == len(found["b"].rounds) == 5


def test_each_round_begins_with_another_call():
    fake = Fake()
    in_turns({n: fake.call(n, 1.0) for n in "abc"}, rounds=3, clock=fake.clock)
    assert "".join(fake.log[-9:]) == "abcbcacab"


def test_a_disturbance_of_one_round_does_not_change_the_median():
    fake = Fake()
    found = in_turns({"a": fake.call("a", *[1.0] * 4, 50.0, 1.0)}, rounds=5, clock=fake.clock)
    assert found["a"].median == 1.0
    assert max(found["a"].rounds) == 50.0


def test_the_budget_ends_the_rounds_but_not_the_first_three():
    fake = Fake()
    found = in_turns({"a": fake.call("a", 1.0)}, rounds=100, seconds=0.5, clock=fake.clock)
    assert len(found["a"].rounds) == LEAST


def test_there_are_more_rounds_until_they_took_long_enough():
    fake = Fake()
    found = in_turns({"a": fake.call("a", 0.01), "b": fake.call("b", 0.03)}, rounds=5, clock=fake.clock, enough=0.4)
    assert len(found["a"].rounds) == len(found["b"].rounds) == 10
    found = in_turns({"a": fake.call("a", 1e-3)}, rounds=5, clock=fake.clock, enough=10.0)
    assert len(found["a"].rounds) == MOST
    found = in_turns({"a": fake.call("a", 1.0)}, rounds=5, clock=fake.clock, enough=0.4)
    assert len(found["a"].rounds) == 5


def test_a_call_far_behind_is_only_estimated():
    fake = Fake()
    found = in_turns({"a": fake.call("a", 0.01), "b": fake.call("b", 5.0)}, rounds=5, clock=fake.clock)
    assert found["b"].rough
    assert not found["a"].rough
    assert found["b"].median == pytest.approx(5.0)


def test_the_call_that_all_is_about_is_timed_however_slow():
    fake = Fake()
    found = in_turns({"a": fake.call("a", 0.01), "b": fake.call("b", 5.0)}, rounds=4, clock=fake.clock, keep="b")
    assert len(found["b"].rounds) == 4
    assert not found["b"].rough


def test_what_is_timed_while_the_machine_is_slow_is_timed_again(monkeypatch):
    monkeypatch.setattr(timing, "PAUSE", 0.0)
    fake, pace = Fake(), [True, False, False, True, True]  # slow after the first try and before the second

    def invariant():
        return pace.pop(0) if pace else True

    found = in_turns({"a": fake.call("a", *[1.0] * 2, 3.0, 1.0)}, rounds=3, clock=fake.clock, invariant=invariant)
    assert found["a"] == Times((1.0, 1.0, 1.0))
    assert not pace


def test_a_machine_that_stays_slow_is_said_to_be(monkeypatch):
    monkeypatch.setattr(timing, "PAUSE", 0.0)
    fake = Fake()
    found = in_turns({"a": fake.call("a", 1.0)}, rounds=4, clock=fake.clock, invariant=lambda: False)
    assert found["a"] == Times((1.0,) * 4, disturbed=4)
    p = problem()
    outcome = Outcome(CASE, p, {"polyker": found["a"]}, {}, {"polyker": 0.1}, 1.0)
    assert outcome.disturbed
    assert "the machine was slow" in str(report.line(outcome, ()))


def test_the_pace_is_that_of_the_quickest_multiply_adds(monkeypatch):
    seconds = iter([2.0, 2.0, 1.0, 1.1, 1.9, 1.05, 1.9, 1.9])
    monkeypatch.setattr(machine.rates, "fma_seconds", lambda *_: next(seconds))
    pace = machine.Pace()
    assert [pace() for _ in range(4)] == [True, True, True, False]
    assert pace.best == 1.0


def test_no_blas_starts_threads_before_the_process_is_prepared():
    code = "import sys, benchmarks.__main__, benchmarks.model, benchmarks.overhead, benchmarks.polybench.child\n"
    code += "assert 'numpy' not in sys.modules\nimport os\nos.environ['OPENBLAS_CORETYPE'] = 'Haswell'\n"
    code += "benchmarks.process.prepare(None)\nimport numpy as np\nx = np.ones((512, 512))\n"
    code += "assert 'OPENBLAS_CORETYPE' not in os.environ and os.environ['OPENBLAS_NUM_THREADS'] == '1'\n"
    code += "[x @ x for _ in range(9)]\nassert len(os.listdir('/proc/self/task')) == 1"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_process_is_prepared_before_numpy_is_imported():
    with pytest.raises(RuntimeError, match="threads on all cores"):
        process.prepare(None)


def test_no_call_takes_no_time():
    assert in_turns({}, clock=Fake().clock) == {}


def problem(**changes):
    return replace(einsum("ik,kj->ij", "f32", i=5, j=6, k=7), **changes)


def test_a_result_within_gamma_n_is_right_and_one_beyond_it_wrong():
    p = problem()
    want = expected(p, arrays("x", p))
    good = want.value.astype(np.float32, order="C")
    assert not wrong(p, good, want)
    bad = good.copy()
    bad[2, 3] += 2 * np.float32(want.limit[2, 3])
    assert "1 elements" in wrong(p, bad, want)
    bad[2, 3] = np.nan
    assert "1 elements" in wrong(p, bad, want)


def test_long_sums_are_held_to_the_likely_error():
    unit = 2.0**-24
    assert gamma(10, unit) == pytest.approx(10 * unit, rel=1e-6)
    assert gamma(10**6, unit) == pytest.approx(8e3 * unit, rel=1e-3)
    assert 0 < gamma(10**9, unit) < 0.1


def test_another_shape_dtype_or_order_is_wrong():
    p = problem()
    want = expected(p, arrays("x", p))
    good = want.value.astype(np.float32, order="C")
    assert "float64" in wrong(p, want.value, want)
    assert "[6, 5]" in wrong(p, np.ascontiguousarray(good.T), want)
    assert "row-major" in wrong(p, np.asfortranarray(good), want)


def test_the_other_rules_are_as_strict_as_they_say():
    values = np.arange(30.0).reshape(5, 6)
    exact = problem(rule="exact", reference=lambda A, B: values)
    want = expected(exact, arrays("x", exact))
    assert not wrong(exact, values.astype(np.float32), want)
    assert wrong(exact, np.nextafter(values, 99).astype(np.float32), want) == ""  # rounds to the same
    assert wrong(exact, values.astype(np.float32) + np.float32(1e-5), want)
    scaled = problem(rule="scaled", reference=lambda A, B: values, terms=1)
    want = expected(scaled, arrays("x", scaled))
    assert want.limit == pytest.approx(9 * 2.0**-23 * 29, rel=1e-6)
    index = problem(rule="index", output=Operand("C", "i64", (5, 6)), reference=lambda A, B: values.astype(np.int64))
    want = expected(index, arrays("x", index))
    assert "positions" in wrong(index, values.astype(np.int64) + (values == 3), want)


def test_a_contestants_old_result_does_not_count():
    out = np.ones((3,), np.float32)
    assert not np.any(Contestant("lazy", lambda: out, out).result() == 1)


CASE = Case("matmul/x", "matmul", "g", einsum, {"i": 8, "j": 8, "k": 8}, {"subscripts": "ik,kj->ij", "dtype": "f32"})


def test_a_case_runs_polyker_beside_its_peers():
    outcome = run_case(CASE, Machine({"f32": 1e12}), Settings(("numpy",), rounds=3))
    assert set(outcome.times) == {"polyker", "numpy"}
    assert not outcome.failures
    assert outcome.best_peer == "numpy"
    assert outcome.ratio > 0
    assert outcome.compiles["polyker"] > 0
    assert summary.as_json(outcome)["ok"]
    file = json.loads(summary.file_text({"machine": "mine"}, [outcome, outcome]))
    assert file["machine"] == "mine" and [c["ok"] for c in file["cases"]] == [True, True]
    assert "numpy" in report.line(outcome, ("numpy",)).plain


def test_a_wrong_peer_is_reported_and_does_not_count(monkeypatch):
    def zeros(spelling, p, inputs):
        return Contestant("numpy", lambda: np.zeros(p.output.shape, np.float32))

    monkeypatch.setitem(contestants.MAKERS, "numpy", zeros)
    notes = []
    outcome = run_case(CASE, Machine({"f32": 1e12}), Settings(("numpy",), rounds=3, note=notes.append))
    assert "numpy" in outcome.failures
    assert "numpy" not in outcome.times
    assert outcome.ratio is None
    assert "does not count" in notes[0]


def outcome(name, group, ours, peer):
    times = {"numpy": Times((peer,))} | ({"polyker": Times((ours,))} if ours else {})
    p = Problem("", (), Operand("C", "f32", ()), 1, lambda: 0, {})
    return Outcome(replace(CASE, name=name, group=group), p, times, {}, {"polyker": 0.1}, 0.5)


def test_a_familys_mean_is_the_mean_of_its_geometric_means():
    rows = [outcome("a", "g", 1, 4), outcome("b", "g", 1, 1), outcome("c", "h", 2, 1), outcome("d", "h", None, 1)]
    (family,) = summary.families(rows)
    assert family.groups == {"g": pytest.approx(2), "h": pytest.approx(0.5)}
    assert family.mean == pytest.approx(1.25)
    assert (family.worst, family.worst_case, family.failed) == (0.0, "d", ("d",))
    assert rows[0].share == 0.5
    assert summary.compile_medians(rows) == {"polyker": (0.1, 0.1)}


def test_the_machine_multiplies_and_copies():
    assert machine.peak("f64", seconds=0.01) > 1e8
    assert machine.bandwidth(1 << 16, 0.01) > 1e8
    assert machine.rounded(1000) == 4096
    assert machine.rounded(0b1101 << 20) == 0b1100 << 20


@pytest.mark.parametrize("streaming", [False, True])
def test_a_measuring_copy_copies_all_of_it(streaming):
    from polyker.codegen.llvm.jit.detect import target
    from polyker.explain.rates import copy_loop

    block = 4 * target("cpu").vector_bytes
    source, to = (empty((3 * block // 4,), "f32") for _ in range(2))
    source[...] = np.arange(source.size)
    copy_loop(target("cpu"), streaming=streaming).run(to.ctypes.data, source.ctypes.data, 2, 1)
    assert np.array_equal(to[: 2 * block // 4], source[: 2 * block // 4])
    assert not to[2 * block // 4 :].any()


def test_the_names_of_all_cases_are_listed(capsys):
    assert main(["list"]) == 0
    assert "tccg/ccsd0-odd" in capsys.readouterr().out.split()


def test_a_case_is_slow_on_threads_where_only_they_would_be_the_reason():
    row = threads_all.Row("x", "g", one=4e-3, several=3.5e-3, memory=0.1, same=True)
    assert row.is_slow
    assert not replace(row, several=2e-3).is_slow
    assert not replace(row, memory=0.9).is_slow  # one thread moves half of what memory gives
    assert not replace(row, one=8e-4, several=7e-4).is_slow  # not worth threads
