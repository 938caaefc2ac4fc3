"""Pieces over images, batches and signals: convolutions of all kinds, pools, norms, filters, overlap-add."""

from __future__ import annotations

from tests.fuzz.speed.maker import PADS, Maker, piece


@piece(4, 4)
def convolution(m: Maker, x: str) -> str:
    """A convolution with stride, dilation, padding or none of them, and an epilogue or not."""
    n, c, h, w = m.dims(x)
    r = m.rng.choice([1, 3, 3, 3, 5])
    k = m.named(r)
    f = m.room(n, c, h, w, k, k, high=32)
    y = m.fresh(f, c, k, k, scale=0.1)
    way = m.rng.randrange(5)
    every, edge = f"for h in 0:{h}, w in 0:{w}", f"pad={m.rng.choice(['0', '0', 'edge', 'wrap', 'reflect'])}"
    if way == 0:
        dims = (n, f, f"{h}-{r - 1}", f"{w}-{r - 1}") if r > 1 else (n, f, h, w)
        return m.define(dims, f"@[n,f,h,w] += {x}[n,c,h+r,w+s] * {y}[f,c,r,s]")
    if way == 1:
        reads = f"{x}[n,c,h+r-{r // 2},w+s-{r // 2}; {edge}]"
        return m.define((n, f, h, w), f"@[n,f,h,w] += {reads} * {y}[f,c,r,s] {every}")
    if way == 2:
        dims = (n, f, f"({h})//2", f"({w})//2")
        reads = f"{x}[n,c,2*h+r-{r // 2},2*w+s-{r // 2}; {edge}]"
        return m.define(dims, f"@[n,f,h,w] += {reads} * {y}[f,c,r,s] for h in 0:({h})//2, w in 0:({w})//2")
    if way == 3:
        reads = f"{x}[n,c,h+2*r-{r - 1},w+2*s-{r - 1}; {edge}]"
        return m.define((n, f, h, w), f"@[n,f,h,w] += {reads} * {y}[f,c,r,s] {every}")
    b, act = m.fresh(f), "relu" if m.floating else "abs"
    reads = f"{x}[n,c,h+r-{r // 2},w+s-{r // 2}; {edge}]"
    return m.define((n, f, h, w), f"@[n,f,h,w] = {act}(sum[c,r,s]({reads} * {y}[f,c,r,s]) + {b}[f]) {every}")


@piece(4, 2)
def pointwise(m: Maker, x: str) -> str:
    """A convolution of one by one."""
    n, c, h, w = m.dims(x)
    f = m.room(n, c, h, w, high=48)
    return m.define((n, f, h, w), f"@[n,f,h,w] += {x}[n,c,h,w] * {m.fresh(f, c, scale=0.1)}[f,c]")


@piece(4, 3)
def depthwise(m: Maker, x: str) -> str:
    """A filter of each channel, padded or not."""
    n, c, h, w = m.dims(x)
    r = m.rng.choice([3, 3, 5])
    k = m.named(r)
    y = m.fresh(c, k, k, scale=0.1)
    if m.rng.random() < 0.3:
        return m.define((n, c, f"{h}-{r - 1}", f"{w}-{r - 1}"), f"@[n,c,h,w] += {x}[n,c,h+r,w+s] * {y}[c,r,s]")
    reads = f"{x}[n,c,h+r-{r // 2},w+s-{r // 2}; pad={m.rng.choice(PADS)}]"
    return m.define((n, c, h, w), f"@[n,c,h,w] += {reads} * {y}[c,r,s] for h in 0:{h}, w in 0:{w}")


@piece(4, 2)
def transposed_convolution(m: Maker, x: str) -> str:
    """A convolution that scatters: each element adds a patch."""
    n, c, h, w = m.dims(x)
    r = m.rng.choice([2, 3, 4])
    k, s = m.named(r), 2
    f = m.room(n, c, h, w, k, k, high=16)
    y = m.fresh(c, f, k, k, scale=0.1)
    dims = (n, f, *(f"{s}*({e})+{r - s}" if r > s else f"{s}*({e})" for e in (h, w)))
    return m.define(dims, f"@[n,f,{s}*h+r,{s}*w+s] += {x}[n,c,h,w] * {y}[c,f,r,s]")


