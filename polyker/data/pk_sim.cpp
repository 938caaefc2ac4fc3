// pk_sim.cpp: runs the threads of CUDA kernels on a CPU, one block after another. Threads that meet are fibers.
// Compiled once and never with a sanitizer: AddressSanitizer and ThreadSanitizer are told about the fibers through weak hooks.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <sched.h>
#define WEAK __attribute__((weak))
struct pk_dim { unsigned x, y, z; };
extern "C" {
void __sanitizer_start_switch_fiber(void **, const void *, size_t) WEAK;
void __sanitizer_finish_switch_fiber(void *, const void **, size_t *) WEAK;
void __asan_unpoison_memory_region(const volatile void *, size_t) WEAK;
void *__tsan_create_fiber(unsigned) WEAK;
void __tsan_destroy_fiber(void *) WEAK;
void *__tsan_get_current_fiber(void) WEAK;
void __tsan_switch_to_fiber(void *, unsigned) WEAK;
void __tsan_acquire(void *) WEAK;
void __tsan_release(void *) WEAK;
pk_dim pk_thread_index, pk_block_index, pk_block_size, pk_grid_size;
}
namespace {
const size_t STACK = 256 * 1024;
const unsigned MOST = 1024;
const unsigned LANES = 32;
// What the threads of a warp give each other: two tables in turn, for those that read the last one.
struct Warp { unsigned char given[2][LANES][16]; unsigned arrived; uint64_t turn; int line; char order[2]; };
struct Fiber {
  char *stack; void *stack_pointer; pk_dim index; bool done, waits; uint64_t turn; Warp *warp; void *tsan, *fake; ucontext_t context;
  bool held(uint64_t now) const { return done || (waits && (warp ? warp->turn : now) == turn); }
};
// A copy that arrives later, and those of a thread: a ring.
const unsigned ASKED = 1024;
struct Asked { void *to; const void *from; int bytes, group; };
struct Later { Asked asked[ASKED]; unsigned begin, end; int groups; } later[MOST];
Warp warps[MOST / LANES];
Fiber fibers[MOST], host, *current;
unsigned order[MOST], alive, arrived, total;
int barrier_line;
uint64_t turn;
char barrier_order[2], begin_order, end_order;
void (*body)(void *);
void *argument;
const char *kernel_name;
const void *host_stack;
size_t host_size;
int busy;
void acquire(void *p) { if (__tsan_acquire) __tsan_acquire(p); }
void release(void *p) { if (__tsan_release) __tsan_release(p); }
void die(const char *what, int one, int other) {
  fprintf(stderr, "PK-ERROR %s: %s (lines %d, %d), block (%u, %u, %u)\n", kernel_name, what, one, other, pk_block_index.x,
          pk_block_index.y, pk_block_index.z);
  fflush(stderr);
  _exit(70);
}
#ifdef __x86_64__
extern "C" void pk_switch(void **save, void *to);
asm(".text\n.hidden pk_switch\n.globl pk_switch\npk_switch:\n pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n"
    " pushq %r15\n movq %rsp,(%rdi)\n movq %rsi,%rsp\n popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
#endif
void go(Fiber *from, Fiber *to) {
  bool leaves = from->done && from != &host;
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(leaves ? nullptr : &from->fake, to == &host ? host_stack : to->stack, to == &host ? host_size : STACK);
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(to->tsan, 1);  // 1: the switch orders nothing
#ifdef __x86_64__
  pk_switch(&from->stack_pointer, to->stack_pointer);
#else
  swapcontext(&from->context, &to->context);
#endif
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
}
// Not memcpy, which sanitizers look into.
void copy(volatile unsigned char *to, const volatile unsigned char *from, unsigned bytes) {
  for (unsigned i = 0; i < bytes; i++) to[i] = from[i];
}
void check_barrier() {
  if (!alive || arrived < alive) return;
  if (alive != total) die("a barrier that some threads never reach", barrier_line, 0);
  arrived = 0;
  turn++;
}
void run() {
  if (__sanitizer_finish_switch_fiber) {
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (!host_stack) host_stack = bottom, host_size = size;
  }
  acquire(&begin_order);
  body(argument);
  release(&end_order);
  Fiber *f = current;
  const Later &l = later[f - fibers];
  if (l.begin != l.end) die("a thread ends before copies that it asked for have arrived: no wait covers them", 0, 0);
  f->done = true;
  alive--;
  check_barrier();
  go(f, &host);
  abort();
}
void prepare(Fiber &f) {
  if (!f.stack) f.stack = (char *)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(f.stack, STACK);
  if (__tsan_create_fiber) {
    if (f.tsan) __tsan_destroy_fiber(f.tsan);
    f.tsan = __tsan_create_fiber(0);
  }
#ifdef __x86_64__
  void **top = (void **)(f.stack + STACK);
  *--top = nullptr;
  *--top = (void *)run;
  for (int i = 0; i < 6; i++) *--top = nullptr;
  f.stack_pointer = top;
#else
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack;
  f.context.uc_stack.ss_size = STACK;
  makecontext(&f.context, run, 0);
#endif
}
pk_dim place(unsigned n, pk_dim size) { return {n % size.x, n / size.x % size.y, n / (size.x * size.y)}; }
void shuffle(unsigned n) {
  static int seed = -1;
  if (seed < 0) { const char *text = getenv("POLYKER_SIM_SEED"); seed = text ? atoi(text) & 0x7FFFFFFF : 1; }
  for (unsigned i = 0; i < n; i++) order[i] = i;
  unsigned s = (unsigned)seed;
  for (unsigned i = n; seed && i-- > 1;) {
    s = s * 1664525u + 1013904223u;
    unsigned j = (s >> 8) % (i + 1), t = order[i];
    order[i] = order[j], order[j] = t;
  }
}
void run_together() {
  alive = total; arrived = 0; turn = 0;
  release(&begin_order);
  for (unsigned i = 0; i < total; i++) {
    fibers[i].index = place(i, pk_block_size);
    fibers[i].done = fibers[i].waits = false;
    fibers[i].warp = nullptr;
    later[i].begin = later[i].end = 0, later[i].groups = 0;
    warps[i / LANES].arrived = 0;
    warps[i / LANES].turn = 0;
    prepare(fibers[i]);
  }
  while (alive) {
    bool moved = false;
    for (unsigned k = 0; k < total; k++) {
      Fiber &f = fibers[order[k]];
      if (f.held(turn)) continue;
      moved = true;
      current = &f;
      pk_thread_index = f.index;
      go(&host, &f);
    }
    for (unsigned i = 0; !moved && i < total; i++)
      if (fibers[i].warp) die("not every thread of a warp reaches a place where it meets", fibers[i].warp->line, 0);
    if (!moved) die("not every thread reaches a barrier", barrier_line, 0);
  }
  acquire(&end_order);
}
}  // namespace
extern "C" {
void pk_barrier(int line) {
  if (!current) die("a barrier in a kernel that was launched without", line, 0);
  Fiber *f = current;
  uint64_t here = turn;
  release(&barrier_order[here & 1]);
  if (!arrived) barrier_line = line;
  else if (barrier_line != line) die("threads of a block meet in different barriers", barrier_line, line);
  f->turn = here;
  f->waits = true;
  arrived++;
  check_barrier();
  if (turn == here) go(f, &host);
  f->waits = false;
  acquire(&barrier_order[here & 1]);
}
void meet_warp(Fiber *f, Warp &w, int line) {
  if (!w.arrived) w.line = line;
  else if (w.line != line) die("threads of a warp meet in different places", w.line, line);
  if (++w.arrived == LANES) {
    w.arrived = 0;
    w.turn++;
  } else {
    f->warp = &w, f->turn = w.turn, f->waits = true;
    go(f, &host);
    f->warp = nullptr, f->waits = false;
  }
}
void pk_meet_warp(int line) {
  if (!current) die("a barrier of warps in a kernel that was launched without", line, 0);
  Fiber *f = current;
  Warp &w = warps[unsigned(f - fibers) / LANES];
  if (total % LANES) die("a barrier of warps in a block of partial warps", line, 0);
  uint64_t here = w.turn;
  release(&w.order[here & 1]);
  meet_warp(f, w, line);
  acquire(&w.order[here & 1]);
}
// Only the values meet: a shuffle orders nothing else.
void pk_exchange(const void *mine, void *other, unsigned bytes, int mask, int line) {
  if (!current) die("a shuffle in a kernel that was launched without", line, 0);
  Fiber *f = current;
  unsigned n = unsigned(f - fibers), lane = n % LANES;
  Warp &w = warps[n / LANES];
  if (total % LANES) die("a shuffle in a block of partial warps", line, 0);
  uint64_t here = w.turn;
  copy(w.given[here & 1][lane], (const unsigned char *)mine, bytes);
  meet_warp(f, w, line);
  copy((unsigned char *)other, w.given[here & 1][lane ^ unsigned(mask)], bytes);
}
void pk_launch(const char *name, pk_dim blocks, pk_dim threads, int together, void (*function)(void *), void *with) {
  kernel_name = name; body = function; argument = with;
  pk_grid_size = blocks; pk_block_size = threads;
  total = threads.x * threads.y * threads.z;
  if (!total || total > MOST) die("a block has 1 to 1024 threads", 0, 0);
  if (blocks.y > 65535 || blocks.z > 65535 || !blocks.x || !blocks.y || !blocks.z) die("a grid of that size cannot be launched", 0, 0);
  if (__tsan_get_current_fiber) host.tsan = __tsan_get_current_fiber();
  shuffle(total);
  for (pk_block_index.z = 0; pk_block_index.z < blocks.z; pk_block_index.z++)
    for (pk_block_index.y = 0; pk_block_index.y < blocks.y; pk_block_index.y++)
      for (pk_block_index.x = 0; pk_block_index.x < blocks.x; pk_block_index.x++) {
        if (together || __tsan_create_fiber) { run_together(); current = nullptr; continue; }
        for (unsigned k = 0; k < total; k++) { pk_thread_index = place(order[k], threads); function(with); }
      }
}
void pk_misaligned(const void *place, int bytes) {
  fprintf(stderr, "PK-ERROR %s: an access of %d bytes at %p, which is no multiple of them\n", kernel_name, bytes, place);
  fflush(stderr);
  _exit(70);
}
// What a thread has asked for and not waited for, in groups; the last one is open.
void pk_ask(void *to, const void *from, int bytes, int there) {
  Later &l = later[current ? current - fibers : 0];
  if (l.end - l.begin == ASKED) die("more copies on their way than the simulator holds", 0, 0);
  l.asked[l.end++ % ASKED] = {to, there ? from : nullptr, bytes, l.groups};
}
void pk_commit(void) { later[current ? current - fibers : 0].groups++; }
int pk_next(int pending, void **to, const void **from) {
  Later &l = later[current ? current - fibers : 0];
  if (l.begin == l.end) return 0;
  Asked &a = l.asked[l.begin % ASKED];
  if (a.group + pending >= l.groups) return 0;
  l.begin++;
  *to = a.to, *from = a.from;
  return a.bytes;
}
// One call at a time.
void pk_enter(void) { while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE)) sched_yield(); }
void pk_leave(void) { __atomic_store_n(&busy, 0, __ATOMIC_RELEASE); }
}
