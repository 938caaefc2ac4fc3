"""The Kernel IR: a loop nest over buffers. What the schedule decided is explicit here; nothing is left to be analysed.

Every expression has a dtype; loop variables, sizes and strides are i64. Index arithmetic is i64 throughout.
Three consumers: `polyker.codegen.ir.verify`, the printers (LLVM IR; CUDA), and in the tests an interpreter in NumPy
(`tests/codegen/interpret.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from polyker.ir.dtypes import DType, i64

AXES = ("x", "y", "z")
# Threads of a GPU that run together, and bytes that one of them may access at once.
WARP, MAX_ACCESS_BYTES = 32, 16


class Space(Enum):
    """Where a buffer lives. ARGUMENT: the caller's; SCRATCH: memory that the run time lends for the call, 64-byte aligned;
    STACK: a small array of constant shape, row-major, which becomes registers where every access to it has a constant place
    (and whose last dimension is padded so that a full vector from any multiple of the lane count stays inside); on a GPU each
    thread has one of its own. SHARED: an array of constant shape, row-major, that the threads of a block share."""

    ARGUMENT = "argument"
    SCRATCH = "scratch"
    STACK = "stack"
    SHARED = "shared"


class LoopKind(Enum):
    """SERIAL; UNROLL: the body is repeated at compile time; VECTOR: one vector instruction for all iterations; TRANSPOSE:
    means what SERIAL means; what its iterations around a VECTOR loop read by columns is read by rows and transposed. STREAM:
    means what SERIAL means; neighbouring elements that it stores are computed by vectors and written by streaming stores.
    SCAN: means what SERIAL means; each iteration combines what the one before stored with a term, grouped in any way.
    PARALLEL: the iterations do not depend on each other, and run on several threads. BLOCK and THREAD: the iterations do not
    depend on each other (but through a Barrier), and are those of a GPU's blocks and of the threads of a block."""

    SERIAL = "serial"
    UNROLL = "unroll"
    TRANSPOSE = "transpose"
    VECTOR = "vector"
    STREAM = "stream"
    SCAN = "scan"
    PARALLEL = "parallel"
    BLOCK = "block"
    THREAD = "thread"


class Const(Struct, frozen=True):
    """A constant of a type."""

    value: bool | int | float | complex
    dtype: DType = i64


class Var(Struct, frozen=True):
    """A loop variable, a size, a stride, or a value bound by Let."""

    name: str
    dtype: DType = i64


class _Kept:
    """Room for a node's polynomial, which is found once (see polyker.codegen.ir.polynomial)."""

    __slots__ = ("kept_polynomial",)
    kept_polynomial: Mapping[tuple[KExpr, ...], int]


class Op(Struct, _Kept, frozen=True, cache_hash=True):
    """An operation on arguments of one type, by name.

    Any type: add mul neg (n-ary add and mul, folded from the left), sub; floordiv mod (floor; by zero gives 0 for integers),
    div, pow; the comparisons lt le gt ge eq ne (dtype bool); minimum maximum (NaN propagates); and or not (bool);
    where(c, a, b); bit_and bit_or bit_xor (n-ary), bit_not, shift_left and shift_right of integers (polyker.ir.expr.BITWISE);
    multiply_add(x, y, z) = x y + z; the functions of polyker.ir.expr.FUNCTIONS. Result type `dtype`.
    join of two integers of 16 bits or four of 8, dot products on i32 or u32, below and above on f32 or f64
    (polyker.ir.expr.INTERNAL).
    What passes for a machine make (FORMS): larger, smaller, larger_masked and smaller_masked (extrema, the first argument where
    one is NaN), fused_add and fused_sub (sums by a multiply-add), copied (of a vector, that the next operation may overwrite).
    """

    op: str
    args: tuple[KExpr, ...]
    dtype: DType = i64


class Convert(Struct, frozen=True):
    """Conversion of a value to `dtype`, as numpy's astype."""

    arg: KExpr
    dtype: DType


class Load(Struct, frozen=True):
    """`buffer[indices]`; where `predicate` (bool) is false memory is not touched and the value is `other`."""

    buffer: str
    indices: tuple[KExpr, ...]
    dtype: DType
    predicate: KExpr | None = None
    other: KExpr | None = None


KExpr: TypeAlias = Const | Var | Op | Convert | Load

# Operations of two arguments that passes for a machine make, with the operation of which each is a form.
FORMS = {
    "larger": "maximum",
    "smaller": "minimum",
    "larger_masked": "maximum",
    "smaller_masked": "minimum",
    "fused_add": "add",
    "fused_sub": "sub",
}
COPIED = "copied"
# Extrema, and what they are where no argument is NaN: one instruction of x86.
FREE = {"maximum": "larger", "minimum": "smaller"}


