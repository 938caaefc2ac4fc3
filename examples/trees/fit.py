"""A fitted LightGBM regressor as one WebAssembly file: `python -m examples.trees.fit [FOLDER]`.

Each row walks down all trees at once: a leaf is its own successor, so that after as many steps as the deepest tree has levels all
are at leaves. For numbers without missing values; predictions are those of LightGBM, bit for bit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

import polyker as pk
from examples.hosts import by_node, by_wasmtime

TEXT = """
trees(X: f64[S,8], F: i32[T,M], H: f64[T,M], L: i32[T,M], R: i32[T,M], V: f64[T,M]) -> O:
    N: i32[S,T]
    N[s,t] = i32(0)  for s in 0:S, t in 0:T
    for d in 0:DEPTH:
        N[s,t] = where(X[s, F[t, N[s,t]]] <= H[t, N[s,t]], L[t, N[s,t]], R[t, N[s,t]])  for s in 0:S, t in 0:T
    O[s] += V[t, N[s,t]]  for s in 0:S, t in 0:T
"""


def rows_of(tree: dict[str, Any]) -> tuple[list[tuple[Any, ...]], int]:
    """Return the nodes of a tree as (feature, threshold, left, right, value), and its depth."""
    rows: list[tuple[Any, ...]] = []

    def walk(node: dict[str, Any]) -> tuple[int, int]:
        at = len(rows)
        rows.append((0, np.inf, at, at, node.get("leaf_value", 0.0)))
        if "leaf_value" in node:
            return at, 0
        if node["decision_type"] != "<=":
            raise ValueError("only features that are numbers are taken")
        (left, a), (right, b) = walk(node["left_child"]), walk(node["right_child"])
        rows[at] = (node["split_feature"], node["threshold"], left, right, 0.0)
        return at, 1 + max(a, b)

    return rows, walk(tree["tree_structure"])[1]


def tables_of(model: lightgbm.Booster) -> tuple[dict[str, np.ndarray[Any, Any]], int]:
    """Return the trees of a model as tables, a row each, and the depth of the deepest."""
    made = [rows_of(tree) for tree in model.dump_model()["tree_info"]]
    most = max(len(rows) for rows, _ in made)
    whole = [rows + [(0, np.inf, 0, 0, 0.0)] * (most - len(rows)) for rows, _ in made]
    types = {"F": np.int32, "H": np.float64, "L": np.int32, "R": np.int32, "V": np.float64}
    tables = {n: np.array([[row[k] for row in rows] for rows in whole], t) for k, (n, t) in enumerate(types.items())}
    return tables, max(depth for _, depth in made)


def main(folder: Path) -> None:
    """Fit a model, export it, and compare what it predicts under node and wasmtime with LightGBM."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(2000, 8))
    aim = rows[:, 0] * rows[:, 1] + np.sin(rows[:, 2])
    options = {"objective": "regression", "num_leaves": 31, "verbose": -1, "num_threads": 1, "deterministic": True}
    model = lightgbm.train(options, lightgbm.Dataset(rows, aim), 50)
    wanted = model.predict(rows, num_threads=1)

    tables, depth = tables_of(model)
    types = {n: pk.i32[t.shape] if t.dtype == np.int32 else pk.f64[t.shape] for n, t in tables.items()}
    kernel = pk.op(TEXT.replace("DEPTH", str(depth))).compile(target="wasm32", X=pk.f64["S", 8], **types)
    file = folder / "trees.wasm"
    kernel.export(file, constants=tables)
    print(
        f"{file}: {file.stat().st_size:,} bytes, {sum(t.nbytes for t in tables.values()):,} of them tables of 50 trees"
    )

    found = {
        "node": by_node(file, "trees", rows, {"S": len(rows)}),
        "wasmtime": by_wasmtime(file, "trees", rows, len(rows), len(rows)),
    }
    for host, predicted in found.items():
        same = "is not installed" if predicted is None else f"bit-equal: {np.array_equal(predicted, wanted)}"
        print(f"{host}: {same}")


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "build")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
