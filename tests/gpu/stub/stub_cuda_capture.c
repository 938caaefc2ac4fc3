/* Captures of streams, and the graphs that they make.
 *
 * A graph's nodes are kept in the order in which they were captured, which respects what they wait for. What a stream of a
 * capture comes after is a clock: for each stream of the capture the number of its nodes; events carry clocks between streams.
 */
#include "stub_cuda.h"

#include <stdlib.h>
#include <string.h>

int pk_captures;

static Capture *captures[MAX_CAPTURES];
static uint64_t ids;

void pk_invalidate(Capture *capture) { capture->invalid = 1; }

/* Whether a call that would not be seen by captures may be made; the captures that forbid it are spoilt by it. */
CUresult pk_unsafe(void) {
  if (__builtin_expect(!pk_captures, 1)) return OK;
  const Thread *self = pk_thread();
  CUresult status = OK;
  for (int n = 0; n < pk_captures && self->mode != 2; n++) {
    int forbids = captures[n]->thread == self ? captures[n]->mode != 2 : captures[n]->mode == 0 && self->mode == 0;
    if (!forbids) continue;
    pk_invalidate(captures[n]);
    status = CAPTURE_UNSUPPORTED;
  }
  return status;
}

/* Whether the legacy stream may be used: not while a stream is captured that would have to wait for it. */
CUresult pk_legacy(Context *ctx, int invalidate) {
  if (__builtin_expect(!pk_captures, 1)) return OK;
  CUresult status = OK;
  for (int n = 0; n < pk_captures; n++)
    for (int s = 0; s < captures[n]->count; s++)
      if (captures[n]->streams[s]->blocking && captures[n]->streams[s]->object.ctx == ctx) {
        if (invalidate) pk_invalidate(captures[n]);
        status = CAPTURE_IMPLICIT;
      }
  return status;
}

static void join(Capture *capture, Stream *stream) {
  stream->captured_as = capture->count;
  stream->capture = capture;
  capture->streams[capture->count++] = stream;
}

/* Take a capture out of the list and let its streams go; its graph is the caller's. */
static Graph *leave(Capture *capture) {
  for (int n = 0; n < capture->count; n++) capture->streams[n]->capture = NULL;
  int n = 0;
  while (captures[n] != capture) n++;
  captures[n] = captures[--pk_captures];
  Graph *graph = capture->graph;
  free(capture);
  return graph;
}

void pk_abandon(Capture *capture) { pk_release_graph(leave(capture)); }

static void forget_captures(void) {
  while (pk_captures) leave(captures[0]);
}

CUresult pk_capture_add(Stream *stream, Op *op) {
  Capture *capture = stream->capture;
  NEEDS(!capture->invalid, CAPTURE_INVALIDATED);
  if (op->kind == OP_NOTHING) return OK;
  if (op->kind == OP_GRAPH) { /* a child graph: its nodes, as they are now */
    NEEDS(!op->exec->graph->allocations, NOT_SUPPORTED);
    for (Op *node = op->exec->first; node; node = node->next) TRY(pk_capture_add(stream, node));
    return OK;
  }
  Op *node = pk_copy_op(op);
  Graph *graph = capture->graph;
  if (graph->last)
    graph->last->next = node;
  else
    graph->first = node;
  graph->last = node;
  capture->clock[stream->captured_as][stream->captured_as]++;
  return OK;
}

CUresult pk_capture_record(Stream *stream, Event *event) {
  Capture *capture = stream->capture;
  NEEDS(!capture->invalid, CAPTURE_INVALIDATED);
  if (!event->clock) event->clock = malloc(sizeof capture->clock[0]);
  NEEDS(event->clock, OUT_OF_MEMORY);
  memcpy(event->clock, capture->clock[stream->captured_as], sizeof capture->clock[0]);
  event->capture = capture->id;
  event->number = 0;
  return OK;
}

