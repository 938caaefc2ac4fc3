"""The notebooks run from their first cell to their last, and say what they promise."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_run(path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(FOLDER)}}).execute()
    shown = "".join(o.get("text", "") for c in notebook.cells if c.cell_type == "code" for o in c.outputs)
    pictures = sum("image/png" in o.get("data", {}) for c in notebook.cells if c.cell_type == "code" for o in c.outputs)
    assert "has to run before" in shown
    assert "legal instead" in shown
    assert pictures >= 4


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS
