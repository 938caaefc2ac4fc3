"""The stub of the driver's library: the order of streams and events, work that is put off, captures and graphs."""

import ctypes
import threading
from ctypes import byref, c_int, c_uint, c_uint64

import pytest

from tests.gpu.stub.calls import Cuda, CudaError, bytes_at
from tests.gpu.test_stub import refused

N = c_int(7)
GLOBAL, THREAD_LOCAL, RELAXED = range(3)


@pytest.fixture
def cuda(stub):
    """The functions, in the primary context of device 0."""
    yield Cuda(stub)
    assert not stub.violations()


def test_work_that_is_put_off_is_done_when_it_is_waited_for(cuda, stub):
    stub.lazy()
    memory, one, other = cuda.MemAlloc_v2(8), cuda.StreamCreate(1), cuda.StreamCreate(1)
    cuda.MemsetD8Async(memory, 1, 8, one)
    cuda.StreamSynchronize(other)
    assert bytes_at(memory, 1) == b"\xff" and stub.live("queued") == 1
    assert cuda.StreamQuery(one) is None and bytes_at(memory, 1) == b"\x01"
    stub.lazy(2)
    cuda.MemsetD8Async(memory, 2, 8, one)
    refused(cuda, 600, "StreamQuery", one)
    cuda.CtxSynchronize()
    assert cuda.StreamQuery(one) is None and bytes_at(memory, 1) == b"\x02"


def test_events_order_streams(cuda, stub):
    stub.lazy()
    memory, one, other, event = cuda.MemAlloc_v2(8), cuda.StreamCreate(1), cuda.StreamCreate(1), cuda.EventCreate(2)
    for wanted in (True, False):
        cuda.MemsetD8Async(memory, 1, 8, one)
        cuda.EventRecord(event, one)
        cuda.MemsetD8Async(memory, 3, 8, one)
        if wanted:
            cuda.StreamWaitEvent(other, event, 0)
        cuda.MemsetD8Async(memory + 4, 2, 4, other)
        cuda.StreamSynchronize(other)
        assert bytes_at(memory, 8) == (b"\1" * 4 if wanted else b"\3" * 4) + b"\2" * 4
        cuda.EventSynchronize(event)
        cuda.CtxSynchronize()
    cuda.EventDestroy_v2(event)  # what waits for it goes on
    refused(cuda, 400, "EventQuery", event)
    assert stub.live("events") == 0


def test_the_legacy_stream_is_in_order_with_blocking_streams_alone(cuda, stub):
    stub.lazy()
    memory, blocking, free = cuda.MemAlloc_v2(16), cuda.StreamCreate(0), cuda.StreamCreate(1)
    cuda.MemsetD8Async(memory, 1, 1, blocking)
    cuda.MemsetD8Async(memory + 1, 1, 1, free)
    cuda.MemsetD8Async(memory + 2, 1, 1, 0)
    cuda.MemsetD8Async(memory + 3, 1, 1, blocking)
    cuda.StreamSynchronize(0)
    assert bytes_at(memory, 4) == b"\1\xff\1\xff"
    cuda.MemsetD8Async(memory + 4, 1, 1, 1)
    cuda.StreamSynchronize(blocking)
    assert bytes_at(memory, 5) == b"\1\xff\1\1\xff"
    cuda.StreamSynchronize(1)
    assert bytes_at(memory + 4, 1) == b"\1"


def test_only_pinned_memory_is_copied_later(cuda, stub):
    stub.lazy()
    memory, pinned, stream = cuda.MemAlloc_v2(16), cuda.MemAllocHost_v2(8), cuda.StreamCreate(1)
    host = ctypes.create_string_buffer(b"abcdefgh", 8)
    ctypes.memmove(pinned, host, 8)
    cuda.MemcpyHtoDAsync_v2(memory, host, 8, stream)
    cuda.MemcpyHtoDAsync_v2(memory + 8, pinned, 8, stream)
    ctypes.memset(host, 0, 8)
    ctypes.memset(pinned, ord("z"), 8)
    back = ctypes.create_string_buffer(16)
    cuda.MemcpyDtoHAsync_v2(back, memory, 16, stream)  # it waits: the memory is not pinned
    assert back.raw == b"abcdefghzzzzzzzz"
    cuda.MemcpyDtoHAsync_v2(pinned, memory, 8, stream)
    assert bytes_at(pinned, 8) == b"zzzzzzzz"
    cuda.StreamSynchronize(stream)
    assert bytes_at(pinned, 8) == b"abcdefgh"


