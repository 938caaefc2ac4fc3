"""Tables of calls for the emitted entry: each row lets calls like one met before go to the kernel without Python."""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import numpy as np
from msgspec import Struct

from polyker.codegen.llvm.jit.call_table import (
    CLASSES,
    NAMES,
    OUTPUTS,
    POINTERS,
    ROWS,
    ParameterKind,
    RecordWord,
    RowWord,
    TableWord,
)
from polyker.errors.tracebacks import api_boundary
from polyker.ir.dtypes import from_numpy
from polyker.ir.promotion import integer_range
from polyker.options import Guards, Options
from polyker.record.records import Signature, TensorRecord
from polyker.record.work import exceeds
from polyker.runtime.arrays import NUMBERS, operand
from polyker.runtime.calls import CallPlan, told
from polyker.runtime.dlpack import dense, element_code
from polyker.runtime.entry.native import Native, native
from polyker.runtime.exchange.classes import ExchangeClass, exchange_class, head_words
from polyker.runtime.exchange.libraries import exchange_code
from polyker.runtime.kinds import Array
from polyker.runtime.memory import address

# Operations from which on a kernel lets other threads run: 10 to 30 microseconds of work, against the 0.05 that giving the
# interpreter's lock away and taking it back cost.
UNLOCK_OPERATIONS = 300_000
_OUT = sys.intern("out")
_ANY_CODE = 1 << 62  # set in every table's codes, so that they are not 0
# Bytes of new results up to which they are made by the entry for libraries that are not NumPy. Memory for more comes from
# NumPy, which requests huge pages; the way through Python, some microseconds, is less than the kernel's time.
_MAX_FRESH = 1 << 20
_EXACT = 1 << 53  # integers up to it are doubles
_NO_SLOT = POINTERS - 1  # of a row's pointers: the last, which no kernel has


@api_boundary
def failed(plan: CallPlan, status: int, pointers: int) -> None:
    """Raise what a kernel's status means; `pointers`: where those to the arguments lie."""
    count = len(plan.executable.record.arguments)
    raise told(plan, status, [p or 0 for p in (ctypes.c_void_p * count).from_address(pointers)] if count else [])


class _TableRow(NamedTuple):
    """A row: its plan, what kinds of arguments it is for, its words, the objects that these point to, and the bits of its
    tensors' elements."""

    plan: ReferenceType[CallPlan]
    kinds: tuple[object, ...]
    words: Array
    objects: tuple[object, ...]
    codes: int


