"""A second oracle: whole statements at once in longdouble, with a bound on the rounding error of every value.

The bound is a running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.3): a sum of n
terms is off by at most gamma_n times the sum of their magnitudes, in whatever order it is taken. A bound of zero means
that every order gives the same bits: then results are compared for equality.

It takes the ranges and types that the plain interpreter found, and computes the values in its own way.
"""

from __future__ import annotations

import numpy as np

from polyker.ir import dtypes as dt
from polyker.ir.expr import BITWISE, Call, Cast, IndexExpr, Literal, Read, Reduce, SizeExpr, reads_values, walk
from polyker.ir.functions.special import complementary, error_function
from polyker.ir.program import Loop
from polyker.reference.functions import binary, unary
from polyker.reference.interpreter import bind
from polyker.reference.reductions import accumulator, result_tag
from polyker.reference.tags import WEAK_INT, promote, settle, tag_of_literal
from polyker.structs import replace
from tests.fuzz import functions
from tests.fuzz.bounds import (
    FUNCTION_ULPS,
    LD,
    Uncertain,
    V,
    bits_of,
    combine,
    convert,
    fits,
    identities,
    numeric,
    overflowed,
    rounded,
    small,
)


class Evaluator:
    """Runs a program; `outputs()` gives (value, error bound, type) of each output."""

    def __init__(self, program, arrays, sizes, acc=None):
        self.program, self.acc = program, acc
        self.bound = bind(program, arrays, sizes)
        self.sizes, self.tags = self.bound.sizes, self.bound.tags
        self.data, self.errs = {}, {}
        for name, tag in self.tags.items():
            if name in program.inputs:
                a = np.asarray(arrays[name])
                self.data[name] = a.astype(numeric(settle(tag) if name in program.outputs else tag)).copy()
            else:
                self.data[name] = np.zeros(self.bound.shapes[name], numeric(settle(tag)))
            self.errs[name] = np.zeros(self.data[name].shape)
        self.fresh = {n for n in self.tags if n not in program.inputs}
        self.started = {n: np.zeros(self.data[n].shape, bool) for n in self.fresh}

    def run(self):
        with np.errstate(all="ignore"):
            statements = iter(self.bound.statements)
            for node in [self.prepare(n, statements) for n in self.program.body]:
                node({})
            return [
                rounded(settle(self.tags[n]), self.data[n], self.errs[n], stored=True) for n in self.program.outputs
            ]

    def prepare(self, node, statements):
        if not isinstance(node, Loop):
            ranged = next(statements)
            return lambda env: self.statement(ranged, env)
        body = [self.prepare(n, statements) for n in node.body]

        def loop(env):
            lo, hi = (int(self.integer(e, env)) for e in (node.range.lo, node.range.hi))
            for t in range(lo, hi):
                for part in body:
                    part({**env, node.range.index: t})

        return loop

    # --- integers ---

    def integer(self, e, env):
        match e:
            case Literal(value=value):
                return value
            case IndexExpr(name=name):
                return env[name]
            case SizeExpr(name=name):
                return self.sizes[name]
            case Cast(arg=arg):
                return self.integer(arg, env)
            case Read():
                return self.read(e, env).val.astype(np.int64)
            case Call(op="neg"):
                return -self.integer(e.args[0], env)
            case Call(op="not"):
                return np.logical_not(self.integer(e.args[0], env))
        args = [self.integer(a, env) for a in e.args]
        function = {
            "add": np.add, "mul": np.multiply, "floordiv": np.floor_divide, "mod": np.remainder, "lt": np.less,
            "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
            "and": np.logical_and, "or": np.logical_or, "minimum": np.minimum, "maximum": np.maximum,
        }[e.op]  # fmt: skip
        total = args[0]
        for a in args[1:]:
            total = function(total, a)
        return total

    def expand(self, names, ranged, conditions, env, rows):
        """Add the points of more indices to `rows` points; returns (env, parent row of each point)."""
        explicit, ranges = ranged.flat.explicit(), ranged.ranges
        parent = np.arange(rows)
        env = dict(env)
        pending = [n for n in names if n not in env]
        while pending:
            n = next(
                n
                for n in pending
                if n not in explicit or all(i in env for b in (explicit[n].lo, explicit[n].hi) for i in _names(b))
            )
            pending.remove(n)
            if n in explicit:
                lo = np.broadcast_to(self.integer(explicit[n].lo, env), parent.shape).astype(np.int64)
                hi = np.broadcast_to(self.integer(explicit[n].hi, env), parent.shape).astype(np.int64)
                count = np.maximum(hi - lo, 0)
                pick = np.repeat(np.arange(len(parent)), count)
                offset = np.arange(len(pick)) - np.repeat(np.cumsum(count) - count, count)
                values = lo[pick] + offset
            else:
                taken = np.array(list(ranges[n]), np.int64)
                pick = np.repeat(np.arange(len(parent)), len(taken))
                values = np.tile(taken, len(parent))
            env = {k: v[pick] if isinstance(v, np.ndarray) and v.ndim else v for k, v in env.items()}
            env[n], parent = values, parent[pick]
        for c in sorted(conditions, key=reads_values):
            if reads_values(c):
                keep = convert(self.evaluate(c, env, len(parent), ranged), dt.bool_).val
            else:
                keep = np.broadcast_to(self.integer(c, env), parent.shape).astype(bool)
            env = {k: v[keep] if isinstance(v, np.ndarray) and v.ndim else v for k, v in env.items()}
            parent = parent[keep]
        return env, parent

    # --- values ---

    def evaluate(self, e, env, n, ranged):
        match e:
            case Literal(value=value):
                tag = tag_of_literal(value)
                return V(tag, np.full(n, value, numeric(tag)), np.zeros(n))
            case IndexExpr() | SizeExpr():
                return V(WEAK_INT, np.broadcast_to(self.integer(e, env), (n,)).astype(np.int64), np.zeros(n))
            case Read():
                if n == 0:  # nothing is read, and an element that no instance depends on need not exist
                    tag = self.tags[e.tensor]
                    return V(tag, np.zeros(0, numeric(tag)), np.zeros(0))
                v = self.read(e, env)
                return replace(v, val=np.broadcast_to(v.val, (n,)), err=np.broadcast_to(v.err, (n,)))
            case Cast(to=to, arg=arg):
                return convert(self.evaluate(arg, env, n, ranged), to, explicit=True)
            case Reduce():
                return self.reduce(e, env, n, ranged)
        # A difference promotes before it negates.
        minus = [k > 0 and e.op == "add" and isinstance(a, Call) and a.op == "neg" for k, a in enumerate(e.args)]
        args = [self.evaluate(a.args[0] if m else a, env, n, ranged) for a, m in zip(e.args, minus, strict=True)]
        if e.op == "where":
            test = convert(args[0], dt.bool_).val
            tag = promote(args[1].tag, args[2].tag)
            a, b = convert(args[1], tag), convert(args[2], tag)
            return V(tag, np.where(test, a.val, b.val), np.where(test, a.err, b.err))
        if e.op == "not":
            return V(dt.bool_, ~convert(args[0], dt.bool_).val, np.zeros(n))
        if (found := functions.value(e.op, args)) is not None:
            return found
        if len(args) == 1:
            return self.unary(e.op, args[0])
        total = args[-1] if e.op == "pow" else args[0]
        for k in range(1, len(args)):
            if e.op == "pow":
                total = self.binary("pow", args[-1 - k], total)
            else:
                total = self.binary("sub" if minus[k] else e.op, total, args[k])
        return total

    def read(self, e, env):
        shape, where, outside = self.data[e.tensor].shape, [], False
        for s, extent in zip(e.subscripts, shape, strict=True):
            i = np.asarray(self.integer(s, env), np.int64)
            if e.pad is not None and e.pad.mode == "constant":
                outside = outside | (i < 0) | (i >= extent)
                i = np.clip(i, 0, max(extent - 1, 0))
            elif e.pad is not None:
                i = _moved(e.pad.mode, i, extent)
            where.append(i)
        tag = self.tags[e.tensor]
        if np.any(outside):
            constant = np.asarray(e.pad.value.value).astype(settle(tag).numpy).astype(numeric(tag))
            if 0 in shape:
                shown = np.broadcast_arrays(*where, outside)[0].shape
                return V(tag, np.full(shown, constant), np.zeros(shown))
            val = np.where(outside, constant, self.data[e.tensor][tuple(where)])
            return V(tag, val, np.where(outside, 0, self.errs[e.tensor][tuple(where)]))
        return V(tag, self.data[e.tensor][tuple(where)], self.errs[e.tensor][tuple(where)])

    def unary(self, op, a):
        takes, gives, _ = unary(op, a.tag, False)
        a = convert(a, takes)
        v, err, zero = a.val, a.err, np.zeros(np.shape(a.val))
        real = not np.iscomplexobj(v)
        match op:
            case "neg":
                return V(gives, -v, err)
            case "abs":
                if real:
                    return V(gives, np.abs(v), err)
                return rounded(gives, np.abs(v), err, ulps=2)
            case "conj" | "real" | "imag":
                return V(
                    gives,
                    {"conj": np.conj, "real": np.real, "imag": np.imag}[op](v).astype(
                        v.dtype if op == "conj" else numeric(gives)
                    ),
                    err,
                )
            case "bit_not":
                return V(gives, ~v, zero)
            case "relu":
                return V(gives, np.maximum(v, v.dtype.type(0)), err)
            case "floor" | "ceil" | "trunc" | "round" | "sign":
                if settle(takes).kind not in "fc":
                    return V(gives, v if op != "sign" else np.sign(v), zero)
                f = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "sign": np.sign}[op]
                if not real:
                    if np.any(err > 0):
                        raise Uncertain
                    return rounded(gives, f(v), zero, ulps=2 if op == "sign" else 0.5)
                if np.any((err > 0) & (f(v - err) != f(v + err))):
                    raise Uncertain
                return V(gives, f(v), zero)
        f = _FUNCTIONS[op]
        val = f(v)
        if real:
            spread = np.maximum(np.abs(f(v + err) - val), np.abs(f(v - err) - val))
            if op in ("sin", "cos", "gelu", "silu"):
                spread = 1.2 * err
        else:
            spread = np.maximum(np.abs(f(v + err) - val), np.abs(f(v - err) - val)) * 2
            # What a function of an infinite complex number is, part by part, is not held against anyone.
            err = np.where(np.isfinite(v), err, np.inf)
            spread = np.where(np.isfinite(v), spread, np.inf)
        spread = np.where(np.isnan(spread) & np.isfinite(val), np.inf, spread)
        if op == "tan":  # the ends of an interval say little where a pole may lie between them
            spread = np.where(err > 1e-3, np.inf, spread)
        spread = np.where(err > 0, 1.05 * spread, 0)
        at = np.abs(val) + (np.abs(v) if op in ("gelu", "erf", "silu") or not real else 0)
        if not real:
            at = at + 1
        return rounded(gives, val, spread.astype(float), ulps=FUNCTION_ULPS, at=at)

    def binary(self, op, a, b):
        takes, gives, f = binary(op, a.tag, b.tag, False)
        if gives == dt.bool_ and op not in ("and", "or", "add", "mul", "minimum", "maximum", *BITWISE):
            return self.compare(op, a, b, takes)
        a, b = convert(a, takes), convert(b, takes)
        if op in ("and", "or"):
            return V(gives, f(a.val, b.val), np.zeros(np.shape(a.val)))
        if settle(takes).kind not in "fc":
            return V(gives, _whole(op, a.val, b.val), np.zeros(np.shape(a.val)))
        x, y, ex, ey = a.val, b.val, a.err, b.err
        ax, ay = np.abs(x), np.abs(y)
        cplx = np.iscomplexobj(x)
        match op:
            case "add" | "sub":
                return rounded(gives, x + y if op == "add" else x - y, ex + ey)
            case "minimum" | "maximum":
                return V(gives, (np.minimum if op == "minimum" else np.maximum)(x, y), np.maximum(ex, ey))
            case "mul":
                err = np.where(ex > 0, ex * ay, 0) + np.where(ey > 0, ey * ax, 0)
                err = err + np.where((ex > 0) & (ey > 0), ex * ey, 0)
                err = np.where(np.isnan(err), np.inf, err)  # 0 times what may be infinite may be NaN
                if not cplx:
                    return rounded(gives, x * y, err.astype(float))
                exact = small(x, y) & (err == 0)
                val = x * y
                slip = np.where(exact, 0, 4 * ax * ay * LD(2) ** -bits_of(gives))
                return V(gives, val, overflowed(gives, val, (err + slip).astype(float), bits_of(gives)))
            case "div":
                val = x / y
                err = (ex + np.abs(val) * ey) / np.maximum(ay - ey, 0)
                err = np.where((ex == 0) & (ey == 0), 0, err)
                if cplx:
                    return rounded(gives, val, err.astype(float), ulps=6)
                exact = fits(val, bits_of(gives)) & (val * y == x)
                return rounded(gives, val, err.astype(float), ulps=0.5 if np.all(exact) else 1)
            case "pow":
                val = np.power(x, y)
                spread = [np.abs(np.power(x + i * ex, y + j * ey) - val) for i in (-1, 1) for j in (-1, 1)]
                err = np.where((ex > 0) | (ey > 0), 1.05 * np.max(spread, axis=0), 0)
                return rounded(gives, val, err.astype(float), ulps=FUNCTION_ULPS * 2)
        if np.any((ex > 0) | (ey > 0)):
            raise Uncertain
        # numpy's floor_divide in the type itself: a quotient that rounds up to a whole number counts.
        kind = np.float32 if bits_of(gives) == 24 else np.float64
        divided = np.floor_divide if op == "floordiv" else np.remainder
        exact = divided(np.asarray(x).astype(kind), np.asarray(y).astype(kind))
        return V(gives, np.asarray(exact).astype(x.dtype), np.zeros(np.shape(x)))

    def compare(self, op, a, b, takes):
        f = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal}
        f = f.get(op, np.not_equal)
        if takes != WEAK_INT:
            a, b = convert(a, takes), convert(b, takes)
            unsure = (a.err + b.err > 0) & (np.abs(a.val - b.val) <= a.err + b.err)
            if np.any(unsure):
                raise Uncertain
        return V(dt.bool_, f(a.val, b.val), np.zeros(np.shape(a.val)))

    # --- reductions ---

    def reduce(self, e, env, n, ranged):
        inner, parent = self.expand([r.index for r in e.ranges], ranged, e.conditions, env, n)
        body = self.evaluate(e.body, inner, len(parent), ranged)
        tag = result_tag(e.op, body.tag)
        if e.op in ("argmax", "argmin"):
            return self.argument(e, body, inner[e.ranges[0].index], parent, n)
        acc = self.acc if self.acc is not None and e.op not in ("any", "all", "max", "min") else tag
        body = _any_order(e.body, convert(body, acc))
        op = {"sum": "add", "prod": "mul", "mean": "add"}.get(e.op, e.op)
        if e.op == "logsumexp":
            return convert(self.logsumexp(body, parent, n, acc), tag)
        start = V(acc, identities(op, acc, n), np.zeros(n))
        total = combine(op, start, body, parent)
        if e.op == "mean":
            count = np.bincount(parent, minlength=n).astype(numeric(acc))
            total = self.binary("div", total, V(acc, count, np.zeros(n)))
            total = replace(total, tag=acc)
        return convert(total, tag)

    def argument(self, e, body, values, parent, n):
        if np.any(body.err > 0):
            raise Uncertain
        out = np.zeros(n, np.int64)
        order = np.argsort(parent, kind="stable")
        ends = np.searchsorted(parent[order], np.arange(n + 1))
        for row in range(n):
            mine = order[ends[row] : ends[row + 1]]
            pick = (np.argmax if e.op == "argmax" else np.argmin)(body.val[mine])
            out[row] = values[mine[pick]]
        return V(dt.i64, out, np.zeros(n))

    def logsumexp(self, body, parent, n, acc):
        top = np.full(n, -np.inf, LD)
        np.maximum.at(top, parent, body.val)
        shift = np.where(np.isfinite(top), top, 0)
        terms = np.exp(body.val - shift[parent])
        total = np.zeros(n, LD)
        np.add.at(total, parent, terms)
        val = shift + np.log(total)
        off = np.zeros(n)
        np.maximum.at(off, parent, body.err)
        count = np.bincount(parent, minlength=n)
        slip = (count + FUNCTION_ULPS * 2) * (np.abs(val) + np.abs(shift) + 1) * LD(2) ** -bits_of(acc)
        return V(acc, val, np.where(np.isfinite(val), off + slip.astype(float), 0))

    # --- statements ---

    def statement(self, ranged, env):
        s = ranged.flat.statement
        outer = {k: np.int64(v) for k, v in env.items()}
        order = ranged.flat.order
        points, parent = self.expand(order, ranged, s.conditions, outer, 1)
        scatters = s.op == "set" and any(isinstance(e, Read) for x in s.subscripts for e in walk(x))
        if s.op != "set" or scatters:
            self.start(ranged, outer)
        rows = len(parent)
        if scatters and order and rows:  # of equal places the last counts
            at = np.lexsort([np.broadcast_to(points[n], (rows,)) for n in reversed(order)])
            points = {k: v[at] if np.ndim(v) else v for k, v in points.items()}
        if any(isinstance(x, Read) and x.tensor == s.target for x in walk(s.expr)):
            keys = [points[n] for n in reversed(order)]
            for row in np.lexsort(keys) if keys else range(rows):
                self.write(ranged, {k: v[row : row + 1] if v.ndim else v for k, v in points.items()}, 1)
        elif rows:
            self.write(ranged, points, rows)

    def start(self, ranged, outer):
        """Put the identity where a reduction defines elements that nothing has defined."""
        s, flat = ranged.flat.statement, ranged.flat
        if s.target not in self.fresh:
            return
        given = flat.explicit()
        wide = [any(isinstance(e, Read) or getattr(e, "name", None) in given for e in walk(x)) for x in s.subscripts]
        kept = list(dict.fromkeys(n for w, x in zip(wide, s.subscripts, strict=True) if not w for n in _names(x)))
        env, parent = self.expand(kept, ranged, (), outer, 1)
        reached = np.zeros(self.data[s.target].shape, bool)
        fixed = []
        for free, sub, extent in zip(wide, s.subscripts, reached.shape, strict=True):
            fixed.append(
                None if free else np.broadcast_to(np.clip(self.integer(sub, env), 0, extent - 1), parent.shape)
            )
        if len(parent) and reached.size:
            order = [d for d, f in enumerate(fixed) if f is not None]
            moved = np.moveaxis(reached, order, range(len(order)))
            moved[tuple(fixed[d] for d in order) if order else ...] = True
        new = reached & ~self.started[s.target]
        self.data[s.target][new] = identities(
            "add" if s.op == "set" else s.op, settle(self.tags[s.target]), int(new.sum())
        )
        self.started[s.target][new] = True

    def write(self, ranged, env, rows):
        s = ranged.flat.statement
        tag = settle(self.tags[s.target])
        shape = self.data[s.target].shape
        element = np.zeros(rows, np.int64)
        for sub, extent in zip(s.subscripts, shape, strict=True):
            element = element * extent + self.integer(sub, env)
        value = self.evaluate(s.expr, env, rows, ranged)
        data, errs = self.data[s.target].reshape(-1), self.errs[s.target].reshape(-1)
        if s.op == "set":
            v = convert(value, tag, explicit=True)
            data[element], errs[element] = v.val, v.err
            if s.target in self.fresh:
                self.started[s.target].reshape(-1)[element] = True
        else:
            acc = accumulator(s.op, tag, self.acc)
            touched, local = np.unique(element, return_inverse=True)
            start = convert(V(tag, data[touched], errs[touched]), acc)
            value = _any_order(s.expr, convert(value, acc))
            if s.op == "logsumexp":
                both = V(acc, np.append(start.val, value.val), np.append(start.err, value.err))
                every = np.append(np.arange(len(touched)), local)
                total = convert(self.logsumexp(both, every, len(touched), acc), tag, explicit=True)
            else:
                total = convert(combine(s.op, start, value, local), tag, explicit=True)
            data[touched], errs[touched] = total.val, total.err


