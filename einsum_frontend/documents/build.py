"""From the nodes of a document to what the grammar and the builder make, too: a program whose names are not resolved yet."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from polyker.einsum_frontend.actions import check_arity, check_dots
from polyker.einsum_frontend.names import MAX_INDICES, TREE_DEPTH, check_name, did_you_mean
from polyker.einsum_frontend.syntax import Header, Syntax, bits, chain, compare, conjuncts, inverted, power
from polyker.errors.base import PolykerError, Source, Span, failure, located
from polyker.errors.syntax import BAD_PROGRAM, EMPTY, NUMBER_TOO_LARGE, TOO_MANY_INDICES, TREE_TOO_DEEP, WRONG_ARITY
from polyker.ir.document.nodes import (
    BoolJson,
    CallJson,
    CastJson,
    ComplexJson,
    DotsJson,
    ExprJson,
    FloatJson,
    IndexJson,
    IntJson,
    LoopJson,
    NodeJson,
    NumberJson,
    PadJson,
    ProgramJson,
    RangeJson,
    ReadJson,
    ReduceJson,
    SizeJson,
    StatementJson,
    TensorJson,
)
from polyker.ir.dtypes import DTYPES, DType, bool_
from polyker.ir.expr import (
    COMPARISONS,
    FUNCTIONS,
    REDUCTIONS,
    Call,
    Cast,
    Dots,
    Expr,
    IndexExpr,
    Literal,
    Pad,
    Range,
    Read,
    Reduce,
    SizeExpr,
)
from polyker.ir.program import UPDATES, Declared, Loop, Node, Statement
from polyker.structs import replace

T = TypeVar("T")
R = TypeVar("R")
_CHAINED = ("add", "mul", "div", "floordiv", "mod", "shift_left", "shift_right", "and", "or")
_BITS = ("bit_and", "bit_or", "bit_xor")
# Operators by how many arguments they take.
_PAIRS, _SINGLE = frozenset(COMPARISONS), frozenset(("neg", "not", "bit_not"))
_SEVERAL = frozenset((*_CHAINED, *_BITS, "pow"))
OPERATIONS = (*_CHAINED, *_BITS, "pow", *COMPARISONS, "neg", "not", "bit_not", *FUNCTIONS)
_DIGITS = re.compile(r"-?[0-9]{1,20}\Z")


class DocumentSyntax:
    """Makes the syntax of a document. With `marked`, each node's span tells its place by the number where it starts.

    `names`: what each name is, "tensor", "index" or "size", with the place where it stands first.
    """

    def __init__(self, document: ProgramJson, *, marked: bool = False) -> None:
        self.document = document
        self.places: list[str] = []
        self._source = Source("") if marked else None
        self.names: dict[str, tuple[str, str]] = {}

    def place_of(self, span: Span | None) -> str | None:
        """Return the place that a span tells; None for another's."""
        return self.places[span.start] if span is not None and span.source is self._source else None

    def named(self, kind: str) -> frozenset[str]:
        """Return the names of a kind."""
        return frozenset(name for name, (found, _) in self.names.items() if found == kind)

    def syntax(self) -> Syntax:
        """Return the program as written; raises ParseError with the place of what is wrong."""
        said = self.document
        for name in said.fixed:
            self._name(name, "size", "fixed")
        tensors = {"inputs": said.inputs, "outputs": said.outputs, "temporaries": said.temporaries}
        declared = {key: [self._declared(t, f"{key}[{k}]") for k, t in enumerate(v)] for key, v in tensors.items()}
        types = self._types(declared)
        header = None
        if said.name is not None:
            name = self._checked(said.name, "name")
            outputs = [replace(d, dtype=None, shape=None) if d.name in self._inputs else d for d in declared["outputs"]]
            parameters = list(self._parameters({d.name: d for d in types}))
            header = Header(name, tuple(parameters), tuple(outputs))
            of_header = {d.name for d in (*parameters, *outputs)}
            types = [d for d in types if d.name not in of_header]
        body = self._body(said.body, "body", 0)
        return Syntax(header, body, tuple(types))

    @property
    def _inputs(self) -> list[str]:
        return [t.name for t in self.document.inputs]

    # Names.

    @contextmanager
    def _at(self, place: str) -> Iterator[None]:
        """Let what is wrong be said of a place."""
        try:
            yield
        except PolykerError as problem:
            raise located(problem, place) from None

    def _mark(self, place: str) -> Span | None:
        if self._source is None:
            return None
        self.places.append(place)
        return Span(self._source, len(self.places) - 1, len(self.places))

    def _checked(self, name: str, place: str) -> str:
        with self._at(place):
            return check_name(name)

    def _name(self, name: str, kind: str, place: str) -> str:
        known, first = self.names.setdefault(name, (kind, place))
        if first == place:
            self._checked(name, place)
        if known != kind:
            raise _wrong(f"`{name}` is of the kind {kind} here, and of the kind {known} at `{first}`", place)
        return name

    # Declarations.

    def _declared(self, tensor: TensorJson, place: str) -> Declared:
        self._name(tensor.name, "tensor", f"{place}.name")
        dtype: DType | None = None
        shape: tuple[Expr, ...] | None = None
        if tensor.type is not None:
            within = f"{place}.type"
            dtype = None if tensor.type.dtype is None else _dtype(tensor.type.dtype, f"{within}.dtype")
            if tensor.type.shape is not None:
                each = enumerate(tensor.type.shape)
                shape = tuple(self._extent(e, f"{within}.shape[{d}]") for d, e in each)
        return Declared(tensor.name, dtype, shape, self._mark(place))

    def _extent(self, extent: int | str | ExprJson, place: str) -> Expr:
        if isinstance(extent, int):
            return self._expr(IntJson(extent), place, 0)
        if isinstance(extent, str):
            return SizeExpr(self._name(extent, "size", place), span=self._mark(place))
        return self._expr(extent, place, 0)

    def _types(self, declared: dict[str, list[Declared]]) -> list[Declared]:
        """Return the tensors with a type, each once, in the order that the document says."""
        found: dict[str, Declared] = {}
        for key, each in declared.items():
            for k, d in enumerate(each):
                if d.dtype is None and d.shape is None:
                    continue
                if found.setdefault(d.name, d) != d:
                    raise _wrong(f"the type of `{d.name}` is another elsewhere", f"{key}[{k}].type")
        order = self.document.declarations
        if order is None:
            return list(found.values())
        if sorted(order) != sorted(found):
            raise _wrong("these are not the tensors that have a type, each once", "declarations")
        return [found[name] for name in order]

    def _parameters(self, types: dict[str, Declared]) -> Iterator[Declared]:
        """Yield the parameters of a declared program: inputs, and sizes that are given among them."""
        given, inputs = self.document.parameters, self._inputs
        if given is None:
            given = tuple(inputs)
        absent = [name for name in inputs if name not in given]
        if absent:
            raise _wrong(f"the input `{absent[0]}` is missing", "parameters")
        for k, name in enumerate(given):
            place = f"parameters[{k}]"
            self._name(name, "tensor" if name in inputs else "size", place)
            yield replace(types.get(name, Declared(name)), span=self._mark(place))

    # Statements.

    def _body(self, body: Sequence[NodeJson], place: str, depth: int) -> tuple[Node, ...]:
        if not body:
            raise located(failure(EMPTY), place)
        if depth > MAX_INDICES:
            raise located(failure(TOO_MANY_INDICES, count=depth, limit=MAX_INDICES), place)
        return tuple(self._node(node, f"{place}[{k}]", depth) for k, node in enumerate(body))

    def _node(self, node: NodeJson, place: str, depth: int) -> Node:
        if isinstance(node, LoopJson):
            extent = self._range(RangeJson(node.index, node.lo, node.hi), place, 0)
            return Loop(extent, self._body(node.body, f"{place}.body", depth + 1), self._mark(place))
        return self._statement(node, place)

    def _statement(self, node: StatementJson, place: str) -> Statement:
        if node.op not in UPDATES:
            hint = f"there are {', '.join(UPDATES)}"
            raise _wrong(f"no statement has the operation `{node.op}`", f"{place}.op", hint)
        ranges = self._each(self._range, node.ranges, f"{place}.ranges", 0)
        for k, extent in enumerate(ranges):
            if extent.lo is None:
                raise _wrong(f"the range of `{extent.index}` needs `lo` and `hi`", f"{place}.ranges[{k}]")
        return Statement(
            self._name(node.target, "tensor", f"{place}.target"),
            self._subscripts(node.subscripts, f"{place}.subscripts", 0),
            node.op,
            self._expr(node.expr, f"{place}.expr", 0),
            ranges,
            self._conditions(node.conditions, f"{place}.conditions", 0),
            self._mark(place),
            self._mark(f"{place}.target"),
        )

    def _range(self, extent: RangeJson, place: str, depth: int) -> Range:
        if (extent.lo is None) != (extent.hi is None):
            raise _wrong(f"the range of `{extent.index}` has one of `lo` and `hi`", place)
        index = self._name(extent.index, "index", f"{place}.index")
        lo, hi = (
            None if e is None else self._expr(e, f"{place}.{key}", depth)
            for key, e in (("lo", extent.lo), ("hi", extent.hi))
        )
        return Range(index, lo, hi, self._mark(place))

    def _conditions(self, conditions: Sequence[ExprJson], place: str, depth: int) -> tuple[Expr, ...]:
        return tuple(part for c in self._each(self._expr, conditions, place, depth) for part in conjuncts(c))

    def _subscripts(self, subscripts: Sequence[ExprJson], place: str, depth: int) -> tuple[Expr, ...]:
        found = self._each(self._subscript, subscripts, place, depth)
        with self._at(place):
            check_dots(found)
        return found

    def _subscript(self, node: ExprJson, place: str, depth: int) -> Expr:
        return Dots(span=self._mark(place)) if isinstance(node, DotsJson) else self._expr(node, place, depth)

    @staticmethod
    def _each(make: Callable[[T, str, int], R], nodes: Sequence[T], place: str, depth: int) -> tuple[R, ...]:
        return tuple([make(node, f"{place}[{k}]", depth) for k, node in enumerate(nodes)])

    # Expressions.

    def _expr(self, node: ExprJson, place: str, depth: int) -> Expr:
        """Return an expression; `depth`: of the nodes around it."""
        if depth >= TREE_DEPTH:
            raise located(failure(TREE_TOO_DEEP, limit=TREE_DEPTH), place)
        found = self._made(node, place, depth + 1)
        return found if self._source is None else replace(found, span=self._mark(place))

    def _made(self, node: ExprJson, place: str, depth: int) -> Expr:
        match node:
            case IndexJson(name=name):
                return IndexExpr(self._name(name, "index", f"{place}.name"))
            case SizeJson(name=name):
                return SizeExpr(self._name(name, "size", f"{place}.name"))
            case ReadJson(tensor=tensor, subscripts=subscripts, pad=pad):
                self._name(tensor, "tensor", f"{place}.tensor")
                within = self._subscripts(subscripts, f"{place}.subscripts", depth)
                return Read(tensor, within, None if pad is None else _padding(pad, f"{place}.pad"))
            case CallJson(op=op, args=args):
                with self._at(f"{place}.op"):
                    _check_operation(op, len(args))
                return _applied(op, self._each(self._expr, args, f"{place}.args", depth))
            case CastJson(to=to, arg=arg):
                return Cast(_dtype(to, f"{place}.to"), self._expr(arg, f"{place}.arg", depth))
            case ReduceJson(op=op, ranges=ranges, body=body, conditions=conditions):
                if op not in REDUCTIONS or not ranges:
                    why = "a reduction needs an index" if op in REDUCTIONS else f"there is no reduction `{op}`"
                    raise _wrong(why, f"{place}.{'ranges' if op in REDUCTIONS else 'op'}", did_you_mean(op, REDUCTIONS))
                each = self._each(self._range, ranges, f"{place}.ranges", depth)
                value = self._expr(body, f"{place}.body", depth)
                return Reduce(op, each, value, self._conditions(conditions, f"{place}.conditions", depth))
            case DotsJson():
                raise _wrong("`...` stands among subscripts alone", place)
            case _:
                return _constant(_number(node, place))


