"""The commands of the command line: what they print, what they write, and how they refuse."""

import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import polyker.cli.command as cli

MATMUL = "C[i,j] += A[i,k] * B[k,j]"


def test_run_writes_the_output(polyker, files, tmp_path):
    result = polyker("run", MATMUL, "A=a.npy", "B=b.npy", "-o", "c.npy")
    assert result.exit_code == 0, result.output
    assert result.output == "C = float32[4, 5] -> c.npy\n"
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), files[0] @ files[1])


@pytest.mark.parametrize("name", ["c.NPY", "c.npz", "c.csv"])
def test_run_writes_only_the_path_that_was_given(polyker, files, tmp_path, name):
    before = set(os.listdir(tmp_path))
    assert polyker("run", MATMUL, "A=a.npy", "B=b.npy", "-o", name).exit_code == 0
    assert set(os.listdir(tmp_path)) - before == {name}


def test_run_prints_the_outputs_where_no_file_is_named(polyker, files):
    result = polyker("run", "s += A[i,k]", "A=a.npy")
    assert result.exit_code == 0, result.output
    assert result.output.split() == ["s", "=", "float32[]", "21."]


def test_run_reads_the_text_from_a_file(polyker, files, tmp_path):
    (tmp_path / "mm.pk").write_text("# product\n" + MATMUL + "\n")
    assert polyker("run", "@mm.pk", "A=a.npy", "B=b.npy", "-o", "c.npy").exit_code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), files[0] @ files[1])


def test_run_takes_sizes_and_scalars_as_numbers(polyker, files, tmp_path, refused):
    result = polyker(
        "run", "D[i] = a * A[i,k-1; pad=0] for i in 0:N, k in 1:2", "A=a.npy", "a=0.5", "N=2", "-o", "d.npy"
    )
    refused(result, "k")  # `=` has no index k on the left: the operator's own error comes through
    result = polyker("run", "D[i] += a * A[i,k] for i in 0:N", "A=a.npy", "a=0.5", "N=2", "-o", "d.npy")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "d.npy"), 0.5 * files[0][:2].sum(1))


def test_run_writes_several_outputs(polyker, files, tmp_path):
    text = "s[i] += A[i,k]; m[i] max= A[i,k]"
    assert polyker("run", text, "A=a.npy", "-o", "m=most.npy", "-o", "s=sum.npy").exit_code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "sum.npy"), files[0].sum(1))
    np.testing.assert_array_equal(np.load(tmp_path / "most.npy"), files[0].max(1))


def test_tensors_may_be_named_as_keywords_of_the_api(polyker, files, tmp_path, refused):
    text = "timeout[i] += out[i,k] * acc[k]"
    result = polyker("run", text, "out=a.npy", "acc=v.npy", "-o", "timeout=c.npy")
    refused(result, "v.npy")
    np.save(tmp_path / "v.npy", files[1][:, 0])
    result = polyker("run", text, "out=a.npy", "acc=v.npy", "-o", "timeout=c.npy")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), files[0] @ files[1][:, 0])
    assert polyker("show", text, "--stage", "asm", "out=f32[4,3]", "acc=f32[3]").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((MATMUL, "A=a.npy"), ["B"]),
        ((MATMUL, "A=a.npy", "B=a.npy"), ["k", "3", "4"]),
        ((MATMUL, "A=a.npy", "B=none.npy"), ["B=none.npy: there is no such file"]),
        ((MATMUL, "A=a.npy", "B=text.npy"), ["B=text.npy: not a whole .npy file of numbers"]),
        ((MATMUL, "A=a.npy", "B=empty.npy"), ["B=empty.npy: not a whole .npy file of numbers"]),
        ((MATMUL, "A=a.npy", "B=objects.npy"), ["pickled objects are not read"]),
        ((MATMUL, "A=a.npy", "B=zip.npy"), ["B=zip.npy"]),
        ((MATMUL, "A=a.npy", "B=b.txt"), ["neither a number nor a file of arrays", ".npz", ".csv"]),
        ((MATMUL, "A=a.npy", "B"), ["'B' is not NAME=VALUE"]),
        ((MATMUL, "A=a.npy", "A=a.npy"), ["given twice"]),
        ((MATMUL, "A=a.npy", "B=b.npy", "Q=b.npy"), ["Q"]),
        (("C[i,j] = A[i,k] * B[k,j]", "A=a.npy", "B=b.npy"), ["ShapeError", "only on the right", "^", "hint:"]),
        (("C[i,j] += A[i,k", "A=a.npy"), ["ParseError"]),
        (("@none.pk",), ["none.pk"]),
        ((MATMUL, "A=a.npy", "B=b.npy", "-o", "missing/c.npy"), ["missing/c.npy"]),
        (("s[i] += A[i,k]; m[i] max= A[i,k]", "A=a.npy", "-o", "c.npy"), ["write NAME=FILE", "s, m"]),
        (("s[i] += A[i,k]; m[i] max= A[i,k]", "A=a.npy", "-o", "s=c.npy", "-o", "s=d.npy"), ["given twice"]),
        (("E[i] += A[idx[i],k]", "A=a.npy", "idx=far.npy"), ["GatherError", "out of range"]),
    ],
)
def test_run_refuses_in_its_own_words(polyker, files, tmp_path, arguments, words, refused):
    (tmp_path / "text.npy").write_text("1 2 3")
    (tmp_path / "empty.npy").write_bytes(b"")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "far.npy", np.array([0, 9]))
    with zipfile.ZipFile(tmp_path / "zip.npy", "w") as archive:
        archive.writestr("a", "b")
    before = set(os.listdir(tmp_path))
    refused(polyker("run", *arguments), *words)
    assert set(os.listdir(tmp_path)) == before


