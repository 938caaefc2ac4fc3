"""The work behind `polyker.einsum`: numpy's rules for types, casts, order and paths, and the operators that compute."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from operator import index as as_index
from typing import Any

import numpy as np
from msgspec import Struct

from polyker.api.einsum.of_numpy import einsum as numpy_einsum
from polyker.api.einsum.order import axes_of, is_wide
from polyker.api.einsum.wide import narrowed, path_of
from polyker.api.operator import Operator
from polyker.einsum_frontend.einsum_string import (
    MAX_OPERANDS,
    SYMBOLS,
    EinsumContraction,
    Subscripts,
    fit,
    from_lists,
    program,
    scan,
)
from polyker.errors.base import failure
from polyker.errors.calls import (
    EINSUM_ARGUMENT,
    EINSUM_CAST,
    EINSUM_PATH,
    EINSUM_TYPE,
    NOT_AN_ARRAY,
    OUT_READ_ONLY,
    OUT_SHAPE,
)
from polyker.errors.given import exact_text, is_a, printed, text_of, type_name
from polyker.errors.spelling import suggestion
from polyker.ir.dtypes import DType, from_numpy
from polyker.process.jobs import load
from polyker.runtime.arguments import out_operand
from polyker.runtime.arrays import common_kind, native_of, note_written, operand, wrap
from polyker.runtime.kinds import Array, is_masked, masked_array, unknown_type
from polyker.runtime.memory import overlaps_itself
from polyker.structs import replace

GIVEN_PATH = "einsum_path"  # the head of a path that the caller gives
_MOST_STEPS = 4096
CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")
_QUICK = 512
_KEYWORDS = ("dtype", "order", "casting")


class Rules(Struct, frozen=True):
    """The keyword arguments of a call, checked."""

    dtype: np.dtype[Any] | None
    order: str
    casting: str
    casting_is_given: bool


class Recipe(Struct, frozen=True):
    """A contraction of operands of certain types, shapes and strides: the operator, and how its result's axes lie."""

    operator: Operator
    axes: tuple[int, ...] | None  # result.transpose(axes) has the axes in the order asked for; None: it has already
    keeps_array: bool = False  # a result without dimensions is an array, no scalar


_quick: dict[Any, Recipe] = {}
_NAMED_WAYS = (bool, str, type(None))  # types of `optimize` that give no path


def call(operands: tuple[Any, ...], out: Any, optimize: Any, kwargs: Mapping[str, Any]) -> Any:
    """Evaluate a call of einsum."""
    key = None
    if out is None and not kwargs and (optimize is False or (len(operands) <= 3 and type(optimize) in _NAMED_WAYS)):
        key = _quick_key(operands, optimize)
        recipe = _quick.get(key) if key is not None else None
        if recipe is not None:
            result = recipe.operator(*operands[1:])
            if recipe.axes is None:
                return np.asarray(result) if recipe.keeps_array else result
            return result.transpose(recipe.axes)
    rules = _rules(kwargs)
    on_path = optimize is not False  # numpy reads, and returns, in other ways there
    subscripts, values = _read(operands, on_path)
    if any(type(v) is not np.ndarray for v in values) and _lie_on_device((*values, out)):
        return _on_device(subscripts, values, out, rules, on_path=on_path)
    views, kind, like = _views(values, out)
    target = None if out is None else _target(out)
    contraction = fit(subscripts, [v.shape for v in views], on_path=on_path)
    path = _path(contraction, views, optimize)
    last: tuple[EinsumContraction, Sequence[Array]] = contraction, views
    recipe = None
    if path is None:
        result, recipe = contract(contraction, views, target, rules, reassociating=on_path and len(views) == 2)
    else:
        result, last = _along(path, contraction, views, target, rules)
    if out is not None:
        note_written((out,))
        return out
    keeps_array = on_path and kind == "numpy" and not result.ndim and _stays_array(*last)
    if key is not None and recipe is not None and all(a is b for a, b in zip(views, values, strict=True)):
        if len(_quick) >= _QUICK:
            _quick.clear()
        _quick[key] = replace(recipe, keeps_array=keeps_array)
    return result if keeps_array else wrap(result, kind, like)


def _lie_on_device(values: Sequence[Any]) -> bool:
    load("polyker.runtime.cuda.arrays")
    from polyker.runtime.cuda.arrays import first_on_device

    return first_on_device(values) is not None


