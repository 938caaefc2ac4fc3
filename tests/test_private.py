"""Tests use what is public: a file that looks into polyker, or puts something else in its place, says here why it must."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PRODUCT = [p for top in ("polyker", "codegen", "einsum_frontend") for p in sorted((ROOT / top).rglob("*.py"))]
OF_NAMEDTUPLES = {"_fields", "_asdict", "_replace"}

# A name that a file defines; what a file has that looks into anything at all.
_DEFINED = re.compile(r"(?:\b(?:def|class) |\bself\.|^ *)(_\w+)(?= *[:=(\[,])", re.MULTILINE)
_SUSPECT = re.compile(
    r"\._[a-zA-Z]|import .*\b_\w|\b(?:setattr|setitem|delattr|patch|object)\(|^\s*\w+\.\w+ = ", re.MULTILINE
)

SMALL = "a program small enough for a test is too small for it to be worth its cost"
NO_CARD = "whether this machine has a GPU must not matter"
# By file why, and what.
ALLOWED: dict[str, tuple[str, set[str]]] = {
    "artifacts.py": (
        "the door to what users do not see: other files go through it",
        {"_after", "_compiled", "_state"},
    ),
    "bridge/jax/test_calls.py": ("another version of XLA", {"handler.MAJOR"}),
    "cli/test_cli.py": ("a spelling that is wrong", {"SPELLINGS.tmm"}),
    "cli/test_kernels.py": ("a compiler that is not there", {"nvrtc.library"}),
    "codegen/test_ahead.py": ("all iterations of a small loop are listed", {"ahead.LINES_IN_FLIGHT"}),
    "codegen/test_stream.py": (SMALL, {"llvm_stream.MIN_SPLIT_ROW_BYTES", "llvm_stream.PIECE_TURN_BYTES"}),
    "fuzz/eager.py": (SMALL, {"binding.target_named", "module.name"}),
    "fuzz/poison.py": ("memory comes back zeroed by chance", {"calls.aligned_block"}),
    "fuzz/threads.py": (SMALL, {"lowering.MIN_PARALLEL_OPERATIONS", "parallel.REGION_OPERATIONS", "regions.settle.__defaults__"}),
    "gpu/device.py": (NO_CARD, {"cuda_driver.found_driver", "loaded.cubin"}),
    "gpu/run_time.py": (NO_CARD, {"cuda_driver.found_driver", "cuda_driver.in_use"}),
    "gpu/test_disk_cache.py": ("what must not be compiled, and another card", {"gpu_pipeline.compile_gpu", "type(device).arch"}),
    "gpu/test_barriers.py": ("one operand's steps on chip or many", {"polyker.schedule.gpu.contract.MAX_STAGES"}),
    "gpu/test_build.py": (
        "compilers that are not there, a disk that is full, and what must not be called",
        {
            "cuda_build.run_nvcc", "cuda_build.shutil.which", "cuda_build.subprocess.run", "cuda_build.version_of",
            "nvrtc.architectures", "nvrtc.compile_nvrtc", "nvrtc.library",
        },
    ),
    "gpu/test_cuda_text.py": (NO_CARD, {"cuda_driver.why_not"}),
    "gpu/test_driver.py": (NO_CARD, {"cuda_driver.found_driver"}),
    "gpu/test_run_time_edges.py": (
        "a thread that comes between, and whether a call was planned anew",
        {"bound.bound_call", "loaded_module.Loaded.sync", "type(device).status", "type(device).synchronize"},
    ),
    "gpu/test_runs.py": (SMALL + "; a choice that fails", {"gpu_auto.choose_contraction", "gpu_contract.GPU_LAUNCH"}),
    "gpu/test_streams.py": ("whether a call was planned anew; " + NO_CARD, {"bound.bound_call", "cuda_driver.found_driver"}),
    "gpu/test_swizzle.py": ("a layout that is wrong", {"Swizzle.place"}),
    "gpu/test_waits.py": ("one operand's steps on chip or many", {"polyker.schedule.gpu.contract.MAX_STAGES"}),
    "poly/test_coverage.py": ("a quota that a small program exceeds", {"bind_module.BIND_ISL_OPERATIONS"}),
    "quick.py": ("what must not be called", {"binding.parse"}),
    "rewrite/conftest.py": (SMALL, {"step_blocks.BLOCK_STEPS", "step_blocks.MIN_STEP_BLOCKS"}),
    "store/test_disk.py": (
        "a small cache, and a user who has no folder",
        {"disk.KEPT_BYTES", "disk.MAX_BYTES", "disk.counts.writes", "disk.folder"},
    ),
    "store/test_kernels.py": (
        "another compiler, and another machine",
        {"_installed", "keys._files", "keys._installed", "own.host_key"},
    ),
    "target/test_facts.py": (
        "a measurement that takes seconds, and what a doctor finds that measured nothing",
        {"core_facts.ROUNDS", "core_facts.core_facts", "core_facts.host", "rates.measured", "rates.path"},
    ),
    "runtime/interleave.py": ("each call takes the place of another's row", {"tables.ROWS"}),
    "runtime/test_arrays.py": (NO_CARD, {"cuda_driver.found_driver"}),
    "runtime/test_call_races.py": (
        "threads that meet, locks that are held, and interrupts at each of some steps",
        {"_adopt", "_adopting", "_lock", "_table", "pk.Kernel.hand_on_to", "tables.address", "tables.adopted"},
    ),
    "runtime/test_native.py": (
        "an interpreter without the entry",
        {"polyker.runtime.entry.native.native", "polyker.runtime.entry.tables.native"},
    ),
    "runtime/test_tensor_calls.py": ("a torch without the exchange API", {"classes._found"}),
    "schedule/test_contract.py": ("a choice that fails", {"auto.best_fusion"}),
    "schedule/test_fuse_costs.py": ("what one part of a cost decides", {"fuse_cost.UNBLOCKED_LOSS"}),
    "schedule/test_fuse_programs.py": (
        SMALL + "; a proof that fails, and how often a choice is made",
        {"fuse_cost.GAIN_OF_KIND", "fuse_cost.choose", "lowering.prove", "order.MAX_ACCUMULATED_TERMS"},
    ),
    "schedule/test_operation_cost.py": ("what one part of a cost decides", {"operation_cost.BROADCAST_OPERATIONS"}),
    "schedule/test_plainer.py": ("a proof and a lowering that fail", {"lowering.lower", "lowering.prove"}),
    "schedule/test_search_blocks.py": (SMALL, {"module.GAIN", "module.MIN_BLOCK_VECTORS"}),
    "schedule/test_time_tiling.py": (SMALL + "; tiles of any size", {"TimeCosts.best", "time_cost.GAIN"}),
    "target/test_targets.py": ("a processor that this machine has not", {"llvm_binding.host_cpu"}),
    "test_fuzz.py": ("a proof that fails", {"module.proven_kernel"}),
    "test_fuzz_steps.py": ("a proof that fails, or accepts all", {"prove.check"}),
}  # fmt: skip


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_NAMEDTUPLES


def imported(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield each name that a file imports, with what it is."""
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield from ((a.asname or a.name, f"{module}.{a.name}") for a in names)
            case ast.Import(names=names):
                yield from ((a.asname or a.name.split(".")[0], a.name) for a in names)


