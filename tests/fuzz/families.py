"""Families of programs: each adds the lines of one to a maker, and says whether it is valid."""

from __future__ import annotations

import re

import numpy as np

from tests.fuzz.case import Input
from tests.fuzz.classics import classic_lines
from tests.fuzz.data import empty
from tests.fuzz.generate import Idx, Maker
from tests.fuzz.pieces import COMPLEX, FLOATING, PLAIN, Kinds, fold, pair, scaled


def valid(m: Maker) -> bool:
    """Bind the text so far to the inputs' shapes, and remember what it defines."""
    from polyker.errors import PolykerError
    from polyker.reference.interpreter import bind
    from tests.fuzz.oracles import parsed

    try:
        with np.errstate(all="ignore"):
            program = parsed(text_of(m))
            bound = bind(program, {n: empty(m.inputs[n]) for n in program.inputs}, m.sizes)
    except PolykerError:
        return False
    m.defined = {n: s for n, s in bound.shapes.items() if n not in m.inputs}
    for name, tag in bound.tags.items():
        if name not in m.inputs:
            m.kinds[name] = {"u": "i"}.get(tag.kind, tag.kind)
    return all(np.prod(s, dtype=float) <= 20_000 for s in bound.shapes.values())


def text_of(m: Maker) -> str:
    return "\n".join(m.lines)


def snapshot(m: Maker) -> tuple[object, ...]:
    """Return what `restore` needs to take back what is added from here on."""
    return dict(m.inputs), dict(m.defined), dict(m.kinds), dict(m.sizes), list(m.lines), set(m.features)


def restore(m: Maker, kept: tuple[object, ...]) -> None:
    """Take back what was added since."""
    m.inputs, m.defined, m.kinds, m.sizes, m.lines, m.features = kept  # type: ignore[assignment]


def try_statement(m: Maker, base: str | None = None) -> bool:
    """Add one statement, or leave the program as it is."""
    for _ in range(6):
        kept = snapshot(m)
        if m.statement(base) is not None and valid(m):
            return True
        restore(m, kept)
    return False


def general(m: Maker) -> bool:
    return try_statement(m)


def chain(m: Maker) -> bool:
    """Several statements; later ones read earlier ones, or update them in place."""
    r = m.rng
    m.budget = min(m.budget, 400 if not m.big else 20_000)
    if not try_statement(m):
        return False
    for _ in range(r.choice([1, 1, 2, 3])):
        if r.random() < 0.35:
            kept = snapshot(m)
            if not (update(m) and valid(m)):
                restore(m, kept)
        elif r.random() < 0.85:
            try_statement(m, r.choice(list(m.defined)))
        else:
            try_statement(m)
    m.features.add("multi-statement")
    return len(m.lines) > 1


def update(m: Maker) -> bool:
    """A further statement on a tensor that is defined: in place, accumulating, or overwriting a part."""
    r = m.rng
    name = r.choice(list(m.defined))
    shape, kind = m.defined[name], m.kinds[name]
    if kind == "b" or not shape:
        return False
    m.taken = set(m.sizes)
    idx = [Idx(m.index_name(), 0, n, "bare", bare=True) for n in shape]
    element = f"{name}[{','.join(i.name for i in idx)}]"
    pick = r.randrange(4)
    if pick == 0:
        text, _ = fold(m, [(element, kind)], "=")
        if Kinds.get(text.split("(")[0], kind) == "c" != kind:
            return False
        m.lines.append(f"{element} = {text}")
        m.features.add("update: in place")
    elif pick == 1:
        other, okind = m.access(idx, idx)
        op = r.choice(["+=", "*=", "max=", "min="] if "c" not in (kind, okind) else ["+=", "*="])
        m.lines.append(f"{element} {op} {other}")
        m.features |= {"update: accumulating", f"op:{op}"}
    elif pick == 2:
        k = Idx(m.index_name(), 0, r.choice([1, 2, 3, 5]), "bare")
        other, okind = m.access([*idx, k], [*idx, k])
        op = r.choice(["+=", "max=", "min="] if "c" not in (kind, okind) else ["+="])
        m.lines.append(f"{element} {op} {other}")
        m.features |= {"update: accumulating", f"op:{op}"}
    else:
        other, _ = m.access(idx, idx)
        hi = m.bound(max(shape[0] - 1, 0))
        where = f" where {idx[0].name} % 2 == 0" if r.random() < 0.4 else f" for {idx[0].name} in 0:{hi}"
        m.lines.append(f"{element} = {other}{where}")
        m.features.add("update: a part overwritten")
    return True


