"""Sizes and shapes of the arguments: what each dimension is, what each size of the program is, and that they agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from polyker.errors.base import PolykerError, failure
from polyker.errors.shapes import (
    ARGUMENT_TYPES,
    BAD_SIZE,
    EXTENT_DIFFERS,
    NOT_AFFINE,
    SIZE_DISAGREES,
    TOO_LARGE,
    WRONG_RANK,
)
from polyker.errors.types import DECLARED_TYPE
from polyker.ir.dtypes import DType, TensorType
from polyker.ir.expr import Expr, Literal, Range, SizeExpr, transform, walk
from polyker.ir.program import Declared, Loop, Node, Program
from polyker.poly.affine import Affine, NotAffine, affine_of, constant, expr_of
from polyker.poly.binding.context import BindingContext
from polyker.poly.binding.declaring import size_from_extent
from polyker.poly.binding.subjects import source_text

# Extents and bytes of a tensor stay below it, so that no 64-bit product of a kernel wraps (polyker.runtime.kinds checks the
# same).
SIZE_LIMIT = 1 << 62


def argument_shapes(
    context: BindingContext, program: Program, types: Mapping[str, TensorType]
) -> dict[str, tuple[Affine, ...]]:
    """Return each input's extents; names of dimensions become symbolic sizes.

    Raises:
        ShapeError: for a missing or unknown tensor, a negative extent, or one of 2^62 or more.
        DTypeError: for an argument of another type than the declared one.
    """
    missing = [t for t in program.inputs if t not in types]
    unknown = [t for t in types if t not in program.inputs]
    if missing or unknown:
        why = f"no type for `{missing[0]}`" if missing else f"`{unknown[0]}` is no input"
        raise failure(ARGUMENT_TYPES, why=f"{why}; the inputs are {', '.join(program.inputs) or 'none'}")
    shapes = {}
    for tensor in program.inputs:
        given, declared = types[tensor], program.declaration(tensor)
        wanted = declared.dtype if declared is not None else None
        if declared is not None and wanted is not None and not _takes(wanted, given):
            span = declared.span
            raise failure(DECLARED_TYPE, span=span, tensor=tensor, declared=wanted, found=given.dtype)
        for d in given.shape:
            if isinstance(d, int) and d < 0:
                raise failure(BAD_SIZE, size=f"{tensor}'s extent", why=f"is negative: {d}")
        context.from_shapes |= {d for d in given.shape if isinstance(d, str)}
        shapes[tensor] = tuple(constant(d) if isinstance(d, int) else context.symbol(d) for d in given.shape)
        check_large(context, tensor, shapes[tensor], given.dtype.itemsize)
    return shapes


def _takes(declared: DType, given: TensorType) -> bool:
    """Whether a declared type takes an argument: the same type, or a Python scalar of the same or a lesser kind."""
    if not given.weak:
        return declared == given.dtype
    kinds = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    return kinds[given.dtype.kind] <= kinds[declared.kind]


def bind_sizes(
    context: BindingContext, program: Program, shapes: dict[str, tuple[Affine, ...]], sizes: Mapping[str, int | str]
) -> dict[str, Affine]:
    """Return the value of each size of the program; declared shapes of inputs bind them, `sizes` gives the others.

    Raises:
        ShapeError: where two places disagree, or a size is not given.
    """
    for name in sizes:
        if name not in program.sizes:
            raise failure(
                BAD_SIZE, size=name, why=f"is none of the operator's: {', '.join(program.sizes) or 'it has none'}"
            )
    values: dict[str, Affine] = {}
    places: dict[str, str] = {}
    for tensor, declared in _declared_inputs(program):
        assert declared.shape is not None
        if len(declared.shape) != len(shapes[tensor]):
            shown = "[" + ", ".join(context.show(e) for e in shapes[tensor]) + "]"
            rank = len(declared.shape)
            raise failure(
                WRONG_RANK,
                span=declared.span,
                access=f"the declaration of {tensor}",
                subscripts=rank,
                tensor="the argument",
                rank=len(shapes[tensor]),
                shape=shown,
            )
        for d, (dimension, extent) in enumerate(zip(declared.shape, shapes[tensor], strict=True)):
            if isinstance(dimension, SizeExpr) and dimension.name not in values:
                values[dimension.name], places[dimension.name] = extent, _place(d, tensor)
    for name in program.sizes:
        if name in sizes:
            given = _given(context, name, sizes[name], name in values)
            if name in values:
                agree = {"size": name, "first": context.show(values[name]), "place": places[name]}
                second, other = context.show(given), f"`{name}=`"
                context.require(("eq", values[name] - given), SIZE_DISAGREES, None, second=second, other=other, **agree)
            else:
                values[name] = given
        elif name not in values:
            raise _not_given(program, name)
    for tensor, declared in _declared_inputs(program):
        _agree(context, tensor, declared, shapes[tensor], values, places)
    return values


def _not_given(program: Program, name: str) -> PolykerError:
    """Return the error for a size that neither a shape nor the caller gives, at the place where it stands first."""
    bounds = (b for r in _ranges(program.body) for b in (r.lo, r.hi) if b is not None)
    parts = (e for s in program.statements() for e in (*s.subscripts, s.expr, *s.conditions))
    spans = (e.span for part in (*bounds, *parts) for e in walk(part) if isinstance(e, SizeExpr) and e.name == name)
    text = size_from_extent(program, name)
    hint = None if text is None else f"or take it from the extent of an argument: `{text}`"
    why = f"is not given: pass it by keyword, `{name}=...`"
    return failure(BAD_SIZE, span=next((s for s in spans if s is not None), None), hint=hint, size=name, why=why)


def _ranges(body: Iterable[Node]) -> Iterator[Range]:
    for node in body:
        yield from (node.range, *_ranges(node.body)) if isinstance(node, Loop) else node.ranges


def _declared_inputs(program: Program) -> list[tuple[str, Declared]]:
    found = ((t, program.declaration(t)) for t in program.inputs)
    return [(t, d) for t, d in found if d is not None and d.shape is not None]


def _given(context: BindingContext, name: str, value: int | str, bound: bool) -> Affine:
    if isinstance(value, str):
        form = context.symbol(value)
        if not bound and value not in context.from_shapes:
            context.demand_size(form, name)
        return form
    return constant(int(value))


def _agree(
    context: BindingContext,
    tensor: str,
    declared: Declared,
    shape: tuple[Affine, ...],
    values: Mapping[str, Affine],
    places: Mapping[str, str],
) -> None:
    assert declared.shape is not None
    for d, (dimension, extent) in enumerate(zip(declared.shape, shape, strict=True)):
        form = size_form(context, dimension, values)
        span, first, second = dimension.span or declared.span, context.show(form), context.show(extent)
        differ = ("eq", form - extent)
        if isinstance(dimension, SizeExpr) and dimension.name in places:
            name, place, other = dimension.name, places[dimension.name], _place(d, tensor)
            context.require(
                differ, SIZE_DISAGREES, span, size=name, first=first, place=place, second=second, other=other
            )
            continue
        symbol = next(n for n in (*"NMKLPQ", f"{tensor}_{d}") if n not in values)
        said = first if isinstance(dimension, Literal) else f"{source_text(dimension.span) or first}, which is {first}"
        context.require(
            differ, EXTENT_DIFFERS, span, dimension=d, tensor=tensor, first=said, second=second, symbol=symbol
        )


def _place(dimension: int, tensor: str) -> str:
    return f"dimension {dimension} of `{tensor}`"


def size_form(context: BindingContext, expr: Expr, values: Mapping[str, Affine]) -> Affine:
    """Return an expression of sizes alone, such as a declared extent, as a form."""

    try:
        return affine_of(transform(expr, lambda e: expr_of(values[e.name]) if isinstance(e, SizeExpr) else e))
    except NotAffine as error:
        text = source_text(expr.span) or "the extent"
        raise context.error(NOT_AFFINE, error.expr.span or expr.span, text=text, why=error.why) from None


def declared_shapes(
    context: BindingContext, program: Program, values: Mapping[str, Affine]
) -> dict[str, tuple[Affine, ...]]:
    """Return the extents of outputs and temporaries that the program declares."""
    shapes = {}
    for declared in program.types:
        if declared.shape is None or declared.name in program.inputs:
            continue
        shape = tuple(size_form(context, e, values) for e in declared.shape)
        for extent in shape:
            context.require(("ge", extent), BAD_SIZE, declared.span, size=context.show(extent), why="is negative")
        shapes[declared.name] = shape
    return shapes


def check_large(context: BindingContext, tensor: str, shape: tuple[Affine, ...], itemsize: int) -> None:
    """Raise ShapeError where an extent, the elements or the bytes of a tensor are 2^62 or more; symbols count as 1."""
    elements, empty = 1, False
    for extent in shape:
        if extent.is_constant:
            empty = empty or extent.const == 0
            if extent.const >= SIZE_LIMIT:
                elements = SIZE_LIMIT
            elements *= max(extent.const, 1)
    # No code has numbers of more than 64 bits, whatever the symbols stand for.
    wide = any(abs(number) >= SIZE_LIMIT for e in shape for number in (e.const, *(factor for _, factor in e.terms)))
    if wide or (elements * itemsize >= SIZE_LIMIT and not empty):
        shown = f"[{', '.join(context.show(e) for e in shape)}]"
        raise failure(TOO_LARGE, tensor=tensor, shape=shown)
