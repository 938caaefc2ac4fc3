"""Pieces over grids: stencils in time loops, sweeps in place, dynamic programming, pools of matrices."""

from __future__ import annotations

from tests.fuzz.speed.maker import PADS, Maker, piece


@piece(2, 4)
def stencil(m: Maker, x: str) -> str:
    """A stencil in a time loop, with borders that are kept, or padded."""
    a, b = m.dims(x)
    steps, way = m.named(m.rng.choice([2, 3, 5, 10, 20])), m.rng.randrange(5)
    scale = " * 0.2" if m.floating else " // 4"
    pad = m.rng.choice(PADS)
    inner, whole = f"for i in 1:{a}-1, j in 1:{b}-1", f"for i in 0:{a}, j in 0:{b}"
    if way == 0:
        five = f"{x}[i,j] + {x}[i-1,j] + {x}[i+1,j] + {x}[i,j-1] + {x}[i,j+1]"
        return m.loop(x, steps, f"@[i,j] = ({five}){scale} {inner}", f"{x}[i,j] = @[i,j] {inner}")
    if way == 1:
        at = [f"{x}[i{p},j{q}; pad={pad}]" for p, q in (("", ""), ("-1", ""), ("+1", ""), ("", "-1"), ("", "+1"))]
        return m.loop(x, steps, f"@[i,j] = ({' + '.join(at)}){scale} {whole}", f"{x}[i,j] = @[i,j]")
    scale = " * 0.1" if m.floating else " // 8"
    if way == 2:
        nine = f"sum[a in 0:3, b in 0:3]({x}[i+a-1,j+b-1; pad={pad}])"
        return m.loop(x, steps, f"@[i,j] = {nine} {whole}", f"{x}[i,j] = @[i,j]{scale}")
    if way == 3:
        w = m.fresh(m.named(3), m.named(3), scale=0.1)
        nine = f"sum[a in 0:3, b in 0:3]({w}[a,b] * {x}[i+a-1,j+b-1])"
        return m.loop(x, steps, f"@[i,j] = {nine} {inner}", f"{x}[i,j] = @[i,j] {inner}")
    rows = f"sum[s in 0:3]({x}[i,j+s-1; pad={pad}])"
    return m.loop(x, steps, f"@[i,j] = {rows} {whole}", f"{x}[i,j] = @[i,j]{' * 0.3' if m.floating else ' // 4'}")


@piece(2, 2)
def sweep(m: Maker, x: str) -> str:
    """Sweeps in place: what was written is read in the same sweep."""
    a, b = m.dims(x)
    steps = m.named(m.rng.choice([1, 2, 4, 8]))
    inner = f"for i in 1:{a}-1, j in 1:{b}-1"
    scale = " * 0.2" if m.floating else " // 4"
    way = m.rng.randrange(3)
    if way == 0:
        five = f"{x}[i,j] + {x}[i-1,j] + {x}[i+1,j] + {x}[i,j-1] + {x}[i,j+1]"
        return m.loop(x, steps, f"{x}[i,j] = ({five}){scale} {inner}")
    if way == 1:
        return m.loop(x, steps, f"{x}[i,j] = ({x}[i,j] + {x}[i-1,j] + {x}[i+1,j]){scale} for i in 1:{a}-1, j in 0:{b}")
    return m.loop(
        x,
        steps,
        f"{x}[i,j] = {x}[i,j] + {x}[i-1,j] for i in 1:{a}, j in 0:{b}",
        f"{x}[i,j] = {x}[i,j] - {x}[i,j-1] for i in 0:{a}, j in 1:{b}",
    )


@piece(2, 3)
def dynamic(m: Maker, x: str) -> str:
    """A table by dynamic programming over costs: warped paths, longest paths, edit distances."""
    a, b = m.dims(x)
    where = f"for i in 0:{a}, j in 0:{b}"
    far = {"u8": "200", "i8": "100", "i16": "9999", "f16": "9999"}.get(m.dtype, "99999")
    up, left, both = (f"@[{p}; pad={far}]" for p in ("i-1,j", "i,j-1", "i-1,j-1"))
    way = m.rng.randrange(4)
    if way == 0:
        return m.define(
            (a, b),
            f"@[0,0] = {x}[0,0]",
            f"@[0,j] = @[0,j-1] + {x}[0,j] for j in 1:{b}",
            f"@[i,0] = @[i-1,0] + {x}[i,0] for i in 1:{a}",
            f"@[i,j] = {x}[i,j] + minimum(@[i-1,j], minimum(@[i,j-1], @[i-1,j-1])) for i in 1:{a}, j in 1:{b}",
        )
    if way == 1:
        low = f"minimum(minimum({up}, {left}), {both})"
        return m.define((a, b), f"@[i,j] = {x}[i,j] + {low} {where}")
    if way == 2:
        best = "maximum(@[i-1,j; pad=0], @[i,j-1; pad=0])"
        return m.define((a, b), f"@[i,j] = {x}[i,j] + {best} {where}")
    best = "maximum(maximum(@[i-1,j-1; pad=0], @[i-1,j; pad=0]), @[i-1,j+1; pad=0])"
    return m.define((a, b), f"@[i,j] = {x}[i,j] + {best} {where}")


@piece(2, 3)
def pool(m: Maker, x: str) -> str:
    """A pool of squares, padded or not, or its reverse."""
    a, b = m.dims(x)
    h, w = f"({a})//2", f"({b})//2"
    where = f"for i in 0:{h}, j in 0:{w}"
    way = m.rng.randrange(5)
    if way == 0:
        return m.define((h, w), f"@[i,j] = max[r in 0:2, s in 0:2]({x}[2*i+r,2*j+s]) {where}")
    if way == 1:
        return m.define((h, w), f"@[i,j] = sum[r in 0:2, s in 0:2]({x}[2*i+r,2*j+s]) {where}")
    if way == 2:
        pad = "-inf" if m.floating else "0"
        return m.define((h, w), f"@[i,j] = max[r in 0:3, s in 0:3]({x}[2*i+r-1,2*j+s-1; pad={pad}]) {where}")
    if way == 3:
        return m.define((f"2*({a})", f"2*({b})"), f"@[i,j] = {x}[i//2,j//2] for i in 0:2*({a}), j in 0:2*({b})")
    return m.define((a, w), f"@[i,j] = {x}[i,2*j] - {x}[i,2*j+1] for i in 0:{a}, j in 0:{w}")