def _wrong(reason: str, place: str, hint: str | None = None) -> PolykerError:
    return located(failure(BAD_PROGRAM, hint=hint, reason=reason), place)


def _dtype(name: str, place: str) -> DType:
    if name not in DTYPES:
        raise _wrong(f"there is no element type `{name}`", place, did_you_mean(name, DTYPES))
    return DTYPES[name]


def _check_operation(op: str, count: int) -> None:
    """Raise ParseError for an operation that is none, or that takes another number of arguments."""
    if op in FUNCTIONS:
        return check_arity(op, count)
    if op not in OPERATIONS:
        raise failure(BAD_PROGRAM, hint=did_you_mean(op, OPERATIONS), reason=f"there is no operation `{op}`")
    if op in _SEVERAL:
        if count < 2:
            raise failure(WRONG_ARITY, name=op, wanted="2 or more", count=count)
    elif count != (wanted := 2 if op in _PAIRS else 1):
        raise failure(WRONG_ARITY, name=op, wanted=wanted, count=count)
    return None


def _applied(op: str, args: tuple[Expr, ...]) -> Expr:
    """Return what the text of an operation with these arguments is read as."""
    first, *rest = args
    if op in _CHAINED:
        return chain(first, [(op, arg) for arg in rest])
    if op in _BITS:
        return bits(first, [(op, arg) for arg in rest])
    if op in _PAIRS:
        return compare(args, [op])
    if op == "bit_not":
        return inverted(first)
    if op == "pow":
        exponent = args[-1]
        for base in reversed(args[:-1]):
            exponent = power(base, exponent)
        return exponent
    return Call(op, args)


