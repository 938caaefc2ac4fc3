"""Operators of all families, and shapes to take their derivatives at."""

from __future__ import annotations

# Text, shapes of the inputs (`I` holds indices below 5), sizes.
OPERATORS: dict[str, tuple[str, dict[str, tuple[int, ...]], dict[str, int]]] = {
    name: (text, shapes, dict(more[0]) if more else {})
    for name, (text, shapes, *more) in {
        "product": ("C[i,j] += A[i,k] * B[k,j]", {"A": (5, 4), "B": (4, 6)}),
        "batched product": ("C[b,i,j] += A[b,i,k] * B[b,j,k]", {"A": (2, 3, 4), "B": (2, 5, 4)}),
        "trace": ("t += A[i,i] * B[i]", {"A": (4, 4), "B": (4,)}),
        "three factors": ("O[i,l] += A[i,j] * B[j,k] * C[k,l]", {"A": (3, 4), "B": (4, 5), "C": (5, 2)}),
        "outer": ("O[i,j] = A[i] * B[j]", {"A": (3,), "B": (4,)}),
        "correlation": ("O[i] += X[i+r] * W[r]", {"X": (11,), "W": (3,)}),
        "convolution": (
            "O[n,f,i,j] += X[n,c,2*i+r,2*j+s] * W[f,c,r,s]", {"X": (2, 3, 9, 9), "W": (4, 3, 3, 3)}
        ),
        "padded convolution": (
            "O[f,i,j] += X[c,i+r-1,j+s-1; pad=0] * W[f,c,r,s] for i in 0:H, j in 0:V",
            {"X": (2, 5, 6), "W": (3, 2, 3, 3)}, {"H": 5, "V": 6},
        ),
        "transposed convolution": ("O: f64[13]\nO[2*i+r] += X[i] * W[r]", {"X": (6,), "W": (3,)}),
        "dilated": ("O[i] += X[i+2*r] * W[r]", {"X": (9,), "W": (3,)}),
        "mean pool": ("O[i] = mean[r in 0:2](X[2*i+r])", {"X": (8,)}),
        "max pool": ("O[i,j] = max[a in 0:2, b in 0:2](X[2*i+a,2*j+b])", {"X": (6, 8)}),
        "softmax": (
            "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))", {"X": (4, 6)}
        ),
        "logsumexp": ("L[i] logsumexp= X[i,k]", {"X": (4, 6)}),
        "cross entropy": ("L[i] = logsumexp[k](X[i,k]) - X[i,I[i]]", {"X": (4, 5), "I": (4,)}),
        "attention": (
            "S[i,j] = sum[d](Q[i,d] * K[j,d]) * 0.3; P[i,j] = exp(S[i,j] - max[k](S[i,k]));"
            "O[i,d] = sum[j](P[i,j] * V[j,d]) / sum[j](P[i,j])",
            {"Q": (4, 3), "K": (5, 3), "V": (5, 2)},
        ),
        "causal attention": (
            "S[i,j] = sum[d](Q[i,d] * K[j,d]) for i in 0:N, j in 0:N where j <= i;"
            "L[i] = logsumexp[j](S[i,j] where j <= i); O[i,d] += exp(S[i,j] - L[i]) * V[j,d] where j <= i",
            {"Q": (4, 3), "K": (4, 3), "V": (4, 2)}, {"N": 4},
        ),
        "layer norm": (
            "M[i] = mean[j](X[i,j]); V[i] = mean[j]((X[i,j] - M[i])**2);"
            "Y[i,j] = (X[i,j] - M[i]) * rsqrt(V[i] + 1e-5) * g[j] + b[j]",
            {"X": (4, 6), "g": (6,), "b": (6,)},
        ),
        "rms norm": ("Y[i,j] = X[i,j] * rsqrt(mean[k](X[i,k]**2) + 1e-6) * g[j]", {"X": (3, 5), "g": (5,)}),
        "distances": ("D[i,j] = sqrt(sum[k]((A[i,k] - B[j,k])**2))", {"A": (3, 4), "B": (5, 4)}),
        "triangle": ("Y[i] += X[i,j]**2 where j <= i", {"X": (6, 7)}),
        "band": ("Y[i] += X[i,j] * Z[j] where j <= i + 1 and j >= i - 1", {"X": (6, 6), "Z": (6,)}),
        "triangular product": ("C[i,j] += A[i,k] * B[k,j] where k <= i and k >= j", {"A": (5, 5), "B": (5, 5)}),
        "paddings": (
            "Y[i] = sin(X[i-1; pad=edge]) * 2 + X[i+1; pad=0] * X[i] + X[i-2; pad=wrap]**3 + X[i+2; pad=reflect]**2 for i in 0:7",
            {"X": (7,)},
        ),
        "stencil": ("Y[i,j] = (X[i,j+1] + X[i+2,j+1] + X[i+1,j] + X[i+1,j+2]) * X[i+1,j+1]", {"X": (6, 7)}),
        "blur": ("B[i] = sum[k in 0:3](X[i+k] * 0.3); Y[i] = sum[k in 0:3](B[i+k]**2)", {"X": (12,)}),
        "products": ("p[i] *= x[i,j]", {"x": (3, 4)}),
        "largest": ("m[i] max= x[i,j]", {"x": (3, 4)}),
        "smallest": ("m[i] = min[j](x[i,j] * y[j]) * x[i,0]", {"x": (3, 4), "y": (4,)}),
        "mean": ("m[i] = mean[j](x[i,j]**2)", {"x": (3, 4)}),
        "variance": ("v = mean[j]((x[j] - mean[k](x[k]))**2)", {"x": (7,)}),
        "choice": ("Y[i] = where(X[i] > 0, sqrt(abs(X[i])), Z[i] * X[i])", {"X": (6,), "Z": (6,)}),
        "bounds": ("Y[i] = minimum(X[i], Z[i]) * maximum(X[i], 0.2) + clip(Z[i], -0.5, 0.5)", {"X": (6,), "Z": (6,)}),
        "powers": ("Y[i] = abs(X[i])**Z[i] + X[i]**3 + 2**X[i] + X[i] / Z[i]", {"X": (6,), "Z": (6,)}),
        "quotients": ("Y[i,j] = X[2*i+1,j//2] * Z[j%3] for i in 0:3, j in 0:6", {"X": (7, 3), "Z": (3,)}),
        "pieces": ("Y[0] = X[0] * 2; Y[i] = X[i] * X[i-1] for i in 1:N", {"X": (6,)}, {"N": 6}),
        "two results": ("A[i] = X[i]**2; B[i,j] = A[i] * Z[j]; C[i] = A[i]", {"X": (4,), "Z": (3,)}),
        "sum on a start": ("Y[i] = X[i] * 2; Y[i] += A[i,k] * X[k]", {"X": (5,), "A": (5, 5)}),
        "positions": ("Y[i] = X[i] * i + 3.0 / (i + 1)", {"X": (5,)}),
        "numbers": ("Y[i] = a * X[i] + exp(-a)", {"X": (5,), "a": ()}),
        "gather": ("O[i,j] = X[I[i],j]**2", {"X": (5, 3), "I": (7,)}),
        "scatter": ("H: f64[5]\nH[I[i]] += W[i]**2", {"I": (7,), "W": (7,)}),
        "gelu network": (
            "H[b,i] = gelu(sum[j](X[b,j] * A[i,j]) + p[i]); Y[b,i] = sum[j](H[b,j] * B[i,j])",
            {"X": (3, 4), "A": (6, 4), "p": (6,), "B": (2, 6)},
        ),
        "declared": ("f(X: f64[N,M], w: f64[M]) -> Y: f64[N]:\n    Y[i] += X[i,j] * tanh(w[j])", {"X": (3, 4), "w": (4,)}),
        "bilinear": ("O[b,o] += X[b,i] * W[o,i,j] * Z[b,j]", {"X": (2, 3), "W": (4, 3, 2), "Z": (2, 2)}),
        "batched matrix vector": ("y[b,i] += A[b,i,j] * x[b,j] + x[b,j] * i", {"A": (2, 3, 4), "x": (2, 4)}),
        "Kronecker": ("K[i,j,k,l] = A[i,j] * B[k,l]", {"A": (2, 3), "B": (3, 2)}),
        "grouped convolution": ("O[n,g,f,i] += X[n,g,c,i+r] * W[g,f,c,r]", {"X": (2, 2, 3, 7), "W": (2, 2, 3, 3)}),
        "strided dilated convolution": (
            "O[f,i,j] += X[c,2*i+2*r,3*j+s] * W[f,c,r,s]", {"X": (2, 9, 11), "W": (3, 2, 3, 2)}
        ),
        "depthwise": ("O[c,i,j] += X[c,i+r,j+s] * W[c,r,s]", {"X": (3, 5, 6), "W": (3, 3, 3)}),
        "overlapping max pool": ("O[i] = max[r in 0:3](X[2*i+r])", {"X": (9,)}),
        "log softmax": ("P[i,j] = X[i,j] - logsumexp[k](X[i,k])", {"X": (4, 5)}),
        "temperature softmax": (
            "E[i,j] = exp((X[i,j] - max[k](X[i,k])) / t); P[i,j] = E[i,j] / sum[k](E[i,k])", {"X": (3, 5), "t": ()}
        ),
        "batch norm": (
            "M[c] = mean[n,i](X[n,c,i]); V[c] = mean[n,i]((X[n,c,i] - M[c])**2);"
            "Y[n,c,i] = (X[n,c,i] - M[c]) / sqrt(V[c] + 1e-5) * g[c] + b[c]", {"X": (3, 2, 4), "g": (2,), "b": (2,)},
        ),
        "cosine similarity": (
            "C[i,j] = sum[k](A[i,k] * B[j,k]) * rsqrt(sum[k](A[i,k]**2)) * rsqrt(sum[k](B[j,k]**2))",
            {"A": (3, 4), "B": (2, 4)},
        ),
        "embedding bag": ("O[b,d] += T[I[b],d] * w[b]", {"T": (5, 3), "I": (6,), "w": (6,)}),
        "cumulative sum": ("Y[i] += X[j]**2 for i in 0:N where j <= i", {"X": (6,)}, {"N": 6}),
        "lower triangle": ("Y[i,j] = where(j <= i, X[i,j] * X[j,i], 0)", {"X": (5, 5)}),
        "Huber": (
            "L = mean[i](where(abs(X[i] - Z[i]) < 0.5, 0.5 * (X[i] - Z[i])**2, 0.5 * (abs(X[i] - Z[i]) - 0.25)))",
            {"X": (7,), "Z": (7,)},
        ),
        "radial kernel": ("K[i,j] = exp(-0.5 * sum[k]((A[i,k] - B[j,k])**2))", {"A": (3, 2), "B": (4, 2)}),
        "gated network": (
            "Y[b,o] = sum[h](silu(sum[i](X[b,i] * A[h,i])) * sum[i](X[b,i] * B[h,i]) * C[o,h])",
            {"X": (2, 3), "A": (4, 3), "B": (4, 3), "C": (2, 4)},
        ),
        "best sums": ("C[i,j] max= A[i,k] + B[k,j]", {"A": (3, 4), "B": (4, 2)}),
        "mean of some": ("m[i] = mean[j](x[i,j]**2 where x[i,j] > -2)", {"x": (3, 5)}),
        "triangular means": ("m[i] = mean[j in 0:i+1](x[i,j]**2)", {"x": (4, 5)}),
        "upsampling": ("Y[i,j] = X[i//2,j//3]**2 for i in 0:6, j in 0:6", {"X": (3, 2)}),
        "total variation": ("t = sum[i](sqrt((X[i+1] - X[i])**2 + 0.01))", {"X": (8,)}),
        "product of all": ("p = prod[i,j](x[i,j] + 2)", {"x": (2, 3)}),
    }.items()
}  # fmt: skip

