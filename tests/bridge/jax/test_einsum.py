"""The equations of JAX's own tests of einsum, and its rules for types and paths."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ArgumentError, ParseError, ShapeError

jax = pytest.importorskip("jax", reason="jax is an extra, and not installed")
jnp = jax.numpy

# Of tests/lax_numpy_einsum_test.py of JAX: equations with the shapes of their operands.
SHAPED = {
    "i,j,k->ijk": [(3,), (4,), (5,)],
    "ij,j->i": [(3, 4), (4,)],
    "ijk,j->i": [(3, 4, 5), (4,)],
    "iji,i->j": [(3, 4, 3), (3,)],
    "ij,ij->": [(3, 4), (3, 4)],
    "nij,jk->nik": [(10, 2, 3), (3, 4)],
    "sa,shb->shab": [(2, 1), (2, 3, 4)],
    "ijk->j": [(3, 4, 5)],
    "ijk->kij": [(3, 4, 5)],
    "ijk->ki": [(3, 4, 5)],
    "...ijk->...ki": [(2, 3, 4, 5)],
    "...ijk->ki": [(3, 4, 5)],
    "ii->": [(3, 3)],
    "ij->": [(3, 3)],
    "iii->": [(3, 3, 3)],
    "ii->i": [(3, 3)],
    "iij->i": [(3, 3, 4)],
    "iii->i": [(3, 3, 3)],
    "iijkk->i": [(3, 3, 5, 4, 4)],
    "iijkk->ik": [(3, 3, 5, 4, 4)],
    "iijkl->il": [(3, 3, 5, 4, 4)],
    "ij->ij": [(3, 3)],
    "ij...,jk...->ik...": [(2, 3, 5, 1), (3, 4, 5, 1)],
    "ijj,k->ik": [(2, 3, 3), (4,)],
    "ij,ij,jk->ik": [(2, 3), (2, 3), (3, 4)],
    "ijkl,ijml->ijkm": [(1, 8, 20, 4), (1, 8, 20, 4)],
    "cij,cjk->cik": [(3, 4, 5), (3, 1, 6)],
    "...ij,...j": [(2, 1, 3, 3), (2, 4, 3)],
    "ntk,kd,dc->nc": [(2, 6, 5), (5, 4), (4, 3)],
}
BROADCAST = [[(1, 4, 5), (3, 5, 6)], [(1, 4, 5), (3, 1, 6)]]  # of cij,cjk->cik
PLAIN = [
    "abc,bad->abcd", "abcdef,bcdfg->abcdeg", "ea,fb,abcd,gc,hd->efgh", "ab,b", "aa", "a,a->", "a,a->a", "a,a", "a,b", "a,b,c",
    "a", "ba,b", "ba,b->", "defab,fedbc->defac", "ab...,bc...->ac...", "a...a", "abc...->cba...", "...ab->...a", "a...a->a...",
    "...abc,...abcd->...d", "ab...,b->ab...", "aa->a", "ab,ab,c->c", "aab,bc->ac", "aab,bcc->ac", "fdf,cdd,ccd,afe->ae",
    "fff,fae,bef,def->abd",
]  # fmt: skip
# Some equations, in one of the types each; all of them are in `python -m tests.bridge.jax.test_einsum`.
DTYPES = ("float32", "int32", "complex64", "bool")


def values(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == "int32":
        return rng.integers(-3, 4, shape).astype(dtype)
    found = rng.standard_normal(shape)
    return (found + 1j * rng.standard_normal(shape) if dtype == "complex64" else found).astype(dtype)


def shapes_of(equation: str) -> list[tuple[int, ...]]:
    dims, sizes = cycle([2, 3, 4]), {}
    terms = [t.replace("...", "01") for t in equation.split("->")[0].split(",")]
    return [tuple(sizes.setdefault(c, next(dims)) if c not in sizes else sizes[c] for c in term) for term in terms]


def compare(equation: str, operands: list[np.ndarray], **options: object) -> None:
    wanted = np.einsum(equation, *operands)
    found = pk.jax.einsum(equation, *operands, **options)
    assert found.dtype == jnp.einsum(equation, *operands).dtype
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("equation", list(SHAPED)[::6])
def test_equations_with_shapes(equation: str) -> None:
    rng = np.random.default_rng(0)
    compare(equation, [values(s, "float32", rng) for s in SHAPED[equation]])


@pytest.mark.parametrize("shapes", BROADCAST, ids=str)
def test_extents_of_one_are_broadcast(shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    compare("cij,cjk->cik", [values(s, "float32", rng) for s in shapes])


@pytest.mark.parametrize(("equation", "dtype"), list(zip(PLAIN, cycle(DTYPES)))[2::7])
def test_equations_of_all_kinds(equation: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    compare(equation, [values(s, dtype, rng) for s in shapes_of(equation)])


def test_types_promote_as_jaxs_and_results_may_have_another() -> None:
    x, y = jnp.ones((2, 3), "bfloat16"), jnp.arange(3)
    assert pk.jax.einsum("ij,j->i", x, y).dtype == jnp.einsum("ij,j->i", x, y).dtype == "bfloat16"
    wide = pk.jax.einsum("ij,j->i", x, y, preferred_element_type="float32")
    assert wide.dtype == "float32"
    assert wide.tolist() == [3, 3]
    assert (
        pk.jax.einsum("i,i->", jnp.full(300, 100, "int8"), jnp.ones(300, "int8"), preferred_element_type="int32")
        == 30000
    )
    assert pk.jax.einsum("i->", jnp.ones(3), preferred_element_type="float16").dtype == "float16"
    assert pk.jax.einsum("i,->i", y, 2.5).dtype == "float32"


def test_paths_and_lists_of_subscripts() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (jnp.asarray(values(s, "float32", rng)) for s in ((2, 3), (3, 4), (4, 5)))
    wanted = np.asarray(a) @ np.asarray(b) @ np.asarray(c)
    for optimize in (
        True,
        False,
        "optimal",
        "auto",
        "greedy",
        "eager",
        [(1, 2), (0, 1)],
        ["einsum_path", (0, 1), (0, 1)],
    ):
        found = pk.jax.einsum("ij,jk,kl->il", a, b, c, optimize=optimize)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-4)
    found = pk.jax.einsum(a, [0, 1], b, [1, 2], [2, 0])
    np.testing.assert_allclose(np.asarray(found), (np.asarray(a) @ np.asarray(b)).T, rtol=1e-4, atol=1e-4)


def test_it_stands_inside_of_jaxs_transformations() -> None:
    a, b = jnp.arange(6.0).reshape(2, 3), jnp.ones((3, 2))
    gradient = jax.jit(jax.grad(lambda a: pk.jax.einsum("ij,ji->", a, b) ** 2))(a)
    assert (gradient == 2 * a.sum() * b.T).all()
    assert pk.jax.einsum("baa->ba", jnp.full((1, 2, 2), jnp.inf)).tolist() == [[np.inf, np.inf]]


def test_errors() -> None:
    x = jnp.ones((2, 3))
    with pytest.raises(ShapeError, match="label 'i'"):
        pk.jax.einsum("ij,jk,ik->", x, jnp.ones((3, 4)), jnp.ones((5, 4)))
    with pytest.raises(ParseError):
        pk.jax.einsum("i$->i", x)
    with pytest.raises(ArgumentError, match="optimize"):
        pk.jax.einsum("ij->i", x, optimize="fastest")
    with pytest.raises(ArgumentError, match="path"):
        pk.jax.einsum("ij,jk->ik", x, jnp.ones((3, 4)), optimize=[(0, 5), (0, 1)])


def main() -> None:
    """Compare all equations in all types with NumPy's."""
    for equation in SHAPED:
        test_equations_with_shapes(equation)
    for equation in PLAIN:
        for dtype in DTYPES:
            rng = np.random.default_rng(0)
            compare(equation, [values(s, dtype, rng) for s in shapes_of(equation)])
    print(f"{len(SHAPED)} equations, and {len(PLAIN)} in {len(DTYPES)} types, are NumPy's")


if __name__ == "__main__":
    main()
