"""Terms side by side: whichever factor is shifted, stored or joined in place, the sums stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from polyker.ir.dtypes import i8, i16, u8
from polyker.ir.expr import Call
from polyker.ir.instructions import INSTRUCTIONS
from polyker.ir.typed import TypedProgram
from polyker.poly.scop import build_scop
from polyker.reference import interpret
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.reductions.dot_products import Factor, Groups, in_groups
from polyker.schedule.nests.text_order import default_schedule
from tests.schedule.support import Case, case, run

WAYS = {
    "pairs": (i16, 0, i16),
    "first shifted": (u8, 128, i8),
}


def programs(count: int) -> dict[str, Case]:
    """Programs whose reduced index has so many values."""
    return {
        "matrices": case("C[i,j] += i32(A[i,k]) * i32(B[k,j])", A=f"i8[3,{count}]", B=f"i8[{count},4]"),
        "vector": case("C[i] += i32(A[i,k]) * i32(B[k])", A=f"i8[3,{count}]", B=f"i8[{count}]"),
        "window": case("C[f,i] += i32(A[f,i+k]) * i32(B[f,k])", A=f"i8[2,{count + 4}]", B=f"i8[2,{count}]"),
        "window of truths": case(
            "C[f,i] += i32(A[f,i+k]) * i32(B[f,k])", A=f"bool[2,{count + 4}]", B=f"bool[2,{count}]"
        ),
        "sum": case("s += i32(A[k]) * i32(B[k])", A=f"i8[{count}]", B=f"i8[{count}]"),
        "added": case(
            "f(A: i8[3,K], B: i8[K], C: i32[3]) -> C:\n    C[i] += i32(A[i,k]) * i32(B[k])",
            A=f"i8[3,{count}]", B=f"i8[{count}]", C="i32[3]",
        ),
        "wide": case("C[i] += i64(A[i,k]) * i64(B[k])", A=f"i8[3,{count}]", B=f"i8[{count}]"),
    }  # fmt: skip


def grouped(program: TypedProgram, kind: str, here: tuple[bool, bool], *, swap: bool) -> TypedProgram | None:
    """Return a program with the terms of its reduction side by side."""
    *before, statement = program.body
    assert isinstance(statement.expr, Call)
    x, y = statement.expr.args[::-1] if swap else statement.expr.args
    first, shift, second = WAYS[kind]
    factors = (Factor(x, first, shift, here[0]), Factor(y, second, 0, here[1]))
    instruction = next(r for r in INSTRUCTIONS if (r.left, r.right) == (first, second))
    start = before[-1] if before else None
    fresh = Fresh(program)
    made = in_groups(program, fresh, statement, start, Groups(instruction, statement.reduced[-1], factors))
    return None if made is None else fresh.finish(tuple(made))


@pytest.mark.parametrize("count", [1, 3, 4, 6, 9])
@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("name", programs(1))
def test_sums_are_the_same_whatever_is_shifted_and_wherever_the_terms_lie(name, kind, count):
    given = programs(count)[name]
    rng = np.random.default_rng(count)
    arrays = {n: rng.choice([-128, -127, -1, 0, 5, 127], a.shape).astype(a.dtype) for n, a in given.arrays().items()}
    wanted = interpret(given.program, arrays, given.sizes)
    done = 0
    for swap in (False, True):
        for here in ((False, False), (True, False), (False, True), (True, True)):
            if name.startswith("window") and any(here):
                continue  # windows overlap: they are no groups
            program = grouped(given.flat, kind, here, swap=swap)
            if program is None:
                assert any(here)
                assert count < 4  # there is no whole group
                continue
            found = run(build_scop(program), default_schedule(program), arrays)
            np.testing.assert_array_equal(found[0], wanted[0])
            done += 1
    assert done


def test_terms_that_differ_from_result_to_result_are_left_as_they_are():
    given = case("C[i] += i32(A[i,k]) * i32(B[k]) where k <= i", A="i8[5,5]", B="i8[5]")
    assert grouped(given.flat, "pairs", (False, False), swap=False) is None


def test_windows_on_both_sides_need_whole_groups():
    texts = {n: case(f"C[i,j] += i32(A[i+k]) * i32(B[j+k])  for k in 0:{n}", A="i8[9]", B="i8[8]") for n in (4, 5)}
    assert grouped(texts[4].flat, "pairs", (False, False), swap=False) is not None
    assert grouped(texts[5].flat, "pairs", (False, False), swap=False) is None
