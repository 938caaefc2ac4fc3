"""Tensors of torch of every class, element type and layout, as inputs and as `out`, on the first and on later calls."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import polyker as pk

torch = pytest.importorskip("torch", reason="torch is an extra, and not installed")

TYPES = [
    "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128",
]  # fmt: skip
copied = pk.op("y[i] = x[i]")
rows = pk.op("y[i,j] = x[i,j] + x[i,j]")


class Plain(torch.Tensor):  # type: ignore[name-defined,misc]
    pass


class Raising(torch.Tensor):  # type: ignore[name-defined,misc]
    """A subclass that answers for none of the functions and attributes of its base."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("not for this class")


class Lying(torch.Tensor):  # type: ignore[name-defined,misc]
    """A subclass whose own attributes say what is not so."""

    requires_grad, is_cuda, device, dtype, shape = True, True, "nowhere", "float99", (9,)

    def numpy(self) -> Any:  # type: ignore[override]
        return np.zeros(99)

    detach = resolve_conj = resolve_neg = is_conj = is_neg = view = numpy  # type: ignore[assignment]


def classes(x: Any) -> list[Any]:
    """Return a tensor as one of each class."""
    made = [x, x.as_subclass(Plain), x.as_subclass(Raising), x.as_subclass(Lying)]
    return [*made, torch.nn.Parameter(x, requires_grad=False), torch.nn.Buffer(x)]


def plain(x: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.detach(x)


def both(operator: Any, *args: Any) -> tuple[Any, Any]:
    """Return an operator and its kernel, after calls on these tensors that go to the emitted entry in the end."""
    calls = operator, operator.compile(*args)
    for call in calls:
        for _ in range(4):
            call(*args, out=call(*args))
    return calls


@pytest.mark.parametrize("dtype", TYPES)
def test_every_class_gives_plain_tensors_of_its_type(dtype: str) -> None:
    for x in (torch.arange(5).to(getattr(torch, dtype)), torch.zeros(0, dtype=getattr(torch, dtype))):
        for value in classes(x):
            for call in both(copied, x):
                for found in (call(value), call(x=value), call(value)):
                    assert type(found) is torch.Tensor and found.dtype == x.dtype and torch.equal(found, x)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_class_is_written_in_place(dtype: str) -> None:
    x = torch.arange(5).to(getattr(torch, dtype))
    for k in range(len(classes(x))):
        for call in both(copied, x):
            for _ in range(3):
                out = classes(torch.zeros_like(x))[k]
                assert call(x, out=out) is out and torch.equal(plain(out), x)
                out = classes(torch.zeros_like(x))[k]
                assert call(x=classes(x)[k], out=(out,)) is out and torch.equal(plain(out), x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "complex64"])
def test_layouts_are_read_and_written_where_they_lie(dtype: str) -> None:
    x = torch.arange(12).to(getattr(torch, dtype)).reshape(3, 4)
    for make in (
        lambda v: v.T,
        lambda v: v[::2, 1:],
        lambda v: v[:, :1].expand(3, 4),
        lambda v: v.as_strided((3, 3), (2, 1)),
    ):
        for view in (make(x), make(x.as_subclass(Plain))):
            for call in both(rows, plain(view)):
                for _ in range(3):
                    assert torch.equal(call(view), plain(view + view))
                    out = torch.zeros((8, 8), dtype=x.dtype)[1 : 1 + view.shape[0], ::2][:, : view.shape[1]]
                    assert call(view, out=out) is out and torch.equal(out, plain(view + view))
    total = pk.op("s += x[i,j]")
    for value in classes(x):
        assert torch.equal(total(value), x.sum()) and total(value).shape == ()
        zero = torch.zeros((), dtype=x.dtype).as_subclass(Plain)
        assert total(value, out=zero) is zero and torch.equal(plain(zero), x.sum())


def test_out_that_overlaps_itself_is_refused() -> None:
    x = torch.ones(3, 3)
    for out in (torch.zeros(3, 1).expand(3, 3), torch.zeros(9).as_strided((3, 3), (2, 1)), torch.zeros(1).expand(3, 3)):
        for value in (out, out.as_subclass(Plain)):
            for call in both(rows, x):
                for _ in range(3):
                    with pytest.raises(pk.ArgumentError, match="overlaps itself"):
                        call(x, out=value)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_lazy_conjugates_are_right_as_inputs_and_no_out(dtype: str) -> None:
    x = torch.complex(torch.arange(4.0), -torch.arange(4.0)).to(getattr(torch, dtype))
    part = x.real.dtype
    for value, want in (
        (x.conj(), x.conj_physical()),
        (x.conj().imag, -x.imag),
        (torch._neg_view(x), -x),
        (x.conj().real, x.real),
    ):
        for cast in (value, value.as_subclass(Plain), value.as_subclass(Raising)):
            for call in both(copied, want.clone()):
                for _ in range(3):
                    assert torch.equal(call(cast), want)
        if not (value.is_conj() or value.is_neg()):
            continue
        for cast in (value, value.as_subclass(Plain)):
            for call in both(copied, want.clone()):
                for _ in range(3):
                    with pytest.raises(pk.ArgumentError, match=r"`out` for `y`, a .*is lazy") as caught:
                        call(want.clone(), out=cast)
                    assert caught.value.code == "PK727"
    assert part in (torch.float32, torch.float64)