def _on_device(subscripts: Subscripts, values: Sequence[Any], out: Any, rules: Rules, *, on_path: bool) -> Any:
    """Evaluate a call with arrays on a GPU there, all operands at once: new results are row-major, and casts are the kernel's."""
    load("polyker.runtime.cuda.arrays")
    from polyker.runtime.cuda.arrays import device_operands, on_stream

    if rules.order not in "CK":
        raise failure(EINSUM_ARGUMENT, problem=f"on a GPU order must be one of 'C' or 'K' (got {rules.order!r})")
    with on_stream((*values, out), None):
        views = [o.array for o in device_operands([f"operand {k}" for k in range(len(values))], values)]
    contraction = fit(subscripts, [v.shape for v in views], on_path=on_path)
    dtype = _common_type(views, None, rules, reassociating=False)
    element = _element(dtype, views)
    for k, view in enumerate(views):
        _check_cast(view.dtype, dtype, "safe", f"operand {k}")
    casts = tuple(None if from_numpy(v.dtype) == element else element for v in views)
    made = _operator(contraction.terms, contraction.output, _pattern(views, contraction), casts, element.kind == "b")
    return made(*values, out=out)


def _quick_key(operands: tuple[Any, ...], optimize: Any) -> Any:
    if not operands or type(operands[0]) is not str:
        return None
    parts: list[Any] = [operands[0], optimize]
    for a in operands[1:]:
        if type(a) is not np.ndarray:
            return None
        parts += (a.dtype, a.shape, a.strides)
    return tuple(parts)


def _rules(kwargs: Mapping[str, Any]) -> Rules:
    unknown = [name for name in kwargs if name not in _KEYWORDS]
    if unknown:
        meant = suggestion(unknown[0], ("out", "optimize", *_KEYWORDS))
        hint = f"{meant}keywords: out, optimize, {', '.join(_KEYWORDS)}"
        raise failure(EINSUM_ARGUMENT, problem=f"got an unexpected keyword argument '{unknown[0]}'", hint=hint)
    dtype = kwargs.get("dtype")
    try:
        dtype = None if dtype is None else np.dtype(getattr(dtype, "numpy", dtype))
    except Exception as error:  # a TypeError, or what the caller's object raises
        raise failure(EINSUM_TYPE, problem=f"dtype: {text_of(error)}") from error
    given = kwargs.get("casting", "safe")
    casting = exact_text(given)
    if casting is None or casting not in CASTINGS:
        raise failure(EINSUM_ARGUMENT, problem=f"casting must be one of {', '.join(CASTINGS)} (got {printed(given)})")
    given = kwargs.get("order")
    order = "K" if given is None else exact_text(given)
    if order is None or order.upper() not in ("C", "F", "A", "K"):
        raise failure(EINSUM_ARGUMENT, problem=f"order must be one of 'C', 'F', 'A', or 'K' (got {printed(given)})")
    return Rules(dtype, order.upper(), casting, "casting" in kwargs)


def _read(operands: tuple[Any, ...], on_path: bool) -> tuple[Subscripts, tuple[Any, ...]]:
    """Return the subscripts and the operands of either calling form."""
    if len(operands) < 2:
        problem = "needs a string of subscripts and an operand, or an operand and its list of subscripts"
        raise failure(EINSUM_ARGUMENT, problem=problem)
    first = operands[0]
    if isinstance(first, bytes):
        first = first.decode("latin-1")
    text = exact_text(first)
    if text is not None:
        return scan(text, on_path=on_path), operands[1:]
    pairs = len(operands) // 2
    lists, values = operands[1 : 2 * pairs : 2], operands[0 : 2 * pairs : 2]
    output = operands[-1] if len(operands) % 2 else None
    if len(operands) % 2 and output is None:
        raise failure(EINSUM_ARGUMENT, problem="the subscripts of the output must be a list or a tuple")
    return from_lists(lists, output, on_path=on_path), values


