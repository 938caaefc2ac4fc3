"""From the kernel of a GPU to the record of what the host does for it."""

from __future__ import annotations

from polyker.codegen.ir.kernel import Buffer, For, If, KernelIR, KExpr, Launch, Space, StmtBlock
from polyker.codegen.ir.polynomial import form_of
from polyker.codegen.passes.gpu.launch import arguments_of, shared_memory
from polyker.errors.base import InternalError
from polyker.record.forms import SizeForm
from polyker.record.host_code import DeviceBuffer, HostBranch, HostCode, HostLoop, HostStep, LaunchRecord


def host_code(kernel: KernelIR) -> HostCode:
    """Return the record of the launches of a kernel and of what is around them."""
    places = {b.name: n for n, b in enumerate(kernel.buffers)}

    def launch(stmt: Launch) -> LaunchRecord:
        buffers, integers, fails = arguments_of(kernel, stmt)
        x, y, z = map(_form, stmt.grid)
        arrays = tuple(places[b.name] for b in buffers)
        return LaunchRecord(stmt.name, (x, y, z), stmt.block, arrays, integers, fails, shared_memory(stmt).asked)

    def steps(block: StmtBlock) -> tuple[HostStep, ...]:
        found: list[HostStep] = []
        for stmt in block:
            match stmt:
                case Launch():
                    found.append(launch(stmt))
                case For(var=var, lo=lo, hi=hi, step=step, body=body):
                    found.append(HostLoop(var, _form(lo), _form(hi), step, steps(body)))
                case If(condition=condition, body=body, orelse=orelse):
                    found.append(HostBranch(_form(condition), steps(body), steps(orelse)))
                case _:
                    raise AssertionError("only loops and launches run on the host")
        return tuple(found)

    return HostCode(kernel.integers, tuple(map(_buffer, kernel.buffers)), steps(kernel.body))


def _buffer(buffer: Buffer) -> DeviceBuffer:
    extents = [("maximum", 0, _form(e)) for e in buffer.shape]
    size: SizeForm = ("mul", *extents, buffer.dtype.itemsize)
    return DeviceBuffer(buffer.space is Space.ARGUMENT, buffer.writable, buffer.alignment, size)


def _form(expr: KExpr) -> SizeForm:
    found = form_of(expr)
    if found is None:
        raise InternalError(f"{expr} has no value on the host")
    return found
