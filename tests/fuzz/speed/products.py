"""Pieces that multiply: matrices, chains of them, Gram matrices, triangles, distances, decompositions."""

from __future__ import annotations

from tests.fuzz.speed.maker import Maker, piece


@piece(2, 4)
def matmul(m: Maker, x: str) -> str:
    """A product with another matrix, on either side and in any layout, with an epilogue or not."""
    a, b = m.dims(x)
    n = m.room(a, b, high=256)
    way = m.rng.randrange(5)
    if way == 0:
        w = m.fresh(b, n, scale=0.1)
        m.like = f"np.einsum('ij,jk->ik', {x}, {w}, optimize=True)"
        return m.define((a, n), f"@[i,k] += {x}[i,j] * {w}[j,k]")
    if way == 1:
        w = m.fresh(n, b, scale=0.1)
        m.like = f"np.einsum('ij,kj->ik', {x}, {w}, optimize=True)"
        return m.define((a, n), f"@[i,k] += {x}[i,j] * {w}[k,j]")
    if way == 2:
        w = m.fresh(a, n, scale=0.1)
        m.like = f"np.einsum('ij,ik->jk', {x}, {w}, optimize=True)"
        return m.define((b, n), f"@[j,k] += {x}[i,j] * {w}[i,k]")
    w, c = m.fresh(n, b, scale=0.1), m.fresh(n)
    if way == 3:
        f = "relu" if m.floating else "abs"
        return m.define((a, n), f"@[i,k] = {f}(sum[j]({x}[i,j] * {w}[k,j]) + {c}[k])")
    y = m.define((a, n), f"@[i,k] += {x}[i,j] * {w}[k,j]")
    return m.define((a, n), f"@[i,k] = maximum({y}[i,k] + {c}[k], 0)")


@piece(2)
def matvec(m: Maker, x: str) -> str:
    """A product with a vector, on either side or on both."""
    a, b = m.dims(x)
    way = m.rng.randrange(4)
    v, u = m.fresh(b), m.fresh(a)
    if way == 0:
        m.like = f"{x} @ {v}"
        return m.define((a,), f"@[i] += {x}[i,j] * {v}[j]")
    if way == 1:
        m.like = f"{u} @ {x}"
        return m.define((b,), f"@[j] += {x}[i,j] * {u}[i]")
    if way == 2:
        y = m.define((a,), f"@[i] += {x}[i,j] * {v}[j]")
        return m.define((b,), f"@[j] += {x}[i,j] * {y}[i]")
    return m.define((), f"@ += {u}[i] * {x}[i,j] * {v}[j]")


@piece(2, 3)
def chain(m: Maker, x: str) -> str:
    """A contraction of three or four tensors in one statement, or in several."""
    a, b = m.dims(x)
    n, k = m.room(a, b, high=160), m.room(a, b, high=160)
    way = m.rng.randrange(7)
    if way == 0:
        y, z = m.fresh(b, n, scale=0.1), m.fresh(n, k, scale=0.1)
        m.like = f"np.einsum('ij,jk,kl->il', {x}, {y}, {z}, optimize=True)"
        return m.define((a, k), f"@[i,l] += {x}[i,j] * {y}[j,k] * {z}[k,l]")
    if way == 1:
        y, z = m.fresh(n, b, scale=0.1), m.fresh(a, n, scale=0.1)
        m.like = f"np.einsum('ij,kj,ik->ik', {x}, {y}, {z}, optimize=True)"
        return m.define((a, n), f"@[i,k] += {x}[i,j] * {y}[k,j] * {z}[i,k]")
    if way == 2:
        c, e = m.size(12, 40), m.size(12, 40)
        t = m.fresh(c, b, e, scale=0.1)
        y = m.fresh(a, e)
        m.like = f"np.einsum('nj,cje,ne->nc', {x}, {t}, {y}, optimize=True)"
        return m.define((a, c), f"@[n,c] += {x}[n,j] * {t}[c,j,e] * {y}[n,e]")
    if way == 3:
        c, e = m.size(8, 24), m.size(8, 24)
        t, y, z = m.fresh(a, c, e), m.fresh(c, b), m.fresh(e, b)
        m.like = f"np.einsum('ace,cb,eb,ab->ab', {t}, {y}, {z}, {x}, optimize=True)"
        return m.define((a, b), f"@[a,b] += {t}[a,c,e] * {y}[c,b] * {z}[e,b] * {x}[a,b]")
    if way == 4:
        y, z, w = m.fresh(b, n, scale=0.1), m.fresh(n, k, scale=0.1), m.fresh(k, n, scale=0.1)
        m.like = f"np.einsum('ij,jk,kl,lm->im', {x}, {y}, {z}, {w}, optimize=True)"
        return m.define((a, n), f"@[i,m] += {x}[i,j] * {y}[j,k] * {z}[k,l] * {w}[l,m]")
    y, z = m.fresh(b, n, scale=0.1), m.fresh(n, k, scale=0.1)
    first = m.define((a, n), f"@[i,k] += {x}[i,j] * {y}[j,k]")
    if way == 5:
        return m.define((a, k), f"@[i,l] += {first}[i,k] * {z}[k,l]")
    second = m.define((a, n), f"@[i,k] = maximum({first}[i,k], 0)")
    return m.define((a, k), f"@[i,l] += {second}[i,k] * {z}[k,l]")


