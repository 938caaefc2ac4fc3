"""GPUs by name and as they say of themselves."""

import pytest

from polyker.codegen.llvm.jit.detect import target
from polyker.machine.device import ATTRIBUTES, name_of, with_device
from polyker.machine.known import gpus
from polyker.structs import replace

# As an H100 SXM said of itself.
H100 = {
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "L2_CACHE_SIZE": 52428800,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "CLOCK_RATE": 1980000,
    "MEMORY_CLOCK_RATE": 2619000,
    "GLOBAL_MEMORY_BUS_WIDTH": 5120,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024,
}


def test_a_device_like_the_known_one_changes_its_rates_alone():
    known = target("cuda:sm_90a")
    found = with_device(known, H100)
    assert found.gpu.bandwidth == pytest.approx(3.352e12, rel=1e-3)
    assert found.gpu.flops == pytest.approx(known.gpu.flops, rel=1e-3)
    assert dict(found.gpu.matrix) == pytest.approx(dict(known.gpu.matrix), rel=1e-3)
    rates = {"flops": 0.0, "bandwidth": 0.0, "matrix": ()}
    assert replace(found.gpu, **rates) == replace(known.gpu, **rates)
    assert set(H100) == set(ATTRIBUTES)


def test_an_h200_is_told_by_its_memory():
    found = with_device(target("cuda:sm_90a"), {**H100, "MEMORY_CLOCK_RATE": 3201000, "GLOBAL_MEMORY_BUS_WIDTH": 6144})
    assert found.gpu.bandwidth == pytest.approx(4.9e12, rel=0.01)
    assert found.name == "cuda:sm_90a"


def test_what_a_device_does_not_say_stays_as_it_is_known():
    known = target("cuda:sm_90a")
    assert with_device(known, {}) is known
    assert with_device(known, dict.fromkeys(H100, 0)) is known
    silent = with_device(known, {**H100, "MEMORY_CLOCK_RATE": 0})
    assert silent.gpu.bandwidth == known.gpu.bandwidth


def test_limits_and_cores_are_the_device_s():
    small = {**H100, "MULTIPROCESSOR_COUNT": 114, "CLOCK_RATE": 0, "L2_CACHE_SIZE": 10 << 20}
    known = target("cuda:sm_90a")
    found = with_device(known, {**small, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 99 << 10})
    assert found.cores == found.gpu.processors == 114
    assert [c.size for c in found.caches] == [99 << 10, 10 << 20] == [found.gpu.shared, found.gpu.l2]
    assert found.gpu.flops == pytest.approx(known.gpu.flops * 114 / 132)
    assert found.gpu.matrix_rate("bf16") == pytest.approx(989e12 * 114 / 132)


def test_the_simulator_and_processors_stay_what_they_are():
    for name in ("cuda-sim", "cpu:x86-64-v3"):
        assert with_device(target(name), H100) is target(name)


@pytest.mark.parametrize(
    ("arch", "name"),
    [("sm_80", "sm_80"), ("sm_86", "sm_86"), ("sm_87", "sm_80"), ("sm_89", "sm_89"), ("sm_90", "sm_90a")]
    + [("sm_100", "sm_100"), ("sm_103", "sm_100"), ("sm_120", "sm_120"), ("sm_121", "sm_120")]
    + [("sm_75", None), ("sm_70", None), ("sm_91", None), ("sm_110", None), ("", None)],
)  # fmt: skip
def test_a_device_has_the_code_of_its_generation(arch, name):
    assert name_of(arch) == (name and f"cuda:{name}")


@pytest.mark.parametrize("name", [n for n in gpus() if n != "cuda-sim"])
def test_the_figures_of_a_gpu_agree_with_each_other(name):
    gpu = target(name).gpu
    assert 1.2e9 < gpu.clock < 2.7e9
    # A block has what its multiprocessor has but for what CUDA keeps of it.
    assert gpu.shared + gpu.reserved in (100 << 10, 164 << 10, 228 << 10)
    assert gpu.matrix_rate("f16") >= 1.9 * gpu.flops
    assert gpu.matrix_rate("i8") == pytest.approx(2 * gpu.matrix_rate("f16"), rel=1)
    assert target(name).lanes(4) * target(name).fma_per_cycle == gpu.lanes


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 115, 33280, 2),  # 128 registers a thread after rounding: 2 blocks by registers
        (256, 32, 33280, 6),  # 228 KiB of shared memory, 33.5 KiB a block
        (256, 32, 0, 8),
        (32, 16, 0, 32),
        (1024, 64, 0, 1),
        (256, 64, 232448, 1),
        (256, 64, 232449, 0),
        (256, 64, 115712, 2),
        (256, 64, 115712 + 1, 1),
    ],
)
def test_blocks_that_a_multiprocessor_has_at_once(threads, registers, shared, blocks):
    assert target("cuda:sm_90a").gpu.resident_blocks(threads, registers, shared) == blocks