def elementwise(m: Maker) -> bool:
    """Functions and operators, several in one expression, each as likely as any other."""
    r = m.rng
    m.taken = set(m.sizes)
    left = m.indices(r.choice([1, 1, 2]))
    for i in left:
        i.source, i.clause = "bare", ""
    parts = []
    for _ in range(r.choice([1, 2, 2, 3])):
        text, kind = m.access([], left)
        for _ in range(r.choice([1, 1, 2])):
            text, kind = anything(m, text, kind)
        parts.append((text, kind))
    text, kind = parts[0]
    for other in parts[1:]:
        text, kind = pair(m, (text, kind), other, r.choice(["=", "+=", "max=", "any="]))
    m.features.add("op:=")
    m.lines = [f"O[{','.join(i.name for i in left)}] = {text}"]
    return valid(m)


def anything(m: Maker, text: str, kind: str) -> tuple[str, str]:
    """Apply one function, comparison or logical operator, all equally likely among those that take this kind."""
    r = m.rng
    logical = ["and", "or", "not"]
    order = ["<", "<=", ">", ">=", "==", "!="]
    if kind == "b":
        name = r.choice([*logical, *logical, "==", "!=", "where"])
    elif kind == "c":
        name = r.choice([*COMPLEX, "conj", "imag", "==", "not"])
    else:
        name = r.choice(
            [
                *FLOATING,
                *FLOATING,
                *PLAIN,
                *order,
                "minimum",
                "maximum",
                "where",
                *logical,
                *logical,
                "/",
                "//",
                "%",
                "**",
            ]
        )
    literal = r.choice(["1", "2", "3"])
    if name in (*order, "and", "or", "/", "//", "%", "**"):
        m.features.add(f"operator:{name}")
        found = "b" if name in (*order, "and", "or") else "f" if name == "/" else kind
        return f"({text} {name} {'2' if name == '**' else literal})", found
    m.features.add(f"function:{name}")
    if name == "not":
        return f"(not {text})", "b"
    if name == "where":
        return f"where({text}, {literal}, {text})", "i" if kind == "b" else kind
    if name in ("minimum", "maximum"):
        return f"{name}({text}, {literal})", kind
    if name in FLOATING and kind != "c":
        return f"{name}({scaled(name, text)})", "f"
    return f"{name}({text})", "f" if kind == "c" and name in ("real", "imag", "abs") else kind


