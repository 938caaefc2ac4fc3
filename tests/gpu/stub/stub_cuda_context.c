/* Start, devices and their attributes, contexts and the stack of them that each host thread has. */
#define _GNU_SOURCE
#include "stub_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct { int devices; char archs[128]; int given; } configured; /* by a test, for the next cuInit */

static void set(Device *device, int attribute, int value) { device->attributes[attribute] = value; }

static void describe(Device *device, int arch) {
  static const int common[][2] = {
      {1, 1024},   {2, 1024},  {3, 1024}, {4, 64},    {5, 2147483647}, {6, 65535},  {7, 65535},  {8, 49152},
      {9, 65536},  {10, 32},   {11, 2147483647},      {12, 65536},     {14, 512},   {15, 1},     {17, 0},
      {18, 0},     {19, 1},    {20, 0},   {31, 1},    {32, 1},         {35, 0},     {37, 5120},  {39, 2048},
      {40, 3},     {41, 1},    {78, 1},   {79, 1},    {80, 1},         {82, 65536}, {83, 1},     {88, 0},
      {89, 1},     {90, 1},    {95, 1},   {101, 0},   {106, 32},       {111, 1024}, {115, 1},
  };
  *device = (Device){.arch = arch};
  for (size_t n = 0; n < sizeof common / sizeof *common; n++) set(device, common[n][0], common[n][1]);
  int ampere = arch < 90;
  set(device, 75, arch / 10);
  set(device, 76, arch % 10);
  set(device, 16, ampere ? 108 : 132);
  set(device, 97, ampere ? 166912 : 232448);
  set(device, 81, ampere ? 167936 : 233472);
  set(device, 38, ampere ? 41943040 : 52428800);
  set(device, 13, ampere ? 1410000 : 1980000);
  set(device, 36, ampere ? 1593000 : 2619000);
  device->total = 80ull << 30;
  if (arch == 86 || arch == 89) {
    set(device, 97, 101376);
    set(device, 81, 102400);
    set(device, 39, 1536);
    set(device, 106, arch == 86 ? 16 : 24);
  }
}

CUresult pk_configure(void) {
  const char *count = getenv("PK_STUB_DEVICES"), *archs = getenv("PK_STUB_ARCH"), *lazy = getenv("PK_STUB_LAZY");
  int devices = configured.given ? configured.devices : count && *count ? atoi(count) : 1;
  if (configured.given) archs = configured.archs;
  if (lazy && *lazy) pk_lazy = atoi(lazy);
  if (devices < 0 || devices > MAX_DEVICES) return INVALID_VALUE;
  if (!devices) return NO_DEVICE;
  int arch = 90;
  for (int n = 0; n < devices; n++) { /* the last one of the list is that of all others */
    if (archs && *archs) {
      arch = (int)strtol(archs, (char **)&archs, 10);
      archs += strcspn(archs, ",");
      archs += *archs == ',';
    }
    describe(&pk_devices[n], arch);
  }
  pk_device_count = devices;
  return OK;
}

PK_EXPORT CUresult cuInit(unsigned flags) {
  ENTER_ANY(cuInit);
  NEEDS(!flags, INVALID_VALUE);
  if (pk_initialized) return OK;
  TRY(configured.given ? pk_device_count ? OK : NO_DEVICE : pk_configure());
  pk_initialized = 1;
  return OK;
}

PK_EXPORT CUresult cuDriverGetVersion(int *version) {
  ENTER_ANY(cuDriverGetVersion);
  NEEDS(version, INVALID_VALUE);
  *version = 13000;
  return OK;
}

PK_EXPORT CUresult cuDeviceGetCount(int *count) {
  ENTER(cuDeviceGetCount);
  NEEDS(count, INVALID_VALUE);
  *count = pk_device_count;
  return OK;
}

PK_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER(cuDeviceGet);
  NEEDS(device, INVALID_VALUE);
  NEEDS(ordinal >= 0 && ordinal < pk_device_count, INVALID_DEVICE);
  *device = ordinal;
  return OK;
}

#define DEVICE(n) NEEDS((n) >= 0 && (n) < pk_device_count, INVALID_DEVICE)

