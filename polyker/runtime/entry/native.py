"""Calls without Python between the caller and the kernel: where this interpreter allows them, and what they are made of.

The emitted entry (codegen.llvm.jit.call) reads the structs of CPython's and numpy's objects. Their layout is stable, and is
checked all the same, once, on objects of this process; where anything is not as expected calls take the way through Python.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
from msgspec import Struct

from polyker.codegen.llvm.jit.call_table import WRITEABLE, ApiWord, Objects
from polyker.process.jobs import once
from polyker.runtime.arrays import NUMBERS
from polyker.runtime.kinds import Array

_FASTCALL_KEYWORDS = 0x0080 | 0x0002  # METH_FASTCALL | METH_KEYWORDS
_NUMPY_API = "numpy._core._multiarray_umath"
_FUNCTIONS = {  # index in numpy's table of functions, which is part of its binary interface
    ApiWord.EMPTY: 184,
    ApiWord.RETURN: 76,
    ApiWord.COPY: 50,
}
_ABI_OF_NUMPY_2 = range(0x02000000, 0x03000000)
_SYMBOLS = {
    ApiWord.VECTORCALL: "PyObject_Vectorcall",
    ApiWord.SAVE_THREAD: "PyEval_SaveThread",
    ApiWord.RESTORE_THREAD: "PyEval_RestoreThread",
    ApiWord.INCREF: "Py_IncRef",
    ApiWord.DECREF: "Py_DecRef",
    ApiWord.AS_DOUBLE: "PyFloat_AsDouble",
    ApiWord.AS_INTEGER: "PyLong_AsLongLongAndOverflow",
    ApiWord.FROM_INTEGER: "PyLong_FromLongLong",
    ApiWord.MALLOC: "PyMem_RawMalloc",
    ApiWord.FREE: "PyMem_RawFree",
    ApiWord.CLEAR: "PyErr_Clear",
    ApiWord.MATCHES: "PyErr_ExceptionMatches",
    ApiWord.LOOK_UP: "PyDict_GetItem",
    ApiWord.PACK: "PyTuple_Pack",
    ApiWord.CONTEXT: "PyContextVar_Get",
}


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Native(Struct, frozen=True):
    """The entry, ready to be called: `make(self)` returns a callable that the entry runs with `self`; `api` its table."""

    make: Callable[[tuple[object, ...]], Callable[..., Any]]
    api: Array


class Unavailable(Struct, frozen=True):
    """Why there is no entry in this process."""

    reason: str


@once
def native() -> Native | Unavailable:
    """Return the entry, compiled at the first call of this function, or why calls go through Python here."""
    found = _interpreter()
    if found is not None:
        return Unavailable(found)
    objects = Objects(item=tuple.__basicsize__)
    found = layout_fault(objects)
    if found is not None:
        return Unavailable(found)
    api = api_table()
    if isinstance(api, Unavailable):
        return api
    from polyker.codegen.llvm.jit.call import entry
    from polyker.codegen.llvm.jit.own import is_supported

    if not is_supported():
        return Unavailable("code is not made for this system")
    library = entry(objects)
    doc = b"kernel($self, /, *args, out=None, **named)\n--\n\nRun the kernel on arrays given by position or name."
    definition = _MethodDef(b"kernel", library.address, _FASTCALL_KEYWORDS, doc)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    place = ctypes.addressof(definition)

    def make(self: tuple[object, ...], keep: object = definition) -> Callable[..., Any]:
        made: Callable[..., Any] = new(place, self, None)
        return made

    # Callables may outlive this module at the interpreter's end: the definition and the code are never freed.
    _forever(make, library, api)
    return Native(make, api)


def _forever(*objects: object) -> None:
    for thing in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _interpreter() -> str | None:
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} lays out objects in its own way"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python is free-threaded"
    if getattr(sys, "getobjects", None) is not None:
        return "this Python is built for debugging references"
    if sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return "it is made for 64-bit little-endian machines"
    return None


def layout_fault(objects: Objects) -> str | None:
    """Check the offsets on arrays of several kinds, a tuple, a weak reference, scalars, and their types."""
    base = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    read_only = base[1:, ::2].view()
    read_only.flags.writeable = False
    probes: list[Array] = [base, base[:, 1:].T, base[::-1, :, ::3], read_only, np.zeros(()), np.zeros((0, 3), "f4")]
    try:
        if not all(_is_laid_out(probe, objects) for probe in probes):
            return f"arrays of numpy {np.__version__} are laid out in another way"
        pair = (base, objects)
        at = id(pair)
        if _word(at + objects.size) != 2 or [_word(at + objects.item + 8 * k) for k in (0, 1)] != list(map(id, pair)):
            return "tuples are laid out in another way"
        probe = _Probe()
        weak = ref(probe)
        if _word(id(weak) + objects.referent) != id(probe):
            return "weak references are laid out in another way"
        del probe
        if _word(id(weak) + objects.referent) != id(None):
            return "weak references are laid out in another way"
        numbers = [number(3) for number in NUMBERS]
        if any(ctypes.string_at(id(n) + objects.value, n.itemsize) != n.tobytes() for n in numbers):
            return f"scalars of numpy {np.__version__} are laid out in another way"
    except (TypeError, ValueError) as error:
        return f"objects cannot be read: {error}"
    return None


class _Probe:
    """Something that weak references can be to."""


def _is_laid_out(array: Array, objects: Objects) -> bool:
    at = id(array)
    rank = ctypes.c_int.from_address(at + objects.rank).value
    flags = ctypes.c_uint.from_address(at + objects.flags).value
    if rank != array.ndim or bool(flags & WRITEABLE) != array.flags.writeable:
        return False
    shape, strides = _word(at + objects.shape), _word(at + objects.strides)
    return (
        _word(at + objects.type) == id(np.ndarray)
        and _word(at + objects.dtype) == id(array.dtype)
        and _word(at + objects.data) == array.ctypes.data
        and tuple(_word(shape + 8 * k) for k in range(rank)) == array.shape
        and tuple(_word(strides + 8 * k) for k in range(rank)) == array.strides
    )


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def api_table() -> Array | Unavailable:
    """Return the addresses of what the entry calls, numpy's functions tried on arrays first."""
    table = np.zeros(len(ApiWord), np.int64)
    for symbol, name in _SYMBOLS.items():
        found = getattr(ctypes.pythonapi, name, None)
        if found is None:
            return Unavailable(f"this Python has no {name}")
        table[symbol] = ctypes.cast(found, ctypes.c_void_p).value or 0
    table[ApiWord.MOVE] = ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0
    try:
        capsule = sys.modules[_NUMPY_API]._ARRAY_API
        get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", ctypes.pythonapi)
        )
        functions = int(get(capsule, None))
    except (AttributeError, KeyError, TypeError, ValueError):
        return Unavailable("numpy does not show its table of functions")
    version = ctypes.PYFUNCTYPE(ctypes.c_uint)(_word(functions))()
    if version not in _ABI_OF_NUMPY_2:
        return Unavailable(f"numpy's binary interface is {version:#x}, not that of numpy 2")
    for symbol, index in _FUNCTIONS.items():
        table[symbol] = _word(functions + 8 * index)
    return table if are_numpys(table) else Unavailable("numpy's functions are not those expected")


def are_numpys(table: Array) -> bool:
    """Whether NumPy's functions of a table do what the entry expects of them, tried on arrays."""
    empty = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int)(
        int(table[ApiWord.EMPTY])
    )
    copy = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.py_object)(int(table[ApiWord.COPY]))
    dtype = np.dtype(np.int16)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dtype))  # PyArray_Empty takes it
    made = empty(2, (ctypes.c_int64 * 2)(2, 3), dtype, 0)
    if type(made) is not np.ndarray or (made.shape, made.dtype, made.strides) != ((2, 3), dtype, (6, 2)):
        return False
    copy(made, np.full((2, 3), 7, dtype))
    # PyArray_Return takes the reference it is given and gives one back.
    give = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(int(table[ApiWord.RETURN]))
    scalar = np.array(7, dtype)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(scalar))
    return bool((made == 7).all()) and type(give(scalar)) is np.int16
