/* Memory pools: what they keep, and memory that is allocated and freed in the order of a stream. */
#include "stub_cuda.h"

#include <string.h>

CUresult pk_pool_grow(Pool *pool, uint64_t size) {
  uint64_t used = pool->used + size;
  if (used > pool->reserved) {
    Device *device = &pk_devices[pool->device];
    NEEDS(!pool->most || used <= pool->most, OUT_OF_MEMORY);
    NEEDS(device->direct + device->kept + (used - pool->reserved) <= device->total, OUT_OF_MEMORY);
    device->kept += used - pool->reserved;
    pool->reserved = used;
    if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
  }
  pool->used = used;
  if (used > pool->used_high) pool->used_high = used;
  return OK;
}

static void trim(Pool *pool, uint64_t least) {
  if (least < pool->used) least = pool->used;
  if (pool->reserved <= least) return;
  pk_devices[pool->device].kept -= pool->reserved - least;
  pool->reserved = least;
}

void pk_pool_shrink(Pool *pool, uint64_t size) {
  pool->used -= size;
  if (pool->destroyed) trim(pool, 0);
}

/* What a pool keeps beyond its threshold goes back when something is waited for. */
void pk_pools_release(int device) {
  for (Pool *pool = pk_devices[device].pools; pool; pool = pool->next) trim(pool, pool->settings[4]);
}

static Pool *make(int device, uint64_t most) {
  Pool *pool = pk_new(POOL, sizeof *pool, NULL);
  pool->device = device;
  pool->most = most;
  pool->settings[1] = pool->settings[2] = pool->settings[3] = 1;
  pool->next = pk_devices[device].pools;
  pk_devices[device].pools = pool;
  return pool;
}

static Pool *default_pool(int device) {
  Device *found = &pk_devices[device];
  if (!found->pool) found->pool = make(device, 0);
  return found->pool;
}

PK_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
  ENTER(cuMemPoolCreate);
  NEEDS(pool && props && props->allocType == 1 && props->location.type == 1, INVALID_VALUE);
  NEEDS(props->location.id >= 0 && props->location.id < pk_device_count, INVALID_VALUE);
  for (size_t n = 0; n < sizeof props->reserved; n++) NEEDS(!props->reserved[n], INVALID_VALUE);
  NEEDS(pk_devices[props->location.id].attributes[115], NOT_SUPPORTED);
  *pool = HANDLE(make(props->location.id, props->maxSize));
  return OK;
}

PK_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  ENTER(cuMemPoolDestroy);
  Pool *pool = pk_find(handle, POOL);
  NEEDS(pool && pool != pk_devices[pool->device].pool, INVALID_VALUE);
  pool->destroyed = 1; /* it lives on for what was not given back */
  trim(pool, 0);
  Pool **place = &pk_devices[pool->device].pools;
  while (*place != pool) place = &(*place)->next;
  *place = pool->next;
  pk_delete(pool, 1);
  return OK;
}

static uint64_t *value_of(Pool *pool, CUmemPool_attribute attribute) {
  switch ((int)attribute) {
    case 5: return &pool->reserved;
    case 6: return &pool->reserved_high;
    case 7: return &pool->used;
    case 8: return &pool->used_high;
    default: return NULL;
  }
}

PK_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
  ENTER(cuMemPoolSetAttribute);
  Pool *pool = pk_find(handle, POOL);
  NEEDS(pool && value, INVALID_VALUE);
  if (attribute >= 1 && attribute <= 3)
    pool->settings[attribute] = (uint64_t)*(int *)value;
  else if (attribute == 4)
    pool->settings[4] = *(uint64_t *)value;
  else { /* the high marks can be set to 0 */
    NEEDS((attribute == 6 || attribute == 8) && !*(uint64_t *)value, INVALID_VALUE);
    *value_of(pool, attribute) = *value_of(pool, attribute - 1);
  }
  return OK;
}

