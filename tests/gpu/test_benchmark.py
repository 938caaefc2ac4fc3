"""`python -m benchmarks.gpu` without a GPU: that it runs, checks and reports, and that its cases mean what torch computes."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import polyker as pk
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import machine as machines
from benchmarks.gpu import table
from benchmarks.gpu.cases import cases
from benchmarks.gpu.families import families, family_named, run_family
from benchmarks.gpu.machine import FMA_TEXT, DryRun
from benchmarks.gpu.measure import compiled_by_torch, measure
from benchmarks.gpu.pool import Pool, Task, once
from benchmarks.gpu.singles import SINGLES
from polyker.codegen.cuda.build import cubin
from polyker.codegen.llvm.jit.detect import target
from polyker.runtime.cuda.driver import why_not
from tests.gpu.support import needs_compiler, needs_nvcc

ROWS = [c for c in cases() if c.group != "contraction"]
BAD = "tests.gpu.bad_cases:"
GPU_ONLY = ("stream", "graph", "GPUs", "DLPack")


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("options", [[], ["--smoke"], ["--stub"], ["--stub", "--smoke"]], ids=" ".join)
def test_without_a_device_it_says_that_nothing_is_measured(options, capsys, tmp_path):
    if not why_not():
        pytest.skip("there is a CUDA device")
    file = tmp_path / "rows.jsonl"
    assert gpu.main([*options, "--out", str(file)]) == 2
    assert "nothing is measured: Unavailable: " in capsys.readouterr().out
    assert rows_of(file)[-1]["status"] == "no device"


def test_all_of_the_acceptance_is_there():
    found = cases()
    assert len({c.name for c in found}) == len(found) and sum(c.group == "contraction" for c in found) == 48
    assert {name for bars in table.BARS.values() for name, _, _ in bars} <= {
        x for c in found for x in (c.name, c.group)
    }
    assert sum((1 << 28) in (4 * c.read, c.read // 4) for c in found if c.group in ("reduction", "row-wise")) >= 4
    assert {"bf16", "f16", "tf32", "f32"} == {c.unit for c in found}
    assert len(families()) >= 14 and len(SINGLES) >= 12


@pytest.mark.parametrize("case", [*ROWS, *cases()[-2:]], ids=lambda c: c.name)
def test_each_case_computes_what_torch_does_at_a_small_size(case):
    torch = pytest.importorskip("torch")
    small = case.small(12)
    rng = np.random.default_rng(3)
    shapes = enumerate(small.shapes)
    inputs = [rng.integers(0, small.most, s) if i in case.indices else rng.normal(size=s) for i, s in shapes]
    want = case.torch(torch, *map(torch.from_numpy, inputs)).numpy()
    np.testing.assert_allclose(pk.op(case.text)(*inputs), want, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("family", families(), ids=lambda f: f.name)
def test_each_family_computes_what_numpy_does(family):
    inputs = family.inputs()
    found, want = pk.op(family.text)(*inputs), family.numpy(*inputs)
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-11)


@needs_compiler
def test_a_dry_run_checks_times_and_reports(capsys, tmp_path):
    pytest.importorskip("torch")
    file, lines = tmp_path / "figures.json", tmp_path / "rows.jsonl"
    chosen = ["matmul-nn-4096", "matmul-bf16-4096", "softmax-16384x4096", "transpose-16384", "embedding", "intensli0"]
    command = ["--dry-run", "--rounds", "1", "--case", ",".join(chosen), "--json", str(file), "--out", str(lines)]
    assert gpu.main(command) == 0
    text = capsys.readouterr().out
    assert "matmul-nn-4096" in text and "WRONG" not in text and "bar:" not in text
    figures = json.loads(file.read_text())["figures"]
    assert sorted(f["case"] for f in figures) == sorted(chosen)
    assert all(f["polyker"] > 0 and f["torch"] > 0 and f["roof"] is None for f in figures)
    assert [f for f in rows_of(lines) if "case" in f] == figures
    dtypes = {f["case"]: f["dtype"] for f in figures}
    assert dtypes["matmul-nn-4096"] == "f32" and dtypes["matmul-bf16-4096"] == "bf16"


@needs_compiler
def test_bad_cases_cost_their_own_rows_alone_and_leave_no_process(capsys, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    file, lines, process = tmp_path / "figures.json", tmp_path / "rows.jsonl", tmp_path / "process"
    monkeypatch.setenv("BAD_CASES_PROCESS", str(process))
    command = ["--dry-run", "--rounds", "1", "--case", "bad", "--jobs", "1", "--add", f"{BAD}cases"]
    assert gpu.main([*command, "--json", str(file), "--out", str(lines)]) == 1
    rows = [f for f in rows_of(lines) if "case" in f]
    assert json.loads(file.read_text())["figures"] == rows
    status = {f["case"]: f["status"] for f in rows}
    assert list(status.items()) == [
        ("bad-raises", "error"),
        ("good-1", "ok"),
        ("bad-hangs", "hung"),
        ("bad-is-killed", "dead"),
        ("good-2", "ok"),
    ]
    assert "in _raise" in rows[0]["trace"]
    text = capsys.readouterr().out
    assert "ERROR: RuntimeError: CUDA error: an illegal memory access was encountered" in text
    assert "HUNG: no answer in 6 s while the result was compared" in text
    assert "DEAD: the process was killed by SIGSEGV while the result was compared" in text
    with pytest.raises(ProcessLookupError):
        gone_after(int(process.read_text()))


def gone_after(pid, seconds=5.0):
    """Raise ProcessLookupError as soon as a process is gone; one that nobody has waited for yet is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(") ")[2][0] == "Z":
                raise ProcessLookupError
        time.sleep(0.1)


