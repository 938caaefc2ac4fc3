"""Arrays of other libraries, and objects that say they are arrays: a call takes them rightly or refuses them, and never crashes.

`out` is never left unwritten in silence: where a call takes it, what it holds afterwards, read as its library reads it, is the
result. Objects of the run time's own tests (`tests.runtime.liars`) are taken, too, where these are there.
"""

from __future__ import annotations

import array
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from itertools import islice
from random import Random
from typing import Any

import numpy as np

import polyker as pk
from tests.edge.operators import constant
from tests.edge.trial import Part, Trial

VALUES = np.array([0, 1, 2, 3], np.float32)
PER_CHILD = 60
Read = Callable[[], np.ndarray]
# A name, an object, and what reads the values that it has, None where it has none that are known.
Found = tuple[str, Any, Read | None]


class Stop(BaseException):
    """What an object raises that nobody may catch."""


def thing(members: dict[str, Any]) -> Any:
    """Return an object of a class with these members."""
    return type("Liar", (), members)()


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a function of any arguments that raises."""

    def function(*args: Any, **named: Any) -> Any:
        raise error

    return function


def giving(value: Any) -> Callable[..., Any]:
    """Return a function of any arguments that returns a value."""
    return lambda *args, **named: value


def errors(random: Random) -> Exception:
    """Return an error that code of a user's might raise."""
    return random.choice((
        RuntimeError("no"), TypeError("no"), ValueError("no"), AttributeError("no"), KeyError("no"), BufferError("no"),
        RecursionError("no"), MemoryError("no"), OSError(5, "no"), StopIteration(), NotImplementedError(), ZeroDivisionError(),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "no"), TimeoutError(), EOFError(),
    ))  # fmt: skip


def junk(random: Random) -> Any:
    """Return something that is no answer."""
    return random.choice((
        None, 0, -1, 1 << 80, 2.5, float("nan"), "", "words", b"bytes", (), [], {}, (1, 2, 3), ("a", "b"), object(), type,
        iter(()), {"shape": (4,)}, NotImplemented, ..., slice(3), len, np.float32, np.dtype("f4"), np.zeros(4, object),
    ))  # fmt: skip


def member(random: Random, truth: Any) -> Any:
    """Return a member of a class: the truth, junk, or something that raises, as an attribute, method or property."""
    match random.randrange(7):
        case 0:
            return property(raising(errors(random)))
        case 1:
            return raising(errors(random))
        case 2:
            return junk(random)
        case 3:
            return giving(junk(random))
        case _:
            return truth


def own(random: Random) -> Found:
    """Return an object over an array of its own that tells some of the truth, or none."""
    base = VALUES.copy()
    interface = {**base.__array_interface__}
    if random.random() < 0.5:  # not `data`: an address that is wrong is believed by NumPy, too
        interface[random.choice(("shape", "typestr", "strides", "version", "descr"))] = junk(random)
    truths: dict[str, Any] = {
        "__dlpack__": lambda self, **named: base.__dlpack__(**named),
        "__dlpack_device__": lambda self: base.__dlpack_device__(),
        "__array_interface__": interface,
        "__array__": lambda self, *args, **named: base,
        "__len__": lambda self: 4,
        "__getitem__": lambda self, k: base[k],
        "__iter__": lambda self: iter(base),
        "__float__": lambda self: 1.0,
        "__index__": lambda self: 1,
        "__bool__": lambda self: True,
        "__getattr__": lambda self, name: getattr(base, name),
        "__cuda_array_interface__": None,
        "__array_priority__": 1e9,
        "__array_ufunc__": None,
        "__array_function__": giving(NotImplemented),
        "__array_namespace__": lambda self: np,
        "__eq__": giving(True),
        "__hash__": giving(1),
        "__repr__": giving("Liar"),
        "__class__": property(lambda self: np.ndarray),
        "shape": (4,),
        "dtype": base.dtype,
        "strides": (4,),
        "ndim": 1,
    }
    chosen = random.sample(list(truths), random.randrange(1, 7))
    if random.random() < 0.8:
        chosen.append(random.choice(("__dlpack__", "__array_interface__", "__array__", "__len__", "__getattr__")))
    kept: dict[str, Any] = {"_base": base, "__module__": random.choice((__name__, "torch", "jaxlib", "cupy", "numpy"))}
    members = {name: member(random, truths[name]) for name in chosen}
    return "own " + ", ".join(sorted(members)), thing(kept | members), None


