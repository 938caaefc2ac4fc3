"""Random steps of users' schedules: `python -m tests.fuzz.steps --programs 5000 --seed 1 --jobs 2`.

Each program of the fuzzer gets a schedule (the automatic one, or the order of the text) and six random steps by the public
methods. What is accepted is compiled, run, and compared with the plain interpreter, and held against enumeration where it is
small. What is refused as illegal is judged by enumeration: those that are legal after all are listed. With `--target cuda-sim`
loops are mapped to blocks and threads, and copies lie in shared memory, too; nothing is enumerated then.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import asdict

import polyker as pk
from polyker.edit.moves import outcomes
from polyker.edit.state import State
from polyker.edit.step import EditStep, step_of
from polyker.errors import CompileError, CompileTimeout, LegalityError, PolykerError, ScheduleError, ShapeError
from polyker.errors.shapes import ISL_QUOTA
from polyker.ir.typed import Role
from polyker.poly.checks import call_record
from polyker.poly.scop import parameters
from polyker.runtime.arrays import operand
from polyker.runtime.compiled import Compiled
from polyker.schedule.tree.nodes import MemberKind
from tests.artifacts import state_of, stepped
from tests.fuzz.case import Case
from tests.fuzz.data import arrays_of
from tests.fuzz.generate import generate
from tests.fuzz.oracles import judge
from tests.schedule.enumeration import Truth, points

STEPS = 6
TRIES = 24  # random steps thrown at a program, with those that have no place
INSTANCES = 700  # of a program that is enumerated
PAIRS = 60_000
REFUSED = ("PK322", "PK307")  # a symbolic kernel may say that it is not for sizes for which nothing is written


class Found(Struct):
    """What became of one program: `problem` is empty where all is well."""

    number: int
    problem: str = ""
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    no_place: Counter[str] = field(default_factory=Counter)
    legal: list[str] = field(default_factory=list)  # refused steps that are legal by enumeration
    judged: int = 0  # refused steps that were enumerated
    confirmed: int = 0  # accepted steps that were
    advised: int = 0  # refusals with a legal alternative


def run(seed: int, number: int, target: str | None = None) -> Found | None:
    """Run a program's steps; None where the fuzzer's case is none for this (it has to fail, or is too large)."""
    case = generate(seed, number)
    if case.invalid or "big" in case.features or any(i.name in ("auto", "target", "acc") for i in case.inputs):
        return None
    found = Found(number)
    trail: list[EditStep] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _run(case, random.Random(f"{seed}/{number}/steps"), found, trail, target)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[-5:]
        where = "\n".join(f"  {f.filename.rsplit('/', 2)[-1]}:{f.lineno} {f.name}: {f.line}" for f in frames)
        found.problem = f"{type(error).__name__}: {error}\n{where}"
    if found.problem:
        found.problem = f"{case.text}\n{case}\nafter {[str(s) for s in trail]}\n{found.problem}"
    return found


def _run(case: Case, rng: random.Random, found: Found, trail: list[EditStep], target: str | None) -> None:
    arrays, sizes = arrays_of(case), dict(case.sizes)
    op = pk.op(case.text, **(sizes if case.early else {}))
    given = {**arrays, **({} if case.early else sizes)}
    options = ({"acc": case.acc} if case.acc else {}) | ({"target": target} if target else {})
    symbolic = case.mode in ("symbolic", "names") and not case.early and rng.random() < 0.5
    auto = rng.random() < 0.35
    try:
        with pk.options(specialize="never") if symbolic else nullcontext():
            s = op.schedule(**given, **options, auto=auto)
    except PolykerError as error:
        if not symbolic:
            raise
        del error
        symbolic, s = False, op.schedule(**given, **options, auto=auto)
    truth = _Truths(case, s, rng, enumerates=target is None)
    trail.append(f"op.schedule(auto={auto}, symbolic={symbolic})")  # type: ignore[arg-type]
    for _ in range(TRIES):
        if found.accepted.total() + found.refused.total() >= STEPS:
            break
        step = random_step(rng, s) if target is None or rng.random() < 0.4 else random_mapping(rng, s)
        if step is None:
            continue
        trail.append(step)
        advise = rng.random() < 0.1
        try:
            after = stepped(s, step, advise=advise)
        except LegalityError as error:
            trail.pop()
            found.refused[step.name] += 1
            found.advised += "legal instead" in str(error)
            truth.also(str(error))
            legal = [truth.wrong(state) for state in _outcomes(state_of(s), step)]
            found.judged += all(w is not None for w in legal)
            if any(w == set() for w in legal):
                done = [str(t) for t in trail]
                found.legal.append(
                    f"{case.text}\n{[(i.name, i.dtype, i.shape) for i in case.inputs]} {case.sizes}\n{done} then {step}\n{error}"
                )
            continue
        except ScheduleError:
            trail.pop()
            found.no_place[step.name] += 1
            continue
        except CompileError as error:
            trail.pop()
            if error.code != ISL_QUOTA and not isinstance(error, CompileTimeout):
                raise
            found.no_place[f"{step.name} (isl's quota)"] += 1
            continue
        found.accepted[step.name] += 1
        wrong = truth.wrong(state_of(after))
        if wrong is not None:
            found.confirmed += 1
            if wrong:
                found.problem = f"accepted, but by enumeration {wrong}\n{after}"
                return
        s = after
    str(s)
    again = pk.Schedule.from_json(s.to_json(), op)
    if str(again) != str(s):
        found.problem = f"another schedule from JSON\n{s}\n{again}"
        return
    try:
        kernel = op.compile(schedule=s)
    except CompileError as error:
        if error.code != ISL_QUOTA and not isinstance(error, CompileTimeout):
            raise
        return
    try:
        got = kernel(**given)
    except ShapeError as error:
        if symbolic and error.code in REFUSED:
            return
        raise
    results = tuple(np.asarray(a) for a in (got if len(op.program.outputs) > 1 else (got,)))
    verdict = judge(case, results)
    if verdict.problem:
        found.problem = f"{verdict.problem}\n{s}"


def _outcomes(state: State, step: EditStep) -> Iterator[State]:
    """Yield what a step may lead to, up to the first that has no place."""
    try:
        yield from outcomes(state, step)
    except ScheduleError:
        return


class _Truths:
    """Judges states of one program by enumeration, where they are small: for the case's sizes, and for others if symbolic."""

    def __init__(self, case: Case, s: pk.Schedule, rng: random.Random, *, enumerates: bool) -> None:
        self.enumerates = enumerates
        typed = state_of(s).typed
        arrays = arrays_of(case)
        operands = [operand(arrays[i.name], i.name) for i in case.inputs]
        unused: Any = None
        own = Compiled(call_record(typed), unused, unused).sizes(operands, dict(case.sizes))
        more = ({n: rng.choice([v, 1, 2, 3, 4, 5, 7, 9, 13]) for n, v in own.items()} for _ in range(5 * bool(own)))
        self.sizes = [own, *more]
        self.names = typed.sizes
        self.program: Any = None
        self.truths: list[Truth] = []

    def also(self, message: str) -> None:
        """Judge for the sizes, too, for which an error shows two instances."""
        said = re.search(r"\(with ([^()]*)\)", message)
        if said is None:
            return
        values = dict(re.findall(r"(\S+) = (\d+)", said[1]))
        named = {n: int(values[label]) for n, label in self.names if label in values}
        if len(named) == len(self.names) and named not in self.sizes and max(named.values(), default=0) < INSTANCES:
            self.sizes.append(named)
            self.program = None

    def wrong(self, state: State) -> set[str] | None:
        """Return what is wrong with a state's schedule, None where there is too much to enumerate."""
        if not self.enumerates:
            return None
        if self.program is not state.program:
            self.program = state.program
            self.truths = [t for sizes in self.sizes if (t := self._truth(state, sizes)) is not None]
        found: set[str] | None = None
        for truth in self.truths:
            found = truth.judge(state.schedule)
            if found:
                return found
        return found

    def _truth(self, state: State, sizes: dict[str, int]) -> Truth | None:
        fixed = tuple(sorted(sizes.items()))
        context = f"{parameters(state.program)}{{ [] : {state.program.context.split(':', 1)[1]}"
        if not points(context, fixed):
            return None
        count = 0
        for s in state.program.statements():
            count += len(points(s.domain, fixed))
            if count > INSTANCES:
                return None
        truth = Truth(state.program, sizes)
        return truth if len(truth.clashes) <= PAIRS else None