@needs_compiler
def test_a_smoke_run_ends_in_time_and_says_what_was_left(capsys, tmp_path):
    pytest.importorskip("torch")
    file, start = tmp_path / "rows.jsonl", time.monotonic()
    command = ["--smoke", "--dry-run", "--case", "none", "--add", f"{BAD}hangs", "--add", f"{BAD}good", "--limit", "60"]
    assert gpu.main([*command, "--seconds", "9", "--out", str(file)]) == 0
    assert time.monotonic() - start < 15
    assert f"left: {BAD}hangs" in capsys.readouterr().out
    assert {f["status"] for f in rows_of(file) if f.get("item") == f"{BAD}hangs"} == {"left"}


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells a child of its parent's end only on Linux")
def test_a_run_that_is_killed_leaves_no_child(tmp_path):
    program = f"""
from benchmarks.gpu.pool import Pool, Task
with Pool("none") as pool:
    pool.warm(1)
    print(pool._children[0].process.pid, flush=True)
    list(pool.run([Task("waits", "{BAD}hangs", {{}}, 600)]))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as run:
        child = int(run.stdout.readline())
        time.sleep(1)
        os.kill(child, 0)
        run.send_signal(signal.SIGKILL)
        run.wait()
    with pytest.raises(ProcessLookupError):
        gone_after(child)


def test_a_child_that_does_not_start_is_an_outcome():
    with Pool("no such machine") as pool:
        outcomes = list(pool.run([Task(name, f"{BAD}good") for name in "ab"]))
    assert [o.status for o in outcomes] == ["dead", "dead"]
    assert all("a child did not start: KeyError" in o.message for o in outcomes)


def test_a_start_that_fails_is_tried_again(tmp_path):
    count = tmp_path / "starts"
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nwith open({str(count)!r}, 'a') as file: file.write('.')\n"
        f"if os.path.getsize({str(count)!r}) < 3: os._exit(9)\n"
    )
    path = os.pathsep.join([str(tmp_path), *map(os.path.abspath, sys.path)])
    with Pool("none", {"PYTHONPATH": path}) as pool:
        outcome = once(pool, Task("one", f"{BAD}good"))
        assert (outcome.status, count.read_text()) == ("ok", "...")
    count.write_text("")
    (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(9)\n")
    with Pool("none", {"PYTHONPATH": path}) as pool:
        outcome = once(pool, Task("one", f"{BAD}good"))
    assert outcome.message.startswith("a child did not start: ended with status 9")


def test_several_children_work_at_the_same_time():
    with Pool("none") as pool:
        outcomes = list(pool.run([Task(f"{n}", f"{BAD}good") for n in range(5)], 2, reuse=False, spares=1))
    assert sorted(o.task.name for o in outcomes) == list("01234") and {o.status for o in outcomes} == {"ok"}


@pytest.fixture
def pretended(monkeypatch):
    """This machine's processor as torch's GPU, and the simulator as polyker's."""
    torch = pytest.importorskip("torch")

    class Event:
        def __init__(self, **_):
            self.time = 0.0

        def record(self):
            self.time = time.perf_counter()

        def elapsed_time(self, other):
            return 1e3 * (other.time - self.time)

    for name, value in {
        "get_device_name": lambda: "NVIDIA H100 80GB HBM3",
        "get_device_properties": lambda _: SimpleNamespace(L2_cache_size=1 << 10),
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "Event": Event,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    for name in ("_FLUSH", "_COPY", "_SIDE"):
        monkeypatch.setattr(machines, name, 64)
    monkeypatch.setattr(machines, "gpu_of", lambda _: (target("cuda-sim").gpu, "cuda-sim"))
    monkeypatch.setattr(machines.Cuda, "target", "cuda-sim")
    monkeypatch.setattr(machines.Cuda, "device", "cpu")
    with monkeypatch.context() as there:  # Dynamo asks for the state of a GPU's random numbers where there is one
        there.setattr(torch.cuda, "is_available", lambda: True)
        found = machines.Cuda()
    yield found
    torch._dynamo.reset()


@needs_compiler
def test_contestants_take_turns_on_rotated_buffers_and_slow_ones_get_fewer_rounds(pretended):
    runs = []
    works = {name: lambda n, name=name: runs.append((name, n)) for name in ("one", "other")}
    found = pretended.timed(works, 5)
    assert runs[6:] == [(name, n) for n in range(5) for name in ("one", "other")]
    assert all(0 <= t.device < 1 and 0 <= t.host < 1 for t in found.values())
    runs.clear()
    pretended.timed({"slow": lambda n: (runs.append(n), time.sleep(0.21))}, 50, seconds=0.3)
    assert runs == [0, 0, 1, 2]


@needs_compiler
def test_a_case_is_measured_beside_torch_and_what_torch_compiles(pretended, monkeypatch):
    compile_fx = pytest.importorskip("torch._inductor.compile_fx")
    monkeypatch.setattr(compile_fx, "compile_fx", lambda graph, inputs: graph.forward)
    case = {"added": [], "tiny": True, "rounds": 3, "wanted": ["torch", "triton"]}
    said = {}
    figures = measure(pretended, said.update, name="matmul-tf32-4096", **case)
    assert {"polyker", "host", "torch", "triton", "error", "moved"} <= set(figures) and figures["triton graphs"] == 1
    assert figures["notes"] == {"types": "torch in TF32, polyker in f32"}
    assert not pretended.torch.backends.cuda.matmul.allow_tf32 and said["error"] == figures["error"]
    monkeypatch.setattr(pretended.torch, "compile", lambda work, **_: work)
    figures = measure(pretended, said.update, name="row-sums-16384x4096", **case)
    assert figures["triton eager"] > 0 and "triton" not in figures

    def broken(*_, **__):
        raise RuntimeError("no such thing")

    monkeypatch.setattr(pretended.torch, "compile", lambda *_, **__: broken)
    figures = measure(pretended, said.update, name="row-sums-16384x4096", **case)
    assert figures["torch"] > 0 and figures["notes"] == {"triton": "RuntimeError: no such thing"}


def test_roofs_are_measured(pretended, monkeypatch):
    assert pretended.copy_rate(2) > 0 and pretended.matmul_rate("bf16", 2) > 0 and pretended.matmul_rate("tf32", 2) > 0
    calls = []
    monkeypatch.setattr(pretended.torch.cuda, "_compile_kernel", lambda *_: lambda **k: calls.append(k), raising=False)
    assert pretended.fma_rate(2) > 0 and calls[-1]["block"] == (256, 1, 1)


@needs_nvcc
def test_on_a_driver_that_computes_nothing_all_parts_run_without_torch(on_stub, tmp_path):
    file = tmp_path / "rows.jsonl"
    chosen = "row sums,axpy*,torch.add(A*,kernel(A? B)? a sum"
    assert gpu.main(["--stub", "--smoke", "--limit", "60", "--case", chosen, "--out", str(file)]) == 0
    rows = rows_of(file)
    status = {f["item"]: f["status"] for f in rows if "item" in f}
    assert {name for name, found in status.items() if found == "ok"} == {
        "the card", "row sums", "axpy-2^28", "kernel(A, B), a sum",
    }  # fmt: skip
    facts = {f["fact"]: f for f in rows[0]["facts"]}
    assert facts["shared bytes a block"]["driver"] == facts["shared bytes a block"]["target"] == 232448
    assert gpu.main(["--stub", "--jobs", "1", "--case", "scatter-add,matmul-bf16*", "--out", str(file)]) == 0
    assert {f["case"]: f["status"] for f in rows_of(file) if "case" in f} == {
        "scatter-add": "ok",
        "matmul-bf16-4096": "skip",
    }


@pytest.fixture
def on_stub(monkeypatch):
    build = pytest.importorskip("tests.gpu.stub.build")
    try:
        library = build.build_stub()
    except build.CannotBuild as reason:
        pytest.skip(str(reason))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))


