"""Each error of the interpreter, provoked once, by a program that the parser lets through."""

import numpy as np
import pytest

from polyker.einsum_frontend import parse
from polyker.errors import CATALOGUE, PolykerError
from polyker.errors import reference as codes
from polyker.ir.expr import IndexExpr
from polyker.reference import interpret
from polyker.structs import replace
from tests.reference.test_examples import coded, run

SCATTER = "H[idx[i]] += w[i]"
CASES = {
    codes.NO_RANGE: ("O[i] += A[i+j]", {"A": coded(4)}),
    codes.DISAGREE: ("O[i] = A[i] * B[i]", {"A": coded(4), "B": coded(3)}),
    codes.OUTSIDE: ("O[i] = A[i] * A[i-1] for i in 0:4", {"A": coded(4)}),
    codes.UNWRITTEN_READ: ("O[i] = O[i-1] + A[i] for i in 1:4; O[0] = 1", {"A": coded(4)}),
    codes.WRITTEN_TWICE: ("O[i//2] = A[i]", {"A": coded(4)}),
    codes.NEVER_WRITTEN: ("O[2*i] = A[i]", {"A": coded(4)}),
    codes.GATHERED: ("O[i] = A[b[i]]", {"A": coded(4), "b": np.array([-1])}),
    codes.RANK: ("O[i] = A[i]", {"A": coded(4, 2)}),
    codes.SIZE: ("f(A: f64[N,N]) -> O:\n    O[i] += A[i,j]\n", {"A": coded(4, 2)}),
    codes.MISSING: ("O[i] = A[i] for i in 0:N", {"A": coded(4)}),
    codes.BROADCAST: ("O[...] = A[...] * B[...]", {"A": coded(4), "B": coded(3)}),
    codes.NOTHING: ("O[i] = argmin[k](A[i,k])", {"A": coded(4, 0)}),
    codes.UNDECLARED: (SCATTER, {"idx": np.arange(3), "w": coded(3)}),
    codes.OPERANDS: ("O[i] = floor(A[i])", {"A": coded(4, dtype="c8")}),
    codes.LITERAL: ("O[i] = A[i] * 256", {"A": coded(4, dtype="u1")}),
    codes.ARGUMENT: ("f(A: f32[N]) -> O:\n    O[i] = A[i]\n", {"A": coded(4)}),
    codes.EMPTY_PAD: ("O[i] = A[i; pad=edge] for i in 0:3", {"A": coded(0)}),
    codes.NOT_INTEGER: ("O[i] = A[B[i]]", {"A": coded(4), "B": coded(4)}),
    codes.NARROWER: ("f(A: i32[N]) -> A:\n    A[i] = A[i] / 2\n", {"A": np.arange(3, dtype="i4")}),
    codes.NEGATIVE_POWER: ("O[i] = A[i] ** B[i]", {"A": np.array([2]), "B": np.array([-1])}),
}


@pytest.mark.parametrize("code", CASES)
def test_each_error_has_its_code(code):
    text, arrays = CASES[code]
    with pytest.raises(PolykerError) as raised:
        run(text, **arrays)
    assert raised.value.code == code


def test_ranges_that_depend_on_each_other_are_refused():
    # The parser refuses them too, so the program is made by hand.
    program = parse("O[i,j] = X[i] for i in 0:3, j in 0:3")
    (statement,) = program.body
    i, j = statement.ranges
    cyclic = replace(statement, ranges=(replace(i, hi=IndexExpr("j")), replace(j, hi=IndexExpr("i"))))
    with pytest.raises(PolykerError, match=codes.CYCLIC):
        interpret(replace(program, body=(cyclic,)), {"X": coded(4)})


def test_every_code_is_tried():
    assert {c for c in CATALOGUE if c.startswith("PK8")} == {*CASES, codes.CYCLIC}
