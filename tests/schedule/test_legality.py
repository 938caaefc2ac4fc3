"""What the proof of legality refuses, what it says, and what it lets pass."""

from __future__ import annotations

import re

import pytest

from polyker.errors import LegalityError
from polyker.ir.dtypes import i64, parse_type
from polyker.ir.expr import IndexExpr
from polyker.ir.quasi_affine import add, floordiv, lit, mod, scale
from polyker.poly.binding.bind import bind
from polyker.poly.scop import Scop, build_scop
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.rewrite.normalise.start_reductions import start_reductions
from polyker.schedule.legality.prove import prove
from polyker.schedule.nests.text_order import default_schedule
from polyker.schedule.tree.nodes import Band, Filter, Leaf, Member, MemberKind, Promotion, ScheduleTree, Scope, Sequence
from polyker.structs import replace
from tests.schedule.programs import PROGRAMS
from tests.schedule.support import assert_same, case
from tests.schedule.tree_steps import TreeStep, is_legal, step


def refusal(scop: Scop, schedule: ScheduleTree) -> LegalityError:
    with pytest.raises(LegalityError) as caught:
        prove(scop, schedule)
    return caught.value


def stepped(name: str, *steps: TreeStep) -> tuple[Scop, ScheduleTree]:
    """Return a program and a schedule of it after steps that nobody has proven."""
    found = PROGRAMS[name]
    schedule = found.start
    for s in steps:
        schedule = step(found.scop, schedule, s)
    return found.scop, schedule


def loop(times: dict[str, object], label: str, kind: MemberKind = MemberKind.SERIAL, extent: int = 0) -> Member:
    shown = tuple((s, IndexExpr(t, i64) if isinstance(t, str) else t) for s, t in times.items())
    return Member(shown, label, kind, extent)  # type: ignore[arg-type]


def test_a_broken_dependence_names_kind_tensor_and_two_instances_in_the_users_words() -> None:
    found = PROGRAMS["scan"]
    tree = found.start.tree
    assert isinstance(tree, Sequence)
    backwards = replace(
        tree.children[1].child, members=(loop({"S1": scale(-1, IndexExpr("i1", i64))}, "t"), loop({"S1": "i2"}, "b"))
    )
    error = refusal(found.scop, ScheduleTree(Sequence((tree.children[0], Filter(("S1",), backwards)))))
    assert error.code == "PK501"
    match = re.search(
        r"breaks a read-after-write dependence through S: S1\(t=(\d+), b=(\d+)\) has to run before S1\(t=(\d+), b=(\d+)\)",
        error.message,
    )
    assert match
    t, b, later, same = map(int, match.groups())
    assert (later, same) == (t + 1, b)


def test_write_after_read_and_write_after_write_are_kept_too() -> None:
    found = PROGRAMS["backwards"]
    error = refusal(found.scop, ScheduleTree(Band((loop({"S0": scale(-1, IndexExpr("i0", i64))}, "i"),), Leaf())))
    assert "write-after-read" in error.message
    twice = case("f(A: f64[N]) -> A:\n    A[i] = 1\n    A[i] = 2", A="f64[5]")
    tree = twice.start.tree
    assert isinstance(tree, Sequence)
    assert "write-after-write" in refusal(twice.scop, ScheduleTree(Sequence(tree.children[::-1]))).message


def test_instances_at_one_time_have_no_order() -> None:
    found = PROGRAMS["chain"]
    both = Band((loop({"S0": "i0", "S1": "i2"}, "i"), loop({"S0": "i1", "S1": "i3"}, "j")), Leaf())
    assert refusal(found.scop, ScheduleTree(both)).code == "PK501"
    collapsed = Band((loop({"S1": lit(0)}, "t"), loop({"S1": "i2"}, "b")), Leaf())
    scan = PROGRAMS["scan"]
    assert isinstance(scan.start.tree, Sequence)
    tree = Sequence((scan.start.tree.children[0], Filter(("S1",), collapsed)))
    assert refusal(scan.scop, ScheduleTree(tree)).code == "PK501"


