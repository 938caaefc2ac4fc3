"""The way from text to machine code, stage by stage. This is the only file that lists the stages.

    text    -> einsum_frontend.parse -> Program          names, ranks, spans
    Program -> poly.binding.bind             -> TypedProgram     element types, sizes, exact domains
            -> rewrite.normalise.argument_order     -> TypedProgram     arrays by columns and the like have the dimensions of
            memory -> rewrite.indexing.transpose_recurrences          -> TypedProgram     recurrences along memory are computed in
            turned tensors -> rewrite.normalise.extract_reductions       -> TypedProgram     inline reductions become temporaries
            -> rewrite.sharing.compute_once         -> TypedProgram     values that many instances need are computed once
            -> rewrite.reductions.contraction_order     -> TypedProgram     sums of products are taken in steps
            -> rewrite.normalise.start_reductions       -> TypedProgram     reductions start at their identity
            -> rewrite.normalise.set_single_terms      -> TypedProgram     reductions of one term a cell only set it
            -> rewrite.reductions.short_sums    -> TypedProgram     short padded sums of time loops are values
            -> rewrite.reductions.choose_gather_form       -> TypedProgram     terms that are scattered are gathered cell by cell
            -> rewrite.normalise.hoist_from_reductions          -> TypedProgram     operators that all terms share are applied to
            results -> rewrite.sharing.share_results        -> TypedProgram     what statements compute alike is computed once
            -> rewrite.reductions.online_pairs       -> TypedProgram     pairs of reductions over long rows read them once
            -> rewrite.indexing.copy_padded      -> TypedProgram     what is computed and read again with padding is copied with
            it -> rewrite.normalise.widen_reductions         -> TypedProgram     shared cells of half precision are summed in f32
            -> rewrite.normalise.bool_to_u8         -> TypedProgram     any and all of booleans count in bytes
            -> rewrite.sharing.inline_values  -> TypedProgram     what is cheap to compute again is not stored
            -> rewrite.materialise.unfold_windows        -> TypedProgram     windows along short rows are copied one by one
            -> rewrite.indexing.split_first_elements   -> TypedProgram     recurrences without a test for their first cells
            -> rewrite.indexing.affine_parts  -> TypedProgram     subscripts that wrap or stop at an edge are affine by parts
            -> rewrite.indexing.split_quotients     -> TypedProgram     indices with quotients are quotient and remainder
            -> rewrite.indexing.diagonals     -> TypedProgram     reductions along narrow bands are numbered by diagonals
            -> rewrite.indexing.collapse_dims         -> TypedProgram     indices that walk two dimensions together are one
            -> rewrite.indexing.halve_symmetric     -> TypedProgram     one half of a symmetric result is computed, one copied
            -> rewrite.reductions.transposed_sum     -> TypedProgram     sums along rows and columns at once go row by row
            -> rewrite.indexing.unroll_short_rows   -> TypedProgram     an index along rows of a few cells is written out
            -> rewrite.reductions.choose_dot_products         -> TypedProgram     products of narrow integers are summed several
            at a time -> schedule.auto         -> TypedProgram, Schedule   accumulators, tiles, vectors, registers
            -> poly.scop             -> Scop             domains, access relations, the text's order
            -> schedule.legality.prove                         every dependence is kept, proven on every compile
            -> schedule.threads.parallel     -> Schedule         loops that run on several threads, proven too
            -> rewrite.time.row_blocks    -> TypedProgram     by blocks of rows, where no loop can: scheduled again from there
            -> codegen.lowering.lower         -> Kernel           isl's loops, promoted buffers, guards; lanes in step
            -> codegen.passes.whole_partial_tiles          -> Kernel           tiles that a size cuts are computed whole
            -> codegen.passes.simplify      -> Kernel           unrolled, index expressions folded
            -> codegen.passes.fold_lanes          -> Kernel           vectors that are folded into one cell combined first
            -> codegen.passes.scalar_replacement         -> Kernel           cells that the next iterations read kept in registers
            -> codegen.passes.prefetch_gathers         -> Kernel           gathered cells of large tensors prefetched
            -> codegen.passes.parallel_profitability       -> Kernel           loops too small for several threads run on one
            -> codegen.llvm.emit     -> LLVM IR
            -> codegen.llvm.jit.build    -> Artifact         machine code in memory

For a GPU (docs/gpu.md) the same program, by launches:

            -> schedule.gpu.auto     -> TypedProgram, Schedule   loops on blocks and threads
            -> schedule.gpu.barriers     -> Schedule         where the threads of a block meet
            -> poly.scop, schedule.legality.prove, codegen.lowering.lower       as above
            -> codegen.passes.gpu.launch        -> Kernel           how many blocks and threads each launch takes
            -> codegen.passes.gpu.combine       -> Kernel           values of several threads combined by shuffles
            -> codegen.passes.gpu.vectors       -> Kernel           neighbouring cells by accesses of up to 16 bytes
            -> codegen.cuda.text     -> CUDA C
            -> codegen.cuda.sim_build     -> Artifact         for `cuda-sim`: compiled for this machine's processor

Each stage prints (`Artifact.stages`, `kernel.source(stage)`) and is verified where something can be: the schedule is proven, the
kernel is checked by codegen.ir.verify, the LLVM IR by LLVM's verifier.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from polyker.codegen.argument_layout import argument_names
from polyker.codegen.artifact import Artifact
from polyker.codegen.cuda.build import CudaCode, ptx
from polyker.codegen.cuda.sim_build import build_sim
from polyker.codegen.cuda.text import cuda_source
from polyker.codegen.ir.meetings import check_meetings
from polyker.codegen.ir.printing import print_kernel
from polyker.codegen.ir.verify import verify
from polyker.codegen.llvm.emit import emit
from polyker.codegen.llvm.jit.build import build
from polyker.codegen.lowering.lower import Lowered
from polyker.codegen.passes.fold_lanes import merge_folds
from polyker.codegen.passes.gpu.combine import write_out
from polyker.codegen.passes.gpu.launch import check_shared, launches
from polyker.codegen.passes.gpu.vectors import widen
from polyker.codegen.passes.parallel_profitability import settle
from polyker.codegen.passes.prefetch_gathers import prefetch_gathers
from polyker.codegen.passes.scalar_replacement import carry
from polyker.codegen.passes.simplify import simplify, unroll
from polyker.codegen.passes.unswitch import unswitch
from polyker.codegen.passes.whole_partial_tiles import fill
from polyker.errors import CompileError, LegalityError
from polyker.ir.decision import REFUSED
from polyker.ir.layout import DENSE, Layout
from polyker.ir.typed import TypedProgram
from polyker.ir.typed_printing import print_typed
from polyker.lowering import on_threads, proven_kernel
from polyker.machine.model import Gpu, Target
from polyker.options import Options
from polyker.poly.isl import isl_job
from polyker.poly.scop import Scop, build_scop
from polyker.rewrite.indexing.affine_parts import affine_parts
from polyker.rewrite.indexing.collapse_dims import merge_dimensions
from polyker.rewrite.indexing.copy_padded import pad_computed
from polyker.rewrite.indexing.diagonals import number_diagonals
from polyker.rewrite.indexing.halve_symmetric import halve_symmetric
from polyker.rewrite.indexing.split_first_elements import part_first_cells
from polyker.rewrite.indexing.split_quotients import split_quotients
from polyker.rewrite.indexing.transpose_recurrences import turn_recurrences
from polyker.rewrite.indexing.unroll_short_rows import sum_short_rows, unroll_short_rows
from polyker.rewrite.materialise.convert_once import convert_once
from polyker.rewrite.materialise.unfold_windows import unfold_windows
from polyker.rewrite.normalise.algebra import square_products
from polyker.rewrite.normalise.argument_order import in_own_order, orders_of, strided
from polyker.rewrite.normalise.bool_to_u8 import count_truths
from polyker.rewrite.normalise.drop_unit_dims import fix_single_values
from polyker.rewrite.normalise.extract_reductions import extract_reductions
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
from polyker.rewrite.sharing.inline_values import inline_values
from polyker.rewrite.sharing.share_results import share_results
from polyker.rewrite.time.row_blocks import row_blocks
from polyker.schedule.auto import auto_schedule
from polyker.schedule.gpu.auto import gpu_schedule, lanes_unrolled
from polyker.schedule.gpu.barriers import with_barriers
from polyker.schedule.nests.text_order import default_schedule
from polyker.schedule.tree.nodes import Schedule


class Stages(Mapping[str, str]):
    """The printed stages of a compile, each printed when it is asked for."""

    def __init__(self, **printers: Callable[[], str]) -> None:
        self._printers = printers

    def __getitem__(self, stage: str) -> str:
        return self._printers[stage]()

    def __contains__(self, stage: object) -> bool:
        return stage in self._printers

    def __iter__(self) -> Iterator[str]:
        return iter(self._printers)

    def __len__(self) -> int:
        return len(self._printers)


# isl operations that the automatic schedule may take, from choosing it to its loops: a second or so. What is not done by then
# is compiled in the order of the text, which isl turns into loops quickly.
QUOTA = 4_000_000

# Of a GPU's kernels, where one thread would be a hundred times slower.
GPU_QUOTA = 2 * QUOTA

# A schedule that a user gave has none to fall back on.
GIVEN_QUOTA = 4 * QUOTA


def compile_typed(
    typed: TypedProgram,
    layouts: tuple[Layout, ...],
    target: Target,
    options: Options,
    given: tuple[TypedProgram, Schedule] | None = None,
) -> Artifact:
    """Return the compiled kernel of a typed program; `layouts` are one an argument (see polyker.codegen.artifact).

    `given`: a schedule of the user's, and the program that it orders, instead of the automatic one.
    Raises CompileError, CompileTimeout, InternalError, LegalityError.
    """
    layouts = tuple(map(strided, layouts)) if given else orders_of(typed, argument_names(typed), layouts)
    if target.gpu is not None:
        return compile_gpu(typed, layouts, target, target.gpu, options, given)
    if given is None:
        program, schedule, lowered = scheduled(
            typed, layouts, target, options.scratch_bytes, loose=is_loose(options), threads=threads_for(target, options)
        )
    else:
        with isl_job("schedule", GIVEN_QUOTA):
            program, schedule, lowered = proven_kernel(*given, layouts)
    lowered = replace(lowered, kernel=unswitch(lowered.kernel))
    verify(lowered.kernel)
    filled = fill(lowered.kernel, target.vector_registers)
    kernel = prefetch_gathers(carry(merge_folds(unroll(filled, tiles=False))), target)
    kernel = replace(settle(kernel), fastmath=options.fastmath)
    verify(kernel)
    text = emit(kernel, target)
    code = build(text, target)
    stages = Stages(
        program=lambda: print_typed(typed),
        isl=lambda: print_scop(build_scop(program)),
        schedule=lambda: "\n".join((str(schedule), *schedule.notes)),
        loops=lambda: print_kernel(lowered.kernel),
        llvm=lambda: text,
    )
    return Artifact(
        typed, layouts, kernel, lowered.arguments, lowered.scratch, lowered.integers, lowered.guards, stages, code,
        (program, schedule), lowered.kernel,
    )  # fmt: skip


def compile_gpu(
    typed: TypedProgram,
    layouts: tuple[Layout, ...],
    target: Target,
    gpu: Gpu,
    options: Options,
    given: tuple[TypedProgram, Schedule] | None = None,
) -> Artifact:
    """Return the kernels of a typed program for a GPU, or for the simulator of one; arguments as of `compile_typed`."""
    if given is None:
        program, schedule, lowered = scheduled_gpu(
            typed, layouts, target, gpu, options.scratch_bytes, loose=is_loose(options)
        )
    else:
        with isl_job("schedule", GIVEN_QUOTA):
            program, schedule = given
            schedule = replace(schedule, tree=lanes_unrolled(schedule.tree))
            program, schedule, lowered = proven_kernel(program, schedule, layouts)
    kernel = widen(write_out(launches(simplify(carry(unroll(lowered.kernel))))))
    kernel = replace(kernel, fastmath=options.fastmath)
    verify(kernel)
    check_meetings(kernel)
    check_shared(kernel, gpu, target.name)
    sizes = frozenset(n for n, _ in program.sizes)
    text = cuda_source(kernel, sizes, {t.name: t.label for t in program.tensors})
    stages = Stages(
        program=lambda: print_typed(typed),
        isl=lambda: print_scop(build_scop(program)),
        schedule=lambda: "\n".join((str(schedule), *schedule.notes)),
        loops=lambda: print_kernel(kernel),
        cuda=lambda: text,
        **({} if gpu.simulated else {"ptx": lambda: ptx(text, target)}),
    )
    code = build_sim(text) if gpu.simulated else CudaCode(text, target)
    return Artifact(
        typed, layouts, kernel, lowered.arguments, lowered.scratch, lowered.integers, lowered.guards, stages, code,
        (program, schedule),
    )  # fmt: skip


def scheduled_gpu(
    typed: TypedProgram,
    layouts: tuple[Layout, ...],
    target: Target,
    gpu: Gpu,
    most: int | None = None,
    *,
    plain: bool = False,
    merge: bool = True,
    loose: bool = False,
) -> tuple[TypedProgram, Schedule, Lowered]:
    """Return the kernels of the automatic schedule for a GPU; of one thread each where isl finds that illegal or too hard.

    `plain`: of one thread each, in the order of the text. `most`, `merge`, `loose`: as of `scheduled`.
    """
    typed, layouts = in_own_order(typed, argument_names(typed), layouts)
    names = dict(zip(argument_names(typed), layouts, strict=True))

    def layout(tensor: str) -> Layout:
        return names.get(tensor, DENSE)

    with isl_job("rewrite"):
        found = contract(extract_reductions(typed), target, layout, most=most)
        alone, shared = share_results(set_single_terms(start_reductions(found.program)))
        flat = inline_values(count_truths(widen_reductions(alone)))
        if merge:
            flat = merge_dimensions(flat, lambda tensor: layout(tensor).dense)
    notes = found.notes + shared
    try:
        if not plain:
            with isl_job("schedule", GPU_QUOTA):
                program, schedule = gpu_schedule(flat, gpu, layout, loose=loose)
                schedule = with_barriers(build_scop(program), schedule)
                return proven_kernel(program, replace(schedule, notes=notes + schedule.notes), layouts)
    except (LegalityError, CompileError) as error:
        logging.getLogger("polyker").info(
            "each statement is run by one thread: %s", error.message, extra={"reason": error}
        )
        notes += (f"each statement is run by one thread: {error.message}",)
    with isl_job("schedule"):
        program, schedule = automatic(flat, layouts, target, plain=True)
        return proven_kernel(program, replace(schedule, notes=notes), layouts)


def start_to_edit(
    typed: TypedProgram, target: Target, options: Options, *, auto: bool
) -> tuple[TypedProgram, Schedule]:
    """Return what a user's schedule starts from, and the program that it orders: the automatic schedule of dense arrays, in
    which each index keeps its own loop; or the order of the text, each statement its own nest.

    In the order of the text, too, what is accumulated in a wider type than its tensor's has accumulators.
    """
    layouts = (DENSE,) * len(argument_names(typed))
    if target.gpu is not None:
        program, schedule, _ = scheduled_gpu(
            typed,
            layouts,
            target,
            target.gpu,
            options.scratch_bytes,
            plain=not auto,
            merge=False,
            loose=is_loose(options),
        )
        return program, schedule
    if auto:
        program, schedule, _ = scheduled(
            typed, layouts, target, options.scratch_bytes, merge=False, loose=is_loose(options)
        )
        return program, schedule
    with isl_job("schedule"):
        flat = count_truths(widen_reductions(start_reductions(extract_reductions(typed))))
        if any(s.op != "set" and s.acc != flat.tensor(s.target).dtype for s in flat.statements()):
            return automatic(flat, layouts, target, plain=True)
        return flat, default_schedule(flat)


def is_loose(options: Options) -> bool:
    """Whether the user lets sums of floats be rounded otherwise than the text says."""
    return not {"reassoc", "fast"}.isdisjoint(options.fastmath)


def scheduled(
    typed: TypedProgram,
    layouts: tuple[Layout, ...],
    target: Target,
    most: int | None = None,
    *,
    merge: bool = True,
    loose: bool = False,
    threads: int = 1,
) -> tuple[TypedProgram, Schedule, Lowered]:
    """Return the kernel of the automatic schedule, large temporaries only where a part of each is enough.

    `most`: bytes that temporaries which are not the text's may take, of all `threads` together. `merge`: indices that walk
    together may become one. `loose`: sums of floats may be rounded otherwise.
    """
    typed, layouts = in_own_order(typed, argument_names(typed), layouts)
    names = dict(zip(argument_names(typed), layouts, strict=True))
    with isl_job("rewrite"):
        typed, turned = turn_recurrences(typed, lambda tensor: names.get(tensor, DENSE), most)
        lifted, once = compute_once(
            extract_reductions(typed), target, lambda tensor: names.get(tensor, DENSE), most=most
        )
    for large in (True, False):
        with isl_job("rewrite"):
            found = contract(lifted, target, lambda tensor: names.get(tensor, DENSE), large=large, most=most)
            started = unfold_padded(set_single_terms(running_reductions(start_reductions(found.program))))
            started = gather_where_cheaper(started, target, lambda tensor: names.get(tensor, DENSE))
            sunk, outside = sink_operators(started, loose=loose)
            alone, shared = share_results(sunk)
            alone, online = one_pass(alone, target)
            alone = pad_computed(alone, lambda tensor: names.get(tensor, DENSE))
            stored = count_truths(widen_reductions(alone))
            inlined = inline_values(stored)
            kept = {t.name for t in inlined.tensors}
            gone = tuple(
                f"{t.label} is not stored: it is computed where it is read"
                for t in stored.tensors
                if t.name not in kept
            )
            flat = unfold_windows(fix_single_values(inlined), target)
            dots = halves = converted = searches = tuple[str, ...]()
            if merge:
                flat, halves = for_vectors(flat, lambda tensor: names.get(tensor, DENSE))
                flat, found_searches = search_limits(flat)
                flat, searches = search_blocks(
                    flat, found_searches, target, lambda tensor: names.get(tensor, DENSE), most
                )
            flat = narrow_indices(flat)
            if merge:
                flat, dots = sum_by_dots(flat, target, lambda tensor: names.get(tensor, DENSE), most)
                flat = inline_values(flat) if dots else flat
                flat, converted = convert_once(flat, target, lambda tensor: names.get(tensor, DENSE), most)
        notes = turned + once + found.notes + outside + shared + online + gone + halves + searches + dots + converted
        result = lowered_kernel(flat, layouts, target, notes, threads, most)
        if not found.large & {t.name for t in result[2].scratch}:
            break
    return result


def for_vectors(program: TypedProgram, layout: Callable[[str], Layout]) -> tuple[TypedProgram, tuple[str, ...]]:
    """Return the program with other indices than the text's: such that more of it is by whole vectors, and what was halved."""
    flat = number_diagonals(split_quotients(affine_parts(part_first_cells(square_products(program)))))
    flat = merge_dimensions(flat, lambda tensor: layout(tensor).dense)
    flat, notes = halve_symmetric(sum_short_rows(flat, layout))
    return unroll_short_rows(sum_crossing(flat, layout), layout), notes


