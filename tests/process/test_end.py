"""The end of a process, and forks, beside threads that compile: they go first, and nothing crashes or waits long."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import llvmlite.binding as llvm
import pytest

import polyker as pk
from polyker.codegen.llvm.jit import binding as llvm_binding
from polyker.process import compile_lock
from polyker.process.jobs import once
from tests.runtime.support import coded

COMPILING = """
import os, signal, sys, threading, time
import numpy as np
import polyker as pk
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes inherit that it is ignored
A = np.arange(12.0).reshape(3, 4)
B = np.arange(8.0).reshape(4, 2)
def right(n):
    return bool((pk.op(f"C[i,j] += A[i,k] * B[k,j] * {n}")(A, B) == n * (A @ B)).all())
def forever(first):
    n = first
    while True:
        n += 1
        assert right(n)
right(1)
"""


def run(code: str, *, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", COMPILING + code], capture_output=True, text=True, timeout=seconds
    )


@pytest.mark.parametrize("delay", [0.0, 0.03, 0.1])
def test_a_process_ends_beside_daemon_threads_that_compile(delay: float) -> None:
    found = run(f"""
for k in range(3):
    threading.Thread(target=forever, args=(1000 * k,), daemon=True).start()
time.sleep(0.2 + {delay})
print("end", flush=True)
""")
    assert (found.returncode, found.stdout, found.stderr) == (0, "end\n", "")


def test_a_process_ends_after_an_interrupted_compile() -> None:
    found = run("""
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    forever(5)
except KeyboardInterrupt:
    print("interrupted", flush=True)
""")
    assert (found.returncode, found.stdout, found.stderr) == (0, "interrupted\n", "")


def test_a_function_called_at_the_end_may_compile_before_and_after_the_hook_of_polyker() -> None:
    early = "import atexit\natexit.register(lambda: print('early', right(3)))\n"
    found = subprocess.run(
        [sys.executable, "-c", early + COMPILING + "atexit.register(lambda: print('late', right(4)))\n"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (found.returncode, found.stdout, found.stderr) == (0, "late True\nearly True\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_goes_before_compiles_that_wait() -> None:
    a, stop = coded((3, 3)), threading.Event()
    pk.op("C[i,j] += A[i,k] * B[k,j]")(a, a)

    def keep_compiling(n: int) -> None:
        while not stop.is_set():
            n += 1
            pk.op(f"C[i,j] += A[i,k] * B[k,j] * {n}")(a, a)

    threads = [threading.Thread(target=keep_compiling, args=(1000 * k,)) for k in range(3)]
    for t in threads:
        t.start()
    try:
        for _ in range(10):
            start = time.monotonic()
            child = os.fork()
            if child == 0:
                os._exit(0)
            # As long as the compile that is under way, and one that began beside the announcement.
            assert time.monotonic() - start < 3
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for t in threads:
            t.join(30)


def test_what_llvm_says_of_this_machine_is_asked_for_under_the_compile_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    # LLVM's own lock would stay taken in a child that is forked then.
    held = []
    for name in ("get_host_cpu_name", "get_host_cpu_features", "get_process_triple"):
        monkeypatch.setattr(llvm, name, lambda: held.append(compile_lock.held_here()) or {})
    for made in (llvm_binding.host_cpu, llvm_binding.host_features, llvm_binding.host_triple):
        once(made.__wrapped__)()
    assert held == [True] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_beside_first_calls_leaves_no_import_half_done() -> None:
    # In a new process each of these imports parts of polyker; the child needs them, too.
    works = {
        "a call": "operator = pk.op('C[i,j] += A[i,k] * B[k,j]'); [operator(A, B) for _ in range(6)]",
        "a compile": "pk.op('C[i,j] += A[i,k] * B[k,j]').compile(A, B)",
        "einsum": "pk.einsum('ij,jk->ik', A, B)",
        "a schedule": "pk.op('C[i,j] += A[i,k] * B[k,j]').schedule(A, B)",
        "a check": "pk.op('C[i,j] += A[i,k] * B[k,j]').check(A, B)",
        "a memoryview": "pk.op('y[i] = 2 * x[i]')(memoryview(A[0].copy()))",
    }
    start = COMPILING.replace("right(1)\n", "")
    for n, delay in enumerate((0.05, 0.15, 0.3)):
        for name, work in list(works.items())[n % 3 :: 3]:
            code = f"""
def work():
    {work}
thread = threading.Thread(target=work)
thread.start()
time.sleep({delay})
child = os.fork()
if child == 0:
    signal.alarm(40)
    work()
    os._exit(0 if right(2) else 3)
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
            found = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, timeout=60)
            assert found.returncode == 0, (name, delay, found.returncode, found.stderr)
