"""For each pass a small operator that it changes, and what the pass is given and makes of it."""

from __future__ import annotations

import difflib
import hashlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from polyker.codegen.argument_layout import argument_names
from polyker.codegen.llvm.jit.detect import target
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import parse_type
from polyker.ir.layout import DENSE, Layout
from polyker.ir.typed import TypedProgram
from polyker.options import Options
from polyker.pipeline import kernel as kernels
from polyker.pipeline import program as programs
from polyker.pipeline.compile import started
from polyker.pipeline.driver import Run, printed
from polyker.pipeline.gpu import KERNEL as GPU_KERNEL
from polyker.pipeline.gpu import scheduled_gpu
from polyker.pipeline.passes import Pass
from polyker.pipeline.schedules import in_text_order, scheduled
from polyker.pipeline.threads import UNIFORM_INNER_LOOPS, Found, proven_kernel
from polyker.poly.binding.bind import bind
from polyker.rewrite.normalise.argument_order import orders_of
from polyker.schedule.steps.basic import vectorise
from polyker.structs import replace

CPU, GPU = "cpu:x86-64-v4", "cuda:sm_90a"
BY_COLUMNS = Layout(order=(1, 0))
# Lines of both texts together, beyond which only those that differ are shown, and how many of these.
MOST, MOST_DIFFERENT = 70, 60

PROGRAM = (*programs.FIRST, *programs.CPU, *programs.TIME, *programs.FOR_COMMON_LOOPS)
KERNEL = (UNIFORM_INNER_LOOPS, *kernels.CPU, *kernels.MACHINE)
# The passes by the names of their files: those over a GPU's kernels have the names of a processor's.
PASSES: dict[str, Pass[Any]] = {
    **{f"program.{p.name}": p for p in PROGRAM},
    **{f"kernel.{p.name}": p for p in KERNEL},
    **{f"gpu.{p.name}": p for p in GPU_KERNEL},
}


class Example(Struct, frozen=True):
    """A text with the types of its tensors (such as "f32[4,5]") and sizes.

    `layouts`: of arguments that are not dense; `machine`: what of the target is otherwise; `lanes`: the statement and the loop
    of the order of the text that is made one over lanes, in place of the automatic schedule, and how many.
    """

    text: str
    given: Mapping[str, str | int]
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    threads: int = 1
    machine: Mapping[str, Any] = field(default_factory=dict)
    lanes: tuple[str, str, int] | None = None

    def described(self) -> str:
        """Return the text and what it is compiled for, as lines."""
        sizes = ", ".join(f"{name}: {value}" for name, value in self.given.items())
        more = [f"{name} by columns" for name in self.layouts]
        more += [f"{self.threads} threads"] if self.threads > 1 else []
        more += [f"{name}: {value}" for name, value in self.machine.items()]
        more += ["{}, {} in vectors of {}".format(*self.lanes)] if self.lanes else []
        return "\n".join((self.text.strip("\n"), "; ".join((sizes, *more))))


def example(
    text: str, *, layouts: Mapping[str, Layout] | None = None, threads: int = 1,
    machine: Mapping[str, Any] | None = None, lanes: tuple[str, str, int] | None = None, **given: str | int,
) -> Example:  # fmt: skip
    """Return an example of a text."""
    return Example(text, given, layouts or {}, threads, machine or {}, lanes)


class _Found(Exception):
    """The pass has run and changed something."""


class _Until(Run):
    """The passes of a compile until one of them changes something."""

    wanted: Pass[Any] | None = None
    texts: tuple[str, str] | None = None

    def one(self, one: Pass[Any], unit: Any) -> Any:
        made = super().one(one, unit)
        if one is self.wanted and self.steps[-1].changed:
            self.texts = printed(unit), printed(made)
            raise _Found
        return made


