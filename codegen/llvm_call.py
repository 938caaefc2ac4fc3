"""Calling a kernel's machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, cast

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


def entry(address: int) -> Callable[[Any, Any], int]:
    """Return the function `status = f(pointers, integers)` at an address; it releases the GIL while it runs.

    `pointers`: a ctypes array of c_void_p; `integers`: one of c_int64; both, and the memory they point to, must stay
    alive for the call. Status 0 is success, else the code of the Guard that failed. The code's owner must outlive the
    function.
    """
    return cast("Callable[[Any, Any], int]", _ENTRY(address))
