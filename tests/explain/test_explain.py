"""explain(): its amounts against brute force, its report against golden files, its model against what is known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import host
from polyker.explain import rates
from polyker.explain.report import Explanation
from polyker.ir.dtypes import DType
from polyker.ir.typed import TypedProgram
from polyker.poly.isl import read_set
from polyker.poly.scop import build_scop
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from tests.artifacts import compiled_of, compiled_to

bf16, f16, f32, f64, i8, i64 = pk.bf16, pk.f16, pk.f32, pk.f64, pk.i8, pk.i64
TARGET = "cpu:x86-64-v3"

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "matmul": ("C[i,j] += A[i,k] * B[k,j]", {"A": f32[512, 256], "B": f32[256, 384]}),
    "triangle": ("L[i,j] += A[i,k] * A[j,k]  where j <= i", {"A": f64[60, 40]}),
    "convolution": (
        "O[n,f,h,w] += X[n,c,h+r-1,w+s-1; pad=0] * K[f,c,r,s]  for h in 0:14, w in 0:14",
        {"X": f32[1, 16, 14, 14], "K": f32[32, 16, 3, 3]},
    ),
    "softmax": (
        "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))",
        {"X": f32[300, 1000]},
    ),
    "gather": ("E[b,d] += T[idx[b,l], d]", {"T": f32[1000, 64], "idx": i64[12, 20]}),
    "symbolic": ("C[i,j] += A[i,k] * B[k,j]", {"A": f32["M", "K"], "B": f32["K", "N"]}),
    "chain": (
        "T[i] = 2 * X[i]; U[i] = exp(T[i]); V[i] = U[i] + U[99999 - i]; O[i] = V[i] * V[99999 - i]",
        {"X": f32[100000]},
    ),
}


@pytest.fixture(autouse=True)
def _unmeasured(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    """No rates of this machine are stored, and its cores do not count."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rates.path().parent.mkdir()
    rates.stored.cache_clear()
    with pk.options(threads=1):
        yield


def explained(text: str, types: dict[str, Any], target: str = TARGET) -> Explanation:
    return pk.op(text).explain(target=target, **types)


@pytest.mark.parametrize("name", ["matmul", "symbolic"])
def test_the_whole_report_is_as_kept(name: str, golden: Callable[[str, str], None]) -> None:
    text, types = CASES[name]
    report = str(explained(text, types)).partition("\npasses\n")[0]
    golden(f"explain/{name}.txt", f"{text}\n\n{report}\n")


@pytest.mark.parametrize("name", ["triangle", "convolution", "softmax", "gather", "chain"])
def test_what_follows_from_the_program_is_reported_as_kept(name: str, golden: Callable[[str, str], None]) -> None:
    text, types = CASES[name]
    report = str(explained(text, types)).partition("bytes that the schedule moves")[0]
    report = re.sub(r" as written, .* as scheduled", "", report)
    golden(f"explain/{name}.txt", f"{text}\n\n{report}")


@pytest.mark.parametrize("name", CASES)
def test_a_report_speaks_in_the_names_of_the_user(name: str) -> None:
    text, types = CASES[name]
    assert not re.search(r"\b([St]\d+|i(?!(8|16|32|64)\b)\d+)\b", str(explained(text, types)))


