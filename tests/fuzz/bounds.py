"""Values with bounds on their rounding errors: conversions, one rounding, and reductions in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from polyker.reference.tags import Weak, settle

BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53, "c64": 24, "c128": 53}
FUNCTION_ULPS = 8
LD, CLD = np.longdouble, np.clongdouble


class Uncertain(Exception):
    """A discontinuous step depends on a value that is not known well enough to decide it."""


class V(Struct, frozen=True):
    """Values, one for each instance: `err` bounds how far a computed one may be off; zero for exact."""

    tag: Any
    val: Any
    err: Any


def bits_of(tag, stored=False):
    """Return the number of significant bits that values of a type are computed (or stored) with; None for integers."""
    tag = settle(tag)
    if tag.kind not in "fc":
        return None
    return BITS[tag.name] if stored else max(BITS[tag.name], 24)


def numeric(tag):
    """Return the numpy type that values of this type are held in here."""
    if isinstance(tag, Weak):
        return {"i": np.int64, "f": LD, "c": CLD}[tag.kind]
    return {"f": LD, "c": CLD}.get(tag.kind) or tag.numpy.type


def fits(val, bits):
    """Whether each value is representable with so many significant bits."""
    if np.iscomplexobj(val):
        return fits(val.real, bits) & fits(val.imag, bits)
    m, _ = np.frexp(val)
    scaled = np.ldexp(m, bits)
    return ~np.isfinite(val) | (scaled == np.rint(scaled))


def rounded(tag, val, err, stored=False, ulps=0.5, at=None):
    """Return a value with the error of one rounding to the type, none where it is representable."""
    bits = bits_of(tag, stored)
    err = np.where(np.isnan(err), np.inf, err)
    if bits is None:
        return V(tag, val, err)
    size = np.abs(val) if at is None else at
    with np.errstate(all="ignore"):
        slip = np.where(fits(val, bits) & (ulps <= 0.5) & (err == 0), 0, (size * 2 * ulps + 1e-30) * LD(2) ** -bits)
        # Below the least normal number the error is absolute.
        least = {"f16": -25, "bf16": -134}.get(settle(tag).name if stored else "", -150 if bits <= 24 else -1075)
        normal = {"f16": -14}.get(settle(tag).name if stored else "", -126 if bits <= 24 else -1022)
        tiny = (size < LD(2) ** normal) & (size > 0)
        slip = np.where(tiny, np.maximum(slip, LD(2) ** least), slip)
        slip = np.where(np.isfinite(val), slip, 0)
    return V(tag, val, overflowed(tag, val, err, bits) + slip.astype(float))


def overflowed(tag, val, err, bits):
    """Return the error, infinite where a number may be too large for the type."""
    limit = {"f16": 65504, "bf16": 3.3e38}.get(settle(tag).name, 3.4e38 if bits == 24 else 1.7e308)
    with np.errstate(all="ignore"):
        return np.where((np.abs(val) + err > limit) & np.isfinite(val), np.inf, err)


def convert(v, tag, explicit=False):
    """Convert values to a type; f16 and bf16 are rounded to only with `explicit` (a cast, or a store)."""
    if v.tag == tag and not explicit:
        return v
    target = numeric(tag)
    if target in (LD, CLD):
        val = v.val.real if target is LD and np.iscomplexobj(v.val) else v.val
        return rounded(tag, np.asarray(val).astype(target), v.err, stored=explicit)
    val = v.val.real if np.iscomplexobj(v.val) else v.val
    if target is np.bool_:
        if np.any((v.err > 0) & (np.abs(v.val) <= v.err)):
            raise Uncertain
        return V(tag, v.val != 0, np.zeros(np.shape(val)))
    if val.dtype == LD:
        if np.any((v.err > 0) & (np.trunc(val - v.err) != np.trunc(val + v.err))):
            raise Uncertain
        val = val.astype(np.int64) if target is not np.uint64 else val
    return V(tag, val.astype(target), np.zeros(np.shape(val)))


def combine(op, start, body, parent):
    """Reduce `body` into `start` by `parent`, with a bound that holds for any order."""
    val, n, acc = start.val.copy(), len(start.val), start.tag
    if op in ("any", "all"):
        (np.logical_or if op == "any" else np.logical_and).at(val, parent, body.val.astype(bool))
        return V(acc, val, np.zeros(n))
    {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[op].at(val, parent, body.val)
    if bits_of(acc) is None:
        return V(acc, val, np.zeros(n))
    err = np.asarray(start.err, float).copy()
    if op in ("max", "min"):
        np.maximum.at(err, parent, body.err)
        return V(acc, val, err)
    count = np.bincount(parent, minlength=n)
    u = LD(2) ** -bits_of(acc) * (4 if np.iscomplexobj(val) else 1)
    finite = np.where(np.isfinite(body.val), np.abs(body.val), 0)
    if op == "add":
        size = np.where(np.isfinite(start.val), np.abs(start.val), 0)
        np.add.at(size, parent, finite)
        np.add.at(err, parent, body.err)
        exact = _quantum(start.val, body.val, parent, size, bits_of(acc))
        slip = np.where(exact, 0, (count + 1) * u * size * 1.01)
        return V(acc, val, overflowed(acc, val, (err + slip).astype(float), bits_of(acc)))
    # A product: relative errors add.
    size = np.maximum(np.abs(start.val), 1).astype(LD)
    np.multiply.at(size, parent, np.maximum(finite, 1))
    whole = np.ones(n, bool)
    np.logical_and.at(whole, parent, is_whole(body.val))
    exact = whole & is_whole(start.val) & (size < LD(2) ** (bits_of(acc) - 2))
    relative = np.where(start.err > 0, start.err / np.abs(start.val), 0).astype(LD)
    np.add.at(relative, parent, np.where(body.err > 0, body.err / np.abs(body.val), 0))
    slip = np.where(exact & (relative == 0), 0, np.abs(val) * (1.1 * relative + (count + 1) * u * 2))
    slip = np.where(np.isnan(slip) | _order_decides(start.val, body.val, parent, size, bits_of(acc)), np.inf, slip)
    return V(acc, val, overflowed(acc, val, slip.astype(float), bits_of(acc)))


def _order_decides(start, body, parent, most, bits):
    """Whether a partial product may overflow or underflow before factors that would mend it, or a zero, are met."""
    least = np.ones(len(start), LD)
    magnitude = np.abs(start)
    np.minimum(least, magnitude, out=least, where=magnitude > 0)
    factors = np.abs(body)
    np.multiply.at(least, parent, np.where(factors > 0, np.minimum(factors, 1), 1))
    smallest = np.full(len(start), np.inf, LD)
    np.minimum.at(smallest, parent, factors.astype(LD))
    top, bottom = (LD(1e38), LD(1e-37)) if bits == 24 else (LD(1e307), LD(1e-307))
    # Where no factor is below one the overflow comes in any order.
    mended = np.minimum(smallest, magnitude) < 1
    return (most > top) & mended | (least < bottom) & (most > 1)


def _quantum(start, body, parent, size, bits):
    """Whether the terms are multiples of a power of two so large that every partial sum is representable."""
    exact = np.zeros(len(start), bool)
    for q in (1, 16, 1024):
        mine = is_whole(start * q)
        np.logical_and.at(mine, parent, is_whole(body * q))
        exact |= mine & (size * q < LD(2) ** bits)
    return exact


def is_whole(val):
    if np.iscomplexobj(val):
        return is_whole(val.real) & is_whole(val.imag)
    return ~np.isfinite(val) | (val == np.rint(val))


def small(x, y):
    return is_whole(x * 16) & is_whole(y * 16) & (np.abs(x) * np.abs(y) < 2**12)


def identities(op, tag, n):
    kind = numeric(tag)
    value = {"add": 0, "mul": 1, "any": False, "all": True}.get(op)
    if value is None:
        low = op in ("max", "logsumexp")
        if settle(tag).kind == "f":
            value = -np.inf if low else np.inf
        elif settle(tag).kind == "b":
            value = not low
        else:
            info = np.iinfo(settle(tag).numpy)
            value = info.min if low else info.max
    return np.full(n, value, kind)