PK_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  ENTER(cuDeviceGetName);
  DEVICE(device);
  NEEDS(name && length > 0, INVALID_VALUE);
  snprintf(name, (size_t)length, "Stub device %d (sm_%d)", device, pk_devices[device].arch);
  return OK;
}

PK_EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  ENTER(cuDeviceGetAttribute);
  DEVICE(device);
  NEEDS(value && attribute > 0 && attribute < MAX_ATTRIBUTES, INVALID_VALUE);
  *value = pk_devices[device].attributes[attribute];
  return OK;
}

PK_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  ENTER(cuDeviceTotalMem_v2);
  DEVICE(device);
  NEEDS(bytes, INVALID_VALUE);
  *bytes = pk_devices[device].total;
  return OK;
}

PK_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid);
  DEVICE(device);
  NEEDS(uuid, INVALID_VALUE);
  memcpy(uuid->bytes, "polyker-stub-gpu", 16);
  uuid->bytes[15] = (char)('0' + device);
  return OK;
}

PK_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }

/* Contexts */

static Context *make_context(CUdevice device, unsigned flags) {
  Context *ctx = pk_new(CONTEXT, sizeof *ctx, NULL);
  ctx->object.ctx = ctx;
  ctx->device = device;
  ctx->flags = flags;
  return ctx;
}

static void activate(Context *ctx) {
  ctx->active = 1;
  ctx->sticky = ctx->pending = OK;
  ctx->legacy = pk_make_stream(ctx, 1);
  ctx->per_thread = pk_make_stream(ctx, 1);
}

static void delete_module(void *module) { pk_free_module(module); }
static void delete_event(void *event) {
  free(((Event *)event)->clock);
  pk_delete(event, 0);
}
static void delete_stream(void *stream) { pk_free_stream(stream); }
static void delete_exec(void *exec) { pk_release_exec(exec); }
static void delete_graph(void *graph) { pk_release_graph(graph); }

/* What lies in a context ends with it. */
void pk_destroy_context(Context *ctx) {
  pk_run_all(ctx);
  pk_each(STREAM, ctx, delete_stream);
  pk_each(EXEC, ctx, delete_exec);
  pk_each(GRAPH, ctx, delete_graph);
  pk_each(EVENT, ctx, delete_event);
  pk_each(MODULE, ctx, delete_module);
  pk_free_blocks(ctx);
  ctx->legacy = ctx->per_thread = NULL;
  ctx->active = 0;
}

static Context *context_of(CUcontext handle) {
  Context *ctx = pk_find(handle, CONTEXT);
  return ctx && ctx->active ? ctx : NULL;
}

PK_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ENTER(cuDevicePrimaryCtxRetain);
  DEVICE(device);
  NEEDS(context, INVALID_VALUE);
  Context **primary = &pk_devices[device].primary;
  if (!*primary) {
    *primary = make_context(device, 0);
    (*primary)->primary = 1;
  }
  if (!(*primary)->references++) activate(*primary);
  *context = HANDLE(*primary);
  return OK;
}

PK_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER(cuDevicePrimaryCtxRelease_v2);
  DEVICE(device);
  Context *primary = pk_devices[device].primary;
  NEEDS(primary && primary->references > 0, INVALID_CONTEXT);
  if (!--primary->references) pk_destroy_context(primary);
  return OK;
}

PK_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  ENTER(cuDevicePrimaryCtxGetState);
  DEVICE(device);
  NEEDS(flags && active, INVALID_VALUE);
  Context *primary = pk_devices[device].primary;
  *flags = primary ? primary->flags : 0;
  *active = primary && primary->active;
  return OK;
}

static CUresult push(Context *ctx) {
  Thread *thread = pk_thread();
  NEEDS(thread->depth < MAX_DEPTH, OUT_OF_MEMORY);
  thread->stack[thread->depth++] = ctx;
  return OK;
}

PK_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
  ENTER(cuCtxCreate_v2);
  DEVICE(device);
  NEEDS(context, INVALID_VALUE);
  Context *ctx = make_context(device, flags);
  activate(ctx);
  *context = HANDLE(ctx);
  return push(ctx);
}