def patched(nodes: list[ast.AST], modules: dict[str, str]) -> Iterator[str]:
    """Yield what a file puts something else in place of."""
    for node in nodes:
        match node:
            case ast.Call(
                func=ast.Attribute(attr="setattr" | "delattr" | "object"), args=[ast.Constant(value=str(name)), *_]
            ):
                yield name
            case ast.Call(
                func=ast.Attribute(attr="patch") | ast.Name(id="patch"), args=[ast.Constant(value=str(name)), *_]
            ):
                yield name
            case ast.Call(
                func=ast.Attribute(attr="setattr" | "delattr" | "object" | "setitem"), args=[thing, name, *_]
            ):
                yield f"{ast.unparse(thing)}.{name.value if isinstance(name, ast.Constant) else ast.unparse(name)}"
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=thing), attr=name)]) if thing in modules:
                yield f"{thing}.{name}"


def looked_into(text: str, private: set[str]) -> set[str]:
    """Return the private names of polyker that a test file uses, and what of polyker it patches."""
    if not _SUSPECT.search(text):
        return set()
    nodes = list(ast.walk(ast.parse(text)))
    names = dict(imported(nodes))
    modules = {name: module for name, module in names.items() if module.split(".")[0] == "polyker"}
    others, own = set(names) - set(modules), set(_DEFINED.findall(text))
    assigned = {n.id for a in nodes if isinstance(a, ast.Assign) for n in a.targets if isinstance(n, ast.Name)}
    assigned |= {n.name for n in nodes if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    found = {m for m in modules.values() if is_private(m.rpartition(".")[2])}
    for node in nodes:
        match node:
            case ast.Attribute(value=value, attr=name) if name in private - own:
                if not (isinstance(value, ast.Name) and value.id in {"self", "cls", *others}):
                    found.add(name)
    for name in patched(nodes, modules):
        root = name.split(".")[0].split("(")[0]
        if root in modules or root == "polyker" or root not in {*others, *assigned, "tests"}:
            found.add(name)
    return found


def test_a_test_looks_into_polyker_only_where_nothing_else_can_show_it() -> None:
    private = {name for p in PRODUCT for name in _DEFINED.findall(p.read_text()) if is_private(name)}
    found = {p.relative_to(TESTS).as_posix(): looked_into(p.read_text(), private) for p in sorted(TESTS.rglob("*.py"))}
    assert {p: sorted(names) for p, names in found.items() if names} == {
        p: sorted(names) for p, (_, names) in ALLOWED.items()
    }
    assert all(reason for reason, _ in ALLOWED.values())


def test_what_looks_into_polyker_is_seen() -> None:
    for line, name in (
        ("from polyker.poly.isl import _local", "polyker.poly.isl._local"),
        ("import polyker as pk\npk.op('s += x[i]')._dispatch", "_dispatch"),
        ("from polyker.poly import isl\nmonkeypatch.setattr(isl, 'context', None)", "isl.context"),
        ("monkeypatch.setattr('polyker.poly.isl.context', None)", "polyker.poly.isl.context"),
        ("from polyker.poly import isl\nisl.context = None", "isl.context"),
    ):
        assert looked_into(line, {"_dispatch"}) == {name}
    assert not looked_into("import os\nos._exit(0)\nself._dispatch = 1", {"_dispatch"})