PK_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
  ENTER(cuMemPoolGetAttribute);
  Pool *pool = pk_find(handle, POOL);
  NEEDS(pool && value && attribute >= 1 && attribute <= 8, INVALID_VALUE);
  if (attribute <= 3)
    *(int *)value = (int)pool->settings[attribute];
  else
    *(uint64_t *)value = attribute == 4 ? pool->settings[4] : *value_of(pool, attribute);
  return OK;
}

PK_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t least) {
  ENTER(cuMemPoolTrimTo);
  Pool *pool = pk_find(handle, POOL);
  NEEDS(pool, INVALID_VALUE);
  trim(pool, least);
  return OK;
}

PK_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
  ENTER(cuMemPoolSetAccess);
  Pool *pool = pk_find(handle, POOL);
  NEEDS(pool && (map || !count), INVALID_VALUE);
  for (size_t n = 0; n < count; n++) {
    NEEDS(map[n].location.type == 1 && map[n].location.id >= 0 && map[n].location.id < pk_device_count, INVALID_VALUE);
    NEEDS(map[n].location.id != pool->device || map[n].flags == 3, INVALID_DEVICE); /* its own device keeps its access */
  }
  return OK;
}

PK_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
  ENTER(cuDeviceGetDefaultMemPool);
  NEEDS(device >= 0 && device < pk_device_count, INVALID_DEVICE);
  NEEDS(pool, INVALID_VALUE);
  *pool = HANDLE(default_pool(device));
  return OK;
}

static CUresult allocate(CUdeviceptr *address, size_t size, Pool *pool, Context *ctx, CUstream handle) {
  Stream *stream;
  NEEDS(address && pool, INVALID_VALUE);
  TRY(pk_stream(ctx, handle, &stream));
  NEEDS(stream->object.ctx == ctx, INVALID_HANDLE);
  NEEDS(pk_devices[pool->device].attributes[115], NOT_SUPPORTED);
  NEEDS(pool->device == ctx->device, INVALID_VALUE);
  if (stream->capture && stream->capture->invalid) return CAPTURE_INVALIDATED;
  Block *block;
  TRY(pk_take(pool->device, size, ctx, pool, &block));
  if (stream->capture) { /* the graph's: the pool has no part in it */
    pk_give(block, RESERVED);
    block->owner = stream->capture->graph;
    block->owner->allocations++;
  }
  Op op = {.kind = OP_ALLOCATE, .ctx = ctx, .block = block, .target_use = block->use};
  *address = block->address;
  return pk_submit(stream, &op);
}

PK_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream) {
  ENTER(cuMemAllocFromPoolAsync);
  WITH_CONTEXT(ctx);
  return allocate(address, size, pk_find(pool, POOL), ctx, stream);
}

PK_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream) {
  ENTER(cuMemAllocAsync);
  WITH_CONTEXT(ctx);
  return allocate(address, size, default_pool(ctx->device), ctx, stream);
}

PK_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  ENTER(cuMemFreeAsync);
  WITH_CONTEXT(ctx);
  Stream *stream;
  TRY(pk_stream(ctx, handle, &stream));
  NEEDS(stream->object.ctx == ctx, INVALID_HANDLE);
  if (!address) return OK;
  if (stream->capture && stream->capture->invalid) return CAPTURE_INVALIDATED;
  Block *block = pk_block(address);
  NEEDS(block && block->address == address && block->pool && block->arena == ctx->device, INVALID_VALUE);
  if (stream->capture) /* a node may free what a graph allocates, and nothing else */
    NEEDS(block->owner, INVALID_VALUE);
  else
    NEEDS(block->owner ? block->state == LIVE : block->given, INVALID_VALUE);
  if (!stream->capture) pk_give(block, RESERVED);
  Op op = {.kind = OP_FREE, .ctx = ctx, .block = block, .target_use = block->use};
  return pk_submit(stream, &op);
}