def _number(node: NumberJson, place: str) -> bool | int | float | complex:
    """Return the number that a node holds."""
    match node:
        case IntJson(value=value):
            if isinstance(value, str) and not _DIGITS.match(value):
                raise _wrong("an integer is a number, or a text of up to 20 digits", f"{place}.value")
            if abs(int(value)) >= 2**64:
                width = f"of {int(value).bit_length()} bits"
                raise located(failure(NUMBER_TOO_LARGE, text=width, advice="an integer has 64 bits"), place)
            return int(value)
        case FloatJson(value=value):
            return math.nan if value == "nan" else float(value)  # one NaN, so that equal programs compare equal
        case ComplexJson(real=real, imag=imag):
            return complex(real, imag)
        case BoolJson(value=value):
            return value


def _constant(number: bool | int | float | complex) -> Expr:
    """Return a number as an expression: its sign is an operator, as in a text."""
    if isinstance(number, bool):
        return Cast(bool_, Literal(int(number)))
    if isinstance(number, complex):
        imaginary = _signed(complex(0.0, abs(number.imag)), number.imag)
        real = _signed(abs(number.real), number.real)
        return imaginary if number.real == 0 else Call("add", (real, imaginary))
    return Literal(number) if number != number else _signed(abs(number), number)


def _signed(size: int | float | complex, sign: int | float) -> Expr:
    return Call("neg", (Literal(size),)) if math.copysign(1, sign) < 0 else Literal(size)


def _padding(pad: PadJson, place: str) -> Pad:
    if (pad.mode == "constant") != (pad.value is not None):
        raise _wrong("a constant has a `value`, the other ways to pad have none", place)
    return Pad(pad.mode, None if pad.value is None else Literal(_number(pad.value, f"{place}.value")))
