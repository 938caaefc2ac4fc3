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
from polyker.grad.values import call
from polyker.ir.dtypes import DType
from polyker.ir.expr import Expr, IndexExpr, Range, Read, reads_in, rebuild
from polyker.ir.quasi_affine import lit, print_affine
from polyker.ir.reductions import identity
from polyker.ir.typed import TypedProgram
from polyker.poly.isl import read_map, read_set, set_text
from polyker.poly.scop import access_relation
from polyker.structs import replace


def with_versions(program: PlainProgram) -> PlainProgram:
    """Return a program each of whose tensors has one value an element; raises GradientError where that cannot be."""
    changing = frozenset(name for name in {s.target for s in program.statements} if not _is_set_once(program, name))
    if not changing:
        return program
    made = _Versions(program, changing, dict(program.shapes), dict(program.dtypes))
    nodes = made.nodes(program.nodes)
    back = {last: name for name, last in made.current.items() if name not in program.inputs}
    shapes = {back.get(n, n): shape for n, shape in made.shapes.items()}
    dtypes = {back.get(n, n): dtype for n, dtype in made.dtypes.items()}
    results = {name: last for name, last in made.current.items() if name in program.inputs}
    return replace(
        program, nodes=tuple(_renamed(n, back) for n in nodes), shapes=shapes, dtypes=dtypes, results=results
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
    if len({s.op for s in writers} - {"set"}) > 1:
        return False
    readers = [n for n, s in enumerate(order) if s.target != tensor and any(r.tensor == tensor for r in _reads(s))]
    last = max(n for n, s in enumerate(order) if s.target == tensor)
    first = min(n for n, s in enumerate(order) if s.op != "set" and s.target == tensor)
    if any(s.op == "set" and n > first for n, s in enumerate(order) if s.target == tensor):
        return False
    if readers and min(readers) < last:
        return False
    updates = [s for s in writers if s.op != "set"]
    if all(_by_step(program.typed, s).reverse().is_single_valued() for s in updates if s.own.outer):
        return True
    # A sum over the iterations of a loop that does not read it: the order of its terms does not matter.
    around = [{s.target for s in plain_statements((n,))} for n in program.nodes]
    read = [any(r.tensor == tensor for s in plain_statements((n,)) for r in _reads(s)) for n in program.nodes]
    return updates[0].op == "add" and not any(
        tensor in of and is_read for of, is_read in zip(around, read, strict=True)
    )


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
    pairs = reached.apply_range(written.reverse())  # {instance -> instance that writes what it reads}
    for d in range(s.own.outer):
        pairs = pairs.equate(isl.dim_type.in_, d, isl.dim_type.out, d)
    earlier = pairs.intersect(_after(pairs))
    if earlier.is_empty():
        return False
    if pairs.is_subset(earlier):
        return True
    raise refused(s, "some of its elements are computed from new values of it, some from old ones")


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
    elif ops - {s.op}:
        return False
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


class _Group(Struct, frozen=True):
    """Statements that make one value of a tensor together."""

    target: str
    statements: tuple[PlainStatement, ...]


class _Versions(Struct):
    program: PlainProgram
    changing: frozenset[str]
    shapes: dict[str, tuple[Expr, ...]]
    dtypes: dict[str, DType]
    current: dict[str, str] = field(default_factory=dict)
    dims: list[str] = field(default_factory=list)

    def nodes(self, nodes: Sequence[PlainNode]) -> list[PlainNode]:
        """Return the nodes of the program."""
        versions = {name: _Version(name) for name in self.changing & self.program.inputs}
        made: list[PlainNode] = []
        groups = _groups(self.program, nodes, self.changing)
        for n, node in enumerate(nodes):
            if isinstance(node, PlainLoop):
                made += self._loop(node, versions)
                continue
            group = groups.get(n)
            if group is not None and group.statements[0] is node:
                before = versions.get(node.target)
                new = _Version(self._fresh(node.target, ()))
                made += self._kept(group, before, new, None)
                made += self._of_group(group, versions, new)
                versions[node.target] = new
                self.current[node.target] = new.name
            elif group is None:
                made.append(self._read(node, versions))
        return made

    def _loop(self, loop: PlainLoop, versions: dict[str, _Version]) -> list[PlainNode]:
        """Return a loop over steps, with what is before and after it; `versions` has the values from then on."""
        written = {s.target for s in plain_statements(loop.body)} & self.changing
        if any(isinstance(n, PlainLoop) and written & {s.target for s in plain_statements(n.body)} for n in loop.body):
            inside = next(s for s in plain_statements(loop.body) if s.target in written)
            raise refused(inside, "it changes in a loop inside a loop")
        lo, hi = loop.range.lo, loop.range.hi
        assert lo is not None
        assert hi is not None
        steps, step = call("add", hi, call("neg", lo)), call("add", IndexExpr(loop.range.index), call("neg", lo))
        groups = _groups(self.program, loop.body, self.changing)
        last = {g.target: g for g in groups.values()}
        firsts = {g.target: g for _, g in sorted(groups.items(), reverse=True)}
        made: list[PlainNode] = []
        inner = dict(versions)
        whole: dict[str, str] = {}
        for name in sorted(written):
            whole[name] = self._fresh(name, (call("add", steps, lit(1)),))
            first = firsts[name].statements[0]
            before = _Version(whole[name], (lit(0),))
            if name in versions:
                made.append(self._copy(before, versions[name].read, name))
            elif first.op != "set":  # it begins with what changes nothing
                start = identity(first.op, first.own.acc)
                made.append(self._copy(before, partial(_same, start), name))
            inner[name] = _Version(whole[name], (step,))
        known = {*versions, *(name for name in written if firsts[name].statements[0].op != "set")}
        body: list[PlainNode] = []
        for n, node in enumerate(loop.body):
            group = groups.get(n)
            if isinstance(node, PlainLoop) or group is None:
                body.append(self._read(node, inner))
            elif group.statements[0] is node:
                name = node.target
                is_last = last[name] is group
                new = (
                    _Version(whole[name], (call("add", step, lit(1)),))
                    if is_last
                    else _Version(self._fresh(name, (steps,)), (step,))
                )
                body += self._kept(group, inner[name] if name in known else None, new, loop)
                body += self._of_group(group, inner, new)
                inner[name] = new
                known.add(name)
        made.append(replace(loop, body=tuple(body)))
        for name in sorted(written):
            after = _Version(self._fresh(name, ()))
            made.append(self._copy(after, _Version(whole[name], (steps,)).read, name))
            versions[name] = after
            self.current[name] = after.name
        return made

    def _fresh(self, tensor: str, more: tuple[Expr, ...]) -> str:
        name = self.program.names.fresh(f"{tensor}_0")
        self.shapes[name] = (*more, *self.program.shapes[tensor])
        self.dtypes[name] = self.program.dtypes[tensor]
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
        self, group: _Group, before: _Version | None, new: _Version, loop: PlainLoop | None
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
        if loop is not None:
            inside.append(f"{print_affine(loop.own[1])} <= {loop.own[0]} < {print_affine(loop.own[2])}")
        box = read_set(set_text(sizes, (*outer, *dims), inside)).intersect_params(read_set(typed.context))
        missing = box
        for s in group.statements:
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
                return new if _reads_this(self.program, s, read) else versions[s.target]

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
