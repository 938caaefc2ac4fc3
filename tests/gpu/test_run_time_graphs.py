"""Calls that are captured in graphs, on the stub of the driver's library."""

import gc

import numpy as np
import pytest

import polyker as pk
from polyker.errors import PolykerError

GLOBAL = 0  # CU_STREAM_CAPTURE_MODE_GLOBAL, as torch captures
SUM = "s += X[i] * X[i]"  # two launches, with partial sums in memory between
N = 100_003


@pytest.fixture
def stream(card):
    """A stream of the primary context, which is current."""
    card.cuda.CtxSetCurrent(card.cuda.DevicePrimaryCtxRetain(0))
    return card.cuda.StreamCreate(1)


class Graph:
    """What was queued on a stream while it was captured."""

    def __init__(self, card, stream, work):
        self.cuda = card.cuda
        self.cuda.StreamBeginCapture_v2(stream, GLOBAL)
        try:
            work()
        finally:
            self.graph = self.cuda.StreamEndCapture(stream)
        self.ready = self.cuda.GraphInstantiateWithFlags(self.graph, 0)

    def replay(self, stream):
        self.cuda.GraphLaunch(self.ready, stream)

    def close(self):
        self.cuda.GraphExecDestroy(self.ready)
        self.cuda.GraphDestroy(self.graph)


def filled(n):
    return np.random.default_rng(n).normal(size=N).astype("f4")


def near(found, values, factor=None):
    want = (values.astype("f8") ** 2).sum() if factor is None else factor * values.astype("f8").sum()
    return abs(float(found.array) - want) < 1


@pytest.mark.parametrize("lazy", [0, 1])
def test_a_graph_with_temporaries_may_be_replayed_beside_other_calls(card, stream, lazy):
    kernel = pk.op(SUM).compile(pk.f32[N], target="cuda")
    card.run(kernel)
    x, y, s, t = card.array(filled(0)), card.array(filled(1)), *(card.array(np.zeros((), "f4")) for _ in range(2))
    kernel(x, out=s)
    kernel.sync()
    graph = Graph(card, stream, lambda: kernel(x, out=s, stream=stream))
    card.stub.lazy(lazy)
    other = card.cuda.StreamCreate(1)
    for n in range(4):
        x.array[:] = filled(n + 2)
        kernel(y, out=t, stream=other)
        graph.replay(stream)
        kernel(y, out=t, stream=other)
        card.cuda.StreamSynchronize(stream)
        card.cuda.StreamSynchronize(other)
        assert near(s, x.array) and near(t, y.array)
    graph.close()
    kernel.sync()


def test_a_number_is_part_of_the_graph_though_its_object_is_gone(card, stream):
    kernel = pk.op("s += c * X[i]").compile(pk.f64[()], pk.f32[N], target="cuda")
    card.run(kernel)
    x, s = card.array(filled(0)), card.array(np.zeros((), "f8"))
    kernel(2.0, x, out=s)
    kernel.sync()
    graph = Graph(card, stream, lambda: kernel(float("3.5"), x, out=s, stream=stream))
    gc.collect()
    for n in range(3):
        x.array[:] = filled(n)
        graph.replay(stream)
        card.cuda.StreamSynchronize(stream)
        assert near(s, x.array, 3.5)
    graph.close()


def test_a_prepared_call_is_captured_on_the_stream_that_it_was_given(card, stream):
    kernel = pk.op(SUM).compile(pk.f32[N], target="cuda")
    card.run(kernel)
    x, s = card.array(filled(0)), card.array(np.zeros((), "f4"))
    call = kernel.prepare(x, out=s, stream=stream)
    call()
    graph = Graph(card, stream, call)
    x.array[:] = filled(7)
    graph.replay(stream)
    card.cuda.StreamSynchronize(stream)
    assert near(s, x.array)
    graph.close()


def test_a_kernel_that_was_never_called_may_be_captured(card, stream):
    kernel = pk.op(SUM).compile(pk.f32[N], target="cuda")
    card.run(kernel)
    x, s = card.array(filled(0)), card.array(np.zeros((), "f4"))
    graph = Graph(card, stream, lambda: kernel(x, out=s, stream=stream))
    graph.replay(stream)
    card.cuda.StreamSynchronize(stream)
    assert near(s, x.array)
    graph.close()


def test_a_graph_outlives_the_kernel_that_it_was_captured_from(card, stream):
    x, s = card.array(filled(0)), card.array(np.zeros((), "f4"))
    graph = Graph(card, stream, lambda: pk.op(SUM).compile(pk.f32[N], target="cuda")(x, out=s, stream=stream))
    pk.clear_cache()
    gc.collect()
    for n in range(20):  # each loads, which is when others are unloaded
        pk.op(f"Y[i] = X[i] + {n}").compile(pk.f64[8], target="cuda")(np.ones(8))
        pk.clear_cache()
    graph.replay(stream)
    card.cuda.StreamSynchronize(stream)
    assert card.stub.launched().stream == stream
    graph.close()


def test_kernels_may_be_loaded_and_dropped_while_another_thread_captures(card, stream):
    kernel = pk.op(SUM).compile(pk.f32[N], target="cuda")
    x, s = card.array(filled(0)), card.array(np.zeros((), "f4"))
    kernel(x, out=s)

    def work():
        kernel(x, out=s, stream=stream)
        for n in range(3):  # of this thread, which is stricter
            other = pk.op(f"Z[i] = X[i] + {n}").compile(pk.f32[N], target="cuda")
            other(x, out=card_memory, stream=beside)
            del other
            pk.clear_cache()

    card_memory, beside = card.array(np.zeros(N, "f4")), card.cuda.StreamCreate(1)
    graph = Graph(card, stream, work)
    graph.replay(stream)
    graph.close()


def test_arrays_of_the_host_cannot_be_captured_and_the_capture_is_told(card, stream):
    kernel = pk.op(SUM).compile(pk.f32[N], target="cuda")
    kernel(filled(0))
    card.cuda.StreamBeginCapture_v2(stream, GLOBAL)
    with pytest.raises(PolykerError, match="cuStreamSynchronize"):
        kernel(filled(0), stream=stream)
    with pytest.raises(Exception, match="901"):
        card.cuda.StreamEndCapture(stream)