def test_memory_of_pools_lives_in_the_order_of_its_stream(stub):
    cuda = Cuda(stub)
    stub.lazy()
    one, other, function = cuda.StreamCreate(1), cuda.StreamCreate(1), cuda.function()
    memory = cuda.MemAllocAsync(64, one)
    cuda.launch(function, memory, memory, N, stream=other)
    cuda.StreamSynchronize(other)
    assert "not yet allocated" in stub.violations()[0]
    stub.clear_violations()
    cuda.launch(function, memory, memory, N, stream=one)
    cuda.MemFreeAsync(memory, one)
    cuda.StreamSynchronize(one)
    assert not stub.violations() and stub.live("pool_bytes") == 0
    memory = cuda.MemAllocAsync(64, one)
    cuda.StreamSynchronize(one)
    cuda.launch(function, memory, memory, N, stream=other)
    cuda.MemFreeAsync(memory, one)
    cuda.StreamSynchronize(one)
    cuda.StreamSynchronize(other)  # nothing made the free wait for it
    assert "freed" in stub.violations()[0]


def test_a_destroyed_stream_does_what_it_has_to(cuda, stub):
    stub.lazy()
    memory, stream = cuda.MemAlloc_v2(8), cuda.StreamCreate(1)
    cuda.MemsetD8Async(memory, 1, 8, stream)
    cuda.StreamDestroy_v2(stream)
    refused(cuda, 400, "StreamSynchronize", stream)
    cuda.CtxSynchronize()
    assert bytes_at(memory, 1) == b"\1" and stub.live("streams") == 0


def captured(cuda, stream, *work, mode=GLOBAL):
    cuda.StreamBeginCapture_v2(stream, mode)
    for queue in work:
        queue()
    return cuda.StreamEndCapture(stream)


def test_a_graph_does_what_was_captured(cuda, stub):
    memory, stream, function = cuda.MemAlloc_v2(64), cuda.StreamCreate(1), cuda.function()
    graph = captured(
        cuda,
        stream,
        lambda: cuda.MemsetD8Async(memory, 5, 64, stream),
        lambda: cuda.launch(function, memory, memory, N, stream=stream),
    )
    assert bytes_at(memory, 1) == b"\xff" and stub.launches() == 0 and stub.live("graphs") == 1
    run = cuda.GraphInstantiateWithFlags(graph, 0)
    cuda.GraphDestroy(graph)
    for _ in range(2):
        cuda.GraphLaunch(run, 0)
    assert bytes_at(memory, 1) == b"\5" and stub.launches() == 2 and stub.launched().name == "add"
    cuda.GraphExecDestroy(run)
    assert stub.live("graphs") == stub.live("executables") == 0
    refused(cuda, 1, "GraphLaunch", run, 0)


def test_a_graph_whose_memory_was_freed_is_a_violation(stub):
    cuda = Cuda(stub)
    memory, stream, function = cuda.MemAlloc_v2(64), cuda.StreamCreate(1), cuda.function()
    run = cuda.GraphInstantiateWithFlags(
        captured(cuda, stream, lambda: cuda.launch(function, memory, memory, N, stream=stream)), 0
    )
    cuda.MemFree_v2(memory)
    cuda.GraphLaunch(run, stream)
    assert [line.rpartition(": ")[2] for line in stub.violations()] == ["freed"] * 2
    stub.clear_violations()
    while (other := cuda.MemAlloc_v2(64)) != memory:  # until another has it
        cuda.MemFree_v2(other)
    cuda.GraphLaunch(run, stream)
    assert [line.rpartition(": ")[2] for line in stub.violations()] == ["another owner's by now"] * 2