def test_a_symbolic_size_is_given_with_the_instances() -> None:
    program = PROGRAMS["scan"].program
    scop = build_scop(flat := bind(program, {"X": parse_type("f64[M,N]")}, {"N": "N"}))
    schedule = default_schedule(flat)
    prove(scop, schedule)
    error = refusal(scop, step(scop, schedule, TreeStep("vectorise", ("S1", "i1", 8))))
    assert error.code == "PK502"
    assert re.search(r"S1\(t=\d+, b=\d+\) and S1\(t=\d+, b=\d+\) \(with (M|N) = \d+, (M|N) = \d+\)", error.message)


def test_a_vector_loop_may_not_carry_a_dependence_in_either_direction() -> None:
    error = refusal(*stepped("backwards", TreeStep("vectorise", ("S0", "i0", 4))))
    assert error.code == "PK502"
    assert "vector loop `i0.point`" in error.message
    assert error.hint is not None


def test_lanes_of_two_statements_may_not_depend_on_each_other_even_forwards() -> None:
    found = case("T[i] = X[i];  O[i] = T[i-1; pad=0]  for i in 0:8", X="f64[8]")
    fused = step(found.scop, found.start, TreeStep("fuse", ("S0", "S1")))
    prove(found.scop, fused)
    assert refusal(found.scop, step(found.scop, fused, TreeStep("vectorise", ("S0", "i0", 4)))).code == "PK502"


def test_a_gathered_target_may_be_one_element_in_two_lanes() -> None:
    error = refusal(*stepped("histogram", TreeStep("vectorise", ("S0", "i0", 4))))
    assert error.code == "PK502"
    assert "through H" in error.message


@pytest.mark.parametrize(("elements", "fits"), [(8, True), (4, False)])
def test_a_buffer_has_a_place_for_each_remainder_that_subscripts_it(elements: int, fits: bool) -> None:
    found = case("T[(i+3)%8] = X[i];  O[j] = T[j%8]  for j in 0:8", X="f64[8]")
    schedule = ScheduleTree(Scope((Promotion("t1", (elements,)),), found.start.tree))
    assert found.flat.tensor("t1").label == "T"
    if fits:
        assert_same(found, found.scop, schedule)
    else:
        assert refusal(found.scop, schedule).code == "PK503"


def test_lanes_that_combine_into_one_element_are_folded() -> None:
    found = PROGRAMS["dot"]
    prove(*stepped("dot", TreeStep("vectorise", ("S0", "i0", 4))))
    assert_same(found, *stepped("dot", TreeStep("vectorise", ("S0", "i0", 4))))


def test_lanes_that_share_a_element_here_and_there_are_refused() -> None:
    found = case("s[i//2] += x[i] for i in 0:8", x="f64[8]")
    lanes = step(found.scop, found.start, TreeStep("vectorise", ("S0", "i0", 4)))
    assert refusal(found.scop, lanes).code == "PK502"
    # Lanes of one element, but an element whose subscript has the lane in it: the code would not see that it is one.
    pairs = step(found.scop, found.start, TreeStep("vectorise", ("S0", "i0", 2)))
    assert refusal(found.scop, pairs).code == "PK502"
    skewed = case("s[i+j] += x[i,j]", x="f64[4,4]")
    assert refusal(skewed.scop, step(skewed.scop, skewed.start, TreeStep("vectorise", ("S0", "i0", 4)))).code == "PK502"


@pytest.mark.parametrize("kind", [MemberKind.UNROLL, MemberKind.VECTOR])
def test_a_loop_may_have_no_more_iterations_than_it_says(kind: MemberKind) -> None:
    found = PROGRAMS["transpose"]  # j in 0:7, i in 0:5

    def tree(extent: int) -> ScheduleTree:
        return ScheduleTree(Band((loop({"S0": "i0"}, "j"), loop({"S0": "i1"}, "i", kind, extent)), Leaf()))

    prove(found.scop, tree(5))
    assert_same(found, found.scop, tree(5))
    error = refusal(found.scop, tree(4))
    assert error.code == "PK505"
    assert "`i` has 5 iterations in one run, more than the 4" in error.message
    assert refusal(found.scop, tree(0)).code == "PK505"


