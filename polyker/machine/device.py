"""A GPU as it says of itself: the known description of its generation, with the limits and rates of the device."""

from __future__ import annotations

import re
from collections.abc import Mapping

from polyker.machine.known import gpu_target, gpus
from polyker.machine.model import Target
from polyker.structs import replace

# What `with_device` takes, by the names of CUDA's attributes of devices (CU_DEVICE_ATTRIBUTE_… in cuda.h), and their numbers.
ATTRIBUTES: dict[str, int] = {
    "CLOCK_RATE": 13,
    "MULTIPROCESSOR_COUNT": 16,
    "MEMORY_CLOCK_RATE": 36,
    "GLOBAL_MEMORY_BUS_WIDTH": 37,
    "L2_CACHE_SIZE": 38,
    "MAX_THREADS_PER_MULTIPROCESSOR": 39,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 82,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 97,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 106,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": 111,
}


def name_of(arch: str) -> str | None:
    """Return the name of the target whose code runs on a device of an architecture, such as `sm_90`; None where there is none.

    Machine code runs on later devices of the same generation; what is named with an `a` on exactly that architecture.

    >>> name_of("sm_90"), name_of("sm_103"), name_of("sm_75")
    ('cuda:sm_90a', 'cuda:sm_100', None)
    """
    if not re.fullmatch(r"sm_\d{2,3}", arch):
        return None
    names = (f"cuda:{arch}a", f"cuda:{arch}", f"cuda:{arch[:-1]}0")
    return next((n for n in names if n in gpus()), None)


def with_device(target: Target, attributes: Mapping[str, int]) -> Target:
    """Return a GPU's target with what a device says of itself: `attributes` by the names of `ATTRIBUTES`.

    Where it says 0 or nothing (newer drivers do not tell the clock of the memory) what is known of the generation is kept.
    Clocks are in kHz, the width of the memory's bus in bits; data moves twice a cycle of it.
    """
    gpu = target.gpu
    if gpu is None or gpu.simulated:
        return target

    def said(name: str, known: int) -> int:
        value = attributes.get(name, 0)
        return value if value > 0 else known

    processors = said("MULTIPROCESSOR_COUNT", gpu.processors)
    clock = 1e3 * attributes.get("CLOCK_RATE", 0)
    faster = processors / gpu.processors * (clock / gpu.clock if clock > 0 else 1.0)
    memory = 2e3 * attributes.get("MEMORY_CLOCK_RATE", 0) * attributes.get("GLOBAL_MEMORY_BUS_WIDTH", 0) / 8
    found = replace(
        gpu,
        processors=processors,
        shared=said("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", gpu.shared),
        l2=said("L2_CACHE_SIZE", gpu.l2),
        resident=said("MAX_THREADS_PER_MULTIPROCESSOR", gpu.resident),
        registers=said("MAX_REGISTERS_PER_MULTIPROCESSOR", gpu.registers),
        blocks=said("MAX_BLOCKS_PER_MULTIPROCESSOR", gpu.blocks),
        reserved=said("RESERVED_SHARED_MEMORY_PER_BLOCK", gpu.reserved),
        flops=gpu.flops * faster,
        bandwidth=memory if memory > 0 else gpu.bandwidth,
        # The matrix units have the clock and the number of the others.
        matrix=tuple((dtype, rate * faster) for dtype, rate in gpu.matrix),
    )
    return target if found == gpu else gpu_target(target.name, target.triple, found)
