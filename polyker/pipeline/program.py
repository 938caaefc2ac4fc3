"""The passes over the typed program: which there are, in which order they run for a processor and for a GPU, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from polyker.codegen.argument_layout import argument_names
from polyker.ir.decision import Decision
from polyker.ir.typed import TypedProgram
from polyker.pipeline.passes import At, Made, Pass, PassLevel, ProgramPass
from polyker.rewrite.indexing.affine_parts import affine_parts
from polyker.rewrite.indexing.collapse_dims import merge_dimensions
from polyker.rewrite.indexing.copy_padded import pad_computed
from polyker.rewrite.indexing.diagonals import number_diagonals
from polyker.rewrite.indexing.halve_symmetric import halve_symmetric
from polyker.rewrite.indexing.split_first_elements import part_first_elements
from polyker.rewrite.indexing.split_quotients import split_quotients
from polyker.rewrite.indexing.transpose_recurrences import transpose_recurrences
from polyker.rewrite.indexing.unroll_short_rows import sum_short_rows, unroll_short_rows
from polyker.rewrite.materialise.convert_once import convert_once
from polyker.rewrite.materialise.unfold_windows import unfold_windows
from polyker.rewrite.normalise.algebra import square_products
from polyker.rewrite.normalise.argument_order import in_own_order
from polyker.rewrite.normalise.bool_to_u8 import count_truths
from polyker.rewrite.normalise.drop_unit_dims import fix_single_values
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.rewrite.normalise.first_step import with_first_steps
from polyker.rewrite.normalise.hoist_from_reductions import sink_operators
from polyker.rewrite.normalise.narrow_indices import narrow_indices
from polyker.rewrite.normalise.set_single_terms import set_single_terms
from polyker.rewrite.normalise.start_reductions import start_reductions
from polyker.rewrite.normalise.widen_reductions import widen_reductions
from polyker.rewrite.reductions.choose_dot_products import sum_by_dots
from polyker.rewrite.reductions.choose_gather_form import gather_where_cheaper
from polyker.rewrite.reductions.contraction_order import contract
from polyker.rewrite.reductions.online_pairs import one_pass
from polyker.rewrite.reductions.prefix_reductions import running_reductions
from polyker.rewrite.reductions.short_sums import unfold_padded
from polyker.rewrite.reductions.transposed_sum import sum_crossing
from polyker.rewrite.searches.search_blocks import search_blocks
from polyker.rewrite.searches.search_limits import search_limits
from polyker.rewrite.sharing.compute_once import compute_once
from polyker.rewrite.sharing.inline_values import inline_values, inlined_values
from polyker.rewrite.sharing.share_results import share_results
from polyker.rewrite.sharing.store_shared_values import share_values
from polyker.rewrite.time.delayed_updates import late_updates
from polyker.rewrite.time.double_buffer import alternate_buffers
from polyker.rewrite.time.hoisted_sums import early_sums
from polyker.rewrite.time.make_time_loops import time_loops
from polyker.rewrite.time.split_steps import part_steps


def _argument_order(program: TypedProgram, at: At) -> TypedProgram:
    return in_own_order(program, argument_names(program), at.given)


def _contract(program: TypedProgram, at: At) -> Made[TypedProgram]:
    found = contract(program, at.target, at.layout, large=at.large, budget=at.scratch_bytes)
    return _held((found.program, found.large), at), found.notes


def _held(found: tuple[TypedProgram, Iterable[str]], at: At) -> TypedProgram:
    at.held.clear()
    at.held.update(found[1])
    return found[0]


def _store_shared_values(program: TypedProgram, at: At) -> Made[TypedProgram]:
    found, count, held = share_values(program)
    chosen = f"{count} values of more than one statement are computed once"
    return _held((found, held), at), (Decision("", chosen),) if count else ()


def _searches(program: TypedProgram, at: At) -> Made[TypedProgram]:
    limited, found = search_limits(program)
    return search_blocks(limited, found, at.target, at.layout, at.scratch_bytes)


def _dot_products(program: TypedProgram, at: At) -> Made[TypedProgram]:
    found, made = sum_by_dots(program, at.target, at.layout, at.scratch_bytes)
    # Operands that are arranged for dot products may be computed where they are read.
    return (inline_values(found) if made else found), made


def _pass(
    name: str,
    run: Callable[[TypedProgram, At], Made[TypedProgram]],
    after: tuple[str, ...] = (),
    why: str = "",
    *,
    machine: bool = False,
    keeps_loops: bool = True,
) -> ProgramPass:
    return Pass(name, run, PassLevel.PROGRAM, after, why, machine, keeps_loops)  # fmt: skip


ARGUMENT_ORDER = _pass("argument_order", _argument_order, why="strides are those of memory for all passes that follow")
TRANSPOSE_RECURRENCES = _pass(
    "transpose_recurrences",
    lambda p, at: transpose_recurrences(p, at.layout, at.scratch_bytes),
    ("argument_order",),
    "which dimension memory is contiguous along has to be known",
    machine=True,
)
EXTRACT_REDUCTIONS = _pass(
    "extract_reductions",
    lambda p, _: extract_reductions(p),
    why="every other pass expects reductions to be statements",
)
COMPUTE_ONCE = _pass(
    "compute_once",
    lambda p, at: compute_once(p, at.target, at.layout, budget=at.scratch_bytes),
    ("extract_reductions",),
    "what an inline reduction is taken of may be computed once for many instances",
    machine=True,
)
CONTRACTION_ORDER = _pass(
    "contraction_order",
    _contract,
    ("compute_once",),
    "products of reductions have their operands as tensors by then",
    machine=True,
)
START_REDUCTIONS = _pass(
    "start_reductions",
    lambda p, _: start_reductions(p),
    ("contraction_order", "extract_reductions"),
    "the steps of a sum are reductions that start, too",
)
PREFIX_REDUCTIONS = _pass(
    "prefix_reductions",
    lambda p, _: running_reductions(p),
    ("start_reductions",),
    "a recurrence has a start of its own",
)
SET_SINGLE_TERMS = _pass(
    "set_single_terms",
    lambda p, _: set_single_terms(p),
    ("start_reductions",),
    "the start is set together with the term",
)
UNFOLD_PADDED = _pass(
    "unfold_padded_sums", lambda p, _: unfold_padded(p), ("start_reductions",), "the start is the first value of a sum"
)
GATHER_FORM = _pass(
    "gather_form",
    lambda p, at: gather_where_cheaper(p, at.target, at.layout),
    ("start_reductions",),
    "each element is then computed with its start",
    machine=True,
)
HOIST_FROM_REDUCTIONS = _pass(
    "hoist_from_reductions",
    lambda p, at: sink_operators(p, reassociating=at.reassociating),
    ("start_reductions",),
    "what is hoisted is applied to the result of the last term",
)
SHARE_RESULTS = _pass(
    "share_results",
    lambda p, _: share_results(p),
    ("hoist_from_reductions", "set_single_terms"),
    "reductions of the same terms are alike only when what is around their terms has been hoisted",
)
ONLINE_PAIRS = _pass(
    "online_pairs",
    lambda p, at: one_pass(p, at.target),
    ("share_results",),
    "a maximum that is computed twice is no pair",
    machine=True,
)
COPY_PADDED = _pass(
    "copy_padded",
    lambda p, at: pad_computed(p, at.layout),
    ("online_pairs",),
    "what is copied has to be what is read at last",
    machine=True,
)
WIDEN_REDUCTIONS = _pass(
    "widen_reductions",
    lambda p, _: widen_reductions(p),
    ("start_reductions",),
    "the wider accumulator starts at the identity of its type",
)
BOOL_TO_U8 = _pass(
    "bool_to_u8", lambda p, _: count_truths(p), ("start_reductions",), "the start is a byte as the result is"
)
INLINE_VALUES = _pass(
    "inline_values",
    lambda p, _: inlined_values(p),
    ("share_results", "widen_reductions", "bool_to_u8"),
    "what is shared or accumulated in a wider type is stored",
)
DROP_UNIT_DIMS = _pass(
    "drop_unit_dims",
    lambda p, _: fix_single_values(p),
    ("inline_values",),
    "an inlined value may have brought such an index",
)
UNFOLD_WINDOWS = _pass(
    "unfold_windows",
    lambda p, at: unfold_windows(p, at.target),
    ("drop_unit_dims",),
    "a window of one element is none",
    machine=True,
)
ALGEBRA = _pass("algebra", lambda p, _: square_products(p), why="costs count an operation once", keeps_loops=False)
SPLIT_FIRST_ELEMENTS = _pass(
    "split_first_elements",
    lambda p, _: part_first_elements(p),
    ("inline_values",),
    "padding of inlined values is tested in the recurrence",
    keeps_loops=False,
)
AFFINE_PARTS = _pass(
    "affine_parts",
    lambda p, _: affine_parts(p),
    ("split_first_elements",),
    "the first elements are a part by themselves",
    keeps_loops=False,
)
SPLIT_QUOTIENTS = _pass(
    "split_quotients",
    lambda p, _: split_quotients(p),
    ("affine_parts",),
    "a remainder that never wraps is none",
    keeps_loops=False,
)
DIAGONALS = _pass(
    "diagonals", lambda p, _: number_diagonals(p), ("affine_parts",), "a part may be a band", keeps_loops=False
)
COLLAPSE_DIMS = _pass(
    "collapse_dims",
    lambda p, at: merge_dimensions(p, lambda tensor: at.layout(tensor).dense),
    ("split_quotients", "diagonals", "unfold_windows"),
    "a quotient and its remainder that are walked together become one again",
    keeps_loops=False,
)
SUM_SHORT_ROWS = _pass(
    "sum_short_rows",
    lambda p, at: sum_short_rows(p, at.layout),
    ("collapse_dims",),
    "a collapsed row may be long",
    keeps_loops=False,
)
HALVE_SYMMETRIC = _pass(
    "halve_symmetric",
    lambda p, _: halve_symmetric(p),
    ("sum_short_rows",),
    "symmetry is between whole sums",
    keeps_loops=False,
)
TRANSPOSED_SUM = _pass(
    "transposed_sum",
    lambda p, at: sum_crossing(p, at.layout),
    ("halve_symmetric",),
    "a half has no crossing operands",
    keeps_loops=False,
)
UNROLL_SHORT_ROWS = _pass(
    "unroll_short_rows",
    lambda p, at: unroll_short_rows(p, at.layout),
    ("sum_short_rows", "transposed_sum"),
    "what is a sum is written out by the other pass",
    keeps_loops=False,
)
SEARCHES = _pass(
    "extremum_searches",
    _searches,
    ("collapse_dims",),
    "blocks run along the final layout of the reduction",
    machine=True,
    keeps_loops=False,
)
NARROW_INDICES = _pass(
    "narrow_indices",
    lambda p, _: narrow_indices(p),
    ("extremum_searches",),
    "places that are searched are indices, too",
)
DOT_PRODUCTS = _pass(
    "dot_products",
    _dot_products,
    ("collapse_dims", "narrow_indices"),
    "terms lie side by side in the collapsed dimensions",
    machine=True,
    keeps_loops=False,
)
CONVERT_ONCE = _pass(
    "convert_once",
    lambda p, at: convert_once(p, at.target, at.layout, at.scratch_bytes),
    ("dot_products",),
    "dot products convert by themselves",
    machine=True,
    keeps_loops=False,
)


def _told(
    name: str, run: Callable[[TypedProgram], TypedProgram], chosen: str, after: tuple[str, ...], why: str
) -> ProgramPass:
    """Return a pass over time loops, which decides one thing where it changes the program."""

    def told(program: TypedProgram, _: At) -> Made[TypedProgram]:
        found = run(program)
        return found, () if found is program else (Decision("", chosen),)

    return _pass(name, told, after, why)


MAKE_TIME_LOOPS = _pass(
    "make_time_loops",
    lambda p, _: time_loops(p),
    ("collapse_dims",),
    "an iterator that carries all dependences is found among those that are left",
)
DOUBLE_BUFFER = _told(
    "double_buffer",
    alternate_buffers,
    "steps that were copied back take turns in two buffers",
    ("make_time_loops",),
    "a copy at the end of each step is one of a time loop",
)
DELAYED_UPDATES = _told(
    "delayed_updates",
    late_updates,
    "updates of what a block of steps does not touch are done after it, together",
    ("double_buffer",),
    "which buffer a step writes is known then",
)
HOISTED_SUMS = _told(
    "hoisted_sums",
    early_sums,
    "sums over what steps before a block wrote are taken before it, together",
    ("delayed_updates",),
    "a loop runs by blocks once",
)
SPLIT_STEPS = _told(
    "split_steps",
    part_steps,
    "a step's domain is split where few of its instances write what the others read",
    ("hoisted_sums",),
    "what is left of a step is split",
)
FIRST_STEPS = _pass(
    "first_steps",
    lambda p, at: _held(with_first_steps(p), at),
    ("make_time_loops",),
    "starts of recurrences are alike in form with their steps, so that they may run in one loop",
)
STORE_SHARED_VALUES = _pass(
    "store_shared_values",
    _store_shared_values,
    ("inline_values",),
    "which statements compute a value is known after inlining",
)

# Before the alternatives of how large temporaries may be.
FIRST: tuple[ProgramPass, ...] = (ARGUMENT_ORDER, TRANSPOSE_RECURRENCES, EXTRACT_REDUCTIONS, COMPUTE_ONCE)
CPU: tuple[ProgramPass, ...] = (
    CONTRACTION_ORDER,
    START_REDUCTIONS,
    PREFIX_REDUCTIONS,
    SET_SINGLE_TERMS,
    UNFOLD_PADDED,
    GATHER_FORM,
    HOIST_FROM_REDUCTIONS,
    SHARE_RESULTS,
    ONLINE_PAIRS,
    COPY_PADDED,
    WIDEN_REDUCTIONS,
    BOOL_TO_U8,
    INLINE_VALUES,
    DROP_UNIT_DIMS,
    UNFOLD_WINDOWS,
    ALGEBRA,
    SPLIT_FIRST_ELEMENTS,
    AFFINE_PARTS,
    SPLIT_QUOTIENTS,
    DIAGONALS,
    COLLAPSE_DIMS,
    SUM_SHORT_ROWS,
    HALVE_SYMMETRIC,
    TRANSPOSED_SUM,
    UNROLL_SHORT_ROWS,
    SEARCHES,
    NARROW_INDICES,
    DOT_PRODUCTS,
    CONVERT_ONCE,
)
# Prefix reductions stay reductions there: threads scan together.
GPU: tuple[ProgramPass, ...] = (
    ARGUMENT_ORDER,
    EXTRACT_REDUCTIONS,
    CONTRACTION_ORDER,
    START_REDUCTIONS,
    SET_SINGLE_TERMS,
    HOIST_FROM_REDUCTIONS,
    SHARE_RESULTS,
    WIDEN_REDUCTIONS,
    BOOL_TO_U8,
    INLINE_VALUES,
    DROP_UNIT_DIMS,
    ALGEBRA,
    COLLAPSE_DIMS,
    NARROW_INDICES,
)
# For statements that may share loops.
TIME: tuple[ProgramPass, ...] = (MAKE_TIME_LOOPS, DOUBLE_BUFFER, DELAYED_UPDATES, HOISTED_SUMS, SPLIT_STEPS)
# Each only where the common loops then keep few elements of the temporaries that it makes.
FOR_COMMON_LOOPS: tuple[ProgramPass, ...] = (FIRST_STEPS, STORE_SHARED_VALUES)
# The order of the text, for a person to edit.
TEXT: tuple[ProgramPass, ...] = (EXTRACT_REDUCTIONS, START_REDUCTIONS, WIDEN_REDUCTIONS, BOOL_TO_U8)
