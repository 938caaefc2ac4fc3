"""Programs whose tensors, numbers and sizes are called like options: the program's own names come first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ArgumentError

NAMES = (
    "target acc fastmath specialize timeout threads deterministic schedule auto stream out seconds stage self types args named "
    "sizes program definition cls disk optimize dtype order casting cache_size scratch_bytes function user"
).split()
X = np.arange(6.0)


def programs(name: str) -> list[tuple[str, dict[str, Any], Any]]:
    """Return texts that have the name as a tensor, a number, and a size, with what they take by keyword and give."""
    return [
        (f"r[i] = 2 * {name}[i]", {name: X}, 2 * X),
        (f"r[i] = w[i] * {name}", {"w": X, name: 3.0}, 3 * X),
        (f"r[i] = v + i for i in 0:{name}", {"v": 1.0, name: 6}, 1 + X),
        (f"f(w: f64[N], {name}) -> r:\n    r[i] = w[i] + {name}", {"w": X, name: 6}, X + 6),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_keyword_that_is_a_name_of_the_program_is_the_program_s(name: str) -> None:
    for text, given, wanted in programs(name):
        operator = pk.op(text)
        for _ in range(5):
            np.testing.assert_array_equal(operator(**given), wanted)
        kernel = operator.compile(**given)
        for _ in range(5):
            np.testing.assert_array_equal(kernel(**given), wanted)
        assert operator.infer(**given).shape == (6,)
        assert operator.check(**given).ulp == 0
        assert operator.explain(**given).statements
        assert operator.source("llvm", **given) == kernel.source("llvm")
        schedule = operator.schedule(**given)
        assert pk.Schedule.from_json(schedule.to_json(), operator) == schedule
        assert pk.Schedule.from_json(schedule.to_json(), operator, **given) == schedule
        if name != "schedule":
            np.testing.assert_array_equal(operator.compile(schedule=schedule)(**given), wanted)


@pytest.mark.parametrize("name", ["seconds", "out", "target"])
def test_a_measurement_takes_the_program_s_names_first(name: str) -> None:
    for text, given, _ in programs(name):
        operator = pk.op(text)
        kernel = operator.compile(**given)
        limited = {} if name == "seconds" else {"seconds": 0.001}
        assert kernel.measure(**given, **limited).measured is not None


OPTIONS: dict[str, Any] = {
    "target": "cpu:x86-64-v2", "acc": "f32", "fastmath": {"contract"}, "specialize": "never", "timeout": 20, "threads": 1,
    "deterministic": True, "schedule": None,
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_free_again_where_the_program_s_name_is_given_by_position(name: str) -> None:
    operator = pk.op(f"r[i] += {name}[i, j]")
    two = X.reshape(2, 3)
    kernel = operator.compile(two, **{name: OPTIONS[name]})
    plain = pk.op("r[i] += x[i, j]").compile(two, **{name: OPTIONS[name]})
    assert kernel.source("llvm") == plain.source("llvm")
    assert kernel.target == plain.target
    with pytest.raises(ArgumentError, match=f"option `{name}` is"):
        operator.compile(two, **{name: two})


def test_an_option_of_a_program_that_has_its_name_can_be_given_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pk.options(acc="f32", threads=1):
        assert pk.op("r[i] += acc[i, j]").compile(acc=pk.f64[2, 3]).acc == "f32"
    monkeypatch.setenv("POLYKER_TARGET", "cpu:x86-64-v2")
    assert pk.op("r[i] = target[i]").compile(target=X).target == "cpu:x86-64-v2"


def test_a_size_fixed_by_op_leaves_its_name_to_the_option() -> None:
    kernel = pk.op("r[i] = v for i in 0:threads", threads=6).compile(1.0, threads=1)
    assert kernel(2.0).tolist() == [2.0] * 6


def test_out_is_what_is_written_into_where_the_program_s_out_is_given_by_position() -> None:
    add, into = pk.op("r[i] = out[i] + w[i]"), np.zeros(6)
    for call in (add, add.compile(X, X)):
        for _ in range(4):
            assert call(X, X, out=into) is into
            assert into.tolist() == (2 * X).tolist()
            np.testing.assert_array_equal(call(out=X, w=X + 1), 2 * X + 1)
            np.testing.assert_array_equal(call(w=X, out=X + 2), 2 * X + 2)
            with pytest.raises(ArgumentError, match="`w` is missing"):
                call(out=X)
    sized = pk.op("r[i] = v for i in 0:out")
    for call in (sized, sized.compile(1.0)):
        for n in (3, 5, 3):
            assert call(1.0, out=n).tolist() == [1.0] * n
            with pytest.raises(ArgumentError, match="size `out` is"):
                call(1.0, out=np.zeros(n))


def test_torch_s_tensors_go_by_the_same_names() -> None:
    torch = pytest.importorskip("torch")
    add, x, into = pk.op("r[i] = out[i] + w[i]"), torch.arange(6.0), torch.zeros(6)
    for _ in range(3):
        assert add(out=x, w=x).tolist() == (2 * x).tolist()
        assert add(x, x, out=into) is into
        assert into.tolist() == (2 * x).tolist()
