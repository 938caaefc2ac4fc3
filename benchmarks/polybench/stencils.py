"""Stencils over many time steps."""

from __future__ import annotations

import numpy as np

from benchmarks.polybench.case import Case, Inputs, table


def jacobi_1d_initial(T: int, N: int) -> Inputs:
    return {"A": table(lambda i: (i + 2) / N, N), "B": table(lambda i: (i + 3) / N, N), "steps": T}


def jacobi_1d_loops(A, B, steps):
    N = len(A)
    for _ in range(steps):
        for i in range(1, N - 1):
            B[i] = 0.33333 * (A[i - 1] + A[i] + A[i + 1])
        for i in range(1, N - 1):
            A[i] = 0.33333 * (B[i - 1] + B[i] + B[i + 1])
    return A, B


def jacobi_1d_numpy(A, B, steps):
    for _ in range(steps):
        B[1:-1] = 0.33333 * (A[:-2] + A[1:-1] + A[2:])
        A[1:-1] = 0.33333 * (B[:-2] + B[1:-1] + B[2:])
    return A, B


def jacobi_2d_initial(T: int, N: int) -> Inputs:
    return {
        "A": table(lambda i, j: (i * (j + 2) + 2) / N, N, N),
        "B": table(lambda i, j: (i * (j + 3) + 3) / N, N, N),
        "steps": T,
    }


def jacobi_2d_loops(A, B, steps):
    N = len(A)
    for _ in range(steps):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j])
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = 0.2 * (B[i, j] + B[i, j - 1] + B[i, j + 1] + B[i + 1, j] + B[i - 1, j])
    return A, B


def jacobi_2d_numpy(A, B, steps):
    for _ in range(steps):
        B[1:-1, 1:-1] = 0.2 * (A[1:-1, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:] + A[2:, 1:-1] + A[:-2, 1:-1])
        A[1:-1, 1:-1] = 0.2 * (B[1:-1, 1:-1] + B[1:-1, :-2] + B[1:-1, 2:] + B[2:, 1:-1] + B[:-2, 1:-1])
    return A, B


def seidel_2d_initial(T: int, N: int) -> Inputs:
    return {"A": table(lambda i, j: (i * (j + 2) + 2) / N, N, N), "steps": T}


def seidel_2d_loops(A, steps):
    N = len(A)
    for _ in range(steps):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = (
                    A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1]
                    + A[i, j - 1] + A[i, j] + A[i, j + 1]
                    + A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]
                ) / 9.0  # fmt: skip
    return A


def seidel_2d_numpy(A, steps):
    for _ in range(steps):
        for i in range(1, len(A) - 1):
            row = A[i - 1, :-2] + A[i - 1, 1:-1] + A[i - 1, 2:] + A[i, 1:-1] + A[i, 2:]
            row += A[i + 1, :-2] + A[i + 1, 1:-1] + A[i + 1, 2:]
            for j in range(1, A.shape[1] - 1):
                A[i, j] = (row[j - 1] + A[i, j - 1]) / 9.0
    return A


def heat_3d_initial(T: int, N: int) -> Inputs:
    A = table(lambda i, j, k: (i + j + (N - k)) * 10 / N, N, N, N)
    return {"A": A, "B": A.copy(), "steps": T}


def heat_3d_loops(A, B, steps):
    N = len(A)
    for _ in range(steps):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                for k in range(1, N - 1):
                    B[i, j, k] = (
                        0.125 * (A[i + 1, j, k] - 2.0 * A[i, j, k] + A[i - 1, j, k])
                        + 0.125 * (A[i, j + 1, k] - 2.0 * A[i, j, k] + A[i, j - 1, k])
                        + 0.125 * (A[i, j, k + 1] - 2.0 * A[i, j, k] + A[i, j, k - 1])
                        + A[i, j, k]
                    )
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                for k in range(1, N - 1):
                    A[i, j, k] = (
                        0.125 * (B[i + 1, j, k] - 2.0 * B[i, j, k] + B[i - 1, j, k])
                        + 0.125 * (B[i, j + 1, k] - 2.0 * B[i, j, k] + B[i, j - 1, k])
                        + 0.125 * (B[i, j, k + 1] - 2.0 * B[i, j, k] + B[i, j, k - 1])
                        + B[i, j, k]
                    )
    return A, B


def heat_3d_numpy(A, B, steps):
    def step(X, Y):
        centre = X[1:-1, 1:-1, 1:-1]
        Y[1:-1, 1:-1, 1:-1] = (
            0.125 * (X[2:, 1:-1, 1:-1] - 2.0 * centre + X[:-2, 1:-1, 1:-1])
            + 0.125 * (X[1:-1, 2:, 1:-1] - 2.0 * centre + X[1:-1, :-2, 1:-1])
            + 0.125 * (X[1:-1, 1:-1, 2:] - 2.0 * centre + X[1:-1, 1:-1, :-2])
            + centre
        )

    for _ in range(steps):
        step(A, B)
        step(B, A)
    return A, B


