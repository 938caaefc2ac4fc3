"""What is decided once a program's text is there: declarations, data, layouts, and how it is called."""

from __future__ import annotations

import re

import numpy as np

from polyker.structs import replace
from tests.fuzz.case import Case
from tests.fuzz.families import text_of, valid
from tests.fuzz.generate import Maker
from tests.fuzz.pieces import Kinds

LAYOUTS = ["plain", "permuted", "negative", "sliced", "offset", "zero", "misaligned", "mixed"]
OUTS = ["plain", "permuted", "negative", "sliced", "offset", "mixed"]


def declare(m: Maker) -> None:
    """Wrap the program in a declaration, with or without types."""
    from tests.fuzz.oracles import parsed

    r = m.rng
    program = parsed(text_of(m))
    if program.declared or any(len(s) == 0 for s in ()):
        return
    named: dict[int, str] = {}
    parameters = []
    dotted = "..." in text_of(m)
    for name in program.inputs:
        i = m.inputs[name]
        if dotted or i.python or r.random() < 0.3:
            parameters.append(name)
            continue
        dims = []
        for n in i.shape:
            if r.random() < 0.6:
                dims.append(named.setdefault(n, f"d{n}"))
            else:
                dims.append(str(n))
        parameters.append(f"{name}: {i.dtype}[{','.join(dims)}]")
        m.features.add("declared type")
    given = [s for s in m.sizes if r.random() < 0.7]
    r.shuffle(given)
    header = f"op{r.randrange(9)}({', '.join([*parameters, *given])}) -> {', '.join(program.outputs)}:"
    old = list(m.lines)
    m.lines = [header, *(f"    {x}" for line in old for x in line.split("\n"))]
    m.features.add("declared")
    if not valid(m):
        m.lines = old
        valid(m)


def finish(m: Maker, seed: int, number: int) -> Case | None:
    """Decide data, layouts and the call; return the case, or None where the plain interpreter refuses it."""
    from tests.fuzz.oracles import parsed, reference

    r = m.rng
    if r.random() < 0.2:
        declare(m)
    text = text_of(m)
    if "\n" in text and r.random() < 0.2 and not re.search(r":\s*\n|\.\.\.", text) and "    " not in text:
        text = text.replace("\n", "; ")
    program = parsed(text)
    style = r.choices(["coded", "small", "random", "special"], [40, 25, 30, 5])[0]
    if m.theme == "half" and style == "coded":
        style = "small"
    m.features.add(f"data:{style}")
    inputs = tuple(replace(m.inputs[n], data=style) for n in program.inputs)
    used = {k: v for k, v in m.sizes.items() if k in program.sizes}
    layouts = []
    for i in inputs:
        layout = "plain" if i.python or r.random() < 0.4 else r.choice(LAYOUTS)
        layouts.append(layout)
        m.features.add(f"layout:{layout}")
        if not i.shape:
            m.features.add("0-d input")
    mode = r.choices(["call", "fixed", "symbolic"], [28, 32, 40])[0]
    out = "none" if r.random() < 0.5 else r.choice(OUTS)
    case = Case(
        seed,
        number,
        text,
        inputs,
        tuple(used.items()),
        mode=mode,
        layouts=tuple(layouts),
        out=out,
        guard=r.random() < 0.15,
        steps=m.steps,
    )
    if r.random() < 0.06 and m.theme not in ("bool",):
        kinds = {Kinds[i.dtype] for i in inputs}
        if kinds == {"f"}:
            case = replace(case, acc="f64", mode="fixed")
            m.features.add("acc=")
    m.features |= {f"mode:{mode}", "out=" if out != "none" else "no out="}
    if out != "none":
        m.features.add(f"out:{out}")
    if case.guard:
        m.features.add("guard pages")
    if set(program.inputs) & set(program.outputs) and len(program.outputs) == 1 and r.random() < 0.4:
        layouts = [r.choice(OUTS) if n.name in program.outputs else x for n, x in zip(inputs, layouts, strict=True)]
        case = replace(case, out="argument", layouts=tuple(layouts))
        m.features.add("out is the argument")
    elif mode == "symbolic" and r.random() < 0.3 and not any(i.python for i in inputs):
        case = replace(case, mode="names")
        m.features.add("mode:names")
    if used and r.random() < 0.2:
        case = replace(case, early=True)
        m.features.add("sizes fixed early")
    if any(0 in i.shape for i in inputs):
        m.features.add("zero size")
    if len(program.outputs) > 1:
        m.features.add("several outputs")
    if m.big:
        m.features.add("big")
    if used:
        m.features.add("keyword sizes")
    if m.rng.random() < 0.04:
        return _spoil(m, case)
    if case.steps < 0 and r.random() < 0.1:
        case = replace(case, steps=r.randrange(3))
    if r.random() < 0.3:
        case = replace(case, eager=True)
        m.features.add("eager")
    case = replace(case, features=frozenset(m.features))
    if not m.big and isinstance(reference(case), Exception):
        return None
    if m.big and not _runs(case):
        return None
    return case


def _runs(case: Case) -> bool:
    """Whether the tracked evaluation takes a case that is too big for the plain interpreter."""
    from polyker.errors import PolykerError
    from tests.fuzz.oracles import tracked

    try:
        tracked(case)
    except (PolykerError, KeyError, IndexError, ValueError):  # ValueError: a type without an order
        return False
    return True


def _spoil(m: Maker, case: Case) -> Case | None:
    """Make a call that has to fail: another extent, or a gathered index outside."""
    from tests.fuzz.oracles import reference

    r = m.rng
    inputs = list(case.inputs)
    gathered = [k for k, i in enumerate(inputs) if i.limit and np.prod(i.shape) > 0]
    if gathered and r.random() < 0.8:
        k = r.choice(gathered)
        inputs[k] = replace(inputs[k], data="outside")
    else:
        shaped = [k for k, i in enumerate(inputs) if i.shape]
        if not shaped:
            return None
        k = r.choice(shaped)
        d = r.randrange(len(inputs[k].shape))
        shape = list(inputs[k].shape)
        shape[d] += r.choice([1, -1, 3]) if shape[d] else 1
        inputs[k] = replace(inputs[k], shape=tuple(shape))
    case = replace(case, inputs=tuple(inputs), guard=False, acc="")
    if m.big:
        return None
    if isinstance(reference(case), Exception):
        return replace(case, invalid=True, features=frozenset(m.features | {"must fail"}))
    return replace(case, features=frozenset(m.features))
