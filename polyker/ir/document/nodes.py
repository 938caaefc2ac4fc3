"""The kinds of nodes of a program's JSON document, as records; docs/reference/json.md is the table of them.

Fields that are at their default are left out where a document is written. A node says its kind in the field `kind`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

FORMAT, VERSION = "polyker.program", 1
# Integers beyond it are written as texts: many a reader of JSON has floats alone.
EXACT = 2**53


class Json(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a document."""


class Tagged(Json, frozen=True, tag_field="kind", tag=lambda name: name.removesuffix("Json").lower()):
    """A node: an expression, a statement or a loop."""


class IntJson(Tagged, frozen=True):
    """An integer; as a text of digits where it is large."""

    value: int | str


class FloatJson(Tagged, frozen=True):
    """A real number."""

    value: float | Literal["inf", "-inf", "nan"]


class ComplexJson(Tagged, frozen=True):
    """A complex number, its parts finite."""

    real: float
    imag: float


class BoolJson(Tagged, frozen=True):
    """`True` or `False`."""

    value: bool


class IndexJson(Tagged, frozen=True):
    """The value of an index."""

    name: str


class SizeJson(Tagged, frozen=True):
    """The value of a size."""

    name: str


class DotsJson(Tagged, frozen=True):
    """`...` among subscripts."""


class PadJson(Json, frozen=True):
    """What is read outside a tensor; `value` is of the mode constant alone."""

    mode: Literal["constant", "edge", "wrap", "reflect"]
    value: NumberJson | None = None


class ReadJson(Tagged, frozen=True):
    """An element of a tensor."""

    tensor: str
    subscripts: tuple[ExprJson, ...] = ()
    pad: PadJson | None = None


class CallJson(Tagged, frozen=True):
    """An operator or a function applied to arguments."""

    op: str
    args: tuple[ExprJson, ...]


class CastJson(Tagged, frozen=True):
    """A conversion to an element type."""

    to: str
    arg: ExprJson


class RangeJson(Json, frozen=True):
    """An index with its bounds, half open; without them its range is inferred."""

    index: str
    lo: ExprJson | None = None
    hi: ExprJson | None = None


class ReduceJson(Tagged, frozen=True):
    """An inline reduction."""

    op: str
    ranges: tuple[RangeJson, ...]
    body: ExprJson
    conditions: tuple[ExprJson, ...] = ()


class StatementJson(Tagged, frozen=True):
    """A statement; `op` is "set" or the reduction."""

    target: str
    op: str
    expr: ExprJson
    subscripts: tuple[ExprJson, ...] = ()
    ranges: tuple[RangeJson, ...] = ()
    conditions: tuple[ExprJson, ...] = ()


class LoopJson(Tagged, frozen=True):
    """A sequential loop."""

    index: str
    lo: ExprJson
    hi: ExprJson
    body: tuple[NodeJson, ...]


class TypeJson(Json, frozen=True):
    """A declared type: either part may be missing. An extent is a whole number, a size's name, or an expression of sizes."""

    dtype: str | None = None
    shape: tuple[int | str | ExprJson, ...] | None = None


class TensorJson(Json, frozen=True):
    """A tensor of the program."""

    name: str
    type: TypeJson | None = None


class ProgramJson(Json, frozen=True, kw_only=True):
    """A program.

    `name`: of a declared program. `inputs`: in calling order. `temporaries`: those with a type have to stand here.
    `parameters`: the inputs and the sizes among them, in calling order. `sizes`: all, in order. `declarations`: tensors with a
    type in the order of these, where that is not the one of inputs, outputs and temporaries. `fixed`: sizes that have one value.
    `text`: what the program was parsed from.
    """

    format: str
    version: int
    name: str | None = None
    inputs: tuple[TensorJson, ...]
    outputs: tuple[TensorJson, ...]
    temporaries: tuple[TensorJson, ...] = ()
    parameters: tuple[str, ...] | None = None
    sizes: tuple[str, ...] | None = None
    declarations: tuple[str, ...] | None = None
    fixed: dict[str, int | str] = {}
    body: tuple[NodeJson, ...]
    text: str | None = None


NumberJson: TypeAlias = IntJson | FloatJson | ComplexJson | BoolJson
ExprJson: TypeAlias = NumberJson | IndexJson | SizeJson | DotsJson | ReadJson | CallJson | CastJson | ReduceJson
NodeJson: TypeAlias = StatementJson | LoopJson
