"""Make functions of JAX arrays of operators, and say which custom calls a function makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from polyker.api.operator import Operator, op
from polyker.bridge.jax.function import JaxOperator
from polyker.bridge.jax.source import JaxSource
from polyker.bridge.jax.targets import PLATFORM, PREFIX
from polyker.errors.base import failure
from polyker.errors.calls import BAD_OPTION
from polyker.errors.given import exact_text, is_a, printed
from polyker.errors.jax import NO_JAX_PLATFORM


def made(operator: Any, platform: object, sizes: Mapping[str, int]) -> JaxOperator:
    """Return the function of an operator, a text or a program, for a platform of JAX's."""
    name = exact_text(platform)
    if name in ("cuda", "gpu", "rocm", "tpu"):
        raise failure(NO_JAX_PLATFORM, platform=name, known=PLATFORM)
    if name != PLATFORM:
        raise failure(BAD_OPTION, name="platform", value=printed(platform), accepted=PLATFORM)
    found = operator if is_a(operator, Operator) and not sizes else op(operator, **sizes)
    return JaxOperator(JaxSource(found._definition))


def safety_checks(function: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    """Return the checks of jax.export that a function's custom calls fail, which are registered by this."""
    text = jax.jit(function).lower(*args).as_text()
    names = sorted(set(re.findall(rf"@({PREFIX}[0-9a-fx]+(?:_any)?)\(", text)))
    return [jax.export.DisabledSafetyCheck.custom_call(name) for name in names]
