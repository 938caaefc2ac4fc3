"""Operators inside JAX: as functions that jit, grad, vmap and shard_map take, by XLA's foreign function interface.

Nothing of JAX is imported before one of these functions is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyker.process.jobs import load

if TYPE_CHECKING:  # which loads JAX
    from polyker.bridge.jax.function import JaxOperator

__all__ = ["einsum", "op", "safety_checks"]


def op(operator: Any, *, platform: str = "cpu", **sizes: int) -> JaxOperator:
    """Return a function of JAX arrays that an operator, its text, or a program defines; keywords fix sizes of a text.

    `platform`: where JAX runs it, which is "cpu". Raises BackendUnavailable, an ImportError, where JAX is not installed.
    """
    load("polyker.bridge.jax.installed").load_jax()
    made: JaxOperator = load("polyker.bridge.jax.made").made(operator, platform, sizes)
    return made


def einsum(*operands: Any, optimize: Any = True, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Evaluate Einstein's summation convention on JAX arrays, as jax.numpy.einsum does, by polyker's kernels.

    `optimize`: whether, or by which path, more than two operands are contracted in pairs. `precision` changes nothing: products
    have all bits of their type. `preferred_element_type`: of the result, and of the sums where it is wider than the operands.
    Raises ParseError, ShapeError, DTypeError, ArgumentError.
    """
    load("polyker.bridge.jax.installed").load_jax()
    return load("polyker.bridge.jax.contraction").einsum(operands, optimize, preferred_element_type)


def safety_checks(function: Callable[..., Any], *args: Any) -> list[Any]:
    """Return what `jax.export.export` takes as `disabled_checks` for a function that has operators in it.

    It compiles their kernels and registers them in this process, which a process that calls the exported function has to do, too.
    """
    load("polyker.bridge.jax.installed").load_jax()
    found: list[Any] = load("polyker.bridge.jax.made").safety_checks(function, args)
    return found
