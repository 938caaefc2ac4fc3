"""The JSON form of records: an object for each, with its class's name as `is`; fields at their default are left out."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from polyker.errors.base import Source, Span
from polyker.ir.dtypes import DTYPES, DType
from polyker.ir.layout import Layout
from polyker.record import host_code, records

T = TypeVar("T")
_CLASSES: dict[str, Any] = {
    c.__name__: c
    for c in (
        records.Signature, records.DeclaredShape, records.CallRecord, records.TensorRecord, records.SizeCheck, records.Failure,
        records.KernelRecord, records.Integer, Layout,
        host_code.HostCode, host_code.DeviceBuffer, host_code.LaunchRecord, host_code.HostLoop, host_code.HostBranch,
    )
}  # fmt: skip


def encode(record: object, text: str | None = None) -> str:
    """Return a record as JSON; `text`: the operator's, which places in it need not repeat."""
    return json.dumps(_plain(record, text), separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def decode(cls: type[T], data: str | bytes, text: str | None = None) -> T:
    """Return the record of a class that a JSON text stands for; raises ValueError for any other text."""
    source = None if text is None else Source(text)
    try:
        found = _record(json.loads(data), source)
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a record: {error!r}") from error
    if not isinstance(found, cls):
        raise ValueError(f"not a {cls.__name__}, but a {type(found).__name__}")
    return found


def _plain(value: Any, text: str | None) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case tuple():
            return [_plain(v, text) for v in value]
        case DType():
            return {"is": "DType", "name": value.name}
        case Span(source=source, start=start, end=end):
            own = {} if source.text == text else {"text": source.text}
            return {"is": "Span", "at": [start, end], **own}
    if type(value).__name__ not in _CLASSES:
        raise TypeError(f"{type(value).__name__} is no part of a record")
    cls = type(value)
    defaults = dict(zip(reversed(cls.__struct_fields__), reversed(cls.__struct_defaults__), strict=False))
    given = ((name, getattr(value, name)) for name in cls.__struct_fields__)
    return {"is": cls.__name__} | {
        name: _plain(v, text) for name, v in given if name not in defaults or v != defaults[name]
    }


def _record(data: Any, source: Source | None) -> Any:
    if isinstance(data, list):
        return tuple(_record(d, source) for d in data)
    if not isinstance(data, dict):
        return data
    name = data.pop("is")
    if name == "DType":
        return DTYPES[data["name"]]
    if name == "Span":
        own = Source(data["text"]) if "text" in data else source
        return None if own is None else Span(own, *data["at"])
    return _CLASSES[name](**{key: _record(value, source) for key, value in data.items()})
