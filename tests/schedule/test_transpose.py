"""Statements that read along another index than they write: the loops they get, and that these mean the same."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.ir.printing import print_kernel
from polyker.codegen.llvm.jit.detect import target
from polyker.cost.measure import measure
from polyker.errors import LegalityError
from polyker.ir.dtypes import i64
from polyker.ir.expr import IndexExpr
from polyker.ir.layout import DENSE
from polyker.ir.quasi_affine import floordiv, mod, scale
from polyker.schedule.legality.prove import prove
from polyker.schedule.nests.transpose import CopyLoops, copy_nest
from polyker.schedule.tree.nodes import Band, Leaf, Member, MemberKind, ScheduleTree, loops
from tests.artifacts import generated
from tests.schedule.support import SMALL, assert_same, case, lowered

DTYPES = (np.float32, np.float64, np.int8, np.uint16, np.int64, np.complex64, np.complex128, np.bool_, np.float16)


def codes(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Return index-coded values."""
    values = (np.arange(int(np.prod(shape))).reshape(shape) * 7) % 101
    if dtype is np.bool_:
        return values % 3 == 0
    return (values + 1j * (values % 13) if np.dtype(dtype).kind == "c" else values).astype(dtype)


@given(data=st.data(), dtype=st.sampled_from(DTYPES), rank=st.integers(2, 4))
@settings(max_examples=10, deadline=None)
def test_any_permutation_of_any_shape_is_numpys(data: st.DataObject, dtype: type, rank: int) -> None:
    shape = tuple(data.draw(st.tuples(*[st.integers(1, 40 if rank == 2 else 20 if rank == 3 else 9)] * rank)))
    order = data.draw(st.permutations(range(rank)))
    names = "ijkl"[:rank]
    x = codes(shape, dtype)
    if data.draw(st.booleans()):
        x = np.asfortranarray(x)
    found = pk.op(f"O[{','.join(names[d] for d in order)}] = X[{','.join(names)}]")(x)
    np.testing.assert_array_equal(found, x.transpose(order))


@given(n=st.integers(1, 40), m=st.integers(1, 40), dtype=st.sampled_from((np.float32, np.float64, np.int16)))
@settings(max_examples=6, deadline=None)
def test_reads_of_both_kinds_in_one_statement(n: int, m: int, dtype: type) -> None:
    x, z = codes((n, m), dtype), codes((m, n), dtype)
    np.testing.assert_array_equal(pk.op("O[j,i] = X[i,j] - 2*Z[j,i]")(x, z), x.T - 2 * z)


@given(a=st.integers(1, 20), b=st.integers(1, 20), c=st.integers(1, 20))
@settings(max_examples=6, deadline=None)
def test_reads_along_two_other_indices(a: int, b: int, c: int) -> None:
    x, y = codes((c, b, a), np.float32), codes((c, a, b), np.float32)
    found = pk.op("O[i,j,k] = X[k,j,i] + Y[k,i,j]")(x, y)
    np.testing.assert_array_equal(found, x.transpose(2, 1, 0) + y.transpose(1, 2, 0))


@given(n=st.integers(1, 40), m=st.integers(1, 40))
@settings(max_examples=6, deadline=None)
def test_backward_reads_and_parts_of_a_matrix(n: int, m: int) -> None:
    x = codes((n, m), np.float32)
    np.testing.assert_array_equal(pk.op("O[j,i] = X[i,m-1-j] for j in 0:m", m=m)(x), x[:, ::-1].T)
    wide = codes((n + 1, m + 2), np.float32)
    part = pk.op("O[j,i] = X[i+1,j+2] for i in 0:n, j in 0:m", n=n, m=m)(wide)
    np.testing.assert_array_equal(part, wide[1:, 2:].T)


@pytest.mark.parametrize("shape", [(1, 1), (16, 16), (64, 48), (17, 33), (5, 100), (100, 5)])
@pytest.mark.parametrize("dtype", ["f32", "c128"])
def test_one_kernel_for_all_sizes_transposes(shape: tuple[int, int], dtype: str) -> None:
    kind = getattr(pk, dtype)
    kernel = pk.op("O[j,i] = X[i,j]").compile(X=kind["N", "M"])
    x = codes(shape, np.float32 if dtype == "f32" else np.complex128)
    np.testing.assert_array_equal(kernel(x), x.T)


@pytest.mark.parametrize("order", list(permutations("ijkl")))
def test_a_permutation_is_transposed_where_the_innermost_index_changes(order: tuple[str, ...]) -> None:
    found = case(f"O[{','.join(order)}] = X[i,j,k,l]", X="f32[5,6,7,8]")
    scop, schedule = found.automatic(target(SMALL))
    kinds = {m.kind for m in loops(schedule.tree)}
    assert MemberKind.VECTOR in kinds
    assert (MemberKind.TRANSPOSE in kinds) == (order[-1] != "l")
    assert_same(found, scop, schedule)


