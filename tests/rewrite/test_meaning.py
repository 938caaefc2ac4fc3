"""Each pass from program to program leaves the meaning: run in the order of the text, compared with the plain interpreter."""

from __future__ import annotations

import itertools

import pytest

from polyker.cost.plan import can_pack
from polyker.ir.expr import IndexExpr, Read, Reduce, walk
from polyker.ir.quasi_affine import lit
from polyker.ir.typed import Role, TypedProgram, TypedStatement
from polyker.poly.scop import build_scop
from polyker.rewrite.core.accumulate import AccumulatorBlock, AccumulatorLayout, PartialSums, accumulate, starts_fresh
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.materialise.pack_operand import pack_read, pack_result
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.rewrite.normalise.start_reductions import start_reductions
from polyker.schedule.legality.prove import prove
from polyker.schedule.nests.text_order import default_schedule
from polyker.structs import replace
from tests.schedule.programs import PROGRAMS
from tests.schedule.support import Case, assert_same, case


def assert_means_the_same(found: Case, program: TypedProgram) -> None:
    """Assert that a program without inline reductions computes what the text says, in the order of the text."""
    scop, schedule = build_scop(program), default_schedule(program)
    prove(scop, schedule)
    assert_same(found, scop, schedule)


def in_memory(program: TypedProgram, extent: int = 24) -> TypedProgram:
    """Give the temporaries that are meant for buffers extents that fit in memory."""

    def fit(tensor):  # type: ignore[no-untyped-def]
        return replace(tensor, shape=tuple(lit(extent) if e == lit(1 << 20) else e for e in tensor.shape))

    return replace(program, tensors=tuple(fit(t) for t in program.tensors))


INLINE = {
    "a sum": case("O[i] = X[i] - sum[k](X[k])", X="f64[5]"),
    "a row's maximum": case("O[i,j] = X[i,j] - max[k](X[i,k])", X="f64[3,4]"),
    "equal reductions twice": case("O[i] = sum[k](X[i,k]) * sum[l](X[i,l])", X="f64[3,4]"),
    "a reduction in a reduction": case("O[i] = sum[k](X[i,k] * max[l](X[k,l]))", X="f64[4,4]"),
    "a triangle": case("O[i] = sum[k in 0:i+1](X[k]) for i in 0:5", X="f64[5]"),
    "a condition": case("O[b,i] = max[k](X[b,k] where k <= i) for i in 0:4", X="f64[3,4]"),
    "over nothing": case("O[i] = sum[k in 2:i](X[k]) + 1 for i in 0:5", X="f64[5]"),
    "a product": case("O[i] = prod[k in 0:3](X[i,k])", X="f64[4,3]"),
    "a minimum and a maximum": case("O[i] = max[k](X[i,k]) - min[k](X[i,k])", X="f64[4,3]"),
    "the place of the greatest": case("O[i] = argmax[k](X[i,k])", X="f64[4,5]"),
    "the place of the least": case("O[i] = argmin[k](X[i,k])", X="f64[4,5]"),
    "a mean": case("O[i] = mean[k](X[i,k])", X="f64[4,4]"),
    "any and all": case("O[i] = any[k](X[i,k] > 4) or all[k](X[i,k] < 4)", X="f64[4,5]"),
    "in a reduction statement": case("O[i] += X[i,k] * max[l](X[k,l])", X="f64[4,4]"),
    "of what the statement writes": case("f(A: f64[N]) -> A:\n    A[i] = sum[k in 0:i+1](A[k])", A="f64[5]"),
    "in a time loop": case(
        "f(A: f64[N], steps) -> A:\n    for t in 0:steps:\n        A[i] = A[i] + max[k](A[k]) - t", A="f64[4]", steps=3
    ),
    "padded": case("O[i] = sum[k in 0:3](X[i+k-1; pad=0])  for i in 0:5", X="f64[5]"),
}


@pytest.mark.parametrize("name", INLINE)
def test_lifting_inline_reductions_keeps_the_meaning(name: str) -> None:
    found = INLINE[name]
    flat = extract_reductions(found.typed)
    assert not any(isinstance(e, Reduce) for s in flat.statements() for e in walk(s.expr))
    assert_means_the_same(found, start_reductions(flat))


def test_equal_reductions_share_a_temporary_and_indices_that_do_not_matter_are_dropped() -> None:
    def temporaries(name: str) -> list[int]:
        flat = extract_reductions(INLINE[name].typed)
        return [len(t.shape) for t in flat.tensors if t.role is Role.TEMPORARY]

    assert temporaries("equal reductions twice") == [1]
    assert temporaries("a sum") == [0]
    assert temporaries("a row's maximum") == [1]
    assert len(temporaries("a minimum and a maximum")) == 2


