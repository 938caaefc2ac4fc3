"""polyker.einsum against numpy.einsum: cases of three test suites, every calling form, types, casts and orders."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyker as pk
from tests.runtime.support import coded

DATA = Path(__file__).parents[1] / "data"


def same(*args: Any, **options: Any) -> None:
    """Check that polyker gives numpy's values, type and shape."""
    got, wanted = pk.einsum(*args, **options), np.einsum(*args, **options)
    assert type(got) is type(wanted) or not np.ndim(got)
    assert np.asarray(got).dtype == np.asarray(wanted).dtype
    np.testing.assert_array_equal(got, wanted)


def cases() -> list[tuple[str, tuple[tuple[int, ...], ...]]]:
    found = []
    for case in json.loads((DATA / "numpy_einsum.json").read_text())["cases"]:
        found.append((case["einsum"], tuple(map(tuple, case["shapes"]))))
    for case in json.loads((DATA / "einops_einsum.json").read_text())["cases"]:
        found.append((case["compact"], tuple(map(tuple, case["shapes"]))))
    for case in json.loads((DATA / "onnx_einsum_node.json").read_text())["cases"]:
        found.append((case["equation"], tuple(map(tuple, case["shapes"]))))
    return list(dict.fromkeys(found))


def is_small(text: str, shapes: tuple[tuple[int, ...], ...]) -> bool:
    """Whether the loop over all labels has at most a million steps."""
    extents: dict[str, int] = {}
    for term, shape in zip(text.partition("->")[0].replace(" ", "").split(","), shapes, strict=True):
        if "." not in term:
            for label, n in zip(term, shape, strict=True):
                extents[label] = max(n, extents.get(label, 1))
    return int(np.prod(list(extents.values()), dtype=np.int64)) <= 1_000_000


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(("text", "shapes"), cases())
def test_the_published_cases_give_numpy_s_values(
    text: str, shapes: tuple[tuple[int, ...], ...], optimize: bool
) -> None:
    if not is_small(text, shapes) and not optimize:
        pytest.skip("over a million steps without a path")
    operands = [coded(s, np.int64, k) % 3 - 1 for k, s in enumerate(shapes)]
    same(text, *operands, optimize=optimize)


def test_every_path_that_numpy_takes_is_taken() -> None:
    operands = [coded(s, np.float64) for s in [(3, 4), (4, 5), (5, 6), (6,)]]
    text = "ab,bc,cd,d->a"
    path = np.einsum_path(text, *operands, optimize="optimal")[0]
    wanted = np.einsum(text, *operands)
    for optimize in (
        True,
        False,
        None,
        "greedy",
        "optimal",
        path,
        ("greedy", 1000),
        ("optimal", 0),
        ["einsum_path", (0, 1, 2, 3)],
    ):
        np.testing.assert_array_equal(pk.einsum(text, *operands, optimize=optimize), wanted)
    same("ij->i", operands[0], optimize=["einsum_path", (0,)])
    for bad in (3, 1.5, ["wrong", (0, 1)], object()):
        with pytest.raises((TypeError, ValueError)):
            pk.einsum(text, *operands, optimize=bad)
    with pytest.raises(RuntimeError):
        pk.einsum(text, *operands, optimize=["einsum_path", (0, 1)])


def test_the_interleaved_form_is_read() -> None:
    a, b = coded((3, 4)), coded((4, 5))
    same(a, [0, 1], b, [1, 2])
    same(a, [0, 1], b, [1, 2], [2, 0])
    same(a, [Ellipsis, 1], coded((4, 3)), [1, Ellipsis], [Ellipsis])
    same(a, (51, 0), b, np.array([0, 26]), [51, 26])
    same(a, [0, 1], [1, 0])
    same(a, [0, 1], [])


TYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize(("one", "two"), itertools.combinations_with_replacement(TYPES, 2))
def test_mixed_types_promote_and_compute_as_numpy_s(one: str, two: str) -> None:
    a, b = coded((2, 3), one), coded((3, 4), two, 2)
    same("ij,jk->ik", a, b)
    same("ij,jk->ijk", a, b)


