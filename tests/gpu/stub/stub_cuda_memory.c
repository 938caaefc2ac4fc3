/* Memory that is allocated at once, pinned memory of the host, copies, and what is asked of pointers. */
#include "stub_cuda.h"

#include <stdlib.h>
#include <string.h>

static unsigned long long shown(uint64_t number) { return (unsigned long long)number; }

PK_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  ENTER(cuMemAlloc_v2);
  WITH_CONTEXT(ctx);
  NEEDS(address, INVALID_VALUE);
  TRY(pk_unsafe());
  Block *block;
  TRY(pk_take(ctx->device, size, ctx, NULL, &block));
  pk_begin(block);
  *address = block->address;
  return OK;
}

PK_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  ENTER(cuMemFree_v2);
  WITH_CONTEXT(ctx);
  if (!address) return OK;
  Block *block = pk_block(address);
  NEEDS(block && block->address == address && block->arena == ctx->device, INVALID_VALUE);
  NEEDS(block->pool || block->ctx == ctx, INVALID_VALUE);
  NEEDS(block->owner ? block->state == LIVE : block->given, INVALID_VALUE);
  TRY(pk_unsafe());
  pk_run_all(ctx); /* it waits for the device */
  pk_give(block, FREED);
  return pk_result(ctx);
}

PK_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  ENTER(cuMemGetInfo_v2);
  WITH_CONTEXT(ctx);
  NEEDS(free_bytes && total, INVALID_VALUE);
  Device *device = &pk_devices[ctx->device];
  *total = device->total;
  *free_bytes = device->total > device->direct + device->kept ? device->total - device->direct - device->kept : 0;
  return OK;
}

static CUresult pinned(void **address, size_t size) {
  WITH_CONTEXT(ctx);
  NEEDS(address, INVALID_VALUE);
  TRY(pk_unsafe());
  Block *block;
  TRY(pk_take(PINNED_ARENA, size, ctx, NULL, &block));
  pk_begin(block);
  *address = (void *)(uintptr_t)block->address;
  return OK;
}

PK_EXPORT CUresult cuMemAllocHost_v2(void **address, size_t size) {
  ENTER(cuMemAllocHost_v2);
  return pinned(address, size);
}

PK_EXPORT CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) {
  ENTER(cuMemHostAlloc);
  NEEDS(flags < 8, INVALID_VALUE);
  return pinned(address, size);
}

PK_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned flags) {
  ENTER(cuMemHostGetDevicePointer_v2);
  WITH_CONTEXT(ctx);
  NEEDS(address && !flags, INVALID_VALUE);
  Block *block = pk_block((uintptr_t)host);
  NEEDS(block && block->arena == PINNED_ARENA && block->given, INVALID_VALUE);
  *address = (uintptr_t)host;
  return OK;
}

PK_EXPORT CUresult cuMemFreeHost(void *address) {
  ENTER(cuMemFreeHost);
  WITH_CONTEXT(ctx);
  Block *block = pk_block((uintptr_t)address);
  NEEDS(block && block->arena == PINNED_ARENA && block->given && block->address == (uintptr_t)address, INVALID_VALUE);
  TRY(pk_unsafe());
  pk_run_all(block->ctx->active ? block->ctx : ctx);
  pk_give(block, FREED);
  return pk_result(ctx);
}

/* Copies */

/* Check memory of a device when a copy is asked for, and note whose it is now. */
static CUresult device_side(uint64_t address, uint64_t size, const Context *ctx, uint32_t *use) {
  Block *block = pk_block(address);
  NEEDS(block && address - block->address < block->size && size <= block->size - (address - block->address), INVALID_VALUE);
  NEEDS(block->state != FREED, INVALID_VALUE); /* freed in a stream's order: the device will see */
  if (block->arena != PINNED_ARENA) NEEDS(block->pool ? block->arena == ctx->device : block->ctx == ctx, INVALID_VALUE);
  *use = block->use;
  return OK;
}

/* Check memory of the host: any, but of pinned memory what is there. */
static CUresult host_side(uint64_t address, uint64_t size, int *is_pinned) {
  NEEDS(address, INVALID_VALUE);
  *is_pinned = pk_in_range(address);
  if (!*is_pinned) return OK;
  Block *block = pk_block(address);
  NEEDS(block && block->arena == PINNED_ARENA && block->given, INVALID_VALUE);
  NEEDS(address - block->address < block->size && size <= block->size - (address - block->address), INVALID_VALUE);
  return OK;
}

