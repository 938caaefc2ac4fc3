"""Tables of calls for the emitted entry: each row lets calls like one met before go to the kernel without Python."""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import numpy as np
from msgspec import Struct

from polyker.codegen.llvm.jit.call_table import (
    NAMES,
    OUTPUTS,
    POINTERS,
    ROWS,
    ParameterKind,
    RecordWord,
    RowWord,
    TableWord,
)
from polyker.ir.promotion import integer_range
from polyker.record.records import Signature, TensorRecord
from polyker.record.work import exceeds
from polyker.runtime.arrays import NUMBERS
from polyker.runtime.calls import CallPlan, told
from polyker.runtime.entry.dispatch import MISSING
from polyker.runtime.entry.native import Native, native
from polyker.runtime.kinds import Array
from polyker.runtime.memory import address

# Operations from which on a kernel lets other threads run: 10 to 30 microseconds of work, against the 0.05 that giving the
# interpreter's lock away and taking it back cost.
UNLOCK_OPERATIONS = 300_000
_OUT = sys.intern("out")
_EXACT = 1 << 53  # integers up to it are doubles
_NO_SLOT = POINTERS - 1  # of a row's pointers: the last, which no kernel has


def failed(plan: CallPlan, status: int, pointers: int) -> None:
    """Raise what a kernel's status means; `pointers`: where those to the arguments lie."""
    count = len(plan.executable.record.arguments)
    raise told(plan, status, [p or 0 for p in (ctypes.c_void_p * count).from_address(pointers)] if count else [])


class _TableRow(NamedTuple):
    """A row: its plan, the types of the arguments that it is for, its words, and the objects that these point to."""

    plan: ReferenceType[CallPlan]
    kinds: tuple[type, ...]
    words: Array
    objects: tuple[object, ...]


class Callee(Struct, frozen=True):
    """What a table's callable stands for: a program; `fixed`: sizes with one value, that need not be given.

    `slow` is called where no row fits; without it the callable returns MISSING. `result`: the class of several results.
    """

    signature: Signature
    fixed: Mapping[str, int]
    slow: Callable[..., Any] | None
    result: Callable[..., Any] | None


