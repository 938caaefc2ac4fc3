"""Catalogue of what can be wrong in the text of an operator, or in what the builder is given: codes PK1xx."""

from __future__ import annotations

from polyker.errors.base import ParseError, ShapeError, register


class ReductionWarning(UserWarning):
    """A term of a reduction's right side lacks a reduced index, so it is added once for each of its values."""


# The text: its size and its characters.
NOT_TEXT = register("PK100", ParseError, "an operator is text, not {type}", "pk.op takes a str or built statements")
TEXT_TOO_LONG = register("PK101", ParseError, "the text has {length} characters, the limit is {limit}")
STATEMENT_TOO_LONG = register("PK152", ParseError, "the statement that begins here has more than {limit} characters")
BAD_CHARACTER = register("PK102", ParseError, "character {point} ({name}) cannot stand in an operator", "delete it")
LOOK_ALIKE = register(
    "PK103",
    ParseError,
    "`{character}` is {point} ({name}), not an ASCII character",
    "names are ASCII",
)
NAME_TOO_LONG = register("PK104", ParseError, "the name `{name}...` has {length} characters, the limit is {limit}")
TOO_DEEP = register("PK105", ParseError, "brackets are nested more than {limit} deep", "split the statement in two")
TREE_TOO_DEEP = register(
    "PK106", ParseError, "the expression is more than {limit} operators deep", "split the statement in two"
)
TREE_TOO_LARGE = register("PK107", ParseError, "the expression has more than {limit} parts", "a < b < c counts b twice")
TOO_MANY_STATEMENTS = register("PK108", ParseError, "the program has more than {limit} statements", "split it")
TOO_MANY_OPERANDS = register("PK109", ParseError, "the program has {count} {what}, the limit is {limit}")
TOO_MANY_INDICES = register("PK110", ParseError, "the statement has {count} indices, the limit is {limit}")
TOO_MANY_ITEMS = register("PK111", ParseError, "more than {limit} items in one pair of brackets")
BAD_NUMBER = register("PK112", ParseError, "`{text}` is not a number", "a product is {number} * {rest}")
NUMBER_TOO_LARGE = register("PK113", ParseError, "the number {text} is too large", "{advice}")
COEFFICIENT_TOO_LARGE = register("PK114", ParseError, "the {what} {value} is beyond the limit {limit}")
BAD_SYMBOL = register("PK115", ParseError, "`{symbol}` is not in the notation")
UNCLOSED = register("PK116", ParseError, "`{bracket}` is never closed", "add a `{closing}`")
MISMATCHED = register("PK117", ParseError, "found `{found}` where {wanted}")
BAD_INDENT = register("PK118", ParseError, "the indentation {problem}", "{advice}")

# The grammar.
EMPTY = register("PK119", ParseError, "the text holds no statement", "write for example C[i,j] += A[i,k] * B[k,j]")
UNEXPECTED = register("PK120", ParseError, "found {found}; expected {expected}")
RESERVED = register("PK121", ParseError, "`{name}` is {kind} and cannot be used as a name", "choose another name")
UNKNOWN_FUNCTION = register(
    "PK122", ParseError, "there is no function `{name}`", "a tensor takes square brackets: {name}[...]"
)
WRONG_ARITY = register("PK123", ParseError, "`{name}` takes {wanted} argument(s), found {count}")
REDUCTION_CALLED = register(
    "PK124", ParseError, "`{name}` is a reduction and needs the indices it runs over", "write {name}[k](...)"
)
BAD_PAD = register(
    "PK125", ParseError, "`{found}` is not a way to pad", "write pad= and a constant, or edge, wrap or reflect"
)
TWO_DOTS = register("PK126", ParseError, "`...` stands twice in one subscript", "write it once")
DOTS_NOT_ON_LEFT = register(
    "PK127",
    ShapeError,
    "`...` is on the right only, so the result lacks its dimensions",
    "write {left}[...]",
)
NOT_AFFINE = register(
    "PK128",
    ParseError,
    "{what} cannot stand in {place}",
    "there stand integer sums of indices and sizes, // and %",
)
BAD_CONDITION = register(
    "PK129",
    ParseError,
    "a condition of `where` compares indices and sizes, or reads values",
    "write for example where j <= i",
)
VALUE_CONDITION = register(
    "PK151",
    ParseError,
    "a condition that reads values does not say which elements of `{target}` are assigned by `=`",
    "choose the value: where(c, a, b)",
)

