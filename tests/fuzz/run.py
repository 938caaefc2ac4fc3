"""Running one case: on the compiler through the public API, or on the interpreter alone; then the verdict."""

from __future__ import annotations

import logging
import os
import random
import traceback
import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
from msgspec import Struct, field

from polyker.cost.temporaries import insist
from polyker.errors import DTypeError, GatherError, InternalError, LegalityError, PolykerError
from polyker.ir.dtypes import DTYPES
from polyker.structs import replace
from tests.artifacts import compiled_to
from tests.fuzz import metamorphic, schedules
from tests.fuzz.case import Case
from tests.fuzz.cut import cut
from tests.fuzz.data import CANARY, Block, arrays_of, generator_of, place, salt_of, values
from tests.fuzz.eager import eager
from tests.fuzz.oracles import judge, parsed, reference, tracked
from tests.fuzz.poison import poisoned
from tests.fuzz.shrink import resized
from tests.fuzz.undefined import undefined

# A symbolic kernel may say that it is not for sizes for which nothing is written or an index that bounds others has no values:
# their extents have no affine form, and its conditions on the sizes are those of instances that there are none of.
_EMPTY = ("PK322", "PK314", "PK307")


class Outcome(Struct):
    """What became of a case: `problem` is empty where all is well."""

    problem: str = ""
    kind: str = "ok"  # ok, mismatch, undefined, error, refused, canary, metamorphic, accepted, crash, hang
    exact: bool = False
    ulps: float = 0.0
    features: set[str] = field(default_factory=set)


def run(case: Case, backend: str) -> Outcome:
    """Run a case and judge it."""
    refused = _Refused()
    logger = logging.getLogger("polyker")
    logger.addHandler(refused)
    logger.setLevel(logging.INFO)
    try:
        with (
            poisoned(),
            eager() if case.eager else nullcontext(),
            cut() if "POLYKER_FUZZ_CUT" in os.environ else nullcontext(),
            nullcontext() if case.steps < 0 else insist(case.steps),
        ):
            outcome = _judged(case, backend)
    finally:
        logger.removeHandler(refused)
    if refused.reasons and not outcome.problem:
        outcome.kind, outcome.problem = "refused", "\n".join(refused.reasons)
    return outcome


class _Refused(logging.Handler):
    """Sees schedules of polyker's own that its proof refused: what runs instead is right, and many times slower."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.reasons: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what a fault of the compiler is the reason of; a time limit is none."""
        if isinstance(getattr(record, "reason", None), LegalityError):
            self.reasons.append(f"LegalityError: {record.getMessage()}")


def _judged(case: Case, backend: str) -> Outcome:
    outcome = Outcome(features=set(case.features))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if case.invalid:
                return _must_fail(case, backend, outcome)
            if backend == "interpret":
                got = _interpreted(case)
            else:
                got = _compiled(case, outcome)
                if outcome.problem:
                    return outcome
    except Exception as error:
        if case.mode in ("symbolic", "names") and _may_refuse(case, error):
            outcome.features.add("(symbolic kernel refuses the call)")
            return run(replace(case, mode="fixed"), backend)
        outcome.kind = "error"
        outcome.problem = f"{type(error).__name__}: {error}\n{_where(error)}"
        return outcome
    verdict = judge(case, got)
    outcome.exact, outcome.ulps = verdict.exact, verdict.ulps
    if verdict.unsure:
        outcome.features.add("(undecided by rounding)")
    if verdict.exact:
        outcome.features.add("compared for equality")
    if verdict.problem:
        outcome.kind, outcome.problem = "mismatch", verdict.problem
    elif backend == "compile" and verdict.exact and "big" not in case.features:
        _more(case, got, outcome)
    return outcome


def _may_refuse(case: Case, error: Exception) -> bool:
    code = getattr(error, "code", "")
    return code in _EMPTY[:2] or (code in _EMPTY and any(0 in i.shape for i in case.inputs))


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return "\n".join(f"  {f.filename.rsplit('/', 2)[-1]}:{f.lineno} {f.name}: {f.line}" for f in frames)


