"""Find the C exchange API of DLPack through a class of tensors, and what has to be checked before its tensors are read by it.

The API (dlpack.h, 1.3) says where a tensor lies by one function of C, and makes a tensor of memory by another. It is found on
the type (`__dlpack_c_exchange_api__`), and whatever class has it is taken the same way. What it leaves out has to be known of a
library (exchange.libraries): the words of a class (ClassWord) name functions of C to ask, found in the descriptors of the class.
Where one is missing, calls with such tensors take the way through Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from types import GetSetDescriptorType, MethodDescriptorType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct

from polyker.codegen.llvm.jit.call_table import CheckWord, ClassWord
from polyker.errors.given import of_class
from polyker.ir.dtypes import DType
from polyker.runtime.dlpack import ArrayMemory, DlTensor, Managed, element_code, memory_of
from polyker.runtime.exchange.libraries import TensorCheck, library_of
from polyker.runtime.kinds import Array
from polyker.runtime.memory import address

ATTRIBUTE = "__dlpack_c_exchange_api__"
_CAPSULE = b"dlpack_exchange_api"
_MAJOR = 1  # the version of the layout that is read
_VERSION, _OLDER, _ALLOCATE, _MAKE, _VIEW = 0, 8, 16, 32, 40  # bytes of DLPackExchangeAPI
_DEFINITION = 40  # bytes of CPython's descriptors: the address of a PyGetSetDef or PyMethodDef
_NO_ARGUMENTS = 0x0004  # METH_NOARGS


class ExchangeClass(Struct, frozen=True, eq=False):
    """A class of tensors as the emitted entry knows it: its words, and the objects and memory that they point to.

    `classes`: those of its library whose tensors may be exchanged for one another. `may_write`: an `out` needs no look at
    whether it may be written to.
    """

    api: int
    words: Array
    classes: tuple[type, ...]
    may_write: bool
    kept: tuple[object, ...]

    @property
    def make(self) -> int:
        """The address of the function that makes tensors: one for a library."""
        return int(self.words[ClassWord.MAKE])

    def memory(self, value: object) -> ArrayMemory:
        """Return what the API says of a tensor; raises what its function raises."""
        tensor = DlTensor()
        view = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(int(self.words[ClassWord.VIEW]))
        if view(value, ctypes.addressof(tensor)):
            raise ValueError("its library gives no view of it")
        return memory_of(tensor, read_only=not self.may_write, is_copy=False, keep=value)

    def copied(self, array: Array, dtype: DType) -> Any:
        """Return a new tensor with the elements of an array; raises what the API's functions raise."""
        shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
        like = DlTensor(None, 1, 0, array.ndim)
        like.code, like.bits, like.lanes = (element_code(dtype) >> shift & 255 for shift in (0, 8, 16))
        like.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        said: list[str] = []
        tell = _SET_ERROR(lambda _, kind, text: said.append(b": ".join((kind or b"", text or b"")).decode()))
        block = ctypes.c_void_p()
        failed = _ALLOCATOR(_word(self.api + _ALLOCATE))(ctypes.addressof(like), ctypes.byref(block), None, tell)
        if failed or not block.value:
            raise MemoryError("; ".join(said) or "no tensor was allocated")
        found = Managed.from_address(block.value).tensor
        place = (found.data or 0) + found.byte_offset
        if array.size:
            held: Any = (ctypes.c_char * array.nbytes).from_address(place)
            np.copyto(np.ndarray(array.shape, array.dtype, held), array)
        made = ctypes.py_object()
        if _MAKER(self.make)(block.value, ctypes.byref(made)):
            raise ValueError("its library makes no tensor of a result")
        result = made.value
        ctypes.pythonapi.Py_DecRef(
            ctypes.py_object(result)
        )  # `made` holds the address, and not the reference that it was given
        return result


_SET_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
_ALLOCATOR = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, _SET_ERROR)
_MAKER = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


_found: WeakKeyDictionary[type, ExchangeClass | None] = WeakKeyDictionary()


def exchange_class(cls: type) -> ExchangeClass | None:
    """Return what the entry has to know of a class, None where it has no API or its tensors take the way through Python."""
    if cls in _found:
        return _found[cls]
    try:
        found = _read(cls)
    except Exception:  # what a class answers in another way, or what a version of a library has elsewhere
        found = None
    _found[cls] = found
    return found