def texts(name: str) -> tuple[str, str] | None:
    """Return what a pass is given of its example and what it makes, as texts; None where it changes nothing."""
    shown, gpu = EXAMPLES[name], name.startswith("gpu.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = parse(shown.text)
    types = {k: parse_type(v) for k, v in shown.given.items() if isinstance(v, str)}
    typed = bind(program, types, {k: v for k, v in shown.given.items() if isinstance(v, int)})
    names = argument_names(typed)
    labels = {t.name: t.label for t in typed.tensors}
    layouts = orders_of(typed, names, tuple(shown.layouts.get(labels[n], DENSE) for n in names))
    place = replace(target(GPU if gpu else CPU), **shown.machine)
    run = _Until(started(typed, layouts, place, Options(threads=shown.threads, scratch_bytes=1 << 32)).at)
    run.wanted = PASSES[name]
    try:
        if place.gpu is not None:
            *_, lowered = scheduled_gpu(typed, run, place.gpu)
            run.passes(GPU_KERNEL, lowered.kernel)
        else:
            *_, lowered = scheduled(typed, run) if shown.lanes is None else _vectorised(typed, run, *shown.lanes)
            run.passes((*kernels.CPU, *kernels.MACHINE), lowered.kernel)
    except _Found:
        return run.texts
    return None


def _vectorised(typed: TypedProgram, run: Run, statement: str, loop: str, lanes: int) -> Found:
    made = in_text_order(run.passes(programs.TEXT, typed))
    return proven_kernel(replace(made, schedule=vectorise(made.schedule, statement, loop, lanes)), run)


def shown(before: str, after: str, name: str) -> str:
    """Return both texts, or of long ones the lines that differ."""
    if len(before.splitlines()) + len(after.splitlines()) <= MOST:
        return f"-- before\n{before}\n\n-- after {name}\n{after}\n"
    lines = list(_different(before, after))
    more = len(lines) - MOST_DIFFERENT
    rest = hashlib.sha1("\n".join(lines[MOST_DIFFERENT:]).encode()).hexdigest()
    tail = [f"… {more} more lines that differ, sha1 {rest}"] if more > 0 else []
    return "\n".join((f"-- what {name} changes", *lines[:MOST_DIFFERENT], *tail, ""))


def _different(before: str, after: str) -> Iterator[str]:
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0):
        if line.startswith("@@"):
            yield "…"
        elif not line.startswith(("---", "+++")):
            yield line


HEAT = """heat(A: f64[N,N], steps) -> A:
    for t in 0:steps:
        B[i,j] = A[i-1,j] + A[i+1,j]  for i in 1:N-1, j in 1:N-1
        A[i,j] = B[i,j]  for i in 1:N-1, j in 1:N-1"""
ELIMINATION = """f(A: f64[N,N]) -> A:
    for k in 0:N:
        A[i,k] = A[i,k] / A[k,k]  for i in k+1:N
        A[i,j] = A[i,j] - A[i,k] * A[k,j]  for i in k+1:N, j in k+1:N"""
PATHS = """f(D: f64[N,N]) -> D:
    for k in 0:N:
        D[i,j] = minimum(D[i,j], D[i,k] + D[k,j])"""
SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
STATES = "H[0,n] = X[0,n]\nH[t,n] = A[n] * H[t-1,n] + X[t,n] for t in 1:T\nY[t,n] = C[n] * H[t,n]"
PRODUCT = "C[i,j] += A[i,k] * B[k,j]"
SCATTER = "f(X: f64[N], K: f64[M]) -> O:\n    O: f64[P]\n    O[i+r] += X[i] * K[r]"
SECTION = "f(X: f64[N,T]) -> Y:\n    Y[n,t] = X[n,t] - 0.5*Y[n,t-2; pad=0] for n in 0:N, t in 0:T"
TURNED = "f(X: f64[H,W], steps) -> X:\n    for t in 0:steps:\n        X[j,i] = X[j,i] + X[j,i-1] for i in 1:W, j in 0:H"

