"""Kernels that break a rule are refused; the error names the node and the rule."""

import pytest

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    Convert,
    For,
    Guard,
    If,
    KernelIR,
    Launch,
    Let,
    Load,
    LoopKind,
    Op,
    Space,
    Store,
    Var,
)
from polyker.codegen.ir.verify import verify
from polyker.errors import InternalError
from polyker.ir.dtypes import bool_, c64, f32, i32, i64, u8
from tests.codegen.support import C, V, index, vector_buffer

A, B = vector_buffer("A", f32, writable=False), vector_buffer("B", f32)
ONE = Const(1.0, f32)
TRUE = Const(True, bool_)
TILE = Buffer("S", f32, (C(4),), (C(1),), Space.STACK)


def kernel(*body, buffers=(A, B), integers=("N",), fastmath=()):
    return KernelIR("k", buffers, integers, tuple(body), fastmath)


def loop(*body, **options):
    return For("i", C(0), V("N"), tuple(body), **options)


def vector(*body, name="v", **options):
    return For(name, C(0), V("N"), tuple(body), kind=LoopKind.VECTOR, **{"lanes": 8, **options})


STORE = Store("B", (V("i"),), Load("A", (V("i"),), f32))


def test_a_sound_kernel_passes():
    verify(
        kernel(
            loop(STORE, Let("t", V("i")), If(TRUE, (Guard(TRUE, 3),))), Allocate((TILE,), (Store("S", (C(0),), ONE),))
        )
    )


BAD = {
    "an allocated buffer is read and never written": kernel(
        Launch(
            "k0", (C(1), C(1), C(1)), (1, 1, 1), (Allocate((TILE,), (Store("B", (C(0),), Load("S", (C(0),), f32)),)),)
        )
    ),
    "no variable 'j' is bound": kernel(loop(Store("B", (V("j"),), ONE))),
    "no variable 'i' is bound": kernel(loop(), STORE),
    "no variable 't' is bound": kernel(If(TRUE, (Let("t", C(1)),)), Guard(Op("lt", (V("t"), C(2)), bool_), 1)),
    "the name 'N' is bound already": kernel(For("N", C(0), C(3), ())),
    "the name 'A' is bound already": kernel(Let("A", C(0))),
    "the name 'i' is bound already": kernel(loop(loop())),
    "the name is bound already": kernel(buffers=(A, A)),
    "'N' is of type i64": kernel(Let("t", Var("N", f32))),
    "store to the read-only buffer 'A'": kernel(loop(Store("A", (V("i"),), ONE))),
    "no buffer 'Q' is alive": kernel(loop(Store("Q", (V("i"),), ONE))),
    "no buffer 'S' is alive": kernel(Allocate((TILE,), ()), Store("S", (C(0),), ONE)),
    "2 indices for 1 dimensions": kernel(loop(Store("B", (V("i"), V("i")), ONE))),
    "f32 where i64 is needed": kernel(Store("B", (ONE,), ONE)),
    "i64 where f32 is needed": kernel(loop(Store("B", (V("i"),), V("i")))),
    "a load of f32 from a buffer of i32": kernel(
        loop(Store("B", (V("i"),), Load("I", (V("i"),), f32))), buffers=(B, vector_buffer("I", i32))
    ),
    "`other` without a predicate": kernel(loop(Store("B", (V("i"),), Load("A", (V("i"),), f32, None, ONE)))),
    "i64 where bool is needed": kernel(If(C(1), ())),
    "a Guard's code is not 0": kernel(Guard(TRUE, 0)),
    "the step is a positive constant": kernel(For("i", C(0), C(3), (), step=0)),
    "the trip count is not negative": kernel(loop(trip=-1)),
    "lanes are needed": kernel(vector(lanes=0)),
    "more iterations than lanes": kernel(vector(trip=9)),
    "a VECTOR loop has step 1": kernel(vector(step=2)),
    "a VECTOR loop in a VECTOR loop": kernel(vector(loop(vector(name="w")))),
    "a STACK buffer has a constant positive shape": kernel(
        Allocate((Buffer("S", f32, (V("N"),), (C(1),), Space.STACK),), ())
    ),
    "a STACK buffer is allocated in the body": kernel(buffers=(TILE,)),
    "only STACK buffers are allocated": kernel(Allocate((vector_buffer("S", f32),), ())),
    "a STACK buffer is writable": kernel(Allocate((Buffer("S", f32, (C(4),), (C(1),), Space.STACK, False),), ())),
    "one stride a dimension": kernel(buffers=(Buffer("A", f32, (C(4),), (), Space.ARGUMENT),)),
    "unknown operation 'frob'": kernel(Let("t", Op("frob", (C(1),), i64))),
    "1 arguments for 'sub'": kernel(Let("t", Op("sub", (C(1),), i64))),
    "1 arguments for 'maximum'": kernel(Let("t", Op("maximum", (C(1),), i64))),
    "arguments of types": kernel(Let("t", Op("add", (C(1), ONE), i64))),
    "a comparison gives a bool": kernel(Let("t", Op("lt", (C(1), C(2)), i64))),
    "add of i64 is i64, not f32": kernel(Let("t", Op("add", (C(1), C(2)), f32))),
    "abs of c64 is f32": kernel(Let("t", Op("abs", (Const(1j, c64),), c64))),
    "where's condition is a bool": kernel(Let("t", Op("where", (C(1), C(2), C(3)), i64))),
    "and takes bools": kernel(Let("t", Op("and", (C(1), C(1)), i64))),
    "floordiv takes no complex": kernel(Let("t", Op("floordiv", (Const(1j, c64), Const(1j, c64)), c64))),
    "neg takes no bools": kernel(Let("t", Op("neg", (TRUE,), bool_))),
    "exp takes floats": kernel(Let("t", Op("exp", (C(1),), i64))),
    "div takes floats": kernel(Let("t", Op("div", (C(1), C(2)), i64))),
    "300 is no u8": kernel(Let("t", Const(300, u8))),
    "1.5 is no i64": kernel(Let("t", Const(1.5))),
    "unknown fast-math flags": kernel(fastmath=("quick",)),
    "is no f32": kernel(Let("t", Convert(Const(1j, f32), i64))),
    "not a statement": kernel("store"),
    "not an expression": kernel(Let("t", 5)),
}


@pytest.mark.parametrize("message", BAD)
def test_a_broken_rule_is_named(message):
    with pytest.raises(InternalError) as caught:
        verify(BAD[message])
    assert message in str(caught.value)


def test_the_operations_of_an_index_are_checked_in_a_stride_too():
    buffer = Buffer("Q", f32, (C(4),), (index("add", "M", 1),), Space.ARGUMENT)
    with pytest.raises(InternalError, match="no variable 'M'"):
        verify(kernel(buffers=(buffer,)))
