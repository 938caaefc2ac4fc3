"""The 30 operators of Tensor Comprehensions and the 48 contractions of TCCG, at small sizes with partial blocks."""

import polyker as pk
from polyker.cli.demo_cases import Case, contraction, operators, read_data
from polyker.cli.demo_check import compare_exact, compare_random, exact_inputs, random_inputs

OPERATORS = operators("f32", elements=2500)
SIZES = (3, 5, 2, 7, 4, 9)
CONTRACTIONS = [
    contraction(row, {label: SIZES[n % len(SIZES)] for n, label in enumerate(row["f32"])}, "f32")
    for row in read_data("contractions.json")["contractions"]
]


def check(case: Case, target: str) -> pk.Kernel:
    """Compile a case for `target`, compare what it gives with numpy's result, and return the kernel."""
    arguments = exact_inputs(case)
    data = random_inputs(case) if arguments is None else arguments
    sizes = {k: v for k, v in case.arguments.items() if k not in data}
    kernel = pk.op(case.text, **case.fixed).compile(**data, **sizes, target=target)
    got, want = kernel(**data, **sizes), case.numpy(**data)
    if arguments is None:
        verdict = compare_random(case, data, got, want)
        assert verdict.passed, verdict.detail
    else:
        assert compare_exact(got, want) == ""
    return kernel
