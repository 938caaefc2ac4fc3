"""Random objects that answer each protocol of arrays rightly, wrongly, by a copy, or by turns, over one true array."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.runtime.capsules import COPIED, READ_ONLY, capsule
from tests.runtime.liars import ERRORS, WORDS, giving, interface, raising, thing, true

WRONG_CAPSULES: tuple[dict[str, Any], ...] = (
    {"data": 0}, {"shape": (-4,)}, {"shape": (1 << 62,)}, {"strides": (1 << 61,)}, {"device": (2, 0)}, {"ndim": 65},
    {"type": (2, 32, 4)}, {"type": (99, 32, 1)}, {"name": b"used_dltensor"}, {"version": 2}, {"name": b"other"},
)  # fmt: skip


def random_liar(rng: random.Random) -> tuple[Any, np.ndarray]:
    """Return (an object, the array whose memory is its own); the array's values are those of `true`."""
    array = true()
    members: dict[str, Any] = {}
    for name, answers in (
        ("__dlpack__", _capsules(array)),
        ("__dlpack_device__", [giving((1, 0))] * 4 + [giving(w) for w in WORDS] + [giving((2, 0)), giving((99, 0))]),
        ("__array_interface__", _interfaces(array)),
        ("__array__", [giving(array), giving(lambda: array.copy()), *map(giving, WORDS)]),
        ("__cuda_array_interface__", [*WORDS[:4]]),
        ("__array_namespace__", [giving(None), giving(lambda: thing(from_dlpack=lambda self, a: a))]),
        ("requires_grad", [False, None, 1, "no"]),
        ("is_cuda", [False, None, "no"]),
        ("__class__", [property(lambda self, c=c: c) for c in (np.ndarray, list, float, np.generic, str, type)]),
        ("__module__", ["torch", "jax", "numpy", "cupy", 5]),
    ):
        if rng.random() < (0.6 if answers and name in ("__dlpack__", "__array_interface__", "__array__") else 0.15):
            members[name] = _answer(rng, answers, attribute=not callable(answers[0]))
    if "__dlpack__" in members and "__dlpack_device__" not in members and rng.random() < 0.8:
        members["__dlpack_device__"] = giving((1, 0))
    return thing(**members), array


def _answer(rng: random.Random, answers: Sequence[Any], *, attribute: bool) -> Any:
    """Return a member: an answer, something that raises, or a property that gives one by turns."""
    error = rng.choice(ERRORS)
    match rng.randrange(8):
        case 0:
            return property(raising(error)) if rng.random() < 0.5 else raising(error)
        case 1:
            return _by_turns(rng, answers, error)
        case _:
            return rng.choice(answers)


def _by_turns(rng: random.Random, answers: Sequence[Any], error: Callable[[], Exception]) -> Any:
    found = [rng.choice(answers) for _ in range(3)]
    turn = iter(range(1 << 60))

    def get(self: Any) -> Any:
        if rng.random() < 0.2:
            raise error()
        member = found[next(turn) % len(found)]
        return member.__get__(self) if hasattr(member, "__get__") else member

    return property(get)


def _capsules(array: np.ndarray) -> list[Any]:
    right: list[dict[str, Any]] = [{}, {}, {}, {}, {"version": None}, {"flags": READ_ONLY}]
    made = [giving(lambda r=r: capsule(array=array, **r)) for r in (*right, *WRONG_CAPSULES)]
    copies = [giving(lambda f=f: capsule(array=array.copy(), flags=f)) for f in (0, COPIED, READ_ONLY)]
    return [*made, *copies, *map(giving, WORDS)]


def _interfaces(array: np.ndarray) -> list[Any]:
    start = array.ctypes.data
    right = [interface(data=(start, False)), interface(data=(start, True)), interface(data=memoryview(array))]
    wrong = [
        interface(data=(0, False)),
        interface(shape=(-4,)),
        interface(data=b"12"),
        interface(mask=[1]),
        interface(strides=(4, 4)),
    ]
    made = [property(lambda self, v=v: v) for v in (*right, *right, *right, *wrong, *WORDS)]
    return [
        *made,
        property(lambda self: interface(data=bytearray(array.tobytes()))),
        property(lambda self: interface()),
    ]
