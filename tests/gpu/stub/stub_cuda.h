/* A stand-in for the CUDA driver's library, for tests: what its parts know of each other.
 *
 * One mutex guards everything below; it is let go only around the launch hook, while `running` keeps others from running queued
 * work. Handles are numbers that name a slot and its use, so that a stale one is found out instead of followed.
 */
#ifndef STUB_CUDA_H
#define STUB_CUDA_H

#include <stddef.h>
#include <stdint.h>

#define PK_EXPORT __attribute__((visibility("default")))

/* The driver's types, with the sizes that they have in CUDA 12 and 13. PK_CUDA_H: the real header's are checked against. */
#ifndef PK_CUDA_H
typedef unsigned CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef unsigned CUdevice_attribute, CUfunction_attribute, CUpointer_attribute, CUmemPool_attribute;
typedef unsigned CUstreamCaptureMode, CUstreamCaptureStatus;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { unsigned type; int id; } CUmemLocation;
typedef struct {
  unsigned allocType, handleTypes;
  CUmemLocation location;
  void *win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
} CUmemPoolProps;
typedef struct { CUmemLocation location; unsigned flags; } CUmemAccessDesc;
#endif

/* clang-format off */
enum {
  OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
  INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, INVALID_HANDLE = 400, ILLEGAL_STATE = 401,
  NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_OUT_OF_RESOURCES = 701, CONTEXT_IS_DESTROYED = 709,
  NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_MERGE = 902, CAPTURE_UNMATCHED = 903,
  CAPTURE_UNJOINED = 904, CAPTURE_ISOLATION = 905, CAPTURE_IMPLICIT = 906, CAPTURED_EVENT = 907, CAPTURE_WRONG_THREAD = 908,
};

#define PK_FUNCTIONS(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute) \
  X(cuDeviceTotalMem_v2) X(cuDeviceGetUuid) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) \
  X(cuDevicePrimaryCtxGetState) X(cuCtxCreate_v2) X(cuCtxDestroy_v2) X(cuCtxGetCurrent) X(cuCtxSetCurrent) \
  X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxGetDevice) X(cuCtxSynchronize) X(cuModuleLoadData) \
  X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncSetAttribute) X(cuFuncGetAttribute) X(cuMemAlloc_v2) X(cuMemFree_v2) \
  X(cuMemGetInfo_v2) X(cuMemAllocHost_v2) X(cuMemHostAlloc) X(cuMemHostGetDevicePointer_v2) X(cuMemFreeHost) \
  X(cuMemPoolCreate) X(cuMemPoolDestroy) X(cuMemPoolSetAttribute) X(cuMemPoolGetAttribute) X(cuMemPoolTrimTo) \
  X(cuMemPoolSetAccess) X(cuDeviceGetDefaultMemPool) X(cuMemAllocFromPoolAsync) X(cuMemAllocAsync) X(cuMemFreeAsync) \
  X(cuMemsetD8Async) X(cuMemsetD32Async) X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) \
  X(cuMemcpyDtoDAsync_v2) X(cuMemcpyPeerAsync) X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamSynchronize) \
  X(cuStreamQuery) X(cuStreamWaitEvent) X(cuStreamGetCtx) X(cuStreamIsCapturing) X(cuStreamBeginCapture_v2) \
  X(cuStreamEndCapture) X(cuThreadExchangeStreamCaptureMode) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) \
  X(cuGraphDestroy) X(cuGraphExecDestroy) X(cuEventCreate) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) \
  X(cuEventElapsedTime) X(cuEventDestroy_v2) X(cuLaunchKernel) X(cuPointerGetAttribute) X(cuGetErrorString) \
  X(cuGetErrorName) X(cuGetExportTable)
/* clang-format on */
#define PK_NUMBER(name) F_##name,
enum { PK_FUNCTIONS(PK_NUMBER) FUNCTION_COUNT };

enum { MAX_DEVICES = 8, MAX_ATTRIBUTES = 160, MAX_CAPTURES = 64, MAX_JOINED = 32, MAX_DEPTH = 64 };
enum { MAX_PARAMETERS = 512, MAX_PARAMETER_BYTES = 32764 };
enum { PINNED_ARENA = MAX_DEVICES, ARENAS = MAX_DEVICES + 1 };

typedef enum { CONTEXT, STREAM, EVENT, MODULE, FUNCTION, POOL, GRAPH, EXEC, KINDS } Kind;