def recurrence(m: Maker) -> bool:
    r = m.rng
    m.budget = 150
    b, n = r.choice([1, 2, 3, 5]), r.choice([1, 2, 3, 5, 8, 17])
    t = m.dtype() if m.theme != "bool" else "i32"
    kind = Kinds[t]
    if kind == "b":
        return False
    N = m.bound(n)
    pick = r.choice([0, 1, 2, 3, 3, 4, 5, 6])
    coefficient = "0.5 * " if kind in "fc" else ""
    if pick == 0:
        m.inputs["X"] = Input("X", t, (b, n))
        m.lines = ["S[b,0] = X[b,0]", f"S[b,t] = {coefficient}S[b,t-1] + X[b,t] for t in 1:{N}"]
    elif pick == 1:
        m.inputs["X"] = Input("X", t, (n,))
        last = f"{N}-1" if r.random() < 0.5 else str(n - 1)
        m.lines = [f"S[{last}] = X[{last}]", f"S[{last}-t] = S[{last}-t+1] - X[t] for t in 1:{N}"]
    elif pick == 2:
        n = max(n, 2)
        m.inputs["X"] = Input("X", t, (n,))
        N = m.bound(n)
        m.lines = ["F[0] = 1", "F[1] = X[1]", f"F[t] = F[t-1] + F[t-2] * X[t] for t in 2:{N}"]
    elif pick == 3 and kind != "c":
        n = min(n, 8)
        m.inputs["X"] = Input("X", t, (b, n))
        N, B = m.bound(n), m.bound(b)
        m.lines = ["D[i,0] = X[i,0]", f"D[0,j] = X[0,j] for j in 1:{N}",
                   f"D[i,j] = maximum(D[i-1,j], D[i,j-1]) + X[i,j] for i in 1:{B}, j in 1:{N}"]  # fmt: skip
        m.features.add("recurrence: 2-d")
    elif pick == 4:
        n = min(n, 8)
        m.inputs["X"] = Input("X", t, (n, b))
        N = m.bound(n)
        m.lines = ["H[0,i] = X[0,i]", f"H[t,i] = sum[j](W[i,j] * H[t-1,j]) + X[t,i] for t in 1:{N}"]
        m.inputs["W"] = Input("W", t, (b, b))
    elif pick == 5:
        m.inputs["X"] = Input("X", t, (n,))
        N = m.bound(n)
        m.lines = ["S[0] = X[0]", f"S[t] = S[t//2] + X[t] for t in 1:{N}"]
    else:
        m.inputs["X"] = Input("X", t, (b, n))
        m.lines = ["S[b,0] = X[b,0]", f"S[b,t] = S[b,t-1] + X[b,t] for t in 1:{N}", "O[b] += S[b,t] * X[b,t]"]
    m.features |= {"recurrence", f"dtype:{t}", "op:=", "multi-statement", "for"}
    return valid(m)


def time_loop(m: Maker) -> bool:
    r = m.rng
    t = m.dtype() if m.theme != "bool" else "i32"
    kind = Kinds[t]
    if kind == "b":
        return False
    n, steps = r.choice([3, 4, 5, 8, 17]), r.choice([0, 1, 2, 3, 4])
    half = "0.5 * " if kind in "fc" else ""
    least = "minimum" if kind in "if" else ""
    # In place, and loops in loops, have one form each: a share of their own keeps them from being rare.
    pick = r.choices(range(9), (2, 3, 2, 2, 2, 2, 2, 2, 3))[0]
    m.features |= {"time loop", "op:=", f"dtype:{t}", "for"}
    header = ""
    if pick <= 2:
        two = r.random() < 0.5
        n = min(n, 8) if two else n
        shape = (n, n) if two else (n,)
        element, clause = ("i,j", "i in 1:N-1, j in 1:N-1") if two else ("i", "i in 1:N-1")
        near = "A[i-1,j] + A[i+1,j] - A[i,j-1] + A[i,j+1]" if two else "A[i-1] + A[i+1] - A[i]"
        header = f"heat(A: {t}[{','.join('N' * len(shape))}], steps) -> A:"
        if pick == 0:
            body = [f"B[{element}] = {half}({near}) for {clause}", f"A[{element}] = B[{element}] for {clause}"]
        elif pick == 1:
            body = [f"A[{element}] = {half}({near}) for {clause}"]
            m.features.add("time loop: in place")
        else:
            body = [f"A[{element}] += {half}A[{element}]", f"A[{element}] = {near} for {clause}"]
            m.features.add("op:+=")
        m.lines = ["    for t in 0:steps:", *(f"        {b}" for b in body)]
        m.inputs["A"], m.sizes["steps"] = Input("A", t, shape), steps
        m.features.add("in-out")
    elif pick == 3:
        n = min(n, 5)
        header = f"lu(A: {t}[N,N]) -> A:"
        m.lines = ["    for k in 0:N:", "        A[i,j] = A[i,j] - A[i,k] * A[k,j] for i in k+1:N, j in k+1:N"]
        m.inputs["A"] = Input("A", t, (n, n))
        m.features |= {"in-out", "triangular", "triangular for"}
    elif pick == 4 and least:
        n = min(n, 5)
        header = f"paths(D: {t}[N,N]) -> D:"
        m.lines = ["    for k in 0:N:", "        D[i,j] min= D[i,k] + D[k,j]"]
        m.inputs["D"] = Input("D", t, (n, n))
        m.features |= {"in-out", "op:min="}
    elif pick == 5:
        m.inputs["A"] = Input("A", t, (n,))
        N, T = m.bound(n), m.bound(steps + 1)
        m.lines = ["X[0,i] = A[i]", f"for t in 1:{T}:",
                   f"    X[t,i] = X[t-1,i] + {half}A[i] for i in 0:{N}"]  # fmt: skip
        m.features.add("time loop: local")
    elif pick == 6:
        m.inputs["A"], m.inputs["B"] = Input("A", t, (steps + 1, n)), Input("B", t, (n,))
        T = m.bound(steps + 1)
        op = r.choice(["+=", "max=", "*="] if kind != "c" else ["+="])
        m.lines = [f"for t in 0:{T}:", f"    C[i] {op} A[t,i] + B[i]"]
        m.features |= {"time loop: local", f"op:{op}"}
    elif pick == 7:
        m.inputs["A"] = Input("A", t, (steps + 2, n))
        T = m.bound(steps + 2)
        m.lines = [f"for t in 0:{T}:", "    B[i] = A[t,i] * 2", "    C[t] += B[i]"]
        m.features |= {"time loop: local", "op:+="}
    else:
        rows = r.choice([2, 3])
        m.inputs["A"] = Input("A", t, (rows, steps + 1))
        R, T = m.bound(rows), m.bound(steps + 1)
        m.lines = [f"for s in 0:{R}:", f"    for t in 0:{T}:", "        C[s] += A[s,t]", "D[s] = C[s] + 1"]
        m.features |= {"time loop: local", "time loop: nested", "op:+="}
    if header:
        m.lines = [header, *m.lines]
    m.features.add("multi-statement")
    return valid(m)


