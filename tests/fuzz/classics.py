"""Fused operators that people write: softmax, attention, normalisation, convolution."""

from __future__ import annotations

from tests.fuzz.case import Input
from tests.fuzz.generate import Maker


def classic_lines(m: Maker) -> bool:
    """Give a maker the lines of a fused operator that people write; whether there are any."""
    r = m.rng
    t = r.choice(["f32", "f64", "f16", "bf16"]) if m.theme in ("half", "single", "double") else r.choice(["f32", "f64"])
    a, b, c = (r.choice([1, 2, 3, 5, 8, 17]) for _ in range(3))
    if m.big:
        a, b, c = r.choice([31, 33, 64]), r.choice([17, 40, 65]), r.choice([8, 33, 48])
    pick = r.randrange(7)
    if pick == 0:
        m.inputs["X"] = Input("X", t, (a, b))
        m.lines = ["P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"]
        m.features |= {"inline:max", "inline:sum", "inline: nested"}
    elif pick == 1:
        m.inputs["X"] = Input("X", t, (a, b))
        m.lines = ["M[i] = mean[j](X[i,j])", "V[i] = mean[j]((X[i,j] - M[i]) ** 2)",
                   "Y[i,j] = (X[i,j] - M[i]) * rsqrt(V[i] + 0.5)"]  # fmt: skip
        m.features |= {"inline:mean", "function:rsqrt", "multi-statement"}
    elif pick == 2:
        for n, s in (("I", (a, b)), ("W", (c, b)), ("bias", (c,))):
            m.inputs[n] = Input(n, t, s)
        m.lines = ["O[b,n] = relu(sum[m](I[b,m] * W[n,m]) + bias[n])"]
        m.features |= {"inline:sum", "function:relu"}
    elif pick == 3:
        if a * b * c > 2000 and not m.big:
            return False
        for n, s in (("Q", (a, c)), ("K", (b, c)), ("V", (b, 3))):
            m.inputs[n] = Input(n, t, s)
        m.lines = ["S[i,j] += Q[i,d] * K[j,d]", "Mx[i] max= S[i,j]", "E[i,j] = exp(0.125 * (S[i,j] - Mx[i]))",
                   "Z[i] += E[i,j]", "O[i,e] = sum[j](E[i,j] * V[j,e]) / Z[i]"]  # fmt: skip
        m.features |= {"op:max=", "multi-statement", "function:exp"}
    elif pick == 4:
        for n, s in (("A", (a, b)), ("B", (c, b))):
            m.inputs[n] = Input(n, t, s)
        m.lines = ["D[i,j] += abs(A[i,k] - B[j,k])"]
        m.features.add("op:+=")
    elif pick == 5:
        m.inputs["X"] = Input("X", t, (a, b))
        m.lines = ["L[i] = logsumexp[j](X[i,j])", "Y[i,j] = X[i,j] - L[i]"]
        m.features |= {"inline:logsumexp", "multi-statement"}
    else:
        h, w, f = r.choice([3, 4, 6]), r.choice([3, 5]), r.choice([1, 2])
        m.inputs["X"], m.inputs["K"] = Input("X", t, (2, f, h, w)), Input("K", t, (3, f, 3, 3))
        m.lines = [f"conv(X: {t}[N,C,H,W], K: {t}[F,C,3,3]) -> O:",
                   "    O[n,f,h,w] += X[n,c,h+r-1,w+s-1; pad=0] * K[f,c,r,s] for h in 0:H, w in 0:W"]  # fmt: skip
        m.features |= {"declared", "op:+=", "pad:constant"}
    m.features |= {"classic", f"dtype:{t}", "op:="}
    return True
