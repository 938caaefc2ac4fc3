"""The stream that a call is queued on: the caller's, else the current one of the arrays' library, else the default one."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from operator import index
from typing import Any

from polyker.errors.base import failure
from polyker.errors.codegen import BAD_STREAM
from polyker.errors.given import is_a, type_name
from polyker.runtime.foreign import detached

_LEGACY = 1  # CU_STREAM_LEGACY: the default stream by a handle that is not null
# Where streams of torch, of CuPy, and of PyCUDA and Numba have their handles.
_HANDLES = ("cuda_stream", "ptr", "handle")


def stream_handle(stream: object) -> int:
    """Return the handle of a stream given as an integer, by the protocol `__cuda_stream__`, or of a known library.

    Raises ArgumentError for anything else.
    """
    try:
        found = _handle(stream)
    except Exception as error:
        raise failure(BAD_STREAM, type=type_name(stream)) from error
    if found is None:
        raise failure(BAD_STREAM, type=type_name(stream))
    return 0 if found == _LEGACY else found


def _handle(stream: Any) -> int | None:
    """Return the handle of a stream as it says, None where it is none; raises what it raises."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        return index(stream) if stream >= 0 else None
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return _handle(protocol()[1])
    for name in _HANDLES:
        found = getattr(stream, name, None)
        if found is not None:
            return _handle(getattr(found, "value", found) or 0)
    return None


def current_stream(library: str, like: Any) -> int:
    """Return the handle of a library's current stream on the device of one of its arrays."""
    module: Any = sys.modules.get(library)
    match library:
        case "torch":
            return current_of_torch(module, like.device.index or 0)
        case "cupy":
            return stream_handle(module.cuda.get_current_stream())
        case _:
            return 0


def current_of_torch(torch: Any, device: int) -> int:
    """Return the handle of torch's current stream on a device."""
    raw = getattr(
        getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None
    )  # a tenth of the time; torch's own kernels ask so
    found: int = stream_handle(torch.cuda.current_stream(device)) if raw is None else raw(device)
    return found


def keep_until_done(values: Iterable[Any], stream: int) -> None:
    """Let torch hand on the memory of tensors only when what a stream does now is done, wherever they are dropped before."""
    torch: Any = sys.modules.get("torch")
    tensor: Any = getattr(torch, "Tensor", None)
    for value in values if tensor is not None else ():
        if not is_a(value, tensor):
            continue
        plain = value if type(value) is tensor else detached(value)
        if plain.is_cuda:
            device = plain.device
            if stream != current_of_torch(torch, device.index or 0):
                plain.record_stream(_stream_of_torch(torch, stream, device))


def _stream_of_torch(torch: Any, stream: int, device: Any) -> Any:
    # torch.cuda.ExternalStream(0) is a stream of the pool's, not the default one (pytorch issue 182960).
    return torch.cuda.ExternalStream(stream, device=device) if stream else torch.cuda.default_stream(device)


def as_current(library: str, like: Any, stream: int) -> AbstractContextManager[Any]:
    """Return a context in which a library's new arrays belong to a stream, so that it hands their memory on in its order."""
    if library not in ("torch", "cupy") or stream == current_stream(library, like):
        return nullcontext()
    cuda: Any = sys.modules[library].cuda
    if library == "cupy":
        found: AbstractContextManager[Any] = cuda.ExternalStream(stream)
        return found
    chosen = _stream_of_torch(sys.modules["torch"], stream, like.device)
    context: AbstractContextManager[Any] = cuda.stream(chosen)
    return context
