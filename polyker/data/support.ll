; What polyker/export/closing/support.py makes functions of: a section each, `${...}` is filled in there.

;; trunc
define ${F} @trunc${s}(${F} %x) #0 {
  %bits = bitcast ${F} %x to ${I}
  %field = lshr ${I} %bits, ${m}
  %biased = and ${I} %field, ${top}
  %exponent = sub ${I} %biased, ${bias}
  %below.one = icmp slt ${I} %exponent, 0
  %whole = icmp sge ${I} %exponent, ${m}
  %places = sub ${I} ${m}, %exponent
  %places.few = and ${I} %places, ${shifts}
  %unit = shl ${I} 1, %places.few
  %inside = sub ${I} %unit, 1
  %fraction = select i1 %below.one, ${I} ${magnitude}, ${I} %inside
  %lost = select i1 %whole, ${I} 0, ${I} %fraction
  %kept = xor ${I} %lost, -1
  %found = and ${I} %bits, %kept
  %result = bitcast ${I} %found to ${F}
  ret ${F} %result
}

;; floor and ceil
define ${F} @${name}${s}(${F} %x) #0 {
  %t = call ${F} @trunc${s}(${F} %x)
  %beyond = fcmp ${test} ${F} %t, %x
  %moved = ${op} ${F} %t, 1.0
  %found = select i1 %beyond, ${F} %moved, ${F} %t
  ret ${F} %found
}
declare ${F} @trunc${s}(${F})

;; roundeven
define ${F} @${name}${s}(${F} %x) #0 {
  %size = call ${F} @llvm.fabs.${fm}(${F} %x)
  %up = fadd ${F} %size, ${ulp}
  %down = fsub ${F} %up, ${ulp}
  %small = fcmp olt ${F} %size, ${ulp}
  %found = select i1 %small, ${F} %down, ${F} %size
  %result = call ${F} @llvm.copysign.${fm}(${F} %found, ${F} %x)
  ret ${F} %result
}
declare ${F} @llvm.fabs.${fm}(${F})
declare ${F} @llvm.copysign.${fm}(${F}, ${F})

;; fmod
define ${F} @fmod${s}(${F} %x, ${F} %y) #0 {
entry:
  %bits = bitcast ${F} %x to ${I}
  %bits.y = bitcast ${F} %y to ${I}
  %a = and ${I} %bits, ${magnitude}
  %b = and ${I} %bits.y, ${magnitude}
  %sign = and ${I} %bits, ${sign}
  %none = icmp eq ${I} %b, 0
  %not.y = icmp ugt ${I} %b, ${infinity}
  %not.x = icmp uge ${I} %a, ${infinity}
  %bad = or i1 %none, %not.y
  %worse = or i1 %bad, %not.x
  br i1 %worse, label %undefined, label %defined
undefined:
  %product = fmul ${F} %x, %y
  %nan = fdiv ${F} %product, %product
  ret ${F} %nan
defined:
  %less = icmp ult ${I} %a, %b
  br i1 %less, label %itself, label %normal
itself:
  ret ${F} %x
normal:
  %a.zeros = call ${I} @llvm.ctlz.${I}(${I} %a, i1 false)
  %b.zeros = call ${I} @llvm.ctlz.${I}(${I} %b, i1 false)
  %a.field = lshr ${I} %a, ${m}
  %b.field = lshr ${I} %b, ${m}
  %a.tiny = icmp eq ${I} %a.field, 0
  %b.tiny = icmp eq ${I} %b.field, 0
  %a.up = sub ${I} %a.zeros, ${exponent}
  %b.up = sub ${I} %b.zeros, ${exponent}
  %a.safe = and ${I} %a.up, ${shifts}
  %b.safe = and ${I} %b.up, ${shifts}
  %a.moved = shl ${I} %a, %a.safe
  %b.moved = shl ${I} %b, %b.safe
  %a.low = and ${I} %a, ${mantissa}
  %b.low = and ${I} %b, ${mantissa}
  %a.whole = or ${I} %a.low, ${one}
  %b.whole = or ${I} %b.low, ${one}
  %a.first = select i1 %a.tiny, ${I} %a.moved, ${I} %a.whole
  %d = select i1 %b.tiny, ${I} %b.moved, ${I} %b.whole
  %a.below = sub ${I} 1, %a.up
  %b.below = sub ${I} 1, %b.up
  %a.exponent = select i1 %a.tiny, ${I} %a.below, ${I} %a.field
  %b.exponent = select i1 %b.tiny, ${I} %b.below, ${I} %b.field
  %steps = sub ${I} %a.exponent, %b.exponent
  br label %step