STARTS = {
    "a fresh result": (case("O[i] += X[i,k]", X="f64[3,4]"), 1),
    "elements that a condition leaves out": (case("O[i,j] += X[i] * X[j] where j <= i", X="f64[4]"), 1),
    "products and extremes": (case("P[i] *= X[i,k];  M[i] max= X[i,k];  L[i] min= X[i,k]", X="f64[3,4]"), 3),
    "integers' least value": (case("M[i] max= X[i,k]", X="i32[3,4]"), 1),
    "truth": (case("M[i] any= X[i,k] > 4;  L[i] all= X[i,k] > 4", X="f64[3,4]"), 2),
    "elements that are partly set before": (
        case("O[0] = X[0,0];  O[i] += X[i,k]", X="f64[3,4]"),
        1,
    ),
    "elements that are all set before": (case("O[i] = X[i,0];  O[i] += X[i,k]", X="f64[3,4]"), 0),
    "an argument": (case("f(A: f64[N], X: f64[N,M]) -> A:\n    A[i] += X[i,k]", A="f64[3]", X="f64[3,4]"), 0),
    "a sum over a time loop": (
        case(
            "f(A: f64[N], steps) -> A, s:\n    for t in 0:steps:\n        A[i] = A[i] * 2\n        s[] += A[i]",
            A="f64[4]",
            steps=3,
        ),
        1,
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_reductions_start_at_their_identity_where_nothing_was_defined(name: str) -> None:
    found, count = STARTS[name]
    flat = extract_reductions(found.typed)
    started = start_reductions(flat)
    assert len(list(started.statements())) - len(list(flat.statements())) == count
    assert_means_the_same(found, started)


def _reduction(found: Case) -> tuple[TypedStatement | None, TypedStatement]:
    """Return the reduction of a program of one, and what starts it."""
    statements = list(found.flat.statements())
    at = next(n for n, s in enumerate(statements) if s.op != "set")
    start = statements[at - 1] if at else None
    return (start if starts_fresh(found.flat, start, statements[at]) else None), statements[at]


ACCUMULATED = {
    "a matrix product": PROGRAMS["matmul"],
    "a dot product": PROGRAMS["dot"],
    "a triangle": PROGRAMS["triangle"],
    "a convolution": PROGRAMS["convolution"],
    "onto an argument": case("f(A: f64[N], X: f64[N,M]) -> A:\n    A[i] += X[i,k]", A="f64[3]", X="f64[3,7]"),
    "a maximum": case("M[i] max= X[i,k] * 2", X="i32[3,7]"),
    "a product of one type in another": case("M[i] += X[i,k] * 2", X="f32[3,7]"),
    "over nothing": case("M[i] += X[i,k]", X="f64[3,0]"),
    "in half precision": case("M[i] += X[i,k]", X="f16[3,7]"),
}


@pytest.mark.parametrize("name", ACCUMULATED)
@pytest.mark.parametrize("lanes", [None, 2, 4])
@pytest.mark.parametrize("size", [None, 3])
def test_accumulators_keep_the_meaning(name: str, lanes: int | None, size: int | None) -> None:
    found = ACCUMULATED[name]
    start, statement = _reduction(found)
    start = None if size else start  # blocks are added to a result that another statement has started
    last = statement.reduced[-1]
    fresh = Fresh(found.flat)
    kept = [i for i in statement.iterators if i not in statement.reduced]
    parts = accumulate(
        found.flat,
        fresh,
        statement,
        start=start,
        lanes=PartialSums(last, lanes) if lanes else None,
        layout=AccumulatorLayout((AccumulatorBlock(last, size),) if size else (), kept[0] if kept else None),
    )
    body = [s for s in found.flat.body if s is not start]
    at = body.index(statement)
    program = in_memory(fresh.finish((*body[:at], *parts.statements(), *body[at + 1 :])))
    assert_means_the_same(found, program)


PACKED = {
    "a matrix product": PROGRAMS["matmul"],
    "a transposed operand": case("C[i,j] += A[i,k] * B[j,k]", A="f64[3,4]", B="f64[5,4]"),
    "a padded operand": PROGRAMS["convolution"],
    "a strided operand": case("O[h] += X[2*h+r] * K[r]", X="f64[9]", K="f64[3]"),
    "a triangle": PROGRAMS["triangle"],
    "an offset": case("O[i] += X[i+2,k] for i in 0:3", X="f64[6,4]"),
}


def _each(found: Case):  # type: ignore[no-untyped-def]
    start, statement = _reduction(found)
    reads = dict.fromkeys(e for e in walk(statement.expr) if isinstance(e, Read))
    return start, statement, list(itertools.product(reads, statement.iterators))


@pytest.mark.parametrize("name", PACKED)
def test_packed_operands_keep_the_meaning(name: str) -> None:
    found = PACKED[name]
    _, statement, choices = _each(found)
    tried = 0
    for read, vector in choices:
        if not can_pack(read, vector):
            continue
        fresh = Fresh(found.flat)
        packed = pack_read(found.flat, fresh, statement, read, vector)
        body = found.flat.body
        at = body.index(statement)
        program = fresh.finish((*body[:at], packed.copy, packed.statement, *body[at + 1 :]))
        copied = [e for e in walk(packed.statement.expr) if isinstance(e, Read) and e.tensor == packed.copy.target]
        assert vector in {e.name for e in walk(copied[0].subscripts[-1]) if isinstance(e, IndexExpr)}
        assert_means_the_same(found, program)
        tried += 1
    assert tried >= 2


@pytest.mark.parametrize("vector", [0, 1])
def test_a_packed_result_keeps_the_meaning(vector: int) -> None:
    found = PROGRAMS["matmul"]
    start, statement = _reduction(found)
    assert start is not None
    fresh = Fresh(found.flat)
    packed = pack_result(found.flat, fresh, statement, statement.iterators[vector])
    # The packed result starts at the identity in all of its elements.
    elements = tuple(
        dict(zip(statement.subscripts, start.iterators, strict=True))[s] for s in packed.statement.subscripts
    )
    begin = replace(
        start, target=packed.statement.target, subscripts=tuple(replace(start.subscripts[0], name=c) for c in elements)
    )  # type: ignore[type-var]
    assert_means_the_same(found, fresh.finish((begin, packed.statement, packed.copy)))


@pytest.mark.parametrize(("first", "second"), [("+=", "+="), ("=", "="), ("=", "+="), ("+=", "=")])
def test_a_element_is_started_once_however_many_statements_define_parts_of_its_tensor(first: str, second: str) -> None:
    found = case(f"T[i] {first} A[i];  T[j+2] {second} B[j];  T[k] += C[k]", A="f64[2]", B="f64[2]", C="f64[5]")
    assert_means_the_same(found, found.flat)
