"""The arrays that a kernel is called with: their order, and extents and strides in Kernel IR."""

from __future__ import annotations

from polyker.codegen.ir.kernel import Buffer, Const, KExpr, Op, Space, Var
from polyker.errors.base import InternalError
from polyker.ir.expr import Call, Expr, Literal, SizeExpr
from polyker.ir.layout import DENSE, Layout
from polyker.ir.typed import Role, TypedProgram, TypedTensor
from polyker.record.records import Integer


def argument_names(program: TypedProgram) -> tuple[str, ...]:
    """Return the tensors whose pointers the kernel takes, inputs before outputs; an in-out one is among the outputs."""
    inputs = tuple(t for t in program.inputs if program.tensor(t).role is Role.INPUT)
    return inputs + program.outputs


def stride_name(tensor: str, dimension: int) -> str:
    """Return the name of the integer that holds a stride."""
    return f"{tensor}_s{dimension}"


def integer_name(integer: Integer) -> str:
    """Return the name of an integer in the kernel: a size's own, or a stride's."""
    return integer.name if integer.dimension is None else stride_name(integer.name, integer.dimension)


def argument_buffer(tensor: TypedTensor, layout: Layout) -> tuple[Buffer, list[Integer]]:
    """Return the buffer of an argument, and the strides that the caller passes."""
    shape = tuple(map(extent, tensor.shape))
    strides, strided = strides_of(tensor.name, shape, layout)
    buffer = Buffer(tensor.name, tensor.dtype, shape, strides, Space.ARGUMENT, tensor.role is not Role.INPUT)
    return buffer, [Integer(tensor.name, d) for d in strided]


def scratch_buffer(tensor: TypedTensor) -> Buffer:
    """Return the buffer of a temporary that the run time lends memory for."""
    shape = tuple(map(extent, tensor.shape))
    return Buffer(tensor.name, tensor.dtype, shape, strides_of(tensor.name, shape, DENSE)[0], Space.SCRATCH)


def extent(expr: Expr) -> KExpr:
    """Return an extent (an expression over sizes) in Kernel IR."""
    match expr:
        case Literal(value=value):
            return Const(int(value.real))
        case SizeExpr(name=name):
            return Var(name)
        case Call(op=op, args=args):
            return Op(op, tuple(extent(a) for a in args))
        case _:
            raise InternalError(f"{type(expr).__name__} has no place in an extent")


def strides_of(name: str, shape: tuple[KExpr, ...], layout: Layout) -> tuple[tuple[KExpr, ...], tuple[int, ...]]:
    """Return the strides of an argument and the dimensions whose stride the caller passes."""
    if not layout.dense:
        passed = tuple(d for d in range(len(shape)) if d != layout.unit)
        return tuple(Const(1) if d == layout.unit else Var(stride_name(name, d)) for d in range(len(shape))), passed
    strides: dict[int, KExpr] = {}
    product: KExpr = Const(1)
    for d in reversed(layout.order or range(len(shape))):
        size = shape[d]
        strides[d] = product
        match product, size:
            case Const(value=a), Const(value=b):
                product = Const(int(a.real) * int(b.real))
            case Const(value=1), _:
                product = size
            case _:
                product = Op("mul", (product, size))
    return tuple(strides[d] for d in range(len(shape))), ()
