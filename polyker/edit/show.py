"""A schedule as a loop nest, in the user's names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from polyker.edit.state import State
from polyker.errors.base import escape
from polyker.ir.expr import Call, Expr, Literal, Read, transform
from polyker.ir.quasi_affine import indices_of, lit, mod
from polyker.ir.typed import TypedStatement
from polyker.ir.typed_printing import print_expr, relabel
from polyker.poly.isl import read_set
from polyker.schedule.tree.nodes import Band, Filter, Leaf, Member, MemberKind, Promotion, Scope, Sequence, Tree, scopes
from polyker.structs import replace

_UPDATES = {"set": "=", "add": "+=", "mul": "*="}
_MAX_LINE_CHARACTERS = 2000  # characters of a line


def nest(state: State) -> str:
    """Return the loop nest: a loop or a statement a line, what stands inside a loop further to the right.

    A loop's kind and its number of iterations stand before its name, such as `vector(8) j.point`; what its time is
    where that is not the index itself, `j % 8`; `with` says which tensors have a buffer for each run of what is below; at a
    `barrier` the threads of a block meet.
    """
    return "\n".join(
        escape(line, _MAX_LINE_CHARACTERS) for line in _Show(state).lines(state.schedule.tree, 0, _all(state))
    )


def _all(state: State) -> tuple[str, ...]:
    return tuple(s.name for s in state.program.statements())


class _Show:
    def __init__(self, state: State) -> None:
        self.state = state
        program = state.program
        self.labels = dict(program.sizes) | {t.name: t.label for t in program.tensors} | dict(program.labels)
        self.statements = {s.name: s for s in program.statements()}
        self.hidden = _hidden(state)

    def lines(self, tree: Tree, depth: int, here: tuple[str, ...]) -> Iterator[str]:
        pad = "  " * depth
        match tree:
            case Band(members=members, child=child):
                for member in members:
                    yield "  " * depth + self.loop(member)
                    depth += 1
                yield from self.lines(child, depth, tuple(s for s, _ in members[0].times))
            case Sequence(children=children):
                for part in children:
                    if part.barrier:
                        yield f"{pad}barrier{' of each warp' if part.warps else ''}"
                    where = self.condition(part)
                    if where:
                        yield f"{pad}where {where}:"
                    yield from self.lines(part.child, depth + bool(where), part.statements)
            case Scope(promotions=promotions, child=child):
                for p in promotions:
                    yield f"{pad}with {self.buffer(p, child)}"
                yield from self.lines(child, depth, here)
            case Leaf():
                yield from (pad + self.statement(self.statements[s]) for s in here)

    def loop(self, member: Member) -> str:
        kind = member.role
        label, index = self.state.names.shown(member), self.state.names.loop(member.label)
        by_text: dict[str, list[str]] = {}
        for s, time in member.times:
            by_text.setdefault(print_expr(plain(time), self.labels), []).append(self.state.names.statements[s])
        own = {self.state.names.statements.get(s.name) for s in self.state.typed.statements()}
        if len(by_text) == 2 and index in by_text and not own & set(by_text[index]):
            del by_text[index]  # copies, whose index is the loop's
        if len(by_text) == 1:
            (text,) = by_text
            return f"{kind} {label}" + (f" = {text}" if text != label else "")
        several = "; ".join(f"{text} in {', '.join(who)}" for text, who in by_text.items())
        return f"{kind} {label} = {several}"

    def condition(self, part: Filter) -> str:
        """Return the instances that a child holds, as a condition on the indices of one of its statements."""
        for s, text in part.conditions:
            domain = read_set(self.statements[s].domain)
            held = read_set(text).gist(domain.intersect_params(read_set(self.state.program.context)))
            if not held.plain_is_universe():
                return relabel(constraints(str(held)), self.labels)
        return ""

    def buffer(self, p: Promotion, child: Tree) -> str:
        tensor = self.state.program.tensor(p.tensor)
        seen = [d for d in range(len(p.modulo)) if d not in self.hidden.get(p.tensor, ())]
        shape = ", ".join(str(p.modulo[d]) for d in seen)
        text = f"{tensor.label}: {tensor.dtype.name}[{shape}] in {memory_of(self.state, p, child)}"
        if p.layout:
            dims = (
                str(seen.index(d)) + (f"//{by}" if by > 1 else "") + f" % {n}" for d, by, n in p.layout if d in seen
            )
            text += f", laid out by dimensions {', '.join(dims)}"
        text += f", rows padded by {p.pad}" if p.pad else ""
        text += f", swizzled by {p.swizzle}" if p.swizzle else ""
        return text

    def seen(self, tensor: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        hidden = self.hidden.get(tensor, ())
        return tuple(e for d, e in enumerate(subscripts) if d not in hidden)

    def statement(self, s: TypedStatement) -> str:
        def short(e: Expr) -> Expr:
            return replace(e, subscripts=self.seen(e.tensor, e.subscripts)) if isinstance(e, Read) else e

        subscripts = ", ".join(print_expr(e, self.labels) for e in self.seen(s.target, s.subscripts))
        target = self.labels[s.target] + (f"[{subscripts}]" if subscripts else "")
        value = print_expr(transform(s.expr, short), self.labels)
        text = f"{target} {_UPDATES.get(s.op, s.op + '=')} {value}"
        name = self.state.names.statements[s.name]
        return f"{name}: {text}"


def _hidden(state: State) -> dict[str, frozenset[int]]:
    """Return, of tensors that were made, the dimensions that number the runs of their buffer's scope: they say nothing in it."""
    found: dict[str, frozenset[int]] = {}
    own = {t.name for t in state.typed.tensors}
    for scope in scopes(state.schedule.tree):
        for p in scope.promotions:
            ones = frozenset(d for d, m in enumerate(p.modulo) if m == 1)
            if p.tensor not in own:
                found[p.tensor] = found.get(p.tensor, ones) & ones
    return found


