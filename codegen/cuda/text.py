"""Kernels on a GPU as CUDA C that a person can read: one function a Launch, and the host's function that launches them.

The same text is compiled by nvcc, by NVRTC (which leaves the host's function out) and, for the simulator, by a C++ compiler;
it begins with the one header that it needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files

from msgspec import Struct, field

from polyker.codegen.cuda.expressions import I32_LIMIT, CudaExpressions, identifier, is_single, magnitude
from polyker.codegen.cuda.functions import PLACE, code_of, listed
from polyker.codegen.ir.kernel import (
    AXES,
    WARP,
    Allocate,
    Barrier,
    Buffer,
    Commit,
    Const,
    Copy,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Launch,
    Let,
    Load,
    LoopKind,
    Op,
    Prefetch,
    Shuffle,
    Space,
    Stmt,
    StmtBlock,
    Store,
    VectorLoad,
    VectorStore,
    Wait,
)
from polyker.codegen.ir.polynomial import is_arithmetic, polynomial
from polyker.codegen.ir.simplify_index import IndexRange, bounds
from polyker.codegen.ir.walk import expressions, loaded, loads_in, statements, subexpressions, uses
from polyker.codegen.passes.gpu.launch import arguments_of, loop_range, shared_memory
from polyker.errors.base import InternalError
from polyker.ir.functions import OPERATORS, TABLE, cost_of

_UPDATES = {"add": "+=", "mul": "*="}
# Threads of a multiprocessor that ptxas is to find registers for, at least. Where it is told nothing it spills for more of them
# (seen). A block has whole warps' registers, however few its threads, and some multiprocessors take no more than 16 blocks.
MIN_RESIDENT_THREADS = 512
# Iterations of a loop that the compiler is to take together: loads in flight at a time, on top of what the schedule unrolled.
# And iterations of one that has nothing but few statements in it, so that the reads of one wait while the others compute: at
# most `MAX_UNROLLED_STATEMENTS` statements become of it. A function that is tens to hundreds of instructions counts as
# `FUNCTION_STATEMENTS` more (experience values).
UNROLL_FACTOR, MAX_UNROLLED_STATEMENTS, FUNCTION_STATEMENTS = 4, 512, 64
_LONG = frozenset(op for op in (*OPERATORS, *TABLE) if cost_of(op).long_on_gpus)


@cache
def data_file(name: str) -> str:
    """Return the text of one of the package's headers or sources."""
    return (files("polyker.data") / name).read_text(encoding="utf-8").replace(PLACE, listed())


def cuda_source(kernel: KernelIR, sizes: frozenset[str], labels: Mapping[str, str]) -> str:
    """Return the whole text: header, kernels, and the host's function.

    `sizes`: those of the kernel's integers that are sizes, not strides; `labels`: names of tensors for people.
    """
    return "\n".join((data_file("pk_cuda.h"), cuda_kernels(kernel, sizes, labels)))


def cuda_kernels(kernel: KernelIR, sizes: frozenset[str], labels: Mapping[str, str]) -> str:
    """Return the kernels and the host's function, without the header."""
    known: dict[str, IndexRange] = dict.fromkeys(sizes, (0, None))
    host = _Host(kernel, known)
    body = list(host.block(kernel.body, 1))
    text = [
        f"// {b.name}: {_comment(labels.get(b.name, b.name))}, {b.dtype}, {b.space.value}"
        + (f", at a multiple of {b.alignment} bytes" if b.alignment else "")
        for b in kernel.buffers
    ]
    for code in code_of("\n".join(line for function in host.functions for line in function)):
        text += ["", code]
    for function in host.functions:
        text += ["", *function]
    text += ["", *_host_function(kernel, body), ""]
    return "\n".join(text)


def _comment(label: str) -> str:
    """Return a name that cannot end a comment."""
    return "".join(c if c.isalnum() or c in "_.[], " else "_" for c in label)