def test_the_iterations_of_all_statements_count_together() -> None:
    found = case("T[i] = X[i];  O[i] = Y[i]", X="f64[4]", Y="f64[4]")

    def tree(extent: int) -> ScheduleTree:
        times = {"S0": "i0", "S1": add(IndexExpr("i1", i64), lit(2))}
        children = Sequence((Filter(("S0",), Leaf()), Filter(("S1",), Leaf())))
        return ScheduleTree(Band((loop(times, "i", MemberKind.UNROLL, extent),), children))

    prove(found.scop, tree(6))
    assert refusal(found.scop, tree(5)).code == "PK505"


def test_the_extent_of_an_unbounded_loop_is_refused() -> None:
    program = PROGRAMS["transpose"].program
    scop = build_scop(bind(program, {"X": parse_type("f64[M,N]")}, {}))
    lanes = ScheduleTree(Band((loop({"S0": "i0"}, "j"), loop({"S0": "i1"}, "i", MemberKind.VECTOR, 8)), Leaf()))
    assert "unboundedly many" in refusal(scop, lanes).message


def test_an_extent_that_depends_on_an_outer_loop_is_bounded_by_its_largest() -> None:
    found = PROGRAMS["triangle"]
    tree = found.start.tree
    assert isinstance(tree, Sequence)
    inner = Band(
        (loop({"S0": "i0"}, "i"), loop({"S0": "i1"}, "j", MemberKind.VECTOR, 6), loop({"S0": "i2"}, "k")), Leaf()
    )
    schedule = ScheduleTree(Sequence((tree.children[0], Filter(("S0",), inner))))
    prove(found.scop, schedule)
    assert_same(found, found.scop, schedule)


def test_vector_loops_do_not_stand_inside_each_other() -> None:
    found = PROGRAMS["transpose"]
    tree = Band((loop({"S0": "i0"}, "j", MemberKind.VECTOR, 8), loop({"S0": "i1"}, "i", MemberKind.VECTOR, 8)), Leaf())
    error = refusal(found.scop, ScheduleTree(tree))
    assert error.code == "PK506"
    assert "`i`" in error.message


def _children(name: str) -> tuple[Scop, tuple[Filter, ...]]:
    found = PROGRAMS[name]
    assert isinstance(found.start.tree, Sequence)
    return found.scop, found.start.tree.children


def test_every_statement_stands_in_the_tree_once() -> None:
    scop, children = _children("chain")
    missing = refusal(scop, ScheduleTree(Sequence(children[:1])))
    assert missing.code == "PK504"
    assert re.search(r"S1\(i=\d+, j=\d+\) exactly once: no branch holds it", missing.message)
    assert "two branches hold it" in refusal(scop, ScheduleTree(Sequence((*children, children[1])))).message
    assert refusal(scop, ScheduleTree(children[0].child)).code == "PK504"
    inside = Sequence((Filter(("S0",), children[1].child), children[1]))
    assert refusal(scop, ScheduleTree(inside)).code == "PK504"
    stranger = Sequence((Filter(("S0",), Sequence((Filter(("S0", "S1"), Leaf()),))), children[1]))
    assert refusal(scop, ScheduleTree(stranger)).code == "PK504"


def test_parts_of_a_statement_have_to_cover_it_and_not_overlap() -> None:
    scop, children = _children("chain")

    def parts(first: str, second: str) -> ScheduleTree:
        double_pumped = [
            Filter(("S0",), children[0].child, (("S0", f"{{ S0[i0, i1] : {half} }}"),)) for half in (first, second)
        ]
        return ScheduleTree(Sequence((*double_pumped, children[1])))

    prove(scop, parts("i0 <= 2", "i0 > 2"))
    assert re.search(r"S0\(i=3, j=\d\) exactly once: no branch", refusal(scop, parts("i0 <= 2", "i0 > 3")).message)
    assert re.search(r"S0\(i=2, j=\d\) exactly once: two", refusal(scop, parts("i0 <= 2", "i0 >= 2")).message)