/* Copy bytes of the host's that may change as soon as the call is over: they are taken along where the work is put off. */
static CUresult submit_staged(Stream *stream, const Op *op) {
  Op *staged = malloc(sizeof *staged + op->size);
  NEEDS(staged, OUT_OF_MEMORY);
  *staged = *op;
  staged->staged = 1;
  staged->bytes = op->size;
  memcpy(staged->data, (void *)(uintptr_t)op->source, op->size);
  CUresult status = pk_submit(stream, staged);
  free(staged);
  return status;
}

/* Queue a copy; NULL contexts are the host. `waits`: until it is done. */
static CUresult copy(uint64_t to, Context *to_ctx, uint64_t from, Context *from_ctx, size_t size, Stream *stream, int waits) {
  if (!size) return OK;
  Op op = {.kind = OP_COPY, .ctx = to_ctx, .from = from_ctx, .target = to, .source = from, .size = size};
  int to_pinned = 1, from_pinned = 1;
  TRY(to_ctx ? device_side(to, size, to_ctx, &op.target_use) : host_side(to, size, &to_pinned));
  TRY(from_ctx ? device_side(from, size, from_ctx, &op.source_use) : host_side(from, size, &from_pinned));
  if (stream->capture) return pk_submit(stream, &op);
  if (!from_pinned && !waits && (pk_lazy || pk_queued || pk_running)) return submit_staged(stream, &op);
  TRY(pk_submit(stream, &op));
  if (!waits && to_pinned) return OK;
  pk_run_to(stream, stream->last);
  return pk_result(stream->object.ctx);
}

/* Copies that wait go through the legacy stream. */
static CUresult waiting(Context *ctx, Stream **stream) {
  TRY(pk_stream(ctx, NULL, stream));
  return pk_unsafe();
}

PK_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
  ENTER(cuMemcpyHtoD_v2);
  WITH_CONTEXT(ctx);
  Stream *stream;
  TRY(waiting(ctx, &stream));
  return copy(to, ctx, (uintptr_t)from, NULL, size, stream, 1);
}

PK_EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
  ENTER(cuMemcpyDtoH_v2);
  WITH_CONTEXT(ctx);
  Stream *stream;
  TRY(waiting(ctx, &stream));
  return copy((uintptr_t)to, NULL, from, ctx, size, stream, 1);
}

PK_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream handle) {
  ENTER(cuMemcpyHtoDAsync_v2);
  WITH_CONTEXT(ctx);
  Stream *stream;
  TRY(pk_stream(ctx, handle, &stream));
  return copy(to, stream->object.ctx, (uintptr_t)from, NULL, size, stream, 0);
}

PK_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream handle) {
  ENTER(cuMemcpyDtoHAsync_v2);
  WITH_CONTEXT(ctx);
  Stream *stream;
  TRY(pk_stream(ctx, handle, &stream));
  return copy((uintptr_t)to, NULL, from, stream->object.ctx, size, stream, 0);
}

PK_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream handle) {
  ENTER(cuMemcpyDtoDAsync_v2);
  WITH_CONTEXT(ctx);
  Stream *stream;
  TRY(pk_stream(ctx, handle, &stream));
  return copy(to, stream->object.ctx, from, stream->object.ctx, size, stream, 0);
}

PK_EXPORT CUresult cuMemcpyPeerAsync(
    CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size, CUstream handle) {
  ENTER(cuMemcpyPeerAsync);
  WITH_CONTEXT(ctx);
  Context *target = pk_find(to_context, CONTEXT), *source = pk_find(from_context, CONTEXT);
  NEEDS(target && target->active && source && source->active, INVALID_CONTEXT);
  Stream *stream;
  TRY(pk_stream(ctx, handle, &stream));
  return copy(to, target, from, source, size, stream, 0);
}

