"""The tables that say what a call of a kernel looks like, as the emitted entry reads them (codegen.llvm.jit.call).

A table is an array of 64-bit words: the callable's own (`TableWord`), then the addresses of its rows. A row (`RowWord`) is one
way of calling met before: element type, shape and strides of each array, and the kernel that serves it. The enumerations number
the words.
"""

from __future__ import annotations

from enum import IntEnum, auto

from msgspec import Struct

NAMES, OUTPUTS, POINTERS, ROWS = 16, 8, 64, 16  # most parameters, outputs, pointers a kernel takes, rows of a table
CLASSES = 4  # most classes of tensors that a table knows (chosen)


class _WordOffsets(IntEnum):
    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count


class ApiWord(_WordOffsets):
    """Addresses of the functions of CPython and numpy that the entry calls."""

    VECTORCALL = auto()  # PyObject_Vectorcall
    SAVE_THREAD = auto()  # PyEval_SaveThread
    RESTORE_THREAD = auto()  # PyEval_RestoreThread
    INCREF = auto()  # Py_IncRef
    DECREF = auto()  # Py_DecRef
    AS_DOUBLE = auto()  # PyFloat_AsDouble
    AS_INTEGER = auto()  # PyLong_AsLongLongAndOverflow
    FROM_INTEGER = auto()  # PyLong_FromLongLong
    MALLOC = auto()  # PyMem_RawMalloc
    FREE = auto()  # PyMem_RawFree
    EMPTY = auto()  # PyArray_Empty
    RETURN = auto()  # PyArray_Return
    COPY = auto()  # PyArray_CopyInto
    CLEAR = auto()  # PyErr_Clear
    MATCHES = auto()  # PyErr_ExceptionMatches
    LOOK_UP = auto()  # PyDict_GetItem
    MOVE = auto()  # memmove
    PACK = auto()  # PyTuple_Pack
    CONTEXT = auto()  # PyContextVar_Get
    SPARE = auto()  # the block of scratch memory that is kept (llvm.jit.call_scratch), null while a call has it


class TableWord(_WordOffsets):
    """The table of one callable. Objects are borrowed; the owner of the table keeps them."""

    API = auto()
    SLOW = auto()  # called with the same arguments where no row fits
    FAILED = auto()  # FAILED(plan, status, address of the pointers) raises what a kernel's status means
    ARRAY = auto()  # the types numpy.ndarray, float, int, tuple
    FLOAT = auto()
    INT = auto()
    TUPLE = auto()
    NONE = auto()
    OUT = auto()  # the string "out"
    POSITIONAL = auto()  # parameters that may go by position: the first of NAMES
    COUNT = auto()  # parameters
    NAMES = auto()  # their names, interned strings
    RESULT = auto()  # class that several results are an instance of
    GUARD_COUNT = auto()
    GUARDS = auto()  # items of dicts that have to be as they were for any row to fit (WatchWord)
    CONTEXT = auto()  # a context variable, 0 for none
    CHOSEN = (
        auto()
    )  # what it has to be; None there stands for the item of a dict, which is guarded by the two words that follow
    DEFAULTS = auto()
    DEFAULT_KEY = auto()
    EXCEPTION = auto()  # the class Exception
    CODES = auto()  # what elements tensors of the rows have, as RecordWord.CODES, and one bit more: never 0
    CLASS_COUNT = auto()
    CLASSES = auto()  # addresses of the classes of tensors that rows are for (ClassWord)
    ROWS = auto()
    ROW = auto()  # from here: the rows


class RowWord(_WordOffsets):
    """One way of calling, and the kernel that serves it."""

    PLAN = auto()  # a weak reference to the object that keeps everything of this row alive
    FUNCTION = auto()
    INTEGERS = auto()
    UNLOCK = auto()  # whether the interpreter's lock is released around the kernel
    MARK = auto()  # address of a byte set to 1 by every call
    PASSED = auto()  # inputs passed by pointer; the outputs' pointers follow, then the scratch's
    OUTPUTS = auto()
    MISALIGNED = auto()  # bits that no pointer may have set
    FRESH = auto()  # whether outputs may be new row-major arrays
    TAKES = auto()  # whether outputs may be given
    CLASS = auto()  # the class of the first tensor (ClassWord), 0 where arrays are numpy's
    SCRATCH = auto()  # temporaries
    SCRATCH_BYTES = auto()
    SCRATCH_OFFSETS = auto()
    PARAMETERS = auto()  # a record each
    RESULTS = auto()  # a record each
    BOUNDS = auto()  # bytes around the pointer that each input passed, then each output covers: low, high