def lowered_kernel(
    flat: TypedProgram,
    layouts: tuple[Layout, ...],
    target: Target,
    notes: tuple[str, ...],
    threads: int,
    most: int | None,
) -> tuple[TypedProgram, Schedule, Lowered]:
    """Return the kernel of the automatic schedule; of plainer ones where isl finds that illegal or too hard.

    The second gives each statement a nest of its own, the third has accumulators alone; the last is the order of the text,
    each instance by itself. `notes`: what earlier stages chose. `threads`, `most`: as of `scheduled`.
    """
    tried: list[Schedule] = []
    for plain, fuse in ((False, True), (False, False), (True, False)):
        try:
            with isl_job("schedule", QUOTA):
                program, schedule = automatic(flat, layouts, target, plain=plain, fuse=fuse)
                if schedule in tried:
                    continue
                tried.append(schedule)
                schedule = replace(schedule, notes=notes + schedule.notes)
                if threads < 2:
                    return proven_kernel(program, schedule, layouts)

            again = partial(_by_rows, flat, layouts, target, notes) if fuse else None
            return on_threads(program, schedule, layouts, threads, most, QUOTA, again)
        except (LegalityError, CompileError) as error:
            logging.getLogger("polyker").info("a plainer schedule is taken: %s", error.message, extra={"reason": error})
            notes += (f"{REFUSED}a plainer schedule is taken: {error.message}",)
    return on_threads(flat, replace(default_schedule(flat), notes=notes), layouts, threads, most)


