"""Typed expressions and isl's AST expressions as Kernel IR expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import islpy as isl
from msgspec import Struct, field

from polyker.codegen.ir.kernel import Const, Convert, Guard, KExpr, Let, Load, Op, Stmt, Var
from polyker.codegen.ir.simplify_index import IndexRange, simplify_expression
from polyker.codegen.ir.walk import subexpressions
from polyker.errors import InternalError
from polyker.ir.dtypes import DType, bool_, i64
from polyker.ir.expr import COMPARISONS, Call, Cast, Expr, IndexExpr, Literal, Read, SizeExpr

_AST_OPS = {
    "add": "add", "sub": "sub", "mul": "mul", "minus": "neg", "min": "minimum", "max": "maximum", "div": "floordiv",
    "fdiv_q": "floordiv", "pdiv_q": "floordiv", "pdiv_r": "mod", "zdiv_r": "mod", "eq": "eq", "le": "le", "lt": "lt",
    "ge": "ge", "gt": "gt", "and_": "and", "and_then": "and", "or_": "or", "or_else": "or", "cond": "where", "select": "where",
}  # fmt: skip
# Least operands of which a tree is made instead of a tower (chosen).
_MIN_BALANCED_OPERANDS = 32
_BOOLEAN = {"eq", "le", "lt", "ge", "gt", "and", "or"}


def from_ast(expr: isl.AstExpr) -> KExpr:
    """Return isl's AST expression (64-bit integers, booleans) as a Kernel IR expression."""
    kind = isl.ast_expr_type(expr.get_type())
    if kind == isl.ast_expr_type.int:
        return Const(expr.get_val().get_num_si())
    if kind == isl.ast_expr_type.id:
        return Var(expr.get_id().get_name())
    op = isl.ast_expr_op_type(expr.get_op_type())
    name = _AST_OPS.get(op.name)
    if name is None:
        raise InternalError(f"isl gave the operation {op.name}, which is not expected here")
    if name in ("and", "or") and len(chain := _operands(expr)) > _MIN_BALANCED_OPERANDS:
        return _balanced(name, tuple(map(condition_from_ast, chain)), bool_)
    conditions = {"and": expr.get_op_n_arg(), "or": expr.get_op_n_arg(), "where": 1}.get(name, 0)
    args = tuple(
        (condition_from_ast if n < conditions else from_ast)(expr.get_op_arg(n)) for n in range(expr.get_op_n_arg())
    )
    if name in ("minimum", "maximum") and len(args) > 2:
        if len(args) > _MIN_BALANCED_OPERANDS:
            return _balanced(name, args, i64)
        folded = args[0]
        for a in args[1:]:
            folded = Op(name, (folded, a))
        return folded
    return Op(name, args, bool_ if name in _BOOLEAN else i64)


def _operands(expr: isl.AstExpr) -> list[isl.AstExpr]:
    """Return the operands of a tower of one operation, as isl makes of many conditions: each in the next one's first argument."""
    kind, found = expr.get_op_type(), list[isl.AstExpr]()
    while isl.ast_expr_type(expr.get_type()) == isl.ast_expr_type.op and expr.get_op_type() == kind:
        found += [expr.get_op_arg(n) for n in reversed(range(1, expr.get_op_n_arg()))]
        expr = expr.get_op_arg(0)
    return [expr, *reversed(found)]


def _balanced(op: str, args: tuple[KExpr, ...], dtype: DType) -> KExpr:
    """Return operands joined by a tree as low as can be: what walks it recurses."""
    if len(args) == 1:
        return args[0]
    middle = len(args) // 2
    return Op(op, (_balanced(op, args[:middle], dtype), _balanced(op, args[middle:], dtype)), dtype)


def condition_from_ast(expr: isl.AstExpr) -> KExpr:
    """Return isl's AST expression as a boolean: isl writes true, false and what depends on a condition as integers."""
    found = from_ast(expr)
    return found if found.dtype == bool_ else Op("ne", (found, Const(0)), bool_)


def ast_arguments(expr: isl.AstExpr) -> tuple[str, tuple[KExpr, ...]]:
    """Return the name and the arguments of isl's call or access expression."""
    head = expr.get_op_arg(0).get_id().get_name()
    return head, tuple(from_ast(expr.get_op_arg(n)) for n in range(1, expr.get_op_n_arg()))


