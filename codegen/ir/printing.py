"""Kernels as readable text: the stage `loops`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from polyker.codegen.ir.kernel import (
    Allocate,
    Barrier,
    Buffer,
    Combine,
    Commit,
    Const,
    Convert,
    Copy,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Launch,
    Let,
    Load,
    LoopKind,
    Op,
    PartCall,
    Prefetch,
    Shuffle,
    Space,
    StmtBlock,
    Store,
    Var,
    VectorLoad,
    VectorStore,
    Wait,
)
from polyker.ir.dtypes import bool_, i64
from polyker.structs import replace

# Most buffers of one extent that are shown one in another (chosen).
_MAX_NESTED_BUFFERS = 16

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "eq": "==", "ne": "!=", "and": "and", "or": "or", "pow": "**", "bit_and": "&", "bit_or": "|", "bit_xor": "^",
    "shift_left": "<<", "shift_right": ">>",
}  # fmt: skip


def print_kernel(kernel: KernelIR) -> str:
    """Return the text of a kernel: its parts, if it has some, its buffers, then its loops."""
    parts = (print_kernel(replace(part, name=f"part{k}")) for k, part in enumerate(kernel.parts))
    return "\n\n".join((*parts, _own(kernel)))


def print_named(kernel: KernelIR, tensors: Mapping[str, str], loop: Callable[[str], str]) -> str:
    """Return the text of a kernel without its parts, in the user's names.

    `tensors`: the names of tensors and sizes by those that buffers and integers begin with; `loop`: the name of the schedule's
    loop of a label, which stands beside each loop.
    """

    def named(found: re.Match[str]) -> str:
        return loop(found["loop"]) if found["loop"] is not None else tensors.get(found["name"], found["name"])

    return _GENERATED.sub(named, _own(kernel, labelled=True))


# A loop's label, between marks that no text has; the name of a tensor or size, which its buffers' and strides' begin with.
_GENERATED = re.compile(r"\0(?P<loop>[^\0]*)\0|(?<![\w.])(?P<name>[tn]\d+)(?!\d)")


def _own(kernel: KernelIR, *, labelled: bool = False) -> str:
    lines = [f"def {kernel.name}({', '.join(b.name for b in kernel.buffers)}; {', '.join(kernel.integers)}):"]
    for b in kernel.buffers:
        shape = ", ".join(map(print_value, b.shape))
        strides = ", ".join(map(print_value, b.strides))
        access = "" if b.writable else ", read only"
        lines.append(f"    # {b.name}: {b.dtype.name}[{shape}], strides ({strides}), {b.space.value}{access}")
    lines += _block(kernel.body, 1, labelled=labelled)
    return "\n".join(lines)


def _block(block: StmtBlock, depth: int, *, labelled: bool) -> Iterator[str]:  # noqa: C901 (one short case a kind of statement)
    pad = "    " * depth
    if not block:
        yield f"{pad}pass"
    for node in block:
        match node:
            case Store(buffer=buffer, indices=indices, value=value):
                yield f"{pad}{buffer}[{', '.join(map(print_value, indices))}] = {print_value(value)}"
            case VectorLoad(names=names, buffer=buffer, indices=indices, predicate=predicate, other=other):
                yield f"{pad}{', '.join(names)} = {_masked(_from(buffer, indices), predicate, other)}"
            case VectorStore(buffer=buffer, indices=indices, values=values):
                yield f"{pad}{_from(buffer, indices)} = {', '.join(map(print_value, values))}"
            case Copy(buffer=buffer, indices=indices, source=source, places=places, predicate=predicate, other=other):
                text = _masked(_from(source, places), predicate, other)
                yield f"{pad}{_from(buffer, indices)} = {text}  # {node.lanes} at once{', later' if node.later else ''}"
            case Prefetch(buffer=buffer, indices=indices, write=write, cache=cache):
                how = f"{' to write' if write else ''}{f' into cache {cache}' if cache > 1 else ''}"
                yield f"{pad}prefetch {buffer}[{', '.join(map(print_value, indices))}]{how}"
            case Let(name=name, value=value):
                yield f"{pad}{name} = {print_value(value)}"
            case Guard(condition=condition, code=code):
                yield f"{pad}require {print_value(condition)} else return {code}"
            case If(condition=condition, body=body, orelse=orelse):
                yield f"{pad}if {print_value(condition)}:"
                yield from _block(body, depth + 1, labelled=labelled)
                if orelse:
                    yield f"{pad}else:"
                    yield from _block(orelse, depth + 1, labelled=labelled)
            case For(var=var, lo=lo, hi=hi, step=step, kind=kind, lanes=lanes, body=body):
                by = f", {step}" if step != 1 else ""
                how = "" if kind is LoopKind.SERIAL else f"{kind.value}({lanes or ''})"
                how = f"{kind.value}.{node.axis}" if node.axis else how
                label = f"\0{node.label}\0" if labelled and node.label else ""
                how = " ".join(filter(None, (how, label))) + (f", on thread {node.thread}" if node.thread else "")
                note = f"  # {how}" if how else ""
                yield f"{pad}for {var} in range({print_value(lo)}, {print_value(hi)}{by}):{note}"
                yield from _block(body, depth + 1, labelled=labelled)
            case Allocate(buffers=buffers, body=body):
                # One in another, as long as that does not push the text to the right.
                groups = [(b,) for b in buffers] if len(buffers) <= _MAX_NESTED_BUFFERS else [buffers]
                for n, group in enumerate(groups):
                    yield f"{pad}{'    ' * n}with {', '.join(map(_held, group))}:"
                yield from _block(body, depth + len(groups), labelled=labelled)
            case Barrier(warps=warps):
                yield f"{pad}barrier{' of each warp' if warps else ''}"
            case Commit():
                yield f"{pad}close a group of copies"
            case Wait(pending=pending):
                yield f"{pad}wait for all but {pending} groups of copies"
            case Shuffle(name=name, value=value, mask=mask):
                yield f"{pad}{name} = {print_value(value)} of the thread xor {mask}"
            case Combine(buffer=buffer, indices=indices, op=op, value=value, axis=axis, before=before):
                place = f"{buffer}[{', '.join(map(print_value, indices))}]"
                first = "it" if before is None else f"the first thread's {print_value(before)}"
                to = "" if before is None else " up to this one"
                yield f"{pad}{place} = {op} of {first} and of {print_value(value)} of the threads along {axis}{to}"
            case PartCall():
                yield f"{pad}{_called(node)}"
            case Launch(name=name, grid=grid, block=threads, body=body):
                blocks = ", ".join(map(print_value, grid))
                yield f"{pad}launch {name} by ({blocks}) blocks of ({', '.join(map(str, threads))}) threads:"
                yield from _block(body, depth + 1, labelled=labelled)


def _called(call: PartCall) -> str:
    given = f"{', '.join(call.buffers)}; {', '.join(map(print_value, call.integers))}"
    return f"part{call.part}({given})" + (f"  # codes above {call.codes}" if call.codes else "")


def _held(buffer: Buffer) -> str:
    where = "in shared memory" if buffer.space is Space.SHARED else "on the stack"
    where += f", swizzled by {buffer.swizzle}" if buffer.swizzle else ""
    return f"{buffer.name}: {buffer.dtype.name}[{', '.join(map(print_value, buffer.shape))}] {where}"


def _from(buffer: str, indices: tuple[KExpr, ...]) -> str:
    return f"{buffer}[{', '.join(map(print_value, indices))} ..]"


def _masked(text: str, predicate: KExpr | None, other: KExpr | None) -> str:
    if predicate is None or other is None:
        return text
    return f"({text} if {print_value(predicate)} else {print_value(other)})"


def print_value(expr: KExpr) -> str:
    """Return the text of an expression."""
    match expr:
        case Const(value=value, dtype=dtype):
            return str(value) if dtype in (i64, bool_) else f"{dtype.name}({value})"
        case Var(name=name):
            return name
        case Op(op="neg", args=(a,)):
            return f"-{print_value(a)}"
        case Op(op=op, args=args) if op in _INFIX:
            return "(" + f" {_INFIX[op]} ".join(map(print_value, args)) + ")"
        case Op(op=op, args=args):
            return f"{op}({', '.join(map(print_value, args))})"
        case Convert(arg=arg, dtype=dtype):
            return f"{dtype.name}({print_value(arg)})"
        case Load(buffer=buffer, indices=indices, predicate=predicate, other=other):
            return _masked(f"{buffer}[{', '.join(map(print_value, indices))}]", predicate, other)