PK_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  ENTER(cuCtxDestroy_v2);
  Context *ctx = context_of(context);
  NEEDS(ctx && !ctx->primary, INVALID_CONTEXT);
  Thread *thread = pk_thread();
  if (thread->depth && thread->stack[thread->depth - 1] == ctx) thread->depth--;
  pk_destroy_context(ctx);
  pk_delete(ctx, 1);
  return OK;
}

PK_EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
  ENTER(cuCtxGetCurrent);
  NEEDS(context, INVALID_VALUE);
  Thread *thread = pk_thread();
  Context *ctx = thread->depth ? thread->stack[thread->depth - 1] : NULL;
  *context = ctx ? HANDLE(ctx) : NULL;
  return OK;
}

PK_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER(cuCtxSetCurrent);
  Thread *thread = pk_thread();
  if (!context) { /* the top one goes */
    thread->depth -= thread->depth > 0;
    return OK;
  }
  Context *ctx = context_of(context);
  NEEDS(ctx, INVALID_CONTEXT);
  if (!thread->depth) return push(ctx);
  thread->stack[thread->depth - 1] = ctx;
  return OK;
}

PK_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER(cuCtxPushCurrent_v2);
  Context *ctx = context_of(context);
  NEEDS(ctx, INVALID_CONTEXT);
  return push(ctx);
}

PK_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  ENTER(cuCtxPopCurrent_v2);
  Thread *thread = pk_thread();
  NEEDS(thread->depth, INVALID_CONTEXT);
  Context *ctx = thread->stack[--thread->depth];
  if (context) *context = ctx ? HANDLE(ctx) : NULL;
  return OK;
}

PK_EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  ENTER(cuCtxGetDevice);
  WITH_CONTEXT(ctx);
  NEEDS(device, INVALID_VALUE);
  *device = ctx->device;
  return OK;
}

PK_EXPORT CUresult cuCtxSynchronize(void) {
  ENTER(cuCtxSynchronize);
  WITH_CONTEXT(ctx);
  TRY(pk_unsafe());
  pk_run_all(ctx);
  pk_pools_release(ctx->device);
  return pk_result(ctx);
}

/* For tests */

PK_EXPORT int pk_stub_attribute(int device, int attribute, int value) {
  if (device < 0 || device >= MAX_DEVICES || attribute <= 0 || attribute >= MAX_ATTRIBUTES) return -1;
  pk_lock();
  set(&pk_devices[device], attribute, value);
  pk_unlock();
  return 0;
}

PK_EXPORT int pk_stub_total_memory(int device, unsigned long long bytes) {
  if (device < 0 || device >= MAX_DEVICES) return -1;
  pk_lock();
  pk_devices[device].total = bytes;
  pk_unlock();
  return 0;
}

/* Set an error of a context, of the thread's current one for NULL; returns -1 where there is none. */
PK_EXPORT int pk_stub_poison(CUcontext context, int status) {
  pk_lock();
  Thread *thread = pk_thread();
  Context *ctx = context ? context_of(context) : thread->depth ? thread->stack[thread->depth - 1] : NULL;
  if (ctx) ctx->sticky = (CUresult)status;
  pk_unlock();
  return ctx ? 0 : -1;
}

static void forget_clock(void *event) { free(((Event *)event)->clock); }

static void reset(void) {
  pk_forget_graphs();
  pk_forget_streams();
  pk_forget_blocks();
  pk_forget_launches();
  pk_each(EVENT, NULL, forget_clock);
  pk_forget();
  memset(pk_devices, 0, sizeof pk_devices);
  pk_initialized = pk_device_count = pk_lazy = pk_sticky_violations = 0;
  pk_fill = 1;
}

/* Forget everything, as in a new process; no other thread may be in a call. */
PK_EXPORT void pk_stub_reset(void) {
  pk_lock();
  reset();
  configured.given = 0;
  pk_unlock();
}

/* The same, and let there be these devices instead of those that the environment names; their attributes can be set at once. */
PK_EXPORT void pk_stub_configure(int devices, const char *archs) {
  pk_lock();
  reset();
  configured.devices = devices;
  snprintf(configured.archs, sizeof configured.archs, "%s", archs ? archs : "");
  configured.given = 1;
  pk_configure();
  pk_unlock();
}
