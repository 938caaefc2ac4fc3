"""JAX's own check of derivatives, by numerical differences: `python -m tests.bridge.jax.gradients` checks all operators."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import polyker as pk
from tests.bridge.jax.operators import OPERATORS


def check(name: str, order: int, modes: Sequence[str]) -> None:
    """Check the derivatives of an operator up to an order in f64, by the inputs that are floats."""
    import jax
    from jax.test_util import check_grads

    text, make, sizes = OPERATORS[name]
    with jax.enable_x64(True):
        f, arrays = pk.jax.op(text), {n: jax.numpy.asarray(a) for n, a in make().items()}
        wrt = [n for n, a in arrays.items() if a.dtype.kind == "f"]

        def of(*values: Any) -> Any:
            return f(**{**arrays, **dict(zip(wrt, values, strict=True))}, **sizes)

        check_grads(of, tuple(arrays[n] for n in wrt), order=order, modes=modes, atol=1e-4, rtol=1e-4)


def main() -> None:
    """Check both modes of all operators at both orders."""
    for name in OPERATORS:
        start = time.perf_counter()
        check(name, 2, ("fwd", "rev"))
        print(f"{name:<16} orders 1 and 2, both modes: right ({time.perf_counter() - start:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
