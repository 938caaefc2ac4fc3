"""Pieces over rows and columns: element-wise chains, windows, scans, norms, reductions, gathers."""

from __future__ import annotations

from tests.fuzz.speed.maker import PADS, Maker, piece


@piece(2, 5)
def elementwise(m: Maker, x: str) -> str:
    """One or two functions of an element, with a vector or another matrix."""
    a, b = m.dims(x)
    term = f"{x}[i,j]"
    for _ in range(m.rng.choice([1, 1, 2, 3])):
        pick = m.rng.randrange(6)
        if pick == 0:
            term = f"{term} * {m.weight()}"
        elif pick == 1:
            term = f"{term} + {m.fresh(b)}[j]"
        elif pick == 2:
            term = f"({term} - {m.fresh(a)}[i]) * {m.fresh(b)}[j]"
        elif pick == 3:
            term = f"maximum({term}, {m.fresh(a, b)}[i,j])"
        elif m.floating:
            term = f"{m.rng.choice(['relu', 'abs', 'exp', 'sigmoid', 'tanh', 'gelu', 'sqrt'])}({term})"
        else:
            term = m.rng.choice(
                [f"abs({term})", f"minimum({term}, 7)", f"({term}) // 3", f"where({term} > 5, {term}, 1)"]
            )
    return m.define((a, b), f"@[i,j] = {term}")


@piece(2, 6)
def window(m: Maker, x: str) -> str:
    """A window of a row, a column or both, inside the tensor."""
    a, b = m.dims(x)
    r, d = m.rng.choice([2, 3, 3, 5, 7]), m.rng.choice([1, 1, 1, 2])
    step, lost = f"{d}*" if d > 1 else "", (r - 1) * d
    way = m.rng.randrange(5)
    op = m.rng.choice(["sum", "sum", "sum", "max", "min"])
    if way == 0:
        return m.define(
            (a, f"{b}-{lost}"), f"@[i,j] = {op}[s in 0:{r}]({x}[i,j+{step}s]) for i in 0:{a}, j in 0:{b}-{lost}"
        )
    if way == 1:
        return m.define(
            (f"{a}-{lost}", b), f"@[i,j] = {op}[s in 0:{r}]({x}[i+{step}s,j]) for i in 0:{a}-{lost}, j in 0:{b}"
        )
    if way == 2:
        inside = f"{op}[r in 0:{r}, s in 0:{r}]({x}[i+{step}r,j+{step}s])"
        return m.define((f"{a}-{lost}", f"{b}-{lost}"), f"@[i,j] = {inside} for i in 0:{a}-{lost}, j in 0:{b}-{lost}")
    if way == 3:
        w = m.fresh(m.named(r), scale=0.3)
        return m.define((a, f"{b}-{lost}"), f"@[i,j] += {w}[s] * {x}[i,j+{step}s]")
    terms = " + ".join(f"{x}[i,j+{n}]" if n else f"{x}[i,j]" for n in range(3))
    return m.define((a, f"{b}-2"), f"@[i,j] = ({terms}) * {m.weight()} for i in 0:{a}, j in 0:{b}-2")


@piece(2, 6)
def padded_window(m: Maker, x: str) -> str:
    """A window that reaches beyond the border."""
    a, b = m.dims(x)
    r, pad = m.rng.choice([3, 3, 5]), m.rng.choice(PADS)
    h, where = r // 2, f"for i in 0:{a}, j in 0:{b}"
    way = m.rng.randrange(4)
    if way == 0:
        return m.define((a, b), f"@[i,j] = sum[s in 0:{r}]({x}[i,j+s-{h}; pad={pad}]) {where}")
    if way == 1:
        return m.define((a, b), f"@[i,j] = max[s in 0:{r}]({x}[i+s-{h},j; pad={pad}]) {where}")
    reads = f"{x}[i+r-{h},j+s-{h}; pad={pad}]"
    if way == 2:
        return m.define((a, b), f"@[i,j] = sum[r in 0:{r}, s in 0:{r}]({reads}) {where}")
    n = m.named(r)
    return m.define((a, b), f"@[i,j] += {m.fresh(n, n, scale=0.3)}[r,s] * {reads} {where}")


