"""What `explain` returns: plain values, printed for people by `str`, for programs by `to_dict`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from polyker.ir.decision import Decision
from polyker.structs import replace

# An integer; with symbolic sizes a sympy expression in them.
Amount: TypeAlias = Any


class StatementWork(Struct, frozen=True):
    """One statement: its text, how often it runs, and what it computes.

    `flops`: additions, subtractions, multiplications and divisions, of integers too; a multiply-add is two, complex ones are
    counted in real ones. `functions`: everything else by name: comparisons, `max` and `min`, `exp` and their like. `exact`:
    else these are upper bounds.
    """

    statement: str
    text: str
    instances: Amount
    flops: Amount
    functions: Mapping[str, Amount]
    exact: bool = True


class Moved(Struct, frozen=True):
    """An argument: the bytes of its elements that are read, and that are written, each element once."""

    tensor: str
    read: Amount
    written: Amount
    exact: bool = True


class PassTime(Struct, frozen=True):
    """A pass of the compile: what it took, in seconds, over all alternatives, and whether it changed anything that was kept."""

    name: str
    level: str
    seconds: float
    changed: bool


class LevelTraffic(Struct, frozen=True):
    """Bytes that the schedule moves between a cache (`near`) and what lies behind it (`far`), by the model."""

    near: str
    far: str
    read: int
    written: int


class Intermediate(Struct, frozen=True):
    """A temporary: the bytes of all its elements, where it lives, and the bytes that it takes there.

    `place`: "not stored", "registers", "stack" or "memory". `from_text`: whether the program names it, or an inline reduction in
    it; else the schedule made it, and `whole` is the buffer's size.
    """

    name: str
    whole: Amount
    place: str
    bytes: Amount
    from_text: bool
    why: str = ""


class LeastTime(Struct, frozen=True):
    """The least time: of arithmetic, and of the compulsory bytes from `level`; the larger is the floor.

    Cycles by the target's model. Seconds where the machine was measured, else None.
    """

    arithmetic: Amount
    memory: Amount
    level: str
    threads: int = 1
    arithmetic_seconds: float | None = None
    memory_seconds: float | None = None

    @property
    def seconds(self) -> float | None:
        """The floor in seconds, None where the machine was not measured."""
        if self.arithmetic_seconds is None or self.memory_seconds is None:
            return None
        return max(self.arithmetic_seconds, self.memory_seconds)

    @property
    def bound(self) -> str | None:
        """What decides, "arithmetic" or "memory"; None with symbolic sizes."""
        pair = self.arithmetic, self.memory
        if self.arithmetic_seconds is not None and self.memory_seconds is not None:
            pair = self.arithmetic_seconds, self.memory_seconds
        if not all(isinstance(x, (int, float)) for x in pair):
            return None
        return "arithmetic" if pair[0] >= pair[1] else "memory"


class MeasuredRun(Struct, frozen=True):
    """A run: the median of so many calls in seconds, and the floor's share of it in percent."""

    seconds: float
    runs: int
    percent: float | None

    def __str__(self) -> str:
        share = "" if self.percent is None else f": {self.percent:.0f}% of the floor's speed"
        return f"measured {_time(self.seconds)}, the median of {self.runs} calls{share}"


