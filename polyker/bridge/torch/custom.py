"""Register operators in torch: with shapes for tracing, gradients, and batches for vmap."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from threading import RLock
from typing import Any, TypeVar

import torch
from torch.fx import GraphModule

from polyker.api.operator import Operator
from polyker.api.operator import op as polyker_op
from polyker.bridge.batched import batched
from polyker.bridge.torch.fakes import fake_types
from polyker.errors.base import GradientError, failure
from polyker.errors.calls import BAD_ARGUMENT
from polyker.errors.given import is_a
from polyker.errors.gradients import INDEPENDENT
from polyker.runtime.arguments import matched, result_tuple
from polyker.store.keys import digest

T = TypeVar("T")

_made: dict[str, TorchOperator] = {}
_lock = RLock()


def op(definition: object, name: str | None = None, **sizes: int) -> TorchOperator:
    """Return an operator of polyker as one of torch: it takes tensors, has gradients, and is one node of a traced graph.

    `definition`: an Operator, a text or a program; keywords fix sizes. `name`: what graphs call it. Raises as `polyker.op`.
    """
    if name is not None and not (is_a(name, str) and re.fullmatch(r"[A-Za-z_]\w*", name)):
        raise failure(BAD_ARGUMENT, name="name", type=type(name).__name__, wanted="a name of letters, digits and _")
    made = definition if isinstance(definition, Operator) and not sizes else polyker_op(_program(definition), **sizes)
    return registered(made, name)


def _program(definition: object) -> object:
    return definition.program if isinstance(definition, Operator) else definition


def registered(made: Operator, name: str | None, residuals: Residuals | None = None) -> TorchOperator:
    """Return the operator of torch for one of polyker; there is one for each program and name.

    `residuals`: what it returns besides outputs, of a forward pass.
    """
    shown = name or made.program.name or "op"
    full = f"{shown}_{made.identity[:12]}"
    if residuals is not None:
        full += "_" + digest(residuals.operator.identity, *residuals.wrt)[:12]
    with _lock:
        if full not in _made:
            _made[full] = TorchOperator(made, full, shown, residuals)
        return _made[full]


def directly(gm: GraphModule) -> None:
    """Let a traced graph call the operators in it without torch's dispatcher, which has done its part."""
    with _lock:
        made = {operator.custom._opoverload: operator for operator in _made.values()}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target in made:
            node.target = made[node.target].compute


