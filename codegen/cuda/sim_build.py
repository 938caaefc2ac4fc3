"""Compile printed CUDA text for this machine's processor by the system's C++ compiler: the target `cuda-sim`."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from msgspec import Struct

from polyker.codegen.cuda.text import data_file
from polyker.errors.base import failure
from polyker.errors.codegen import COMPILER_FAILED, NO_COMPILER
from polyker.process.whole_file import whole_file

# Floating-point operations as they stand: nothing is contracted, nothing is taken to be finite.
FLAGS = ("-std=c++17", "-w", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-ffp-contract=off")
RUN_SECONDS = 300  # of the compiler, and of a simulated launch (chosen)


def compiler() -> str:
    """Return the path of the C++ compiler: CXX, or the first that is found; raises BackendUnavailable where there is none."""
    named = os.environ.get("CXX")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
    if found is None:
        raise failure(
            NO_COMPILER, reason=f"CXX={named!r} is not found" if named else "none of g++, clang++, c++ is found"
        )
    return found


def compile_cxx(source: str, output: Path, *flags: str) -> None:
    """Compile a text to a file, which appears complete or not at all; raises InternalError with the compiler's messages."""
    path = compiler()
    objects = [f for f in flags if f.endswith(".o")]
    command = [path, *FLAGS, *(f for f in flags if f not in objects), "-x", "c++", "-"]
    command += ["-x", "none", *objects] if objects else []  # after `-x none` they are what their names say
    with whole_file(output) as part:
        command += ["-o", str(part)]
        done = subprocess.run(command, input=source, text=True, capture_output=True, timeout=RUN_SECONDS, check=False)  # noqa: S603
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr[-500:]]
            raise failure(COMPILER_FAILED, compiler=Path(path).name, reason="; ".join(errors[:3]))


@cache
def cache_folder() -> Path:
    """Return the folder in which compiled parts of the simulator are kept: the user's, or this process's where there is none."""
    from platformdirs import user_cache_path

    try:
        folder = Path(os.environ.get("POLYKER_CACHE_DIR") or user_cache_path("polyker")) / "sim"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):
        pass
    own = tempfile.TemporaryDirectory(prefix="polyker")
    atexit.register(own.cleanup)
    return Path(own.name)


@cache
def version() -> str:
    """Return what the compiler says it is."""
    command = [compiler(), "--version"]
    return subprocess.run(command, text=True, capture_output=True, timeout=RUN_SECONDS, check=False).stdout  # noqa: S603


@cache
def run_time() -> Path:
    """Return the object file of the simulator's run time, compiled once for a user and a compiler."""
    source, path = data_file("pk_sim.cpp"), compiler()
    key = hashlib.sha256("\0".join((source, path, version(), *FLAGS)).encode()).hexdigest()[:24]
    output = cache_folder() / f"{key}.o"
    if not output.exists():
        compile_cxx(source, output, "-O2", "-c")
    return output


_KERNEL_FLAGS = ("-O1", "-DPK_SIM")


@cache
def header() -> Path:
    """Return the kernels' header as a file, beside which it lies compiled: most of the time of a small kernel goes into it.

    A compiler that takes no such file, or not this one, reads the header.
    """
    text, path = sim_text(data_file("pk_cuda.h")), compiler()
    key = hashlib.sha256("\0".join((text, path, version(), *FLAGS, *_KERNEL_FLAGS)).encode()).hexdigest()[:24]
    plain = cache_folder() / f"{key}.h"
    compiled = plain.with_name(f"{key}.h.gch")
    if not compiled.exists():
        with tempfile.TemporaryDirectory(dir=plain.parent) as folder:
            written, made = Path(folder) / "header.h", Path(folder) / "header.gch"
            written.write_text(text, encoding="utf-8")
            command = [path, *FLAGS, *_KERNEL_FLAGS, "-x", "c++-header", str(written), "-o", str(made)]
            subprocess.run(command, capture_output=True, timeout=RUN_SECONDS, check=False)  # noqa: S603
            os.replace(written, plain)
            if made.exists():
                os.replace(made, compiled)
    return plain


def sim_text(text: str) -> str:
    """Return a printed text as one that needs no other file: the simulator's header in its place."""
    return text.replace('#include "pk_sim.h"', data_file("pk_sim.h"))


class SimCode(Struct, eq=False):
    """A simulated kernel, in memory while this object lives."""

    address: int
    text: str
    imports: tuple[str, ...] = ()
    _library: ctypes.CDLL | None = None

    def __repr__(self) -> str:
        return f"SimCode({self.address:#x})"

    def assembly(self) -> str:
        """Return the assembly text of the simulated kernels."""
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "kernel.s"
            compile_cxx(sim_text(self.text), output, "-O1", "-DPK_SIM", "-S")
            return output.read_text()


def build_sim(text: str) -> SimCode:
    """Return the simulator's code of a printed text; raises BackendUnavailable without a compiler, else InternalError."""
    runtime, head = run_time(), data_file("pk_cuda.h")
    assert text.startswith(head)
    # Lines are counted as in the whole text.
    body = f"#line {head.count(chr(10)) + 1}\n{text.removeprefix(head)}"
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernel.so"
        compile_cxx(body, output, *_KERNEL_FLAGS, "-include", str(header()), "-shared", str(runtime))
        library = ctypes.CDLL(str(output))
    address = ctypes.cast(library.kernel, ctypes.c_void_p).value
    assert address is not None
    return SimCode(address, text, (), library)
