"""The only door to isl: one context a thread, cached parsing, and every failure as a `CompileError` with its stage.

Objects of different contexts must never meet (isl then answers wrongly and says nothing), so every text is read in the
calling thread's own context and no isl object is passed between threads. Only generated names reach isl.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, TypeAlias

import islpy

from polyker.errors.base import PolykerError, failure
from polyker.errors.shapes import ISL_FAILED, ISL_QUOTA
from polyker.process.jobs import checkpoint, current_job

Set: TypeAlias = islpy.Set
Map: TypeAlias = islpy.Map
dim = islpy.dim_type

# Most texts of sets and maps whose objects a thread keeps: some compilations' (chosen).
_MAX_PARSED_TEXTS = 512


class _IslLocal(threading.local):
    def __init__(self) -> None:
        self.context = islpy.Context()
        self.parsed: dict[tuple[str, str], Any] = {}
        self.quota: int | None = None
        job = current_job()
        if job is not None:
            job.on_cancel.append(self.context.abort)


_local = _IslLocal()


def context() -> Any:
    """Return the calling thread's isl context."""
    return _local.context


@contextmanager
def isl_job(stage: str, quota: int | None = None) -> Iterator[None]:
    """Turn every isl failure inside into a `CompileError` naming `stage`; `quota` bounds isl's operations.

    Source texts are read before a quota is armed wherever possible: isl reports an exceeded quota while reading as a
    syntax error.
    """
    checkpoint()
    armed = quota is not None and _local.quota is None
    if armed:
        _local.context.reset_operations()
        _local.context.set_max_operations(quota)
        _local.quota = quota
    try:
        yield
    except PolykerError:
        raise
    except islpy.Error as error:
        checkpoint()  # isl was told to give up
        # isl's own text ends with a path of its build; what stands before says what happened.
        if _local.quota is not None and _exhausted():
            raise failure(ISL_QUOTA, stage=stage, quota=_local.quota) from error
        why = re.sub(r" in \S+:\d+.*", "", (str(error).splitlines() or ["unknown error"])[0])
        raise failure(ISL_FAILED, stage=stage, why=why) from error
    finally:
        if armed:
            _local.quota = None
            _local.context.set_max_operations(0)
            _local.context.reset_operations()


def _exhausted() -> bool:
    """Whether the armed quota is used up: then the smallest of tasks fails, too. isl does not say it of every failure."""
    try:
        islpy.Set.read_from_str(_local.context, "{ [] }")
    except islpy.Error:
        return True
    return False


def _parse(kind: str, text: str) -> Any:
    key = (kind, text)
    cached = _local.parsed.get(key)
    if cached is None:
        if "\0" in text:
            raise failure(ISL_FAILED, stage="reading", why="a text holds a NUL character")
        cached = getattr(islpy, kind).read_from_str(_local.context, text)
        if len(_local.parsed) >= _MAX_PARSED_TEXTS:
            for stale in list(_local.parsed)[: _MAX_PARSED_TEXTS // 2]:
                del _local.parsed[stale]
        _local.parsed[key] = cached
    return cached


def read_set(text: str) -> Any:
    """Return the `isl.Set` of a text in this thread's context; read once, then cached."""
    return _parse("Set", text)


def read_map(text: str) -> Any:
    """Return the `isl.Map` of a text in this thread's context; read once, then cached."""
    return _parse("Map", text)


def union_of(parts: Iterable[Any]) -> Any:
    """Return the union of sets, or of maps; None of none."""
    return reduce(lambda found, part: part if found is None else found.union(part), parts, None)


def read_pw_aff(text: str) -> Any:
    """Return the `isl.PwAff` of a text in this thread's context; read once, then cached."""
    return _parse("PwAff", text)


def int_val(value: int) -> Any:
    """Return an integer as an `isl.Val` of this thread's context."""
    return islpy.Val.int_from_si(_local.context, value)


def parameters(names: tuple[str, ...]) -> str:
    """Return isl's prefix that declares parameters: `[n0, n1] -> `, or nothing."""
    return f"[{', '.join(names)}] -> " if names else ""


def set_text(names: tuple[str, ...], dims: tuple[str, ...], conditions: list[str], tuple_name: str = "") -> str:
    """Return the text `[names] -> { T[dims] : conditions }`."""
    body = " and ".join(conditions)
    return f"{parameters(names)}{{ {tuple_name}[{', '.join(dims)}]{' : ' + body if body else ''} }}"


def condition_set_text(names: tuple[str, ...], conditions: list[str]) -> str:
    """Return the text of a parameter set, `[names] -> { : conditions }`."""
    return f"{parameters(names)}{{ : {' and '.join(conditions)} }}"


def narrowed(text: str, conditions: list[str]) -> str:
    """Return the text of a parameter set in which further conditions on its parameters hold.

    >>> narrowed("[n0] -> { : n0 >= 0 }", ["n0 <= 9"])
    '[n0] -> {  : 0 <= n0 <= 9 }'
    """
    found = read_set(text)
    names = tuple(found.get_dim_name(dim.param, d) for d in range(found.dim(dim.param)))
    return str(found.intersect_params(read_set(condition_set_text(names, conditions)))) if conditions else text


def only_sizes(text: str, names: Sequence[str]) -> str:
    """Return what a parameter set says of some of its sizes alone.

    >>> only_sizes("[n0, n1] -> { : 0 <= n0 <= n1 }", ["n1"])
    '[n1] -> {  : n1 >= 0 }'
    """
    found = read_set(text)
    for k in reversed(range(found.dim(dim.param))):
        if found.get_dim_name(dim.param, k) not in names:
            found = found.project_out(dim.param, k, 1)
    return str(found)


def constraints_of(points: Any) -> str:
    """Return the constraints of a set of at most one dimension as text in brackets; "" when there are none.

    Basic sets are printed one by one: isl prints a fixed dimension inside the tuple, `[i0 = 2]`.
    """
    pieces = [_piece(str(basic)) for basic in points.get_basic_sets()]
    if "" in pieces:
        return ""
    return f"({' or '.join(f'({p})' for p in pieces)})" if pieces else "(1 = 0)"


def _piece(text: str) -> str:
    body = text[text.index("{") + 1 : text.rindex("}")].strip()
    head, _, rest = body.partition(":")
    if body.startswith("["):
        inside, _, rest = body[1:].partition("]")
        fixed = [inside.strip()] if "=" in inside else []
        return " and ".join(fixed + [f"({c})" for c in [rest.strip().removeprefix(":").strip()] if c])
    return rest.strip() if not head.strip() else body