# Recurrences, loops over time, and tensors that change.
SEQUENTIAL: dict[str, tuple[str, dict[str, tuple[int, ...]], dict[str, int]]] = {
    "recursive filter": ("Y[n,t] = X[n,t] + a[n] * Y[n,t-1; pad=0]", {"X": (2, 6), "a": (2,)}, {}),
    "recurrence": ("Y[t] = tanh(X[t] + 0.5 * Y[t-1; pad=0] * Y[t-2; pad=0])", {"X": (6,)}, {}),
    "running sum": ("Y[t] = X[t]**2 + Y[t-1; pad=0]", {"X": (6,)}, {}),
    "wavefront": ("Y[i,j] = sin(X[i,j]) + 0.3 * Y[i-1,j; pad=0] * Y[i,j-1; pad=0]", {"X": (4, 5)}, {}),
    "recurrent network": (
        "H[0,i] = Z[i] for i in 0:N\nfor t in 0:T:\n"
        "    H[t+1,i] = tanh(sum[j](W[i,j] * H[t,j]) + X[t,i]) for i in 0:N",
        {"Z": (3,), "W": (3, 3), "X": (4, 3)}, {"T": 4, "N": 3},
    ),
    "sums over older values": (  # a sum that is assigned begins with 0, not with what is there
        "f(X: f64[N], Y: f64[N]) -> X, W:\n    X[2*i+1] = sum[k in 0:i+1](Y[k]**2) for i in 0:N//2\n"
        "    W[i] = X[i] * Y[i]\n    W[i] = max[k](X[k] * Y[i])",
        {"X": (5,), "Y": (5,)}, {},
    ),
    "heat": (
        "heat(X: f64[N]) -> A:\n    A[i] = X[i]\n    for t in 0:T:\n"
        "        B[i] = (A[i-1; pad=0] + A[i+1; pad=0]) / 2 for i in 0:N\n        A[i] = B[i]",
        {"X": (6,)}, {"T": 3},
    ),
    "waves that are not linear": (
        "f(X: f64[N], c: f64[N]) -> A:\n    A[i] = X[i]\n    for t in 0:T:\n"
        "        B[i] = sin(A[i-1; pad=edge]) * A[i+1; pad=0] + c[i] * A[i] for i in 0:N\n        A[i] = tanh(B[i]) * A[i]",
        {"X": (6,), "c": (6,)}, {"T": 3},
    ),
    "inside alone": (
        "f(X: f64[N]) -> A:\n    A[i] = X[i]\n    for t in 0:T:\n"
        "        B[i] = A[i-1] * A[i+1] for i in 1:N-1\n        A[i] = B[i] for i in 1:N-1",
        {"X": (6,)}, {"T": 3},
    ),
    "no step": (
        "f(X: f64[N]) -> A:\n    A[i] = X[i]\n    for t in 0:T:\n        B[i] = A[i]**2\n        A[i] = B[i]",
        {"X": (4,)}, {"T": 0},
    ),
    "Seidel": (
        "f(X: f64[N]) -> A:\n    A[i] = X[i]\n    for t in 0:T:\n        A[i] = A[i-1] * A[i] + A[i+1; pad=0] for i in 1:N",
        {"X": (6,)}, {"T": 2},
    ),
    "loops inside a loop": (
        "f(X: f64[N], T, S) -> A:\n    A[i] = X[i]\n    for t in 0:T:\n        B[i] = A[i] * 2\n        for s in 0:S:\n"
        "            A[i] = sin(A[i]) * X[i] + B[i] for i in 1:N\n            B[i] = 0.5 * B[i] + A[i]\n        A[i] += B[i]",
        {"X": (4,)}, {"T": 3, "S": 2},
    ),
    "elimination": (
        "lu(A: f64[N,N]) -> A:\n    for k in 0:N:\n        A[i,k] = A[i,k] / (A[k,k] + 5) for i in k+1:N\n"
        "        A[i,j] = A[i,j] - A[i,k] * A[k,j] for i in k+1:N, j in k+1:N",
        {"A": (4, 4)}, {},
    ),
    "powers of a matrix": (
        "f(M: f64[N,N], x: f64[N]) -> y:\n    y[i] = x[i]\n    for t in 0:T:\n"
        "        z[i] += M[i,j] * y[j]\n        y[i] = z[i]",
        {"M": (4, 4), "x": (4,)}, {"T": 3},
    ),
    "best path": (
        "f(E: f64[T,N], A: f64[N,N]) -> s:\n    V[0,j] = E[0,j]\n    for t in 1:T:\n"
        "        V[t,j] = max[i](V[t-1,i] + A[i,j]) + E[t,j]\n    s = max[j](V[T-1,j])",
        {"E": (5, 3), "A": (3, 3)}, {},
    ),
    "all paths": (
        "f(E: f64[T,N], A: f64[N,N]) -> s:\n    V[0,j] = E[0,j]\n    for t in 1:T:\n"
        "        V[t,j] = logsumexp[i](V[t-1,i] + A[i,j]) + E[t,j]\n    s = logsumexp[j](V[T-1,j])",
        {"E": (5, 3), "A": (3, 3)}, {},
    ),
    "sum over steps": ("f(X: f64[T,N]) -> s:\n    for t in 0:T:\n        s[i] += X[t,i]**2", {"X": (4, 3)}, {}),
    "largest of steps": (
        "f(X: f64[T,N]) -> s:\n    for t in 0:T:\n        s[i] max= X[t,i] * X[t,0] for i in 0:N", {"X": (4, 3)}, {}
    ),
    "argument that is a result": (
        "f(C: f64[N,M], A: f64[N], B: f64[M]) -> C:\n    C[i,j] += A[i] * B[j]", {"C": (3, 4), "A": (3,), "B": (4,)}, {}
    ),
    "argument that is scaled": ("f(C: f64[N], A: f64[N]) -> C:\n    C[i] = C[i] * A[i]", {"C": (5,), "A": (5,)}, {}),
    "defined anew": (
        "f(X: f64[N]) -> Y:\n    A[i] = X[i]**2\n    Y[i] = A[i] * 3\n    A[i] = X[i] * Y[i]\n    Y[i] += A[i]**2",
        {"X": (5,)}, {},
    ),
    "triangular solve": ("x[i] = (b[i] - sum[j](L[i,j] * x[j] where j < i)) / L[i,i]", {"b": (4,), "L": (4, 4)}, {}),
}  # fmt: skip

OF_ANY = "exp exp2 expm1 sin cos tan sinh cosh tanh asinh erf erfc sigmoid relu gelu silu softplus cbrt atan lgamma abs".split()
OF_POSITIVE = "log log2 log10 log1p sqrt rsqrt lgamma acosh".split()
OF_UNIT = "asin acos atanh erfinv".split()
OF_TWO = "hypot atan2 fmod copysign".split()
# Each function is a statement of its own, in one program.
FUNCTIONS = "; ".join(
    f"{'ABCDEFGHIJKLMNOPQRSTUVW'[n % 23]}{n // 23}[i] = {text}"
    for n, text in enumerate(
        [
            *(f"{f}(X[i]) * X[i]" for f in OF_ANY),
            *(f"{f}(X[i]**2 + 1.1)" for f in OF_POSITIVE),
            *(f"{f}(tanh(X[i]) * 0.9)" for f in OF_UNIT),
            *(f"{f}(X[i], X[i+1] * 3 + 0.01) * X[i] for i in 0:8" for f in OF_TWO),
            "X[i] % (X[i+1]**2 + 1) for i in 0:8",
        ]
    )
)
