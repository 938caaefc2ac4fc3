"""Schedules as objects: printed as loop nests in the user's names, changed by steps that are proven, told in JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from polyker.compiling import Bound, Given, guarded, start_to_edit, with_deadline
from polyker.edit.step import Step, step_from_json, step_of
from polyker.errors.base import ArgumentError, BackendUnavailable, CompileError, DTypeError, ShapeError, escape, failure
from polyker.errors.schedules import BAD_TEXT, OTHER_SCHEDULE
from polyker.ir.dtypes import DType
from polyker.ir.program import Program

if TYPE_CHECKING:
    from polyker.codegen.artifact import Artifact
    from polyker.edit.state import State

T = TypeVar("T")
FORMAT, VERSION = "polyker.schedule", 1
MOST_STEPS = 200
MOST_TEXT = 1 << 20  # characters of a JSON text


@dataclass(frozen=True, slots=True)
class Base:
    """What is scheduled: an operator, what it is bound to, and whether the automatic schedule was the start."""

    program: Program
    identity: str
    bound: Bound
    auto: bool

    def differs(self, identity: str, bound: Bound) -> tuple[str, object, object] | None:
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


class Steps:
    """The steps of a schedule, or of one of its statements: each returns a new schedule, and changes nothing.

    A loop is called as the printed schedule shows it: `s.tile(i=64)`, or `s.tile({"i.tile": 8})` where the name is no word.
    A step raises ScheduleError where it has no place (no such loop, a size below 1), and LegalityError where it would break
    a dependence: the error shows two instances and the cell between them, and the nearest steps that are legal.
    """

    __slots__ = ()

    def _step(self, name: str, given: Mapping[str, object]) -> Schedule:
        raise NotImplementedError

    def tile(self, loops: Mapping[str, int] | None = None, /, **sizes: int) -> Schedule:
        """Cut loops into tiles; the loops over the points of a tile go inside those over the tiles.

        >>> import polyker as pk
        >>> s = pk.op("B[i,j] = A[j,i]").schedule(pk.f32[64, 64], auto=False)
        >>> print(s)
        for i
          for j
            B: B[i, j] = A[j, i]
        >>> print(s.tile(i=8, j=16))
        for i.tile = i//8
          for j.tile = j//16
            for i.point = i % 8
              for j.point = j % 16
                B: B[i, j] = A[j, i]
        """
        return self._step("tile", {"sizes": _merged(loops, sizes)})

    def split(self, loops: Mapping[str, int] | None = None, /, **sizes: int) -> Schedule:
        """Make two loops of one where it stands, also of a reduction's.

        >>> import polyker as pk
        >>> s = pk.op("B[i,j] = A[j,i]").schedule(pk.f32[64, 64], auto=False)
        >>> print(s.split(i=8))
        for i.tile = i//8
          for i.point = i % 8
            for j
              B: B[i, j] = A[j, i]
        """
        return self._step("split", {"sizes": _merged(loops, sizes)})

    def interchange(self, *order: str) -> Schedule:
        """Put loops that are directly inside each other into another order, the outermost first.

        >>> import polyker as pk
        >>> s = pk.op("B[i,j] = A[j,i]").schedule(pk.f32[64, 64], auto=False)
        >>> print(s.interchange("j", "i"))
        for j
          for i
            B: B[i, j] = A[j, i]
        """
        return self._step("interchange", {"order": order})

    def distribute(self, loop: str, /) -> Schedule:
        """Give each statement inside a loop, or each nest, a loop of its own; the inverse of `fuse`.

        >>> import polyker as pk
        >>> s = pk.op("T[i] = A[i] * 2; O[i] = T[i] + T[0]").schedule(pk.f32[64], auto=False)
        >>> print(s)
        for i
          T: T[i] = A[i]*2.0
        for i
          O: O[i] = T[i] + T[0]
        >>> s = s.fuse("T", "O")
        >>> print(s)
        for i
          T: T[i] = A[i]*2.0
          O: O[i] = T[i] + T[0]
        >>> print(s.distribute("i"))
        for i
          T: T[i] = A[i]*2.0
        for i
          O: O[i] = T[i] + T[0]
        """
        return self._step("distribute", {"loop": loop})

    def skew(self, factor: int = 1, /, **loops: str) -> Schedule:
        """Let each iteration of one loop begin another one later: the time of j becomes j + factor * i.

        >>> import polyker as pk
        >>> text = "f(A: f64[N,N]) -> A:\\n A[i,j] = A[i-1,j] + A[i-1,j+1]  for i in 1:N, j in 0:N-1"
        >>> s = pk.op(text).schedule(pk.f64[64, 64], auto=False)
        >>> print(s.skew(j="i", factor=1).interchange("j", "i"))
        for j = j + i
          for i
            A: A[i, j] = A[i - 1, j] + A[i - 1, j + 1]
        """
        chosen: Any = dict(loops)
        by = chosen.pop("factor", factor)
        pair = next(iter(chosen.items())) if len(chosen) == 1 else ()
        return self._step("skew", {"loops": pair, "factor": by})

    def shift(self, loops: Mapping[str, int] | None = None, /, **offsets: int) -> Schedule:
        """Let a statement run some iterations later in a loop, so that others that share the loop are ahead of it.

        >>> import polyker as pk
        >>> s = pk.op("T[i] = A[i] * 2; O[i] = T[i] + T[i+1] for i in 0:63").schedule(pk.f32[64], auto=False)
        >>> print(s["O"].shift(i=1).fuse("T", "O"))
        for i = i in T; i + 1 in O
          T: T[i] = A[i]*2.0
          O: O[i] = T[i] + T[i + 1]
        """
        return self._step("shift", {"offsets": _merged(loops, offsets)})

    def reverse(self, loop: str, /) -> Schedule:
        """Run a loop backwards.

        >>> import polyker as pk
        >>> s = pk.op("B[i] = A[i]").schedule(pk.f32[64], auto=False)
        >>> print(s.reverse("i"))
        for i = -i
          B: B[i] = A[i]
        """
        return self._step("reverse", {"loop": loop})

    def vectorise(self, loops: Mapping[str, int] | None = None, /, **lanes: int) -> Schedule:
        """Run iterations of a loop at the same time, as the lanes of a vector.

        >>> import polyker as pk
        >>> s = pk.op("B[i] = A[i]").schedule(pk.f32[64], auto=False)
        >>> print(s.vectorise(i=8))
        for i.tile = i//8
          vector(8) i.point = i % 8
            B: B[i] = A[i]
        """
        return self._step("vectorise", {"sizes": _merged(loops, lanes)})

    vectorize = vectorise

    def unroll(self, loops: Mapping[str, int] | None = None, /, **factors: int) -> Schedule:
        """Repeat the body of a loop; a loop of at most so many constant iterations vanishes.

        >>> import polyker as pk
        >>> s = pk.op("B[i] = A[i]").schedule(pk.f32[64], auto=False)
        >>> print(s.unroll(i=4))
        for i.tile = i//4
          unroll(4) i.point = i % 4
            B: B[i] = A[i]
        """
        return self._step("unroll", {"sizes": _merged(loops, factors)})

    def parallel(self, loop: str, /, threads: int | None = None) -> Schedule:
        """Run the iterations of a loop on several threads, as many as the options say where that is None.

        >>> import polyker as pk
        >>> s = pk.op("B[i,j] = A[j,i]").schedule(pk.f32[64, 64], auto=False)
        >>> print(s.parallel("i", threads=4))
        parallel(4) i
          for j
            B: B[i, j] = A[j, i]
        """
        return self._step("parallel", {"loop": loop, "threads": self._threads() if threads is None else threads})

    parallelise = parallelize = parallel

    def _threads(self) -> int:
        raise NotImplementedError

    def promote(
        self,
        tensor: str,
        /,
        at: str | None = None,
        memory: str | None = None,
        layout: Sequence[int | tuple[int, int]] | None = None,
    ) -> Schedule:
        """Hold what each iteration of a loop uses of a tensor in a buffer: a temporary itself, of others a copy.

        `at`: the loop; None for the whole program. `memory`: "registers", "stack" (up to 32 KiB) or "scratch" (memory that the
        call brings); by its size if None. `layout`: the tensor's dimensions, outermost first; `(d, n)` are blocks of n of
        dimension d, so `((1, 16), 0, 1)` makes panels of 16 columns.

        >>> import polyker as pk
        >>> s = pk.op("C[i,j] += A[i,k] * B[k,j]").schedule(pk.f32[64, 64], pk.f32[64, 64], auto=False)
        >>> s = s["C"].split(k=16)["C"].interchange("k.tile", "i", "j")
        >>> print(s["C"].promote("A", at="k.tile", layout=(1, 0)))
        for i
          for j
            C.start: C[i, j] = 0
        for k.tile = k//16
          with A.packed: f32[64, 16] in stack, laid out by dimensions 1 % 16, 0 % 64
          for i
            for k
              A.packed: A.packed[i, k] = A[i, k]
          for i
            for j
              for k.point = k % 16
                C: C[i, j] += A.packed[i, k]*B[k, j]
        """
        return self._step("promote", {"tensor": tensor, "at": at, "memory": memory, "layout": layout})


class Schedule(Steps):
    """The order in which an operator's instances run, for given types. Made by `Operator.schedule`; it never changes.

    `print(s)` shows the loop nest, `s["C"]` means the loops of one statement, `s.steps` how it was made, and
    `op.compile(..., schedule=s)` compiles it.
    """

    __slots__ = ("__dict__", "_base", "_state", "_steps")

    def __init__(self, base: Base, state: State, steps: tuple[Step, ...] = ()) -> None:
        object.__setattr__(self, "_base", base)
        object.__setattr__(self, "_state", state)
        object.__setattr__(self, "_steps", steps)

    _base: Base
    _state: State
    _steps: tuple[Step, ...]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a schedule never changes; its steps return another one")

    def __getitem__(self, statement: str) -> OfStatement:
        """Return the steps on one statement's loops; raises ScheduleError where there is no such statement."""
        from polyker.edit.find import statement_named

        statement_named(self._state, statement)
        return OfStatement(self, statement)

    def __iter__(self) -> Any:
        raise TypeError("a schedule is no sequence; `steps` is one, `statements` another")

    @property
    def statements(self) -> tuple[str, ...]:
        """The names of the statements, as `s["C"]` takes them."""
        return tuple(self._state.names.statements.values())

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that led here from the start."""
        return self._steps

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

    def _step(self, name: str, given: Mapping[str, object], statement: str | None = None) -> Schedule:
        return self._after(step_of(name, statement, given))

    def _after(self, step: Step, *, advise: bool = True) -> Schedule:
        from polyker.edit.prove import stepped

        state = self._working(lambda: stepped(self._state, step, advise=advise))
        return Schedule(self._base, state, (*self._steps, step))

    def _working(self, work: Callable[[], T]) -> T:
        from polyker.poly.isl import isl_job

        def limited() -> T:
            with isl_job("schedule", STEP_QUOTA):
                return work()

        return guarded(self._base.program, "schedule", with_deadline(self._base.bound.options), limited)

    @cached_property
    def _text(self) -> str:
        from polyker.edit.show import nest

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
                "types": [str(t) for t in base.bound.types],
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
        said = _read(text)
        if said["operator"] != op.identity:
            first = escape(str(said["text"])).partition("\n")[0]
            raise failure(OTHER_SCHEDULE, what="the operator", own=first, wanted=str(op.program).partition("\n")[0])
        steps = [step_from_json(s) for s in said["steps"]]
        own = not types and not named
        named = _types_of(said, op.program) if own else named
        options = {"acc": said["acc"]} if said["acc"] is not None else {}
        try:
            found: Schedule = op.schedule(
                *types, **{"auto": said["auto"], "target": said["target"], **options, **named}
            )
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
        self, types: Sequence[Any], named: Mapping[str, Any], target: str | None
    ) -> tuple[Sequence[Any], Mapping[str, Any], str]:
        """Return the types, sizes and target of a compile: this schedule's own where none are given."""
        bound = self._base.bound
        if not types and not named:
            types, named = bound.types, bound.known
        return types, named, target or bound.target

    def given(self, identity: str, bound: Bound) -> Given:
        """Return what `polyker.compiling.compiled` takes; raises ScheduleError where this is for something else."""
        other = self._base.differs(identity, bound)
        if other is not None:
            what, own, wanted = other
            raise failure(OTHER_SCHEDULE, what=f"the {what}", own=own, wanted=wanted)
        key = hashlib.sha256(self.to_json().encode()).hexdigest()
        return key, self._state.program, self._state.schedule


