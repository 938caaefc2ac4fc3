"""Each error of a call: when it is raised, its class, and the values that it shows."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.errors import CATALOGUE, PolykerError
from polyker.errors import calls as catalogue
from polyker.record.status import HOST_RAN, HOST_RETURNED
from polyker.runtime.calls import meaning

MM = "C[i,j] += A[i,k] * B[k,j]"
ONES = np.ones((2, 2))
ODD = np.lib.stride_tricks.as_strided(np.ones(9), (2, 2), (8, 8))
FROZEN = np.frombuffer(bytes(32)).reshape(2, 2)


def mm(*args: Any, **named: Any) -> Any:
    return pk.op(MM)(*args, **named)


def kernel(*args: Any, **named: Any) -> Any:
    return pk.op(MM).compile(ONES, ONES)(*args, **named)


class Gradient:
    requires_grad = True


class Interface:
    __cuda_array_interface__ = {"shape": (2, 2)}  # noqa: RUF012


class Library:
    __array_interface__ = ONES.__array_interface__

    def __dlpack__(self, **options: Any) -> Any:
        return ONES.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Copied(Library):
    def __dlpack__(self, **options: Any) -> Any:
        return ONES.copy().__dlpack__(**options)


class Lost(Library):
    def __array_namespace__(self) -> Any:
        raise RuntimeError("no namespace")


def two(out: Any) -> Any:
    return pk.op("s[i] = x[i]; t[i] = x[i]")(np.ones(4), out=out)


def broken(operator: pk.Operator) -> Any:
    """Call an operator whose program no front end makes, so that the compiler stumbles over it."""
    from polyker.structs import replace

    (statement,) = operator.program.statements()
    return pk.Operator(replace(operator.program, body=(replace(statement, op="sideways"),)))(ONES, ONES)


BLOCK = np.ones(6)
SCRATCH = "S[0,j] = A[j]; S[t,j] = S[t-1,j] + A[j] for t in 1:50; y[j] += S[t,N-1-j] for j in 0:N"


def scratch() -> Any:
    with pk.options(scratch_bytes=8):
        return pk.op(SCRATCH)(np.ones(100), N=100)


CASES: list[tuple[str, Callable[[], Any], str]] = [
    ("PK701", lambda: mm(ONES), "`B` is missing"),
    ("PK702", lambda: mm(ONES, ONES, ONES), "3 arguments"),
    ("PK703", lambda: mm(ONES, Q=ONES), "`Q`"),
    (
        "PK703",
        lambda: pk.op(MM).compile(ONES, ONES, thread=1),
        "`thread`(.|\\n)*arguments: `A`, `B`; sizes: none; options.*: .*threads",
    ),
    ("PK704", lambda: mm(ONES, A=ONES), "`A` is given twice"),
    ("PK705", lambda: mm(ONES, Library()), "numpy array and `B` a tests array"),
    ("PK706", lambda: mm(ONES, ONES.astype(object)), r"`B` of shape \(2, 2\) has the element type object"),
    ("PK707", lambda: kernel(Interface(), ONES), "`A` lies in the memory of a CUDA device"),
    ("PK708", lambda: mm(ONES, Gradient()), "`B` requires grad"),
    ("PK709", lambda: mm(ONES, "text"), "`B` is a str"),
    ("PK710", lambda: mm(ONES, [[1], [1, 2]]), "`B`, a list, cannot be read"),
    ("PK711", lambda: mm(ONES, np.ma.array(ONES)), "`B` is a masked array"),
    ("PK712", lambda: pk.op("y[i] = a * x[i]")(1 << 99, np.ones(2)), "`a` = 633825300114114700748351602688"),
    ("PK713", lambda: pk.op("y[i] = a * x[i]")(300, np.ones(2, "i1")), "`a` = 300 meets integers of a type that holds"),
    ("PK720", lambda: mm(ONES, ONES, out=[1]), "`C` is a int"),
    ("PK721", lambda: mm(ONES, ONES, out=np.ones(3)), r"`C` has shape \(3,\), the result has \(2, 2\)"),
    ("PK722", lambda: mm(ONES, ONES, out=np.ones((2, 2), "f4")), "type f32, the result has f64"),
    ("PK723", lambda: mm(ONES, ONES, out=FROZEN), "`C` is read-only"),
    ("PK724", lambda: mm(ONES, ONES, out=ODD), r"overlaps itself: shape \(2, 2\), strides \(8, 8\)"),
    ("PK725", lambda: two((BLOCK[:4], BLOCK[2:])), "`s` and `out` for `t` overlap"),
    ("PK726", lambda: two((BLOCK,)), "a tuple of 1, the operator has the outputs `s`, `t`"),
    ("PK727", lambda: mm(ONES, ONES, out=Copied()), "`C`, a Copied, cannot be written in place: it gives other memory"),
    ("PK728", lambda: mm(Lost(), Lost()), "an array of tests, as the Lost given is: RuntimeError: no namespace"),
    ("PK730", lambda: kernel(np.ones((2, 3)), np.ones((3, 2))), r"`A` has shape \(2, 3\)"),
    ("PK731", lambda: kernel(ONES, ONES.astype("f4")), r"`B` is f32\[2, 2\], the kernel was compiled for f64"),
    ("PK732", lambda: pk.op(MM).compile(pk.f64[2, "K"], pk.f64["K", 2])(ONES, np.ones((3, 2))), "`K` is 2 by"),
    ("PK733", lambda: pk.op("y[i] = x for i in 0:N").compile(1.0)(1.0), "`N` is not known"),
    ("PK734", lambda: pk.op("y[i] = x for i in 0:N")(1.0, N=-3), "`N` is -3"),
    (
        "PK735",
        lambda: pk.op("y[i] = x for i in 0:N").compile(1.0)(1.0, N=2**61),
        r"`y` of shape \(2305843009213693952,\)",
    ),
    ("PK736", scratch, "temporaries `S` need 40000 bytes, more than 8"),
    ("PK737", lambda: pk.op(MM, n=3), "`n` is no size"),
    ("PK740", lambda: pk.op(MM).compile(ONES, ONES, timeout=-1), "`timeout` is -1"),
    ("PK741", lambda: pk.options(speed=1).__enter__(), "no option `speed`"),
    ("PK742", lambda: pk.op(MM).compile(ONES, ONES, target="wasm32")(ONES, ONES), "`wasm32` cannot run here"),
    ("PK743", lambda: pk.op(MM).compile(np.ones((2, 9)), np.ones((9, 2)), timeout=1e-9), "longer than 1e-09 s"),
    ("PK744", lambda: pk.op(3), "not from int"),
    ("PK745", lambda: pk.op(MM).compile("f64[2", "f64[2,2]"), r"`A` is 'f64\[2'"),
    ("PK740", lambda: pk.op(MM).compile(ONES, ONES, schedule="fast"), "`schedule` is 'fast'"),
    ("PK740", lambda: pk.op(MM).compile(ONES, ONES, threads=0), "`threads` is 0"),
    ("PK749", lambda: pk.op(MM).infer(pk.f64[2.5, 2], pk.f64[2, 2]), "2.5 is no extent"),
    ("PK749", lambda: pk.op(MM).compile(pk.f64["M-1", "K"], pk.f64["K", 2]), "'M-1' is no extent"),
    ("PK745", lambda: pk.op(MM).compile("f64[M-1,K]", "f64[K,2]"), r"`A` is 'f64\[M-1,K\]'"),
    ("PK746", lambda: pk.op(MM).compile(ONES, ONES).source("nothing"), "`nothing`"),
    ("PK747", lambda: raised(meaning({}, 99)), "status 99"),
    ("PK748", lambda: pk.set_parallel_for("threads"), "parallel_for is a str"),
    ("PK750", lambda: raised(meaning({}, HOST_RAN | 1 << 16 | 4)), "returned when 1 of 4 indices had run(\n|$)"),
    ("PK751", lambda: raised(meaning({}, HOST_RETURNED | 7)), "returned 7"),
    ("PK752", lambda: pk.set_parallel_for(1, "user"), "`user` of parallel_for is a str"),
    ("PK753", lambda: pk.Schedule.from_json("{}", None), "`op` is a NoneType, not an operator"),
    ("PK760", lambda: pk.einsum("i->i->i", [1]), "one proper '->'"),
    ("PK761", lambda: pk.einsum("i,i", [1]), "2 subscript terms are given for 1 operands"),
    ("PK762", lambda: pk.einsum("ij", [1]), "operand 0 has 1 dimensions"),
    ("PK763", lambda: pk.einsum("ij,ij", ONES, np.ones((2, 3))), "label 'j', has extent 3, elsewhere it is 2"),
    ("PK764", lambda: pk.einsum("i", [1], bad=1), "'bad'"),
    ("PK765", lambda: pk.einsum("i->i", [1.5], dtype="i4"), "cannot be cast from float64 to int32"),
    ("PK766", lambda: pk.einsum("i", [1], dtype="bad"), "dtype"),
    ("PK767", lambda: pk.einsum("...,...", ONES, np.ones(3)), r"\(2, 2\), \(3,\)"),
    ("PK768", lambda: pk.einsum("i" * 99999, ONES), "99999, the limit is 65536"),
    ("PK769", lambda: pk.einsum("i,i,i", *[ONES[0]] * 3, optimize=["einsum_path", (0, 1)]), "1 more operands"),
    ("PK799", lambda: broken(pk.op(MM)), "please report it with the operator"),
]


def raised(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(("code", "call", "text"), CASES, ids=[c for c, _, _ in CASES])
def test_each_code_is_raised_with_its_class_and_values(code: str, call: Callable[[], Any], text: str) -> None:
    with pytest.raises(PolykerError, match=text) as caught:
        call()
    assert caught.value.code == code
    assert type(caught.value) is CATALOGUE[code].cls
    assert code in str(caught.value)


def test_every_code_of_the_catalogue_has_its_case() -> None:
    codes = {value for name, value in vars(catalogue).items() if name.isupper() and str(value).startswith("PK")}
    assert codes == {code for code, _, _ in CASES}
    assert codes == {code for code in CATALOGUE if code.startswith("PK7")}


def test_argument_errors_are_type_errors_and_value_errors() -> None:
    for kind in (TypeError, ValueError):
        with pytest.raises(kind):
            mm(ONES)


def test_a_guard_s_values_are_shown_at_its_span() -> None:
    guard = SimpleNamespace(code="PK733", values=(("size", "N"),), span=None)
    assert "`N` is not known" in str(meaning({1: guard}, 1))