class Store(Struct, frozen=True):
    """`buffer[indices] = value`; the value has the buffer's dtype."""

    buffer: str
    indices: tuple[KExpr, ...]
    value: KExpr


class VectorLoad(Struct, frozen=True):
    """Bind, for the rest of the enclosing block, neighbouring elements from `buffer[indices]` on, read by one access of up to 16
    bytes: that element's offset is a multiple of their number. Predicate and `other` as of a Load, for all of them."""

    names: tuple[str, ...]
    buffer: str
    indices: tuple[KExpr, ...]
    dtype: DType
    predicate: KExpr | None = None
    other: KExpr | None = None


class VectorStore(Struct, frozen=True):
    """Store values to neighbouring elements from `buffer[indices]` on by one access; the offset as of a VectorLoad."""

    buffer: str
    indices: tuple[KExpr, ...]
    values: tuple[KExpr, ...]


class Copy(Struct, frozen=True):
    """Copy `lanes` neighbouring elements from `source[places]` on to those from `buffer[indices]` on, each by one access; both
    offsets are multiples of `lanes`. Where the predicate is false `source` is not touched: all become `other`.

    `later`: they arrive, in a SHARED buffer, at a Wait of the same thread, no sooner; until then nobody may use them. It is 4, 8
    or 16 bytes, and `other` is 0."""

    buffer: str
    indices: tuple[KExpr, ...]
    source: str
    places: tuple[KExpr, ...]
    lanes: int
    predicate: KExpr | None = None
    other: KExpr | None = None
    later: bool = False


class Commit(Struct, frozen=True):
    """Close a group of the copies that this thread began since the last one and that arrive later; it may be empty."""


class Wait(Struct, frozen=True):
    """Let all copies arrive that this thread began, but those of the last `pending` groups that it closed."""

    pending: int


class Prefetch(Struct, frozen=True):
    """Prefetch the line of `buffer[indices]` in a cache, 1 the nearest, to write it with `write`; the element need not exist."""

    buffer: str
    indices: tuple[KExpr, ...]
    write: bool = False
    cache: int = 1


class Let(Struct, frozen=True):
    """Bind a value, for the rest of the enclosing block."""

    name: str
    value: KExpr


class Guard(Struct, frozen=True):
    """Leave the kernel with status `code` (not 0) unless `condition` holds, in a vector loop for every active lane."""

    condition: KExpr
    code: int


class If(Struct, frozen=True):
    """`if condition: body else: orelse`; in a vector loop the lanes are masked."""

    condition: KExpr
    body: StmtBlock
    orelse: StmtBlock = ()


class For(Struct, frozen=True):
    """`for var in range(lo, hi, step)`, `step` a positive constant.

    VECTOR: step is 1 and hi - lo <= `lanes` always holds (0 and negative too: no lane is active); the body has no inner
    VECTOR loop, and each of its statements may run for all lanes before the next one. UNROLL and TRANSPOSE: `lanes` bounds
    the trip count. STREAM and SCAN: about `lanes` iterations may be taken together. PARALLEL: `lanes` is the number of threads;
    `thread`, bound in the body, is the number of the one that runs an iteration, below it; from `enough` iterations on (None:
    from two on) threads take part at all. It stands in no VECTOR and no other PARALLEL loop, and no STACK buffer
    from outside is used in it.
    BLOCK and THREAD: only inside a Launch; `axis` (x, y or z) names the numbers of blocks or threads that the iterations
    are distributed over in turn, whatever their count; `lanes` of a THREAD loop bounds the trip count,
    and so does that of a BLOCK loop, where it is not 0.
    `trip` is the exact trip count where it is a known constant, else None. `label`: the schedule's loop that it is, for people.
    """

    var: str
    lo: KExpr
    hi: KExpr
    body: StmtBlock
    step: int = 1
    kind: LoopKind = LoopKind.SERIAL
    lanes: int = 0
    trip: int | None = None
    thread: str = ""
    enough: KExpr | None = None
    axis: str = ""
    label: str = ""

    @property
    def most(self) -> int | None:
        """How many iterations a loop over blocks or threads has at most, None where unknown."""
        return self.trip if self.trip is not None else self.lanes or None


def loop_of(
    var: str, count: int, body: StmtBlock, kind: LoopKind = LoopKind.SERIAL, axis: str = "", label: str = ""
) -> For:
    """Return a loop from 0 to a constant."""
    lanes = 0 if kind is LoopKind.SERIAL else count
    return For(var, Const(0), Const(count), body, 1, kind, lanes, count, axis=axis, label=label)


class Allocate(Struct, frozen=True):
    """The extent in the kernel in which STACK or SHARED buffers are alive; their contents start undefined at each entry.

    One extent for all of them, not one in another: a program of many statements has hundreds.
    """

    buffers: tuple[Buffer, ...]
    body: StmtBlock


