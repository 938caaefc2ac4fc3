"""JavaScript for WebAssembly modules: functions of typed arrays, and their types for TypeScript."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from polyker.errors.base import InternalError
from polyker.export.entry import Subject
from polyker.export.header import comment, told_tensor
from polyker.ir.dtypes import DType
from polyker.record.forms import SizeForm
from polyker.record.records import TensorRecord

# Names that the loaded module has besides its operators.
RESERVED = ("memory", "alloc")
_ARRAYS = {
    "f32": "Float32",
    "f64": "Float64",
    "c64": "Float32",
    "c128": "Float64",
    "i64": "BigInt64",
    "u64": "BigUint64",
}


def array_type(dtype: DType) -> str:
    """Return the typed array of elements of a type: of complex ones, pairs; of f16 and bf16, their bits."""
    whole = f"{'Int' if dtype.kind == 'i' else 'Uint'}{8 * dtype.itemsize}"
    return f"{_ARRAYS.get(dtype.name, whole)}Array"


@cache
def data_text(name: str) -> str:
    """Return a text that comes with the package."""
    return (files("polyker.data") / name).read_text(encoding="utf-8")


def glue(file: str, subjects: Sequence[Subject]) -> str:
    """Return the text of a JavaScript module that loads a WebAssembly module, `file` beside it."""
    operators = "".join(f"  {json.dumps(s.name)}: {_about(s)},\n" for s in subjects)
    return (
        f"// Made by polyker.\nconst OPERATORS = {{\n{operators}}};\n"
        # As a literal, by which bundlers find the file.
        + data_text("glue.mjs").replace("FILE", json.dumps(file))
    )


def _about(subject: Subject) -> str:
    """Return what the module knows of an operator, as an object."""
    call = subject.record.call
    tensors = []
    for t in subject.given:
        read, written = t.name in call.inputs, t.name in call.outputs
        flags = {"read": read, "written": written, "byValue": t.name in subject.by_value}
        set_ = "".join(f", {name}: true" for name, holds in flags.items() if holds)
        tensors.append(
            f"      {{ name: {json.dumps(subject.tensors[t.name])}, kind: {array_type(t.dtype)}, "
            f"length: ({', '.join(subject.sizes)}) => {length(t)}{set_} }},\n"
        )
    return (
        f"{{\n    sizes: {json.dumps(list(subject.sizes.values()))},\n    scratch: {json.dumps(subject.takes_scratch)},\n"
        f"    tensors: [\n{''.join(tensors)}    ],\n  }}"
    )


def length(tensor: TensorRecord) -> str:
    """Return the elements of a typed array that holds a tensor, as JavaScript over the generated names of sizes."""
    extents = [str(max(0, n)) if isinstance(n, int) else f"Math.max(0, {_number(n)})" for n in tensor.shape]
    return " * ".join(["2"] * tensor.dtype.is_complex + extents) or "1"


def _number(form: SizeForm) -> str:
    """Return a form of sizes as JavaScript."""
    match form:
        case int():
            return str(form) if form >= 0 else f"({form})"
        case str():
            return form
        case ("linear", int(constant), *pairs):
            terms = [f"{_number(pair[0])} * {_number(pair[1])}" for pair in pairs if isinstance(pair, tuple)]
            return f"({' + '.join((_number(constant), *terms))})"
        case ("floordiv", first, divisor):
            return f"Math.floor({_number(first)} / {_number(divisor)})"
        case ("mod", first, divisor):
            a, b = _number(first), _number(divisor)
            return f"({a} - Math.floor({a} / {b}) * {b})"
        case ("minimum" | "maximum" as op, *rest):
            return f"Math.{op[:3]}({', '.join(map(_number, rest))})"
        case ("neg", first):
            return f"(-{_number(first)})"
        case ("add" | "sub" | "mul" as op, *rest):
            sign = {"add": " + ", "sub": " - ", "mul": " * "}[op]
            return f"({sign.join(map(_number, rest))})"
    raise InternalError(f"no form of sizes: {form!r}")


def declarations(subjects: Sequence[Subject], texts: Sequence[str]) -> str:
    """Return the types of the JavaScript module, for TypeScript; `texts`: of the operators, in the notation."""
    functions = "".join(_declared(s, t) for s, t in zip(subjects, texts, strict=True))
    return f"{_TYPES}{functions}}}\n"


_TYPES = """\
// Made by polyker.
type Elements =
  | Float32Array | Float64Array | Int8Array | Int16Array | Int32Array | BigInt64Array
  | Uint8Array | Uint16Array | Uint32Array | BigUint64Array;

/** Memory that operators run on without copying. */
export declare class Allocation<T extends Elements> {
  private constructor();
  readonly length: number;
  /** The elements, as a new view each time: one that was made before memory grew is empty. */
  readonly array: T;
  /** Give the memory back. */
  free(): void;
}

export type Source = URL | string | ArrayBuffer | ArrayBufferView | Response | WebAssembly.Module;

/** Load the module, by default from the file beside this one. */
export declare function load(source?: Source): Promise<Operators>;

export interface Operators {
  /** The memory of the module. */
  readonly memory: WebAssembly.Memory;
  /** Return memory for so many elements. */
  alloc<T extends Elements>(kind: { new (length: number): T; readonly BYTES_PER_ELEMENT: number }, length: number): Allocation<T>;
"""


def _declared(subject: Subject, text: str) -> str:
    call = subject.record.call
    parameters, results = [], []
    for t in subject.given:
        label, kind = json.dumps(subject.tensors[t.name]), array_type(t.dtype)
        plain = "bigint" if kind.startswith("Big") else "number | boolean" if t.dtype.kind == "b" else "number"
        given = plain if t.name in subject.by_value else f"{kind} | Allocation<{kind}>"
        parameters.append(f"{label}{'' if t.name in call.inputs else '?'}: {given}")
        if t.name in call.outputs:
            results.append((label, kind))
    parameters += [f"{json.dumps(label)}: number" for label in subject.sizes.values()]
    result = results[0][1] if len(results) == 1 else f"{{ {'; '.join(f'{n}: {k}' for n, k in results)} }}"
    lines = [*comment(text).splitlines(), "", *(comment(told_tensor(subject, t)) for t in subject.given)]
    lines.append(
        "Raises Error where the operator refuses its values, TypeError and RangeError for what are no arguments."
    )
    told = "".join(f"   * {line}".rstrip() + "\n" for line in lines)
    return f"  /**\n{told}   */\n  {json.dumps(subject.name)}(given: {{ {'; '.join(parameters)} }}): {result};\n"
