"""numpy's own einsum tests, from the installed wheel, with numpy.einsum replaced by polyker.einsum."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.numpy_einsum_plugin import ALIKE, LEFT_OUT

HERE = Path(__file__).parent


def suite() -> Path:
    path = Path(np.__file__).parent / "_core" / "tests" / "test_einsum.py"
    if not path.exists():
        pytest.skip("this numpy comes without its tests")
    return path


def test_all_but_a_few_of_numpy_s_tests_pass() -> None:
    assert len(LEFT_OUT) - len(ALIKE) <= 12 and all(LEFT_OUT.values())
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "numpy_einsum_plugin",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
    ]
    path = os.pathsep.join([str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [*command, "--rootdir", str(HERE), str(suite())],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    summary = run.stdout.strip().splitlines()[-1]
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (\w+)", summary)}
    assert counts["deselected"] == len(LEFT_OUT)
    assert counts["passed"] >= 60