CUresult pk_capture_wait(Stream *stream, Event *event) {
  Capture *of_event = NULL;
  for (int n = 0; n < pk_captures; n++)
    if (captures[n]->id == event->capture) of_event = captures[n];
  if (stream->capture && stream->capture->invalid) return CAPTURE_INVALIDATED;
  if (!event->capture) { /* a captured stream that waits for what is not in its capture */
    if (!event->number) return OK;
    pk_invalidate(stream->capture);
    return CAPTURE_ISOLATION;
  }
  NEEDS(of_event, CAPTURED_EVENT); /* that capture is over */
  NEEDS(!of_event->invalid, CAPTURE_INVALIDATED);
  if (stream->capture && stream->capture != of_event) {
    pk_invalidate(stream->capture);
    pk_invalidate(of_event);
    return CAPTURE_MERGE;
  }
  if (!stream->capture) {
    if (stream == stream->object.ctx->legacy || of_event->count == MAX_JOINED) {
      pk_invalidate(of_event);
      return CAPTURE_IMPLICIT;
    }
    join(of_event, stream);
  }
  uint32_t *clock = of_event->clock[stream->captured_as];
  for (int n = 0; n < MAX_JOINED; n++)
    if (clock[n] < event->clock[n]) clock[n] = event->clock[n];
  return OK;
}

PK_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  ENTER(cuThreadExchangeStreamCaptureMode);
  NEEDS(mode && (unsigned)*mode <= 2, INVALID_VALUE);
  Thread *thread = pk_thread();
  CUstreamCaptureMode earlier = thread->mode;
  thread->mode = *mode;
  *mode = earlier;
  return OK;
}

PK_EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  ENTER(cuStreamBeginCapture_v2);
  WITH_CONTEXT(ctx);
  Stream *stream;
  TRY(pk_find_stream(ctx, handle, &stream));
  NEEDS(stream != ctx->legacy, CAPTURE_UNSUPPORTED);
  NEEDS((unsigned)mode <= 2, INVALID_VALUE);
  NEEDS(!stream->capture && pk_captures < MAX_CAPTURES, ILLEGAL_STATE);
  Capture *capture = calloc(1, sizeof *capture);
  NEEDS(capture, OUT_OF_MEMORY);
  capture->id = ++ids;
  capture->mode = mode;
  capture->thread = pk_thread();
  capture->graph = pk_new(GRAPH, sizeof *capture->graph, stream->object.ctx);
  capture->graph->references = 1;
  join(capture, stream);
  captures[pk_captures++] = capture;
  return OK;
}

PK_EXPORT CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
  ENTER(cuStreamIsCapturing);
  WITH_CONTEXT(ctx);
  NEEDS(status, INVALID_VALUE);
  Stream *stream;
  TRY(pk_find_stream(ctx, handle, &stream));
  if (stream == ctx->legacy) TRY(pk_legacy(ctx, 0));
  *status = !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
  return OK;
}

PK_EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph *found) {
  ENTER(cuStreamEndCapture);
  WITH_CONTEXT(ctx);
  NEEDS(found, INVALID_VALUE);
  Stream *stream;
  TRY(pk_find_stream(ctx, handle, &stream));
  Capture *capture = stream->capture;
  NEEDS(capture, ILLEGAL_STATE);
  NEEDS(stream->captured_as == 0, CAPTURE_UNMATCHED);
  NEEDS(capture->mode == 2 || capture->thread == pk_thread(), CAPTURE_WRONG_THREAD);
  CUresult status = capture->invalid ? CAPTURE_INVALIDATED : OK;
  for (int n = 1; n < capture->count && !status; n++)
    if (capture->clock[0][n] < capture->clock[n][n]) status = CAPTURE_UNJOINED;
  Graph *graph = leave(capture);
  *found = NULL;
  if (status)
    pk_release_graph(graph);
  else
    *found = HANDLE(graph);
  return status;
}

/* Graphs */

