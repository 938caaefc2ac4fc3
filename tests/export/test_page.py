"""Plain JavaScript of programs computes what they mean; pages check modules by it, and say so in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.api.targets import target_named
from polyker.errors import ArgumentError
from polyker.export.javascript import data_text
from polyker.export.plain_javascript import plain_javascript, plain_kernel
from polyker.ir.dtypes import TensorType, from_numpy
from tests.artifacts import compiled_of
from tests.export.web import ARRAYS, needs_node, node

RNG = np.random.default_rng(5)
BROWSER = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)


def floats(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(dtype)


def whole(*shape: int, dtype: str, low: int, high: int) -> np.ndarray[Any, Any]:
    return RNG.integers(low, high, shape).astype(dtype)


X = floats(7, 5)
SMALL = {t: whole(20, dtype=t, low=-128, high=128) for t in ("int8", "int16", "int32", "int64")}
TIME = "f(A: f64[N]) -> A:\n    for t in 0:3:\n        A[i] = (A[i-1] + A[i+1]) / 2  for i in 1:N-1"
BITS = "Y[i] = (X[i] >> N[i]) ^ (X[i] << N[i]) & ~X[i] | i32(popcount(X[i]))"
FUNCTIONS = "Y[i] = round(X[i] * 2) + exp2(X[i]) + relu(X[i]) + silu(X[i]) + softplus(X[i]) + rsqrt(X[i])"
# Text, arguments, and how far results may be off.
PROGRAMS: dict[str, tuple[str, tuple[Any, ...], float]] = {
    "product": ("C[i,j] += A[i,k] * B[k,j]", (floats(6, 4), floats(4, 5)), 1e-5),
    "softmax": ("P[i,j] = exp(X[i,j]) / sum[k](exp(X[i,k]))", (X,), 1e-6),
    "stencil": ("B[i] = A[i-1; pad=0] + 2*A[i] + A[i+1; pad=reflect]", (floats(9, dtype="float64"),), 1e-15),
    "time": (TIME, (floats(9, dtype="float64"),), 1e-15),
    "gather": ("G[i] = T[I[i]] * i", (floats(8), whole(12, dtype="int64", low=0, high=8)), 0),
    "largest": ("L[i] = argmax[j](X[i,j])", (X,), 0),
    "mean": ("M[i] = mean[j](X[i,j])", (X,), 1e-6),
    "logsumexp": ("M[i] = logsumexp[j](X[i,j])", (X,), 1e-6),
    "i8": ("Y[i] = X[i] * X[i] + X[i] // (X[i] - X[i] % 7)", (SMALL["int8"],), 0),
    "i32": ("Y[i] = X[i] * X[i] * X[i] * 99999 - (X[i] % 13) // 3 + abs(X[i])", (SMALL["int32"],), 0),
    "i64": ("Y[i] = X[i] * 4611686018427387905 + (X[i] // 7 ^ X[i] % 5) - minimum(X[i], 3)", (SMALL["int64"],), 0),
    "bits": (BITS, (SMALL["int32"], whole(20, dtype="int32", low=-3, high=40)), 0),
    "powers": ("Y[i] = X[i] ** N[i] + fmod(N[i], X[i])", (SMALL["int64"], whole(20, dtype="int64", low=0, high=30)), 0),
    "remainder": ("Y[i] = fmod(X[i], 0.3) + X[i] % 0.7 + X[i] // 0.9", (floats(30, dtype="float64"),), 1e-15),
    "u16": ("Y[i] = u16(X[i]) * u16(i) - (u16(X[i]) & u16(255))", (SMALL["int16"],), 0),
    "bool": ("f(X: f32[7,5]) -> A, B:\n    A[i] any= X[i,j] > 1 and not X[i,j] < 0\n    B[i] all= X[i,j] < 2", (X,), 0),
    "f16": ("Y[i] = X[i] * X[i] + X[i] / 3", (floats(40, dtype="float16") * np.float16(100),), 0),
    "gelu": ("Y[i] = gelu(X[i]) + erf(X[i]) * erfc(X[i])", (floats(60, dtype="float64") * 3,), 1e-11),
    "functions": (FUNCTIONS, (np.abs(floats(30)),), 1e-5),
    "choice": ("Y[i] = where(X[i] > 0, f64(i) / 3, sign(X[i]) * i)", (floats(9),), 1e-15),
    "triangle": ("S[i] += A[i,j]  where j <= i", (floats(6, 6, dtype="float64"),), 1e-14),
}  # fmt: skip


def program(name: str) -> tuple[pk.Kernel, list[np.ndarray[Any, Any]], str]:
    """Return a compiled program, its results here, and JavaScript that prints what the plain function writes."""
    text, arguments, _ = PROGRAMS[name]
    operator = pk.op(text)
    types = [TensorType(from_numpy(a.dtype), a.shape) for a in arguments]
    kernel = operator.compile(*types)
    result = operator(*(a.copy() for a in arguments))
    wanted = [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]
    typed = compiled_of(kernel).typed
    ir, names = plain_kernel(typed, target_named("wasm32"))
    data = dict(zip(typed.inputs, arguments, strict=True))
    shapes = dict(zip(typed.outputs, wanted, strict=True))
    arrays = ", ".join(_literal(data[n] if n in data else np.zeros_like(shapes[n])) for n in names)
    places = json.dumps([names.index(n) for n in typed.outputs])
    code = (
        f"{{ const f = {plain_javascript(ir, names, name)}, a = [{arrays}], n = f(...a);\n"
        f"told[{json.dumps(name)}] = [n, ...{places}.map((p) => [...a[p]].map(String))]; }}\n"
    )
    return kernel, wanted, code


def _bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.view(np.uint16) if array.dtype == np.float16 else array


def _literal(array: np.ndarray[Any, Any]) -> str:
    big = "n" if array.dtype.name in ("int64", "uint64") else ""
    numbers = _bits(array).ravel().astype(int if array.dtype == bool else _bits(array).dtype).tolist()
    return f"new {ARRAYS[array.dtype.name]}([{', '.join(f'{v!r}{big}' for v in numbers)}])"


@needs_node
def test_plain_javascript_computes_what_a_program_means(tmp_path: Path) -> None:
    made = {name: program(name) for name in PROGRAMS}
    text = "".join((data_text("plain.mjs"), "const told = {};\n", *(code for _, _, code in made.values())))
    told = json.loads(node(f"{text}console.log(JSON.stringify(told));", tmp_path))
    for name, (_, wanted, _) in made.items():
        number, *results = told[name]
        assert number == 0, name
        for numbers, w in zip(results, wanted, strict=True):
            kind = int if w.dtype.kind in "iub" or w.dtype == np.float16 else float
            found = np.array([kind(v.replace("Infinity", "inf")) for v in numbers]).astype(_bits(w).dtype)
            tolerance = PROGRAMS[name][2]
            np.testing.assert_allclose(found.reshape(w.shape), _bits(w), rtol=tolerance, atol=tolerance, err_msg=name)


@needs_node
def test_plain_javascript_returns_the_number_of_a_guard(tmp_path: Path) -> None:
    kernel = pk.op("G[i] = T[I[i]]").compile(pk.f32[4], pk.i32[3])
    ir, names = plain_kernel(compiled_of(kernel).typed, target_named("wasm32"))
    call = f"const f = {plain_javascript(ir, names, 'g')};\n"
    call += "const run = (i) => f(new Float32Array(4), new Int32Array(i), new Float32Array(3));\n"
    call += "console.log([[0, 3, 1], [0, 4, 1], [-1, 0, 0]].map(run).join());"
    ((number, _),) = compiled_of(kernel).executable().record.guards
    assert node(call, tmp_path) == f"0,{number},{number}\n"


@pytest.mark.parametrize(
    ("text", "types", "what"),
    [
        ("Y[i] = X[i] * X[i]", [pk.c64[3]], "complex numbers"),
        ("Y[i] = lgamma(X[i])", [pk.f32[3]], "lgamma of f32"),
        ("Y[i] = erfinv(X[i])", [pk.f64[3]], "erfinv of f64"),
    ],
)
def test_what_it_does_not_print_is_named(text: str, types: list[Any], what: str, tmp_path: Path) -> None:
    kernel = pk.op(text).compile(*types, target="wasm32")
    with pytest.raises(ArgumentError, match=f"(?s)`x` has none: {what}.*PK910"):
        kernel.export(tmp_path / "x.html")
    assert not list(tmp_path.iterdir())
    assert kernel.export(tmp_path / "x.wasm")


def test_a_page_needs_values_of_sizes(tmp_path: Path) -> None:
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32["M", 3], pk.f32[3, 4], target="wasm32")
    with pytest.raises(ArgumentError, match="has no value for M"):
        kernel.export(tmp_path / "x.html")


HOSTILE = (
    "f(X: f32[6]) -> Y:\n    # </script><script>document.title = 'run'</script> <!-- ` ${1} \\ é\n    Y[i] = X[i] + 1"
)


def pages(folder: Path) -> Path:
    """Write a page of several operators, one with constants, one that refuses the page's data, one with hostile text."""
    texts = {
        "product": ("C[i,j] += A[i,k] * B[k,j]", [pk.f32[8, 9], pk.f32[9, 10]]),
        "hostile": (HOSTILE, []),
        "pick": (
            "f(T: f64[9,4], I: i64[5], a: f64) -> G:\n    G[i,j] = T[I[i],j] * a",
            [pk.f64[9, 4], pk.i64[5], pk.f64[()]],
        ),
        "in_place": ("f(A: f16[9], W: f16[9]) -> A:\n    A[i] = A[i] + W[i]", []),
        "outside": ("f(T: f32[2], I: i32[40,5]) -> G:\n    G[i,j] = T[I[i,j] + 2]", []),
    }
    kernels = {name: pk.op(text).compile(*types, target="wasm32") for name, (text, types) in texts.items()}
    file = folder / "TITLE SCRIPT <b>&.html"
    assert pk.export_library(file, kernels, constants={"W": np.arange(9, dtype=np.float16)}) == [file]
    return file


