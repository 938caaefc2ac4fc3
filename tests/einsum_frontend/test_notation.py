"""Every example of the notation parses, and means what it says."""

import pytest

from polyker.einsum_frontend import parse

# text, inputs, outputs, temporaries, sizes
EXAMPLES = [
    ("C[i,j] += A[i,k] * B[k,j]  # matrix product", "A B", "C", "", ""),
    ("D[i,j] += abs(A[i,k] - B[j,k])", "A B", "D", "", ""),
    ("C[i,j] max= A[i,k] + B[k,j]", "A B", "C", "", ""),
    ("O[b,n]  = relu(sum[m](I[b,m] * W[n,m]) + bias[n])", "I W bias", "O", "", ""),
    ("O[n,f,h,w] += X[n,c,2*h+r,2*w+s] * K[f,c,r,s]", "X K", "O", "", ""),
    ("O[h] += X[h+r-1; pad=0] * K[r]  for h in 0:H", "X K", "O", "", "H"),
    ("L[i,j] += A[i,k] * A[j,k]  where j <= i", "A", "L", "", ""),
    ("E[b,d] += T[idx[b,l], d]", "T idx", "E", "", ""),
    ("S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:N", "X", "S", "", "N"),
    ("P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))", "X", "P", "", ""),
    (
        """
        conv(X: f32[N,C,H,W], K: f32[F,C,3,3]) -> O:               # declared
            O[n,f,h,w] += X[n,c,h+r-1,w+s-1; pad=0] * K[f,c,r,s]  for h in 0:H, w in 0:W
        """,
        "X K",
        "O",
        "",
        "N C H W F",
    ),
    (
        """
        heat(A: f64[N,N], steps) -> A:                             # in-out, and a time loop
            for t in 0:steps:
                B[i,j] = 0.25 * (A[i-1,j] + A[i+1,j] + A[i,j-1] + A[i,j+1])  for i in 1:N-1, j in 1:N-1
                A[i,j] = B[i,j]                                              for i in 1:N-1, j in 1:N-1
        """,
        "A",
        "A",
        "B",
        "N steps",
    ),
    ("s += x[i]*y[i]", "x y", "s", "", ""),
    ("s[] += x[i]*y[i]", "x y", "s", "", ""),
    ("H[idx[i]] += w[i]", "idx w", "H", "", ""),
    ("Y[...,j] += X[...,k] * W[k,j]", "X W", "Y", "", ""),
    ("C[i] = sum[k in 0:i+1](X[k]) + sum[k](X[k] where k <= i)", "X", "C", "", ""),
    ("C[i] = alpha * A[i] + beta", "alpha A beta", "C", "", ""),
]


@pytest.mark.parametrize(("text", "inputs", "outputs", "temporaries", "sizes"), EXAMPLES)
def test_every_example_of_the_notation_parses_and_prints(text, inputs, outputs, temporaries, sizes):
    program = parse(text)
    assert program.inputs == tuple(inputs.split())
    assert program.outputs == tuple(outputs.split())
    assert program.temporaries == tuple(temporaries.split())
    assert program.sizes == tuple(sizes.split())
    assert parse(str(program)) == program
