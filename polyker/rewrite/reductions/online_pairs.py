"""Fuse two dependent reductions over a long row into one pass (online softmax).

Before: `M max= x[k];  S += exp(x[k] - M)`. After, by blocks of 4096 elements: `m[b] max= x[4096*b+c];  s[b] += exp(x[4096*b+c] -
m[b]);  M max= m[b];  S += s[b] * exp(m[b] - M)`. The statements over blocks share their loop, so that each block is read once
from memory. Pairs (m, s) are combined in any order, as the terms of a sum are, and rounded as in an order of the sum. So are

    t += x[k];    q += (x[k] - u)**2                       by   q[b] + n * (t[b] / n - u)**2     for any u, such as t / n
    M max= x[k];  p min= where(x[k] == M, v[k], none)      by   where(m[b] == M, p[b], none)     with the same bits

where p[b], q[b] are those of a block by itself. A block without a finite maximum or sum is shifted by nothing, so infinities and
NaN give what they give in two passes. No name matters: `argmax` and `logsumexp` expand to such terms, others may be written.
Source: B. P. Welford 1962; T. F. Chan, G. H. Golub, R. J. LeVeque 1983; M. Milakov, N. Gimelshein 2018.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from polyker.cost.plan import is_costly, values
from polyker.cost.temporaries import insisted
from polyker.ir.decision import Decision
from polyker.ir.dtypes import DType, bool_, i64
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read, reads_in
from polyker.ir.quasi_affine import add, index, indices, indices_of, lit, renaming, scale, subtract
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement, statements_of
from polyker.machine.model import Target
from polyker.poly.boxes import corners
from polyker.poly.isl import dim, read_set
from polyker.poly.scop import image
from polyker.rewrite.core.accumulate import starts_fresh
from polyker.rewrite.core.alike import TensorNames, points_as
from polyker.rewrite.core.exponentials import difference, finite, is_finite, shifted_exp
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.rewrite.core.match import match
from polyker.rewrite.core.reindex import reindexed
from polyker.structs import replace

# Elements of a block where the caller (a test) forces blocks.
FORCED_BLOCK_ELEMENTS = 4


class Shifted(Struct, frozen=True):
    """Terms of a reduction that depend on `value`, of the row, and on `shift`, the same for the whole row.

    `first`: the reductions of the row, one of which gives a block a shift of its own. `inside`: the terms with the shift that
    follows from the first reduction of a block and the number of its elements; `combined`: the term for a block, of its first and
    its second reduction, the number of its elements and the shift of the row. `exact`: the shift has to be the first one's
    result. `counts`: the number of a block's elements is used.
    """

    first: tuple[str, ...]
    value: Expr
    shift: Expr
    inside: Callable[[Expr, Expr], Expr]
    combined: Callable[[Expr, Expr, Expr, Expr], Expr]
    exact: bool = False
    counts: bool = False


def shifted(op: str, expr: Expr) -> Shifted | None:
    """Return the terms of a reduction as those of a shifted value, None where they are none."""
    dtype = expr.dtype
    assert dtype is not None
    match expr:
        # The algebra of the exponential: exp(x - m) is exp(x - n) exp(n - m).
        case Call(op="exp", args=(Call(op="add", args=(value, Call(op="neg", args=(shift,)))),)) if op == "add":

            def exponential(first: Expr, _: Expr) -> Expr:
                return shifted_exp(value, finite(first))

            return Shifted(
                ("max",), value, shift, exponential,
                lambda m, s, _, c: _call("mul", dtype, s, shifted_exp(m, c)),
            )  # fmt: skip
        case Call(
            op="pow" | "mul", args=(Call(op="add", args=(value, Call(op="neg", args=(shift,)))) as base, other)
        ) if op == "add" and dtype.kind == "f" and (other == base if expr.op == "mul" else other == Literal(2, dtype)):

            def square(e: Expr) -> Expr:
                return replace(expr, args=(e, e if expr.op == "mul" else other))

            def of_block(t: Expr, q: Expr, n: Expr, c: Expr) -> Expr:
                # A block with an infinity has an infinite q, and is NaN where the row's shift is the same infinity.
                mean = _call("div", dtype, t, n)
                own = _call("where", dtype, is_finite(c), finite(mean), mean)
                return _call("add", dtype, q, _call("mul", dtype, n, square(difference(own, c))))

            return Shifted(
                ("add",), value, shift,
                lambda t, n: square(difference(value, finite(_call("div", dtype, t, n)))),
                of_block,
                counts=True,
            )  # fmt: skip
        case Call(op="where", args=(condition, _, Literal() as none)) if op in ("min", "max"):
            found = _equality(condition)
            if found is None or none != identity(op, dtype):
                return None
            kind, (value, shift) = found

            def chosen(of: Expr, extremum: Expr, place: Expr) -> Expr:
                return replace(expr, args=(kind(of, extremum), place, none))

            return Shifted(
                ("max", "min"),
                value,
                shift,
                lambda m, _: chosen(value, m, expr.args[1]),
                lambda m, p, _, c: chosen(m, c, p),
                exact=True,
            )
        case _:
            return None


def _equality(condition: Expr) -> tuple[Callable[[Expr, Expr], Expr], tuple[Expr, Expr]] | None:
    """Return a condition as a function of two values that are compared: equal, or the first is no number."""
    match condition:
        case Call(op="eq", args=(value, extremum)):
            return (lambda a, b: _call("eq", bool_, a, b)), (value, extremum)
        case Call(op="or", args=(Call(op="eq", args=(value, extremum)), Call(op="ne", args=(one, other)))) if (
            one == value == other
        ):
            return (lambda a, b: _call("or", bool_, _call("eq", bool_, a, b), _call("ne", bool_, a, a))), (
                value,
                extremum,
            )
        case _:
            return None


def _call(op: str, dtype: DType, *args: Expr) -> Expr:
    return Call(op, args, dtype)


def one_pass(program: TypedProgram, target: Target) -> tuple[TypedProgram, tuple[Decision, ...]]:
    """Return the program with such pairs by blocks where the last cache holds no row, and what was done in words."""
    notes: list[Decision] = []
    place = 0
    while place < len(program.body):
        found = _pair(program, place, target)
        if found is not None:
            program, note, more = found
            notes.append(note)
            place += more
        place += 1
    return program, tuple(notes)


def _started(program: TypedProgram, place: int) -> TypedStatement | None:
    """Return the reduction of floats at a place of the body that the statement before it starts, if there is one."""
    before, node = program.body[place - 1] if place else None, program.body[place]
    if not isinstance(node, TypedStatement) or not isinstance(before, TypedStatement) or node.op == "set":
        return None
    plain = (
        node.outer == 0
        and len(node.reduced) == 1
        and not node.in_order
        and node.acc == program.tensor(node.target).dtype
    )
    return node if plain and starts_fresh(program, before, node) else None


def _pair(program: TypedProgram, place: int, target: Target) -> tuple[TypedProgram, Decision, int] | None:
    """Return the program with the reduction at a place and an earlier one by blocks, that in words, and by how many statements it
    is longer."""
    node = program.body[place]
    if program.sizes or not isinstance(node, TypedStatement) or node.op == "set":
        return None
    terms = shifted(node.op, node.expr)
    if terms is None or indices_of(terms.shift) & set(node.reduced) or any(is_costly(e) for e in values(terms.value)):
        return None
    second = _started(program, place)
    if second is None:
        return None
    for earlier in range(1, place):
        one = program.body[earlier]
        if not isinstance(one, TypedStatement) or one.op not in terms.first:
            continue
        names = match(one.expr, terms.value, {})
        first = _started(program, earlier) if names is not None and len(names) == len(one.iterators) else None
        if first is None or names is None or not _may_share(program, first, second, terms, names, earlier, place):
            continue
        blocks = _RowBlocks.of(second, target)
        if blocks is not None:
            return _blocked(program, earlier, place, terms, names, blocks)
    return None


def _may_share(
    program: TypedProgram,
    first: TypedStatement,
    second: TypedStatement,
    terms: Shifted,
    names: TensorNames,
    here: int,
    there: int,
) -> bool:
    """Whether both walk the same elements, none of which changes between them, and the second depends on the first's result."""
    same = {names[first.reduced[0]]} == set(second.reduced) and len(set(names.values())) == len(second.iterators)
    if not same or not points_as(program, first, second, names).is_equal(read_set(second.domain)):
        return False
    if terms.exact:
        own = first.substituted(renaming(names)).subscripts
        if not isinstance(terms.shift, Read) or (terms.shift.tensor, terms.shift.subscripts) != (first.target, own):
            return False
    written = {s.target for s in statements_of(program.body[here - 1 : there])}
    if any(r.tensor in written for r in reads_in(terms.inside(Literal(0, first.acc), Literal(1, first.acc)))):
        return False
    depends = {first.target}
    for s in statements_of(program.body[here + 1 : there]):
        if s.target == first.target:
            return False
        if any(r.tensor in depends for r in s.reads()):
            depends.add(s.target)
    return any(r.tensor in depends for r in reads_in(terms.shift))


