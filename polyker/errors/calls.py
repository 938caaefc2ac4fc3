"""What can be wrong with a call: arguments, options and results (codes PK7xx)."""

from __future__ import annotations

from polyker.errors.base import (
    ArgumentError,
    BackendUnavailable,
    CompileTimeout,
    DTypeError,
    HostError,
    InternalError,
    ParseError,
    PathError,
    ShapeError,
    register,
)

ACCEPTED_TYPES = "f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool c64 c128"

# Arguments.
MISSING = register(
    "PK701", ArgumentError, "argument `{name}` is missing: the operator takes {parameters}", "give `{name}`"
)
TOO_MANY = register("PK702", ArgumentError, "{given} arguments are given, the operator takes {count}: {parameters}")
UNKNOWN_NAME = register(
    "PK703",
    ArgumentError,
    "`{name}` is no argument of the operator",
    "{meant}arguments: {parameters}; sizes: {sizes}; options, of `compile` or `polyker.options`: {options}",
)
GIVEN_TWICE = register("PK704", ArgumentError, "argument `{name}` is given twice, by position and by name")
MIXED_KINDS = register(
    "PK705",
    ArgumentError,
    "`{first}` is a {first_kind} array and `{second}` a {second_kind} array",
    "convert all arrays to one kind; the kind of the first decides what comes back",
)
BAD_DTYPE = register(
    "PK706",
    DTypeError,
    "`{name}` of shape {shape} has the element type {dtype}, which polyker has not",
    f"accepted are {ACCEPTED_TYPES}",
)
ON_DEVICE = register(
    "PK707", ArgumentError, "`{name}` lies in the memory of {device}, the kernel runs on the CPU", "copy it to the CPU"
)
REQUIRES_GRAD = register(
    "PK708",
    ArgumentError,
    "`{name}` requires grad, and polyker records no gradient",
    "pass `{name}.detach()` where no gradient has to flow",
)
NOT_AN_ARRAY = register(
    "PK709",
    ArgumentError,
    "`{name}` is a {type}, not an array",
    "arrays are what has __dlpack__, __array_interface__, __array__ or a buffer of numbers, numbers, and nested lists of numbers",
)
NOT_READABLE = register("PK710", ArgumentError, "`{name}`, a {type}, cannot be read as an array: {reason}")
MASKED = register(
    "PK711",
    ArgumentError,
    "`{name}` is a masked array",
    "give `{array}.filled(0)`, with the value that is meant, or `{array}.data`, which has all elements",
)
BAD_SCALAR = register("PK712", DTypeError, "`{name}` = {value} does not fit the type {dtype}")
SCALAR_RANGE = register(
    "PK713",
    DTypeError,
    "`{name}` = {value} meets integers of a type that holds {low} to {high}",
    "convert the other operand first, such as `i64(...)`, or give a NumPy scalar such as `np.int64({value})`",
)

# Results.
OUT_NOT_ARRAY = register(
    "PK720", ArgumentError, "`out` for `{name}` is a {type}, not an array that can be written", "pass an array"
)
OUT_SHAPE = register("PK721", ShapeError, "`out` for `{name}` has shape {shape}, the result has {wanted}")
OUT_DTYPE = register("PK722", DTypeError, "`out` for `{name}` has the element type {dtype}, the result has {wanted}")
OUT_READ_ONLY = register("PK723", ArgumentError, "`out` for `{name}` is read-only")
OUT_OVERLAPS_ITSELF = register(
    "PK724", ArgumentError, "`out` for `{name}` overlaps itself: shape {shape}, strides {strides} bytes"
)
OUTS_OVERLAP = register("PK725", ArgumentError, "`out` for `{first}` and `out` for `{second}` overlap")
OUT_COUNT = register(
    "PK726",
    ArgumentError,
    "`out` is {given}, the operator has the outputs {outputs}",
    "pass a tuple or a dict of arrays",
)

OUT_NOT_IN_PLACE = register(
    "PK727",
    ArgumentError,
    "`out` for `{name}`, a {type}, cannot be written in place: {reason}",
    "write to an array whose memory holds its values, such as one of NumPy's, and copy from it",
)
NO_RESULT_KIND = register(
    "PK728",
    ArgumentError,
    "the result cannot become an array of {library}, as the {type} given is: {reason}",
    "pass `out`, or convert the arguments to NumPy's arrays",
)

