"""The passes over the Kernel IR: which there are, in which order they run for a processor, and why."""

from __future__ import annotations

from collections.abc import Callable

from polyker.codegen.ir.kernel import KernelIR
from polyker.codegen.passes.fold_lanes import merge_folds
from polyker.codegen.passes.parallel_profitability import settle
from polyker.codegen.passes.prefetch_gathers import prefetch_gathers
from polyker.codegen.passes.scalar_replacement import carry
from polyker.codegen.passes.simplify import simplify, unroll
from polyker.codegen.passes.split_lanes import split_lanes
from polyker.codegen.passes.unroll_terms import several_terms
from polyker.codegen.passes.unswitch import unswitch
from polyker.codegen.passes.whole_partial_tiles import fill
from polyker.codegen.passes.x86.balance_ports import balanced, moves
from polyker.codegen.passes.x86.checked_inputs import checked
from polyker.codegen.passes.x86.masked_terms import masked_terms
from polyker.codegen.passes.x86.pair_extrema import paired_extrema
from polyker.codegen.passes.x86.several_checks import several_checks
from polyker.pipeline.passes import At, KernelPass, Pass, PassLevel


def kernel_pass(
    name: str,
    run: Callable[[KernelIR, At], KernelIR],
    after: tuple[str, ...] = (),
    why: str = "",
    *,
    machine: bool = False,
) -> KernelPass:
    """Return a pass over the Kernel IR; fields as of `Pass`."""
    return Pass(name, run, PassLevel.KERNEL, after, why, machine)


SPLIT_LANES = kernel_pass(
    "split_lanes",
    lambda k, at: split_lanes(k, at.target),
    why="vector loops of a user's schedule may have any number of lanes",
    machine=True,
)
UNSWITCH = kernel_pass(
    "unswitch",
    lambda k, _: unswitch(k),
    why="a loop that runs nowhere but under a condition is guarded once, as a whole",
)
WHOLE_PARTIAL_TILES = kernel_pass(
    "whole_partial_tiles",
    lambda k, at: fill(k, at.target.vector_registers),
    ("unswitch",),
    "tiles are found as the loops that unrolling removes",
    machine=True,
)
UNROLL = kernel_pass(
    "unroll", lambda k, _: unroll(k, tiles=False), ("whole_partial_tiles",), "a whole tile needs no guards"
)
UNROLL_ALL = kernel_pass("unroll", lambda k, _: unroll(k))
FOLD_LANES = kernel_pass(
    "fold_lanes", lambda k, _: merge_folds(k), ("unroll",), "the folds into one element stand side by side then"
)
SCALAR_REPLACEMENT = kernel_pass(
    "scalar_replacement",
    lambda k, _: carry(k),
    ("unroll",),
    "neighbouring iterations read the same elements once unrolled",
)
PREFETCH_GATHERS = kernel_pass(
    "prefetch_gathers",
    lambda k, at: prefetch_gathers(k, at.target),
    ("scalar_replacement",),
    "what is kept in registers is not fetched",
    machine=True,
)
PARALLEL_PROFITABILITY = kernel_pass(
    "parallel_profitability", lambda k, _: settle(k), ("fold_lanes",), "work is counted as it is done"
)
SIMPLIFY = kernel_pass(
    "simplify", lambda k, _: simplify(k), ("scalar_replacement",), "elements that are kept have constant places"
)
CHECK_INPUTS = kernel_pass(
    "check_inputs",
    lambda k, at: checked(k, at.target),
    ("parallel_profitability",),
    "it is worth it of what is read often",
    machine=True,
)
PAIR_EXTREMA = kernel_pass(
    "pair_extrema",
    lambda k, at: paired_extrema(k, at.target),
    ("check_inputs",),
    "terms that cannot be NaN need no test",
    machine=True,
)
SEVERAL_TERMS = kernel_pass(
    "several_terms", lambda k, at: several_terms(k, at.target), ("pair_extrema",), "pairs are terms", machine=True
)
UNROLL_TILES = kernel_pass(
    "unroll_tiles",
    lambda k, at: unroll(k, tiles=moves(k, at.target)),
    ("several_terms",),
    "the copies of a tile differ where ports are balanced",
    machine=True,
)
SEVERAL_CHECKS = kernel_pass(
    "several_checks",
    lambda k, _: several_checks(k),
    ("unroll_tiles",),
    "places that are checked together stand side by side",
)
BALANCE_PORTS = kernel_pass(
    "balance_ports",
    lambda k, at: balanced(k, at.target),
    ("unroll_tiles",),
    "each copy's operations are counted",
    machine=True,
)
MASK_TERMS = kernel_pass(
    "mask_terms",
    lambda k, at: masked_terms(k, at.target),
    ("balance_ports",),
    "what is balanced is no plain extremum",
    machine=True,
)

# To the kernel whose work is counted, and which the run time knows; then to the one that is printed as LLVM IR.
CPU: tuple[KernelPass, ...] = (
    SPLIT_LANES,
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
