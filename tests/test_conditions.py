"""`where`: conditions on indices and sizes make domains, those that read values admit the terms of reductions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.errors import GatherError, ParseError, PolykerError, ShapeError
from tests import ways
from tests.ways import compiled, interpreted, symbolic

rng = np.random.default_rng(17)
INF, NAN = np.inf, np.nan
call = ways.call  # the fixture


def close(found, want):
    want = np.asarray(want)
    assert (found.dtype, found.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(found, want, rtol=1e-12)


N, M = 7, 21
X = rng.normal(size=(N, M))
Y = rng.normal(size=M)
K = rng.random((N, M)) < 0.4  # which terms are admitted: some of each row
K[:, 3] = True
DIRTY = np.where(K, X, rng.choice([NAN, INF, -INF, 1e300], size=X.shape))
ROW, COLUMN = np.indices(X.shape)


# Domains


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("i < 3 or j > 12", (ROW < 3) | (COLUMN > 12)),
        ("not (i < 3 or j > 12)", ~((ROW < 3) | (COLUMN > 12))),
        ("i < 5 or j < 15 or i == j", (ROW < 5) | (COLUMN < 15) | (ROW == COLUMN)),
        ("0 <= j - i < 9 or not j != 2", ((COLUMN >= ROW) & (COLUMN - ROW < 9)) | (COLUMN == 2)),
        (
            "(i < 2 or i > 4) and (j % 3 == 1 or j // 4 == 2)",
            ((ROW < 2) | (ROW > 4)) & ((COLUMN % 3 == 1) | (COLUMN // 4 == 2)),
        ),
        ("j != 3 and j != i and not j == 8", (COLUMN != 3) & (COLUMN != ROW) & (COLUMN != 8)),
        ("True and (j > 4 or False)", COLUMN > 4),
        ("not True or j == 1", COLUMN == 1),
        ("not (i <= j and not (j > 4 and i != 1))", ~((ROW <= COLUMN) & ~((COLUMN > 4) & (ROW != 1)))),
        ("i < 9 or j < 100", ROW < 9),
        ("(j <= i) & (i != 2) | ~(j < 15)", ((COLUMN <= ROW) & (ROW != 2)) | (COLUMN >= 15)),
    ],
)
def test_conditions_on_indices_restrict_the_domain(call, condition, holds):
    close(call(f"O[i] += X[i,j] where {condition}", X), np.where(holds, X, 0).sum(1))
    close(call(f"O[i] = sum[j](X[i,j] where {condition})", X), np.where(holds, X, 0).sum(1))


def test_an_instance_of_two_disjuncts_runs_once(call):
    ones = np.ones((N, M))
    close(call("s += A[i,j] where i < 5 or i > 2 or j < 9 or j == i + 1", ones), ones.sum())
    assert "147 times" in str(pk.op("s += A[i,j] where i < 5 or i > 2 or j < 9").compile(ones).explain())


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_random_conditions_on_indices(data):
    def condition(depth):
        kind = data.draw(st.sampled_from(["compare", "compare", "and", "or", "not"] if depth else ["compare"]))
        if kind == "compare":
            a, b = (
                data.draw(st.sampled_from(["i", "j", "i + j", "2*i - j", "j % 3", "j // 2 - i"])),
                data.draw(st.integers(-3, 9)),
            )
            return f"{a} {data.draw(st.sampled_from(['<', '<=', '>', '>=', '==', '!=']))} {b}"
        if kind == "not":
            return f"not ({condition(depth - 1)})"
        return f"({condition(depth - 1)} {kind} {condition(depth - 1)})"

    text = condition(3)
    n, m = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 11))
    a = rng.normal(size=(n, m))
    i, j = np.indices(a.shape)
    plain = text.replace("not (", "np.logical_not(")
    holds = np.zeros(a.shape, bool)
    for p in np.ndindex(a.shape):
        holds[p] = eval(plain, {"np": np}, {"i": int(i[p]), "j": int(j[p])})
    want = np.where(holds, a, 0).sum(1)
    for run in (compiled, symbolic, interpreted):
        # A condition on i may leave out the last rows, which the result then does not have.
        found = run(f"O[i] += A[i,j] where {text}", a)
        close(found, want[: len(found)])
        assert not want[len(found) :].any()


def test_what_is_affine_is_judged_after_sizes_are_fixed():
    a = np.arange(12.0)
    found = pk.op("s += A[i] where k*i < 12 or k*i == 27", k=3)(a)
    close(found, a[:4].sum() + a[9])


def test_an_assignment_may_be_over_a_union(call):
    close(call("O[i] = A[i] where i < 3 or i > 1", X[0]), X[0])
    close(
        call("O[i] = A[i] where i < 3 or i > 8; O[i] = 0.0 for i in 3:9", X[0]),
        np.where((COLUMN[0] < 3) | (COLUMN[0] > 8), X[0], 0),
    )
    with pytest.raises(PolykerError, match="O"):
        call("O[i] = A[i] where i < 3 or i > 8", X[0])


def test_elements_that_a_union_leaves_out_are_named():
    with pytest.raises(ShapeError, match=r"O\[3\], O\[4\], O\[5\] and 3 more"):
        pk.op("O[i] = A[i] where i < 3 or i > 8")(X[0])


def test_the_union_decides_the_extent():
    assert pk.op("O[i] += A[i,j] where i < 2 or i == 4")(X).shape == (5,)
    assert interpreted("O[i] += A[i,j] where i < 2 or i == 4", X).shape == (5,)


# Conditions that read values


def rows(function, x=X, k=K):
    return np.array([function(x[r][k[r]]) for r in range(N)])


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("O[i] += X[i,j] where K[i,j]", rows(np.sum)),
        ("O[i] *= X[i,j] where K[i,j]", rows(np.prod)),
        ("O[i] max= X[i,j] where K[i,j]", rows(np.max)),
        ("O[i] min= X[i,j] where K[i,j]", rows(np.min)),
        ("O[i] any= X[i,j] > 1 where K[i,j]", rows(lambda x: (x > 1).any())),
        ("O[i] all= X[i,j] < 1 where K[i,j]", rows(lambda x: (x < 1).all())),
        ("O[i] logsumexp= X[i,j] where K[i,j]", rows(np.logaddexp.reduce)),
        ("O[i] = sum[j](X[i,j] where K[i,j])", rows(np.sum)),
        ("O[i] = prod[j](X[i,j] where K[i,j])", rows(np.prod)),
        ("O[i] = max[j](X[i,j] where K[i,j])", rows(np.max)),
        ("O[i] = min[j](X[i,j] where K[i,j])", rows(np.min)),
        ("O[i] = mean[j](X[i,j] where K[i,j])", rows(np.mean)),
        ("O[i] = logsumexp[j](X[i,j] where K[i,j])", rows(np.logaddexp.reduce)),
        ("O[i] = any[j](X[i,j] > 1 where K[i,j])", rows(lambda x: (x > 1).any())),
        ("O[i] = all[j](X[i,j] < 1 where K[i,j])", rows(lambda x: (x < 1).all())),
        ("O[i] = argmax[j](X[i,j] where K[i,j])", np.where(K, X, -INF).argmax(1)),
        ("O[i] = argmin[j](X[i,j] where K[i,j])", np.where(K, X, INF).argmin(1)),
    ],
)
def test_a_term_whose_condition_is_false_contributes_nothing(call, text, want):
    close(call(text, DIRTY, K), want)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("O[i] += X[i,j] where X[i,j] > Y[j] and j != i", np.where((X > Y) & (ROW != COLUMN), X, 0).sum(1)),
        ("O[i] += X[i,j] where i < 3 or X[i,j] > Y[j]", np.where((ROW < 3) | (X > Y), X, 0).sum(1)),
        (
            "O[i] += X[i,j] where not (X[i,j] > Y[j] and i*j < 9)",
            np.where(~((X > Y) & (ROW * COLUMN < 9)), X, 0).sum(1),
        ),
        ("O[i] += X[i,j] where -0.5 < X[i,j] < Y[j]", np.where((X > -0.5) & (X < Y), X, 0).sum(1)),
        ("O[i] += X[i,j] where X[i,j] > mean[k](Y[k])", np.where(X > Y.mean(), X, 0).sum(1)),
        (
            "O[i] = sum[j](X[i,j] where X[i,j] > mean[k](Y[k] where k > i and Y[k] > 0.0) and j % 2 == 0)",
            [
                np.where((X[r] > Y[r + 1 :][Y[r + 1 :] > 0].mean()) & (COLUMN[0] % 2 == 0), X[r], 0).sum()
                for r in range(N)
            ],
        ),
    ],
)
def test_conditions_compute_with_values(call, text, want):
    close(call(text, *([X, Y] if "Y" in text else [X])), want)


def test_any_type_is_a_condition(call):
    for kind in ("i4", "f4", "u1", "c8"):
        k = (K * 3).astype(kind)
        close(call("O[i] += X[i,j] where K[i,j]", X, k), rows(np.sum))
    close(call("O[i] += X[i,j] where K[i,j] & 2", X, K.astype("i4") * 6), rows(np.sum))


def test_an_index_of_conditions_alone_is_reduced(call):
    close(call("n += 1 where X[i,j] > 0", X), np.array((X > 0).sum()))
    close(call("O[i] += Y[i] where X[i,j] > 0", Y[:N], X), Y[:N] * (X > 0).sum(1))


def test_integers_and_halves(call):
    for kind in ("i1", "u2", "i8", "f2"):
        x = rng.integers(-5 if kind[0] != "u" else 0, 6, size=(N, M)).astype(kind)
        close(call("O[i] max= X[i,j] where K[i,j]", x, K), np.array([x[r][K[r]].max() for r in range(N)], kind))
        close(
            call("O[i] = argmin[j](X[i,j] where K[i,j])", x, K),
            [np.where(K[r], x[r].astype(float), INF).argmin() for r in range(N)],
        )


def test_over_nothing_it_is_the_identity(call):
    none = np.zeros((N, M), bool)
    with np.errstate(all="ignore"):
        for text, want in [
            ("O[i] += X[i,j]", 0.0), ("O[i] *= X[i,j]", 1.0), ("O[i] max= X[i,j]", -INF), ("O[i] min= X[i,j]", INF),
            ("O[i] any= X[i,j]", False), ("O[i] all= X[i,j]", True), ("O[i] logsumexp= X[i,j]", -INF),
        ]:  # fmt: skip
            close(call(f"{text} where K[i,j]", DIRTY, none), np.full(N, want))
        close(call("O[i] = mean[j](X[i,j] where K[i,j])", DIRTY, none), np.full(N, NAN))
    k = K.copy()
    k[4] = False
    for op in ("argmax", "argmin"):
        with pytest.raises(ValueError, match="over nothing"):
            call(f"O[i] = {op}[j](X[i,j] where K[i,j])", X, k)
        text = f"O[i-2] = {op}[j in 0:9](X[i,j] where K[i,j] and j < 2*i - 3) for i in 2:N"
        with pytest.raises(ValueError, match="over nothing"):
            call(text, X, np.zeros_like(k), N=N)


def test_argmax_takes_the_first_and_the_first_nan(call):
    x = np.array([[1.0, 5, 5, 9], [NAN, NAN, 3, NAN], [-INF, -INF, 2, 2], [7, NAN, NAN, 1]])
    k = np.array([[1, 1, 1, 0], [0, 1, 1, 1], [0, 1, 0, 0], [1, 0, 0, 1]], bool)
    close(call("O[i] = argmax[j](X[i,j] where K[i,j])", x, k), [1, 1, 1, 0])
    close(call("O[i] = argmin[j](X[i,j] where K[i,j])", x, k), [0, 1, 1, 3])


def test_argmax_gives_the_value_of_its_index(call):
    want = np.where(K[:, :9], X[:, :9], -INF).argmax(1) - 4
    close(call("O[i] = argmax[j in -4:5](X[i,j+4] where K[i,j+4])", X, K), want)


def test_an_infinite_factor_of_what_is_left_out_leaves_no_nan(call):
    big, none = np.array([INF, -INF, NAN]), np.zeros(M, bool)
    for text in (
        "O[i] += B[i]*X[j] where K[j]",
        "O[i] = sum[j](B[i]*X[j] where K[j])",
        "O[i] = mean[j](B[i]*X[j] where K[j]) + 0",
    ):
        want = np.full(3, NAN if "mean" in text else 0.0)
        with np.errstate(all="ignore"):
            close(call(text, big, X[0], none), want)


def test_accesses_have_to_be_in_bounds_all_the_same(call):
    with pytest.raises(ShapeError):
        call(f"O[i] += X[i,j] for j in 0:{X.shape[1]} where X[i,j+1] > 0", X)
    close(call("O[i] += X[i,j] where X[i,j+1] > 0", X), np.where(X[:, 1:] > 0, X[:, :-1], 0).sum(1))
    place = np.full((N, M), 2)
    place[0, 0] = 99
    with pytest.raises(GatherError):
        call("O[i] += Y[I[i,j]] where I[i,j] < 9", Y, place)
    close(call("O[i] += X[i,j+1] for j in 0:20 where X[i,j] > 0", X), np.where(X[:, :-1] > 0, X[:, 1:], 0).sum(1))


def test_scatters_loops_and_earlier_values(call):
    place = rng.integers(0, 4, size=M)
    want = np.zeros(4)
    np.add.at(want, place[Y > 0], Y[Y > 0])
    close(call("f(Y: f64[N], I: i64[N]) -> H:\n  H: f64[4]\n  H[I[i]] += Y[i] where Y[i] > 0", Y, place), want)
    text = "f(A: f64[N,M]) -> S:\n  S[i] = 1.0 for i in 0:N\n  for t in 0:M:\n    S[i] += A[i,t] where A[i,t] > 0 and i != 2"
    kept = np.where((X > 0) & (ROW != 2), X, 0)
    close(call(text, X), 1 + kept.sum(1))


def test_conditions_read_what_the_statement_has_written(call):
    text = "O[i] = 0.0*B[i]; O[i] += X[i,j] where O[i] < 2.0"
    want = np.zeros(N)
    for r, c in np.ndindex(X.shape):
        want[r] += X[r, c] if want[r] < 2 else 0
    close(call(text, X[:, 0], X), want)
    want = X[0].copy()
    for r in range(M):
        want[r] -= want[:r][want[:r] > 0.2].sum() * 0.1
    close(call("S[i] = B[i] - 0.1*sum[k in 0:i](S[k] where S[k] > 0.2)", X[0]), want)


def test_dots_stand_in_conditions(call):
    x, k = rng.normal(size=(2, 3, 5)), rng.random((2, 3, 5)) < 0.5
    close(call("O[...] += X[...,j] where K[...,j]", x, k), np.where(k, x, 0).sum(2))


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_random_shapes_strides_and_thresholds(data):
    n, m = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 40))
    step = data.draw(st.integers(-3, 3).filter(bool))
    x, k = rng.normal(size=(n, m))[::step], (rng.random((m, n)) < 0.5).T[:, ::step]
    x = x[: k.shape[0], : k.shape[1]]
    k = k[: x.shape[0], : x.shape[1]]
    if not x.size:
        return
    want = np.where(k & (x < 1), x, 0).sum(1)
    for run in (compiled, symbolic):
        close(run("O[i] += X[i,j] where K[i,j] and X[i,j] < 1.0", x, k), want)


# Text and builder


@pytest.mark.parametrize(
    "text",
    [
        "O[i] += X[i, j] where (i < 3 or j > 4) and not (i == j or j == 2)",
        "O[i] += X[i, j] where X[i, j] > Y[j] and j != i",
        "O[i] = argmax[j](X[i, j] where M[j])",
        "O[i] += X[i, j] where True and (False or M[i])",
        "n += 1 where X[i] > t[]",
        "O[i] += X[i, j] where X[i, j] > mean[k](X[i, k] where M[k])",
    ],
)
def test_they_are_printed_as_they_are_read(text):
    program = parse(text)
    assert parse(str(program)) == program
    assert str(program) == text
    assert text in str(pk.op(text))


def test_the_builder_says_the_same():
    i, j, k = pk.indices("i j k")
    x, m, o, t = pk.tensors("X M O t")
    y = pk.tensors("Y")[0]
    for built, text in [
        (o[i].add(x[i, j]).where((i < 3) | (j > 4)), "O[i] += X[i,j] where i < 3 or j > 4"),
        (
            o[i].add(x[i, j]).where(~((i == j) & (j > 4)), j != 2),
            "O[i] += X[i,j] where not (i == j and j > 4) and j != 2",
        ),
        (o[i].add(x[i, j]).where(x[i, j] > y[j], j != i), "O[i] += X[i,j] where X[i,j] > Y[j] and j != i"),
        (o[i].set(pk.argmax(j, x[i, j], where=m[j])), "O[i] = argmax[j](X[i,j] where M[j])"),
        (o[i].add(x[i, j]).where(True), "O[i] += X[i,j] where True"),
        (o[i].add(x[i, j]).where(x[i, j] > pk.mean(k, y[k])), "O[i] += X[i,j] where X[i,j] > mean[k](Y[k])"),
        (o[()].add(1).where(x[i] > t), "O += 1 where X[i] > t[]"),
    ]:
        assert pk.op(built).program == parse(text)
    with pytest.raises(ParseError):
        bool((i < 3) | (j > 4))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("O[i] = X[i] where X[i] > 0", "O[i] = where(X[i] > 0, X[i], 0)"),
        (
            "O[i] = 2*X[i] for i in 0:5 where X[i] > Y[i] and i != 2 and Y[i] < 3",
            "O[i] = where(X[i] > Y[i] and Y[i] < 3, 2 * X[i], 0) for i in 0:5 where i != 2",
        ),
        ("O[i] = X[i] where i < 3 & i > 1", "i < 3 and i > 1"),
    ],
)
def test_what_cannot_be_says_what_to_write(text, hint):
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert f"write `{hint}`" in caught.value.hint
    parse(hint if "=" in hint else f"O[i] = X[i] where {hint}")


@pytest.mark.parametrize(
    "condition", ["i", "i + 1", "i * j < 3", "(i < j) == (j < 2)", "i < 2.5", "exp(i) > 2", "f32(i)"]
)
def test_other_conditions_are_refused(condition):
    with pytest.raises(ParseError):
        parse(f"O[i] += X[i,j] where {condition}")


def test_inputs_are_in_the_order_of_the_text():
    assert parse("O[i] += X[i,j] where M[i,j] > T[idx[j]]").inputs == ("X", "M", "T", "idx")
    assert parse("O[i] = sum[j](X[i,j] where M[j]) + B[i]").inputs == ("X", "M", "B")


def test_a_value_nobody_has_written_is_refused_in_a_condition():
    with pytest.raises(PolykerError):
        pk.op(
            "T[i] = X[i] for i in 0:3; s += X[i] where T[i+1] > 0 for i in 0:4".replace(
                " where T[i+1] > 0 for i in 0:4", " for i in 0:4 where T[i] > 0"
            )
        )(X[0])


def test_a_condition_says_which_values_bound_an_index_that_also_stands_alone(call):
    G, K = rng.normal(size=(8, 5)), rng.normal(size=3)
    want = np.zeros((10, 5))
    for y, s in np.ndindex(10, 3):
        if s <= y < s + 8:
            want[y] += G[y - s] * K[s]
    close(call("D[y,c] += G[y-s,c] * K[s] for y in 0:10 where s <= y and y - s < 8", G, K), want)
