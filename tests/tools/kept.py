"""Whether a change of the compiler changes the code of any kept program: write digests before it, compare after it.

python -m tests.tools.kept write before.json
python -m tests.tools.kept compare before.json
python -m tests.tools.kept show "llvm benchmark/NAME"
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from polyker.codegen.llvm.jit.detect import target as target_of
from tests.tools.kept_programs import Kept, digest, kept, printed

KINDS = {"llvm": "LLVM texts", "threads": "of two threads", "cuda": "CUDA texts"}
# A line of progress each so many programs where it cannot be written over.
EACH = 100


def digests(programs: Sequence[Kept], target: str, jobs: int) -> Iterator[str]:
    """Yield the digest of each program, in order."""
    if jobs < 2:
        yield from (digest(p, target) for p in programs)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(partial(digest, target=target), programs, chunksize=4)


def made(programs: Sequence[Kept], target: str = "cpu", jobs: int = 1) -> dict[str, str]:
    """Return the digests by what the programs are called, with a line of progress."""
    found: dict[str, str] = {}
    start = time.perf_counter()
    for number, (one, value) in enumerate(zip(programs, digests(programs, target, jobs), strict=True), 1):
        found[one.key] = value
        line = f"{number} of {len(programs)} programs, {time.perf_counter() - start:.0f} s"
        if sys.stderr.isatty():
            print(f"\r{line}  {one.key[:60]:60}", end="\n" if number == len(programs) else "", file=sys.stderr)
        elif number % EACH == 0 or number == len(programs):
            print(line, file=sys.stderr, flush=True)
    return found


def machine(target: str) -> str:
    """Return what of a target the code depends on: texts of different machines differ."""
    found = target_of(target)
    told = (found.triple, found.cpu, found.features, [(c.size, c.line, c.ways) for c in found.caches])
    return f"{found.cpu or found.name}-{hashlib.sha1(repr(told).encode()).hexdigest()[:8]}"


def numbers(found: Mapping[str, str]) -> str:
    """Return how many digests there are of each kind, and how many programs were refused."""
    kinds = Counter(key.partition(" ")[0] for key in found)
    refused = sum(": " in value for value in found.values())
    shown = [f"{kinds[kind]} {name}" for kind, name in KINDS.items() if kinds[kind]]
    return ", ".join(shown or ["nothing"]) + (f"; {refused} refused" if refused else "")


def compare(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[list[str], bool]:
    """Return what is to be said of the digests after a change, and whether any differs."""
    both = [key for key in before if key in after]
    differ = [f"differs: {key}" for key in both if before[key] != after[key]]
    lines = [*differ, *(f"new: {key}" for key in after if key not in before)]
    lines += [f"gone: {key}" for key in before if key not in after]
    shown = numbers({key: after[key] for key in both})
    lines.append(f"{len(both)} compared ({shown}), {len(differ)} differ, {len(lines) - len(differ)} new or gone")
    return lines, bool(differ)


def main(given: Sequence[str] | None = None) -> int:
    """Write or compare digests, or show a text; return 1 where any differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.kept", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("write", "compare", "show"))
    parser.add_argument("file", help="of the digests; what a program is called where it is shown")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="programs such as 'llvm demo/*' or '*conv*'")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--target", default="cpu", help="of the LLVM texts (default: this machine)")
    options = parser.parse_args(given)
    if options.what == "show":
        (one,) = (p for p in kept() if p.key == options.file)
        print(printed(one, options.target))
        return 0
    path, place = Path(options.file), machine(options.target)
    before: dict[str, str] = {}
    if options.what == "compare":
        data = json.loads(path.read_text())
        if data["machine"] != place:
            print(f"{path} is of another machine: {data['machine']}, this is {place}", file=sys.stderr)
            return 2
        before = {key: value for key, value in data["digests"].items() if fnmatchcase(key, options.only)}
    after = made([p for p in kept() if fnmatchcase(p.key, options.only)], options.target, options.jobs)
    if options.what == "write":
        path.write_text(json.dumps({"machine": place, "digests": after}, indent=1) + "\n")
        print(f"{len(after)} written: {numbers(after)}")
        return 0
    lines, differ = compare(before, after)
    print("\n".join(lines))
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
