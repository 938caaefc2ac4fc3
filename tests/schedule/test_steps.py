"""The steps: what the loops look like afterwards, what they compute, and where a step is refused."""

from __future__ import annotations

import pytest

from polyker.errors import LegalityError, ScheduleError
from polyker.schedule.steps.basic import interchange, tile, unroll, vectorise
from polyker.schedule.tree.nodes import ScheduleTree
from tests.schedule.programs import PROGRAMS
from tests.schedule.support import Case, assert_same
from tests.schedule.tree_steps import TreeStep, apply, distribute, fuse, replay, step

LEGAL: dict[str, tuple[str, list[TreeStep]]] = {
    "tiles": ("matmul", [TreeStep("tile", ("S0", (("i0", 2), ("i2", 4))))]),
    "the terms outermost": ("matmul", [TreeStep("interchange", ("S0", ("i2", "i0", "i1")))]),
    "register tile": (
        "matmul",
        [
            TreeStep("tile", ("S0", (("i0", 2), ("i1", 4)))),
            TreeStep("interchange", ("S0", ("i2", "i0.point"))),
            TreeStep("unroll", ("S0", "i0.point", 2)),
            TreeStep("vectorise", ("S0", "i1.point", 4)),
        ],
    ),
    "terms in lanes": ("dot", [TreeStep("vectorise", ("S0", "i0", 4))]),
    "fusion": ("chain", [TreeStep("fuse", ("S0", "S1", 2)), TreeStep("vectorise", ("S0", "i1", 4))]),
    "fusion and a buffer": ("chain", [TreeStep("fuse", ("S0", "S1")), TreeStep("promote", ("T", "S1", "i0"))]),
    "a buffer in a vector loop": (
        "chain",
        [
            TreeStep("fuse", ("S0", "S1", 2)),
            TreeStep("vectorise", ("S0", "i1", 4)),
            TreeStep("promote", ("T", "S1", "i1.point")),
        ],
    ),
    "a buffer in a tile": (
        "chain",
        [
            TreeStep("fuse", ("S0", "S1", 2)),
            TreeStep("tile", ("S0", (("i0", 2), ("i1", 4)))),
            TreeStep("promote", ("T", "S0", "i1.tile")),
            TreeStep("distribute", ("S0", "i1.point")),
            TreeStep("unroll", ("S1", "i1.point", 4)),
        ],
    ),
    "rows of a softmax": (
        "normalise",
        [
            TreeStep("fuse", ("S1", "S2")),
            TreeStep("fuse", ("S1", "S0")),
            TreeStep("promote", ("max", "S1", "i0")),
            TreeStep("unroll", ("S2", "i2", 3)),
        ],
    ),
    "lanes beside a scan": (
        "scan",
        [TreeStep("interchange", ("S1", ("i2", "i1"))), TreeStep("unroll", ("S1", "i1", 2))],
    ),
    "stencil in tiles": (
        "heat",
        [TreeStep("tile", ("S0", (("i1", 2), ("i2", 2)))), TreeStep("vectorise", ("S1", "i4", 4))],
    ),
    "triangle in tiles": (
        "triangle",
        [TreeStep("tile", ("S0", (("i0", 4), ("i1", 4)))), TreeStep("vectorise", ("S0", "i1.point", 4))],
    ),
    "a buffer of what is read padded": (
        "padded rows",
        [
            TreeStep("fuse", ("S0", "S1")),
            TreeStep("promote", ("T", "S1", "i0")),
            TreeStep("vectorise", ("S1", "i3", 4)),
        ],
    ),
    "a buffer of what is a subscript": (
        "indirect",
        [TreeStep("fuse", ("S0", "S1")), TreeStep("promote", ("P", "S1", "i0"))],
    ),
    "a buffer for the whole program": ("pipeline", [TreeStep("promote", ("U",)), TreeStep("promote", ("V",))]),
    "a buffer in each time step": ("overwritten", [TreeStep("promote", ("B", "S1", "i0"))]),
    "unrolled scatter": ("histogram", [TreeStep("unroll", ("S0", "i0", 4))]),
}


def steps_of(name: str) -> tuple[Case, list[TreeStep]]:
    program, steps = LEGAL[name]
    return PROGRAMS[program], steps