def test_sums_of_bool_are_any_and_products_are_and() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        a, b = rng.random((2, 4, 4)) < 0.3
        same("ij,jk->ik", a, b)
        same("ij,ij->ij", a, b)
        same("ij->", a)
        same("ij,jk,kl", a, b, a, optimize=True)


@pytest.mark.parametrize("casting", ["no", "equiv", "safe", "same_kind", "unsafe"])
@pytest.mark.parametrize("dtype", [None, "f4", "f8", "i4", "c16", "?"])
@pytest.mark.parametrize("types", [("f4", "f4"), ("i4", "f8"), ("i8", "i8"), ("f8", "f8")])
def test_dtype_and_casting_allow_and_refuse_what_numpy_does(types: tuple[str, str], dtype: Any, casting: str) -> None:
    a, b = coded((3, 4), types[0]), coded((4, 2), types[1])
    try:
        wanted = np.einsum("ij,jk->ik", a, b, dtype=dtype, casting=casting)
    except TypeError:
        with pytest.raises(TypeError):
            pk.einsum("ij,jk->ik", a, b, dtype=dtype, casting=casting)
        return
    got = pk.einsum("ij,jk->ik", a, b, dtype=dtype, casting=casting)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("out_type", ["f4", "f8", "i4", "c8", ">f8"])
@pytest.mark.parametrize("casting", ["safe", "same_kind", "unsafe"])
def test_out_of_another_type_is_cast_as_numpy_does(out_type: str, casting: str) -> None:
    a, b = coded((3, 4), "f4"), coded((4, 2), "f4")
    mine, theirs = np.zeros((2, 3), out_type).T, np.zeros((2, 3), out_type).T
    try:
        np.einsum("ij,jk->ik", a, b, out=theirs, casting=casting)
    except TypeError:
        with pytest.raises(TypeError):
            pk.einsum("ij,jk->ik", a, b, out=mine, casting=casting)
        return
    assert pk.einsum("ij,jk->ik", a, b, out=mine, casting=casting) is mine
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("order", ["C", "F", "A", "K", "c", "k", None])
def test_order_lays_the_result_out_as_numpy_does(order: Any) -> None:
    a = coded((3, 4, 5), "f8")
    layouts = [a, np.asfortranarray(a), a.transpose(1, 2, 0).copy().transpose(2, 0, 1), a[:, ::-1]]
    for x, y in itertools.product(layouts, layouts):
        for text in ("abc,abd->acd", "abc,abd->dbac", "abc,abd->cabd", "abc,abc->abc", "abc,abc->cb"):
            got, wanted = pk.einsum(text, x, y, order=order), np.einsum(text, x, y, order=order)
            np.testing.assert_array_equal(got, wanted)
            assert got.strides == wanted.strides, (text, x.strides, y.strides)
    for text in ("abc->cab", "abc->ba", "abc->abc"):
        got = pk.einsum(text, layouts[2], order="F")
        assert got.flags.f_contiguous


@pytest.mark.parametrize("text", ["ij", "ji", "ij->ij", "...", "...j->j...", "ii->i", "iii->i"])
def test_a_result_is_never_a_view(text: str) -> None:
    shape = {"i": (3, 3), ".": (2, 3), "j": (2, 3)}[text[0]] if not text.startswith("iii") else (3, 3, 3)
    a = coded(shape)
    result = pk.einsum(text, a)
    np.testing.assert_array_equal(result, np.einsum(text, a))
    assert not np.shares_memory(result, a) and result.flags.writeable


def test_singletons_broadcast_within_a_label() -> None:
    for extents in itertools.product([1, 3], repeat=4):
        a, b = coded(extents[:2]), coded(extents[2:], salt=2)
        for text in ("ij,ij->ij", "ij,ij->i", "ij,ij->", "ij,ij", "ij,ji->j"):
            same(text, a, b)
            same(text, a, b, optimize=True)
    same("...ij,...jk", coded((2, 1, 3, 4)), coded((5, 4, 2)))
    same("i...,i...->...", coded((3, 1, 2)), coded((3, 4, 1)))


def test_zero_extents_and_scalars() -> None:
    for shape in [(0, 3), (3, 0), (0, 0)]:
        same("ij->i", np.zeros(shape))
        same("ij,kj->ik", np.zeros(shape), np.ones((2, shape[1])))
    same("", 3.0)
    same(",", 3, 4.0)
    same(",i->i", 2, np.arange(3))
    same("i,i", [1, 2], [3, 4])
    same("..., ...", 3, 4)