def test_captured_memory_is_the_graphs(cuda, stub):
    stream, function, found = cuda.StreamCreate(1), cuda.function(), []
    graph = captured(
        cuda,
        stream,
        lambda: found.append(cuda.MemAllocAsync(64, stream)),
        lambda: cuda.launch(function, found[0], found[0], N, stream=stream),
        lambda: cuda.MemFreeAsync(found[0], stream),
    )
    assert "not yet allocated" in stub.wrong(found[0]) and stub.live("pool_bytes") == 0
    run = cuda.GraphInstantiateWithFlags(graph, 0)
    refused(cuda, 1, "GraphInstantiateWithFlags", byref(c_uint64()), graph, 0)
    for _ in range(3):
        cuda.GraphLaunch(run, stream)
    others = {cuda.MemAllocAsync(64, stream) for _ in range(50)}
    assert found[0] not in others and stub.launches() == 3
    cuda.GraphExecDestroy(run)
    cuda.GraphDestroy(graph)
    assert stub.wrong(found[0])


def test_a_graph_that_leaves_memory_is_launched_again_when_that_is_freed(cuda):
    stream, found = cuda.StreamCreate(1), []
    run = cuda.GraphInstantiateWithFlags(
        captured(cuda, stream, lambda: found.append(cuda.MemAllocAsync(64, stream))), 0
    )
    cuda.GraphLaunch(run, stream)
    refused(cuda, 1, "GraphLaunch", run, stream)
    cuda.MemFreeAsync(found[0], stream)
    cuda.GraphLaunch(run, stream)


@pytest.mark.parametrize(
    "name",
    ["MemAlloc", "MemFree", "CtxSynchronize", "StreamSynchronize", "StreamQuery", "pinned", "module", "event", "copy"],
)
def test_calls_that_a_capture_would_not_see_spoil_it(cuda, name):
    stream, memory, event, place = cuda.StreamCreate(1), cuda.MemAlloc_v2(8), cuda.EventCreate(0), c_uint64()
    cuda.StreamBeginCapture_v2(stream, GLOBAL)
    assert cuda.StreamIsCapturing(stream) == 1
    calls = {
        "MemAlloc": ("MemAlloc_v2", byref(place), 8), "MemFree": ("MemFree_v2", memory), "CtxSynchronize": ("CtxSynchronize",),
        "StreamSynchronize": ("StreamSynchronize", stream), "StreamQuery": ("StreamQuery", stream),
        "pinned": ("MemAllocHost_v2", byref(place), 8), "module": ("ModuleLoadData", byref(place), b"PKSTUB arch=90\n"),
        "event": ("EventQuery", event), "copy": ("MemcpyDtoH_v2", byref(place), memory, 8),
    }  # fmt: skip
    refused(cuda, 900, *calls[name])
    assert cuda.StreamIsCapturing(stream) == 2
    refused(cuda, 901, "MemsetD8Async", memory, 0, 8, stream)
    refused(cuda, 901, "StreamEndCapture", stream, byref(place))
    assert cuda.StreamIsCapturing(stream) == 0 and place.value == 0


def test_the_modes_say_whose_calls_spoil_a_capture(cuda):
    stream, place = cuda.StreamCreate(1), c_uint64()
    statuses = []

    def elsewhere(relaxed=False):
        def work():
            cuda.CtxSetCurrent(cuda.context)
            if relaxed:
                cuda.ThreadExchangeStreamCaptureMode(byref(c_uint(RELAXED)))
            statuses.append(cuda.status("MemAlloc_v2", byref(place), 8))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    for mode, relaxed in ((RELAXED, False), (THREAD_LOCAL, False), (GLOBAL, True), (GLOBAL, False)):
        cuda.StreamBeginCapture_v2(stream, mode)
        elsewhere(relaxed)
        assert cuda.StreamIsCapturing(stream) == 1 + statuses[-1] // 900
        cuda.status("StreamEndCapture", stream, byref(place))
    assert statuses == [0, 0, 0, 900]
    cuda.StreamBeginCapture_v2(stream, GLOBAL)
    mode = c_uint(RELAXED)
    cuda.ThreadExchangeStreamCaptureMode(byref(mode))
    assert mode.value == GLOBAL
    cuda.MemAlloc_v2(8)
    cuda.StreamEndCapture(stream)