step:
  %r = phi ${I} [ %a.first, %normal ], [ %r.twice, %next ]
  %left = phi ${I} [ %steps, %normal ], [ %left.less, %next ]
  %difference = sub ${I} %r, %d
  %fits = icmp uge ${I} %r, %d
  %rest = select i1 %fits, ${I} %difference, ${I} %r
  %last = icmp eq ${I} %left, 0
  br i1 %last, label %done, label %next
next:
  %r.twice = shl ${I} %rest, 1
  %left.less = sub ${I} %left, 1
  br label %step
done:
  %nothing = icmp eq ${I} %rest, 0
  br i1 %nothing, label %zero, label %some
zero:
  %zero.signed = bitcast ${I} %sign to ${F}
  ret ${F} %zero.signed
some:
  %zeros = call ${I} @llvm.ctlz.${I}(${I} %rest, i1 false)
  %up = sub ${I} %zeros, ${exponent}
  %high = sub ${I} %b.exponent, %up
  %is.normal = icmp sgt ${I} %high, 0
  %up.safe = and ${I} %up, ${shifts}
  %filled = shl ${I} %rest, %up.safe
  %low = and ${I} %filled, ${mantissa}
  %high.field = shl ${I} %high, ${m}
  %normal.bits = or ${I} %low, %high.field
  %b.minus = sub ${I} %b.exponent, 1
  %is.up = icmp sge ${I} %b.minus, 0
  %down = sub ${I} 0, %b.minus
  %b.minus.safe = and ${I} %b.minus, ${shifts}
  %down.safe = and ${I} %down, ${shifts}
  %tiny.up = shl ${I} %rest, %b.minus.safe
  %tiny.down = lshr ${I} %rest, %down.safe
  %tiny = select i1 %is.up, ${I} %tiny.up, ${I} %tiny.down
  %found = select i1 %is.normal, ${I} %normal.bits, ${I} %tiny
  %signed = or ${I} %found, %sign
  %result = bitcast ${I} %signed to ${F}
  ret ${F} %result
}
declare ${I} @llvm.ctlz.${I}(${I}, i1)

;; memset
; `w`: an integer of a pointer's size. Sixteen bytes at a time, then one by one.
define ptr @memset(ptr %to, i32 %value, ${w} %count) #0 {
entry:
  %byte = trunc i32 %value to i8
  %one = insertelement <16 x i8> poison, i8 %byte, i64 0
  %all = shufflevector <16 x i8> %one, <16 x i8> poison, <16 x i32> zeroinitializer
  br label %wide
wide:
  %i = phi ${w} [ 0, %entry ], [ %i.next, %write ]
  %left = sub ${w} %count, %i
  %enough = icmp uge ${w} %left, 16
  br i1 %enough, label %write, label %rest
write:
  %at = getelementptr i8, ptr %to, ${w} %i
  store <16 x i8> %all, ptr %at, align 1
  %i.next = add ${w} %i, 16
  br label %wide
rest:
  %k = phi ${w} [ %i, %wide ], [ %k.next, %single ]
  %more = icmp ult ${w} %k, %count
  br i1 %more, label %single, label %done
single:
  %place = getelementptr i8, ptr %to, ${w} %k
  store i8 %byte, ptr %place
  %k.next = add ${w} %k, 1
  br label %rest
done:
  ret ptr %to
}

;; memcpy
define ptr @memcpy(ptr %to, ptr %from, ${w} %count) #0 {
entry:
  br label %wide
