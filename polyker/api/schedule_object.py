"""Schedules as objects: printed as loop nests in the user's names, changed by steps that are proven, told in JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from msgspec import Struct

from polyker.api.binding import GivenSchedule
from polyker.api.compiling import CompileKey
from polyker.api.stages import guarded, start_to_edit, with_deadline
from polyker.api.targets import target_named
from polyker.codegen.artifact import Artifact
from polyker.edit.calls import checked_call
from polyker.edit.find import statement_named
from polyker.edit.json_text import FORMAT, VERSION, WEAK, read, types_of
from polyker.edit.methods import Steps
from polyker.edit.prove import stepped
from polyker.edit.show import nest
from polyker.edit.state import State, state
from polyker.edit.step import EditStep, step_from_json, step_of
from polyker.errors.base import ArgumentError, BackendUnavailable, CompileError, DTypeError, ShapeError, escape, failure
from polyker.errors.calls import BAD_ARGUMENT
from polyker.errors.given import exact_text, printed
from polyker.errors.schedules import BAD_TEXT, ONLY_GPU, OTHER_SCHEDULE, UNKNOWN_STATEMENT
from polyker.errors.tracebacks import api_class
from polyker.ir.dtypes import DType
from polyker.ir.program import Program
from polyker.options import split_keywords
from polyker.poly.isl import isl_job

T = TypeVar("T")
OPTIONS = ("auto", "target", "acc", "specialize", "timeout", "threads")  # of a schedule, by keyword


class Base(Struct, frozen=True):
    """What is scheduled: an operator, what it is bound to, and whether the automatic schedule was the start."""

    program: Program
    identity: str
    bound: CompileKey
    auto: bool

    def differs(self, identity: str, bound: CompileKey) -> tuple[str, object, object] | None:
        """Return what this is for and another is not: its name, and both values."""
        mine = self.bound
        if self.identity != identity:
            return "operator", str(self.program).partition("\n")[0], "another operator"
        if mine.types != bound.types:
            return "types", ", ".join(map(str, mine.types)), ", ".join(map(str, bound.types))
        if dict(mine.sizes) != dict(bound.sizes):
            return "sizes", dict(mine.sizes), dict(bound.sizes)
        if mine.options.acc != bound.options.acc:
            return "acc", mine.options.acc, bound.options.acc
        return None if mine.target == bound.target else ("target", mine.target, bound.target)


@api_class
class Schedule(Steps["Schedule"]):
    """The order in which an operator's instances run, for given types. Made by `Operator.schedule`; it never changes.

    `print(s)` shows the loop nest, `s["C"]` means the loops of one statement, `s.steps` how it was made, and
    `op.compile(..., schedule=s)` compiles it.
    """

    __slots__ = ("__dict__", "_base", "_state", "_steps")

    def __init__(self, base: Base, state: State, steps: tuple[EditStep, ...] = ()) -> None:
        object.__setattr__(self, "_base", base)
        object.__setattr__(self, "_state", state)
        object.__setattr__(self, "_steps", steps)

    _base: Base
    _state: State
    _steps: tuple[EditStep, ...]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a schedule never changes; its steps return another one")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as its operator, types and steps, each of which is proven again."""
        base = self._base
        return _restored, (base.program, base.identity, base.bound, base.auto, [s.to_json() for s in self._steps])

    def __getitem__(self, statement: str) -> OfStatement:
        """Return the steps on one statement's loops; raises ScheduleError where there is no such statement."""
        name = exact_text(statement)
        if name is None:
            raise failure(UNKNOWN_STATEMENT, statement=printed(statement), known=", ".join(self.statements))
        statement_named(self._state, name)
        return OfStatement(self, name)

    def __iter__(self) -> Any:
        raise TypeError("a schedule is no sequence; `steps` is one, `statements` another")

    @property
    def statements(self) -> tuple[str, ...]:
        """The names of the statements, as `s["C"]` takes them."""
        return tuple(self._state.names.statements.values())

    @property
    def steps(self) -> tuple[EditStep, ...]:
        """The steps that led here from the start."""
        return self._steps

    @checked_call
    def fuse(self, first: str, second: str, /, depth: int = 1) -> Schedule:
        """Let two statements share their outer loops, the first before the second in each iteration.

        What stands between them in the text runs before both, or after both, whichever is legal.

        >>> import polyker as pk
        >>> s = pk.op("T[i,j] = A[i,j] * 2; O[j,i] = T[j,i] + 1").schedule(pk.f32[8, 8], auto=False)
        >>> print(s)
        for i
          for j
            T: T[i, j] = A[i, j]*2.0
        for j
          for i
            O: O[j, i] = T[j, i] + 1.0
        >>> print(s.fuse("T", "O", depth=2))
        for i = i in T; j in O
          for j = j in T; i in O
            T: T[i, j] = A[i, j]*2.0
            O: O[j, i] = T[j, i] + 1.0
        """
        return self._step("fuse", {"first": first, "second": second, "depth": depth})

    def _step(self, name: str, *given: Mapping[str, object], statement: str | None = None) -> Schedule:
        found = self
        for step in [step_of(name, statement, arguments) for arguments in given]:
            found = found._after(step)
        return found

    def _after(self, step: EditStep, *, advise: bool = True) -> Schedule:
        if step.is_for_gpu and target_named(self._base.bound.target).gpu is None:
            raise failure(ONLY_GPU, step=step.name, target=self._base.bound.target)
        state = self._working(lambda: stepped(self._state, step, advise=advise))
        return Schedule(self._base, state, (*self._steps, step))

    def _working(self, work: Callable[[], T]) -> T:
        def limited() -> T:
            with isl_job("schedule", STEP_ISL_OPERATIONS):
                return work()

        return guarded(self._base.program, "schedule", with_deadline(self._base.bound.options), limited)

    @cached_property
    def _text(self) -> str:
        return self._working(lambda: nest(self._state))

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and (self._base, self._steps) == (other._base, other._steps)

    def __hash__(self) -> int:
        return hash((self._base.identity, self._steps))

    def to_json(self) -> str:
        """Return the schedule as JSON: what it is for, where it started, and its steps; `from_json` makes it again."""
        base = self._base
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "operator": base.identity,
                "text": str(base.program),
                "types": [f"{WEAK}{t}" if t.weak else str(t) for t in base.bound.types],
                "sizes": dict(base.bound.known),
                "target": base.bound.target,
                "acc": None if self.acc is None else self.acc.name,
                "auto": base.auto,
                "steps": [s.to_json() for s in self._steps],
            },
            indent=1,
        )

    @staticmethod
    def from_json(text: str | Mapping[str, object], op: Any, /, *types: Any, **named: Any) -> Schedule:
        """Return the schedule that a JSON text (or the dict it holds) tells, for an operator, each step proven again.

        `types`: as for `op.schedule`; those of the text where none are given. Raises ScheduleError for any text that tells
        no schedule of this operator, LegalityError where a step is not legal for these types.
        """
        if not isinstance(getattr(op, "program", None), Program) or not hasattr(op, "identity"):
            raise failure(BAD_ARGUMENT, name="op", type=type(op).__name__, wanted="an operator")
        said = read(text)
        if said["operator"] != op.identity:
            first = escape(str(said["text"])).partition("\n")[0]
            raise failure(OTHER_SCHEDULE, what="the operator", own=first, wanted=str(op.program).partition("\n")[0])
        steps = [step_from_json(s) for s in said["steps"]]
        own = not types and not named
        options = {name: said[name] for name in ("auto", "target", "acc") if said[name] is not None}
        chosen: Mapping[str, Any] = {}
        if own:
            named = types_of(said, op.program)
        else:
            chosen, named = split_keywords(op.signature.own_names(len(types), op.fixed), named, OPTIONS)
        try:
            found: Schedule = op._schedule(types, {**options, **chosen}, named)
            for step in steps:
                found = found._after(step, advise=False)
        except (ShapeError, DTypeError, ArgumentError, CompileError, BackendUnavailable) as error:
            if not own:
                raise
            raise failure(BAD_TEXT, reason=error.message) from error
        return found

    def _threads(self) -> int:
        return self._base.bound.options.thread_count

    @property
    def acc(self) -> DType | None:
        """The type that the operator's sums are accumulated in, None for the notation's rules."""
        return self._base.bound.options.acc

    def context(
        self, program: Program, types: Sequence[Any], named: Mapping[str, Any], target: str | None
    ) -> tuple[Sequence[Any], Mapping[str, Any], str]:
        """Return the types, sizes and target of a compile of `program`: this schedule's own where none are given.

        Raises ScheduleError where the schedule is another operator's.
        """
        bound = self._base.bound
        if self._base.program != program:
            own, wanted = (str(p).partition("\n")[0] for p in (self._base.program, program))
            raise failure(OTHER_SCHEDULE, what="the operator", own=own, wanted=wanted)
        if not types and not named:
            types, named = bound.types, bound.known
        return types, named, target or bound.target

    def given(self, identity: str, bound: CompileKey) -> GivenSchedule:
        """Return what `polyker.api.compiling.compiled` takes; raises ScheduleError where this is for something else."""
        other = self._base.differs(identity, bound)
        if other is not None:
            what, own, wanted = other
            raise failure(OTHER_SCHEDULE, what=f"the {what}", own=own, wanted=wanted)
        key = hashlib.sha256(self.to_json().encode()).hexdigest()
        return key, self._state.program, self._state.schedule


