"""What has to be known of a library whose tensors are read by the C exchange API of DLPack, which leaves that out.

torch's API gives the memory of tensors whose sign is lazy and of those that record gradients, and does not know of the modes
under which tensors are not what they seem.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from msgspec import Struct

BYTE = 16  # of integers of 8 bits a second bit, so many behind the first
_INTEGERS, _COMPLEX = (0, 1), 5  # DLPack's codes
_ANY = -1


class TensorCheck(Struct, frozen=True):
    """What a function of C says of a tensor has to be one of `wanted`; else `ask`, which has to answer `answer`."""

    name: str
    wanted: tuple[object, ...]
    codes: int = _ANY
    ask: Callable[[], object] | None = None
    answer: object = None


class TensorLibrary(Struct, frozen=True):
    """What is known of a library: its classes, checks of inputs and outputs, watched items of dicts, what notes a write."""

    classes: tuple[type, ...] = ()
    checks: tuple[TensorCheck, ...] = ()
    output_checks: tuple[TensorCheck, ...] = ()
    watches: tuple[tuple[dict[str, Any], str, object], ...] = ()
    written: Callable[..., object] | None = None


def library_of(cls: type) -> TensorLibrary | None:
    """Return what has to be known of the library of a class, None where that cannot be."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and issubclass(cls, torch.Tensor):
        found = _torch(torch)
        return found if cls in found.classes else None
    # A library whose tensors record gradients in some way of its own.
    return None if hasattr(cls, "requires_grad") else TensorLibrary()


def _torch(torch: Any) -> TensorLibrary:
    """Return what has to hold of torch's tensors; subclasses, whose values may lie elsewhere, are none of its classes."""
    no_gradient = TensorCheck("requires_grad", (False,), ask=torch.is_grad_enabled, answer=False)
    # Of integers of fewer bits the API says that they have 8.
    whole_byte = TensorCheck("dtype", (torch.int8, torch.uint8), sum(1 << kind + BYTE for kind in _INTEGERS))
    changeable = TensorCheck("is_inference", (False,), ask=torch.is_inference_mode_enabled, answer=True)
    return TensorLibrary(
        (torch.Tensor, torch.nn.Parameter),
        (no_gradient, TensorCheck("is_neg", (False,)), TensorCheck("is_conj", (False,), 1 << _COMPLEX), whole_byte),
        (changeable,),
        (
            # Tangents, and modes under which tensors are not what they seem.
            (torch.autograd.forward_ad.__dict__, "_current_level", -1),
            (torch.utils._python_dispatch.__dict__, "_is_in_torch_dispatch_mode", False),
        ),
        # What `torch.autograd.graph.increment_version` calls; that is a function of Python, and takes twice as long.
        getattr(torch._C, "_increment_version", torch.autograd.graph.increment_version),
    )


def exchange_code(code: int) -> int:
    """Return the bits that say which checks elements of a DLPack type need (RecordWord.CODES)."""
    kind, bits = code & 255, code >> 8 & 255
    # torch says of its integers of fewer bits that they have 8.
    return 1 << kind | (1 << kind + BYTE if kind in _INTEGERS and bits == 8 else 0)
