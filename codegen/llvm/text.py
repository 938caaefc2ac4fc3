"""LLVM IR as text: virtual registers, regions, and the placing of pure instructions.

The emitter keeps a stack of regions (function entry, preheader and body of each open loop, branch of an If). A pure
instruction goes into the outermost region in which its operands exist and is emitted once per region: hoisting of loop
invariants and elimination of common subexpressions happen while the text is written, so LLVM has little left to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field

from polyker.codegen.llvm.fold import fold_binary, fold_compare, neutral, number, numbers
from polyker.codegen.vecmath.core.build import literal
from polyker.ir.instructions import DotProduct

LLVM_TYPES = {
    "f32": "float", "f64": "double", "f16": "float", "bf16": "float", "bool": "i1",
    **{f"{k}{b}": f"i{b}" for k in "iu" for b in (8, 16, 32, 64)},
}  # fmt: skip


class Reg(NamedTuple):
    """A register or a constant: its text, LLVM element type, number of lanes (1: a scalar), and region level."""

    text: str
    elem: str
    lanes: int
    level: int

    @property
    def type(self) -> str:
        """The LLVM type."""
        return self.elem if self.lanes == 1 else f"<{self.lanes} x {self.elem}>"

    @property
    def typed(self) -> str:
        """Type and text, as an operand."""
        return f"{self.type} {self.text}"

    @property
    def is_constant(self) -> bool:
        """Whether it is a literal."""
        return not self.text.startswith("%")


def const(value: bool | int | float, elem: str) -> Reg:
    """Return a scalar constant."""
    return Reg(literal(value, elem), elem, 1, 0)


def vector(values: list[int], elem: str) -> Reg:
    """Return a vector constant of integers."""
    text = ", ".join(f"{elem} {literal(v, elem)}" for v in values)
    return Reg(f"<{text}>", elem, len(values), 0)


class LoadedVector(Struct, frozen=True, eq=False):
    """A line that loads a vector: what stands there is decided when the function is complete.

    It begins `at` elements behind the pointer `root`; `how`: its alignment and metadata; `invariant`: nothing writes there, else
    it lies on the stack; `piece`: see Region.
    """

    text: str
    reg: Reg
    root: str
    at: int
    how: str
    invariant: bool
    piece: object

    def __str__(self) -> str:
        return self.text


Line: TypeAlias = str | LoadedVector


class Region(Struct):
    """A straight piece of the function under construction.

    `kind`: entry, preheader, body, or branch. `certain`: a preheader whose loop surely runs. `blocked`: a Guard stands
    in it already, so that no load may move above. `values`: what was computed in it, by instruction text. `written`: the buffers
    that some statement of its loop stores to. `piece` stands for the basic block that it goes on with.
    """

    kind: str
    lines: list[Line] = field(default_factory=list)
    values: dict[str, Reg] = field(default_factory=dict)
    certain: bool = False
    blocked: bool = False
    written: frozenset[str] = frozenset()
    piece: object = field(default_factory=object)


class IRBuilder:
    """Writes instructions of one function.

    `native_half`: the target converts f16 in hardware; `native_maximum`: it has NaN-propagating minimum and maximum;
    `fma`: whether its multiply-adds round once (see Target); `avx512`: it has that set's registers of 64 bytes; `dots`: its
    instructions on products of narrow integers, in up to `dot_lanes` lanes. `extrema`: minima and maxima by their register: what
    they are where neither operand is NaN, and the operands. `clears`: the buffers that hold zeros when the function begins, with
    how many lines they have."""

    def __init__(
        self,
        fastmath: str = "",
        *,
        native_half: bool = True,
        native_maximum: bool = False,
        fma: str = "fused",
        avx512: bool = False,
        dots: tuple[DotProduct, ...] = (),
        dot_lanes: int = 4,
    ) -> None:
        self.native_half, self.native_maximum = native_half, native_maximum
        self.fma, self.avx512 = fma, avx512
        self.dots = {r.op: r for r in dots}
        self.dot_lanes = dot_lanes
        self.regions: list[Region] = [Region("entry")]
        self.allocas: list[str] = []
        self.clears: dict[str, int] = {}
        self.declarations: dict[str, str] = {}
        self.definitions: dict[str, str] = {}
        self.extrema: dict[str, tuple[Reg, Reg, Reg]] = {}
        self.block = "body"
        self.fastmath = f"{fastmath} " if fastmath else ""
        self._count = 0
        # Of pointers that lie a known number of elements behind another: the elements' type, that pointer, the number.
        self._elements: dict[str, tuple[str, str, int]] = {}
        self._pointers: dict[tuple[int, tuple[str, ...]], tuple[Reg, Region]] = {}

    def name(self) -> str:
        """Return a fresh register name."""
        return f"%v{self.number()}"

    def number(self) -> int:
        """Return a number that nothing else has."""
        self._count += 1
        return self._count

    def label(self) -> str:
        """Return a fresh block name."""
        self._count += 1
        return f"b{self._count}"

    @property
    def level(self) -> int:
        """The level of the innermost region."""
        return len(self.regions) - 1

    @property
    def top(self) -> Region:
        """The innermost region."""
        return self.regions[-1]

    def line(self, text: str) -> None:
        """Write a line into the innermost region."""
        self.regions[-1].lines.append(text)

    def start_block(self, label: str) -> None:
        """Open a basic block in the innermost region."""
        self.line(f"{label}:")
        self.block = self.top.piece = label

    def pure(self, text: str, elem: str, lanes: int, operands: tuple[Reg, ...], *, costly: bool = False) -> Reg:
        """Return the result of an instruction without side effects.

        It goes as far out as its operands allow: out of loops, but into a branch rather than before it, so that the
        other way does not pay for it; a `costly` one leaves no branch at all.
        """
        lowest = level = max([r.level for r in operands], default=0)
        regions = self.regions
        if costly:
            level = self.level
            while level > lowest and regions[level].kind != "branch":
                level -= 1
        else:
            while level < self.level and regions[level + 1].kind == "branch":
                level += 1
        for region in regions[lowest : level + 1]:
            if (known := region.values.get(text)) is not None:
                return known
        found = Reg(self.name(), elem, lanes, level)
        regions[level].lines.append(f"  {found.text} = {text}")
        regions[level].values[text] = found
        return found

    def impure(self, text: str, elem: str, lanes: int) -> Reg:
        """Return the result of an instruction that stays where it is."""
        result = Reg(self.name(), elem, lanes, self.level)
        self.line(f"  {result.text} = {text}")
        return result

    def load(
        self,
        text: str,
        elem: str,
        lanes: int,
        operands: tuple[Reg, ...],
        buffer: str | None = None,
        vector: str = "",
    ) -> Reg:
        """Return the result of a load: once per region, and before the loops that surely run it and do not write there.

        `buffer`: the name of what is read if the kernel writes it, else None; `vector`: the alignment and metadata of a
        whole one.
        """
        for region in reversed(self.regions):
            if (known := region.values.get(text)) is not None:
                return known
        lowest = max([r.level for r in operands], default=0)
        level, moves = self.level, buffer not in self.top.written
        while moves and level > lowest and buffer not in self.regions[level - 1].written:
            region = self.regions[level]
            if region.kind == "branch" or (region.kind == "body" and region.blocked):
                break
            if region.kind == "preheader" and not region.certain:
                break
            level -= 1
        region, result = self.regions[level], Reg(self.name(), elem, lanes, level)
        line, loaded = f"  {result.text} = {text}", None
        if vector:
            pointer = operands[0].text
            kind, root, at = self._elements.get(pointer, (elem, pointer, 0))
            root, at = (root, at) if kind == elem else (pointer, 0)
            loaded = LoadedVector(line, result, root, at, vector, buffer is None, region.piece)
        region.lines.append(loaded or line)
        if moves:
            region.values[text] = result
        return result

    def element(self, kind: str, pointer: Reg, offset: Reg) -> Reg:
        """Return the pointer so many elements of a type behind another."""
        text, lanes = f"getelementptr {kind}, {pointer.typed}, {offset.typed}", max(pointer.lanes, offset.lanes)
        found = self.pure(text, "ptr", lanes, (pointer, offset))
        if lanes == 1 and (count := number(offset.text, "i64")) is not None:
            before, root, at = self._elements.get(pointer.text, (kind, pointer.text, 0))
            self._elements[found.text] = (
                (kind, root, at + int(count)) if before == kind else (kind, pointer.text, int(count))
            )
        return found

    def is_known(self, text: str) -> bool:
        """Return whether the result of an instruction is at hand."""
        return any(text in region.values for region in self.regions)

    def pointer(self, at: tuple[int, tuple[str, ...]]) -> Reg | None:
        """Return the pointer to a place, if it is at hand."""
        known = self._pointers.get(at)
        if known is None or known[0].level >= len(self.regions) or self.regions[known[0].level] is not known[1]:
            return None
        return known[0]

    def keep_pointer(self, at: tuple[int, tuple[str, ...]], pointer: Reg) -> Reg:
        """Keep the pointer to a place that the emitter knows by a number and registers, as long as its region is open."""
        self._pointers[at] = pointer, self.regions[pointer.level]
        return pointer

    def splat(self, reg: Reg, lanes: int) -> Reg:
        """Return a scalar repeated over `lanes` lanes."""
        if reg.lanes == lanes:
            return reg
        if lanes == 1:
            return reg
        if reg.is_constant:
            return Reg(f"splat ({reg.typed})", reg.elem, lanes, 0)
        one = self.pure(f"insertelement <{lanes} x {reg.elem}> poison, {reg.typed}, i64 0", reg.elem, lanes, (reg,))
        text = f"shufflevector {one.typed}, {one.type} poison, <{lanes} x i32> zeroinitializer"
        return self.pure(text, reg.elem, lanes, (one,))

    def unify(self, *regs: Reg) -> tuple[Reg, ...]:
        """Return the operands with one number of lanes."""
        lanes = max(r.lanes for r in regs)
        return tuple(self.splat(r, lanes) for r in regs)

    def binary(self, op: str, a: Reg, b: Reg, *, costly: bool = False) -> Reg:
        """Return `op a, b` (arithmetic, bitwise)."""
        x, y = number(a.text, a.elem), number(b.text, b.elem)
        if y is not None and neutral(op, y, a.elem) and a.lanes >= b.lanes:
            return a
        if x is not None and neutral(op, x, a.elem) and b.lanes >= a.lanes and op in ("add", "mul", "and", "or", "xor"):
            return b
        if x is not None and y is not None and (value := fold_binary(op, x, y, a.elem)) is not None:
            return self.splat(const(value, a.elem), max(a.lanes, b.lanes))
        a, b = self.unify(a, b)
        return self.pure(f"{op} {a.typed}, {b.text}", a.elem, a.lanes, (a, b), costly=costly)

    def compare(self, op: str, a: Reg, b: Reg) -> Reg:
        """Return `op a, b` with an i1 result (`icmp slt`, `fcmp olt`)."""
        x, y = number(a.text, a.elem), number(b.text, b.elem)
        if x is not None and y is not None and (value := fold_compare(op, x, y, a.elem)) is not None:
            return self.splat(const(value, "i1"), max(a.lanes, b.lanes))
        a, b = self.unify(a, b)
        left, right = numbers(a.text, a.elem, a.lanes), numbers(b.text, b.elem, b.lanes)
        if a.lanes > 1 and left is not None and right is not None:
            found = [fold_compare(op, x, y, a.elem) for x, y in zip(left, right, strict=True)]
            if None not in found:
                same = len({*found}) == 1
                return (
                    self.splat(const(bool(found[0]), "i1"), a.lanes) if same else vector(list(map(bool, found)), "i1")
                )
        return self.pure(f"{op} {a.typed}, {b.text}", "i1", a.lanes, (a, b))

    def select(self, c: Reg, a: Reg, b: Reg) -> Reg:
        """Return `c ? a : b` lane by lane."""
        if (known := number(c.text, c.elem)) is not None:
            return self.splat(a if known else b, max(c.lanes, a.lanes, b.lanes))
        if a == b and a.lanes >= c.lanes:
            return a
        if c.lanes == 1:
            a, b = self.unify(a, b)
        else:
            c, a, b = self.unify(c, a, b)
        return self.pure(f"select {c.typed}, {a.typed}, {b.typed}", a.elem, a.lanes, (c, a, b))

    def convert(self, op: str, a: Reg, elem: str) -> Reg:
        """Return `op a to elem` (zext, sitofp, bitcast between lanes of one size, ...)."""
        if a.elem == elem:
            return a
        target = elem if a.lanes == 1 else f"<{a.lanes} x {elem}>"
        return self.pure(f"{op} {a.typed} to {target}", elem, a.lanes, (a,))

    def call(self, symbol: str, elem: str, lanes: int, args: tuple[Reg, ...], *, costly: bool = False) -> Reg:
        """Return the result of a pure call, declared on the way."""
        result = elem if lanes == 1 else f"<{lanes} x {elem}>"
        self.declare(symbol, f"declare {result} @{symbol}({', '.join(a.type for a in args)})")
        text = f"call {result} @{symbol}({', '.join(a.typed for a in args)})"
        return self.pure(text, elem, lanes, args, costly=costly)

    def intrinsic(self, name: str, *args: Reg, costly: bool = False, flags: bool = False) -> Reg:
        """Return `llvm.<name>.<type>(args)` whose operands and result have one type."""
        args = self.unify(*args)
        symbol = f"llvm.{name}.{suffix(args[0])}"
        kind = args[0].type
        self.declare(symbol, f"declare {kind} @{symbol}({', '.join(a.type for a in args)})")
        text = f"call {self.fastmath if flags else ''}{kind} @{symbol}({', '.join(a.typed for a in args)})"
        return self.pure(text, args[0].elem, args[0].lanes, args, costly=costly)

    def declare(self, symbol: str, text: str) -> None:
        """Note an external declaration, unless the symbol is defined here."""
        if symbol not in self.definitions:
            self.declarations[symbol] = text

    def extract(self, a: Reg, lane: int) -> Reg:
        """Return one lane of a vector."""
        return self.pure(f"extractelement {a.typed}, i64 {lane}", a.elem, 1, (a,))

    def insert(self, into: Reg, value: Reg, lane: int) -> Reg:
        """Return `into` with one lane replaced."""
        return self.pure(f"insertelement {into.typed}, {value.typed}, i64 {lane}", into.elem, into.lanes, (into, value))

    def shuffle(self, a: Reg, b: Reg | None, lanes: list[int]) -> Reg:
        """Return the lanes of a (and b, counted after a's) in the given order; b None: a alone."""
        other = f"{b.typed}" if b is not None else f"{a.type} poison"
        order = ", ".join(f"i32 {k}" for k in lanes)
        operands = (a,) if b is None else (a, b)
        return self.pure(
            f"shufflevector {a.typed}, {other}, <{len(lanes)} x i32> <{order}>", a.elem, len(lanes), operands
        )

    def lanes(self, a: Reg, lanes: list[int]) -> Reg:
        """Return some lanes of a vector, a single one as a scalar."""
        return self.extract(a, lanes[0]) if len(lanes) == 1 else self.shuffle(a, None, lanes)

    def any(self, mask: Reg) -> Reg:
        """Return whether some lane of an i1 vector is true."""
        return self._reduced("or", any, mask)

    def all(self, mask: Reg) -> Reg:
        """Return whether all lanes of an i1 vector are true."""
        return self._reduced("and", all, mask)

    def _reduced(self, op: str, of_numbers: Callable[[list[int]], bool], mask: Reg) -> Reg:
        known = numbers(mask.text, mask.elem, mask.lanes)
        if known is not None:
            return const(of_numbers(known), "i1")
        return mask if mask.lanes == 1 else self.call(f"llvm.vector.reduce.{op}.v{mask.lanes}i1", "i1", 1, (mask,))


def suffix(reg: Reg) -> str:
    """Return the type's name in the name of an intrinsic: f32, v16f32, v4i64."""
    base = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(reg.elem, reg.elem)
    return base if reg.lanes == 1 else f"v{reg.lanes}{base}"


def prefix_mask(active: int, count: int) -> Reg:
    """Return the mask of the first lanes."""
    lanes = ", ".join(f"i1 {literal(k < active, 'i1')}" for k in range(count))
    return Reg(f"<{lanes}>", "i1", count, 0)
