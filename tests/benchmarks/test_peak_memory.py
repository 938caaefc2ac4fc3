"""The command that compares the memory of a process with what explain() says, on a small program."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import pytest

from benchmarks import peak_memory
from benchmarks.peak_memory import Program

SMALL = Program(
    "A[i] = 2 * X[i];  B[i] = A[i] + A[8388607 - i];  C[i] = B[i] * B[8388607 - i];  O[i] = C[i] + C[8388607 - i]",
    ((1 << 23,),),
)
CODE = """
import json
from benchmarks import peak_memory
from tests.benchmarks.test_peak_memory import SMALL
peak_memory.PROGRAMS["small"] = SMALL
print(json.dumps(peak_memory.child("small")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for the peak")
def test_a_process_needs_what_explain_says() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    said = found["arguments"] + found["temporaries"]
    assert found["arguments"] == 2 * (32 << 20)
    assert found["temporaries"] > 32 << 20
    assert found["needed"] == pytest.approx(said, rel=0.1)


def test_the_command_tells_what_is_wrong(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {
        "chain": {
            "arguments": 100 << 20,
            "temporaries": 0,
            "stored_each": 500 << 20,
            "needed": 104 << 20,
            "process": 0,
        },
        "blur": {"arguments": 100 << 20, "temporaries": 0, "stored_each": 500 << 20, "needed": 200 << 20, "process": 0},
        "attention": {"arguments": 9, "temporaries": 99, "stored_each": 99, "needed": 108, "process": 0},
    }

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, json.dumps(rows[command[-1]]), "")

    monkeypatch.setattr(subprocess, "run", run)
    assert peak_memory.main(argparse.Namespace(program=["chain"])) == 0
    assert peak_memory.main(argparse.Namespace(program=["blur"])) == 1
    assert peak_memory.main(argparse.Namespace(program=["attention"])) == 1
    lines = capsys.readouterr().out
    assert "explain() is wrong" in lines
    assert "intermediates are stored" in lines
