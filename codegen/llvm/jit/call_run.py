"""The part of the emitted entry that runs a kernel: new results, scratch memory, the interpreter's lock, errors. LLVM IR.

Any call into CPython or numpy may give the interpreter's lock away; another thread then calls the same kernel, replaces
the row in the table, and drops the plan. So what is used after such a call is held before the first one:

| call | gives the lock away | used afterwards |
| --- | --- | --- |
| PyArray_Empty | where memory or an error's object is allocated | row, records, arguments |
| PyArray_CopyInto | in large copies, and where a conversion calls | row, addresses, arguments |
| PyMem_RawMalloc | no | row |
| the kernel | where the row says so, by PyEval_SaveThread | guards of the plan, results, table |
| the library that makes tensors of new results | as it likes | results, table, class |
| what is told of an `out` that was written to | yes: it runs Python | results, table |
| PyArray_Return, the class of results, FAILED, Py_DecRef | yes: they run Python | results, table |

The plan is held from the first line until its kernel has run, and it keeps its rows (runtime.entry.tables). Whoever calls a
function holds its arguments, `out`, and the callable with its table, which never gets another one. New results are this
function's own. Between the look for a row and the first line here nothing of this kind is called: numbers that are read are
of exact types (call_match), and tensors are read before (call_exchange). A table keeps the classes that it has known.
"""