def _read(cls: type) -> ExchangeClass | None:
    if not _is_own(cls):
        return None
    api = _api(getattr(cls, ATTRIBUTE, None))
    library = library_of(cls)
    if not api or library is None:
        return None
    make, view = _word(api + _MAKE), _word(api + _VIEW)
    if not make or not view:
        return None
    checks = (*library.checks, *library.output_checks)
    words = np.zeros(len(ClassWord), np.int64)
    rows = _rows([_asked(cls, check) for check in checks])
    watches = _rows([[id(items), id(key), id(value)] for items, key, value in library.watches])
    if any(key not in items or type(items[key]) is not type(value) for items, key, value in library.watches):
        return None
    words[ClassWord.TYPE], words[ClassWord.VIEW], words[ClassWord.MAKE] = id(cls), view, make
    words[ClassWord.WRITTEN] = 0 if library.written is None else id(library.written)
    words[ClassWord.WATCH_COUNT], words[ClassWord.WATCHES] = len(library.watches), address(watches)
    words[ClassWord.INPUT_CHECKS], words[ClassWord.OUTPUT_CHECKS] = len(library.checks), len(checks)
    words[ClassWord.CHECKS] = address(rows)
    # The words hold on to the class by its address: whoever uses them, the tables, keeps the class.
    kept = (library.written, library.watches, checks, rows, watches)
    return ExchangeClass(api, words, library.classes, library.written is not None, kept)


def _is_own(cls: type) -> bool:
    """Whether a class has the API itself, or from a base whose other protocol it has not changed."""
    bases = of_class(cls, "__mro__")
    owners = [
        next((n for n, c in enumerate(bases) if name in of_class(c, "__dict__")), None)
        for name in (ATTRIBUTE, "__dlpack__")
    ]
    return owners[0] is not None and (owners[1] is None or owners[0] <= owners[1])


def _api(capsule: object) -> int:
    """Return the address of the functions that a capsule holds, of the version that is read here; 0 for none."""
    python = ctypes.pythonapi
    is_valid, pointer = python.PyCapsule_IsValid, python.PyCapsule_GetPointer
    is_valid.argtypes, is_valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    found = int(pointer(capsule, _CAPSULE) or 0) if is_valid(capsule, _CAPSULE) else 0
    while found and ctypes.c_uint32.from_address(found + _VERSION).value != _MAJOR:
        found = _word(found + _OLDER)
    return found


def _asked(cls: type, check: TensorCheck) -> list[int]:
    """Return the words of a check; raises LookupError where the class has no such function of C."""
    descriptor = getattr(cls, check.name, None)
    kind = type(descriptor)
    if kind not in (GetSetDescriptorType, MethodDescriptorType):
        raise LookupError(check.name)
    definition = _word(id(descriptor) + _DEFINITION)
    if ctypes.string_at(_word(definition)) != check.name.encode():
        raise LookupError(check.name)
    function, argument = _word(definition + 8), 0
    if kind is GetSetDescriptorType:
        argument = _word(definition + 32)
    elif ctypes.c_int.from_address(definition + 16).value != _NO_ARGUMENTS:
        raise LookupError(check.name)
    if not function:
        raise LookupError(check.name)
    words = dict.fromkeys(CheckWord, 0)
    words |= {CheckWord.FUNCTION: function, CheckWord.ARGUMENT: argument, CheckWord.CODES: check.codes}
    words |= {CheckWord.WANTED: id(check.wanted[0]), CheckWord.OTHER: id(check.wanted[-1])}
    if check.ask is not None:
        words |= {CheckWord.ASK: id(check.ask), CheckWord.ANSWER: id(check.answer)}
    return list(words.values())


def _rows(rows: Sequence[Sequence[int]]) -> Array:
    return np.array([word for row in rows for word in row] or [0], np.int64)


def _word(place: int) -> int:
    return int(ctypes.c_int64.from_address(place).value)


def head_words(dtype: DType, shape: Sequence[int]) -> list[int]:
    """Return the words that the block of a new result begins with: a managed tensor, extents and strides in elements."""
    strides = [prod(shape[d + 1 :]) for d in range(len(shape))]
    tensor = [0, 1, len(shape) | element_code(dtype) << 32, 0, 0, 0]  # on the host; addresses are filled in
    return [_MAJOR, 0, 0, 0, *tensor, *shape, *strides]
