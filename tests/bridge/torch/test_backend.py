"""The backend of torch.compile: its name, its options, what it reports, sizes that change, layers that are equal."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import EntryPoint

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

import polyker as pk  # noqa: E402
from polyker.bridge.torch.graphs import kernel_of  # noqa: E402
from tests.bridge.torch.models import Mlp  # noqa: E402
from tests.test_packaging import ROOT, python  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function, **options):
    return torch.compile(function, backend=pk.torch.backend, **options)


def new_graphs(before: int):
    return pk.torch.report().graphs[before:]


def count() -> int:
    return len(pk.torch.report().graphs)


def test_the_entry_point_names_the_backend() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    value = project["entry-points"]["torch_dynamo_backends"]["polyker"]
    assert EntryPoint("polyker", value, "torch_dynamo_backends").load() is pk.torch.backend
    assert any(r.startswith("torch") for r in project["optional-dependencies"]["torch"])


def test_the_bridge_without_torch_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import polyker\ntry: polyker.torch\nexcept ImportError as e: print(e)"
    )
    run = python("-c", code, cwd=ROOT)
    assert "pip install polyker[torch]" in run.stdout, run.stderr
    loaded = python("-c", "import polyker, sys; print('torch' in sys.modules)", cwd=ROOT)
    assert loaded.stdout.split() == ["False"]


def test_options_are_those_of_polyker_and_modes_are_refused() -> None:
    x = torch.randn(3)
    assert torch.equal(compiled(lambda x: x + 1, options={"threads": 1})(x), x + 1)
    refused = [
        {"mode": "max-autotune"},
        {"options": {"nosuch": 1}},
        {"options": {"threads": "many"}},
        {"options": {"max_statements": 0}},
    ]
    for given in refused:
        torch._dynamo.reset()
        with pytest.raises(Exception, match=r"PK74[01]"):
            compiled(lambda x: x + 2, **given)(x)
    with pytest.raises(pk.ArgumentError, match="not a dict"):
        pk.torch.backend(torch.fx.symbolic_trace(lambda x: x), [x], options=3)


def test_a_report_says_what_became_of_a_graph() -> None:
    before = count()
    x = torch.randn(4, 4)
    call = compiled(lambda x: x.exp().sort(0)[0].relu().sum(0))
    torch.testing.assert_close(call(x), x.exp().sort(0)[0].relu().sum(0))
    (graph,) = new_graphs(before)
    assert graph.kind == "inference"
    assert [p.nodes for p in graph.parts] == [1, 2]
    assert all(p.seconds > 0 and p.statements >= 1 and "f(" in p.text for p in graph.parts)
    assert dict(graph.stayed) == {("sort", "no rule"): 1}
    shown = str(pk.torch.report())
    assert "inference graph: 3 operators in 2 kernels" in shown
    assert "torch: sort: no rule" in shown


def test_parameters_are_taken_with_and_without_gradients() -> None:
    layer, x = nn.Linear(4, 3), torch.randn(2, 4)
    call = compiled(layer)
    with torch.no_grad():
        torch.testing.assert_close(call(x), layer(x))
    with torch.inference_mode():
        torch.testing.assert_close(call(x), layer(x))
    call(x).sum().backward()
    torch.testing.assert_close(layer.bias.grad, torch.full((3,), 2.0))


def test_a_batch_that_changes_is_compiled_once() -> None:
    model, before = Mlp(8).eval(), count()
    call = compiled(model)
    with torch.no_grad():
        for n in (5, 7, 12):
            x = torch.randn(n, 8)
            torch._dynamo.mark_dynamic(x, 0)
            torch.testing.assert_close(call(x), model(x))
    assert len(new_graphs(before)) == 1


def test_two_sizes_that_a_view_joins() -> None:
    model, before = nn.Sequential(nn.Linear(4, 6), nn.GELU()).eval(), count()
    call = compiled(model, dynamic=True)
    with torch.no_grad():
        for shape in ((2, 3, 4), (5, 7, 4)):
            x = torch.randn(shape)
            torch.testing.assert_close(call(x), model(x))
    assert len(new_graphs(before)) == 1


def test_equal_layers_are_compiled_once() -> None:
    model, x = nn.Sequential(*(Mlp(8) for _ in range(6))).eval(), torch.randn(3, 8)
    before = count()
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x))
    (graph,) = new_graphs(before)
    texts = [p.text for p in graph.parts]
    assert len(texts) >= 3
    assert sum(not p.again for p in graph.parts) == len(set(texts)) < len(texts)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled(model)(x)
    assert all(p.again for p in new_graphs(before)[-1].parts)


def test_results_have_the_strides_of_the_graph() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for function in (
        lambda x: x * 2,
        lambda x: (x + 1).transpose(1, 3),
        lambda x: x.permute(2, 0, 1, 3).contiguous() - 1,
    ):
        assert compiled(function)(x).stride() == function(x).stride()


def test_mutation_and_random_numbers_stay_as_they_are() -> None:
    def function(x, y):
        y.add_(x)
        return torch.dropout(x * 2, 0.5, True) * 0 + y

    x, y = torch.randn(3), torch.randn(3)
    want = x + y
    torch.testing.assert_close(compiled(function)(x, y), want)
    torch.testing.assert_close(y, want)


def test_an_index_out_of_range_is_an_error() -> None:
    call = compiled(lambda t, i: t[i] * 2)
    with pytest.raises(IndexError):
        call(torch.randn(3), torch.tensor([0, 5]))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU that torch can use")
def test_a_gpu_that_is_not_there_is_said_to_be_so() -> None:
    text = "f(t0: f32[4]) -> t1: f32[4]:\n    t1[i0] = t0[i0] * 2.0 for i0 in 0:4\n"
    if sys.platform == "linux":
        with pytest.raises(pk.BackendUnavailable):
            kernel_of(text, torch.device("cuda"), {})
