/* What all parts share: the mutex, counts and ordered failures of calls, handles, threads, and the list of violations. */
#define _GNU_SOURCE
#include "stub_cuda.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pk_initialized, pk_device_count, pk_lazy, pk_sticky_violations, pk_fill = 1;
uint64_t pk_epoch = 1;
Device pk_devices[MAX_DEVICES];
long pk_live[KINDS];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int sleepers, forked;

#define PK_TEXT(name) #name,
static const char *const names[] = {PK_FUNCTIONS(PK_TEXT)};
static long counts[FUNCTION_COUNT];
static struct { CUresult status; long after; } failures[FUNCTION_COUNT]; /* after < 0: every call */

void pk_lock(void) { pthread_mutex_lock(&mutex); }
void pk_unlock(void) { pthread_mutex_unlock(&mutex); }

void pk_sleep(void) {
  sleepers++;
  pthread_cond_wait(&changed, &mutex);
  sleepers--;
}

void pk_wake(void) {
  if (sleepers) pthread_cond_broadcast(&changed);
}

/* A forked child can use nothing of CUDA that its parent began. */
static void in_child(void) {
  forked = pk_initialized;
  pk_unlock();
}

__attribute__((constructor)) static void start(void) { pthread_atfork(pk_lock, pk_unlock, in_child); }

Held pk_enter(int function) {
  pk_lock();
  counts[function]++;
  CUresult status = OK;
  if (__builtin_expect(failures[function].status != 0, 0)) {
    status = failures[function].after > 0 ? OK : failures[function].status;
    if (failures[function].after >= 0 && failures[function].after-- == 0) failures[function].status = 0;
  }
  if (__builtin_expect(forked, 0) && function != F_cuGetErrorString && function != F_cuGetErrorName) status = NOT_INITIALIZED;
  return (Held){status};
}

void pk_leave(Held *held) {
  (void)held;
  pk_unlock();
}

static int number_of(const char *function) {
  for (int n = 0; n < FUNCTION_COUNT; n++)
    if (!strcmp(names[n], function)) return n;
  return -1;
}

/* The number of calls of a function; -1 for one that is not here. */
PK_EXPORT long pk_stub_count(const char *function) {
  int n = number_of(function);
  if (n < 0) return -1;
  pk_lock();
  long count = counts[n];
  pk_unlock();
  return count;
}

PK_EXPORT const char *pk_stub_function(int n) { return n >= 0 && n < FUNCTION_COUNT ? names[n] : NULL; }

PK_EXPORT void pk_stub_reset_counts(void) {
  pk_lock();
  memset(counts, 0, sizeof counts);
  pk_unlock();
}

PK_EXPORT int pk_stub_fail(const char *function, int status, int after) {
  int n = number_of(function);
  if (n < 0) return -1;
  pk_lock();
  failures[n].status = (CUresult)status;
  failures[n].after = after;
  pk_unlock();
  return 0;
}

/* Threads. A reset makes what they know void, by the epoch. */

Thread *pk_thread(void) {
  static _Thread_local Thread thread;
  if (thread.epoch != pk_epoch) thread = (Thread){.epoch = pk_epoch};
  return &thread;
}

CUresult pk_current(Context **context) {
  Thread *thread = pk_thread();
  if (!thread->depth) return INVALID_CONTEXT;
  Context *found = thread->stack[thread->depth - 1];
  if (!found) return INVALID_CONTEXT;
  if (!found->active) return CONTEXT_IS_DESTROYED;
  *context = found;
  return pk_result(found);
}

int pk_is_sticky(CUresult status) {
  return status == ILLEGAL_ADDRESS || status == 702 || status == 710 || (status >= 714 && status <= 719) || status == 214 ||
         status == 999;
}

void pk_fail_context(Context *ctx, CUresult status) {
  if (pk_is_sticky(status))
    ctx->sticky = ctx->sticky ? ctx->sticky : status;
  else
    ctx->pending = status;
}

CUresult pk_result(Context *ctx) {
  if (__builtin_expect(ctx->sticky != 0, 0)) return ctx->sticky;
  CUresult status = ctx->pending;
  ctx->pending = OK;
  return status;
}

/* Handles: kind, use of the slot, slot. */

typedef struct { Object *object; uint64_t handle; uint32_t use, next; } Slot;
static Slot *slots;
static uint32_t slot_count, slot_made, slot_room, slot_free; /* made: ever, so that no use is counted twice */
static Object **kept; /* what may still be pointed to: freed at a reset */
static size_t kept_count, kept_room;

