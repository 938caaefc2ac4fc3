"""Depth and size of expressions, and the walkers that do not recurse: far deeper than Python's calls may nest."""

from __future__ import annotations

from polyker.ir.expr import Call, Expr, IndexExpr, Literal, Range, Read, Reduce, replace_parts, transform, walk
from polyker.ir.measure import depth_of, level_of, measured, size_of

FAR = 20_000


def tower(count: int, top: Expr) -> Expr:
    for _ in range(count):
        top = Call("neg", (top,))
    return top


def test_depth_and_size_count_operators_and_operands():
    a, b = Read("A", (IndexExpr("i"),)), IndexExpr("j")
    product = Call("mul", (a, b))
    assert [depth_of(e) for e in (b, a, product, Call("add", (product, b, b)))] == [1, 2, 3, 4]
    assert [size_of(e) for e in (b, a, product, Call("add", (product, product)))] == [1, 2, 4, 9]


def test_what_stands_in_two_places_is_measured_once_and_counts_twice():
    e: Expr = IndexExpr("i")
    for _ in range(60):
        e = Call("add", (e, e))
    assert len(list(measured(e))) == 61
    assert size_of(e) == 2**61 - 1


def test_a_chain_of_quotients_is_as_deep_as_it_is_long():
    chain = Call("floordiv", (IndexExpr("i"), *[Literal(2)] * 40))
    assert depth_of(chain) == 41
    assert depth_of(Call("div", chain.args)) == 2


def test_the_level_of_parts_is_that_of_the_deepest():
    a, b = Read("A", ()), Read("B", ())
    e = Call("add", (a, Call("neg", (Call("mul", (b, a)),)), b))
    assert [level_of(e, parts) for parts in ((a,), (b,), (a, b), (e,), ())] == [3, 3, 3, 0, 0]


def test_walkers_do_not_recurse():
    top = Read("A", (IndexExpr("i"),))
    deep = tower(FAR, top)
    assert sum(1 for _ in walk(deep)) == FAR + 2
    assert depth_of(deep) == FAR + 2
    assert level_of(deep, (top,)) == FAR
    renamed = transform(deep, lambda e: IndexExpr("j") if isinstance(e, IndexExpr) else e)
    assert [e.name for e in walk(renamed) if isinstance(e, IndexExpr)] == ["j"]
    assert depth_of(replace_parts(deep, lambda e: Literal(1) if isinstance(e, Read) else None)) == FAR + 1


def test_parts_that_are_replaced_are_not_looked_at():
    seen = []
    inner = Call("neg", (IndexExpr("i"),))

    def found(e: Expr) -> Expr | None:
        seen.append(e)
        return Literal(0) if e == inner else None

    assert replace_parts(Call("add", (inner, IndexExpr("j"))), found) == Call("add", (Literal(0), IndexExpr("j")))
    assert IndexExpr("i") not in seen


def test_a_change_sees_each_node_after_its_children_from_left_to_right():
    order = []
    e = Reduce(
        "sum",
        (Range("k", Literal(0), IndexExpr("n")),),
        Call("mul", (IndexExpr("k"), Read("A", (IndexExpr("k"),)))),
        (IndexExpr("c"),),
    )
    transform(e, lambda node: (order.append(type(node).__name__), node)[1])
    assert order == ["Literal", "IndexExpr", "IndexExpr", "IndexExpr", "Read", "Call", "IndexExpr", "Reduce"]