class TorchOperator:
    """An operator of torch that polyker computes. Made by `polyker.torch.op`; call it on tensors as the operator of polyker."""

    def __init__(self, operator: Operator, full: str, name: str, residuals: Residuals | None = None) -> None:
        self.operator, self.name, self._residuals = operator, name, residuals
        # Of its own, so that tracing a call does not look into the operator.
        signature = self.signature = operator.signature
        self.fixed = dict(operator.fixed)
        self._fields = result_tuple(signature.outputs)
        self._single = len(signature.outputs) == 1
        self.sizes = [n for n in signature.sizes if n in {*signature.free_sizes, *signature.parameters}]
        self.sizes = [n for n in self.sizes if n not in operator.fixed]
        self._gradients: dict[tuple[tuple[str, ...], tuple[str, ...]], Gradient] = {}
        self._forward: dict[tuple[str, ...], TorchOperator | None] = {}
        self._batched: dict[tuple[tuple[str, int], ...], tuple[TorchOperator, frozenset[str]] | None] = {}
        parameters = [f"Tensor t{k}" for k in range(len(signature.inputs))]
        parameters += [f"SymInt n{k}" for k in range(len(self.sizes))]
        results = "Tensor" if self._single else f"({', '.join('Tensor' for _ in signature.outputs)})"
        self.custom = torch.library.custom_op(
            f"polyker::{full}", self.compute, mutates_args=(), schema=f"({', '.join(parameters)}) -> {results}"
        )
        self.custom.register_fake(self._fake)
        self.custom.register_autograd(self._backward, setup_context=self._save)
        self.custom.register_vmap(self._vmap)

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Compute the outputs for tensors given by position or name, and sizes by keyword."""
        signature, fixed = self.signature, self.fixed
        if not named and len(args) == len(signature.parameters) == len(signature.inputs) and not self.sizes:
            values: Sequence[Any] = args
            sizes: dict[str, Any] = {}
        else:
            left = signature.parameters[len(args) :]
            values, sizes = matched(signature, args, {**{n: v for n, v in fixed.items() if n in left}, **named})
        if not all(isinstance(v, torch.Tensor) for v in values):
            values = self._tensors(values)
        forward = self._with_residuals(values)
        result = (self if forward is None else forward).custom(*values, *(sizes[n] for n in self.sizes))
        if not isinstance(result, torch.Tensor):  # several: outputs, and after them residuals
            result = result[0] if self._single else self._fields(*result[: len(self.signature.outputs)])
        return result

    def _with_residuals(self, values: Sequence[Any]) -> TorchOperator | None:
        """Return the forward pass that keeps residuals for the gradient by what needs one, None where it keeps none."""
        if not torch.is_grad_enabled() or torch.compiler.is_dynamo_compiling() or self._residuals is not None:
            return None
        wrt = tuple(n for n, t in zip(self.signature.inputs, values, strict=True) if t.requires_grad)
        if not wrt:
            return None
        with _lock:
            if wrt not in self._forward:
                self._forward[wrt] = forward_pass(self.operator, self.name, wrt)
            return self._forward[wrt]

    def _tensors(self, values: Sequence[Any]) -> list[Any]:
        """Return numbers among arguments as tensors of the others' type."""
        like = next((v for v in values if isinstance(v, torch.Tensor)), None)
        if like is None:
            return [torch.as_tensor(v) for v in values]
        return [
            v
            if isinstance(v, torch.Tensor)
            else torch.as_tensor(v, dtype=torch.result_type(like, v), device=like.device)
            for v in values
        ]

    def _split(self, args: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        count = len(self.signature.inputs)
        return args[:count], dict(zip(self.sizes, args[count:], strict=True))

    def compute(self, *args: Any) -> Any:
        """Compute the results, a tensor or a tuple, for tensors and then sizes, by no graph of gradients."""
        tensors, sizes = self._split(args)
        given = [t.detach() if t.requires_grad or type(t) is not torch.Tensor else t for t in tensors]
        signature = self.signature
        if signature.parameters[: len(given)] == signature.inputs:
            result = self.operator(*given, **sizes)
        else:
            result = self.operator(**dict(zip(signature.inputs, given, strict=True)), **sizes)
        return result if self._single else tuple(result)

    def _fake(self, *args: Any) -> Any:
        tensors, sizes = self._split(args)
        like = tensors[0] if tensors else None
        found = [
            torch.empty(shape, dtype=dtype) if like is None else like.new_empty(shape, dtype=dtype)
            for shape, dtype in fake_types(self.operator, tensors, sizes)
        ]
        return found[0] if self._single else tuple(found)

    def _save(self, ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        tensors, ctx.sizes = self._split(inputs)
        outs = (output,) if self._single else output
        ctx.save_for_backward(*tensors, *(outs if self._residuals is not None else ()))
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(o for o in outs if not (o.is_floating_point() or o.is_complex())))

    def _backward(self, ctx: Any, *grads: Any) -> tuple[Any, ...]:
        signature, tensors = self.signature, ctx.saved_tensors
        inputs = dict(zip(signature.inputs, tensors, strict=False))
        needs = dict(zip(signature.inputs, ctx.needs_input_grad, strict=False))
        needed = tuple(n for n, t in inputs.items() if needs[n] and (t.is_floating_point() or t.is_complex()))
        given = {n: g for n, g in zip(signature.outputs, grads, strict=True) if g is not None}
        found: dict[str, Any] = dict.fromkeys(signature.inputs)
        if needed and given:
            found |= {n: torch.zeros_like(inputs[n]) for n in needed}
            values, gradient = inputs, None
            if self._residuals is not None and (gradient := self._residuals.gradient(needed, tuple(given))) is not None:
                values = {**inputs, **dict(zip(signature.outputs, tensors[len(inputs) :], strict=True))}
            gradient = gradient or self._gradient(needed, tuple(given))
            found |= {n: g.to(inputs[n].dtype) for n, g in gradient(values, given, ctx.sizes).items() if n in needed}
        return *found.values(), *(None for _ in self.sizes)

    def _gradient(self, wrt: tuple[str, ...], of: tuple[str, ...]) -> Gradient:
        with _lock:
            if (wrt, of) not in self._gradients:
                self._gradients[wrt, of] = reverse(self.operator, self.name, wrt, of)
            return self._gradients[wrt, of]

    def _vmap(self, info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        tensors, sizes = self._split(args)
        signature, count = self.signature, info.batch_size
        given, axes = dict(zip(signature.inputs, tensors, strict=True)), {}
        for name, d in zip(signature.inputs, in_dims, strict=False):
            if name in signature.outputs:  # it has the batch in front
                given[name] = given[name].expand(count, *given[name].shape) if d is None else given[name].movedim(d, 0)
                d = 0
            if d is not None:
                axes[name] = d
        made = self._over_batch(tuple(axes.items()))
        dims: list[int | None]
        if made is None:
            rows = [
                self.custom(*(t.select(axes[n], k) if n in axes else t for n, t in given.items()), *sizes.values())
                for k in range(count)
            ]
            columns = zip(*(row if isinstance(row, tuple) else (row,) for row in rows), strict=True)
            found, dims = [torch.stack(column) for column in columns], [0 for _ in signature.outputs]
        else:
            operator, having = made
            result = operator(**given, **sizes)
            found = list(result) if isinstance(result, tuple) else [result]
            dims = [0 if n in having else None for n in signature.outputs]
        return (found[0], dims[0]) if self._single else (tuple(found), tuple(dims))

    def _over_batch(self, axes: tuple[tuple[str, int], ...]) -> tuple[TorchOperator, frozenset[str]] | None:
        """Return the operator over a batch in these dimensions of inputs, and the tensors that have it; None if there is none."""
        with _lock:
            if axes not in self._batched:
                found = batched(self.operator.program, dict(axes))
                self._batched[axes] = (
                    None
                    if found is None
                    else (registered(polyker_op(found.text, **self.fixed), f"{self.name}_batch"), found.tensors)
                )
            return self._batched[axes]

    def __repr__(self) -> str:
        return f"<polyker.torch operator {self.name} of {self.operator!r}>"


class Gradient:
    """Reverse mode of an operator by inputs `wrt` and of outputs `of`: an operator of torch, and what it takes.

    `own`: the names of the values that it may take besides gradients.
    """

    def __init__(self, made: TorchOperator | None, wrt: Sequence[str], of: Sequence[str], own: Iterable[str]) -> None:
        self.made, self.wrt = made, list(wrt)
        mine = {*own}
        rest = [n for n in (made.signature.inputs if made is not None else ()) if n not in mine]
        self._of: dict[str, str] = {}
        for output in of:  # a gradient that is needed for nothing is no input
            if rest and re.fullmatch(rf"d{re.escape(output)}(_\d+)?", rest[0]):
                self._of[rest.pop(0)] = output
        # The values that it takes, and the outputs whose gradients it does.
        self.takes = {self._of.get(n, n) for n in (made.signature.inputs if made is not None else ())}

    def __call__(self, values: Mapping[str, Any], grads: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the gradients by the inputs that the outputs depend on."""
        if self.made is None:
            return {}
        signature = self.made.signature
        given = {n: grads[self._of[n]] if n in self._of else values[n] for n in signature.inputs}
        given |= {n: sizes[n] for n in self.made.sizes if n in sizes}
        found = self.made(**given)
        return dict(zip(self.wrt, found if isinstance(found, tuple) else (found,), strict=True))


def reverse(operator: Operator, name: str, wrt: Sequence[str], of: Sequence[str]) -> Gradient:
    """Return reverse mode, by those inputs among some that the outputs depend on; raises GradientError."""
    left, made = _dependent(wrt, lambda left: operator.vjp(left, of))
    backward = None if made is None else registered(made, f"{name}_vjp")
    return Gradient(backward, left, of, operator.signature.inputs)


class Residuals:
    """What a forward pass returns for the gradients of an operator by inputs `wrt`, besides its outputs."""

    def __init__(self, operator: Operator, name: str, wrt: Sequence[str], forward: Operator) -> None:
        self.operator, self.name, self.wrt = operator, name, list(wrt)
        self._own = {*forward.signature.inputs, *forward.signature.outputs}
        self._gradients: dict[tuple[str, ...], Gradient] = {}

    def gradient(self, needed: Collection[str], of: tuple[str, ...]) -> Gradient | None:
        """Return reverse mode that reads residuals; None where it is asked for more than they were chosen for."""
        if not {*needed} <= {*self.wrt} or not {*of} <= {*self.operator.signature.outputs}:
            return None
        with _lock:
            if of not in self._gradients:
                left, passes = _dependent(self.wrt, lambda left: self.operator.vjp_with_residuals(left, of))
                made = None if passes is None else registered(passes[1], f"{self.name}_vjp")
                self._gradients[of] = Gradient(made, left, of, self._own)
            found = self._gradients[of]
            return found if found.takes <= {*self._own, *of} else None


def forward_pass(operator: Operator, name: str, wrt: Sequence[str]) -> TorchOperator | None:
    """Return the forward pass that keeps residuals; None where the gradient reads none, or where there is no gradient."""
    try:
        left, passes = _dependent(wrt, operator.vjp_with_residuals)
    except GradientError:
        return None  # which is raised where a gradient is asked for
    if passes is None:
        return None
    forward, backward = passes
    if not {*backward.signature.inputs} & {*forward.signature.outputs} - {*forward.signature.inputs}:
        return None
    if forward.signature.parameters != operator.signature.parameters:  # it takes no input that is needed for nothing
        return None
    return registered(forward, f"{name}_forward", Residuals(operator, name, left, forward))


def _dependent(wrt: Sequence[str], derive: Callable[[list[str]], T]) -> tuple[list[str], T | None]:
    """Return what `derive` makes for those inputs that the outputs depend on, with these inputs; None where there are none."""
    left = list(wrt)
    while left:
        try:
            return left, derive(left)
        except GradientError as error:
            lost = error.values.get("wrt")
            if error.code != INDEPENDENT or lost not in left:
                raise
            left.remove(str(lost))  # whose gradient is 0
    return left, None
