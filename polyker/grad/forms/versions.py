"""Array expansion: bring a program to single assignment form, in which all values are there when derivatives read them.

Before: `A[i] = X[i]; for t in 0:T: B[i] = f(A[i]); A[i] = g(B[i])`. After: `A_0[i] = X[i]; A_s[0,i] = A_0[i];
for t in 0:T: B_s[t,i] = f(A_s[t,i]); A_s[t+1,i] = g(B_s[t,i])`, then `A[i] = A_s[T,i]`.
A tensor whose elements are set once stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations

import islpy as isl
from msgspec import Struct, field

from polyker.errors.base import failure
from polyker.errors.gradients import NO_REVERSE
from polyker.grad.bound import PlainLoop, PlainNode, PlainProgram, PlainStatement, conditions_of, plain_statements
from polyker.grad.values import ZERO, minus, plus
from polyker.ir.dtypes import DType
from polyker.ir.expr import Expr, IndexExpr, Range, Read, reads_in, rebuild
from polyker.ir.quasi_affine import lit, print_affine
from polyker.ir.reductions import identity
from polyker.ir.typed import TypedProgram
from polyker.poly.isl import read_map, read_set, set_text
from polyker.poly.scop import access_relation, tensor_box
from polyker.structs import replace


def changing_tensors(program: PlainProgram) -> frozenset[str]:
    """Return the tensors whose elements have more than one value."""
    return frozenset(name for name in {s.target for s in program.statements} if not _is_set_once(program, name))


def with_versions(program: PlainProgram) -> PlainProgram:
    """Return a program each of whose tensors has one value an element; raises GradientError where that cannot be.

    Inside a block of steps a tensor has one value an element for each of the block's steps.
    """
    changing = changing_tensors(program)
    if not changing:
        return program
    made = _Versions(program, changing, dict(program.shapes), dict(program.dtypes))
    nodes = made.nodes(program.nodes)
    back = {last: name for name, last in made.current.items() if name not in program.inputs}
    shapes = {back.get(n, n): shape for n, shape in made.shapes.items()}
    dtypes = {back.get(n, n): dtype for n, dtype in made.dtypes.items()}
    results = {name: last for name, last in made.current.items() if name in program.inputs}
    return replace(
        program,
        nodes=tuple(_renamed(n, back) for n in nodes),
        shapes=shapes,
        dtypes=dtypes,
        results=results,
        local=frozenset(made.local),
        constant=program.constant | made.constant,
    )


def _is_set_once(program: PlainProgram, tensor: str) -> bool:
    """Whether each element of a tensor gets its value once, and is read only then."""
    order = list(program.statements)
    writers = [s for s in order if s.target == tensor]
    if tensor in program.inputs:
        return False
    sets = [s for s in writers if s.op == "set"]
    maps = [_written(program.typed, s) for s in sets]
    if not all(m.is_injective() for m in maps):
        return False
    ranges = [m.range() for m in maps]
    if not all(one.is_disjoint(other) for one, other in combinations(ranges, 2)):
        return False
    if len(sets) == len(writers):
        return True
    if len({s.op for s in writers} - {"set"}) > 1 or any(r.tensor == tensor for s in sets for r in _reads(s)):
        return False
    readers = [n for n, s in enumerate(order) if s.target != tensor and any(r.tensor == tensor for r in _reads(s))]
    last = max(n for n, s in enumerate(order) if s.target == tensor)
    first = min(n for n, s in enumerate(order) if s.op != "set" and s.target == tensor)
    if any(s.op == "set" and n > first for n, s in enumerate(order) if s.target == tensor):
        return False
    if readers and min(readers) < last:
        return False
    updates = [s for s in writers if s.op != "set"]
    if updates[0].op != "add" and not any(_are_together(nodes, writers) for nodes in _node_lists(program.nodes)):
        return False  # what one of several terms weighs is known where the others are
    if not all(_reads_this(program, s, r) for s in updates for r in reads_in(s.expr) if r.tensor == tensor):
        return False
    if all(_by_step(program.typed, s).reverse().is_single_valued() for s in updates if s.own.outer):
        return True
    # A sum over the iterations of a loop that does not read it: the order of its terms does not matter.
    around = [{s.target for s in plain_statements((n,))} for n in program.nodes]
    read = [any(r.tensor == tensor for s in plain_statements((n,)) for r in _reads(s)) for n in program.nodes]
    return updates[0].op == "add" and not any(
        tensor in of and is_read for of, is_read in zip(around, read, strict=True)
    )


def _node_lists(nodes: Sequence[PlainNode]) -> Iterator[Sequence[PlainNode]]:
    """Yield a block and those of the loops in it."""
    yield nodes
    for node in nodes:
        if isinstance(node, PlainLoop):
            yield from _node_lists(node.body)


def _are_together(nodes: Sequence[PlainNode], statements: Sequence[PlainStatement]) -> bool:
    return all(any(s is n for n in nodes) for s in statements)


def _reads(s: PlainStatement) -> Iterator[Read]:
    return reads_in(s.expr, *s.subscripts, *s.conditions)


def _written(program: TypedProgram, s: PlainStatement) -> isl.Map:
    """Return {instance -> element of its target}."""
    relation = read_map(access_relation(program, s.own, s.own.target, s.own.subscripts))
    return relation.intersect_domain(read_set(s.own.domain)).intersect_params(read_set(program.context))


def _by_step(program: TypedProgram, s: PlainStatement) -> isl.Map:
    """Return {iteration of the loops around a statement -> elements of its target}."""
    made = _written(program, s)
    count = made.dim(isl.dim_type.in_)
    made = made.project_out(isl.dim_type.in_, s.own.outer, count - s.own.outer)
    return made.reset_tuple_id(isl.dim_type.in_).reset_tuple_id(isl.dim_type.out)


def _reads_this(program: PlainProgram, s: PlainStatement, read: Read) -> bool:
    """Whether a statement reads elements of its target that it has written in an iteration; raises where it reads both kinds."""
    plain = list(reads_in(s.expr))
    typed = list(reads_in(s.own.expr))
    own = next(t for p, t in zip(plain, typed, strict=True) if p == read)
    written = _written(program.typed, s)
    relation = read_map(access_relation(program.typed, s.own, own.tensor, own.subscripts))
    reached = relation.intersect_domain(read_set(s.own.domain)).intersect_params(read_set(program.typed.context))
    if own.pad is not None and own.pad.mode != "constant":
        box = read_set(tensor_box(program.typed, own.tensor))
        reached = _padded(reached, box)
    pairs = reached.apply_range(written.reverse())  # {instance -> instance that writes what it reads}
    for d in range(s.own.outer):
        pairs = pairs.equate(isl.dim_type.in_, d, isl.dim_type.out, d)
    earlier = pairs.intersect(_after(pairs))
    if earlier.is_empty():
        return False
    if pairs.is_subset(earlier):
        return True
    raise refused(s, "some of its elements are computed from new values of it, some from old ones")


def _padded(reached: isl.Map, box: isl.Set) -> isl.Map:
    """Return {instance -> elements} with any element for what lies outside."""
    outside = reached.subtract_range(box).domain()
    return reached.intersect_range(box).union(isl.Map.from_domain_and_range(outside, box))


def _after(pairs: isl.Map) -> isl.Map:
    """Return {instance -> earlier instance} of the statement of some pairs."""
    return isl.Map.lex_gt(pairs.get_space().domain())


def refused(s: PlainStatement, reason: str) -> Exception:
    """Return the error for a statement of which there is no gradient."""
    return failure(NO_REVERSE, span=s.own.span, tensor=s.target, reason=reason, advice="")


def _groups(program: PlainProgram, nodes: Sequence[PlainNode], changing: frozenset[str]) -> dict[int, _Group]:
    """Return, for statements by their place in a block, which make one value of a tensor together."""
    found: dict[int, _Group] = {}
    run: list[int] = []

    def close() -> None:
        if run:
            statements = tuple(s for n in run if isinstance(s := nodes[n], PlainStatement))
            group = _Group(statements[0].target, statements)
            found.update((n, group) for n in run)
            run.clear()

    for n, node in enumerate(nodes):
        if not isinstance(node, PlainStatement) or node.target not in changing:
            close()
            continue
        before = [s for k in run if isinstance(s := nodes[k], PlainStatement)]
        if before and (before[0].target != node.target or not _goes_with(program, node, before)):
            close()
        run.append(n)
    close()
    return found


def _goes_with(program: PlainProgram, s: PlainStatement, before: Sequence[PlainStatement]) -> bool:
    """Whether a statement makes one value of its target together with those before it."""
    ops = {b.op for b in before} - {"set"}
    if s.op == "set":
        elements = _written(program.typed, s).range()
        if ops or not all(elements.is_disjoint(_written(program.typed, b).range()) for b in before):
            return False
    elif ops - {s.op} or any(r.tensor == s.target for b in before for r in reads_in(b.expr)):
        return False  # what those before read is not yet combined with more
    return not any(r.tensor == s.target for r in reads_in(s.expr))


def _renamed(node: PlainNode, names: Mapping[str, str]) -> PlainNode:
    if isinstance(node, PlainLoop):
        return replace(node, body=tuple(_renamed(n, names) for n in node.body))

    def change(e: Expr) -> Expr:
        made = rebuild(e, change)
        return replace(made, tensor=names.get(made.tensor, made.tensor)) if isinstance(made, Read) else made

    return replace(node.rewritten(change), target=names.get(node.target, node.target))


def _same(value: Expr, at: tuple[Expr, ...]) -> Expr:
    return value


class _Version(Struct, frozen=True):
    """A tensor that holds one value of another: its elements stand behind `prefix`, the iteration."""

    name: str
    prefix: tuple[Expr, ...] = ()

    def read(self, subscripts: tuple[Expr, ...]) -> Read:
        return Read(self.name, (*self.prefix, *subscripts))


class _Values(Struct):
    """The versions that hold tensors at a point of the program; `known`: those that have a value whatever came before."""

    versions: dict[str, _Version]
    known: set[str]

    def before(self, name: str) -> _Version | None:
        """Return the version that a tensor has, None where nothing has set it."""
        return self.versions[name] if name in self.known else None

    def set(self, name: str, version: _Version) -> None:
        """Make a version the one that a tensor has."""
        self.versions[name] = version
        self.known.add(name)


def _place(nodes: Sequence[PlainNode], group: _Group) -> int:
    """Return where in a block a group begins."""
    return next(n for n, node in enumerate(nodes) if node is group.statements[0])


class _Group(Struct, frozen=True):
    """Statements that make one value of a tensor together."""

    target: str
    statements: tuple[PlainStatement, ...]


class _Step(Struct, frozen=True):
    """An iteration of a loop around statements: which one of how many."""

    loop: PlainLoop
    count: Expr
    number: Expr


def _step(loop: PlainLoop) -> _Step:
    lo, hi = loop.range.lo, loop.range.hi
    assert lo is not None
    assert hi is not None
    return _Step(loop, minus(hi, lo), minus(IndexExpr(loop.range.index), lo))


class _Versions(Struct):
    program: PlainProgram
    changing: frozenset[str]
    shapes: dict[str, tuple[Expr, ...]]
    dtypes: dict[str, DType]
    current: dict[str, str] = field(default_factory=dict)
    dims: list[str] = field(default_factory=list)
    local: set[str] = field(default_factory=set)
    constant: set[str] = field(default_factory=set)

    def nodes(self, nodes: Sequence[PlainNode]) -> list[PlainNode]:
        """Return the nodes of the program."""
        given = self.changing & self.program.inputs
        return self._block(nodes, _Values({name: _Version(name) for name in given}, set(given)), (), {})

    def _block(
        self, nodes: Sequence[PlainNode], values: _Values, around: tuple[_Step, ...], ends: Mapping[str, _Version]
    ) -> list[PlainNode]:
        """Return nodes inside the loops `around`; `ends`: the versions that their last values of tensors go to."""
        made: list[PlainNode] = []
        groups = _groups(self.program, nodes, self.changing)
        last = {name: n for n, node in enumerate(nodes) for name in self._written_in(node)}
        last = {name: n if (group := groups.get(n)) is None else _place(nodes, group) for name, n in last.items()}
        for n, node in enumerate(nodes):
            mine = {name: end for name, end in ends.items() if last.get(name) == n}
            group = groups.get(n)
            if isinstance(node, PlainLoop) and self._written_in(node):
                made += self._loop(node, values, around, mine)
            elif group is None:
                made.append(self._read(node, values.versions))
            elif group.statements[0] is node:
                name = group.target
                new = mine.get(name) or self._version(name, around)
                made += self._kept(group, values.before(name), new, around)
                made += self._of_group(group, values.versions, new)
                values.set(name, new)
                if not around:
                    self.current[name] = new.name
        return made

    def _written_in(self, node: PlainNode) -> frozenset[str]:
        """Return the changing tensors that a node writes."""
        return frozenset(s.target for s in plain_statements((node,))) & self.changing

    def _loop(
        self, loop: PlainLoop, values: _Values, around: tuple[_Step, ...], ends: Mapping[str, _Version]
    ) -> list[PlainNode]:
        """Return a loop with what is before and after it; `values` has the versions from then on.

        Of each tensor that it changes there is a value for each step, and the one before the first.
        """
        step, prefix = _step(loop), self._prefix(around)
        in_block = any(map(self._is_block, (*around, step)))
        written = [
            name for name in sorted(self._written_in(loop)) if name in values.known or self._lives(name, loop, in_block)
        ]
        inner = _Values(dict(values.versions), set(values.known))
        made: list[PlainNode] = []
        wholes: dict[str, str] = {}
        for name in written:
            wholes[name] = self._fresh(name, around, plus(step.count, lit(1)))
            first = next(s for s in plain_statements((loop,)) if s.target == name)
            before = _Version(wholes[name], (*prefix, lit(0)))
            if name in values.known:
                made.append(self._copy(before, values.versions[name].read, name))
            elif first.op != "set":  # it begins with what changes nothing
                made.append(self._copy(before, partial(_same, identity(first.op, first.own.acc)), name))
                inner.known.add(name)
            elif in_block:
                made.append(self._copy(before, partial(_same, ZERO), name))
                inner.known.add(name)
            inner.versions[name] = _Version(wholes[name], (*prefix, step.number))
        after = {name: _Version(wholes[name], (*prefix, plus(step.number, lit(1)))) for name in written}
        made.append(replace(loop, body=tuple(self._block(loop.body, inner, (*around, step), after))))
        for name in written:
            found = _Version(wholes[name], (*prefix, step.count))
            end = ends.get(name) if around else self._version(name, ())
            if end is not None:
                made.append(self._copy(end, found.read, name))
            if not around:
                self.current[name] = (end or found).name
            values.set(name, end or found)
        return made

    def _lives(self, tensor: str, loop: PlainLoop, in_block: bool) -> bool:
        """Whether a value of a tensor may be read in another iteration of a loop than the one that sets it, or after the loop.

        In a block of steps what a loop changes does: steps beyond the last keep what is there.
        """
        steps = (
            loop.body
            if loop.range.index not in self.program.blocks
            else [n for s in loop.body if isinstance(s, PlainLoop) for n in s.body]
        )
        if in_block and any(isinstance(n, PlainLoop) and tensor in self._written_in(n) for n in steps):
            return True
        inside = list(plain_statements((loop,)))
        first = next(n for n, s in enumerate(inside) if s.target == tensor)
        elsewhere = [s for s in self.program.statements if all(s is not other for other in inside)]
        early = inside[:first] if inside[first].op == "set" else inside[: first + 1]
        is_read = any(r.tensor == tensor for s in (*elsewhere, *early) for r in _reads(s))
        own = any(
            r.tensor == tensor and not _reads_this(self.program, s, r)
            for s in inside[first : first + 1]
            for r in reads_in(s.expr)
        )
        return is_read or own or inside[first].op != "set" or tensor in self.program.program.outputs

    def _is_block(self, step: _Step) -> bool:
        return step.loop.range.index in self.program.blocks

    def _prefix(self, around: tuple[_Step, ...]) -> tuple[Expr, ...]:
        """Return the first subscripts of a tensor inside loops: a block's values take the place of those of the block before."""
        return tuple(s.number for s in around if not self._is_block(s))

    def _version(self, tensor: str, around: tuple[_Step, ...]) -> _Version:
        """Return a new version of a tensor inside loops."""
        return _Version(self._fresh(tensor, around), self._prefix(around))

    def _fresh(self, tensor: str, around: tuple[_Step, ...], *more: Expr) -> str:
        name = self.program.names.fresh(f"{tensor}_0")
        counts = (s.count for s in around if not self._is_block(s))
        self.shapes[name] = (*counts, *more, *self.program.shapes[tensor])
        self.dtypes[name] = self.program.dtypes[tensor]
        if tensor in self.program.constant:
            self.constant.add(name)
        if any(map(self._is_block, around)):
            self.local.add(name)
        return name

    def _copy(
        self, to: _Version, value: Callable[[tuple[Expr, ...]], Expr], tensor: str, conditions: tuple[Expr, ...] = ()
    ) -> PlainStatement:
        """Return the statement that sets a tensor's elements, those that fulfil conditions on the indices `dims`."""
        extents = self.program.shapes[tensor]
        at = tuple(IndexExpr(name) for name in self._dims(len(extents)))
        ranges = tuple(Range(i.name, lit(0), n) for i, n in zip(at, extents, strict=True))
        own = next(s.own for s in self.program.statements if s.target == tensor)
        return PlainStatement(to.name, (*to.prefix, *at), "set", value(at), ranges, conditions, own)

    def _dims(self, count: int) -> tuple[str, ...]:
        while len(self.dims) < count:
            self.dims.append(self.program.names.fresh(f"c{len(self.dims)}"))
        return tuple(self.dims[:count])

    def _kept(
        self, group: _Group, before: _Version | None, new: _Version, around: tuple[_Step, ...]
    ) -> list[PlainStatement]:
        """Return what copies the elements that a group does not set from the version before it, where there is one."""
        if before is None:
            return []
        first = group.statements[0]
        if first.op != "set":
            return [self._copy(new, before.read, group.target)]
        typed, own = self.program.typed, first.own
        shape = typed.tensor(own.target).shape
        outer, dims = own.iterators[: own.outer], self._dims(len(shape))
        sizes = tuple(name for name, _ in typed.sizes)
        inside = [f"0 <= {c} < {print_affine(n)}" for c, n in zip(dims, shape, strict=True)]
        for loop in (s.loop for s in around):
            inside.append(f"{print_affine(loop.own[1])} <= {loop.own[0]} < {print_affine(loop.own[2])}")
        box = read_set(set_text(sizes, (*outer, *dims), inside)).intersect_params(read_set(typed.context))
        missing = box
        for s in group.statements:
            if s.op == "set":  # a reduction goes on from what is there
                missing = missing.subtract(_by_step(typed, s).wrap().flatten())
        if missing.coalesce().is_empty():
            return []
        left = conditions_of(missing.gist(box).coalesce().compute_divs(), (*outer, *dims), own)
        conditions = tuple(self.program.names.plain(c, frozenset()) for c in left)
        return [self._copy(new, before.read, group.target, conditions)]

    def _of_group(self, group: _Group, versions: Mapping[str, _Version], new: _Version) -> list[PlainNode]:
        """Return the statements of a group, which write the new version; of their own tensor they read it or the one before."""
        made: list[PlainNode] = []
        for s in group.statements:

            def own(read: Read, s: PlainStatement = s) -> _Version:
                if _reads_this(self.program, s, read):
                    return new
                if s.target not in versions:
                    raise refused(s, "it reads what nothing has set")
                return versions[s.target]

            found = self._read(s, versions, own)
            assert isinstance(found, PlainStatement)
            made.append(replace(found, target=new.name, subscripts=(*new.prefix, *found.subscripts)))
        return made

    def _read(
        self, node: PlainNode, versions: Mapping[str, _Version], own: Callable[[Read], _Version] | None = None
    ) -> PlainNode:
        """Return a node that reads versions of tensors; `own` gives that of the statement's own target."""
        if isinstance(node, PlainLoop):
            return replace(node, body=tuple(self._read(n, versions) for n in node.body))

        def change(e: Expr) -> Expr:
            made = rebuild(e, change)
            if not isinstance(made, Read) or made.tensor not in self.changing:
                return made
            assert isinstance(e, Read)
            version = own(e) if own is not None and e.tensor == node.target else versions[made.tensor]
            return replace(made, tensor=version.name, subscripts=(*version.prefix, *made.subscripts))

        return node.rewritten(change)