class RecordWord(_WordOffsets):
    """One parameter or result."""

    KIND = auto()
    DTYPE = (
        auto()
    )  # array: the dtype object; tensor: DLPack's code, bits, lanes; scalar of numpy: its type; size: its value
    RANK = auto()
    SHAPE = auto()  # extents, then strides, of arrays in bytes, of tensors in elements
    SLOT = auto()  # place among the kernel's pointers; POINTERS - 1 for none
    LOW = auto()  # integers: the least and the greatest value taken
    HIGH = auto()
    EXTRA = auto()  # result: the parameter it starts from, or -1; f32: the bits of the greatest magnitude, as a double
    CODES = (
        auto()
    )  # tensor: a bit for its kind of element (runtime.exchange.libraries); checks say which bits they are for
    BYTES = auto()  # tensor that is a result: of its elements
    HEAD = auto()  # the same: the words that a new one's block of memory begins with, a DLManagedTensorVersioned
    MOVABLE = auto()  # the same: whether it lies as the parameter that it starts from, both dense


class ParameterKind(_WordOffsets):
    """What a parameter has to be."""

    ARRAY = auto()
    TENSOR = auto()  # of another library, with the C exchange API of DLPack
    FLOAT_F64 = auto()  # a Python float for a scalar of f64 or f32
    FLOAT_F32 = auto()
    SCALAR = auto()  # a scalar of numpy of one type, which holds its value as an array does
    INT = auto()  # a Python int for a scalar of integers, of f64 or of f32
    INT_F64 = auto()
    INT_F32 = auto()
    SIZE = auto()  # a Python int of one value
    FIXED = auto()  # the same, or not given
    ABSENT = auto()  # not given


class ClassWord(_WordOffsets):
    """A class of tensors: functions of its library's exchange API, and what has to hold of a tensor before it is read."""

    TYPE = auto()
    VIEW = auto()  # dltensor_from_py_object_no_sync
    MAKE = auto()  # managed_tensor_to_py_object_no_sync; two classes are of one library if theirs is the same
    WRITTEN = auto()  # called with a tuple of the outputs that were written to; 0 for nothing
    WATCH_COUNT = auto()
    WATCHES = auto()
    INPUT_CHECKS = auto()  # how many of the checks are for inputs; the others are for outputs alone
    OUTPUT_CHECKS = auto()
    CHECKS = auto()


class WatchWord(_WordOffsets):
    """An item of a dict that has to be a certain object, such as a mode that is off."""

    DICT = auto()
    KEY = auto()
    VALUE = auto()  # 0: there has to be none


class CheckWord(_WordOffsets):
    """A function of C of a tensor whose result has to be one of two objects; else, one without arguments that allows others."""

    FUNCTION = auto()  # PyObject *function(PyObject *tensor, void *argument)
    ARGUMENT = auto()
    CODES = auto()  # the elements that it is for, as RecordWord.CODES
    WANTED = auto()
    OTHER = auto()
    ASK = auto()  # called where the result is another; 0 for none
    ANSWER = auto()


class Objects(Struct, frozen=True):
    """Byte offsets in CPython's and numpy's objects."""

    type: int = 8
    size: int = 16  # of a variable-size object
    item: int = 24  # a tuple's first
    data: int = 16
    rank: int = 24
    shape: int = 32
    strides: int = 40
    dtype: int = 56
    flags: int = 64
    value: int = 16  # of a scalar of numpy
    referent: int = 16  # what a weak reference is to; None once that is gone


WRITEABLE, WARN_ON_WRITE = 0x400, 1 << 31  # numpy's flags of an array
