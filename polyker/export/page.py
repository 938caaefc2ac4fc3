"""A page that holds a WebAssembly module, runs its operators, checks them by plain JavaScript, and shows what both take."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from polyker.codegen.artifact import Artifact
from polyker.errors.base import failure
from polyker.errors.export import NO_PAGE_SIZES
from polyker.explain.explain import explain
from polyker.export.entry import Subject
from polyker.export.javascript import array_type, data_text, glue, length
from polyker.export.plain_javascript import plain_javascript, plain_kernel
from polyker.machine.model import Target
from polyker.runtime.kinds import Array

_MOST_INDEX = 8  # below which the page's integers are, which may be indices (chosen)


class Shown(Struct, frozen=True):
    """An operator of a page: its entry, its text, what was compiled, and the values of its constants by generated name."""

    subject: Subject
    text: str
    artifact: Artifact
    constants: Mapping[str, Array]


def page(title: str, operators: Sequence[Shown], image: bytes, target: Target) -> str:
    """Return the page; raises ArgumentError for sizes without a value, and for what plain JavaScript does not print."""
    script = "\n".join(
        (
            glue("", [o.subject for o in operators]),
            data_text("plain.mjs"),
            f"const WASM = {_quoted(b64encode(image).decode())};",
            f"const SHOWN = [{', '.join(_shown(o, target) for o in operators)}];",
            data_text("page.mjs"),
        )
    )
    values = {"TITLE": html.escape(title), "SCRIPT": script}
    return re.sub("TITLE|SCRIPT", lambda found: values[found[0]], data_text("page.html"))


def _quoted(value: object) -> str:
    """Return JSON that ends no element of HTML and begins none."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _shown(operator: Shown, target: Target) -> str:
    """Return what the page knows of an operator, as an object."""
    subject, call = operator.subject, operator.subject.record.call
    if subject.sizes:
        raise failure(NO_PAGE_SIZES, name=subject.name, sizes=", ".join(subject.sizes.values()))
    kernel, arguments = plain_kernel(operator.artifact.typed, target)
    flops = explain(operator.artifact, target, {}, None, "").flops
    tensors = ", ".join(
        f"{{ name: {_quoted(subject.tensors[t.name])}, argument: {_quoted(t.name)}, dtype: {_quoted(t.dtype.name)}, "
        f"kind: {array_type(t.dtype)}, length: {length(t)}, read: {_quoted(t.name in call.inputs)}, "
        f"written: {_quoted(t.name in call.outputs)}, byValue: {_quoted(t.name in subject.by_value)} }}"
        for t in subject.given
    )
    constants = ", ".join(
        f"{_quoted(name)}: new {array_type(call.tensor(name).dtype)}(Uint8Array.from(atob("
        f"{_quoted(b64encode(np.ascontiguousarray(value).tobytes()).decode())}), (c) => c.charCodeAt(0)).buffer)"
        for name, value in operator.constants.items()
    )
    extents = [n for t in call.tensors for n in t.shape if isinstance(n, int) and n > 0]
    return (
        f"{{ name: {_quoted(subject.name)}, text: {_quoted(operator.text)}, flops: {_quoted(int(flops))},\n"
        f"  limit: {min([_MOST_INDEX, *extents])}, tensors: [{tensors}], arguments: {_quoted(list(arguments))},\n"
        f"  constants: {{ {constants} }},\n  plain: {plain_javascript(kernel, arguments, subject.name)} }}"
    )
