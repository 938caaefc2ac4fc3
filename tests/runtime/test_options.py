"""Options are validated, scoped, and part of the key where the code depends on them."""

from __future__ import annotations

import threading

import pytest

import polyker as pk
from polyker.errors import ArgumentError
from polyker.options import NAMES, Options


def test_a_with_block_changes_options_for_itself_alone() -> None:
    assert pk.options.acc is None
    with pk.options(acc="f64", fastmath={"contract"}) as inner:
        assert (pk.options.acc, pk.options.fastmath) == (pk.f64, ("contract",)) == (inner.acc, inner.fastmath)
        with pk.options(fastmath=()):
            assert (pk.options.acc, pk.options.fastmath) == (pk.f64, ())
        assert pk.options.fastmath == ("contract",)
    assert (pk.options.acc, pk.options.fastmath) == (None, ())


def test_setting_an_attribute_changes_the_default_of_all_threads_but_a_block_is_of_its_thread() -> None:
    seen = []
    try:
        pk.options.timeout = 12
        with pk.options(timeout=3):
            pk.options.timeout = 4
            thread = threading.Thread(target=lambda: seen.append(pk.options.timeout))
            thread.start()
            thread.join()
            assert pk.options.timeout == 4
        assert pk.options.timeout == 12
    finally:
        pk.options.timeout = 30
    assert seen == [12]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acc", "f31"), ("acc", 3), ("fastmath", "fast"), ("fastmath", 1), ("fastmath", ["nnan", 2]), ("specialize", "often"),
        ("specialize", None), ("timeout", 0), ("timeout", -1), ("timeout", "1"), ("timeout", True), ("timeout", float("nan")),
        ("threads", 0), ("threads", 1.0), ("deterministic", 1), ("cache_size", 0), ("scratch_bytes", -1),
    ],
)  # fmt: skip
def test_a_value_that_an_option_cannot_have_is_refused_with_what_it_can(name: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=rf"option `{name}`[\s\S]*accepted"), pk.options(**{name: value}):
        pass
    with pytest.raises(ArgumentError):
        setattr(pk.options, name, value)


def test_an_option_that_is_not_there_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no option `speed`"), pk.options(speed=3):
        pass
    with pytest.raises(ArgumentError, match="no option `speed`"):
        pk.options.speed = 3
    with pytest.raises(AttributeError, match="speed"):
        pk.options.speed
    with pytest.raises(ArgumentError), pk.options(deadline=3.0):
        pass


def test_flags_are_kept_in_one_order_so_that_equal_sets_are_equal() -> None:
    a = Options().changed(fastmath=["contract", "nnan"])
    b = Options().changed(fastmath={"nnan", "contract"})
    assert a == b and hash(a) == hash(b)
    assert Options().changed(fastmath="ninf").fastmath == ("ninf",)
    assert Options().changed(timeout=None).timeout == float("inf")


def test_options_print_and_complete() -> None:
    assert repr(pk.options).startswith("polyker.options(acc=None, fastmath=()")
    assert set(NAMES) < set(dir(pk.options))


def test_the_names_of_module_and_function_do_not_clash() -> None:
    import importlib

    importlib.import_module("polyker.options")
    importlib.import_module("polyker.api.einsum")
    assert callable(pk.einsum)
    assert pk.options.acc is None