static void free_nodes(Op *node) {
  while (node) {
    Op *next = node->next;
    free(node);
    node = next;
  }
}

static void forget_exec(void *exec) { free_nodes(((Exec *)exec)->first); }
static void forget_graph(void *graph) { free_nodes(((Graph *)graph)->first); }

void pk_forget_graphs(void) {
  forget_captures();
  pk_each(EXEC, NULL, forget_exec);
  pk_each(GRAPH, NULL, forget_graph);
}

/* Give up a graph. Its memory goes with the last of it and its executables; what is live then is as if allocated in a stream. */
void pk_release_graph(Graph *graph) {
  if (--graph->references) return;
  for (Op *node = graph->first; node; node = node->next) {
    if (node->kind != OP_ALLOCATE || node->block->owner != graph) continue;
    Block *block = node->block;
    block->owner = NULL;
    if (block->state == LIVE)
      pk_adopt(block);
    else
      pk_give(block, FREED);
  }
  free_nodes(graph->first);
  pk_delete(graph, 0);
}

void pk_release_exec(Exec *exec) {
  if (--exec->references) return;
  free_nodes(exec->first);
  exec->graph->instances--;
  pk_release_graph(exec->graph);
  pk_delete(exec, 0);
}

PK_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *found, CUgraph handle, unsigned long long flags) {
  ENTER(cuGraphInstantiateWithFlags);
  WITH_CONTEXT(ctx);
  (void)ctx;
  NEEDS(found && flags < 16, INVALID_VALUE);
  Graph *graph = pk_find(handle, GRAPH);
  NEEDS(graph && !graph->destroyed, INVALID_VALUE);
  NEEDS(!graph->allocations || !graph->instances, INVALID_VALUE);
  Exec *exec = pk_new(EXEC, sizeof *exec, graph->object.ctx);
  exec->graph = graph;
  exec->flags = flags;
  exec->references = 1;
  graph->references++;
  graph->instances++;
  Op **end = &exec->first;
  for (Op *node = graph->first; node; node = node->next) {
    *end = pk_copy_op(node);
    end = &(*end)->next;
  }
  *found = HANDLE(exec);
  return OK;
}

PK_EXPORT CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  ENTER(cuGraphLaunch);
  WITH_CONTEXT(ctx);
  Exec *exec = pk_find(handle, EXEC);
  NEEDS(exec && !exec->destroyed, INVALID_VALUE);
  Stream *stream;
  TRY(pk_stream(ctx, stream_handle, &stream));
  NEEDS(stream->object.ctx == exec->object.ctx, INVALID_HANDLE);
  for (Op *node = exec->first; node && exec->graph->allocations && !(exec->flags & 1); node = node->next)
    if (node->kind == OP_ALLOCATE) NEEDS(node->block->state != LIVE, INVALID_VALUE); /* not freed since the last launch */
  Op op = {.kind = OP_GRAPH, .ctx = stream->object.ctx, .exec = exec};
  return pk_submit(stream, &op);
}

void pk_execute_graph(Op *op, Stream *stream) {
  for (Op *node = op->exec->first; node; node = node->next) pk_execute(node, stream);
}

PK_EXPORT CUresult cuGraphDestroy(CUgraph handle) {
  ENTER(cuGraphDestroy);
  WITH_CONTEXT(ctx);
  (void)ctx;
  Graph *graph = pk_find(handle, GRAPH);
  NEEDS(graph && !graph->destroyed, INVALID_VALUE);
  graph->destroyed = 1;
  pk_release_graph(graph);
  return OK;
}

PK_EXPORT CUresult cuGraphExecDestroy(CUgraphExec handle) {
  ENTER(cuGraphExecDestroy);
  WITH_CONTEXT(ctx);
  (void)ctx;
  Exec *exec = pk_find(handle, EXEC);
  NEEDS(exec && !exec->destroyed, INVALID_VALUE);
  exec->destroyed = 1;
  pk_release_exec(exec);
  return OK;
}
