"""Typed programs as text for people: a statement a line, in the user's names, with its domain."""

from __future__ import annotations

import re
from collections.abc import Mapping

from polyker.ir.expr import Call, Cast, Dots, Expr, IndexExpr, Literal, Read, Reduce, SizeExpr, transform
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement

_INFIX = {
    "or": (1, " or "), "and": (2, " and "), "lt": (4, " < "), "le": (4, " <= "), "gt": (4, " > "), "ge": (4, " >= "),
    "eq": (4, " == "), "ne": (4, " != "), "bit_or": (5, " | "), "bit_xor": (6, " ^ "), "bit_and": (7, " & "),
    "shift_left": (8, " << "), "shift_right": (8, " >> "), "add": (9, " + "), "mul": (10, "*"), "div": (10, " / "),
    "floordiv": (10, "//"), "mod": (10, " % "), "pow": (12, "**"),
}  # fmt: skip
_SIGN = 11
_UPDATES = {"set": "=", "add": "+=", "mul": "*="}
# isl prints 2*n0 as `2n0`.
_GENERATED = re.compile(r"(?<![A-Za-z_'])(?P<factor>\d+)?(?P<name>[int]\d+)\b")

_TUPLE = re.compile(r"\bS\d+\[([^\]]*)\]")
_FACTOR = re.compile(r"(?<![A-Za-z_'])(?P<factor>\d*)(?P<name>[A-Za-z_]\w*)")


def print_typed(typed: TypedProgram, statements: Mapping[str, str] | None = None) -> str:
    """Return a typed program as text: tensors, checks, then statements with domains, in the user's names.

    `statements`: their names by the generated ones, which they have where none are given.
    """
    labels = labels_of(typed) | dict(statements or {})
    lines = []
    for tensor in typed.tensors:
        shape = ", ".join(print_expr(e, labels) for e in tensor.shape)
        lines.append(f"{tensor.role.value} {tensor.label}: {tensor.dtype.name}[{shape}]")
    if typed.sizes:
        lines.append(f"sizes {', '.join(label for _, label in typed.sizes)}: {relabel(typed.context, labels)}")
    lines += [f"check {relabel(check.condition, labels)}" for check in typed.checks]
    return "\n".join(lines + _nodes(typed.body, labels, 0))


def labels_of(typed: TypedProgram) -> dict[str, str]:
    """Return generated name -> shown name; iterators that share a label are told apart by a number."""
    labels = dict(typed.sizes) | {t.name: t.label for t in typed.tensors}
    taken = set(labels.values())
    for name, label in typed.labels:
        shown, number = label, 2
        while shown in taken and not _apart(name, label, labels):
            shown, number = f"{label}'{number}", number + 1
        labels[name] = shown
    return labels


def _apart(name: str, label: str, labels: Mapping[str, str]) -> bool:
    """Whether a label is used only by iterators: statements are scopes of their own, so they may share it."""
    return all(other[0] == "i" for other, shown in labels.items() if shown == label and other != name)


def _nodes(body: tuple[TypedNode, ...], labels: Mapping[str, str], depth: int) -> list[str]:
    lines: list[str] = []
    indent = "    " * depth
    for node in body:
        if isinstance(node, TypedLoop):
            lines.append(f"{indent}for {labels.get(node.iterator, node.iterator)}:")
            lines += _nodes(node.body, labels, depth + 1)
        else:
            lines.append(indent + print_statement(node, labels))
    return lines


def print_statement(statement: TypedStatement, labels: Mapping[str, str]) -> str:
    """Return one statement: its name, the update, the type accumulated in, and its domain."""
    target = labels.get(statement.target, statement.target)
    subscripts = ", ".join(print_expr(s, labels) for s in statement.subscripts)
    update = _UPDATES.get(statement.op, f"{statement.op}=")
    left = f"{target}[{subscripts}]" if subscripts else target
    right = print_expr(statement.expr, labels)
    name = labels.get(statement.name, statement.name)
    domain = relabel(_in_own_names(statement), labels).replace(f"{statement.name}[", f"{name}[")
    return f"{name}: {left} {update} {right}  in {statement.acc.name}  over {domain}"


