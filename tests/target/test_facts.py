"""Facts of a core: what files say, what follows from it, what was measured and saved."""

from __future__ import annotations

import logging
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import host, target
from polyker.cost import memory
from polyker.errors import CompileError
from polyker.explain import core_facts
from polyker.machine import saved
from polyker.machine.facts import check
from polyker.machine.known import facts_of, with_facts
from polyker.machine.model import Cache, Memory, PrefetchPolicy, Target
from polyker.structs import replace
from tests.machines import ALONE, INTO_FIRST, INTO_SECOND, ONE_ROW, SIDE_BY_SIDE

V4 = target("cpu:x86-64-v4")
MACHINES = Path(saved.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "add_a_processor.md"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(saved.VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("prefetch", "found"),
    [
        (PrefetchPolicy(), (1, True, False, False)),
        (PrefetchPolicy(ALONE, ALONE, ALONE, ALONE), (0, False, True, False)),
        (PrefetchPolicy(INTO_FIRST, INTO_FIRST, INTO_FIRST, INTO_FIRST), (1, True, False, True)),
        (PrefetchPolicy(INTO_SECOND, INTO_SECOND, INTO_SECOND, INTO_SECOND), (2, True, False, False)),
        (PrefetchPolicy(sums=(1.0, 1.01, 1.015)), (0, True, False, False)),  # measurements differ by as much
    ],
)
def test_the_greatest_rate_of_a_pattern_decides(prefetch: PrefetchPolicy, found: tuple[object, ...]) -> None:
    machine = replace(V4, prefetch=prefetch)
    assert found == (
        memory.sums_prefetch_into(machine),
        memory.prefetches_next_rows(machine),
        memory.follows_tiles(machine),
        memory.gathers_rows_into_first(machine),
    )


@pytest.mark.parametrize(("facts", "rows", "one"), [(Memory(), 1, False), (ONE_ROW, 1, True), (SIDE_BY_SIDE, 8, False)])
def test_rows_are_read_at_once_where_they_come_sooner(facts: Memory, rows: int, one: bool) -> None:
    machine = replace(V4, memory=facts)
    assert (memory.rows_at_once(machine), memory.is_one_row_faster(machine)) == (rows, one)


def test_bytes_cost_what_reading_them_takes_beyond_the_first_cache() -> None:
    caches = Cache(32 << 10, read=100.0), Cache(1 << 20, read=50.0), Cache(32 << 20, read=10.0)
    machine = replace(V4, caches=caches, memory=Memory(read=4.0))
    sizes = 1 << 10, 1 << 19, 1 << 24, 1 << 30
    assert [memory.passed(machine, s) for s in sizes] == pytest.approx([0, 0.01, 0.09, 0.24])
    assert [memory.beyond(machine, s) for s in sizes] == pytest.approx([0, 1 / 128, 1 / 48, 1 / 20])
    slow = replace(machine, caches=(Cache(32 << 10, read=10.0), *caches[1:]))  # a first cache that limits all reads
    assert [memory.passed(slow, s) for s in sizes] == pytest.approx([0, 0, 0, 0.15])


def test_a_file_of_cores_changes_what_it_says_and_nothing_else() -> None:
    found = with_facts(V4, facts_of("znver4"))
    assert found.double_pumped and found.has_separate_adders and not memory.prefetches_next_rows(found)
    assert replace(found, native_bytes=0, add_pipes=0, memory=V4.memory, prefetch=V4.prefetch) == V4
    assert with_facts(V4, facts_of("no such core")) == V4
    known = with_facts(V4, {"caches": [{"read": 50.0}, {"read": 20.0}]})
    assert [c.read for c in with_facts(known, {"caches": [{}, {"read": 30.0}]}).caches] == [50.0, 30.0, None]


def test_a_processor_is_one_file(tmp_path: Path) -> None:
    """That of the documentation's page."""
    file = tmp_path / "fictitious.toml"
    file.write_text(PAGE.read_text().partition("```toml\n")[2].partition("```")[0])
    code = (
        "from polyker.codegen.llvm.jit.detect import host; from polyker.cost.memory import *; h = host()\n"
        "print(h.native_bytes, h.memory.read, rows_at_once(h), sums_prefetch_into(h))\n"
        "import polyker as pk; print(pk.op('s += X[i]').compile(X=pk.f32[100_000_000]).source('schedule'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env={"POLYKER_MACHINE": str(file)}, check=True, capture_output=True, text=True
    )
    facts, _, schedule = ran.stdout.partition("\n")
    assert facts.split() == ["32", "6.0", "8", "1"]
    assert "read side by side" in schedule


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("vector =", "Invalid value"),
        ("memory = 3", "`memory` is no table"),
        ("[caches]\nread = 3.0", "`caches` is [[caches]], one a level"),
        ("[vector]\nbytes = 32", "`vector.bytes` is no fact of a core where no `triple` is; known are native_bytes"),
        ('[vector]\nmultiply_add = "fused"', "`vector.multiply_add` is no fact of a core where no `triple` is"),
        ("[memory]\nraed = 3.0", "`memory.raed` is no fact of a core; known are read, side_by_side"),
        ("[memory]\nread = -3.0", "`memory.read = -3.0` is not a positive number"),
        ("[memory]\nread = inf", "`memory.read = inf` is not a positive number"),
        ("[memory]\nrows = 2.5", "`memory.rows = 2.5` is not a whole number from 0 on"),
        ("[memroy]\nread = 3.0", "`memroy` is no table of facts; known are vector, ports"),
        ("[prefetch]\nsums = [1, 2, 3, 4]", "is not a list of up to 3 positive numbers"),
        ("[prefetch]\nsecond_fills_first = 1", "is not true or false"),
    ],
)
def test_a_named_file_has_to_be_sound(
    text: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.toml"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv(saved.VARIABLE, str(file))
    with pytest.raises(CompileError) as caught:
        saved.saved_facts("znver4")
    assert "mine.toml" in str(caught.value) and why in str(caught.value)


@pytest.mark.parametrize(
    "file", sorted(p for p in MACHINES.glob("*.toml") if "arch =" not in p.read_text()), ids=lambda p: p.stem
)
def test_the_files_of_polyker_say_facts(file: Path) -> None:
    check(tomllib.loads(file.read_text()))


def test_no_two_files_name_one_core() -> None:
    cores = [core for file in MACHINES.glob("*.toml") for core in tomllib.loads(file.read_text()).get("cores", ())]
    assert len(cores) == len(set(cores)) > 5
    assert all(map(facts_of, cores))


def test_saved_facts_are_read_by_the_core_that_they_are_of(caplog: pytest.LogCaptureFixture) -> None:
    facts = {"cores": ["mine"], "memory": {"read": 3.0}, "caches": [{"read": 50.0}]}
    assert saved.saved_facts("mine") == {}
    file = saved.save(facts)
    assert saved.saved_facts("mine") == facts
    with caplog.at_level(logging.WARNING, "polyker"):
        assert saved.saved_facts("another") == {}
    assert "it is of ['mine'], this is another" in caplog.text
    assert list(file.parent.iterdir()) == [file]
    found = with_facts(V4, saved.saved_facts("mine"))
    assert [c.read for c in found.caches] == [50.0, None, None] and found.memory.read == 3.0


def test_a_damaged_file_of_the_users_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    saved.save({"cores": ["mine"]}).write_text("[memory]\nread = no")
    with caplog.at_level(logging.WARNING, "polyker"):
        assert saved.saved_facts("mine") == {}
    assert "is left alone" in caplog.text


def test_what_is_no_fact_is_not_saved() -> None:
    with pytest.raises(ValueError, match="known are"):
        saved.save({"cores": ["mine"], "memory": {"speed": 1.0}})
    assert not saved.path().exists()


def test_a_core_is_measured_as_its_files_describe_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With small arrays: the rates are of caches then, the tables are as they have to be."""
    monkeypatch.setattr(core_facts, "ROUNDS", 2)
    small = replace(host(), caches=tuple(replace(c, size=1 << 17 + n) for n, c in enumerate(host().caches)))
    monkeypatch.setattr(core_facts, "host", lambda: small)

    def compiled(text: str, arguments: Mapping[str, Any], machine: Target) -> Any:
        return pk.op(text).compile(**arguments, target=machine, threads=1)

    found = core_facts.as_file(dict(core_facts.core_facts(compiled)), "mine")
    check(found)
    assert found["vector"]["native_bytes"] in (16, 32, 64)
    assert len(found["caches"]) == len(small.caches) and all(1 < c["read"] < 1000 for c in found["caches"])
    assert {len(found["prefetch"][p.fact]) for p in core_facts.PATTERNS} <= {2, 3}
    assert with_facts(V4, found).memory.read == found["memory"]["read"]
    assert 1e8 < core_facts.clock() < 1e10


def test_the_doctor_saves_what_it_measures_only_when_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from click.testing import CliRunner

    from polyker.cli.command import commands
    from polyker.explain import rates

    monkeypatch.setattr(rates, "path", lambda: saved.path().with_name("rates.json"))
    monkeypatch.setattr(rates, "measured", lambda *, store: rates.Rates("mine", {"f32": 1e9}, {"L1": 1e9}))
    monkeypatch.setattr(core_facts, "core_facts", lambda _: iter([("caches", {"read": [9.0]}), ("ports", {"add": 2})]))
    assert "ports         add 2" in CliRunner().invoke(commands, ["doctor", "--measure"]).output
    assert not saved.path().exists()
    assert "saved as" in CliRunner().invoke(commands, ["doctor", "--measure", "--save"]).output
    assert saved.saved_facts(host().cpu)["ports"] == {"add": 2}
    alone = CliRunner().invoke(commands, ["doctor", "--save"])
    assert alone.exit_code == 2 and "give both" in alone.output


def test_how_multiply_adds_round_is_one_of_three_ways() -> None:
    facts = {"triple": "x86_64-unknown-linux-gnu", "vector": {"multiply_add": "twice"}}
    with pytest.raises(ValueError, match="'twice'` is not one of none, fused, either"):
        check(facts)
