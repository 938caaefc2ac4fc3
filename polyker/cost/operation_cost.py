"""What the arithmetic of one instance of a statement costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from polyker.cost.measure import MeasuredStatement
from polyker.cost.plan import is_costly, values
from polyker.ir.expr import DOTS, Call, Expr, Read
from polyker.ir.functions import cost_of
from polyker.machine.model import Target

# Least operations for each element of the inputs, to check these for NaN beforehand (polyker.codegen.passes.x86.checked_inputs;
# chosen).
MIN_OPERATIONS_PER_INPUT = 32
# Operations that pass through the pipes of multiply-adds, and through any, where additions have others (`Target.add_pipes`);
# of functions only what is one instruction.
MULTIPLIES = ("mul", "multiply_add", "pow", "lt", "le", "gt", "ge", "eq", "ne")
EITHER = ("abs", "neg", "where", "and", "or", "not")
# Operations that an instruction holds up which brings an operand, broadcast or transposed (measured on znver4).
BROADCAST_OPERATIONS = 2.0


class Arithmetic(Struct, frozen=True):
    """The operations of one instance, in multiply-adds, and how many a core does in a cycle.

    `multiplies`: those that need the pipes of multiply-adds where additions have as many others, which are told apart
    (polyker.codegen.passes.x86.balance_ports); None where all take the same ones. `in_memory`: what one operation alone takes,
    which may broadcast it.
    """

    operations: float
    rate: float
    multiplies: float | None
    in_memory: frozenset[Read] = frozenset()

    def cycles(self, vectors: float, moves: float = 0.0) -> float:
        """Return the cycles of so many vectors; `moves`: instructions that bring operands, which any pipe takes."""
        if self.multiplies is None:
            return vectors * self.operations / self.rate
        return max(vectors * self.multiplies / self.rate, vectors * self.operations / 2 / self.rate + self.taken(moves))

    def taken(self, moves: float) -> float:
        """Return the cycles that instructions which bring operands take of full pipes."""
        return 0.0 if self.multiplies is None else BROADCAST_OPERATIONS * moves / 2 / self.rate


def arithmetic(measured: MeasuredStatement, target: Target) -> Arithmetic:
    """Return what the arithmetic of one instance of a statement takes."""
    count, statement = operations(measured), measured.statement
    steps = list(_steps(statement.expr))
    nodes = [e for e, _ in steps]
    floats = statement.acc.kind == "f" and all(e.dtype is None or e.dtype.kind in "fb" for e in nodes)
    products = sum(n for e, n in steps if e.op in MULTIPLIES)
    separate = target.has_separate_adders and statement.reduced and floats and count > products
    if not separate or any(map(is_costly, nodes)):
        return Arithmetic(count, target.fma_per_cycle, None)
    others = sum(n for e, n in steps if e.op in EITHER)
    # A sum or an extremum alone stays where it is.
    balanced = (count - others) / 2 if count - others > 1 else count - others
    # Of an extremum of extrema a part is by comparisons and choices, which take their operands twice.
    twice = ("maximum", "minimum") if statement.op in ("max", "min") else ()
    found = Counter(a for e in nodes for a in _signless(e) * (2 if e.op in twice else 1))
    once = frozenset(a for a, n in found.items() if n == 1 and isinstance(a, Read))
    return Arithmetic(count, target.fma_per_cycle, max(products, balanced), once)


def scalar_cost(measured: MeasuredStatement) -> float:
    """Return the cycles for one point of the iteration domain without vectors."""
    return 1.0 + 0.7 * len(measured.accesses) + operations(measured)


def operations(measured: MeasuredStatement) -> float:
    """Return the arithmetic of one instance in multiply-adds; a product that is summed is one."""
    expr, one = measured.statement.expr, 2 if measured.statement.acc.is_complex else 1
    count = sum(steps * _parts_of(e) for e, steps in _steps(expr))
    fused = ("mul", "pow", *DOTS)
    if measured.statement.op == "add" and isinstance(expr, Call) and expr.op in fused and not is_costly(expr):
        return max(count, float(one))
    return count + one * (measured.statement.op != "set")


def _steps(expr: Expr) -> Iterator[tuple[Call, float]]:
    """Yield the operations of a value, with the multiply-adds that each takes of each real part."""
    nodes = [e for e in values(expr) if isinstance(e, Call)]
    differences = {id(x) for e in nodes if e.op == "add" for x in e.args if _is_negated(x)}
    for e in nodes:
        if e.op not in DOTS and id(e) not in differences:
            plain = 1 if e.op == "multiply_add" else max(1, len(e.args) - 1)
            yield e, float(cost_of(e.op).usual if is_costly(e) else plain)


def _signless(call: Call) -> tuple[Expr, ...]:
    """Return the operands of an operation, those of a sum without their signs."""
    if call.op != "add":
        return call.args
    return tuple(a.args[0] if isinstance(a, Call) and _is_negated(a) else a for a in call.args)


def _is_negated(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.op == "neg"


def _parts_of(call: Call) -> int:
    """Return how many real operations one of a call's stands for: a complex product is four multiply-adds, a sum two."""
    if call.dtype is None or not call.dtype.is_complex:
        return 1
    return 4 if call.op in ("mul", "pow") else 2


def takes_pairs(measured: MeasuredStatement, target: Target) -> bool:
    """Whether the terms of an extremum of floats are taken two at a time and tested for NaN
    (polyker.codegen.passes.x86.pair_extrema)."""
    statement = measured.statement
    term = isinstance(statement.expr, Call) and statement.expr.op not in ("maximum", "minimum")
    pairs = statement.op in ("max", "min") and statement.acc.kind == "f" and term and target.pairs_extrema
    return pairs and not _are_looked_through(measured)


def _are_looked_through(measured: MeasuredStatement) -> bool:
    """Whether there are so many terms that inputs are looked through for NaN beforehand, and the terms taken without tests."""
    elements = {a.tensor: measured.footprint(a) for a in measured.accesses if a.read is not None}
    work = measured.points * operations(measured)
    return all(hi is not None for _, hi in measured.bounds.values()) and work >= MIN_OPERATIONS_PER_INPUT * sum(
        elements.values()
    )
