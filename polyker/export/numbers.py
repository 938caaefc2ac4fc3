"""The numbers that an exported function returns, and what they mean."""

from __future__ import annotations

from polyker.record.checks import error_of
from polyker.record.records import Failure, KernelRecord

# Below FIRST_CHECK the numbers are those of the kernel's guards.
SIZE_RANGE, SCRATCH, HOST, FIRST_CHECK, FIRST_TENSOR = 1001, 1002, 1003, 1101, 2001
_FIXED = {
    SIZE_RANGE: "a size is negative, or the sizes are so large that a tensor has 2^{bits} bytes or more",
    SCRATCH: "scratch is null or no multiple of 64",
    HOST: "the caller's parallel_for did not run all parts, or returned a number that is not 0",
}


def meanings(record: KernelRecord, *, bits: int, parallel: bool) -> dict[int, str]:
    """Return the message of each number that a function may return, 0 apart; `bits`: of a tensor's bytes, 0 for fixed sizes."""
    found = {status: message(failure) for status, failure in record.guards}
    if bits:
        found[SIZE_RANGE] = _FIXED[SIZE_RANGE].format(bits=bits)
    if record.scratch:
        found[SCRATCH] = _FIXED[SCRATCH]
    if parallel:
        found[HOST] = _FIXED[HOST]
    return found | {FIRST_CHECK + n: message(check.failure) for n, check in enumerate(record.call.checks)}


def message(failure: Failure) -> str:
    """Return the message of a failure, on one line, without the values of a call."""
    values = {"sizes": ""} if "sizes" not in dict(failure.values) else {}
    error = error_of(failure, **values)
    return " ".join(str(getattr(error, "message", error)).split())
