"""What an entry of the table of functions says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct

from polyker.ir.dtypes import DType, bool_


class Cost(Struct, frozen=True):
    """What an operation costs on a vector, in instructions: `least`, with the best code there may be, and `usual`.

    `heavy`: whether it takes as long as several multiply-adds. `long_on_gpus`: whether its code is long there, where a GPU has
    no instruction for it.
    """

    least: int = 1
    usual: int = 1
    heavy: bool = False
    long_on_gpus: bool = False

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both, one after the other."""
        long = self.long_on_gpus or other.long_on_gpus
        return Cost(self.least + other.least, self.usual + other.usual, self.heavy or other.heavy, long)


ONE = Cost()
# The shortest polynomials; a division of 512 bits takes 7 cycles on Zen 4, and more on others (Fog, Instruction tables).
POLYNOMIAL = Cost(8, 16, True, True)
DIVIDER = Cost(4, 14, True)


class Function(Struct, frozen=True):
    """A function of the notation.

    Types. `takes`: "float" where integers and bool become floats first, as for numpy's `exp`; "number" where they are taken as
    they are; "integer" where only integers and bool are taken. `complex`: whether it takes complex numbers. `of_bool`: the type
    that bool becomes where numbers are taken as they are, None where numpy takes no bool. `gives`: the type of the result,
    "bool", "u8", or "real" for the parts of complex numbers; "" for that of the arguments. `itself`: the kinds of element types
    of which each value is its own result.

    Meaning. `numpy`: its value on NumPy's arrays and scalars. `written`: a composition of operators and of functions above it in
    the table, of x, y and z; whatever is not said otherwise follows from it: the value, the cost, LLVM's code and CUDA's.
    `expanded`: the kinds of element types for which typing writes it by other operations, so that no later part meets it.
    `interval`: the least and the greatest value for integers between two.

    Code. `llvm`: LLVM's intrinsic. `c`: its name in C's library, and so CUDA's, where that computes it. Vector code is in
    polyker.codegen.vecmath. `cost`: what one costs on a vector.

    For people. `aliases`: what it is called elsewhere, for hints. `about`: its special values, in Markdown.
    """

    name: str
    arity: int = 1
    takes: str = "float"
    complex: bool = False
    of_bool: DType | None = bool_
    gives: str = ""
    itself: str = ""
    numpy: Callable[..., Any] | None = None
    written: str = ""
    expanded: str = ""
    interval: Callable[[int, int], tuple[int, int]] | None = None
    llvm: str = ""
    c: str = ""
    cost: Cost | None = None
    aliases: tuple[str, ...] = ()
    about: str = ""

    @property
    def transcendental(self) -> bool:
        """Whether it takes as many operations as a polynomial does."""
        return self.cost is not None and self.cost.least >= POLYNOMIAL.least

    def value(self, *args: Any) -> Any:
        """Return its value on NumPy's arrays or scalars, of one type; several operations on f32 are rounded once."""
        assert self.numpy is not None
        narrow = {np.dtype(np.float32): np.float64, np.dtype(np.complex64): np.complex128}
        kind = np.result_type(*args)
        if self.takes != "float" or isinstance(self.numpy, np.ufunc) or kind not in narrow:
            return self.numpy(*args)
        wide = narrow[kind]
        return kind.type(self.numpy(*(wide(a) for a in args)))
