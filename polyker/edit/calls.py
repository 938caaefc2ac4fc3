"""Read the calls of steps: loops by position, by keyword or in a dict, and names that other systems have for steps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, cast

from polyker.edit.forms import FORMS, refused
from polyker.errors.base import PolykerError, failure
from polyker.errors.given import exact_text, integer, is_a, printed
from polyker.errors.schedules import NO_STEP

F = TypeVar("F", bound=Callable[..., Any])

# What other systems call a step, and what goes the farthest towards it here.
OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "interchange": ("reorder", "permute", "swap", "transpose", "reorder_loops", "permute_loops", "loop_interchange"),
    "tile": ("tile_sizes", "tile_size", "tiling", "block", "blocking", "blockize"),
    "split": ("strip_mine", "stripmine", "divide_loop", "divide", "chunk", "peel"),
    "fuse": ("merge", "jam", "fuse_loops", "compute_with", "loop_fusion"),
    "distribute": ("fission", "loop_fission", "loop_distribution", "separate", "compute_root"),
    "skew": ("wavefront", "shear", "lean"),
    "shift": ("delay", "offset", "translate", "retime"),
    "reverse": ("flip", "reversal"),
    "vectorise": ("simd", "vector", "vectors", "vectorized", "simdize", "tensorize"),
    "unroll": ("unrolled", "unroll_loop"),
    "parallel": ("parallel_for", "prange", "threads", "openmp", "omp", "multithread", "parallelize_loop"),
    "map": ("bind", "gpu", "gpu_blocks", "gpu_threads", "gpu_block", "gpu_thread", "bind_thread", "thread"),
    "promote": (
        "cache_read", "cache_write", "cache", "store_in", "store_at", "set_scope", "set_memory", "stage_mem", "stage",
        "pack", "buffer", "copy", "local", "shared", "memoise", "memoize",
    ),
}  # fmt: skip
_SEVERAL = {
    "compute_at": ("fuse", "promote"), "reverse_compute_at": ("fuse", "promote"), "unroll_and_jam": ("tile", "unroll"),
    "gpu_tile": ("tile", "map"), "rfactor": ("split", "interchange"), "double_buffer": ("promote",),
}  # fmt: skip
_MEANT = {other: (step,) for step, others in OTHER_NAMES.items() for other in others} | _SEVERAL
_ATTRIBUTES = ("loops", "statements", "steps", "to_json", "from_json", "acc")


def unknown_step(name: object) -> PolykerError:
    """Return the error of a step that there is not, with the step that is meant."""
    text = exact_text(name)
    plain = (text or "").lower().replace("-", "_")
    near = get_close_matches(plain, (*FORMS, *_ATTRIBUTES), 1, 0.65) or get_close_matches(plain, _MEANT, 1, 0.8)
    meant = _MEANT.get(plain) or tuple(step for n in near for step in _MEANT.get(n, (n,)))
    steps = [step for step in meant if step in FORMS]
    hint = None
    if meant:
        hint = "did you mean " + " and ".join(f"`{step}`" for step in meant) + "?"
        forms = [FORMS[step].text.partition(", or")[0].partition(" or ")[0] for step in steps]
        hint += f" In full: {', '.join(forms)}" if forms else ""
    return failure(NO_STEP, step=printed(name) if text is None else text, known=", ".join(FORMS), hint=hint)


def checked_call(method: F) -> F:
    """Refuse arguments that do not fit a step's parameters by an error that shows how the step is written."""
    signature = inspect.signature(method)

    @wraps(method)
    def called(*args: Any, **named: Any) -> Any:
        try:
            signature.bind(*args, **named)
        except TypeError as error:
            raise refused(method.__name__, str(error)) from None
        return method(*args, **named)

    return cast(F, called)


def loops_named(step: str, given: Sequence[object], named: Mapping[str, object]) -> tuple[object, ...]:
    """Return loops that are named by position, one by one or in one list; raises ScheduleError."""
    if named:
        name, value = next(iter(named.items()))
        raise refused(step, f"there is no argument {name}={printed(value)}")
    if len(given) == 1 and isinstance(given[0], (list, tuple)):
        given = given[0]
    if not given:
        raise refused(step, "no loop is named")
    return tuple(given)


def loops_with(step: str, given: Sequence[object], named: Mapping[str, object], what: str) -> dict[str, object]:
    """Return loops with a value for each, by keyword or in dicts; `what`: the value, in words. Raises ScheduleError."""
    found: dict[str, object] = {}
    for part in (*given, named):
        if not is_a(part, Mapping):
            text = exact_text(part)
            raise refused(step, f"{printed(part)} is no dict" if text is None else f"the loop `{text}` has no {what}")
        for name, value in _items(step, part):
            if name in found:
                raise refused(step, f"the loop `{name}` is named twice")
            found[name] = value
    if not found:
        raise refused(step, f"there is no loop with a {what}")
    return found


def _items(step: str, given: Mapping[Any, object]) -> list[tuple[str, object]]:
    try:
        items = [(exact_text(name), name, value) for name, value in given.items()]
    except Exception:
        raise refused(step, f"{printed(given)} is no dict that can be read") from None
    for text, name, _ in items:
        if not text:
            raise refused(step, f"{printed(name)} is no name")
    return [(text, value) for text, _, value in items if text]


def threads_of(given: Sequence[object], named: Mapping[str, object], default: int) -> list[dict[str, object]]:
    """Return of each loop that runs on threads the arguments of its step: their number is by loop, or for all."""
    rest = dict(named)
    if given and not any(is_a(part, Mapping) for part in given):
        every = rest.pop("threads", None)
        loops = [(loop, every) for loop in loops_named("parallel", given, rest)]
    else:
        loops = list(loops_with("parallel", given, rest, "number of threads").items())
    return [{"loop": loop, "threads": default if n is None else n} for loop, n in loops]


def skews_of(given: Sequence[object], named: Mapping[str, object]) -> list[dict[str, object]]:
    """Return of each loop that leans on another the arguments of its step."""
    rest, dicts = dict(named), list(given)
    by: object = 1
    if dicts and integer(dicts[0]) is not None:
        by = dicts.pop(0)
    # A loop may be called `factor`: what leans on another loop is a loop.
    if "factor" in rest and exact_text(rest["factor"]) is None:
        by = rest.pop("factor")
    loops = loops_with("skew", dicts, rest, "loop that it leans on")
    return [{"loops": pair, "factor": by} for pair in loops.items()]
