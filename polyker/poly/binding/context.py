"""What binding knows of the sizes: their generated names, what holds of them, and the checks left for the call."""

from __future__ import annotations

from typing import Any

from polyker.errors.base import PolykerError, Span, failure
from polyker.errors.shapes import BAD_SIZE
from polyker.ir.program import Program
from polyker.ir.typed import Check
from polyker.ir.typed_printing import relabel
from polyker.poly import isl
from polyker.poly.affine import Affine, Condition, condition_text, constant, holds, show, variable

_MAX_PIECES = 32  # of a union, beyond which what a check demands is not used to prove others (chosen)


class BindingContext:
    """Names and facts gathered while a program is bound; grows, never shrinks.

    `labels` maps generated names to the user's. `facts` are conditions on sizes that hold at every call: sizes are not
    negative, and whatever a check demands. `program`: what is bound, for hints.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sizes: dict[str, str] = {}  # label -> generated name
        self.labels: dict[str, str] = {}
        self.facts: list[str] = []
        self.checks: list[Check] = []
        self._set: Any = None
        self._known: Any = None
        self._checked: list[Any] = []  # what checks demand, beside the facts
        self.equal: dict[str, Affine] = {}  # a size that a check makes equal to an earlier one, or to a number
        self.from_shapes: set[str] = set()  # labels of sizes that a shape gives
        self._iterators = 0

    def symbol(self, label: str) -> Affine:
        """Return the size of that label, made on its first use."""
        name = self.sizes.get(label)
        if name is None:
            name = self.sizes[label] = f"n{len(self.sizes)}"
            self.labels[name] = label
            self.add_fact(f"{name} >= 0")
        return variable(name)

    def demand_size(self, form: Affine, name: str) -> None:
        """Check at the call that a size that no shape gives is not negative (`symbol` took it for a fact)."""
        text = isl.condition_set_text(self.names, [f"{form.text} >= 0"])
        self.checks.append(Check(text, BAD_SIZE, (("size", name), ("why", "is negative")), None))

    def iterator(self, label: str) -> str:
        """Return a fresh iterator that is shown as `label`."""
        name = f"i{self._iterators}"
        self._iterators += 1
        self.labels[name] = label
        return name

    def label(self, name: str) -> str:
        """Return the user's name of a generated one."""
        return self.labels.get(name, name)

    def show(self, form: Affine) -> str:
        """Return a form as the user would write it."""
        return show(form, self.label)

    @property
    def names(self) -> tuple[str, ...]:
        """The symbolic sizes, in the order of their making."""
        return tuple(self.sizes.values())

    @property
    def text(self) -> str:
        """The isl text of what holds of the sizes."""
        return isl.condition_set_text(self.names, self.facts)

    @property
    def set(self) -> Any:
        """The facts as an isl parameter set; convex, so that what is computed with it stays simple."""
        if self._set is None:
            self._set = isl.read_set(self.text)
        return self._set

    @property
    def known(self) -> Any:
        """The facts and all that checks demand, as an isl parameter set: to decide, not to compute with."""
        if self._known is None:
            self._known = self.set
            for condition in self._checked:
                self._known = self._known.intersect(condition)
        return self._known

    def add_fact(self, text: str) -> None:
        """Record a condition on sizes that holds at every call."""
        if text not in self.facts:
            self.facts.append(text)
            self._set = self._known = None

    def unify(self, form: Affine) -> Affine:
        """Return a form with sizes that checks make equal written as one."""
        return form.replace(self.equal) if self.equal else form

    def _make_equal(self, form: Affine) -> None:
        """Record what form = 0 says, where it says that a size equals another one or a number."""
        signs = [c for _, c in form.terms]
        names = [a for a, _ in form.terms if isinstance(a, str)]
        if len(names) != len(signs) or any(abs(c) != 1 for c in signs):
            return
        if len(names) == 1 and -form.const * signs[0] >= 0:
            self._replace(names[0], constant(-form.const * signs[0]))
        elif len(names) == 2 and form.const == 0 and sum(signs) == 0:
            early, late = sorted(names, key=lambda n: int(n[1:]))
            self._replace(late, variable(early))

    def _replace(self, name: str, value: Affine) -> None:
        self.equal = {n: v.replace({name: value}) for n, v in self.equal.items()} | {name: value}

    def proves(self, condition: Condition) -> bool:
        """Whether a condition on sizes holds at every call."""
        op, form = condition
        known = holds(condition)
        if known is not None:
            return known
        if op == "ge" and form.const >= 0 and all(c > 0 and isinstance(a, str) for a, c in form.terms):
            return True
        text = condition_text(condition)
        if text in self.facts:
            return True
        return bool(self.known.is_subset(self.read([text])))

    def read(self, conditions: list[str]) -> Any:
        """Return the isl parameter set of conditions on sizes."""
        return isl.read_set(isl.condition_set_text(self.names, conditions))

    def require(self, condition: Condition, code: str, span: Span | None, **values: object) -> None:
        """Make sure that a condition on sizes holds: proved, or checked at the call; raises where it cannot hold."""
        if self.proves(condition):
            return
        text = condition_text(condition)
        if condition[1].is_constant or self.known.is_disjoint(self.read([text])):
            raise self.error(code, span, **values)
        self._check(isl.condition_set_text(self.names, [text]), text, code, span, values)
        if condition[0] == "eq":
            self._make_equal(self.unify(condition[1]))

    def require_none(self, bad: Any, among: Any, code: str, span: Span | None, **values: object) -> None:
        """Make sure that a set of bad points is empty: proved, or checked at the call.

        `among` are the points that `bad` is a part of. Raises where there are bad ones for all sizes for which there are
        any points: an operator that works only when it does nothing is no operator.
        """
        failing = bad.params()
        if self.known.is_disjoint(failing):
            return
        if self.known.subtract(failing).is_disjoint(among.params()):
            raise self.error(code, span, **values)
        self._require_set(self.set.subtract(failing), code, span, values)

    def require_set(self, condition: Any, code: str, span: Span | None, **values: object) -> None:
        """As `require`, for an isl parameter set over the sizes."""
        if self.known.is_subset(condition):
            return
        if self.known.is_disjoint(condition):
            raise self.error(code, span, **values)
        self._require_set(condition, code, span, values)

    def _require_set(self, condition: Any, code: str, span: Span | None, values: dict[str, object]) -> None:
        needed = condition.gist(self.set).coalesce()
        self._check(str(needed), isl.constraints_of(needed), code, span, values)
        if self.known.n_basic_set() * needed.n_basic_set() <= _MAX_PIECES:
            self._checked.append(needed)
            self._known = None

    def _check(self, condition: str, fact: str, code: str, span: Span | None, values: dict[str, object]) -> None:
        shown = tuple((k, str(v)) for k, v in values.items())
        self.checks.append(Check(condition, code, shown, span))
        if "exists" not in fact and " or " not in fact and fact:
            self.add_fact(fact)

    def relabel(self, text: str) -> str:
        """Return a printed isl text with the user's names in place of generated ones."""
        return relabel(text, self.labels)

    def error(self, code: str, span: Span | None, **values: object) -> PolykerError:
        """Return an error of the catalogue that does not depend on sizes."""
        return failure(code, span=span, hint=None, **(values | {"sizes": ""}))
