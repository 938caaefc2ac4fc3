"""What operations, loops, copies and launches cost: the one table that rewrites, schedules and passes read.

In cycles of one core of a current out-of-order processor, unless a line says otherwise; fitted to kernels on znver4 and
icelake-server (`python -m benchmarks.model`). What functions cost is in the table of functions; what memory costs follows from
the facts of a machine (polyker.cost.memory).
"""

from __future__ import annotations

from math import log2

# A vector operation, of two that begin in a cycle; one that converts a vector's elements; one that permutes them.
OPERATION, CONVERT, SHUFFLE = 0.5, 1.0, 0.5
# A vector that is loaded or stored, in the first cache; what is added where it lies in two lines; an element that is broadcast.
LOAD, CROSSING, BROADCAST = 0.6, 0.4, 0.5
# One lane of a gather, by where the next lane lies: in the same cache line, in the same page, elsewhere. A scatter costs more.
GATHER_LINE, GATHER_PAGE, GATHER_FAR, SCATTER = 1.2, 2.0, 5.0, 1.5
# A value that finds no register, each time that it is used.
SPILL = 4.0
# Combining halves of the lanes of a sum, where several sums are folded together; of one by itself it costs twice as much.
FOLD = 0.8

# An iteration of a loop; the loop over one row of a statement in a loop that several share; the nest of a statement by itself.
ITERATION, ROW, NEST = 1.0, 6.0, 100.0
# A region of threads, a microsecond (measured), half of it for what one core wrote and another reads: in operations of
# polyker.codegen.ir.work, of which a core does some 20 in a nanosecond.
REGION_OPERATIONS = 20_000

# An element that is copied to another layout: along the vector; in parts of rows; transposed in registers; one by one.
COPY, COPY_ROW, COPY_TRANSPOSED, COPY_ALONE = 0.15, 0.3, 0.7, 4.0
# An element that is computed, converted or padded, and written to a temporary.
WRITE = 0.6
# An element that is transposed in registers while it is used: of whole vectors; of pieces of rows, and reading one such piece.
TRANSPOSE, TRANSPOSE_PIECE, READ_PIECE = 0.35, 0.1, 0.45

# Of a GPU, in cycles of a multiprocessor: an iteration, a read of 16 bytes of shared memory, a row's or column's part of copying
# to it; the latency of memory, of shared memory; a launch, about 3 microseconds (chosen).
GPU_ITERATION, GPU_READ, GPU_COPY, GPU_LATENCY, GPU_STALL, GPU_LAUNCH = 2.0, 2.0, 0.15, 800, 30, 6000

# The share of the cycles that another way has to save, because the model errs; and between ways of one kind, where it errs alike
# (chosen).
GAIN, GAIN_OF_KIND = 0.1, 0.01


def folded(lanes: int) -> float:
    """Return the cycles to fold the lanes of one result."""
    return 2 * FOLD * log2(lanes)
