"""The list of passes: names, order, what is printed of them."""

import os
import subprocess
import sys

import pytest

import polyker as pk
from polyker.errors import ArgumentError
from polyker.pipeline import kernel as kernels
from polyker.pipeline import program as programs
from polyker.pipeline.gpu import KERNEL as GPU_KERNEL

SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
LISTS = {
    "cpu": (*programs.FIRST, *programs.CPU, *kernels.CPU, *kernels.MACHINE),
    "gpu": (*programs.GPU, *GPU_KERNEL),
    "text": programs.TEXT,
}


@pytest.mark.parametrize("passes", LISTS.values(), ids=LISTS)
def test_each_pass_has_a_name_a_reason_and_comes_after_those_that_it_needs(passes):
    names = [p.name for p in passes]
    assert len(set(names)) == len(names)
    for place, p in enumerate(passes):
        assert p.why or p.name == "unroll"
        assert not set(p.after) & set(names[place + 1 :]), p.name


def test_the_passes_that_changed_a_program_are_listed_with_what_they_changed():
    text = pk.op(SOFTMAX).compile(X=pk.f32[100, 1000], threads=1).source("passes")
    listed = [line.split()[0] for line in text.splitlines() if not line.startswith(" ")]
    assert {"extract_reductions", "auto_schedule", "unroll"} <= set(listed)
    assert "    +S1: max[i] = -inf" in text and " ms" in text


def test_a_program_is_printed_after_any_pass():
    kernel = pk.op(SOFTMAX).compile(X=pk.f32[100, 1000], threads=1)
    before, after = kernel.source("after:argument_order"), kernel.source("after:extract_reductions")
    assert "S1:" not in before and "S1: max[i]" in after
    assert "exp" in kernel.source("after:unroll") and "unroll" in kernel.source("after:auto_schedule")
    with pytest.raises(ArgumentError, match="after:extract_reductions"):
        kernel.source("after:no_such_pass")
    with pytest.raises(ArgumentError, match="stages: after:extract_reductions, after:widen_reductions"):
        kernel.source("after:expand_reductions")


def test_what_passes_made_is_dumped_and_verified_after_each(tmp_path):
    code = "import polyker as pk; pk.op('s += X[i]*X[i]').compile(X=pk.f32[999])"
    env = {**os.environ, "POLYKER_DUMP": str(tmp_path), "POLYKER_VERIFY": "1"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    (folder,) = tmp_path.iterdir()
    names = [p.name.partition("-")[2] for p in sorted(folder.iterdir())]
    assert "extract_reductions.txt" in names or "start_reductions.txt" in names
    assert "auto_schedule.txt" in names


@pytest.mark.parametrize("types", ["X=pk.f32[100,1000]", "X=pk.f32['n',1000]"])
def test_what_passes_for_gpus_make_is_verified_after_each(types):
    code = f"import polyker as pk; pk.op({SOFTMAX!r}).compile({types}, target='cuda:sm_90a')"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "POLYKER_VERIFY": "1"}, check=True)
