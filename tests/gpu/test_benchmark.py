"""`python -m benchmarks.gpu` without a GPU: that it runs, checks and reports, and that its cases mean what torch computes."""

import json

import numpy as np
import pytest

import polyker as pk
from benchmarks import gpu
from benchmarks.gpu_cases import cases
from benchmarks.gpu_machine import FMA_TEXT
from polyker.codegen.cuda_build import cubin
from polyker.target.detect import target
from tests.gpu.support import needs_compiler, needs_nvcc

ROWS = [c for c in cases() if c.group != "contraction"]


def test_without_a_device_it_says_that_nothing_is_measured(capsys):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert gpu.main([]) == 2
    assert "nothing is measured" in capsys.readouterr().out


def test_all_of_the_acceptance_is_there():
    found = cases()
    assert len({c.name for c in found}) == len(found) and sum(c.group == "contraction" for c in found) == 48
    assert {name for name, _, _ in gpu.BARS} <= {c.name for c in found} | {c.group for c in found}
    assert sum((1 << 28) in (4 * c.read, c.read // 4) for c in found if c.group in ("reduction", "row-wise")) >= 4


@pytest.mark.parametrize("case", [*ROWS, *cases()[-2:]], ids=lambda c: c.name)
def test_each_case_computes_what_torch_does_at_a_small_size(case):
    torch = pytest.importorskip("torch")
    small = case.small(12)
    rng = np.random.default_rng(3)
    shapes = enumerate(small.shapes)
    inputs = [rng.integers(0, 12, s) if i in case.indices else rng.normal(size=s) for i, s in shapes]
    want = case.torch(torch, *map(torch.from_numpy, inputs)).numpy()
    np.testing.assert_allclose(pk.op(case.text)(*inputs), want, rtol=1e-11, atol=1e-13)


@needs_compiler
def test_a_dry_run_checks_times_and_reports(capsys, tmp_path):
    pytest.importorskip("torch")
    file = tmp_path / "figures.json"
    chosen = "matmul-nn*,softmax-16*,transpose-16384,embedding,intensli0"
    assert gpu.main(["--dry-run", "--rounds", "1", "--case", chosen, "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert "matmul-nn-4096" in text and "WRONG" not in text and "bar:" not in text
    figures = json.loads(file.read_text())["figures"]
    assert [f["case"] for f in figures] == [
        "matmul-nn-4096",
        "softmax-16384x4096",
        "transpose-16384",
        "embedding",
        "intensli0",
    ]
    assert all(f["polyker"] > 0 and f["torch"] > 0 and f["roof"] == 0 for f in figures)


def test_the_summary_tells_how_the_bars_stand():
    one = {"case": "softmax", "group": "row-wise", "polyker": 2.0, "torch": 3.0, "roof": 1.9}
    two = {"case": "matmul-nn-4096", "group": "product", "polyker": 2.0, "torch": 1.0, "roof": 1.0}
    text = "\n".join(gpu.summary([one, {**one, "polyker": 4.0, "torch": None}, two]))
    assert "row-wise: 2 cases, 1.50 x torch; least 47.5% of its roof (softmax)" in text
    assert "bar: row-wise 0.47 of roof, NOT reached (0.85)" in text
    assert "bar: matmul-nn-4096 0.50 x torch, NOT reached (0.80)" in text
    assert "bar: product" not in text


@needs_compiler
def test_a_wrong_result_is_reported_and_not_timed(capsys, monkeypatch):
    pytest.importorskip("torch")
    wrong = next(c for c in cases() if c.name == "transpose-16384")
    object.__setattr__(wrong, "text", "T[j,i] = X[i,j] + 0.001")
    monkeypatch.setattr(gpu, "cases", lambda: [wrong])
    assert gpu.main(["--dry-run", "--rounds", "1"]) == 1
    assert "WRONG: AssertionError: the largest error is" in capsys.readouterr().out


@needs_nvcc
def test_the_kernel_that_measures_multiply_adds_compiles():
    assert cubin(FMA_TEXT, target("cuda:sm_90a"))[1]["fma_rate"].spilled == 0
