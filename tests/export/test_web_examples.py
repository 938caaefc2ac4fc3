"""The examples of WebAssembly: what models predict there is what their libraries predict; the command line makes their files."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from polyker.cli.command import commands
from tests.export.web import by_node, needs_node

EXAMPLES = Path(__file__).parents[2] / "examples"


def cc(*arguments: str | Path) -> str:
    done = CliRunner().invoke(commands, ["cc", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


@needs_node
def test_trees_predict_the_same_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed", exc_type=ImportError)
    pytest.importorskip("wasmtime", reason="wasmtime is not installed")
    importlib.import_module("examples.trees.fit").main(tmp_path)
    told = capsys.readouterr().out
    assert "node: bit-equal: True" in told
    assert "wasmtime: bit-equal: True" in told
    assert (tmp_path / "trees.wasm").stat().st_size < 95_000


@needs_node
def test_networks_predict_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    pytest.importorskip("wasmtime", reason="wasmtime is not installed")
    importlib.import_module("examples.mlp.fit").main(tmp_path)
    assert capsys.readouterr().out.count("within 1e-6: True") == 4


@needs_node
def test_the_command_line_makes_a_module_with_constants(tmp_path: Path) -> None:
    weights, file = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], np.float32), tmp_path / "filter.wasm"
    np.save(tmp_path / "k.npy", weights)
    told = cc(EXAMPLES / "page" / "filter.ein", "-o", file, "--const", f"K={tmp_path / 'k.npy'}")
    assert [line.split(":")[0] for line in told.splitlines()] == [
        str(tmp_path / n) for n in ("filter.wasm", "filter.mjs", "filter.d.mts", "filter.json")
    ]
    image = np.arange(35, dtype=np.float32).reshape(5, 7)
    found = by_node(file, "filter", {"I": image, "H": 5, "W": 7})["result"]
    assert np.frombuffer(found, np.float32).tolist() == image.ravel().tolist()


def test_the_command_line_makes_a_page(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    assert cc(*(EXAMPLES / "page" / f"{n}.ein" for n in ("product", "softmax")), "-o", file).startswith(f"{file}: ")
    assert file.stat().st_size < 40_000
