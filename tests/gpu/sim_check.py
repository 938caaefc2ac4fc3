"""Run simulated kernels under AddressSanitizer and ThreadSanitizer, in processes of their own."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from polyker.codegen.cuda.sim_build import RUN_SECONDS, compile_cxx, run_time, sim_text
from polyker.codegen.cuda.text import data_file

Array: TypeAlias = np.ndarray[Any, Any]

SANITIZERS = {
    "none": (),
    "address": ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-g", "-fsanitize=thread"),
}
_OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0:exitcode=66", "TSAN_OPTIONS": "exitcode=66:history_size=4"}


class Checked(Struct, frozen=True):
    """What a checked run gave: the arrays after it, the kernel's status, and what was reported, empty where all is well."""

    arrays: tuple[Array, ...]
    status: int
    report: str


def run_checked(
    text: str, arrays: Sequence[Array], integers: Sequence[int] = (), sanitizer: str = "address", seed: int = 1
) -> Checked:
    """Run a printed text's `launch` on copies of dense arrays, in the order of the kernel's buffers, under a sanitizer.

    `sanitizer`: none, address (with the checks of undefined behaviour) or thread. `seed`: of the order of the threads, 0 as
    they are numbered. Raises BackendUnavailable without a C++ compiler.
    """
    dense = [np.ascontiguousarray(a) for a in arrays]
    with tempfile.TemporaryDirectory() as folder:
        program, given, found = (Path(folder) / name for name in ("kernel", "given", "found"))
        source = sim_text(text) + "\n" + data_file("pk_sim_main.cpp")
        compile_cxx(source, program, "-O1", "-DPK_SIM", *SANITIZERS[sanitizer], str(run_time()))
        program.chmod(0o700)
        with given.open("wb") as file:
            file.write(struct.pack("<q", len(dense)))
            for a in dense:
                file.write(struct.pack("<q", a.nbytes) + a.tobytes())
            file.write(struct.pack(f"<q{len(integers)}q", len(integers), *integers))
        command = [str(program), str(given), str(found)]
        if sanitizer == "thread" and (setarch := shutil.which("setarch")) is not None:
            command = [setarch, "-R", *command]  # gcc's ThreadSanitizer does not know every layout of addresses
        environment = {**os.environ, **_OPTIONS, "POLYKER_SIM_SEED": str(seed)}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_SECONDS, env=environment, check=False
        )
        raw = found.read_bytes() if found.exists() else b""
    report = "" if done.returncode == 0 else done.stderr or f"the program ended with {done.returncode}"
    if len(raw) != 8 + sum(a.nbytes for a in dense):
        return Checked(tuple(dense), -1, report or "nothing came back")
    places = np.cumsum([8, *(a.nbytes for a in dense)])
    after = (
        np.frombuffer(raw, a.dtype, a.size, int(at)).reshape(a.shape) for a, at in zip(dense, places, strict=False)
    )
    return Checked(tuple(after), struct.unpack("<q", raw[:8])[0], report)
