"""Arrays of other libraries, numbers and lists as operands, and what is refused."""

from __future__ import annotations

import warnings
from array import array
from typing import Any, ClassVar

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ArgumentError, BackendUnavailable, DTypeError, ShapeError
from polyker.ir.dtypes import DTYPES
from polyker.reference import interpret
from polyker.runtime.arrays import operand
from polyker.runtime.cuda import driver as cuda_driver
from tests.runtime.support import coded

double = pk.op("y[i] = x[i] + x[i]")
add = pk.op("z[i] = x[i] + y[i]")


class Foreign:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self._array, self._device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    @staticmethod
    def __array_namespace__() -> Any:
        return Foreign

    @staticmethod
    def from_dlpack(array: np.ndarray) -> Foreign:
        return Foreign(array)


class Described:
    """An array that only has __array_interface__."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


class OnDevice:
    __cuda_array_interface__: ClassVar = {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3}


def test_a_dlpack_array_is_read_without_a_copy_and_its_kind_comes_back() -> None:
    x = np.arange(10.0)[::-2]
    assert np.shares_memory(operand(Foreign(x), "x").array, x)
    result = double(Foreign(x))
    assert isinstance(result, Foreign)
    np.testing.assert_array_equal(result._array, x + x)


def test_a_dlpack_array_can_be_out() -> None:
    x, block = np.arange(5.0), np.full(11, 99.0)
    out = Foreign(block[1::2])
    assert double(Foreign(x), out=out) is out
    np.testing.assert_array_equal(block[1::2], x + x)
    np.testing.assert_array_equal(block[::2], 99)


def test_a_read_only_dlpack_array_is_no_out() -> None:
    block = np.zeros(5)
    block.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        double(Foreign(np.arange(5.0)), out=Foreign(block))


def test_array_interface_and_array_method_are_read() -> None:
    x = np.arange(6.0)[::2]
    np.testing.assert_array_equal(double(Described(x)), x + x)

    class Holder:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return x

    np.testing.assert_array_equal(double(Holder()), x + x)
    with pytest.raises(ArgumentError):
        double(x, out=Holder())


def test_buffers_are_read_without_a_copy() -> None:
    x, block = array("d", [1, 2, 3]), np.arange(12, dtype=np.int32).reshape(3, 4)
    assert np.shares_memory(operand(x, "x").array, np.asarray(x))
    np.testing.assert_array_equal(double(x), [2, 4, 6])
    kernel = pk.op("y[i,j] = x[i,j] + x[i,j]").compile(pk.i32[3, 2], threads=1)
    np.testing.assert_array_equal(kernel(memoryview(block[:, ::2])), 2 * block[:, ::2])
    gone = memoryview(b"12")
    gone.release()
    for value in (b"12", bytearray(2), gone, object(), {1, 2}):
        with pytest.raises(ArgumentError, match="not an array"):
            double(value)
    with pytest.raises(DTypeError, match="element type"):
        double(memoryview(b"12").cast("c"))


def test_mixed_kinds_are_refused_with_both_names() -> None:
    x = np.arange(3.0)
    with pytest.raises(ArgumentError, match="`x` is a tests array and `y` a numpy array"):
        add(Foreign(x), x)
    with pytest.raises(ArgumentError, match="`x` is a numpy array and `out` a tests array"):
        double(x, out=Foreign(np.zeros(3)))
    assert isinstance(pk.op("z[i] = a * x[i]")(2.0, Foreign(x)), Foreign)


CUDA_ARRAYS = [OnDevice(), Foreign(np.zeros(3), (2, 0))]


@pytest.mark.parametrize("value", [*CUDA_ARRAYS, Foreign(np.zeros(3), (10, 0))])
def test_arrays_of_a_device_are_refused_by_kernels_of_the_cpu(value: object) -> None:
    kernel = pk.op("y[i] = x[i] + x[i]").compile(pk.f64[3])
    with pytest.raises(ArgumentError, match="device"):
        kernel(value)
    with pytest.raises(ArgumentError, match=r"device|kind"):
        kernel(np.zeros(3), out=value)


@pytest.mark.parametrize("value", CUDA_ARRAYS)
def test_arrays_of_a_cuda_device_ask_for_its_driver(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "found_driver", lambda: (None, "libcuda: not there"))
    with pytest.raises(BackendUnavailable, match="libcuda: not there"):
        double(value)


def test_nested_lists_are_arrays_and_ragged_ones_an_error() -> None:
    np.testing.assert_array_equal(double([1, 2, 3]), [2, 4, 6])
    with pytest.raises(ArgumentError, match="cannot be read as an array"):
        double([[1, 2], [3]])
    with pytest.raises(ArgumentError, match=r"no|not an array"):
        double([1, 2, 3], out=[0, 0, 0])


@pytest.mark.parametrize("value", [None, "text", b"text", {}, {1}, object(), lambda: 0, (i for i in range(3)), type])
def test_what_is_no_array_is_refused_by_name(value: object) -> None:
    with pytest.raises((ArgumentError, DTypeError), match="`x`"):
        double(value)


@pytest.mark.parametrize(
    "dtype", [object, "U4", "S4", np.longdouble, np.clongdouble, "M8[s]", "m8[s]", [("a", "f4")], "V4"]
)
def test_element_types_that_polyker_has_not_are_refused_with_those_it_has(dtype: Any) -> None:
    with pytest.raises(DTypeError, match="accepted are f16 bf16 f32"):
        double(np.zeros(3, dtype))


def test_masked_arrays_are_refused_because_the_mask_would_be_lost() -> None:
    with pytest.raises(ArgumentError, match="masked"):
        double(np.ma.array([1.0, 2.0], mask=[True, False]))


def test_subclasses_and_memory_maps_are_read_as_plain_arrays(tmp_path: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matrix = np.matrix(coded((3, 3), np.float64))
    result = pk.op("C[i,j] = 2 * A[i,j]")(matrix)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, 2 * np.asarray(matrix))
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4,))
    mapped[...] = [1, 2, 3, 4]
    np.testing.assert_array_equal(double(mapped), [2, 4, 6, 8])
    double(np.arange(4, dtype=np.float32), out=mapped)
    np.testing.assert_array_equal(mapped, [0, 2, 4, 6])


@pytest.mark.parametrize("name", DTYPES)
def test_each_element_type_goes_in_and_comes_out(name: str) -> None:
    dtype = DTYPES[name].numpy
    x = coded((17,), np.int64 if name == "bf16" else dtype).astype(dtype)
    result = pk.op("y[i] = x[i]")(x)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, x)


def test_numbers_take_the_type_of_the_arrays_and_have_to_fit_64_bits() -> None:
    scaled = pk.op("y[i] = a * x[i]")
    assert scaled(3, np.arange(3, dtype=np.uint8)).dtype == np.uint8
    np.testing.assert_array_equal(scaled(255, np.arange(3, dtype=np.uint8)), [0, 255, 254])  # products wrap
    with pytest.raises(DTypeError, match="does not fit"):
        scaled(1 << 70, np.arange(3))
    with pytest.raises(DTypeError, match="an integer of 33220 bits"):
        scaled(10**10000, np.arange(3))
    assert scaled(1j, np.arange(3, dtype=np.float32)).dtype == np.complex64


@pytest.mark.parametrize(
    ("text", "function", "sign"),
    [
        ("y[i] = a * x[i]", np.multiply, 1),
        ("y[i] = x[i] - a", np.subtract, 1),
        ("y[i] = -a * x[i]", np.multiply, -1),
        ("y[i] max= minimum(x[i], a)", np.minimum, 1),
    ],
)
@pytest.mark.parametrize(("dtype", "low", "high"), [("i1", -128, 127), ("u2", 0, 65535), ("i4", -(2**31), 2**31 - 1)])
def test_a_python_integer_has_to_fit_the_type_that_it_meets_as_numpy_s(
    text: str, function: Any, sign: int, dtype: str, low: int, high: int
) -> None:
    x, operator = np.arange(5).astype(dtype), pk.op(text)
    for call in (operator, operator.compile(a=0, x=x)):
        for value in (low, high) * 3:
            np.testing.assert_array_equal(call(a=sign * value, x=x), function(x, np.array(value, dtype)))
        for value in (low - 1, high + 1, low - 300, high + 300):
            with pytest.raises(DTypeError, match=f"`a` = {sign * value} meets"):
                call(a=sign * value, x=x)
            with pytest.raises(DTypeError, match="does not fit"):
                interpret(operator.program, {"a": sign * value, "x": x})


def test_an_array_given_for_a_python_integer_is_looked_at_too() -> None:
    kernel = pk.op("y[i] = a * x[i]").compile(2, np.ones(3, np.int8))
    for _ in range(5):
        np.testing.assert_array_equal(kernel(np.array(7), np.ones(3, np.int8)), [7, 7, 7])
    with pytest.raises(DTypeError, match="`a` = 300 meets"):
        kernel(np.array(300), np.ones(3, np.int8))


def test_python_integers_beyond_int64_are_weak_too() -> None:
    scaled = pk.op("y[i] = a * x[i]")
    np.testing.assert_array_equal(scaled(2**63, np.arange(2, dtype=np.uint64)), [0, 2**63])
    assert scaled(2**63, np.ones(2, np.float32)).dtype == np.float32
    assert pk.op("y[i] = x[i] < a")(a=2**63, x=np.ones(2, np.int8)).all()
    with pytest.raises(DTypeError, match="meets"):
        scaled(2**63, np.arange(2))


def test_calls_on_torch_s_tensors_are_those_on_numpy_s_views() -> None:
    torch = pytest.importorskip("torch", reason="torch is an extra, and not installed")
    x, y = torch.arange(12.0).reshape(3, 4), torch.ones(4, 3).T
    both = pk.op("S[i] += X[i,j] * a; T[i,j] = X[i,j] + Y[i,j]")
    for call in (both, both.compile(X=x, Y=y, a=2.0)):
        for _ in range(4):
            found = call(X=x, Y=y, a=2.0)
        assert torch.equal(found.S, x.sum(1) * 2) and torch.equal(found.T, x + y)
        outs = torch.zeros(3), torch.zeros(3, 4)
        assert call(X=x, Y=y, a=2.0, out=outs).T is outs[1]
        assert torch.equal(outs[0], x.sum(1) * 2) and torch.equal(outs[1], x + y)
    total = pk.op("s += X[i,j]")
    assert torch.equal(total(x), torch.tensor(66.0)) and total(x).ndim == 0
    assert total(x, out=(zero := torch.zeros(()))) is zero and zero == 66
    # A tensor that is given as `out`, too, starts from itself, as an array does.
    grown = pk.op("f(A: f32[3,4], steps) -> A:\n    for t in 0:steps:\n        A[i,j] = 2 * A[i,j]")
    a = torch.ones(3, 4)
    assert torch.equal(grown(a, 3), 8 * torch.ones(3, 4)) and torch.equal(a, torch.ones(3, 4))
    assert grown(a, steps=2, out=a) is a and torch.equal(a, 4 * torch.ones(3, 4))
    with pytest.raises(pk.PolykerError, match="numpy"):
        both(X=x, Y=y.numpy(), a=2.0)
    with pytest.raises(pk.PolykerError, match="grad"):
        both(X=x, Y=y.clone().requires_grad_(), a=2.0)


def test_results_of_torch_are_torch_tensors() -> None:
    torch = pytest.importorskip("torch", reason="torch is an extra, and not installed")
    x = torch.arange(6.0)
    assert torch.equal(double(x), x + x)
    assert torch.equal(double(x.to(torch.bfloat16)), (x + x).to(torch.bfloat16))
    out = torch.zeros(6)
    assert double(x, out=out) is out
    assert torch.equal(out, x + x)
    with pytest.raises(ArgumentError, match="requires grad"):
        double(x.clone().requires_grad_())


class Tensor:
    """Stands in for a tensor that records gradients, of whatever library."""

    requires_grad = True


def test_a_tensor_that_requires_grad_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"`x` requires grad[\s\S]*x.detach\(\)"):
        double(Tensor())


def test_an_array_without_elements_may_have_a_null_pointer() -> None:
    np.testing.assert_array_equal(double(Foreign(np.zeros(0)))._array, np.zeros(0))


def test_strange_shapes_do_not_slip_through_as_zero_dimensional() -> None:
    with pytest.raises(ShapeError):
        double(np.zeros((2, 2)))
    with pytest.raises(ShapeError):
        double(1.0)
