"""How kernels are made, measured and told of on the command line: targets, threads, schedules, times, JSON."""

import json

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda import nvrtc
from tests.gpu.support import HAS_COMPILER

MATMUL = "C[i,j] += A[i,k] * B[k,j]"
TYPES = ("A=f32[64,32]", "B=f32[32,48]")


def said(result):
    """Return the JSON object that a command printed."""
    assert result.exit_code == 0, result.output

    def strict(constant):
        raise AssertionError(constant)

    return json.loads(result.stdout, parse_constant=strict)


def test_the_text_for_a_gpu_needs_none(polyker, refused):
    cuda = ("--target", "cuda:sm_80", "A=f32[M,K]", "B=f32[K,N]")
    result = polyker("show", MATMUL, "--stage", "cuda", *cuda)
    assert result.exit_code == 0 and "__global__" in result.output
    assert "launches (kernel, " in polyker("show", MATMUL, "--passes", *cuda).output
    assert "target=cuda:sm_80" in polyker("show", MATMUL, "--stage", "explain", *cuda[:2], *TYPES).output
    refused(polyker("show", MATMUL, "--stage", "llvm", *cuda), "no stage `llvm`", "cuda, ptx", status=1)
    refused(polyker("show", MATMUL, "--stage", "ptx", *TYPES), "no stage `ptx`", "llvm, asm", status=1)


def test_ptx_is_made_by_the_compiler_that_is_there(polyker, monkeypatch, refused):
    cuda = ("--stage", "ptx", "--target", "cuda:sm_80", *TYPES)
    if nvrtc.library() is not None:
        result = polyker("show", MATMUL, *cuda)
        assert result.exit_code == 0 and ".target sm_80" in result.output
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    monkeypatch.setenv("PATH", "")
    refused(polyker("show", MATMUL, *cuda), "BackendUnavailable", "NVRTC", "nvidia-cuda-nvrtc", status=1)


def test_a_number_for_a_size_in_the_types_is_put_in(polyker, refused):
    symbols = ("A=f32[N,32]", "B=f32[32,N]")
    assert "32*N" in polyker("show", MATMUL, "--stage", "explain", *symbols).output
    result = polyker("show", MATMUL, "--stage", "explain", *symbols, "N=100")
    assert "320,000 times: 640,000 flops" in result.output
    refused(polyker("show", MATMUL, *symbols, "K=3"), "`K` is no argument", status=1)
    free = ("O[h] += X[h+r-1; pad=0] * K[r]  for h in 0:H", "--stage", "explain", "X=f32[N]", "K=f32[3]")
    assert "3*H" in polyker("show", *free).output
    assert "150 times" in polyker("show", *free, "N=60", "H=50").output
    declared = "f(X: f32[N,N]) -> y:\n    y[i] += X[i,j]"
    assert "49 times" in polyker("show", declared, "--stage", "explain", "N=7").output


@pytest.mark.parametrize(
    ("stage", "name"), [("explain", "explanation"), ("passes", "passes"), ("schedule", "schedule"), ("asm", "text")]
)
def test_show_prints_one_json_object(polyker, stage, name):
    found = said(polyker("show", MATMUL, "--stage", stage, "--json", "A=f32[N,32]", "B=f32[32,48]", "N=64"))
    assert found["stage"] == stage and found["target"] == "cpu" and found["sizes"] == {} and found["measured"] is None
    assert found["inputs"] == [{"name": "A", "type": "f32[64, 32]"}, {"name": "B", "type": "f32[32, 48]"}]
    assert found["outputs"] == [{"name": "C", "type": "f32[64, 48]"}]
    assert found[name] and len(found["text"]) > 40
    if stage == "explain":
        assert found["explanation"]["flops"] == 2 * 64 * 32 * 48
    if stage == "passes":
        assert {"name", "level", "seconds", "changed"} == set(found["passes"][0])


def test_show_prints_json_without_types_and_with_symbols(polyker):
    found = said(polyker("show", MATMUL, "--json"))
    assert found["inputs"] == [{"name": "A", "type": None}, {"name": "B", "type": None}]
    assert found["text"].replace(" ", "") == MATMUL.replace(" ", "") and found["target"] is None
    found = said(polyker("show", "y[i] = x[i] * n for i in 0:n", "--stage", "explain", "--json", "x=f32[n]"))
    assert found["explanation"]["flops"] == "n" and found["outputs"][0]["type"] == "f32[n]"


def test_a_schedule_in_a_file_is_compiled_by(polyker, files, tmp_path, refused):
    printed = polyker("show", MATMUL, "--stage", "schedule", "--json", "A=f32[4,3]", "B=f32[3,5]", "--threads", "1")
    (tmp_path / "shown.json").write_text(printed.output)
    schedule = pk.op(MATMUL).schedule(pk.f32[4, 3], pk.f32[3, 5], auto=False, threads=1)
    (tmp_path / "own.json").write_text(schedule["C"].interchange("k", "i", "j").to_json())
    for name in ("shown.json", "own.json"):
        result = polyker("run", MATMUL, "A=a.npy", "B=b.npy", "--schedule", name, "-o", "c.npy")
        assert result.exit_code == 0, result.output
        np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), files[0] @ files[1])
    own = json.loads((tmp_path / "own.json").read_text())
    automatic = said(polyker("show", MATMUL, "--stage", "schedule", "--json", "A=f32[4,3]", "B=f32[3,5]"))
    for types, wanted in (
        ((), "f32[4, 3]"),
        (("A=f32[4,3]", "B=f32[3,5]"), "f32[4, 3]"),
        (("A=f32[M,K]", "B=f32[K,N]"), "f32[M, K]"),
    ):
        found = said(polyker("show", MATMUL, "--stage", "schedule", "--schedule", "own.json", "--json", *types))
        assert found["schedule"] == {**own, "types": [i["type"] for i in found["inputs"]]}
        assert found["inputs"][0]["type"] == wanted
        assert found["text"] != automatic["text"]
    refused(
        polyker("run", "C[i,j] += A[i,k] + B[k,j]", "A=a.npy", "B=b.npy", "--schedule", "own.json"), "ScheduleError"
    )
    for name in ("none.json", "a.npy", "."):
        refused(polyker("run", MATMUL, "A=a.npy", "B=b.npy", "--schedule", name), name, status=1)
    (tmp_path / "list.json").write_text("[1]")
    refused(polyker("run", MATMUL, "A=a.npy", "B=b.npy", "--schedule", "list.json"), "ScheduleError", status=1)


