"""WebAssembly modules: right under node and wasmtime, checked, with memory of their own; their JavaScript and its types."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ArgumentError, InternalError
from polyker.export.wasm import linked, sleb, uleb
from tests.export.web import Machine, by_node, by_wasmtime, needs_node, node

MM = "C[i,j] += A[i,k] * B[k,j]"
RNG = np.random.default_rng(7)


def whole(*shape: int, dtype: str = "float32", low: int = -4, high: int = 5) -> np.ndarray[Any, Any]:
    return RNG.integers(low, high, shape).astype(dtype)


# Text, types, arguments, and how far results may be off this machine's: 0 where each operation is rounded in the same way.
OPERATORS: dict[str, tuple[str, dict[str, Any], dict[str, Any], float]] = {
    "product": (
        MM,
        {"A": pk.f32["M", "K"], "B": pk.f32["K", "N"]},
        {"A": whole(37, 19), "B": whole(19, 41), "M": 37, "K": 19, "N": 41},
        0,
    ),
    "convolution": (
        "O[n,x,y] += I[n,x+r,y+s] * W[r,s]",
        {"I": pk.f64[3, 20, 17], "W": pk.f64[3, 4]},
        {"I": whole(3, 20, 17, dtype="float64"), "W": whole(3, 4, dtype="float64")},
        0,
    ),
    "softmax": (
        "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))",
        {"X": pk.f32["M", "N"]},
        {"X": RNG.normal(size=(9, 33)).astype("float32"), "M": 9, "N": 33},
        1e-6,
    ),
    "sine": ("S[i] = sin(X[i])", {"X": pk.f64[100]}, {"X": RNG.normal(size=100) * 1e6}, 1e-12),
    "gather": (
        "G[i,j] = T[I[i],j]",
        {"T": pk.f32[30, 5], "I": pk.i32[12]},
        {"T": whole(30, 5), "I": whole(12, dtype="int32", low=0, high=30)},
        0,
    ),
    "quotients": (
        "Q[i] = X[i] // Y[i] + X[i] % Y[i]",
        {"X": pk.i64["N"], "Y": pk.i64["N"]},
        {"X": whole(50, dtype="int64", low=-(2**40), high=2**40), "Y": whole(50, dtype="int64"), "N": 50},
        0,
    ),
    "largest": ("L[i] = argmax[j](X[i,j])", {"X": pk.f32[8, 50]}, {"X": RNG.normal(size=(8, 50)).astype("float32")}, 0),
    "halves": (
        "H[i] = X[i] * Y[i]",
        {"X": pk.f16[70], "Y": pk.f16[70]},
        {"X": whole(70, dtype="float16"), "Y": whole(70, dtype="float16")},
        0,
    ),
    "parts": (
        "Z[i,j] += X[i,k] * Y[k,j]",
        {"X": pk.c64[6, 7], "Y": pk.c64[7, 5]},
        {"X": (whole(6, 7) + 1j * whole(6, 7)).astype("complex64"), "Y": (whole(7, 5) + 1j * whole(7, 5)).astype("complex64")},
        0,
    ),
    "numbers": (
        "f(a: f64, n: i64, X: f64[N]) -> Y:\n    Y[i] = a * X[i] + n",
        {"X": pk.f64["N"], "a": pk.f64[()], "n": pk.i64[()]},
        {"a": np.float64(2.5), "n": np.int64(-3), "X": whole(21, dtype="float64"), "N": 21},
        0,
    ),
    "in_place": (
        "f(X: f32[N], Y: f32[N]) -> X:\n    X[i] = X[i] + Y[i]",
        {"X": pk.f32["N"], "Y": pk.f32["N"]},
        {"X": whole(23), "Y": whole(23), "N": 23},
        0,
    ),
    "several": (
        "f(X: u8[M,N]) -> A, S:\n    A[i] any= X[i,j] > 250\n    S[i] += i32(X[i,j])",
        {"X": pk.u8["M", "N"]},
        {"X": whole(40, 30, dtype="uint8", low=0, high=256), "M": 40, "N": 30},
        0,
    ),
}  # fmt: skip


def compiled(text: str, types: dict[str, Any], **options: Any) -> pk.Kernel:
    return pk.op(text).compile(target="wasm32", **types, **options)


@needs_node
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_right_under_node_and_wasmtime(name: str, tmp_path: Path) -> None:
    text, types, given, tolerance = OPERATORS[name]
    operator, kernel = pk.op(text), compiled(text, types)
    arrays = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in given.items() if n in operator.program.inputs}
    result = operator(**arrays)
    wanted = [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]
    module = tmp_path / f"{name}.wasm"
    kernel.export(module, name="op")
    by_name = by_node(module, "op", given)
    labels = operator.program.outputs
    found = {"node": [by_name[n if len(labels) > 1 else "result"] for n in labels]}
    found["wasmtime"] = by_wasmtime(module, "op", given, dict(zip(labels, wanted, strict=True)))
    for host, outputs in found.items():
        for raw, w in zip(outputs, wanted, strict=True):
            got = np.frombuffer(raw, w.dtype).reshape(w.shape)
            if tolerance:
                np.testing.assert_allclose(got, w, rtol=tolerance, atol=0, err_msg=host)
            else:
                np.testing.assert_array_equal(got, w, err_msg=host)


def test_a_module_imports_nothing_and_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    kernel = compiled(*OPERATORS["softmax"][:2])
    images = []
    for folder in "ab":
        (tmp_path / folder).mkdir()
        kernel.export(tmp_path / folder / "p.wasm")
        images.append((tmp_path / folder / "p.wasm").read_bytes())
    assert images[0] == images[1]
    machine = Machine(images[0])
    assert not machine.module.imports
    assert [e.name for e in machine.module.exports] == ["memory", "__heap_base", "p", "p_scratch", "p_error"]
    assert machine.exports["memory"].type(machine.store).limits.max is None


def test_data_lies_above_the_stack_and_below_free_memory(tmp_path: Path) -> None:
    table, other = np.arange(1000.0) ** 2, np.arange(7, dtype=np.int32)
    text = "f(T: f64[1000], U: i32[7], I: i32[5]) -> O:\n    O[i] = T[I[i]] + U[i] for i in 0:5"
    kernel = compiled(text, {})
    kernel.export(tmp_path / "f.wasm", constants={"T": table, "U": other})
    machine = Machine((tmp_path / "f.wasm").read_bytes())
    assert machine.free >= (1 << 17) + table.nbytes + other.nbytes
    at = table.tobytes()
    assert machine.get(0, machine.free).find(at) >= 1 << 17
    places, out = np.array([999, 0, 5, 31, 2], np.int32), machine.take(40)
    assert machine.call("f", machine.put(places), out, 0) == 0
    assert np.frombuffer(machine.get(out, 40)).tolist() == (table[places] + other[:5]).tolist()


@needs_node
def test_what_is_compiled_for_threads_runs_on_one(tmp_path: Path) -> None:
    kernel = compiled(MM, OPERATORS["product"][1], threads=4)
    kernel.export(tmp_path / "mm.wasm")
    a, b = whole(300, 200), whole(200, 250)
    found = by_node(tmp_path / "mm.wasm", "mm", {"A": a, "B": b, "M": 300, "K": 200, "N": 250})["result"]
    np.testing.assert_array_equal(np.frombuffer(found, np.float32).reshape(300, 250), a @ b)


def test_temporaries_of_the_module_take_no_bytes_of_the_file(tmp_path: Path) -> None:
    text = OPERATORS["softmax"][0]
    kernel = compiled(text, {"X": pk.f32[64, 1024]})
    kernel.export(tmp_path / "p.wasm", static_scratch=True)
    image = (tmp_path / "p.wasm").read_bytes()
    assert len(image) < 1 << 16
    machine, x = Machine(image), RNG.normal(size=(64, 1024)).astype("float32")
    out = machine.take(x.nbytes)
    assert machine.call("p_scratch") == 0
    assert machine.call("p", machine.put(x), out) == 0
    found = np.frombuffer(machine.get(out, x.nbytes), np.float32).reshape(x.shape)
    np.testing.assert_allclose(found, pk.op(text)(x), rtol=2e-6)


def test_sizes_out_of_range_are_refused_and_huge_scratch_is_not_cut_short(tmp_path: Path) -> None:
    kernel = compiled("f(X: f32[N]) -> Z:\n    Y[i,j] = X[i] * X[j]\n    Z[i] = sum[j](Y[j,i]) + sum[j](Y[i,j])", {})
    kernel.export(tmp_path / "f.wasm")
    machine = Machine((tmp_path / "f.wasm").read_bytes())
    assert 0 < machine.call("f_scratch", 1000) < 2**31
    assert machine.call("f_scratch", 2**31 - 1) & 0xFFFFFFFF == 0xFFFFFFFF
    number = machine.call("f", 0, 0, -1, 0)
    text = machine.get(machine.call("f_error", number), 60)
    assert number == 1001
    assert text.startswith(b"a size is negative, or the sizes are so large that a tensor ")


def _object() -> bytes:
    from polyker.api.targets import target_named
    from polyker.codegen.llvm.jit.build import object_code

    text = (
        "@t = internal constant [4 x i32] [i32 1, i32 2, i32 3, i32 4], align 16\n"
        "define i32 @f(i32 %n) {\n  %p = getelementptr i32, ptr @t, i32 %n\n  %v = load i32, ptr %p\n  ret i32 %v\n}\n"
    )
    return object_code(target_named("wasm32"), text)


def test_relocations_are_applied_and_unknown_ones_refused() -> None:
    image = _object()
    machine = Machine(linked(image, ["f"]))
    assert [machine.call("f", n) for n in range(4)] == [1, 2, 3, 4]
    at = image.index(b"reloc.CODE") + len(b"reloc.CODE") + 2  # after the section's number and the count
    assert image[at] in (3, 4)
    with pytest.raises(InternalError, match="relocation 26"):
        linked(image[:at] + b"\x1a" + image[at + 1 :], ["f"])


@pytest.mark.parametrize("image", [b"", b"\0asm\1\0\0", b"\x7fELF\1\0\0\0", _object()[:-5]])
def test_what_is_no_object_is_refused(image: bytes) -> None:
    with pytest.raises(InternalError):
        linked(image, ["f"])


def test_an_object_that_needs_a_function_is_refused() -> None:
    image = _object()
    name = b"\x0f__linear_memory"
    assert name in image
    with pytest.raises(InternalError, match="__linear_memorx"):
        # The same bytes as an imported function would have, so that only the kind differs.
        start = image.index(name) + len(name)
        broken = image[: start - 1] + b"x" + b"\0" + image[start + 1 :]
        linked(broken, ["f"])


@pytest.mark.parametrize(
    ("value", "signed", "unsigned"), [(0, b"\0", b"\0"), (64, b"\xc0\0", b"\x40"), (300, b"\xac\x02", b"\xac\x02")]
)
def test_numbers_are_written_seven_bits_a_byte(value: int, signed: bytes, unsigned: bytes) -> None:
    assert (sleb(value), uleb(value)) == (signed, unsigned)
    assert sleb(-1) == b"\x7f"


CALLS = """
import { load, Allocation } from "./lib.mjs";
const w = await load(), { mm, pick, alloc, memory } = w, f = (...x) => new Float32Array(x), told = [];
const given = { A: f(1, 2, 3, 4), B: f(1, 0, 0, 1), M: 2, K: 2, N: 2 };
const failure = (run) => { try { run(); return "none"; } catch (e) { return `${e.name}: ${e.message}`; } };
told.push([...mm(given)]);
const C = f(9, 9, 9, 9);
told.push(mm({ ...given, C }) === C, [...C]);
const [a, b, c] = [given.A, given.B, C].map((x) => { const m = alloc(Float32Array, 4); m.array.set(x); return m; });
mm({ ...given, A: a, B: b, C: c });
told.push([...c.array]);
const before = memory.buffer.byteLength;
for (let n = 0; n < 2000; n++) mm(given);
told.push(memory.buffer.byteLength === before);
const large = alloc(Float32Array, 1 << 20);
told.push(memory.buffer.byteLength > before, [...c.array], large instanceof Allocation);
large.free();
large.free();
told.push(failure(() => large.array));
told.push(failure(() => mm({ ...given, C: a, A: a })));
told.push(failure(() => mm({ ...given, A: [1, 2, 3, 4] })), failure(() => mm({ ...given, M: 3 })));
told.push(...[{ M: -1 }, { M: 2 ** 31 }, { D: 1 }].map((change) => failure(() => mm({ ...given, ...change }))));
told.push(failure(() => pick({ T: f(5, 6, 7), I: new Int32Array([2, 3]) })));
told.push([...pick({ T: f(5, 6, 7), I: new Int32Array([2, 0]) })]);
console.log(JSON.stringify(told));
"""


@needs_node
def test_javascript_checks_its_arguments_and_keeps_its_memory(tmp_path: Path) -> None:
    kernels = {
        "mm": compiled(MM, OPERATORS["product"][1]),
        "pick": compiled("P[i] = T[I[i]]", {"T": pk.f32[3], "I": pk.i32[2]}),
    }
    written = pk.export_library(tmp_path / "lib.wasm", kernels)
    assert [f.name for f in written] == ["lib.wasm", "lib.mjs", "lib.d.mts", "lib.json"]
    told = json.loads(node(CALLS, tmp_path))
    assert told[:8] == [[1, 2, 3, 4], True, [1, 2, 3, 4], [1, 2, 3, 4], True, True, [1, 2, 3, 4], True]
    assert told[8] == "Error: the memory was freed"
    assert told[9] == "Error: mm: C overlaps A"
    assert told[10] == "TypeError: mm: A is a Float32Array or an Allocation of one"
    assert told[11] == "RangeError: mm: A has 4 elements, not 6"
    assert told[12].startswith("RangeError: mm: the size M is a whole number")
    assert told[13].startswith("RangeError: mm: the size M is a whole number")
    assert told[14] == "TypeError: mm has no argument D"
    assert told[15] == "Error: the gathered index `I[i]` is out of range: dimension 0 of `T` has 3 elements"
    assert told[16] == [7, 5]


HOSTILE = (
    "f(X: f32[4]) -> Y:\n    # */ </script><script>alert(1)</script><!-- `${alert(1)}` \\ é \" '\n    Y[i] = X[i] + 1"
)


@needs_node
def test_text_that_looks_like_code_stays_text(tmp_path: Path) -> None:
    kernel = compiled(HOSTILE, {})
    file = tmp_path / 'a"b`${c}</script>*'.replace("/", "∕")
    kernel.export(f"{file}.wasm", name="constructor")
    code = (
        "const { load } = await import(process.argv[2]);\n"
        "console.log((await load()).constructor({ X: new Float32Array(4) }).join());"
    )
    assert node(code, tmp_path, Path(f"{file}.mjs").as_uri()) == "1,1,1,1\n"
    types = Path(f"{file}.d.mts").read_text()
    assert types.count("*/") == types.count("/**")


@pytest.mark.parametrize("name", ["memory", "alloc", "a b", "f-"])
def test_names_that_a_module_has_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="PK901"):
        compiled(MM, OPERATORS["product"][1]).export(tmp_path / "x.wasm", name=name)


def test_operators_whose_functions_would_share_a_name_are_refused(tmp_path: Path) -> None:
    kernel = compiled(MM, OPERATORS["product"][1])
    with pytest.raises(ArgumentError, match="PK902"):
        pk.export_library(tmp_path / "x.wasm", {"mm_error": kernel, "mm": kernel})


def test_other_targets_and_kinds_are_refused(tmp_path: Path) -> None:
    here = pk.op(MM).compile(pk.f32[2, 2], pk.f32[2, 2])
    with pytest.raises(ArgumentError, match='compile the operator with target="wasm32"'):
        here.export(tmp_path / "x.wasm")
    with pytest.raises(ArgumentError, match=r"take a \.wasm file"):
        compiled(MM, {"A": pk.f32[2, 2], "B": pk.f32[2, 2]}).export(tmp_path / "x.so")
    with pytest.raises(ArgumentError, match="abi"):
        compiled(MM, {"A": pk.f32[2, 2], "B": pk.f32[2, 2]}).export(tmp_path / "x.wasm", abi="dlpack")


@pytest.mark.skipif(shutil.which("tsc") is None, reason="tsc is not installed")
def test_types_are_typescript(tmp_path: Path) -> None:
    kernels = {n: compiled(t, types) for n, (t, types, _, _) in list(OPERATORS.items())[-4:]}
    pk.export_library(tmp_path / "lib.wasm", kernels)
    (tmp_path / "use.mts").write_text(
        'import { load } from "./lib.mjs";\nconst { numbers, several, alloc } = await load();\n'
        "const X = alloc(Float64Array, 3);\n"
        "export const y: Float64Array = numbers({ a: 1, n: 2n, X, N: 3 });\n"
        "export const { A, S } = several({ X: new Uint8Array(6), M: 2, N: 3 });\n"
        "export const s: Int32Array = S;\n"
        "// @ts-expect-error: N is missing\nnumbers({ a: 1, n: 2n, X });\n"
    )
    command = ["tsc", "--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "use.mts"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
