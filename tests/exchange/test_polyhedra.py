"""Domains, ranges and accesses as data: the points that a loop over the program visits."""

import json
import warnings
from itertools import product

import islpy as isl
import pytest

import polyker as pk
from tests.fuzz.generate import generate


def points(text):
    """Return the points of an isl set without parameters."""
    found = []
    isl.Set(text).foreach_point(
        lambda p: found.append(
            tuple(p.get_coordinate_val(isl.dim_type.set, d).to_python() for d in range(p.space.dim(isl.dim_type.set)))
        )
    )
    return set(found)


def pairs(text):
    """Return the pairs (instance, element) of a relation, as tuples one after the other."""
    return points(isl.Map(text).wrap().flatten().to_str())


def of(accesses, tensor, kind="read"):
    return [a for a in accesses if a.tensor == tensor and a.kind == kind]


def test_a_convolution_visits_and_accesses_what_its_loops_do():
    op = pk.op("O[i] += X[2*i+r-1; pad=0] * W[r]  for i in 0:5")
    (s,) = op.polyhedra(pk.f32[9], pk.f32[3]).statements
    assert (s.name, s.op, s.indices, s.ranges) == ("O", "add", ("i", "r"), (("i", 0, 5), ("r", 0, 3)))
    every = set(product(range(5), range(3)))
    assert points(s.domain) == every
    (update,), (x,), (w,) = of(s.accesses, "O", "update"), of(s.accesses, "X"), of(s.accesses, "W")
    assert pairs(update.relation) == {(i, r, i) for i, r in every}
    assert pairs(x.relation) == {(i, r, 2 * i + r - 1) for i, r in every if 0 <= 2 * i + r - 1 < 9}
    assert pairs(w.relation) == {(i, r, r) for i, r in every}
    assert all(a.exact for a in s.accesses)


def test_sizes_that_stay_symbols_stand_in_ranges_and_texts():
    found = pk.op("L[i,j] += A[i,k] * A[j,k]  where j <= i").polyhedra(pk.f32["N", "K"])
    (s,) = found.statements
    assert s.ranges == (("i", 0, "N"), ("j", 0, "N"), ("k", 0, "K"))
    names = {label: name for name, label in found.names.items() if name[0] == "n"}
    fixed = isl.Set(s.domain)
    for size, value in (("N", 4), ("K", 2)):
        fixed = fixed.fix_val(isl.dim_type.param, fixed.find_dim_by_name(isl.dim_type.param, names[size]), value)
    fixed = fixed.project_out(isl.dim_type.param, 0, 2)
    assert points(str(fixed)) == {(i, j, k) for i in range(4) for j in range(i + 1) for k in range(2)}
    assert found.names[s.space] == "L" and isl.Set(found.context).is_params()
    diff = pk.op("D[i] = X[i+1] - X[i]").polyhedra(pk.f32["N"])
    assert diff.statements[0].ranges == (("i", 0, "N - 1"),)
    both = pk.op("O[] += X[i] for i in 0:5 where i < N and i >= M").polyhedra(pk.f32[9])
    assert both.statements[0].ranges == (("i", "M", "minimum(5, N)"),)


def test_statements_in_loops_have_the_order_of_the_text():
    text = """f(A: f64[N], steps) -> A:
    for t in 0:steps:
        B[i] = A[i-1] + A[i+1]  for i in 1:N-1
        A[i] = B[i]  for i in 1:N-1"""
    first, second = pk.op(text).polyhedra(pk.f64[5], steps=2).statements
    assert (first.indices, first.ranges) == (("t", "i"), (("t", 0, 2), ("i", 1, 4)))
    times = sorted((pair[2:], s.name, pair[:2]) for s in (first, second) for pair in pairs(s.order))
    wanted = [(name, (t, i)) for t in range(2) for name in "BA" for i in range(1, 4)]
    assert [(name, at) for _, name, at in times] == wanted