def _must_fail(case: Case, backend: str, outcome: Outcome) -> Outcome:
    wanted = reference(case)
    try:
        got = _interpreted(case) if backend == "interpret" else _compiled(case, outcome)
    except InternalError as error:
        outcome.kind, outcome.problem = "error", f"InternalError: {error}"
    except PolykerError as error:
        if type(error) is not type(wanted) and not _true_as_well(case, error):
            outcome.kind = "error"
            outcome.problem = f"{type(error).__name__} instead of {type(wanted).__name__}:\n{error}\nwanted:\n{wanted}"
    except Exception as error:
        outcome.kind, outcome.problem = "error", f"{type(error).__name__}: {error}\n{_where(error)}"
    else:
        outcome.kind, outcome.problem = "accepted", f"gave {got}, where the interpreter raises {wanted}"
    return outcome


def _true_as_well(case: Case, error: PolykerError) -> bool:
    """Whether another error than the interpreter's is true of the call, too.

    The interpreter meets errors in the order of the instances, the compiler checks shapes before it gathers. A wrong shape
    is still wrong when every index array holds zeros, with which there is nothing wrong to gather. A subscript that leaves its
    tensor does so with elements of any type, but for index arrays.
    """
    match reference(case):
        case GatherError():
            inputs = (replace(i, limit=1, data="coded") if i.limit else i for i in case.inputs)
        case DTypeError():
            inputs = (i if i.limit else replace(i, dtype="f64") for i in case.inputs)
        case _:
            return False
    return type(reference(replace(case, inputs=tuple(inputs)))) is type(error)


def _interpreted(case: Case) -> tuple[Any, ...]:
    if "big" in case.features:
        bounds = tracked(case)
        return () if bounds is None else tuple(b.val.astype(b.tag.numpy) for b in bounds)
    wanted = reference(case)
    if isinstance(wanted, PolykerError):
        raise wanted
    return wanted


def operands(case: Case) -> list[Block]:
    """Return the inputs in memory of their layouts."""
    blocks = []
    for k, (i, layout) in enumerate(zip(case.inputs, case.layouts, strict=True)):
        v = values(i, salt_of(case, k))
        blocks.append(place(v, layout, generator_of(case, k), case.guard))
    return blocks