def strange(random: Random) -> Found:
    """Return an object of NumPy's or Python's that is nearly an array."""
    base = VALUES.copy()
    released = memoryview(bytearray(16)).cast("f")
    released.release()
    ring: list[Any] = []
    ring.append(ring)
    makers: dict[str, Callable[[], tuple[Any, Read | None]]] = {
        "masked": lambda: (np.ma.array(base, mask=[1, 0, 0, 1]), None),
        "matrix": lambda: (np.asmatrix(base), None),
        "objects": lambda: (base.astype(object), None),
        "structured": lambda: (np.zeros(4, "f4, i4"), None),
        "record field": lambda: (lambda r: (r["a"], lambda: r["a"].copy()))(_fields(base)),
        "text": lambda: (np.array(["a"] * 4), None),
        "dates": lambda: (np.zeros(4, "M8[s]"), None),
        "long double": lambda: (base.astype(np.longdouble), None),
        "array.array": lambda: (lambda a: (a, lambda: np.array(a, np.float32)))(array.array("f", base)),
        "memoryview": lambda: (memoryview(base), lambda: base.copy()),
        "frozen memoryview": lambda: (memoryview(base).toreadonly(), lambda: base.copy()),
        "released memoryview": lambda: (released, None),
        "bytearray": lambda: (bytearray(base.tobytes()), None),
        "bytes": lambda: (base.tobytes(), None),
        "range": lambda: (range(4), None),
        "generator": lambda: ((x for x in base), None),
        "ragged list": lambda: ([[1.0], [2.0, 3.0]], None),
        "list of itself": lambda: (ring, None),
        "memory map": lambda: (np.memmap("/dev/zero", np.float32, "c", shape=4), None),
        "type": lambda: (np.ndarray, None),
        "dtype": lambda: (np.dtype("f4"), None),
        "broadcast": lambda: (np.broadcast_to(np.float32(2), 4), None),
    }
    name = random.choice(list(makers))
    return name, *makers[name]()


def _fields(base: np.ndarray) -> np.ndarray:
    records = np.zeros(4, [("x", "u1"), ("a", "f4")])
    records["a"] = base
    return records


def of_torch(random: Random) -> Found:
    """Return a tensor of torch."""
    torch = sys.modules["torch"]
    x = torch.from_numpy(VALUES.copy())

    class Sub(torch.Tensor):  # type: ignore[misc,name-defined]
        pass

    def values(t: Any) -> Read:
        return lambda: np.array(t.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().tolist(), np.float32)

    def conjugate() -> Any:
        return torch.complex(torch.zeros(4), -x).conj()

    makers: dict[str, Callable[[], Any]] = {
        "plain": lambda: x,
        "lazy sign": lambda: torch._neg_view(-x),
        "imaginary part of a lazy conjugate": lambda: conjugate().imag,
        "real part of a lazy conjugate": lambda: torch.complex(x, x).conj().real,
        "subclass": lambda: x.as_subclass(Sub),
        "subclass with a lazy sign": lambda: torch._neg_view(-x).as_subclass(Sub),
        "requires grad": lambda: x.requires_grad_(),
        "parameter": lambda: torch.nn.Parameter(x),
        "expanded": lambda: torch.tensor([2.0]).expand(4),
        "stepped": lambda: torch.stack([x, x], 1)[:, 0],
        "inference": lambda: _inferred(torch),
        "meta": lambda: x.to("meta"),
        "sparse": lambda: x.to_sparse(),
        "zeros without memory": lambda: torch._efficientzerotensor(4),
        "freed": lambda: _freed(x),
        "bfloat16": lambda: x.to(torch.bfloat16),
        "quantized": lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        "storage": lambda: x.untyped_storage(),
        "from numpy": lambda: torch.from_numpy(VALUES.copy()[::1]),
        "0-d": lambda: torch.tensor(1.0),
    }
    unread = ("meta", "sparse", "freed", "quantized", "storage", "bfloat16", "0-d", "zeros without memory")
    name = random.choice(list(makers))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = makers[name]()
    return f"torch, {name}", made, None if name in unread else values(made)


