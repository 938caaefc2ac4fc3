"""Programs as JSON: what is written reads back as the same program, and what is wrong is named by its place."""

import ast
import copy
import doctest
import json
import math
import random
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import polyker as pk
from benchmarks.cases import select
from polyker.cli.demo_cases import load
from polyker.einsum_frontend.documents.build import OPERATIONS
from polyker.ir.document import nodes as nodes_module
from polyker.ir.expr import FUNCTIONS
from tests.fuzz.generate import generate

ROOT = Path(__file__).parents[2]

HEAT = """heat(A: f64[N,N+1], steps) -> A:
    B: f64
    for t in 0:steps:
        B[i,j] = 0.25 * (A[i-1,j; pad=-inf] + A[i+1,j; pad=edge]) + sum[k in 0:3](A[i,k] where k < i) for i in 1:N-1, j in 1:N
        A[i,j] = B[i,j] for i in 1:N-1, j in 1:N where i != j and True"""
NUMBERS = (
    "O[i] = X[i] * 18446744073709551615 + 9007199254740993 + 1e-300 + 0.1 - 0.0 + inf - nan + 2.5 - 3j + f32(1) + True"
)


def quietly(definition, **sizes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pk.op(definition, **sizes)


def reads_back(op):
    """Write an operator, read it as text and as a dict, with its text and without: it is the same."""
    text = op.to_json()
    again = quietly(text)
    assert repr(again.program) == repr(op.program)  # which tells 1 from 1.0 and True
    assert str(again.program) == str(op.program)
    assert (again.identity, again.fixed, again.to_json()) == (op.identity, op.fixed, text)
    by_nodes = {name: value for name, value in json.loads(text).items() if name != "text"}
    assert repr(quietly(by_nodes).program) == repr(op.program)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (HEAT, {}),
        (NUMBERS, {}),
        ("C[..., i, j] += A[..., i, k] * B[..., k, j]", {}),
        ("E[b,d] += T[idx[b,l], d] where l < 3 or idx[b,l] > 0", {}),
        ("O[i] += X[s*i+r] * W[r]", {"s": 2}),
        ("b: i32[N]; a: u8; O[i] = a[i] + b[i] * c", {}),
        ("O[i] = argmax[k](X[i,k] ** 2 ** k // 3 % 5) & ~i | 7 << 2 for i in 0:len", {}),
        ("O[i] = where(0 < X[i] <= 1 and not Y[i] > 2, exp(-X[i]), clip(X[i], -1, 1))", {}),
        ("f(X: [N], c) -> O: f32[2*N], P:\n O[2*i] = X[i]; O[2*i+1] = N * c; P = mean[i](X[i])", {}),
    ],
)
def test_what_is_written_reads_back(text, sizes):
    reads_back(quietly(text, **sizes))


