/* Modules, their functions, and what is asked and set of functions. */
#include "stub_cuda.h"

#include <stdlib.h>
#include <string.h>

/* Add a function with room for its parameters' sizes and offsets; its name is kept beside it. */
Function *pk_add_function(Module *module, const char *name, unsigned count) {
  size_t numbers = 2 * count * sizeof(unsigned), length = strlen(name) + 1;
  Function *function = pk_new(FUNCTION, sizeof *function + numbers + length, module->object.ctx);
  function->sizes = (unsigned *)(function + 1);
  function->offsets = function->sizes + count;
  function->name = (char *)(function->offsets + count);
  memcpy(function->name, name, length);
  function->count = count;
  function->registers = 32;
  function->module = module;
  function->next = module->functions;
  module->functions = function;
  return function;
}

/* Whether a device can run what was made for an architecture: later ones of the same major version do, but for "a" code. */
static int runs(const Device *device, int arch, int exact) {
  return exact ? arch == device->arch : arch / 10 == device->arch / 10 && arch <= device->arch;
}

/* Read "PKSTUB arch=90\nkernel NAME params=8,8 shared=0 maxthreads=256 regs=32\n...", a made-up image for tests without nvcc. */
static CUresult parse_text(const char *text, Module *module) {
  const char *arch = strstr(text, "arch=");
  char *end;
  NEEDS(arch, INVALID_IMAGE);
  int number = (int)strtol(arch + 5, &end, 10);
  NEEDS(runs(&pk_devices[module->object.ctx->device], number, *end == 'a'), NO_BINARY_FOR_GPU);
  for (const char *line = strchr(text, '\n'); line; line = strchr(line, '\n')) {
    line++;
    if (strncmp(line, "kernel ", 7)) continue;
    size_t length = strcspn(line, "\n");
    char words[1024], *save;
    NEEDS(length < sizeof words, INVALID_IMAGE);
    memcpy(words, line, length);
    words[length] = 0;
    strtok_r(words, " ", &save);
    const char *name = strtok_r(NULL, " ", &save);
    NEEDS(name, INVALID_IMAGE);
    unsigned sizes[128], count = 0, threads = 0, registers = 32, shared = 0;
    for (char *word; (word = strtok_r(NULL, " ", &save));) {
      if (!strncmp(word, "params=", 7))
        for (char *at = word + 7; *at >= '0' && *at <= '9' && count < 128; at += *at == ',')
          sizes[count++] = (unsigned)strtoul(at, &at, 10);
      else if (!strncmp(word, "shared=", 7))
        shared = (unsigned)atoi(word + 7);
      else if (!strncmp(word, "maxthreads=", 11))
        threads = (unsigned)atoi(word + 11);
      else if (!strncmp(word, "regs=", 5))
        registers = (unsigned)atoi(word + 5);
      else
        return INVALID_IMAGE;
    }
    Function *function = pk_add_function(module, name, count);
    function->bounds = threads;
    function->registers = registers;
    function->fixed = shared;
    function->arch = number;
    for (unsigned n = 0; n < count; n++) { /* each at a multiple of its size, of 8 for larger ones */
      unsigned alignment = sizes[n] >= 8 ? 8 : sizes[n] ? sizes[n] : 1;
      function->offsets[n] = (function->total + alignment - 1) / alignment * alignment;
      function->sizes[n] = sizes[n];
      function->total = function->offsets[n] + sizes[n];
    }
  }
  return OK;
}

/* What follows from what was read. */
static CUresult complete(Function *function) {
  const Device *device = &pk_devices[function->object.ctx->device];
  unsigned registers = (function->registers + 7) / 8 * 8; /* a warp's are given out by 256 */
  unsigned warps = registers ? (unsigned)device->attributes[12] / (registers * 32) : 32;
  unsigned most = (unsigned)device->attributes[1];
  function->threads = warps * 32 < most ? warps * 32 : most;
  if (function->bounds && function->bounds < function->threads) function->threads = function->bounds;
  unsigned usual = (unsigned)device->attributes[8];
  NEEDS(function->fixed <= usual, INVALID_IMAGE);
  function->dynamic = usual - function->fixed;
  NEEDS(function->count <= MAX_PARAMETERS && function->total <= MAX_PARAMETER_BYTES, INVALID_IMAGE);
  return OK;
}

