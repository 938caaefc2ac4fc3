"""The part of the emitted entry that lends scratch memory: one block is kept from call to call. LLVM IR.

Memory that is given back to the system after each call is cleared and mapped anew, page by page, at the next: for a kernel
with megabytes of temporaries that takes longer than the kernel. A call takes the kept block with one atomic exchange, so
that several threads may call; who finds none, or one that is too small, allocates. A block begins with its size.
"""

SCRATCH = """\
; Return a block of at least %size bytes that begins with its size, null if there is no memory.
define internal ptr @lend(ptr %api, i64 %size) {
entry:
  %spare = getelementptr i64, ptr %api, i64 $ApiWord_SPARE
  %kept = atomicrmw xchg ptr %spare, ptr null acq_rel
  %none = icmp eq ptr %kept, null
  br i1 %none, label %allocate, label %try
try:
  %kept.size = call i64 @word(ptr %kept, i64 0)
  %enough = icmp uge i64 %kept.size, %size
  br i1 %enough, label %done, label %drop
drop:
  %free = call ptr @pointer(ptr %api, i64 $ApiWord_FREE)
  call void %free(ptr %kept)
  br label %allocate
allocate:
  %malloc = call ptr @pointer(ptr %api, i64 $ApiWord_MALLOC)
  %made = call ptr %malloc(i64 %size)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %done, label %note
note:
  store i64 %size, ptr %made
  br label %done
done:
  %block = phi ptr [ %kept, %try ], [ null, %allocate ], [ %made, %note ]
  ret ptr %block
}

; Keep a block that was lent for the next call, or free it if it is large.
define internal void @take_back(ptr %api, ptr %block) {
entry:
  %size = call i64 @word(ptr %block, i64 0)
  %small = icmp ule i64 %size, $KEPT_SCRATCH_BYTES
  br i1 %small, label %keep, label %drop
keep:
  %spare = getelementptr i64, ptr %api, i64 $ApiWord_SPARE
  %other = atomicrmw xchg ptr %spare, ptr %block acq_rel
  %alone = icmp eq ptr %other, null
  br i1 %alone, label %done, label %drop
drop:
  %surplus = phi ptr [ %block, %entry ], [ %other, %keep ]
  %free = call ptr @pointer(ptr %api, i64 $ApiWord_FREE)
  call void %free(ptr %surplus)
  br label %done
done:
  ret void
}
"""