wide:
  %i = phi ${w} [ 0, %entry ], [ %i.next, %write ]
  %left = sub ${w} %count, %i
  %enough = icmp uge ${w} %left, 16
  br i1 %enough, label %write, label %rest
write:
  %at = getelementptr i8, ptr %to, ${w} %i
  %source = getelementptr i8, ptr %from, ${w} %i
  %bytes = load <16 x i8>, ptr %source, align 1
  store <16 x i8> %bytes, ptr %at, align 1
  %i.next = add ${w} %i, 16
  br label %wide
rest:
  %k = phi ${w} [ %i, %wide ], [ %k.next, %single ]
  %more = icmp ult ${w} %k, %count
  br i1 %more, label %single, label %done
single:
  %place = getelementptr i8, ptr %to, ${w} %k
  %origin = getelementptr i8, ptr %from, ${w} %k
  %byte = load i8, ptr %origin
  store i8 %byte, ptr %place
  %k.next = add ${w} %k, 1
  br label %rest
done:
  ret ptr %to
}

;; memmove
define ptr @memmove(ptr %to, ptr %from, ${w} %count) #0 {
entry:
  %before = icmp ule ptr %to, %from
  br i1 %before, label %forwards, label %next
forwards:
  %copied = call ptr @memcpy(ptr %to, ptr %from, ${w} %count)
  ret ptr %to
next:
  %k = phi ${w} [ %count, %entry ], [ %k.less, %single ]
  %more = icmp ne ${w} %k, 0
  br i1 %more, label %single, label %done
single:
  %k.less = sub ${w} %k, 1
  %place = getelementptr i8, ptr %to, ${w} %k.less
  %origin = getelementptr i8, ptr %from, ${w} %k.less
  %byte = load i8, ptr %origin
  store i8 %byte, ptr %place
  br label %next
done:
  ret ptr %to
}
declare ptr @memcpy(ptr, ptr, ${w})

;; uldivmod
define {i64, i64} @__aeabi_uldivmod(i64 %n, i64 %d) #0 {
entry:
  %both = or i64 %n, %d
  %narrow = icmp ult i64 %both, 4294967296
  br i1 %narrow, label %short, label %long
short:
  %n.low = trunc i64 %n to i32
  %d.low = trunc i64 %d to i32
  %q.low = udiv i32 %n.low, %d.low
  %back = mul i32 %q.low, %d.low
  %r.low = sub i32 %n.low, %back
  %q.short = zext i32 %q.low to i64
  %r.short = zext i32 %r.low to i64
  br label %done
long:
  %n.zeros = call i64 @llvm.ctlz.i64(i64 %n, i1 false)
  %d.zeros = call i64 @llvm.ctlz.i64(i64 %d, i1 false)
  %less = icmp ult i64 %n, %d
  br i1 %less, label %done, label %align
align:
  %places = sub i64 %d.zeros, %n.zeros
  %first = shl i64 %d, %places
  br label %step
step:
  %r = phi i64 [ %n, %align ], [ %rest, %step ]
  %q = phi i64 [ 0, %align ], [ %q.next, %step ]
  %by = phi i64 [ %first, %align ], [ %by.half, %step ]
  %left = phi i64 [ %places, %align ], [ %left.less, %step ]
  %fits = icmp uge i64 %r, %by
  %difference = sub i64 %r, %by
  %rest = select i1 %fits, i64 %difference, i64 %r
  %bit = zext i1 %fits to i64
  %q.twice = shl i64 %q, 1
  %q.next = or i64 %q.twice, %bit
  %by.half = lshr i64 %by, 1
  %left.less = sub i64 %left, 1
  %last = icmp eq i64 %left, 0
  br i1 %last, label %done, label %step
done:
  %quotient = phi i64 [ %q.short, %short ], [ 0, %long ], [ %q.next, %step ]
  %remainder = phi i64 [ %r.short, %short ], [ %n, %long ], [ %rest, %step ]
  %pair = insertvalue {i64, i64} poison, i64 %quotient, 0
  %result = insertvalue {i64, i64} %pair, i64 %remainder, 1
  ret {i64, i64} %result
}
declare i64 @llvm.ctlz.i64(i64, i1)