def _host_function(kernel: KernelIR, body: list[str]) -> Iterator[str]:
    yield "#ifndef __CUDACC_RTC__"
    yield "// Launches the kernels in order. `pointers`: the arrays; `failed`: 4 bytes for pk_fail, 0 before."
    yield 'extern "C" void launch(void **pointers, const i64 *integers, int *failed, pk_stream stream) {'
    read = set(re.findall(r"\w+", "\n".join(body)))
    for n, b in enumerate(kernel.buffers):
        kind = f"{'' if b.writable else 'const '}{b.dtype.name} *"
        if identifier(b.name) in read:
            yield f"  {kind}{identifier(b.name)} = ({kind})pointers[{n}];"
    for n, name in enumerate(kernel.integers):
        if identifier(name) in read:
            yield f"  const i64 {identifier(name)} = integers[{n}];"
    yield from body
    yield "}"
    yield "#endif"


def _branches(stmt: If, condition: str, block: Callable[[StmtBlock, int], Iterator[str]], depth: int) -> Iterator[str]:
    """Print a test, whose blocks `block` prints."""
    pad = "  " * depth
    yield f"{pad}if ({condition}) {{"
    yield from block(stmt.body, depth + 1)
    if stmt.orelse:
        yield pad + "} else {"
        yield from block(stmt.orelse, depth + 1)
    yield pad + "}"