def test_inline_reductions_are_part_of_their_statement():
    (s,) = pk.op("P[i] = X[i] / sum[k in 0:i+1](X[k] * max[m](Y[k,m]))").polyhedra(pk.f32[3], pk.f32[3, 2]).statements
    (total,) = s.reductions
    (largest,) = total.reductions
    assert (s.name, total.name, largest.name) == ("P", "P.sum", "P.max")
    assert (total.indices, largest.indices) == (("i", "k"), ("i", "k", "m"))
    assert points(total.domain) == {(i, k) for i in range(3) for k in range(i + 1)}
    assert pairs(of(largest.accesses, "Y")[0].relation) == {
        (i, k, m, k, m) for i in range(3) for k in range(i + 1) for m in range(2)
    }
    assert pairs(of(total.accesses, "Y")[0].relation) == {
        (i, k, k, m) for i in range(3) for k in range(i + 1) for m in range(2)
    }
    assert [pairs(a.relation) for a in of(s.accesses, "X")] == [
        {(i, i) for i in range(3)},
        {(i, k) for i in range(3) for k in range(i + 1)},
    ]
    assert pairs(of(s.accesses, "Y")[0].relation) == {
        (i, k, m) for i in range(3) for k in range(i + 1) for m in range(2)
    }
    assert total.order is None


def test_what_values_decide_is_said_to_be_not_exact():
    (s,) = pk.op("E[b] = T[idx[b]]").polyhedra(pk.f32[4], pk.i32[3]).statements
    (t,), (idx,) = of(s.accesses, "T"), of(s.accesses, "idx")
    assert not t.exact and idx.exact
    assert pairs(t.relation) == set(product(range(3), range(4)))
    assert pairs(idx.relation) == {(b, b) for b in range(3)}


def test_names_that_are_words_of_isl_are_the_users_alone():
    found = pk.op("exists[i] = floord[i] + mod; exists[i] += mod for i in 0:3").polyhedra(pk.f32[3], pk.f32[()])
    assert [s.name for s in found.statements] == ["exists", "exists#2"]
    assert {a.tensor for s in found.statements for a in s.accesses} == {"exists", "floord", "mod"}
    for s in found.statements:
        isl.Set(s.domain)


def test_it_is_written_as_json():
    found = pk.op("C[i,j] += A[i,k] * B[k,j]").polyhedra(A=pk.f32[2, "K"], B=pk.f32["K", 3])
    said = json.loads(found.to_json())
    assert (said["format"], said["version"], said["names"]) == ("polyker.polyhedra", 1, dict(found.names))
    (s,) = said["statements"]
    assert s["ranges"] == [["i", 0, 2], ["j", 0, 3], ["k", 0, "K"]]
    assert s["accesses"][0] == {
        "tensor": "C",
        "kind": "update",
        "relation": found.statements[0].accesses[0].relation,
        "exact": True,
    }


def test_types_that_do_not_fit_are_refused():
    with pytest.raises(pk.ShapeError):
        pk.op("C[i,j] += A[i,k] * B[k,j]").polyhedra(pk.f32[2, 3], pk.f32[4, 5])
    with pytest.raises(pk.ArgumentError):
        pk.op("O[i] = X[i]").polyhedra(pk.f32[3], nothing=1)


def sets_of(statements):
    for s in statements:
        yield s
        yield from sets_of(s.reductions)


def test_islpy_reads_the_texts_of_random_programs():
    read = 0
    for number in range(60):
        case = generate(911, number)
        sizes = dict(case.sizes)
        types = {i.name: getattr(pk, "bool_" if i.dtype == "bool" else i.dtype)[i.shape] for i in case.inputs}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = pk.op(case.text, **(sizes if case.early else {})).polyhedra(
                    **types, **({} if case.early else sizes)
                )
            except pk.PolykerError:  # a call that is meant to be refused
                assert case.invalid
                continue
        for s in sets_of(found.statements):
            domain = isl.Set(s.domain)
            box = " and ".join(f"{lo} <= x{d} < {hi}" for d, (_, lo, hi) in enumerate(s.ranges)) or "0 = 0"
            names = ", ".join(f"x{d}" for d in range(len(s.ranges)))
            assert domain.is_subset(isl.Set(f"{{ {s.space}[{names}] : {box} }}"))
            for a in s.accesses:
                assert isl.Map(a.relation).domain().is_subset(domain)
            read += len(s.accesses)
    assert read > 150
