"""`python -m benchmarks torch`: models through torch.compile by polyker beside eager mode and inductor, on one core.

Inference and training steps in turns, medians of rounds; results and gradients are compared with eager ones first. Then how long
a GPT takes to compile, all its layers equal, in a process of its own: without and with what the disk cache holds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import process

WAYS = ("eager", "inductor", "polyker")
TOLERANCE = 1e-4  # of results, relative to the largest value


def add_parser(commands: Any) -> None:
    """Add the command to those of the benchmarks."""
    found = commands.add_parser("torch", help="models through torch.compile")
    found.add_argument("--model", action="append", help="only this model; may be repeated")
    found.add_argument(
        "--rounds", type=int, default=15, help="rounds, of which the median counts; default: %(default)s"
    )
    found.add_argument("--core", type=int, help="the core to run on; default: the last")
    found.add_argument(
        "--layers", type=int, default=12, help="layers of the GPT that is compiled; 0: none is; default: %(default)s"
    )
    found.add_argument("--without", action="append", choices=WAYS[1:], default=[], help="a way that is not measured")
    found.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    found.add_argument("--compile-only", action="store_true", help=argparse.SUPPRESS)


def models() -> dict[str, tuple[Callable[[], Any], tuple[int, ...]]]:
    """Return what makes each model, and the shape of its input."""
    from tests.bridge.torch import models as m

    return {
        "gpt": (lambda: m.GptBlock(256, 4, fused=True), (2, 128, 256)),
        "resnet": (lambda: m.ResNetBlock(64), (4, 64, 28, 28)),
        "lstm": (lambda: m.Lstm(64, 128), (16, 8, 64)),
        "mlp": (lambda: m.Mlp(256), (64, 256)),
        "vit": (lambda: m.VitBlock(128, 4, 8, 64), (2, 3, 64, 64)),
        "mamba": (lambda: m.MambaBlock(64, 8), (4, 8, 64)),
    }


def ways(model: Any, without: list[str]) -> dict[str, Any]:
    """Return the model as each way runs it."""
    import torch

    import polyker as pk

    backends = {"inductor": "inductor", "polyker": pk.torch.backend}
    return {"eager": model} | {
        name: torch.compile(model, backend=backend) for name, backend in backends.items() if name not in without
    }


def running(runs: dict[str, Any], x: Any) -> dict[str, Any]:
    """Return the ways that run at all; inductor fails on some models."""
    found = {}
    for way, run in runs.items():
        try:
            run(x)
        except Exception as error:
            if way == "polyker":
                raise
            print(f"{way} fails: {type(error).__name__}: {str(error).splitlines()[0]}")
        else:
            found[way] = run
    return found


def timed(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each call, taken in turns; each round of a short call is many."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    counts = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        counts[name] = max(1, int(0.01 / (time.perf_counter() - start)))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            times[name].append((time.perf_counter() - start) / counts[name])
    return {name: statistics.median(found) for name, found in times.items()}


def measured(name: str, rounds: int, without: list[str]) -> dict[str, dict[str, float]]:
    """Return seconds of each way, of inference and of a training step; AssertionError where results differ."""
    import torch

    make, shape = models()[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = make(), torch.randn(shape)
    found = {}
    model.eval()
    runs = running(ways(model, without), x)
    with torch.no_grad():
        want = model(x)
        for way, run in runs.items():
            difference = float((run(x) - want).abs().max() / want.abs().max())
            assert difference <= TOLERANCE, f"{name}, inference by {way}: differs by {difference:.1e}"
        found["inference"] = timed({way: (lambda run=run: run(x)) for way, run in runs.items()}, rounds)
    model.train()
    runs = running(runs, x)

    def step(run: Any) -> Callable[[], Any]:
        def call() -> Any:
            model.zero_grad(set_to_none=True)
            run(x).square().mean().backward()
            return [p.grad for p in model.parameters()]

        return call

    wanted = step(model)()
    for way, run in runs.items():
        for a, b in zip(step(run)(), wanted, strict=True):
            scale = max(float(b.abs().max()), 1e-3)
            assert float((a - b).abs().max()) <= TOLERANCE * scale * 10, f"{name}, gradients by {way}"
    found["training"] = timed({way: step(run) for way, run in runs.items()}, rounds)
    return found


def compile_seconds(layers: int) -> float:
    """Return how long the first call of a GPT takes that is compiled in this process."""
    import torch

    import polyker as pk
    from tests.bridge.torch.models import Gpt

    torch.manual_seed(0)
    model, tokens = Gpt(layers, 128, 4, 512, 64).eval(), torch.randint(0, 512, (2, 64))
    with torch.no_grad():
        want = model(tokens)
        torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))  # torch's own imports
        start = time.perf_counter()
        got = torch.compile(model, backend=pk.torch.backend)(tokens)
        seconds = time.perf_counter() - start
    assert float((got - want).abs().max()) <= TOLERANCE * float(want.abs().max())
    print(pk.torch.report(), file=sys.stderr)
    return seconds


def compiled_apart(layers: int, core: int | None) -> dict[str, float]:
    """Return the seconds of two processes, of which the second finds what the first left on disk."""
    command = [sys.executable, "-m", "benchmarks", "torch", "--compile-only", "--layers", str(layers)]
    command += [] if core is None else ["--core", str(core)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "POLYKER_CACHE_DIR": folder, "POLYKER_CACHE": "rw"}
        runs = [
            subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True) for _ in range(2)
        ]
    return dict(zip(("cold", "from the disk cache"), (json.loads(r.stdout) for r in runs), strict=True))


def main(options: argparse.Namespace) -> int:
    """Print the figures; return the exit status."""
    if options.compile_only:
        cache = {n: os.environ[n] for n in ("POLYKER_CACHE", "POLYKER_CACHE_DIR") if n in os.environ}
        process.prepare(options.core)
        os.environ.update(cache)
    else:
        process.prepare(options.core)
    import torch

    torch.set_num_threads(1)
    torch._dynamo.config.allow_rnn = True
    if options.compile_only:
        print(json.dumps(compile_seconds(options.layers)))
        return 0
    print(f"{'ms':<22}{''.join(f'{w:>12}' for w in WAYS)}   best of the others / polyker")
    figures: dict[str, Any] = {}
    ratios = []
    for name in options.model or models():
        figures[name] = measured(name, options.rounds, options.without)
        for kind, times in figures[name].items():
            shown = "".join(f"{1e3 * times[w]:12.3f}" if w in times else f"{'':>12}" for w in WAYS)
            others = [t for w, t in times.items() if w != "polyker"]
            ratio = min(others) / times["polyker"] if "polyker" in times else math.nan
            ratios.append(ratio)
            print(f"{name + ', ' + kind:<22}{shown}   {ratio:.2f}", flush=True)
    print(f"geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.2f}, least {min(ratios):.2f}")
    if options.layers:
        figures["compile"] = compiled_apart(options.layers, options.core)
        for how, seconds in figures["compile"].items():
            print(f"GPT of {options.layers} layers, first call, {how}: {seconds:.2f} s")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 0
