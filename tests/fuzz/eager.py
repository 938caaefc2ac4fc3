"""What is worth its trouble only for much data, done for little: caches of a few kilobytes, and the least sizes lowered.

The kernels for results in memory, long rows, and inputs used often are other code than those for what stays near, and the cases
here are small: without this, whatever asks for gigabytes first is run by users first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import ModuleType
from unittest import mock

from polyker.api import binding
from polyker.codegen.llvm.loops import stream_parts as llvm_stream
from polyker.codegen.passes.x86 import balance_ports as pipes
from polyker.codegen.passes.x86 import checked_inputs, pair_extrema
from polyker.cost import blocking
from polyker.cost import prefetch as ahead
from polyker.machine.model import Cache, Target
from polyker.rewrite.reductions import transposed_sum as crossing
from polyker.rewrite.searches import search_blocks
from polyker.schedule.fusion import row_prefetch as row_heads
from polyker.schedule.nests import loop_order as order
from polyker.schedule.nests import stream as stream_nest
from polyker.structs import replace

# The last one, which all cores share, is less than a core's own: results are in memory from a row or two on.
CACHES = Cache(2048), Cache(4096), Cache(256)

LOWERED: tuple[tuple[ModuleType, str, float], ...] = (
    (checked_inputs, "MIN_OPERATIONS_PER_INPUT", 0),
    (checked_inputs, "MIN_TILE_RESULTS", 1),
    (pair_extrema, "MIN_TILE_RESULTS", 1),
    (pipes, "MIN_TILE_RESULTS", 1),
    (llvm_stream, "MIN_PARTIAL_LINE_ROW_BYTES", 128),
    (stream_nest, "MIN_STREAMED_ROW_BYTES", 24),
    (stream_nest, "MIN_LONE_ROW_BYTES", 8),
    (stream_nest, "LONE_TRAFFIC_RATIO", 1.0),
    (stream_nest, "MIN_ALIGNED_ROW_BYTES", 64),
    (stream_nest, "STREAM_RUN_BYTES", 128),
    (crossing, "MIN_SUM_EXTENT", 3),
    (ahead, "MIN_PREFETCH_BYTES", 64),
    (ahead, "RESULT_PREFETCH_BYTES", 64),
    (row_heads, "ROW_HEAD_BYTES", 64),
    (row_heads, "MIN_PREFETCHED_ROW_BYTES", 128),
    (blocking, "MAX_COPY_SHARE", 10.0),
    (blocking, "UNKNOWN_BLOCK_TERMS", 16),
    (order, "MAX_ACCUMULATED_TERMS", 64),
    (search_blocks, "MIN_BLOCK_VECTORS", 1 / 8),
    (search_blocks, "GAIN", -1e9),
)


@contextmanager
def eager() -> Iterator[None]:
    """Compile for small caches, and with the least sizes lowered."""
    named = binding.target_named

    @cache
    def small(name: str) -> Target:
        found = named(name)
        return found if found.gpu is not None else replace(found, caches=CACHES)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(binding, "target_named", small))
        for module, name, value in LOWERED:
            stack.enter_context(mock.patch.object(module, name, value))
        yield


__all__ = ["CACHES", "LOWERED", "eager"]
