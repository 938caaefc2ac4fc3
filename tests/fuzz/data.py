"""Values and memory of operands: index-coded data, strides of every sort, canaries around them, guard pages."""

from __future__ import annotations

import ctypes
import mmap
import random
from typing import Any

import numpy as np
from msgspec import Struct

from polyker.ir.dtypes import DTYPES
from tests.fuzz.case import Case, Input

CANARY = 0xA5


def empty(i: Input) -> Any:
    """Return an array of the input's type and shape that takes no memory; a Python scalar for one."""
    if i.python:
        return scalar(i)
    return np.broadcast_to(np.zeros((), DTYPES[i.dtype].numpy), i.shape)


def scalar(i: Input) -> Any:
    """Return the Python scalar of an input, exact in every type."""
    return {"b": True, "i": 3, "u": 3, "f": 1.5, "c": 1.5 + 2j}[DTYPES[i.dtype].kind]


def values(i: Input, salt: int) -> Any:
    """Return the input's values: index-coded (each encodes its position), random, or with NaN and infinities."""
    if i.python:
        return scalar(i)
    dtype = DTYPES[i.dtype]
    n = int(np.prod(i.shape))
    at = np.arange(n)
    if i.limit:
        v = (at * 5 + salt) % i.limit
        if i.data == "outside" and n:
            where = salt % n
            v[where] = -1 if dtype.kind == "i" and salt % 2 else i.limit + salt % 3
        return v.astype(dtype.numpy).reshape(i.shape)
    if dtype.kind == "b":
        return ((at * 7 + salt) % 5 < 3).reshape(i.shape)
    rng = np.random.default_rng(salt)
    if i.data in ("random", "special") and dtype.kind in "fc":
        v = rng.standard_normal(n)
        if dtype.kind == "c":
            v = v + 1j * rng.standard_normal(n)
        if i.data == "special" and n:
            v[rng.integers(n)] = rng.choice([np.nan, np.inf, -np.inf, 0.0])
        return v.astype(dtype.numpy).reshape(i.shape)
    reach = 23 if i.data == "coded" else 7
    v = (at * 13 + at // reach + salt) % reach - (reach // 2 if dtype.kind != "u" else 0)
    if dtype.kind == "c":
        v = v + 1j * ((at * 5 + salt) % reach - reach // 2)
    elif dtype.kind in "iu" and i.data == "random":
        info = np.iinfo(dtype.numpy)
        v = rng.integers(info.min, info.max, n, dtype.numpy, endpoint=True)
    return v.astype(dtype.numpy).reshape(i.shape)


class Block(Struct):
    """Memory with an operand in it, and canaries everywhere else."""

    array: Any
    memory: Any
    before: Any
    mine: Any  # which bytes are the operand's

    def damaged(self, written: bool) -> bool:
        """Whether bytes changed that must not: any for an input, those around the elements for an output."""
        if self.memory is None:
            return False
        changed = self.memory != self.before
        return bool((changed & ~self.mine).any() if written else changed.any())


_LIBC = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE


def guarded(size: int, at_end: bool) -> Any:
    """Return `size` bytes that end (or start) at a page that cannot be touched."""
    pages = -(-max(size, 1) // PAGE)
    region = mmap.mmap(-1, (pages + 2) * PAGE)
    whole = np.frombuffer(region, np.uint8)
    start = whole.ctypes.data
    for page in (0, pages + 1):
        if _LIBC.mprotect(ctypes.c_void_p(start + page * PAGE), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    inner = whole[PAGE : (pages + 1) * PAGE]
    return inner[len(inner) - size :] if at_end else inner[:size]


def place(v: Any, layout: str, rng: random.Random, guard: bool) -> Block:
    """Return an array of these values in memory of the given layout."""
    if not isinstance(v, np.ndarray):
        return Block(v, None, None, None)
    size, shape = v.itemsize, v.shape
    order, steps, signs, lead, shift = list(range(v.ndim)), [1] * v.ndim, [1] * v.ndim, 0, 0
    zero: set[int] = set()
    mixed = layout == "mixed"
    if layout == "permuted" or (mixed and rng.random() < 0.5):
        rng.shuffle(order)
    if layout == "negative" or (mixed and rng.random() < 0.5):
        signs = [rng.choice([-1, 1, -1]) for _ in signs]
    if layout == "sliced" or (mixed and rng.random() < 0.5):
        steps = [rng.choice([1, 2, 3]) for _ in steps]
    if layout == "offset" or (mixed and rng.random() < 0.5):
        lead = rng.randrange(1, 9)
    if layout == "misaligned" and size > 1:
        shift = rng.randrange(1, size)
    if layout == "zero" and v.ndim:
        zero = {rng.randrange(v.ndim)}
    strides, span = [0] * v.ndim, size
    for d in reversed(order):
        if d in zero:
            continue
        strides[d] = span * steps[d]
        span = strides[d] * max(shape[d], 1)
    used = size + sum(abs(s) * (n - 1) for s, n in zip(strides, shape, strict=True) if n > 0) if v.size else 0
    first = lead * size + shift
    tail = 0 if guard else 64
    total = first + used + tail
    at_end = rng.random() < 0.6
    if guard and at_end:
        memory = guarded(total, True)
    elif guard:
        first = shift
        total = first + used
        memory = guarded(total, False)
    else:
        memory = np.empty(total + 64, np.uint8)
        memory = memory[(-memory.ctypes.data) % 64 :][:total]
    memory[:] = CANARY
    offset = first
    final = []
    for s, n, sign in zip(strides, shape, signs, strict=True):
        if sign < 0 and n > 0:
            offset += s * (n - 1)
        final.append(s * sign)
    if v.size == 0:
        offset = 0
    array = (
        np.ndarray(shape, v.dtype, memory[: max(total, 1)], offset, tuple(final)) if total else np.empty(shape, v.dtype)
    )
    if zero and v.size:
        v = np.broadcast_to(v.take([0], axis=next(iter(zero))), shape)
        array[tuple(0 if d in zero else slice(None) for d in range(v.ndim))] = v[
            tuple(0 if d in zero else slice(None) for d in range(v.ndim))
        ]
    else:
        array[...] = v
    mine = np.zeros(total, bool)
    if v.size and total:
        mask = np.ndarray((*shape, size), np.bool_, mine, offset, (*final, 1))
        mask[...] = True
    return Block(array, memory, memory.copy(), mine)


def arrays_of(case: Case) -> dict[str, Any]:
    """Return the values of a case's inputs, as the oracles take them."""
    out = {}
    for k, (i, layout) in enumerate(zip(case.inputs, case.layouts, strict=True)):
        v = values(i, salt_of(case, k))
        if layout == "zero" and isinstance(v, np.ndarray) and v.ndim and v.size:
            v = place(v, layout, random.Random(f"{case.seed}/{case.number}/{k}"), False).array.copy()
        out[i.name] = v
    return out


def salt_of(case: Case, k: int) -> int:
    """Return the number that makes an input's values its own."""
    return (case.number * 31 + k * 11 + case.seed) % 1009 + 1


def generator_of(case: Case, k: int) -> random.Random:
    """Return the source of an operand's layout."""
    return random.Random(f"{case.seed}/{case.number}/{k}")