typedef struct Context Context;
typedef struct Stream Stream;
typedef struct Capture Capture;
typedef struct Op Op;

/* What every object with a handle begins with. */
typedef struct {
  uint64_t handle;
  Context *ctx;
} Object;

typedef struct Pool {
  Object object;
  int device, destroyed;
  uint64_t settings[5]; /* by attribute: the reuse policies (1 to 3), the release threshold (4) */
  uint64_t used, used_high, reserved, reserved_high, most;
  struct Pool *next;
} Pool;

typedef struct {
  int attributes[MAX_ATTRIBUTES], arch;
  uint64_t total, direct, kept; /* bytes of the device; of cuMemAlloc's live memory; what pools keep */
  Context *primary;
  Pool *pool, *pools; /* the default one, and all */
} Device;

struct Context {
  Object object;
  int device, primary, active, references;
  unsigned flags;
  CUresult sticky, pending; /* what every later call returns; what the next one does */
  Stream *legacy, *per_thread;
};

struct Stream {
  Object object;
  int blocking, closing; /* blocking: in order with the legacy stream; closing: destroyed, with work to do */
  size_t place;          /* in `streams` */
  Op *head, *tail;
  uint64_t last, done; /* numbers of the last piece of work that was queued, that was done */
  Capture *capture;
  int captured_as;
};

typedef struct {
  Object object;
  unsigned flags;
  uint64_t stream, number; /* recorded after that work of that stream; 0: never */
  uint64_t capture;        /* in which it was recorded, 0 for none */
  uint32_t *clock;         /* by stream of that capture: how many of its nodes come before */
} Event;

typedef struct Graph Graph;

/* An address range that is handed out again and again: `state` is what the device sees, `given` what the host was told. */
typedef enum { FREED, RESERVED, LIVE, ENDED } State; /* ENDED: freed in stream order */
typedef struct Block {
  uint64_t address, size, reserve;
  Context *ctx;
  Pool *pool;
  Graph *owner; /* a graph whose allocation node it is */
  uint32_t use; /* how often it was handed out */
  int arena, class;
  State state;
  int given;
  struct Block *next;
} Block;

typedef struct {
  Object object;
  int unloaded;
  struct Function *functions;
} Module;

typedef struct Function {
  Object object;
  Module *module;
  struct Function *next;
  char *name;
  unsigned count, total; /* parameters, and the bytes of them all */
  unsigned *sizes, *offsets;
  unsigned registers, threads, bounds, local; /* bounds: threads by __launch_bounds__, 0 for none */
  unsigned fixed, dynamic, carveout;          /* bytes of shared memory: static, and the most that a launch may ask for */
  int arch;
} Function;

typedef enum { OP_NOTHING, OP_COPY, OP_SET, OP_LAUNCH, OP_ALLOCATE, OP_FREE, OP_WAIT, OP_GRAPH } OpKind;

/* A piece of a stream's work, or a graph's node. `data`: a launch's parameters and the uses of what they point to; bytes to copy. */
struct Op {
  Op *next;
  uint64_t number;
  OpKind kind;
  Context *ctx, *from; /* of the target, and of a copy's source; NULL: the host's memory */
  uint64_t target, source, size;
  uint32_t target_use, source_use;
  unsigned value;
  int wide; /* of a set: whether value is of 4 bytes */
  int staged; /* the bytes to copy are in `data` */
  Block *block;
  Function *function;
  struct Exec *exec;
  unsigned grid[3], threads[3], shared;
  size_t bytes;
  _Alignas(16) unsigned char data[];
};

struct Graph {
  Object object;
  Op *first, *last;
  int references; /* by its handle and by what was instantiated */
  int allocations, instances, destroyed;
};

typedef struct Exec {
  Object object;
  Graph *graph;
  Op *first;
  unsigned long long flags;
  int references, destroyed; /* references: by its handle and by queued launches */
} Exec;

struct Capture {
  uint64_t id;
  CUstreamCaptureMode mode;
  const void *thread;
  int invalid, count;
  Stream *streams[MAX_JOINED];
  uint32_t clock[MAX_JOINED][MAX_JOINED];
  Graph *graph;
};

/* What a host thread has: its contexts, and how it treats captures. */
typedef struct {
  uint64_t epoch;
  int depth;
  Context *stack[MAX_DEPTH];
  CUstreamCaptureMode mode;
} Thread;

