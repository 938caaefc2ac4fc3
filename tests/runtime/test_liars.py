"""Objects that lie or raise: every call with one is refused by an error of the catalogue that names the argument."""

from __future__ import annotations

import random
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.errors import PolykerError
from polyker.runtime.cuda.arrays import device_operand, lies_on_device
from polyker.runtime.cuda.repeat import glance
from polyker.runtime.cuda.streams import stream_handle
from tests.runtime import liars
from tests.runtime.liars import VALUES, true
from tests.runtime.random_liars import random_liar

TEXT = "y[i] = x[i] + x[i]"
double = pk.op(TEXT)
kernel = double.compile(pk.f32[4])
pair = pk.op("z[i] = x[i] + y[i]")


def refused(call: Callable[[], Any]) -> str:
    """Return what is wrong with how a call is refused, nothing where an error of the catalogue names `x` or `out`."""
    try:
        found = call()
    except PolykerError as error:
        text = str(error)
        named = error.code == "PK742" or any(n in text for n in ("`x`", "`out`", "operand 0", "einsum", "the result"))
        return "" if named else f"names nothing: {text}"
    except BaseException as error:
        return "".join(traceback.format_exception(error)[-3:])
    return f"gave {found!r:.60}"


def failing(named: Iterator[tuple[str, Any]], calls: Callable[[Any], Iterator[Callable[[], Any]]]) -> list[str]:
    """Return what is wrong with calls with each of the objects, three times each."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in named:
            for k, call in enumerate([*calls(value)] * 3):
                if wrong := refused(call):
                    found.append(f"{name}, call {k}: {wrong}")
                    break
    return found


def as_input(value: Any) -> Iterator[Callable[[], Any]]:
    for call in (double, kernel):
        yield lambda call=call: call(value)
        yield lambda call=call: call(x=value)
        yield lambda call=call: call(value, out=true())
    yield lambda: pair(value, true())
    yield lambda: pair(y=true(), x=value)
    if not (type(value) is np.ndarray and value.dtype.kind in "mM"):  # which einsum rearranges, as numpy does
        yield lambda: pk.einsum("i->i", value)
    yield lambda: double.check(value)
    if not lies_on_device(value):  # else its word is all that a type needs
        yield lambda: double.infer(value)
        yield lambda: double.compile(value)


def as_out(value: Any) -> Iterator[Callable[[], Any]]:
    for call in (double, kernel):
        yield lambda call=call: call(true(), out=value)
        yield lambda call=call: call(x=true(), out=value)
        yield lambda call=call: call(true(), out={"y": value})
        yield lambda call=call: call(true(), out=(value,))
    yield lambda: pk.einsum("i->i", true(), out=value)


@pytest.fixture(autouse=True)
def quick_ways() -> None:
    """Let calls with arrays be known to the quick ways before one with a liar comes."""
    for call in (double, kernel):
        for _ in range(4):
            call(true())
            call(true(), out=true())


def test_what_lies_is_no_input() -> None:
    assert failing(liars.liars(), as_input) == []


def test_the_type_of_what_says_that_it_lies_on_a_device_is_its_word_or_an_error_of_the_catalogue() -> None:
    for _, value in liars.liars():
        for ask in (double.infer, double.compile) if lies_on_device(value) else ():
            with suppress(PolykerError):
                ask(value)


def test_what_lies_is_no_out() -> None:
    assert failing(liars.liars(), as_out) == []


def test_what_is_not_its_own_memory_is_no_out() -> None:
    for call in (double, kernel):
        for name, value in liars.readable():
            np.testing.assert_array_equal(call(value), 2 * true(), err_msg=name)
    assert failing(liars.readable(), as_out) == []


def test_what_was_raised_is_the_cause() -> None:
    for attribute in (
        "__dlpack__",
        "__array_interface__",
        "__array__",
        "__cuda_array_interface__",
        "__dlpack_device__",
    ):
        error = RuntimeError("why")
        members = {attribute: property(liars.raising(lambda error=error: error))}
        if attribute == "__dlpack_device__":
            members["__dlpack__"] = liars.giving(None)
        for call in (double, kernel):
            with pytest.raises(pk.ArgumentError, match="RuntimeError: why") as caught:
                call(liars.thing(**members))
            assert caught.value.__cause__ is error


def test_what_is_to_stop_a_program_is_not_caught() -> None:
    for name, value in liars.interrupting():
        for call in (double, kernel):
            with pytest.raises((KeyboardInterrupt, SystemExit, GeneratorExit)):
                call(value)
                pytest.fail(name)


def test_arrays_after_liars_are_taken_as_before() -> None:
    for _, value in liars.liars():
        refused(lambda value=value: kernel(value))
    for call in (double, kernel):
        for _ in range(3):
            out = true()
            assert call(true(), out=out) is out
            np.testing.assert_array_equal(out, 2 * np.array(VALUES))


def test_on_a_device_liars_are_refused_by_name_too() -> None:
    wrong = []
    for name, value in (*liars.liars(), *liars.readable()):
        try:
            lies_on_device(value), glance(value)
            device_operand(value, "x")
        except PolykerError as error:
            if "`x`" not in str(error):
                wrong.append((name, str(error)))
        except Exception as error:
            wrong.append((name, repr(error)))
    assert wrong == []


def test_a_library_that_makes_no_array_of_the_result_is_named() -> None:
    def given(**members: Any) -> Any:
        return liars.thing(__dlpack__=liars.giving(lambda: true().__dlpack__()), **members)

    for namespace in (
        liars.raising(lambda: RuntimeError("why")),
        property(liars.raising(lambda: RuntimeError("why"))),
        liars.giving(None),
        7,
        liars.giving(lambda: liars.thing(from_dlpack=liars.raising(lambda: KeyError("why")))),
    ):
        value = given(__array_namespace__=namespace)
        for call in (double, kernel):
            with pytest.raises(pk.ArgumentError, match=r"cannot become an array of tests.*Liar"):
                call(value)
            with pytest.raises(pk.ArgumentError, match="numpy"):
                call(value, out=true())
    assert type(double(given())) is np.ndarray


def test_sizes_that_lie_are_refused() -> None:
    filled = pk.op("y[i] = x for i in 0:N")
    for name, value in liars.liars():
        if name != "an int that raises":  # which `operator.index` makes a plain one of
            with pytest.raises(PolykerError, match="`N`"):
                filled(1.0, N=value)


def test_subclasses_belong_to_the_library_of_their_base() -> None:
    Base = type("Base", (), {"__module__": "one.part", "__dlpack__": lambda self, **k: true().__dlpack__()})
    Mine = type("Mine", (Base,), {"__module__": "another"})
    np.testing.assert_array_equal(pair(Base(), Mine()), 2 * true())
    with pytest.raises(pk.ArgumentError, match="`x` is a one array and `y` a numpy array"):
        pair(Mine(), true())


class Lying(np.ndarray):
    """A subclass whose own attributes say what is not so."""

    dtype, shape, strides, ndim, flags = "float99", (9,), None, -1, None  # type: ignore[assignment]
    __array_interface__ = __dlpack__ = __array__ = property(liars.raising(lambda: RuntimeError("why")))  # type: ignore[assignment]


def test_subclasses_of_numpy_s_arrays_are_their_memory_whatever_they_say() -> None:
    for call in (double, kernel, lambda x, **k: pk.einsum("i->i", x, **k) * (1 if "out" in k else 2)):
        for _ in range(3):
            np.testing.assert_array_equal(call(true().view(Lying)), 2 * true())
    for call in (double, kernel):
        for _ in range(3):
            out = true()
            call(true(), out=out.view(Lying))
            np.testing.assert_array_equal(out, 2 * true())


def test_a_proxy_of_an_array_is_that_array() -> None:
    x, out = true(), np.zeros(4, np.float32)
    for call in (double, kernel):
        for _ in range(3):
            np.testing.assert_array_equal(call(weakref.proxy(x)), 2 * x)
            proxy = weakref.proxy(out)
            assert call(x, out=proxy) is proxy
            np.testing.assert_array_equal(out, 2 * x)
            out[:] = 0


def test_streams_that_lie_are_refused() -> None:
    found = [v for n, v in liars.liars() if n != "an int that raises"]
    found += [
        liars.thing(__cuda_stream__=m) for m in (7, liars.giving(None), liars.giving((0,)), liars.raising(KeyError))
    ]
    found += [
        liars.thing(ptr=property(liars.raising(RuntimeError))),
        liars.thing(handle="words"),
        liars.thing(cuda_stream=-1),
    ]
    for value in found:
        with pytest.raises(pk.ArgumentError, match="`stream`"):
            stream_handle(value)


def test_tensors_of_torch_that_are_no_arrays_are_refused() -> None:
    torch = pytest.importorskip("torch", reason="torch is an extra, and not installed")
    assert failing(liars.of_torch(torch), as_input) == []
    assert failing(liars.of_torch(torch), lambda v: as_torch_out(torch, v)) == []


def as_torch_out(torch: Any, value: Any) -> Iterator[Callable[[], Any]]:
    x = torch.arange(4.0)
    for call in (double, kernel):
        yield lambda call=call: call(x, out=value)
        yield lambda call=call: call(x=x, out=(value,))
    yield lambda: pk.einsum("i->i", x, out=value)


def test_tensors_whose_memory_holds_other_values_are_inputs_and_no_out() -> None:
    torch = pytest.importorskip("torch", reason="torch is an extra, and not installed")
    for name, value in liars.torch_readable(torch):
        for call in (double, kernel):
            for _ in range(3):
                found = call(value)
                assert type(found) is torch.Tensor and torch.equal(found, 2 * torch.arange(4.0)), name
    assert failing(liars.torch_readable(torch), lambda v: as_torch_out(torch, v)) == []


def test_arrays_of_jax_that_are_gone_are_refused_and_none_is_written() -> None:
    jax = pytest.importorskip("jax", reason="jax is an extra, and not installed")
    x = jax.numpy.arange(4, dtype="float32")
    assert failing(liars.of_jax(jax), as_input) == []
    named = [*liars.of_jax(jax), ("an array", x)]
    assert failing(iter(named), as_out) == []
    assert failing(iter(named), lambda v: (lambda call=call: call(x, out=v) for call in (double, kernel))) == []
    for _ in range(3):
        found = double(x)
        assert isinstance(found, jax.Array) and (found == 2 * x).all()


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "int8", "int32", "uint8", "uint32", "bool", "complex64"]
)
def test_arrays_of_jax_keep_their_type(dtype: str) -> None:
    jax = pytest.importorskip("jax", reason="jax is an extra, and not installed")
    copied, total = pk.op("y[i] = x[i]"), pk.op("y = x")
    for x in (jax.numpy.arange(5).astype(dtype), jax.numpy.zeros(0, dtype), jax.numpy.arange(5).astype(dtype)[::-2]):
        for call in (copied, copied.compile(x)):
            for _ in range(3):
                found = call(x)
                assert isinstance(found, jax.Array) and found.dtype == x.dtype and (found == x).all()
    one = jax.numpy.ones((), dtype)
    assert isinstance(total(one), jax.Array) and total(one) == one


@pytest.mark.parametrize("transform", ["jit", "vmap", "grad", "eval_shape"])
def test_tracers_of_jax_are_refused(transform: str) -> None:
    jax = pytest.importorskip("jax", reason="jax is an extra, and not installed")
    x = jax.numpy.ones((3, 4), "float32")

    def traced(call: Any) -> Any:
        match transform:
            case "jit":
                return jax.jit(lambda v: call(v))(x[0])
            case "vmap":
                return jax.vmap(lambda v: call(v))(x)
            case "grad":
                return jax.grad(lambda v: call(v).sum())(x[0])
            case _:
                return jax.eval_shape(lambda v: call(v), x[0])

    for call in (double, kernel, lambda v: double(true(), out=v), lambda v: pk.einsum("i->i", v)):
        with pytest.raises(pk.ArgumentError, match=r"`x`|`out`|operand 0"):
            traced(call)


@pytest.mark.parametrize("first", range(0, 600, 200))
def test_random_objects_are_read_and_written_rightly_or_refused(first: int) -> None:
    for seed in range(first, first + 200):
        rng = random.Random(seed)
        value, array = random_liar(rng)
        call = rng.choice((double, kernel))
        for k in range(3):
            try:
                found = call(value)
            except PolykerError:
                pass
            else:
                np.testing.assert_array_equal(np.asarray(found), 2 * true(), err_msg=f"seed {seed}")
            np.testing.assert_array_equal(array, true(), err_msg=f"seed {seed}")
            source = true() + k
            try:
                assert call(source, out=value) is value
            except PolykerError:
                np.testing.assert_array_equal(array, true(), err_msg=f"seed {seed}")
            else:
                np.testing.assert_array_equal(array, 2 * source, err_msg=f"seed {seed}")
                array[:] = true()