def _views(values: Sequence[Any], out: Any) -> tuple[list[Array], str, Any]:
    """Return operands as numpy arrays of any type, the kind of array that comes back, and the operand deciding it."""
    views, foreign = [], []
    like = next((v for v in values if not is_a(v, (np.generic, bool, int, float, complex, list, tuple))), None)
    for k, value in enumerate(values):
        name = f"operand {k}"
        plain = np.asarray(value) if issubclass(type(value), np.ndarray) and not is_masked(value) else None
        if plain is not None and from_numpy(plain.dtype) is None:
            views.append(plain)  # such as object: what can be cast to `dtype=` is
        elif value is None or is_a(value, (str, bytes)):
            raise failure(NOT_AN_ARRAY, name=name, type=type_name(value))
        else:
            found = operand(value, name)
            foreign.append((name, found))
            views.append(found.array)
    if out is not None and not issubclass(type(out), np.ndarray):
        foreign.append(("out", out_operand(out, "out")))
    return views, common_kind(foreign), like


def _target(out: Any) -> Array:
    if is_masked(out):
        raise masked_array("out")
    if issubclass(type(out), np.ndarray):
        found: Array = np.asarray(out)
    else:
        found = out_operand(out, "out").original
    if not found.flags.writeable:
        raise failure(OUT_READ_ONLY, name="the result")
    return found


def _stays_array(contraction: EinsumContraction, views: Sequence[Array]) -> bool:
    """Whether numpy returns an array without dimensions, no scalar, from the last step of a path."""
    if len(contraction.extents) > len(SYMBOLS):
        return False
    return _numpy_keeps_array(contraction.text(), tuple(tuple(min(2, n) for n in v.shape) for v in views))


@lru_cache(maxsize=1024)
def _numpy_keeps_array(text: str, shapes: tuple[tuple[int, ...], ...]) -> bool:
    """Whether a step of operands of these shapes yields an array in numpy, whose versions differ, so that it is asked."""
    step = [GIVEN_PATH, tuple(range(len(shapes)))]
    return isinstance(numpy_einsum(text, *map(np.zeros, shapes), optimize=step), np.ndarray)


def contract(
    contraction: EinsumContraction,
    views: Sequence[Array],
    target: Array | None,
    rules: Rules,
    *,
    reassociating: bool = False,
) -> tuple[Array, Recipe | None]:
    """Evaluate one contraction, into `target` if given. `reassociating`: any cast to its type will do, as on numpy's paths.

    What comes with the result repeats it for other arrays that lie alike; None where that takes more than an operator.
    """
    if target is None and rules.dtype is None and _is_rearranged_time(contraction, views):
        (view,) = views
        integers = view.view(np.dtype(np.int64).newbyteorder(view.dtype.byteorder))
        return contract(contraction, [integers], None, rules)[0].view(native_of(view.dtype)), None
    dtype = _common_type(views, target, rules, reassociating)
    element = _element(dtype, views)
    arrays, casts = _operands(views, dtype, element, rules)
    shape = contraction.shape(contraction.output)
    if target is not None:
        if target.shape != shape:
            raise failure(OUT_SHAPE, name="the result", shape=target.shape, wanted=shape)
        if reassociating:
            _check_step_cast(contraction, views, target, dtype, rules)
        else:
            _check_cast(target.dtype, dtype, rules.casting, "the result")  # it is read, too
            _check_cast(dtype, target.dtype, rules.casting, "the result")
    axes = axes_of(contraction, views, target, rules.order, reassociating=reassociating)
    if is_wide(contraction):
        return _contract_wide(contraction, arrays, target, replace(rules, dtype=dtype), axes), None
    ordered = contraction.output if axes is None else tuple(contraction.output[a] for a in axes)
    laid = EinsumContraction(contraction.terms, ordered, contraction.extents)
    made = _operator(laid.terms, ordered, _pattern(arrays, laid), casts, element.kind == "b")
    back = None if axes is None else tuple(int(a) for a in np.argsort(axes))
    recipe = Recipe(made, back)
    if target is not None and target.dtype == dtype and not overlaps_itself(target):
        made(*arrays, out=target if axes is None else target.transpose(axes))
        return target, recipe
    result = np.asarray(made(*arrays))
    result = result if back is None else result.transpose(back)
    if target is not None:
        np.copyto(target, result, casting="unsafe")
        return target, recipe
    return result, recipe


def _is_rearranged_time(contraction: EinsumContraction, views: Sequence[Array]) -> bool:
    """Whether a result has all elements of one operand of dates or times, which numpy only gives another shape, too."""
    labels = {label for term in contraction.terms for label in term}
    return len(views) == 1 and views[0].dtype.kind in "mM" and labels == set(contraction.output)