class _Host(Struct, dict=True):
    """What runs on the host: loops around launches."""

    kernel: KernelIR
    known: dict[str, IndexRange]
    functions: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.e = CudaExpressions({}, dict(self.known))

    def block(self, block: StmtBlock, depth: int) -> Iterator[str]:
        pad = "  " * depth
        for stmt in block:
            match stmt:
                case For(var=var, lo=lo, hi=hi, step=step, body=body):
                    name = identifier(var)
                    by = f"{name}++" if step == 1 else f"{name} += {step}"
                    yield f"{pad}for (i64 {name} = {self.e.index(lo)}; {name} < {self.e.index(hi)}; {by}) {{"
                    self.e.ranges[var] = loop_range(stmt, self.e.ranges)
                    yield from self.block(body, depth + 1)
                    yield pad + "}"
                case If():
                    yield from _branches(stmt, self.e.condition(stmt.condition), self.block, depth)
                case Launch():
                    yield pad + self._launch(stmt)
                case _:
                    raise InternalError(f"{type(stmt).__name__} has no place on the host")

    def _launch(self, launch: Launch) -> str:
        buffers, numbers, fails = arguments_of(self.kernel, launch)
        device = _Device(self.kernel, CudaExpressions({b.name: b for b in buffers}, dict(self.e.ranges)), launch)
        aliasing = {name for pair in self.kernel.disjoint for name in pair}
        parameters = [
            f"{'' if b.writable else 'const '}{b.dtype.name} *{'' if b.name in aliasing else '__restrict__ '}{identifier(b.name)}"
            for b in buffers
        ]
        parameters += [f"i64 {identifier(n)}" for n in numbers] + (["int *failed"] if fails else [])
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        resident = max(1, MIN_RESIDENT_THREADS // max(threads, WARP))
        self.functions.append(
            [
                f'extern "C" __global__ void __launch_bounds__({threads}, {resident}) {launch.name}(',
                *(f"    {p}{',' if n + 1 < len(parameters) else ') {'}" for n, p in enumerate(parameters)),
                *(["    ) {"] if not parameters else []),
                *device.block(launch.body, 1),
                "}",
            ]
        )
        arguments = [identifier(b.name) for b in buffers] + [identifier(n) for n in numbers]
        arguments += ["failed"] if fails else []
        grid = ", ".join(
            f"unsigned({self.e.index(g)})" if not isinstance(g, Const) else self.e.index(g) for g in launch.grid
        )
        sizes = ", ".join(map(str, launch.block))
        together = any(isinstance(s, (Barrier, Shuffle, Wait)) for s in statements(launch.body))
        asked = shared_memory(launch).asked
        how = f"PK_LAUNCH_SHARED({launch.name}, {asked}" if asked else f"PK_LAUNCH({launch.name}"
        return f"{how}, ({grid}), ({sizes}), {', '.join((str(int(together)), *arguments))});"


class _Device(Struct, dict=True):
    """What a thread runs."""

    kernel: KernelIR
    e: CudaExpressions
    launch: Launch

    def __post_init__(self) -> None:
        self.shared = shared_memory(self.launch)

    def block(self, block: StmtBlock, depth: int) -> Iterator[str]:
        pad = "  " * depth
        for n, stmt in enumerate(block):
            if isinstance(stmt, Guard):
                # A thread that finds an index outside tells it, and leaves out what uses it.
                yield f"{pad}if ({self.e.condition(stmt.condition)}) {{"
                yield from self.block(block[n + 1 :], depth + 1)
                yield f"{pad}}} else pk_fail(failed, {stmt.code});"
                return
            if len(block) > 1 and (isinstance(stmt, Allocate) or (isinstance(stmt, For) and bool(stmt.axis))):
                yield pad + "{"
                yield from self.statement(stmt, depth + 1)
                yield pad + "}"
            else:
                yield from self.statement(stmt, depth)

    def statement(self, stmt: Stmt, depth: int) -> Iterator[str]:  # noqa: C901 (one short case a kind of statement)
        """Print a statement."""
        pad = "  " * depth
        match stmt:
            case Store():
                yield pad + self._store(stmt)
            case VectorLoad():
                yield from self._vector_load(stmt, pad)
            case VectorStore(buffer=buffer, indices=indices, values=values):
                texts = ", ".join(_bare(self.e.value(v)) for v in values)
                kind = f"pk_vector<{self.e.buffers[buffer].dtype.name}, {len(values)}>"
                yield f"{pad}pk_put(&{self.e.place(buffer, indices)}, {kind}{{{{{texts}}}}});"
            case Copy(later=True):
                yield pad + self._copy_later(stmt)
            case Commit():
                yield f"{pad}pk_commit();"
            case Wait(pending=pending):
                yield f"{pad}pk_wait<{pending}>();"
            case Copy(buffer=buffer, indices=indices):
                yield f"{pad}pk_put(&{self.e.place(buffer, indices)}, {self._wide(stmt)});"
            case Prefetch():
                pass
            case Let(name=name, value=value):
                yield f"{pad}const {value.dtype.name} {identifier(name)} = {self.e.value(value)};"
            case If():
                yield from _branches(stmt, self.e.condition(stmt.condition), self.block, depth)
            case For(kind=LoopKind.BLOCK | LoopKind.THREAD):
                yield from self._dealt(stmt, depth)
            case For():
                yield from self._loop(stmt, depth)
            case Allocate():
                yield from self._scope(stmt, depth)
            case Barrier(warps=warps):
                yield f"{pad}{'__syncwarp' if warps else '__syncthreads'}();"
            case Shuffle(name=name, value=value, mask=mask):
                yield f"{pad}const {value.dtype.name} {identifier(name)} = pk_shfl_xor({_bare(self.e.value(value))}, {mask});"
            case _:
                raise InternalError(f"{type(stmt).__name__} has no place in a kernel")

    def _loop(self, loop: For, depth: int) -> Iterator[str]:
        """Print a loop that each thread runs by itself."""
        pad, name = "  " * depth, identifier(loop.var)
        by = f"{name}++" if loop.step == 1 else f"{name} += {loop.step}"
        first, last = self.e.index(loop.lo), self.e.index(loop.hi)
        self.e.ranges[loop.var] = loop_range(loop, self.e.ranges)
        if self._walks_registers(loop):
            yield "#pragma unroll"
        elif self._follows_memory(loop) or _is_inner(loop):
            yield f"#pragma unroll {UNROLL_FACTOR}"
        yield f"{pad}for ({self.e.declare(loop.var, step=loop.step)} {name} = {first}; {name} < {last}; {by}) {{"
        if loop.thread:  # of a CPU's threads; here one thread runs them all
            yield f"{pad}  const i64 {identifier(loop.thread)} = 0;"
        yield from self.block(loop.body, depth + 1)
        yield pad + "}"

    def _scope(self, stmt: Allocate, depth: int) -> Iterator[str]:
        """Print the declarations of buffers, and the block in which they live."""
        for b in stmt.buffers:
            yield "  " * depth + self._declared(b)
            self.e.buffers[b.name] = b
        yield from self.block(stmt.body, depth)
        for b in stmt.buffers:
            del self.e.buffers[b.name]

    def _vector_load(self, stmt: VectorLoad, pad: str) -> Iterator[str]:
        """Print a load of neighbouring elements, and the variables that each of them is."""
        kind, whole = stmt.dtype.name, identifier(stmt.names[0].rpartition(".")[0])
        yield f"{pad}const pk_vector<{kind}, {len(stmt.names)}> {whole} = {self._wide(stmt)};"
        each = (f"{identifier(n)} = {whole}.lane[{k}]" for k, n in enumerate(stmt.names))
        yield f"{pad}const {kind} {', '.join(each)};"

    def _copy_later(self, copy: Copy) -> str:
        """Return the call that begins an asynchronous copy."""
        arguments = [f"&{self.e.place(copy.buffer, copy.indices)}", f"&{self.e.place(copy.source, copy.places)}"]
        arguments += [] if copy.predicate is None else [self.e.condition(copy.predicate)]
        return f"pk_copy_later<{copy.lanes}>({', '.join(arguments)});"

    def _wide(self, stmt: VectorLoad | Copy) -> str:
        """Return the neighbouring elements that a statement reads."""
        if isinstance(stmt, Copy):
            name, indices, lanes = stmt.source, stmt.places, stmt.lanes
        else:
            name, indices, lanes = stmt.buffer, stmt.indices, len(stmt.names)
        text = f"pk_get<{lanes}>(&{self.e.place(name, indices)})"
        if stmt.predicate is None or stmt.other is None:
            return text
        return f"{self.e.condition(stmt.predicate)} ? {text} : pk_all<{lanes}>({_bare(self.e.value(stmt.other))})"

    def _walks_registers(self, loop: For) -> bool:
        """Return whether a loop of few statements in all moves along an array that each thread has.

        The array lies in registers where all places are constant, that is once the loop is unrolled whole; else in memory.
        """
        if loop.trip is None or loop.trip * _length(loop) > MAX_UNROLLED_STATEMENTS:
            return False
        own = {n for n, b in self.e.buffers.items() if b.space is Space.STACK}
        for stmt in statements(loop.body):
            accesses = (*((stmt,) if isinstance(stmt, Store) else ()), *loads_in(*expressions(stmt)))
            if any(a.buffer in own and uses(loop.var, *a.indices) for a in accesses):
                return True
        return False

    def _follows_memory(self, loop: For) -> bool:
        """Return whether an innermost loop of many iterations reads memory, the device's or shared.

        The compiler would unroll a short one whole and keep all it reads, more than there are registers, for the loops around it;
        one of many statements it would not unroll at all, and wait for each load.
        """
        inside = list(statements(loop.body))
        if (loop.trip is not None and loop.trip <= UNROLL_FACTOR) or any(isinstance(s, For) for s in inside):
            return False
        if UNROLL_FACTOR * _length(loop) > MAX_UNROLLED_STATEMENTS:
            return False
        far = {b.name for b in self.kernel.buffers}
        return bool(loaded(loop.body) & far)

    def _declared(self, buffer: Buffer) -> str:
        name = identifier(buffer.name)
        if is_single(buffer):
            return f"{buffer.dtype.name} {name};"
        elements = 1
        for size in buffer.shape:
            assert isinstance(size, Const)
            elements *= int(size.value.real)
        if buffer.space is Space.SHARED and self.shared.asked:
            return f"PK_SHARED({buffer.dtype.name}, {name}, {elements}, {self.shared.places[buffer.name]});"
        shared = "alignas(16) __shared__ " if buffer.space is Space.SHARED else ""  # read by up to 16 bytes at once
        return f"{shared}{buffer.dtype.name} {name}[{elements}];"

    def _store(self, stmt: Store) -> str:
        place = self.e.place(stmt.buffer, stmt.indices)
        match stmt.value:
            # Longer sums are folded from the left: what stands on the right here would be summed first.
            case Op(op=op, args=(Load(predicate=None) as old, term), dtype=dtype) if (
                op in _UPDATES
                and dtype.name in ("f32", "f64")
                and (old.buffer, old.indices) == (stmt.buffer, stmt.indices)
            ):
                return f"{place} {_UPDATES[op]} {_bare(self.e.value(term))};"
            case _:
                pass
        return f"{place} = {_bare(self.e.value(stmt.value))};"

    def _dealt(self, loop: For, depth: int) -> Iterator[str]:
        """Print a loop over blocks or threads: one iteration each where there are enough of them, else in turn."""
        pad, name = "  " * depth, identifier(loop.var)
        blocks = loop.kind is LoopKind.BLOCK
        mine = f"{'blockIdx' if blocks else 'threadIdx'}.{loop.axis}"
        axis = AXES.index(loop.axis)
        count = self.launch.grid[axis] if blocks else Const(self.launch.block[axis])
        least, most = loop_range(loop, self.e.ranges)
        latest = bounds(polynomial(loop.lo), self.e.ranges)[1]
        if not blocks and most is None and latest is not None:
            most = latest + loop.step * (loop.lanes - 1)
        self.e.ranges[loop.var] = least, most
        lo, hi = self.e.index(loop.lo), self.e.index(self._bound(loop, count, blocks=blocks))
        step = "" if loop.step == 1 else f"{loop.step} * "
        enough = _covers(loop, count)
        # Where threads take turns, the last turn of each may lead far beyond the bound.
        past = loop.step * int(count.value.real) if enough and isinstance(count, Const) else I32_LIMIT
        start = magnitude(loop.lo, self.e.ranges, self.e.narrow)
        kind = self.e.declare(loop.var, most=I32_LIMIT if start is None else start + past)
        # CUDA's numbers of blocks and threads are unsigned and of 32 bits.
        first = mine if loop.step == 1 and lo == "0" else f"{lo} + {step}{kind}({mine})"
        if enough and loop.trip is not None and count == Const(loop.trip):
            if any(uses(loop.var, *expressions(s)) for s in statements(loop.body)):
                yield f"{pad}const {kind} {name} = {lo if loop.trip == 1 else first};"
            yield from self.block(loop.body, depth)
            return
        head = f"if (const {kind} {name} = {first}; {name} < {hi})"
        if not enough:
            by = f"{step}{kind}({'gridDim' if blocks else 'blockDim'}.{loop.axis})"
            head = f"for ({kind} {name} = {first}; {name} < {hi}; {name} += {by})"
        yield f"{pad}{head} {{"
        yield from self.block(loop.body, depth + 1)
        yield pad + "}"

    def _bound(self, loop: For, count: KExpr, *, blocks: bool) -> KExpr:
        """Return the upper bound of a loop over threads, without what the number of threads says already."""
        match loop.hi:
            case Op(op="minimum", args=args) if not blocks and loop.step == 1 and loop.lo == Const(0):
                rest = tuple(a for a in args if a != count)
                if len(rest) < len(args) and rest:
                    return rest[0] if len(rest) == 1 else Op("minimum", rest)
        return loop.hi


def _is_inner(loop: For) -> bool:
    """Whether a loop of a known number of iterations has statements alone in it, and not too many to be repeated."""
    if loop.trip is None or loop.trip <= UNROLL_FACTOR or loop.trip % UNROLL_FACTOR:
        return False
    inside = statements(loop.body)
    return UNROLL_FACTOR * _length(loop) <= MAX_UNROLLED_STATEMENTS and all(isinstance(s, (Store, Let)) for s in inside)


def _length(loop: For) -> int:
    """Return how long a loop's body is, in statements."""
    inside = list(statements(loop.body))
    nodes = (e for s in inside for top in expressions(s) for e in subexpressions(top))
    return len(inside) + FUNCTION_STATEMENTS * sum(
        isinstance(e, Op) and e.op in _LONG and not is_arithmetic(e) for e in nodes
    )


def _covers(loop: For, count: KExpr) -> bool:
    """Return whether each iteration is known to have a block or thread of its own."""
    return isinstance(count, Const) and loop.most is not None and loop.most <= int(count.value.real)


def _bare(text: str) -> str:
    """Return an expression without the parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for n, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0 and n + 1 < len(text):
            return text
    return text[1:-1]
