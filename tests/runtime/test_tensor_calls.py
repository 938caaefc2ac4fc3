"""Calls with tensors through the emitted entry, by the C exchange API: whatever the tensors, they end as calls through Python."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.runtime.exchange import classes
from polyker.runtime.exchange.classes import exchange_class
from tests.artifacts import table_of
from tests.runtime.calls import NEEDS_ENTRY, no_python

torch = pytest.importorskip("torch", reason="torch is an extra, and not installed")
pytestmark = [
    NEEDS_ENTRY,
    pytest.mark.skipif(exchange_class(torch.Tensor) is None, reason="this torch has no C exchange API that is known"),
]

TYPES = [
    "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128",
]  # fmt: skip
MATMUL = "C[p,q] += A[p,r] * B[r,q]"  # of these tests alone: kernels of one text share plans, and plans have rows
rows = pk.op("y[i,j] = x[i,j] + x[i,j]")


def tensor(*shape: int, dtype: Any = None, salt: int = 0) -> Any:
    values = torch.arange(int(np.prod(shape)) or 0) * 7 % (11 + salt) - 3
    return values.to(dtype or torch.float32).reshape(shape)


def warm(operator: Any, *args: Any, out: Any = None, **sizes: int) -> Any:
    """Return a kernel whose calls like these go through the entry."""
    kernel = operator.compile(*args, **sizes)
    for _ in range(4):
        kernel(*args, out=out, **sizes)
    return kernel


def straight(kernel: Any, *args: Any, **named: Any) -> Any:
    """Return the result of a call that takes no way through Python."""
    with no_python():
        return kernel(*args, **named)


def same(found: Any, wanted: Any) -> bool:
    return type(found) is torch.Tensor and found.dtype == wanted.dtype and torch.equal(found, wanted)


def outcome(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    try:
        return call(*args, **named)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_goes_straight(dtype: str) -> None:
    x = tensor(3, 5, dtype=getattr(torch, dtype))
    out = torch.zeros_like(x)
    kernel, other = warm(rows, x), tensor(3, 5, dtype=x.dtype, salt=2)
    assert same(straight(kernel, other), other + other)
    assert straight(kernel, other).is_contiguous() and straight(kernel, x=other).data_ptr() % 64 == 0
    for _ in range(4):
        kernel(x, out=out)
    assert straight(kernel, other, out=out) is out and same(out, other + other)
    operator = pk.op("y[i,j] = x[i,j] + x[i,j]")
    for _ in range(4):
        operator(x)
    table = table_of(operator)
    assert table is not None and len(table.rows) == 1 and same(operator(other), other + other)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda v: v.T,
    "sliced": lambda v: v[::2, 1:],
    "with an offset": lambda v: v[2:, 3:],
    "expanded": lambda v: v[:, :1].expand(6, 8),
    "a column": lambda v: v[:, :1],
    "a row": lambda v: v[3:4],
    "overlapping": lambda v: v.as_strided((3, 3), (2, 1)),
    "one element": lambda v: v[2:3, 4:5],
    "strange strides of one": lambda v: v.as_strided((1, 4), (17, 3)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_read_and_written_where_they_lie(name: str) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int8):
        view = LAYOUTS[name](tensor(6, 8, dtype=dtype))
        kernel = warm(rows, view)
        assert same(straight(kernel, view), view + view)
        for memory in (torch.zeros(16, 16, dtype=dtype), torch.zeros(16, 16, dtype=dtype).T):
            out = memory[1 : 1 + view.shape[0], ::2][:, : view.shape[1]]
            for _ in range(4):
                kernel(view, out=out)
            out.zero_()
            assert straight(kernel, view, out=out) is out and same(out, view + view)
            assert memory.count_nonzero() == (view + view).count_nonzero()


def test_scalars_numbers_and_several_results() -> None:
    x = tensor(7)
    total = warm(pk.op("s += x[i]"), x)
    found = straight(total, x)
    assert same(found, x.sum()) and found.shape == ()
    scaled = warm(pk.op("y[i] = a * x[i] + b"), 2.5, x, torch.tensor(3.0))
    assert same(straight(scaled, 2.5, x, torch.tensor(1.0)), 2.5 * x + 1)
    both = pk.op("S[] += X[i]; T[i] = X[i] * 2")
    kernel, outs = warm(both, x), (torch.zeros(()), torch.zeros(7))
    assert same(straight(kernel, x).S, x.sum()) and same(straight(kernel, x).T, 2 * x)
    for _ in range(4):
        kernel(x, out=outs)
    found = straight(kernel, x, out=outs)
    assert found.S is outs[0] and found.T is outs[1] and same(outs[1], 2 * x)
    again = straight(kernel, x, out=found)
    assert again.S is outs[0]
    single = warm(rows, tensor(2, 2), out=torch.zeros(2, 2))
    target = torch.zeros(2, 2)
    assert single(tensor(2, 2), out=(target,)) is target and single(tensor(2, 2), out={"y": target}) is target


def test_tensors_without_elements_are_right() -> None:
    for shape in ((0, 3), (3, 0)):
        x = torch.zeros(shape)
        kernel = warm(rows, x)
        assert same(kernel(x), x) and same(kernel(x, out=torch.zeros(shape)), x)
    total = warm(pk.op("y[i] += x[i,k]"), torch.zeros(3, 0))
    assert same(total(torch.zeros(3, 0)), torch.zeros(3))


def test_in_out_tensors_start_from_their_arguments() -> None:
    grown = pk.op("f(A: f32[M,N], B: f32[M,N]) -> A:\n    A[i,j] = 2 * A[i,j] + B[i,j]")
    a, b = tensor(4, 6), tensor(4, 6, salt=1)
    kernel, copy = warm(grown, a, b), a.clone()
    assert same(straight(kernel, a, b), 2 * a + b) and torch.equal(a, copy)
    out = torch.zeros(4, 6)
    for _ in range(4):
        kernel(a, b, out=out)
    assert straight(kernel, a, b, out=out) is out and same(out, 2 * a + b) and torch.equal(a, copy)
    assert straight(kernel, a, b, out=a) is a and same(a, 2 * copy + b)
    for lies in (a.T.contiguous().T, torch.zeros(4, 12)[:, ::2]):  # not dense row by row: a call in place goes straight
        lies.copy_(copy)
        for _ in range(4):
            kernel(lies, b)
            kernel(lies.clone(), b, out=lies)
            kernel(lies, b, out=lies)
        lies.copy_(copy)
        assert same(kernel(lies, b), 2 * copy + b) and torch.equal(lies, copy)
        assert straight(kernel, lies, b, out=lies) is lies and same(lies.clone(), 2 * copy + b)
    memory = tensor(5, 6)
    wanted = 2 * memory[:4] + b
    assert same(kernel(memory[:4], b, out=memory[1:]).clone(), wanted)  # it overlaps its own argument


def test_an_out_that_meets_an_input_is_as_if_it_did_not() -> None:
    product, a, b = pk.op(MATMUL), tensor(5, 5), tensor(5, 5, salt=1)
    kernel = warm(product, a, b, out=torch.zeros(5, 5))
    wanted = a @ b
    assert kernel(a.clone(), b, out=b) is b and torch.equal(b, wanted)
    memory = tensor(7, 5)
    for shift in range(3):
        held = memory.clone()
        found = kernel(held[1:6], a, out=held[shift : shift + 5])
        assert torch.equal(found, memory[1:6] @ a)
    pair = pk.op("S[i] = X[i] + 1; T[i] = X[i] * 2")
    held = torch.zeros(8)
    two = warm(pair, tensor(5), out=(torch.zeros(5), torch.zeros(5)))
    with pytest.raises(pk.ArgumentError, match="overlap"):
        two(tensor(5), out=(held[:5], held[3:]))


def test_what_is_refused_is_refused_as_before() -> None:
    product, a = pk.op(MATMUL), tensor(4, 4)
    kernel, slow = warm(product, a, a, out=torch.zeros(4, 4)), product.compile(a, a).func
    for _ in range(4):
        kernel(a, a)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        others = {
            "type": a.double(),
            "rank": tensor(4, 4, 1),
            "shape": tensor(4, 5),
            "meta": torch.empty(4, 4, device="meta"),
            "sparse": a.to_sparse(),
            "rows": a.to_sparse_csr(),
            "quantized": torch.quantize_per_tensor(a, 0.5, 0, torch.qint8),
            "nested": torch.nested.nested_tensor([a, a]),
            "numpy": a.numpy(),
            "gradient": a.clone().requires_grad_(),
            "list": [[1.0]],
            "none": None,
            "text": "text",
        }
        freed = tensor(4, 4).clone()
        freed.untyped_storage().resize_(0)
        others["freed"] = freed
        for name, other in others.items():
            wanted = outcome(slow, a, other)
            assert isinstance(wanted, tuple) and issubclass(wanted[0], pk.PolykerError), name
            assert outcome(kernel, a, other) == wanted and outcome(kernel, B=other, A=a) == wanted
            wanted = outcome(slow, a, a, out=other)
            if other is not None:
                assert isinstance(wanted, tuple) and issubclass(wanted[0], pk.PolykerError), name
                assert outcome(kernel, a, a, out=other) == wanted
    assert same(straight(kernel, a, a), a @ a)


def test_gradients_are_refused_where_they_are_recorded() -> None:
    a = tensor(4, 4)
    for value in (a.clone().requires_grad_(), torch.nn.Parameter(a.clone())):
        kernel, out = warm(pk.op(MATMUL), a, a), torch.zeros(4, 4)
        for _ in range(4):
            kernel(a, a, out=out)
        for _ in range(3):
            with pytest.raises(pk.ArgumentError, match="requires grad") as caught:
                kernel(value, a)
            assert caught.value.code == "PK708"
            with pytest.raises(pk.ArgumentError, match="requires grad"):
                kernel(a, a, out=value)
            for off in (torch.no_grad, torch.inference_mode):
                with off():
                    assert torch.equal(kernel(value, a), a @ a)
                    assert torch.equal(straight(kernel, value, a), a @ a)
                    assert not straight(kernel, value, a).requires_grad
            with torch.no_grad():
                held = value.clone()
                assert kernel(a, a, out=value) is value and torch.equal(value, a @ a)
                assert straight(kernel, a, a, out=value) is value
                value.copy_(held)
    operator, weight = pk.op(MATMUL), torch.nn.Parameter(a)
    with pytest.raises(pk.ArgumentError, match="requires grad"):
        operator(a, weight)
    with torch.no_grad():
        for _ in range(6):
            assert same(operator(a, weight), a @ a)
        # Of a type that NumPy has not, and first.
        half = torch.nn.Parameter(tensor(3, 3, dtype=torch.bfloat16))
        for _ in range(6):
            assert same(rows(half), half + half)


def test_lazy_signs_and_conjugates_are_right_after_plain_tensors() -> None:
    x = torch.complex(tensor(4, 6), tensor(4, 6, salt=3))
    lazy = {
        "imaginary": x.conj().imag,
        "dense": x.conj().imag.as_strided((4, 6), (6, 1)),
        "negative": torch._neg_view(tensor(4, 6)),
        "integers": torch._neg_view(tensor(4, 6, dtype=torch.int64)),
        "conjugate": x.conj(),
        "transposed": x.conj().T,
        "negative conjugate": torch._neg_view(x.conj()),
        "detached": x.conj().imag.detach(),
    }
    for value in lazy.values():
        plain = torch.zeros(48, dtype=value.dtype).as_strided(value.shape, value.stride())
        kernel, want = warm(rows, plain), value.resolve_conj().resolve_neg()
        assert straight(kernel, plain) is not None
        for _ in range(3):
            assert torch.equal(kernel(value), want + want)
            with pytest.raises(pk.ArgumentError, match="is lazy"):
                kernel(plain, out=value)
            parameter = torch.nn.Parameter(value, requires_grad=False)
            assert torch.equal(kernel(parameter), want + want)


def test_integers_of_fewer_bits_are_not_read_as_bytes() -> None:
    for signed, byte in (("int4", torch.int8), ("uint4", torch.uint8), ("uint1", torch.uint8)):
        plain = tensor(2, 2, dtype=byte)
        kernel = warm(rows, plain)
        assert straight(kernel, plain) is not None
        if hasattr(torch, signed):
            with pytest.raises(pk.DTypeError, match="`x`"):
                kernel(plain.view(getattr(torch, signed)))


def test_views_and_data_that_change_behind_a_tensor_are_seen() -> None:
    x = tensor(3, 3)
    kernel = warm(rows, x)
    held = tensor(3, 3)
    held.data = torch._neg_view(tensor(3, 3, salt=1))
    assert torch.equal(kernel(held), -2 * tensor(3, 3, salt=1))
    held.data = tensor(3, 3, salt=2)
    assert same(straight(kernel, held), 2 * tensor(3, 3, salt=2))
    held.resize_(3, 2)
    assert isinstance(outcome(kernel, held), tuple)
    x.t_()
    assert same(kernel(x), x + x)


def test_what_runs_under_modes_and_transformations_is_right() -> None:
    x = tensor(3, 3)
    kernel = warm(rows, x)

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    with Counting(), torch.device("cpu"):
        assert same(kernel(x), x + x)
    with torch.device("meta"):
        assert same(kernel(x), x + x)
    found = torch.func.vmap(lambda v: v + kernel(x)[0])(torch.zeros(2, 3))
    assert torch.equal(found, (x + x)[0].expand(2, 3))
    assert torch.equal(torch.func.grad(lambda v: (v * kernel(x)).sum())(x), x + x)
    compiled = torch.compile(lambda v: kernel(v + 1), backend="eager")
    assert torch.equal(compiled(x), 2 * (x + 1))


def test_large_results_take_the_way_through_python() -> None:
    x = torch.ones(1024, 300)
    kernel = warm(rows, x)
    assert same(kernel(x), x + x)
    out = torch.zeros(1024, 300)
    for _ in range(4):
        kernel(x, out=out)
    assert same(straight(kernel, x, out=out), x + x)


@settings(max_examples=16, deadline=None)
@given(st.data())
def test_random_shapes_and_strides(data: st.DataObject) -> None:
    m, k, n = (data.draw(st.integers(0, 6)) for _ in range(3))

    def drawn(shape: tuple[int, int], salt: int) -> Any:
        step, offset, turned = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2)), data.draw(st.booleans())
        a, b = shape[::-1] if turned else shape
        held = tensor(a + offset, (b + offset) * step, salt=salt)[offset:, offset * step :: step]
        return held.T if turned else held

    args = drawn((m, k), 0), drawn((k, n), 3)
    given_out = data.draw(st.booleans())
    for _ in range(6):
        out = torch.full((m, n), -9.0).T.contiguous().T if given_out else None
        found = product(*args, out=out)
        assert torch.equal(found, args[0] @ args[1]) and (out is None or found is out)


product = pk.op(MATMUL)


def test_nothing_is_kept_over_many_calls() -> None:
    a, b, out = tensor(4, 4), tensor(4, 4, salt=1), torch.zeros(4, 4)
    kernel = warm(pk.op(MATMUL), a, b)
    pair, outs = warm(pk.op("S[i,j] = X[i,j] + 1; T[i,j] = X[i,j] * 2"), a), (torch.zeros(4, 4), torch.zeros(4, 4))
    guarded = warm(pk.op("y[i] = x[n[i]]"), a[0], torch.tensor([0, 1]))
    for _ in range(4):
        kernel(a, b, out=out)
        pair(a, out=outs)
    bad = torch.tensor([0, 9])

    def calls(count: int) -> None:
        for _ in range(count):
            kernel(a, b)
            kernel(a, b, out=out)
            pair(a)
            pair(a, out=outs)

    def refused(count: int) -> None:
        for _ in range(count):
            for call in (guarded, kernel):
                with pytest.raises(pk.PolykerError):
                    call(a[0] if call is guarded else a, bad)

    watched = [
        a,
        b,
        out,
        *outs,
        kernel,
        torch.Tensor,
        None,
        False,
        torch.float32,
        torch.autograd.graph.increment_version,
    ]
    process = psutil.Process()
    refused(300)
    calls(1000)
    gc.collect()
    before, blocks, memory = [*map(sys.getrefcount, watched)], sys.getallocatedblocks(), process.memory_info().rss
    calls(25_000)
    gc.collect()
    assert all(abs(x - y) <= 20 for x, y in zip(before, map(sys.getrefcount, watched), strict=True))
    assert sys.getallocatedblocks() - blocks < 200 and process.memory_info().rss - memory < 8 << 20
    refused(300)
    gc.collect()
    assert all(abs(x - y) <= 20 for x, y in zip(before, map(sys.getrefcount, watched), strict=True))
    assert sys.getallocatedblocks() - blocks < 300
    result = kernel(a, b)
    assert sys.getrefcount(result) == 2


def test_results_outlive_their_kernel_and_are_freed_anywhere() -> None:
    a = tensor(3, 3)
    kernel = warm(pk.op("y[i,j] = x[i,j] * 3"), a)
    kept = [straight(kernel, a) for _ in range(100)]
    views = [v[1:].T for v in kept]
    del kernel
    gc.collect()
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert all(torch.equal(v, (3 * a)[1:].T) for v in views)


def test_threads_call_at_once() -> None:
    kernel = warm(pk.op("y[i,j] = x[i,j] * 2 + z[i,j]"), tensor(8, 8), tensor(8, 8))
    failures: list[str] = []

    def work(number: int) -> None:
        x, z = tensor(8, 8, salt=number), tensor(8, 8, salt=number + 1)
        if number % 3 == 1:
            x = x.T  # rows come and go meanwhile
        out, want = torch.zeros(8, 8), x * 2 + z
        for k in range(1500):
            found = kernel(x, z) if k % 2 else kernel(x, z, out=out)
            if not torch.equal(found, want):
                failures.append(f"thread {number}, call {k}")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures


def test_an_older_torch_takes_the_way_through_python(monkeypatch: pytest.MonkeyPatch) -> None:
    class Older(torch.nn.Parameter.__base__):  # type: ignore[misc,name-defined]
        pass

    assert exchange_class(Older) is None
    monkeypatch.setattr(classes, "_found", {torch.Tensor: None})
    x = tensor(4, 4)
    kernel = warm(rows, x)
    assert same(kernel(x), x + x) and same(kernel(x, out=torch.zeros(4, 4)), x + x)
    with pytest.raises(AssertionError, match="through Python"):
        straight(kernel, x)


COLD = """
import numpy as np
import polyker as pk
x = np.arange(12, dtype=np.float32).reshape(3, 4)
kernel = pk.op("y[i,j] = x[i,j] + x[i,j]").compile(x)
for out in (None, x.copy()):
    for _ in range(4):
        kernel(x, out=out)
"""
WARM = """
import sys
import polyker as pk
assert "torch" not in sys.modules and "polyker.runtime.exchange.classes" not in sys.modules
import torch
before = set(sys.modules)
x = torch.arange(12.).reshape(3, 4)
kernel = pk.op("y[i,j] = x[i,j] + x[i,j]").compile(x)
for _ in range(4):
    kernel(x)
(row,) = [r for r in kernel.func.__self__[1].rows if r.codes]
assert torch.equal(kernel(x), x + x) and torch.equal(kernel(x, out=torch.zeros(3, 4)), x + x)
assert not {"islpy", "lark", "polyker.pipeline"} & set(sys.modules) - before
"""


def test_a_kernel_from_the_disk_cache_is_called_the_same_way(tmp_path: Any) -> None:
    environment = os.environ | {"POLYKER_CACHE": "rw", "POLYKER_CACHE_DIR": str(tmp_path)}
    for program in (COLD, WARM):
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
