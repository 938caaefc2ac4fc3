"""An operator as JAX's transformations see it: its results' types, derivatives, batches, sharding rule and kernels."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from polyker.api.compiling import compiled
from polyker.api.definition import Definition, of_text
from polyker.bridge.jax.extents import sizes_of
from polyker.bridge.jax.installed import check_width, has_wide_types, is_wide
from polyker.errors.base import CompileTimeout, PolykerError, failure
from polyker.errors.calls import SIZE_MISSING
from polyker.errors.jax import COMPLEX_GRADIENT
from polyker.errors.syntax import ReductionWarning
from polyker.ir.dtypes import TensorType
from polyker.options import Options
from polyker.process.jobs import load
from polyker.runtime.compiled import Compiled
from polyker.runtime.executable import Executable
from polyker.runtime.specialise import Family, symbolic_types

if TYPE_CHECKING:  # which come with the compiler
    from polyker.bridge.splitting import SplitRule

_MOST_KINDS = 1024  # of shapes and types whose results are remembered (chosen)


class JaxSource:
    """An operator with what was made of it: there is one for each that is called, differentiated or batched."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.signature, self.fixed = definition.signature, definition.fixed
        self._inferred: dict[Hashable, tuple[TensorType, ...]] = {}
        self._derived: dict[Hashable, JaxSource] = {}
        self._batched: dict[Hashable, tuple[JaxSource, frozenset[str]] | None] = {}
        self._varied: Mapping[str, frozenset[str]] | None = None
        self._families: dict[Hashable, Family] = {}
        self._rules: dict[Hashable, SplitRule | None] = {}

    def __repr__(self) -> str:
        return f"{self.definition.program.name or 'op'}"

    def infer(self, types: Sequence[TensorType], sizes: Mapping[str, int], chosen: Options) -> tuple[TensorType, ...]:
        """Return the types of the outputs; raises ShapeError and DTypeError."""
        key = tuple(types), tuple(sizes.items()), chosen.code_key
        if key not in self._inferred:
            load("polyker.api.stages")
            from polyker.api.stages import inferred

            known = {**self.fixed, **sizes}
            for name in self.signature.free_sizes:
                if name not in known:
                    raise failure(SIZE_MISSING, size=name)
            if len(self._inferred) >= _MOST_KINDS:
                self._inferred.clear()
            self._inferred[key] = inferred(self.definition.program, types, known, chosen)
        return self._inferred[key]

    def results(
        self, types: Sequence[TensorType], sizes: Mapping[str, int], chosen: Options
    ) -> tuple[tuple[TensorType, ...], tuple[TensorType, ...]]:
        """Return types of the inputs and outputs that JAX has; raises as `infer`, and DTypeError where it has not 64 bits."""
        found = self.infer(types, sizes, chosen)
        if not has_wide_types() and any(is_wide(t.dtype) for t in found) and any(t.weak for t in types):
            # Numbers alone give 64 bits; those of JAX's own types do not.
            types = tuple(TensorType(t.dtype, t.shape) for t in types)
            found = self.infer(types, sizes, chosen)
        for name, result in zip(self.signature.outputs, found, strict=True):
            check_width(name, result)
        return tuple(types), found

    def derived(self, kind: str, wrt: Sequence[str], of: Sequence[str]) -> JaxSource:
        """Return the operator of a derivative, "vjp" or "jvp"; raises GradientError."""
        key = kind, tuple(wrt), tuple(of)
        if key not in self._derived:
            load("polyker.api.stages")
            from polyker.api.stages import derived

            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ReductionWarning)  # of terms of a text that nobody has written
                ((text, fixed),) = derived(kind, self.definition.program, self.fixed, tuple(wrt), tuple(of))
                self._derived[key] = source_of_text(text, fixed)
        return self._derived[key]

    def varied(self, types: Sequence[TensorType], results: Sequence[TensorType]) -> Mapping[str, frozenset[str]]:
        """Return of each output the inputs that it changes with; raises GradientError where it has no derivative."""
        signature = self.signature
        for name, found in (*zip(signature.inputs, types, strict=True), *zip(signature.outputs, results, strict=True)):
            if found.dtype.is_complex:
                raise failure(COMPLEX_GRADIENT, name=name, type=found)
        if self._varied is None:
            load("polyker.api.stages")
            from polyker.api.stages import varied

            self._varied = varied(self.definition.program, self.fixed)
        return self._varied

    def batched(self, axes: Mapping[str, int]) -> tuple[JaxSource, frozenset[str]] | None:
        """Return the operator over a batch of some inputs, with the tensors that have it; None where a text cannot say it."""
        key = tuple(axes.items())
        if key not in self._batched:
            load("polyker.bridge.batched")
            from polyker.bridge.batched import batched

            self._batched[key] = None
            try:
                made = batched(self.definition.program, axes)
                if made is not None:
                    self._batched[key] = source_of_text(made.text, self.fixed), made.tensors
            except PolykerError:
                pass  # such as too many indices
        return self._batched[key]

    def rule(self, inputs: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]]) -> SplitRule | None:
        """Return how the operator splits over devices for such shapes, None where that is not known."""
        names = self.signature.inputs, self.signature.outputs
        ranks = {n: len(s) for side in zip(names, (inputs, outputs), strict=True) for n, s in zip(*side, strict=True)}
        key = tuple(ranks.items())
        if key not in self._rules:
            load("polyker.bridge.splitting")
            from polyker.bridge.splitting import split_rule

            self._rules[key] = split_rule(self.definition.program, self.fixed, ranks)
        found = self._rules[key]
        return None if found is None else found.for_shapes(inputs, outputs)

    def symbolic(self, types: Sequence[TensorType], sizes: Mapping[str, int], chosen: Options) -> Compiled:
        """Return the operator bound to types as they are, with names for extents that are not known."""
        return compiled(self.definition, types, {**sizes, **self.fixed}, chosen, "cpu")

    def executable(self, types: Sequence[TensorType], sizes: Mapping[str, int], chosen: Options) -> Executable:
        """Return the kernel for types, one for symbolic sizes after some shapes; raises as a call of the operator does."""
        family_key = tuple((t.dtype, len(t.shape), t.weak) for t in types), tuple(sizes.items()), chosen.code_key
        family = self._families.setdefault(family_key, Family())
        if family.wants_symbolic(tuple(t.shape for t in types), chosen.specialize):
            try:
                made = self.symbolic(symbolic_types(self.signature, types), sizes, chosen)
                values = sizes_of(made.record, [t.shape for t in types])
                made.check(values)
                return made.executable(None, values)
            except CompileTimeout:
                raise
            except PolykerError:
                family.symbolic = False  # as a program with a product of sizes
        made = self.symbolic(types, sizes, chosen)
        made.check({})
        return made.executable()


def source_of_text(text: str, fixed: Mapping[str, int]) -> JaxSource:
    """Return the source of a text."""
    return JaxSource(of_text(text, fixed))