def batch(m: Maker) -> bool:
    """`...` with batch dimensions that broadcast."""
    r = m.rng
    full = [r.choice([1, 2, 3]) for _ in range(r.choice([0, 1, 1, 2]))]

    def own() -> tuple[int, ...]:
        return tuple(1 if r.random() < 0.25 else n for n in full[r.randrange(len(full) + 1) :])

    a, b, c = (r.choice([1, 2, 3, 5, 8]) for _ in range(3))
    x, y = m.dtype(), m.dtype()
    pick = r.randrange(4)
    if pick == 0:
        m.inputs["A"], m.inputs["B"] = Input("A", x, (*own(), a, b)), Input("B", y, (*own(), b, c))
        m.lines = ["C[...,i,j] += A[...,i,k] * B[...,k,j]"]
    elif pick == 1:
        m.inputs["A"], m.inputs["B"] = Input("A", x, (*own(), a)), Input("B", y, (*own(), a))
        m.lines = ["C[i,...] = A[...,i] + B[...,i]"]
    elif pick == 2:
        m.inputs["A"] = Input("A", x, (*own(), a))
        m.lines = ["C[...] = sum[k](A[...,k])"] if Kinds[x] != "b" else ["C[...] any= A[...,k]"]
    else:
        m.inputs["A"], m.inputs["B"] = Input("A", x, (*own(), a)), Input("B", y, (a,))
        m.lines = ["T[...,i] = A[...,i] * B[i]", "C[...] += T[...,i]"]
        m.features.add("multi-statement")
    m.features |= {"...", f"dtype:{x}", f"dtype:{y}", "op:=" if pick in (1, 2) else "op:+="}
    return valid(m)