ERRORS = [
    (), ("",), ("", 0, 0), (",", 0, [0], [0]), (",", [0]), ("i", 0), ("ij", [0, 0]), ("...i", 0), ("i...j", [0, 0]),
    ("i..", [0, 0]), (".i...", [0, 0]), ("j->..j", [0, 0]), ("i%...", [0, 0]), ("i->&", [0, 0]), ("i->ij", [0, 0]),
    ("ij->jij", [[0, 0], [0, 0]]), ("ii", [[1, 2, 3], [4, 5, 6]]), ("i", [[1, 2]]), ("i,i", [1, 2], [1, 2, 3]),
    ("i->i->i", [1]), ("i- >i", [1]), ("-", [1]), ("i>i", [1]), ("...i->i", [[1]]), ("...,...", [1, 2], [1, 2, 3]),
    ("i", "abc"), ("i", None), ("i,i,i", [1], [1]), ([1], [52], [52]), ([1], [-1]), ([1], ["a"]), ([1], 0), ([1], [0], [0, 0]),
    (None,) * 63, (0, 0), ("i,j", [1], [2], [3]), ("\0", [1]), ("i\ni", [1]), ("(i)", [1]), ("ij,jk", [[1]]),
    (",".join("i" * 70), *[[1]] * 70), ("i->j", [1]), ("i...->...i...", [1]), ("......", [1]),
]  # fmt: skip


@pytest.mark.parametrize("args", ERRORS, ids=range(len(ERRORS)))
def test_bad_calls_raise_what_numpy_raises_with_our_code(args: tuple[Any, ...]) -> None:
    for optimize in (False, True):
        try:
            np.einsum(*args, optimize=optimize)
        except (ValueError, TypeError, LookupError) as error:
            theirs = error
        else:
            assert optimize  # numpy reads a few of them where it looks for a path
            continue
        with pytest.raises(pk.PolykerError) as ours:
            pk.einsum(*args, optimize=optimize)
        assert isinstance(ours.value, ValueError if isinstance(theirs, ValueError) else (TypeError, ValueError))


@pytest.mark.parametrize(
    "options",
    [
        {"out": "x"}, {"out": [0.0]}, {"order": "W"}, {"order": 3}, {"casting": "most"}, {"casting": "same_value"},
        {"dtype": "bad"}, {"bad": 1}, {"out": np.zeros(4)}, {"out": np.zeros((3, 1))}, {"dtype": object}, {"dtype": "g"},
        {"dtype": "U3"}, {"dtype": [("a", "f4")]},
    ],
)  # fmt: skip
def test_bad_keywords_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        pk.einsum("i->i", np.arange(3.0), **options)
    assert isinstance(caught.value, pk.PolykerError)


def test_a_repeated_call_is_quick_and_sees_new_values() -> None:
    a, b = coded((4, 5)), coded((5, 6))
    for step in range(4):
        a[...], b[...] = coded((4, 5), salt=step), coded((5, 6), salt=3 * step)
        same("ij,jk->ik", a, b)
        same("ij,jk->ki", a, b)
        same("ij->ji", a)
    same("ij,jk->ik", a.astype("f8"), b)
    same("ij,jk->ik", a[::-1], b)


def test_random_contractions_give_numpy_s_values() -> None:
    rng = np.random.default_rng(3)
    extents = dict(zip("abcdef", (2, 3, 1, 4, 2, 5), strict=True))
    for _ in range(60):
        terms = ["".join(rng.choice(list("abcdef"), rng.integers(0, 4))) for _ in range(rng.integers(1, 4))]
        used = sorted(set("".join(terms)))
        kept = [label for label in rng.permutation(used) if rng.random() < 0.6]
        text = ",".join(terms) + "->" + "".join(kept)
        operands = [coded(tuple(extents[x] for x in t), "i8", k) % 4 for k, t in enumerate(terms)]
        got, wanted = pk.einsum(text, *operands), np.einsum(text, *operands)
        np.testing.assert_array_equal(got, wanted, err_msg=text)
        same(text, *operands, optimize=True)
