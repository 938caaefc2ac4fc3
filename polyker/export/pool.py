"""The pool of threads as an object of its own, for callers that have none: what `runtime` of a kernel may be."""

from __future__ import annotations

from polyker.codegen.llvm.jit.build import object_code
from polyker.codegen.llvm.jit.pool import pool_text
from polyker.machine.model import Target
from polyker.record.status import Runtime

FUNCTION = "polyker_pool"
_ENTRY = f"""
@exported.runtime = internal global [{len(Runtime)} x ptr] zeroinitializer
define ptr @{FUNCTION}() {{
entry:
  %table = call ptr @pool()
  %function = load ptr, ptr %table
  %place = getelementptr ptr, ptr @exported.runtime, i64 {int(Runtime.PARALLEL_FOR)}
  store atomic ptr %function, ptr %place release, align 8
  ret ptr @exported.runtime
}}
"""


def has_pool(target: Target) -> bool:
    """Whether there is a pool for a target's system and processor."""
    machine, *rest = target.triple.split("-")
    return machine in ("x86_64", "aarch64") and "linux" in rest


def pool_object(target: Target) -> bytes:
    """Return the object file of the pool, which calls pthreads and futexes of Linux."""
    text = pool_text(target.triple).replace("define ptr @pool(", "define internal ptr @pool(")
    return object_code(target, text + _ENTRY, own=True)


def pool_header() -> str:
    """Return what the header says of the pool."""
    return f"""\
/* The pool that comes with the library: one a process, threads made at first use, never ended. Link with -pthread. */
const struct polyker_runtime *{FUNCTION}(void);
"""