def constraints(text: str) -> str:
    """Return what isl's text of a set says of its points; isl may print a fixed dimension inside the tuple, `[i0 = 2]`."""
    found = []
    for piece in text[text.index("{") : text.rindex("}")].strip("{ ").split(";"):
        head, _, rest = piece.partition(":")
        fixed = re.findall(r"\w+ = [^],]+", head[head.index("[") :])
        found.append(" and ".join((*fixed, *([rest.strip()] if rest.strip() else []))))
    return " or ".join(found)


def plain(time: Expr) -> Expr:
    """Return a time with remainders of remainders told as one."""

    def change(e: Expr) -> Expr:
        match e:
            case Call(op="mod", args=(Call(op="mod", args=(a, Literal(value=n))), Literal(value=m))):
                return mod(a, int(m.real)) if int(n.real) % int(m.real) == 0 else e
            case Call(op="floordiv", args=(Call(op="mod", args=(_, Literal(value=n))), Literal(value=m))):
                return lit(0) if n.real <= m.real else e
            case _:
                return e

    return transform(time, change)


def memory_of(state: State, p: Promotion, child: Tree) -> str:
    """Return where a buffer lies: registers if each access has a constant place once the code is unrolled."""
    if p.shared:
        return "shared"
    if not p.on_stack(state.program.tensor(p.tensor).dtype.itemsize):
        return "scratch"
    return "registers" if constant_places(state, p, child) else "stack"


def constant_places(state: State, p: Promotion, child: Tree) -> bool:
    """Whether no serial loop inside a scope moves an element of the tensor to another place of the buffer."""
    moving: dict[str, set[str]] = {}

    def visit(tree: Tree) -> None:
        match tree:
            case Band(members=members, child=below):
                for m in members:
                    # Each thread has a buffer of its own: its number moves nothing in that.
                    if m.kind not in (MemberKind.UNROLL, MemberKind.VECTOR, MemberKind.TRANSPOSE, MemberKind.THREAD):
                        for s, time in m.times:
                            moving.setdefault(s, set()).update(indices_of(time))
                visit(below)
            case Sequence(children=children):
                for f in children:
                    visit(f.child)
            case Scope(child=below):
                visit(below)
            case Leaf():
                return

    visit(child)
    for s in state.program.statements():
        found = [s.subscripts] if s.target == p.tensor else []
        found += [r.subscripts for r in s.reads() if r.tensor == p.tensor]
        places = (e for subscripts in found for e, m in zip(subscripts, p.modulo, strict=True) if m > 1)
        if any(indices_of(e) & moving.get(s.name, set()) for e in places):
            return False
    return True
