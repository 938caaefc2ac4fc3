"""Processes that share a cold cache, and ones that are killed (a small run of tests.store.races)."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from polyker.store import disk
from tests.store.races import killed, together


def test_processes_on_a_cold_cache_compile_each_kernel_once(folder: Path) -> None:
    hits, made = together(folder, 4, 12)
    assert (made, hits) == (12, 36)
    assert not disk.files(suffix=disk.PART) and not disk.verify()


def test_a_process_killed_at_any_moment_leaves_no_damaged_entry(folder: Path) -> None:
    killed(folder, 5, 12)
    assert not disk.verify()
    together(folder, 1, 12)


def test_who_waits_for_a_lock_sees_what_was_made_meanwhile_and_waits_no_longer_than_told(folder: Path) -> None:
    order: list[str] = []
    holding, done = threading.Event(), threading.Event()

    def first() -> None:
        with disk.making("key", 5.0):
            holding.set()
            done.wait(5.0)
            order.append("made")

    thread = threading.Thread(target=first)
    thread.start()
    holding.wait(5.0)
    start = time.monotonic()
    with disk.making("key", 0.2):
        assert time.monotonic() - start >= 0.2 and not order
    done.set()
    with disk.making("key", 5.0):
        assert order == ["made"]
    thread.join()