@needs_nvcc
def test_bad_cases_on_the_stub_cost_their_own_rows_alone(on_stub, tmp_path):
    lines, table = tmp_path / "rows.jsonl", tmp_path / "table.json"
    command = ["--stub", "--rounds", "1", "--case", "bad", "--jobs", "1", "--add", f"{BAD}trapped"]
    assert gpu.main([*command, "--json", str(table), "--out", str(lines)]) == 1
    rows = [f for f in rows_of(lines) if "case" in f]
    assert json.loads(table.read_text())["figures"] == rows
    assert {f["case"]: f["status"] for f in rows} == {
        "bad-raises": "error",
        "good-1": "ok",
        "bad-hangs": "hung",
        "bad-is-killed": "dead",
        "good-2": "ok",
    }


@needs_nvcc
def test_each_item_of_a_smoke_run_has_a_line_whatever_becomes_of_it(on_stub, capsys, tmp_path):
    lines = tmp_path / "rows.jsonl"
    bad = [x for name in ("raises", "hangs=3", "exits", "good") for x in ("--add", f"{BAD}{name}")]
    chosen = "row sums,several GPUs,transpose-16384"
    command = ["--smoke", "--stub", "--limit", "60", "--case", chosen, *bad, "--out", str(lines)]
    assert gpu.main(command) == 1
    text, rows = capsys.readouterr().out, rows_of(lines)
    assert {f["item"]: f["status"] for f in rows if "item" in f} == {
        "the card": "ok",
        "row sums": "ok",
        "several GPUs": "skip",
        f"{BAD}raises": "error",
        f"{BAD}hangs": "hung",
        f"{BAD}exits": "dead",
        f"{BAD}good": "ok",
        "transpose-16384": "ok",
    }
    assert "no answer in 3 s while it waited" in text
    assert "the process ended with status 7" in text
    assert rows[-1]["part"] == "summary" and rows[-1]["hung"] == [f"{BAD}hangs"]