class OfStatement(Steps):
    """The loops of one statement of a schedule."""

    __slots__ = ("_schedule", "_statement")

    def __init__(self, schedule: Schedule, statement: str) -> None:
        self._schedule, self._statement = schedule, statement

    def _step(self, name: str, given: Mapping[str, object]) -> Schedule:
        return self._schedule._step(name, given, self._statement)

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
STEP_QUOTA = 60_000_000


def started(program: Program, identity: str, bound: Bound, *, auto: bool) -> Schedule:
    """Return the schedule that editing starts from; raises as a compile does."""
    from polyker.edit.state import state

    typed, ordered, tree = start_to_edit(program, bound, auto=auto)
    return Schedule(Base(program, identity, bound, auto), state(typed, ordered, tree))


def compiled_by(program: Program, identity: str, bound: Bound, artifact: Artifact) -> Schedule | None:
    """Return the automatic schedule that made an artifact, None where indices were joined: their loops have no names."""
    from polyker.edit.state import state

    if artifact.scheduled is None:
        return None
    ordered, tree = artifact.scheduled
    own = {s.name: s.iterators for s in artifact.typed.statements()}
    shapes = {t.name: t.shape for t in artifact.typed.tensors}
    kept = all(s.iterators[: len(own.get(s.name, ()))] == own.get(s.name, ()) for s in ordered.statements())
    if not kept or any(t.name in shapes and len(t.shape) != len(shapes[t.name]) for t in ordered.tensors):
        return None
    return Schedule(Base(program, identity, bound, True), state(artifact.typed, ordered, tree))


