"""The record of what the host does for the kernels of a GPU: launches, and loops and branches around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct

from polyker.record.forms import SizeForm


class LaunchRecord(Struct, frozen=True):
    """The launch of one kernel: blocks along each axis, threads of a block, and its arguments in order.

    `arrays`: places in the list of buffers; `integers`: names of the host's integers; `fails`: the address where the code of a
    guard that did not hold is written comes last. `shared`: bytes of shared memory to ask for, 0 where it needs not be asked.
    """

    kernel: str
    grid: tuple[SizeForm, SizeForm, SizeForm]
    block: tuple[int, int, int]
    arrays: tuple[int, ...]
    integers: tuple[str, ...]
    fails: bool
    shared: int


class HostLoop(Struct, frozen=True):
    """A loop around launches: `variable` is one of the host's integers in its body."""

    variable: str
    lo: SizeForm
    hi: SizeForm
    step: int
    body: tuple[HostStep, ...]


class HostBranch(Struct, frozen=True):
    """A choice between launches by a condition on integers."""

    condition: SizeForm
    body: tuple[HostStep, ...]
    orelse: tuple[HostStep, ...]


HostStep: TypeAlias = LaunchRecord | HostLoop | HostBranch


class DeviceBuffer(Struct, frozen=True):
    """An array of the kernels: an argument (these come first) or a temporary; `size` in bytes, `alignment` of its address."""

    is_argument: bool
    is_writable: bool
    alignment: int
    size: SizeForm


class HostCode(Struct, frozen=True):
    """What the host does: `integers` are the names of those that it is called with, in order."""

    integers: tuple[str, ...]
    buffers: tuple[DeviceBuffer, ...]
    body: tuple[HostStep, ...]

    def launches(self) -> Iterator[LaunchRecord]:
        """Yield the launches, in the order of the text."""
        yield from _launches(self.body)


def _launches(steps: tuple[HostStep, ...]) -> Iterator[LaunchRecord]:
    for step in steps:
        if isinstance(step, LaunchRecord):
            yield step
        else:
            yield from _launches(step.body)
            if isinstance(step, HostBranch):
                yield from _launches(step.orelse)
