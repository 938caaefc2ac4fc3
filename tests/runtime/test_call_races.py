"""Calls through the emitted entry while other threads replace what it reads, and while signal handlers raise in the run time."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest

import polyker as pk
from polyker.codegen.llvm.jit.call_table import ROWS, TableWord
from polyker.runtime.entry import tables
from polyker.runtime.memory import address
from tests.artifacts import compiled_of, table_of
from tests.runtime.calls import MATMUL, NEEDS_ENTRY, both, f32

pytestmark = NEEDS_ENTRY


def adopted(text: str) -> Any:
    """Return a kernel for all sizes whose calls go through the entry."""
    kernel = pk.op(text).compile(pk.f32["N"])
    for _ in range(4):
        kernel(f32(5))
    return kernel


def test_two_calls_interleaved_at_every_point_where_the_lock_can_go_are_right() -> None:
    found = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.runtime.interleave", "4"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.endswith(" schedules\n")


def consistent(table: tables.CallTable) -> None:
    """Check that the table points to rows that it keeps."""
    words = table.words
    for k in range(int(words[TableWord.ROWS])):
        assert int(words[TableWord.ROW + k]) in [address(row.words) for row in table.kept_rows[k]]


def test_a_table_that_is_changed_half_way_points_to_rows_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = adopted("y[i] = 3 * x[i]")
    table = table_of(kernel)
    calls = 0

    class Interrupted(Exception):
        pass

    for stop in range(12):
        count = 0

        def address_or_stop(array: Any, stop: int = stop) -> int:
            nonlocal count
            count += 1
            if count == stop:
                raise Interrupted
            return address(array)

        with monkeypatch.context() as patched:
            patched.setattr(tables, "address", address_or_stop)
            for n in range(3 * ROWS):
                x = f32(30 + n + 100 * stop)
                for _ in range(3):
                    try:
                        assert (kernel(x) == 3 * x).all()
                    except Interrupted:
                        calls += 1
        consistent(table)
    assert calls > 3


def test_a_row_lives_as_long_as_its_plan_or_its_place_in_a_table() -> None:
    kernel, _ = both(MATMUL, f32(4, 4), f32(4, 4))
    (plan,) = compiled_of(kernel).plans.values()
    (row,) = plan.rows.values()
    words = weakref.ref(row.words)
    table = table_of(kernel)
    del row
    table.kept_rows[0].clear()
    assert words() is not None
    compiled_of(kernel).plans.clear()
    del plan
    assert words() is None


def test_a_finalizer_that_calls_the_kernel_in_the_midst_of_its_adoption_is_no_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = adopted("y[i] = 3 * x[i]")
    table = table_of(kernel)
    inside = []

    def address_after_calls(array: Any) -> int:
        if not inside:
            inside.append(1)
            x = f32(77)
            for _ in range(5):
                assert (kernel(x) == 3 * x).all()
        return address(array)

    monkeypatch.setattr(tables, "address", address_after_calls)
    x = f32(55)
    for _ in range(5):
        assert (kernel(x) == 3 * x).all()
    assert inside
    consistent(table)


def test_a_kernel_gets_one_table_where_two_threads_adopt_its_first_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = pk.op("y[i] = 3 * x[i]").compile(pk.f32[50])
    x, own, handed = f32(50), tables.adopted, []
    both_made = threading.Barrier(2)

    def adopted_together(*args: Any) -> Any:
        found = own(*args)
        both_made.wait(30)
        return found

    monkeypatch.setattr(tables, "adopted", adopted_together)
    monkeypatch.setattr(pk.Kernel, "hand_on_to", lambda self, function: handed.append(function))
    calls = kernel.func.__self__
    (plan,) = [compiled_of(kernel).plan({}, [x], (((50,), x.dtype),), [f32(50)], None)]
    threads = [threading.Thread(target=calls._adopt, args=(plan, (), [x])) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(handed) == 1
    consistent(calls._table())
    assert (handed[0](x) == 3 * x).all()


def test_locks_that_a_fork_left_held_keep_no_call_waiting() -> None:
    kernel = pk.op("y[i] = 5 * x[i]").compile(pk.f32["N"])
    assert kernel.func.__self__._adopting.acquire(blocking=False)
    for _ in range(5):
        assert (kernel(f32(6)) == 5 * f32(6)).all()
    kernel = adopted("y[i] = 7 * x[i]")
    assert kernel.func.__self__[1]._lock.acquire(blocking=False)
    for _ in range(5):
        assert (kernel(f32(9)) == 7 * f32(9)).all()