@piece(2, 3)
def pairwise(m: Maker, x: str) -> str:
    """All pairs of rows: products, distances, minima, comparisons."""
    a, b = m.dims(x)
    n = m.room(a, b, high=200)
    c = m.fresh(n, b)
    term = m.rng.choice(
        [
            f"abs({x}[i,k] - {c}[j,k])",
            f"({x}[i,k] - {c}[j,k]) ** 2",
            f"minimum({x}[i,k], {c}[j,k])",
            f"{x}[i,k] * {c}[j,k]",
        ]
    )
    way = m.rng.randrange(5)
    if way == 0:
        return m.define((a, n), f"@[i,j] += {x}[i,k] == {c}[j,k]", dtype="i64")
    if way == 1:
        return m.define((a, n), f"@[i,j] {m.rng.choice(['max=', 'min='])} {x}[i,k] + {c}[j,k]")
    y = m.define((a, n), f"@[i,j] += {term}")
    if way == 2:
        return m.define((a,), f"@[i] = argmin[j]({y}[i,j])", dtype="i64")
    if way == 3:
        return m.define((a,), f"@[i] min= {y}[i,j]")
    return y


@piece(2, 2)
def outer(m: Maker, x: str) -> str:
    """An outer product or sum, reduced or not."""
    a, b = m.dims(x)
    if m.rng.random() < 0.5:
        u, v = m.fresh(a), m.fresh(b)
        return m.define((a, b), f"@[i,j] = {x}[i,j] + {u}[i] * {v}[j]")
    n = m.room(a, b, low=4, high=16)
    c = m.fresh(n, b)
    return m.define((a, n, b), f"@[i,n,j] = {x}[i,j] * {c}[n,j]")


@piece(2, 3)
def triangle(m: Maker, x: str) -> str:
    """A product over a triangle or a band: syrk, trmm, masked rows, symmetric parts."""
    a, b = m.dims(x)
    way = m.rng.randrange(6)
    if way == 0:
        return m.define((a, a), f"@[i,j] += {x}[i,k] * {x}[j,k] where j <= i")
    if way == 1:
        y = m.fresh(a, a, scale=0.1)
        return m.define((a, b), f"@[i,j] += {y}[i,k] * {x}[k,j] where k <= i")
    if way == 2:
        return m.define((a,), f"@[i] += {x}[i,j] where j <= i")
    if way == 3:
        y = m.fresh(a, a, scale=0.1)
        return m.define((a, b), f"@[i,j] = sum[k in i:{a}]({y}[k,i] * {x}[k,j])")
    if way == 4:
        return m.define((a, b), f"@[i,j] = sum[k]({x}[k,j] where k <= i) for i in 0:{a}, j in 0:{b}")
    y = m.fresh(a, a, scale=0.1)
    return m.define((a, b), f"@[i,j] += {y}[i,k] * {x}[k,j] where i - 8 <= k <= i + 8")


@piece(2, 2, floats=True)
def attention(m: Maker, x: str) -> str:
    """Scores of rows, masked or not, a softmax of them, and means of other rows by it."""
    a, b = m.dims(x)
    n = m.room(a, b, a, high=128) if m.rng.random() < 0.3 else b
    y, v = m.fresh(a, b, scale=0.1), m.fresh(a, n)
    mask = m.rng.choice([" where l <= q", "", ""])
    s = m.define((a, a), f"@[q,l] = sum[d]({x}[q,d] * {y}[l,d]) * 0.125")
    if mask:
        p = f"exp({s}[q,l] - max[k in 0:q+1]({s}[q,k]))"
        z = m.define((a,), f"@[q] = sum[l in 0:q+1]({p})")
        return m.define((a, n), f"@[q,e] = sum[l in 0:q+1]({p} * {v}[l,e]) / {z}[q]")
    top = m.define((a,), f"@[q] max= {s}[q,l]")
    e = m.define((a, a), f"@[q,l] = exp({s}[q,l] - {top}[q])")
    return m.define((a, n), f"@[q,e] = sum[l]({e}[q,l] * {v}[l,e]) / sum[l]({e}[q,l])")


@piece(2, 2, floats=True, square=True)
def solve(m: Maker, x: str) -> str:
    """A decomposition or a triangular solve, in place."""
    (n, _) = m.dims(x)
    way = m.rng.randrange(4)
    if way == 0:
        return m.loop(
            x,
            f"{n}-1",
            f"{x}[i,t] = {x}[i,t] / (abs({x}[t,t]) + {n}) for i in t+1:{n}",
            f"{x}[i,j] = {x}[i,j] - {x}[i,t] * {x}[t,j] for i in t+1:{n}, j in t+1:{n}",
        )
    if way == 1:
        return m.loop(x, n, f"{x}[i,j] = minimum({x}[i,j], {x}[i,t] + {x}[t,j]) for i in 0:{n}, j in 0:{n}")
    k = m.size(1, 64)
    c = m.fresh(n, k)
    low = m.fresh(n, n, scale=1 / m.value(n))
    if way == 2:
        return m.define(
            (n, k),
            f"@[i,r] = ({c}[i,r] - sum[j in 0:i]({low}[i,j] * @[j,r])) / ({x}[i,i] + 1) for i in 0:{n}, r in 0:{k}",
        )
    return m.define((n,), f"@[i] = ({c}[i,0] - sum[j in 0:i]({low}[i,j] * @[j])) / ({x}[i,i] + 1) for i in 0:{n}")
