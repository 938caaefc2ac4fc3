"""What a call costs inside JAX: `python -m benchmarks.jax_calls [--core 1] [--sizes 4 64 512]`. Products of f32, one thread."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks import process

ROUNDS, MOST_CALLS = 15, 1000
SECONDS = 0.05  # of a round


def contenders(size: int) -> dict[str, Callable[[], Any]]:
    """Return the calls that are compared, all of one product of two matrices."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import polyker as pk

    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.standard_normal((size, size)), "float32") for _ in range(2))
    product = pk.jax.op("C[i,j] += A[i,k] * B[k,j]")
    mine, theirs = jax.jit(lambda a, b: product(a, b)), jax.jit(jnp.matmul)
    with pk.options(threads=1):  # read when it is traced
        mine(a, b).block_until_ready()
    return {
        "polyker in jit": lambda: mine(a, b).block_until_ready(),
        "polyker": lambda: product(a, b).block_until_ready(),
        "jnp.matmul in jit": lambda: theirs(a, b).block_until_ready(),
        "jnp.matmul": lambda: jnp.matmul(a, b).block_until_ready(),
    }


def main() -> None:
    """Print the microseconds a call, medians of rounds taken in turns."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.jax_calls", description=__doc__)
    found.add_argument("--core", type=int, help="the core to run on; default: the last")
    found.add_argument("--sizes", type=int, nargs="+", default=[4, 64, 512])
    given = found.parse_args()
    process.prepare(given.core)

    from benchmarks.timing import once

    for size in given.sizes:
        calls = contenders(size)
        first = {name: once(call, 3) for name, call in calls.items()}
        counts = {name: max(1, min(MOST_CALLS, int(SECONDS / t))) for name, t in first.items()}
        rounds = [{name: once(call, counts[name]) for name, call in calls.items()} for _ in range(ROUNDS)]
        for name in calls:
            times = [r[name] for r in rounds]
            print(
                f"{size:>5}  {name:<20}{statistics.median(times) * 1e6:10.2f} us   least {min(times) * 1e6:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