class _RowBlocks(Struct, frozen=True):
    """The elements of a row from `low` to `high`, by blocks of `size`."""

    low: int
    high: int
    size: int

    @classmethod
    def of(cls, statement: TypedStatement, target: Target) -> _RowBlocks | None:
        """Return blocks that half of the first cache holds, of one size if that can be; None where the caches hold the row."""
        box = corners(read_set(statement.domain))
        if box is None:
            return None
        low, high = box[statement.iterators.index(statement.reduced[0])]
        extent, itemsize = high - low + 1, statement.acc.itemsize
        if insisted() is not None:
            return cls(low, high, FORCED_BLOCK_ELEMENTS) if extent > FORCED_BLOCK_ELEMENTS else None
        if not target.from_memory(extent * itemsize):
            return None
        most = target.caches[0].size // 2 // itemsize
        return cls(low, high, next((n for n in range(most, most // 4, -1) if extent % n == 0), most))

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return (self.high - self.low) // self.size + 1

    @property
    def alike(self) -> bool:
        """Whether all blocks have as many elements."""
        return (self.high - self.low + 1) % self.size == 0

    def elements(self, block: Expr) -> Expr:
        """Return the number of a block's elements."""
        left = subtract(lit(self.high - self.low + 1), scale(self.size, block))
        return lit(self.size) if self.alike else Call("minimum", (lit(self.size), left), i64)

    def place(self, block: Expr, element: Expr) -> Expr:
        """Return the place in the row of an element of a block."""
        return add(lit(self.low), scale(self.size, block), element)


def _blocked(
    program: TypedProgram, here: int, there: int, terms: Shifted, names: TensorNames, blocks: _RowBlocks
) -> tuple[TypedProgram, Decision, int]:
    """Return the program with two reductions by blocks, that in words, and how many statements more it has."""
    first, second = program.body[here], program.body[there]
    assert isinstance(first, TypedStatement)
    assert isinstance(second, TypedStatement)
    fresh = Fresh(program)
    block = IndexExpr(fresh.iterator(), i64)
    own = first.substituted(renaming(names)).subscripts
    shape = (*program.tensor(first.target).shape, lit(blocks.count))
    one, ones = _inside(fresh, first, first.subscripts, first.expr, blocks, shape, block)
    start = Read(one, (*own, block), dtype=first.acc)
    number, counts = _counted(fresh, first, terms, blocks, block)
    inside = terms.inside(start, number)
    other, others = _inside(fresh, second, own, inside, blocks, shape, block)
    result = Read(other, (*own, block), dtype=second.acc)
    combined = terms.combined(start, result, number, terms.shift)
    body = list(program.body)
    body[there] = _outside(program, replace(second, expr=combined), blocks, block.name)
    last = fresh.iterator()
    of_block = Read(one, (*first.subscripts, index(last)), dtype=first.acc)
    body[here] = _outside(program, replace(first, expr=of_block), blocks, last)
    made = [*counts, *ones, *others]
    body[here - 1 : here - 1] = made
    note = Decision(f"{first.name} and {second.name}", f"read each row once, by blocks of {blocks.size} elements")
    return fresh.finish(tuple(body)), note, len(made)


def _counted(
    fresh: Fresh, statement: TypedStatement, terms: Shifted, blocks: _RowBlocks, block: IndexExpr
) -> tuple[Expr, list[TypedNode]]:
    """Return the number of a block's elements, and what stores it where blocks differ: an integer would narrow the vectors."""
    acc = statement.acc
    if blocks.alike or not terms.counts:
        return Literal(float(blocks.size) if acc.kind == "f" else blocks.size, acc), []
    tensor, own = fresh.temporary("count", acc, (lit(blocks.count),)), fresh.iterators(1)
    points, value = read_set(f"{{ [b] : 0 <= b < {blocks.count} }}"), Cast(acc, blocks.elements(index(*own)), acc)
    made = fresh.sets(points, own, (tensor, indices(own)), value, statement)
    return Read(tensor, (block,), dtype=acc), [made]


def _inside(
    fresh: Fresh,
    statement: TypedStatement,
    element: tuple[Expr, ...],
    expr: Expr,
    blocks: _RowBlocks,
    shape: tuple[Expr, ...],
    block: IndexExpr,
) -> tuple[str, list[TypedNode]]:
    """Return the tensor of a reduction's results for each block, and the statements that compute it.

    `expr`: the terms, over the statement's iterators and `block`; `element`: the subscripts of a result.
    """
    own = {i: fresh.iterator() for i in statement.kept}
    number, inner = fresh.iterators(2)
    values = {block.name: index(number), statement.reduced[0]: blocks.place(index(number), index(inner))}
    iterators = (*own.values(), number)
    place = f"({statement.reduced[0]} - {blocks.low})"
    onto = (*own, f"floor({place}/{blocks.size})", f"{place} mod {blocks.size}")
    points = image(fresh.program, statement, onto)
    name = fresh.temporary({"add": "sum"}.get(statement.op, statement.op), statement.acc, shape)
    made = replace(statement, target=name, subscripts=(*element, block), expr=expr, defines=None)
    terms = reindexed(made, (*iterators, inner), points, values | renaming(own), fresh.statement(), (inner,))
    started = points.project_out(dim.set, len(iterators), 1)
    zero = identity(statement.op, statement.acc)
    return name, [fresh.sets(started, iterators, (name, terms.subscripts), zero, statement), terms]


def _outside(program: TypedProgram, statement: TypedStatement, blocks: _RowBlocks, number: str) -> TypedStatement:
    """Return a reduction of the blocks' results in place of that of a row's elements."""
    (row,) = statement.reduced
    iterators = (number if i == row else i for i in statement.iterators)
    onto = (f"floor(({i} - {blocks.low})/{blocks.size})" if i == row else i for i in statement.iterators)
    return reindexed(statement, iterators, image(program, statement, onto), {}, reduced=(number,))