def random_step(rng: random.Random, s: pk.Schedule) -> EditStep | None:
    """Return a step that may well have a place in the schedule."""
    state = state_of(s)
    names = [n for n in s.statements if s[n].loops]
    name = rng.choice(
        ["tile", "tile", "split", "interchange", "interchange", "interchange", "unroll", "vectorise", "vectorise", "distribute",
         "skew", "shift", "reverse", "parallel", "promote", "promote", "promote", *["fuse"] * 6 * (len(s.statements) > 1)]
    )  # fmt: skip
    if name == "fuse":
        first, second = sorted(rng.sample(range(len(s.statements)), 2))
        if rng.random() < 0.5:
            second = first + 1
        depth = rng.choice([1, 1, 2, 3])
        return step_of("fuse", None, {"first": s.statements[first], "second": s.statements[second], "depth": depth})
    if not names:
        return None
    statement = rng.choice(names)
    loops = s[statement].loops
    serial = [x.name for x in state.loops(state.internal(statement) or "") if x.member.kind is MemberKind.SERIAL]
    loop = rng.choice(serial or loops)
    who = statement if rng.random() < 0.9 else None
    match name:
        case "tile":
            chosen = rng.sample(loops, rng.randint(1, min(3, len(loops))))
            return step_of(name, who, {"sizes": {c: rng.choice([1, 2, 3, 4, 8]) for c in chosen}})
        case "split":
            return step_of(name, who, {"sizes": {loop: rng.choice([2, 3, 4, 8])}})
        case "interchange":
            chosen = rng.sample(loops, min(len(loops), rng.randint(2, 3)))
            return step_of(name, who, {"order": chosen}) if len(chosen) > 1 else None
        case "unroll" | "vectorise":
            return step_of(name, who, {"sizes": {loop: rng.choice([2, 3, 4, 4, 8])}})
        case "distribute" | "reverse":
            return step_of(name, who, {"loop": loop})
        case "parallel":
            return step_of(name, who, {"loop": rng.choice(serial[:2] or loops), "threads": rng.choice([1, 2, 2, 3])})
        case "shift":
            return step_of(name, who, {"offsets": {loop: rng.choice([-2, -1, 1, 1, 2, 3])}})
        case "skew":
            if len(loops) < 2:
                return None
            return step_of(name, who, {"loops": rng.sample(loops, 2), "factor": rng.choice([-1, 1, 1, 2])})
        case _:
            return _random_promotion(rng, s, statement, loops)