# Names: indices, sizes, tensors.
NOT_ON_LEFT = register(
    "PK130",
    ShapeError,
    "index `{index}` is only on the right of `=`, so it has no value to assign",
    "write `{left} += ...` to sum over {index}, or sum[{index}](...)",
)
RANK = register(
    "PK131",
    ShapeError,
    "tensor `{tensor}` has {found} subscript(s) here and {wanted} elsewhere",
    "it has one rank",
)
NOT_IN_SCOPE = register("PK132", ShapeError, "index `{index}` has no value here: {why}", "{advice}")
REUSED = register(
    "PK133", ParseError, "index `{index}` of this {what} is already an index around it", "give it another name"
)
SIZE_AS_INDEX = register("PK134", ParseError, "`{name}` is a size and cannot be an index too", "rename the index")
TENSOR_AS_INDEX = register(
    "PK135",
    ParseError,
    "`{name}` is a tensor; in {place} a bare name is an index or a size",
    "write `{name}[]`",
)
INDEX_AS_TENSOR = register(
    "PK156",
    ParseError,
    "`{name}` is an index, and has no subscripts",
    "the value of an index is `{name}` alone; a tensor needs another name",
)
DUPLICATE = register("PK136", ParseError, "{what} `{name}` is given twice", "give it once")
PAD_ON_LEFT = register("PK138", ParseError, "`pad` stands on the left, where nothing is read", "take it away")
UNDEFINED_OUTPUT = register(
    "PK139", ParseError, "{what} `{name}` is never defined", "write a statement with {name} on its left"
)
UNUSED_PARAMETER = register("PK140", ParseError, "parameter `{name}` is never used", "take it out of the parameters")
ASSIGNED_INPUT = register(
    "PK141",
    ParseError,
    "parameter `{name}` is assigned but is no output",
    "write it after `->` too",
)
READ_TOO_EARLY = register(
    "PK142",
    ParseError,
    "tensor `{name}` is read before any statement defines it",
    "define it first, or declare it a parameter and an output: f({name}) -> {name}:",
)
UNKNOWN_NAME = register(
    "PK143", ParseError, "`{name}` is neither a parameter nor defined by a statement", "add it to the parameters"
)
NO_OUTPUT = register(
    "PK144", ParseError, "every tensor is read by another statement, so none is an output", "declare: f(...) -> C:"
)
TENSOR_NEEDED = register("PK145", ParseError, "`{name}` is {kind}, not a tensor", "rename the one or the other")
NOT_A_NAME = register("PK146", ParseError, "{name} is not a name", "names are letters, digits and _, no digit first")
CYCLIC = register("PK147", ShapeError, "the range of index `{index}` depends on itself", "break the circle")
ONE_INDEX = register(
    "PK148", ParseError, "`{name}` gives the value of one index, found {count} indices", "write {name}[k](...)"
)

# The builder.
TRUTH = register(
    "PK149",
    ParseError,
    "an expression has no truth value",
    "write & | ~ of comparisons for and, or, not; (a < b) & (b < c) for a < b < c; where(c, a, b) for if; maximum(a, b) for max",
)
NOT_AN_EXPRESSION = register("PK150", ParseError, "{value} is not an expression of the notation: {why}")
NUMPY_FUNCTION = register("PK153", ParseError, "`{name}`{part} makes no expression of the notation")
NO_VALUE = register(
    "PK154",
    ParseError,
    "an expression has no value as {kind}: it is computed when the operator is called",
    "functions of expressions are polyker's, such as pk.exp(x)",
)
NO_MEANING = register("PK155", ParseError, "`{operation}` has no meaning for expressions", "{advice}")

# JSON documents.
BAD_PROGRAM = register(
    "PK170",
    ParseError,
    "this is no program: {reason}",
    "`Operator.to_json` writes the form, and docs/reference/json.md has a table of it",
)