EXAMPLES: dict[str, Example] = {
    "program.argument_order": example("O[i,j] = A[i,j] + 1", A="f32[40,70]", layouts={"A": BY_COLUMNS}),
    "program.transpose_recurrences": example(
        "Y[j,i] = X[j,i] + maximum(Y[j-1,i-1; pad=0], Y[j,i-1; pad=0]) for i in 0:W, j in 0:H",
        X="f32[300,257]", W=257, H=300,
    ),
    "program.extract_reductions": example("P[i,j] = X[i,j] - max[k](X[i,k])", X="f32[5,7]"),
    "program.compute_once": example("C[i,j] += exp(A[i,k]) * B[k,j]", A="f32[64,64]", B="f32[64,64]"),
    "program.contraction_order": example(
        "C[n,o] += X[n,i] * W[o,i,j] * Y[n,j]", X="f32[64,32]", W="f32[16,32,32]", Y="f32[64,32]"
    ),
    "program.start_reductions": example(PRODUCT, A="f32[5,6]", B="f32[6,7]"),
    "program.prefix_reductions": example("S[b,t] += X[b,j] for t in 0:90 where j <= t", X="f64[70,90]"),
    "program.set_single_terms": example("C[i,j] += A[i] * B[j]", A="f32[5]", B="f32[7]"),
    "program.unfold_padded_sums": example(
        "f(Y: f64[N], n) -> Y:\n    for t in 0:n:\n"
        "        B[i] = sum[a in 0:3](Y[i+a-1; pad=0])  for i in 0:N\n        Y[i] = B[i] / 3",
        Y="f64[60]", n=9,
    ),
    "program.gather_form": example(SCATTER, X="f64[70]", K="f64[3]", N=70, M=3, P=72),
    "program.hoist_from_reductions": example("O[i] = max[k](2 - X[i,k] / 3)", X="f32[3,40]"),
    "program.share_results": example("P[i] = X[i,0] - max[k](X[i,k]);  Q[j,l] = X[j,l] * max[m](X[j,m])", X="f64[4,4]"),
    "program.online_pairs": example("O[i] = logsumexp[k](X[i,k])", X="f32[2,67108864]"),
    "program.copy_padded": example(
        "Y[i,j] = 2*X[i,j]\nZ[i,j] = sum[a in 0:3, b in 0:3](Y[i+a-1,j+b-1; pad=0] * K[a,b]) for i in 0:60, j in 0:64",
        X="f32[60,64]", K="f32[3,3]",
    ),
    "program.widen_reductions": example(
        "f(idx: i64[N], w: f16[N]) -> H:\n    H: f16[5]\n    H[idx[i]] += w[i]", idx="i64[9]", w="f16[9]"
    ),
    "program.bool_to_u8": example("C[i,j] any= A[i,k] and B[k,j]", A="bool[5,6]", B="bool[6,7]"),
    "program.inline_values": example("T[i,j] = X[i,j] + 1;  O[i,j] = T[i,j] * 2", X="f64[5,9]"),
    "program.drop_unit_dims": example("O[h] += X[h+r] * K[r]", X="f32[10]", K="f32[1]"),
    "program.unfold_windows": example(
        "O[f,h,w] += X[c,h+r-1,w+s-1; pad=0] * K[f,c,r,s]  for h in 0:7, w in 0:7", X="f32[64,7,7]", K="f32[256,64,3,3]"
    ),
    "program.algebra": example("C[i,j] += (A[i,k] - B[k,j]) * (A[i,k] - B[k,j])", A="f32[5,6]", B="f32[6,7]"),
    "program.split_first_elements": example(SECTION, X="f64[40,50]"),
    "program.affine_parts": example("O[i] = X[i-1; pad=wrap] + X[i] for i in 0:100", X="f64[100]"),
    "program.split_quotients": example("O[i] = X[i // 2] for i in 0:180", X="f64[90]"),
    "program.diagonals": example("S[b,i] = sum[k in 0:i+1](X[b,k])  for i in 0:6", X="f64[3,6]"),
    "program.collapse_dims": example("O[i,j] = X[i,j] * 2", X="f64[5,9]"),
    "program.sum_short_rows": example("O[n,i] += X[n,k] * W[i,k]", X="f32[100,3]", W="f32[2,3]"),
    "program.halve_symmetric": example("C[i,j] += A[i,k] * A[j,k]", A="f32[200,100]"),
    "program.transposed_sum": example("t += A[i,j] * B[j,i]", A="f32[40,50]", B="f32[50,40]"),
    "program.unroll_short_rows": example("O[n,c] = X[n,c] * s[n]", X="f32[100,3]", s="f32[100]"),
    "program.extremum_searches": example("a[i] = argmax[j](X[i,j])", X="f32[6,1000]"),
    "program.narrow_indices": example("y[i,j] = where(j <= i, x[i,j], -inf)", x="f32[64,512]"),
    "program.dot_products": example("C[i,j] += i32(A[i,k]) * i32(B[k,j])", A="u8[64,64]", B="i8[64,64]"),
    "program.convert_once": example(PRODUCT, A="f32[200,200]", B="f64[200,200]"),
    "program.make_time_loops": example(
        "u[0,i] = X[i]\nu[t,i] = u[t-1,i-1; pad=0] + u[t-1,i+1; pad=0] for t in 1:50, i in 0:90", X="f64[90]"
    ),
    "program.double_buffer": example(HEAT, A="f64[60,60]", steps=30),
    "program.delayed_updates": example(ELIMINATION, A="f64[400,400]"),
    "program.hoisted_sums": example(
        "X[i,j] = B[i,j] - sum[k in 0:i](L[i,k] * X[k,j])", B="f64[400,400]", L="f64[400,400]"
    ),
    "program.split_steps": example(PATHS, D="f64[40,40]"),
    "program.first_steps": example(STATES, X="f32[100,64]", A="f32[64]", C="f32[64]", T=100),
    "program.store_shared_values": example(SOFTMAX, X="f32[4,6]"),
    "kernel.uniform_inner_loops": example("O[i] += X[k,i] where k >= i", X="f32[20,20]", lanes=("S0", "i0", 4)),
    "kernel.split_lanes": example("O[k,i] = X[k,i] * 2.0", X="f32[3,40]", lanes=("S0", "i1", 40)),
    "kernel.unswitch": example("m min= where(C[b] > 0, X[b,l], 2147483647)", C="i32[5]", X="i32[5,700]"),
    "kernel.whole_partial_tiles": example(PRODUCT, A="f32[I,K]", B="f32[K,J]"),
    "kernel.unroll": example("S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:N", X="f64[3,8]", N=8),
    "kernel.fold_lanes": example("s += X[i] * Y[i]", X="f32[512]", Y="f32[512]"),
    "kernel.scalar_replacement": example(
        "S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:N", X="f64[3,8]", N=8
    ),
    "kernel.prefetch_gathers": example("O[i] = T[idx[i]]", T="f32[50000000]", idx="i32[100000]"),
    "kernel.parallel_profitability": example("O[j,i] = X[i,j]", X="f32[N,M]", threads=2),
    "kernel.check_inputs": example("C[i,j] max= A[i,k] + B[k,j]", A="f64[5,7]", B="f64[7,4]"),
    "kernel.pair_extrema": example("C[i,j] max= A[i,k] + B[k,j]", A="f32[4,8]", B="f32[8,32]"),
    "kernel.several_terms": example("C[i,j] += A[i,k] * B[k,j]", A="f32[4,8]", B="f32[8,32]"),
    "kernel.unroll_tiles": example("C[i,j] += A[i,k] * B[k,j]", A="f32[4,8]", B="f32[8,32]"),
    "kernel.several_checks": example("O[i] = T[idx[i]] * U[idx[i]]", T="f64[40]", U="f64[40]", idx="i64[90]"),
    "kernel.balance_ports": example("C[i,j] max= A[i,k] + B[k,j]", A="f32[4,8]", B="f32[8,32]", machine={"add_pipes": 2}),
    "kernel.mask_terms": example("m[i] max= where(C[j,i] > 0, X[j,i], -2147483648)", C="i32[9,32]", X="i32[9,32]"),
    "gpu.unroll": example(PRODUCT, A="f32[64,64]", B="f32[64,64]"),
    "gpu.scalar_replacement": example(
        "S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:N", X="f64[3,8]", N=8
    ),
    "gpu.simplify": example("s[i] += X[i,j]", X="f32[5,3000]"),
    "gpu.launches": example("O[h] += X[h+r-1; pad=0] * K[r]  for h in 0:H", X="f64[10]", K="f64[3]", H=1),
    "gpu.combine": example("s[i] += X[i,j]", X="f32[64,200]"),
    "gpu.wide_accesses": example(PRODUCT, A="f32[1024,1024]", B="f32[1024,1024]"),
}  # fmt: skip