@piece(4, 3)
def image_pool(m: Maker, x: str) -> str:
    """A pool, padded or not."""
    n, c, h, w = m.dims(x)
    dims, where = (n, c, f"({h})//2", f"({w})//2"), f"for h in 0:({h})//2, w in 0:({w})//2"
    way = m.rng.randrange(4)
    if way == 0:
        return m.define(dims, f"@[n,c,h,w] = max[r in 0:2, s in 0:2]({x}[n,c,2*h+r,2*w+s]) {where}")
    low = "-inf" if m.floating else "0"
    if way == 1:
        return m.define(dims, f"@[n,c,h,w] = max[r in 0:3, s in 0:3]({x}[n,c,2*h+r-1,2*w+s-1; pad={low}]) {where}")
    if way == 2:
        reads = f"{x}[n,c,h+r-1,w+s-1; pad={low}]"
        return m.define((n, c, h, w), f"@[n,c,h,w] = max[r in 0:3, s in 0:3]({reads}) for h in 0:{h}, w in 0:{w}")
    return m.define((n, c), f"@[n,c] += {x}[n,c,h,w]")


@piece(4, 2)
def image_elementwise(m: Maker, x: str) -> str:
    """A scale and an offset for each channel, or the norm of a batch."""
    n, c, h, w = m.dims(x)
    way = m.rng.randrange(3 if m.floating else 2)
    if way == 0:
        return m.define((n, c, h, w), f"@[n,c,h,w] = maximum({x}[n,c,h,w] * {m.fresh(c)}[c] + {m.fresh(c)}[c], 0)")
    if way == 1:
        return m.define((n, c, h, w), f"@[n,c,h,w] = {x}[n,c,h,w] + {m.fresh(n, c, h, w)}[n,c,h,w]")
    u = m.define((c,), f"@[c] = mean[n,h,w]({x}[n,c,h,w])")
    v = m.define((c,), f"@[c] = mean[n,h,w](({x}[n,c,h,w] - {u}[c]) ** 2)")
    return m.define((n, c, h, w), f"@[n,c,h,w] = ({x}[n,c,h,w] - {u}[c]) * rsqrt({v}[c] + 1e-3)")


@piece(3, 3)
def batched(m: Maker, x: str) -> str:
    """Products of matrices of a batch, in any layout."""
    b, i, k = m.dims(x)
    n = m.room(b, i, k, high=96)
    way = m.rng.randrange(4)
    if way == 0:
        y = m.fresh(b, k, n, scale=0.1)
        m.like = f"{x} @ {y}"
        return m.define((b, i, n), f"@[b,i,j] += {x}[b,i,k] * {y}[b,k,j]")
    if way == 1:
        return m.define((b, i, n), f"@[b,i,j] += {x}[b,i,k] * {m.fresh(b, n, k, scale=0.1)}[b,j,k]")
    if way == 2:
        return m.define((i, b, n), f"@[i,b,j] += {x}[b,i,k] * {m.fresh(b, k, n, scale=0.1)}[b,k,j]")
    return m.define((i, n), f"@[i,j] += {x}[b,i,k] * {m.fresh(b, k, n, scale=0.1)}[b,k,j]")


@piece(3, 3)
def signal_filter(m: Maker, x: str) -> str:
    """A convolution along the last dimension: between channels, of each, strided or causal."""
    b, c, w = m.dims(x)
    r = m.rng.choice([3, 5, 9])
    k = m.named(r)
    way = m.rng.randrange(4)
    if way == 0:
        f = m.room(b, c, w, k, high=32)
        return m.define((b, f, f"{w}-{r - 1}"), f"@[b,f,w] += {x}[b,c,w+r] * {m.fresh(f, c, k, scale=0.1)}[f,c,r]")
    y = m.fresh(c, k, scale=0.3)
    if way == 1:
        return m.define((b, c, w), f"@[b,c,w] += {x}[b,c,w-r; pad=0] * {y}[c,r] for w in 0:{w}")
    if way == 2:
        half = f"({w})//2"
        return m.define(
            (b, c, half), f"@[b,c,w] += {x}[b,c,2*w+r-{r // 2}; pad={m.rng.choice(PADS)}] * {y}[c,r] for w in 0:{half}"
        )
    if m.floating:
        return m.define((b, c, w), f"@[b,c,0] = {x}[b,c,0]", f"@[b,c,t] = 0.5 * @[b,c,t-1] + {x}[b,c,t] for t in 1:{w}")
    return m.define((b, c, w), f"@[b,c,t] = sum[k in 0:t+1]({x}[b,c,k]) for b in 0:{b}, c in 0:{c}, t in 0:{w}")


