"""What a bare name is: an index, a size, a 0-d tensor, a constant or a new 0-d input."""

import pytest

from polyker.einsum_frontend import parse
from polyker.einsum_frontend.builder import build, indices, sizes, tensors
from polyker.errors import PolykerError
from polyker.ir.expr import IndexExpr, Literal, Read, SizeExpr, walk


def kinds(text, given=()):
    """The names of a program: indices, sizes, tensors read without subscripts."""
    program = parse(text, sizes=given)
    found = {"indices": set(), "sizes": set(program.sizes), "scalars": set()}
    for statement in program.statements():
        for expr in walk(statement.expr):
            match expr:
                case IndexExpr(name=name):
                    found["indices"].add(name)
                case Read(tensor=name, subscripts=()):
                    found["scalars"].add(name)
    return {key: " ".join(sorted(value)) for key, value in found.items()}


@pytest.mark.parametrize(
    ("text", "indices_", "sizes_", "scalars"),
    [
        # an index stands alone in a subscript, or is given a range
        ("C[i] = A[i]", "i", "", ""),
        ("C[i] += A[2*i+r]*W[r]", "i r", "", ""),
        ("C[i] += A[2*i+r] for r in 0:3", "i r", "", ""),
        ("C[2*i] = A[i]", "i", "", ""),
        ("C[i] = sum[k](A[i+k])", "i k", "", ""),
        ("for t in 0:3:\n  C[i] = A[t,i]", "i t", "", ""),
        # or on both sides of one statement, or on the right of a reduction
        ("O[i+j] = X[2*i] * Y[3*j]", "i j", "", ""),
        ("s += X[2*i]", "i", "", ""),
        ("O[i] += Y[i] * X[i+r]", "i r", "", ""),
        # a name in a bound or condition that is no index is a size
        ("O[h] = X[h] for h in 0:H", "h", "H", ""),
        ("O[i] = X[i] where i < N", "i", "N", ""),
        ("O[i] = sum[k in 0:M](X[k+i])", "i k", "M", ""),
        ("for t in 0:T:\n  C[i] = A[t,i]", "i t", "T", ""),
        ("O[i] = X[i] for i in 0:N-1 where i % M != 0", "i", "M N", ""),
        # and in a subscript
        ("R[i] = X[N-1-i]  for i in 0:N", "i", "N", ""),
        ("R[i] = X[N-1-i]", "i", "N", ""),
        ("C[i] = A[i] - A[N-1]", "i", "N", ""),
        ("C[N-1] = 0; C[i] = A[i] for i in 0:N-1", "i", "N", ""),
        ("O[N-1-i] = X[N-1-i] for i in 0:N", "i", "N", ""),
        ("O[i] += X[N-1-i] * Y[i] for i in 0:N", "i", "N", ""),
        # in an expression: an index, a size, a 0-d tensor, else a new 0-d input
        ("C[i] = i * N + s  for i in 0:N", "i", "N", "s"),
        ("s += X[i]; C[i] = X[i] / s", "i", "", "s"),
        ("C[i] = A[i] + N", "i", "", "N"),
        ("f(A: f32[N]) -> C:\n  C[i] = A[i] / N", "i", "N", ""),
        ("f(A, n) -> C:\n  C[i] = A[i, n]", "i", "n", ""),
        ("f(A, n) -> C:\n  C[i] = n * A[i]", "i", "", "n"),
        ("T: f32[N]\nC[i] = T[i] * N", "i", "N", ""),
    ],
)
def test_a_bare_name_is_what_the_notation_says(text, indices_, sizes_, scalars):
    assert kinds(text) == {"indices": indices_, "sizes": sizes_, "scalars": scalars}


def test_a_size_given_by_value_is_a_size_wherever_it_stands():
    assert kinds("O[i] += X[s*i+r] * W[r]", {"s"}) == {"indices": "i r", "sizes": "s", "scalars": ""}
    assert kinds("O[i] = X[s]*Y[i]", {"s"})["sizes"] == "s"
    assert kinds("O[i] = X[i] * s", {"s", "unused"}) == {"indices": "i", "sizes": "s", "scalars": ""}


def test_constants_are_no_inputs():
    (statement,) = parse("C[i] = pi * A[i]").body
    assert statement.expr.args[0] == Literal(3.141592653589793)


def test_inputs_stand_in_the_order_of_their_first_character():
    assert parse("H[idx[i]] += a * w[i]").inputs == ("idx", "a", "w")
    assert parse("C[i] = T[U[V[i]], W[i]] + a").inputs == ("T", "U", "V", "W", "a")
    assert parse("C[i] = B[i]; D[i] = A[i] * C[i] + B[i]").inputs == ("B", "A")
    assert parse("C[i] = z + sum[k](y[k] * x)").inputs == ("z", "y", "x")


