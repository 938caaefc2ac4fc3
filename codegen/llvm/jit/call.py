"""Emit the entry from Python to a kernel: one function of CPython's vectorcall convention, once a process.

It knows no kernel. What a call must look like stands in tables that the run time fills (codegen.llvm.jit.call_table): it reads
element type, shape and strides from the structs of NumPy's arrays, and of other libraries' tensors by their exchange API
(call_exchange), compares them with each row, and calls the row's kernel. A call that no row fits is handed on, arguments
untouched, to `slow`; so every check that fails here costs time alone.
"""

from __future__ import annotations

from string import Template

from polyker.codegen.llvm.jit import binding as llvm
from polyker.codegen.llvm.jit.call_exchange import EXCHANGE
from polyker.codegen.llvm.jit.call_guard import GUARD
from polyker.codegen.llvm.jit.call_match import MATCH
from polyker.codegen.llvm.jit.call_run import RUN
from polyker.codegen.llvm.jit.call_scratch import SCRATCH
from polyker.codegen.llvm.jit.call_table import (
    NAMES,
    OUTPUTS,
    POINTERS,
    WARN_ON_WRITE,
    WRITEABLE,
    ApiWord,
    CheckWord,
    ClassWord,
    Objects,
    ParameterKind,
    RecordWord,
    RowWord,
    TableWord,
    WatchWord,
)
from polyker.codegen.llvm.jit.own import own_library
from polyker.record.status import KEPT_SCRATCH_BYTES

