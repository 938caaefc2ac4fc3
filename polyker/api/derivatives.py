"""The derivatives of an operator: operators, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from polyker.api.definition import STEPS_KEPT, Definition, GivenNames, of_text
from polyker.errors.tracebacks import api_class
from polyker.process.jobs import load

if TYPE_CHECKING:  # the front end's own data
    from polyker.ir.program import Program


@api_class
class Differentiable:
    """What has a definition, and derivatives that are of its own class."""

    _definition: Definition

    @property
    def program(self) -> Program:
        """The program that it was parsed from or built as."""
        return self._definition.program

    def vjp(self, wrt: GivenNames = None, of: GivenNames = None, memory: int | None = STEPS_KEPT) -> Self:
        """Return reverse mode: the operator that takes the inputs, and gradients by outputs `of`, to those by inputs `wrt`.

        Both are names, None for all of floats; the gradient by `C` is called `dC`. What it needs for nothing is no input.
        `memory`: of how many steps of a loop it keeps values at once, None for all. Raises GradientError, ArgumentError.
        """
        return self._derived("vjp", wrt, of, memory)[0]

    def vjp_with_residuals(
        self, wrt: GivenNames = None, of: GivenNames = None, memory: int | None = STEPS_KEPT
    ) -> tuple[Self, Self]:
        """Return a forward and a backward pass: `vjp` that reads results and reductions that the forward pass returns.

        The forward pass takes the inputs to all outputs, and after them to what the other reads besides; by these names the
        backward pass takes them, among inputs and gradients as `vjp` does. The rest is as of `vjp`.
        """
        forward, backward = self._derived("residuals", wrt, of, memory)
        return forward, backward

    def grad(self, wrt: GivenNames = None, of: GivenNames = None, memory: int | None = STEPS_KEPT) -> Self:
        """Return the operator of the gradient of a number, the output `of`; the rest is as of `vjp`."""
        return self._derived("grad", wrt, of, memory)[0]

    def jvp(self, wrt: GivenNames = None, of: GivenNames = None, memory: int | None = STEPS_KEPT) -> Self:
        """Return forward mode: the operator that takes the inputs, and changes of inputs `wrt`, to those of outputs `of`."""
        return self._derived("jvp", wrt, of, memory)[0]

    def _derived(self, kind: str, wrt: GivenNames, of: GivenNames, memory: int | None) -> list[Self]:
        load("polyker.api.stages")
        from polyker.api.stages import derived

        made: Any = type(self)
        fixed = self._definition.fixed
        return [made(of_text(*found)) for found in derived(kind, self.program, fixed, wrt, of, memory)]
