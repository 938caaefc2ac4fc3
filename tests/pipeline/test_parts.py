"""Large programs in parts: where they are cut, that equal parts are compiled once, and that the whole is right."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.artifact import Artifact
from polyker.codegen.ir.kernel import PartCall
from polyker.codegen.ir.verify import verify
from polyker.einsum_frontend import parse
from polyker.errors import GatherError, InternalError
from polyker.machine.known import known
from polyker.poly.binding.bind import bind
from polyker.reference import interpret
from polyker.rewrite.parts import groups
from polyker.rewrite.parts.extract import parts_of
from polyker.structs import replace
from tests.artifacts import compiled_to
from tests.codegen.interpret import run as run_kernel
from tests.fuzz.campaign import Campaign
from tests.fuzz.cut import cut

TARGET = known()["cpu:x86-64-v3"]


def layers(count: int) -> str:
    """Return the text of a perceptron of so many layers."""
    lines = []
    for k in range(count):
        source, target = f"H{k}" if k else "X", f"H{k + 1}" if k < count - 1 else "O"
        lines += [f"P{k}[i,j] += {source}[i,k] * W{k}[k,j]", f"{target}[i,j] = relu(P{k}[i,j] + B{k}[j])"]
    return "\n".join(lines)


def arguments(count: int, rows: int, width: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(count)
    found = {"X": rng.standard_normal((rows, width))}
    for k in range(count):
        found |= {f"W{k}": rng.standard_normal((width, width)) / 4, f"B{k}": rng.standard_normal(width)}
    return found


@cache
def perceptron() -> Artifact:
    return compiled_to(pk.op(layers(13)).compile(**arguments(13, 5, 7), threads=1))


def groups_of(text: str, **types: pk.TensorType) -> list[list[str]]:
    """Return the targets of the statements of each group."""
    program = bind(parse(text), types)
    labels = {t.name: t.label for t in program.tensors}
    return [[labels[s.target] for s in _statements(group)] for group in groups.groups_of(program, TARGET)]


def _statements(group: Sequence[object]) -> Iterator[object]:
    for node in group:
        yield from _statements(node.body) if hasattr(node, "body") else [node]


def test_layers_are_one_part_each_and_compiled_once() -> None:
    given = arguments(13, 5, 7)
    kernel = pk.op(layers(13)).compile(**given)
    artifact = compiled_to(kernel)
    assert [call.part for call in artifact.kernel.body] == [0] * 13
    assert artifact.kernel.body[3].buffers[2] != artifact.kernel.body[4].buffers[2]
    found = given["X"]
    for k in range(13):
        found = np.maximum(found @ given[f"W{k}"] + given[f"B{k}"], 0)
    np.testing.assert_allclose(kernel(**given), found, rtol=1e-12)
    # Two layers' results are needed at a time.
    text = str(kernel.explain())
    assert "in memory at most 640 bytes at a time" in text
    assert "P0, H1: a kernel of its own, which is called 13 times, for statements alike" in text
    loops = kernel.source("loops")
    assert loops.count("def part0(") == 1 and loops.count("    part0(") == 13
    assert kernel.source("schedule").startswith("part 0:\n")


def test_one_kernel_serves_all_sizes_of_layers() -> None:
    kernel = pk.op(layers(14)).compile(
        X=pk.f64["M", "K"],
        **{f"W{k}": pk.f64["K", "K"] for k in range(14)},
        **{f"B{k}": pk.f64["K"] for k in range(14)},
    )
    for rows, width in ((3, 4), (1, 9), (20, 17), (0, 2)):
        given = arguments(14, rows, width)
        np.testing.assert_allclose(kernel(**given), interpret(parse(layers(14)), given)[0], rtol=1e-10, atol=1e-12)


def test_small_programs_are_one_kernel() -> None:
    assert len(compiled_to(pk.op(layers(12)).compile(**arguments(12, 4, 4))).kernel.parts) == 0


def test_element_wise_statements_stay_together_as_long_as_they_are_not_too_many() -> None:
    def chain(count: int) -> str:
        return "\n".join(f"T{k + 1}[i] = tanh(T{k}[i]) + {k}" for k in range(count))

    assert len(groups_of(chain(64), T0=pk.f32[9])) == 1
    found = groups_of(chain(150), T0=pk.f32[9])
    assert sum(map(len, found)) == 150 and max(map(len, found)) <= 64 and len(found) < 6


def attention(n: int, d: int, blocks: int = 4) -> tuple[str, dict[str, pk.TensorType]]:
    lines = []
    for k in range(blocks):
        lines += [
            f"Q{k}[i,e] += X{k}[i,c] * WQ{k}[c,e]",
            f"S{k}[i,j] += Q{k}[i,e] * X{k}[j,e]",
            f"M{k}[i] max= S{k}[i,j]",
            f"E{k}[i,j] = exp(S{k}[i,j] - M{k}[i])",
            f"D{k}[i] += E{k}[i,j]",
            f"A{k}[i,e] += E{k}[i,j] * X{k}[j,e]",
            f"X{k + 1}[i,e] = A{k}[i,e] / D{k}[i] + X{k}[i,e]",
        ]
    return "\n".join(lines), {"X0": pk.f32[n, d], **{f"WQ{k}": pk.f32[d, d] for k in range(blocks)}}


def test_products_are_parts_with_what_follows_them_element_by_element() -> None:
    text, types = attention(64, 32)
    assert groups_of(text, **types)[:3] == [["Q0"], ["S0", "M0", "E0", "D0"], ["A0", "X1"]]


def test_scores_that_no_cache_holds_stay_in_one_part() -> None:
    text, types = attention(16384, 64)
    assert groups_of(text, **types)[:2] == [["Q0"], ["S0", "M0", "E0", "D0", "A0", "X1"]]


def test_equal_parts_are_equal_whatever_their_names() -> None:
    program = bind(parse(layers(13)), {n: pk.f64[a.shape] for n, a in arguments(13, 5, 7).items()})
    found = parts_of(program, groups.groups_of(program, TARGET))
    assert len({part.alike for part in found}) == 1
    results = [part.tensors[part.program.outputs[0]] for part in found]
    assert len(set(results)) == 13
    assert all(result in later.tensors.values() for result, later in zip(results, found[1:], strict=False))


def test_a_gather_outside_is_told_of_the_statement_that_did_it() -> None:
    lines = [f"G{k}[i] = T{k}[I{k}[i]]" for k in range(26)] + ["O[i] = " + " + ".join(f"G{k}[i]" for k in range(26))]
    given = {f"T{k}": np.arange(4.0) for k in range(26)} | {f"I{k}": np.zeros(3, np.int64) for k in range(26)}
    with cut():
        kernel = pk.op("\n".join(lines)).compile(**given)
        assert len(compiled_to(kernel).kernel.parts) == 2
    np.testing.assert_array_equal(kernel(**given), np.zeros(3))
    given["I17"] = np.array([0, 9, 0])
    with pytest.raises(GatherError, match=r"(?s)T17.*line 18:"):
        kernel(**given)


def test_a_computed_gather_outside_is_told_by_its_guard() -> None:
    lines = ["J0[i] = I[i] + 1"]
    for k in range(26):
        lines += [f"G{k}[i] = T{k}[J{k}[i]]", f"J{k + 1}[i] = J{k}[i] + 0 * I[i]"]
    lines += ["O[i] = " + " + ".join(f"G{k}[i]" for k in range(26))]
    given = {f"T{k}": np.arange(4.0 + (k != 9)) for k in range(26)} | {"I": np.array([0, 3, 1])}
    with cut():
        kernel = pk.op("\n".join(lines)).compile(**given)
    with pytest.raises(GatherError, match=r"(?s)T9.*line 20:"):
        kernel(**given)


def test_the_guard_of_an_equal_part_names_its_own_tensor_and_line() -> None:
    lines, given = [], {}
    for k in range(13):
        # No gather search tells of what temporaries held: the words are the guard's.
        lines += [f"J{k}[i] = I{k}[i] + 1", f"G{k}[i] = T{k}[J{k}[i]]"]
        given |= {f"I{k}": np.zeros(3, np.int64), f"T{k}": np.arange(4.0)}
    with cut():
        kernel = pk.op("\n".join(lines)).compile(**given)
    assert len(compiled_to(kernel).kernel.parts) == 2
    given["I7"] = np.array([0, 3, 1])
    with pytest.raises(GatherError, match=r"(?s)T7.*line 16:"):
        kernel(**given)


def test_what_an_in_out_argument_was_is_read_before_a_group_that_begins_earlier_changes_it() -> None:
    chain = [f"    F{k + 1}[i] = F{k}[i] * 0.5 + {k}" for k in range(24)]
    lines = ["f(C, V) -> C, R, F24:", "    F0[i] = V[i] + 1", "    R[i] = C[i] * 2", "    C[i] += F0[i]", *chain]
    text = "\n".join(lines)
    given = {"C": np.arange(5.0), "V": np.ones(5)}
    kernel = pk.op(text).compile(**given)
    assert compiled_to(kernel).kernel.parts
    for got, want in zip(kernel(**given), interpret(parse(text), given), strict=True):
        np.testing.assert_allclose(got, want)


def test_in_out_arguments_are_read_before_they_are_changed() -> None:
    lines = [f"    T{k}[i] = C[i] * {k + 1}" for k in range(26)]
    lines += ["    C[i] += T25[i]", "    O[i] = C[i] + " + " + ".join(f"T{k}[i]" for k in range(25))]
    text = "\n".join(["f(C) -> C, O:", *lines])
    with cut():
        kernel = pk.op(text).compile(C=pk.f64[5])
        assert len(compiled_to(kernel).kernel.parts) > 1
    given = np.arange(5.0)
    for got, want in zip(kernel(C=given), interpret(parse(text), {"C": given}), strict=True):
        np.testing.assert_allclose(got, want)


def test_cut_programs_of_the_fuzzer_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYKER_FUZZ_CUT", "1")
    campaign = Campaign(seed=21)
    campaign.run(6)
    assert not campaign.failures, "\n\n".join(f"{f.text}\n{f.problem}" for f in campaign.failures)


def test_the_interpreter_of_kernels_runs_parts() -> None:
    given = arguments(13, 5, 7)
    artifact = perceptron()
    kernel, typed = artifact.kernel, artifact.typed
    labels = {t.name: t.label for t in typed.tensors}
    buffers = {}
    for b in kernel.buffers:
        shape = tuple(int(n.value) for n in b.shape)
        buffers[b.name] = given[labels[b.name]] if labels.get(b.name) in given else np.full(shape, np.nan)
    assert run_kernel(kernel, buffers, {}) == 0
    (out,) = (buffers[n] for n in typed.outputs)
    np.testing.assert_allclose(out, interpret(parse(layers(13)), given)[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: replace(c, part=7), "there is no such part"),
        (lambda c: replace(c, buffers=c.buffers[1:]), "one buffer for each"),
        (lambda c: replace(c, buffers=("nosuch", *c.buffers[1:])), "no buffer 'nosuch'"),
        (lambda c: replace(c, buffers=(c.buffers[-1], *c.buffers[1:])), "by another name, too"),
        (lambda c: replace(c, buffers=(*c.buffers[:-1], c.buffers[0])), "read-only buffer"),
    ],
)
def test_a_call_that_a_part_cannot_take_is_refused(change: object, message: str) -> None:
    kernel = perceptron().kernel
    first, *rest = kernel.body
    assert isinstance(first, PartCall)
    verify(kernel)
    with pytest.raises(InternalError, match=message):
        verify(replace(kernel, body=(change(first), *rest)))  # type: ignore[operator]


def test_a_kernel_of_parts_is_pickled() -> None:
    given = arguments(13, 5, 7)
    kernel = pk.op(layers(13)).compile(**given)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(kernel))(**given), kernel(**given))


def test_an_object_holds_all_parts(tmp_path: Path) -> None:
    kernel = pk.op(layers(13)).compile(**{n: pk.f32[a.shape] for n, a in arguments(13, 5, 7).items()})
    kernel.export(tmp_path / "layers.o", name="layers")
    assert "void *scratch" in (tmp_path / "layers.h").read_text()
