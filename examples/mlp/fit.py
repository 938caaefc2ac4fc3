"""A fitted MLPClassifier and a LogisticRegression of scikit-learn as one WebAssembly file each.

`python -m examples.mlp.fit [FOLDER]`. Both tell digits of 8x8 pixels; the files give the probabilities of the ten classes.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import polyker as pk
from examples.hosts import by_node, by_wasmtime

MLP = """
mlp(X: f64[S,64], W: f64[64,32], b: f64[32], V: f64[32,10], c: f64[10]) -> P:
    H[s,j] = relu(sum[k](X[s,k] * W[k,j]) + b[j])
    Z[s,k] = sum[j](H[s,j] * V[j,k]) + c[k]
    E[s,k] = exp(Z[s,k] - max[l](Z[s,l]))
    P[s,k] = E[s,k] / sum[l](E[s,l])
"""
LOGISTIC = """
logistic(X: f64[S,64], W: f64[10,64], b: f64[10]) -> P:
    Z[s,k] = sum[j](X[s,j] * W[k,j]) + b[k]
    E[s,k] = exp(Z[s,k] - max[l](Z[s,l]))
    P[s,k] = E[s,k] / sum[l](E[s,l])
"""


def export(folder: Path, name: str, text: str, constants: dict[str, np.ndarray[Any, Any]]) -> Path:
    """Write a model with its weights."""
    file = folder / f"{name}.wasm"
    pk.op(text).compile(target="wasm32").export(file, constants=constants)
    print(f"{file}: {file.stat().st_size:,} bytes, {sum(a.nbytes for a in constants.values()):,} of them weights")
    return file


def check(file: Path, rows: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> None:
    """Print how far probabilities are off scikit-learn's, at most."""
    count, name = len(rows), file.stem
    found = {
        "node": by_node(file, name, rows, {"S": count}),
        "wasmtime": by_wasmtime(file, name, rows, count, wanted.size),
    }
    for host, values in found.items():
        if values is None:
            print(f"{host}: is not installed")
            continue
        off = np.abs(values.reshape(wanted.shape) - wanted).max()
        print(f"{host}: largest difference {off:.1e}, within 1e-6: {off < 1e-6}")


def main(folder: Path) -> None:
    """Fit the models, export them, and compare what they predict with scikit-learn."""
    data, classes = load_digits(return_X_y=True)
    rows = np.ascontiguousarray(data / 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few steps are enough here
        network = MLPClassifier((32,), max_iter=30, random_state=0).fit(rows, classes)
        linear = LogisticRegression(max_iter=50).fit(rows, classes)
    (w, v), (b, c) = network.coefs_, network.intercepts_
    check(export(folder, "mlp", MLP, {"W": w, "b": b, "V": v, "c": c}), rows, network.predict_proba(rows))
    weights = {"W": linear.coef_, "b": linear.intercept_}
    check(export(folder, "logistic", LOGISTIC, weights), rows, linear.predict_proba(rows))


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "build")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