class ExpressionLowering(Struct):
    """Lowers the expressions of one statement instance.

    `iterators`: the values of the statement's iterators here. `place`: a promoted read's buffer and indices in it, or None.
    `shape`: a tensor's extents. `inside`: whether a subscript of a padded read is proven in bounds (below, above).
    `guard_code`: the status for a gather (tensor, dimension). `ranges`: of the loops around.
    `setup` collects the Lets and Guards that come before the value.
    """

    iterators: Mapping[str, KExpr]
    place: Callable[[Read], tuple[str, tuple[KExpr, ...]] | None]
    shape: Callable[[str], tuple[KExpr, ...]]
    inside: Callable[[Read, int], tuple[bool, bool]]
    guard_code: Callable[[str, int, Expr], int]
    fresh: Callable[[], str]
    ranges: Mapping[str, IndexRange] = field(default_factory=dict)
    setup: list[Stmt] = field(default_factory=list)
    gathered: dict[tuple[KExpr, KExpr], Var] = field(default_factory=dict)

    def lower(self, expr: Expr) -> KExpr:
        """Return the Kernel IR of a typed expression."""
        match expr:
            case Literal(value=value, dtype=dtype):
                return Const(value, dtype or i64)
            case IndexExpr(name=name):
                return self.iterators[name]
            case SizeExpr(name=name):
                return Var(name)
            case Cast(arg=arg, to=to):
                lowered = self.lower(arg)
                return lowered if arg.dtype == to else Convert(lowered, to)
            case Call(op=op, args=args, dtype=dtype):
                kind = bool_ if op in COMPARISONS else (dtype or i64)
                return Op(op, tuple(map(self.lower, args)), kind)
            case Read():
                return self.read(expr)
            case _:
                raise InternalError(f"{type(expr).__name__} has no place in a lowered statement")

    def read(self, read: Read) -> KExpr:
        """Return the load of a read, with what its padding needs."""
        dtype = read.dtype
        assert dtype is not None
        promoted = self.place(read)
        if read.pad is None:
            buffer, element = promoted or (read.tensor, self.element(read.tensor, read.subscripts))
            return Load(buffer, element, dtype)
        extents = self.shape(read.tensor)
        indices = tuple(self.lower(s) for s in read.subscripts)
        if read.pad.mode != "constant":
            fold = _FOLDS[read.pad.mode]
            kept = tuple(
                i if all(self.inside(read, d)) else fold(i, e)
                for d, (i, e) in enumerate(zip(indices, extents, strict=True))
            )
            return Load(read.tensor, kept, dtype)
        tests: list[KExpr] = []
        for d, (index, extent) in enumerate(zip(indices, extents, strict=True)):
            above_zero, below_end = self.inside(read, d)
            if not above_zero:
                tests.append(Op("ge", (index, Const(0)), bool_))
            if not below_end:
                tests.append(Op("lt", (index, extent), bool_))
        # A buffer holds the elements inside alone, so that a promoted read is tested against the tensor's extents too.
        buffer, element = promoted or (read.tensor, indices)
        if not tests:
            return Load(buffer, element, dtype)
        predicate = tests[0] if len(tests) == 1 else Op("and", tuple(tests), bool_)
        assert read.pad.value is not None
        return Load(buffer, element, dtype, predicate, Const(read.pad.value.value, dtype))

    def element(self, tensor: str, subscripts: tuple[Expr, ...]) -> tuple[KExpr, ...]:
        """Return the indices of an access; gathered ones are bound to a name and guarded against the extent."""
        extents = self.shape(tensor)
        found: list[KExpr] = []
        for d, subscript in enumerate(subscripts):
            gathered = _is_gathered(subscript)
            found.append(self._gathered(tensor, d, subscript, extents[d]) if gathered else self._place(subscript))
        return tuple(found)

    def _place(self, subscript: Expr) -> KExpr:
        """Return an index; quotients and remainders by what the loops around say, so that contiguous elements are seen as
        such."""
        index = self.lower(subscript)
        divides = any(isinstance(e, Op) and e.op in ("floordiv", "mod") for e in subexpressions(index))
        return simplify_expression(index, self.ranges) if divides else index

    def _gathered(self, tensor: str, dimension: int, subscript: Expr, extent: KExpr) -> KExpr:
        value = self.lower(subscript)
        known = self.gathered.get((value, extent))
        if known is not None:  # what is in bounds of one tensor is in bounds of all that are as long
            return known
        name = self.fresh()
        self.setup.append(Let(name, value))
        index = self.gathered[value, extent] = Var(name)
        inside = Op("and", (Op("ge", (index, Const(0)), bool_), Op("lt", (index, extent), bool_)), bool_)
        self.setup.append(Guard(inside, self.guard_code(tensor, dimension, subscript)))
        return index


def _is_gathered(expr: Expr) -> bool:
    match expr:
        case Read():
            return True
        case Cast(arg=arg):
            return _is_gathered(arg)
        case Call(args=args):
            return any(map(_is_gathered, args))
        case _:
            return False


def _edge(index: KExpr, extent: KExpr) -> KExpr:
    last = Op("sub", (extent, Const(1)))
    return Op("minimum", (Op("maximum", (index, Const(0))), last))


def _wrap(index: KExpr, extent: KExpr) -> KExpr:
    return Op("mod", (index, extent))


def _reflect(index: KExpr, extent: KExpr) -> KExpr:
    # Period 2(n-1); a single element reflects to itself, and x mod 0 is 0.
    period = Op("mul", (Const(2), Op("sub", (extent, Const(1)))))
    within = Op("mod", (index, period))
    return Op("minimum", (within, Op("sub", (period, within))))


_FOLDS: dict[str, Callable[[KExpr, KExpr], KExpr]] = {"edge": _edge, "wrap": _wrap, "reflect": _reflect}