def _merged(loops: Mapping[str, int] | None, named: Mapping[str, int]) -> object:
    if loops is None:
        return named
    return {**loops, **named} if isinstance(loops, Mapping) else loops


def _read(text: object) -> dict[str, Any]:
    """Return the parts of a JSON text, each of its type; raises ScheduleError."""
    if isinstance(text, str):
        if len(text) > MOST_TEXT:
            raise failure(BAD_TEXT, reason=f"{len(text)} characters are too many")
        try:
            text = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise failure(BAD_TEXT, reason=f"it is no JSON ({error})") from None
    if not isinstance(text, Mapping):
        raise failure(BAD_TEXT, reason="it is no object with names")
    kinds: dict[str, type | tuple[type, ...]] = {
        "format": str, "version": int, "operator": str, "text": str, "types": list, "sizes": Mapping, "target": str,
        "acc": (str, type(None)), "auto": bool, "steps": list,
    }  # fmt: skip
    for name, kind in kinds.items():
        if name not in text or not isinstance(text[name], kind):
            raise failure(BAD_TEXT, reason=f"`{name}` is missing, or is not of its type")
    extra = [k for k in text if k not in kinds]
    if extra:
        raise failure(BAD_TEXT, reason=f"it has {extra[0]!r} that a schedule has not")
    if text["format"] != FORMAT or text["version"] != VERSION or isinstance(text["version"], bool):
        raise failure(BAD_TEXT, reason=f"its format is {text['format']!r} {text['version']}, not {FORMAT} {VERSION}")
    if len(text["steps"]) > MOST_STEPS:
        raise failure(BAD_TEXT, reason=f"{len(text['steps'])} steps are more than {MOST_STEPS}")
    return dict(text)


def _types_of(said: Mapping[str, Any], program: Program) -> dict[str, Any]:
    from polyker.ir.dtypes import parse_type

    try:
        types = tuple(parse_type(t) for t in said["types"])
    except (ValueError, TypeError, AttributeError):
        raise failure(BAD_TEXT, reason="`types` are not types such as f32[64, 64]") from None
    sizes = said["sizes"]
    if len(types) != len(program.inputs) or any(n not in program.sizes for n in sizes):
        raise failure(BAD_TEXT, reason="its types or sizes are not those of the operator")
    if any(not isinstance(v, int) or isinstance(v, bool) or v < 0 for v in sizes.values()):
        raise failure(BAD_TEXT, reason="a size is no whole number")
    return {**dict(zip(program.inputs, types, strict=True)), **sizes}
