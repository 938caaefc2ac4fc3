"""The fuzzer: a short campaign, and that its oracles see what is wrong."""

import faulthandler
import os

import numpy as np
import pytest

import polyker as pk
from polyker import errors
from polyker.errors import DTypeError, GatherError, ShapeError
from polyker.ir.typed import Role
from polyker.pipeline import schedules, threads
from polyker.schedule.nests.text_order import default_schedule
from polyker.structs import replace
from tests.artifacts import compiled_to
from tests.fuzz import oracles
from tests.fuzz.campaign import Campaign
from tests.fuzz.case import Case, Input
from tests.fuzz.data import guarded, place
from tests.fuzz.eager import eager
from tests.fuzz.generate import generate
from tests.fuzz.run import Outcome, _must_fail, generator_of, run
from tests.fuzz.shrink import shrink
from tests.fuzz.undefined import undefined

CASES = int(os.environ.get("POLYKER_FUZZ_CASES", "20"))


def test_random_programs_give_the_oracles_results():
    campaign = Campaign(seed=7)
    campaign.run(CASES)
    assert campaign.done == CASES
    assert not campaign.failures, "\n\n".join(
        f"{f.text}\n{f.problem}\n{f.snippet}\n{f.small}" for f in campaign.failures
    )


def test_the_two_oracles_agree_with_each_other():
    campaign = Campaign(seed=8, backend="interpret")
    campaign.run(150)
    assert campaign.done == 150
    assert not campaign.failures, "\n\n".join(f"{f.text}\n{f.problem}" for f in campaign.failures)
    assert campaign.exact > 60


def test_a_symbolic_kernel_may_refuse_other_sizes_for_which_nothing_is_written():
    text = "L[l,d,w] += (D[d] + F[w,2*l+d+1])\nQ[q,2-k] *= L[s,k,q]\nO[n] += Q[d,n]"
    inputs = (Input("D", "f32", (3,)), Input("F", "f32", (1, 1)))
    case = Case(2040, 826, text, inputs, mode="names", layouts=("plain", "plain"))
    found = run(case, "compile")
    assert not found.problem and "(symbolic kernel refuses other shapes)" in found.features


def test_a_case_is_the_same_for_the_same_seed_and_number():
    assert generate(3, 4) == generate(3, 4)
    assert generate(3, 4) != generate(3, 5)


CASE = Case(
    0, 1, "C[i] += A[i,k] * B[k]", (Input("A", "f32", (3, 4)), Input("B", "f32", (4,))), layouts=("plain", "plain")
)


def test_a_wrong_value_a_wrong_type_and_a_wrong_shape_are_seen():
    (right,) = oracles.reference(CASE)
    assert oracles.judge(CASE, (right,)).problem == ""
    assert oracles.judge(CASE, (right,)).exact
    wrong = right.copy()
    wrong[1] = np.nextafter(wrong[1], np.float32(np.inf))
    assert "1 of 3 elements differ" in oracles.judge(CASE, (wrong,)).problem
    assert "wanted float32" in oracles.judge(CASE, (right.astype("f8"),)).problem
    assert "wanted float32[3]" in oracles.judge(CASE, (right[:2],)).problem


def test_rounding_is_bounded_not_ignored():
    case = replace(CASE, inputs=tuple(replace(i, data="random") for i in CASE.inputs))
    (right,) = oracles.reference(case)
    assert oracles.judge(case, (right,)).problem == ""
    assert oracles.judge(case, (right * np.float32(1 + 1e-5),)).problem


@pytest.mark.parametrize("dtype", ["f32", "c64"])
def test_nothing_is_known_of_zero_times_what_may_overflow(dtype):
    inputs = (Input("A", dtype, (9,), data="coded"), Input("B", "bool", (9,)))
    case = Case(0, 1, "O[i] = (B[i] != B[i]) * exp(exp(A[i])) * (B[i] == B[i])", inputs, layouts=("plain", "plain"))
    (bound,) = oracles.tracked(case)
    (right,) = oracles.reference(case)
    assert np.isnan(right).any() and not np.isnan(right).all()
    assert not np.isnan(bound.err).any()
    assert np.isinf(bound.err[np.isnan(right)]).all()


