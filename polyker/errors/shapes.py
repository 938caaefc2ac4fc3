"""Catalogue of what can be wrong with shapes, index ranges and coverage (PK3xx)."""

from __future__ import annotations

from polyker.errors.base import CompileError, ShapeError, register

NO_RANGE = register(
    "PK301",
    ShapeError,
    "index `{index}` has no range: {why}",
    "give it one: `for {index} in 0:N`",
)
RANGES_DISAGREE = register(
    "PK302",
    ShapeError,
    "index `{index}` has {first} values in `{access}` but {second} in `{other}`{shapes}{sizes}",
    "make the extents equal, or give the range: `for {index} in 0:N`",
)
OUT_OF_BOUNDS = register(
    "PK303",
    ShapeError,
    "`{access}` leaves {tensor}: its subscript `{subscript}` has to be in 0:{extent}{sizes}",
    "give a smaller range by `for`, or read with `pad=`",
)
UNWRITTEN = register(
    "PK304",
    ShapeError,
    "no statement writes the elements {elements} of output `{tensor}`{sizes}",
    "read with `pad=`, or give the range by `for` so that every element has a value",
)
READ_UNWRITTEN = register(
    "PK305",
    ShapeError,
    "`{access}` reads the elements {elements}, which nothing has written yet{sizes}",
    "assign these elements in an earlier statement, or restrict the range by `for` or `where`",
)
WRITTEN_TWICE = register(
    "PK306",
    ShapeError,
    "two instances of one `=` write the same element {element}: {first} and {second}{sizes}",
    "use a reduction such as `+=`, or subscripts that tell the instances apart",
)
NEGATIVE_ELEMENT = register(
    "PK307",
    ShapeError,
    "the subscript `{subscript}` of `{tensor}` reaches below 0{sizes}",
    "shift the subscript, or give the range by `for`",
)
NOT_AFFINE = register(
    "PK308",
    ShapeError,
    "`{text}` is not affine: {why}",
    "indices and sizes may be added, multiplied by integers, and divided (`//`, `%`) by positive integers",
)
WRONG_RANK = register(
    "PK309",
    ShapeError,
    "`{access}` has {subscripts} subscripts, but {tensor} has {rank} dimensions: {shape}",
)
SIZE_DISAGREES = register(
    "PK310",
    ShapeError,
    "size `{size}` is {first} in {place} but {second} in {other}{sizes}",
)
EXTENT_DIFFERS = register(
    "PK323",
    ShapeError,
    "dimension {dimension} of `{tensor}` is {second}, and its declaration says {first}{sizes}",
    "give an array of the declared shape, or declare a name for the extent, such as {symbol}",
)
BAD_SIZE = register("PK311", ShapeError, "size `{size}` {why}")
TOO_LARGE = register(
    "PK312",
    ShapeError,
    "`{tensor}` with shape {shape} is too large: extents, elements and bytes have to be below 2^62",
)
NOTHING_TO_CHOOSE = register(
    "PK313",
    ShapeError,
    "`{op}` runs over nothing{sizes}, so there is no index to give",
    "make its range non-empty",
)
EMPTY_NEIGHBOUR = register(
    "PK314",
    ShapeError,
    "index `{index}` has no range from `{access}`: the other indices of the subscript have no values{sizes}",
    "give it one: `for {index} in 0:N`",
)
GATHERED_TARGET = register(
    "PK315",
    ShapeError,
    "`{tensor}` is written through a gather, so its shape has to be declared",
    "declare it on a line of its own, such as `{tensor}: f32[N]`, or make it a parameter and an output",
)
BAD_CONDITION = register(
    "PK316",
    ShapeError,
    "`{text}` cannot be a condition of `where`",
    "conditions are comparisons of affine expressions, joined by `and`, `or` and `not`",
)
ARGUMENT_TYPES = register("PK317", ShapeError, "{why}")
EMPTY_PAD = register(
    "PK318",
    ShapeError,
    "`{access}` pads with `{mode}`, but dimension {dimension} of `{tensor}` has no elements{sizes}",
    "use a constant: `pad=0`",
)
TOO_MANY_INDICES = register("PK320", ShapeError, "a statement has {count} indices; at most {limit} are taken")
NO_EXTENT = register(
    "PK321",
    ShapeError,
    "the extent of dimension {dimension} of `{tensor}` cannot be told{why}",
    "declare the tensor's shape on a line of its own, such as `{tensor}: f32[N]`",
)
EMPTY_RANGE = register(
    "PK322",
    ShapeError,
    "`{tensor}` has no elements that a statement writes{sizes}, so its shape is not that of the other sizes",
    "compile for fixed sizes, or declare the tensor's shape",
)
INDEX_TOO_WIDE = register(
    "PK324",
    ShapeError,
    "`{text}` computes numbers of 2^62 or more; those of subscripts, bounds and conditions have to stay below{sizes}",
    "use smaller coefficients, or give a smaller range by `for`",
)
ISL_FAILED = register("PK390", CompileError, "the stage `{stage}` failed in isl: {why}")
ISL_QUOTA = register(
    "PK391",
    CompileError,
    "the stage `{stage}` needs more isl operations than its quota of {quota}",
    "give sizes as numbers: what has to hold of symbols can be too much to work out",
)
