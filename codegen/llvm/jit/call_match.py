"""The part of the emitted entry that compares the arguments of a call with a row of its table, in LLVM IR."""

MATCH = """\
define internal i64 @word(ptr %p, i64 %k) alwaysinline {
  %q = getelementptr i64, ptr %p, i64 %k
  %v = load i64, ptr %q
  ret i64 %v
}

define internal ptr @pointer(ptr %p, i64 %k) alwaysinline {
  %q = getelementptr ptr, ptr %p, i64 %k
  %v = load ptr, ptr %q
  ret ptr %v
}

define internal ptr @field(ptr %p, i64 %offset) alwaysinline {
  %q = getelementptr i8, ptr %p, i64 %offset
  %v = load ptr, ptr %q
  ret ptr %v
}

; The %k-th of %count outputs that are given in %out: itself, or a tuple of several.
define internal ptr @item(ptr %out, i64 %count, i64 %k) alwaysinline {
  %step = mul i64 %k, 8
  %place = add i64 %step, $item
  %several = icmp ne i64 %count, 1
  br i1 %several, label %within, label %done
within:
  %one = call ptr @field(ptr %out, i64 %place)
  br label %done
done:
  %found = phi ptr [ %out, %0 ], [ %one, %within ]
  ret ptr %found
}

define internal i64 @rank_of(ptr %array) alwaysinline {
  %q = getelementptr i8, ptr %array, i64 $rank
  %v = load i32, ptr %q
  %n = sext i32 %v to i64
  ret i64 %n
}

; Whether %a is an array, of no subclass, of the record's dtype, shape and strides.
define internal i1 @is_like(ptr %a, ptr %table, ptr %record) {
  %type = call ptr @field(ptr %a, i64 $type)
  %ndarray = call ptr @pointer(ptr %table, i64 $TableWord_ARRAY)
  %plain = icmp eq ptr %type, %ndarray
  br i1 %plain, label %typed, label %no
typed:
  %dtype = call ptr @field(ptr %a, i64 $dtype)
  %wanted = call ptr @pointer(ptr %record, i64 $RecordWord_DTYPE)
  %same = icmp eq ptr %dtype, %wanted
  %rank = call i64 @rank_of(ptr %a)
  %dimensions = call i64 @word(ptr %record, i64 $RecordWord_RANK)
  %ranked = icmp eq i64 %rank, %dimensions
  %both = and i1 %same, %ranked
  br i1 %both, label %head, label %no
head:
  %shape = call ptr @field(ptr %a, i64 $shape)
  %strides = call ptr @field(ptr %a, i64 $strides)
  %extents = call ptr @pointer(ptr %record, i64 $RecordWord_SHAPE)
  %steps = getelementptr i64, ptr %extents, i64 %rank
  br label %loop
loop:
  %k = phi i64 [ 0, %head ], [ %next, %equal ]
  %end = icmp eq i64 %k, %rank
  br i1 %end, label %yes, label %compare
compare:
  %n = call i64 @word(ptr %shape, i64 %k)
  %m = call i64 @word(ptr %extents, i64 %k)
  %s = call i64 @word(ptr %strides, i64 %k)
  %t = call i64 @word(ptr %steps, i64 %k)
  %extent = icmp eq i64 %n, %m
  %stride = icmp eq i64 %s, %t
  %match = and i1 %extent, %stride
  br i1 %match, label %equal, label %no
equal:
  %next = add i64 %k, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether a row fits the arguments: 0 no, 1 yes, 2 leave the call to the slow path. Fills %pointers and %scalars.
; The plan of a row is None once it is gone, and has no references while it goes.
define internal i64 @fits(ptr %table, ptr %row, ptr %arguments, ptr %out, ptr %pointers, ptr %scalars,
                         ptr %tensors, ptr %classes, i64 %codes) {
entry:
  %overflow = alloca i32
  %weak = call ptr @pointer(ptr %row, i64 $RowWord_PLAN)
  %plan = call ptr @field(ptr %weak, i64 $referent)
  %none = call ptr @pointer(ptr %table, i64 $TableWord_NONE)
  %there = icmp ne ptr %plan, %none
  br i1 %there, label %counted, label %no
counted:
  %references = load i32, ptr %plan
  %alive = icmp ne i32 %references, 0
  br i1 %alive, label %begin, label %no
begin:
  %api = call ptr @pointer(ptr %table, i64 $TableWord_API)
  %count = call i64 @word(ptr %table, i64 $TableWord_COUNT)
  %records = call ptr @pointer(ptr %row, i64 $RowWord_PARAMETERS)
  %passed = call i64 @word(ptr %row, i64 $RowWord_PASSED)
  br label %loop
loop:
  %k = phi i64 [ 0, %begin ], [ %next, %advance ]
  %bits = phi i64 [ 0, %begin ], [ %bits.next, %advance ]
  %end = icmp eq i64 %k, %count
  br i1 %end, label %outputs, label %parameter
parameter:
  %a = call ptr @pointer(ptr %arguments, i64 %k)
  %at = mul i64 %k, $record_words
  %record = getelementptr i64, ptr %records, i64 %at
  %kind = call i64 @word(ptr %record, i64 $RecordWord_KIND)
  %absent = icmp eq ptr %a, null
  %unwanted = icmp uge i64 %kind, $ParameterKind_FIXED
  br i1 %absent, label %nothing, label %given
nothing:
  br i1 %unwanted, label %advance, label %no
given:
  %slot = call i64 @word(ptr %record, i64 $RecordWord_SLOT)
  %place = getelementptr ptr, ptr %pointers, i64 %slot
  %scalar = getelementptr i64, ptr %scalars, i64 %k
  switch i64 %kind, label %integer [
    i64 $ParameterKind_ARRAY, label %array
    i64 $ParameterKind_TENSOR, label %tensor
    i64 $ParameterKind_FLOAT_F64, label %float
    i64 $ParameterKind_FLOAT_F32, label %float
    i64 $ParameterKind_SCALAR, label %numpy
    i64 $ParameterKind_ABSENT, label %no
  ]
array:
  %like = call i1 @is_like(ptr %a, ptr %table, ptr %record)
  br i1 %like, label %lying, label %no
lying:
  %data.a = call ptr @field(ptr %a, i64 $data)
  br label %placed
placed:
  %data = phi ptr [ %data.a, %lying ], [ %data.n, %held ], [ %data.t, %viewed ]
  store ptr %data, ptr %place
  %address = ptrtoint ptr %data to i64
  %seen = or i64 %bits, %address
  br label %advance
tensor:
  %tensor.at = getelementptr [6 x i64], ptr %tensors, i64 %k
  %class.t = call ptr @pointer(ptr %classes, i64 %k)
  %start.t = call i64 @tensor_like(ptr %tensor.at, ptr %class.t, ptr %row, ptr %record, i64 %codes)
  %is.t = icmp ne i64 %start.t, 0
  br i1 %is.t, label %viewed, label %no
viewed:
  %data.t = inttoptr i64 %start.t to ptr
  br label %placed
numpy:
  %type.n = call ptr @field(ptr %a, i64 $type)
  %wanted.n = call ptr @pointer(ptr %record, i64 $RecordWord_DTYPE)
  %is.n = icmp eq ptr %type.n, %wanted.n
  br i1 %is.n, label %held, label %no
held:
  %data.n = getelementptr i8, ptr %a, i64 $value
  br label %placed
float:
  %type.f = call ptr @field(ptr %a, i64 $type)
  %wanted.f = call ptr @pointer(ptr %table, i64 $TableWord_FLOAT)
  %is.f = icmp eq ptr %type.f, %wanted.f
  br i1 %is.f, label %number, label %no
number:
  %as_double = call ptr @pointer(ptr %api, i64 $ApiWord_AS_DOUBLE)
  %value = call double %as_double(ptr %a)
  store ptr %scalar, ptr %place
  %is.f64 = icmp eq i64 %kind, $ParameterKind_FLOAT_F64
  br i1 %is.f64, label %wide, label %narrow
wide:
  store double %value, ptr %scalar
  br label %advance
narrow:
  %limit.at = getelementptr i64, ptr %record, i64 $RecordWord_EXTRA
  %limit = load double, ptr %limit.at
  %negated = fneg double %value
  %positive = fcmp oge double %value, 0.0
  %magnitude = select i1 %positive, double %value, double %negated
  %finite = fcmp ole double %magnitude, %limit
  br i1 %finite, label %rounded, label %slow
rounded:
  %short = fptrunc double %value to float
  store float %short, ptr %scalar
  br label %advance
integer:
  %type.i = call ptr @field(ptr %a, i64 $type)
  %wanted.i = call ptr @pointer(ptr %table, i64 $TableWord_INT)
  %is.i = icmp eq ptr %type.i, %wanted.i
  br i1 %is.i, label %whole, label %no
whole:
  %as_integer = call ptr @pointer(ptr %api, i64 $ApiWord_AS_INTEGER)
  %n = call i64 %as_integer(ptr %a, ptr %overflow)
  %over = load i32, ptr %overflow
  %small = icmp eq i32 %over, 0
  br i1 %small, label %ranged, label %slow
ranged:
  %is.size = icmp uge i64 %kind, $ParameterKind_SIZE
  br i1 %is.size, label %size, label %scale
size:
  %size.wanted = call i64 @word(ptr %record, i64 $RecordWord_DTYPE)
  %size.same = icmp eq i64 %n, %size.wanted
  br i1 %size.same, label %advance, label %no
scale:
  %low = call i64 @word(ptr %record, i64 $RecordWord_LOW)
  %high = call i64 @word(ptr %record, i64 $RecordWord_HIGH)
  %above = icmp sge i64 %n, %low
  %below = icmp sle i64 %n, %high
  %inside = and i1 %above, %below
  br i1 %inside, label %stored, label %slow
stored:
  store ptr %scalar, ptr %place
  switch i64 %kind, label %plain [
    i64 $ParameterKind_INT_F64, label %to.f64
    i64 $ParameterKind_INT_F32, label %to.f32
  ]
plain: ; the low bytes, whatever the width: memory is little-endian
  store i64 %n, ptr %scalar
  br label %advance
to.f64:
  %n.f64 = sitofp i64 %n to double
  store double %n.f64, ptr %scalar
  br label %advance
to.f32:
  %n.f32 = sitofp i64 %n to float ; exact up to the rounding: |n| <= 2^53
  store float %n.f32, ptr %scalar
  br label %advance
advance:
  %bits.next = phi i64 [ %bits, %nothing ], [ %seen, %placed ], [ %bits, %wide ], [ %bits, %rounded ],
                       [ %bits, %size ], [ %bits, %plain ], [ %bits, %to.f64 ], [ %bits, %to.f32 ]
  %next = add i64 %k, 1
  br label %loop
outputs:
  %fresh = icmp eq ptr %out, null
  br i1 %fresh, label %made, label %one
made:
  %may = call i64 @word(ptr %row, i64 $RowWord_FRESH)
  %allowed = icmp ne i64 %may, 0
  br i1 %allowed, label %aligned, label %no
one:
  %number.out = call i64 @word(ptr %row, i64 $RowWord_OUTPUTS)
  %takes = call i64 @word(ptr %row, i64 $RowWord_TAKES)
  %taken = icmp ne i64 %takes, 0
  br i1 %taken, label %kind.out, label %slow
kind.out:
  %results = call ptr @pointer(ptr %row, i64 $RowWord_RESULTS)
  %bounds = call ptr @pointer(ptr %row, i64 $RowWord_BOUNDS)
  %single = icmp eq i64 %number.out, 1
  br i1 %single, label %each, label %several
several:
  %type.out = call ptr @field(ptr %out, i64 $type)
  %tuple = call ptr @pointer(ptr %table, i64 $TableWord_TUPLE)
  %is.tuple = icmp eq ptr %type.out, %tuple
  %class.out = call ptr @pointer(ptr %table, i64 $TableWord_RESULT)
  %is.result = icmp eq ptr %type.out, %class.out
  %is.either = or i1 %is.tuple, %is.result
  br i1 %is.either, label %length, label %slow
length:
  %length.at = getelementptr i8, ptr %out, i64 $size
  %length.out = load i64, ptr %length.at
  %as.many = icmp eq i64 %length.out, %number.out
  br i1 %as.many, label %each, label %slow
each: ; of the outputs: like its record, writeable, and disjoint from what was passed and from those before it
  %r = phi i64 [ 0, %kind.out ], [ 0, %length ], [ %r.next, %nears ]
  %bits.out = phi i64 [ %bits, %kind.out ], [ %bits, %length ], [ %bits.with, %nears ]
  %r.all = icmp eq i64 %r, %number.out
  br i1 %r.all, label %aligned, label %written
written:
  %mine.out = call ptr @item(ptr %out, i64 %number.out, i64 %r)
  %result.at = mul i64 %r, $record_words
  %result = getelementptr i64, ptr %results, i64 %result.at
  %library.out = call ptr @pointer(ptr %row, i64 $RowWord_CLASS)
  %of.numpy = icmp eq ptr %library.out, null
  br i1 %of.numpy, label %array.out, label %tensor.out
tensor.out:
  %slot.out = add i64 %r, $NAMES
  %tensor.out.at = getelementptr [6 x i64], ptr %tensors, i64 %slot.out
  %class.tensor = call ptr @pointer(ptr %classes, i64 %slot.out)
  %known.out = icmp ne ptr %class.tensor, null
  br i1 %known.out, label %read.out, label %no
read.out: ; itself, and not the one item of a tuple
  %its.type = call ptr @pointer(ptr %class.tensor, i64 $ClassWord_TYPE)
  %mine.type = call ptr @field(ptr %mine.out, i64 $type)
  %itself.out = icmp eq ptr %its.type, %mine.type
  br i1 %itself.out, label %like.out, label %no
like.out:
  %start.tensor = call i64 @tensor_like(ptr %tensor.out.at, ptr %class.tensor, ptr %row, ptr %result, i64 %codes)
  %is.tensor = icmp ne i64 %start.tensor, 0
  %base.tensor = inttoptr i64 %start.tensor to ptr
  br i1 %is.tensor, label %ranges, label %no
array.out:
  %fitting = call i1 @is_like(ptr %mine.out, ptr %table, ptr %result)
  br i1 %fitting, label %flagged, label %no
flagged:
  %flags.at = getelementptr i8, ptr %mine.out, i64 $flags
  %flags = load i32, ptr %flags.at
  %access = and i32 %flags, $access
  %writeable = icmp eq i32 %access, $writeable
  %base.array = call ptr @field(ptr %mine.out, i64 $data)
  br i1 %writeable, label %ranges, label %slow
ranges:
  %base = phi ptr [ %base.array, %flagged ], [ %base.tensor, %like.out ]
  %before.out = add i64 %passed, %r
  %base.at = getelementptr ptr, ptr %pointers, i64 %before.out
  store ptr %base, ptr %base.at
  %start = ptrtoint ptr %base to i64
  %bits.with = or i64 %bits.out, %start
  %pair.out = mul i64 %before.out, 2
  %mine = getelementptr i64, ptr %bounds, i64 %pair.out
  %mine.low = call i64 @word(ptr %mine, i64 0)
  %mine.high = call i64 @word(ptr %mine, i64 1)
  %from = add i64 %start, %mine.low
  %to = add i64 %start, %mine.high
  %r.next = add i64 %r, 1
  br label %nears
nears:
  %j = phi i64 [ 0, %ranges ], [ %j.next, %disjoint ]
  %all = icmp eq i64 %j, %before.out
  br i1 %all, label %each, label %near
near:
  %other = call i64 @word(ptr %pointers, i64 %j)
  %pair = mul i64 %j, 2
  %its = getelementptr i64, ptr %bounds, i64 %pair
  %its.low = call i64 @word(ptr %its, i64 0)
  %its.high = call i64 @word(ptr %its, i64 1)
  %first = add i64 %other, %its.low
  %last = add i64 %other, %its.high
  %before = icmp ult i64 %first, %to
  %after = icmp ult i64 %from, %last
  %meets = and i1 %before, %after
  br i1 %meets, label %slow, label %disjoint
disjoint:
  %j.next = add i64 %j, 1
  br label %nears
aligned:
  %bits.all = phi i64 [ %bits, %made ], [ %bits.out, %each ]
  %mask = call i64 @word(ptr %row, i64 $RowWord_MISALIGNED)
  %wrong = and i64 %bits.all, %mask
  %right = icmp eq i64 %wrong, 0
  br i1 %right, label %yes, label %slow
yes:
  ret i64 1
no:
  ret i64 0
slow:
  ret i64 2
}
"""
