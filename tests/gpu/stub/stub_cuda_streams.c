/* Streams and events. Work is done as soon as it is queued, or (lazily) when something waits for it.
 *
 * All work of all streams is numbered in one row. So "what came before" is a number: the legacy stream's work does that of all
 * blocking streams first, as far as its number, and theirs does the legacy stream's. One thread at a time does work.
 */
#include "stub_cuda.h"

#include <stdlib.h>
#include <string.h>

long pk_queued;
int pk_running;

static uint64_t numbers;
static const Thread *runner;
static Stream **streams;
static size_t stream_count, stream_room;
static int closing; /* destroyed streams that have work to do */

Stream *pk_make_stream(Context *ctx, int blocking) {
  Stream *stream = pk_new(STREAM, sizeof *stream, ctx);
  stream->blocking = blocking;
  if (stream_count == stream_room) {
    stream_room = stream_room ? 2 * stream_room : 16;
    streams = realloc(streams, stream_room * sizeof *streams);
    if (!streams) abort();
  }
  stream->place = stream_count;
  streams[stream_count++] = stream;
  return stream;
}

static void free_op(Op *op) {
  if (op->exec) pk_release_exec(op->exec);
  free(op);
}

/* Forget what is queued. */
void pk_drop(Stream *stream) {
  while (stream->head) {
    Op *op = stream->head;
    stream->head = op->next;
    pk_queued--;
    free_op(op);
  }
  stream->tail = NULL;
  stream->done = stream->last;
}

void pk_free_stream(Stream *stream) {
  pk_drop(stream);
  closing -= stream->closing;
  if (stream->capture) pk_abandon(stream->capture);
  streams[stream->place] = streams[--stream_count];
  streams[stream->place]->place = stream->place;
  pk_delete(stream, 1);
}

void pk_forget_streams(void) {
  for (size_t n = 0; n < stream_count; n++)
    while (streams[n]->head) {
      Op *op = streams[n]->head;
      streams[n]->head = op->next;
      free(op);
    }
  stream_count = 0;
  pk_queued = closing = pk_running = 0;
}

CUresult pk_find_stream(Context *ctx, CUstream handle, Stream **found) {
  uintptr_t number = (uintptr_t)handle;
  if (number <= 2) {
    *found = number == 2 ? ctx->per_thread : ctx->legacy;
    return OK;
  }
  *found = pk_find(handle, STREAM);
  return *found && !(*found)->closing ? OK : INVALID_HANDLE;
}

CUresult pk_stream(Context *ctx, CUstream handle, Stream **found) {
  TRY(pk_find_stream(ctx, handle, found));
  return *found == ctx->legacy ? pk_legacy(ctx, 1) : OK;
}

/* Doing work */

static void run(Stream *stream, uint64_t number);

static void run_earlier(Stream *stream, const Op *op) {
  Context *ctx = stream->object.ctx;
  if (stream == ctx->legacy) {
    for (size_t n = 0; n < stream_count; n++)
      if (streams[n]->blocking && streams[n] != stream && streams[n]->object.ctx == ctx) run(streams[n], op->number - 1);
  } else if (stream->blocking)
    run(ctx->legacy, op->number - 1);
  if (op->kind == OP_WAIT) {
    Stream *other = pk_find_number(op->source, STREAM);
    if (other) run(other, op->target);
  }
}

static void run(Stream *stream, uint64_t number) {
  while (stream->head && stream->head->number <= number) {
    Op *op = stream->head;
    run_earlier(stream, op);
    stream->head = op->next;
    if (!stream->head) stream->tail = NULL;
    pk_queued--;
    pk_execute(op, stream);
    stream->done = op->number;
    free_op(op);
  }
}

static void finish(void) {
  while (pk_queued && !pk_lazy) /* what was queued meanwhile, by the hook or by other threads */
    for (size_t n = 0; n < stream_count; n++) run(streams[n], UINT64_MAX);
  for (size_t n = stream_count; n-- > 0;)
    if (streams[n]->closing && !streams[n]->head) pk_free_stream(streams[n]);
}

static int start(void) {
  const Thread *self = pk_thread();
  if (pk_running && runner == self) return 0; /* the hook stands for the device: it cannot wait for itself */
  while (pk_running) pk_sleep();
  pk_running = 1;
  runner = self;
  return 1;
}

