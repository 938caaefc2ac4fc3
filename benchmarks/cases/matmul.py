"""Matrix products: cubes, odd sizes, every transposition, thin ones, batches, matrix-vector."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.case import Case
from benchmarks.einsum_case import einsum

CUBES = (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
ODD = (31, 33, 47, 63, 65, 97, 127, 129, 191, 255, 257, 509, 513, 1021)
OBLONG = ((127, 255, 63), (501, 37, 1003), (333, 777, 111))  # m, n, k
TRANSPOSED = {"f32": ((256, 192, 320), (512, 512, 512), (1000, 1100, 900)), "f64": ((256, 192, 320), (600, 700, 500))}
THIN = (4, 8, 16, 32, 64)
ROWS = (1, 2, 4, 8, 12, 16)
BATCHES = ((512, 8), (256, 12), (256, 16), (128, 24), (64, 32), (32, 48), (16, 64))  # batch, size
VECTORS = ((64, 64), (256, 256), (1000, 1000), (4096, 4096), (100, 10000), (10000, 100))  # m, k


def _case(group: str, name: str, subscripts: str, dtype: str, **sizes: int) -> Case:
    make = partial(einsum, subscripts, dtype)
    return Case(f"matmul/{group}/{dtype}/{name}", "matmul", group, make, sizes)


def cases() -> Iterator[Case]:
    """Yield the family."""
    for dtype in ("f32", "f64"):
        yield from _plain(dtype)
        yield from _transposed(dtype)
        yield from _thin(dtype)
        for b, n in BATCHES:
            yield _case("batched", f"{b}x{n}", "bik,bkj->bij", dtype, b=b, i=n, j=n, k=n)
        for m, k in VECTORS:
            yield _case("matvec", f"row-{m}x{k}", "ik,k->i", dtype, i=m, k=k)
            yield _case("matvec", f"column-{m}x{k}", "ki,k->i", dtype, i=m, k=k)


def _plain(dtype: str) -> Iterator[Case]:
    for n in CUBES:
        yield _case("cubes", str(n), "ik,kj->ij", dtype, i=n, j=n, k=n)
    for n in ODD:
        yield _case("odd", str(n), "ik,kj->ij", dtype, i=n, j=n, k=n)
    for m, n, k in OBLONG:
        yield _case("odd", f"{m}x{n}x{k}", "ik,kj->ij", dtype, i=m, j=n, k=k)


def _transposed(dtype: str) -> Iterator[Case]:
    for m, n, k in TRANSPOSED[dtype]:
        for a in ("ik", "ki"):
            for b in ("kj", "jk"):
                for c in ("ij", "ji"):
                    name = f"{a},{b}-{c}/{m}x{n}x{k}"
                    yield _case("transposed", name, f"{a},{b}->{c}", dtype, i=m, j=n, k=k)


def _thin(dtype: str) -> Iterator[Case]:
    for n in THIN:
        yield _case("thin", f"k{n}", "ik,kj->ij", dtype, i=1024, j=1024, k=n)
        yield _case("thin", f"n{n}", "ik,kj->ij", dtype, i=1024, j=n, k=1024)
        yield _case("thin", f"tall-n{n}", "ik,kj->ij", dtype, i=20000, j=n, k=64)
    for m in ROWS:
        yield _case("thin", f"m{m}", "ik,kj->ij", dtype, i=m, j=1024, k=1024)
        yield _case("thin", f"m{m}-t", "ik,jk->ij", dtype, i=m, j=1024, k=1024)
