"""The order of the blocks of a contraction: by the memory of what most is moved of."""

from __future__ import annotations

import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.cost.blocking import Blocking, blocking
from polyker.cost.measure import measure
from polyker.cost.plan import TilePlan
from polyker.ir.layout import DENSE
from polyker.machine.model import Cache
from polyker.structs import replace
from tests.artifacts import generated
from tests.schedule.support import case

TARGET = replace(target("cpu:x86-64-v4"), caches=(Cache(48 << 10), Cache(1 << 20), Cache(32 << 20)))


def blocks_of(text: str, plan: TilePlan, **types: str) -> Blocking:
    """Return the blocks of the last statement of a program, by a given tile."""
    program = case(text, **types).flat
    statement = list(program.statements())[-1]
    kept = tuple(i for i in statement.iterators if i not in statement.reduced)
    found = blocking(measure(program, statement, lambda _: DENSE), plan, kept, TARGET)
    assert found is not None
    return found


def test_a_result_of_short_rows_is_written_from_end_to_end() -> None:
    # 150 MB in rows of 17 elements; the columns' operand stays in the second cache for all rows.
    text, plan = "C[f,d,c,a] += A[c,d,g] * B[a,g,f]", TilePlan("i2", 8, 4, (("i3", 6),), 0.0)
    found = blocks_of(text, plan, A="f64[153,17,25]", B="f64[17,25,425]")
    assert (found.row_blocks, found.columns, found.rows) == ((("i0", 1),), ("i1", "i2"), ("i3",))


def test_neighbours_of_a_large_result_are_written_by_one_block() -> None:
    # Rows of 1600 bytes; of B, where it lies, the last index has the largest steps.
    text, plan = "C[f,d,c,a] += A[c,d,g] * B[a,g,f]", TilePlan("i2", 8, 4, (("i3", 6),), 0.0)
    found = blocks_of(text, plan, A="f64[153,17,25]", B="f64[200,25,100]")
    assert ([i for i, _ in found.row_blocks], found.rows[-1]) == (["i0"], "i3")


def test_the_blocks_of_a_small_result_are_in_the_order_of_the_operands() -> None:
    text, plan = "C[f,d,c,a] += A[c,d,g] * B[a,g,f]", TilePlan("i2", 8, 4, (("i3", 6),), 0.0)
    found = blocks_of(text, plan, A="f64[32,17,2500]", B="f64[17,2500,42]")
    assert [i for i, _ in found.row_blocks] == ["i3", "i0"]


@pytest.mark.parametrize(
    ("batches", "size", "packed"), [(32, 48, False), (32, 128, True), (300, 48, True), (8, 48, False)]
)
def test_small_matrices_of_a_batch_are_packed_where_they_come_from_far(batches: int, size: int, packed: bool) -> None:
    # A copy of 18 KB costs more than it wins, but for a batch that the last cache does not keep from call to call.
    matrix = pk.f64[batches, size, size]
    kernel = pk.op("C[b,i,j] += A[b,i,k] * B[b,k,j]").compile(matrix, matrix, target=TARGET, threads=1)
    assert ("B is packed" in generated(kernel, "schedule")) == packed


def test_blocks_of_copied_rows_have_two_terms_for_each_row() -> None:
    """A result is read and written for each block of terms, the other operand read for each block of rows."""
    plan = TilePlan("i1", 8, 4, (("i0", 6),), 0.0)
    found = blocks_of("C[i,j] += A[k,i] * B[k,j]", plan, A="f64[3000,3000]", B="f64[3000,3000]")
    ((_, terms),), ((_, rows),) = found.terms, found.row_blocks
    assert 1.5 < terms / rows < 2.7