static void stop(void) {
  if (__builtin_expect(pk_queued || closing, 0)) finish();
  pk_running = 0;
  pk_wake();
}

void pk_run_to(Stream *stream, uint64_t number) {
  if (stream->done >= number || !start()) return;
  run(stream, number);
  stop();
}

void pk_run_all(Context *ctx) {
  if ((!pk_queued && !pk_running) || !start()) return;
  for (size_t n = 0; n < stream_count; n++)
    if (streams[n]->object.ctx == ctx) run(streams[n], UINT64_MAX);
  stop();
}

Op *pk_copy_op(const Op *op) {
  Op *copy = malloc(sizeof *copy + op->bytes);
  if (!copy) abort();
  memcpy(copy, op, sizeof *copy + op->bytes);
  copy->next = NULL;
  return copy;
}

CUresult pk_submit(Stream *stream, Op *op) {
  if (stream->capture) return pk_capture_add(stream, op);
  op->number = stream->last = ++numbers;
  if (op->exec) op->exec->references++;
  if (!pk_lazy && !pk_queued && !pk_running) {
    pk_running = 1;
    runner = pk_thread();
    pk_execute(op, stream);
    stream->done = op->number;
    if (op->exec) pk_release_exec(op->exec);
    stop();
    return OK;
  }
  Op *copy = pk_copy_op(op);
  if (stream->tail)
    stream->tail->next = copy;
  else
    stream->head = copy;
  stream->tail = copy;
  pk_queued++;
  if (!pk_lazy && !pk_running && start()) stop();
  return OK;
}

/* Put work off (1: until something waits for it or asks whether it is done; 2: asking only tells) or, 0, do it at once. */
PK_EXPORT void pk_stub_lazy(int lazy) {
  pk_lock();
  pk_lazy = lazy;
  if (!lazy && pk_queued && start()) stop();
  pk_unlock();
}

/* The functions */

PK_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  ENTER(cuStreamCreate);
  WITH_CONTEXT(ctx);
  NEEDS(stream && flags <= 1, INVALID_VALUE);
  *stream = HANDLE(pk_make_stream(ctx, !flags));
  return OK;
}

PK_EXPORT CUresult cuStreamDestroy_v2(CUstream handle) {
  ENTER(cuStreamDestroy_v2);
  WITH_CONTEXT(ctx);
  NEEDS((uintptr_t)handle > 2, INVALID_HANDLE);
  Stream *stream;
  TRY(pk_find_stream(ctx, handle, &stream));
  if (stream->head || pk_running) { /* it goes when its work is done */
    stream->closing = 1;
    closing++;
  } else
    pk_free_stream(stream);
  return OK;
}

/* Whether a stream can be waited for: not while it is captured, nor the legacy one beside such a stream. */
static CUresult waitable(Context *ctx, CUstream handle, Stream **stream) {
  TRY(pk_stream(ctx, handle, stream));
  if (!(*stream)->capture) return OK;
  pk_invalidate((*stream)->capture);
  return CAPTURE_UNSUPPORTED;
}

PK_EXPORT CUresult cuStreamSynchronize(CUstream handle) {
  ENTER(cuStreamSynchronize);
  WITH_CONTEXT(ctx);
  Stream *stream;
  TRY(waitable(ctx, handle, &stream));
  pk_run_to(stream, stream->last);
  pk_pools_release(stream->object.ctx->device);
  return pk_result(stream->object.ctx);
}

PK_EXPORT CUresult cuStreamQuery(CUstream handle) {
  ENTER(cuStreamQuery);
  WITH_CONTEXT(ctx);
  Stream *stream;
  TRY(waitable(ctx, handle, &stream));
  if (pk_lazy < 2) pk_run_to(stream, stream->last);
  CUresult status = pk_result(stream->object.ctx);
  return status ? status : stream->done >= stream->last ? OK : NOT_READY;
}

PK_EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
  ENTER(cuStreamGetCtx);
  WITH_CONTEXT(ctx);
  NEEDS(context, INVALID_VALUE);
  Stream *stream;
  TRY(pk_find_stream(ctx, handle, &stream));
  *context = HANDLE(stream->object.ctx);
  return OK;
}

