"""Build the stub of the driver's library with the system's C compiler; it is kept by what its sources say."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    "-std=gnu11",
    "-O2",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fvisibility=hidden",
    "-fPIC",
    "-shared",
    "-pthread",
)
NAME = "libcuda.so.1"
# Another name than the file's: a process that has loaded it by its path does not take it for the driver's library.
SONAME = "libpolyker-stub.so"


class CannotBuild(Exception):
    """There is no C compiler, or what is there cannot build it."""


@cache
def build_stub(*flags: str) -> Path:
    """Return the path of the library, `libcuda.so.1` alone in its folder; `flags` such as a sanitizer's. Raises CannotBuild."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise CannotBuild("no C compiler for the stub of the driver (cc, gcc, clang)")
    sources = sorted(HERE.glob("stub_cuda*.[ch]"))
    said = "\0".join([compiler, SONAME, *FLAGS, *flags, *(path.name + path.read_text() for path in sources)])
    root = Path(tempfile.gettempdir()) / f"polyker-stub-{os.getuid()}"
    output = root / hashlib.sha256(said.encode()).hexdigest()[:24] / NAME
    if output.exists():
        return output
    output.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as folder:  # several processes may build it at once
        made = Path(folder) / NAME
        texts = [str(path) for path in sources if path.suffix == ".c"]
        command = [compiler, *FLAGS, *flags, f"-Wl,-soname,{SONAME}", *texts, "-o", str(made)]
        done = subprocess.run(command, text=True, capture_output=True, timeout=300)
        if done.returncode:
            raise CannotBuild(f"{compiler} does not build the stub of the driver: {done.stderr[-2000:]}")
        made.replace(output)
    return output


def why_not() -> str:
    """Return why there can be no stub here, "" where there can."""
    if sys.platform != "linux":
        return "the stub of the driver is for Linux"
    return "" if any(map(shutil.which, COMPILERS)) else "no C compiler for the stub of the driver (cc, gcc, clang)"


needs_stub = pytest.mark.skipif(bool(why_not()), reason=why_not())
