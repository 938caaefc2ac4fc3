"""Choose what a forward pass keeps for the backward pass: its residuals.

Kept are results, which are there anyway, reductions, whose terms would have to be computed again, and what loops compute, whose
steps would; what is computed element by element of these and of the inputs is computed again where it is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyker.grad.bound import PlainLoop, PlainProgram, PlainStatement, plain_statements
from polyker.grad.derivation import Derivation, needed, statements_in
from polyker.grad.loops import carrying_indices
from polyker.ir.expr import Literal, Read
from polyker.ir.quasi_affine import indices_of


def residuals(d: Derivation) -> tuple[str, ...]:
    """Return the tensors of a program that its derivative, which is made, should read and not compute again.

    None of a program whose derivative runs loops again from checkpoints, or that changes its arguments.
    """
    source = d.source
    if source.blocks or source.results:
        return ()
    of_loops = {s.target for n in source.nodes if isinstance(n, PlainLoop) for s in plain_statements((n,))}
    writers: dict[str, list[PlainStatement]] = {}
    for s in source.statements:
        writers.setdefault(s.target, []).append(s)
    worthy = {
        t for t, of in writers.items() if d.shape(t) is not None and _is_worthy(source, t, of, in_loop=t in of_loops)
    }
    wanted = {r.tensor for s in statements_in(d.made) for r in s.reads()}
    needed(source.nodes, wanted, frozenset(writers) - worthy)
    return tuple(t for t in writers if t in worthy & wanted)


def _is_worthy(source: PlainProgram, tensor: str, writers: Sequence[PlainStatement], *, in_loop: bool) -> bool:
    """Whether to keep a tensor costs less than to compute it again."""
    for s in writers:
        is_read = isinstance(s.expr, Literal) or (isinstance(s.expr, Read) and s.expr.tensor in source.inputs)
        if s.op in ("max", "min") and not is_read and tensor not in source.constant:
            return False  # which of its terms it is can be told only of terms that are computed along with it
    if in_loop or tensor in source.program.outputs:
        return True
    return any(
        {r.index for r in s.ranges} - frozenset().union(*map(indices_of, s.subscripts)) or carrying_indices(s)
        for s in writers
    )


def forward_text(d: Derivation, kept: Sequence[str]) -> str:
    """Return the program that returns the outputs, and then the residuals that are none of them."""
    outputs = d.program.outputs
    more = [name for name in kept if name not in outputs]
    return Derivation(d.program, d.fixed, d.source).text("forward", (), (*outputs, *more))
