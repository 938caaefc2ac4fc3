/* Launches: what they ask is checked when they are queued, what they point to when they are done. And the doing of other work. */
#include "stub_cuda.h"

#include <stdio.h>
#include <string.h>

enum { LOGGED = 1024, LOGGED_BYTES = 1024 };

/* What a test is told of a launch that was done. */
typedef struct {
  char name[128];
  unsigned grid[3], block[3], shared, parameters;
  void *stream;
  unsigned bytes; /* of the parameters, of which those that have room follow */
  unsigned char data[LOGGED_BYTES];
} Launched;

typedef void (*Hook)(const char *name, const unsigned *grid, const unsigned *block, unsigned shared, void **params, void *stream);

static Hook hook;
static Launched launched[LOGGED];
static long launches, failing_launch = -1;
static CUresult launch_failure;

void pk_forget_launches(void) {
  hook = NULL;
  launches = 0;
  failing_launch = -1;
  memset(launched, 0, sizeof launched);
}

PK_EXPORT void pk_stub_on_launch(Hook found) {
  pk_lock();
  hook = found;
  pk_unlock();
}

/* Let the n-th next kernel (0: the next) fail on the device: what comes after it is told. */
PK_EXPORT void pk_stub_launch_fails(int status, int after) {
  pk_lock();
  launch_failure = (CUresult)status;
  failing_launch = status ? launches + after : -1;
  pk_unlock();
}

/* The number of kernels that were done. */
PK_EXPORT long pk_stub_launches(void) {
  pk_lock();
  long count = launches;
  pk_unlock();
  return count;
}

/* Tell of the launch of that number, one of the last 1024, negative ones from the end. Returns -1 for one that is not kept. */
PK_EXPORT int pk_stub_launched(long n, Launched *found) {
  pk_lock();
  if (n < 0) n += launches;
  int there = n >= 0 && n < launches && n >= launches - LOGGED;
  if (there) *found = launched[n % LOGGED];
  pk_unlock();
  return there ? 0 : -1;
}

PK_EXPORT void pk_stub_sticky_violations(int on) {
  pk_lock();
  pk_sticky_violations = on;
  pk_unlock();
}

PK_EXPORT void pk_stub_fill(int on) {
  pk_lock();
  pk_fill = on;
  pk_unlock();
}

static const uint32_t *uses_of(const Op *op) { return (const uint32_t *)(op->data + (op->function->total + 3) / 4 * 4); }

/* Return the block's use that an address of a parameter has now; 0 where it has none. */
static uint32_t use_of(const Op *op, unsigned n, uint64_t *address) {
  if (op->function->sizes[n] != 8) return 0;
  memcpy(address, op->data + op->function->offsets[n], 8);
  Block *block = pk_block(*address);
  return block ? block->use : 0;
}

static void violated(Context *ctx) {
  if (pk_sticky_violations) pk_fail_context(ctx, ILLEGAL_ADDRESS);
}

static int addresses_hold(Op *op) {
  Function *function = op->function;
  int holds = 1;
  for (unsigned n = 0; n < function->count; n++) {
    if (function->sizes[n] != 8) continue;
    uint64_t address;
    memcpy(&address, op->data + function->offsets[n], 8);
    if (!pk_in_range(address)) continue;
    const char *wrong = pk_wrong(address, 1, op->ctx, uses_of(op)[n]);
    if (!wrong) continue;
    pk_violation("%s: parameter %u is %#llx: %s", function->name, n, (unsigned long long)address, wrong);
    holds = 0;
  }
  return holds;
}

static void log_launch(const Op *op, Stream *stream) {
  Launched *entry = &launched[launches++ % LOGGED];
  size_t length = strnlen(op->function->name, sizeof entry->name - 1);
  memcpy(entry->name, op->function->name, length);
  entry->name[length] = 0;
  memcpy(entry->grid, op->grid, sizeof entry->grid);
  memcpy(entry->block, op->threads, sizeof entry->block);
  entry->shared = op->shared;
  entry->parameters = op->function->count;
  entry->stream = stream == stream->object.ctx->legacy ? NULL : HANDLE(stream);
  entry->bytes = op->function->total;
  memcpy(entry->data, op->data, entry->bytes < LOGGED_BYTES ? entry->bytes : LOGGED_BYTES);
}

void pk_execute_launch(Op *op, Stream *stream) {
  Function *function = op->function;
  if (function->module->unloaded) {
    pk_violation("%s: its module was unloaded before it was done", function->name);
    violated(op->ctx);
    return;
  }
  int holds = addresses_hold(op), fails = launches == failing_launch;
  log_launch(op, stream);
  if (fails) {
    failing_launch = -1;
    pk_fail_context(op->ctx, launch_failure);
    return;
  }
  if (!holds) { /* what it would do is not done */
    violated(op->ctx);
    return;
  }
  Hook called = hook;
  if (!called) return;
  void *places[MAX_PARAMETERS];
  for (unsigned n = 0; n < function->count; n++) places[n] = op->data + function->offsets[n];
  void *handle = stream == stream->object.ctx->legacy ? NULL : HANDLE(stream);
  pk_unlock();
  called(function->name, op->grid, op->threads, op->shared, places, handle);
  pk_lock();
}

static int holds(const char *what, uint64_t address, uint64_t size, Context *ctx, uint32_t use) {
  const char *wrong = pk_wrong(address, size, ctx, use);
  if (!wrong) return 1;
  pk_violation("%s of %llu bytes at %#llx: %s", what, (unsigned long long)size, (unsigned long long)address, wrong);
  violated(ctx);
  return 0;
}

/* Pinned memory may be freed too early; other memory of the host is nobody's business here. */
static int host_holds(const char *what, uint64_t address, uint64_t size, Context *ctx) {
  return !pk_in_range(address) || holds(what, address, size, ctx, 0);
}