def test_a_page_is_one_file_without_network_and_its_text_is_escaped(tmp_path: Path) -> None:
    page = pages(tmp_path).read_text()
    assert "<title>TITLE SCRIPT &lt;b&gt;&amp;</title>" in page
    assert page.count("</script>") == page.count("<script") == 1
    assert "<!--" not in page
    assert not [address for address in ("http:", "https:", "src=", "href=", "@import") if address in page]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


def shown(address: str) -> str:
    """Return what a browser has made of a page."""
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    return subprocess.run([*command, address], capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_browser_shows_that_the_results_are_right(tmp_path: Path) -> None:
    page = shown(pages(tmp_path).as_uri())
    assert '<p id="status" data-right="true">All results are right.</p>' in page, page[:3000]
    assert page.count('<p data-right="true">Right: ') == 5
    assert page.count("largest difference 0.0e+0") == 4
    assert "number 1, of plain JavaScript 1" in page
    assert "&lt;/script&gt;&lt;script&gt;document.title = 'run'&lt;/script&gt;" in page
    assert "<title>TITLE SCRIPT &lt;b&gt;&amp;</title>" in page


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_the_page_of_the_examples_filters_an_image(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "examples" / "page"
    pk.op((folder / "filter.ein").read_text()).compile(target="wasm32").export(tmp_path / "filter.wasm", name="filter")
    (tmp_path / "index.html").write_text((folder / "index.html").read_text())
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = shown(f"http://127.0.0.1:{server.server_port}/index.html")
        server.shutdown()
    assert re.search(r"<output>[0-9.]+ ms</output>", page), page[:2000]
