"""Targets by name, and this machine."""

import pytest

import polyker as pk
from polyker.codegen.llvm.jit import binding as llvm_binding
from polyker.codegen.llvm.jit.detect import host, target
from polyker.cost.memory import beyond, passed
from polyker.errors import BackendUnavailable, CompileError
from polyker.machine.known import gpus, known
from polyker.machine.model import Cache
from polyker.structs import replace
from tests.artifacts import generated


def test_this_machine_has_caches_that_grow_outwards():
    sizes = [c.size for c in host().caches]
    assert sizes == sorted(sizes)
    assert sizes[0] >= 8 << 10
    assert host().cores >= 1


def test_this_machine_is_detected_once():
    assert target("cpu") is target("cpu")


@pytest.mark.parametrize("name", sorted(known()))
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


@pytest.mark.parametrize("name", gpus())
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


MULTIPLY_ADD = {
    "x86-64-v1": None, "x86-64-v3": "llvm.fma", "aarch64-macos": "llvm.fma", "riscv64-linux-gnu": "llvm.fma",
    "armv7-linux-gnueabihf": "llvm.fma", "wasm32": None, "wasm32-relaxed": "llvm.fmuladd",
}  # fmt: skip


@pytest.mark.parametrize(("name", "called"), MULTIPLY_ADD.items())
def test_multiply_adds_are_fused_where_a_target_has_them(name: str, called: str | None) -> None:
    text = pk.op("s += x[i] * y[i]").compile(x=pk.f32[1000], y=pk.f32[1000], target=name).source("llvm")
    assert {c for c in ("llvm.fma", "llvm.fmuladd") if f"@{c}." in text} == ({called} - {None})


def test_systems_and_cores_have_the_facts_of_their_instruction_set() -> None:
    level, windows, core = (target(n) for n in ("cpu:x86-64-v3", "x86_64-windows-msvc+v3", "cpu:znver3"))
    assert replace(windows, name=level.name, triple=level.triple) == level
    assert (core.vector_bytes, core.fma, core.memory.side_by_side) == (32, "fused", 13.0)
    assert (target("cpu:cascadelake").dot, target("cpu:skylake-avx512").dot) == (4, 2)


def test_elements_that_are_too_wide_for_vectors_have_one_lane() -> None:
    assert [target("armv7-linux-gnueabihf").lanes(n) for n in (1, 2, 4, 8)] == [16, 8, 4, 1]
    assert [target("riscv64-linux-gnu").lanes(n) for n in (1, 4, 8)] == [1, 1, 1]


@pytest.mark.parametrize("name", ["riscv64-linux-gnu", "wasm32-nosimd"])
@pytest.mark.parametrize("sizes", [(64, 64, 64), ("M", "K", "N")])
def test_without_vectors_tiles_are_unrolled_along_both_iterators(name: str, sizes: tuple[int | str, ...]) -> None:
    m, k, n = sizes
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(A=pk.f32[m, k], B=pk.f32[k, n], target=name)
    schedule = generated(kernel, "schedule")
    assert "unroll(4) i0.point" in schedule or "unroll(6) i0.point" in schedule
    assert "i1.vectors" in schedule and "vector(" not in schedule


def test_without_vectors_a_scan_runs_element_by_element() -> None:
    text = "S[0] = X[0]; S[t] = S[t-1] + X[t] for t in 1:999"
    assert "scan" in generated(pk.op(text).compile(X=pk.i32[999], target="cpu:x86-64-v4"), "schedule")
    assert "scan" not in generated(pk.op(text).compile(X=pk.i32[999], target="riscv64-linux-gnu"), "schedule")


@pytest.mark.parametrize(
    ("name", "parts"), [("armv7-linux-gnueabihf", True), ("x86_64-windows-msvc", True), ("wasm32", False)]
)
def test_loops_are_distributed_over_threads_but_in_webassembly(name: str, parts: bool) -> None:
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(A=pk.f32[300, 300], B=pk.f32[300, 300], target=name, threads=2)
    assert ("@participate" in kernel.source("llvm")) == parts