def fdtd_2d_initial(T: int, X: int, Y: int) -> Inputs:
    return {
        "ex": table(lambda i, j: i * (j + 1) / X, X, Y),
        "ey": table(lambda i, j: i * (j + 2) / Y, X, Y),
        "hz": table(lambda i, j: i * (j + 3) / X, X, Y),
        "fict": table(lambda t: t, T),
    }


def fdtd_2d_loops(ex, ey, hz, fict):
    X, Y = ex.shape
    for t in range(len(fict)):
        for j in range(Y):
            ey[0, j] = fict[t]
        for i in range(1, X):
            for j in range(Y):
                ey[i, j] -= 0.5 * (hz[i, j] - hz[i - 1, j])
        for i in range(X):
            for j in range(1, Y):
                ex[i, j] -= 0.5 * (hz[i, j] - hz[i, j - 1])
        for i in range(X - 1):
            for j in range(Y - 1):
                hz[i, j] -= 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])
    return ex, ey, hz


def fdtd_2d_numpy(ex, ey, hz, fict):
    for value in fict:
        ey[0] = value
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz


def adi_initial(T: int, N: int) -> Inputs:
    column, row = 2 / T * N * N, 1 / T * N * N
    return {
        "u": table(lambda i, j: (i + N - j) / N, N, N),
        "a": -column / 2,
        "b": 1 + column,
        "d": -row / 2,
        "e": 1 + row,
        "steps": T,
    }


def adi_loops(u, a, b, d, e, steps):
    N = len(u)
    c = a
    f = d
    v = np.empty((N, N))
    p = np.empty((N, N))
    q = np.empty((N, N))
    for _ in range(steps):
        for i in range(1, N - 1):
            v[0, i] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = v[0, i]
            for j in range(1, N - 1):
                p[i, j] = -c / (a * p[i, j - 1] + b)
                q[i, j] = (
                    -d * u[j, i - 1] + (1.0 + 2.0 * d) * u[j, i] - f * u[j, i + 1] - a * q[i, j - 1]
                ) / (a * p[i, j - 1] + b)  # fmt: skip
            v[N - 1, i] = 1.0
            for j in range(N - 2, 0, -1):
                v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
        for i in range(1, N - 1):
            u[i, 0] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = u[i, 0]
            for j in range(1, N - 1):
                p[i, j] = -f / (d * p[i, j - 1] + e)
                q[i, j] = (
                    -a * v[i - 1, j] + (1.0 + 2.0 * a) * v[i, j] - c * v[i + 1, j] - d * q[i, j - 1]
                ) / (d * p[i, j - 1] + e)  # fmt: skip
            u[i, N - 1] = 1.0
            for j in range(N - 2, 0, -1):
                u[i, j] = p[i, j] * u[i, j + 1] + q[i, j]
    return u


def adi_numpy(u, a, b, d, e, steps):
    N = len(u)
    inner = slice(1, N - 1)
    v, p, q = np.ones((N, N)), np.zeros((N, N)), np.empty((N, N))
    for _ in range(steps):
        q[inner, 0] = 1.0
        for j in range(1, N - 1):
            by = a * p[inner, j - 1] + b
            p[inner, j] = -a / by
            right = -d * u[j, :-2] + (1 + 2 * d) * u[j, inner] - d * u[j, 2:]
            q[inner, j] = (right - a * q[inner, j - 1]) / by
        for j in range(N - 2, 0, -1):
            v[j, inner] = p[inner, j] * v[j + 1, inner] + q[inner, j]
        u[inner, 0] = u[inner, N - 1] = q[inner, 0] = 1.0
        for j in range(1, N - 1):
            by = d * p[inner, j - 1] + e
            p[inner, j] = -d / by
            right = -a * v[:-2, j] + (1 + 2 * a) * v[inner, j] - a * v[2:, j]
            q[inner, j] = (right - d * q[inner, j - 1]) / by
        for j in range(N - 2, 0, -1):
            u[inner, j] = p[inner, j] * u[inner, j + 1] + q[inner, j]
    return u