def _inferred(torch: Any) -> Any:
    with torch.inference_mode():
        return torch.from_numpy(VALUES.copy()) + 0


def _freed(x: Any) -> Any:
    made = x.clone()
    made.untyped_storage().resize_(0)
    return made


def of_jax(random: Random) -> Found:
    """Return an array of jax."""
    jax = sys.modules["jax"]
    x = jax.numpy.asarray(VALUES) + 0
    name = random.choice(("plain", "deleted", "donated", "bfloat16", "keys", "shape", "0-d"))
    read: Read | None = None
    if name == "plain":
        read = lambda: np.asarray(x).copy()  # noqa: E731
    elif name == "deleted":
        x.delete()
    elif name == "donated":
        jax.jit(lambda v: v + 1, donate_argnums=0)(x)
    elif name == "bfloat16":
        x = x.astype("bfloat16")
    elif name == "keys":
        x = jax.random.key(0)
    elif name == "shape":
        x = jax.ShapeDtypeStruct((4,), "float32")
    elif name == "0-d":
        x = jax.numpy.float32(1)
    return f"jax, {name}", x, read


def others(random: Random) -> Found | None:
    """Return one of the objects of the run time's tests, None where these are not there."""
    try:
        if random.random() < 0.5:
            # What it says changes from one question to the next: the array is what it holds.
            made, array = import_module("tests.runtime.random_liars").random_liar(random)
            return "random liar", made, array.copy
        found = list(islice(import_module("tests.runtime.liars").everything(), 10_000))
    except ImportError:
        return None
    name, made = random.choice(found)
    return f"tests.runtime.liars, {name}", made, None


def liar(random: Random) -> Found:
    """Return an object of any of the kinds that are there."""
    kinds: list[Callable[[Random], Found | None]] = [own, own, strange, others, others]
    kinds += [of_torch] * 3 * ("torch" in sys.modules) + [of_jax] * 2 * ("jax" in sys.modules)
    return random.choice(kinds)(random) or own(random)


