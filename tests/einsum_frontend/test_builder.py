"""The builder: each thing that the text can say, said in Python, gives the same Program."""

import numpy as np
import pytest

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.einsum_frontend.builder import (
    build,
    cast,
    declare,
    indices,
    is_definition,
    loop,
    program,
    sizes,
    tensors,
)
from polyker.errors import PolykerError
from polyker.errors.syntax import ReductionWarning
from polyker.ir.expr import FUNCTIONS
from polyker.ir.functions import TABLE

b, d, h, i, j, k, l, m, n, r, t, w = indices("b d h i j k l m n r t w")  # noqa: E741
H, N, M, steps = sizes("H N M steps")
A, B, C, E, I, K, L, O, P, S, T, W, X, alpha, bias, idx, s = tensors("A B C E I K L O P S T W X alpha bias idx s")  # noqa: E741

HEAT = """
heat(A: f64[N,N], steps) -> A:
    B: f64[N,N]
    for t in 0:steps:
        B[i,j] = 0.25 * (A[i-1,j] + A[i+1,j] + A[i,j-1] + A[i,j+1])  for i in 1:N-1, j in 1:N-1
        A[i,j] = B[i,j]                                              for i in 1:N-1, j in 1:N-1
"""
inner = {"i": (1, N - 1), "j": (1, N - 1)}
heat = declare(
    "heat",
    [A.typed(pk.f64, (N, N)), steps],
    [A],
    B.typed(pk.f64["N", "N"]),
    loop(
        t, 0, steps,
        B[i, j].set(0.25 * (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1])).for_(**inner),
        A[i, j].set(B[i, j]).for_(i.in_(1, N - 1), j.in_(1, N - 1)),
    ),
)  # fmt: skip

