"""Shared libraries: made by a linker that is found on the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from polyker.errors.base import failure
from polyker.errors.export import LINKER_FAILED, NO_LINKER
from polyker.machine.model import Target

SECONDS = 300  # after which a linker is given up: ziglang's first link for a C library takes a minute
_LLD = {".so": "ld.lld", ".dylib": "ld64.lld", ".dll": "lld-link"}


def shared_library(images: Sequence[bytes], file: Path, target: Target, exported: Sequence[str], *, here: bool) -> None:
    """Write a shared library of object files; `here`: it is for this machine's system. Raises BackendUnavailable."""
    tried = []
    with tempfile.TemporaryDirectory() as folder:
        sources = []
        for n, image in enumerate(images):
            source = Path(folder) / f"kernels{n}.o"
            source.write_bytes(image)
            sources.append(str(source))
        for name, command in _commands(sources, file, target, exported, here=here):
            tried.append(name)
            done = _run(command, folder)
            if done is None:
                continue
            if done.returncode:
                reason = " ".join((done.stderr or done.stdout).split())[-400:]
                raise failure(LINKER_FAILED, linker=name, file=file.name, reason=reason)
            return
    looked = ", ".join(_candidates(file.suffix, here=here))
    raise failure(NO_LINKER, file=file.name, target=target.name, tried=f"looked for {looked}")


def _run(command: Sequence[str], folder: str) -> subprocess.CompletedProcess[str] | None:
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": os.environ.get("ZIG_GLOBAL_CACHE_DIR", folder)}
    try:
        return subprocess.run(  # noqa: S603
            command, text=True, errors="replace", capture_output=True, timeout=SECONDS, check=False, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None


def _candidates(suffix: str, *, here: bool) -> list[str]:
    return [*(["cc", "gcc", "clang"] if here else []), _LLD[suffix], "ziglang (a package of pip)"]


def _commands(
    sources: Sequence[str], file: Path, target: Target, exported: Sequence[str], *, here: bool
) -> Iterator[tuple[str, list[str]]]:
    """Yield linkers that are there, each with its command."""
    for name in ("cc", "gcc", "clang") if here else ():
        if shutil.which(name):
            flag = "-dynamiclib" if file.suffix == ".dylib" else "-shared"
            keep = (
                ["-Wl,-z,nodelete"] if len(sources) > 1 and file.suffix == ".so" else []
            )  # threads run the pool's code
            yield name, [name, flag, "-nostdlib", *keep, "-o", str(file), *sources]
    lld = _LLD[file.suffix]
    found = shutil.which(lld) or next((p for n in range(30, 13, -1) if (p := shutil.which(f"{lld}-{n}"))), None)
    if found is not None:
        machine = target.triple.split("-")[0]
        yield lld, {
            ".so": [found, "-shared", *(["-z", "nodelete"] if len(sources) > 1 else []), "-o", str(file), *sources],
            ".dylib": [
                found, "-dylib", "-arch", machine.replace("aarch64", "arm64"), "-platform_version", "macos", "11.0", "11.0",
                "-undefined", "dynamic_lookup", "-o", str(file), *sources,
            ],
            ".dll": [found, "/dll", "/noentry", f"/out:{file}", *(f"/export:{n}" for n in exported), *sources],
        }[file.suffix]  # fmt: skip
    if find_spec("ziglang") is not None:
        system = {".so": "linux-gnu", ".dylib": "macos", ".dll": "windows-gnu"}[file.suffix]
        machine = target.triple.split("-")[0].replace("arm64", "aarch64").replace("armv7", "arm")
        machine += "-linux-gnueabihf" if machine == "arm" and file.suffix == ".so" else f"-{system}"
        yield (
            "ziglang",
            [
                sys.executable, "-m", "ziglang", "cc", "-target", machine, "-shared", "-nostdlib", "-o", str(file), *sources,
            ],
        )  # fmt: skip
