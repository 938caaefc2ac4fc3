"""Problems that are one einsum: the text and every peer's spelling come from the subscripts."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct

from benchmarks.case import Operand, Problem, Spelling

NAMES = "ABDEF"


def einsum(subscripts: str, dtype: str, **sizes: int) -> Problem:
    """Return the problem of an einsum with explicit output; `sizes`: label -> extent."""
    left, target = subscripts.split("->")
    terms = left.split(",")
    inputs = tuple(Operand(n, dtype, tuple(sizes[x] for x in t)) for n, t in zip(NAMES, terms, strict=False))
    reduced = set(left) - {",", *target}
    sign = "+=" if reduced else "="
    product = " * ".join(f"{o.name}[{','.join(t)}]" for o, t in zip(inputs, terms, strict=True))
    instances = math.prod(sizes[x] for x in {*left} - {","})
    touched = [math.prod(sizes[x] for x in set(t)) for t in (*terms, target)]
    return Problem(
        text=f"C[{','.join(target)}] {sign} {product}",
        inputs=inputs,
        output=Operand("C", dtype, tuple(sizes[x] for x in target)),
        flops=2 * instances if reduced and len(terms) > 1 else None,
        reference=lambda *arrays: np.einsum(subscripts, *arrays, optimize=True),
        spellings=spellings(subscripts),
        terms=math.prod(sizes[x] for x in reduced) * len(terms),
        moved=sum(touched) * inputs[0].bytes // max(1, math.prod(inputs[0].shape)),
    )


def spellings(subscripts: str) -> dict[str, Spelling]:
    """Return each peer's fastest natural spelling of an einsum, all with row-major results."""
    left, target = subscripts.split("->")
    terms = left.split(",")
    repeated = any(len(set(t)) < len(t) for t in terms)
    product = None if repeated else matmul(terms, target)
    general = {
        "jax": lambda jax, *xs, out: jax.numpy.einsum(subscripts, *xs, optimize="optimal"),
        "tblis": _tblis(subscripts),
    }
    if product is not None:
        return general | {"numpy": product.numpy, "torch": product.torch}
    if len(terms) == 1 and not repeated and set(terms[0]) == set(target):
        axes = tuple(terms[0].index(x) for x in target)
        return (general if list(axes) != sorted(axes) else {}) | {  # jax hands its input back for an identity
            "numpy": lambda np, x, out: _copy(np, out, x.transpose(axes)),
            "torch": lambda torch, x, out: x.permute(axes).contiguous() if out is None else out.copy_(x.permute(axes)),
        }
    if len(terms) == 1 and not repeated and "".join(x for x in terms[0] if x in target) == target:
        summed = tuple(n for n, x in enumerate(terms[0]) if x not in target)
        return general | {
            "numpy": lambda np, x, out: np.sum(x, axis=summed, out=out),
            "torch": lambda torch, x, out: torch.sum(x, dim=summed, out=out),
        }
    if len(terms) == 2 and not repeated and set(left) - {","} == set(target):
        views = [aligned(t, target) for t in terms]
        return general | {
            "numpy": lambda np, x, y, out: np.multiply(views[0].of(x), views[1].of(y), out=out),
            "torch": lambda torch, x, y, out: torch.mul(views[0].of(x), views[1].of(y), out=out),
        }
    return general | {
        "numpy": lambda np, *xs, out: np.einsum(
            subscripts, *xs, out=out, optimize=_path(subscripts, *map(np.shape, xs))
        ),
        "torch": lambda torch, *xs, out: torch.einsum(subscripts, *xs).contiguous(),
    }


@cache
def _path(subscripts: str, *shapes: tuple[int, ...]) -> Any:
    """Return numpy's order of contraction, found once as a careful user does."""
    return np.einsum_path(subscripts, *(np.broadcast_to(np.float32(0), s) for s in shapes), optimize="optimal")[0]


def _copy(np: Any, out: Any, x: Any) -> Any:
    np.copyto(out, x)
    return out


def _tblis(subscripts: str) -> Spelling:
    if subscripts.count(",") == 1:
        return lambda tblis, x, y, out: tblis.contract(subscripts, x, y, out=out)
    return lambda tblis, *xs, out: tblis.einsum(subscripts, *xs, out=out)


class View(Struct, frozen=True):
    """A view of an array (numpy's or torch's): its axes in another order, `None` for a new one of extent 1."""

    order: tuple[int, ...]
    index: tuple[Any, ...] = ()

    def of(self, x: Any) -> Any:
        """Return the view."""
        if list(self.order) != sorted(self.order):
            x = x.permute(self.order) if hasattr(x, "permute") else x.transpose(self.order)
        return x[self.index] if None in self.index else x


def aligned(term: str, target: str) -> View:
    """Return the view of a term that broadcasts against an array with the labels `target`."""
    order = tuple(term.index(x) for x in target if x in term)
    return View(order, tuple(slice(None) if x in term else None for x in target))


class Product(Struct, frozen=True):
    """A matrix product of views: `swapped` says that the second operand holds the result's rows."""

    swapped: bool
    left: View
    right: View

    def _views(self, x: Any, y: Any) -> tuple[Any, Any]:
        if self.swapped:
            x, y = y, x
        return self.left.of(x), self.right.of(y)

    def numpy(self, np: Any, x: Any, y: Any, out: Any) -> Any:
        """Run as np.matmul."""
        return np.matmul(*self._views(x, y), out=out)

    def torch(self, torch: Any, x: Any, y: Any, out: Any) -> Any:
        """Run as torch.matmul."""
        return torch.matmul(*self._views(x, y), out=out)


def matmul(terms: list[str], target: str) -> Product | None:
    """Return an einsum as a (batched) matrix product or matrix-vector product, None where it is neither.

    The rows are the label of the result that comes first, so that no result has to be transposed.
    """
    if len(terms) != 2:
        return None
    a, b = terms
    batch = [x for x in target if x in a and x in b]
    reduced = [x for x in a if x in b and x not in target]
    rest = [x for x in target if x not in batch]
    alone = {*a, *b} - {*batch, *reduced, *rest}
    if len(reduced) != 1 or alone or list(target[: len(batch)]) != batch or not 1 <= len(rest) <= 2:
        return None
    swapped = rest[0] not in a
    first, second = (b, a) if swapped else (a, b)
    wanted_first = [*batch, rest[0], *reduced]
    wanted_second = [*batch, *reduced, *rest[1:]]
    if sorted(first) != sorted(wanted_first) or sorted(second) != sorted(wanted_second) or (batch and len(rest) < 2):
        return None
    views = [View(tuple(t.index(x) for x in w)) for t, w in ((first, wanted_first), (second, wanted_second))]
    return Product(swapped, *views)
