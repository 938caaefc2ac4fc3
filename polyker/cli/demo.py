"""`polyker demo`: compile, run, check and time every operator of the data files, against NumPy's own spelling of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

import polyker as pk
from polyker.cli.demo_cases import Case
from polyker.cli.demo_check import compare_exact, compare_random, exact_inputs, random_inputs
from polyker.errors.base import PolykerError

if TYPE_CHECKING:  # rich is loaded where a table is shown
    from rich.table import Table

SAMPLE_SECONDS = 2e-3


class DemoRow(Struct, frozen=True):
    """One line of the table: times in seconds, errors relative to the output's largest value, why it failed."""

    id: str
    text: str
    shape: str
    status: str
    compile: float | None = None
    run: float | None = None
    numpy: float | None = None
    error: float | None = None
    allowed: float | None = None
    exact: bool | None = None
    failure: str = ""

    @property
    def ratio(self) -> float | None:
        """NumPy's time by ours: above 1 polyker is faster."""
        return self.numpy / self.run if self.numpy and self.run else None


def run_case(case: Case, seconds: float) -> DemoRow:
    """Compile, check and time one case, spending about `seconds` on the timing; failures are reported in the row."""
    row: dict[str, Any] = {"id": case.id, "text": case.text, "shape": case.shape(), "status": case.status}
    try:
        return DemoRow(**row | _measure(case, seconds))
    except PolykerError as error:
        return DemoRow(**row, failure=str(error))
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError, NotImplementedError) as error:
        return DemoRow(**row, failure=f"{type(error).__name__}: {error}")
    finally:
        gc.collect()


def _measure(case: Case, seconds: float) -> dict[str, Any]:
    operator = pk.op(case.text, **case.fixed)
    arguments = random_inputs(case)
    start = time.perf_counter()
    operator.compile(**arguments)
    compiled = time.perf_counter() - start
    got, peer = operator(**arguments), case.numpy(**arguments)
    verdict = compare_random(case, arguments, got, peer)
    del got, peer
    run, numpy = medians(lambda: operator(**arguments), lambda: case.numpy(**arguments), seconds)
    exact = exact_inputs(case)
    differs = compare_exact(operator(**exact), case.numpy(**exact)) if exact is not None else ""
    return {
        "compile": compiled,
        "run": run,
        "numpy": numpy,
        "error": verdict.error,
        "allowed": verdict.allowed,
        "exact": None if exact is None else not differs,
        "failure": "; ".join(filter(None, (verdict.detail, differs))),
    }


def medians(ours: Callable[[], object], theirs: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Return the medians of the seconds a call of each takes, measured in alternating rounds, 3 at least."""
    calls = [(f, max(1, int(SAMPLE_SECONDS / max(_once(f, 1), 1e-7)))) for f in (ours, theirs)]
    samples: list[list[float]] = [[], []]
    end = time.perf_counter() + seconds
    while len(samples[0]) < 3 or (time.perf_counter() < end and len(samples[0]) < 100):
        for (f, number), taken in zip(calls, samples, strict=True):
            taken.append(_once(f, number))
    first, second = (sorted(s)[len(s) // 2] for s in samples)
    return first, second


def _once(call: Callable[[], object], number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number


def run_cases(cases: Sequence[Case], seconds: float) -> Iterator[DemoRow]:
    """Run the cases one after another, shedding each one's arrays and kernels before the next."""
    for case in cases:
        yield run_case(case, seconds)


def table(rows: Sequence[DemoRow], width: int) -> Table:
    """Return the table of the results for a console of `width` characters; a wide one shows the operators' texts."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    texts = 36 if width >= 165 else 0
    result = Table(box=box.SIMPLE, header_style="bold")
    result.add_column("operator", no_wrap=True)
    if texts:
        result.add_column("", no_wrap=True, max_width=texts)
    result.add_column("shape", min_width=40 if texts else 20, overflow="fold")
    for name in ("compile", "run", "NumPy", "ratio", "error", "allowed", "exact"):
        result.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        marks = {"published": "", "chosen": " *", "reduced": " **"}
        text = next(line for line in reversed(row.text.splitlines()) if line.strip()).strip()
        times = [_seconds(t) for t in (row.compile, row.run, row.numpy)]
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        exact = {True: "yes", False: "NO", None: "-"}[row.exact] if row.run is not None else ""
        checks = [_error(row.error), _error(row.allowed), exact]
        elements = [row.id, *([escape(text)] if texts else []), row.shape + marks[row.status]]
        result.add_row(*elements, *times, ratio, *checks, style="red" if row.failure else None)
    return result


LEGEND = (
    "ratio: NumPy's time by ours. error, allowed: relative to the output's largest value. exact: bit-equal to NumPy on "
    "integer data, - where rounding depends on more than the order of sums. * shape chosen, ** reduced. Of several "
    "statements the last is shown."
)


def summary(rows: Sequence[DemoRow]) -> str:
    """Return in a line how many passed, and the medians."""
    failed = [r for r in rows if r.failure]
    ratios = sorted(r.ratio for r in rows if r.ratio is not None)
    compiles = sorted(r.compile for r in rows if r.compile is not None)
    parts = [f"{len(rows) - len(failed)} of {len(rows)} passed"]
    if ratios:
        parts.append(f"median ratio {ratios[len(ratios) // 2]:.2f}, least {ratios[0]:.2f}")
        parts.append(f"median compile time {_seconds(compiles[len(compiles) // 2])}")
    return "; ".join(parts)


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 1 or unit == "us":
            return f"{value * factor:.3g} {unit}"
    return ""


def _error(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}" if value else "0"


def as_json(rows: Sequence[DemoRow], machine: dict[str, Any]) -> dict[str, Any]:
    """Return the results as plain values: the machine, and one entry a row with its ratio."""
    return {"machine": machine, "rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}