def scatter(m: Maker) -> bool:
    r = m.rng
    n, bins = r.choice([0, 1, 3, 5, 17]), r.choice([1, 2, 5, 8])
    t = m.dtype()
    kind = Kinds[t]
    op = r.choice(
        ["+=", "+=", "max=", "min=", "*="] if kind in "if" else ["+=", "*="] if kind == "c" else ["any=", "all="]
    )
    index = r.choice(["i64", "i32", "u8", "i16"])
    two = r.random() < 0.4
    m.inputs["I"] = Input("I", index, (n,), limit=bins)
    m.inputs["W"] = Input("W", t, (n, 3) if two else (n,))
    m.lines = [
        f"scatter(I: {index}[N], W: {t}[N{',M' if two else ''}]) -> H:",
        f"    H: {t}[{bins}{',M' if two else ''}]",
    ]
    if r.random() < 0.4 and kind != "b" and (bins > 1 or not two):
        m.lines.append("    H[b,j] = 1 for b in 0:2, j in 0:M" if two else "    H[0] = 2")
    m.lines.append(f"    H[I[n],j] {op} W[n,j]" if two else f"    H[I[n]] {op} W[n]")
    m.features |= {"scatter", "gather", f"op:{op}", f"dtype:{t}", f"dtype:{index}", "declared", "declared extents"}
    return valid(m)


def classics(m: Maker) -> bool:
    """Fused operators that people write."""
    return classic_lines(m) and valid(m)


def count(m: Maker) -> bool:
    """Integer programs that count instances, each with a number of its own (oracle O4)."""
    r = m.rng
    names = [m.index_name() for _ in range(r.choice([1, 2, 2, 3]))]
    clauses, sizes = [], []
    for n in names:
        e = r.choice([1, 2, 3, 5, 8, 13]) if not m.big else r.choice([8, 17, 33, 40])
        lo = r.choice(["0", "0", "0", "1"])
        hi = r.choice([m.bound(e)] * 3 + ([f"{names[0]}+1"] if n != names[0] else []))
        clauses.append(f"{n} in {lo}:{hi}")
        sizes.append(e)
    term = " + ".join(f"{7**k}*{n}" for k, n in enumerate(names)) + " + 1"
    kept = [n for n in names if r.random() < 0.6]
    subs = list(kept)
    if len(kept) > 1 and r.random() < 0.3:
        subs = ["+".join(kept)]
    elif kept and r.random() < 0.3:
        subs[0] += r.choice(["//2", "%3"])
    element = f"N[{','.join(subs)}]" if subs else "N"
    where = r.choice(
        [
            "",
            "",
            f" where ({' + '.join(names)}) % 2 == 0",
            f" where {names[0]} != 1",
            f" where {names[-1]} <= {names[0]} + 1",
        ]
    )
    other = element.replace("N", "M", 1)
    ranges = " for " + ", ".join(clauses)
    m.lines = [f"{element} += 1{ranges}{where}", f"{other} += {term}{ranges}{where}"]
    m.features |= {"counting", "op:+=", "for", "index as a value", "multi-statement"} | ({"where"} if where else set())
    return valid(m)


def contraction(m: Maker) -> bool:
    """Products of several factors that share some indices, summed, or any, or the greatest, taken in steps in some order."""
    r = m.rng
    around = r.choice([2, 3, 3, 4, 4, 5])
    pool = m.indices(around)
    m.taken = set(m.sizes)
    kind = {"bool": "b", "complex": "c"}.get(m.theme, "n")
    op, times = r.choice([("any=", " and "), ("all=", " or ")]) if kind == "b" else ("+=", " * ")
    if kind == "n" and r.random() < 0.15:
        op, times = r.choice([("max=", "minimum"), ("min=", "maximum")])
    factors = []
    for _ in range(r.choice([2, 3, 3, 3, 4, 5])):
        mine = r.sample(pool, r.choice([1, 2, 2, 3]) if len(pool) > 2 else 1)
        pick = r.random()
        bare = [i for i in mine if i.source == "bare" and not i.bare]
        if pick < 0.1:
            text, found = m.padded(mine)
        elif pick < 0.2:
            text, found = m.gathered(mine)
        elif pick < 0.4:
            text, found = m.access([i for i in mine if i not in bare], bare)
        else:
            text, found = m.new_read([i.name for i in mine], [i.hi for i in mine])
            for i in mine:
                i.bare = True
        if kind == "b" and found != "b":
            text = f"({text} {r.choice(['>', '==', '<='])} {r.choice([0, 1, 3])})"
        elif times in ("minimum", "maximum") and found == "c":
            text = f"abs({text})"
        elif r.random() < 0.1:
            text = f"(-{text})" if kind != "b" and found != "b" else text
        factors.append(text)
    if r.random() < 0.15 and kind == "n":
        factors.insert(r.randrange(len(factors)), r.choice(["2", "3"]))
    used = [i for i in pool if any(re.search(rf"\b{i.name}\b", f) for f in factors)]
    if any(i.source == "bare" and not i.bare for i in used):
        return False
    left = [i for i in used if r.random() < 0.45][:3]
    r.shuffle(left)
    text = times.join(factors)
    if times in ("minimum", "maximum"):
        text = factors[0]
        for f in factors[1:]:
            text = f"{times}({text}, {f})"
    element = f"O[{','.join(i.name for i in left)}]" if left else "O"
    clauses = [i.clause for i in used if i.source == "for"]
    line = f"{element} {op} {text}" + (" for " + ", ".join(clauses) if clauses else "")
    if len(used) > 1 and r.random() < 0.15:
        a, b = r.sample(used, 2)
        line += f" where {a.name} <= {b.name} + {r.choice([0, 1, 2])}"
        m.features.add("where")
    m.lines = [line]
    m.features |= {f"op:{op}", "product of several factors"}
    m.steps = r.choice([-1, 0, 0, 1, 2, 3])
    return valid(m)


