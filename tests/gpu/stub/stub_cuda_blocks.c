/* Where memory lies: one reserved range of addresses, an arena of it for each device and one for pinned memory of the host.
 *
 * All of it can be read by the host, so copies really move bytes. An arena is cut into blocks that are never cut again: what lies
 * at an address is found by a table with an entry for each 512 bytes. A freed block is handed out again only after others of its
 * size were freed, so a stale address usually hits a free block and not another one's memory.
 */
#define _GNU_SOURCE
#include "stub_cuda.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GRANULE = 9, GUARD = 64, QUARANTINE = 8, LARGE = 1 << 20, CLASSES = 64 * 32 };
enum { FRESH = 0xFF, FENCE = 0xA5 };

long pk_allocations;
uint64_t pk_bytes, pk_pinned;

static uint64_t base, arena_bits, next_free[ARENAS]; /* next_free: offsets in arenas */
static uint32_t *table;
static Block **blocks; /* block 0 is none */
static uint32_t block_count, block_room;
static struct { Block *head, *tail; int count; } freed[ARENAS][CLASSES];

static int reserve(void) {
  for (arena_bits = 37; arena_bits >= 28; arena_bits--) {
    size_t size = (size_t)ARENAS << arena_bits, entries = (size >> GRANULE) * sizeof *table;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *range = mmap((void *)0x300000000000, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    void *found = range == MAP_FAILED ? MAP_FAILED : mmap(NULL, entries, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (found != MAP_FAILED) {
      madvise(range, size, MADV_NOHUGEPAGE);
      madvise(found, entries, MADV_NOHUGEPAGE);
      base = (uintptr_t)range;
      table = found;
      return 1;
    }
    if (range != MAP_FAILED) munmap(range, size);
  }
  return 0;
}

int pk_in_range(uint64_t address) { return base && address - base < (uint64_t)ARENAS << arena_bits; }

Block *pk_block(uint64_t address) {
  if (!pk_in_range(address)) return NULL;
  uint32_t n = table[(address - base) >> GRANULE];
  return n ? blocks[n] : NULL;
}

/* Round up by an eighth at most; return the number of the size. */
static int class_of(uint64_t *size) {
  int shift = 63 - __builtin_clzll(*size | 1) - 3;
  if (shift < GRANULE) shift = GRANULE;
  uint64_t step = 1ull << shift;
  *size = (*size + step - 1) / step * step;
  return shift * 32 + (int)(*size >> shift);
}

static Block *cut(int arena, uint64_t size, int class) {
  if (!base && !reserve()) return NULL;
  uint64_t start = base + ((uint64_t)arena << arena_bits) + next_free[arena];
  if (next_free[arena] + size > 1ull << arena_bits) return NULL;
  if (block_count + 1 >= block_room) {
    block_room = block_room ? 2 * block_room : 256;
    blocks = realloc(blocks, block_room * sizeof *blocks);
    if (!blocks) abort();
  }
  next_free[arena] += size;
  Block *block = blocks[++block_count] = calloc(1, sizeof *block);
  if (!block) abort();
  block->address = start;
  block->reserve = size;
  block->arena = arena;
  block->class = class;
  for (uint64_t n = (start - base) >> GRANULE; n < (start + size - base) >> GRANULE; n++) table[n] = block_count;
  return block;
}

CUresult pk_take(int arena, uint64_t size, Context *ctx, Pool *pool, Block **found) {
  NEEDS(size, INVALID_VALUE);
  Device *device = arena < MAX_DEVICES ? &pk_devices[arena] : NULL;
  NEEDS(size < 1ull << 46, OUT_OF_MEMORY);
  if (device && !pool) NEEDS(device->direct + device->kept + size <= device->total, OUT_OF_MEMORY);
  uint64_t whole = size + 512; /* a gap after each */
  int class = class_of(&whole);
  Block *block = freed[arena][class].count >= QUARANTINE ? NULL : cut(arena, whole, class);
  if (!block) {
    block = freed[arena][class].head;
    NEEDS(block, OUT_OF_MEMORY);
    freed[arena][class].head = block->next;
    freed[arena][class].count--;
  }
  if (pool) {
    CUresult status = pk_pool_grow(pool, size);
    if (status) {
      pk_give(block, FREED);
      return status;
    }
  } else if (device)
    device->direct += size;
  block->size = size;
  block->ctx = ctx;
  block->pool = pool;
  block->owner = NULL;
  block->use++;
  block->given = 1;
  block->state = RESERVED;
  if (device) {
    pk_allocations++;
    pk_bytes += size;
  } else
    pk_pinned += size;
  *found = block;
  return OK;
}

void pk_begin(Block *block) {
  unsigned char *start = (unsigned char *)(uintptr_t)block->address;
  if (pk_fill) memset(start, FRESH, block->size);
  memset(start + block->size, FENCE, GUARD);
  block->state = LIVE;
}

/* The end of what the host was told of: before the device's, where that comes in the order of a stream. */
static void settle(Block *block) {
  if (!block->given) return;
  block->given = 0;
  if (block->arena == PINNED_ARENA) {
    pk_pinned -= block->size;
    return;
  }
  pk_allocations--;
  pk_bytes -= block->size;
  if (block->pool)
    pk_pool_shrink(block->pool, block->size);
  else
    pk_devices[block->arena].direct -= block->size;
}

void pk_adopt(Block *block) {
  block->given = 1;
  block->pool->used += block->size;
  if (block->pool->used > block->pool->reserved) {
    pk_devices[block->arena].kept += block->pool->used - block->pool->reserved;
    block->pool->reserved = block->pool->used;
  }
  pk_allocations++;
  pk_bytes += block->size;
}

/* Note that the host gave a block back, or (FREED, ENDED) let others have it, too. */
void pk_give(Block *block, State state) {
  settle(block);
  if (state != FREED && state != ENDED) return;
  unsigned char *start = (unsigned char *)(uintptr_t)block->address;
  for (int n = 0; block->state == LIVE && n < GUARD; n++)
    if (start[block->size + n] != FENCE) {
      pk_violation("block %#llx of %llu bytes: something was written past its end", (unsigned long long)block->address,
                   (unsigned long long)block->size);
      break;
    }
  block->state = state;
  if (block->owner) return;
  if (block->reserve > LARGE) madvise(start, block->reserve, MADV_DONTNEED);
  block->next = NULL;
  if (freed[block->arena][block->class].head)
    freed[block->arena][block->class].tail->next = block;
  else
    freed[block->arena][block->class].head = block;
  freed[block->arena][block->class].tail = block;
  freed[block->arena][block->class].count++;
}

/* Return what is wrong with the use of memory now, NULL for nothing; `use` 0: whatever use of it. */
const char *pk_wrong(uint64_t address, uint64_t size, const Context *ctx, uint32_t use) {
  Block *block = pk_block(address);
  if (!block || address < block->address || address - block->address >= block->size) return "outside all memory";
  if (size > block->size - (address - block->address)) return "past the end of its block";
  if (block->arena != PINNED_ARENA && ctx && (block->pool ? block->arena != ctx->device : block->ctx != ctx))
    return "of another context";
  if (block->state == FREED || block->state == ENDED) return "freed";
  if (block->state == RESERVED) return "not yet allocated";
  if (use && block->use != use) return "another owner's by now";
  return NULL;
}

void pk_free_blocks(Context *ctx) {
  for (uint32_t n = 1; n <= block_count; n++) {
    Block *block = blocks[n];
    if (block->ctx != ctx || block->state == FREED || block->state == ENDED) continue;
    block->owner = NULL;
    pk_give(block, FREED);
  }
}

void pk_forget_blocks(void) {
  for (uint32_t n = 1; n <= block_count; n++) free(blocks[n]);
  for (int arena = 0; arena < ARENAS && base; arena++) {
    uint64_t start = (uint64_t)arena << arena_bits, size = next_free[arena];
    if (!size) continue;
    madvise((void *)(uintptr_t)(base + start), size, MADV_DONTNEED);
    uint64_t first = start >> GRANULE, last = (start + size) >> GRANULE;
    memset(table + first, 0, (last - first) * sizeof *table);
  }
  memset(next_free, 0, sizeof next_free);
  memset(freed, 0, sizeof freed);
  block_count = 0;
  pk_allocations = 0;
  pk_bytes = pk_pinned = 0;
}