def random_mapping(rng: random.Random, s: pk.Schedule) -> EditStep | None:
    """Return a step that maps a loop to the blocks or threads of a GPU, or copies a tensor to shared memory."""
    names = [n for n in s.statements if s[n].loops]
    if not names:
        return None
    statement = rng.choice(names)
    loops = s[statement].loops
    if rng.random() < 0.25:
        promoted = _random_promotion(rng, s, statement, loops)
        if promoted is None:
            return None
        rows = rng.choice([{}, {"pad": rng.choice([1, 4])}, {"swizzle": True}, {"swizzle": rng.choice([2, 4, 8])}])
        return step_of("promote", statement, dict(promoted.arguments) | {"memory": "shared"} | rows)
    points = [x for x in loops if x.endswith(".point")]
    thread = rng.random() < 0.5
    role = f"thread.{rng.choice('xxyz')}" if thread else f"block.{rng.choice('xxyz')}"
    role += rng.choice(["", "(4)", "(8)", "(32)", "(64)"]) if thread else ""
    return step_of("map", statement, {"loop": rng.choice(points if thread and points else loops), "role": role})


def _random_promotion(rng: random.Random, s: pk.Schedule, statement: str, loops: tuple[str, ...]) -> EditStep | None:
    program = state_of(s).program
    found = next(x for x in program.statements() if x.name == state_of(s).internal(statement))
    used = [program.tensor(t) for t in dict.fromkeys((found.target, *(r.tensor for r in found.reads())))]
    temporaries = [t for t in used if t.role is Role.TEMPORARY]
    tensor = rng.choice(temporaries if temporaries and rng.random() < 0.5 else used)
    layout = None
    if tensor.shape and rng.random() < 0.3:
        layout = list(range(len(tensor.shape)))
        rng.shuffle(layout)
    return step_of(
        "promote",
        statement,
        {
            "tensor": tensor.label,
            "at": rng.choice(loops) if rng.random() < 0.9 else None,
            "memory": rng.choice([None, None, None, "stack", "scratch", "registers"]),
            "layout": layout,
        },
    )


# -- the campaign ------------------------------------------------------------------------------------------------------------


