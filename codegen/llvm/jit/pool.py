"""The pool of threads that PARALLEL loops run on, in LLVM IR over pthreads and futexes: one a process, made at first use.

A region is `parallel_for` of codegen.llvm.loops.parallel. The caller takes part as participant 0; worker k is always participant
k.

- A region is announced by one store to `epoch`: its number and how many take part. A worker joins by claiming its place
  (`claims`: the number of the last region in which somebody took that participant's part). The caller claims the places of
  those that are not there by the time its own part is done, so that nobody waits for a thread to wake up.
- Workers look for work for 100 microseconds, then sleep on the futex `bell`. The caller rings it if there are `sleepers`. Who
  looks yields the core now and then: to a caller that was woken away from it, or to another process.
- Workers keep off the core that the caller is on, where they have others: the scheduler may wake a thread on the core of the one
  that woke it, where it waits for milliseconds, or packs both there. When the caller is seen on another core they are told anew.
- Who finds the pool busy (another thread's region, or a region in a region) runs its region alone.
- A child of a fork has none of the threads: `forked` makes it start afresh.
- Workers take the caller's floating-point environment; signals are for the program's own threads.
"""

from __future__ import annotations

from string import Template

from polyker.codegen.llvm.jit import binding as llvm
from polyker.codegen.llvm.jit.own import own_library

# Most threads of a region; bytes of a worker's stack; nanoseconds that a worker looks for work before it sleeps (chosen).
MAX_THREADS, WORKER_STACK_BYTES, SPIN_NANOSECONDS = 256, 4 << 20, 100_000
# Least nanoseconds until workers are told anew what core to keep off (chosen): two system calls for each.
_AFFINITY_NANOSECONDS = 1_000_000
# Looks at the counter before the caller sleeps until the others are done (chosen); a look takes 10 to 50 ns.
_SPIN_CHECKS = 4000
_EXTERNALS = frozenset(
    {"pthread_attr_destroy", "pthread_attr_init", "pthread_attr_setdetachstate", "pthread_attr_setstacksize"}
    | {"clock_gettime", "pthread_create", "pthread_sigmask", "sched_yield", "syscall"}
    | {"pthread_getaffinity_np", "pthread_setaffinity_np", "sched_getcpu"}
)
_MACHINES = {
    "x86_64": {
        "futex": 202,
        "declare": "declare void @llvm.x86.sse2.pause()\n"
        "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)",
        "pause": "call void @llvm.x86.sse2.pause()",
        "save": "call void @llvm.x86.sse.stmxcsr(ptr @environment)",
        "restore": "call void @llvm.x86.sse.ldmxcsr(ptr @environment)",
    },
    "aarch64": {
        "futex": 98,
        "declare": "declare void @llvm.aarch64.hint(i32)\n"
        "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)",
        "pause": "call void @llvm.aarch64.hint(i32 1)",
        "save": "%fpcr = call i64 @llvm.aarch64.get.fpcr()\n  store i64 %fpcr, ptr @environment",
        "restore": "%fpcr = load i64, ptr @environment\n  call void @llvm.aarch64.set.fpcr(i64 %fpcr)",
    },
}