@pytest.mark.parametrize("term", ["prod[l](C[l] + 9)", "sum[l]((C[l] + 9) * 3e37)", "(C[3] + 9) * (C[3] + 3e38)"])
def test_nothing_is_known_of_an_overflow_that_a_wider_type_takes_in(term):
    inputs = (Input("X", "c128", (2,), data="coded"), Input("C", "c64", (64,), data="coded"))
    (bound,) = oracles.tracked(Case(0, 1, f"Q[m] = X[m] - {term}", inputs, layouts=("plain", "plain")))
    assert np.isinf(bound.err).all()


def test_bounds_are_known_of_quotients_of_numbers_and_of_sums_over_nothing():
    quotient = Case(0, 1, "O[i] = (T // T) // A[i]", (Input("T", "f32", (), python=True), Input("A", "f32", (5,))))
    nothing = Case(0, 1, "O = max[k in 0:0](B - A[2])", (Input("B", "f32", ()), Input("A", "i8", (1,))))
    for case in (quotient, nothing):
        case = replace(case, layouts=("plain", "plain"))
        (bound,), (right,) = oracles.tracked(case), oracles.reference(case)
        np.testing.assert_array_equal(bound.val, right)


def test_what_comes_of_elements_that_nothing_sets_is_seen():
    text = "C[i] += i32(A[i,k]) * i32(B[k])"
    kernel = pk.op(text).compile(A=pk.i8["M", "K"], B=pk.i8["K"], specialize="never")
    program, _ = compiled_to(kernel).scheduled
    assert undefined(program) == ""
    setting = [s for s in program.statements() if s.op == "set" and program.tensor(s.target).role is Role.TEMPORARY]
    lost = [replace(program, body=tuple(n for n in program.body if n is not s)) for s in setting]
    assert setting
    assert all(undefined(p) for p in lost)


@pytest.mark.parametrize("layout", ["plain", "permuted", "negative", "sliced", "offset", "zero", "misaligned", "mixed"])
@pytest.mark.parametrize("guard", [False, True])
def test_layouts_hold_their_values_and_canaries_see_writes(layout, guard):
    v = np.arange(24, dtype="f8").reshape(2, 3, 4)
    block = place(v, layout, generator_of(CASE, 1), guard)
    if layout != "zero":
        np.testing.assert_array_equal(block.array, v)
    assert not block.damaged(written=False)
    block.array[1, 1, 1] = 99
    assert block.damaged(written=False)
    assert not block.damaged(written=True)
    if not block.mine.all():
        block.memory[np.flatnonzero(~block.mine)[0]] ^= 1
        assert block.damaged(written=True)