def own_reads(m: Maker) -> bool:
    """Reductions into a result whose terms, or inline reductions in them, read it: instances run in the order of the text."""
    r = m.rng
    t = r.choice(["f32", "f64", "f64", "i32", "i64", "f16"])
    n, k = r.choice([1, 2, 4, 9]), r.choice([0, 1, 3, 6])
    m.big = False  # always small: so the interpreter tells which of them read what nothing has written
    m.inputs["X"], m.inputs["V"] = Input("X", t, (n, max(n, k))), Input("V", t, (n,))
    element = r.choice(["T[i]", "T[i]", f"T[{n - 1}-i]", "T[i//2]", "T[i%2]"])
    term = r.choice(["X[i,j]", "V[i]", "X[i,j] * V[i]"])
    reads = [f"T[{n - 1}-i]", "T[0]", "T[i//2]", "T[i]", "sum[q](T[q] * X[i,q])", f"max[q in 0:{n}](T[q] + V[i])"]
    # A place is an i64: what narrower integers would keep of a wider sum depends on when it is stored.
    read = r.choice([*reads, "argmin[q](T[q])"] if t not in ("i32", "f16") else reads)
    op = r.choice(["+=", "+=", "max=", "min=", "="])
    value = f"{read} + {term}" if r.random() < 0.6 else f"{term} * {read}"
    clauses = [f"i in 0:{n}"] + ([f"j in 0:{k}"] if "j]" in value else [])
    where = r.choice(["", "", " where j <= i", " where j != i"]) if "j]" in value else ""
    if op == "=" and where:
        where = ""
    given = r.random() < 0.5
    if given:
        m.inputs["T"] = Input("T", t, (n,))
    heads = ", ".join(f"{name}: {t}[{','.join(map(str, i.shape))}]" for name, i in m.inputs.items())
    m.lines = [f"own({heads}) -> T:"] + ([] if given else [f"    T: {t}[{n}]"])
    loop = r.random() < 0.25
    m.lines += ["    for t in 0:2:"] if loop else []
    m.lines.append(f"    {'    ' * loop}{element} {op} {value} for {', '.join(clauses)}{where}")
    m.features |= {"declared", f"op:{op}", "reads its own target", f"dtype:{t}"} | ({"time loop"} if loop else set())
    return valid(m)


FAMILIES = {
    "general": (40, general),
    "own reads": (5, own_reads),
    "contraction": (9, contraction),
    "chain": (16, chain),
    "recurrence": (8, recurrence),
    "time loop": (10, time_loop),
    "batch": (5, batch),
    "scatter": (4, scatter),
    "classics": (8, classics),
    "count": (5, count),
    "elementwise": (13, elementwise),
}