def _any_order(e, body):
    """Leave open what a product of several factors is where it is not finite.

    A sum of products may be taken in steps: x * inf + y * inf is (x + y) * inf then, which may be infinite where that is NaN.
    """
    product = any(isinstance(x, Call) and x.op == "mul" for x in walk(e))
    return replace(body, err=np.where(np.isfinite(body.val), body.err, np.inf)) if product else body


def _whole(op, a, b):
    f = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
        "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power, "bit_and": np.bitwise_and,
        "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor, "shift_left": np.left_shift, "shift_right": np.right_shift,
    }[op]  # fmt: skip
    return f(a, b)


def _moved(mode, i, extent):
    if mode == "edge":
        return np.clip(i, 0, extent - 1)
    if mode == "wrap":
        return i % extent
    if extent == 1:
        return i * 0
    i = i % (2 * extent - 2)
    return np.minimum(i, 2 * extent - 2 - i)


def _names(e):
    return [x.name for x in walk(e) if isinstance(x, IndexExpr)]


def _each(f):
    return lambda a: np.array([f(LD(x)) for x in np.ravel(a)], LD).reshape(np.shape(a))


def _sigmoid(a):
    return 1 / (1 + np.exp(-a))


_FUNCTIONS = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "tanh": np.tanh, "rsqrt": lambda a: 1 / np.sqrt(a), "erf": _each(error_function),
    "sigmoid": _sigmoid, "silu": lambda a: a * _sigmoid(a), "gelu": lambda a: a * _each(complementary)(-a / np.sqrt(LD(2))) / 2,
    **functions.VALUES,
}  # fmt: skip
