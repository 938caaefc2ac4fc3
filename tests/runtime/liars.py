"""Objects that are no arrays but say so, that raise where an array answers, or whose memory is not what it seems.

`liars` yields what no call may take, in any place; `readable` what is right as an input and no `out`; `of_torch` and `of_jax`,
`torch_readable` the same of these libraries; `interrupting` what must not be caught. Each is made anew by each iteration.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tests.runtime.capsules import COPIED, READ_ONLY, capsule

Named = Iterator[tuple[str, Any]]
VALUES = (0.0, 1.0, 2.0, 3.0)  # of what is readable, as f32


def true() -> np.ndarray:
    """Return an array as the operators of the tests take it."""
    return np.array(VALUES, np.float32)


class Speechless(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


ERRORS: tuple[Callable[[], Exception], ...] = (
    lambda: RuntimeError("not now"),
    lambda: KeyError("words"),
    lambda: TypeError("not so"),
    lambda: ValueError("not this"),
    lambda: BufferError("no buffer"),
    lambda: StopIteration(),
    lambda: RecursionError("too deep"),
    lambda: NotImplementedError(),
    lambda: AssertionError("\x1b[31m" + "long " * 1000),
    lambda: MemoryError(),
    lambda: ImportError("no module"),
    Speechless,
)


def raising(error: Callable[[], BaseException]) -> Callable[..., Any]:
    """Return a function that raises."""

    def function(*args: Any, **named: Any) -> Any:
        raise error()

    return function


def giving(value: Any) -> Callable[..., Any]:
    """Return a method of any arguments that returns a value, made anew where it is given as a function."""

    def function(self: Any, *args: Any, **named: Any) -> Any:
        return value() if callable(value) else value

    return function


def thing(**members: Any) -> Any:
    """Return an object of a class with these members."""
    return type("Liar", (), {"__module__": __name__, **members})()


def interface(**changes: Any) -> dict[str, Any]:
    """Return the array interface of an array, with changes; None leaves an entry out."""
    array = true()
    _kept.append(array)
    found = {"shape": (4,), "typestr": "<f4", "data": (array.ctypes.data, False), "strides": None, "version": 3}
    return {k: v for k, v in (found | changes).items() if k == "strides" or v is not None}


_kept: list[object] = []

WORDS: tuple[Any, ...] = (
    "words",
    7,
    b"bytes",
    [],
    (),
    {},
    object(),
    ("a", "b"),
    (1,),
    (1, 2, 3),
    (1.5, 0),
    (None, None),
    2.5,
)


def liars() -> Named:
    """Yield what no call may take, neither as an input nor as `out`."""
    for part in (_classes, _dlpack, _capsules, _interfaces, _array_methods, _cuda, _buffers, _numbers):
        yield from part()


def _classes() -> Named:
    yield "type of arrays", np.ndarray
    yield "a class that lies about its class", thing(__class__=property(lambda self: np.ndarray))
    yield "a class that raises about its class", thing(__class__=property(raising(ERRORS[0])))
    for module in ("torch", "jax", "jaxlib.xla", "cupy", "numpy", "numba.cuda", "", ".", "\ud800", 5, None):
        yield f"module {module!a}", thing(__module__=module)
        yield f"module {module!a} with requires_grad", thing(__module__=module, requires_grad=False)
        yield f"module {module!a} with is_cuda", thing(__module__=module, is_cuda=True, requires_grad=False)
    yield "every attribute raises", thing(__getattr__=raising(ERRORS[0]))
    yield "every lookup raises", thing(__getattribute__=raising(ERRORS[2]))
    yield "every attribute is itself", thing(__getattr__=lambda self, name: self)
    yield "every attribute is a word", thing(__getattr__=lambda self, name: "word")
    yield "every attribute is a function of itself", thing(__getattr__=lambda self, name: lambda *a, **k: self)
    dead = weakref.proxy(thing())
    yield "a proxy of what is gone", dead

    class Meta(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise RuntimeError("no name")

        @property
        def __module__(cls) -> str:  # type: ignore[override]
            raise RuntimeError("no module")

        @property
        def __mro__(cls) -> Any:  # type: ignore[override]
            raise RuntimeError("no bases")

    yield "a class without a name", Meta("Liar", (), {})()
    yield "a class without a name, with DLPack", Meta("Liar", (), {"__dlpack__": giving(None)})()


def _dlpack() -> Named:
    pack = giving(lambda: true().__dlpack__())
    for k, error in enumerate(ERRORS):
        yield f"__dlpack_device__ raises {k}", thing(__dlpack_device__=raising(error), __dlpack__=pack)
        yield (
            f"__dlpack_device__ is a property that raises {k}",
            thing(__dlpack_device__=property(raising(error)), __dlpack__=pack),
        )
        yield f"__dlpack__ raises {k}", thing(__dlpack_device__=giving((1, 0)), __dlpack__=raising(error))
        yield f"__dlpack__ is a property that raises {k}", thing(__dlpack__=property(raising(error)))
    for value in (None, *WORDS):
        yield f"__dlpack_device__ is {value!r:.20}", thing(__dlpack_device__=value, __dlpack__=7)
        yield f"__dlpack_device__ gives {value!r:.20}", thing(__dlpack_device__=giving(value), __dlpack__=pack)
        yield f"__dlpack__ is {value!r:.20}", thing(__dlpack_device__=giving((1, 0)), __dlpack__=value)
        yield f"__dlpack__ gives {value!r:.20}", thing(__dlpack_device__=giving((1, 0)), __dlpack__=giving(value))
    yield "__dlpack_device__ takes more", thing(__dlpack_device__=lambda self, more: (1, 0), __dlpack__=pack)
    yield "__dlpack__ takes more", thing(__dlpack_device__=giving((1, 0)), __dlpack__=lambda self, more: 0)
    yield "no __dlpack__", thing(__dlpack_device__=giving((1, 0)))
    yield "a device without end", thing(__dlpack_device__=giving(lambda: iter(int, 1)), __dlpack__=pack)
    for kind in (0, -1, 99, 1 << 70):
        yield f"device type {kind}", thing(__dlpack_device__=giving((kind, 0)), __dlpack__=pack)
    yield "an OpenCL device", thing(__dlpack_device__=giving((4, 0)), __dlpack__=pack)


def packed(**described: Any) -> Any:
    """Return an object that says it lies on the CPU and gives such capsules."""
    return thing(__dlpack_device__=giving((1, 0)), __dlpack__=giving(lambda: capsule(**described)))


def _capsules() -> Named:
    yield "a consumed capsule", packed(name=b"used_dltensor_versioned")
    yield "a consumed capsule of old", packed(version=None, name=b"used_dltensor")
    yield "a capsule of another name", packed(name=b"numpy")
    for version in (None, 1):
        yield f"a capsule of a device {version}", packed(version=version, device=(2, 0))
        yield f"a capsule of no device {version}", packed(version=version, device=(0, 0))
        yield f"elements at null {version}", packed(version=version, data=0)
        yield f"a negative extent {version}", packed(version=version, shape=(-4,))
        yield f"two negative extents {version}", packed(version=version, shape=(-2, -2))
        yield f"a huge extent {version}", packed(version=version, shape=(1 << 62,))
        yield f"extents whose product wraps {version}", packed(version=version, shape=(1 << 32, 1 << 32))
        yield f"a huge stride {version}", packed(version=version, strides=(1 << 61,))
        yield f"the least stride {version}", packed(version=version, strides=(-(1 << 63),))
        yield f"65 dimensions {version}", packed(version=version, shape=(1,) * 65)
        yield f"-1 dimensions {version}", packed(version=version, ndim=-1)
        yield f"2**31-1 dimensions {version}", packed(version=version, ndim=(1 << 31) - 1)
        yield f"four lanes {version}", packed(version=version, shape=(1,), type=(2, 32, 4))
        yield f"no lanes {version}", packed(version=version, type=(2, 32, 0))
        yield f"a type not known {version}", packed(version=version, type=(99, 32, 1))
        yield f"floats of 8 bits {version}", packed(version=version, type=(10, 8, 1))
        yield f"floats of 7 bits {version}", packed(version=version, type=(2, 7, 1))
        yield f"bools of 32 bits {version}", packed(version=version, type=(6, 32, 1))
        yield f"handles {version}", packed(version=version, type=(3, 64, 1))
        yield f"beyond the address space {version}", packed(version=version, data=(1 << 64) - 8)
    yield "a capsule of version 2", packed(version=2)


def _interfaces() -> Named:
    name = "__array_interface__"
    for k, error in enumerate(ERRORS):
        yield f"{name} raises {k}", thing(**{name: property(raising(error))})
    for value in (None, *WORDS):
        yield f"{name} is {value!r:.20}", thing(**{name: value})
        for entry in ("shape", "typestr", "data"):
            if entry != "shape" or value not in ([], (), (1,), (1, 2, 3)):
                yield f"{name}'s {entry} is {value!r:.20}", thing(**{name: {**interface(), entry: value}})
        if value not in (None, (1,)):
            yield f"{name}'s strides are {value!r:.20}", thing(**{name: interface(strides=value)})
    for entry in ("shape", "typestr"):
        yield f"{name} without {entry}", thing(**{name: interface(**{entry: None})})
    wrong: dict[str, tuple[Any, ...]] = {
        "shape": (
            (-4,), (-2, -2), (1 << 62,), (1 << 64,), (1 << 32, 1 << 32), (-(1 << 63),), (4.0,), ("4",), (1,) * 65, 4,
        ),
        "strides": ((1 << 62,), (1 << 64,), (-(1 << 63),), (4, 4), (4.0,), ("4",)),
        "typestr": ("<f3", "|O8", "<U1", "|S4", "|V4", "<M8[s]", "f4, f4", "<f16", "nonsense", "", np.float32, 4),
        "data": (
            (0, False), (-1, False), (1 << 64, False), ((1 << 64) - 8, False), ("1", False), (1.5, False), (8,),
            bytearray(15), b"12", "text",
        ),
    }  # fmt: skip
    for entry, values in wrong.items():
        for value in values:
            yield f"{name} of {entry} {value!r:.20}", thing(**{name: interface(**{entry: value})})
    for offset in (-1, 1, 1 << 62, 1 << 64, "words"):
        yield f"{name} with offset {offset}", thing(**{name: interface(data=bytearray(16), offset=offset)})
    yield f"{name} that steps out of its buffer", thing(**{name: interface(data=bytearray(16), strides=(8,))})
    yield f"{name} that steps back out of its buffer", thing(**{name: interface(data=bytearray(16), strides=(-4,))})
    yield f"{name} with a mask", thing(**{name: interface(mask=np.ones(4, bool))})

    class Words(Mapping):  # type: ignore[type-arg]
        def __getitem__(self, key: object) -> Any:
            raise RuntimeError("not now")

        def __iter__(self) -> Iterator[str]:
            raise RuntimeError("not now")

        def __len__(self) -> int:
            return 3

    yield f"{name} is a mapping that raises", thing(**{name: Words()})
    yield "a mapping that raises", Words()


def _array_methods() -> Named:
    for k, error in enumerate(ERRORS):
        yield f"__array__ raises {k}", thing(__array__=raising(error))
        yield f"__array__ is a property that raises {k}", thing(__array__=property(raising(error)))
    for value in (None, *WORDS):
        yield f"__array__ is {value!r:.20}", thing(__array__=value)
        yield f"__array__ gives {value!r:.20}", thing(__array__=giving(value))
    yield "__array__ gives a list", thing(__array__=giving([0.0, 1.0]))
    yield "__array__ gives itself", thing(__array__=lambda self, *a, **k: self)
    yield "__array__ gives a masked array", thing(__array__=giving(lambda: np.ma.array(true(), mask=[1, 0, 0, 0])))
    yield "__array__ gives objects", thing(__array__=giving(lambda: np.array([None] * 4)))
    yield "a masked array", np.ma.array(true(), mask=[1, 0, 0, 0])
    masked = np.ma.array(true(), mask=[1, 0, 0, 0])
    _kept.append(masked)
    yield "a proxy of a masked array", weakref.proxy(masked)
    for dtype in (object, "U4", "S4", "M8[s]", [("a", "<f4")], "V4", np.longdouble):
        yield f"an array of {dtype!r:.30}", np.zeros(4, dtype)
    yield "a recarray", np.rec.fromarrays([true()], names="a")


def _cuda() -> Named:
    name = "__cuda_array_interface__"
    for k, error in enumerate(ERRORS):
        yield f"{name} raises {k}", thing(**{name: property(raising(error))})
    for value in WORDS:
        yield f"{name} is {value!r:.20}", thing(**{name: value})
        for entry in ("shape", "typestr", "data", "strides"):
            yield f"{name}'s {entry} is {value!r:.20}", thing(**{name: {**interface(), entry: value}})
    yield f"{name} is true", thing(**{name: interface()})
    yield f"{name} with a negative extent", thing(**{name: interface(shape=(-4,))})
    yield f"{name} with 65 dimensions", thing(**{name: interface(shape=(1,) * 65)})
    yield f"{name} with a huge extent", thing(**{name: interface(shape=(1 << 62,))})
    yield f"{name} with a stream of words", thing(**{name: interface(stream="words")})


def _buffers() -> Named:
    released = memoryview(bytearray(16)).cast("f")
    released.release()
    yield "a memoryview that is released", released
    yield "a memoryview of letters", memoryview(b"1234").cast("c")
    yield "bytes", bytes(16)
    yield "a bytearray", bytearray(16)
    if sys.version_info >= (3, 12):
        for k, error in enumerate(ERRORS):
            yield f"__buffer__ raises {k}", thing(__buffer__=raising(error))
        for value in (None, "words"):
            yield f"__buffer__ gives {value!r}", thing(__buffer__=giving(value))


def _numbers() -> Named:
    class Int(int):
        def __int__(self) -> int:
            raise RuntimeError("no int")

        __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __index__ = __abs__ = raising(ERRORS[0])  # type: ignore[assignment]
        __hash__ = int.__hash__

    class Float(float):
        __float__ = __abs__ = raising(ERRORS[0])  # type: ignore[assignment]

    yield "an int that raises", Int(3)
    yield "a float that raises", Float(3)
    for kind in (int, float, complex, bool, list, tuple, str, dict, np.float32):
        yield f"a class that says it is {kind.__name__}", thing(__class__=property(lambda self, kind=kind: kind))

    class List(list):  # type: ignore[type-arg]
        __iter__ = __len__ = __getitem__ = raising(ERRORS[0])  # type: ignore[assignment]

    class Tuple(tuple):  # type: ignore[type-arg]
        __slots__ = ()
        __iter__ = __len__ = __getitem__ = raising(ERRORS[0])  # type: ignore[assignment]

    yield "a list that raises", List([1, 2])
    yield "a tuple that raises", Tuple([1, 2])
    ring: list[Any] = []
    ring.append(ring)
    yield "a list of itself", ring
    yield "a list of liars", [thing(__array__=raising(ERRORS[0])), thing(__float__=raising(ERRORS[1]))]


def readable() -> Named:
    """Yield what has VALUES as an input, and is no `out`."""
    frozen = true()
    frozen.flags.writeable = False
    yield "a frozen array", frozen
    yield "a frozen array by DLPack", packed(flags=READ_ONLY)
    yield "a copy by DLPack", packed(flags=COPIED)
    yield "another copy by DLPack each time", packed()
    yield "a capsule of old", packed(version=None)
    yield "an array without a device", thing(__dlpack__=giving(lambda: capsule()))
    yield "pinned memory", thing(__dlpack_device__=giving((3, 0)), __dlpack__=giving(lambda: capsule(device=(3, 0))))
    yield "__array__ alone", thing(__array__=giving(true))
    yield "__array__ where DLPack raises", thing(__array__=giving(true), __dlpack__=raising(ERRORS[0]))
    yield (
        "__array__ where the device raises",
        thing(__array__=giving(true), __dlpack__=raising(ERRORS[0]), __dlpack_device__=raising(ERRORS[2])),
    )
    yield (
        "__array__ where DLPack has not the type",
        thing(__array__=giving(true), __dlpack__=giving(lambda: capsule(type=(99, 32, 1)))),
    )
    yield (
        "a frozen interface",
        thing(__array_interface__=property(lambda self: interface(data=(interface()["data"][0], True)))),
    )
    yield "an interface of bytes", thing(__array_interface__=interface(data=true().tobytes()))
    yield "another interface each time", thing(__array_interface__=property(lambda self: interface()))
    yield (
        "another buffer each time",
        thing(__array_interface__=property(lambda self: interface(data=bytearray(true().tobytes())))),
    )
    yield (
        "__cuda_array_interface__ raises",
        thing(
            __cuda_array_interface__=property(raising(ERRORS[0])),
            __array_interface__=interface(data=(interface()["data"][0], True)),
        ),
    )
    yield "a memoryview", memoryview(true())
    yield "a list", list(true())
    yield "a tuple", tuple(true())


def interrupting() -> Named:
    """Yield what raises what no call may catch."""
    for error in (KeyboardInterrupt, SystemExit, GeneratorExit):
        yield f"__dlpack_device__, {error.__name__}", thing(__dlpack_device__=raising(error), __dlpack__=giving(None))
        yield f"__dlpack__, {error.__name__}", thing(__dlpack__=raising(error))
        for name in ("__dlpack__", "__array_interface__", "__array__", "__cuda_array_interface__"):
            yield f"{name} as a property, {error.__name__}", thing(**{name: property(raising(error))})
        yield f"__array__, {error.__name__}", thing(__array__=raising(error))


def of_torch(torch: Any) -> Named:
    """Yield tensors that no call may take."""
    x = torch.arange(4.0)

    class Sub(torch.Tensor):  # type: ignore[misc,name-defined]
        pass

    yield "requires grad", x.clone().requires_grad_()
    yield "a parameter", torch.nn.Parameter(x.clone())
    yield "a subclass that requires grad", x.clone().as_subclass(Sub).requires_grad_()
    yield "meta", x.to("meta")
    yield "sparse", x.to_sparse()
    yield "sparse rows", torch.eye(4).to_sparse_csr()
    yield "zeros without memory", torch._efficientzerotensor(4)
    yield "functional", torch._to_functional_tensor(x.clone())
    freed = x.clone()
    freed.untyped_storage().resize_(0)
    yield "freed", freed
    yield "a freed subclass", freed.as_subclass(Sub)
    for dtype in ("float8_e4m3fn", "complex32"):
        if hasattr(torch, dtype):
            yield dtype, torch.zeros(4, dtype=getattr(torch, dtype))
    yield "a storage", x.untyped_storage()
    yield "nested", torch.nested.nested_tensor([x, x])
    yield "jagged", torch.nested.nested_tensor([x, x], layout=torch.jagged)
    yield "quantized", torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    yield "masked", torch.masked.masked_tensor(x, x > 1)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(4)
    yield "fake", fake
    yield "a traced proxy", _proxy(torch)
    yield "a class that says it is a tensor", thing(__class__=property(lambda self: torch.Tensor))

    class Loud(torch.Tensor):  # type: ignore[misc,name-defined]
        numpy = detach = resolve_conj = requires_grad = property(raising(ERRORS[0]))

    yield "a subclass whose memory is freed and whose attributes raise", freed.as_subclass(Loud)


def _proxy(torch: Any) -> Any:
    import torch.fx

    tracer = torch.fx.Tracer()
    tracer.graph = torch.fx.Graph()
    return tracer.create_proxy("placeholder", "x", (), {})


def torch_readable(torch: Any) -> Named:
    """Yield tensors with VALUES that are no `out`: what memory holds is other than that, or they are read-only."""
    x = torch.arange(4.0)

    class Sub(torch.Tensor):  # type: ignore[misc,name-defined]
        pass

    lazy = torch.complex(torch.zeros(4), -x).conj()
    yield "a lazy sign", torch._neg_view(-x)
    yield "the imaginary part of a lazy conjugate", lazy.imag
    yield "a lazy sign in a subclass", torch._neg_view(-x).as_subclass(Sub)
    yield "a lazy conjugate's imaginary part in a subclass", lazy.as_subclass(Sub).imag
    with torch.inference_mode():
        made = torch.arange(4.0)
    yield "of inference", made
    yield "a subclass of inference", made.as_subclass(Sub)


def of_jax(jax: Any) -> Named:
    """Yield arrays that no call may take."""
    deleted = jax.numpy.arange(4, dtype="float32") + 1
    deleted.delete()
    yield "deleted", deleted
    donated = jax.numpy.arange(4, dtype="float32") + 1
    jax.jit(lambda v: v + 1, donate_argnums=0)(donated)
    yield "donated", donated
    yield "a class that says it is jax's", thing(__class__=property(lambda self: type(deleted)))
    yield "keys", jax.random.key(0)
    yield "a shape", jax.ShapeDtypeStruct((4,), "float32")
    yield "float8", jax.numpy.zeros(4, "float8_e4m3fn")


def everything() -> Named:
    """Yield all objects of all libraries that are loaded; no call with them may crash, or raise what is not polyker's."""
    yield from liars()
    yield from readable()
    if "torch" in sys.modules:
        yield from of_torch(sys.modules["torch"])
        yield from torch_readable(sys.modules["torch"])
    if "jax" in sys.modules:
        yield from of_jax(sys.modules["jax"])