def test_no_tile_on_the_stack_is_needed() -> None:
    found = case("O[j,i] = X[i,j] + Z[j,i]", X="f64[9,11]", Z="f64[11,9]")
    scop, schedule = found.automatic(target(SMALL))
    assert "with " not in str(schedule)
    assert "transpose(" in str(schedule)
    assert len(list(scop.program.statements())) == 1


def packing(n: int, m: int, width: int, block: int) -> tuple[object, ...]:
    """Return a packing copy, and its schedule inside loops over panels of `width` and blocks of `block`."""
    found = case(f"P[j//{width}, k, j%{width}] = B[j,k]", B=f"f64[{n},{m}]")
    scop = found.scop
    statement, *_ = scop.program.statements()
    measured = measure(scop.program, statement, lambda _: DENSE)
    j, k = statement.iterators
    around = (
        Member(((statement.name, floordiv(IndexExpr(k, i64), block)),), "k.block"),
        Member(((statement.name, floordiv(IndexExpr(j, i64), width)),), "j.panel"),
    )
    loops = CopyLoops((k, j), around=around, within={j: width, k: block})
    tree = copy_nest(scop.program, measured, j, 2, loops, target(SMALL))
    return found, scop, ScheduleTree(tree)


@pytest.mark.parametrize(("n", "m"), [(18, 16), (12, 15), (6, 3)])
def test_a_packing_copy_is_a_transposition_inside_the_callers_loops(n: int, m: int) -> None:
    found, scop, schedule = packing(n, m, 6, 8)
    prove(scop, schedule)
    assert "transpose(" in str(schedule)
    assert_same(found, scop, schedule)
    assert_same(found, scop, schedule, native=True)


def test_the_places_of_a_packing_copy_are_contiguous() -> None:
    _, scop, schedule = packing(18, 16, 6, 8)
    stored = [
        line for line in print_kernel(lowered(scop, schedule).kernel).splitlines() if line.lstrip().startswith("t1[")
    ]
    assert stored and not any("%" in line or "//" in line for line in stored)


def test_a_transpose_loop_has_no_more_iterations_than_it_says() -> None:
    found = case("O[j,i] = X[i,j]", X="f64[4,6]")
    name = next(s.name for s in found.scop.program.statements())
    i, j = (IndexExpr(n, i64) for n in found.scop.statement(name).iterators)
    members = (
        Member(((name, floordiv(i, 4)),), "i.tile"),
        Member(((name, j),), "j.columns", MemberKind.TRANSPOSE, 3),
        Member(((name, mod(i, 4)),), "i.lanes", MemberKind.VECTOR, 4),
    )
    with pytest.raises(LegalityError, match=r"transpose loop `j\.columns`"):
        prove(found.scop, ScheduleTree(Band(members, Leaf())))


def test_a_transpose_loop_keeps_the_order_of_dependences() -> None:
    found = case("f(A: f64[N,M]) -> A:\n    A[i,j] = A[i+1,j] for i in 0:N-1", A="f64[7,4]")
    name = next(s.name for s in found.scop.program.statements())
    i, j = (IndexExpr(n, i64) for n in found.scop.statement(name).iterators)
    lanes = Member(((name, j),), "j.lanes", MemberKind.VECTOR, 4)
    forward = ScheduleTree(Band((Member(((name, i),), "i.columns", MemberKind.TRANSPOSE, 6), lanes), Leaf()))
    prove(found.scop, forward)
    assert_same(found, found.scop, forward, native=True)
    backward = Member(((name, scale(-1, i)),), "i.columns", MemberKind.TRANSPOSE, 6)
    with pytest.raises(LegalityError, match="PK501"):
        prove(found.scop, ScheduleTree(Band((backward, lanes), Leaf())))


def test_a_copy_of_short_rows_fills_a_line_before_it_goes_on() -> None:
    # Six columns of A are 24 bytes in a row of its copy, and 6 KiB away from the six beside them.
    types = pk.f32[512, 512], pk.f32[512, 512]
    kernel = pk.op("C[i,j] += A[k,i] * B[k,j]").compile(*types, target="cpu:x86-64-v4", threads=1)
    loops = [
        line.split("{")[0].split()
        for line in generated(kernel, "schedule").splitlines()
        if "tile" in line or ".row" in line
    ]
    labels = [words[1] for words in loops if words[0] == "for"]
    at = next(n for n, label in enumerate(labels) if label.endswith(".rows"))
    assert labels[at + 1].endswith(".tile")
    assert labels[at + 2] == labels[at].removesuffix("s")