# Shapes and sizes.
KERNEL_SHAPE = register(
    "PK730",
    ShapeError,
    "`{name}` has shape {shape}, the kernel was compiled for {wanted}",
    "compile for this shape, or for symbolic sizes such as `{symbolic}`",
)
KERNEL_DTYPE = register("PK731", DTypeError, "`{name}` is {given}, the kernel was compiled for {wanted}")
SIZE_CONFLICT = register(
    "PK732", ShapeError, "size `{size}` is {first} by {first_place}, and {second} by {second_place}"
)
SIZE_MISSING = register(
    "PK733",
    ArgumentError,
    "size `{size}` is not known",
    "give it by keyword: `{size}=...`, or declare it as the extent of an argument, such as f(X: [{size}]) -> Y:",
)
BAD_SIZE = register("PK734", ArgumentError, "size `{size}` is {value}, not an integer of 0 or more, below 2^62")
TOO_LARGE = register(
    "PK735", ShapeError, "`{name}` of shape {shape} and type {dtype} reaches over {bytes} bytes; the limit is 2^62"
)
SCRATCH = register(
    "PK736",
    ShapeError,
    "the temporaries {names} need {bytes} bytes, more than {limit}, a quarter of the memory",
    "raise it by `polyker.options.scratch_bytes`",
)

NO_SUCH_SIZE = register("PK737", ArgumentError, "`{name}` is no size of the operator", "{meant}sizes: {sizes}")

# Options and targets.
BAD_OPTION = register("PK740", ArgumentError, "option `{name}` is {value}", "accepted: {accepted}")
UNKNOWN_OPTION = register("PK741", ArgumentError, "there is no option `{name}`", "{meant}options: {known}")
NO_TARGET = register("PK742", BackendUnavailable, "target `{target}` cannot run here: {reason}")
TIMEOUT = register(
    "PK743", CompileTimeout, "compiling took longer than {seconds} s (at {stage})", "raise it by `timeout=`"
)
NOT_AN_OPERATOR = register(
    "PK744",
    ArgumentError,
    "an operator is made from a text or from statements of the builder, not from {type}",
    "{advice}",
)
BAD_TYPE = register(
    "PK745",
    ArgumentError,
    "`{name}` is {value}, neither an array nor a type",
    'write for example pk.f32[64, 32] or "f32[64,32]"',
)
BAD_DIMENSION = register(
    "PK749",
    ArgumentError,
    "{value} is no extent of a type",
    "an extent is a whole number or the name of a size: pk.f32[64, 'N']",
)
NO_STAGE = register("PK746", ArgumentError, "a kernel for {target} has no stage `{stage}`", "{meant}stages: {stages}")
KERNEL_STATUS = register("PK747", InternalError, "the kernel returned the unknown status {status}")
BAD_PARALLEL_FOR = register(
    "PK748",
    ArgumentError,
    "parallel_for is a {type}",
    "give a C function as ctypes has it, or its address as an integer",
)

BAD_USER = register("PK752", ArgumentError, "the `user` of parallel_for is a {type}", "give an address, or None")
BAD_ARGUMENT = register("PK753", ArgumentError, "`{name}` is a {type}, not {wanted}")
PARTS = register(
    "PK750",
    HostError,
    "the host's parallel_for returned when {left} of {participants} indices had run{more}",
    "it has to call `function(context, i)` once for each i in [begin, end), and to return when all calls have; a Python "
    "function that raises has not",
)
HOST_RETURNED = register(
    "PK751", HostError, "the host's parallel_for returned {status}", "0 is what says that all calls returned 0"
)

INTERNAL = register(
    "PK799",
    InternalError,
    "{error}: {reason}",
    "this is a bug of polyker; please report it with the operator: {operator}",
)

# numpy's einsum strings. Messages follow numpy's where its users match on them.
EINSUM_SYNTAX = register("PK760", ParseError, "einsum: {problem}")
EINSUM_OPERANDS = register("PK761", ArgumentError, "einsum: {terms} subscript terms are given for {operands} operands")
EINSUM_RANK = register(
    "PK762", ShapeError, "einsum: operand {operand} has {ndim} dimensions, its subscripts `{term}` name {count}"
)
EINSUM_EXTENT = register(
    "PK763",
    ShapeError,
    "einsum: dimension {dimension} of operand {operand}, label '{label}', has extent {extent}, elsewhere it is {other}",
)
EINSUM_ARGUMENT = register("PK764", ArgumentError, "einsum: {problem}")
EINSUM_CAST = register(
    "PK765", DTypeError, "einsum: {what} cannot be cast from {source} to {target} according to the rule '{casting}'"
)
EINSUM_TYPE = register("PK766", DTypeError, "einsum: {problem}")
EINSUM_BROADCAST = register(
    "PK767", ShapeError, "einsum: the dimensions that `...` stands for do not broadcast: {shapes}"
)
EINSUM_LIMIT = register("PK768", ParseError, "einsum: {what} {count}, the limit is {limit}")
EINSUM_PATH = register("PK769", PathError, "einsum: {problem}")