@piece(3, 2)
def volume(m: Maker, x: str) -> str:
    """Reductions, permutations and broadcasts of three dimensions."""
    a, b, c = m.dims(x)
    way = m.rng.randrange(6)
    if way == 0:
        return m.define((a, c), f"@[a,c] {m.rng.choice(['+=', 'max='])} {x}[a,b,c]")
    if way == 1:
        return m.define((b, c), f"@[b,c] += {x}[a,b,c]")
    if way == 2:
        return m.define((a, b), f"@[a,b] {m.rng.choice(['+=', 'min='])} {x}[a,b,c]")
    if way == 3:
        order = m.rng.choice(["bac", "cba", "acb", "cab", "bca"])
        return m.define(tuple({"a": a, "b": b, "c": c}[o] for o in order), f"@[{','.join(order)}] = {x}[a,b,c]")
    if way == 4:
        return m.define((a, b, c), f"@[a,b,c] = {x}[a,b,c] * {m.fresh(a, c)}[a,c] + {m.fresh(b)}[b]")
    inner = f"for a in 0:{a}, b in 0:{b}-2, c in 0:{c}-2"
    return m.define((a, f"{b}-2", f"{c}-2"), f"@[a,b,c] = sum[r in 0:3, s in 0:3]({x}[a,b+r,c+s]) {inner}")


@piece(1, 2)
def vector(m: Maker, x: str) -> str:
    """Filters, differences, sums and outer forms of a long vector."""
    (n,) = m.dims(x)
    way = m.rng.randrange(7)
    if way == 0:
        k = m.size(8, 64)
        y = m.fresh(k, scale=0.1)
        m.like = f"np.convolve({x}, {y}[::-1], 'valid')"
        return m.define((f"{n}-{k}+1",), f"@[i] += {x}[i+k] * {y}[k]")
    if way == 1:
        m.like = f"np.cumsum({x}, dtype={x}.dtype)"
        return m.define((n,), f"@[t] = sum[k in 0:t+1]({x}[k]) for t in 0:{n}")
    if way == 2:
        lags = m.size(16, 100)
        return m.define((lags,), f"@[l] = sum[i in 0:{n}-{lags}]({x}[i] * {x}[i+l]) for l in 0:{lags}")
    if way == 3:
        c = m.weight() if m.floating else "3"
        return m.define((n,), f"@[0] = {x}[0]", f"@[t] = {c} * @[t-1] + {x}[t] for t in 1:{n}")
    if way == 4:
        bins = m.size(64, 256)
        return m.define((bins,), f"@[{m.index(bins, n)}[i]] += {x}[i]", declared=m.dtype if m.floating else "i64")
    if way == 5:
        return m.define((n,), f"@[i] = {x}[i] - {x}[i-1; pad=edge] for i in 0:{n}")
    return m.define((n,), f"@[i] = {x}[{m.index(n, n)}[i]] * {m.weight()}")


@piece(2, 2)
def frames(m: Maker, x: str) -> str:
    """Overlap-add of rows, or rows cut out of a signal."""
    f, r = m.dims(x)
    hop = m.rng.choice([1, 4, 16, 64])
    if m.rng.random() < 0.5:
        out = f"{hop}*({f}-1)+{r}"
        if hop > m.value(r):
            hop, out = 1, f"{f}-1+{r}"
        return m.define((out,), f"@[{hop}*f+r] += {x}[f,r]" if hop > 1 else f"@[f+r] += {x}[f,r]")
    y = m.fresh(f"{hop}*{f}+{r}")
    return m.define((f, r), f"@[f,r] = {y}[{hop}*f+r] * {x}[f,r] for f in 0:{f}, r in 0:{r}")
