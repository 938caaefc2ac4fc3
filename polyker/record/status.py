"""What a kernel and its host agree on: the struct of the host's functions, and what a status says of them."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

# Most bytes of scratch memory that the run time keeps from call to call (chosen).
KEPT_SCRATCH_BYTES = 32 << 20


class Runtime(IntEnum):
    """Words of the struct that the kernel finds the run time's functions in (`pk_rt`)."""

    ABI = 0
    ALLOC = 1
    FREE = 2
    PARALLEL_FOR = 3
    USER = 4


# Statuses of a kernel whose host's parallel_for broke its contract; those of guards are small numbers.
# HOST_RAN: with them calls that were none of the region's << 32, participants that had left << 16, participants.
# HOST_RETURNED: with it 32 bits that the host returned, where all participants ran.
HOST_RAN, HOST_RETURNED = 1 << 62, 1 << 61


class HostStatus(Struct, frozen=True):
    """What a kernel's status says of a host's parallel_for: what it returned, or who had left, of whom, and calls beyond."""

    returned: int | None
    left: int = 0
    participants: int = 0
    more: int = 0


def host_status(status: int) -> HostStatus | None:
    """Return what a status says of a host's parallel_for, None where it is a guard's."""
    if status & HOST_RAN:
        return HostStatus(None, status >> 16 & 0xFFFF, status & 0xFFFF, (status & ~HOST_RAN) >> 32)
    if status & HOST_RETURNED:
        low = status & 0xFFFF_FFFF
        return HostStatus(low - (1 << 32) if low >> 31 else low)
    return None