@pytest.mark.parametrize("name", LEGAL)
@pytest.mark.parametrize("native", [False, True], ids=["interpreted", "machine code"])
def test_a_legal_step_leaves_the_results_unchanged(name: str, native: bool) -> None:
    found, steps = steps_of(name)
    assert_same(found, found.scop, replay(found.scop, found.start, steps), native=native)


def test_steps_are_data() -> None:
    first = TreeStep("tile", ("S0", (("i0", 8), ("i1", 16))))
    assert first == TreeStep("tile", ("S0", (("i0", 8), ("i1", 16))))
    assert str(first) == "tile('S0', (('i0', 8), ('i1', 16)))"
    c = PROGRAMS["matmul"]
    assert step(c.scop, c.start, first) == tile(c.start, "S0", (("i0", 8), ("i1", 16)))


def test_an_illegal_step_raises_and_leaves_the_schedule_as_it_was() -> None:
    c = PROGRAMS["chain"]
    before = fuse(c.start, "S0", "S1", 2)
    text = str(before)
    illegal = PROGRAMS["scan"]
    with pytest.raises(LegalityError):
        apply(illegal.scop, illegal.start, TreeStep("vectorise", ("S1", "i1", 4)))
    assert str(before) == text
    with pytest.raises(LegalityError):
        apply(PROGRAMS["pipeline"].scop, PROGRAMS["pipeline"].start, TreeStep("fuse", ("S0", "S1")))


def test_distribution_is_the_inverse_of_fusion() -> None:
    c = PROGRAMS["chain"]
    fused = fuse(c.start, "S0", "S1", 2)
    back = distribute(distribute(fused, "S0", "i1"), "S0", "i0")
    # The loops keep the first statement's labels.
    assert str(back) == str(c.start).replace("for i2", "for i0").replace("for i3", "for i1")


def test_three_neighbours_become_one_loop() -> None:
    c = PROGRAMS["pipeline"]
    fused = fuse(fuse(c.start, "S0", "S1"), "S1", "S2")
    assert len(fused.tree.members) == 1  # type: ignore[union-attr]
    assert len(fused.tree.child.children) == 3  # type: ignore[union-attr]


def test_tiling_splits_the_time_of_every_statement_in_the_loop() -> None:
    c = PROGRAMS["chain"]
    tiled = tile(fuse(c.start, "S0", "S1"), "S1", (("i0", 3),))
    assert str(tiled).splitlines()[:2] == [
        "for i0.tile  {S0: floor(i0/3), S1: floor(i2/3)}",
        "  for i0.point  {S0: (i0 mod 3), S1: (i2 mod 3)}",
    ]


def test_a_loop_that_is_a_tile_already_is_marked_in_its_place() -> None:
    c = PROGRAMS["matmul"]
    tiled = tile(c.start, "S0", (("i1", 4),))
    assert "vector(4) i1.point" in str(vectorise(tiled, "S0", "i1.point", 4))
    assert "vector(2) i1.point.point" in str(vectorise(tiled, "S0", "i1.point", 2))


def _start(program: str) -> ScheduleTree:
    return PROGRAMS[program].start