def test_control_characters_in_arguments_are_escaped(polyker, refused):
    result = polyker("run", MATMUL, "A=\x1b[31m.txt")
    refused(result, "A=\\x1b[31m.txt")
    assert "\x1b" not in result.output


def test_a_file_that_is_no_text_is_refused(polyker, tmp_path, refused):
    (tmp_path / "binary.pk").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "long.pk").write_bytes(b"#" * (1 << 20) + b"\n")
    refused(polyker("show", "@binary.pk"), "binary.pk", "UTF-8")
    refused(polyker("show", "@long.pk"), "long.pk", "1048576 bytes")


@pytest.mark.parametrize("stage", [s for s in cli.STAGES if s not in ("cuda", "ptx")])
def test_show_prints_every_stage(polyker, stage):
    result = polyker("show", MATMUL, "--stage", stage, "A=f32[64,32]", "B=f32[32,48]")
    assert result.exit_code == 0, result.output
    wanted = {
        "program": "+=",
        "isl": "->",
        "passes": "start_reductions (program, ",
        "schedule": "",
        "loops": "for",
        "llvm": "define",
        "asm": "fm",
        "explain": "flops",
    }[stage]
    assert wanted in result.output
    assert len(result.output) > 40


def test_show_lists_passes_and_prints_what_one_made(polyker, refused):
    types = ("A=f32[64,32]", "B=f32[32,48]")
    listed = polyker("show", MATMUL, "--passes", *types)
    assert listed.exit_code == 0 and "auto_schedule (schedule, " in listed.output
    assert "= 0  in f32" in polyker("show", MATMUL, "--after", "start_reductions", *types).output
    refused(polyker("show", MATMUL, "--after", "no_pass", *types), "after:no_pass", "after:start_reductions")


def test_show_takes_symbolic_sizes(polyker):
    result = polyker("show", MATMUL, "--stage", "llvm", "A=f32[M,K]", "B=f32[K,N]")
    assert result.exit_code == 0, result.output
    assert "define" in result.output


def test_show_prints_the_program_without_types(polyker):
    result = polyker("show", MATMUL)
    assert result.exit_code == 0, result.output
    assert "C[i,j] += A[i,k] * B[k,j]" in result.output.replace(", ", ",")


def test_show_takes_a_target(polyker):
    result = polyker("show", MATMUL, "--stage", "asm", "--target", "aarch64-linux-gnu", "A=f32[64,32]", "B=f32[32,48]")
    assert result.exit_code == 0, result.output
    assert "fmla" in result.output


def test_show_takes_a_size_called_target(polyker):
    text = "y[i] = x[0] for i in 0:target"
    for options in ((), ("--target", "aarch64-linux-gnu")):
        result = polyker("show", text, "--stage", "asm", *options, "target=5", "x=f32[2]")
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize("given", ["A=f32", "A=g32[4,4]", "A=f32[4,4"])
def test_show_refuses_what_is_no_type(polyker, given, refused):
    refused(polyker("show", MATMUL, given, "B=f32[4,4]"), "not a tensor type", "or 5 for a size")


def test_show_refuses_an_unknown_target(polyker, refused):
    refused(polyker("show", MATMUL, "--target", "cpu:none-such", "A=f32[4,4]", "B=f32[4,4]"), "none-such")


