"""Calls on the stub of the driver's library that come in odd ways: several threads, failures, captures, and what lies."""

import gc
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda import build as cuda_build
from polyker.errors import CompileError, GatherError, InternalError, PolykerError
from polyker.runtime.cuda import bound
from polyker.runtime.cuda import loaded as loaded_module
from polyker.runtime.cuda.device import QueuedWork
from tests.gpu.device import OnDevice
from tests.gpu.stub.calls import IMAGE
from tests.gpu.test_run_time import DOUBLE, GATHER, primary, ready

__all__ = ["primary"]


def test_sync_waits_though_another_thread_waits_already(card, primary, monkeypatch):
    kernel = ready(card, DOUBLE, pk.f64[8])
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    kernel(x, out=y)
    kernel.sync()
    device = card.driver.device(0)
    inside, go = threading.Event(), threading.Event()
    whole = type(device).synchronize
    waits = []

    def slow(self, stream):
        waits.append(threading.get_ident())
        if len(waits) == 1:
            inside.set()
            go.wait(10)
        whole(self, stream)

    monkeypatch.setattr(type(device), "synchronize", slow)
    kernel(x, out=y)
    first = threading.Thread(target=kernel.sync)
    first.start()
    inside.wait(10)
    kernel.sync()
    go.set()
    first.join()
    assert threading.get_ident() in waits


def test_a_call_runs_where_another_thread_has_raised_what_a_guard_found(card, primary, monkeypatch):
    kernel = ready(card, GATHER, pk.f64[4], pk.i64[3])
    table, good, bad = (card.array(np.asarray(v)) for v in (np.arange(4.0), [3, 0, 1], [3, 4, 1]))
    out = card.array(np.zeros(3))
    kernel(table, bad, out=out)
    monkeypatch.setattr(loaded_module.Loaded, "sync", lambda self: self.flag.take() and 0)
    kernel(table, good, out=out)
    np.testing.assert_array_equal(out.array, [3.5, 0.5, 1.5])


def test_without_memory_for_its_flag_a_module_is_unloaded(card, primary):
    kernel = ready(card, GATHER, pk.f64[4], pk.i64[3])
    card.stub.fail("cuMemHostAlloc", 2, 0)
    with pytest.raises(PolykerError, match="cuMemHostAlloc"):
        kernel(np.arange(4.0), np.array([3, 0, 1]))
    del kernel
    pk.clear_cache()
    assert card.stub.live("modules") == 0


def test_a_prepared_call_with_arrays_of_the_host_takes_the_stream(card, primary):
    kernel = ready(card, DOUBLE, pk.f64[8])
    s = card.cuda.StreamCreate(1)
    x, y = np.arange(8.0), np.zeros(8)
    kernel(x, out=y, stream=s)
    assert card.stub.launched().stream == s
    kernel.prepare(x, out=y, stream=s)()
    assert card.stub.launched().stream == s


def test_a_prepared_call_with_arrays_of_the_host_runs_on_the_numbered_gpu(card):
    card.stub.configure(2)
    card.cuda.Init(0)
    card.driver = type(card.driver)(card.driver.library)
    k = pk.op("Y[i] = X[i] * 3").compile(pk.f64[8], target="cuda:1")
    k.prepare(np.ones(8))()
    assert list(card.driver.primary) == [1]


def test_an_array_whose_memory_is_gone_is_refused_though_an_earlier_one_lay_so(card, primary):
    kernel = ready(card, DOUBLE, pk.f64[8])
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    kernel(x, out=y)
    gone = OnDevice(x.array)
    gone.array = SimpleNamespace(__array_interface__={**x.array.__array_interface__, "data": (0, False)})
    n = card.stub.launches()
    with pytest.raises(PolykerError, match="no address"):
        kernel(gone, out=y)
    assert card.stub.launches() == n


@pytest.mark.parametrize("name", ["0", "1", "cuda:-1", "cuda:", "cuda:1a", "cuda:9999", "12"])
def test_what_is_no_number_of_a_gpu_is_an_unknown_target(card, name):
    with pytest.raises(CompileError, match="unknown target"):
        pk.op(DOUBLE).compile(pk.f64[8], target=name)


