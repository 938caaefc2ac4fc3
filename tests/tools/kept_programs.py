"""The kept programs: those whose printed code is compared before and after a change that should not change it."""

from __future__ import annotations

import hashlib
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import count, islice
from typing import Any

from msgspec import Struct, field

import polyker as pk
from benchmarks.cases import select
from polyker.cli.demo_cases import load
from polyker.cost.temporaries import insist
from polyker.ir.dtypes import DTYPES
from polyker.structs import replace
from tests.fuzz.case import Case
from tests.fuzz.eager import eager
from tests.fuzz.generate import generate
from tests.gpu.compile_all import examples

GPU = "cuda:sm_90a"
FUZZ_SEED, FUZZ_CASES = 4321, 200
# Cases that are calls alone: by their types they are refused.
CALLS = (30, 165)
# One benchmark case in so many is printed for two threads, too, one in so many for a GPU; by name, so that a new case moves none.
ON_THREADS, ON_GPU = 11, 16


class Kept(Struct, frozen=True):
    """A text, and what it is compiled for: types by position and name, sizes that are fixed first, options of the compile.

    `kind`: llvm, threads (LLVM of two threads) or cuda. `steps`, `eager`: as of a fuzz case.
    """

    kind: str
    name: str
    text: str
    types: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: int = -1
    eager: bool = False

    @property
    def key(self) -> str:
        """What it is called in a file of digests, and by --only."""
        return f"{self.kind} {self.name}"


def kept() -> Iterator[Kept]:
    """Yield every kept program, always in the same order."""
    small = [*_demo(), *_examples()]
    measured = list(_benchmarks())
    yield from measured
    yield from small
    yield from _fuzzed()
    yield from (replace(k, kind="threads") for k in measured if _one_in(ON_THREADS, k.name))
    yield from (replace(k, kind="cuda") for k in (*small, *measured) if k not in measured or _one_in(ON_GPU, k.name))


def printed(program: Kept, target: str = "cpu") -> str:
    """Return the code of a program for a target, or for the GPU that kept programs are printed for; raises PolykerError."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(pk.options(threads=2 if program.kind == "threads" else 1, timeout=None))
        if program.eager:
            stack.enter_context(eager())
        if program.steps >= 0:
            stack.enter_context(insist(program.steps))
        place = GPU if program.kind == "cuda" else target
        op = pk.op(program.text, **program.fixed)
        kernel = op.compile(*program.types, **program.named, **program.options, target=place)
        return kernel.source("cuda" if program.kind == "cuda" else "llvm")


def digest(program: Kept, target: str = "cpu") -> str:
    """Return the SHA-1 of what a program prints, or what its compile says where it is refused."""
    try:
        text = printed(program, target)
    except pk.PolykerError as error:
        return f"{type(error).__name__}: {error.message}"
    return hashlib.sha1(text.encode()).hexdigest()


def _one_in(number: int, name: str) -> bool:
    return zlib.crc32(name.encode()) % number == 0


def _benchmarks() -> Iterator[Kept]:
    for case in select():
        problem = case.problem()
        types = tuple(DTYPES[o.dtype][o.shape] for o in problem.inputs)
        yield Kept("llvm", f"benchmark/{case.name}", problem.text, types, fixed=problem.fixed)


def _demo() -> Iterator[Kept]:
    for case in load():
        types = {name: DTYPES[dtype][shape] for name, dtype, shape in case.arrays}
        yield Kept("llvm", f"demo/{case.id}", case.text, named={**types, **case.arguments}, fixed=case.fixed)


def _examples() -> Iterator[Kept]:
    seen: dict[str, int] = {}
    for one in examples():
        number = seen[one.name] = seen.get(one.name, 0) + 1
        name = f"notation/{one.name}" + (f".{number}" if number > 1 else "")
        yield Kept("llvm", name, one.text, one.types, one.named)


def _fuzzed() -> Iterator[Kept]:
    cases = (generate(FUZZ_SEED, number) for number in count() if number not in CALLS)
    yield from map(_of_case, islice((case for case in cases if not case.invalid), FUZZ_CASES))


def _of_case(case: Case) -> Kept:
    """Return a fuzz case by its types: for all sizes where it is called so."""
    fixed = 1 if "..." in case.text else -1
    named = case.mode == "names"
    types = {
        i.name: DTYPES[i.dtype][tuple(f"e_{n}" if named and n != fixed else n for n in i.shape)] for i in case.inputs
    }
    options: dict[str, Any] = {"acc": DTYPES[case.acc]} if case.acc else {}
    if case.mode == "symbolic":
        options["specialize"] = "never"
    sizes = dict(case.sizes)
    early, late = (sizes, {}) if case.early else ({}, {} if named else sizes)
    name = f"fuzz/{case.seed}-{case.number}"
    return Kept("llvm", name, case.text, (), {**types, **late}, early, options, case.steps, case.eager)


__all__ = ["FUZZ_CASES", "GPU", "Kept", "digest", "kept", "printed"]