static CUresult set(CUdeviceptr address, unsigned value, size_t size, int wide, CUstream handle) {
  WITH_CONTEXT(ctx);
  Stream *stream;
  TRY(pk_stream(ctx, handle, &stream));
  if (!size) return OK;
  Op op = {.kind = OP_SET, .ctx = stream->object.ctx, .target = address, .size = size, .value = value, .wide = wide};
  TRY(device_side(address, size, op.ctx, &op.target_use));
  return pk_submit(stream, &op);
}

PK_EXPORT CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t size, CUstream handle) {
  ENTER(cuMemsetD8Async);
  return set(address, value, size, 0, handle);
}

PK_EXPORT CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream handle) {
  ENTER(cuMemsetD32Async);
  NEEDS(address % 4 == 0, INVALID_VALUE);
  return set(address, value, 4 * count, 1, handle);
}

PK_EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
  ENTER(cuPointerGetAttribute);
  NEEDS(data, INVALID_VALUE);
  Block *block = pk_block(address);
  NEEDS(block && (block->given || block->owner) && address - block->address < block->size, INVALID_VALUE);
  switch ((int)attribute) {
    case 1: *(void **)data = block->pool ? NULL : HANDLE(block->ctx); return OK; /* pools belong to no context */
    case 2: *(unsigned *)data = block->arena == PINNED_ARENA ? 1 : 2; return OK;
    case 3: *(CUdeviceptr *)data = address; return OK;
    case 4:
      NEEDS(block->arena == PINNED_ARENA, INVALID_VALUE);
      *(void **)data = (void *)(uintptr_t)address;
      return OK;
    case 8: *(unsigned *)data = 0; return OK;
    case 9: *(int *)data = block->ctx->device; return OK;
    case 11: *(CUdeviceptr *)data = block->address; return OK;
    case 12: *(size_t *)data = block->size; return OK;
    default: return INVALID_VALUE;
  }
}

/* For tests: live bytes and what else there is; -1 for an unknown word. */

static long active_contexts, there;
static void count_active(void *ctx) { active_contexts += ((Context *)ctx)->active; }
static void count_graph(void *graph) { there += !((Graph *)graph)->destroyed; }
static void count_exec(void *exec) { there += !((Exec *)exec)->destroyed; }

static long live(const char *what) {
  static const char *const kinds[] = {"", "", "events", "modules", "functions", "pools"};
  for (int n = EVENT; n <= POOL; n++)
    if (!strcmp(what, kinds[n])) return pk_live[n];
  active_contexts = there = 0;
  if (!strcmp(what, "graphs")) {
    pk_each(GRAPH, NULL, count_graph);
    return there;
  }
  if (!strcmp(what, "executables")) {
    pk_each(EXEC, NULL, count_exec);
    return there;
  }
  pk_each(CONTEXT, NULL, count_active);
  if (!strcmp(what, "contexts")) return active_contexts;
  if (!strcmp(what, "streams")) return pk_live[STREAM] - 2 * active_contexts;
  if (!strcmp(what, "bytes")) return (long)pk_bytes;
  if (!strcmp(what, "allocations")) return pk_allocations;
  if (!strcmp(what, "pinned")) return (long)pk_pinned;
  if (!strcmp(what, "queued")) return pk_queued;
  if (strcmp(what, "pool_bytes")) return -1;
  uint64_t used = 0;
  for (int n = 0; n < pk_device_count; n++)
    for (Pool *pool = pk_devices[n].pools; pool; pool = pool->next) used += pool->used;
  return (long)used;
}

PK_EXPORT long pk_stub_live(const char *what) {
  pk_lock();
  long found = live(what);
  pk_unlock();
  return found;
}

/* Return the violation that a use of memory would be, "" for none. */
PK_EXPORT const char *pk_stub_wrong(unsigned long long address, unsigned long long size) {
  pk_lock();
  const char *wrong = pk_wrong(address, size, NULL, 0);
  pk_unlock();
  return wrong ? wrong : "";
}

/* Return the start and size of the block of an address that is in use; 0 where there is none. */
PK_EXPORT unsigned long long pk_stub_block(unsigned long long address, unsigned long long *size) {
  pk_lock();
  Block *block = pk_wrong(address, 1, NULL, 0) ? NULL : pk_block(address);
  unsigned long long start = block ? shown(block->address) : 0;
  if (size) *size = block ? shown(block->size) : 0;
  pk_unlock();
  return start;
}