@api_class
class OfStatement(Steps[Schedule]):
    """The loops of one statement of a schedule."""

    __slots__ = ("_schedule", "_statement")

    def __init__(self, schedule: Schedule, statement: str) -> None:
        self._schedule, self._statement = schedule, statement

    @checked_call
    def fuse(self, second: str, /, depth: int = 1) -> Schedule:
        """Let the statement and another one share their outer loops; see Schedule.fuse."""
        return self._schedule.fuse(self._statement, second, depth)

    def _step(self, name: str, *given: Mapping[str, object]) -> Schedule:
        return self._schedule._step(name, *given, statement=self._statement)

    def _threads(self) -> int:
        return self._schedule._threads()

    @property
    def loops(self) -> tuple[str, ...]:
        """The names of the statement's loops, the outermost first."""
        state = self._schedule._state
        return tuple(x.name for x in state.loops(state.internal(self._statement) or ""))

    def __repr__(self) -> str:
        return f"{self._statement}: {', '.join(self.loops) or 'no loops'}"


# isl operations that one step may take, with its proof and the search for a legal one: some seconds.
STEP_ISL_OPERATIONS = 60_000_000


def _restored(
    program: Program, identity: str, bound: CompileKey, auto: bool, steps: Sequence[Mapping[str, object]]
) -> Schedule:
    """Return a schedule that was pickled."""
    found = started(program, identity, bound, auto=auto)
    for step in steps:
        found = found._after(step_from_json(step), advise=False)
    return found


def started(program: Program, identity: str, bound: CompileKey, *, auto: bool) -> Schedule:
    """Return the schedule that editing starts from; raises as a compile does."""
    typed, ordered, tree = start_to_edit(program, *bound.key, auto=auto)
    return Schedule(Base(program, identity, bound, auto), state(typed, ordered, tree))


def compiled_by(program: Program, identity: str, bound: CompileKey, artifact: Artifact) -> Schedule | None:
    """Return the automatic schedule that made an artifact, None where indices were joined: their loops have no names."""
    if artifact.scheduled is None:
        return None
    ordered, tree = artifact.scheduled
    own = {s.name: s.iterators for s in artifact.typed.statements()}
    shapes = {t.name: t.shape for t in artifact.typed.tensors}
    kept = all(s.iterators[: len(own.get(s.name, ()))] == own.get(s.name, ()) for s in ordered.statements())
    if not kept or any(t.name in shapes and len(t.shape) != len(shapes[t.name]) for t in ordered.tensors):
        return None
    return Schedule(Base(program, identity, bound, True), state(artifact.typed, ordered, tree))
