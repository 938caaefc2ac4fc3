"""Targets by name, and this machine."""

from dataclasses import replace

import pytest

from polyker.codegen.llvm.jit import binding as llvm_binding
from polyker.codegen.llvm.jit.detect import host, target
from polyker.cost.memory import beyond, passed
from polyker.errors import BackendUnavailable, CompileError
from polyker.machine.known import GPUS, KNOWN
from polyker.machine.model import Cache


def test_this_machine_has_caches_that_grow_outwards():
    sizes = [c.size for c in host().caches]
    assert sizes == sorted(sizes)
    assert sizes[0] >= 8 << 10
    assert host().cores >= 1


def test_this_machine_is_detected_once():
    assert target("cpu") is target("cpu")


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_known_target_comes_by_its_name(name):
    assert target(name).name == name


def test_lanes_follow_the_vector_register():
    assert target("cpu:x86-64-v4").lanes(4) == 16
    assert target("cpu:x86-64-v3").lanes(8) == 4
    assert target("aarch64-linux-gnu").lanes(1) == 16


@pytest.mark.parametrize(("levels", "found"), [(3, [1, 2, 4]), (2, [1, 2, 2]), (1, [1, 1, 1])])
def test_where_caches_are_few_the_outermost_stands_for_those_beyond(levels, found):
    machine = replace(target("cpu:x86-64-v4"), caches=(Cache(1), Cache(2), Cache(4))[:levels])
    assert [machine.cache(level).size for level in (1, 2, 3)] == found


def test_an_unknown_target_names_those_that_are_known():
    with pytest.raises(CompileError, match="x86-64-v3") as caught:
        target("cpu:pentium")
    assert caught.value.code == "PK601"


@pytest.mark.parametrize("name", GPUS)
def test_gpus_are_values_too(name):
    found = target(name)
    assert found.gpu is not None and found.gpu.warp == 32 and found.cores == found.gpu.processors
    assert found.gpu.simulated == (name == "cuda-sim")


def test_the_gpu_of_this_machine_has_no_name_before_it_is_asked():
    with pytest.raises(BackendUnavailable, match="sm_90a") as caught:
        target("cuda")
    assert caught.value.code == "PK602"


@pytest.mark.parametrize(
    ("cpu", "far"), [("icelake-server", True), ("sapphirerapids", True), ("icelake-client", False), ("znver4", False)]
)
def test_bytes_behind_a_mesh_cost_more_to_pass_on(monkeypatch: pytest.MonkeyPatch, cpu: str, far: bool) -> None:
    monkeypatch.setattr(llvm_binding, "host_cpu", lambda: cpu)
    found = host.__wrapped__()
    last = found.caches[-1].size
    assert (passed(found, last // 2) > 4 * beyond(found, last // 2)) == far
    assert (passed(found, 2 * last) > 4 * beyond(found, 2 * last)) == far
    assert passed(found, found.caches[0].size // 2) == 0