def load_libraries(number: int) -> None:
    """Import torch and jax in some processes; they cost seconds."""
    for name, there in (("torch", number // PER_CHILD % 3 != 1), ("jax", number // PER_CHILD % 3 == 2)):
        if there and name not in sys.modules:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    import_module(name)
            except ImportError:
                pass


def outcome(trial: Trial, call: Callable[[], Any], where: str) -> tuple[bool, Any]:
    """Make a call; return whether it was taken, and its result."""
    try:
        return True, call()
    except pk.PolykerError as error:
        message = str(error)
        trial.check(not isinstance(error, pk.InternalError), f"{where}: InternalError: {message}")
        trial.check(message, f"{where}: an error without a text")
        return False, None
    except Exception as error:
        trial.check(False, f"{where}: {type(error).__name__} raised: {error!r:.300}")
        raise


def run(trial: Trial) -> None:
    """Give an operator and a kernel such objects as inputs and as out, between calls that are as they should be."""
    random = trial.random
    load_libraries(trial.number)
    c = constant(random) % 1000
    operator = pk.op(f"y[i] = {c} * x[i] + z[i]")
    kernel = operator.compile(pk.f32[4], pk.f32[4])
    x, wanted = VALUES.copy(), c * VALUES + VALUES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(random.choice((1, 2, 4))):
            function: Any = random.choice((operator, kernel))
            for _ in range(random.choice((0, 3))):
                trial.check(np.array_equal(function(x, x), wanted), "a call between others")
            name, made, read = liar(random)
            for _ in range(random.choice((1, 2, 4))):
                if random.random() < 0.5:
                    as_input(trial, function, c, x, f"{name} as an input", made, read)
                else:
                    as_out(trial, function, x, wanted, f"{name} as out", made, read)
            elsewhere(trial, operator, x, f"{name} elsewhere", made)
        trial.check(np.array_equal(kernel(x, x, out=np.zeros_like(x)), wanted), "a call after others")


def as_input(trial: Trial, function: Any, c: int, x: np.ndarray, where: str, made: Any, read: Read | None) -> None:
    """Give an object as an input; `out` is as it was where that is refused."""
    random = trial.random
    out = np.full(4, -7, np.float32) if random.random() < 0.6 else None
    values = None if read is None else read()
    taken, result = outcome(trial, lambda: function(made, x, out=out), where)
    if not taken:
        trial.check(out is None or (out == -7).all(), f"{where}: refused, and out is written")
    elif values is not None:
        trial.check(np.array_equal(np.asarray(result), c * values + x), f"{where}: wrong result")
    if taken and out is not None:
        trial.check(result is out, f"{where}: another object than out came back")


def as_out(
    trial: Trial, function: Any, x: np.ndarray, wanted: np.ndarray, where: str, made: Any, read: Read | None
) -> None:
    """Give an object as `out`: taken, it holds the result; refused, it holds what it held."""
    given: list[Any] = [x, x]
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(type(made), torch.Tensor) and trial.random.random() < 0.8:
        given = [torch.from_numpy(x)] * 2
    before = None if read is None else read()
    taken, result = outcome(trial, lambda: function(*given, out=made), where)
    if taken:
        trial.check(result is made, f"{where}: another object than out came back")
        found = read() if read is not None else _read(made)
        trial.check(
            found is None or np.array_equal(found, wanted), lambda: f"{where}: taken, and holds {found}, not {wanted}"
        )
    elif read is not None:
        trial.check(np.array_equal(read(), before), f"{where}: refused, and written")


def _read(made: Any) -> np.ndarray | None:
    """Return what an object holds as NumPy reads it, None where it does not."""
    try:
        base = getattr(made, "_base", None)
        found = base if isinstance(base, np.ndarray) else np.asarray(made)
    except Exception:
        return None
    return found if found.shape == (4,) and found.dtype == np.float32 else None


def elsewhere(trial: Trial, operator: Any, x: np.ndarray, where: str, made: Any) -> None:
    """Give an object to what else takes arrays."""
    stop = Stop()
    which = trial.random.choice(("einsum", "einsum out", "compile", "infer", "check", "size", "option", "stop", "none"))
    calls: dict[str, Callable[[], Any]] = {
        "einsum": lambda: pk.einsum("i,i->i", made, x),
        "einsum out": lambda: pk.einsum("i,i->i", x, x, out=made),
        "compile": lambda: operator.compile(made, x),
        "infer": lambda: operator.infer(made, x),
        "check": lambda: operator.check(made, x),
        "size": lambda: pk.op("y[i] = x[i] for i in 0:N")(x, N=made),
        "option": lambda: operator.compile(x, x, threads=made),
    }
    if which in calls:
        outcome(trial, calls[which], f"{where}, {which}")
    elif which == "stop":
        name = trial.random.choice(("__dlpack__", "__array_interface__", "__array__"))
        try:
            operator(thing({name: property(raising(stop))}), x)
        except Stop as caught:
            trial.check(caught is stop, f"{name}: another exception")
        except pk.PolykerError as error:
            trial.check(False, f"{name} raises what no `except Exception` sees, and {error!r} came")


PART = Part(run, limit=60.0, per_child=PER_CHILD)
