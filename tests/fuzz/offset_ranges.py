"""Programs without `for` whose ranges come from offsets, strides and windows: bounds that intersect."""

from __future__ import annotations

from polyker.reference.interpreter import bind
from tests.fuzz.accesses import Idx
from tests.fuzz.data import empty
from tests.fuzz.families import text_of, valid
from tests.fuzz.generate import UPDATES, Maker
from tests.fuzz.oracles import parsed
from tests.fuzz.pieces import fold


def offset_ranges(m: Maker) -> bool:
    """A statement whose indices are bounded by several subscripts, one of which decides; perhaps a recurrence."""
    return recurrence_by_offset(m) if m.rng.random() < 0.25 else intersecting(m)


def intersecting(m: Maker) -> bool:
    """Reads of several tensors, each a different affine function of the indices."""
    r = m.rng
    m.taken = set(m.sizes)
    left = [Idx(m.index_name(), 0, m.extent(24), "bare") for _ in range(r.choice([1, 1, 2]))]
    op = r.choice(["=", "=", *UPDATES])
    reduced = [Idx(m.index_name(), 0, r.choice([1, 2, 3, 5]), "bare")] if op != "=" and r.random() < 0.8 else []
    shapes = {i.name: i.hi + r.choice([0, 0, 1, 3]) for i in (*left, *reduced)}  # of bare subscripts
    operands = []
    for _ in range(r.choice([1, 2, 2, 3])):
        dims = [_bounding(m, i, shapes) for i in left]
        dims += [(k.name, shapes[k.name]) if r.random() < 0.6 else _bounding(m, k, shapes) for k in reduced]
        if reduced and r.random() < 0.5:
            dims[0] = _window(m, left[0], reduced[0])
            m.features.add("range: window")
        r.shuffle(dims)
        operands.append(m.new_read([d[0] for d in dims], [d[1] for d in dims]))
    text, _ = fold(m, operands, op)
    target = m.tensor_name("OSPQDEFGL")
    m.lines.append(f"{target}[{','.join(i.name for i in left)}] {op} {text}")
    m.features |= {f"op:{op}", "range: bounds intersect"}
    return valid(m) and all(_starts_at_0(m, i) for i in left)


def _starts_at_0(m: Maker, i: Idx) -> bool:
    """Whether an index starts at 0: no subscript of a result is below, even where no instance runs."""
    program = parsed(text_of(m))
    last = bind(program, {n: empty(m.inputs[n]) for n in program.inputs}, m.sizes).statements[-1]
    values = last.ranges[i.name]
    return isinstance(values, range) and values.start == 0


def _bounding(m: Maker, i: Idx, shapes: dict[str, int]) -> tuple[str, int]:
    """Return a subscript of one index and an extent, about as much as the index's values need."""
    r = m.rng
    n, more, c = i.hi, r.choice([0, 0, 1, 4]), r.randrange(1, 4)
    match r.randrange(9):
        case 0 | 1:
            return i.name, shapes[i.name]
        case 2 | 3:
            return f"{i.name}+{c}", n + c + more
        case 4:
            return f"{c + 1}*{i.name}", max((c + 1) * (n - 1) + 1, 0) + more
        case 5:
            return f"{c + 1}*{i.name}+{c}", max((c + 1) * (n - 1) + 1, 0) + c + more
        case 6:
            return f"{max(n - 1, 0)}-{i.name}", n + more
        case 7:
            large = r.choice([10**5, 10**9, 2**31 - 1, 2**31])
            m.features.add("large coefficient")
            return r.choice([f"{large}*{i.name}//{large}", f"({large}*{i.name}+{c})//{large}"]), n + more
        case _:
            return f"{i.name}//{c + 1}", (n + c) // (c + 1) + more


def _window(m: Maker, i: Idx, k: Idx) -> tuple[str, int]:
    """Return a subscript of two indices, and an extent that gives about as many values of the first."""
    r = m.rng
    a, b, more = r.choice([1, 1, 2]), r.choice([1, 1, 2, -1]), r.choice([0, 0, 1, 3])
    last = k.hi + 2
    shift = last if b < 0 else 0
    text = f"{i.name if a == 1 else f'{a}*{i.name}'}{'+' if b > 0 else '-'}{k.name if abs(b) == 1 else f'{b}*{k.name}'}"
    return f"{text}+{shift}" if shift else text, max(a * (i.hi - 1), 0) + abs(b) * last + shift + more


def recurrence_by_offset(m: Maker) -> bool:
    """A tensor whose range comes from what is read beside it, one element longer than that."""
    r = m.rng
    m.taken = set(m.sizes)
    t = Idx(m.index_name(), 0, m.extent(16), "bare")
    beside = [Idx(m.index_name(), 0, m.extent(6), "bare")] if r.random() < 0.4 else []
    shapes = {i.name: i.hi for i in (t, *beside)}
    kind = r.choice(["f32", "f64", "i64", "i32"])
    rest = "".join(f",{i.name}" for i in beside)
    reads = []
    for _ in range(r.choice([1, 1, 2])):
        dims = [_bounding(m, t, shapes), *((i.name, i.hi) for i in beside)]
        reads.append(m.new_read([d[0] for d in dims], [d[1] for d in dims], kind)[0])
    first = m.new_read([i.name for i in beside], [i.hi for i in beside], kind)[0] if beside else "1"
    step = r.choice(
        ["{s} + {x}", "maximum({s}, {x})", "{x} - {s}", "0.5 * {s} + {x}" if kind[0] == "f" else "{s} + {x}"]
    )
    back = r.choice([1, 1, 1, 2])
    m.lines += [f"S[{k}{rest}] = {first}" for k in range(back)]
    old = f"S[{t.name}{f'+{r.randrange(back)}' if back > 1 else ''}{rest}]".replace("+0", "")
    m.lines.append(f"S[{t.name}+{back}{rest}] = {step.format(s=old, x=' + '.join(reads))}")
    m.features |= {"op:=", "range: recurrence by offset", "multi-statement"}
    return valid(m) and _starts_at_0(m, t)
