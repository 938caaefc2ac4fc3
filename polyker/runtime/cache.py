"""The bounded cache of kernels in memory: one compile a key, however many threads ask."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet


class Recent(Protocol):
    """What the cache holds; whoever uses a value sets `used`."""

    used: bool


V = TypeVar("V", bound=Recent)
_caches: WeakSet[KernelCache[Any]] = WeakSet()


class _Slot(Generic[V]):
    """A value, or the lock that those wait on who want it made."""

    __slots__ = ("lock", "value")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: V | None = None


class KernelCache(Generic[V]):
    """A map that makes missing values once, and drops those not used for long.

    Values in use elsewhere live on; the cache only lets go of them. Recency is a mark that users of a value set (second
    chance), so that a hit need not take the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: OrderedDict[Hashable, _Slot[V]] = OrderedDict()
        _caches.add(self)

    def get(self, key: Hashable, make: Callable[[], V], bound: int) -> V:
        """Return the value of `key`, made if missing; what `make` raises is raised, and nothing kept."""
        while True:
            with self._lock:
                slot = self._slots.get(key)
                if slot is None:
                    slot = self._slots[key] = _Slot()
            with slot.lock:
                if slot.value is not None:
                    slot.value.used = True
                    return slot.value
                with self._lock:
                    if self._slots.get(key) is not slot:
                        continue  # whoever made it failed, and took the slot away
                try:
                    slot.value = make()
                except BaseException:
                    with self._lock:
                        if self._slots.get(key) is slot:
                            del self._slots[key]
                    raise
                value = slot.value
            self._shrink(bound, key)
            return value

    def _shrink(self, bound: int, newest: Hashable) -> None:
        with self._lock:
            excess = len(self._slots) - bound
            for _ in range(2 * len(self._slots)):
                if excess <= 0:
                    return
                key, slot = next(iter(self._slots.items()))
                if slot.value is None or slot.value.used or key == newest:
                    if slot.value is not None and key != newest:
                        slot.value.used = False
                    self._slots.move_to_end(key)
                else:
                    del self._slots[key]
                    excess -= 1

    def __len__(self) -> int:
        with self._lock:
            return len(self._slots)

    def ready(self) -> list[tuple[Hashable, V]]:
        """Return the values that are made, with their keys."""
        return [(key, slot.value) for key, slot in list(self._slots.items()) if slot.value is not None]

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._slots.clear()

    def forget_others(self) -> None:
        """Replace the locks, which threads that a fork did not copy may hold, and forget what those were making."""
        ready = self.ready()
        self._lock, self._slots = threading.Lock(), OrderedDict()
        for key, value in ready:
            self._slots[key] = _Slot()
            self._slots[key].value = value


def _after_fork() -> None:
    """In a child: the threads that held locks are not there to give them back; what they compiled is given up."""
    for cache in list(_caches):
        cache.forget_others()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