/* stub_cuda_state.c */
typedef struct { CUresult status; } Held;
extern int pk_initialized, pk_device_count, pk_lazy, pk_sticky_violations, pk_fill;
extern uint64_t pk_epoch;
extern Device pk_devices[MAX_DEVICES];
extern long pk_live[KINDS];
Held pk_enter(int function);
void pk_leave(Held *held);
void pk_lock(void);
void pk_unlock(void);
void pk_sleep(void); /* until pk_wake, the mutex let go */
void pk_wake(void);
Thread *pk_thread(void);
CUresult pk_current(Context **context);
void pk_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *pk_new(Kind kind, size_t size, Context *ctx);
void pk_delete(void *object, int keep); /* keep: the memory */
void *pk_find(const void *handle, Kind kind);
void *pk_find_number(uint64_t handle, Kind kind);
void pk_each(Kind kind, Context *ctx, void (*work)(void *));
int pk_is_sticky(CUresult status);
void pk_fail_context(Context *ctx, CUresult status);
void pk_forget(void);

#define ENTER_ANY(name) \
  Held held __attribute__((cleanup(pk_leave))) = pk_enter(F_##name); \
  if (held.status) return held.status
#define ENTER(name) \
  ENTER_ANY(name); \
  if (!pk_initialized) return NOT_INITIALIZED
#define WITH_CONTEXT(name) \
  Context *name; \
  do { \
    CUresult status_ = pk_current(&name); \
    if (status_) return status_; \
  } while (0)
#define TRY(call) \
  do { \
    CUresult status_ = (call); \
    if (status_) return status_; \
  } while (0)
#define NEEDS(condition, status) \
  do { \
    if (!(condition)) return (status); \
  } while (0)
#define HANDLE(object) ((void *)(uintptr_t)((Object *)(object))->handle)

/* stub_cuda_context.c */
CUresult pk_configure(void);
void pk_destroy_context(Context *ctx);
CUresult pk_result(Context *ctx); /* of asynchronous work */

/* stub_cuda_blocks.c */
CUresult pk_take(int arena, uint64_t size, Context *ctx, Pool *pool, Block **found);
void pk_give(Block *block, State state);
void pk_begin(Block *block); /* its memory is there, and filled */
void pk_adopt(Block *block); /* it was a graph's, and is live */
Block *pk_block(uint64_t address);
int pk_in_range(uint64_t address);
const char *pk_wrong(uint64_t address, uint64_t size, const Context *ctx, uint32_t use);
void pk_free_blocks(Context *ctx);
void pk_forget_blocks(void);
extern long pk_allocations;
extern uint64_t pk_bytes, pk_pinned;

/* stub_cuda_pools.c */
CUresult pk_pool_grow(Pool *pool, uint64_t size);
void pk_pool_shrink(Pool *pool, uint64_t size);
void pk_pools_release(int device);

/* stub_cuda_streams.c */
Stream *pk_make_stream(Context *ctx, int blocking);
CUresult pk_stream(Context *ctx, CUstream handle, Stream **found); /* for work: neither invalid nor in the way of a capture */
CUresult pk_find_stream(Context *ctx, CUstream handle, Stream **found);
CUresult pk_submit(Stream *stream, Op *op);
void pk_run_to(Stream *stream, uint64_t number);
void pk_run_all(Context *ctx);
void pk_drop(Stream *stream);
void pk_free_stream(Stream *stream);
void pk_forget_streams(void);
Op *pk_copy_op(const Op *op);
extern long pk_queued;
extern int pk_running; /* a thread does work of streams */

/* stub_cuda_launch.c */
void pk_execute(Op *op, Stream *stream);
void pk_execute_launch(Op *op, Stream *stream);
void pk_forget_launches(void);

/* stub_cuda_modules.c, stub_cuda_elf.c */
CUresult pk_parse(const void *image, Module *module);
Function *pk_add_function(Module *module, const char *name, unsigned count);
void pk_free_module(Module *module);

/* stub_cuda_capture.c */
extern int pk_captures;
CUresult pk_unsafe(void);
CUresult pk_legacy(Context *ctx, int invalidate);
void pk_invalidate(Capture *capture);
CUresult pk_capture_add(Stream *stream, Op *op);
CUresult pk_capture_record(Stream *stream, Event *event);
CUresult pk_capture_wait(Stream *stream, Event *event);
void pk_abandon(Capture *capture);
void pk_execute_graph(Op *op, Stream *stream);
void pk_release_exec(Exec *exec);
void pk_release_graph(Graph *graph);
void pk_forget_graphs(void);

#endif