def shown_in_the_docs():
    """Yield the texts and fixed sizes of the operators in the examples of the pages."""
    for page in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]):
        for example in doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8").replace("```\n", "\n")):
            for node in ast.walk(ast.parse(example.source)):
                match node:
                    case ast.Call(
                        func=ast.Attribute(attr="op"), args=[ast.Constant(value=str(text))], keywords=keywords
                    ):
                        values = [(k.arg, k.value.value) for k in keywords if isinstance(k.value, ast.Constant)]
                        if len(values) == len(keywords):
                            yield text, tuple(values)


def test_all_operators_of_the_benchmarks_the_demo_and_the_docs_read_back():
    cases = [*(c.problem() for c in select()), *load(), *load(dtype="f64")]
    found = dict.fromkeys((c.text, tuple(c.fixed.items())) for c in cases)
    pages = dict.fromkeys(shown_in_the_docs())
    assert len(found) > 200 and len(pages) > 10
    for text, fixed in [*found, *pages]:
        try:
            op = quietly(text, **dict(fixed))
        except pk.PolykerError:  # which a page shows
            assert (text, fixed) in pages
            continue
        reads_back(op)


def test_random_programs_read_back():
    for number in range(200):
        case = generate(909, number)
        reads_back(quietly(case.text, **(dict(case.sizes) if case.early else {})))


def test_what_is_built_reads_back_as_what_is_built():
    i, j, k = pk.indices("i j k")
    A, B, C = pk.tensors("A B C")
    op = pk.op(C[i, j].add(A[i, k] * B[k, j]).where(j <= i), A.typed(pk.f32, ("N", 3)))
    assert "text" not in json.loads(op.to_json())
    reads_back(op)
    assert pk.op(op.program.to_json()).identity == pk.op(op.program).identity == op.identity
    deep = A[i]
    for _ in range(100):
        deep = pk.exp(deep)  # deeper than brackets of a text
    reads_back(pk.op(C[i].set(deep)))


def test_integers_that_floats_do_not_hold_are_texts():
    said = json.loads(pk.op("O[i] = X[i] + 9007199254740993 - 7").to_json())
    values = [arg["value"] for arg in said["body"][0]["expr"]["args"][1:2]]
    assert values == ["9007199254740993"]
    assert pk.op(said)(np.array([1], "i8")).tolist() == [9007199254740993 - 6]


def test_json_computes_what_the_text_computes():
    mm = pk.op("C[i,j] += A[i,k] * B[k,j]")
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    for again in (
        pk.op(mm.to_json()),
        pk.Operator.from_json(json.loads(mm.to_json())),
        pk.Operator.from_json(mm.to_json()),
    ):
        assert (again(a, b) == a @ b).all()
    conv = pk.op(pk.op("O[i] += X[2*i+r] * W[r]").to_json())
    assert conv.infer(pk.f32[10], pk.f32[3]).shape == (4,)
    schedule = mm.schedule(pk.f32[8, 8], pk.f32[8, 8])
    assert pk.Schedule.from_json(schedule.to_json(), pk.op(mm.to_json())).steps == schedule.steps


def test_what_other_compilers_write_is_taken_as_the_notation_reads_it():
    """Sums of two terms at a time, signs in numbers, and constants on the left of comparisons."""
    index, one = {"kind": "index", "name": "i"}, {"kind": "int", "value": -1}
    read = {"kind": "read", "tensor": "X", "subscripts": [index]}
    total = {"kind": "call", "op": "add", "args": [{"kind": "call", "op": "add", "args": [read, one]}, read]}
    below = {"kind": "call", "op": "lt", "args": [one, index]}
    said = {
        "format": "polyker.program", "version": 1, "inputs": [{"name": "X"}], "outputs": [{"name": "O"}],
        "body": [{"kind": "statement", "target": "O", "subscripts": [index], "op": "set", "expr": total, "conditions": [below]}],
    }  # fmt: skip
    assert pk.op(said).program == pk.op("O[i] = X[i] + -1 + X[i] where i > -1").program


def test_fixed_sizes_are_part_of_it_and_more_can_be_given():
    op = pk.op("O[i] += X[s*i+r] * W[r] * t", s=2, t=3)
    assert json.loads(op.to_json())["fixed"] == {"s": 2, "t": 3}
    assert pk.op(op.to_json(), s=2).fixed == {"s": 2, "t": 3}
    said = json.loads(pk.op("O[i] = X[i+n]  for i in 0:m").to_json())
    assert pk.op(said, n=1).fixed == {"n": 1}
    with pytest.raises(pk.ShapeError, match="`s` is 2 by the document, and 4 by the call"):
        pk.op(op.to_json(), s=4)
    with pytest.raises(pk.ParseError, match=r"at `inputs.0..name`: .*`X` is no size"):
        pk.op(said, X=1)


def change(path, value):
    """Return the document of HEAT, without its text, with the value at a path replaced; ... takes it out."""
    said = json.loads(quietly(HEAT).to_json())
    del said["text"]
    place = said
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return said


def nested(node, depth, *, wrap):
    for _ in range(depth):
        node = wrap(node)
    return node


INT, VALUE, READ = {"kind": "int", "value": 1}, ["body", 0, "body", 0, "expr"], ["body", 1, "expr"]
LOOP = ["body", 0]
SUM, PADDED = [*VALUE, "args", 1], [*VALUE, "args", 0, "args", 1, "args", 0]


def call(op, *args):
    return {"kind": "call", "op": op, "args": list(args)}


def loop(*body):
    return {"kind": "loop", "index": "t", "lo": INT, "hi": INT, "body": list(body)}


BAD = [
    (["format"], "other", "format", "PK170"),
    (["version"], 2, "version", "PK170"),
    (["version"], True, "version", "PK170"),
    (["version"], ..., "version", "PK170"),
    (["more"], 1, None, "PK170"),
    (["body"], ..., None, "PK170"),
    (["body"], [], "body", "PK119"),
    (["body"], {}, "body", "PK170"),
    ([*LOOP, "kind"], "while", "body[0].kind", "PK170"),
    ([*LOOP, "kind"], ..., "body[0]", "PK170"),
    ([*LOOP, "step"], INT, "body[0]", "PK170"),
    ([*LOOP, "body"], [], "body[0].body", "PK119"),
    ([*LOOP, "index"], "N", "body[0].index", "PK170"),
    ([*LOOP, "index"], "for", "body[0].index", "PK121"),
    ([*LOOP, "index"], "i j", "body[0].index", "PK146"),
    ([*LOOP, "index"], 7, "body[0].index", "PK170"),
    ([*LOOP, "lo"], {"kind": "read", "tensor": "A"}, "body[0].lo", "PK128"),
    ([*LOOP, "body", 0, "op"], "sub", "body[0].body[0].op", "PK170"),
    ([*LOOP, "body", 0, "target"], "t", "body[0].body[0].target", "PK170"),
    ([*LOOP, "body", 0, "ranges", 0, "lo"], ..., "body[0].body[0].ranges[0]", "PK170"),
    ([*LOOP, "body", 0, "ranges", 0], {"index": "i"}, "body[0].body[0].ranges[0]", "PK170"),
    ([*LOOP, "body", 0, "ranges", 1, "index"], "i", "body[0].body[0].ranges[1]", "PK136"),
    (VALUE, call("plus", INT, INT), "body[0].body[0].expr.op", "PK170"),
    (VALUE, call("add", INT), "body[0].body[0].expr.op", "PK123"),
    (VALUE, call("lt", INT, INT, INT), "body[0].body[0].expr.op", "PK123"),
    (VALUE, call("neg"), "body[0].body[0].expr.op", "PK123"),
    (VALUE, call("exp", INT, INT), "body[0].body[0].expr.op", "PK123"),
    (VALUE, call("multiply_add", INT, INT, INT), "body[0].body[0].expr.op", "PK170"),
    (VALUE, call("add", INT, 5), "body[0].body[0].expr.args[1]", "PK170"),
    (VALUE, call("add", INT, None), "body[0].body[0].expr.args[1]", "PK170"),
    (VALUE, "A[i,j]", "body[0].body[0].expr", "PK170"),
    (VALUE, call("add", INT, {"kind": "index", "name": "q"}), "body[0].body[0].expr.args[1]", "PK132"),
    (VALUE, call("add", INT, {"kind": "index", "name": "N"}), "body[0].body[0].expr.args[1].name", "PK170"),
    (VALUE, call("add", INT, {"kind": "dots"}), "body[0].body[0].expr.args[1]", "PK170"),
    (VALUE, call("add", INT, {"kind": "read", "tensor": "A"}), "body[0].body[0].expr.args[1]", "PK131"),
    (VALUE, call("add", INT, {"kind": "read", "tensor": "Q"}), "body[0].body[0].expr.args[1]", "PK143"),
    (VALUE, {"kind": "cast", "to": "float", "arg": INT}, "body[0].body[0].expr.to", "PK170"),
    (VALUE, {"kind": "int", "value": 2**64}, "body[0].body[0].expr", "PK113"),
    (VALUE, {"kind": "int", "value": "1e3"}, "body[0].body[0].expr.value", "PK170"),
    (VALUE, {"kind": "int", "value": 1.5}, "body[0].body[0].expr.value", "PK170"),
    (VALUE, {"kind": "float", "value": "infinity"}, "body[0].body[0].expr.value", "PK170"),
    (VALUE, {"kind": "complex", "real": 1}, "body[0].body[0].expr", "PK170"),
    ([*SUM, "op"], "median", "body[0].body[0].expr.args[1].op", "PK170"),
    ([*SUM, "ranges"], [], "body[0].body[0].expr.args[1].ranges", "PK170"),
    ([*SUM, "ranges", 0, "index"], "i", "body[0].body[0].expr.args[1].ranges[0]", "PK133"),
    ([*PADDED, "pad", "value"], ..., "body[0].body[0].expr.args[0].args[1].args[0].pad", "PK170"),
    ([*PADDED, "pad", "mode"], "zero", "body[0].body[0].expr.args[0].args[1].args[0].pad.mode", "PK170"),
    (["name"], None, "body", "PK144"),
    (["name"], "sum", "name", "PK121"),
    (["inputs", 0, "type", "dtype"], "f31", "inputs[0].type.dtype", "PK170"),
    (["inputs", 0, "type", "shape", 0], 1.5, "inputs[0].type.shape[0]", "PK170"),
    (["inputs", 0, "type", "shape", 0], "for", "inputs[0].type.shape[0]", "PK121"),
    (["inputs", 0, "type", "shape", 0], "N.M", "inputs[0].type.shape[0]", "PK146"),
    (["temporaries", 0, "type", "shape"], ["i", 3], "body[0].body[0].ranges[0].index", "PK170"),
    (["temporaries", 0, "type", "shape"], ["N"], "body[0].body[0].target", "PK131"),
    (["outputs", 0, "type", "dtype"], "f32", "outputs[0].type", "PK170"),
    (["parameters"], ["steps"], "parameters", "PK170"),
    (["parameters"], ["A", "A", "steps"], "parameters[1]", "PK136"),
    (["parameters"], ["A", "steps", "unused"], "parameters[2]", "PK140"),
    (["sizes"], ["steps", "N"], "sizes", "PK170"),
    (["temporaries", 0, "name"], "D", "temporaries[0]", "PK139"),
    (["declarations"], ["B"], "declarations", "PK170"),
    (["fixed"], {"steps": -1}, "fixed", "PK170"),
    (["fixed"], {"A": 1}, "inputs[0].name", "PK170"),
    (["fixed"], {"other": 1}, None, "PK737"),
    (["text"], "O[i] = X[i]", "text", "PK170"),
    (VALUE, nested(INT, 149, wrap=lambda e: call("exp", e)), None, None),
    (VALUE, nested(INT, 150, wrap=lambda e: call("exp", e)), "body[0].body[0].expr" + ".args[0]" * 150, "PK106"),
    (VALUE, nested(INT, 1500, wrap=lambda e: call("exp", e)), None, "PK170"),
    (VALUE, call("add", *[INT] * 100_001), "body[0].body[0].expr", "PK107"),
    (LOOP, nested(loop(), 40, wrap=loop), "body[0]" + ".body[0]" * 32 + ".body", "PK110"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "place", "code"), BAD)
def test_what_is_wrong_is_named_by_its_place(path, value, place, code):
    said = change(path, value)
    if code is None:
        assert str(quietly(said)).count("exp") == 149
        return
    with pytest.raises(pk.PolykerError) as caught:
        quietly(said)
    assert caught.value.code == code
    found = re.match(r"at `(.*?)`: ", caught.value.message)
    shown = place if place is None or len(place) <= 200 else place[:200] + f"... ({len(place)} characters)"
    assert (found and found[1]) == shown


def test_an_error_shows_the_printed_program_too():
    with pytest.raises(pk.ShapeError) as caught:
        quietly(change(VALUE, call("add", INT, {"kind": "read", "tensor": "A"})))
    assert "B[i, j] = 1 + A  for" in str(caught.value).replace(" for", "  for") and "^" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["{", "{}", '{"format": "polyker.program"}', '{"format":"polyker.program","version":1,"body":' + "[" * 100_000, '{"a":1e999}',
     '{"a": NaN}', '{"a": "\ud800"}', "{\ud800", '{"format":"polyker.schedule","version":1}', "{" + " " * (1 << 25)],
)  # fmt: skip
def test_what_is_no_document_is_said_to_be_none(text):
    with pytest.raises(pk.ParseError, match="this is no program"):
        pk.op(text)


def test_dicts_that_are_no_json_are_refused():
    circle = {"format": "polyker.program", "version": 1}
    circle["body"] = circle
    for said in ({}, circle, {1: 2}, {"format": object()}, {"format": math.nan}, {"version": {1, 2}}):
        with pytest.raises(pk.ParseError, match="this is no program"):
            pk.op(said)
    for said in (None, 3, b"{}", [1]):
        with pytest.raises(pk.ParseError, match="not a text or a dict"):
            pk.Operator.from_json(said)


def parts(value, found):
    """Collect the containers of a document."""
    if isinstance(value, (dict, list)):
        found.append(value)
        for inner in value.values() if isinstance(value, dict) else value:
            parts(inner, found)
    return found


def test_changed_documents_are_programs_or_errors_of_the_catalogue():
    said = [json.loads(quietly(t).to_json()) for t in (HEAT, NUMBERS, "b: i32[N]; O[...,i] += b[i] * X[...,idx[i]]")]
    pieces = [v for d in said for part in parts(d, []) for v in (part.values() if isinstance(part, dict) else part)]
    pieces += [None, True, -1, 2**70, 0.5, "", "i", "N", "A", "sum", [], {}, {"kind": "dots"}]
    rng, refused = random.Random(5), 0
    for _ in range(1500):
        changed = copy.deepcopy(rng.choice(said))
        if rng.random() < 0.8:
            changed.pop("text", None)
        for _ in range(rng.choice([1, 1, 2, 3])):
            place = rng.choice(parts(changed, []))
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                continue
            key, value = rng.choice(keys), copy.deepcopy(rng.choice(pieces))
            if rng.random() < 0.15:
                del place[key]
            else:
                place[key] = value
        try:
            found = quietly(changed)
        except pk.PolykerError as error:
            refused += 1
            assert error.code != "PK799"
        else:
            reads_back(found)
    assert 700 < refused < 1500


def test_the_page_has_a_row_for_each_kind_of_node_and_each_operation():
    page = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    nodes = {
        c.__struct_config__.tag: set(c.__struct_fields__)
        for c in vars(nodes_module).values()
        if isinstance(c, type) and issubclass(c, nodes_module.Tagged) and c is not nodes_module.Tagged
    }
    rows = re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)*) ?\| [^|]+ \|$", page, re.MULTILINE)
    assert {kind: set(re.findall(r"\w+", fields)) for kind, fields in rows} == nodes
    head = page.partition("## The nodes")[0]
    assert {*re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", head, re.MULTILINE)))} == {
        *nodes_module.ProgramJson.__struct_fields__
    }
    operators = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| ((?:`\w+` ?)+) \| (?:One|Two)", page, re.MULTILINE)))
    assert {*operators} == {*OPERATIONS} - {*FUNCTIONS}
