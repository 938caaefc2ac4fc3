"""Which tests are quick: those of what comes before machine code, that take well under a second each and start no process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Folders and files.
QUICK = (
    "codegen/test_interp.py",
    "codegen/test_lower_expr.py",
    "codegen/test_verify.py",
    "einsum_frontend",
    "errors",
    "ir",
    "pipeline",
    "poly",
    "reference",
    "rewrite/test_dots.py",
    "rewrite/test_meaning.py",
    "rewrite/test_unfold.py",
    "rewrite/test_value_range.py",
    "schedule/test_fixed_loops.py",
    "schedule/test_golden.py",
    "schedule/test_legality.py",
    "schedule/test_legality_launches.py",
    "schedule/test_operation_cost.py",
    "schedule/test_order.py",
    "schedule/test_pieces.py",
    "schedule/test_steps.py",
    "schedule/test_tile_reads.py",
    "schedule/test_traffic.py",
)
# Of these the files and tests that make machine code, start processes, or take long.
SLOW = (
    "einsum_frontend/test_documents.py",
    "einsum_frontend/test_limits.py::test_the_parser_generator_is_loaded_at_the_first_text_and_not_before",
    "einsum_frontend/test_repairs.py::test_functions_of_other_names_compute_the_same",
    "einsum_frontend/test_repairs.py::test_what_was_meant_computes_what_it_should",
    "einsum_frontend/test_roundtrip.py",
    "einsum_frontend/test_truth_values.py::test_they_are_what_they_are_in_numpy",
    "errors/test_calls.py::test_each_code_is_raised_with_its_class_and_values",
    "pipeline/test_parts.py",
    "pipeline/test_passes.py",
    "pipeline/test_verify.py::test_a_pass_that_breaks_a_kernel_is_named",
    "rewrite/test_unfold.py::test_short_convolutions_give_numpys_values",
    "schedule/test_legality_launches.py::test_accumulators_of_one_thread_stand_beside_launches",
    "schedule/test_operation_cost.py::test_a_tile_has_one_vector_where_its_factors_come_from_memory_for_nothing",
    "schedule/test_operation_cost.py::test_what_transposes_would_take_again_and_again_is_packed",
    "schedule/test_steps.py::test_a_legal_step_leaves_the_results_unchanged",
)


@cache
def may_be_quick(path: Path) -> bool:
    """Whether a file or folder has quick tests, or may have some further down."""
    if not path.is_relative_to(HERE):
        return False
    place = path.relative_to(HERE)
    if place.as_posix() in SLOW:
        return False
    return any(place.is_relative_to(q) or Path(q).is_relative_to(place) for q in QUICK)


def is_quick(item: pytest.Item) -> bool:
    """Whether a test is quick."""
    if not may_be_quick(item.path):
        return False
    name = getattr(item, "originalname", None) or item.name
    return f"{item.path.relative_to(HERE).as_posix()}::{name}" not in SLOW


def refuse_machine_code(patch: pytest.MonkeyPatch) -> None:
    """Let a test fail that makes machine code."""
    from polyker.codegen.llvm.jit import binding

    patch.setattr(binding, "parse", lambda _: pytest.fail("a quick test makes no machine code: see tests/quick.py"))