def test_an_array_of_a_context_that_nothing_was_called_in_is_refused(card, primary):
    kernel = ready(card, "Y[i] = X[i] * Z[i]", pk.f64[8], pk.f64[8])
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    card.cuda.CtxCreate_v2(0, 0)
    z = card.array(np.arange(8.0))
    card.cuda.CtxPopCurrent_v2()
    with pytest.raises(PolykerError, match="another context"):
        kernel(x, z, out=y)


def test_the_cache_is_cleared_though_a_context_is_gone(card):
    own = card.cuda.CtxCreate_v2(0, 0)
    kernel = ready(card, DOUBLE, pk.f64[8])
    kernel(np.ones(8))
    card.cuda.CtxDestroy_v2(own)
    pk.clear_cache()


def test_waiting_in_another_thread_leaves_a_capture_as_it_is(card, primary):
    kernel = ready(card, DOUBLE, pk.f64[8])
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    s = card.cuda.StreamCreate(1)
    kernel(x, out=y)
    card.cuda.StreamBeginCapture_v2(s, 1)
    kernel(x, out=y, stream=s)
    errors = []

    def work():
        try:
            kernel(np.ones(8))
            kernel.sync()
        except Exception as e:
            errors.append(e)

    t = threading.Thread(target=work)
    t.start()
    t.join()
    graph = card.cuda.StreamEndCapture(s)
    assert not errors, errors
    card.cuda.GraphDestroy(graph)


def test_a_tensor_called_out_may_come_with_a_stream(card, primary):
    op = pk.op("Y[i] = out[i] * 2")
    x = card.array(np.arange(8.0))
    op(out=x)
    op(out=x, stream=0)


def test_a_stream_that_each_thread_has_its_own_of_is_waited_for_by_its_context(card, primary):
    kernel = ready(card, DOUBLE, pk.f64[8])
    kernel(card.array(np.arange(8.0)), out=card.array(np.zeros(8)), stream=2)  # CU_STREAM_PER_THREAD
    card.stub.reset_counts()
    kernel.sync()
    assert card.stub.count("cuCtxSynchronize") == 1


def test_arrays_without_elements_lie_on_no_device_in_particular(card):
    card.stub.configure(2)
    card.cuda.Init(0)
    card.driver = type(card.driver)(card.driver.library)
    context = card.cuda.DevicePrimaryCtxRetain(1)
    kernel = pk.op("Y[i] = X[i] * 2; W[j] = Z[j] + 1").compile(pk.f64[8], pk.f64[0], target="cuda")
    about = {**np.zeros(0).__array_interface__, "data": (0, False)}
    none, target = (OnDevice(SimpleNamespace(__array_interface__=about)) for _ in range(2))
    x, y = (card.array(np.zeros(8), context) for _ in range(2))
    for _ in range(2):
        kernel(x, none, out=(y, target))
    kernel.sync()
    assert card.stub.launches() >= 2


def test_what_is_dropped_while_others_are_unloaded_stays_until_the_next_time(card, primary, monkeypatch):
    device = card.driver.device(0)
    first, second = (device.load(IMAGE, {"none": 0}, "a test") for _ in range(2))
    status, dropped, work = type(device).status, [], QueuedWork()
    work.queued(0)

    def waited(self, function, *arguments):
        found = status(self, function, *arguments)
        if function is self._cu.cuStreamSynchronize and not dropped:
            dropped.append(second)
            device.drop(second, None, QueuedWork())  # by another thread, which has just launched its kernel
        return found

    monkeypatch.setattr(type(device), "status", waited)
    device.drop(first, None, work)
    device.release()
    assert card.stub.live("modules") == 1
    device.release()
    assert card.stub.live("modules") == 0


def test_a_kernel_is_not_unloaded_while_a_stream_of_its_work_is_captured(card, primary):
    stream = card.cuda.StreamCreate(1)
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    kernel = pk.op(DOUBLE).compile(pk.f64[8], target="cuda")
    kernel(x, out=y, stream=stream)
    card.cuda.StreamBeginCapture_v2(stream, 0)
    del kernel
    pk.clear_cache()
    gc.collect()
    card.driver.device(0).release()
    assert card.stub.live("modules") == 1
    card.cuda.GraphDestroy(card.cuda.StreamEndCapture(stream))  # the capture is not spoilt
    card.driver.device(0).release()
    assert card.stub.live("modules") == 0