_POOL = """\
target triple = "$triple"

@epoch = internal global i64 0, align 64          ; number of the region << 16 | participants
@bell = internal global i32 0, align 64
@sleepers = internal global i32 0, align 4
@busy = internal global i32 0, align 64
@made = internal global i64 0, align 8            ; workers
@function = internal global ptr null, align 64    ; of the region, and what it is called with
@context = internal global ptr null, align 8
@begin = internal global i64 0, align 8
@environment = internal global i64 0, align 8
@done = internal global i32 0, align 64           ; participants that workers have carried out
@waiting = internal global i32 0, align 4         ; whether the caller sleeps until they are done
@failed = internal global i32 0, align 4
@threads = internal global [$most x i64] zeroinitializer, align 8  ; the workers
@away = internal global [$most x i32] zeroinitializer, align 4     ; one more than the core taken from each one's affinity, or 0
@home = internal global i32 -1, align 4           ; the core that they keep off
@placed = internal global i64 0, align 8          ; when they were told so
@claims = internal global [$most x [8 x i64]] zeroinitializer, align 64

declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_yield()
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_getaffinity_np(i64, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sched_getcpu()
declare <16 x i64> @llvm.ctpop.v16i64(<16 x i64>)
declare i64 @llvm.vector.reduce.add.v16i64(<16 x i64>)
$declare

; Sleep until %word is rung, if it still has the value (FUTEX_WAIT, private to the process).
define internal void @sleep(ptr %word, i32 %value) {
  %ignored = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i32 128, i32 %value, ptr null, ptr null, i32 0)
  ret void
}

; Wake all that sleep on %word (FUTEX_WAKE, private).
define internal void @ring(ptr %word) {
  %ignored = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  ret void
}

define internal i64 @now() {
  %time = alloca [2 x i64]
  %ignored = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

; Whether the caller of this is the one that carries out participant %index of region %number.
define internal i1 @claim(i64 %index, i64 %number) {
  %at = getelementptr [8 x i64], ptr @claims, i64 %index
  %last = atomicrmw umax ptr %at, i64 %number acq_rel
  %mine = icmp ult i64 %last, %number
  ret i1 %mine
}

define internal ptr @worker(ptr %argument) {
entry:
  %index = ptrtoint ptr %argument to i64
  br label %start
start:
  %seen.start = phi i64 [ 0, %entry ], [ %epoch, %finished ], [ %epoch, %tell ], [ %seen, %awake ]
  %since = call i64 @now()
  br label %look
look:
  %seen = phi i64 [ %seen.start, %start ], [ %seen, %patient ], [ %seen, %tired ], [ %epoch, %new ], [ %epoch, %mine ]
  %looks = phi i64 [ 0, %start ], [ %looks.next, %patient ], [ %looks.next, %tired ], [ 0, %new ], [ 0, %mine ]
  %epoch = load atomic i64, ptr @epoch acquire, align 8
  %same = icmp eq i64 %epoch, %seen
  br i1 %same, label %patient, label %new
patient:
  $pause
  %looks.next = add i64 %looks, 1
  %some = and i64 %looks.next, 31
  %check = icmp eq i64 %some, 0
  br i1 %check, label %tired, label %look
tired:
  %yielded = call i32 @sched_yield()
  %now = call i64 @now()
  %waited = sub i64 %now, %since
  %long = icmp ugt i64 %waited, $spin
  br i1 %long, label %rest, label %look
rest:
  %before = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %bell = load atomic i32, ptr @bell seq_cst, align 4
  %again = load atomic i64, ptr @epoch seq_cst, align 8
  %quiet = icmp eq i64 %again, %seen
  br i1 %quiet, label %asleep, label %awake
asleep:
  call void @sleep(ptr @bell, i32 %bell)
  br label %awake
awake:
  %after = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %start
new:
  %participants = and i64 %epoch, 65535
  %number = lshr i64 %epoch, 16
  %wanted = icmp ult i64 %index, %participants
  br i1 %wanted, label %mine, label %look
mine:
  %claimed = call i1 @claim(i64 %index, i64 %number)
  br i1 %claimed, label %run, label %look
run:
  ; The region cannot end before this participant has been carried out: what it was announced with holds until then.
  $restore
  %function = load ptr, ptr @function
  %context = load ptr, ptr @context
  %begin = load i64, ptr @begin
  %item = add i64 %begin, %index
  %status = call i32 %function(ptr %context, i64 %item)
  %well = icmp eq i32 %status, 0
  br i1 %well, label %finished, label %bad
bad:
  store atomic i32 %status, ptr @failed monotonic, align 4
  br label %finished
finished:
  %count = atomicrmw add ptr @done, i32 1 seq_cst
  %waiting = load atomic i32, ptr @waiting seq_cst, align 4
  %waits = icmp ne i32 %waiting, 0
  br i1 %waits, label %tell, label %start
tell:
  call void @ring(ptr @done)
  br label %start
}

; Make workers until there are %wanted, or no more can be made.
define internal void @grow(i64 %wanted) {
entry:
  %attributes = alloca [16 x i64]
  %all = alloca [16 x i64]
  %mask = alloca [16 x i64]
  %thread = alloca i64
  %made.first = load i64, ptr @made
  %enough = icmp uge i64 %made.first, %wanted
  br i1 %enough, label %out, label %prepare
prepare:
  store [16 x i64] [$ones], ptr %all
  %masked = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %mask)
  %initialised = call i32 @pthread_attr_init(ptr %attributes)
  %sized = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $stack)
  %detached = call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 1)
  br label %make
make:
  %made = load i64, ptr @made
  %more = icmp ult i64 %made, %wanted
  br i1 %more, label %create, label %end
create:
  %index = add i64 %made, 1
  %argument = inttoptr i64 %index to ptr
  %failed = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker, ptr %argument)
  %created = icmp eq i32 %failed, 0
  br i1 %created, label %note, label %end
note:
  %created.thread = load i64, ptr %thread
  %place = getelementptr i64, ptr @threads, i64 %index
  store i64 %created.thread, ptr %place
  %away.at = getelementptr i32, ptr @away, i64 %index
  store i32 0, ptr %away.at
  store i32 -1, ptr @home
  store i64 0, ptr @placed
  store i64 %index, ptr @made
  br label %make
end:
  %destroyed = call i32 @pthread_attr_destroy(ptr %attributes)
  %unmasked = call i32 @pthread_sigmask(i32 2, ptr %mask, ptr null)
  br label %out
out:
  ret void
}

; Keep the workers off core %cpu, where each has %others cores besides; give back the one that they kept off before.
define internal void @place(i32 %cpu, i64 %others) {
entry:
  %mask = alloca [16 x i64], align 8
  %now = call i64 @now()
  %last = load i64, ptr @placed
  %since = sub i64 %now, %last
  %soon = icmp ult i64 %since, $placed
  %beyond = icmp ugt i32 %cpu, 1023
  %not = or i1 %soon, %beyond
  br i1 %not, label %out, label %prepare
prepare:
  store i64 %now, ptr @placed
  store i32 %cpu, ptr @home
  %made = load i64, ptr @made
  %cpu.word = lshr i32 %cpu, 6
  %cpu.rest = and i32 %cpu, 63
  %cpu.shift = zext i32 %cpu.rest to i64
  %cpu.bit = shl i64 1, %cpu.shift
  %cpu.at = getelementptr i64, ptr %mask, i32 %cpu.word
  br label %next
next:
  %k = phi i64 [ 1, %prepare ], [ %k.next, %skip ]
  %more = icmp ule i64 %k, %made
  br i1 %more, label %read, label %out
skip:
  %k.next = add i64 %k, 1
  br label %next
read:
  %thread.at = getelementptr i64, ptr @threads, i64 %k
  %thread = load i64, ptr %thread.at
  %got = call i32 @pthread_getaffinity_np(i64 %thread, i64 128, ptr %mask)
  %known = icmp eq i32 %got, 0
  br i1 %known, label %old, label %skip
old:
  %away.at = getelementptr i32, ptr @away, i64 %k
  %away = load i32, ptr %away.at
  %was = icmp ne i32 %away, 0
  br i1 %was, label %give, label %take
give:
  %given = sub i32 %away, 1
  %given.word = lshr i32 %given, 6
  %given.rest = and i32 %given, 63
  %given.shift = zext i32 %given.rest to i64
  %given.bit = shl i64 1, %given.shift
  %given.at = getelementptr i64, ptr %mask, i32 %given.word
  %given.old = load i64, ptr %given.at
  %given.new = or i64 %given.old, %given.bit
  store i64 %given.new, ptr %given.at
  br label %take
take:
  %taken.old = load i64, ptr %cpu.at
  %taken.there = and i64 %taken.old, %cpu.bit
  %may = icmp ne i64 %taken.there, 0
  %taken.keep = xor i64 %cpu.bit, -1
  %taken.new = and i64 %taken.old, %taken.keep
  store i64 %taken.new, ptr %cpu.at
  %words = load <16 x i64>, ptr %mask, align 8
  %counts = call <16 x i64> @llvm.ctpop.v16i64(<16 x i64> %words)
  %cores = call i64 @llvm.vector.reduce.add.v16i64(<16 x i64> %counts)
  %enough = icmp uge i64 %cores, %others
  %takes = and i1 %may, %enough
  %cpu.kept = select i1 %enough, i64 %taken.new, i64 %taken.old
  store i64 %cpu.kept, ptr %cpu.at
  %cpu.next = add i32 %cpu, 1
  %away.new = select i1 %takes, i32 %cpu.next, i32 0
  %set = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %mask)
  %well = icmp eq i32 %set, 0
  br i1 %well, label %noted, label %skip
noted:
  store i32 %away.new, ptr %away.at
  br label %skip
out:
  ret void
}

define internal i32 @parallel_for(ptr %function, ptr %context, i64 %begin, i64 %end, ptr %user) {
entry:
  %participants = sub i64 %end, %begin
  %several = icmp sgt i64 %participants, 1
  %few = icmp sle i64 %participants, $most
  %fits = and i1 %several, %few
  br i1 %fits, label %enter, label %alone
enter:
  %exchanged = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %free = extractvalue { i32, i1 } %exchanged, 1
  br i1 %free, label %announce, label %alone
alone:
  %a = phi i64 [ %begin, %entry ], [ %begin, %enter ], [ %a.next, %a.go ]
  %a.status = phi i32 [ 0, %entry ], [ 0, %enter ], [ %a.worst, %a.go ]
  %a.more = icmp slt i64 %a, %end
  br i1 %a.more, label %a.go, label %a.end
a.go:
  %a.this = call i32 %function(ptr %context, i64 %a)
  %a.well = icmp eq i32 %a.this, 0
  %a.worst = select i1 %a.well, i32 %a.status, i32 %a.this
  %a.next = add i64 %a, 1
  br label %alone
a.end:
  ret i32 %a.status
announce:
  %others = sub i64 %participants, 1
  call void @grow(i64 %others)
  %cpu = call i32 @sched_getcpu()
  %home = load i32, ptr @home
  %stays = icmp eq i32 %cpu, %home
  br i1 %stays, label %publish, label %move
move:
  call void @place(i32 %cpu, i64 %others)
  br label %publish
publish:
  $save
  store ptr %function, ptr @function
  store ptr %context, ptr @context
  store i64 %begin, ptr @begin
  store atomic i32 0, ptr @done monotonic, align 4
  store atomic i32 0, ptr @failed monotonic, align 4
  %last = load atomic i64, ptr @epoch monotonic, align 8
  %last.number = lshr i64 %last, 16
  %number = add i64 %last.number, 1
  %high = shl i64 %number, 16
  %epoch = or i64 %high, %participants
  %ignored = atomicrmw xchg ptr @epoch, i64 %epoch seq_cst
  %sleepers = load atomic i32, ptr @sleepers seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %part
wake:
  %rung = atomicrmw add ptr @bell, i32 1 seq_cst
  call void @ring(ptr @bell)
  br label %part
part:
  %own = call i32 %function(ptr %context, i64 %begin)
  br label %next
next: ; the parts of those that have not come by now
  %k = phi i64 [ 1, %part ], [ %k.next, %skip ], [ %k.next, %take ]
  %left = phi i32 [ 0, %part ], [ %left.more, %skip ], [ %left, %take ]
  %status = phi i32 [ %own, %part ], [ %status, %skip ], [ %status.worst, %take ]
  %k.more = icmp slt i64 %k, %participants
  br i1 %k.more, label %try, label %wait
try:
  %k.next = add i64 %k, 1
  %mine = call i1 @claim(i64 %k, i64 %number)
  br i1 %mine, label %take, label %skip
skip:
  %left.more = add i32 %left, 1
  br label %next
take:
  %item = add i64 %begin, %k
  %status.this = call i32 %function(ptr %context, i64 %item)
  %take.well = icmp eq i32 %status.this, 0
  %status.worst = select i1 %take.well, i32 %status, i32 %status.this
  br label %next
wait:
  %looks = phi i64 [ 0, %next ], [ %looks.next, %yield ], [ %looks.next, %give ]
  %done = load atomic i32, ptr @done acquire, align 4
  %complete = icmp eq i32 %done, %left
  br i1 %complete, label %leave, label %patient
patient:
  $pause
  %looks.next = add i64 %looks, 1
  %tired = icmp ugt i64 %looks.next, $looks
  br i1 %tired, label %doze, label %yield
yield:
  %some = and i64 %looks.next, 63
  %often = icmp eq i64 %some, 0
  br i1 %often, label %give, label %wait
give:
  %given = call i32 @sched_yield()
  br label %wait
doze:
  store atomic i32 1, ptr @waiting seq_cst, align 4
  %done.now = load atomic i32, ptr @done seq_cst, align 4
  %complete.now = icmp eq i32 %done.now, %left
  br i1 %complete.now, label %woken, label %sleeping
sleeping:
  call void @sleep(ptr @done, i32 %done.now)
  br label %doze
woken:
  store atomic i32 0, ptr @waiting seq_cst, align 4
  br label %leave
leave:
  %theirs = load atomic i32, ptr @failed monotonic, align 4
  store atomic i32 0, ptr @busy release, align 4
  %ours = icmp ne i32 %status, 0
  %result = select i1 %ours, i32 %status, i32 %theirs
  ret i32 %result
}

; In the child of a fork: its only thread is the one that forked. What another thread had announced is over: a worker that is
; made here must not find it, with parts that nobody had claimed.
define internal void @forked() {
entry:
  store i32 0, ptr @busy
  store i32 0, ptr @sleepers
  store i32 0, ptr @waiting
  store i64 0, ptr @made
  store atomic i32 0, ptr @done monotonic, align 4
  store atomic i32 0, ptr @failed monotonic, align 4
  store atomic i64 0, ptr @epoch monotonic, align 8
  br label %claim
claim:
  %k = phi i64 [ 0, %entry ], [ %k.next, %claim ]
  %at = getelementptr [8 x i64], ptr @claims, i64 %k
  store atomic i64 0, ptr %at monotonic, align 8
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, $most
  br i1 %more, label %claim, label %out
out:
  ret void
}

@functions = internal constant [3 x ptr] [ptr @parallel_for, ptr @forked, ptr @made]

; The addresses of parallel_for, forked, and the number of workers.
define ptr @pool() {
  ret ptr @functions
}
"""


def pool_text(triple: str) -> str:
    """Return the LLVM IR module of the pool; raises KeyError for a machine that it is not written for."""
    machine = _MACHINES[triple.split("-")[0].replace("arm64", "aarch64")]
    ones = ", ".join(["i64 -1"] * 16)
    numbers = {
        "most": MAX_THREADS,
        "stack": WORKER_STACK_BYTES,
        "spin": SPIN_NANOSECONDS,
        "looks": _SPIN_CHECKS,
        "placed": _AFFINITY_NANOSECONDS,
    }
    return Template(_POOL).substitute(machine, triple=triple, ones=ones, **numbers)


def pool() -> llvm.LinkedCode:
    """Return the pool's machine code for this machine; `address` is that of `pool`."""
    return own_library(pool_text(llvm.host_triple()), "pool", 1, tuple(sorted(_EXTERNALS)))