class Campaign(Struct):
    """What all programs came to; each is run in a child, so that a crash is a failure that is counted."""

    seed: int
    target: str = ""
    programs: int = 0
    counts: dict[str, Counter[str]] = field(
        default_factory=lambda: {k: Counter() for k in ("accepted", "refused", "no_place")}
    )
    judged: int = 0
    confirmed: int = 0
    advised: int = 0
    legal: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    slow: list[tuple[float, int]] = field(default_factory=list)

    def run(self, programs: int, jobs: int, limit: float, start: int = 0) -> None:
        """Run until so many programs are done, or so many seconds have passed."""
        until = time.monotonic() + limit
        lanes = [Thread(target=self._lane, args=(start + n, jobs, -(-programs // jobs), until)) for n in range(jobs)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()

    def _lane(self, first: int, step: int, wanted: int, until: float) -> None:
        at = first
        while wanted > 0 and time.monotonic() < until:
            numbers = map(str, (self.seed, at, step, wanted))
            command = [sys.executable, "-m", "tests.fuzz.steps", "--target", self.target, "--child", *numbers]
            child = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
            )
            current, errors = None, ""
            assert child.stdout is not None
            for line in child.stdout:
                said = json.loads(line)
                if "begin" in said:
                    current = said["begin"]
                    continue
                current, at = None, said["number"] + step
                if not said.get("skipped"):
                    wanted -= 1
                    self._hear(said)
                if time.monotonic() > until:
                    child.kill()
            code = child.wait()
            if code and current is not None and time.monotonic() <= until:
                assert child.stderr is not None
                errors = child.stderr.read()[-2000:]
                self.problems.append(f"program {self.seed}/{current}: the process ended with {code}\n{errors}")
                at, wanted = current + step, wanted - 1
            elif not code:
                return

    def _hear(self, said: dict[str, Any]) -> None:
        self.programs += 1
        for name, counter in self.counts.items():
            counter.update(said[name])
        self.judged += said["judged"]
        self.confirmed += said["confirmed"]
        self.advised += said["advised"]
        self.legal += [f"program {self.seed}/{said['number']}: {text}" for text in said["legal"]]
        self.slow = sorted([*self.slow, (said["took"], said["number"])], reverse=True)[:5]
        if said["problem"]:
            self.problems.append(f"program {self.seed}/{said['number']}: {said['problem']}")
            print(self.problems[-1], file=sys.stderr, flush=True)
        if self.programs % 100 == 0:
            print(self.summary(), file=sys.stderr, flush=True)

    def report(self) -> str:
        """Return all that was found, as text."""
        lines = [*self.problems, *(f"refused, but legal by enumeration: {text}" for text in self.legal)]
        names = sorted({n for c in self.counts.values() for n in c})
        lines.append(f"{'step':<28}{'accepted':>10}{'refused':>10}{'no place':>10}")
        lines += [f"{n:<28}" + "".join(f"{c[n]:>10}" for c in self.counts.values()) for n in names]
        return "\n".join([*lines, self.summary()])

    def summary(self) -> str:
        """Return the figures in one line."""
        refused = self.counts["refused"].total()
        share = 100 * len(self.legal) / max(1, self.judged)
        return (
            f"{self.programs} programs: {self.counts['accepted'].total()} steps accepted ({self.confirmed} enumerated), "
            f"{refused} refused ({self.judged} enumerated, {len(self.legal)} of them legal: {share:.2f}%), "
            f"{len(self.problems)} failures; slowest {', '.join(f'{t:.1f} s: {n}' for t, n in self.slow)}"
        )


def _child(seed: int, first: int, step: int, wanted: int, target: str) -> None:
    at = first
    while wanted > 0:
        print(json.dumps({"begin": at}), flush=True)
        began = time.perf_counter()
        found = run(seed, at, target or None)
        if found is None:
            print(json.dumps({"number": at, "skipped": True}), flush=True)
        else:
            wanted -= 1
            print(json.dumps({**asdict(found), "took": time.perf_counter() - began}), flush=True)
        at += step


def main(argv: list[str] | None = None) -> int:
    """Run the campaign; returns 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.steps", description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=1e9, help="seconds")
    parser.add_argument("--target", default="", help="a GPU to map loops to, such as cuda-sim")
    parser.add_argument("--child", type=int, nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        _child(*options.child, options.target)
        return 0
    campaign = Campaign(options.seed, options.target)
    campaign.run(options.programs, options.jobs, options.time_limit, options.start)
    print(campaign.report())
    return 1 if campaign.problems else 0


if __name__ == "__main__":
    sys.exit(main())