def _buffered(
    name: str, tensor: str, modulo: tuple[int, ...], layout: tuple[tuple[int, int, int], ...] = ()
) -> tuple[Scop, ScheduleTree]:
    """Return a program, fused at its outer loop, with a tensor in a buffer below that loop."""
    scop, schedule = stepped(name, TreeStep("fuse", ("S0", "S1")))
    assert isinstance(schedule.tree, Band)
    held = Scope((Promotion(tensor, modulo, layout),), schedule.tree.child)
    return scop, ScheduleTree(replace(schedule.tree, child=held))


def test_elements_used_in_one_run_need_places_of_their_own() -> None:
    prove(*_buffered("chain", "t1", (1, 9)))
    error = refusal(*_buffered("chain", "t1", (1, 8)))
    assert error.code == "PK503"
    assert re.search(r"T cannot .* S\d\(i=\d, j=0\) and S\d\(i=\d, j=8\)|j=8\) and S\d\(i=\d, j=0\)", error.message)
    assert "share a place" in error.message


def test_a_value_has_to_be_read_in_the_run_that_wrote_it() -> None:
    found = case("T[i] = X[i];  O[i] = T[i-1; pad=0]  for i in 0:8", X="f64[8]")
    fused = step(found.scop, found.start, TreeStep("fuse", ("S0", "S1")))
    assert isinstance(fused.tree, Band)
    error = refusal(
        found.scop, ScheduleTree(replace(fused.tree, child=Scope((Promotion("t1", (2,)),), fused.tree.child)))
    )
    assert error.code == "PK503"
    match = re.search(r"S0\(i=(\d)\) and S1\(i=(\d)\)", error.message)
    assert match
    assert int(match[2]) == int(match[1]) + 1


def test_only_the_last_writer_of_a_value_counts() -> None:
    found = PROGRAMS["overwritten"]
    tree = found.start.tree
    assert isinstance(tree, Band)
    schedule = ScheduleTree(replace(tree, child=Scope((Promotion("t1", (7,)),), tree.child)))
    prove(found.scop, schedule)
    assert_same(found, found.scop, schedule)


def test_a_sum_stays_in_the_buffer_that_it_was_started_in() -> None:
    found = PROGRAMS["normalise"]
    scop, schedule = found.scop, step(found.scop, found.start, TreeStep("fuse", ("S1", "S2")))
    tree = schedule.tree
    assert isinstance(tree, Sequence)
    assert isinstance(tree.children[0].child, Band)
    inner = Scope((Promotion("t2", (1,)),), tree.children[0].child.child)
    alone = Sequence((replace(tree.children[0], child=replace(tree.children[0].child, child=inner)), tree.children[1]))
    assert refusal(scop, ScheduleTree(alone)).code == "PK507"


