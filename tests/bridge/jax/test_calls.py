"""Operators as functions of JAX arrays: values, arguments, sizes, types, in-out tensors, and what errors say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.bridge.jax import handler
from polyker.errors import ArgumentError, BackendUnavailable, DTypeError, ShapeError

jax = pytest.importorskip("jax", reason="jax is an extra, and not installed")
jnp = jax.numpy

ROOT = Path(__file__).parents[3]
PRODUCT = pk.jax.op("C[i,j] += A[i,k] * B[k,j]")
SCALE = pk.jax.op("Y[i] = a * X[i]")
BOTH = pk.jax.op("S[] = sum[i](X[i]); M[] = max[i](X[i])")
PADDED = pk.jax.op("O[h] += X[h+r-1; pad=0] * K[r] for h in 0:H")
TAKE = pk.jax.op("O[i] = X[I[i]]")
ADD = pk.jax.op("add(A: f32[N], B: f32[N]) -> A:\n    A[i] = A[i] + B[N-1-i]")


def normal(*shape: int, dtype: str = "float32") -> jax.Array:
    return jnp.asarray(np.random.default_rng(len(shape)).standard_normal(shape), dtype)


def near(found: object, wanted: object) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-5, atol=1e-5)


@settings(max_examples=3, deadline=None)
@given(st.sampled_from([0, 1, 5]), st.sampled_from([0, 1, 4]), st.sampled_from([1, 3]))
def test_a_product_of_any_shape_is_numpys_eagerly_and_in_jit(n: int, k: int, m: int) -> None:
    a, b = normal(n, k), normal(k, m)
    near(PRODUCT(a, b), np.asarray(a) @ np.asarray(b))
    near(jax.jit(lambda a, b: jnp.tanh(PRODUCT(a, b)) + 1)(a, b), np.tanh(np.asarray(a) @ np.asarray(b)) + 1)


def test_one_target_serves_shapes_of_a_symbolic_kernel() -> None:
    # Operators of any shape go to a kernel for symbolic sizes after some shapes: which XLA's text names.
    f = pk.jax.op("f(X: f32[N]) -> Y:\n    Y[i] = X[N-1-i]")
    names = []
    for n in (40, 41, 42, 57, 58, 59, 60):
        near(f(normal(n)), np.asarray(normal(n))[::-1])
        names.append(str(*pk.jax.safety_checks(f, normal(n))))
    assert len(set(names[:3])) == 3  # shapes of their own
    assert len(set(names[3:])) == 1


def test_arguments_are_given_by_position_and_by_name() -> None:
    a, b = normal(2, 3), normal(3, 4)
    near(PRODUCT(B=b, A=a), PRODUCT(a, b))
    near(PADDED(normal(5), normal(3), H=4), pk.op(str(PADDED))(np.asarray(normal(5)), np.asarray(normal(3)), H=4))
    near(jax.jit(lambda x, k: PADDED(x, K=k, H=3))(normal(5), normal(3)), PADDED(normal(5), normal(3), H=3))
    near(pk.jax.op("O[i] += X[s*i+r] * W[r]", s=2)(jnp.arange(5.0), jnp.ones(2)), [1, 5])
    assert PADDED(normal(5), normal(3), H=0).shape == (0,)
    near(pk.jax.op("Y[i] = f32(i) for i in 0:N")(N=3), [0, 1, 2])


def test_operators_and_programs_are_taken_too() -> None:
    operator = pk.op("C[i,j] += A[i,k] * B[k,j]")
    a, b = normal(2, 3), normal(3, 4)
    near(pk.jax.op(operator)(a, b), a @ b)
    near(pk.jax.op(operator.program)(a, b), a @ b)


def test_several_outputs_come_as_a_namedtuple() -> None:
    found = jax.jit(BOTH)(jnp.arange(4.0))
    assert type(found).__name__ == "Results"
    assert (float(found.S), float(found.M)) == (6.0, 3.0)
    assert jax.eval_shape(BOTH, jnp.arange(4.0)).S.shape == ()


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "complex64", "bool"])
def test_element_types(dtype: str) -> None:
    x = jnp.asarray([0, 1, 1, 0]).astype(dtype)
    found = pk.jax.op("Y[i] = X[3-i]")(x)
    assert found.dtype == x.dtype
    assert (found == x[::-1]).all()


def test_numbers_take_the_type_of_what_they_meet() -> None:
    for dtype, a in (("bfloat16", 1.5), ("float32", 2), ("int32", 2)):
        found = SCALE(a, jnp.arange(3).astype(dtype))
        assert found.dtype == dtype
        near(found.astype("float32"), a * np.arange(3))
    assert float(pk.jax.op("Y = a + 1")(2.5)) == 3.5


def test_types_of_64_bits_are_for_jax_enable_x64() -> None:
    with pytest.raises(DTypeError, match=r"`X` is f64.*jax_enable_x64"):
        SCALE(2.0, np.ones(3))
    with pytest.raises(DTypeError, match=r"`M` is i64.*jax_enable_x64"):
        pk.jax.op("M[] = argmax[i](X[i])")(jnp.ones(3))
    with jax.enable_x64(True):
        found = SCALE(2.0, np.ones(3))
        assert found.dtype == np.float64
        assert (found == 2).all()
        assert pk.jax.op("M[] = argmax[i](X[i])")(jnp.arange(3.0)) == 2


def test_errors_are_raised_when_a_function_is_traced_and_point_at_the_text() -> None:
    shapes = jax.ShapeDtypeStruct((2, 3), "float32"), jax.ShapeDtypeStruct((4, 5), "float32")
    with pytest.raises(ShapeError, match=r"index `k` has 3 values(.|\n)*\^"):
        jax.eval_shape(PRODUCT, *shapes)
    with pytest.raises(ArgumentError, match="argument `B` is missing"):
        PRODUCT(normal(2, 2))
    with pytest.raises(ArgumentError, match="size `H` is not known"):
        PADDED(normal(5), normal(3))
    with pytest.raises(ArgumentError, match="`X` is a list"):
        SCALE(2.0, [1.0])
    with pytest.raises(ArgumentError, match="`out` is no argument"):
        PRODUCT(normal(2, 2), normal(2, 2), out=normal(2, 2))
    with pytest.raises(DTypeError, match="element type key"):
        SCALE(2.0, jax.random.split(jax.random.key(0), 3))


def test_what_a_kernel_finds_is_an_error_with_its_message() -> None:
    x = jnp.arange(5.0)
    assert TAKE(x, jnp.array([4, 0])).tolist() == [4, 0]
    for f in (TAKE, jax.jit(lambda x, i: TAKE(x, i) + 1)):
        with pytest.raises(Exception, match=r"the gathered index `I\[i\]` is out of range(.|\n)*\^\^\^\^(.|\n)*PK510"):
            jax.block_until_ready(f(x, jnp.array([5, 0])))
    assert TAKE(x, jnp.array([1, 1])).tolist() == [1, 1]


def test_an_argument_that_is_a_result_too_is_left_as_it_is() -> None:
    x = jnp.arange(4.0)
    total = np.arange(4.0) + np.arange(4.0)[::-1]
    near(ADD(x, x), total)
    near(jax.jit(ADD)(x, x), total)
    near(x, np.arange(4))
    near(jax.jit(lambda x: ADD(2 * x, 2 * x))(x), 2 * total)  # one value, both read and written over
    first, second = jax.jit(lambda x: (lambda y: (ADD(y, x), y))(2 * x))(x)  # used again
    near(first, 2 * np.arange(4) + np.arange(4)[::-1])
    near(second, 2 * np.arange(4))
    near(jax.jit(lambda x: ADD(ADD(x, x), x), donate_argnums=0)(x + 0), total + np.arange(4)[::-1])


HEAT = """heat(A: f32[N,N], steps) -> A:
    for t in 0:steps:
        B[i,j] = 0.25 * (A[i-1,j] + A[i+1,j] + A[i,j-1] + A[i,j+1]) for i in 1:N-1, j in 1:N-1
        A[i,j] = B[i,j] for i in 1:N-1, j in 1:N-1"""


def test_scratch_memory_is_xlas_and_has_a_limit() -> None:
    f, a = pk.jax.op(HEAT), normal(6, 6)
    expected = np.array(a)
    for _ in range(3):
        old = expected.copy()
        expected[1:-1, 1:-1] = 0.25 * (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:])
    near(f(a, 3), expected)
    with pk.options(specialize="never"):  # offsets come with the call
        near(f(a, 3), expected)
    with pk.options(scratch_bytes=0), pytest.raises(ShapeError, match="the temporaries"):
        f(a, 3)


def test_kernels_run_on_as_many_threads_as_the_options_say() -> None:
    f, a = pk.jax.op("Y[i,j] = sqrt(abs(X[j,i])) + 1"), normal(200, 150)
    for threads in (1, 2):
        with pk.options(threads=threads, specialize="never"):
            near(f(a), np.sqrt(np.abs(np.asarray(a).T)) + 1)


def test_it_stands_in_loops_and_branches_and_without_jit() -> None:
    x = jnp.arange(4.0) / 4
    cube = pk.jax.op("Y[i] = X[i] ** 3 / 2")
    near(jax.lax.scan(lambda c, _: (cube(c), c.sum()), x, None, length=2)[0], (x**3 / 2) ** 3 / 2)
    near(jax.lax.cond(x[0] < 1, cube, lambda x: x, x), x**3 / 2)
    with jax.disable_jit():
        near(cube(x), x**3 / 2)


def test_another_platform_is_refused() -> None:
    with pytest.raises(BackendUnavailable, match="cuda"):
        pk.jax.op("Y[i] = X[i]", platform="cuda")
    with pytest.raises(ArgumentError, match="option `platform`"):
        pk.jax.op("Y[i] = X[i]", platform="abacus")
    for f in (PRODUCT, lambda a, b: jax.jvp(lambda a: PRODUCT(a, b), (a,), (a,))[1]):
        with pytest.raises(BackendUnavailable, match="do not run inside JAX on cuda"):
            jax.export.export(jax.jit(f), platforms=["cuda"])(normal(2, 3), normal(3, 2))


def test_another_version_of_xlas_interface_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "MAJOR", 7)
    with pytest.raises(BackendUnavailable, match="JAX does not take a handler"):
        pk.jax.op("Y[i] = X[i] + 77")(jnp.ones(3))


def test_importing_polyker_loads_no_jax_and_an_absent_one_names_the_extra() -> None:
    code = """
import sys
import polyker as pk
pk.jax
assert "jax" not in sys.modules
sys.modules["jax"] = sys.modules["jax.export"] = None
try:
    pk.jax.op("Y[i] = X[i]")
except ImportError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "pip install polyker[jax]" in found.stdout, found.stderr
