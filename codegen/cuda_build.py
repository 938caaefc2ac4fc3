"""Printed CUDA text -> PTX and cubin by nvcc, where it is installed; and what ptxas says of registers and spills."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyker.errors.base import failure
from polyker.errors.codegen import COMPILER_FAILED, NO_NVCC
from polyker.target.model import Target

SECONDS = 300


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel takes by ptxas: registers a thread, bytes of shared memory a block, bytes spilled a thread."""

    registers: int
    shared: int
    spilled: int


@dataclass(slots=True)
class CudaCode:
    """Text for a GPU; `address` is 0: nothing of it runs on this machine's processor."""

    text: str = field(repr=False)
    target: Target
    address: int = 0
    functions: dict[str, Any] | None = field(
        default=None, repr=False
    )  # the kernels on the device, once they are loaded

    def assembly(self) -> str:
        """Return the PTX; raises BackendUnavailable where there is no nvcc."""
        return ptx(self.text, self.target)


def _nvcc(text: str, target: Target, kind: str, *flags: str) -> tuple[bytes, str]:
    path = shutil.which("nvcc")
    if path is None:
        raise failure(NO_NVCC)
    arch = target.cpu
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "kernels.cu", Path(folder) / f"kernels.{kind}"
        source.write_text(text, encoding="utf-8")
        command = [path, f"-gencode=arch={arch.replace('sm', 'compute')},code={arch}", f"-{kind}", *flags, str(source)]
        if kind == "ptx":
            command[1] = f"-arch={arch.replace('sm', 'compute')}"
        done = subprocess.run(  # noqa: S603
            [*command, "-o", str(output)], text=True, capture_output=True, timeout=SECONDS, check=False
        )
        messages = done.stdout + done.stderr
        if done.returncode:
            errors = [line for line in messages.splitlines() if "error" in line] or [messages[-500:]]
            raise failure(COMPILER_FAILED, compiler="nvcc", reason="; ".join(errors[:3]))
        return output.read_bytes(), messages


def ptx(text: str, target: Target) -> str:
    """Return the PTX of a printed text."""
    return _nvcc(text, target, "ptx")[0].decode()


def cubin(text: str, target: Target) -> tuple[bytes, dict[str, Resources]]:
    """Return the machine code of a printed text for the target's GPU, and what each kernel takes."""
    image, messages = _nvcc(text, target, "cubin", "-Xptxas", "-v")
    return image, resources(messages)


def resources(messages: str) -> dict[str, Resources]:
    """Return what `ptxas -v` says of each kernel."""
    found: dict[str, Resources] = {}
    for part in messages.split("Compiling entry function '")[1:]:
        name = part.split("'", 1)[0]
        numbers = {
            key: sum(map(int, re.findall(pattern, part)))
            for key, pattern in {
                "registers": r"Used (\d+) registers",
                "shared": r"(\d+) bytes smem",
                "spilled": r"(\d+) bytes spill",
            }.items()
        }
        found[name] = Resources(**numbers)
    return found