UNFIT = {
    "an output": ("chain", "t2", (1, 9), "is an output"),
    "an input": ("chain", "t0", (1, 9), "is an input"),
    "a tensor that is not there": ("chain", "t77", (1, 9), "no such tensor"),
    "too few dimensions": ("chain", "t1", (9,), "no shape of 2 dimensions"),
    "an extent of zero": ("chain", "t1", (0, 9), "no shape of 2 dimensions"),
    "a buffer that is larger than caches": ("chain", "t1", (1 << 15, 1 << 14), "elements"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_buffer_has_to_fit_its_tensor(name: str) -> None:
    program, tensor, modulo, words = UNFIT[name]
    error = refusal(*_buffered(program, tensor, modulo))
    assert error.code == "PK507"
    assert words in error.message


UNSOUND = [((0, 1, 1), (1, 1, 8)), ((0, 1, 1), (1, 2, 5)), ((0, 1, 1), (1, 3, 3), (1, 1, 2)), ((0, 2, 1), (1, 1, 9))]


@pytest.mark.parametrize("layout", UNSOUND)
def test_a_layout_keeps_elements_apart(layout: tuple[tuple[int, int, int], ...]) -> None:
    prove(*_buffered("chain", "t1", (1, 9), ((1, 3, 3), (0, 1, 1), (1, 1, 3))))
    assert "layout" in refusal(*_buffered("chain", "t1", (1, 9), layout)).message


def test_what_uses_a_buffer_stands_inside_it() -> None:
    scop, children = _children("chain")
    held = Filter(("S0",), Scope((Promotion("t1", (5, 9)),), children[0].child))
    error = refusal(scop, ScheduleTree(Sequence((held, children[1]))))
    assert error.code in ("PK503", "PK507")


def test_one_tensor_has_one_buffer_at_a_time() -> None:
    scop, schedule = _buffered("chain", "t1", (1, 9))
    twice = Scope((Promotion("t1", (5, 9)),), schedule.tree)
    assert "another buffer" in refusal(scop, ScheduleTree(twice)).message


def test_a_gathered_tensor_stays_in_memory() -> None:
    found = case("f(idx: i64[N], w: f64[N]) -> G:\n    V[i] = w[i]\n    G[i] = V[idx[i]]", idx="i64[4]", w="f64[4]")
    held = Scope((Promotion("t2", (4,)),), found.start.tree)
    assert "gathers" in refusal(found.scop, ScheduleTree(held)).message


def test_a_tensor_padded_by_its_edge_stays_in_memory() -> None:
    found = case("T[i] = X[i];  O[i] = T[i-1; pad=edge]  for i in 0:8", X="f64[8]")
    held = Scope((Promotion("t1", (8,)),), found.start.tree)
    assert "padded by edge" in refusal(found.scop, ScheduleTree(held)).message


def test_the_runs_of_a_buffer_in_a_vector_loop_are_one_run() -> None:
    found = PROGRAMS["chain"]
    scop, schedule = stepped("chain", TreeStep("fuse", ("S0", "S1", 2)), TreeStep("vectorise", ("S0", "i1", 4)))
    assert isinstance(schedule.tree, Band)

    def held(elements: int) -> ScheduleTree:
        return ScheduleTree(replace(schedule.tree, child=Scope((Promotion("t1", (1, elements)),), schedule.tree.child)))  # type: ignore[type-var, union-attr]

    prove(scop, held(4))
    assert_same(found, scop, held(4))
    assert refusal(scop, held(1)).code == "PK503"


def test_a_symbolic_schedule_is_proven_for_all_sizes_at_once() -> None:
    program = PROGRAMS["matmul"].program
    types = {"A": parse_type("f64[M,K]"), "B": parse_type("f64[K,N]")}
    flat = start_reductions(extract_reductions(bind(program, types, {})))
    scop, schedule = build_scop(flat), default_schedule(flat)
    tiled = step(scop, schedule, TreeStep("tile", ("S0", (("i0", 4), ("i2", 8)))))
    assert is_legal(scop, step(scop, tiled, TreeStep("vectorise", ("S0", "i1", 8))))
    assert not is_legal(scop, ScheduleTree(Sequence(schedule.tree.children[::-1])))  # type: ignore[union-attr]


def test_elements_that_are_fixed_in_a_run_by_tiles_of_different_sizes_are_not_one_element() -> None:
    text = "T[i] = X[i] for i in 0:8;  T[i+8] = X[i] * 2 for i in 0:8;  O[i] = T[i] for i in 0:8;  P[i] = T[i+8] for i in 0:8"
    found = case(text, X="f64[8]")
    names = [s.name for s in found.flat.statements()]
    elements = {
        s.name: add(IndexExpr(s.iterators[0], i64), lit(8 * (n % 2))) for n, s in enumerate(found.flat.statements())
    }
    sizes = {s: (4, 8)[n % 2] for n, s in enumerate(names)}
    tiles = loop({s: floordiv(elements[s], sizes[s]) for s in names}, "tile")
    rows = loop({s: mod(elements[s], sizes[s]) for s in names}, "row")
    inside = Sequence(tuple(Filter((s,), Leaf()) for s in names))
    temporary = next(t.name for t in found.flat.tensors if t.label == "T")
    error = refusal(found.scop, ScheduleTree(Band((tiles, rows), Scope((Promotion(temporary, (1,)),), inside))))
    assert "share a place" in error.message
    prove(found.scop, ScheduleTree(Band((tiles, rows), inside)))
