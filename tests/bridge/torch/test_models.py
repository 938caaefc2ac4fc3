"""Models through torch.compile: values and gradients equal to eager ones; `python -m tests.bridge.torch.test_models` runs all."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import polyker as pk  # noqa: E402
from polyker.bridge.torch.cutting import MAX_STATEMENTS  # noqa: E402
from tests.bridge.torch.models import MODELS  # noqa: E402

# Relative to the largest value.
TOLERANCE = 1e-5
# Others, and training steps of others, are the command line's: their many statements take long to compile.
SHORT, TRAINED = ("mlp", "resnet", "lstm", "gpt"), ("mlp",)


def close(a: Any, b: Any, scale: float = 0.0) -> bool:
    """Whether two tensors are equal within the tolerance; `scale`: the largest value that counts, if it is not theirs."""
    a, b = a.detach(), b.detach()
    return bool((a - b).abs().max() <= TOLERANCE * max(float(b.abs().max()), scale))


def run(name: str, *, trains: bool, limit: int) -> None:
    """Compare a model's results, and where it trains its gradients and buffers, with those of eager mode."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    ours = make().train(trains)
    theirs, x = copy.deepcopy(ours), torch.randn(shape)
    compiled = torch.compile(ours, backend=pk.torch.backend, options={"max_statements": limit})
    if not trains:
        with torch.no_grad():
            assert close(compiled(x), theirs(x)), name
        return
    a, b = (x.clone().requires_grad_() for _ in range(2))
    y, z = compiled(a), theirs(b)
    weights = torch.randn_like(z)
    (y * weights).sum().backward()
    (z * weights).sum().backward()
    assert close(y, z), name
    for p, q in zip([a, *ours.parameters()], [b, *theirs.parameters()], strict=True):
        assert close(p.grad, q.grad, 1e-2), name  # what is 0 but for rounding counts as such
    for p, q in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert close(p.double(), q.double()), name


@pytest.fixture(autouse=True)
def rnn() -> Iterator[None]:
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


@pytest.mark.parametrize("name", SHORT)
def test_a_model_gives_what_eager_mode_gives(name: str) -> None:
    run(name, trains=name in TRAINED, limit=4)
    assert not [p.refused for g in pk.torch.report().graphs for p in g.parts if p.refused]


if __name__ == "__main__":
    torch._dynamo.config.allow_rnn = True
    for chosen in sys.argv[1:] or MODELS:
        for trains in (False, True):
            run(chosen, trains=trains, limit=MAX_STATEMENTS)
            print(chosen, "trains" if trains else "infers", "as eager mode")
