"""The passes over the Kernel IR: which there are, in which order they run for a processor and for a GPU, and why."""

from __future__ import annotations

from collections.abc import Callable

from polyker.codegen.ir.kernel import KernelIR
from polyker.codegen.passes.fold_lanes import merge_folds
from polyker.codegen.passes.gpu.combine import write_out
from polyker.codegen.passes.gpu.launch import launches
from polyker.codegen.passes.gpu.vectors import widen
from polyker.codegen.passes.parallel_profitability import settle
from polyker.codegen.passes.prefetch_gathers import prefetch_gathers
from polyker.codegen.passes.scalar_replacement import carry
from polyker.codegen.passes.simplify import simplify, unroll
from polyker.codegen.passes.unroll_terms import several_terms
from polyker.codegen.passes.unswitch import unswitch
from polyker.codegen.passes.whole_partial_tiles import fill
from polyker.codegen.passes.x86.balance_ports import balanced, moves
from polyker.codegen.passes.x86.checked_inputs import checked
from polyker.codegen.passes.x86.masked_terms import masked_terms
from polyker.codegen.passes.x86.pair_extrema import paired_extrema
from polyker.codegen.passes.x86.several_checks import several_checks
from polyker.pipeline.passes import At, KernelPass, Pass, PassLevel


def _pass(
    name: str,
    run: Callable[[KernelIR, At], KernelIR],
    after: tuple[str, ...] = (),
    why: str = "",
    *,
    machine: bool = False,
) -> KernelPass:
    return Pass(name, run, PassLevel.KERNEL, after, why, machine)


UNSWITCH = _pass(
    "unswitch",
    lambda k, _: unswitch(k),
    why="a loop that runs nowhere but under a condition is guarded once, as a whole",
)
WHOLE_PARTIAL_TILES = _pass(
    "whole_partial_tiles",
    lambda k, at: fill(k, at.target.vector_registers),
    ("unswitch",),
    "tiles are found as the loops that unrolling removes",
    machine=True,
)
UNROLL = _pass("unroll", lambda k, _: unroll(k, tiles=False), ("whole_partial_tiles",), "a whole tile needs no guards")
UNROLL_ALL = _pass("unroll", lambda k, _: unroll(k))
FOLD_LANES = _pass(
    "fold_lanes", lambda k, _: merge_folds(k), ("unroll",), "the folds into one element stand side by side then"
)
SCALAR_REPLACEMENT = _pass(
    "scalar_replacement",
    lambda k, _: carry(k),
    ("unroll",),
    "neighbouring iterations read the same elements once unrolled",
)
PREFETCH_GATHERS = _pass(
    "prefetch_gathers",
    lambda k, at: prefetch_gathers(k, at.target),
    ("scalar_replacement",),
    "what is kept in registers is not fetched",
    machine=True,
)
PARALLEL_PROFITABILITY = _pass(
    "parallel_profitability", lambda k, _: settle(k), ("fold_lanes",), "work is counted as it is done"
)
SIMPLIFY = _pass(
    "simplify", lambda k, _: simplify(k), ("scalar_replacement",), "elements that are kept have constant places"
)
LAUNCHES = _pass("launches", lambda k, _: launches(k), ("simplify",), "numbers of blocks are expressions of sizes")
COMBINE = _pass("combine", lambda k, _: write_out(k), ("launches",), "how many threads combine is the launch's to say")
WIDE_ACCESSES = _pass(
    "wide_accesses", lambda k, _: widen(k), ("combine",), "what threads combine is stored by one of them"
)

CHECK_INPUTS = _pass(
    "check_inputs",
    lambda k, at: checked(k, at.target),
    ("parallel_profitability",),
    "it is worth it of what is read often",
    machine=True,
)
PAIR_EXTREMA = _pass(
    "pair_extrema",
    lambda k, at: paired_extrema(k, at.target),
    ("check_inputs",),
    "terms that cannot be NaN need no test",
    machine=True,
)
SEVERAL_TERMS = _pass(
    "several_terms", lambda k, at: several_terms(k, at.target), ("pair_extrema",), "pairs are terms", machine=True
)
UNROLL_TILES = _pass(
    "unroll_tiles",
    lambda k, at: unroll(k, tiles=moves(k, at.target)),
    ("several_terms",),
    "the copies of a tile differ where ports are balanced",
    machine=True,
)
SEVERAL_CHECKS = _pass(
    "several_checks",
    lambda k, _: several_checks(k),
    ("unroll_tiles",),
    "places that are checked together stand side by side",
)
BALANCE_PORTS = _pass(
    "balance_ports",
    lambda k, at: balanced(k, at.target),
    ("unroll_tiles",),
    "each copy's operations are counted",
    machine=True,
)
MASK_TERMS = _pass(
    "mask_terms",
    lambda k, at: masked_terms(k, at.target),
    ("balance_ports",),
    "what is balanced is no plain extremum",
    machine=True,
)

# To the kernel whose work is counted, and which the run time knows; then to the one that is printed as LLVM IR.
CPU: tuple[KernelPass, ...] = (
    UNSWITCH,
    WHOLE_PARTIAL_TILES,
    UNROLL,
    FOLD_LANES,
    SCALAR_REPLACEMENT,
    PREFETCH_GATHERS,
    PARALLEL_PROFITABILITY,
)
MACHINE: tuple[KernelPass, ...] = (
    CHECK_INPUTS,
    PAIR_EXTREMA,
    SEVERAL_TERMS,
    UNROLL_TILES,
    SEVERAL_CHECKS,
    BALANCE_PORTS,
    MASK_TERMS,
)
GPU: tuple[KernelPass, ...] = (UNROLL_ALL, SCALAR_REPLACEMENT, SIMPLIFY, LAUNCHES, COMBINE, WIDE_ACCESSES)