class Barrier(Struct, frozen=True):
    """No thread of a block goes on before all have come here, and what they wrote is seen by all. `warps`: those of each warp."""

    warps: bool = False


class Shuffle(Struct, frozen=True):
    """Bind, for the rest of the enclosing block, the value of another thread of the warp: of the one whose number in it is this
    thread's xor `mask`. A warp is 32 threads of a block in their order, x fastest; all of them come here together."""

    name: str
    value: KExpr
    mask: int


class Combine(Struct, frozen=True):
    """`buffer[indices] = op(buffer[indices], value of each iteration)` of the THREAD loop along `axis` around it, combined in an
    order that the text fixes; the thread of the loop's first iteration reads and writes the element. All iterations, as many as
    the launch has threads along the axis, come here together; `value` has the type `dtype`, in which it is combined, and the sum
    is converted to the buffer's. With `before`, of that type, too, each iteration stores into an element of its own: `before` of
    the first one, combined with the values of all up to its own. Stands until polyker.codegen.passes.gpu.combine has written it
    out."""

    buffer: str
    indices: tuple[KExpr, ...]
    op: str
    value: KExpr
    axis: str
    before: KExpr | None = None


class Launch(Struct, frozen=True):
    """Run the body as a GPU's kernel of that name, by `grid` blocks of `block` threads (each along x, y, z), to its end.

    Every thread runs the body; BLOCK and THREAD loops distribute their iterations. Along an axis with more than one thread
    (or block) every Store stands inside a loop of that axis. In a kernel with launches all stores stand in them.
    """

    name: str
    grid: tuple[KExpr, KExpr, KExpr]
    block: tuple[int, int, int]
    body: StmtBlock


class PartCall(Struct, frozen=True):
    """Run a part of the kernel on these buffers, one for each of the part's, and integers, one for each of the part's.

    Where it returns the code of a Guard, leave the kernel with that code above `codes`. Stands in no loop.
    """

    part: int
    buffers: tuple[str, ...]
    integers: tuple[KExpr, ...]
    codes: int = 0


Wide: TypeAlias = VectorLoad | VectorStore | Copy
ThreadSync: TypeAlias = Barrier | Commit | Wait
Stmt: TypeAlias = (
    Store | Wide | Prefetch | Let | Guard | If | For | Allocate | ThreadSync | Shuffle | Combine | Launch | PartCall
)
StmtBlock: TypeAlias = tuple[Stmt, ...]


class Buffer(Struct, frozen=True):
    """Memory of one type; element (i, j, …) lies at sum(index * stride), strides in elements.

    `later`: a Copy into it, a SHARED one, may arrive later. `alignment`: bytes that the first element's address is
    a multiple of, where an ARGUMENT buffer, a dense one, needs more than its element type. `swizzle`: where it is not 0 an
    element of a SHARED buffer, a dense one, lies where polyker.schedule.tree.swizzle places its offset: with its neighbours
    within 16 bytes, so that all accesses are what they are without it. Only the printer and the interpreter know the place.
    `once`: all that is stored to an ARGUMENT buffer is the result of one statement that sets elements.
    """

    name: str
    dtype: DType
    shape: tuple[KExpr, ...]
    strides: tuple[KExpr, ...]
    space: Space
    writable: bool = True
    alignment: int = 0
    later: bool = False
    swizzle: int = 0
    once: bool = False


Pairs: TypeAlias = frozenset[tuple[str, str]]


class KernelIR(Struct, frozen=True):
    """A function `i64 name(ptr pointers, ptr integers)` that returns 0, or the code of the Guard that failed.

    `pointers` is an array of the data pointers of `buffers` in order (ARGUMENT and SCRATCH ones); `integers` an array of i64
    values of `integers` in order (sizes, then strides), and where a loop is PARALLEL the address of the run time's functions
    (polyker.codegen.llvm.loops.parallel) after them. Output buffers alias no other buffer.
    `fastmath`: LLVM flags allowed on every operation, none by default. `disjoint`: pairs of SCRATCH buffers that may lie in the
    same memory: no value of one is needed once the other is written. `in_place`: pairs that may if they begin at the same place.
    `parts`: kernels that its body runs, any of them several times (see PartCall); `lifetimes`: of a kernel of parts, the first
    and the last call that needs each SCRATCH buffer, in their order.
    """

    name: str
    buffers: tuple[Buffer, ...]
    integers: tuple[str, ...]
    body: StmtBlock
    fastmath: tuple[str, ...] = ()
    disjoint: Pairs = frozenset()
    in_place: Pairs = frozenset()
    parts: tuple[KernelIR, ...] = ()
    lifetimes: tuple[tuple[int, int], ...] = ()
