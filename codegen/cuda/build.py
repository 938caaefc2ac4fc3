"""Compile printed CUDA text to PTX and machine code, by NVRTC where it is installed, else by nvcc."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from polyker.codegen.cuda import nvrtc
from polyker.errors.base import failure
from polyker.errors.codegen import COMPILER_FAILED, NO_NVCC
from polyker.machine.model import Target
from polyker.store.disk import kept
from polyker.structs import replace

MAX_COMPILE_SECONDS = 300  # of nvcc, which takes some seconds for most kernels (chosen)
_HOST_COMPILERS = ("g++", "clang++", "cl")


class Resource(Struct, frozen=True):
    """What one kernel takes by ptxas: registers, bytes spilled and of the stack a thread; bytes of shared memory a block."""

    registers: int
    shared: int
    spilled: int
    stack: int = 0


class Resources(dict[str, Resource]):
    """What each kernel takes, by its name; prints as a table."""

    def __str__(self) -> str:
        width = max(map(len, self), default=6)
        head = f"{'kernel':{width}}  registers  shared bytes  stack bytes  spilled bytes"
        rows = (f"{n:{width}}  {r.registers:9}  {r.shared:12}  {r.stack:11}  {r.spilled:13}" for n, r in self.items())
        return "\n".join((head, *rows))

    __repr__ = __str__


class CudaCode(Struct, eq=False):
    """Text for a GPU; `address` is 0: nothing of it runs on this machine's processor. `loaded`: the run time's, by device."""

    text: str
    target: Target
    address: int = 0
    imports: tuple[str, ...] = ()
    loaded: dict[Any, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"CudaCode({self.target.name})"

    @property
    def image(self) -> bytes:
        """What the disk cache keeps of it: its text, whose machine code has an entry of its own for each compiler."""
        return self.text.encode()

    def assembly(self) -> str:
        """Return the PTX; raises BackendUnavailable where there is neither nvcc nor NVRTC."""
        return ptx(self.text, self.target)

    def cubin(self) -> bytes:
        """Return the machine code; raises as `assembly`."""
        return cubin(self.text, self.target)[0]

    def resources(self) -> Resources:
        """Return what the kernels take; raises as `assembly`."""
        found = cubin(self.text, self.target)[1]
        for name, size in re.findall(r"PK_LAUNCH_SHARED\((\w+), (\d+), ", self.text):
            found[name] = replace(found[name], shared=found[name].shared + int(size))
        return found


def ptx(text: str, target: Target) -> str:
    """Return the PTX of a printed text."""
    path, virtual = _compiler(target.cpu), target.cpu.replace("sm", "compute")
    if path is None:
        return nvrtc.compile_nvrtc(text, (f"--gpu-architecture={virtual}",), "ptx")[0].decode()
    return run_nvcc(path, text, "ptx", f"-arch={virtual}")[0].decode()


def cubin(text: str, target: Target) -> tuple[bytes, Resources]:
    """Return the machine code of a printed text for the target's GPU, and what each kernel takes; kept on disk."""
    path, arch = _compiler(target.cpu), target.cpu
    if path is None:
        options = (f"--gpu-architecture={arch}", "--ptxas-options=-v")
        image, messages = kept(
            "cubin", arch, (text, *options, nvrtc.version()), lambda: nvrtc.compile_nvrtc(text, options, "cubin")
        )
    else:
        flags = (f"-gencode=arch={arch.replace('sm', 'compute')},code={arch}", "-Xptxas", "-v")
        parts = text, *flags, version_of(path)
        image, messages = kept("cubin", arch, parts, lambda: run_nvcc(path, text, "cubin", *flags))
    return image, resources(messages)


def _compiler(arch: str) -> str | None:
    """Return None for NVRTC, which takes a third of the time and no other program, else the path of nvcc.

    Raises BackendUnavailable where neither can compile for the architecture.
    """
    reasons = ["NVRTC is not found"]
    if nvrtc.library() is not None:
        if arch in nvrtc.architectures():
            return None
        reasons = [f"{nvrtc.version()} does not know {arch}"]
    path = shutil.which("nvcc")
    if path is not None and any(map(shutil.which, _HOST_COMPILERS)):
        return path
    reasons.append("nvcc is not found" if path is None else "nvcc is there, but no C++ compiler, which it calls")
    raise failure(NO_NVCC, reason=", and ".join(reasons))


@cache
def version_of(path: str) -> str:
    """Return what a compiler says it is."""
    return _called(path, "--version").stdout


def _called(*command: str) -> subprocess.CompletedProcess[str]:
    """Return what came of nvcc; raises InternalError where it cannot be run, or does not end."""
    try:
        return subprocess.run(  # noqa: S603
            command, text=True, errors="replace", capture_output=True, timeout=MAX_COMPILE_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise failure(COMPILER_FAILED, compiler="nvcc", reason=error) from error


def run_nvcc(path: str, text: str, kind: str, *flags: str) -> tuple[bytes, str]:
    """Return what nvcc makes of a text, and its messages."""
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "kernels.cu", Path(folder) / f"kernels.{kind}"
        source.write_text(text, encoding="utf-8")
        command = [path, f"-{kind}", *flags, str(source), "-o", str(output)]
        done = _called(*command)
        messages = done.stdout + done.stderr
        if done.returncode:
            errors = [line for line in messages.splitlines() if "error" in line] or [messages[-500:]]
            raise failure(COMPILER_FAILED, compiler="nvcc", reason="; ".join(errors[:3]))
        return output.read_bytes(), messages


def resources(messages: str) -> Resources:
    """Return what `ptxas -v` says of each kernel."""
    found = Resources()
    for part in messages.split("Compiling entry function '")[1:]:
        name = part.split("'", 1)[0]
        numbers = {
            key: sum(map(int, re.findall(pattern, part)))
            for key, pattern in {
                "registers": r"Used (\d+) registers",
                "shared": r"(\d+) bytes smem",
                "spilled": r"(\d+) bytes spill",
                "stack": r"(\d+) bytes stack frame",
            }.items()
        }
        found[name] = Resource(**numbers)
    return found