RUN = """\
; Drop the references in %objects; those not there are null.
define internal void @release(ptr %api, ptr %objects, i64 %count) {
entry:
  %decref = call ptr @pointer(ptr %api, i64 $ApiWord_DECREF)
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %end = icmp eq i64 %k, %count
  br i1 %end, label %done, label %body
body:
  %object = call ptr @pointer(ptr %objects, i64 %k)
  call void %decref(ptr %object)
  %next = add i64 %k, 1
  br label %loop
done:
  ret void
}

; Run a row that fits. Returns a new reference, null with an error set, or %table to leave the call to the slow path.
define internal ptr @run(ptr %table, ptr %row, ptr %arguments, ptr %out, ptr %pointers, ptr %tensors) {
entry:
  %fresh = alloca [$OUTPUTS x ptr]
  %blocks = alloca [$OUTPUTS x ptr] ; of new tensors, until they are the library's
  %report = alloca [3 x ptr]
  store [$OUTPUTS x ptr] zeroinitializer, ptr %fresh
  store [$OUTPUTS x ptr] zeroinitializer, ptr %blocks
  %api = call ptr @pointer(ptr %table, i64 $TableWord_API)
  %incref = call ptr @pointer(ptr %api, i64 $ApiWord_INCREF)
  %decref = call ptr @pointer(ptr %api, i64 $ApiWord_DECREF)
  %vectorcall = call ptr @pointer(ptr %api, i64 $ApiWord_VECTORCALL)
  %weak = call ptr @pointer(ptr %row, i64 $RowWord_PLAN)
  %plan = call ptr @field(ptr %weak, i64 $referent)
  call void %incref(ptr %plan)
  %passed = call i64 @word(ptr %row, i64 $RowWord_PASSED)
  %count = call i64 @word(ptr %row, i64 $RowWord_OUTPUTS)
  %results = call ptr @pointer(ptr %row, i64 $RowWord_RESULTS)
  %library = call ptr @pointer(ptr %row, i64 $RowWord_CLASS)
  %of.numpy = icmp eq ptr %library, null
  %behind = getelementptr ptr, ptr %pointers, i64 %passed
  %given = icmp ne ptr %out, null
  %owned = select i1 %given, i64 0, i64 %count
  br label %make
make:
  %k = phi i64 [ 0, %entry ], [ %k.next, %made ]
  %all = icmp eq i64 %k, %owned
  br i1 %all, label %copies, label %new
new:
  %at = mul i64 %k, $record_words
  %record = getelementptr i64, ptr %results, i64 %at
  br i1 %of.numpy, label %new.array, label %new.tensor
new.tensor:
  %new.block = call ptr @new_block(ptr %api, ptr %record)
  %block.at = getelementptr ptr, ptr %blocks, i64 %k
  store ptr %new.block, ptr %block.at
  %got = icmp ne ptr %new.block, null
  br i1 %got, label %made.tensor, label %hand_on
made.tensor:
  %elements = call ptr @pointer(ptr %new.block, i64 4)
  br label %made
new.array:
  %dtype = call ptr @pointer(ptr %record, i64 $RecordWord_DTYPE)
  %rank = call i64 @word(ptr %record, i64 $RecordWord_RANK)
  %rank.short = trunc i64 %rank to i32
  %shape = call ptr @pointer(ptr %record, i64 $RecordWord_SHAPE)
  call void %incref(ptr %dtype) ; PyArray_Empty takes this reference
  %empty = call ptr @pointer(ptr %api, i64 $ApiWord_EMPTY)
  %array = call ptr %empty(i32 %rank.short, ptr %shape, ptr %dtype, i32 0)
  %array.at = getelementptr ptr, ptr %fresh, i64 %k
  store ptr %array, ptr %array.at
  %there = icmp ne ptr %array, null
  br i1 %there, label %made.array, label %undone
made.array:
  %elements.array = call ptr @field(ptr %array, i64 $data)
  br label %made
made:
  %data = phi ptr [ %elements, %made.tensor ], [ %elements.array, %made.array ]
  %data.at = getelementptr ptr, ptr %behind, i64 %k
  store ptr %data, ptr %data.at
  %k.next = add i64 %k, 1
  br label %make
copies:
  %c = phi i64 [ 0, %make ], [ %c.next, %copied ]
  %c.all = icmp eq i64 %c, %count
  br i1 %c.all, label %lend, label %origin
origin:
  %c.at = mul i64 %c, $record_words
  %c.record = getelementptr i64, ptr %results, i64 %c.at
  %source = call i64 @word(ptr %c.record, i64 $RecordWord_EXTRA)
  %inout = icmp sge i64 %source, 0
  br i1 %inout, label %copy, label %copied
copy:
  br i1 %of.numpy, label %copy.array, label %copy.tensor
copy.tensor:
  %tensor = getelementptr [6 x i64], ptr %tensors, i64 %source
  %tensor.start = call i64 @start_of(ptr %tensor)
  %place.at = getelementptr i64, ptr %behind, i64 %c
  %place.start = load i64, ptr %place.at
  %is.same = icmp eq i64 %tensor.start, %place.start
  br i1 %is.same, label %copied, label %move
move:
  %movable = call i64 @word(ptr %c.record, i64 $RecordWord_MOVABLE)
  %may.move = icmp ne i64 %movable, 0
  br i1 %may.move, label %moved, label %hand_on
moved:
  %c.bytes = call i64 @word(ptr %c.record, i64 $RecordWord_BYTES)
  %memmove = call ptr @pointer(ptr %api, i64 $ApiWord_MOVE)
  %ignored = call ptr %memmove(i64 %place.start, i64 %tensor.start, i64 %c.bytes)
  br label %copied
copy.array:
  %from = call ptr @pointer(ptr %arguments, i64 %source)
  %own = call ptr @pointer(ptr %fresh, i64 %c)
  br i1 %given, label %theirs.copy, label %chosen
theirs.copy:
  %given.one = call ptr @item(ptr %out, i64 %count, i64 %c)
  br label %chosen
chosen:
  %into = phi ptr [ %own, %copy.array ], [ %given.one, %theirs.copy ]
  %itself = icmp eq ptr %from, %into
  br i1 %itself, label %copied, label %transfer
transfer:
  %copy_into = call ptr @pointer(ptr %api, i64 $ApiWord_COPY)
  %failed = call i32 %copy_into(ptr %into, ptr %from)
  %well = icmp eq i32 %failed, 0
  br i1 %well, label %copied, label %undone
copied:
  %c.next = add i64 %c, 1
  br label %copies
lend:
  %temporaries = call i64 @word(ptr %row, i64 $RowWord_SCRATCH)
  %none = icmp eq i64 %temporaries, 0
  br i1 %none, label %start, label %allocate
allocate:
  %bytes = call i64 @word(ptr %row, i64 $RowWord_SCRATCH_BYTES)
  %padded = add i64 %bytes, 72
  %memory = call ptr @lend(ptr %api, i64 %padded)
  %lent = icmp ne ptr %memory, null
  br i1 %lent, label %align, label %hand_on
align:
  %memory.at = ptrtoint ptr %memory to i64
  %rounded = add i64 %memory.at, 71
  %first = and i64 %rounded, -64
  %offsets = call ptr @pointer(ptr %row, i64 $RowWord_SCRATCH_OFFSETS)
  %scratch = getelementptr ptr, ptr %behind, i64 %count
  br label %place
place:
  %s = phi i64 [ 0, %align ], [ %s.next, %place ]
  %offset = call i64 @word(ptr %offsets, i64 %s)
  %address = add i64 %first, %offset
  %address.at = getelementptr i64, ptr %scratch, i64 %s
  store i64 %address, ptr %address.at
  %s.next = add i64 %s, 1
  %s.all = icmp eq i64 %s.next, %temporaries
  br i1 %s.all, label %start, label %place
start:
  %block = phi ptr [ null, %lend ], [ %memory, %place ]
  %mark = call ptr @pointer(ptr %row, i64 $RowWord_MARK)
  store i8 1, ptr %mark
  %function = call ptr @pointer(ptr %row, i64 $RowWord_FUNCTION)
  %integers = call ptr @pointer(ptr %row, i64 $RowWord_INTEGERS)
  %unlock = call i64 @word(ptr %row, i64 $RowWord_UNLOCK)
  %locked = icmp eq i64 %unlock, 0
  br i1 %locked, label %short, label %long
short:
  %status.short = call i64 %function(ptr %pointers, ptr %integers)
  br label %ran
long:
  %save = call ptr @pointer(ptr %api, i64 $ApiWord_SAVE_THREAD)
  %restore = call ptr @pointer(ptr %api, i64 $ApiWord_RESTORE_THREAD)
  %thread = call ptr %save()
  %status.long = call i64 %function(ptr %pointers, ptr %integers)
  call void %restore(ptr %thread)
  br label %ran
ran:
  %status = phi i64 [ %status.short, %short ], [ %status.long, %long ]
  %lender = icmp ne ptr %block, null
  br i1 %lender, label %return_block, label %judge
return_block:
  call void @take_back(ptr %api, ptr %block)
  br label %judge
judge:
  %success = icmp eq i64 %status, 0
  br i1 %success, label %finish, label %fail
finish:
  call void %decref(ptr %plan)
  br i1 %given, label %theirs, label %mine
mine:
  br i1 %of.numpy, label %scalars, label %wrap
wrap: ; a block becomes a tensor of the library, whatever its number of dimensions
  %w = phi i64 [ 0, %mine ], [ %w.next, %wrapped ]
  %w.all = icmp eq i64 %w, %count
  br i1 %w.all, label %deliver, label %convert
convert:
  %w.block.at = getelementptr ptr, ptr %blocks, i64 %w
  %w.block = load ptr, ptr %w.block.at
  store ptr null, ptr %w.block.at ; the library's from now on, also where it fails
  %make.tensor = call ptr @pointer(ptr %library, i64 $ClassWord_MAKE)
  %w.at = getelementptr ptr, ptr %fresh, i64 %w
  %unmade = call i32 %make.tensor(ptr %w.block, ptr %w.at)
  %is.made = icmp eq i32 %unmade, 0
  br i1 %is.made, label %wrapped, label %unwrapped.tensor
unwrapped.tensor:
  store ptr null, ptr %w.at
  br label %error
wrapped:
  %w.next = add i64 %w, 1
  br label %wrap
theirs:
  br i1 %of.numpy, label %give.back, label %tell
tell:
  %written = call ptr @pointer(ptr %library, i64 $ClassWord_WRITTEN)
  %silent = icmp eq ptr %written, null
  br i1 %silent, label %give.back, label %telling
telling:
  %single.given = icmp eq i64 %count, 1
  br i1 %single.given, label %packed, label %telling.all
packed:
  %pack = call ptr @pointer(ptr %api, i64 $ApiWord_PACK)
  %packed.out = call ptr (i64, ...) %pack(i64 1, ptr %out)
  %is.packed = icmp ne ptr %packed.out, null
  br i1 %is.packed, label %telling.one, label %error
telling.one:
  store ptr %packed.out, ptr %report
  %noted.one = call ptr %vectorcall(ptr %written, ptr %report, i64 1, ptr null)
  call void %decref(ptr %packed.out)
  br label %noted.any
telling.all:
  store ptr %out, ptr %report
  %noted.all = call ptr %vectorcall(ptr %written, ptr %report, i64 1, ptr null)
  br label %noted.any
noted.any:
  %noted = phi ptr [ %noted.one, %telling.one ], [ %noted.all, %telling.all ]
  %is.noted = icmp ne ptr %noted, null
  br i1 %is.noted, label %told, label %error
told:
  call void %decref(ptr %noted)
  br label %give.back
give.back:
  %tuple.given = icmp ne i64 %count, 1
  br i1 %tuple.given, label %regather, label %same
regather:
  %class.given = call ptr @pointer(ptr %table, i64 $TableWord_RESULT)
  %items = getelementptr i8, ptr %out, i64 $item
  %tuple.theirs = call ptr %vectorcall(ptr %class.given, ptr %items, i64 %count, ptr null)
  ret ptr %tuple.theirs
same:
  call void %incref(ptr %out)
  ret ptr %out
scalars: ; a 0-d result is returned as a scalar
  %r = phi i64 [ 0, %mine ], [ %r.next, %next ]
  %r.all = icmp eq i64 %r, %count
  br i1 %r.all, label %deliver, label %shaped
shaped:
  %result.at = getelementptr ptr, ptr %fresh, i64 %r
  %result = load ptr, ptr %result.at
  %result.rank = call i64 @rank_of(ptr %result)
  %is_scalar = icmp eq i64 %result.rank, 0
  br i1 %is_scalar, label %unwrap, label %next
unwrap:
  %return = call ptr @pointer(ptr %api, i64 $ApiWord_RETURN)
  %scalar = call ptr %return(ptr %result)
  store ptr %scalar, ptr %result.at
  %unwrapped = icmp ne ptr %scalar, null
  br i1 %unwrapped, label %next, label %error
next:
  %r.next = add i64 %r, 1
  br label %scalars
deliver:
  %several = icmp ne i64 %count, 1
  br i1 %several, label %gather, label %only
only:
  %single = load ptr, ptr %fresh
  ret ptr %single
gather:
  %class = call ptr @pointer(ptr %table, i64 $TableWord_RESULT)
  %tuple = call ptr %vectorcall(ptr %class, ptr %fresh, i64 %count, ptr null)
  call void @release(ptr %api, ptr %fresh, i64 %count)
  ret ptr %tuple
fail:
  %from_integer = call ptr @pointer(ptr %api, i64 $ApiWord_FROM_INTEGER)
  %code = call ptr %from_integer(i64 %status)
  %coded = icmp ne ptr %code, null
  br i1 %coded, label %placed, label %failed.end
placed:
  %pointers.at = ptrtoint ptr %pointers to i64
  %pointers.number = call ptr %from_integer(i64 %pointers.at)
  %numbered = icmp ne ptr %pointers.number, null
  br i1 %numbered, label %raise, label %raised
raise:
  store ptr %plan, ptr %report
  %report.1 = getelementptr ptr, ptr %report, i64 1
  store ptr %code, ptr %report.1
  %report.2 = getelementptr ptr, ptr %report, i64 2
  store ptr %pointers.number, ptr %report.2
  %raiser = call ptr @pointer(ptr %table, i64 $TableWord_FAILED)
  %nothing = call ptr %vectorcall(ptr %raiser, ptr %report, i64 3, ptr null)
  call void %decref(ptr %nothing)
  call void %decref(ptr %pointers.number)
  br label %raised
raised:
  call void %decref(ptr %code)
  br label %failed.end
failed.end:
  br label %undone
undone:
  call void %decref(ptr %plan)
  br label %error
error:
  call void @free_blocks(ptr %blocks)
  call void @release(ptr %api, ptr %fresh, i64 $OUTPUTS)
  ret ptr null
hand_on:
  call void @free_blocks(ptr %blocks)
  call void %decref(ptr %plan)
  call void @release(ptr %api, ptr %fresh, i64 $OUTPUTS)
  ret ptr %table
}
"""
