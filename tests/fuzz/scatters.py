"""Programs that assign at gathered places, where of instances that write one element the last counts."""

from __future__ import annotations

from tests.fuzz.case import Input
from tests.fuzz.families import valid
from tests.fuzz.generate import Maker
from tests.fuzz.pieces import Kinds


def last_wins(m: Maker) -> bool:
    """`H[p[b],d] = n[b,d]` and its kin: bare dimensions beside, an offset, an order of `for`, `where`, a loop, reads after it."""
    r = m.rng
    t, index = m.dtype(), r.choice(["i64", "i32", "u8", "i16"])
    rows, width, bins = r.choice([0, 1, 3, 5, 17]), r.choice([1, 2, 3, 8, 19]), r.choice([1, 2, 5, 8])
    shift = r.choice([0, 0, 0, 1])
    wide = r.random() < 0.3  # a place for each (b, d), and d is in no other subscript
    m.inputs["I"] = Input("I", index, (rows, width) if wide else (rows,), limit=bins)
    m.inputs["W"] = Input("W", t, (rows, width))
    place = ("I[b,d]" if wide else "I[b]") + (f"+{shift}" if shift else "")
    subs, shape = [place], [bins + shift]
    if not wide:
        subs.append("d")
        shape.append(width)
    if r.random() < 0.35:
        subs.append("b")
        shape.append(rows)
        m.features.add("last wins: no two alike")
    order = list(range(len(subs)))
    r.shuffle(order)
    subs, shape = [subs[k] for k in order], [shape[k] for k in order]
    given = r.random() < 0.4
    if given:
        m.inputs["H"] = Input("H", t, tuple(shape))
    heads = ", ".join(f"{name}: {i.dtype}[{','.join(map(str, i.shape))}]" for name, i in m.inputs.items())
    reads = r.random() < 0.4
    loop = r.random() < 0.2
    m.lines = [f"last({heads}) -> H{', R' * reads}:"] + ([] if given else [f"    H: {t}[{','.join(map(str, shape))}]"])
    names = "xyz"[: len(shape)]
    if not given and r.random() < 0.5:
        ranges = ", ".join(f"{x} in 0:{n}" for x, n in zip(names, shape, strict=True))
        m.lines.append(f"    H[{','.join(names)}] = 1 for {ranges}")
    inner = "    "
    if loop:
        m.lines.append("    for t in 0:3:")
        inner = " " * 8
    kind = Kinds[t]
    values = ["W[b,d]"] * 3 + (["W[b,d] * 2", "-W[b,d]"] if kind in "fc" else [])
    values += ["sum[k](W[b,k])"] if kind in "fc" else ["any[k](W[b,k])"] if kind == "b" else []
    if r.random() < 0.2:
        element = ",".join({"d": "d", "b": "b"}.get(s, "0") for s in subs)
        values = [f"H[{element}] + W[b,d]"]
        m.features.add("reads its own target")
    line = f"{inner}H[{','.join(subs)}] = {r.choice(values)}"
    if r.random() < 0.4:
        line += r.choice(
            [f" for d in 0:{width}, b in 0:{rows}", f" for b in 0:{rows}, d in 0:{width}", f" for d in 0:{width}"]
        )
        m.features.add("for")
    if r.random() < 0.2:
        line += r.choice([" where b != 1", " where d <= b", " where b % 2 == 0"])
        m.features.add("where")
    m.lines.append(line)
    if r.random() < 0.25 and kind in "if":
        m.lines.append(f"{inner}H[{','.join(subs)}] {r.choice(['+=', 'max='])} W[b,d]")
        m.features.add("multi-statement")
    if reads:
        m.lines.append(f"    R[{','.join(names)}] = H[{','.join(names)}]")
        m.features.add("multi-statement")
    m.features |= {"scatter", "gather", "op:=", "last wins", f"dtype:{t}", f"dtype:{index}", "declared"}
    m.features |= {"time loop"} if loop else set()
    return valid(m)
