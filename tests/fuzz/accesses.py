"""Names, extents, indices and reads, of which random statements are made."""

from __future__ import annotations

import random

from msgspec import Struct, field

from tests.fuzz.case import Input
from tests.fuzz.pieces import Kinds

NAMES = [
    *"ijklmnhwrsabcdxyz",
    "int",
    "struct",
    "exists",
    "mod",
    "double",
    "while",
    "e1",
    "_q",
    "define",
    "rat",
    "true_",
]
FLOATS = ["f16", "bf16", "f32", "f32", "f32", "f64", "f64"]
INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
PADS = ["0", "const", "edge", "wrap", "wrap", "reflect", "reflect", "edge"]


class Idx(Struct):
    """An index: its name, the least and greatest value it takes, and how it gets its range."""

    name: str
    lo: int
    hi: int  # exclusive
    source: str  # bare, for, conv, inline
    clause: str = ""
    bare: bool = False

    @property
    def extent(self) -> int:
        return max(self.hi - self.lo, 0)


class Base(Struct):
    """What a program is made of while it grows: names, extents, indices, and reads of inputs."""

    rng: random.Random
    big: bool
    theme: str
    features: set[str] = field(default_factory=set)
    inputs: dict[str, Input] = field(default_factory=dict)
    defined: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    budget: int = 1200
    steps: int = -1

    # --- names, extents, types ---

    def index_name(self) -> str:
        name = self.rng.choice([n for n in NAMES if n not in self.taken])
        self.taken.add(name)
        return name

    def tensor_name(self, letters: str = "ABCDEFGHIJKLMNPQRTUVWXYZ") -> str:
        free = [c for c in letters if c not in self.inputs and c not in self.defined]
        return self.rng.choice(free) if free else f"T{len(self.inputs) + len(self.defined)}"

    def extent(self, room: int) -> int:
        r = self.rng.random()
        if r < 0.012:
            self.features.add("extent:0")
            return 0
        if self.big:
            pool = [1, 2, 3, 5, 8, 16, 17, 31, 33, 40, 48, 64, 65, 70, 100, 129]
        else:
            pool = [1, 1, 2, 2, 3, 3, 4, 5, 5, 7, 8, 8, 9, 13, 16, 17, 17, 33]
        pick = self.rng.choice([p for p in pool if p <= max(room, 1)])
        if pick in (1, 17, 33):
            self.features.add(f"extent:{pick}")
        return pick

    def dtype(self) -> str:
        r = self.rng
        match self.theme:
            case "single":
                return "f32"
            case "double":
                return "f64"
            case "half":
                return r.choice(["f16", "bf16"])
            case "integer":
                return r.choice(INTEGERS)
            case "bool":
                return "bool" if r.random() < 0.7 else r.choice(["i32", "u8", "f32"])
            case "complex":
                return r.choice(["c64", "c128"])
        return r.choice([*FLOATS, *INTEGERS, "bool", "c64", "c128"])

    def literal(self, kind: str) -> str:
        r = self.rng
        if kind == "f" and r.random() < 0.5:
            return r.choice(["0.5", "0.25", "2.0", "1.5", "3"])
        return str(r.choice([1, 2, 2, 3]))

    def bound(self, value: int) -> str:
        """A bound as a literal or as a size."""
        if value > 0 and self.rng.random() < 0.3:
            self.features.add("size in a bound")
            same = [n for n, v in self.sizes.items() if v == value]
            if same:
                return same[0]
            name = f"n{len(self.sizes)}"
            self.sizes[name] = value
            return name
        return str(value)

    # --- indices ---

    def indices(self, count: int, *, around: int = 1) -> list[Idx]:
        out = []
        room = self.budget // max(around, 1)
        for _ in range(count):
            n = self.extent(room)
            out.append(self.index(0, n))
            room //= max(n, 1)
        return out

    def index(self, lo: int, hi: int, source: str = "") -> Idx:
        r = self.rng
        idx = Idx(self.index_name(), lo, hi, source or ("for" if r.random() < 0.15 else "bare"))
        if idx.source == "for":
            if r.random() < 0.15 and hi - lo > 2:
                idx.lo = lo + 1
                self.features.add("for: lo > 0")
            idx.clause = f"{idx.name} in {self.bound(idx.lo)}:{self.bound(idx.hi)}"
            self.features.add("for")
        return idx

    # --- subscripts ---

    def affine(self, pool: list[Idx]) -> tuple[str, int, int]:
        """A subscript over some of these indices: its text, its least and its greatest value."""
        r = self.rng
        live = [x for x in pool if x.extent > 0]
        if not live or r.random() < 0.06:
            self.features.add("subscript: constant")
            c = r.randrange(3)
            return str(c), c, c
        i = r.choice(live)
        lo, hi = i.lo, i.hi - 1
        form = r.randrange(9 if len(live) > 1 else 6)
        j = r.choice([x for x in live if x is not i]) if form >= 6 else i
        match form:
            case 0:
                self.features.add("subscript: bare")
                return i.name, lo, hi
            case 1:
                c = r.randrange(1, 4)
                self.features.add("subscript: offset")
                return f"{i.name}+{c}", lo + c, hi + c
            case 2:
                s, c = r.randrange(2, 4), r.randrange(0, 3)
                self.features.add("subscript: stride")
                return f"{s}*{i.name}+{c}" if c else f"{s}*{i.name}", s * lo + c, s * hi + c
            case 3:
                self.features.add("subscript: reversed")
                return f"{hi}-{i.name}", 0, hi - lo
            case 4:
                d = r.randrange(2, 4)
                self.features.add("subscript: //")
                return f"{i.name}//{d}", lo // d, hi // d
            case 5:
                d = r.randrange(2, 5)
                self.features.add("subscript: %")
                return f"{i.name}%{d}", 0, d - 1
            case 6:
                self.features.add("subscript: sum")
                return f"{i.name}+{j.name}", lo + j.lo, hi + j.hi - 1
            case 7:
                c = max(0, j.hi - 1 - lo)
                self.features.add("subscript: difference")
                return f"{i.name}-{j.name}+{c}" if c else f"{i.name}-{j.name}", lo - j.hi + 1 + c, hi - j.lo + c
        s, c = r.randrange(2, 4), r.randrange(0, 2)
        self.features.add("subscript: stride and sum")
        return f"{s}*{i.name}+{j.name}+{c}", s * lo + j.lo + c, s * hi + j.hi - 1 + c

    def access(self, pool: list[Idx], must: list[Idx], kind: str | None = None) -> tuple[str, str]:
        """A read of a new input (or of a tensor made before); indices of `must` stand bare in it."""
        r = self.rng
        dims: list[tuple[str, int]] = []
        for x in must:
            dims.append((x.name, x.hi))
            x.bare = True
        for _ in range(r.choice([0, 0, 0, 1, 1, 2]) if pool and len(dims) < 3 else 0):
            text, _, hi = self.affine(pool)
            dims.append((text, max(hi + 1, 0) + (0 if text.isidentifier() else r.choice([0, 0, 1, 2]))))
        r.shuffle(dims)
        return self.new_read([d[0] for d in dims], [d[1] for d in dims], kind)

    def new_read(self, subs: list[str], shape: list[int], kind: str | None = None, pad: str = "") -> tuple[str, str]:
        r = self.rng
        dtype = kind or self.dtype()
        same = [n for n, i in self.inputs.items() if i.shape == tuple(shape) and (kind is None or i.dtype == kind)]
        same = [n for n in same if not self.inputs[n].limit]
        if same and r.random() < 0.3:
            name = r.choice(same)
            self.features.add("tensor read twice")
        else:
            name = self.tensor_name()
            self.inputs[name] = Input(name, dtype, tuple(shape))
        if not subs:
            self.features.add("0-d input")
        self.features.add(f"dtype:{self.inputs[name].dtype}")
        inside = ",".join(subs)
        text = f"{name}[{inside}{pad}]" if subs or pad else name
        return text, Kinds[self.inputs[name].dtype]

    def padded(self, pool: list[Idx]) -> tuple[str, str]:
        """A padded read: its subscripts go anywhere."""
        r = self.rng
        mode = r.choice(PADS)
        dims = []
        live = [x for x in pool if x.extent > 0]
        for _ in range(r.choice([1, 1, 2])):
            if not live:
                break
            text, lo, hi = self.affine(live)
            if text.isidentifier() and r.random() < 0.7:
                shift = r.randrange(1, 3)
                text, lo, hi = f"{text}-{shift}", lo - shift, hi - shift
            dims.append((text, r.choice([1, 2, 3, max(hi, 1), hi + 1, hi + 2, max(hi - 1, 1)])))
        if not dims:
            return self.access([], [])
        kind = self.dtype()
        value = mode
        if mode == "const":
            value = {"b": "True", "f": r.choice(["-inf", "2.5", "inf", "-1"]), "c": "2", "i": "7"}[Kinds[kind]]
            value = {"True": "1"}.get(value, value)
        self.features.add(f"pad:{mode if mode in ('edge', 'wrap', 'reflect') else 'constant'}")
        shape = [max(d[1], 1) for d in dims]
        return self.new_read([d[0] for d in dims], shape, kind, f"; pad={value}")

    def gathered(self, pool: list[Idx]) -> tuple[str, str]:
        """A read with a subscript that is itself read."""
        r = self.rng
        self.features.add("gather")
        extent = r.choice([1, 2, 5, 9])
        index, _ = self.index_array(pool, extent)
        if r.random() < 0.3:
            inner = r.choice([2, 3])
            name = self.tensor_name()
            self.inputs[name] = Input(name, r.choice(["i32", "i64", "u8"]), (inner,), limit=extent)
            deep, _ = self.index_array(pool, inner)
            index = f"{name}[{deep}]"
            self.features.add("gather: nested")
        dims = [(index, extent)]
        if pool and r.random() < 0.5:
            text, _, hi = self.affine(pool)
            dims.append((text, max(hi + 1, 0)))
        r.shuffle(dims)
        return self.new_read([d[0] for d in dims], [d[1] for d in dims])

    def index_array(self, pool: list[Idx], extent: int) -> tuple[str, str]:
        """A read of an integer input whose values lie in 0:extent."""
        r = self.rng
        dims = [self.affine(pool) for _ in range(r.choice([1, 1, 2]))]
        name = self.tensor_name()
        dtype = r.choice(["i64", "i64", "i32", "i32", "i8", "i16", "u8", "u16", "u32", "u64"])
        self.inputs[name] = Input(name, dtype, tuple(max(d[2] + 1, 0) for d in dims), limit=extent)
        return f"{name}[{','.join(d[0] for d in dims)}]", "i"