static void *grown(void *array, size_t count, size_t item) {
  void *more = realloc(array, count * item);
  if (!more) abort();
  return more;
}

void *pk_new(Kind kind, size_t size, Context *ctx) {
  Object *object = calloc(1, size);
  if (!object) abort();
  uint32_t n = slot_free;
  if (n)
    slot_free = slots[n].next;
  else {
    if (slot_count + 1 >= slot_room) slots = grown(slots, slot_room = slot_room ? 2 * slot_room : 256, sizeof *slots);
    n = ++slot_count; /* slot 0 is none */
    if (n > slot_made) slots[slot_made = n].use = 0;
  }
  Slot *slot = &slots[n];
  slot->object = object;
  slot->use = (slot->use + 1) & 0xFFFFFF;
  slot->handle = object->handle = (uint64_t)(kind + 1) << 56 | (uint64_t)slot->use << 32 | (uint64_t)n << 4;
  object->ctx = ctx;
  pk_live[kind]++;
  return object;
}

static Kind kind_of(uint64_t handle) { return (Kind)((handle >> 56) - 1); }

void pk_delete(void *object, int keep) {
  Object *found = object;
  uint32_t n = (uint32_t)(found->handle >> 4) & 0xFFFFFFF;
  pk_live[kind_of(found->handle)]--;
  slots[n].object = NULL;
  slots[n].handle = 0;
  slots[n].next = slot_free;
  slot_free = n;
  if (keep) {
    if (kept_count == kept_room) kept = grown(kept, kept_room = kept_room ? 2 * kept_room : 64, sizeof *kept);
    kept[kept_count++] = found;
  } else
    free(found);
}

void *pk_find_number(uint64_t handle, Kind kind) {
  uint32_t n = (uint32_t)(handle >> 4) & 0xFFFFFFF;
  if (!n || n > slot_count || slots[n].handle != handle || kind_of(handle) != kind) return NULL;
  return slots[n].object;
}

void *pk_find(const void *handle, Kind kind) { return pk_find_number((uintptr_t)handle, kind); }

void pk_each(Kind kind, Context *ctx, void (*work)(void *)) {
  for (uint32_t n = 1; n <= slot_count; n++) {
    Object *object = slots[n].object;
    if (object && kind_of(slots[n].handle) == kind && (!ctx || object->ctx == ctx)) work(object);
  }
}

/* Violations */

static char violations[1 << 16], shown[1 << 16];
static size_t violated;

void pk_violation(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (violated + 600 < sizeof violations) {
    int length = vsnprintf(violations + violated, 500, format, arguments);
    violated += (size_t)(length < 500 ? length : 499);
    violations[violated++] = '\n';
    violations[violated] = 0;
  }
  va_end(arguments);
}

/* What was done wrong, one thing a line; the text is good until the next call of this function. */
PK_EXPORT const char *pk_stub_violations(void) {
  pk_lock();
  memcpy(shown, violations, violated + 1);
  pk_unlock();
  return shown;
}

PK_EXPORT void pk_stub_clear_violations(void) {
  pk_lock();
  violated = 0;
  violations[0] = 0;
  pk_unlock();
}

/* A process that has PK_STUB_REPORT in its environment adds its counts and violations to that file when it ends. */
__attribute__((destructor)) static void report(void) {
  const char *path = getenv("PK_STUB_REPORT");
  FILE *file = path && *path && !forked ? fopen(path, "a") : NULL;
  if (!file) return;
  for (int n = 0; n < FUNCTION_COUNT; n++)
    if (counts[n]) fprintf(file, "%s %ld\n", names[n], counts[n]);
  fprintf(file, "%s", violations);
  fclose(file);
}

void pk_forget(void) {
  for (uint32_t n = 1; n <= slot_count; n++) {
    free(slots[n].object);
    slots[n].object = NULL;
    slots[n].handle = 0;
  }
  for (size_t n = 0; n < kept_count; n++) free(kept[n]);
  kept_count = slot_count = slot_free = 0;
  memset(counts, 0, sizeof counts);
  memset(failures, 0, sizeof failures);
  memset(pk_live, 0, sizeof pk_live);
  violated = 0;
  violations[0] = 0;
  pk_epoch++;
}
