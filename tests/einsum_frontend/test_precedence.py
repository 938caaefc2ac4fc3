"""Operators bind as Python's do: checked against Python's own parser."""

import ast

from hypothesis import given, settings
from hypothesis import strategies as st

from polyker.einsum_frontend import parse
from polyker.ir.expr import Call, Literal, Read

_BINARY = {
    ast.BitAnd: "bit_and",
    ast.BitOr: "bit_or",
    ast.BitXor: "bit_xor",
    ast.LShift: "shift_left",
    ast.RShift: "shift_right",
    ast.Add: "add",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
}
_COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


_OF_TRUTHS = {"bit_and": "and", "bit_or": "or"}


def is_truth(tree):
    """Whether a value is true or false by its form: of such `&`, `|` and `~` are `and`, `or` and `not`."""
    return isinstance(tree, tuple) and tree[0] in (*_COMPARE.values(), "and", "or", "not")


def python_tree(node):
    """The tree of Python's parser, binary as it is, in the form (operator, arguments)."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=a, op=ast.Sub(), right=b):
            return ("add", python_tree(a), ("neg", python_tree(b)))
        case ast.BinOp(left=a, op=op, right=b):
            left, right, name = python_tree(a), python_tree(b), _BINARY[type(op)]
            return (_OF_TRUTHS.get(name, name) if is_truth(left) and is_truth(right) else name, left, right)
        case ast.UnaryOp(op=ast.UAdd(), operand=a):
            return python_tree(a)
        case ast.UnaryOp(op=op, operand=a):
            arg = python_tree(a)
            invert = "not" if is_truth(arg) else "bit_not"
            return ({ast.USub: "neg", ast.Invert: invert}.get(type(op), "not"), arg)
        case ast.BoolOp(op=op, values=values):
            name = "and" if isinstance(op, ast.And) else "or"
            return fold(name, [python_tree(v) for v in values])
        case ast.Compare(left=first, ops=ops, comparators=rest):
            each = [python_tree(e) for e in (first, *rest)]
            pairs = [(_COMPARE[type(op)], a, b) for op, a, b in zip(ops, each[:-1], each[1:], strict=True)]
            return fold("and", pairs)
    raise AssertionError(node)


def fold(op, args):
    if op == "pow":
        return args[0] if len(args) == 1 else (op, args[0], fold(op, args[1:]))
    out = args[0]
    for arg in args[1:]:
        out = (op, out, arg)
    return out


def our_tree(expr):
    match expr:
        case Read(tensor=name):
            return name
        case Call(op=op, args=args) if len(args) == 1:
            return (op, our_tree(args[0]))
        case Call(op=op, args=args):
            return fold(op, [our_tree(a) for a in args])
    raise AssertionError(expr)


operand = st.sampled_from(["a", "b", "c", "-a", "not b", "+c", "(a < b)", "(a + b)", "-b ** c", "- -a", "~b", "~-c"])
operator = st.sampled_from("+ - * / // % ** & | ^ << >> < <= > >= == != and or".split())


@given(st.lists(st.tuples(operator, operand), min_size=1, max_size=8), operand)
@settings(max_examples=240, deadline=None)
def test_operators_bind_as_in_python(rest, first):
    text = first + "".join(f" {op} {x}" for op, x in rest)
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return  # `a * not b`
    (statement,) = parse(f"s = {text}").body
    assert our_tree(statement.expr) == python_tree(tree)


def test_a_constant_stands_on_the_right_of_a_comparison():
    (statement,) = parse("s = 1 <= a").body
    assert statement.expr == Call("ge", (Read("a", ()), Literal(1)))