REFUSED: dict[str, tuple[str, str, list[TreeStep]]] = {
    "no such statement": ("PK520", "matmul", [TreeStep("tile", ("S7", (("i0", 2),)))]),
    "no such loop": ("PK521", "matmul", [TreeStep("unroll", ("S0", "i9", 2))]),
    "no neighbour to fuse": ("PK520", "matmul", [TreeStep("fuse", ("S0", "S7"))]),
    "one label twice": (
        "PK522",
        "chain",
        [
            TreeStep("fuse", ("S0", "S1")),
            TreeStep("distribute", ("S0", "i0")),
            TreeStep("interchange", ("S1", ("i3", "i0"))),
            TreeStep("fuse", ("S0", "S1")),
            TreeStep("tile", ("S1", (("i0", 2),))),
        ],
    ),
    "loops apart": (
        "PK523",
        "chain",
        [TreeStep("fuse", ("S0", "S1")), TreeStep("tile", ("S0", (("i0", 2), ("i1", 2))))],
    ),
    "size zero": ("PK524", "matmul", [TreeStep("tile", ("S0", (("i0", 0),)))]),
    "a size that is no integer": ("PK524", "matmul", [TreeStep("vectorise", ("S0", "i0", 2.5))]),
    "tiling a vector": (
        "PK525",
        "matmul",
        [TreeStep("vectorise", ("S0", "i0", 4)), TreeStep("tile", ("S0", (("i0.point", 2),)))],
    ),
    "an order of one loop": ("PK526", "matmul", [TreeStep("interchange", ("S0", ("i0",)))]),
    "an order with a loop twice": ("PK526", "matmul", [TreeStep("interchange", ("S0", ("i0", "i0")))]),
    "an order that names no loops": ("PK526", "matmul", [TreeStep("interchange", ("S0", (("i0",), 3)))]),
    "an order that is no sequence": ("PK526", "matmul", [TreeStep("interchange", ("S0", 3))]),
    "fusing what is not adjacent": ("PK527", "pipeline", [TreeStep("fuse", ("S0", "S2"))]),
    "fusing the wrong way round": ("PK527", "chain", [TreeStep("fuse", ("S1", "S0"))]),
    "fusing deeper than the loops": ("PK528", "normalise", [TreeStep("fuse", ("S1", "S2", 2))]),
    "fusing a vector with a loop": (
        "PK528",
        "chain",
        [TreeStep("vectorise", ("S0", "i1", 4)), TreeStep("fuse", ("S0", "S1", 3))],
    ),
    "nothing to distribute": ("PK529", "matmul", [TreeStep("distribute", ("S0", "i2"))]),
    "a vector in a vector": (
        "PK530",
        "matmul",
        [TreeStep("vectorise", ("S0", "i0", 2)), TreeStep("vectorise", ("S0", "i1", 2))],
    ),
    "too many copies": (
        "PK531",
        "matmul",
        [TreeStep("unroll", ("S0", "i0", 50)), TreeStep("unroll", ("S0", "i1", 50))],
    ),
    "an input": ("PK532", "chain", [TreeStep("promote", ("X", "S0", "i0"))]),
    "an output": ("PK532", "chain", [TreeStep("promote", ("O", "S1", "i2"))]),
    "no such tensor": ("PK533", "chain", [TreeStep("promote", ("Q", "S0", "i0"))]),
    "twice": (
        "PK536",
        "chain",
        [
            TreeStep("fuse", ("S0", "S1")),
            TreeStep("promote", ("T", "S0", "i0")),
            TreeStep("promote", ("t1", "S0", "i1")),
        ],
    ),
    "a tensor that is not there": (
        "PK537",
        "pipeline",
        [TreeStep("promote", ("V", "S0", "i0"))],
    ),
    "no such step": ("PK538", "chain", [TreeStep("parallelise", ("S0", "i0"))]),
    "wrong arguments": ("PK538", "chain", [TreeStep("tile", ("S0",))]),
    "sizes that are no pairs": ("PK538", "chain", [TreeStep("tile", ("S0", ("i0", 2)))]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_step_that_has_no_place_is_refused_with_its_code(name: str) -> None:
    code, program, steps = REFUSED[name]
    c = PROGRAMS[program]
    schedule = c.start
    for s in steps[:-1]:
        schedule = step(c.scop, schedule, s)
    with pytest.raises(ScheduleError) as caught:
        step(c.scop, schedule, steps[-1])
    assert caught.value.code == code, caught.value
    assert not isinstance(caught.value, LegalityError)


def test_a_buffer_needs_a_constant_bound_and_a_reasonable_size() -> None:
    from polyker.ir.dtypes import parse_type
    from polyker.poly.binding.bind import bind
    from polyker.poly.scop import build_scop
    from polyker.schedule.nests.text_order import default_schedule

    chain = PROGRAMS["chain"].program
    for shape, code in (("M,N", "PK534"), ("4,9000", "PK535")):
        flat = bind(chain, {"X": parse_type(f"f64[{shape}]")}, {})
        scop, schedule = build_scop(flat), fuse(default_schedule(flat), "S0", "S1")
        with pytest.raises(ScheduleError) as caught:
            step(scop, schedule, TreeStep("promote", ("T", "S0", "i0")))
        assert caught.value.code == code


def test_an_interchange_moves_only_the_loops_that_it_names() -> None:
    changed = interchange(_start("matmul"), "S0", ("i2", "i0"))
    assert [line.split()[1] for line in str(changed).splitlines()[4:]] == ["i2", "i1", "i0"]


def test_unrolling_counts_the_copies_of_every_statement_in_the_nest() -> None:
    fused = fuse(_start("chain"), "S0", "S1", 2)
    unroll(fused, "S0", "i1", 1000)
    with pytest.raises(ScheduleError, match="2002 copies"):
        unroll(fused, "S0", "i1", 1001)