static void execute_copy(Op *op) {
  Context *ctx = op->ctx ? op->ctx : op->from;
  if (op->ctx ? !holds("copy to memory", op->target, op->size, op->ctx, op->target_use)
              : !host_holds("copy to the host's memory", op->target, op->size, ctx))
    return;
  const void *source = op->data;
  if (!op->staged) {
    if (op->from ? !holds("copy from memory", op->source, op->size, op->from, op->source_use)
                 : !host_holds("copy from the host's memory", op->source, op->size, ctx))
      return;
    source = (const void *)(uintptr_t)op->source;
  }
  memmove((void *)(uintptr_t)op->target, source, op->size);
}

/* A node's block may have been freed and live again: that is another use of it, but for a graph's own. */
static void execute_memory(Op *op) {
  Block *block = op->block;
  if (op->kind == OP_ALLOCATE) {
    if (block->use == op->target_use) pk_begin(block);
    return;
  }
  if (block->use != op->target_use || block->state != LIVE)
    pk_violation("free of %#llx: it is not live", (unsigned long long)block->address);
  else
    pk_give(block, ENDED);
}

void pk_execute(Op *op, Stream *stream) {
  Context *ctx = stream->object.ctx;
  if (__builtin_expect(ctx->sticky != 0, 0)) return; /* nothing runs any more */
  switch (op->kind) {
    case OP_LAUNCH: pk_execute_launch(op, stream); break;
    case OP_COPY: execute_copy(op); break;
    case OP_SET:
      if (holds("memset", op->target, op->size, op->ctx, op->target_use))
        for (size_t n = 0; n < op->size; n++)
          ((unsigned char *)(uintptr_t)op->target)[n] = (unsigned char)(op->wide ? op->value >> 8 * (n % 4) : op->value);
      break;
    case OP_ALLOCATE:
    case OP_FREE: execute_memory(op); break;
    case OP_GRAPH: pk_execute_graph(op, stream); break;
    case OP_NOTHING:
    case OP_WAIT: break;
  }
}

/* Copy the parameters to where the code has them: from an array of places, or from a buffer that is laid out so. */
static CUresult take_parameters(const Function *function, void **params, void **extra, unsigned char *data) {
  if (extra) {
    NEEDS(!params, INVALID_VALUE);
    const unsigned char *buffer = NULL;
    size_t size = 0;
    for (void **item = extra; *item; item += 2) {
      if (*item == (void *)1)
        buffer = item[1];
      else if (*item == (void *)2)
        size = *(size_t *)item[1];
      else
        return INVALID_VALUE;
    }
    NEEDS(size >= function->total && size < function->total + 8 && (buffer || !function->total), INVALID_VALUE);
    if (function->total) memcpy(data, buffer, function->total);
    return OK;
  }
  NEEDS(params || !function->count, INVALID_VALUE);
  for (unsigned n = 0; n < function->count; n++) {
    NEEDS(params[n], INVALID_VALUE);
    if (function->sizes[n] == 8) /* nearly all */
      memcpy(data + function->offsets[n], params[n], 8);
    else
      memcpy(data + function->offsets[n], params[n], function->sizes[n]);
  }
  return OK;
}

static CUresult check_shape(const Op *op, const Device *device) {
  const int *attributes = device->attributes;
  const Function *function = op->function;
  uint64_t threads = (uint64_t)op->threads[0] * op->threads[1] * op->threads[2];
  for (int n = 0; n < 3; n++) {
    NEEDS(op->grid[n] && op->grid[n] <= (unsigned)attributes[5 + n], INVALID_VALUE);
    NEEDS(op->threads[n] && op->threads[n] <= (unsigned)attributes[2 + n], INVALID_VALUE);
  }
  NEEDS(threads <= (unsigned)attributes[1], INVALID_VALUE);
  NEEDS(!function->bounds || threads <= function->bounds, INVALID_VALUE);
  NEEDS(threads <= function->threads, LAUNCH_OUT_OF_RESOURCES);
  NEEDS(op->shared <= function->dynamic, INVALID_VALUE);
  NEEDS(op->shared + function->fixed <= (unsigned)attributes[97], INVALID_VALUE);
  return OK;
}

PK_EXPORT CUresult cuLaunchKernel(
    CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
    unsigned shared, CUstream stream_handle, void **params, void **extra) {
  ENTER(cuLaunchKernel);
  WITH_CONTEXT(ctx);
  Function *function = pk_find(handle, FUNCTION);
  NEEDS(function && function->object.ctx == ctx, INVALID_HANDLE);
  Stream *stream;
  TRY(pk_stream(ctx, stream_handle, &stream));
  NEEDS(stream->object.ctx == ctx, INVALID_HANDLE);

  union {
    Op op;
    char room[sizeof(Op) + MAX_PARAMETER_BYTES + 4 + 4 * MAX_PARAMETERS];
  } place; /* only its beginning is set: the rest would take longer than all else */
  Op *op = &place.op;
  *op = (Op){.kind = OP_LAUNCH, .ctx = ctx, .function = function, .shared = shared};
  op->grid[0] = grid_x, op->grid[1] = grid_y, op->grid[2] = grid_z;
  op->threads[0] = block_x, op->threads[1] = block_y, op->threads[2] = block_z;
  TRY(check_shape(op, &pk_devices[ctx->device]));
  TRY(take_parameters(function, params, extra, op->data));
  uint32_t *uses = (uint32_t *)uses_of(op);
  for (unsigned n = 0; n < function->count; n++) {
    uint64_t address;
    uses[n] = use_of(op, n, &address);
  }
  op->bytes = (unsigned char *)(uses + function->count) - op->data;
  return pk_submit(stream, op);
}
