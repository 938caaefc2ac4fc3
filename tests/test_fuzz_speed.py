"""The fuzzer's oracle for speed, by a clock that only its calls move."""

import json

import numpy as np
import pytest

import polyker as pk
from polyker.ir.dtypes import DTYPES, TensorType
from polyker.structs import replace
from tests.fuzz.speed import campaign, judge, variants, worker
from tests.fuzz.speed.generate import generate
from tests.fuzz.speed.maker import PIECES
from tests.fuzz.speed.program import Program, Tensor, Unit, reordered
from tests.fuzz.speed.variants import KINDS, arrays_of, ways

TWO = Program(
    (Unit(("Y[i,j] = X[i,j] * 2",), ("X",), ("Y",), family="elementwise"),
     Unit(("Z[i,j] = sum[b in 0:2](Y[i,j+b]) for i in 0:H, j in 0:W-1",), ("Y",), ("Z",), family="window")),
    {"X": Tensor(("H", "W"), "f32"), "Y": Tensor(("H", "W")), "Z": Tensor(("H", "W-1"))},
    {"H": 6, "W": 5},
)  # fmt: skip


class Clock:
    """A clock that stands still but for calls that say how long they take."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def call(self, seconds, once=0.0):
        left = [once]

        def work():
            self.now += seconds + (left.pop() if left else 0.0)

        return work


def test_a_program_much_slower_than_its_statements_is_found():
    clock = Clock()
    calls = {"whole": clock.call(900e-6), "parts": clock.call(100e-6), "symbolic": clock.call(500e-6)}
    times, found = judge.confirmed(calls, clock)
    assert [(e.kind, e.slow, e.quick) for e in found] == [("fused", "whole", "parts")]
    assert found[0].ratio == pytest.approx(9)
    assert times["symbolic"] == pytest.approx(500e-6)


@pytest.mark.parametrize(
    ("slow", "quick", "kind"),
    [("symbolic", "whole", "symbolic"), ("whole", "symbolic", "fixed"), ("strided", "reversed", "strides"),
     ("whole", "reversed", "layout"), ("reversed", "whole", "layout"), ("whole", "numpy", "numpy")],
)  # fmt: skip
def test_each_way_is_held_against_the_others(slow, quick, kind):
    assert [e.kind for e in judge.excesses({slow: 300e-6, quick: 100e-6})] == [kind]
    assert not judge.excesses({slow: 300e-6, quick: 100e-6}, without=[kind])


@pytest.mark.parametrize(
    "times", [{"whole": 190e-6, "parts": 100e-6}, {"whole": 25e-6, "parts": 8e-6}, {"parts": 9e-3}]
)
def test_what_is_less_than_twice_as_slow_or_takes_little_is_not(times):
    assert not judge.excesses(times)


def test_what_was_slow_once_is_not_confirmed(monkeypatch):
    measures = [{"whole": 9e-4, "parts": 1e-4}, {"whole": 1e-4, "parts": 1e-4}]
    monkeypatch.setattr(judge, "timed", lambda *_: measures.pop(0))
    times, found = judge.confirmed({"whole": None, "parts": None})
    assert not found and not measures
    assert times == {"whole": 1e-4, "parts": 1e-4}


def test_programs_are_valid_and_of_all_families():
    seen = set()
    for number in range(250):
        program = generate(5, number)
        seen |= set(program.families)
        types = [TensorType(DTYPES[program.tensors[n].dtype], program.shape(n)) for n in program.inputs]
        found = pk.op(program.text).infer(*types, **{s: program.sizes[s] for s in program.free})
        shapes = [t.shape for t in (found if len(program.outputs) > 1 else [found])]
        assert shapes == [program.shape(n) for n in program.outputs], program.text
    assert seen == set(PIECES)


def test_a_program_is_the_same_for_the_same_seed_and_number():
    assert generate(3, 4) == generate(3, 4)
    assert generate(3, 4) != generate(3, 5)


def test_subscripts_are_put_in_another_order_in_gathers_and_reductions_too():
    orders = {"X": (1, 0), "Y": (1, 0), "I": (0,)}
    assert reordered("Y[i,j] = sum[k,l](X[I[i],k; pad=0])", orders) == "Y[j,i] = sum[k,l](X[k,I[i]; pad=0])"


@pytest.mark.parametrize(
    ("read", "order"), [("Y[i-1,j]", "j in 0:W, i in 1:H"), ("Y[i-1,j+1; pad=0]", "i in 1:H, j in 0:W")]
)
def test_what_is_read_of_earlier_instances_keeps_its_order(read, order, monkeypatch):
    lines = "Y[0,j] = X[0,j]", f"Y[i,j] = {read} + X[i,j] for i in 1:H, j in 0:W"
    grid = Tensor(("H", "W"), "f32")
    program = Program((Unit(lines, ("X",), ("Y",)),), {"X": grid, "Y": grid}, {"H": 70, "W": 80})
    texts = []
    bound = variants._bound
    monkeypatch.setattr(variants, "_bound", lambda p, *a, **k: [texts.append(p.text), bound(p, *a, **k)][1])
    found = ways(program, ("layout",))
    assert set(found.calls) == {"whole", "reversed", "strided"} and not found.differs
    assert order in [t for t in texts if "Y[j,i]" in t][-1]


def test_layouts_with_short_runs_in_memory_are_not_compared():
    lines = "Y[n,c,h,w] = X[n,c,h,w] * 2 + B[c]"
    image = Tensor(("N", "C", "H", "W"), "f32")
    tensors = {"X": image, "B": Tensor(("C",), "f32"), "Y": image}
    program = Program((Unit((lines,), ("X", "B"), ("Y",)),), tensors, {"N": 3, "C": 16, "H": 12, "W": 20})
    assert set(ways(program, ("layout",)).calls) == {"whole", "channels"}
    assert set(ways(replace(program, sizes={**program.sizes, "C": 7}), ("layout",)).calls) == {"whole"}


@pytest.mark.parametrize("loop", [False, True])
def test_all_ways_give_the_same_values(loop):
    program = TWO
    if loop:
        lines = "B[i,j] = sum[s in 0:3](A[i,j+s-1; pad=wrap]) for i in 0:H, j in 0:W", "A[i,j] = B[i,j] * 0.3"
        grid = Tensor(("H", "W"), "f32")
        program = Program((Unit(lines, ("A",), ("A",), "T"),), {"A": grid, "B": grid}, {"H": 6, "W": 5, "T": 3})
    found = ways(program, tuple(KINDS))
    assert set(found.calls) == {"whole", "parts", "symbolic", "reversed", "strided"}
    assert not found.differs and not found.refused
    wrong = {**found.arrays, program.inputs[0]: found.arrays[program.inputs[0]] + 1}
    assert not np.allclose(ways(program, (), wrong).calls["whole"](), found.calls["whole"]())


def test_the_fewest_statements_that_are_slow_are_looked_for(monkeypatch):
    three = replace(TWO, units=(*TWO.units, Unit(("O[i,j] = Z[i,j] + 1",), ("Z",), ("O",))),
                    tensors={**TWO.tensors, "O": Tensor(("H", "W-1"))})  # fmt: skip
    slow = judge.Excess("fused", "whole", "parts", 9e-4, 1e-4)
    monkeypatch.setattr(worker, "timed", lambda calls, *_: {"whole": 9e-4, "parts": 1e-4})
    small = worker.shrunk(slow, ways(three, ("fused",), arrays_of(three)))
    assert small is not None
    assert small.families == ("elementwise", "window")
    assert small.text == TWO.text


def test_a_campaign_goes_on_after_a_crash_and_where_it_was(tmp_path, monkeypatch):
    begun = []

    class Child:
        ended = "", ""

        def __init__(self, module, arguments, *_):
            self.numbers = [int(n) for n in arguments[2].split(",")]
            begun.append(self.numbers)

        def lines(self):
            for n in self.numbers:
                yield {"begin": n, "number": n, "text": "p()", "sizes": {}, "families": []}
                if n == 2:
                    self.ended = "crash", "SIGSEGV"
                    return
                slow = {"kind": "fused", "slow": "whole", "quick": "parts", "ratio": 9.0, "us": [900, 100]}
                yield {"number": n, "text": "p()", "sizes": {}, "families": ["pool"], "excesses": [slow] * (n == 3)}

    monkeypatch.setattr(campaign, "Child", Child)
    log = tmp_path / "log.jsonl"
    log.write_text('{"seed": 1, "numb')
    campaign.run(log, 1, range(5), "fused")
    assert begun == [[0, 1, 2, 3, 4], [3, 4]]
    assert campaign.main(["--seed", "1", "--programs", "5", "--log", str(log)]) == 1
    assert len(begun) == 2
    found = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    assert sorted(r["number"] for r in found) == [0, 1, 2, 3, 4]
    text = campaign.summary(found)
    assert (
        "5 programs, 1 too slow: {'fused': 1}" in text and "fused: pool" in text and "program 2: crash: SIGSEGV" in text
    )