class CallTable:
    """The table of one callable, and what it points to. It keeps no plan alive: a row whose plan is gone fits nothing.

    The emitted entry reads it while this changes it, between any two bytecodes, and a signal handler may end any function here
    half-way. So what the table's words point to is kept, in `kept_rows`, before they do and until they do no more; and
    a plan keeps its own rows, for calls that go on while theirs is replaced.

    What may be given: the program's parameters, which may go by position, then its other sizes; those that are its inputs are
    tensors.
    """

    __slots__ = (
        "__weakref__",
        "_fixed",
        "_inputs",
        "_kept",
        "_lock",
        "_names",
        "_next",
        "kept_rows",
        "words",
    )  # fmt: skip

    def __init__(self, api: Array, callee: Callee) -> None:
        signature, slow, result = callee.signature, callee.slow, callee.result
        self._names = tuple(map(sys.intern, dict.fromkeys((*signature.parameters, *signature.sizes))))
        self._fixed = callee.fixed
        self._inputs = {name: i for i, name in enumerate(signature.inputs)}
        identities = np.array([*map(id, self._names)], np.int64)
        self._kept = (api, slow, result, identities)
        self._lock = threading.Lock()
        self.kept_rows: list[list[_TableRow]] = []  # by place in the table; it points to one of each
        self._next = 0
        words = np.zeros(len(TableWord) - 1 + ROWS, np.int64)
        words[TableWord.API] = address(api)
        words[TableWord.SLOW] = 0 if slow is None else id(slow)
        words[TableWord.MISSING] = id(MISSING)
        words[TableWord.FAILED] = id(failed)
        words[TableWord.ARRAY], words[TableWord.FLOAT], words[TableWord.INT] = id(np.ndarray), id(float), id(int)
        words[TableWord.TUPLE] = id(tuple)
        words[TableWord.NONE], words[TableWord.OUT] = id(None), id(_OUT)
        words[TableWord.POSITIONAL], words[TableWord.COUNT] = len(signature.parameters), len(self._names)
        words[TableWord.NAMES] = address(identities)
        words[TableWord.RESULT] = 0 if result is None else id(result)
        self.words = words

    def callable(self, made: Native) -> Callable[..., Any]:
        """Return the callable; it keeps this table, which does not keep it."""
        return made.make((self.words, self))

    def add(self, plan: CallPlan, inputs: Sequence[Any], sizes: Mapping[str, int]) -> bool:
        """Let calls like one with these inputs and sizes go straight to the plan's kernel; return whether they do now."""
        if len(self._names) > NAMES:
            return False
        # Nobody waits for it: it may be held by this very thread, below a signal handler or a finalizer that calls the kernel,
        # or, in a child of a fork, by a thread that is not there.
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._added(plan, inputs, sizes)
        finally:
            self._lock.release()

    def _added(self, plan: CallPlan, inputs: Sequence[Any], sizes: Mapping[str, int]) -> bool:
        kinds = tuple(map(type, inputs))  # a number may come as a float, as one of numpy's, or as an array
        if any(row.plan() is plan and row.kinds == kinds for row in self.rows):
            return True
        key = kinds, self._names, tuple(self._fixed.items()), tuple(sizes.items())
        row = plan.rows.get(key)
        if row is None:
            weak = ref(plan)
            made = self._row(plan, weak, inputs, sizes) if len(plan.rows) < ROWS else None
            if made is None:
                return False
            row = plan.rows[key] = _TableRow(weak, kinds, *made)
        self._put(row)
        return True

    @property
    def rows(self) -> list[_TableRow]:
        """The rows that the table points to."""
        at = (int(self.words[TableWord.ROW + k]) for k in range(int(self.words[TableWord.ROWS])))
        return [
            next(row for row in kept if address(row.words) == place)
            for place, kept in zip(at, self.kept_rows, strict=False)
        ]

    def _put(self, row: _TableRow) -> None:
        """Let the table point to a row: in place of one whose plan is gone, else behind the others, else of the oldest."""
        rows = self.rows
        k = next((k for k, old in enumerate(rows) if old.plan() is None), len(rows))
        if k == ROWS:
            k = self._next
            self._next = (k + 1) % ROWS
        if k == len(self.kept_rows):
            self.kept_rows.append([])
        self.kept_rows[k].append(row)
        self.words[TableWord.ROW + k] = address(row.words)
        self.words[TableWord.ROWS] = max(k + 1, len(rows))
        del self.kept_rows[k][:-1]

    def _row(
        self, plan: CallPlan, weak: ReferenceType[CallPlan], inputs: Sequence[Any], sizes: Mapping[str, int]
    ) -> tuple[Array, tuple[object, ...]] | None:
        """Return the words of a row, and the objects that they point to; None where the entry knows no such call."""
        call = plan.executable.record.call
        block = _RowBlock(len(RowWord))
        parameters = []
        objects: list[object] = [plan.results]
        for name in self._names:
            place = self._inputs.get(name)
            if place is None:
                found: dict[RecordWord, int] = {RecordWord.KIND: ParameterKind.ABSENT}
                if name in self._fixed:
                    found = {RecordWord.KIND: ParameterKind.FIXED, RecordWord.DTYPE: self._fixed[name]}
                elif name in sizes:
                    found = {RecordWord.KIND: ParameterKind.SIZE, RecordWord.DTYPE: sizes[name]}
            else:
                slot = plan.inputs.index(place) if place in plan.inputs else _NO_SLOT
                value = inputs[place]
                tensor = call.tensor(call.inputs[place])
                if type(value) is np.ndarray:
                    if tensor.limits is not None:
                        return None
                    objects.append(value.dtype)
                    found = {RecordWord.KIND: ParameterKind.ARRAY, RecordWord.SLOT: slot} | block.array(
                        value.dtype, value.shape, value.strides
                    )
                else:
                    scalar = _scalar(type(value), tensor)
                    if scalar is None or slot == _NO_SLOT:
                        return None
                    found = scalar | {RecordWord.SLOT: slot}
            parameters.append(found)
        starts = dict(plan.copies)
        results = []
        for k, ((shape, dtype), strides) in enumerate(zip(plan.results, plan.strides, strict=True)):
            origin = -1
            if k in starts:
                label = next(name for name, i in self._inputs.items() if i == starts[k])
                origin = self._names.index(label)
            results.append(block.array(dtype, shape, strides) | {RecordWord.EXTRA: origin})
        if len(results) > OUTPUTS or len(plan.inputs) + len(results) + len(plan.scratch) >= _NO_SLOT:
            return None
        fresh = all(0 in n or _row_major(n, d) == s for (n, d), s in zip(plan.results, plan.strides, strict=True))
        numbers = {
            RowWord.PLAN: id(weak),
            RowWord.FUNCTION: plan.executable.address,
            RowWord.INTEGERS: ctypes.addressof(plan.integers),
            RowWord.UNLOCK: int(_is_long(plan)),
            RowWord.MARK: plan.mark.address,
            RowWord.PASSED: len(plan.inputs),
            RowWord.OUTPUTS: len(results),
            RowWord.MISALIGNED: plan.misaligned,
            RowWord.FRESH: int(fresh),
            # Of several that start from arguments one could lie on another's argument, and be filled before that is read.
            RowWord.TAKES: int(len(starts) <= 1),
            RowWord.SCRATCH: len(plan.scratch),
            RowWord.SCRATCH_BYTES: plan.scratch_size,
        }
        pointers = {
            RowWord.SCRATCH_OFFSETS: block.put(plan.scratch),
            RowWord.PARAMETERS: block.records(parameters),
            RowWord.RESULTS: block.records(results),
            RowWord.BOUNDS: block.put([end for pair in plan.bounds for end in pair]),
        }
        return block.finished(numbers, pointers), tuple(objects)