def cases() -> tuple[Case, ...]:
    """Return the group."""
    return (
        Case(
            "jacobi-1d",
            """
jacobi_1d(A: f64[N], B: f64[N], steps) -> A, B:
    for t in 0:steps:
        B[i] = 0.33333 * (A[i-1] + A[i] + A[i+1])  for i in 1:N-1
        A[i] = 0.33333 * (B[i-1] + B[i] + B[i+1])  for i in 1:N-1
""",
            "T N", ((20, 30), (40, 120), (100, 400), (500, 2000)),
            jacobi_1d_initial, jacobi_1d_loops, jacobi_1d_numpy,
        ),
        Case(
            "jacobi-2d",
            """
jacobi_2d(A: f64[N,N], B: f64[N,N], steps) -> A, B:
    for t in 0:steps:
        B[i,j] = 0.2 * (A[i,j] + A[i,j-1] + A[i,j+1] + A[i+1,j] + A[i-1,j])  for i in 1:N-1, j in 1:N-1
        A[i,j] = 0.2 * (B[i,j] + B[i,j-1] + B[i,j+1] + B[i+1,j] + B[i-1,j])  for i in 1:N-1, j in 1:N-1
""",
            "T N", ((20, 30), (40, 90), (100, 250), (500, 1300)),
            jacobi_2d_initial, jacobi_2d_loops, jacobi_2d_numpy,
        ),
        Case(
            "seidel-2d",
            """
seidel_2d(A: f64[N,N], steps) -> A:
    for t in 0:steps:
        A[i,j] = (A[i-1,j-1] + A[i-1,j] + A[i-1,j+1] + A[i,j-1] + A[i,j] + A[i,j+1]
                  + A[i+1,j-1] + A[i+1,j] + A[i+1,j+1]) / 9  for i in 1:N-1, j in 1:N-1
""",
            "T N", ((20, 40), (40, 120), (100, 400), (500, 2000)),
            seidel_2d_initial, seidel_2d_loops, seidel_2d_numpy,
        ),
        Case(
            "heat-3d",
            """
heat_3d(A: f64[N,N,N], B: f64[N,N,N], steps) -> A, B:
    for t in 0:steps:
        B[i,j,k] = (0.125 * (A[i+1,j,k] - 2 * A[i,j,k] + A[i-1,j,k])
            + 0.125 * (A[i,j+1,k] - 2 * A[i,j,k] + A[i,j-1,k])
            + 0.125 * (A[i,j,k+1] - 2 * A[i,j,k] + A[i,j,k-1])
            + A[i,j,k])  for i in 1:N-1, j in 1:N-1, k in 1:N-1
        A[i,j,k] = (0.125 * (B[i+1,j,k] - 2 * B[i,j,k] + B[i-1,j,k])
            + 0.125 * (B[i,j+1,k] - 2 * B[i,j,k] + B[i,j-1,k])
            + 0.125 * (B[i,j,k+1] - 2 * B[i,j,k] + B[i,j,k-1])
            + B[i,j,k])  for i in 1:N-1, j in 1:N-1, k in 1:N-1
""",
            "T N", ((20, 10), (40, 20), (100, 40), (500, 120)),
            heat_3d_initial, heat_3d_loops, heat_3d_numpy,
        ),
        Case(
            "fdtd-2d",
            """
fdtd_2d(ex: f64[X,Y], ey: f64[X,Y], hz: f64[X,Y], fict: f64[T]) -> ex, ey, hz:
    for t in 0:T:
        ey[0,j] = fict[t]  for j in 0:Y
        ey[i,j] = ey[i,j] - 0.5 * (hz[i,j] - hz[i-1,j])  for i in 1:X, j in 0:Y
        ex[i,j] = ex[i,j] - 0.5 * (hz[i,j] - hz[i,j-1])  for i in 0:X, j in 1:Y
        hz[i,j] = hz[i,j] - 0.7 * (ex[i,j+1] - ex[i,j] + ey[i+1,j] - ey[i,j])  for i in 0:X-1, j in 0:Y-1
""",
            "T X Y", ((20, 20, 30), (40, 60, 80), (100, 200, 240), (500, 1000, 1200)),
            fdtd_2d_initial, fdtd_2d_loops, fdtd_2d_numpy,
        ),
        Case(
            "adi",
            """
adi(u: f64[N,N], a: f64, b: f64, d: f64, e: f64, steps) -> u:
    for t in 0:steps:
        v[0,i] = 1.0  for i in 1:N-1
        p[i,0] = 0.0  for i in 1:N-1
        q[i,0] = 1.0  for i in 1:N-1
        p[i,j] = -a / (a * p[i,j-1] + b)  for i in 1:N-1, j in 1:N-1
        q[i,j] = ((-d * u[j,i-1] + (1 + 2*d) * u[j,i] - d * u[j,i+1] - a * q[i,j-1])
                  / (a * p[i,j-1] + b))  for i in 1:N-1, j in 1:N-1
        v[N-1,i] = 1.0  for i in 1:N-1
        v[N-1-j,i] = p[i,N-1-j] * v[N-j,i] + q[i,N-1-j]  for i in 1:N-1, j in 1:N-1
        u[i,0] = 1.0  for i in 1:N-1
        p[i,0] = 0.0  for i in 1:N-1
        q[i,0] = 1.0  for i in 1:N-1
        p[i,j] = -d / (d * p[i,j-1] + e)  for i in 1:N-1, j in 1:N-1
        q[i,j] = ((-a * v[i-1,j] + (1 + 2*a) * v[i,j] - a * v[i+1,j] - d * q[i,j-1])
                  / (d * p[i,j-1] + e))  for i in 1:N-1, j in 1:N-1
        u[i,N-1] = 1.0  for i in 1:N-1
        u[i,N-1-j] = p[i,N-1-j] * u[i,N-j] + q[i,N-1-j]  for i in 1:N-1, j in 1:N-1
""",
            "T N", ((20, 20), (40, 60), (100, 200), (500, 1000)),
            adi_initial, adi_loops, adi_numpy,
        ),
    )  # fmt: skip