def _contract_wide(
    contraction: EinsumContraction,
    arrays: Sequence[Array],
    target: Array | None,
    rules: Rules,
    axes: tuple[int, ...] | None,
) -> Array:
    """Evaluate a contraction of more labels than a statement may have indices: pair by pair, and each with fewer labels."""
    rules = replace(rules, order="C")
    if len(arrays) > 2:
        result = _along(path_of(contraction), contraction, list(arrays), None, rules)[0]
    else:
        fewer = narrowed(contraction, arrays)
        result = fewer.widened(contract(fewer.contraction, fewer.views, None, rules)[0])
    if target is not None:
        np.copyto(target, result, casting="unsafe")
        return target
    if axes is None:
        return np.ascontiguousarray(result) if result.ndim else result
    return np.ascontiguousarray(result.transpose(axes)).transpose(np.argsort(axes))


def _pattern(arrays: Sequence[Array], contraction: EinsumContraction) -> tuple[tuple[bool, ...], ...]:
    """Return which dimensions of each operand have their label's extent: the others are of extent 1, and are broadcast."""
    return tuple(
        tuple(extent == e for extent, e in zip(a.shape, contraction.shape(t), strict=True))
        for a, t in zip(arrays, contraction.terms, strict=True)
    )


def _common_type(views: Sequence[Array], target: Array | None, rules: Rules, reassociating: bool) -> np.dtype[Any]:
    """Return the type that is computed in: `dtype=`, or what operands and `out` promote to."""
    if rules.dtype is not None:
        return rules.dtype
    types = [v.dtype for v in views]
    if target is not None and not reassociating:
        types.append(target.dtype)
    try:
        return np.result_type(*types)
    except TypeError as error:
        for name, array in (*((f"operand {k}", v) for k, v in enumerate(views)), ("out", target)):
            if array is not None and from_numpy(native_of(array.dtype)) is None:
                raise unknown_type(name, array.shape, array.dtype) from error
        raise failure(EINSUM_TYPE, problem=error) from error


def _element(dtype: np.dtype[Any], views: Sequence[Array]) -> DType:
    found = from_numpy(native_of(dtype))
    if found is None:
        for k, view in enumerate(views):
            if from_numpy(native_of(view.dtype)) is None:
                raise unknown_type(f"operand {k}", view.shape, view.dtype)
        raise unknown_type("the result", "(...)", dtype)
    return found


def _operands(
    views: Sequence[Array], dtype: np.dtype[Any], element: DType, rules: Rules
) -> tuple[list[Array], tuple[DType | None, ...]]:
    """Return arrays and the casts that the kernel makes; casts that may lose values are numpy's, before it."""
    arrays: list[Array] = []
    casts: list[DType | None] = []
    for k, view in enumerate(views):
        _check_cast(view.dtype, dtype, rules.casting, f"operand {k}")
        own = from_numpy(view.dtype)
        if own == element:
            arrays.append(view)
            casts.append(None)
        elif own is not None and np.can_cast(view.dtype, dtype, "safe"):
            arrays.append(view)
            casts.append(element)
        else:
            arrays.append(view.astype(element.numpy))
            casts.append(None)
    return arrays, tuple(casts)


def _check_cast(source: np.dtype[Any], dtype: np.dtype[Any], casting: Any, what: str) -> None:
    if not np.can_cast(source, dtype, casting):
        raise failure(EINSUM_CAST, what=what, source=source, target=dtype, casting=casting)


def _check_step_cast(
    contraction: EinsumContraction, views: Sequence[Array], target: Array, dtype: np.dtype[Any], rules: Rules
) -> None:
    """Raise DTypeError where numpy does not cast the result of a step of two operands to `out`: some of its ways do."""
    casting: Any = rules.casting if rules.casting_is_given else "same_kind"
    if np.can_cast(dtype, target.dtype, casting):
        return
    if len(contraction.extents) > len(SYMBOLS):
        raise failure(EINSUM_CAST, what="the result", source=dtype, target=target.dtype, casting=casting)
    samples = [np.zeros([min(2, n) for n in v.shape], v.dtype) for v in views]
    sizes = {label: min(2, extent) for label, extent in contraction.extents}
    into = np.zeros([sizes[label] for label in contraction.output], target.dtype)
    said: dict[str, Any] = {"casting": rules.casting} if rules.casting_is_given else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            numpy_einsum(contraction.text(), *samples, out=into, optimize=True, dtype=rules.dtype, **said)
    except TypeError:
        raise failure(EINSUM_CAST, what="the result", source=dtype, target=target.dtype, casting=casting) from None


