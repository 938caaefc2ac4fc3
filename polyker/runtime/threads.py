"""The threads that kernels run on: how many, and whose: the pool of codegen.llvm.jit.pool, or a host's own `parallel_for`."""

from __future__ import annotations

import ctypes
import os

from polyker.errors.base import escape, failure
from polyker.errors.calls import BAD_PARALLEL_FOR, BAD_USER
from polyker.errors.given import integer, is_a
from polyker.errors.tracebacks import api_boundary
from polyker.process.jobs import once
from polyker.record.status import Runtime

_WORDS = len(Runtime)
# The struct that kernels read: it is never freed, as kernels know its address.
_runtime = (ctypes.c_void_p * _WORDS)()
_kept: list[object] = []  # what the function of a host belongs to


class _Pool:
    """The pool of this process: where its functions are, and how many workers it has made."""

    def __init__(self) -> None:
        from polyker.codegen.llvm.jit.pool import pool

        library = pool()
        # Its threads run this code until the process ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
        table = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p))(library.address)()
        self.parallel_for, forked, made = table[0], table[1], table[2]
        self._made = ctypes.c_int64.from_address(made or 0)
        _at_fork(forked or 0)

    @property
    def workers(self) -> int:
        """How many threads it has made in this process."""
        return self._made.value


def _at_fork(handler: int) -> None:
    """Have `handler` called in the child of each fork: of any, where the C library lets us, else of Python's."""
    library = ctypes.CDLL(None)
    for name in ("pthread_atfork", "__register_atfork"):
        register = getattr(library, name, None)
        if register is not None:
            register.argtypes = [ctypes.c_void_p] * 4
            if register(None, None, handler, None) == 0:
                return
    os.register_at_fork(after_in_child=ctypes.CFUNCTYPE(None)(handler))


@once
def pool() -> _Pool:
    """Return the pool, compiled at the first call of this function."""
    return _Pool()


def runtime() -> int:
    """Return the address of the struct in which kernels find `parallel_for`."""
    if not _runtime[Runtime.PARALLEL_FOR]:
        _runtime[Runtime.ABI] = 1
        _runtime[Runtime.PARALLEL_FOR] = pool().parallel_for
    return ctypes.addressof(_runtime)


@api_boundary
def set_parallel_for(function: object = None, user: object = None) -> None:
    """Run kernels on a host's own threads from the next call on; None: on polyker's.

    `function`: a C function, as a ctypes function or its address,

        int parallel_for(int (*function)(void *context, int64_t index), void *context, int64_t begin, int64_t end, void *user)

    that calls `function(context, i)` once for each i in [begin, end), on any threads, and returns when all have returned: 0, or
    what one of them returned that is not 0. It may be called by several threads at a time; `user`, an address or None, is handed
    on to it. A call whose function did not do so raises HostError. Change it while no kernel runs. Raises ArgumentError for
    anything else.
    """
    if function is None:
        address, user = pool().parallel_for, None
    elif is_a(function, _FUNCTIONS):
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
    else:
        address = _address(function) or 0
    if not address:
        raise failure(BAD_PARALLEL_FOR, type=escape(type(function).__name__))
    data = None if user is None else _address(user)
    if data is None and user is not None:
        raise failure(BAD_USER, type=escape(type(user).__name__))
    _kept.append(function)
    _runtime[Runtime.ABI] = 1
    _runtime[Runtime.USER] = data
    _runtime[Runtime.PARALLEL_FOR] = address


_FUNCTIONS = ctypes.CFUNCTYPE(None).__bases__


def _address(value: object) -> int | None:
    """Return an integer, or a ctypes pointer without a type, as an address; None for anything else."""
    if is_a(value, ctypes.c_void_p):
        return value.value or 0
    number = integer(value)
    return number if number is not None and 0 <= number < 1 << 8 * ctypes.sizeof(ctypes.c_void_p) else None