def test_outputs_are_what_only_their_own_statements_read():
    program = parse("T[i] = A[i]; S[0] = T[0]; S[i] = S[i-1] + T[i] for i in 1:N; U[i] = T[i]")
    assert (program.outputs, program.temporaries) == (("S", "U"), ("T",))


def test_a_declaration_gives_parameters_outputs_and_temporaries():
    program = parse(
        """
        step(A: f32[N, M], alpha, steps, B: [N]) -> C: f64, A:
            T: f32[N, M+1]
            for t in 0:steps:
                T[i,j] = alpha * A[i,j]
                A[i,j] = T[i,j] + B[i]
            C[i] += A[i,j]
        """
    )
    assert program.name == "step"
    assert program.parameters == ("A", "alpha", "steps", "B")
    assert program.inputs == ("A", "alpha", "B")
    assert program.outputs == ("C", "A")
    assert program.temporaries == ("T",)
    assert program.sizes == ("N", "M", "steps")
    assert str(program.declaration("T").shape[1].args) == str((SizeExpr("M"), Literal(1)))
    assert program.declaration("B").dtype is None
    assert program.declaration("C").shape is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("C[i] = A[i] for N in 0:3 where i < N", None),  # an index without use is no error here
        ("f(A: f32[n]) -> C:\n  C[i] = sum[n](A[n])", "PK134"),
        ("A[i] = B[i] for i in 0:A", "PK135"),
        ("C[i] = A[i] + k; D[i] = B[i,k] * C[i]", "PK132"),
        ("C[i] = A[i] + k; D[i] += B[i,k] * C[i]", "PK132"),
        ("C[i] = A[i]  for i in 0:k; D[i] += B[i,k] * C[i]", "PK132"),
        ("C[i] = A[i] for i in 0:3 where k < 2; D[i] += B[i,k] * C[i]", "PK132"),
        ("C[k] = sum[k](A[k])", "PK133"),
        ("C[i] = sum[k](A[k] * max[k](B[k]))", "PK133"),
        ("C[i] = A[i] * sum[i](A[i])", "PK133"),
        ("for t in 0:3:\n  for t in 0:3:\n    C[t] = 1", "PK133"),
        ("for t in 0:3:\n  C[t] = 1 for t in 0:3", "PK133"),
        ("for t in 0:3:\n  C[t] = sum[t](A[t])", "PK133"),
        ("C[i] = sum[k, k](A[k])", "PK136"),
        ("C[i] = sum[k in 0:k](A[k])", "PK147"),
        ("C[i] = sum[k](A[i,k]) + sum[k](B[i,k])", None),
        ("C[i] = A[i] for i in 0:i", "PK147"),
        ("f(A, A) -> C:\n  C[i] = A[i]", "PK136"),
        ("f(A) -> C, C:\n  C[i] = A[i]", "PK136"),
        ("f(A: f32) -> C:\n  A: f64\n  C[i] = A[i]", "PK136"),
        ("T: f32[3]\nC[i] = A[i]", "PK139"),
        ("f(A) -> C:\n  T: f32[3]\n  C[i] = A[i]", "PK139"),
        ("f(A) -> A:\n  C[i] = A[i]", "PK139"),
        ("f(A: f32[N], n) -> C:\n  C[i] = A[i]", "PK140"),
        ("f(A) -> C:\n  C[i] = A[i] + b", "PK143"),
        ("A[i] = A[i] + 1", None),
        ("for t in 0:3:\n  A[t] = B[t-1]; B[t] = X[t]; C[t] = A[t]", None),
        ("C[i] = D[i] for i in 0:3\nfor t in 0:3:\n  D[t] = X[t]", "PK142"),
    ],
)
def test_names_used_against_their_kind_are_refused(text, code):
    if code is None:
        parse(text)
        return
    with pytest.raises(PolykerError, match=code):
        parse(text)


def test_the_builder_takes_names_as_they_were_made():
    i, n = indices("i n")
    (N,) = sizes("N")
    R, X, s = tensors("R X s")
    assert build(R[i].set(X[N - 1 - i])) == parse("R[i] = X[N-1-i]")
    assert build(R[i].set(X[i] * N)) == parse("R[i] = X[i] * N", sizes={"N"})
    with pytest.raises(PolykerError, match="PK130"):
        build(R[i].set(X[n - 1 - i]))
    with pytest.raises(PolykerError, match="PK134"):
        build(R[i].set(X[i] * n), s.set(X[sizes("n")[0]]))