;; ldivmod
define {i64, i64} @__aeabi_ldivmod(i64 %n, i64 %d) #0 {
  %n.sign = ashr i64 %n, 63
  %d.sign = ashr i64 %d, 63
  %n.flipped = xor i64 %n, %n.sign
  %d.flipped = xor i64 %d, %d.sign
  %n.size = sub i64 %n.flipped, %n.sign
  %d.size = sub i64 %d.flipped, %d.sign
  %pair = call {i64, i64} @__aeabi_uldivmod(i64 %n.size, i64 %d.size)
  %q = extractvalue {i64, i64} %pair, 0
  %r = extractvalue {i64, i64} %pair, 1
  %q.sign = xor i64 %n.sign, %d.sign
  %q.flipped = xor i64 %q, %q.sign
  %r.flipped = xor i64 %r, %n.sign
  %quotient = sub i64 %q.flipped, %q.sign
  %remainder = sub i64 %r.flipped, %n.sign
  %first = insertvalue {i64, i64} poison, i64 %quotient, 0
  %result = insertvalue {i64, i64} %first, i64 %remainder, 1
  ret {i64, i64} %result
}
declare {i64, i64} @__aeabi_uldivmod(i64, i64)

;; l2d
; `to`: si or ui. The high half is exact, so that the sum rounds once.
define arm_aapcscc double @__aeabi_${u}l2d(i64 %x) #0 {
  %upper = lshr i64 %x, 32
  %high = trunc i64 %upper to i32
  %low = trunc i64 %x to i32
  %h = ${to}tofp i32 %high to double
  %l = uitofp i32 %low to double
  %scaled = fmul double %h, 4294967296.0
  %sum = fadd double %scaled, %l
  ret double %sum
}

;; l2f
; The sum of f64 is rounded to odd, so that the rounding to f32 is as good as one.
define arm_aapcscc float @__aeabi_${u}l2f(i64 %x) #0 {
  %upper = lshr i64 %x, 32
  %high = trunc i64 %upper to i32
  %low = trunc i64 %x to i32
  %h = ${to}tofp i32 %high to double
  %l = uitofp i32 %low to double
  %scaled = fmul double %h, 4294967296.0
  %sum = fadd double %scaled, %l
  %taken = fsub double %sum, %scaled
  %error = fsub double %l, %taken
  %exact = fcmp oeq double %error, 0.0
  %bits = bitcast double %sum to i64
  %error.bits = bitcast double %error to i64
  %signs = xor i64 %bits, %error.bits
  %beyond = lshr i64 %signs, 63
  %towards.zero = sub i64 %bits, %beyond
  %odd = or i64 %towards.zero, 1
  %chosen = select i1 %exact, i64 %bits, i64 %odd
  %double = bitcast i64 %chosen to double
  %found = fptrunc double %double to float
  ret float %found
}

;; d2lz
define arm_aapcscc i64 @__aeabi_${name}(${F} %given) #0 {
  %x = ${widened}
  %size = call double @llvm.fabs.f64(double %x)
  %above = fmul double %size, 0x3DF0000000000000
  %high.any = fptoui double %above to i32
  %high = freeze i32 %high.any
  %h = uitofp i32 %high to double
  %scaled = fmul double %h, 4294967296.0
  %rest = fsub double %size, %scaled
  %low.any = fptoui double %rest to i32
  %low = freeze i32 %low.any
  %high.wide = zext i32 %high to i64
  %upper = shl i64 %high.wide, 32
  %low.wide = zext i32 %low to i64
  %whole = or i64 %upper, %low.wide
  %negative = fcmp olt double %x, 0.0
  %minus = sub i64 0, %whole
  %found = select i1 %negative, i64 %minus, i64 %whole
  ret i64 %found
}
declare double @llvm.fabs.f64(double)

;; memory call
define ${cc}void @${name}(${parameters}) #0 {
  %done = call ptr @${c}(${arguments})
  ret void
}
declare ptr @${c}(ptr, ${second}, ${w})