@piece(2, 3)
def separable(m: Maker, x: str) -> str:
    """A filter along rows, then along columns."""
    a, b = m.dims(x)
    r = m.rng.choice([3, 3, 5, 7])
    w = m.fresh(m.named(r), scale=0.3)
    if m.rng.random() < 0.5:
        pad = m.rng.choice(PADS)
        y = m.define((a, b), f"@[i,j] += {w}[s] * {x}[i,j+s-{r // 2}; pad={pad}] for i in 0:{a}, j in 0:{b}")
        return m.define((a, b), f"@[i,j] += {w}[s] * {y}[i+s-{r // 2},j; pad={pad}] for i in 0:{a}, j in 0:{b}")
    y = m.define((a, f"{b}-{r - 1}"), f"@[i,j] += {w}[s] * {x}[i,j+s]")
    return m.define((f"{a}-{r - 1}", f"{b}-{r - 1}"), f"@[i,j] += {w}[s] * {y}[i+s,j]")


@piece(2)
def difference(m: Maker, x: str) -> str:
    """Differences of neighbours, squared and summed or not."""
    a, b = m.dims(x)
    pad = m.rng.choice(["edge", "wrap", "0"])
    if m.rng.random() < 0.5:
        return m.define((a, b), f"@[i,j] = {x}[i,j] - {x}[i-1,j; pad={pad}] for i in 0:{a}, j in 0:{b}")
    gx, gy = f"({x}[i,j+1] - {x}[i,j])", f"({x}[i+1,j] - {x}[i,j])"
    return m.define((f"{a}-1", f"{b}-1"), f"@[i,j] = abs({gx}) + abs({gy}) for i in 0:{a}-1, j in 0:{b}-1")


@piece(2, 3)
def scan(m: Maker, x: str) -> str:
    """A first-order recurrence or a running sum, along rows or columns, forwards or backwards."""
    a, b = m.dims(x)
    op = m.rng.choice(["sum", "sum", "max", "min"])
    way = m.rng.randrange(6)
    if way == 0:
        return m.define((a, b), f"@[i,t] = {op}[k in 0:t+1]({x}[i,k]) for i in 0:{a}, t in 0:{b}")
    if way == 1:
        return m.define((a, b), f"@[t,j] = {op}[k in 0:t+1]({x}[k,j]) for t in 0:{a}, j in 0:{b}")
    if way == 2:
        return m.define((a, b), f"@[i,t] = {op}[k in t:{b}]({x}[i,k]) for i in 0:{a}, t in 0:{b}")
    c = f"{m.weight()} * " if m.rng.random() < 0.5 else ""
    if way == 3:
        return m.define((a, b), f"@[i,0] = {x}[i,0]", f"@[i,t] = {c}@[i,t-1] + {x}[i,t] for t in 1:{b}")
    if way == 4:
        return m.define((a, b), f"@[0,j] = {x}[0,j]", f"@[t,j] = {c}@[t-1,j] + {x}[t,j] for t in 1:{a}")
    g = m.fresh(a, b, scale=0.9)
    return m.define((a, b), f"@[i,0] = {x}[i,0]", f"@[i,t] = {g}[i,t] * @[i,t-1] + {x}[i,t] for t in 1:{b}")


@piece(2, 2)
def taps(m: Maker, x: str) -> str:
    """A recurrence with several taps: an IIR filter of each row, or of each column."""
    a, b = m.dims(x)
    k = m.rng.choice([3, 4, 5])
    f, g = m.fresh(m.named(k), scale=0.2), m.fresh(m.named(k), scale=0.2)
    if m.rng.random() < 0.5:
        fed = f"sum[k in 0:{k}]({f}[k] * {x}[n,t-k; pad=0])"
        return m.define(
            (a, b), f"@[n,t] = {fed} - sum[k in 1:{k}]({g}[k] * @[n,t-k; pad=0]) for n in 0:{a}, t in 0:{b}"
        )
    fed = f"sum[k in 0:{k}]({f}[k] * {x}[t-k,n; pad=0])"
    return m.define((a, b), f"@[t,n] = {fed} - sum[k in 1:{k}]({g}[k] * @[t-k,n; pad=0]) for t in 0:{a}, n in 0:{b}")