def test_doctor_finds_this_machine_healthy(polyker):
    result = polyker("doctor")
    assert result.exit_code == 0, result.output
    for word in ("polyker ", "numpy", "islpy", "llvmlite", "processor", "vectors", "caches", "kernel: right"):
        assert word in result.output


def test_doctor_says_what_is_missing(polyker, monkeypatch):
    from importlib import metadata

    def version(name, known=metadata.version):
        if name in ("lark", "nvidia-cuda-nvrtc"):
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "version", version)
    result = polyker("doctor")
    assert result.exit_code == 1
    assert any(line.split()[:2] == ["lark", "MISSING:"] for line in result.output.splitlines())
    assert "not installed: it would give machine code for NVIDIA GPUs" in result.output


def test_env_lists_the_variables_with_their_values(polyker, monkeypatch):
    monkeypatch.setenv("POLYKER_TARGET", "cpu:x\x1b[0m")
    monkeypatch.delenv("POLYKER_INTERPRET", raising=False)
    result = polyker("env")
    assert result.exit_code == 0
    assert "POLYKER_TARGET=cpu:x\\x1b[0m" in result.output
    assert "POLYKER_INTERPRET=(not set)" in result.output


def test_the_version_is_printed(polyker):
    assert polyker("--version").output == "polyker 0.1.0\n"


def test_the_demo_checks_what_is_asked_for(polyker, tmp_path):
    result = polyker("demo", "--quick", "--filter", "kron3", "--json", "out.json")
    assert result.exit_code == 0, result.output
    assert "4 of 4 passed" in " ".join(result.output.split())
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["id"] for row in rows] == ["kron3_1", "kron3_2", "kron3_3", "kron3_full"]
    for row in rows:
        assert row["exact"] is True
        assert row["error"] <= row["allowed"]
        assert row["run"] > 0 and row["numpy"] > 0 and row["compile"] > 0
        assert row["ratio"] == row["numpy"] / row["run"]


def test_the_demo_takes_the_wider_type(polyker):
    result = polyker("demo", "--quick", "--filter", "softmax", "--dtype", "f64")
    assert result.exit_code == 0, result.output


def test_a_failing_row_makes_the_demo_fail(polyker, monkeypatch):
    from polyker.cli.demo_numpy import SPELLINGS

    monkeypatch.setitem(SPELLINGS, "tmm", lambda A, B: A @ B.T + 1)
    result = polyker("demo", "--quick", "--filter", "tmm")
    assert result.exit_code == 1
    assert "0 of 1 passed" in " ".join(result.output.split())
    assert "outside gamma_n" in result.output


def test_the_demo_refuses_a_filter_that_matches_nothing(polyker, refused):
    refused(polyker("demo", "--filter", "nothing"), "no operator of that name")


def test_the_process_pins_numpys_threads_and_ends_with_the_demos_status(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k not in cli.THREAD_VARIABLES}
    command = [sys.executable, "-m", "polyker", "demo", "--filter", "nothing"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60)
    assert run.returncode == 1
    assert "no operator of that name" in run.stderr


def test_the_cache_is_listed_checked_and_emptied(polyker, tmp_path, monkeypatch, refused):
    folder = tmp_path / "cache"
    monkeypatch.setenv("POLYKER_CACHE", "rw")
    monkeypatch.setenv("POLYKER_CACHE_DIR", str(folder))
    assert polyker("cache", "path").output.strip() == str(folder)
    assert polyker("cache", "ls").output.startswith("0 entries")
    (tmp_path / "x.npy").write_bytes(b"")
    np.save(tmp_path / "x.npy", np.ones(3))
    assert polyker("run", "y[i] = x[i] * 4 + 1", "x=x.npy").exit_code == 0
    listed = polyker("cache", "ls").output
    assert all(kind in listed for kind in ("signature", "call", "kernel", "y[i] = x[i] * 4 + 1  f64[3]  cpu"))
    assert "are sound" in polyker("cache", "verify").output
    next(iter(folder.glob("*.pk"))).write_bytes(b"damaged")
    assert "damaged" in polyker("cache", "ls").output
    found = polyker("cache", "verify")
    assert found.exit_code == 1 and "its digest differs" in found.output
    monkeypatch.setenv("POLYKER_CACHE", "ro")
    assert "nothing is deleted" in polyker("cache", "clear").output and list(folder.iterdir())
    monkeypatch.setenv("POLYKER_CACHE", "rw")
    assert "entries deleted" in polyker("cache", "clear").output and not list(folder.iterdir())
    monkeypatch.setenv("POLYKER_CACHE", "maybe")
    refused(polyker("cache", "ls"), "off, ro, rw")
