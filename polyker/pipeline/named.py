"""The printed stages of a compile in the user's names: isl sets, the schedule, the loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from polyker.codegen.ir.kernel import KernelIR
from polyker.codegen.ir.printing import print_named
from polyker.edit.names import ShownNames, named
from polyker.ir.typed import TypedProgram
from polyker.ir.typed_printing import print_typed
from polyker.poly.isl import dim
from polyker.poly.scop import Scop, build_scop
from polyker.schedule.tree.nodes import ScheduleTree, loops, print_tree

# isl prints 2*i0 as `2i0`.
_GENERATED = re.compile(r"(?<![A-Za-z_'.\d])(\d*)([Sint]\d+)(?!\w)")


class NamedStages(Struct, frozen=True, dict=True):
    """The stages of a program: `typed` is what was written, `program` what `schedule` orders."""

    typed: TypedProgram
    program: TypedProgram
    schedule: ScheduleTree

    @cached_property
    def _named(self) -> tuple[TypedProgram, ShownNames]:
        return named(self.typed, self.program)

    @cached_property
    def _tensors(self) -> Mapping[str, str]:
        return {t.name: t.label for t in self._named[0].tensors} | dict(self.program.sizes)

    @cached_property
    def _names(self) -> Mapping[str, str]:
        shown = self._named[1]
        return {**self._tensors, **shown.statements, **shown.indices}

    def _said(self, text: str) -> str:
        """Return a text with the user's names in place of generated ones."""

        def change(found: re.Match[str]) -> str:
            name = self._names.get(found[2])
            return found[0] if name is None else f"{found[1]}*{name}" if found[1] else name

        return _GENERATED.sub(change, text)

    def written(self) -> str:
        """Return the program as it was written, bound to its types."""
        return print_typed(self.typed, named(self.typed, self.typed)[1].statements)

    def isl(self) -> str:
        """Return the domains and access relations as isl prints them, with the names of statements and indices."""
        scop = build_scop(self.program)
        return "\n".join(map(self._said, _sets(scop)))

    def tree(self) -> str:
        """Return the schedule tree, with its notes."""
        lines = print_tree(self.schedule.tree, 0, self._said, self._named[1].shown)
        return "\n".join((*lines, *(self._said(str(note)) for note in self.schedule.notes)))

    def loops(self, kernel: KernelIR) -> str:
        """Return the loops of a kernel, the schedule's loop that each one is beside it."""
        shown = self._named[1]
        known = {m.label: shown.shown(m) for m in reversed(list(loops(self.schedule.tree)))}
        return print_named(kernel, self._tensors, lambda label: known.get(label) or shown.loop(label))


def _sets(scop: Scop) -> Iterator[str]:
    iterators = {s.name: s.iterators for s in scop.program.statements()}
    yield f"context {scop.context}"
    for name, domain in scop.domains.items():
        yield f"domain {_with_names(domain, dim.set, iterators[name])}"
    for access in scop.accesses:
        relation = _with_names(access.relation, dim.in_, iterators[access.statement])
        yield f"{'write' if access.is_write else 'read'} {relation}"


def _with_names(found: Any, kind: Any, names: tuple[str, ...]) -> Any:
    """Return a set or relation whose dimensions are called as the statement's iterators: isl names them as it made them."""
    for k, name in enumerate(names):
        found = found.set_dim_name(kind, k, name)
    return found
