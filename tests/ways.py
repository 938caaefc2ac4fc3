"""Ways to call a text on arrays: compiled for their sizes, for symbolic ones, interpreted, and on the simulator of a GPU."""

import pytest

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.reference import interpret
from tests.gpu.support import needs_compiler


def compiled(text, *arrays, target="cpu", **sizes):
    return pk.op(text).compile(*arrays, target=target, **sizes)(*arrays, **sizes)


def symbolic(text, *arrays, **sizes):
    with pk.options(specialize="never"):
        return pk.op(text)(*arrays, **sizes)


def interpreted(text, *arrays, **sizes):
    program = parse(text)
    return interpret(program, dict(zip(program.inputs, arrays, strict=True)), sizes)[0]


def simulated(text, *arrays, **sizes):
    return compiled(text, *arrays, target="cuda-sim", **sizes)


@pytest.fixture(
    params=[compiled, symbolic, interpreted, pytest.param(simulated, marks=needs_compiler)], ids=lambda f: f.__name__
)
def call(request):
    """Each way, for tests of what all of them have to give."""
    return request.param
