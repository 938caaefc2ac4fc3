"""The operations of statements: what one instance computes, times the number of instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from polyker.explain.amounts import Amounts
from polyker.explain.report import Amount, StatementWork
from polyker.ir.expr import BITWISE, COMPARISONS, DOTS, Call, Cast, Expr, Literal, Read
from polyker.ir.functions import cost_of
from polyker.ir.instructions import MEANINGS
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.ir.typed_printing import print_expr
from polyker.machine.model import Gpu, Target
from polyker.poly.isl import read_set

_UPDATES = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}
_SIGNS = {"set": "=", "add": "+=", "mul": "*="}
_FLOPS = ("add", "mul", "div")
_DOT_FLOPS = {op: 2 * r.terms - 1 for op, r in MEANINGS.items()}  # products of narrow integers, added up
_REAL = {"add": 2, "mul": 6, "div": 11}  # a complex operation in real ones
_CHAINED = ("minimum", "maximum", "and", "or", "div", "floordiv", "mod", *BITWISE[:3])


def each(statement: TypedStatement, *, once: bool = False) -> Counter[str]:
    """Return the operations of one instance by name; the arithmetic of subscripts is left out.

    `once`: equal subexpressions count once, as they are computed.
    """
    found: Counter[str] = Counter(_operations(statement.expr, once))
    if statement.op != "set":
        found[_UPDATES[statement.op]] += 1
    return found


def _operations(expr: Expr, once: bool) -> Iterator[str]:
    stack = [expr]
    known: set[Expr] = set()
    while stack:
        node = stack.pop()
        if once:
            if node in known:
                continue
            known.add(node)
        match node:
            case Read():
                continue
            case Cast(arg=arg):
                stack.append(arg)
            case Call(op="add" | "mul" as op, args=args):
                yield from (op for _ in args[1:])
                # a + (-b) is one subtraction.
                stack += [a.args[0] if op == "add" and isinstance(a, Call) and a.op == "neg" else a for a in args]
            case Call(op="pow", args=(base, Literal(value=2))):
                yield "mul"
                stack.append(base)
            case Call(op=op, args=args):
                count = len(args) - 1 if op in _CHAINED else 1
                yield from (op for _ in range(count))
                stack += args


def flops(operations: Mapping[str, int], statement: TypedStatement) -> int:
    """Return the additions, multiplications and divisions of one instance, of real numbers."""
    factor = _REAL if statement.acc.kind == "c" else _DOT_FLOPS
    return sum(operations.get(name, 0) * factor.get(name, 1) for name in (*_FLOPS, *DOTS))


def instructions(operations: Mapping[str, int]) -> int:
    """Return the vector instructions of one instance at the least: multiplications go with additions."""
    products = ("mul", *DOTS)
    fused = max(operations.get("add", 0), sum(operations.get(name, 0) for name in products))
    others = (n * cost_of(name).least for name, n in operations.items() if name not in ("add", *products))
    return fused + sum(others)


def work_of(
    program: TypedProgram, amounts: Amounts, names: Mapping[str, str], labels: Mapping[str, str]
) -> list[StatementWork]:
    """Return what each statement computes; those that compute nothing are left out."""
    found = []
    for s in program.statements():
        operations = each(s)
        if not operations:
            continue
        instances, exact = amounts(read_set(s.domain))
        functions: dict[str, Amount] = {}
        for name, n in operations.items():
            if name not in _FLOPS:
                shown = "comparisons" if name in COMPARISONS else name
                functions[shown] = functions.get(shown, 0) + n * instances
        text = statement_text(s, labels)
        found.append(StatementWork(names[s.name], text, instances, flops(operations, s) * instances, functions, exact))
    return found


def statement_text(s: TypedStatement, labels: Mapping[str, str]) -> str:
    """Return a statement in the notation, without its domain."""
    subscripts = ", ".join(print_expr(e, labels) for e in s.subscripts)
    left = f"{labels[s.target]}[{subscripts}]" if s.subscripts else labels[s.target]
    return f"{left} {_SIGNS.get(s.op, s.op + '=')} {print_expr(s.expr, labels)}"


def cycles(program: TypedProgram, amounts: Amounts, target: Target) -> Amount:
    """Return the least cycles that the arithmetic of a program takes on one core; on a GPU, products on its matrix units."""
    total: Amount = 0
    for s in program.statements():
        count = instructions(each(s, once=True))
        if count:
            instances, _ = amounts(read_set(s.domain))
            by_cycle = target.lanes(s.acc.itemsize) * target.fma_per_cycle
            matrix = None if target.gpu is None else _matrix_rate(program, s, target.gpu)
            if target.gpu is not None and matrix is not None:
                pairs = matrix / (
                    2 * target.gpu.clock * target.gpu.processors
                )  # products and sums of one core in a cycle
                total += instances / max(pairs, by_cycle)
                count -= 1
            total += instances * count / by_cycle
    return total


def _matrix_rate(program: TypedProgram, statement: TypedStatement, gpu: Gpu) -> float | None:
    """Return the operations a second of the matrix units on a sum of products of two arrays, None where it is no such sum.

    The operands are of one element type, as they lie in memory.
    """
    match statement.expr:
        case Call(op="mul", args=(left, right)) if statement.op == "add" and statement.reduced:
            operands = [_uncast(a) for a in (left, right)]
        case _:
            return None
    if not all(isinstance(a, Read) and a.subscripts for a in operands):
        return None
    types = {program.tensor(a.tensor).dtype.name for a in operands if isinstance(a, Read)}
    return gpu.matrix_rate({"u8": "i8"}.get(name := types.pop(), name)) if len(types) == 1 else None


def _uncast(expr: Expr) -> Expr:
    while isinstance(expr, Cast):
        expr = expr.arg
    return expr


def total_flops(program: TypedProgram, amounts: Amounts) -> Amount | None:
    """Return the flops of a program, equal values of an instance computed once; None where they cannot be told exactly."""
    total: Amount = 0
    for s in program.statements():
        n = flops(each(s, once=True), s)
        if n:
            instances, exact = amounts(read_set(s.domain))
            if not exact:
                return None
            total += n * instances
    return total