class Callee(Struct, frozen=True):
    """What a table's callable stands for: a program; `fixed`: sizes with one value, that need not be given.

    `slow` is called where no row fits. `result`: the class of several results. `guards`: what has to be for any row to fit,
    and `chosen` the options that have to be in force.
    """

    signature: Signature
    fixed: Mapping[str, int]
    slow: Callable[..., Any]
    result: Callable[..., Any] | None
    guards: Guards | None = None
    chosen: Options | None = None


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
        "_chosen",
        "_class_words",
        "_classes",
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
        self._kept: tuple[object, ...] = (api, slow, result, identities)
        self._lock = threading.Lock()
        self.kept_rows: list[list[_TableRow]] = []  # by place in the table; it points to one of each
        self._next = 0
        self._class_words, self._classes = np.zeros(CLASSES, np.int64), dict[type, ExchangeClass]()
        words = np.zeros(len(TableWord) - 1 + ROWS, np.int64)
        words[TableWord.API] = address(api)
        words[TableWord.SLOW] = id(slow)
        words[TableWord.FAILED] = id(failed)
        words[TableWord.ARRAY], words[TableWord.FLOAT], words[TableWord.INT] = id(np.ndarray), id(float), id(int)
        words[TableWord.TUPLE] = id(tuple)
        words[TableWord.NONE], words[TableWord.OUT] = id(None), id(_OUT)
        words[TableWord.POSITIONAL], words[TableWord.COUNT] = len(signature.parameters), len(self._names)
        words[TableWord.NAMES] = address(identities)
        words[TableWord.RESULT] = 0 if result is None else id(result)
        self._chosen = callee.chosen
        if callee.guards is not None:
            found = [
                word
                for where, key, what in callee.guards.items
                for word in (id(where), id(key), id(what) if what else 0)
            ]
            rows = np.array(found, np.int64)
            self._kept += (callee.guards, rows)
            words[TableWord.GUARD_COUNT], words[TableWord.GUARDS] = len(callee.guards.items), address(rows)
            words[TableWord.CONTEXT], words[TableWord.CHOSEN] = id(callee.guards.variable), id(callee.chosen)
            words[TableWord.DEFAULTS], words[TableWord.DEFAULT_KEY] = id(callee.guards.defaults), id(callee.guards.key)
        words[TableWord.EXCEPTION], words[TableWord.CODES] = id(Exception), _ANY_CODE
        words[TableWord.CLASSES] = address(self._class_words)
        self.words = words

    def callable(self, made: Native) -> Callable[..., Any]:
        """Return the callable; it keeps this table, which does not keep it."""
        return made.make((self.words, self))

    def choose(self, chosen: Options) -> None:
        """Let the table hold for these options, which are equal to those that it was made for."""
        before = self._chosen
        self._chosen = chosen  # kept before the table points to it
        self.words[TableWord.CHOSEN] = id(chosen)
        del before

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
        # A number may come as a float, as one of numpy's, or as an array; a tensor of one class of its library as of another.
        found = [None if type(v) is np.ndarray else exchange_class(type(v)) for v in inputs]
        kinds = tuple(type(v) if c is None else c.make for v, c in zip(inputs, found, strict=True))
        if not all(self._know(type(v), c) for v, c in zip(inputs, found, strict=True) if c is not None):
            return False
        if any(row.plan() is plan and row.kinds == kinds for row in self.rows):
            return True
        # Of another class's row the words might go before a call through this table has ended.
        library = next((id(c) for c in found if c is not None), 0)
        key = kinds, library, self._names, tuple(self._fixed.items()), tuple(sizes.items())
        row = plan.rows.get(key)
        if row is None:
            weak = ref(plan)
            made = self._row(plan, weak, inputs, sizes) if len(plan.rows) < ROWS else None
            if made is None:
                return False
            row = plan.rows[key] = _TableRow(weak, kinds, *made)
        # Before the row: it fits tensors alone that were checked for its elements.
        self.words[TableWord.CODES] |= row.codes
        self._put(row)
        return True

    def _know(self, cls: type, found: ExchangeClass) -> bool:
        """Let the table know a class of tensors, and those that may come in its place; return whether it does now."""
        for each in found.classes or (cls,):
            words = exchange_class(each)
            if words is None or each in self._classes:
                continue
            place = len(self._classes)
            if place == CLASSES:
                return False
            self._classes[each] = words  # kept, before the table points to it and as long as the table is
            self._class_words[place] = address(words.words)
            self.words[TableWord.CLASS_COUNT] = place + 1
        return cls in self._classes

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
    ) -> tuple[Array, tuple[object, ...], int] | None:
        """Return the words of a row, the objects that they point to and the bits of its tensors' elements; None where the
        entry knows no such call."""
        call = plan.executable.record.call
        block = _RowBlock(len(RowWord))
        parameters = []
        tensors = {place: c for place, v in enumerate(inputs) if (c := exchange_class(type(v))) is not None}
        library = next(iter(tensors.values()), None)
        objects: list[object] = [plan.results, library]
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
                elif place in tensors:
                    record = None if tensor.limits is not None else block.tensor(value, tensors[place])
                    if record is None:
                        return None
                    found = record | {RecordWord.SLOT: slot}
                else:
                    scalar = _scalar(type(value), tensor)
                    if scalar is None or slot == _NO_SLOT:
                        return None
                    found = scalar | {RecordWord.SLOT: slot}
            parameters.append(found)
        results = self._results(block, plan, inputs, library)
        starts = [k for k, _ in plan.copies]
        if len(results) > OUTPUTS or len(plan.inputs) + len(results) + len(plan.scratch) >= _NO_SLOT:
            return None
        fresh = all(0 in n or _row_major(n, d) == s for (n, d), s in zip(plan.results, plan.strides, strict=True))
        if library is not None:
            fresh = fresh and sum(record[RecordWord.BYTES] for record in results) <= _MAX_FRESH
            fresh = fresh and all(results[k][RecordWord.MOVABLE] for k in starts)
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
            RowWord.TAKES: int(len(starts) <= 1 and (library is None or library.may_write)),
            RowWord.CLASS: 0 if library is None else address(library.words),
            RowWord.SCRATCH: len(plan.scratch),
            RowWord.SCRATCH_BYTES: plan.scratch_size,
        }
        pointers = {
            RowWord.SCRATCH_OFFSETS: block.put(plan.scratch),
            RowWord.PARAMETERS: block.records(parameters),
            RowWord.RESULTS: block.records(results),
            RowWord.BOUNDS: block.put([end for pair in plan.bounds for end in pair]),
        }
        codes = 0
        for record in (*parameters, *results):
            codes |= record.get(RecordWord.CODES, 0)
        return block.finished(numbers, pointers), tuple(objects), codes

    def _results(
        self, block: _RowBlock, plan: CallPlan, inputs: Sequence[Any], library: ExchangeClass | None
    ) -> list[dict[RecordWord, int]]:
        """Return the words of the records of the outputs."""
        starts = dict(plan.copies)
        results = []
        for k, ((shape, dtype), strides) in enumerate(zip(plan.results, plan.strides, strict=True)):
            origin = -1
            if k in starts:
                label = next(name for name, i in self._inputs.items() if i == starts[k])
                origin = self._names.index(label)
            if library is None:
                record = block.array(dtype, shape, strides)
            else:
                record = block.result(dtype, shape, strides)
                start = None if k not in starts else operand(inputs[starts[k]], "").array
                lies_so = start is not None and strides == dense(shape, dtype.itemsize) == start.strides
                record[RecordWord.MOVABLE] = int(lies_so)
            results.append(record | {RecordWord.EXTRA: origin})
        return results


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

    def tensor(self, value: object, found: ExchangeClass) -> dict[RecordWord, int] | None:
        """Return the words of a record for tensors like that; None where its API does not say what Python reads of it."""
        try:
            memory, view = found.memory(value), operand(value, "").array
        except Exception:  # it has no such memory; the slow path says why
            return None
        idle = [d for d, extent in enumerate(view.shape) if extent <= 1]
        steps, wanted = ([0 if d in idle else s for d, s in enumerate(a.strides)] for a in (memory, view))
        dtype = from_numpy(view.dtype)
        if dtype is None or (memory.dtype, memory.shape, steps) != (dtype, view.shape, wanted):
            return None
        if not view.size or memory.address != address(view):
            return None
        return self._exchanged(view.dtype, view.shape, memory.strides)

    def result(self, dtype: np.dtype[Any], shape: Sequence[int], strides: Sequence[int]) -> dict[RecordWord, int]:
        """Return the words of a record for tensors that are results."""
        element = from_numpy(dtype)
        assert element is not None
        head = self.put(head_words(element, shape))
        size = prod(shape) * dtype.itemsize
        return self._exchanged(dtype, shape, strides) | {RecordWord.BYTES: size, RecordWord.HEAD: head}

    def _exchanged(self, dtype: np.dtype[Any], shape: Sequence[int], strides: Sequence[int]) -> dict[RecordWord, int]:
        element = from_numpy(dtype)
        assert element is not None
        code, place = element_code(element), self.put([*shape, *(s // dtype.itemsize for s in strides)])
        words = {RecordWord.KIND: ParameterKind.TENSOR, RecordWord.DTYPE: code, RecordWord.CODES: exchange_code(code)}
        return words | {RecordWord.RANK: len(shape), RecordWord.SHAPE: place}

    def records(self, records: Sequence[Mapping[RecordWord, int]]) -> int:
        """Append records and return their place."""
        place = len(self._words)
        for record in records:
            self._words += [record.get(word, 0) for word in RecordWord]
            begin = len(self._words) - len(RecordWord)
            self._addresses += [begin + word for word in (RecordWord.SHAPE, RecordWord.HEAD)]
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