def adopted(
    table: CallTable | None, callee: Callee, plan: CallPlan, inputs: Sequence[Any], sizes: Mapping[str, int]
) -> tuple[CallTable, Callable[..., Any]] | None:
    """Add a row to `table`, or to a new one, which is returned with its callable; None where nothing new came of it.

    Kernels on a GPU have no address that could be called.
    """
    made = native()
    if not isinstance(made, Native) or not plan.executable.address:
        return None
    if table is not None:
        table.add(plan, inputs, sizes)
        return None
    table = CallTable(made.api, callee)
    return (table, table.callable(made)) if table.add(plan, inputs, sizes) else None


class _RowBlock:
    """A row and all that it points to in one array, addresses filled in when it is complete."""

    def __init__(self, head: int) -> None:
        self._words: list[int] = [0] * head
        self._addresses: list[int] = []  # words that hold a place in this array

    def put(self, words: Sequence[int]) -> int:
        """Append words and return their place."""
        self._words += words
        return len(self._words) - len(words)

    def array(self, dtype: np.dtype[Any], shape: Sequence[int], strides: Sequence[int]) -> dict[RecordWord, int]:
        """Return the words of a record for arrays like that."""
        place = self.put([*shape, *strides])
        return {RecordWord.DTYPE: id(dtype), RecordWord.RANK: len(shape), RecordWord.SHAPE: place}

    def records(self, records: Sequence[Mapping[RecordWord, int]]) -> int:
        """Append records and return their place."""
        place = len(self._words)
        for record in records:
            self._words += [record.get(word, 0) for word in RecordWord]
            self._addresses.append(len(self._words) - len(RecordWord) + RecordWord.SHAPE)
        return place

    def finished(self, numbers: Mapping[RowWord, int], pointers: Mapping[RowWord, int]) -> Array:
        """Return the row, its head filled in."""
        for word, value in (numbers | pointers).items():  # type: ignore[operator]
            self._words[word] = value
        array = np.array(self._words, np.int64)
        array[[*self._addresses, *pointers]] = address(array) + 8 * array[[*self._addresses, *pointers]]
        return array


def _scalar(given: type, tensor: TensorRecord) -> dict[RecordWord, int] | None:
    """Return the words of a record for numbers of a type that are given for `tensor`; None for those left out."""
    dtype = tensor.dtype
    if given in NUMBERS and given is dtype.numpy.type and tensor.limits is None:
        return {RecordWord.KIND: ParameterKind.SCALAR, RecordWord.DTYPE: id(given)}
    if given is float and dtype.name == "f64":
        return {RecordWord.KIND: ParameterKind.FLOAT_F64}
    if given is float and dtype.name == "f32":
        (limit,) = struct.unpack("<q", struct.pack("<d", float(np.finfo(np.float32).max)))
        return {RecordWord.KIND: ParameterKind.FLOAT_F32, RecordWord.EXTRA: limit}
    if given is int and dtype.name in ("f64", "f32"):
        kind = ParameterKind.INT_F64 if dtype.name == "f64" else ParameterKind.INT_F32
        return {RecordWord.KIND: kind, RecordWord.LOW: -_EXACT, RecordWord.HIGH: _EXACT}
    if given is int and dtype.is_integer:
        low, high = tensor.limits or integer_range(dtype)
        return {
            RecordWord.KIND: ParameterKind.INT,
            RecordWord.LOW: max(low, -(1 << 63)),
            RecordWord.HIGH: min(high, (1 << 63) - 1),
        }
    return None


def _row_major(shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return the strides that numpy gives a new array that has elements."""
    strides, step = [], dtype.itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _is_long(plan: CallPlan) -> bool:
    """Whether the interpreter's lock is given away: no thread waits for others with it."""
    record = plan.executable.record
    sizes = {i.name: v for i, v in zip(record.integers, plan.integers, strict=False) if i.dimension is None}
    return record.parallel or exceeds(record.work, sizes, UNLOCK_OPERATIONS)