@lru_cache(maxsize=1024)
def _operator(
    terms: tuple[tuple[str, ...], ...],
    output: tuple[str, ...],
    pattern: tuple[tuple[bool, ...], ...],
    casts: tuple[DType | None, ...],
    boolean: bool,
) -> Operator:
    """Return the operator of a contraction; `pattern`: which dimensions of each operand have their label's extent."""
    labels = dict.fromkeys(label for term in terms for label in term)
    extents = dict.fromkeys(labels, 2)
    shapes = [tuple(2 if whole else 1 for whole in row) for row in pattern]
    return Operator(program(EinsumContraction(terms, output, tuple(extents.items())), shapes, casts, boolean))


def _path(contraction: EinsumContraction, views: Sequence[Array], optimize: Any) -> list[tuple[int, ...]] | None:
    """Return numpy's path for three operands or more, or as given, else None; raises what numpy raises on a bad one."""
    if optimize is False or optimize is None:
        return None
    asked = _asked_path(optimize)
    if len(views) <= 2 and not (isinstance(asked, list) and asked[0] == GIVEN_PATH):
        return None
    if len(contraction.extents) > len(SYMBOLS) and not isinstance(asked, list):
        return path_of(contraction)  # numpy has no letters for so many
    try:
        path = np.einsum_path(contraction.text(), *views, optimize=asked)[0][1:]
    except Exception as error:
        problem = error.args[0] % error.args[1:] if isinstance(error, KeyError) else error
        raise failure(EINSUM_PATH, problem=problem) from error
    if not all(path):
        raise failure(EINSUM_PATH, problem="a step of the path contracts no operands")
    return [tuple(step) for step in path]


def _asked_path(optimize: Any) -> bool | str | tuple[str, float] | list[Any]:
    """Return what the caller says of the path, as plain values; raises ArgumentError for what numpy does not understand."""
    if isinstance(optimize, bool):
        return optimize
    if isinstance(optimize, str):
        return str.__str__(optimize)
    try:
        parts = list(islice(optimize, _MOST_STEPS)) if isinstance(optimize, (list, tuple)) else []
        name = exact_text(parts[0]) if parts else None
        if name == GIVEN_PATH:
            return [name, *(tuple(map(as_index, islice(step, MAX_OPERANDS + 1))) for step in parts[1:])]
        if name is not None and len(parts) == 2 and isinstance(parts[1], (int, float)):
            return name, int(parts[1])
    except Exception as error:  # whatever the caller's objects raise
        raise failure(EINSUM_ARGUMENT, problem=f"did not understand the path: {printed(optimize)}") from error
    raise failure(EINSUM_ARGUMENT, problem=f"did not understand the path: {printed(optimize)}")


def _along(
    path: Sequence[tuple[int, ...]],
    contraction: EinsumContraction,
    views: list[Array],
    target: Array | None,
    rules: Rules,
) -> tuple[Array, tuple[EinsumContraction, Sequence[Array]]]:
    """Contract pair by pair along a path, of each what later ones or the output need; return the last step, too."""
    rest = list(zip(contraction.terms, views, strict=True))
    result, made, arrays = views[0], contraction, views
    for step, places in enumerate(path):
        last = step == len(path) - 1
        taken = [rest.pop(p) for p in sorted(places, reverse=True)]
        needed = {label for term, _ in rest for label in term} | set(contraction.output)
        kept = dict.fromkeys(label for term, _ in taken for label in term if label in needed)
        output = contraction.output if last else tuple(kept)
        arrays = [v for _, v in taken]
        made = fit(Subscripts(tuple(term for term, _ in taken), output), [v.shape for v in arrays])
        into = target if last else None
        result, _ = contract(made, arrays, into, rules, reassociating=len(taken) == 2)
        rest.append((output, result))
    if len(rest) != 1:
        raise failure(EINSUM_PATH, problem=f"the path leaves {len(rest)} operands")
    return result, (made, arrays)