class Explanation(Struct, frozen=True):
    """What a kernel computes, moves and stores, and why it does it so.

    `flops`: as the program is written; `scheduled_flops`: as it is computed (steps of a contraction, values computed once or
    again, partial sums put together), None where that cannot be counted. `intensity`: flops a compulsory byte. `levels`: () with
    symbolic sizes. `peak_bytes`: of the temporaries in memory, which share one block. `passes`: those that changed something or
    took a millisecond. `origin`: whether the code was compiled by this process or came from the disk cache.
    """

    title: str
    statements: tuple[StatementWork, ...]
    flops: Amount
    scheduled_flops: Amount | None
    arguments: tuple[Moved, ...]
    bytes: Amount
    intensity: Amount
    levels: tuple[LevelTraffic, ...]
    intermediates: tuple[Intermediate, ...]
    peak_bytes: Amount
    floor: LeastTime
    decisions: tuple[Decision, ...]
    refused: tuple[Decision, ...]
    passes: tuple[PassTime, ...] = ()
    measured: MeasuredRun | None = None
    origin: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the same as dictionaries, lists, numbers and texts, for JSON; symbolic amounts as texts."""
        found: dict[str, Any] = _plain(self)
        found["floor"] |= {"seconds": self.floor.seconds, "bound": self.floor.bound}
        return found

    def with_run(self, seconds: float, runs: int) -> Explanation:
        """Return the explanation with a measured time."""
        floor = self.floor.seconds
        return replace(self, measured=MeasuredRun(seconds, runs, None if floor is None else 100 * floor / seconds))

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    __repr__ = __str__


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return {name: _plain(v) for name, v in asdict(value).items()}
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _lines(e: Explanation) -> Iterator[str]:
    yield e.title
    yield ""
    yield "operations"
    width = min(60, max((len(w.text) for w in e.statements), default=0))
    for w in e.statements:
        functions = "".join(f", {_number(n)} {name}" for name, n in w.functions.items())
        most = "" if w.exact else "at most "
        yield f"  {w.text:<{width}}  {most}{_number(w.instances)} times: {_number(w.flops)} flops{functions}"
    if e.scheduled_flops is not None and e.scheduled_flops != e.flops:
        yield f"  in all {_number(e.flops)} flops as written, {_number(e.scheduled_flops)} as scheduled"
    else:
        yield f"  in all {_number(e.flops)} flops"
    yield "compulsory bytes"
    for m in e.arguments:
        most = "" if m.exact else "at most "
        parts = [f"{_number(n)} {how}" for n, how in ((m.read, "read"), (m.written, "written")) if _some(n)]
        yield f"  {m.tensor}: {most}{', '.join(parts) or 'none'}"
    yield f"  in all {_number(e.bytes)}; {_ratio(e.intensity)} flops a byte"
    if e.levels:
        yield "bytes that the schedule moves, by the model, from cold caches"
        for level in e.levels:
            yield f"  {level.near} - {level.far}: {_number(level.read)} read, {_number(level.written)} written"
    yield "floor"
    yield from _floor(e.floor)
    if e.measured is not None:
        yield f"  {e.measured}"
    if e.intermediates:
        yield "intermediates"
    for t in e.intermediates:
        whole = f" of {_number(t.whole)} bytes" if t.from_text else ""
        held = f"{_number(t.bytes)} bytes, " if t.place != "not stored" else ""
        yield f"  {t.name}{whole}: {held}{t.place}{': ' + t.why if t.why else ''}"
    if _some(e.peak_bytes):
        yield f"  in memory at most {_number(e.peak_bytes)} bytes at a time"
    for title, texts in (("decisions", e.decisions), ("refused", e.refused)):
        if texts:
            yield title
            yield from (f"  {text}" for text in texts)
    if e.origin:
        yield "code"
        yield f"  {e.origin}"
    if e.passes:
        yield "passes"
        width = max(len(p.name) for p in e.passes)
        for p in e.passes:
            yield f"  {p.name:<{width}}  {1e3 * p.seconds:7.1f} ms{', changed' if p.changed else ''}"


def _floor(floor: LeastTime) -> Iterator[str]:
    many = f" on each of {floor.threads} cores" if floor.threads > 1 else ""
    for kind, cycles, seconds in (
        ("arithmetic", floor.arithmetic, floor.arithmetic_seconds),
        (f"bytes from {floor.level}", floor.memory, floor.memory_seconds),
    ):
        timed = "" if seconds is None else f", {_time(seconds)} at the measured rates"
        yield f"  {kind}: {_number(cycles)} cycles{many}{timed}"
    if floor.bound is not None:
        yield f"  {floor.bound} decides"


def _some(value: Amount) -> bool:
    return not (isinstance(value, int) and value == 0)


def _number(value: Amount) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _ratio(value: Amount) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float)) else str(value)


def _time(seconds: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
