"""From a program and its proven schedule to a Kernel: isl's AST gives the loops, the schedule's marks say how each is run."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from functools import reduce
from typing import TypeAlias

import islpy as isl
from msgspec import Struct, field

from polyker.codegen.argument_layout import (
    argument_buffer,
    argument_names,
    extent,
    integer_name,
    scratch_buffer,
    strides_of,
)
from polyker.codegen.ir.kernel import (
    Allocate,
    Barrier,
    Buffer,
    Combine,
    Commit,
    Const,
    Convert,
    For,
    If,
    KernelIR,
    KExpr,
    Load,
    LoopKind,
    Op,
    Pairs,
    Prefetch,
    Space,
    Stmt,
    StmtBlock,
    Store,
    Var,
    Wait,
    loop_of,
)
from polyker.codegen.ir.polynomial import constant, expression, plus, polynomial, scaled
from polyker.codegen.ir.simplify_index import IndexRange, bounds, simplify_expression
from polyker.codegen.ir.walk import buffers_of, statements, substitute
from polyker.codegen.lowering.bounds import least_start, plus_one
from polyker.codegen.lowering.by_threads import dealt_to_threads, iterations
from polyker.codegen.lowering.expressions import ExpressionLowering, ast_arguments, condition_from_ast, from_ast
from polyker.codegen.lowering.isl_ast import Guarded, flat, is_loop, loops_of, within
from polyker.codegen.passes.hoist_buffer_init import begun
from polyker.errors import InternalError
from polyker.ir.dtypes import DType, bool_
from polyker.ir.expr import Expr, Literal, Read, walk
from polyker.ir.layout import Layout
from polyker.ir.quasi_affine import is_quasi_affine, lit, print_affine
from polyker.ir.typed import PrefetchRead, Role, TypedProgram, TypedStatement, TypedTensor
from polyker.ir.typed_printing import labels_of, print_expr, written
from polyker.poly.isl import read_set
from polyker.poly.scop import Scop, parameters
from polyker.record.records import Failure, Integer
from polyker.rewrite.core.accumulate import COMBINE
from polyker.schedule.threads.lifetimes import Uses, never_together, uses_of
from polyker.schedule.tree.fixed_loops import FixedLoops
from polyker.schedule.tree.nodes import AT_ONCE, Member, MemberKind, Promotion, ScheduleTree
from polyker.schedule.tree.thread_folds import run_together
from polyker.schedule.tree.to_isl import scope_mark, to_isl
from polyker.structs import replace

_KINDS = {kind: LoopKind[kind.name] for kind in MemberKind}


class Lowered(Struct, frozen=True):
    """A kernel and what the run time has to pass to it (see polyker.codegen.artifact.Artifact)."""

    kernel: KernelIR
    arguments: tuple[str, ...]
    scratch: tuple[TypedTensor, ...]
    integers: tuple[Integer, ...]
    guards: Mapping[int, Failure]


def lower(scop: Scop, schedule: ScheduleTree, layouts: tuple[Layout, ...], gather_code: str) -> Lowered:
    """Return the kernel of a legal schedule; `layouts` are those of the arguments, inputs before outputs.

    `gather_code` is the row of the error catalogue for a gathered index outside its tensor.
    """
    lowering = _Lowering(scop, schedule, gather_code)
    body = lowering.run()
    if lowering.inside & lowering.outside or lowering.torn:
        lowering = _Lowering(scop, schedule, gather_code, whole=True)
        body = lowering.run()
    program = scop.program
    arguments = argument_names(program)
    used = lowering.used_tensors()
    scratch = tuple(
        t for t in program.tensors if t.role is Role.TEMPORARY and t.name in used and t.name not in lowering.promoted
    )
    scratch += lowering.large_buffers()
    integers = [Integer(n) for n, _ in program.sizes]
    buffers = []
    for name, layout in zip(arguments, layouts, strict=True):
        buffer, strides = argument_buffer(program.tensor(name), layout)
        writers = [s for s in program.statements() if s.target == name]
        once = buffer.writable and [s.op for s in writers] == ["set"] and not writers[0].scatters
        buffers.append(replace(buffer, once=once))
        integers += strides
    buffers += map(scratch_buffer, scratch)
    names = tuple(map(integer_name, integers))
    disjoint, in_place = _sharing(program, schedule, [t.name for t in scratch])
    kernel = KernelIR("kernel", tuple(buffers), names, body, disjoint=disjoint, in_place=in_place)
    return Lowered(kernel, arguments, scratch, tuple(integers), lowering.guards)


def _sharing(program: TypedProgram, schedule: ScheduleTree, scratch: list[str]) -> tuple[Pairs, Pairs]:
    """Return the pairs of temporaries in memory that may share it anyhow, and those that may if they begin at one place."""

    def name(uses: Uses) -> str:
        return uses.tensor if uses.scope is None else buffer_name(uses.tensor, scope_mark(uses.scope))

    if len(scratch) < 2:
        return frozenset(), frozenset()
    found = list(never_together(program, [u for u in uses_of(program, schedule.tree) if name(u) in scratch]))
    anyhow, in_place = ({(name(a), name(b)) for a, b, same in found if same is kind} for kind in (False, True))
    return frozenset(anyhow), frozenset(in_place)


# A scope's buffer, its pieces (see Promotion), and what comes before them: the thread, in memory of which each has a copy.
BufferPlace: TypeAlias = tuple[str, tuple[tuple[int, int, int], ...], tuple[KExpr, ...]]


class _ScopeBuffer(Struct, frozen=True):
    """A buffer of the scope `mark`; `is_large`: it lies in memory that the call brings."""

    mark: str
    name: str
    dtype: DType
    promotion: Promotion
    is_large: bool


def buffer_name(tensor: str, mark: str) -> str:
    """Return the name of the buffer that holds a tensor in a scope."""
    return f"{tensor}_{mark}"


class _Lowering(Struct, dict=True):
    scop: Scop
    schedule: ScheduleTree
    gather_code: str
    guards: dict[int, Failure] = field(default_factory=dict)
    entered: dict[str, BufferPlace] = field(default_factory=dict)  # tensor -> its buffer in the scopes around
    ranges: dict[str, IndexRange] = field(default_factory=dict)
    thread: str = ""  # of the parallel loop around
    whole: bool = False  # see to_isl
    inside: set[str] = field(default_factory=set)  # scopes with buffers that threads have, met in their parallel loop
    outside: set[str] = field(default_factory=set)  # and met elsewhere: isl dropped the loop, or split it
    torn: bool = False  # whether isl made several loops of one over blocks or threads that has scopes inside

    def run(self) -> StmtBlock:
        tree, self.marks = to_isl(self.scop, self.schedule, whole=self.whole)
        self.statements = {s.name: s for s in self.scop.program.statements()}
        self.together = run_together(self.scop, self.schedule.tree)
        self.names = (f"v{n}" for n in itertools.count())
        self.bounds: dict[tuple[str, Read, int], tuple[bool, bool]] = {}
        numbers = self.marks.numbers()
        self.ranges |= {t.name: (0, t.extent - 1) for t in numbers}
        ast = loops_of(self.scop.context, tree, {t.name: t.extent for t in numbers})
        # The number of threads of each scope inside a parallel loop, and the scopes of GPUs' threads.
        kinds = {mark: self.marks.members[mark] for mark in self.marks.private}
        found = [(s, kinds[m]) for m, scopes in self.marks.private.items() for s in scopes]
        self.threads = {s: m.extent for s, m in found if m.kind is MemberKind.PARALLEL}
        dealt = {s for s, m in found if m.kind is not MemberKind.PARALLEL}
        return self._allocated(self.block(ast, {}, None), frozenset(self.marks.scopes) - dealt)

    def _allocated(self, body: StmtBlock, marks: Collection[str], suffix: str = "") -> StmtBlock:
        """Return a body inside the buffers of scopes: isl may split a scope, and instances of one never overlap.

        The threads' own (with the suffix) lie in the body of the parallel loop: an iteration stays whole. Where isl drops such
        a loop it may split what was in it: that has buffers around the kernel.
        """
        used = {name for s in statements(body) for name in buffers_of(s)}
        held: list[Buffer] = []
        for buffer in self._buffers():
            name = buffer.name + suffix
            if buffer.mark in marks and not buffer.is_large and (name in used or buffer.mark not in self.threads):
                shape = tuple(map(Const, buffer.promotion.shape()))
                strides = strides_of(name, shape, Layout())[0]
                space = Space.SHARED if buffer.promotion.shared else Space.STACK
                later, swizzle = buffer.promotion.later, buffer.promotion.swizzle
                held.append(Buffer(name, buffer.dtype, shape, strides, space, later=later, swizzle=swizzle))
        return (Allocate(tuple(reversed(held)), body),) if held else body

    def _buffers(self) -> Iterator[_ScopeBuffer]:
        for mark, scope in self.marks.scopes.items():
            for promotion in scope.promotions:
                tensor = self.scop.program.tensor(promotion.tensor)
                # What threads share is no stack buffer: those may be written beside the lanes that are on.
                on_stack = promotion.on_stack(tensor.dtype.itemsize) and mark not in self.marks.shared
                large = not (on_stack or promotion.shared)
                yield _ScopeBuffer(mark, buffer_name(tensor.name, mark), tensor.dtype, promotion, large)

    def large_buffers(self) -> tuple[TypedTensor, ...]:
        """Return the scopes' buffers that do not lie on the stack, as temporaries in memory, a copy for each thread."""
        return tuple(
            TypedTensor(
                b.name,
                "buffer",
                b.dtype,
                tuple(lit(n) for n in (*self._copies(b), *b.promotion.shape())),
                Role.TEMPORARY,
            )
            for b in self._buffers()
            if b.is_large
        )

    def _copies(self, buffer: _ScopeBuffer) -> tuple[int, ...]:
        """Return the number of threads of the parallel loop around a buffer, () where there is none."""
        return (self.threads[buffer.mark],) if buffer.mark in self.threads else ()

    @property
    def promoted(self) -> frozenset[str]:
        """The tensors that live in buffers of scopes, everywhere."""
        return frozenset(p.tensor for scope in self.marks.scopes.values() for p in scope.promotions)

    def used_tensors(self) -> frozenset[str]:
        return frozenset(a.tensor for a in self.scop.accesses)

    def block(self, node: isl.AstNode, env: dict[str, KExpr], member: Member | None) -> StmtBlock:
        kind = isl.ast_node_type(node.get_type())
        if kind == isl.ast_node_type.block:
            children = node.block_get_children()
            nodes = [Guarded(children.get_at(n)) for n in range(children.n_ast_node())]
            return tuple(s for part in self._together(nodes) for s in self.blocks(part, env, member))
        if kind == isl.ast_node_type.for_:
            return (self._for(node, env, member),)
        if kind == isl.ast_node_type.if_:
            condition = substitute(condition_from_ast(node.if_get_cond()), env)
            body = self.block(node.if_get_then_node(), env, member)
            orelse = self.block(node.if_get_else_node(), env, member) if node.if_has_else_node() else ()
            return (If(condition, body, orelse),)
        if kind == isl.ast_node_type.mark:
            return self._mark(node, env)
        if kind == isl.ast_node_type.user:
            return self._instance(node.user_get_expr(), env)
        raise InternalError(f"isl gave a node of kind {kind}")

    def _together(self, nodes: list[Guarded]) -> list[list[Guarded]]:
        """Return the nodes in their order, parts of one BLOCK or THREAD loop that isl split together: buffers live in it."""
        parts: list[list[Guarded]] = []
        last = None
        for guarded in (part for node in nodes for part in flat(node, lambda n: self._split(n) is not None)):
            found = within(guarded)
            mark = self._split(found.node)
            if mark is not None and mark == last:
                parts[-1].append(found)
            else:
                parts.append([guarded if mark is None else found])
            last = mark
        return parts

    def _split(self, node: isl.AstNode) -> str | None:
        """Return the mark of a BLOCK or THREAD loop of one iteration, which isl makes no loop and may split."""
        if isl.ast_node_type(node.get_type()) != isl.ast_node_type.mark:
            return None
        name = node.mark_get_id().get_name()
        dealt = name in self.marks.members and self.marks.members[name].kind in (MemberKind.BLOCK, MemberKind.THREAD)
        return name if dealt and not is_loop(node.mark_get_node()) else None

    def blocks(self, nodes: list[Guarded], env: dict[str, KExpr], member: Member | None) -> StmtBlock:
        """Return the statements of nodes that stand one after another; those of one mark stand in one loop."""
        (node, conditions), name = (nodes[0].node, nodes[0].conditions), self._split(nodes[0].node)
        if len(nodes) == 1 and not (conditions and name):
            body = self.block(node, env, member)
            for condition in reversed(conditions):
                body = (If(substitute(condition_from_ast(condition), env), body),)
            return body
        assert name is not None
        found = self.marks.members[name]
        inner = [Guarded(n.node.mark_get_node(), n.conditions) for n in nodes]
        inside = tuple(s for part in self._together(inner) for s in self.blocks(part, env, found))
        return self._dealt(inside, found, name)

    def _for(self, node: isl.AstNode, env: dict[str, KExpr], member: Member | None) -> Stmt:
        lo = substitute(from_ast(node.for_get_init()), env)
        condition = node.for_get_cond()
        bound = substitute(from_ast(condition.get_op_arg(1)), env)
        inclusive = isl.ast_expr_op_type(condition.get_op_type()) == isl.ast_expr_op_type.le
        hi = plus_one(bound) if inclusive else bound
        step = node.for_get_inc().get_val().get_num_si()
        fresh = next(self.names)
        least, greatest = bounds(polynomial(lo), self.ranges)[0], bounds(polynomial(hi), self.ranges)[1]
        bounded = member is not None and member.kind in (MemberKind.UNROLL, MemberKind.VECTOR, MemberKind.TRANSPOSE)
        if least is not None and bounded and member is not None and isinstance(lo, Const):
            most = least + member.extent
            greatest = most if greatest is None else min(greatest, most)
        start = least_start(lo, hi, least, greatest, step, member) if self.entered else None
        least = least if start is None else start
        self.ranges[fresh] = (least, None if greatest is None else greatest - 1)
        inner = env | {node.for_get_iterator().get_id().get_name(): Var(fresh)}
        region = member is not None and member.kind is MemberKind.PARALLEL
        thread = self.thread = next(self.names) if region else self.thread
        body = self.block(node.for_get_body(), inner, None)
        self.thread = "" if region else thread
        if start is not None:
            prefetches = tuple(s for s in body if isinstance(s, Prefetch))
            rest = tuple(s for s in body if not isinstance(s, Prefetch))
            body, lo = (*prefetches, If(Op("le", (lo, Var(fresh)), bool_), rest)), Const(start)
        trip = None
        if start is None and isinstance(lo, Const) and isinstance(hi, Const):
            trip = max(0, -(-(int(hi.value.real) - int(lo.value.real)) // step))
        label = "" if member is None else member.label
        if member is None or member.kind is MemberKind.SERIAL:
            return For(fresh, lo, hi, body, step, trip=trip, label=label)
        if member.kind is MemberKind.PARALLEL:
            body = self._allocated(body, self.threads, ".own")
            return For(fresh, lo, hi, body, step, LoopKind.PARALLEL, member.extent, trip, thread, label=label)
        if member.kind in (MemberKind.BLOCK, MemberKind.THREAD):
            kind = _KINDS[member.kind]
            return For(fresh, lo, hi, body, step, kind, member.extent, trip, axis=member.axis, label=label)
        if member.kind is MemberKind.VECTOR and step != 1:
            # isl steps over the values that the domain leaves out: those lanes are masked.
            runs = Op("eq", (Op("mod", (Op("sub", (Var(fresh), lo)), Const(step))), Const(0)), bool_)
            body, step, trip = (If(runs, body),), 1, None
        return For(fresh, lo, hi, body, step, _KINDS[member.kind], member.extent, trip, label=label)

    def _mark(self, node: isl.AstNode, env: dict[str, KExpr]) -> StmtBlock:
        name = node.mark_get_id().get_name()
        inner = node.mark_get_node()
        if name in self.marks.members:
            member = self.marks.members[name]
            if member.kind not in AT_ONCE or member.kind is MemberKind.PARALLEL:
                return self.block(inner, env, member)
            return self._dealt(self.block(inner, env, member), member, name)
        outside = dict(self.entered)
        places = {b.promotion.tensor: self._place(b) for b in self._buffers() if b.mark == name}
        self.entered |= places
        body = self.block(inner, env, None)
        self.entered = outside
        # Of threads that share a buffer each would put constants into all of it.
        return body if self.marks.threads else begun(body, {buffer for buffer, _, _ in places.values()})

    def _place(self, buffer: _ScopeBuffer) -> BufferPlace:
        """Return where a scope's buffer is: in a parallel loop the thread's own; where isl dropped that loop the first one's."""
        if buffer.mark not in self.threads:
            return buffer.name, buffer.promotion.pieces(), ()
        (self.inside if self.thread else self.outside).add(buffer.mark)
        if buffer.is_large:
            return buffer.name, buffer.promotion.pieces(), (Var(self.thread) if self.thread else Const(0),)
        return buffer.name + ".own" * bool(self.thread), buffer.promotion.pieces(), ()

    def _dealt(self, block: StmtBlock, member: Member, mark: str) -> StmtBlock:
        """Return what isl made of a BLOCK or THREAD loop with the buffers of the scopes in it; one iteration is a loop too."""
        kind, scopes = _KINDS[member.kind], self.marks.private[mark]
        if any(b.is_large and b.mark in scopes for b in self._buffers()):
            raise InternalError(
                f"a buffer inside the {member.kind.value} loop {member.label!r} is too large for a thread"
            )

        def single(body: StmtBlock) -> Stmt:
            return loop_of(next(self.names), 1, self._allocated(body, scopes), kind, member.axis, member.label)

        found = iterations(
            block, kind, member.axis, lambda loop: replace(loop, body=self._allocated(loop.body, scopes)), single
        )
        same = (s for s in statements(found) if isinstance(s, For) and (s.kind, s.axis) == (kind, member.axis))
        self.torn = self.torn or (bool(scopes) and len(list(same)) > 1)
        return dealt_to_threads(found, self.marks.threads[mark]) if mark in self.marks.threads else found

    def _instance(self, call: isl.AstExpr, env: dict[str, KExpr]) -> StmtBlock:
        name, iterators = ast_arguments(call)
        if name in self.marks.arrivals:
            return ()
        if name in self.marks.commits:
            return (Commit(),)
        if name in self.marks.meetings:
            here = self.marks.meetings[name]
            return (
                *(() if here.wait is None else (Wait(here.wait),)),
                *((Barrier(here.warps),) if here.barrier else ()),
            )
        values = tuple(substitute(e, env) for e in iterators)
        return self._fixed(self.marks.fixed[name], values) if name in self.marks.fixed else self._run(name, values)

    def _fixed(self, nest: FixedLoops, times: tuple[KExpr, ...]) -> StmtBlock:
        """Return loops that isl was not asked for, at the times of the loops around; those of one iteration are none."""
        if len(times) == nest.depth + len(nest.loops):
            places = [polynomial(t) for t in times]
            values = (
                expression(reduce(plus, (scaled(places[n], factor) for n, factor in parts), constant(least)))
                for least, parts in nest.iterators
            )
            return self._run(nest.statement, tuple(values))
        member, least, greatest = nest.loops[len(times) - nest.depth]
        if least == greatest:
            return self._fixed(nest, (*times, Const(least)))
        fresh, trip = next(self.names), greatest - least + 1
        self.ranges[fresh] = least, greatest
        body = self._fixed(nest, (*times, Var(fresh)))
        lanes = 0 if member.kind is MemberKind.SERIAL else member.extent
        kind, stop = _KINDS[member.kind], Const(greatest + 1)
        return (For(fresh, Const(least), stop, body, 1, kind, lanes, trip, label=member.label),)

    def _run(self, name: str, values: tuple[KExpr, ...]) -> StmtBlock:
        """Return one instance of a statement, its iterators' values given."""
        statement = self.statements[name]

        def place(tensor: str, subscripts: tuple[Expr, ...]) -> tuple[str, tuple[KExpr, ...]] | None:
            """Return where an element lies in its scope's buffer: at its subscripts' pieces modulo the buffer's extents."""
            if tensor not in self.entered:
                return None
            buffer, pieces, thread = self.entered[tensor]
            shape = self.scop.program.tensor(tensor).shape
            wrapped = (
                _piece(lowering.lower(subscripts[d]), by, n, shape[d]) if n > 1 else Const(0) for d, by, n in pieces
            )
            return buffer, (*thread, *(simplify_expression(w, self.ranges) for w in wrapped))

        lowering = ExpressionLowering(
            iterators=dict(zip(statement.iterators, values, strict=True)),
            place=lambda read: place(read.tensor, read.subscripts),
            shape=lambda tensor: tuple(extent(e) for e in self.scop.program.tensor(tensor).shape),
            inside=lambda read, d: self._inside(statement, read, d),
            guard_code=lambda tensor, d, s: self._guard(tensor, d, s, statement),
            fresh=lambda: next(self.names),
            ranges=self.ranges,
        )
        target = self.scop.program.tensor(statement.target)
        promoted = place(statement.target, statement.subscripts)
        buffer, element = promoted or (target.name, lowering.element(statement.target, statement.subscripts))
        value = lowering.lower(statement.expr)
        if statement.op != "set":
            # Combined in the accumulator's type: what is stored is rounded once.
            old: KExpr = Load(buffer, element, target.dtype)
            old = old if statement.acc == target.dtype else Convert(old, statement.acc)
            value = value if statement.expr.dtype == statement.acc else Convert(value, statement.acc)
            if name in self.together:
                return (*lowering.setup, Combine(buffer, element, COMBINE[statement.op], value, self.together[name]))
            value = Op(COMBINE[statement.op], (old, value), statement.acc)
            if statement.acc != target.dtype:
                value = Convert(value, target.dtype)
        elif name in self.together and isinstance(value, Op):
            before, term = value.args
            return (*lowering.setup, Combine(buffer, element, value.op, term, self.together[name], before))
        elif statement.expr.dtype != target.dtype:
            value = Convert(value, target.dtype)
        # An element in a scope's buffer is not where the request would look for it, and near enough without.
        prefetches = (self._prefetch(a, lowering) for a in statement.prefetch if a.read.tensor not in self.entered)
        return (*prefetches, *lowering.setup, Store(buffer, element, value))

    def _prefetch(self, prefetch: PrefetchRead, lowering: ExpressionLowering) -> Prefetch:
        read = prefetch.read
        element = lowering.element(read.tensor, read.subscripts)
        write = self.scop.program.tensor(read.tensor).role is not Role.INPUT
        return Prefetch(read.tensor, tuple(simplify_expression(c, self.ranges) for c in element), write, prefetch.cache)

    def _inside(self, statement: TypedStatement, read: Read, dimension: int) -> tuple[bool, bool]:
        """Whether a subscript of a padded read is proven at least 0, and below the extent, over the statement's domain."""
        subscript = read.subscripts[dimension]
        if not is_quasi_affine(subscript):
            return False, False
        key = (statement.name, read, dimension)
        if key not in self.bounds:
            domain = self.scop.domains[statement.name]
            head = f"{parameters(self.scop.program)}{{ {statement.name}[{', '.join(statement.iterators)}] : "
            size = print_affine(self.scop.program.tensor(read.tensor).shape[dimension])
            below = read_set(f"{head}{print_affine(subscript)} < 0 }}").intersect(domain).is_empty()
            above = read_set(f"{head}{print_affine(subscript)} >= {size} }}").intersect(domain).is_empty()
            self.bounds[key] = (bool(below), bool(above))
        return self.bounds[key]

    def _guard(self, tensor: str, dimension: int, subscript: Expr, statement: TypedStatement) -> int:
        code = len(self.guards) + 1
        found = self.scop.program.tensor(tensor)
        if found.outside is not None:
            self.guards[code] = Failure(found.outside.code, found.outside.values, found.outside.span)
            return code
        labels = dict(self.scop.program.sizes)
        size = print_expr(found.shape[dimension], labels)
        index = written(subscript, labels_of(self.scop.program))
        values = (
            ("index", index), ("found", ""), ("tensor", found.label), ("dimension", str(dimension)), ("extent", size),
        )  # fmt: skip
        span = next((e.span for e in walk(subscript) if e.span is not None), statement.span)
        self.guards[code] = Failure(self.gather_code, values, span)
        return code


def _piece(element: KExpr, divisor: int, count: int, size: Expr) -> KExpr:
    """Return which of `count` pieces of a dimension an element is in.

    Where all elements are in one piece there is no remainder: lanes that are off, and lie beyond the end, would have one.
    """
    piece = Op("floordiv", (element, Const(divisor))) if divisor > 1 else element
    if isinstance(size, Literal) and size.value.real <= count * divisor:
        return piece
    return Op("mod", (piece, Const(count)))
