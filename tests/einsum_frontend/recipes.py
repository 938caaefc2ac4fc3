"""Random valid programs as recipes, and each recipe spelt twice: as text and with the builder."""

from __future__ import annotations

from random import Random

from polyker.einsum_frontend import builder
from polyker.ir.dtypes import DTYPES
from polyker.ir.expr import FUNCTIONS, REDUCTIONS
from polyker.ir.functions import TABLE

SIZES = ("N", "M")
_ARITHMETIC = ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>")
_COMPARE = ("<", "<=", ">", ">=", "==", "!=")
_UPDATES = {
    "=": "set",
    "+=": "add",
    "*=": "mul",
    "max=": "max",
    "min=": "min",
    "any=": "any",
    "all=": "all",
    "logsumexp=": "logsumexp",
}


class Maker:
    """Makes recipes: nested tuples, `(kind, ...)`. Inputs are named by their rank, so that ranks agree."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.fresh = 0
        self.defined: list[tuple[str, int]] = []

    def name(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}_{self.fresh}"

    def program(self) -> tuple:
        items = [self.item(()) for _ in range(self.random.randint(1, 4))]
        items.append(("statement", "Z", [], "=", self.value((), 2), [], []))  # read by none, so an output
        if self.random.random() < 0.4:
            return ("declare", self.types(items), items)
        return ("program", items)

    def item(self, loops: tuple) -> tuple:
        if len(loops) < 2 and self.random.random() < 0.15:
            index = self.name("t")
            body = [self.item((*loops, index)) for _ in range(self.random.randint(1, 2))]
            return ("loop", (index, self.affine(loops), self.affine(loops)), body)
        return self.statement(loops)

    def types(self, items: list) -> tuple:
        """Return parameters, outputs and type lines that fit the tensors of `items`."""
        read, written = {}, {}
        _tensors(items, read, written)
        inputs = {name: rank for name, rank in read.items() if name not in written}
        chosen = self.random.sample(sorted(written), self.random.randint(1, len(written)))
        lines = [(n, r) for n, r in written.items() if n not in chosen and self.random.random() < 0.5]
        return (
            [self.typed(n, r) for n, r in inputs.items()] + [("size", s) for s in SIZES if s in _sizes(items)],
            [self.typed(n, written[n]) for n in chosen],
            [("typed", n, self.dtype(), self.shape(r)) for n, r in lines],
        )

    def typed(self, name: str, rank: int) -> tuple:
        form = self.random.randint(0, 3)
        dtype = self.dtype() if form & 1 else None
        shape = self.shape(rank) if form & 2 else None
        return ("typed", name, dtype, shape)

    def dtype(self) -> str:
        return self.random.choice(list(DTYPES))

    def shape(self, rank: int) -> list:
        return [self.affine(()) for _ in range(rank)]

    def statement(self, loops: tuple) -> tuple:
        target, rank = self.name("T"), self.random.randint(0, 3)
        if self.defined and self.random.random() < 0.1:
            target, rank = self.random.choice(self.defined)
        left = [self.name("i") for _ in range(rank)]
        op = self.random.choice(list(_UPDATES))
        inner = [] if op == "=" else [self.name("k") for _ in range(self.random.randint(0, 2))]
        scope = (*loops, *left, *inner)
        value = self.value(scope, 3)
        ranges = [(k, self.affine(loops), self.affine((*loops, *left))) for k in inner]
        conditions = [self.comparison(scope) for _ in range(self.random.choice((0, 0, 0, 1, 2)))]
        subscripts = [("index", i) for i in left]
        self.defined.append((target, len(subscripts)))
        return ("statement", target, subscripts, op, value, ranges, conditions)

    def affine(self, scope: tuple) -> tuple:
        terms: list = [("num", self.random.randint(0, 9))]
        terms += [("index", self.random.choice(scope)) for _ in range(self.random.randint(0, 2)) if scope]
        terms += [("size", self.random.choice(SIZES))] * self.random.randint(0, 1)
        out = terms[0]
        for term in terms[1:]:
            if self.random.random() < 0.3:
                term = ("bin", self.random.choice(("*", "//", "%")), term, ("num", self.random.randint(1, 5)))
            out = ("bin", self.random.choice("+-"), out, term)
        return self.random.choice((out, terms[-1], ("neg", out)))

    def comparison(self, scope: tuple) -> tuple:
        if self.random.random() < 0.3:
            return ("chain", [self.random.choice(_COMPARE) for _ in "ab"], [self.affine(scope) for _ in "abc"])
        return ("cmp", self.random.choice(_COMPARE), self.affine(scope), self.affine(scope))

    def read(self, scope: tuple, depth: int) -> tuple:
        if self.defined and self.random.random() < 0.2:
            name, rank = self.random.choice(self.defined)
        else:
            rank = self.random.randint(0, 3)
            name = f"X{rank}"
        subscripts = [self.subscript(scope, depth) for _ in range(rank)]
        return ("read", name, subscripts, self.pad() if rank and self.random.random() < 0.2 else None)

    def subscript(self, scope: tuple, depth: int) -> tuple:
        if depth > 1 and self.random.random() < 0.1:
            return ("read", "g1", [self.subscript(scope, depth - 1)], None)
        return self.affine(scope)

    def pad(self) -> object:
        return self.random.choice(("edge", "wrap", "reflect", 0, 1.5, -2, float("-inf"), float("nan"), -1e300))

    def value(self, scope: tuple, depth: int) -> tuple:
        if depth == 0:
            return self.leaf(scope)
        kind = self.random.choice(
            ("read", "bin", "bin", "bin", "neg", "invert", "call", "cast", "reduce", "cmp", "logic", "leaf")
        )
        sub = lambda: self.value(scope, depth - 1)  # noqa: E731
        match kind:
            case "bin":
                return ("bin", self.random.choice(_ARITHMETIC), sub(), sub())
            case "neg" | "invert":
                return (kind, sub())
            case "call":
                name = self.random.choice(FUNCTIONS)
                count = TABLE[name].arity
                return ("call", name, [sub() for _ in range(count)])
            case "cast":
                return ("cast", self.dtype(), sub())
            case "cmp":
                return ("cmp", self.random.choice(_COMPARE), sub(), sub())
            case "logic":
                op = self.random.choice(("and", "or", "not"))
                return ("not", sub()) if op == "not" else ("bin", op, sub(), sub())
            case "reduce":
                op = self.random.choice(REDUCTIONS)
                own = [self.name("r") for _ in range(1 if op.startswith("arg") else self.random.randint(1, 2))]
                inner = (*scope, *own)
                ranges = [
                    (k, self.affine(scope), self.affine(scope)) if self.random.random() < 0.5 else (k,) for k in own
                ]
                conditions = [self.comparison(inner) for _ in range(self.random.choice((0, 0, 1, 2)))]
                return ("reduce", op, ranges, self.value(inner, depth - 1), conditions)
            case "read":
                return self.read(scope, depth)
        return self.leaf(scope)

    def leaf(self, scope: tuple) -> tuple:
        choices = [("num", n) for n in (0, 7, 2.5, 1e30, 2j)] + [("const", c) for c in ("pi", "inf", "nan")]
        choices += [("index", i) for i in scope] + [self.read(scope, 1)] * 4 + [("size", s) for s in SIZES]
        return self.random.choice(choices)


def _tensors(node: object, read: dict, written: dict) -> None:
    if isinstance(node, (list, tuple)):
        if node and node[0] == "statement":
            written[node[1]] = len(node[2])
        if node and node[0] == "read":
            read[node[1]] = len(node[2])
        for child in node:
            _tensors(child, read, written)


def _sizes(node: object) -> set:
    if isinstance(node, tuple) and node and node[0] == "size":
        return {node[1]}
    return set().union(*map(_sizes, node)) if isinstance(node, (list, tuple)) else set()


# As text: fully parenthesised, so that it says nothing of the printer's precedence.


def to_text(node: tuple, indent: str = "") -> str:
    match node:
        case ("program", items):
            return "\n".join(to_text(i, indent) for i in items)
        case ("declare", (parameters, outputs, lines), items):
            header = f"f({', '.join(map(to_text, parameters))}) -> {', '.join(map(to_text, outputs))}:"
            return "\n".join([header, *(f"  {to_text(t)}" for t in lines), *(to_text(i, "  ") for i in items)])
        case ("loop", extent, body):
            return "\n".join([f"{indent}for {_range(extent)}:", *(to_text(i, indent + "   ") for i in body)])
        case ("typed", name, dtype, shape):
            dims = "" if shape is None else f"[{', '.join(map(to_text, shape))}]"
            return f"{name}: {dtype or ''}{dims}" if dtype or dims else name
        case ("statement", target, subscripts, op, value, ranges, conditions):
            left = f"{target}[{','.join(map(to_text, subscripts))}]" if subscripts else target
            clause = f" for {', '.join(map(_range, ranges))}" if ranges else ""
            return f"{indent}{left} {op} {to_text(value)}{clause}{_where(conditions)}"
        case ("num", value):
            return repr(value)
        case ("const", name) | ("index", name) | ("size", name):
            return name
        case ("read", name, subscripts, pad):
            inside = ", ".join(map(to_text, subscripts)) + ("" if pad is None else f"; pad={pad}")
            return f"{name}[{inside}]"
        case ("bin" | "cmp", op, a, b):
            return f"({to_text(a)} {op} {to_text(b)})"
        case ("chain", ops, operands):
            first, *rest = map(to_text, operands)
            return f"({first} " + " ".join(f"{op} {x}" for op, x in zip(ops, rest, strict=True)) + ")"
        case ("neg", a):
            return f"(-{to_text(a)})"
        case ("not", a):
            return f"(not {to_text(a)})"
        case ("invert", a):
            return f"(~{to_text(a)})"
        case ("call", name, args):
            return f"{name}({', '.join(map(to_text, args))})"
        case ("cast", name, a):
            return f"{name}({to_text(a)})"
        case ("reduce", op, ranges, body, conditions):
            return f"{op}[{', '.join(map(_range, ranges))}]({to_text(body)}{_where(conditions)})"
    raise AssertionError(node)


def _range(extent: tuple) -> str:
    return extent[0] if len(extent) == 1 else f"{extent[0]} in {to_text(extent[1])}:{to_text(extent[2])}"


def _where(conditions: list) -> str:
    return " where " + " and ".join(map(to_text, conditions)) if conditions else ""


# With the builder.

_OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "**": lambda a, b: a**b, "and": builder.logical_and,
    "or": builder.logical_or, "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip


def built(node: tuple) -> object:
    match node:
        case ("program", items):
            return tuple(map(built, items))
        case ("declare", (parameters, outputs, lines), items):
            body = [*map(built, lines), *map(built, items)]
            return (builder.declare("f", map(built, parameters), map(built, outputs), *body),)
        case ("loop", (name, lo, hi), body):
            return builder.loop(builder.Index(name), built(lo), built(hi), *map(built, body))
        case ("typed", name, None, None):
            return builder.Tensor(name)
        case ("typed", name, dtype, shape):
            dims = None if shape is None else [built(s) for s in shape]
            return builder.Tensor(name).typed(DTYPES[dtype] if dtype else None, dims)
        case ("statement", target, subscripts, op, value, ranges, conditions):
            access = builder.Tensor(target)[tuple(map(built, subscripts))]
            statement = getattr(access, _UPDATES[op])(built(value))
            return statement.for_(*map(_within, ranges)).where(*map(built, conditions))
        case ("num", value):
            return builder.Value(builder.to_expr(value))
        case ("const", name):
            return builder.Value(builder.to_expr(getattr(builder, name)))
        case ("index", name):
            return builder.Index(name)
        case ("size", name):
            return builder.Size(name)
        case ("read", name, subscripts, pad):
            tensor = builder.Tensor(name) if pad is None else builder.Tensor(name).pad(pad)
            return tensor[tuple(map(built, subscripts))]
        case ("bin" | "cmp", op, a, b):
            return _OPERATORS[op](built(a), built(b))
        case ("chain", (first, second), (a, b, c)):
            return _OPERATORS[first](built(a), built(b)) & _OPERATORS[second](built(b), built(c))
        case ("neg", a):
            return -built(a)
        case ("not", a):
            return builder.logical_not(built(a))
        case ("invert", a):
            return ~built(a)
        case ("call", name, args):
            return getattr(builder, name)(*map(built, args))
        case ("cast", name, a):
            return builder.cast(DTYPES[name], built(a))
        case ("reduce", op, ranges, body, conditions):
            over = tuple(_within(r) if len(r) > 1 else builder.Index(r[0]) for r in ranges)
            return getattr(builder, op)(over, built(body), where=[built(c) for c in conditions])
    raise AssertionError(node)


def _within(extent: tuple) -> builder.Within:
    name, lo, hi = extent
    return builder.Index(name).in_(built(lo), built(hi))
