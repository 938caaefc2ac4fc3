"""What operators do on two devices; run in a process of its own, as the number of devices is one of the process.

Prints one line of JSON: for each case, whether the values are right, the sharding of the result, and the collectives of the HLO.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import polyker as pk

COLLECTIVES = re.compile(r"\b(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


def case(f: Any, plain: Any, mesh: Mesh, *given: tuple[Any, P]) -> dict[str, Any]:
    """Return what came of a function of arrays that are placed so, beside a function that says what is right."""
    arrays = [jax.device_put(a, NamedSharding(mesh, spec)) for a, spec in given]
    jitted = jax.jit(f)
    found, wanted = jitted(*arrays), plain(*(a for a, _ in given))
    text = jitted.lower(*arrays).compile().as_text()
    near = jax.tree.map(lambda a, b: bool(np.allclose(a, b, rtol=1e-5, atol=1e-5)), found, wanted)
    return {
        "right": all(jax.tree.leaves(near)),
        "spec": [str(tuple(a.sharding.spec)) for a in jax.tree.leaves(found)],
        "collectives": sorted(set(COLLECTIVES.findall(text))),
    }


def main() -> None:
    mesh = Mesh(np.array(jax.devices()), ("d",))
    rng = np.random.default_rng(0)

    def array(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape), "float32")

    a, b, x, h = array(8, 6), array(6, 4), array(4, 10), array(3)
    product = pk.jax.op("C[i,j] += A[i,k] * B[k,j]")
    largest = pk.jax.op("m[i] max= x[i,j]")
    softmax = pk.jax.op("P[i,j] = exp(X[i,j]) / sum[k](exp(X[i,k]))")
    window = pk.jax.op("O[n,i] += X[n,i+r] * W[r]")

    def windowed(x: Any, w: Any) -> Any:
        return sum(x[:, r : x.shape[1] - 2 + r] * w[r] for r in range(3))

    def pulled(f: Any) -> Any:
        return lambda a, b: jax.grad(lambda a, b: (f(a, b) ** 2).sum(), (0, 1))(a, b)

    def batched(f: Any) -> Any:
        return jax.vmap(f, (0, None))

    def in_parts(f: Any) -> Any:
        return jax.shard_map(f, mesh=mesh, in_specs=(P("d", None), P()), out_specs=P("d", None))

    rows, columns, whole = P("d", None), P(None, "d"), P()
    found = {
        "rows": case(product, jnp.matmul, mesh, (a, rows), (b, whole)),
        "reduced": case(product, jnp.matmul, mesh, (a, columns), (b, rows)),
        "odd": case(product, jnp.matmul, mesh, (array(7, 6), whole), (b, columns)),
        "largest": case(largest, lambda x: x.max(1), mesh, (x, columns)),
        "softmax rows": case(softmax, lambda x: jax.nn.softmax(x, 1), mesh, (x, rows)),
        "window, batch": case(window, windowed, mesh, (x, rows), (h, whole)),
        "window": case(window, windowed, mesh, (x, columns), (h, whole)),
        "diagonal": case(
            pk.jax.op("t[j] = sum[i](A[i,i,j])"),
            lambda a: jnp.einsum("iij->j", a),
            mesh,
            (array(3, 3, 4), P(None, None, "d")),
        ),
        "gradient": case(pulled(product), pulled(jnp.matmul), mesh, (a, rows), (b, whole)),
        "batch": case(batched(product), jnp.matmul, mesh, (array(2, 8, 6), P("d", None, None)), (b, whole)),
        "shard_map": case(in_parts(product), jnp.matmul, mesh, (a, rows), (b, whole)),
        "gradient in shard_map": case(
            pulled(lambda a, b: in_parts(product)(a, b)), pulled(jnp.matmul), mesh, (a, rows), (b, whole)
        ),
    }
    explicit = jax.make_mesh((2,), ("d",))
    with jax.set_mesh(explicit):
        found["explicit axes"] = case(
            product, lambda a, b: np.asarray(a) @ np.asarray(b), explicit, (a, rows), (b, whole)
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