CALL = """\
; METH_FASTCALL | METH_KEYWORDS; %self is a tuple whose first item is the array of the table.
define ptr @call(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {
entry:
  %sorted = alloca [$NAMES x ptr]
  %scalars = alloca [$NAMES x i64]
  %pointers = alloca [$POINTERS x ptr]
  %tensors = alloca [$SLOTS x [6 x i64]]
  %classes = alloca [$SLOTS x ptr]
  %holder = call ptr @field(ptr %self, i64 $item)
  %table = call ptr @field(ptr %holder, i64 $data)
  %api = call ptr @pointer(ptr %table, i64 $TableWord_API)
  %count = call i64 @word(ptr %table, i64 $TableWord_COUNT)
  %positional = call i64 @word(ptr %table, i64 $TableWord_POSITIONAL)
  %variable = call ptr @pointer(ptr %table, i64 $TableWord_CONTEXT)
  %free = icmp eq ptr %variable, null
  br i1 %free, label %counted, label %guarded
guarded:
  %valid = call i1 @holds(ptr %table, ptr %api, ptr %variable)
  br i1 %valid, label %counted, label %slow
counted:
  %many = icmp ugt i64 %nargs, %positional
  br i1 %many, label %slow, label %keywords
keywords:
  %plain = icmp eq ptr %kwnames, null
  br i1 %plain, label %bare, label %named
bare:
  %complete = icmp eq i64 %nargs, %count
  br i1 %complete, label %match, label %fill
named:
  %named.at = getelementptr i8, ptr %kwnames, i64 $size
  %named.count = load i64, ptr %named.at
  br label %fill
fill:
  %names = phi i64 [ 0, %bare ], [ %named.count, %named ]
  store [$NAMES x ptr] zeroinitializer, ptr %sorted
  br label %take
take:
  %i = phi i64 [ 0, %fill ], [ %i.next, %took ]
  %i.end = icmp eq i64 %i, %nargs
  br i1 %i.end, label %keyword, label %took
took:
  %argument = call ptr @pointer(ptr %args, i64 %i)
  %argument.at = getelementptr ptr, ptr %sorted, i64 %i
  store ptr %argument, ptr %argument.at
  %i.next = add i64 %i, 1
  br label %take
keyword:
  %j = phi i64 [ 0, %take ], [ %j.next, %out.is ], [ %j.next, %assign ]
  %out = phi ptr [ null, %take ], [ %out.value, %out.is ], [ %out, %assign ]
  %j.end = icmp eq i64 %j, %names
  br i1 %j.end, label %match, label %word
word:
  %key.at = mul i64 %j, 8
  %key.offset = add i64 %key.at, $item
  %key = call ptr @field(ptr %kwnames, i64 %key.offset)
  %value.index = add i64 %nargs, %j
  %value = call ptr @pointer(ptr %args, i64 %value.index)
  %j.next = add i64 %j, 1
  %out.name = call ptr @pointer(ptr %table, i64 $TableWord_OUT)
  %is.out = icmp eq ptr %key, %out.name
  br i1 %is.out, label %out.is, label %search
out.is:
  %none = call ptr @pointer(ptr %table, i64 $TableWord_NONE)
  %is.none = icmp eq ptr %value, %none
  %out.value = select i1 %is.none, ptr null, ptr %value
  br label %keyword
search: ; names of parameters given by position cannot be given again: the search starts behind them
  %p = phi i64 [ %nargs, %word ], [ %p.next, %other ]
  %p.end = icmp eq i64 %p, %count
  br i1 %p.end, label %slow, label %look
look:
  %known.names = call ptr @pointer(ptr %table, i64 $TableWord_NAMES)
  %candidate = call ptr @pointer(ptr %known.names, i64 %p)
  %found = icmp eq ptr %candidate, %key
  br i1 %found, label %assign, label %other
other:
  %p.next = add i64 %p, 1
  br label %search
assign:
  %assign.at = getelementptr ptr, ptr %sorted, i64 %p
  store ptr %value, ptr %assign.at
  br label %keyword
match:
  %arguments = phi ptr [ %args, %bare ], [ %sorted, %keyword ]
  %target = phi ptr [ null, %bare ], [ %out, %keyword ]
  %known = call i64 @word(ptr %table, i64 $TableWord_CLASS_COUNT)
  %of.numpy = icmp eq i64 %known, 0
  br i1 %of.numpy, label %search.rows, label %read
read:
  %codes.read = call i64 @read_tensors(ptr %table, ptr %arguments, ptr %target, ptr %tensors, ptr %classes)
  switch i64 %codes.read, label %search.rows [
    i64 0, label %slow
    i64 -1, label %raised
  ]
raised:
  ret ptr null
search.rows:
  %codes = phi i64 [ 0, %match ], [ %codes.read, %read ]
  %rows = call i64 @word(ptr %table, i64 $TableWord_ROWS)
  br label %try
try:
  %t = phi i64 [ 0, %search.rows ], [ %t.next, %again ]
  %t.end = icmp eq i64 %t, %rows
  br i1 %t.end, label %slow, label %row
row:
  %row.index = add i64 %t, $TableWord_ROW
  %found.row = call ptr @pointer(ptr %table, i64 %row.index)
  %verdict = call i64 @fits(ptr %table, ptr %found.row, ptr %arguments, ptr %target, ptr %pointers, ptr %scalars,
                           ptr %tensors, ptr %classes, i64 %codes)
  switch i64 %verdict, label %slow [
    i64 0, label %again
    i64 1, label %go
  ]
again:
  %t.next = add i64 %t, 1
  br label %try
go:
  %result = call ptr @run(ptr %table, ptr %found.row, ptr %arguments, ptr %target, ptr %pointers, ptr %tensors)
  %handed = icmp eq ptr %result, %table
  br i1 %handed, label %slow, label %done
done:
  ret ptr %result
slow:
  %python = call ptr @pointer(ptr %table, i64 $TableWord_SLOW)
  %vectorcall = call ptr @pointer(ptr %api, i64 $ApiWord_VECTORCALL)
  %handed.result = call ptr %vectorcall(ptr %python, ptr %args, i64 %nargs, ptr %kwnames)
  ret ptr %handed.result
}
"""


def entry_text(triple: str, objects: Objects) -> str:
    """Return the LLVM IR module of the entry, `call`, for objects laid out like that."""
    places = {name: getattr(objects, name) for name in objects.__struct_fields__}
    numbers = {
        f"{words.__name__}_{w.name}": w.value
        for words in (ApiWord, TableWord, RowWord, RecordWord, ParameterKind, ClassWord, WatchWord, CheckWord)
        for w in words
    }
    return Template("\n".join(('target triple = "$triple"', MATCH, GUARD, EXCHANGE, SCRATCH, RUN, CALL))).substitute(
        places,
        **numbers,
        triple=triple,
        record_words=len(RecordWord),
        check_words=len(CheckWord),
        watch_words=len(WatchWord),
        SLOTS=NAMES + OUTPUTS,
        access=WRITEABLE | WARN_ON_WRITE,
        writeable=WRITEABLE,
        NAMES=NAMES,
        KEPT_SCRATCH_BYTES=KEPT_SCRATCH_BYTES,
        OUTPUTS=OUTPUTS,
        POINTERS=POINTERS,
    )


def entry(objects: Objects) -> llvm.LinkedCode:
    """Return the entry's machine code for this machine."""
    # Straight compares and calls: more effort takes ten times as long and saves a few nanoseconds a call.
    return own_library(entry_text(llvm.host_triple(), objects), "call", 0)
