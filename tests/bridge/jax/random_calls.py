"""Random programs inside of jit beside polyker's own calls: `python -m tests.bridge.jax.random_calls --programs 200 --seed 1`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import polyker as pk
from polyker.errors import InternalError, PolykerError
from polyker.ir.dtypes import DTYPES
from tests.fuzz.case import Case
from tests.fuzz.judging import main


def judged(case: Case) -> str:
    """Return what came of a program: "equal", what it was refused for, or "WRONG" with what differs."""
    import jax

    operator = pk.op(case.text, **(dict(case.sizes) if case.early else {}))
    rng = np.random.default_rng(case.number)
    arrays: dict[str, Any] = {}
    for i in case.inputs:
        dtype = DTYPES[i.dtype].numpy
        small = rng.integers(0, max(1, i.limit or 3), i.shape)
        arrays[i.name] = np.asarray(small if dtype.kind in "iub" else rng.standard_normal(i.shape)).astype(dtype)
    sizes = {} if case.early else dict(case.sizes)
    mode = "never" if case.mode in ("symbolic", "names") else "auto"
    with pk.options(specialize=mode, threads=1 + case.number % 2), np.errstate(all="ignore"):
        try:
            wanted = operator(**arrays, **sizes)
        except InternalError:
            raise
        except PolykerError as error:
            return f"refused {error.code}"
        with jax.enable_x64(True):
            given = {n: jax.numpy.asarray(a) for n, a in arrays.items()}
            f = pk.jax.op(operator)
            found = jax.jit(lambda given: f(**given, **sizes))(given)
            found = found if isinstance(found, tuple) else (found,)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for name, one, other in zip(operator.signature.outputs, found, wanted, strict=True):
            one, other = np.asarray(one), np.asarray(other)
            if one.dtype != other.dtype or one.shape != other.shape or one.tobytes() != other.tobytes():
                return f"WRONG: {name}"
        for name, array in given.items():
            if np.asarray(array).tobytes() != arrays[name].tobytes():
                return f"WRONG: the argument {name} changed"
    return "equal"


if __name__ == "__main__":
    sys.exit(main(__doc__, [judged], programs=200))
