"""Operators on other processors, run by emulators where these are installed: `python -m tests.export.cross` takes all of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import polyker as pk
from tests.export.cross import PLACES, missing, run
from tests.export.operators import CASES, FEW

# Ten, and what was wrong on one target before.
TAKEN = FEW[:11]


@pytest.mark.parametrize("name", PLACES)
def test_operators_are_right_on(name: str) -> None:
    reason = missing(name)
    if reason is not None:
        pytest.skip(reason)
    # Every other one, those of the next target of the same processor the others; this one has no other.
    taken = TAKEN if name.startswith("armv7") else TAKEN[list(PLACES).index(name) % 2 :: 2]
    wrong = {one: run(CASES[one], name).wrong for one in taken if one not in PLACES[name].skipped}
    assert len(wrong) >= len(TAKEN) // 2
    assert not {one: told for one, told in wrong.items() if told}


@pytest.mark.parametrize("name", ["armv7-linux-gnueabihf", "riscv64-linux-gnu", "aarch64-linux-gnu"])
def test_a_caller_brings_threads_on(name: str, tmp_path: Path) -> None:
    """On 32-bit machines, too, where an address fills half of the word that it lies in."""
    reason = missing(name)
    if reason is not None:
        pytest.skip(reason)
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(A=pk.f32[300, 300], B=pk.f32[300, 300], target=name, threads=4)
    kernel.export(tmp_path / "kernels.o", name="product")
    header = tmp_path / "kernels.h"
    assert "*runtime" in header.read_text()
    source = (Path(__file__).parent / "threads.c").read_text()
    if "void *scratch" not in header.read_text():
        source = source.replace(" memory + 64 - (size_t)memory % 64,", "")
    (tmp_path / "main.c").write_text(source)
    place = PLACES[name]
    command = [*place.compiler, "-O1", "-Wall", "-Werror", "main.c", "kernels.o", "-lpthread", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ran = subprocess.run([*place.emulator, "./program"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ran.stdout == "0 1 42 0"
