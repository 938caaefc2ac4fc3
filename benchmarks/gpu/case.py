"""One measurement: a program, its inputs, what torch computes for the same, and how far results may lie apart."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from msgspec import Struct

import polyker as pk
from polyker.structs import replace

SIZES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i8": 1}
# By the type of the result; integers, and what is only moved, have to be equal.
TOLERANCES = {"f64": 1e-13, "f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}


class Case(Struct, frozen=True):
    """One measurement: the text, its inputs' shapes, what torch computes, and operations (2 a multiply-add).

    `torch`: called with torch and the inputs. `dtypes`: of the inputs, f32 where there are none. `einsum`: the same as a string,
    where it is one. `indices`: inputs that are no numbers but indices below `bound`, an extent given as (input, dimension) or a
    number. `linear`: in each input, so that the error of each element is relative to the sum of the magnitudes of its terms,
    else to the largest element. `unit`: whose rate bounds the operations: f32 (multiply-adds of the CUDA cores), or the type of
    a matrix product that tensor cores compute. `tf32`: what torch may use. `tiny`: shapes for dry runs, where it is not enough
    that no extent is large. `limit`: seconds that it may take, where they are not the run's.
    """

    name: str
    group: str
    text: str
    shapes: tuple[tuple[int, ...], ...]
    torch: Callable[..., Any]
    flop: float
    dtypes: tuple[str, ...] = ()
    einsum: str = ""
    indices: tuple[int, ...] = ()
    bound: int | tuple[int, int] = (0, 0)
    linear: bool = True
    unit: str = "f32"
    tf32: bool = False
    tiny: tuple[tuple[int, ...], ...] = ()
    limit: float = 0.0

    @property
    def kinds(self) -> tuple[str, ...]:
        """Element types of the inputs."""
        floats = self.dtypes or ("f32",) * len(self.shapes)
        return tuple("i64" if n in self.indices else dtype for n, dtype in enumerate(floats))

    @property
    def types(self) -> tuple[Any, ...]:
        """Types to compile for."""
        return tuple(getattr(pk, dtype)[shape] for dtype, shape in zip(self.kinds, self.shapes, strict=True))

    @property
    def most(self) -> int:
        """What all indices lie below."""
        return self.bound if isinstance(self.bound, int) else self.shapes[self.bound[0]][self.bound[1]]

    @property
    def read(self) -> int:
        """Bytes of the inputs; of a table that is gathered from, those of the rows that are taken."""
        sizes = [SIZES[kind] * prod(shape) for kind, shape in zip(self.kinds, self.shapes, strict=True)]
        if self.group == "gather":
            sizes[0] = SIZES[self.kinds[0]] * prod(self.shapes[self.indices[0]]) * prod(self.shapes[0][1:])
        return sum(sizes)

    def tolerance(self, dtype: str) -> float:
        """Return the largest relative error of a result of that type."""
        return TOLERANCES.get(dtype, 0.0) if self.flop else 0.0

    def small(self, most: int) -> Case:
        """Return the case with no extent above `most`."""
        return replace(self, shapes=self.tiny or tuple(tuple(min(n, most) for n in shape) for shape in self.shapes))
