"""polyker.einsum against numpy.einsum on random calls: values, scalars or arrays, types, shapes, strides, flags, and errors.

What differs, and stays so:
- Where numpy returns a view of its one operand, polyker returns a new array, which obeys `dtype`, `order` and `casting`.
- Along a path (any `optimize` but False) strides for order K, and those of dimensions without a second element, are what numpy's
  matrix products and reshapes leave; polyker's are those without a path.
- numpy spreads a result over an `out` with more dimensions along a path, but not without one; polyker never does.
- numpy sums bools before it multiplies by numbers along a path, but not without one; polyker never does.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.errors import PolykerError
from tests.runtime.einsum_cases import Call, Cases

CHUNK = 40


def outcome(function: Any, call: Call, out: Any = None) -> tuple[Any, Exception | None]:
    try:
        return function(*call[0], **call[1], **({} if out is None else {"out": out})), None
    except Exception as error:
        return None, error


def is_view(call: Call) -> bool:
    """Whether numpy returns a view: its type is that of the operand then, whatever type is asked for."""
    given = [np.zeros(a.shape, "i1") if isinstance(a, np.ndarray) else a for a in call[0]]
    found, _ = outcome(np.einsum, (given, {"dtype": "f8", "optimize": call[1].get("optimize", False)}))
    return found is not None and found.dtype == "i1"


def on_path(call: Call) -> bool:
    """Whether numpy looks for a path."""
    return call[1].get("optimize", False) is not False


def is_laid_out_as_numpy_s(call: Call, wanted: np.ndarray) -> bool:
    return not on_path(call) or (call[1].get("order", "K").upper() != "K" and wanted.size > 0)


def strides(array: np.ndarray, call: Call) -> list[int]:
    return [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1 or not on_path(call)]


def problem(seed: int) -> str | None:
    """Return what differs in a call, or None."""
    cases = Cases(seed)
    call = cases.call()
    wanted, theirs = outcome(np.einsum, call)
    out, copy = None, None
    plain = wanted
    if theirs is None and cases.chance(0.25):
        out = cases.out(wanted)
        copy = out.copy(order="K") if out.flags.forc else out.copy()
        wanted, theirs = outcome(np.einsum, call, copy)
    got, ours = outcome(pk.einsum, call, out)
    if ours is not None and not isinstance(ours, PolykerError):
        return f"a foreign {ours!r}"
    view = out is None and theirs is None and is_view(call)
    if view and call[1].keys() & {"dtype", "casting"}:
        return None
    if out is not None and out.ndim > np.ndim(plain) and ours is not None:
        return None
    if (ours is None) != (theirs is None):
        return f"numpy gives {theirs or type(wanted)!r}, polyker {ours or type(got)!r}"
    if theirs is not None:
        kind = ValueError if isinstance(theirs, ValueError) else (TypeError, ValueError)
        return None if isinstance(ours, kind) else f"numpy raises {theirs!r}, polyker {ours!r}"
    bools = any(isinstance(a, np.ndarray) and a.dtype == bool for a in call[0])
    if bools and wanted.dtype != bool and on_path(call):
        return None
    if out is not None:
        return None if got is out and np.array_equal(out, copy) else f"out is {out}, not {copy}"
    if type(got) is not type(wanted):
        return f"a {type(wanted)}, not a {type(got)}"
    if (got.dtype, np.shape(got)) != (wanted.dtype, np.shape(wanted)) or not np.array_equal(got, wanted):
        return f"{wanted!r}, not {got!r}"
    if isinstance(wanted, np.ndarray) and not view and is_laid_out_as_numpy_s(call, wanted):
        if strides(wanted, call) != strides(got, call):
            return f"strides {wanted.strides}, not {got.strides}"
        for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS", "WRITEABLE", "ALIGNED"):
            if wanted.flags[flag] != got.flags[flag]:
                return f"{flag} is {wanted.flags[flag]}"
    return None


def shown(seed: int) -> str:
    args, keywords = Cases(seed).call()
    return str([(a.shape, a.strides, a.dtype.str) if isinstance(a, np.ndarray) else a for a in args] + [keywords])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chunk", range(9))
def test_random_calls_are_what_numpy_s_are(chunk: int) -> None:
    seeds = range(chunk * CHUNK, (chunk + 1) * CHUNK)
    wrong = [f"{seed}: {shown(seed)}: {found}" for seed in seeds if (found := problem(seed))]
    assert not wrong


WAYS: tuple[Any, ...] = (False, True, None, "greedy", "optimal", ("greedy", 100))
TEXTS = (
    "...ij->...ji", "...i->...", "i...->i...", "i...->...", "->", "", ",->", "...->...", "...", "...,...", "...,...->", "...->",
    "...i->i", "i...->", "...i,i->...", "...i,...i->...", "...i,...i->i", "i,...->...i", "...i,j->ij...", "i...j,...k->k...i",
    " . . . i -> . . . ", "i. ..->i...", "i j- > j i", " ij -> ji ", "i - > i", "..i->..i", "...i...->i", "...,i...->i...",
    "->...", "i->...", "ij->i...j", "...ij->ij...", "i,i->", "i,i,i->", "ij,jk,kl->", "i,j->", "ij,ij", "ij,ji->",
)  # fmt: skip
SHAPES = ((), (1,), (2,), (2, 2), (1, 2), (2, 1), (0, 2), (2, 2, 2), (1, 2, 2), (2, 0, 2), (3, 2, 2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", TEXTS)
def test_each_form_is_taken_where_numpy_takes_it_and_refused_where_not(text: str) -> None:
    rng = np.random.default_rng(1)
    count = text.partition("->")[0].count(",") + 1
    for trial in range(40):
        operands = [np.asarray(rng.integers(-3, 4, SHAPES[rng.integers(len(SHAPES))]), "f8") for _ in range(count)]
        for optimize in WAYS:
            call = [text, *operands], {"optimize": optimize}
            wanted, theirs = outcome(np.einsum, call)
            for _ in range(2):  # from here and from what is remembered
                got, ours = outcome(pk.einsum, call)
                where = f"{trial}: {text} {[o.shape for o in operands]} {optimize}: {theirs!r}, {ours!r}"
                assert (ours is None) == (theirs is None), where
                assert type(got) is type(wanted), where
                if theirs is None:
                    np.testing.assert_array_equal(got, wanted, where)


def test_what_one_way_remembers_is_not_what_another_way_returns() -> None:
    """A scalar without a path, an array along one; a form that is refused without one; a path that is none."""
    x, y = np.arange(3.0), np.arange(6.0).reshape(2, 3)
    for _ in range(3):
        for optimize in WAYS:
            assert type(pk.einsum("i,i->", x, x, optimize=optimize)) is type(
                np.einsum("i,i->", x, x, optimize=optimize)
            )
        np.testing.assert_array_equal(pk.einsum("...i->i", y, optimize=True), y.sum(0))
        for bad in (lambda: pk.einsum("...i->i", y), lambda: pk.einsum("i,i->", x, x, optimize=3)):
            with pytest.raises(PolykerError):
                bad()


@pytest.mark.filterwarnings("ignore")
def test_an_out_that_may_not_hold_a_result_is_refused_as_numpy_refuses_it() -> None:
    a, b = np.ones((2, 3)), np.ones((3, 2))
    for text, optimize in (("ij,jk->ik", False), ("ij,jk->ik", True), ("ij,kl->ijkl", True), ("ij,ji->ij", True)):
        for dtype in (None, "f8", "c16"):
            for kind in ("i8", "f4", "f8", "c16"):
                for casting in ({}, {"casting": "same_kind"}, {"casting": "unsafe"}):
                    out, copy = (np.zeros(np.einsum(text, a, b).shape, kind) for _ in range(2))
                    call = [text, a, b], {"optimize": optimize, "dtype": dtype, **casting}
                    _, theirs = outcome(np.einsum, call, copy)
                    _, ours = outcome(pk.einsum, call, out)
                    assert (ours is None) == (theirs is None), f"{call[1]} {kind}: {theirs!r}, {ours!r}"
                    assert ours is not None or np.array_equal(out, copy)


if __name__ == "__main__":
    for seed in range(*map(int, sys.argv[1:3])):
        if found := problem(seed):
            print(seed, shown(seed), found)
