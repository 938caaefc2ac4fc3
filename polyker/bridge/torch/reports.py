"""Report what torch.compile made of graphs: parts, their compile times, and what stayed torch's."""

from __future__ import annotations

from collections import Counter, deque

from msgspec import Struct, field

# Graphs that a report tells of: the last ones.
MAX_GRAPHS = 64


class PartReport(Struct):
    """A part: its nodes and statements, its text, seconds that compiling took, and why it runs in torch, None where it does not.

    `again`: its text had been compiled before, for another part.
    """

    nodes: int
    statements: int
    text: str
    seconds: float
    again: bool = False
    refused: str | None = None


class GraphReport(Struct):
    """A graph: what it computes ("inference", "forward", "backward"), its parts, and the operators that stayed torch's, why."""

    kind: str
    parts: list[PartReport] = field(default_factory=list)
    stayed: Counter[tuple[str, str]] = field(default_factory=Counter)
    views: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        own = [p for p in self.parts if p.refused is None]
        count = sum(p.nodes for p in own)
        rest = sum(self.stayed.values())
        lines = [
            f"{self.kind} graph: {count} operators in {len(own)} kernels ({sum(not p.again for p in own)} compiled), "
            f"{self.views} views and {rest} operators in torch, {self.seconds:.2f} s"
        ]
        for k, p in enumerate(self.parts):
            how = "as before" if p.again else f"{p.seconds:.2f} s"
            said = how if p.refused is None else f"in torch: {p.refused}"
            lines.append(f"  part {k}: {p.nodes} nodes, {p.statements} statements, {said}")
        for (name, reason), n in self.stayed.most_common():
            lines.append(f"  torch: {name}{f' ({n})' if n > 1 else ''}: {reason}")
        return "\n".join(lines)


class CompileReport(Struct):
    """The graphs of a process that the backend compiled last, in order; printed, a line for each part and each operator left."""

    graphs: list[GraphReport]

    def __str__(self) -> str:
        return "\n".join(map(str, self.graphs)) or "no graph was compiled yet"

    __repr__ = __str__


_graphs: deque[GraphReport] = deque(maxlen=MAX_GRAPHS)


def begun(kind: str) -> GraphReport:
    """Return the report of a new graph."""
    _graphs.append(GraphReport(kind))
    return _graphs[-1]


def report() -> CompileReport:
    """Return what `torch.compile(..., backend="polyker")` made of the graphs it was given last: print it, or read its fields."""
    return CompileReport(list(_graphs))