@piece(2, 3, floats=True)
def normalise(m: Maker, x: str) -> str:
    """A softmax, a norm, or deviations over their root mean square, of rows or of columns."""
    a, b = m.dims(x)
    way = m.rng.randrange(7)
    if way == 0:
        top = f"max[k]({x}[i,k])"
        return m.define((a, b), f"@[i,j] = exp({x}[i,j] - {top}) / sum[l](exp({x}[i,l] - {top}))")
    if way == 1:
        return m.define((a, b), f"@[i,j] = {x}[i,j] * rsqrt(mean[k]({x}[i,k] * {x}[i,k]) + 1e-3) * {m.fresh(b)}[j]")
    if way == 2:
        u = m.define((a,), f"@[i] = mean[k]({x}[i,k])")
        v = m.define((a,), f"@[i] = mean[k](({x}[i,k] - {u}[i]) ** 2)")
        return m.define(
            (a, b), f"@[i,j] = ({x}[i,j] - {u}[i]) * rsqrt({v}[i] + 1e-3) * {m.fresh(b)}[j] + {m.fresh(b)}[j]"
        )
    if way == 3:
        u = m.define((b,), f"@[j] = mean[k]({x}[k,j])")
        return m.define((a, b), f"@[i,j] = {x}[i,j] - {u}[j]")
    if way == 4:
        return m.define((a, b), f"@[i,j] = {x}[i,j] / (sum[k](abs({x}[k,j])) + 1)")
    if way == 5:
        return m.define((a, b), f"@[i,j] = {x}[i,j] - logsumexp[k]({x}[i,k])")
    u = m.define((b,), f"@[j] max= {x}[i,j]")
    e = m.define((a, b), f"@[i,j] = exp({x}[i,j] - {u}[j])")
    return m.define((a, b), f"@[i,j] = {e}[i,j] / sum[k]({e}[k,j])")


@piece(2, 3)
def reduction(m: Maker, x: str) -> str:
    """Rows, columns or all of them reduced."""
    a, b = m.dims(x)
    row = m.rng.random() < 0.5
    k, e, element = ("j", a, "i") if row else ("i", b, "j")
    value = f"{x}[i,j]"
    way = m.rng.randrange(8)
    if way < 3:
        op = m.rng.choice(["+=", "max=", "min="])
        return m.define((e,), f"@[{element}] {op} {m.rng.choice([value, f'abs({value})', f'{value} * {value}'])}")
    if way == 3:
        return m.define((e,), f"@[{element}] = {m.rng.choice(['argmax', 'argmin'])}[{k}]({value})", dtype="i64")
    if way == 4:
        return m.define((e,), f"@[{element}] += {value} > {m.fresh(e)}[{element}]", dtype="i64")
    if way == 5 and m.floating:
        return m.define((e,), f"@[{element}] = {m.rng.choice(['logsumexp', 'mean'])}[{k}]({value})")
    if way == 6:
        y = m.define((a,), f"@[i] += {value}")
        z = m.define((b,), f"@[j] max= {value}")
        return m.define((a, b), f"@[i,j] = {value} + {y}[i] - {z}[j]")
    return m.define((), f"@ += {value} * {value}")


@piece(2)
def moved(m: Maker, x: str) -> str:
    """A transposed, reversed or shifted matrix."""
    a, b = m.dims(x)
    way = m.rng.randrange(4)
    if way < 2:
        return m.define((b, a), f"@[j,i] = {x}[i,j] * {m.weight()}" if way else f"@[j,i] = {x}[i,j]")
    if way == 2:
        return m.define((a, b), f"@[i,j] = {x}[i,{b}-1-j] for j in 0:{b}")
    return m.define((a, b), f"@[i,j] = {x}[i,j] + {x}[i,(j+7)%({b})] for i in 0:{a}, j in 0:{b}")


@piece(2)
def gathered(m: Maker, x: str) -> str:
    """Rows or columns by index, or sums into rows by index."""
    a, b = m.dims(x)
    n = m.size(64, 512)
    way = m.rng.randrange(4)
    if way == 0:
        return m.define((n, b), f"@[n,j] = {x}[{m.index(a, n)}[n],j]")
    if way == 1:
        return m.define((a, n), f"@[i,n] = {x}[i,{m.index(b, n)}[n]]")
    if way == 2:
        k = m.size(4, 16)
        return m.define((n, b), f"@[n,j] += {x}[{m.index(a, n, k)}[n,k],j]")
    declared = m.dtype if m.floating else "i64"
    return m.define((n, b), f"@[{m.index(n, a)}[i],j] += {x}[i,j]", declared=declared)


@piece(2)
def counted(m: Maker, x: str) -> str:
    """A histogram by index or by comparison, or ranks."""
    a, b = m.dims(x)
    way = m.rng.randrange(3)
    if way == 0:
        n = m.size(64, 256)
        return m.define((n,), f"@[{m.index(n, a, b)}[i,j]] += 1", declared="i32")
    n = m.size(8, 32)
    if way == 1:
        return m.define((n,), f"@[n] += {x}[i,j] <= {m.fresh(n)}[n]", dtype="i64")
    return m.define((a, n), f"@[i,n] += {x}[i,j] <= {m.fresh(n)}[n]", dtype="i64")
