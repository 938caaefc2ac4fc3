"""Loops inside vector loops: lanes whose ranges differ run in step, so that what they share is theirs in turn."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import Const, For, If, KernelIR, LoopKind, Op, Var
from polyker.codegen.passes.uniform_inner_loops import uniform_inner_loops
from polyker.poly.isl import isl_job
from polyker.poly.scop import build_scop
from polyker.schedule.tree.to_isl import to_isl
from tests.artifacts import state_of

ROWS = "op(N: f32[{n}]) -> O:\n    O *= N[l] where l >= 1"


@pytest.mark.parametrize("n", [2, 5, 12, 13])
@pytest.mark.parametrize("interpret", [False, True])
def test_lanes_take_turns_in_a_element_that_they_share(
    n: int, interpret: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if interpret:
        monkeypatch.setenv("POLYKER_INTERPRET", "1")
    op = pk.op(ROWS.format(n=n))
    s = op.schedule(pk.f32[n], auto=False)
    s = s["O"].promote("O", at="l")
    s = s["O.start#2"].tile(l=4)
    try:
        s = s["O"].vectorise({"l.tile": 3})
    except pk.PolykerError as error:
        # With more than one lane at work in an iteration the element is not theirs in turn.
        assert "PK501" in str(error) or "PK503" in str(error)
        assert n > 5
        return
    N = np.arange(2, 2 + n, dtype="f4") / 4
    assert op.compile(pk.f32[n], schedule=s)(N) == pytest.approx(np.prod(N[1:].astype("f8")), rel=1e-6)


def test_a_loop_begins_where_the_first_lane_does() -> None:
    inner = For("k", Var("l"), Const(9), (), 2)
    kernel = KernelIR("kernel", (), (), (For("l", Const(3), Const(7), (inner,), kind=LoopKind.VECTOR, lanes=4),))
    (outer,) = uniform_inner_loops(kernel).body
    assert isinstance(outer, For)
    (loop,) = outer.body
    assert isinstance(loop, For)
    assert (loop.step, loop.kind) == (1, LoopKind.SERIAL)
    assert isinstance(loop.lo, Op)
    assert loop.lo.op == "minimum"
    assert isinstance(loop.body[0], If)


def test_other_loops_stay_as_they_are() -> None:
    inner = For("k", Const(0), Var("l"), ())
    kernel = KernelIR("kernel", (), (), (For("l", Const(0), Const(4), (inner,), kind=LoopKind.VECTOR, lanes=4),))
    assert uniform_inner_loops(kernel) == kernel


def test_lanes_that_come_to_a_loop_once_at_their_own_times_share_no_element_there() -> None:
    # isl makes no loop of x0, which is 3w + d + 1: all lanes would write their row of B to the one element B.packed.
    op = pk.op("G[w,d,l] = conj(B[w,d,3*w+d+1]) for l in 0:9")
    s = op.schedule(pk.c64[2, 2, 6], auto=False)
    s = s["G"].interchange("l", "w", "d")
    s = s["G"].promote("B", at="w").fuse("B.packed", "G", depth=1)
    s = s["B.packed"].promote("B", at="x0", memory="stack")
    with pytest.raises(pk.PolykerError, match=r"PK50\d"):
        s["G"].vectorise(w=4)


def test_isl_takes_no_iteration_out_of_a_loop_in_step() -> None:
    # One element holds B for the one lane that is there at a time k; were k == l taken out of the loop, four lanes would meet in
    # it.
    op = pk.op(
        "G[l] += conj(B[l,k]) where l <= 4 - 3*(k//6) and l >= k//6 and k % 6 <= l + 6*(k//6) and k % 6 >= l - 6*(k//6)"
    )
    s = op.schedule(pk.c64[4, 12], auto=False)
    s = s["G"].interchange("l", "k")
    s = s["G"].promote("B", at="k")
    s = s["G"].vectorise(l=4)
    with isl_job("generation"):
        tree, _ = to_isl(build_scop(state_of(s).raw), state_of(s).schedule)
        assert "atomic" in str(tree)
    kernel = op.compile(pk.c64[4, 12], schedule=s)
    B = (np.arange(48).reshape(4, 12) * (1 + 2j)).astype("c8")
    expected = [sum(B[row, k].conj() for k in range(12) if (k == row if k < 6 else row == 1)) for row in range(4)]
    assert kernel(B) == pytest.approx(expected, rel=1e-6)
