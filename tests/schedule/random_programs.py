"""Random small programs for the tests of legality: several statements, stencils, recurrences, time loops, triangles, gathers."""

from __future__ import annotations

import random

from tests.schedule.support import Case, case


def random_case(rng: random.Random) -> Case:
    """Return a program with extents of a few elements."""
    forms = (
        _chain,
        _chain,
        _plane,
        _plane,
        _recurrence,
        _time_loop,
        _time_loop,
        _triangle,
        _in_place,
        _gather,
        _product,
    )
    return rng.choice(forms)(rng)


def _chain(rng: random.Random) -> Case:
    """Vectors, each made from the ones before with shifts, reversals and padding."""
    n, names, lines = rng.randint(3, 6), ["X"], []
    for k in range(rng.randint(2, 4)):
        sources = rng.sample(names, min(len(names), rng.randint(1, 2)))
        terms = " + ".join(f"{s}[{_shifted(rng, 'i')}; pad=0]" if rng.random() < 0.6 else f"{s}[i]" for s in sources)
        if rng.random() < 0.25:
            lines.append(f"T{k}[i] += {sources[0]}[i] * {sources[-1]}[j] for i in 0:N, j in 0:N")
        else:
            lines.append(f"T{k}[i] = {terms} + {k} for i in 0:N")
        names.append(f"T{k}")
    return case(";  ".join(lines), X=f"f64[{n}]", N=n)


def _shifted(rng: random.Random, index: str) -> str:
    return rng.choice([f"{index}-1", f"{index}+1", index, f"N-1-{index}", f"{index}+2"])


def _plane(rng: random.Random) -> Case:
    """Matrices, with shifts, transpositions and row sums."""
    n, names, lines = rng.randint(2, 4), ["X"], []
    for k in range(rng.randint(1, 3)):
        s = rng.choice(names)
        form = rng.random()
        if form < 0.2:
            lines.append(f"T{k}[i,j] = {s}[j,i] + X[i,j] for i in 0:N, j in 0:N")
        elif form < 0.5:
            lines.append(f"T{k}[i,j] += {s}[i,k] * X[k,j] for i in 0:N, j in 0:N, k in 0:N")
        elif form < 0.65:
            lines.append(f"T{k}[i,j] = {s}[i,j] - max[k in 0:N]({s}[i,k]) for i in 0:N, j in 0:N")
        else:
            shift = f"{rng.choice(['i-1', 'i', 'i+1'])},{rng.choice(['j-1', 'j', 'j+1'])}"
            lines.append(f"T{k}[i,j] = {s}[{shift}; pad=0] * 2 + X[i,j] for i in 0:N, j in 0:N")
        names.append(f"T{k}")
    return case(";  ".join(lines), X=f"f64[{n},{n}]", N=n)


def _recurrence(rng: random.Random) -> Case:
    """A scan along one dimension, with or without a neighbour in the other."""
    n = rng.randint(3, 5)
    other = rng.choice(
        ["S[b,t-1]", "S[b,t-1] + S[b-1,t-1; pad=0]", "S[b,t-1] + S[b+1,t-1; pad=0]", "S[b-1,t-1; pad=0]"]
    )
    order = rng.choice(["t in 1:N, b in 0:N", "b in 0:N, t in 1:N"]) if "+1" not in other else "t in 1:N, b in 0:N"
    if "S[b-1" in other and order.startswith("b"):
        order = "t in 1:N, b in 0:N"
    after = rng.choice(["", ";  O[b] += S[b,t]", ";  O[b,t] = S[b,t] * 2"])
    text = f"S[b,0] = X[b,0] for b in 0:N;  S[b,t] = {other} + X[b,t] for {order}{after}"
    return case(text, X=f"f64[{n},{n}]", N=n)


def _time_loop(rng: random.Random) -> Case:
    """A stencil in steps of time, through a temporary or in place."""
    n, steps = rng.randint(4, 6), rng.randint(2, 3)
    left, right = rng.choice([("i-1", "i+1"), ("i-1", "i"), ("i", "i+1"), ("i-1", "i-1")])
    if rng.random() < 0.3:
        body = f"        A[i] = A[{left}] + A[{right}] for i in 1:N-1\n"
    else:
        body = f"        B[i] = A[{left}] + A[{right}] for i in 1:N-1\n        A[i] = B[i] * 2 for i in 1:N-1\n"
    if rng.random() < 0.3:
        body += "        s[] += A[i]\n"
        return case(
            f"f(A: f64[N], s: f64[], steps) -> A, s:\n    for t in 0:steps:\n{body}",
            A=f"f64[{n}]",
            s="f64[]",
            steps=steps,
        )
    return case(f"f(A: f64[N], steps) -> A:\n    for t in 0:steps:\n{body}", A=f"f64[{n}]", steps=steps)


def _triangle(rng: random.Random) -> Case:
    n = rng.randint(3, 5)
    bound = rng.choice(["j <= i", "j < i", "i + j < N", "j >= i"])
    after = rng.choice(["", ";  R[i] += L[i,j; pad=0]", ";  M[i,j] = L[j,i; pad=0] + L[i,j; pad=0]"])
    after += " for i in 0:N, j in 0:N" if after else ""
    text = f"L[i,j] += A[i,k] * A[j,k] for i in 0:N, j in 0:N where {bound}{after}"
    return case(text, A=f"f64[{n},2]", N=n)


def _in_place(rng: random.Random) -> Case:
    n = rng.randint(4, 7)
    read = rng.choice(["A[i+1]", "A[N-1-i]", "A[i] + A[i+1]", "A[2*i]"])
    hi = {"A[N-1-i]": "N", "A[2*i]": "N/2"}.get(read, "N-1")
    if hi == "N/2":
        hi = "N//2"
    first = rng.choice(["", "    B[i] = A[i] for i in 0:N\n", "    A[i] = A[i] * 3 for i in 0:N\n"])
    outputs = "A, B" if "B" in first else "A"
    return case(f"f(A: f64[N]) -> {outputs}:\n{first}    A[i] = {read} for i in 0:{hi}", A=f"f64[{n}]")


def _gather(rng: random.Random) -> Case:
    n = rng.randint(3, 5)
    form = rng.choice(
        [
            "f(idx: i64[N], w: f64[N], H: f64[3]) -> H:\n    H[idx[i]] += w[i]",
            "f(idx: i64[N], w: f64[N], H: f64[3]) -> H:\n"
            "    V[i] = w[i] * 2\n    H[idx[i]] += V[i]\n    H[i] = H[i] + 1 for i in 0:3",
            "f(idx: i64[N], w: f64[N], H: f64[3]) -> G:\n    V[i] = w[i] * 2\n    G[i] = V[idx[i]] + H[idx[i]]",
        ]
    )
    return case(form, idx=f"i64[{n}]", w=f"f64[{n}]", H="f64[3]")


def _product(rng: random.Random) -> Case:
    m, n, k = (rng.randint(2, 5) for _ in range(3))
    after = rng.choice(["", ";  D[i,j] = C[i,j] + b[j]"])
    extra = {"b": f"f64[{n}]"} if after else {}
    return case(f"C[i,j] += A[i,k] * B[k,j]{after}", A=f"f64[{m},{k}]", B=f"f64[{k},{n}]", **extra)