def brute(typed: TypedProgram) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Return instances by statement, and elements read and written by tensor, by listing them."""
    program = extract_reductions(typed)
    scop = build_scop(program)
    instances = {s.name: read_set(s.domain).count_val().to_python() for s in program.statements()}
    elements: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for a in scop.accesses:
        for kind in {a.is_write} | ({False} if a.is_update else set()):
            known = elements[kind].get(a.tensor)
            touched = a.relation.range()
            elements[kind][a.tensor] = touched if known is None else known.union(touched)
    read, written = ({t: c.count_val().to_python() for t, c in kind.items()} for kind in elements)
    return instances, read, written


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("C[i,j] += A[i,k] * B[k,j]", {"A": f32[7, 5], "B": f32[5, 9]}),
        ("L[i,j] += A[i,k] * A[j,k]  where j <= i", {"A": f64[9, 4]}),
        ("O[i] += X[2*i + r] * W[r]", {"X": f32[21], "W": f32[4]}),
        ("O[h] += X[h+r-1; pad=0] * K[r]  for h in 0:9", {"X": f32[9], "K": f32[3]}),
        ("O[i,j] += X[i,j] * X[j,i]  where i + j < 6", {"X": f32[8, 8]}),
        ("O[i] = X[i] - mean[k](X[k])", {"X": f32[17]}),
    ],
)
def test_amounts_are_those_of_a_list_of_the_instances(text: str, types: dict[str, Any]) -> None:
    kernel = pk.op(text).compile(**types)
    found = kernel.explain()
    instances, read, _ = brute(compiled_of(kernel).typed)
    assert {w.instances for w in found.statements} <= set(instances.values())
    assert found.statements[-1].instances == list(instances.values())[-1]
    typed = compiled_of(kernel).typed
    for moved in found.arguments:
        name, size = next((t.name, t.dtype.itemsize) for t in typed.tensors if t.label == moved.tensor)
        if name in typed.inputs:
            assert moved.exact
            assert moved.read == read[name] * size
        else:
            shape = pk.op(text).infer(**types).shape
            assert moved.written == np.prod(shape) * size


def test_a_multiply_add_is_two_flops_and_functions_count_by_name() -> None:
    (work,) = explained("C[i,j] += A[i,k] * B[k,j]", {"A": f32[7, 5], "B": f32[5, 9]}).statements
    assert (work.instances, work.flops, work.functions) == (315, 630, {})
    (work,) = explained("O[i] = where(X[i] < 0, exp(X[i]) - 1, sqrt(X[i]) / 2)", {"X": f32[10]}).statements
    assert work.flops == 20
    assert work.functions == {"where": 10, "comparisons": 10, "exp": 10, "sqrt": 10}
    (work,) = explained("O[i] max= X[i,j]", {"X": f32[10, 3]}).statements
    assert (work.flops, work.functions) == (0, {"maximum": 30})
    (work,) = explained("C[i] += A[i] * B[k]", {"A": pk.c64[3], "B": pk.c64[5]}).statements
    assert work.flops == 15 * 8


def test_products_of_narrow_integers_are_as_many_flops_however_they_are_added_up() -> None:
    found = explained("C[i,j] += i32(A[i,k]) * i32(B[k,j])", {"A": pk.u8[64, 64], "B": pk.i8[64, 64]})
    assert found.flops == found.scheduled_flops == 2 * 64**3


def test_the_steps_of_a_contraction_are_told_from_what_was_written() -> None:
    text = "M[i,r] += X[i,j,k] * B[j,r] * C[k,r]"
    found = explained(text, {"X": f32[60, 60, 60], "B": f32[60, 32], "C": f32[60, 32]})
    assert found.flops == 3 * 60**3 * 32
    assert found.scheduled_flops < 0.8 * found.flops
    assert found.floor.arithmetic < 60**3 * 32 * 2 / 16


def test_values_of_one_instance_that_are_computed_once_count_once() -> None:
    found = explained("T[i] = X[i] + 1; O[i] = T[i] * T[i]", {"X": f32[1000]})
    assert (found.flops, found.scheduled_flops) == (2000, 2000)
    square = explained("T[i] = X[i] + 1; O[i] = T[i]**2", {"X": f32[1000]})
    assert (square.flops, square.scheduled_flops) == (2000, 2000)


def test_a_gather_reads_at_most_what_its_instances_reach() -> None:
    found = explained(*CASES["gather"])
    table, index = found.arguments[:2]
    assert (table.read, table.exact) == (12 * 20 * 64 * 4, False)
    assert (index.read, index.exact) == (12 * 20 * 8, True)


def test_symbolic_amounts_hold_for_sizes_put_in() -> None:
    import sympy

    text, types = CASES["symbolic"]
    kernel = pk.op(text).compile(**types)
    found = kernel.explain()
    m, n, k = (next(s for s in found.flops.free_symbols if s.name == name) for name in "MNK")
    assert sympy.expand(found.flops - 2 * m * n * k) == 0
    assert sympy.expand(found.bytes - 4 * (m * k + k * n + m * n)) == 0
    assert found.levels == ()
    numbers = kernel.explain(M=100, N=200, K=300)
    assert numbers.flops == 2 * 100 * 200 * 300
    assert numbers.levels
    assert found.flops.subs({m: 100, n: 200, k: 300}) == numbers.flops
    half = kernel.explain(K=300)
    assert sympy.expand(half.flops - 600 * m * n) == 0
    with pytest.raises(pk.PolykerError, match="`Q` is no size"):
        kernel.explain(Q=3)


def test_products_of_symbolic_sizes_are_told_as_such() -> None:
    text = "O[n,f,h,w,d] += X[n,c,h,w,d] * K[f,c]"
    kernel = pk.op(text).compile(X=f32["N", "C", "H", "W", "D"], K=f32["F", "C"], target=TARGET)
    assert len(compiled_to(kernel).products) == 2
    assert not re.search(r"\bn\d", str(kernel.explain()))
    assert kernel.explain(N=2, C=3, H=5, W=7, D=13, F=11).flops == 2 * 2 * 3 * 5 * 7 * 11 * 13


def test_intermediates_are_told_with_their_places() -> None:
    found = {t.name: t for t in explained(*CASES["chain"]).intermediates}
    assert found["T"].place == "not stored"
    assert (found["U"].place, found["U"].bytes) == ("memory", 400_000)
    found = {t.name: t for t in explained(*CASES["softmax"]).intermediates}
    assert found["P.max"].whole == 1200
    assert found["P.max"].bytes == 4
    found = {t.name: t for t in explained(*CASES["matmul"]).intermediates}
    assert found["C.acc"].place == "registers"
    assert not found["C.acc"].from_text


def test_the_peak_is_that_of_a_call() -> None:
    text, types = CASES["chain"]
    kernel = pk.op(text).compile(**types)
    kernel(np.ones(100_000, "f4"))
    (plan,) = compiled_of(kernel).plans.values()
    assert kernel.explain().peak_bytes == plan.scratch_size > 0


def test_the_model_moves_each_byte_of_a_copy_once() -> None:
    found = explained("O[i,j] = X[i,j]", {"X": f32[1000, 1024]})
    for level in found.levels:
        assert level.read == pytest.approx(4096000, rel=0.01)
        assert level.written == pytest.approx(4096000, rel=0.01)


def test_the_model_sees_a_product_reuse_its_operands_in_the_caches() -> None:
    found = explained("C[i,j] += A[i,k] * B[k,j]", {"A": f32[600, 600], "B": f32[600, 600]})
    near, *_, far = found.levels
    assert far.read == pytest.approx(2 * 4 * 600 * 600, rel=0.02)
    assert 4 * far.read < near.read < 4 * 600**3 / 2
    # Fewer bytes cross each level than the one before.
    assert [x.read for x in found.levels] == sorted((x.read for x in found.levels), reverse=True)


def test_rows_that_a_cache_holds_are_read_once() -> None:
    found = explained("O[i,j] = X[i,j] - max[k](X[i,k])", {"X": f32[4000, 1000]})
    assert found.levels[-1].read == pytest.approx(16_000_000, rel=0.02)
    assert found.levels[1].read == pytest.approx(16_000_000, rel=0.02)


def test_the_floor_is_the_larger_of_arithmetic_and_bytes() -> None:
    product = explained("C[i,j] += A[i,k] * B[k,j]", {"A": f32[512, 512], "B": f32[512, 512]})
    assert product.floor.arithmetic == 512**3 / 16
    assert product.floor.bound == "arithmetic"
    addition = explained("O[i] = A[i] + B[i]", {"A": f32[1 << 24], "B": f32[1 << 24]})
    assert (addition.floor.bound, addition.floor.level) == ("memory", "memory")
    assert addition.intensity == pytest.approx(1 / 12)
    assert addition.floor.seconds is None


def test_the_dictionary_is_json() -> None:
    for name in ("matmul", "symbolic", "softmax"):
        found = json.loads(json.dumps(explained(*CASES[name]).to_dict()))
        assert found["statements"][0]["text"]
        assert "bound" in found["floor"]
    assert json.loads(json.dumps(explained(*CASES["matmul"]).to_dict()))["flops"] == 2 * 512 * 384 * 256


def test_measured_runs_say_the_share_of_the_floor() -> None:
    a = np.ones((64, 64), "f4")
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(a, a)
    found = kernel.measure(a, a, seconds=0.01)
    assert found.measured is not None
    assert found.measured.runs >= 5
    stored = rates.stored()
    assert stored is not None
    assert found.floor.arithmetic_seconds == pytest.approx(2 * 64**3 / stored.peak(4))
    assert found.measured.percent == pytest.approx(100 * found.floor.seconds / found.measured.seconds)
    assert "of the floor's speed" in str(found)
    # The rates were stored, so that explain says seconds from now on.
    assert kernel.explain().floor.seconds == found.floor.seconds


def test_measuring_takes_scalars_symbols_and_outs() -> None:
    flops, bandwidth = dict.fromkeys(rates.LLVM, 1e9), dict.fromkeys(rates.names(host()), 1e9)
    rates.path().write_text(json.dumps({"cpu": host().cpu, "flops": flops, "bandwidth": bandwidth}))
    x = np.ones(100, "f4")
    assert pk.op("s += X[i]").compile(x).measure(x, seconds=0.01).flops == 100
    kernel = pk.op("O[i] = X[i] * a for i in 0:N").compile(X=f32["N"], a=f32[()])
    assert kernel.measure(x, np.float32(2), seconds=0.01, out=np.empty(100, "f4")).flops == 100
    several = pk.op("O[i] = X[i] * 2; P[i] = X[i] + 1").compile(x)
    assert several.measure(x, seconds=0.01).flops == 200


@pytest.mark.parametrize("text", ["", "{", '{"cpu": "other"}', '{"cpu": 3, "flops": {}, "bandwidth": []}'])
def test_rates_that_are_not_this_machines_are_left_alone(text: str) -> None:
    rates.path().write_text(text)
    rates.stored.cache_clear()
    assert rates.stored() is None


def test_a_schedule_of_the_users_is_explained_too() -> None:
    op = pk.op("C[i,j] += A[i,k] * B[k,j]")
    types = {"A": f32[64, 64], "B": f32[64, 64]}
    plain = op.schedule(auto=False, **types)
    one = op.compile(schedule=plain).explain()
    assert (one.flops, one.scheduled_flops, one.floor.threads) == (2 * 64**3, 2 * 64**3, 1)
    both = op.compile(schedule=plain["C"].parallel("i", threads=2)).explain()
    assert both.floor.threads == 2
    assert both.floor.arithmetic == one.floor.arithmetic / 2
    assert "i runs on 2 threads" in map(str, both.decisions)


def test_rates_are_measured_and_kept_for_this_processor() -> None:
    found = rates.measured()
    assert rates.stored() == found
    assert 1e8 < found.bandwidth["memory"] < 2 * found.bandwidth["L1"] < 1e13
    assert 1e8 < found.flops["f64"] < 1.5 * found.flops["f32"] < 1e13


def test_the_floor_of_a_gpu_is_that_of_its_published_figures() -> None:
    from polyker.codegen.llvm.jit.detect import target

    gpu = target("cuda:sm_90a").gpu
    assert gpu is not None
    found = explained("C[i,j] += A[i,k] * B[k,j]", {"A": f32[512, 512], "B": f32[512, 512]}, "cuda:sm_90a")
    assert found.floor.arithmetic_seconds == pytest.approx(2 * 512**3 / gpu.flops)
    assert found.floor.memory_seconds == pytest.approx(3 * 4 * 512**2 / gpu.bandwidth)
    assert found.levels == ()
    assert not re.search(r"\bS\d", str(found))


@pytest.mark.parametrize(("dtype", "name"), [(bf16, "bf16"), (f16, "f16"), (i8, "i8"), (f64, "f64")])
def test_the_floor_of_a_product_on_a_gpu_is_that_of_its_matrix_units(dtype: DType, name: str) -> None:
    from polyker.codegen.llvm.jit.detect import target

    gpu = target("cuda:sm_90a").gpu
    assert gpu is not None and gpu.matrix_rate(name)
    types = {"A": dtype[1024, 1024], "B": dtype[1024, 1024]}
    found = explained("C[i,j] += A[i,k] * B[k,j]", types, "cuda:sm_90a")
    assert found.floor.arithmetic_seconds == pytest.approx(2 * 1024**3 / gpu.matrix_rate(name))
    # What is no product takes the other units.
    found = explained("C[i,j] max= A[i,k] * B[k,j]", types, "cuda:sm_90a")
    assert found.floor.arithmetic_seconds >= 1024**3 / gpu.flops


def test_the_floor_of_an_f32_product_is_that_of_its_f32_units() -> None:
    from polyker.codegen.llvm.jit.detect import target

    for name in ("cuda:sm_80", "cuda:sm_90a"):
        gpu = target(name).gpu
        assert gpu is not None
        found = explained("C[i,j] += A[i,k] * B[k,j]", {"A": f32[512, 512], "B": f32[512, 512]}, name)
        assert found.floor.arithmetic_seconds == pytest.approx(2 * 512**3 / gpu.flops)