class Fresh:
    """What gives a new array each time it is asked."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values)


def test_a_prepared_call_on_the_cpu_reads_what_its_arguments_hold_then():
    kernel, out = pk.op("Y[i] = X[i] * 2").compile(pk.f64[3]), np.zeros(3)
    values = [1.0, 2.0, 3.0]
    for given in (values, Fresh(values)):
        values[0] = 1.0
        call = kernel.prepare(given, out=out)
        values[0] = 10.0
        assert call() is out and out[0] == 20
    torch = pytest.importorskip("torch")
    x = torch.tensor([1 + 1j, 2, 3], dtype=torch.complex128)
    call = pk.op("Y[i] = X[i] * 2").compile(pk.c128[3]).prepare(x.conj())
    x[0] = 10 + 10j
    assert call()[0] == 20 - 20j


def test_an_nvcc_that_cannot_be_run_is_told(monkeypatch, tmp_path):
    broken = tmp_path / "nvcc"
    broken.write_text("#!/no/such/program\n")
    broken.chmod(0o755)
    with pytest.raises(InternalError, match="nvcc"):
        cuda_build.run_nvcc(str(broken), "", "ptx")


def test_an_operator_waits_for_kernels_that_its_cache_has_let_go_of(card, primary):
    op = pk.op(DOUBLE)
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    with pk.options(cache_size=1):
        op(x, out=y)
        card.stub.lazy(2)
        op(x, out=y)
        for n in range(3):
            pk.op(f"Y[i] = X[i] + {n}").compile(pk.f64[8])
        gc.collect()
        assert card.stub.live("queued")
        op.sync()
        assert not card.stub.live("queued")
    card.stub.lazy(0)


def test_what_a_guard_found_is_raised_while_a_stream_is_captured(card, primary):
    kernel = ready(card, GATHER, pk.f64[4], pk.i64[3])
    table, good, bad = (card.array(np.asarray(v)) for v in (np.arange(4.0), [3, 0, 1], [3, 4, 1]))
    out, stream = card.array(np.zeros(3)), card.cuda.StreamCreate(1)
    kernel(table, bad, out=out, stream=stream)
    card.cuda.StreamBeginCapture_v2(stream, 0)
    with pytest.raises(GatherError):
        kernel(table, good, out=out, stream=stream)
    kernel(table, good, out=out, stream=stream)
    graph = card.cuda.StreamEndCapture(stream)
    ready_graph = card.cuda.GraphInstantiateWithFlags(graph, 0)
    card.cuda.GraphLaunch(ready_graph, stream)
    card.cuda.StreamSynchronize(stream)
    np.testing.assert_array_equal(out.array, [3.5, 0.5, 1.5])
    card.cuda.GraphExecDestroy(ready_graph)
    card.cuda.GraphDestroy(graph)


def test_the_quick_way_sees_a_context_that_is_new_to_it(card, primary):
    kernel = ready(card, DOUBLE, pk.f64[8])
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    for _ in range(3):
        kernel(x, out=y)
    kernel.sync()
    own = card.cuda.CtxCreate_v2(0, 0)
    z = card.array(np.arange(8.0))
    card.cuda.CtxPopCurrent_v2()
    with pytest.raises(PolykerError, match="another context"):
        kernel(z, out=y)
    w = card.array(np.zeros(8), own)
    kernel(z, out=w)
    kernel.sync()
    np.testing.assert_array_equal(w.array, 2 * z.array)


def test_arrays_that_name_the_stream_of_the_call_take_the_quick_way(card, primary, monkeypatch):
    kernel = ready(card, DOUBLE, pk.f64[8])
    x, y = card.array(np.arange(8.0)), card.array(np.zeros(8))
    stream = card.cuda.StreamCreate(1)
    x.stream = y.stream = 1  # the default one
    kernel(x, out=y)
    long = []
    plain = bound.bound_call
    monkeypatch.setattr(bound, "bound_call", lambda *a: long.append(1) or plain(*a))
    kernel(x, out=y)
    assert not long and card.stub.count("cuStreamWaitEvent") == 0
    x.stream = stream
    kernel(x, out=y)
    assert long and card.stub.count("cuStreamWaitEvent") == 1