static CUresult load(const void *image, Module *module) {
  if (!strncmp(image, "PKSTUB", 6))
    TRY(parse_text(image, module));
  else
    TRY(pk_parse(image, module));
  for (Function *function = module->functions; function; function = function->next) TRY(complete(function));
  return OK;
}

void pk_free_module(Module *module) {
  for (Function *function = module->functions; function; function = function->next) pk_delete(function, 1);
  module->unloaded = 1;
  pk_delete(module, 1);
}

PK_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  ENTER(cuModuleLoadData);
  WITH_CONTEXT(ctx);
  NEEDS(module && image, INVALID_VALUE);
  TRY(pk_unsafe());
  Module *found = pk_new(MODULE, sizeof *found, ctx);
  CUresult status = load(image, found);
  if (status)
    pk_free_module(found);
  else
    *module = HANDLE(found);
  return status;
}

PK_EXPORT CUresult cuModuleUnload(CUmodule handle) {
  ENTER(cuModuleUnload);
  WITH_CONTEXT(ctx);
  Module *module = pk_find(handle, MODULE);
  NEEDS(module && module->object.ctx == ctx, INVALID_HANDLE);
  TRY(pk_unsafe());
  pk_free_module(module);
  return OK;
}

PK_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule handle, const char *name) {
  ENTER(cuModuleGetFunction);
  WITH_CONTEXT(ctx);
  NEEDS(function && name, INVALID_VALUE);
  Module *module = pk_find(handle, MODULE);
  NEEDS(module && module->object.ctx == ctx, INVALID_HANDLE);
  for (Function *found = module->functions; found; found = found->next)
    if (!strcmp(found->name, name)) {
      *function = HANDLE(found);
      return OK;
    }
  return NOT_FOUND;
}

PK_EXPORT CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  ENTER(cuFuncSetAttribute);
  WITH_CONTEXT(ctx);
  Function *function = pk_find(handle, FUNCTION);
  NEEDS(function && function->object.ctx == ctx, INVALID_HANDLE);
  if (attribute == 8) {
    NEEDS(value >= 0 && value + (long)function->fixed <= pk_devices[ctx->device].attributes[97], INVALID_VALUE);
    function->dynamic = (unsigned)value;
  } else {
    NEEDS(attribute == 9 && value >= -1 && value <= 100, INVALID_VALUE);
    function->carveout = (unsigned)value;
  }
  return OK;
}

PK_EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle) {
  ENTER(cuFuncGetAttribute);
  WITH_CONTEXT(ctx);
  Function *function = pk_find(handle, FUNCTION);
  NEEDS(function && function->object.ctx == ctx, INVALID_HANDLE);
  const unsigned values[] = {
      function->threads, function->fixed,          0, function->local, function->registers, (unsigned)function->arch,
      (unsigned)function->arch, 0, function->dynamic, function->carveout};
  NEEDS(value && attribute < sizeof values / sizeof *values, INVALID_VALUE);
  *value = (int)values[attribute];
  return OK;
}

/* For tests: what a function's code says of it. */
PK_EXPORT int pk_stub_parameters(CUfunction handle, unsigned *sizes, unsigned *offsets, int room) {
  pk_lock();
  Function *function = pk_find(handle, FUNCTION);
  int count = function ? (int)function->count : -1;
  for (int n = 0; n < count && n < room; n++) {
    sizes[n] = function->sizes[n];
    offsets[n] = function->offsets[n];
  }
  pk_unlock();
  return count;
}