def test_guard_pages_stop_a_read_beyond_the_end():
    child = os.fork()
    if not child:
        faulthandler.disable()
        memory = guarded(64, at_end=True)
        beyond = np.lib.stride_tricks.as_strided(memory, (65,))
        os._exit(int(beyond[64]) * 0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_failures_are_made_smaller():
    case = next(c for n in range(1000) if "max" in (c := generate(2, n)).text)
    small = shrink(case, lambda c: "max" in c.text)
    assert len(small.text) <= len(case.text)
    assert sum(sum(i.shape) for i in small.inputs) <= sum(sum(i.shape) for i in case.inputs)
    assert "max" in small.text


def test_a_schedule_that_its_own_proof_refuses_is_a_failure(monkeypatch):
    case = replace(generate(0, 3), mode="fixed", invalid=False, steps=-1)
    assert run(case, "compile").kind == "ok"
    prove = threads.proven_kernel

    def doubtful(made, run):
        if made.schedule != default_schedule(made.program):
            raise errors.LegalityError("it breaks a dependence")
        return prove(made, run)

    for module in (schedules, threads):
        monkeypatch.setattr(module, "proven_kernel", doubtful)
    pk.clear_cache()
    outcome = run(case, "compile")
    assert outcome.kind == "refused" and "it breaks a dependence" in outcome.problem


def test_a_crash_is_a_failure_that_is_counted(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'tests.fuzz.worker' in sys.orig_argv and sys.orig_argv[-5] == '0':\n"
        "    import atexit, threading\n    threading.Timer(1.0, lambda: os.kill(os.getpid(), 11)).start()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    campaign = Campaign(seed=1, backend="interpret", findings=tmp_path / "found")
    campaign.run(4000, limit=5)
    assert [f.kind for f in campaign.failures][:1] == ["crash"]
    assert "crash" in (tmp_path / "found" / f"1-{campaign.failures[0].number}.txt").read_text()


def test_calls_that_must_fail_are_seen_to_fail():
    case = replace(CASE, inputs=(Input("A", "f32", (3, 4)), Input("B", "f32", (5,))), invalid=True)
    assert run(case, "interpret").problem == ""
    assert run(replace(CASE, invalid=True), "interpret").kind == "accepted"


def test_a_call_that_is_wrong_twice_may_fail_for_either_reason(monkeypatch):
    # The interpreter comes to idx[0] before it comes to T[.., 1]; the compiler checks the shapes first.
    inputs = (Input("X", "f32", (3,)), Input("T", "f32", (3, 1)), Input("idx", "i64", (3,), limit=3, data="outside"))
    text = "O[i] = X[i] * T[idx[i],i//2] for i in 0:3"
    case = Case(0, 1, text, inputs, layouts=("plain",) * 3, mode="fixed", invalid=True)
    assert isinstance(oracles.reference(case), GatherError)
    assert run(case, "compile").problem == ""
    # With a T that is wide enough, only the gather is wrong.
    once = replace(case, inputs=(inputs[0], replace(inputs[1], shape=(3, 2)), inputs[2]))
    assert run(once, "compile").problem == ""

    def refuse(case, outcome):
        raise ShapeError("T is too narrow", code="PK303")

    monkeypatch.setattr("tests.fuzz.run._compiled", refuse)
    assert _must_fail(case, "compile", Outcome()).kind == "ok"
    assert _must_fail(once, "compile", Outcome()).kind == "error"

    # `-` takes no bool, whatever the shapes.
    twice = Case(
        0, 1, "O[i] = X[i] - X[i+1] for i in 0:3", (Input("X", "bool", (3,)),), layouts=("plain",), invalid=True
    )
    assert isinstance(oracles.reference(twice), DTypeError)
    assert _must_fail(twice, "compile", Outcome()).kind == "ok"
    once = replace(twice, inputs=(Input("X", "bool", (4,)),))
    assert _must_fail(once, "compile", Outcome()).kind == "error"


def test_random_programs_give_the_bits_of_one_thread_on_any_number() -> None:
    from tests.fuzz.threads import run

    wrong, parallel = run(12, seed=7)
    assert not wrong, wrong[0]
    assert parallel >= 2


def test_a_small_case_runs_what_large_ones_do_where_a_case_says_so():
    def asked(text: str) -> bool:
        kernel = pk.op(text).compile(I=pk.f32[64, 17], W=pk.f32[48, 17], b=pk.f32[48])
        return "prefetch" in str(kernel.source("loops"))

    assert not asked("O[i,j] = relu(sum[k](I[i,k] * W[j,k]) + b[j])")
    with eager():
        # In other words: the kernel above is kept.
        assert asked("O[i,j] = relu(sum[m](I[i,m] * W[j,m]) + b[j])")
    assert any(generate(7, n).eager for n in range(20))


@pytest.mark.parametrize(
    ("text", "whole"), [("O[i] = A[i] * 2 >= B[i]", True), ("O[i] = sqrt(A[i]) >= B[i] / 3", False)]
)
def test_what_is_rounded_is_compared_for_equality_only_where_no_decision_hangs_on_it(text, whole):
    case = replace(CASE, text=text, inputs=(Input("A", "u8", (3,)), Input("B", "i8", (3,))))
    assert oracles._whole_program(case, oracles.parsed(text)) == whole
