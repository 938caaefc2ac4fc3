"""How this process runs while it measures: pinned, one thread a library, warm memory. Imports no library that has threads."""

from __future__ import annotations

import ctypes
import os
import sys

THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "TBLIS_NUM_THREADS",
    "NUMBA_NUM_THREADS", "POLYKER_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip
XLA = "--xla_cpu_multi_thread_eigen={0} intra_op_parallelism_threads={1}"
# glibc's mallopt (malloc.h)
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


def prepare(core: int | None, threads: int = 1) -> list[int]:
    """Pin this process to `threads` cores from `core` on (None: the last allowed), and say so to every library.

    Call it before numpy is imported, whose BLAS starts its threads then: RuntimeError if it has been. What the environment says
    of that BLAS's kernels is dropped: each library is to be as good as it can. Returns the cores.
    """
    if "numpy" in sys.modules:
        raise RuntimeError("numpy was imported before the process was prepared: its BLAS has threads on all cores")
    for name in [n for n in os.environ if n.startswith("OPENBLAS_")]:
        del os.environ[name]
    allowed = sorted(os.sched_getaffinity(0))
    first = allowed.index(core) if core in allowed else len(allowed) - threads
    cores = allowed[max(0, first) : max(0, first) + threads]
    os.sched_setaffinity(0, cores)
    for name in THREADS:
        os.environ[name] = str(threads)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["POLYKER_CACHE"] = "off"  # compiles are timed, too
    os.environ["XLA_FLAGS"] = XLA.format(str(threads > 1).lower(), threads)
    keep_memory()
    return cores


def keep_memory() -> None:
    """Let freed memory stay with the process.

    A peer that cannot write into a given array allocates its result anew; without this, large results would be pages
    that the kernel clears each time, which is the allocator's time and not the peer's.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(M_TOP_PAD, 64 << 20)