def row(case, group, polyker, **more):
    return {"case": case, "group": group, "status": "ok", "message": "", "notes": {}, "polyker": polyker, **more}


def test_the_summary_tells_how_the_bars_stand():
    one = row("softmax", "row-wise", 2.0, torch=3.0, roof=1.9)
    two = row("matmul-nn-4096", "product", 2.0, torch=1.0, roof=1.0)
    three = {**one, "case": "layer-norm", "status": "hung", "message": "no answer"}
    rows = [one, {**one, "polyker": 4.0, "torch": None}, two, three]
    text = "\n".join(table.summary(rows, "NVIDIA H100 80GB HBM3"))
    assert "row-wise: 2 cases, 1.50 x torch; least 47.5% of its roof (softmax)" in text
    assert "bar: row-wise 0.47 of roof, NOT reached (0.85)" in text
    assert "bar: matmul-nn-4096 0.50 x torch, NOT reached (0.80)" in text
    assert "bar: product" not in text and "hung: layer-norm" in text
    assert "bar:" in "\n".join(table.summary(rows, "NVIDIA H200"))
    assert "bar:" not in "\n".join(table.summary(rows, "NVIDIA A100-SXM4-80GB"))


def test_roofs_are_those_of_the_unit_that_a_case_can_use():
    figures = {"moved": 100, "flop": 1000.0, "unit": "bf16"}
    assert table.roof(figures, {"copy": 10.0, "f32": 1.0, "bf16": 500.0}) == 10.0
    assert table.roof(figures, {"copy": 100.0, "f32": 1.0, "bf16": 500.0}) == 2.0
    assert table.roof({**figures, "unit": "f32"}, {"copy": 10.0, "f32": 1.0}) == 1000.0
    assert table.roof(figures, {"copy": None}) is None


