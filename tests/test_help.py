"""What `help` and `inspect` say of the public names: real defaults, real parameters, and a sentence."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Iterator

import pytest

import polyker as pk
from polyker.einsum_frontend import builder
from polyker.viz import draw, instances

CLASSES = (pk.Operator, pk.Kernel, pk.Schedule, pk.Program, type(pk.options))


def public() -> Iterator[tuple[str, object]]:
    for name in dict.fromkeys([*pk.__all__, *builder.__all__]):
        yield name, getattr(pk, name)
    yield from (("viz.draw", draw), ("viz.instances", instances))
    for cls in CLASSES:
        for name, member in inspect.getmembers(cls):
            if not name.startswith("_") and callable(member) and not hasattr(pk.Operator.mro()[2], name):
                yield f"{cls.__name__}.{name}", member


CALLABLES = {name: thing for name, thing in public() if callable(thing)}


@pytest.mark.parametrize("name", CALLABLES)
def test_a_public_callable_has_a_sentence_and_a_signature_in_words(name: str) -> None:
    thing = CALLABLES[name]
    said = pydoc.render_doc(thing, renderer=pydoc.plaintext)
    assert not re.search(r"=\s*(?:\.\.\.|<[^>]*object at|<class)", str(inspect.signature(thing))), said
    assert (inspect.getdoc(thing) or "").strip()


def test_the_defaults_of_options_are_said() -> None:
    signature = inspect.signature(pk.Operator.compile)
    shown = {name: repr(p.default) for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert shown == {
        "target": "None", "acc": "pk.options.acc", "fastmath": "pk.options.fastmath", "specialize": "pk.options.specialize",
        "timeout": "pk.options.timeout", "threads": "pk.options.threads", "deterministic": "pk.options.deterministic",
        "schedule": "None",
    }  # fmt: skip
    assert repr(inspect.signature(pk.Kernel.measure).parameters["seconds"].default) == "0.5"


@pytest.mark.parametrize(
    ("text", "fixed", "signature"),
    [
        ("C[i,j] += A[i,k] * B[k,j]", {}, "(A, B, *, out=None)"),
        ("S[0] = X[0]; S[t] = S[t-1] + X[t] for t in 1:N", {}, "(X, *, N, out=None)"),
        ("O[i] = X[s*i] for i in 0:N", {"s": 2}, "(X, *, N, out=None)"),
        ("f(X: [N], n) -> Y:\n    Y[i] = X[i] * n for i in 0:n", {}, "(X, n, *, out=None)"),
        ("f(X: [N], n) -> Y:\n    Y[i] = X[i] * n for i in 0:n", {"n": 3}, "(X, *, out=None)"),
        ("Y[i] = out[i] + 1", {}, "(out)"),
    ],
)
def test_an_operator_has_the_signature_of_its_program(text: str, fixed: dict[str, int], signature: str) -> None:
    assert str(inspect.signature(pk.op(text, **fixed))) == signature


def test_names_that_are_keywords_of_python_leave_the_signature_open() -> None:
    assert str(inspect.signature(pk.op("Y[i] = lambda[i]"))).startswith("(*args")


def test_functions_name_their_arguments() -> None:
    assert [str(inspect.signature(f)) for f in (pk.exp, pk.hypot, pk.where)] == ["(x, /)", "(x, y, /)", "(c, a, b, /)"]


def test_source_without_a_stage_lists_the_stages() -> None:
    kernel = pk.op("Y[i] = X[i] + 1").compile(pk.f32[8])
    assert str(inspect.signature(kernel)) == "(X, *, out=None)"
    for wrong in (lambda: kernel.source(), lambda: kernel.source("nothing"), lambda: kernel.source(3)):  # type: ignore[arg-type]
        with pytest.raises(pk.ArgumentError) as found:
            wrong()
        assert "program, isl, passes, schedule, loops, llvm, asm" in str(found.value)