def test_a_schedule_that_breaks_a_dependence_is_refused(polyker, tmp_path, refused):
    text = "S[0] = X[0]; S[t] = S[t-1] + X[t] for t in 1:N"
    start = json.loads(pk.op(text).schedule(X=pk.f32[9], N=9, auto=False).to_json())
    steps = json.loads(pk.op("S[t] = X[t]").schedule(X=pk.f32[9], auto=False)["S"].reverse("t").to_json())["steps"]
    steps[0] |= {name: "S#2" for name, value in steps[0].items() if value == "S"}
    (tmp_path / "s.json").write_text(json.dumps({**start, "steps": steps}))
    refused(polyker("show", text, "--schedule", "s.json"), "LegalityError", "S[", status=1)


def test_threads_are_those_asked_for(polyker, refused):
    types = ("A=f32[512,512]", "B=f32[512,512]", "--stage", "loops")
    assert "parallel" not in polyker("show", MATMUL, "--threads", "1", *types).output
    assert "parallel" in polyker("show", MATMUL, "--threads", "2", *types).output
    refused(polyker("show", MATMUL, "--threads", "0", *types), "0 is not in the range", status=2)
    refused(polyker("show", MATMUL, "--threads", "many", *types), "'many'", status=2)


def test_run_measures_on_the_arrays_given(polyker, files, tmp_path):
    np.save(tmp_path / "idx.npy", np.array([3, 0, 3]))
    text = "E[b,k] = a * A[idx[b],k] + t for k in 0:3"
    found = said(polyker("run", text, "A=a.npy", "idx=idx.npy", "a=0.5", "t=1", "--time", "--threads", "1", "--json"))
    assert found["outputs"][0]["value"] == (0.5 * files[0][[3, 0, 3]] + 1).tolist()
    assert found["measured"]["seconds"] > 0 and found["measured"]["runs"] >= 5
    assert set(found["measured"]) == {"seconds", "runs", "percent"}


def test_show_measures_on_random_inputs(polyker, refused):
    text = "E[b] = T[idx[at[b]]] + w[b] for b in 0:B"
    types = ("T=f32[5]", "idx=i8[300]", "at=u16[N]", "w=c64[N]", "N=1000", "B=900")
    result = polyker("show", text, "--time", *types)
    assert result.exit_code == 0, result.output
    assert (
        "ns, the median of" in result.output.splitlines()[-1] or " us, the median of" in result.output.splitlines()[-1]
    )
    outside = polyker("show", "E[b] = T[idx[b]+1]", "--time", "T=f32[5]", "idx=i64[1000]")
    refused(outside, "polyker run --time", "GatherError", status=1)
    refused(polyker("show", MATMUL, "--time", "A=f32[M,K]", "B=f32[K,N]", "N=3"), "M=100 K=100", status=2)
    refused(polyker("show", "y[i] = x[0] for i in 0:N", "--time", "x=f32[1]"), "N=100", status=2)
    refused(polyker("show", MATMUL, "--time", "--target", "aarch64-linux-gnu", *TYPES), "another machine's", status=1)


@pytest.mark.skipif(not HAS_COMPILER, reason="cuda-sim needs a C++ compiler")
def test_run_takes_a_target(polyker, files, tmp_path):
    assert polyker("run", MATMUL, "A=a.npy", "B=b.npy", "--target", "cuda-sim", "-o", "c.npy").exit_code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), files[0] @ files[1])


@pytest.mark.parametrize(
    "options",
    [
        ("--stage", "nonsense"),
        ("--passes", "--after", "x"),
        ("--stage", "asm", "--passes"),
        ("--nosuch",),
        ("--threads",),
    ],
)
def test_options_that_do_not_fit_are_refused(polyker, refused, options):
    refused(polyker("show", MATMUL, *TYPES, *options), "Error: ", status=2)


def test_every_help_has_an_example_and_defaults(polyker):
    from polyker.cli.command import commands

    pages = [[], *([name] for name in commands.commands), *(["cache", n] for n in commands.commands["cache"].commands)]
    for page in pages:
        shown = polyker(*page, "--help").output
        assert any(f"polyker {' '.join(page)}".strip() in line for line in shown.splitlines()[2:]), shown
    shown = " ".join(polyker("run", "--help").output.split())
    for default in ("POLYKER_NUM_THREADS, or one a core", "POLYKER_TARGET, or cpu"):
        assert default in shown
    assert "[default: program]" in " ".join(polyker("show", "--help").output.split())
