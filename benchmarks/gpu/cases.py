"""What is measured on a GPU: products, reductions, rows, scans, moves, and the contractions of TCCG; networks stand apart."""

from __future__ import annotations

from math import prod

from benchmarks.gpu.case import Case
from benchmarks.gpu.networks import networks
from polyker.cli.demo_cases import read_data

_SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
_NORM = (
    "m[n] = mean[c](X[n,c])\nv[n] = mean[c]((X[n,c] - m[n]) ** 2)\n"
    "O[n,c] = (X[n,c] - m[n]) * rsqrt(v[n] + 1e-5) * g[c] + b[c]"
)


def _products() -> list[Case]:
    n = 4096
    text = {"ik,kj->ij": "A[i,k] * B[k,j]", "ki,kj->ij": "A[k,i] * B[k,j]", "ik,jk->ij": "A[i,k] * B[j,k]"}
    names = ("matmul-nn-4096", "matmul-tn-4096", "matmul-nt-4096")
    found = [
        Case(
            name, "product", f"C[i,j] += {right}", ((n, n), (n, n)),
            lambda torch, a, b, e=einsum: torch.einsum(e, a, b), 2.0 * n**3, einsum=einsum,
        )
        for name, (einsum, right) in zip(names, text.items(), strict=True)
    ]  # fmt: skip
    square = "C[i,j] += A[i,k] * B[k,j]"
    for dtype in ("bf16", "f16"):
        found.append(
            Case(
                f"matmul-{dtype}-4096", "product-half", square, ((n, n), (n, n)), lambda _, a, b: a @ b, 2.0 * n**3,
                (dtype, dtype), "ik,kj->ij", unit=dtype,
            )
        )  # fmt: skip
    found.append(
        Case(
            "matmul-tf32-4096", "product-tf32", square, ((n, n), (n, n)), lambda _, a, b: a @ b, 2.0 * n**3,
            einsum="ik,kj->ij", unit="tf32", tf32=True,
        )
    )  # fmt: skip
    for m, k, columns in ((64, 65536, 64), (512, 65536, 512), (16, 4096, 4096)):
        found.append(
            Case(
                f"skinny-{m}x{columns}x{k}", "skinny", square, ((m, k), (k, columns)), lambda _, a, b: a @ b,
                2.0 * m * k * columns, einsum="ik,kj->ij",
            )
        )  # fmt: skip
    return found


def _rows() -> list[Case]:
    """Return reductions, softmax and layer norms of 16384 x 4096 and of 2^28 elements."""
    found = []
    for rows, size in ((16384, "16384x4096"), (65536, "2^28")):
        shape = rows, 4096
        elements = float(prod(shape))
        found += [
            Case(f"row-sums-{size}", "reduction", "s[i] += X[i,j]", (shape,), lambda _, x: x.sum(1), elements),
            Case(f"column-sums-{size}", "reduction", "s[j] += X[i,j]", (shape,), lambda _, x: x.sum(0), elements),
            Case(f"maxima-{size}", "reduction", "s[i] max= X[i,j]", (shape,), lambda _, x: x.amax(1), elements),
            Case(f"softmax-{size}", "row-wise", _SOFTMAX, (shape,), lambda torch, x: torch.softmax(x, 1), 4 * elements,
                 linear=False),
            Case(
                f"layer-norm-{size}", "row-wise", _NORM, (shape, (4096,), (4096,)),
                lambda torch, x, g, b: torch.nn.functional.layer_norm(x, x.shape[1:], g, b, 1e-5), 7 * elements, linear=False,
            ),
        ]  # fmt: skip
    whole = (1 << 28,)
    return [*found, Case("sum-2^28", "reduction", "s += X[i]", (whole,), lambda torch, x: x.sum(), 2.0**28)]


def _scans() -> list[Case]:
    """Return sums up to each element along rows, along columns, and of one vector."""
    text = "f(X: [M,N]) -> S:\n    S[i,j] += X[{}] for i in 0:M, j in 0:N where k <= {}"
    shape, whole = (16384, 4096), (1 << 28,)
    return [
        Case("prefix-rows", "scan", text.format("i,k", "j"), (shape,), lambda _, x: x.cumsum(1), float(prod(shape))),
        Case("prefix-columns", "scan", text.format("k,j", "i"), (shape,), lambda _, x: x.cumsum(0), float(prod(shape))),
        Case(
            "prefix-2^28", "scan", "f(X: [N]) -> S:\n    S[i] += X[k] for i in 0:N where k <= i", (whole,),
            lambda _, x: x.cumsum(0), 2.0**28,
        ),
    ]  # fmt: skip


def _moves() -> list[Case]:
    n, image = 16384, (64, 128, 128, 128)
    whole = (1 << 28,)
    return [
        Case("transpose-16384", "transpose", "T[j,i] = X[i,j]", ((n, n),), lambda _, x: x.T.contiguous(), 0.0),
        Case(
            "transpose-nchw-nhwc", "transpose", "T[n,h,w,c] = X[n,c,h,w]", (image,),
            lambda _, x: x.permute(0, 2, 3, 1).contiguous(), 0.0,
        ),
        Case(
            "transpose-reversed", "transpose", "T[d,c,b,a] = X[a,b,c,d]", (image,),
            lambda _, x: x.permute(3, 2, 1, 0).contiguous(), 0.0,
        ),
        Case(
            "axpy-2^28", "elementwise", "Z[i] = 2.5 * X[i] + Y[i]", (whole, whole), lambda _, x, y: 2.5 * x + y, 2.0**29
        ),
        Case(
            "gelu-2^28", "elementwise", "Y[i] = 0.5 * X[i] * (1 + erf(X[i] * 0.7071067811865476))", (whole,),
            lambda torch, x: torch.nn.functional.gelu(x), 5 * 2.0**28, linear=False,
        ),
        Case(
            "embedding", "gather", "E[b,d] = T[idx[b], d]", ((50304, 1024), (65536,)), lambda _, t, i: t[i], 0.0,
            indices=(1,),
        ),
        Case(
            "convolution-3x3", "convolution", "O[n,f,h,w] += X[n,c,h+r,w+s] * K[f,c,r,s]", ((64, 64, 58, 58), (64, 64, 3, 3)),
            lambda torch, x, k: torch.nn.functional.conv2d(x, k), 2.0 * 64 * 64 * 56 * 56 * 64 * 9,
        ),
    ]  # fmt: skip


def _contractions() -> list[Case]:
    found = []
    for row in read_data("contractions.json")["contractions"]:
        sizes = row["f32"]
        inputs, output = row["einsum"].split("->")
        a, b = inputs.split(",")
        target, left, right = (",".join(labels) for labels in (output, a, b))
        found.append(
            Case(
                row["id"], "contraction", f"C[{target}] += A[{left}] * B[{right}]",
                (tuple(sizes[x] for x in a), tuple(sizes[x] for x in b)),
                lambda torch, x, y, e=row["einsum"]: torch.einsum(e, x, y), 2.0 * prod(sizes.values()), einsum=row["einsum"],
            )
        )  # fmt: skip
    return found


def cases() -> list[Case]:
    """Return all cases: products, rows, scans, moves, networks, and the 48 contractions of TCCG at their full sizes."""
    return [*_products(), *_rows(), *_scans(), *_moves(), *networks(), *_contractions()]
