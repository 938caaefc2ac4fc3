"""The how-to pages: what they add works in every part, from their blocks alone."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.gpu.support import HAS_COMPILER
from tests.how_to import ROOT, applied, run

PAGES = ROOT / "docs" / "how_to"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Return what gives the copy of the package of a page, and its session."""
    made = {}

    def of(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            made[name] = folder, applied(PAGES / f"{name}.md", folder)
        return made[name]

    return of


# That of a processor is a file and no code: tests/target/test_facts.py takes it from its page.
OF_CODE = [p.stem for p in sorted(PAGES.glob("*.md")) if "```{code-block} python" in p.read_text()]


@pytest.mark.parametrize("name", OF_CODE)
def test_the_session_of_a_page_is_true(copy, name):
    folder, session = copy(name)
    assert "assert" in session
    run(folder, session)


FUNCTION = """
import numpy as np
import polyker as pk
from polyker.einsum_frontend import parse
from polyker.reference import interpret

def mish(x):
    return x * np.tanh(np.log1p(np.exp(x)))

def inputs(*shape):
    values = np.random.default_rng(len(shape)).normal(0, 8, shape)
    values.flat[:4] = [0.0, -0.0, 40, -40][: values.size]
    return values

TEXTS = {
    "O[i] = mish(X[i])": ((1,), (7,), (64,), (1003,)),
    "O[j,i] = 2 * mish(X[i,j]) + 1": ((3, 5), (17, 33)),
    "O[i] = sum[j](mish(X[i,j]))": ((1, 9), (20, 40)),
}

def check(targets):
    for text, shapes in TEXTS.items():
        for shape in shapes:
            for kind, error in (("f4", 4e-6), ("f8", 1e-14)):
                x = inputs(*shape).astype(kind)
                wanted = mish(x.astype("f8"))
                if len(shape) == 2:
                    wanted = 2 * wanted.T + 1 if "2 *" in text else wanted.sum(1)
                least = error * np.abs(mish(x.astype("f8"))).max()
                for target in targets:
                    k = pk.op(text).compile(X=x, target=target)
                    found = k(X=x)
                    assert found.dtype == x.dtype
                    np.testing.assert_allclose(found, wanted, rtol=error, atol=least, err_msg=f"{text} {shape} {target}")
                if x.size < 100:
                    (found,) = interpret(parse(text), {"X": x})
                    np.testing.assert_allclose(found, wanted, rtol=error, atol=least, err_msg=f"{text} {shape}")
"""


def test_a_function_that_is_a_composition_runs_on_processors_and_in_the_interpreters(copy):
    run(
        copy("add_a_function")[0],
        FUNCTION
        + """
check(["cpu", "cpu:x86-64-v2"])
text = pk.op("O[i] = mish(X[i])").compile(X=pk.f32[64]).source("llvm")
assert text.count("@pk.exp.f32.v") > 1 and text.count("@pk.tanh.f32.v") > 1, "no vector code"
for kind in ("f2", "f4"):  # by NumPy, as the Kernel IR means it
    from tests.codegen.interpret_operations import apply
    from polyker.ir import dtypes as dt
    x = inputs(50).astype(kind)
    np.testing.assert_allclose(apply("mish", [x], dt.from_numpy(x.dtype)), mish(x.astype("f8")), rtol=1e-3, atol=1e-3)
""",
    )


@pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler for the simulator")
def test_a_function_that_is_a_composition_runs_in_the_simulator(copy):
    run(copy("add_a_function")[0], FUNCTION + "check(['cuda-sim'])")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_a_function_that_is_a_composition_compiles_for_a_gpu(copy, tmp_path):
    written = run(
        copy("add_a_function")[0],
        """
import polyker as pk
print(pk.op("O[i] = mish(X[i]); P[i] = mish(Y[i])").compile(X=pk.f32[64], Y=pk.f64[64], target="cuda:sm_90a").source("cuda"))
""",
    )
    assert "pk_mish(" in written
    source = tmp_path / "kernel.cu"
    source.write_text(written)
    found = subprocess.run(["nvcc", "-arch=sm_90a", "-ptx", "-o", tmp_path / "kernel.ptx", source], capture_output=True)
    assert found.returncode == 0, found.stderr.decode()


def test_a_composition_costs_what_its_operations_cost_and_is_called_by_its_name(copy):
    run(
        copy("add_a_function")[0],
        """
import polyker as pk
from polyker.cost.plan import HEAVY
from polyker.errors import DTypeError, ParseError
from polyker.ir.functions import TABLE, cost_of

parts = [cost_of(op) for op in ("exp", "log1p", "tanh", "mul")]
assert cost_of("mish").least == sum(c.least for c in parts) and cost_of("mish").usual == sum(c.usual for c in parts)
assert "mish" in HEAVY and TABLE["mish"].transcendental
assert "mish" in pk.__dir__()
for text, types, error in (
    ("O[i] = mish(X[i], 2)", pk.f32[3], ParseError),
    ("O[i] = mish(X[i])", pk.c64[3], DTypeError),
    ("O[i] = mishh(X[i])", pk.f32[3], ParseError),
):
    try:
        pk.op(text).infer(types)
    except error as raised:
        assert "mish" in str(raised), raised
    else:
        raise AssertionError(text)
assert pk.op("O[i] = mish(X[i])").infer(pk.i8[3]).dtype == pk.f16  # integers become floats, as of exp
assert "mish" in pk.op("O[i] = mish(X[i])").compile(X=pk.f32[9]).explain().__str__()
""",
    )


INSTRUCTION = """
from polyker.structs import replace

import numpy as np
import polyker as pk
from polyker.codegen.llvm.jit.detect import target

TEXT = "C[i,j] += i32(A[i,k]) * i32(B[k,j])"

def inputs(m, n, k, kinds=("i1", "i1")):
    rng = np.random.default_rng(m + n + k)
    ends = [np.iinfo(t) for t in kinds]
    return [rng.integers(e.min, e.max, s, dtype=t, endpoint=True) for e, s, t in zip(ends, ((m, k), (k, n)), kinds)]

SHAPES = (1, 1, 1), (3, 5, 7), (16, 16, 16), (33, 40, 65), (64, 64, 64)
"""


def test_results_are_numpys_where_there_is_a_row_more(copy):
    run(
        copy("add_an_instruction")[0],
        INSTRUCTION
        + """
for m, n, k in SHAPES:
    for kinds in (("i1", "i1"), ("u1", "i1"), ("i2", "i2"), ("u1", "u1")):
        a, b = inputs(m, n, k, kinds)
        wanted = (a.astype("i8") @ b.astype("i8")).astype("i4")
        for name in ("cpu", "cpu:x86-64-v3"):
            assert (pk.op(TEXT).compile(A=a, B=b, target=name)(A=a, B=b) == wanted).all(), (m, n, k, kinds, name)
""",
    )


def test_the_row_decides_on_a_processor_that_has_the_instruction(copy):
    run(
        copy("add_an_instruction")[0],
        INSTRUCTION
        + """
from polyker.codegen.llvm.emit import builder_for
from polyker.codegen.llvm.dot import dot
from polyker.codegen.llvm.text import Reg
from tests.codegen.interpret_operations import apply
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import i32
from polyker.ir.layout import DENSE
from polyker.poly.binding.bind import bind
from polyker.ir.typed_printing import print_typed
from polyker.pipeline import program as programs
from polyker.pipeline.driver import Run
from polyker.pipeline.passes import At

has_it = replace(target("cpu:x86-64-v3"), features="+avxvnniint8", dot=4)
typed = bind(parse(TEXT), {"A": pk.i8[64, 64], "B": pk.i8[64, 64]})
run = Run(At(has_it, (DENSE,) * 3), everywhere=True)
for one in programs.FIRST + programs.CPU:
    typed = run.one(one, typed)
assert "dot4_signed(" in print_typed(typed), print_typed(typed)

b = builder_for(has_it)
x, y, total = (Reg(f"%{n}", "i32", 20, 0) for n in "xyz")
dot(b, "dot4_signed", x, y, total)
assert {n for n in b.declarations if "dpbssd" in n} == {"llvm.x86.avx2.vpdpbssd.256", "llvm.x86.avx2.vpdpbssd.128"}

a, c = (np.random.default_rng(s).integers(-128, 127, (31, 4), dtype="i1", endpoint=True) for s in (1, 2))
found = apply("dot4_signed", [a.view("i4")[:, 0], c.view("i4")[:, 0]], i32)
assert (found == (a.astype("i8") * c.astype("i8")).sum(1)).all()
""",
    )


def test_what_has_not_the_instruction_takes_the_parts_out(copy):
    run(
        copy("add_an_instruction")[0],
        """
import numpy as np
from polyker.codegen.ir.kernel import Load, Op
from tests.codegen.interpret import run as interpret
from polyker.ir.dtypes import i32
from tests.codegen.support import check_same
from tests.codegen.test_dot import elementwise, elements

x, y = elements(np.int8, 1), elements(np.int8, 2)
wanted = (x.astype("i8") * y.astype("i8")).sum(1)
for lanes in (1, 4, 6, 8, 16, 32):
    kernel = elementwise(
        lambda at: Op("dot4_signed", (Load("A", (at,), i32), Load("B", (at,), i32)), i32), {"A": i32, "B": i32}, i32, lanes
    )
    arrays = {"A": x.view("i4")[:, 0], "B": y.view("i4")[:, 0], "R": np.zeros(len(x), "i4")}
    sizes = {"N": len(x), "M": len(x)}
    interpret(kernel, plain := {n: v.copy() for n, v in arrays.items()}, sizes)
    assert (plain["R"] == wanted).all(), lanes
    for name in ("cpu", "cpu:x86-64-v2"):
        check_same(kernel, arrays, sizes, name)
""",
    )


def test_a_pass_changes_no_result(copy):
    run(
        copy("add_a_pass")[0],
        """
import numpy as np
import polyker as pk
from polyker.pipeline import program as programs

assert [p.name for p in programs.CPU].count("fold_ones") == 1
TEXTS = {
    "O[i,j] = X[i,j] * 1 + Y[i,j]": lambda x, y: x + y,
    "O[i,j] = 1 * X[i,j] * 1 * Y[i,j]": lambda x, y: x * y,
    "O[i] = sum[j](1 * X[i,j] * Y[i,j])": lambda x, y: (x * y).sum(1),
    "O[i,j] = X[i,j] * 2 + Y[i,j]": lambda x, y: 2 * x + y,
}
for shape in (1, 1), (3, 5), (16, 33), (64, 64):
    for kind in ("f4", "f8"):
        rng = np.random.default_rng(sum(shape))
        x, y = (rng.integers(-9, 9, shape).astype(kind) for _ in range(2))
        for text, meaning in TEXTS.items():
            k = pk.op(text).compile(X=x, Y=y)
            found = k(X=x, Y=y)
            assert found.dtype == x.dtype and (found == meaning(x.astype("f8"), y.astype("f8"))).all(), (text, shape)
            value = k.source("after:fold_ones").splitlines()[-1].split("  in f")[0].split(" = ")[-1]
            assert "1.0" not in value and ("2.0" in value) == ("2" in text), value
""",
    )
