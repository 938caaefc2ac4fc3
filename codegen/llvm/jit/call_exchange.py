"""The part of the emitted entry that reads tensors of other libraries by the C exchange API of DLPack, in LLVM IR.

A class that has the API says where its tensors lie without Python in between (dlpack.h, 1.3: `DLPackExchangeAPI`). What the API
leaves out, such as torch's negative bit, the class's checks read (ClassWord). They may run Python or release the interpreter's
lock, so all of them are made before any tensor is read, all tensors are read before a row is looked at, and nothing of
this kind is called from then on until the row's plan is held (call_run). Meanwhile other classes and rows may come: a row fits
tensors alone that were checked for their kind of element.

A new result is one block of memory: a DLManagedTensorVersioned, extents and strides, then the elements at a multiple of 64
bytes. The library makes a tensor of it, and frees it by `@free_block`, maybe without the interpreter's lock.
"""

EXCHANGE = """\
; Whether an error that was raised is an Exception, which is cleared: the slow path says better what is wrong.
define internal i1 @forgiven(ptr %table, ptr %api) {
  %matches = call ptr @pointer(ptr %api, i64 $ApiWord_MATCHES)
  %exception = call ptr @pointer(ptr %table, i64 $TableWord_EXCEPTION)
  %found = call i32 %matches(ptr %exception)
  %is = icmp ne i32 %found, 0
  br i1 %is, label %clear, label %done
clear:
  %clearing = call ptr @pointer(ptr %api, i64 $ApiWord_CLEAR)
  call void %clearing()
  br label %done
done:
  ret i1 %is
}

; The class of tensors of a type, null for none.
define internal ptr @class_of(ptr %classes, i64 %count, ptr %type) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %other ]
  %end = icmp eq i64 %k, %count
  br i1 %end, label %none, label %look
look:
  %class = call ptr @pointer(ptr %classes, i64 %k)
  %its = call ptr @pointer(ptr %class, i64 $ClassWord_TYPE)
  %same = icmp eq ptr %its, %type
  br i1 %same, label %found, label %other
other:
  %next = add i64 %k, 1
  br label %loop
found:
  ret ptr %class
none:
  ret ptr null
}

; Whether a tensor may be read: 1 yes, 0 leave the call to the slow path, -1 an error was raised.
define internal i64 @may_be_read(ptr %table, ptr %api, ptr %class, ptr %tensor, i64 %codes, i64 %count) {
entry:
  %checks = call ptr @pointer(ptr %class, i64 $ClassWord_CHECKS)
  %decref = call ptr @pointer(ptr %api, i64 $ApiWord_DECREF)
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %right ]
  %end = icmp eq i64 %k, %count
  br i1 %end, label %yes, label %look
look:
  %at = mul i64 %k, $check_words
  %check = getelementptr i64, ptr %checks, i64 %at
  %its.codes = call i64 @word(ptr %check, i64 $CheckWord_CODES)
  %common = and i64 %its.codes, %codes
  %spared = icmp eq i64 %common, 0
  br i1 %spared, label %right, label %ask
ask:
  %function = call ptr @pointer(ptr %check, i64 $CheckWord_FUNCTION)
  %argument = call ptr @pointer(ptr %check, i64 $CheckWord_ARGUMENT)
  %result = call ptr %function(ptr %tensor, ptr %argument)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %error, label %told
told:
  %wanted = call ptr @pointer(ptr %check, i64 $CheckWord_WANTED)
  %other = call ptr @pointer(ptr %check, i64 $CheckWord_OTHER)
  %is.wanted = icmp eq ptr %result, %wanted
  %is.other = icmp eq ptr %result, %other
  %is.either = or i1 %is.wanted, %is.other
  call void %decref(ptr %result)
  br i1 %is.either, label %right, label %doubt
doubt:
  %asked = call ptr @pointer(ptr %check, i64 $CheckWord_ASK)
  %unasked = icmp eq ptr %asked, null
  br i1 %unasked, label %no, label %question
question:
  %vectorcall = call ptr @pointer(ptr %api, i64 $ApiWord_VECTORCALL)
  %answer = call ptr %vectorcall(ptr %asked, ptr null, i64 0, ptr null)
  %answer.failed = icmp eq ptr %answer, null
  br i1 %answer.failed, label %error, label %answered
answered:
  %hoped = call ptr @pointer(ptr %check, i64 $CheckWord_ANSWER)
  %allowed = icmp eq ptr %answer, %hoped
  call void %decref(ptr %answer)
  br i1 %allowed, label %right, label %no
right:
  %next = add i64 %k, 1
  br label %loop
yes:
  ret i64 1
error:
  %is.forgiven = call i1 @forgiven(ptr %table, ptr %api)
  br i1 %is.forgiven, label %no, label %raised
no:
  ret i64 0
raised:
  ret i64 -1
}

; The %k-th argument, or from NAMES on output.
define internal ptr @given(ptr %arguments, ptr %outs, i64 %k) alwaysinline {
  %is.out = icmp uge i64 %k, $NAMES
  %of.outs = sub i64 %k, $NAMES
  %from = select i1 %is.out, ptr %outs, ptr %arguments
  %at = select i1 %is.out, i64 %of.outs, i64 %k
  %found = call ptr @pointer(ptr %from, i64 %at)
  ret ptr %found
}

; What comes behind the %k-th of %count arguments.
define internal i64 @behind(i64 %k, i64 %count) alwaysinline {
  %next = add i64 %k, 1
  %last = icmp eq i64 %next, %count
  %found = select i1 %last, i64 $NAMES, i64 %next
  ret i64 %found
}

; Check all tensors among the arguments, then read them: fill %classes, null for what is none, and their places of %tensors.
; Returns the kinds of elements that they were checked for; 0: leave the call to the slow path; -1: an error was raised.
define internal i64 @read_tensors(ptr %table, ptr %arguments, ptr %out, ptr %tensors, ptr %classes) {
entry:
  %one = alloca ptr
  store ptr %out, ptr %one
  store [$SLOTS x ptr] zeroinitializer, ptr %classes
  %api = call ptr @pointer(ptr %table, i64 $TableWord_API)
  %count = call i64 @word(ptr %table, i64 $TableWord_COUNT)
  %codes = call i64 @word(ptr %table, i64 $TableWord_CODES)
  %known = call i64 @word(ptr %table, i64 $TableWord_CLASS_COUNT)
  %known.at = call ptr @pointer(ptr %table, i64 $TableWord_CLASSES)
  %none = icmp eq i64 %count, 0
  %begin = select i1 %none, i64 $NAMES, i64 0
  %fresh = icmp eq ptr %out, null
  br i1 %fresh, label %sized, label %output
output:
  %type.out = call ptr @field(ptr %out, i64 $type)
  %tuple = call ptr @pointer(ptr %table, i64 $TableWord_TUPLE)
  %result = call ptr @pointer(ptr %table, i64 $TableWord_RESULT)
  %is.tuple = icmp eq ptr %type.out, %tuple
  %is.result = icmp eq ptr %type.out, %result
  %several = or i1 %is.tuple, %is.result
  br i1 %several, label %length, label %sized
length:
  %length.at = getelementptr i8, ptr %out, i64 $size
  %items = getelementptr i8, ptr %out, i64 $item
  %number = load i64, ptr %length.at
  %many = icmp ugt i64 %number, $OUTPUTS
  br i1 %many, label %no, label %sized
sized:
  %outputs = phi i64 [ 0, %entry ], [ 1, %output ], [ %number, %length ]
  %outs = phi ptr [ %one, %entry ], [ %one, %output ], [ %items, %length ]
  %stop = add i64 %outputs, $NAMES
  br label %check
check:
  %k = phi i64 [ %begin, %sized ], [ %k.next, %checked ]
  %last = phi ptr [ null, %sized ], [ %last.next, %checked ]
  %all = icmp eq i64 %k, %stop
  br i1 %all, label %read, label %argument
argument:
  %k.next = call i64 @behind(i64 %k, i64 %count)
  %value = call ptr @given(ptr %arguments, ptr %outs, i64 %k)
  %absent = icmp eq ptr %value, null
  br i1 %absent, label %checked, label %typed
typed:
  %type.value = call ptr @field(ptr %value, i64 $type)
  %class = call ptr @class_of(ptr %known.at, i64 %known, ptr %type.value)
  %foreign = icmp ne ptr %class, null
  br i1 %foreign, label %tensor, label %checked
tensor:
  %seen = icmp eq ptr %class, %last
  br i1 %seen, label %single, label %circumstances
circumstances:
  %watch.count = call i64 @word(ptr %class, i64 $ClassWord_WATCH_COUNT)
  %watches = call ptr @pointer(ptr %class, i64 $ClassWord_WATCHES)
  %usual = call i1 @are_usual(ptr %api, ptr %watches, i64 %watch.count)
  br i1 %usual, label %single, label %no
single:
  %is.input = icmp ult i64 %k, $NAMES
  %of.inputs = call i64 @word(ptr %class, i64 $ClassWord_INPUT_CHECKS)
  %of.outputs = call i64 @word(ptr %class, i64 $ClassWord_OUTPUT_CHECKS)
  %checks = select i1 %is.input, i64 %of.inputs, i64 %of.outputs
  %verdict = call i64 @may_be_read(ptr %table, ptr %api, ptr %class, ptr %value, i64 %codes, i64 %checks)
  switch i64 %verdict, label %raised [
    i64 0, label %no
    i64 1, label %allowed
  ]
allowed:
  %class.at = getelementptr ptr, ptr %classes, i64 %k
  store ptr %class, ptr %class.at
  br label %checked
checked:
  %last.next = phi ptr [ %last, %argument ], [ %last, %typed ], [ %class, %allowed ]
  br label %check
read:
  %r = phi i64 [ %begin, %check ], [ %r.next, %done ]
  %r.all = icmp eq i64 %r, %stop
  br i1 %r.all, label %yes, label %place
place:
  %r.next = call i64 @behind(i64 %r, i64 %count)
  %its.class = call ptr @pointer(ptr %classes, i64 %r)
  %none.there = icmp eq ptr %its.class, null
  br i1 %none.there, label %done, label %view
view:
  %its.value = call ptr @given(ptr %arguments, ptr %outs, i64 %r)
  %tensor.at = getelementptr [6 x i64], ptr %tensors, i64 %r
  %viewing = call ptr @pointer(ptr %its.class, i64 $ClassWord_VIEW)
  %failed = call i32 %viewing(ptr %its.value, ptr %tensor.at)
  %well = icmp eq i32 %failed, 0
  br i1 %well, label %done, label %error
done:
  br label %read
error:
  %is.forgiven = call i1 @forgiven(ptr %table, ptr %api)
  br i1 %is.forgiven, label %no, label %raised
yes:
  ret i64 %codes
no:
  ret i64 0
raised:
  ret i64 -1
}

; The address of the first element of a DLTensor.
define internal i64 @start_of(ptr %tensor) alwaysinline {
  %data = call i64 @word(ptr %tensor, i64 0)
  %offset = call i64 @word(ptr %tensor, i64 5)
  %start = add i64 %data, %offset
  ret i64 %start
}

; The address of a tensor's elements if it is of the row's library and like the record, 0 if it is not or has no memory.
define internal i64 @tensor_like(ptr %tensor, ptr %class, ptr %row, ptr %record, i64 %codes) {
entry:
  %its = call ptr @pointer(ptr %row, i64 $RowWord_CLASS)
  %given = icmp ne ptr %class, null
  %meant = icmp ne ptr %its, null
  %both = and i1 %given, %meant
  br i1 %both, label %classes, label %no
classes:
  %make = call ptr @pointer(ptr %class, i64 $ClassWord_MAKE)
  %its.make = call ptr @pointer(ptr %its, i64 $ClassWord_MAKE)
  %library = icmp eq ptr %make, %its.make
  %bits = call i64 @word(ptr %record, i64 $RecordWord_CODES)
  %checked.bits = and i64 %bits, %codes
  %checked = icmp eq i64 %checked.bits, %bits
  %device.at = getelementptr i8, ptr %tensor, i64 8
  %device = load i32, ptr %device.at
  %host = icmp eq i32 %device, 1
  %type.at = getelementptr i8, ptr %tensor, i64 20
  %type.short = load i32, ptr %type.at
  %type = zext i32 %type.short to i64
  %wanted = call i64 @word(ptr %record, i64 $RecordWord_DTYPE)
  %typed = icmp eq i64 %type, %wanted
  %rank.at = getelementptr i8, ptr %tensor, i64 16
  %rank.short = load i32, ptr %rank.at
  %rank = sext i32 %rank.short to i64
  %dimensions = call i64 @word(ptr %record, i64 $RecordWord_RANK)
  %ranked = icmp eq i64 %rank, %dimensions
  %data = call i64 @word(ptr %tensor, i64 0)
  %there = icmp ne i64 %data, 0
  %steps = call ptr @pointer(ptr %tensor, i64 4)
  %stepped = icmp ne ptr %steps, null
  %a = and i1 %library, %checked
  %b = and i1 %host, %typed
  %c = and i1 %ranked, %there
  %ab = and i1 %a, %b
  %abc = and i1 %ab, %c
  br i1 %abc, label %strided, label %no
strided: ; without dimensions there may be no strides
  %flat = icmp eq i64 %rank, 0
  %described = or i1 %flat, %stepped
  br i1 %described, label %head, label %no
head:
  %shape = call ptr @pointer(ptr %tensor, i64 3)
  %extents = call ptr @pointer(ptr %record, i64 $RecordWord_SHAPE)
  %strides = getelementptr i64, ptr %extents, i64 %rank
  br label %loop
loop:
  %k = phi i64 [ 0, %head ], [ %next, %equal ]
  %end = icmp eq i64 %k, %rank
  br i1 %end, label %yes, label %compare
compare:
  %n = call i64 @word(ptr %shape, i64 %k)
  %m = call i64 @word(ptr %extents, i64 %k)
  %s = call i64 @word(ptr %steps, i64 %k)
  %t = call i64 @word(ptr %strides, i64 %k)
  %extent = icmp eq i64 %n, %m
  %same = icmp eq i64 %s, %t
  %idle = icmp ule i64 %n, 1
  %stride = or i1 %same, %idle
  %match = and i1 %extent, %stride
  br i1 %match, label %equal, label %no
equal:
  %next = add i64 %k, 1
  br label %loop
yes:
  %start = call i64 @start_of(ptr %tensor)
  ret i64 %start
no:
  ret i64 0
}

define internal void @free_block(ptr %block) {
  %free = call ptr @pointer(ptr %block, i64 1)
  call void %free(ptr %block)
  ret void
}

; Free what is left of the blocks of new results.
define internal void @free_blocks(ptr %blocks) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %go_on ]
  %end = icmp eq i64 %k, $OUTPUTS
  br i1 %end, label %done, label %look
look:
  %block = call ptr @pointer(ptr %blocks, i64 %k)
  %none = icmp eq ptr %block, null
  br i1 %none, label %go_on, label %free
free:
  call void @free_block(ptr %block)
  br label %go_on
go_on:
  %next = add i64 %k, 1
  br label %loop
done:
  ret void
}

; Return the block of a new result like a record, null if there is no memory.
define internal ptr @new_block(ptr %api, ptr %record) {
entry:
  %bytes = call i64 @word(ptr %record, i64 $RecordWord_BYTES)
  %head = call ptr @pointer(ptr %record, i64 $RecordWord_HEAD)
  %rank = call i64 @word(ptr %record, i64 $RecordWord_RANK)
  %dimensions = mul i64 %rank, 2
  %words = add i64 %dimensions, 10
  %head.bytes = mul i64 %words, 8
  %padded = add i64 %head.bytes, 64
  %size = add i64 %padded, %bytes
  %malloc = call ptr @pointer(ptr %api, i64 $ApiWord_MALLOC)
  %block = call ptr %malloc(i64 %size)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %done, label %copy
copy:
  %k = phi i64 [ 0, %entry ], [ %next, %copy ]
  %value = call i64 @word(ptr %head, i64 %k)
  %at = getelementptr i64, ptr %block, i64 %k
  store i64 %value, ptr %at
  %next = add i64 %k, 1
  %end = icmp eq i64 %next, %words
  br i1 %end, label %fill, label %copy
fill:
  %free = call ptr @pointer(ptr %api, i64 $ApiWord_FREE)
  %context.at = getelementptr i64, ptr %block, i64 1
  store ptr %free, ptr %context.at
  %deleter.at = getelementptr i64, ptr %block, i64 2
  store ptr @free_block, ptr %deleter.at
  %behind = getelementptr i8, ptr %block, i64 %head.bytes
  %behind.at = ptrtoint ptr %behind to i64
  %raised = add i64 %behind.at, 63
  %data = and i64 %raised, -64
  %data.at = getelementptr i64, ptr %block, i64 4
  store i64 %data, ptr %data.at
  %shape = getelementptr i64, ptr %block, i64 10
  %shape.at = getelementptr i64, ptr %block, i64 7
  store ptr %shape, ptr %shape.at
  %strides = getelementptr i64, ptr %shape, i64 %rank
  %strides.at = getelementptr i64, ptr %block, i64 8
  store ptr %strides, ptr %strides.at
  br label %done
done:
  %found = phi ptr [ null, %entry ], [ %block, %fill ]
  ret ptr %found
}
"""
