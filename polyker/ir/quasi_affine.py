"""Quasi-affine index expressions: printing for isl, arithmetic that keeps them small, coefficients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read, SizeExpr, transform, walk


def lit(value: int) -> Literal:
    """Return an integer constant of type i64."""
    return Literal(value, i64)


def index(name: str) -> IndexExpr:
    """Return the value of an iterator."""
    return IndexExpr(name, i64)


def indices(names: Iterable[str]) -> tuple[Expr, ...]:
    """Return the values of iterators, such as the subscripts of an element of a tensor whose dimensions they walk."""
    return tuple(map(index, names))


def renaming(names: Mapping[str, str]) -> dict[str, Expr]:
    """Return what stands for iterators, by name, that get other names."""
    return {old: index(new) for old, new in names.items()}


def add(*terms: Expr) -> Expr:
    """Return the sum, constants folded."""
    constant = 0
    rest: list[Expr] = []
    for term in terms:
        match term:
            case Literal(value=value):
                constant += int(value.real)
            case Call(op="add", args=args):
                for a in args:
                    if isinstance(a, Literal):
                        constant += int(a.value.real)
                    else:
                        rest.append(a)
            case _:
                rest.append(term)
    if constant or not rest:
        rest.append(lit(constant))
    return rest[0] if len(rest) == 1 else Call("add", tuple(rest), i64)


def scale(factor: int, term: Expr) -> Expr:
    """Return `factor * term`."""
    if factor == 1:
        return term
    if isinstance(term, Literal) or factor == 0:
        return lit(factor * int(term.value.real) if isinstance(term, Literal) else 0)
    return Call("mul", (lit(factor), term), i64)


def subtract(a: Expr, b: Expr) -> Expr:
    """Return `a - b`."""
    return add(a, scale(-1, b))


def floordiv(a: Expr, divisor: int) -> Expr:
    """Return `floor(a / divisor)`."""
    if divisor == 1:
        return a
    match a:
        case Literal(value=value):
            return lit(int(value.real) // divisor)
        case Call(op="floordiv", args=(inner, Literal(value=value))):
            return floordiv(inner, int(value.real) * divisor)
    return Call("floordiv", (a, lit(divisor)), i64)


def mod(a: Expr, divisor: int) -> Expr:
    """Return `a mod divisor`, in [0, divisor)."""
    if divisor == 1:
        return lit(0)
    return lit(int(a.value.real) % divisor) if isinstance(a, Literal) else Call("mod", (a, lit(divisor)), i64)


def is_quasi_affine(expr: Expr) -> bool:
    """Whether an expression holds no gather: typed subscripts are quasi-affine otherwise."""
    return not any(isinstance(e, (Read, Cast)) for e in walk(expr))


def print_affine(expr: Expr) -> str:
    """Return the text of a quasi-affine expression in isl's syntax, over its generated names."""
    match expr:
        case Literal(value=value):
            return str(int(value.real))
        case IndexExpr(name=name) | SizeExpr(name=name):
            return name
        case Call(op="add", args=args):
            return "(" + " + ".join(print_affine(a) for a in args) + ")"
        case Call(op="neg", args=(a,)):
            return f"(-{print_affine(a)})"
        case Call(op="mul", args=args):
            constants = [a for a in args if isinstance(a, Literal)]
            others = [a for a in args if not isinstance(a, Literal)]
            factor = 1
            for c in constants:
                factor *= int(c.value.real)
            if len(others) > 1:
                raise ValueError("not quasi-affine: a product of two variables")
            return f"({factor} * {print_affine(others[0])})" if others else str(factor)
        case Call(op="floordiv", args=(a, Literal(value=value))):
            return f"floor({print_affine(a)}/{int(value.real)})"
        case Call(op="mod", args=(a, Literal(value=value))):
            return f"({print_affine(a)} mod {int(value.real)})"
        case Call(op="minimum" | "maximum" as op, args=args):
            return f"{op[:3]}({', '.join(print_affine(a) for a in args)})"
        case _:
            raise ValueError(f"not quasi-affine: {expr!r}")


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Return `expr` with each index that `values` names replaced."""
    return transform(expr, lambda e: values.get(e.name, e) if isinstance(e, IndexExpr) else e)


def coefficients(expr: Expr) -> dict[str, int] | None:
    """Return the coefficient of each index and size (constant under ""), or None where `expr` is not affine."""
    match expr:
        case Literal(value=value):
            return {"": int(value.real)}
        case IndexExpr(name=name) | SizeExpr(name=name):
            return {name: 1}
        case Call(op="add", args=args):
            total: dict[str, int] = {}
            for a in args:
                part = coefficients(a)
                if part is None:
                    return None
                for k, v in part.items():
                    total[k] = total.get(k, 0) + v
            return total
        case Call(op="neg", args=(a,)):
            part = coefficients(a)
            return None if part is None else {k: -v for k, v in part.items()}
        case Call(op="mul", args=args):
            product: dict[str, int] = {"": 1}
            for a in args:
                part = coefficients(a)
                if part is None:
                    return None
                if set(product) <= {""}:
                    factor, product = product.get("", 0), part
                elif set(part) <= {""}:
                    factor = part.get("", 0)
                else:
                    return None
                product = {k: factor * v for k, v in product.items()}
            return product
        case _:
            return None


def indices_of(expr: Expr) -> frozenset[str]:
    """Return the names of the indices that an expression uses."""
    return frozenset(e.name for e in walk(expr) if isinstance(e, IndexExpr))
