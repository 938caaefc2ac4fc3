"""Copy, in each iteration of outer loops, what statements read of a tensor or what one writes.

`times` are those of the loops around at each statement. Before: `C[i,j] += A[i,k] * B[k,j]`. After, of A for each tile of k
(the time being `floor(k/64)`): `P[q,i,k] = A[i,k]` for all q, i, k that are read; `C[i,j] += P[floor(k/64),i,k] * B[k,j]`.
The copy's leading dimensions number the runs, so that none reads what another has copied; its buffer holds one run's elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

import islpy as isl
from msgspec import Struct

from polyker.ir.dtypes import DType
from polyker.ir.expr import Expr, Read, transform
from polyker.ir.quasi_affine import index, indices, indices_of, lit, print_affine
from polyker.ir.typed import UNBOUNDED_EXTENT, TypedProgram, TypedStatement, replaced
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import parameters
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.structs import replace

Times = Mapping[str, Sequence[Expr]]  # statement -> its time at each of the loops around


class Copied(Struct, frozen=True):
    """The program with the copies; `before` and `after` are the statements that copy in, or start, and out.

    `own`: the copy's iterators for its elements. `times`: of the copies at the loops around. `dims`: of the tensor, the number of
    dimensions that number the runs. `maps`: isl text of {statement -> copy} for each statement that was changed. `numbers`: the
    copies' iterator of each loop around, None for a loop of the text's.
    """

    program: TypedProgram
    tensor: str
    before: tuple[TypedStatement, ...]
    after: tuple[TypedStatement, ...]
    own: tuple[str, ...]
    times: tuple[Expr, ...]
    dims: int
    maps: Mapping[str, tuple[str, ...]]
    numbers: tuple[str | None, ...]


class _Runs(Struct, frozen=True):
    """What numbers the runs: the iterators of the loops of the text, and a fresh one for each time that is not theirs."""

    outer: tuple[str, ...]
    numbered: tuple[int, ...]  # places in the times
    numbers: tuple[str, ...]
    element: tuple[str, ...]
    times: tuple[Expr, ...]

    @property
    def iterators(self) -> tuple[str, ...]:
        return (*self.outer, *self.numbers, *self.element)

    def copied(
        self,
        program: TypedProgram,
        tensor: str,
        before: tuple[TypedStatement, ...],
        after: tuple[TypedStatement, ...],
        maps: Mapping[str, tuple[str, ...]],
    ) -> Copied:
        """Return the program with the copies and what they are."""
        found, dims = dict(zip(self.numbered, self.numbers, strict=True)), len(self.outer) + len(self.numbers)
        of_loops = tuple(found.get(n) for n in range(len(self.times)))
        return Copied(program, tensor, before, after, self.element, self.times, dims, maps, of_loops)

    def here(self) -> tuple[Expr, ...]:
        """Return the copy's subscripts over its own iterators."""
        return indices(self.iterators)

    def of(self, times: Sequence[Expr], element: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the copy's subscripts over a statement's iterators."""
        return (*indices(self.outer), *(times[n] for n in self.numbered), *element)


def copy_reads(program: TypedProgram, tensor: str, readers: Sequence[TypedStatement], times: Times) -> Copied:
    """Copy what the readers, which stand together in the text, read of a tensor at affine places."""
    fresh = Fresh(program)
    found = program.tensor(tensor)
    runs = _runs(fresh, readers[0], times, len(found.shape))
    reads = {s.name: tuple(dict.fromkeys(r for r in s.reads() if r.tensor == tensor)) for s in readers}
    maps = {
        s.name: tuple(_map(program, s, runs.of(times[s.name], r.subscripts)) for r in reads[s.name]) for s in readers
    }
    elements = reduce(isl.Set.union, (_image(s, text) for s in readers for text in maps[s.name])).coalesce()
    copy = fresh.temporary("pack", found.dtype, (lit(UNBOUNDED_EXTENT),) * len(runs.iterators))
    source = Read(tensor, indices(runs.element), dtype=found.dtype)
    made = fresh.sets(elements, runs.iterators, (copy, runs.here()), source, outer=len(runs.outer))
    changed: dict[str, tuple[TypedStatement, ...]] = {
        s.name: (_reading(s, tensor, copy, partial(runs.of, times[s.name])),) for s in readers
    }
    changed[readers[0].name] = (made, *changed[readers[0].name])
    body = replaced(program.body, lambda s: changed.get(s.name, (s,)))
    return runs.copied(fresh.finish(body), copy, (made,), (), maps)


def copy_writes(program: TypedProgram, writer: TypedStatement, times: Times) -> Copied:
    """Let a statement write, or a reduction accumulate, what each run makes in a copy, and put that to its target after."""
    fresh = Fresh(program)
    target = program.tensor(writer.target)
    runs = _runs(fresh, writer, times, len(target.shape))
    there = runs.of(times[writer.name], writer.subscripts)
    text = _map(program, writer, there)
    elements = _image(writer, text)
    reduces = writer.op != "set"
    dtype: DType = writer.acc if reduces else target.dtype
    copy = fresh.temporary("acc" if reduces else "result", dtype, (lit(UNBOUNDED_EXTENT),) * len(runs.iterators))
    changed = replace(writer, target=copy, subscripts=there, defines=None)
    before: tuple[TypedStatement, ...] = ()
    if reduces:
        one, place = identity(writer.op, dtype), (copy, runs.here())
        before = (fresh.sets(elements, runs.iterators, place, one, outer=len(runs.outer)),)
    value, place = Read(copy, runs.here(), dtype=dtype), (target.name, indices(runs.element))
    after = fresh.sets(elements, runs.iterators, place, value, writer, len(runs.outer))
    after = replace(after, op=writer.op, reduced=runs.numbers if reduces else ())
    body = replaced(program.body, lambda s: (*before, changed, after) if s.name == writer.name else (s,))
    return runs.copied(fresh.finish(body), copy, before, (after,), {writer.name: (text,)})


def _runs(fresh: Fresh, statement: TypedStatement, times: Times, rank: int) -> _Runs:
    outer = statement.iterators[: statement.outer]
    own = times[statement.name]
    numbered = tuple(n for n, t in enumerate(own) if not indices_of(t) <= set(outer))
    numbers = fresh.iterators(len(numbered))
    here: list[Expr] = list(own)
    for n, number in zip(numbered, numbers, strict=True):
        here[n] = index(number)
    return _Runs(outer, numbered, numbers, fresh.iterators(rank), tuple(here))


def _map(program: TypedProgram, statement: TypedStatement, places: Sequence[Expr]) -> str:
    source = f"{statement.name}[{', '.join(statement.iterators)}]"
    return f"{parameters(program)}{{ {source} -> [{', '.join(map(print_affine, places))}] }}"


def _image(statement: TypedStatement, text: str) -> isl.Set:
    return read_set(statement.domain).apply(read_map(text))


def _reading(
    statement: TypedStatement, tensor: str, copy: str, places: Callable[[Sequence[Expr]], tuple[Expr, ...]]
) -> TypedStatement:
    def change(e: Expr) -> Expr:
        return (
            replace(e, tensor=copy, subscripts=places(e.subscripts))
            if isinstance(e, Read) and e.tensor == tensor
            else e
        )

    return statement.rewritten(lambda e: transform(e, change))