def test_a_row_says_where_torch_compile_fell_back():
    figures = row("case", "group", 1e-3, torch=2e-3, **{"triton eager": 5e-3, "triton graphs": 0}, host=1e-5)
    assert table.line(figures, ["torch", "triton"]).split()[1:] == ["1.000", "-", "10", "2.000", "2.00", "eager", "-"]
    figures = row("case", "group", 1e-3, triton=2e-3, host=1e-5, **{"triton graphs": 2, "triton breaks": 1})
    assert table.line(figures, ["triton"]).endswith("2.000   2.00 (2 graphs)")


def test_graphs_that_torch_compiles_are_counted_anew_for_each_case(monkeypatch):
    torch = pytest.importorskip("torch")
    compile_fx = pytest.importorskip("torch._inductor.compile_fx")
    monkeypatch.setattr(compile_fx, "compile_fx", lambda graph, inputs: graph.forward)
    counts = []
    for case in [c for c in ROWS if c.group in ("product", "reduction", "transpose")]:
        work, graphs = compiled_by_torch(case.small(4), torch)
        inputs = [torch.ones(s) for s in case.small(4).shapes]
        work(*inputs)
        work(*inputs)
        counts.append(graphs.count)
    assert len(counts) > 9 and set(counts) == {1}


@needs_compiler
def test_a_wrong_result_is_reported_and_not_timed():
    pytest.importorskip("torch")
    machine, said = DryRun(), {}
    bad = {"name": "bad-result", "added": [f"{BAD}wrong"], "tiny": True, "rounds": 1, "wanted": []}
    with pytest.raises(AssertionError, match="the largest error is"):
        measure(machine, said.update, **bad)
    assert said["stage"] == "the result was compared" and "polyker" not in said


@needs_compiler
def test_elements_around_a_view_that_are_overwritten_are_noticed(monkeypatch):
    pytest.importorskip("torch")
    machine = DryRun()
    assert run_family(machine, lambda _: None, name="row sums")["error"] < 1e-6
    whole = []
    empty, numpy = machine.empty, machine.numpy
    monkeypatch.setattr(machine, "empty", lambda *a: whole.append(empty(*a)) or whole[0], raising=False)

    def spoilt(array):
        if whole and array is whole[0]:
            array[0] = 1.0
        return numpy(array)

    monkeypatch.setattr(machine, "numpy", spoilt, raising=False)
    with pytest.raises(AssertionError, match="1 elements around the view"):
        run_family(machine, lambda _: None, name="row sums")


@needs_compiler
@pytest.mark.parametrize("name", [n for n in SINGLES if not any(w in n for w in GPU_ONLY)])
def test_each_single_item_is_right_on_the_simulator(name):
    pytest.importorskip("torch")
    SINGLES[name](DryRun())


@needs_nvcc
def test_the_kernel_that_measures_multiply_adds_compiles():
    assert cubin(FMA_TEXT, target("cuda:sm_90a"))[1]["fma_rate"].spilled == 0


def test_families_have_names_of_their_own():
    names = [f.name for f in families()]
    assert len(set(names)) == len(names) and family_named("softmax").kinds == ("f32",)