SAME = [
    ("C[i,j] += A[i,k] * B[k,j]", [C[i, j].add(A[i, k] * B[k, j])]),
    ("C[i,j] += A[i,k] * B[k,j] where j <= i", [C[i, j].add(A[i, k] * B[k, j]).where(j <= i)]),
    ("C[i,j] += abs(A[i,k] - B[j,k])", [C[i, j].add(pk.abs(A[i, k] - B[j, k]))]),
    ("C[i,j] += abs(A[i,k] - B[j,k])", [C[i, j].add(abs(A[i, k] - B[j, k]))]),
    ("C[i,j] max= A[i,k] + B[k,j]", [C[i, j].max(A[i, k] + B[k, j])]),
    ("C[i] min= A[i,k]", [C[i].min(A[i, k])]),
    ("C[i] *= A[i,k]", [C[i].mul(A[i, k])]),
    ("C[i] any= A[i,k] > 0", [C[i].any(A[i, k] > 0)]),
    ("C[i] all= not A[i,k]", [C[i].all(pk.logical_not(A[i, k]))]),
    ("O[b,n] = relu(sum[m](I[b,m] * W[n,m]) + bias[n])", [O[b, n].set(pk.relu(pk.sum(m, I[b, m] * W[n, m]) + bias[n]))]),
    ("O[h] += X[h+r-1; pad=0] * K[r] for h in 0:H", [O[h].add(X.pad(0)[h + r - 1] * K[r]).for_(h=(0, H))]),
    ("O[h] = X[h-1; pad=edge] for h in 0:H", [O[h].set(X.pad("edge")[h - 1]).for_(h=(0, H))]),
    ("O[h] = X[h-1; pad=-inf] for h in 0:H", [O[h].set(X.pad(-pk.inf)[h - 1]).for_(h=(0, H))]),
    ("L[i,j] += A[i,k] * A[j,k] where j <= i and i != 3", [L[i, j].add(A[i, k] * A[j, k]).where(j <= i, i != 3)]),
    ("L[i,j] += A[i,k] * A[j,k] where j <= i and i != 3", [L[i, j].add(A[i, k] * A[j, k]).where((j <= i) & (i != 3))]),
    ("E[b,d] += T[idx[b,l], d]", [E[b, d].add(T[idx[b, l], d])]),
    ("E[idx[b],d] = T[b,d]", [E[idx[b], d].set(T[b, d])]),
    (
        "S[b,0] = X[b,0]; S[b,t] = S[b,t-1] + X[b,t] for t in 1:N",
        [S[b, 0].set(X[b, 0]), S[b, t].set(S[b, t - 1] + X[b, t]).for_(t=(1, N))],
    ),
    (
        "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))",
        [P[i, j].set(pk.exp(X[i, j] - pk.max(k, X[i, k])) / pk.sum(l, pk.exp(X[i, l] - pk.max(k, X[i, k]))))],
    ),
    ("C[i] = sum[k in 0:i+1](X[k])", [C[i].set(pk.sum(k.in_(0, i + 1), X[k]))]),
    ("C[i] = sum[k,l in 0:3](X[k+l] where k <= i)", [C[i].set(pk.sum((k, l.in_(0, 3)), X[k + l], where=k <= i))]),
    ("s += X[i]", [s.add(X[i])]),
    ("s += X[i]", [s[()].add(X[i])]),
    ("C[...,j] += A[...,k] * B[k,j]", [C[..., j].add(A[..., k] * B[k, j])]),
    ("C[...] = alpha * A[...]", [C[...].set(alpha * A[...])]),
    ("C[i] = T[s[]] * X[i]", [C[i].set(T[s] * X[i])]),
    ("C[i] = f32(A[i]) + i8(2)", [C[i].set(pk.f32(A[i]) + cast(pk.i8, 2))]),
    ("C[i] = where(A[i] > 0, A[i], 0.0)", [C[i].set(pk.where(A[i] > 0, A[i], 0.0))]),
    ("C[i] = -1 + A[i] * -2.5 - 3j", [C[i].set(-1 + A[i] * -2.5 - 3j)]),
    ("C[i] = A[i] + (1.0 - 2j)", [C[i].set(A[i] + (1 - 2j))]),
    ("C[i] = 2 ** A[i] % 3 // 4 / 5", [C[i].set(2 ** A[i] % 3 // 4 / 5)]),
    ("C[i] = A[i] or B[i] and not A[i]", [C[i].set(pk.logical_or(A[i], pk.logical_and(B[i], pk.logical_not(A[i]))))]),
    ("C[i] = A[2*i+1] for i in 0:N//2", [C[i].set(A[2 * i + 1]).for_(i=(0, N // 2))]),
    ("C[i] = round(A[i]) * pi", [C[i].set(round(A[i]) * pk.pi)]),
    ("C[i] = A[i] * bool(1)", [C[i].set(A[i] * True)]),
    (HEAT, [heat]),
    ("for t in 0:M:\n  S[t] = X[t]", [loop(t, 0, M, S[t].set(X[t]))]),
    ("T: f32\nT[i] = X[i]", [T.typed(pk.f32), T[i].set(X[i])]),
    ("X: [N, 2*N+1]\nC[i] = X[i,j] * N for j in 0:1" .replace("=", "+=", 1), [X.typed(shape=(N, 2 * N + 1)),
      C[i].add(X[i, j] * N).for_(j=(0, 1))]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "built"), SAME, ids=[text.strip() for text, _ in SAME])
def test_both_spellings_give_the_same_program(text, built):
    assert repr(build(*built)) == repr(parse(text))
    assert build(*built) == parse(text)
    assert is_definition(built)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_there_under_its_name(name):
    names = "ABX"[: TABLE[name].arity]
    built = C[i].set(getattr(pk, name)(*(pk.tensors(x)[0][i] for x in names)))
    assert build(built) == parse(f"C[i] = {name}({', '.join(f'{x}[i]' for x in names)})")


@pytest.mark.parametrize("name", "sum prod max min mean logsumexp argmax argmin any all".split())
def test_every_reduction_is_there_under_its_name(name):
    assert build(C[i].set(getattr(pk, name)(k, A[i, k]))) == parse(f"C[i] = {name}[k](A[i,k])")


def test_numbers_of_numpy_are_literals():
    assert build(C[i].set(np.float64(2.5) * A[i])) == parse("C[i] = 2.5 * A[i]")
    assert build(C[i].set(A[i] * np.int32(-3))) == parse("C[i] = A[i] * -3")
    assert build(C[i].set(np.float32(0.5) + A[i])) == parse("C[i] = 0.5 + A[i]")
    assert build(C[i].set(A[i + np.int64(1)])) == parse("C[i] = A[i+1]")


def test_expressions_and_statements_print_as_text():
    assert repr(A[i, k] * (B[k, j] + 1)) == "A[i, k] * (B[k, j] + 1)"
    assert repr(C[i].add(A[i, k]).for_(k=(0, N)).where(k <= i)) == "C[i] += A[i, k] for k in 0:N where k <= i"


def test_an_access_is_left_as_it_is():
    read = A[i, k]
    statement = C[i].add(read)
    statement.where(k <= i)
    assert repr(read) == "A[i, k]"
    assert repr(statement) == "C[i] += A[i, k]"


REFUSED = [
    (lambda: bool(i < j), "PK149"),
    (lambda: 0 <= i < j, "PK149"),
    (lambda: A[i] and B[i], "PK149"),
    (lambda: A["i"], "PK150"),
    (lambda: A[0:3], "PK150"),
    (lambda: A[None], "PK150"),
    (lambda: A[i] + np.ones(3), "PK150"),
    (lambda: A[i] + "x", "PK150"),
    (lambda: A[i] + i.in_(0, 3), "PK150"),
    (lambda: A[i].astype("f33"), "PK150"),
    (lambda: A[i].astype(object), "PK150"),
    (lambda: A.typed("<f4"), "PK150"),
    (lambda: A.typed(np.datetime64), "PK150"),
    (lambda: A[..., ...], "PK126"),
    (lambda: A.pad("egde"), "PK125"),
    (lambda: A.pad(None), "PK150"),
    (lambda: A.pad(0)[i].set(1), "PK138"),
    (lambda: C.__setitem__(i, A[i]), "PK150"),
    (lambda: C[i].set(A[i]).for_(i=3), "PK150"),
    (lambda: C[i].set(A[i]).for_(i), "PK150"),
    (lambda: pk.max(A[i], B[i]), "PK124"),
    (lambda: pk.sum(A[i]), "PK124"),
    (lambda: pk.sum((), A[i]), "PK150"),
    (lambda: pk.exp(A[i], 2), "PK123"),
    (lambda: loop(t, 0, 3), "PK119"),
    (lambda: loop("t", 0, 3, C[i].set(A[i])), "PK150"),
    (lambda: loop(t, 0, 3, A[i]), "PK150"),
    (lambda: declare("f", [3], [C], C[i].set(A[i])), "PK150"),
    (lambda: declare("f", [A], [steps], C[i].set(A[i])), "PK150"),
    (lambda: build(), "PK119"),
    (lambda: build(A.typed(pk.f32)), "PK119"),
    (lambda: build(A[i]), "PK150"),
    (lambda: build(C[i].set(A[i]), heat), "PK150"),
    (lambda: build(C[i].set(A[i, k])), "PK130"),
    (lambda: indices("i,j"), "PK146"),
    (lambda: indices(""), "PK146"),
    (lambda: tensors(["A"]), "PK146"),
    (lambda: A[i] * complex(1, np.inf), "PK150"),
]


@pytest.mark.parametrize(("make", "code"), REFUSED)
def test_what_is_no_expression_is_refused(make, code):
    with pytest.raises(PolykerError, match=code):
        make()


def test_an_augmented_assignment_says_what_to_write():
    with pytest.raises(PolykerError, match=r"C\[...\].add\(value\)"):
        C[i] += A[i]


def test_a_tensor_is_no_sequence():
    for sequence in (A, i, A[i]):
        with pytest.raises(TypeError):
            list(sequence)
        with pytest.raises(TypeError):
            hash(sequence)


def test_the_definition_of_an_operator_is_told_from_other_values():
    assert is_definition((C[i].set(A[i]), loop(t, 0, 3, S[t].set(1))))
    assert is_definition((heat,))
    assert not is_definition(())
    assert not is_definition((A[i],))
    assert not is_definition(("C = 1",))
    assert program((C[i].set(A[i]),), sizes={"s": 2}) == parse("C[i] = A[i]")


def test_sizes_without_a_shape_or_parameter_are_keywords():
    assert parse(
        "f(A: f32[N, M+1], n) -> C:\n  C[i] = A[i,j] for i in 0:n, j in M:K".replace("=", "+=", 1)
    ).keywords == ("M", "K")
    assert parse("C[i] = A[i] for i in 0:H").keywords == ("H",)
    assert build(heat).keywords == ()


def test_errors_and_warnings_of_a_built_program_show_their_place_in_its_text():
    with pytest.raises(PolykerError) as info:
        build(C[i].set(A[i]), P[i, j].set(A[i] * B[k, j]))
    assert "  P[i, j] = A[i] * B[k, j]\n                     ^\n" in str(info.value)
    with pytest.warns(ReductionWarning, match=r"\^\^\^\^") as caught:
        made = build(O[n].add(A[n, k] * X[k] + B[n]))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert made.source.text == str(made)


def test_a_program_too_long_for_a_text_can_be_built():
    long = A[i]
    for _ in range(20_000):
        long = long + A[i]
    made = build(C[i].set(long))
    assert made.source is None
    (statement,) = made.body
    assert len(statement.expr.args) == 20_001