def _by_rows(
    flat: TypedProgram, layouts: tuple[Layout, ...], target: Target, notes: tuple[str, ...], blocks: int
) -> tuple[TypedProgram, Schedule] | None:
    """Return the program by blocks of rows, and its automatic schedule; None where it is not cut so."""
    found = row_blocks(flat, blocks)
    if found is None:
        return None
    program, schedule = automatic(found, layouts, target)
    note = f"{blocks} blocks of rows, which compute again what they read of each other's"
    return program, replace(schedule, notes=(*notes, note, *schedule.notes))


def automatic(
    flat: TypedProgram, layouts: tuple[Layout, ...], target: Target, *, plain: bool = False, fuse: bool = True
) -> tuple[TypedProgram, Schedule]:
    """Return the automatic schedule, and the program with the accumulators and copies that it uses."""
    names = dict(zip(argument_names(flat), layouts, strict=True))
    return auto_schedule(flat, target, lambda tensor: names.get(tensor, DENSE), plain=plain, fuse=fuse)


def threads_for(target: Target, options: Options) -> int:
    """Return the number of threads of a kernel: one where no run time brings others."""
    machine, *rest = target.triple.split("-")
    return options.thread_count if machine in ("x86_64", "aarch64") and "linux" in rest else 1


def print_scop(scop: Scop) -> str:
    """Return the domains and access relations as isl prints them."""
    lines = [f"context {scop.context}"]
    lines += [f"domain {scop.domains[s]}" for s in scop.domains]
    lines += [f"{'write' if a.is_write else 'read'} {a.relation}" for a in scop.accesses]
    return "\n".join(lines)