def outputs(case: Case) -> list[Block] | None:
    """Return arrays to write into, full of rubbish, or None."""
    if case.out in ("none", "argument"):
        return None
    wanted = tracked(case) if "big" in case.features else reference(case)
    if wanted is None or isinstance(wanted, PolykerError):
        return None
    blocks = []
    for k, w in enumerate(wanted):
        shape, dtype = (w.val.shape, w.tag.numpy) if "big" in case.features else (w.shape, w.dtype)
        rubbish = np.frombuffer(bytes([CANARY]) * (int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)
        if dtype.kind == "b":
            rubbish = np.ones(shape, bool)
        blocks.append(place(rubbish, case.out, generator_of(case, 100 + k), case.guard))
    return blocks


def _compiled(case: Case, outcome: Outcome) -> tuple[Any, ...]:
    import polyker as pk

    blocks, outs = operands(case), outputs(case)
    arrays = {i.name: b.array for i, b in zip(case.inputs, blocks, strict=True)}
    program = parsed(case.text)
    given = None
    if outs is not None:
        given = outs[0].array if len(outs) == 1 else tuple(b.array for b in outs)
    sizes = dict(case.sizes)
    op = pk.op(case.text, **(sizes if case.early else {}))
    if case.out == "argument":
        given = arrays[program.outputs[0]]
    named = random.Random(case.number).random() < 0.3 or program.parameters != program.inputs
    positional = [] if named else list(arrays.values())
    keywords = {**(arrays if named else {}), **sizes}
    options = {"acc": DTYPES[case.acc]} if case.acc else {}
    if case.mode == "call" and not case.acc:
        got = op(*positional, **keywords, out=given)
    else:
        kernel = _kernel(op, case, arrays, options, outcome)
        outcome.features |= schedules.fired(kernel)
        scheduled = compiled_to(kernel).scheduled if "POLYKER_FUZZ_UNDEFINED" in os.environ else None
        hole = undefined(scheduled[0]) if scheduled is not None else ""
        if hole:
            outcome.kind, outcome.problem = "undefined", f"results come of elements that nothing sets: {hole}"
            return ()
        got = kernel(*positional, **keywords, out=given)
        if case.mode in ("symbolic", "names") and not case.invalid and "big" not in case.features:
            _other_shapes(kernel, case, outcome)
    result = tuple(got) if len(program.outputs) > 1 else (got,)
    if outs is not None:
        for b, a in zip(outs, result, strict=True):
            if a is not b.array:
                outcome.kind, outcome.problem = "mismatch", "what comes back is not `out`"
            if b.damaged(written=True):
                outcome.kind, outcome.problem = "canary", "bytes between or around the elements of `out` changed"
    for b, i in zip(blocks, case.inputs, strict=True):
        if b.damaged(written=case.out == "argument" and i.name in program.outputs):
            outcome.kind, outcome.problem = "canary", f"input {i.name} changed"
    return tuple(np.asarray(a) for a in result)


def _kernel(op: Any, case: Case, arrays: dict[str, Any], options: dict[str, Any], outcome: Outcome) -> Any:
    if case.mode in ("symbolic", "names"):
        try:
            if case.mode == "names":
                return op.compile(**_named_types(case), **options)
            return op.compile(**arrays, **options, specialize="never")
        except InternalError:
            raise
        except PolykerError as error:
            outcome.features.add(f"(symbolic refused: {error.code})")
            if case.invalid and error.code not in ("PK303", "PK321", "PK322"):
                raise
    return op.compile(**arrays, **dict(case.sizes), **options)


def _named_types(case: Case) -> dict[str, Any]:
    """Return the inputs' types with one name for each extent that differs; an extent that broadcasts stays 1."""
    fixed = 1 if "..." in case.text else -1
    return {i.name: DTYPES[i.dtype][tuple(n if n == fixed else f"e_{n}" for n in i.shape)] for i in case.inputs}


def _takes(kernel: Any, case: Case) -> bool:
    """Whether a kernel is for these shapes; it may have kept some extents fixed."""
    shapes = [i.shape for i in case.inputs]
    return all(
        len(t.shape) == len(s) and all(isinstance(a, str) or a == b for a, b in zip(t.shape, s, strict=True))
        for t, s in zip(kernel.types, shapes, strict=True)
    )


def _other_shapes(kernel: Any, case: Case, outcome: Outcome) -> None:
    """Run a symbolic kernel again, on other shapes."""
    rng = random.Random(f"{case.seed}/{case.number}/shapes")
    extents = sorted({n for i in case.inputs for n in i.shape} | {v for _, v in case.sizes})
    for _ in range(4):
        if not extents or case.early or kernel.fixed:
            return
        old, new = rng.choice(extents), rng.choice([1, 2, 3, 4, 6, 8, 9, 16, 17, 20])
        other = resized(case, old, new)
        if other == case or not _takes(kernel, other) or isinstance(reference(other), Exception):
            continue
        outcome.features.add("symbolic: other shapes")
        arrays = {i.name: b.array for i, b in zip(other.inputs, operands(other), strict=True)}
        try:
            got = kernel(**arrays, **dict(other.sizes))
        except PolykerError as error:
            if error.code not in _EMPTY:
                raise
            outcome.features.add("(symbolic kernel refuses other shapes)")
            continue
        result = tuple(got) if len(parsed(case.text).outputs) > 1 else (got,)
        verdict = judge(other, tuple(np.asarray(a) for a in result))
        if verdict.problem:
            shapes = [(i.name, i.shape) for i in other.inputs]
            outcome.kind, outcome.problem = "mismatch", f"with shapes {shapes} {other.sizes}: {verdict.problem}"
        return


def _more(case: Case, got: tuple[Any, ...], outcome: Outcome) -> None:
    """Try a metamorphic relation, and random legal steps of the schedule, on some of the cases."""
    rng = random.Random(f"{case.seed}/{case.number}/more")
    if rng.random() < 0.45:
        problem, name = metamorphic.check(case, got, rng)
        if name:
            outcome.features.add(f"metamorphic:{name}")
        if problem:
            outcome.kind, outcome.problem = "metamorphic", f"{name}: {problem}"
    if rng.random() < 0.35 and not outcome.problem:
        problem, steps = schedules.check(case, got, rng)
        outcome.features |= {f"step:{s}" for s in steps}
        if problem:
            outcome.kind, outcome.problem = "mismatch", f"after {steps}: {problem}"


def snippet(case: Case) -> str:
    """Return Python that runs the case again."""
    return (
        "from tests.fuzz.case import Case, Input\nfrom tests.fuzz.run import run\n"
        f"case = {replace(case, features=frozenset(f for f in case.features if f == 'big'))!r}\n"
        "print(run(case, 'compile').problem)"
    )


__all__ = ["Outcome", "arrays_of", "operands", "run", "snippet"]