def test_tensors_of_inference_are_written_in_inference_mode_alone() -> None:
    x = torch.ones(3)
    with torch.inference_mode():
        out = torch.zeros(3)
    for call in both(copied, x):
        for _ in range(3):
            with pytest.raises(pk.ArgumentError, match="inference mode"):
                call(x, out=out)
            assert not out.any() and torch.equal(call(out), out)
            with torch.inference_mode():
                assert call(x, out=out) is out and out.all()
                out.zero_()


def test_tangents_are_not_lost() -> None:
    from torch.autograd import forward_ad

    x = torch.ones(3)
    for call in both(copied, x):
        for _ in range(3):
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x, x)
                for value in (dual, dual.as_subclass(Plain)):
                    with pytest.raises(pk.ArgumentError, match=r"`x`.*tangent"):
                        call(value)
                    with pytest.raises(pk.ArgumentError, match=r"`out` for `y`.*tangent"):
                        call(x, out=value)
                assert torch.equal(call(x), x)


@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp", "vjp", "functionalize", "jacrev"])
def test_tensors_within_transformations_are_refused(transform: str) -> None:
    x, batch = torch.arange(4.0), torch.ones(2, 4)
    func = torch.func

    def traced(call: Any) -> Any:
        match transform:
            case "vmap":
                return func.vmap(call)(batch)
            case "grad":
                return func.grad(lambda v: call(v).sum())(x)
            case "jvp":
                return func.jvp(call, (x,), (x,))
            case "vjp":
                return func.vjp(call, x)
            case "jacrev":
                return func.jacrev(call)(x)
            case _:
                return func.functionalize(call)(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in both(copied, x):
            for _ in range(3):
                with pytest.raises(pk.ArgumentError, match="`x`"):
                    traced(lambda v, call=call: call(v))
                with pytest.raises(pk.ArgumentError, match=r"`x`|`out`"):  # some wrap every tensor that is used within
                    traced(lambda v, call=call: call(x, out=v))


def test_a_mode_that_takes_no_true_tensor_is_an_error_of_polyker_s() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = torch.arange(4.0)
    for call in both(copied, x):
        with FakeTensorMode():
            for _ in range(3):
                for arguments in ({"x": x}, {"x": x, "out": torch.zeros(4)}):
                    with pytest.raises(pk.ArgumentError, match=r"`x`|`out`"):
                        call(**arguments)


def test_symbolic_traces_are_refused() -> None:
    import torch.fx

    for call in both(copied, torch.arange(4.0)):
        with pytest.raises(pk.ArgumentError, match="`x`"):
            torch.fx.symbolic_trace(lambda v: call(v))


def test_kinds_are_mixed_neither_with_subclasses() -> None:
    x = torch.ones(3)
    pair = pk.op("z[i] = x[i] + y[i]")
    for value in classes(x):
        assert type(pair(x, value)) is torch.Tensor and type(pair(value, x)) is torch.Tensor
        with pytest.raises(pk.ArgumentError, match="`x` is a torch array and `y` a numpy array"):
            pair(value, np.ones(3, np.float32))
        with pytest.raises(pk.ArgumentError, match="`x` is a torch array and `out` a numpy array"):
            copied(value, out=np.ones(3, np.float32))
        with pytest.raises(pk.ArgumentError, match="`x` is a numpy array and `out` a torch array"):
            copied(np.ones(3, np.float32), out=value)


def test_einsum_takes_every_class() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    for value in classes(x):
        assert torch.equal(pk.einsum("ij,kj->ik", value, x), x @ x.T)
        out = torch.zeros(2, 2).as_subclass(Plain)
        assert pk.einsum("ij,kj->ik", x, value, out=out) is out and torch.equal(plain(out), x @ x.T)
    with pytest.raises(pk.ArgumentError, match="lazy"):
        pk.einsum("ij->i", x, out=torch._neg_view(torch.zeros(2)))


def test_a_derivative_that_needs_what_an_out_held_is_refused() -> None:
    x = torch.ones(3)
    for call in (*both(copied, x), lambda x, out: pk.einsum("i->i", x, out=out)):
        for _ in range(5):
            weight, held = torch.ones(3, requires_grad=True), torch.full((3,), 2.0)
            product = weight * held
            call(x, out=held)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                product.sum().backward()