def _in_own_names(statement: TypedStatement) -> str:
    """Return the text of a statement's domain, its dimensions named by the iterators: isl names them as it made them."""
    found = _TUPLE.search(statement.domain)
    given = [n.strip() for n in found[1].split(",")] if found else []
    if len(given) != len(statement.iterators) or not all(map(str.isidentifier, given)):
        return statement.domain  # a dimension is an expression, such as a number
    names = dict(zip(given, statement.iterators, strict=True))
    return _FACTOR.sub(lambda word: f"{word['factor']}{names.get(word['name'], word['name'])}", statement.domain)


def print_expr(expr: Expr, labels: Mapping[str, str], level: int = 0) -> str:
    """Return an expression in the notation, generated names shown through `labels`."""
    match expr:
        case Literal(value=value):
            return str(value) if not isinstance(value, (int, float)) or value >= 0 or level < _SIGN else f"({value})"
        case IndexExpr(name=name) | SizeExpr(name=name):
            return labels.get(name, name)
        case Dots():
            return "..."
        case Read(tensor=tensor, subscripts=subscripts, pad=pad):
            inner = ", ".join(print_expr(s, labels) for s in subscripts)
            if pad is not None:
                inner += f"; pad={pad.mode if pad.value is None else print_expr(pad.value, labels)}"
            return f"{labels.get(tensor, tensor)}[{inner}]" if inner else labels.get(tensor, tensor)
        case Cast(to=to, arg=arg):
            return f"{to.name}({print_expr(arg, labels)})"
        case Reduce(op=op, ranges=ranges, body=body, conditions=conditions, domain=domain):
            names = ", ".join(labels.get(r.index, r.index) for r in ranges)
            where = f" over {relabel(domain, labels)}" if domain else ""
            admitted = "".join(f" where {print_expr(c, labels)}" for c in conditions)
            return f"{op}[{names}]({print_expr(body, labels)}{admitted}{where})"
        case Call(op="neg", args=(arg,)):
            return _bracket(f"-{print_expr(arg, labels, _SIGN)}", _SIGN, level)
        case Call(op="mul", args=(Literal(value=-1), arg)):
            return _bracket(f"-{print_expr(arg, labels, _SIGN)}", _SIGN, level)
        case Call(op="bit_not", args=(arg,)):
            return _bracket(f"~{print_expr(arg, labels, _SIGN)}", _SIGN, level)
        case Call(op="not", args=(arg,)):
            return _bracket(f"not {print_expr(arg, labels, 3)}", 3, level)
        case Call(op=op, args=args) if op in _INFIX:
            own, sign = _INFIX[op]
            text = print_expr(args[0], labels, own)
            for arg in args[1:]:
                part = print_expr(arg, labels, own + 1)
                text += f" - {part[1:]}" if op == "add" and part.startswith("-") else sign + part
            return _bracket(text, own, level)
        case Call(op=op, args=args):
            return f"{op}({', '.join(print_expr(a, labels) for a in args)})"


def written(expr: Expr, labels: Mapping[str, str]) -> str:
    """Return an expression as it stands in the user's text, else as it is printed without conversions."""
    while isinstance(expr, Cast):
        expr = expr.arg
    if expr.span is not None:
        return " ".join(expr.span.source.text[expr.span.start : expr.span.end].split())
    return print_expr(transform(expr, lambda e: e.arg if isinstance(e, Cast) else e), labels)


def _bracket(text: str, own: int, level: int) -> str:
    return f"({text})" if own < level else text


def relabel(text: str, labels: Mapping[str, str]) -> str:
    """Return an isl text with each generated name that has a label replaced by it."""

    def named(found: re.Match[str]) -> str:
        name = labels.get(found["name"], found["name"])
        return f"{found['factor']}*{name}" if found["factor"] else name

    return _GENERATED.sub(named, text)
