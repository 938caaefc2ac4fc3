"""The records of a call: what an operator's text says, what a call of one binding is checked by, how a kernel is called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from polyker.errors.base import Span
from polyker.ir.dtypes import DType
from polyker.ir.layout import Layout
from polyker.record.forms import SizeForm, names
from polyker.record.host_code import HostCode
from polyker.record.work import Work
from polyker.structs import PartlyCompared


class DeclaredShape(Struct, frozen=True):
    """The declared type of an input: None for a type or a shape that the text leaves open."""

    name: str
    dtype: DType | None
    shape: tuple[SizeForm, ...] | None


class Signature(Struct, frozen=True):
    """What a text says of the calls of its operator; names and their order as in polyker.ir.program.Program.

    `declared`: of the inputs that the text declares. `agreeing`: groups of dimensions of inputs, as (tensor, place), that one
    index ranges over. `broadcast`: the inputs read with `...`, whose extents of 1 broadcast.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    temporaries: tuple[str, ...]
    parameters: tuple[str, ...]
    sizes: tuple[str, ...]
    declared: tuple[DeclaredShape, ...]
    agreeing: tuple[tuple[tuple[str, int], ...], ...]
    broadcast: tuple[str, ...]

    def own_names(self, count: int, fixed: Iterable[str] = ()) -> set[str]:
        """Return the keywords that are the program's, not options, in a call with `count` arguments by position.

        `fixed`: sizes that the operator has values of.
        """
        given = {*self.parameters[:count], *fixed}
        return {name for name in (*self.parameters, *self.sizes) if name not in given}

    def declaration(self, name: str) -> DeclaredShape | None:
        """Return what is declared of an input, or None."""
        return next((d for d in self.declared if d.name == name), None)

    @property
    def free_sizes(self) -> tuple[str, ...]:
        """The sizes that no declared shape of an input gives, so that the caller has to."""
        given = {n for d in self.declared for n in d.shape or () if isinstance(n, str)}
        return tuple(name for name in self.sizes if name not in given)


class TensorRecord(Struct, frozen=True):
    """A tensor of a call, or a temporary of a kernel, by its generated name.

    `label`: the user's name; `limits`: the least and the greatest value of an integer that a caller may give for it.
    """

    name: str
    label: str
    dtype: DType
    shape: tuple[SizeForm, ...]
    limits: tuple[int, int] | None = None


class Failure(PartlyCompared, frozen=True):
    """An error of the catalogue: its code, the values of its templates, and the place in the text."""

    code: str
    values: tuple[tuple[str, str], ...] = ()
    span: Span | None = None


# Whether a form has to be 0, or only not below 0.
SizeCondition: TypeAlias = tuple[bool, SizeForm]


class SizeCheck(Struct, frozen=True):
    """A condition on the sizes of a call: all of one of `any_of` hold, else `failure` is raised."""

    any_of: tuple[tuple[SizeCondition, ...], ...]
    failure: Failure

    @property
    def sizes(self) -> frozenset[str]:
        """The names of the sizes that it speaks of."""
        return frozenset().union(*(names(form) for rows in self.any_of for _, form in rows))


class CallRecord(Struct, frozen=True):
    """What calls of a program bound to types and sizes are checked by.

    `sizes`: the symbolic ones, as (generated name, label). `tensors`: the inputs and outputs; one in both is in-out.
    `acc`: the types that its statements accumulate in.
    """

    sizes: tuple[tuple[str, str], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: tuple[TensorRecord, ...]
    checks: tuple[SizeCheck, ...]
    acc: tuple[str, ...]

    def tensor(self, name: str) -> TensorRecord:
        """Return the input or output of that generated name."""
        return next(t for t in self.tensors if t.name == name)


class Integer(Struct, frozen=True):
    """One i64 argument: the size `name` where `dimension` is None, else the stride (in elements) of tensor `name`."""

    name: str
    dimension: int | None = None


class KernelRecord(Struct, frozen=True):
    """How a kernel is called; it is one for a layout class, and for a class of sizes (see polyker.codegen.artifact).

    `call`: of the program that it was compiled from, of whose sizes some may be constants here. `arguments`: the tensors
    whose pointers are passed first, inputs that are no outputs before outputs; `alignments`: bytes that each pointer has to be a
    multiple of, 0 for what the type needs; `layouts`: one an argument. `integers`: the i64 arguments, after which goes the
    address of the run time's functions where it is `parallel`. `products`: sizes that are the product of two others, in
    the order in which they are computed. `scratch`: temporaries, passed after the arguments, 64-byte aligned and dense;
    pairs of places in it that may lie in the same memory (`disjoint_in_time`), or may where they begin at one place (`in_place`);
    `lifetimes`: of a kernel of parts, the first and the last of its calls that need each: others may lie in the same memory.
    `guards`: what a status means. `work`: see polyker.record.work. `imports`: functions of the C library that it calls.
    `host`: of kernels of a GPU, what the host does for them.
    """

    call: CallRecord
    arguments: tuple[str, ...]
    layouts: tuple[Layout, ...]
    alignments: tuple[int, ...]
    integers: tuple[Integer, ...]
    products: tuple[tuple[str, tuple[str, str]], ...]
    scratch: tuple[TensorRecord, ...]
    disjoint_in_time: tuple[tuple[int, int], ...]
    in_place: tuple[tuple[int, int], ...]
    guards: tuple[tuple[int, Failure], ...]
    parallel: bool
    work: Work
    imports: tuple[str, ...] = ()
    lifetimes: tuple[tuple[int, int], ...] = ()
    host: HostCode | None = None

    @property
    def failures(self) -> dict[int, Failure]:
        """What a status of the kernel means."""
        return dict(self.guards)
