"""NumPy's functions on the builder's expressions: those that the notation has make expressions, others say what to write.

`np.exp(x)`, `np.add(a, b)` and `np.where(c, a, b)` come here by NumPy's protocols `__array_ufunc__` and `__array_function__`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from polyker.einsum_frontend.actions import check_arity
from polyker.einsum_frontend.elsewhere import WRITTEN
from polyker.einsum_frontend.syntax import bits, chain, compare, inverted, power
from polyker.errors.base import PolykerError, failure
from polyker.errors.syntax import NUMPY_FUNCTION
from polyker.ir.expr import REDUCTIONS, Call, Expr, Literal
from polyker.ir.functions import TABLE

_BINARY = {
    "add": "add", "multiply": "mul", "divide": "div", "floor_divide": "floordiv", "remainder": "mod", "left_shift": "shift_left",
    "right_shift": "shift_right", "logical_and": "and", "logical_or": "or",
}  # fmt: skip
_BITS = {"bitwise_and": "bit_and", "bitwise_or": "bit_or", "bitwise_xor": "bit_xor"}
_COMPARED = {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne"}
_UNARY: dict[str, Callable[[Expr], Expr]] = {
    "negative": lambda x: Call("neg", (x,)),
    "positive": lambda x: x,
    "invert": inverted,
    "logical_not": lambda x: Call("not", (x,)),
    "square": lambda x: power(x, Literal(2)),
}
# Functions by names of NumPy's and SciPy's that mean the very same, NaN and integers included.
_SAME = {alias: f.name for f in TABLE.values() for alias in f.aliases if alias not in ("fabs", "fmin", "fmax")}
_REDUCED = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
    "logaddexp": "logsumexp", "amax": "max", "amin": "min", "average": "mean",
}  # fmt: skip
_PRODUCTS = ("matmul", "dot", "vdot", "inner", "outer", "tensordot", "einsum", "vecdot", "matvec", "vecmat", "kron")


def applied(name: str, args: Sequence[Expr], options: Mapping[str, object], method: str = "__call__") -> Expr:
    """Return what a function of NumPy makes of expressions; raises ParseError where the notation has none such.

    `options`: its keywords, of which none is taken. `method`: of a ufunc, such as "reduce".
    """
    if method != "__call__" or options:
        raise _refused(name, args, method if method != "__call__" else f"{next(iter(options))}=")
    two, one = len(args) == 2, len(args) == 1
    if two and name in _BINARY:
        return chain(args[0], [(_BINARY[name], args[1])])
    if two and name == "subtract":
        return chain(args[0], [("add", Call("neg", (args[1],)))])
    if two and name in _BITS:
        return bits(args[0], [(_BITS[name], args[1])])
    if two and name in _COMPARED:
        return compare(args, (_COMPARED[name],))
    if two and name == "power":
        return power(*args)
    if one and name in _UNARY:
        return _UNARY[name](args[0])
    ours = _SAME.get(name, name)
    if ours not in TABLE:
        raise _refused(name, args)
    check_arity(ours, len(args))
    return Call(ours, tuple(args))


def _refused(name: str, args: Sequence[Expr], part: str = "") -> PolykerError:
    """Return the error for a function of NumPy that makes no expression; `part`: its method or keyword that does not."""
    if name in _PRODUCTS:
        hint = "write the sum of products: C[i, j].add(A[i, k] * B[k, j])"
    elif (part in ("reduce", "accumulate") or name in REDUCTIONS or name in _REDUCED) and part != "out=":
        hint = f"a reduction runs over indices: pk.{_REDUCED.get(name, name)}(k, value)"
    elif not part and (name, len(args)) in WRITTEN:
        hint = f"write {WRITTEN[name, len(args)].format('x', 'y', 'z')}, functions as pk.exp"
    elif part:
        hint = "functions take expressions alone"
    else:
        hint = f"the functions are {', '.join(TABLE)}"
    return failure(NUMPY_FUNCTION, hint=hint, name=f"np.{name}", part=f" with {part}" if part else "")
