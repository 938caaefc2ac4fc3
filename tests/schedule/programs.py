"""Small programs of every sort that schedules are tried on."""

from __future__ import annotations

from tests.schedule.support import Case, case

HEAT = """heat(A: f64[N,N], steps) -> A:
    for t in 0:steps:
        B[i,j] = A[i-1,j] + A[i+1,j] + A[i,j-1] - A[i,j+1]  for i in 1:N-1, j in 1:N-1
        A[i,j] = B[i,j]  for i in 1:N-1, j in 1:N-1"""

GATHERED = """f(idx: i64[N], w: f64[N], H: f64[M]) -> H:
    H[idx[i]] += w[i]"""

INDIRECT = """f(idx: i64[N], w: f64[N], H: f64[M]) -> H:
    P[i] = idx[i] * 2 + 1
    H[P[i]] += w[i]"""

# B is written anew in each step: between the steps flow no values through it.
OVERWRITTEN = """f(A: f64[N], steps) -> A:
    for t in 0:steps:
        B[i] = A[i] * 2
        A[i] = B[i] + B[N-1-i]"""

PROGRAMS: dict[str, Case] = {
    "matmul": case("C[i,j] += A[i,k] * B[k,j]", A="f64[5,6]", B="f64[6,7]"),
    "chain": case("T[i,j] = X[i,j] + 1;  O[i,j] = T[i,j] * 2", X="f64[5,9]"),
    "normalise": case("P[i,j] = X[i,j] - max[k](X[i,k])", X="f64[4,6]"),
    "scan": case("S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:N", X="f64[4,6]", N=6),
    "heat": case(HEAT, A="f64[6,6]", steps=3),
    "triangle": case("L[i,j] += A[i,k] * A[j,k] where j <= i", A="f64[6,4]"),
    "histogram": case(GATHERED, idx="i64[9]", w="f64[9]", H="f64[3]"),
    "transpose": case("O[j,i] = X[i,j]", X="f64[5,7]"),
    "convolution": case("O[h] += X[h+r-1; pad=0] * K[r] for h in 0:H", X="f64[9]", K="f64[3]", H=9),
    "dot": case("s += x[i] * y[i]", x="f64[11]", y="f64[11]"),
    "pipeline": case(
        "U[i] = X[i] * 2;  V[i] = U[i] + U[i+1] for i in 0:N;  W[i] = V[i] - X[i] for i in 0:N", X="f64[9]", N=8
    ),
    "scalar": case("s[] = x[0] + 1", x="f64[3]"),
    "backwards": case("f(A: f64[N]) -> A:\n    A[i] = A[i+1] for i in 0:N-1", A="f64[8]"),
    "copies": case("T[i] = X[i; pad=0];  O[i] = T[i-1; pad=3] + T[i+1; pad=4]  for i in 0:9", X="f64[9]"),
    "padded rows": case(
        "T[b,i] = X[b,i] * 2;  O[b,i] = T[b,i-1; pad=3] + T[b,i+1; pad=4]  for b in 0:B, i in 0:9", X="f64[3,9]", B=3
    ),
    "indirect": case(INDIRECT, idx="i64[9]", w="f64[9]", H="f64[7]"),
    "overwritten": case(OVERWRITTEN, A="f64[7]", steps=3),
}  # fmt: skip