def test_the_legacy_stream_is_of_no_use_while_a_blocking_stream_is_captured(cuda):
    memory, place = cuda.MemAlloc_v2(8), c_uint64()
    refused(cuda, 900, "StreamBeginCapture_v2", 0, GLOBAL)
    for flags, status in ((1, 0), (0, 906)):
        stream = cuda.StreamCreate(flags)
        cuda.StreamBeginCapture_v2(stream, RELAXED)
        refused(cuda, status, "StreamIsCapturing", 0, byref(c_int()))
        refused(cuda, status, "MemsetD8Async", memory, 0, 8, 0)
        refused(cuda, 901 if status else 0, "StreamEndCapture", stream, byref(place))


def test_streams_join_a_capture_by_events_and_have_to_come_back(cuda, stub):
    memory, one, other = cuda.MemAlloc_v2(8), cuda.StreamCreate(1), cuda.StreamCreate(1)
    fork, join, early = (cuda.EventCreate(2) for _ in range(3))
    cuda.EventRecord(early, other)
    for back in (True, False):
        cuda.StreamBeginCapture_v2(one, GLOBAL)
        cuda.MemsetD8Async(memory, 1, 4, one)
        cuda.EventRecord(fork, one)
        cuda.StreamWaitEvent(other, fork, 0)
        cuda.MemsetD8Async(memory + 4, 2, 4, other)
        cuda.EventRecord(join, other)
        refused(cuda, 907, "EventQuery", join)
        refused(cuda, 903, "StreamEndCapture", other, byref(c_uint64()))
        if back:
            cuda.StreamWaitEvent(one, join, 0)
            cuda.GraphLaunch(cuda.GraphInstantiateWithFlags(cuda.StreamEndCapture(one), 0), one)
            assert bytes_at(memory, 8) == b"\1\1\1\1\2\2\2\2" and cuda.StreamIsCapturing(other) == 0
        else:
            refused(cuda, 904, "StreamEndCapture", one, byref(c_uint64()))
    cuda.StreamBeginCapture_v2(one, GLOBAL)
    refused(cuda, 905, "StreamWaitEvent", one, early, 0)
    with pytest.raises(CudaError, match="901"):
        cuda.StreamEndCapture(one)
    assert stub.live("graphs") == 1


def test_a_capture_ends_in_the_thread_that_began_it_unless_relaxed(cuda):
    stream, statuses = cuda.StreamCreate(1), []

    def end():
        cuda.CtxSetCurrent(cuda.context)
        statuses.append(cuda.status("StreamEndCapture", stream, byref(c_uint64())))

    for mode in (THREAD_LOCAL, RELAXED):
        cuda.status("StreamEndCapture", stream, byref(c_uint64()))
        cuda.StreamBeginCapture_v2(stream, mode)
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
    assert statuses == [908, 0]


def test_threads_work_at_once_with_a_hook(cuda, stub):
    done = []
    stub.on_launch(lambda name, grid, *others: done.append(grid[0]))
    function = cuda.function("none")

    def work(n):
        cuda.CtxSetCurrent(cuda.context)
        stream = cuda.StreamCreate(1)
        for i in range(50):
            cuda.launch(function, grid=(100 * n + i + 1, 1, 1), stream=stream)
            cuda.StreamSynchronize(stream)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [100 * n + i + 1 for n in range(4) for i in range(50)]
    for n in range(4):
        own = [d for d in done if d // 100 == n]
        assert own == sorted(own)