PK_EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
  ENTER(cuEventCreate);
  WITH_CONTEXT(ctx);
  NEEDS(event && flags < 8 && (!(flags & 4) || flags & 2), INVALID_VALUE);
  Event *found = pk_new(EVENT, sizeof *found, ctx);
  found->flags = flags;
  *event = HANDLE(found);
  return OK;
}

PK_EXPORT CUresult cuEventDestroy_v2(CUevent handle) {
  ENTER(cuEventDestroy_v2);
  WITH_CONTEXT(ctx);
  Event *event = pk_find(handle, EVENT);
  NEEDS(event, INVALID_HANDLE);
  free(event->clock);
  pk_delete(event, 0);
  return OK;
}

PK_EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  ENTER(cuEventRecord);
  WITH_CONTEXT(ctx);
  Event *event = pk_find(handle, EVENT);
  Stream *stream;
  NEEDS(event, INVALID_HANDLE);
  TRY(pk_stream(ctx, stream_handle, &stream));
  NEEDS(event->object.ctx == stream->object.ctx, INVALID_HANDLE);
  if (stream->capture) return pk_capture_record(stream, event);
  event->capture = 0;
  event->stream = stream->object.handle;
  Op op = {.kind = OP_NOTHING, .ctx = stream->object.ctx};
  TRY(pk_submit(stream, &op));
  event->number = stream->last;
  return OK;
}

/* The stream for which an event waits, NULL where it is done. */
static Stream *awaited(const Event *event) {
  Stream *stream = event->number ? pk_find_number(event->stream, STREAM) : NULL;
  return stream && stream->done < event->number ? stream : NULL;
}

PK_EXPORT CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags) {
  ENTER(cuStreamWaitEvent);
  WITH_CONTEXT(ctx);
  Event *event = pk_find(handle, EVENT);
  Stream *stream;
  NEEDS(event, INVALID_HANDLE);
  NEEDS(flags <= 1, INVALID_VALUE);
  TRY(pk_stream(ctx, stream_handle, &stream));
  if (event->capture || stream->capture) return pk_capture_wait(stream, event);
  Stream *other = awaited(event);
  if (!other || other == stream) return OK;
  Op op = {.kind = OP_WAIT, .ctx = stream->object.ctx, .source = event->stream, .target = event->number};
  return pk_submit(stream, &op);
}

/* Whether an event can be asked: not one of a capture, nor any while captures forbid it. */
static CUresult askable(CUevent handle, Event **event) {
  WITH_CONTEXT(ctx);
  *event = pk_find(handle, EVENT);
  NEEDS(*event, INVALID_HANDLE);
  NEEDS(!(*event)->capture, CAPTURED_EVENT);
  return pk_unsafe();
}

PK_EXPORT CUresult cuEventQuery(CUevent handle) {
  ENTER(cuEventQuery);
  Event *event;
  TRY(askable(handle, &event));
  Stream *stream = awaited(event);
  if (stream && pk_lazy < 2) pk_run_to(stream, event->number);
  CUresult status = pk_result(event->object.ctx);
  return status ? status : awaited(event) ? NOT_READY : OK;
}

PK_EXPORT CUresult cuEventSynchronize(CUevent handle) {
  ENTER(cuEventSynchronize);
  Event *event;
  TRY(askable(handle, &event));
  Stream *stream = awaited(event);
  if (stream) pk_run_to(stream, event->number);
  pk_pools_release(event->object.ctx->device);
  return pk_result(event->object.ctx);
}

PK_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
  ENTER(cuEventElapsedTime);
  WITH_CONTEXT(ctx);
  Event *first = pk_find(from, EVENT), *second = pk_find(to, EVENT);
  NEEDS(milliseconds, INVALID_VALUE);
  NEEDS(first && second && first->number && second->number && !((first->flags | second->flags) & 2), INVALID_HANDLE);
  NEEDS(!awaited(first) && !awaited(second), NOT_READY);
  *milliseconds = 0;
  return OK;
}

PK_EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent from, CUevent to) {
  return cuEventElapsedTime(milliseconds, from, to);
}
