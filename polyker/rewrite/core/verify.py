"""The verifier of the typed program: every rule that polyker.ir.typed states; a breach is a bug of polyker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from polyker.errors.base import InternalError
from polyker.ir.expr import Expr, IndexExpr, Literal, Read, Reduce, SizeExpr, walk
from polyker.ir.quasi_affine import indices_of, is_quasi_affine
from polyker.ir.typed import UNBOUNDED_EXTENT, Role, TypedLoop, TypedNode, TypedProgram, TypedStatement, statements_of
from polyker.poly.isl import Set, dim, read_map, read_set
from polyker.poly.scop import access_relation, tensor_box

_UPDATES = frozenset({"set", "add", "mul", "max", "min", "any", "all", "logsumexp"})


def verify_program(program: TypedProgram, source: TypedProgram | None = None) -> None:
    """Raise InternalError where a typed program breaks a rule.

    One definition a name; known tensors, sizes and iterators, types and ranks; subscripts within their tensors; no
    temporary that is read before anything writes it; of fixed sizes no domain that is empty, where none of the program that
    it was made from, `source`, is. (Of symbolic sizes the context may rule out what a part is for.)
    """
    _Verifier(program).run()
    if source is None or program.sizes:
        return
    lost = [s.name for s in program.statements() if read_set(s.domain).is_empty()]
    if lost and not any(read_set(d).is_empty() for s in source.statements() for d in _domains(s)):
        raise InternalError(f"{', '.join(lost)} has no instance")


def _domains(s: TypedStatement) -> Iterable[str]:
    """Yield the domains of a statement and of the reductions inside it, which become statements."""
    yield s.domain
    yield from (e.domain for e in walk(s.expr) if isinstance(e, Reduce) and e.domain)


class _Verifier:
    def __init__(self, program: TypedProgram) -> None:
        self.program = program
        self.tensors = {t.name: t for t in program.tensors}
        self.sizes = {name for name, _ in program.sizes}
        self.written = {t.name for t in program.tensors if t.role in (Role.INPUT, Role.INOUT)}
        # What is checked at the call holds, too.
        self.context = read_set(program.context)
        for check in program.checks:
            self.context = self.context.intersect(read_set(check.condition))

    def run(self) -> None:
        """Check the whole program."""
        self._once("tensor", (t.name for t in self.program.tensors))
        self._once("statement", (s.name for s in self.program.statements()))
        for name in (*self.program.inputs, *self.program.outputs):
            self._require(name in self.tensors, f"the argument {name} is no tensor")
        for tensor in self.program.tensors:
            used = {e.name for extent in tensor.shape for e in walk(extent) if isinstance(e, SizeExpr)}
            self._require(used <= self.sizes, f"the extents of {tensor.name} name unknown sizes")
        self._body(self.program.body, ())

    def _body(self, body: tuple[TypedNode, ...], around: tuple[str, ...]) -> None:
        for node in body:
            if isinstance(node, TypedLoop):
                self._require(
                    node.iterator not in around, f"two loops around each other have the iterator {node.iterator}"
                )
                # What a step reads another one may have written.
                self.written |= {s.target for s in statements_of(node.body)}
                self._body(node.body, (*around, node.iterator))
            else:
                self._statement(node, around)
                self.written.add(node.target)

    def _statement(self, s: TypedStatement, around: tuple[str, ...]) -> None:
        name = s.name
        self._once(f"iterator of {name}", s.iterators)
        self._require(s.iterators[: s.outer] == around, f"{name} has not the iterators of the loops around it")
        self._require(s.op in _UPDATES, f"{name} updates by {s.op}")
        self._require(set(s.reduced) <= set(s.iterators[s.outer :]), f"{name} reduces what is no iterator of its own")
        domain = read_set(s.domain)
        place = domain.get_tuple_name(), domain.dim(dim.set)
        self._require(
            place == (name, len(s.iterators)), f"the domain of {name} is one of {place[0]}, of {place[1]} dimensions"
        )
        target = self.tensors.get(s.target)
        self._require(target is not None and target.role is not Role.INPUT, f"{name} writes {s.target}")
        for e in self._expressions(s):
            match e:
                case IndexExpr(name=index):
                    self._require(index in s.iterators, f"{name} uses the unknown index {index}")
                case SizeExpr(name=size):
                    self._require(size in self.sizes, f"{name} uses the unknown size {size}")
                case Read():
                    self._read(s, e, domain)
                case _:
                    pass
        self._within(s, s.target, s.subscripts, domain)

    @staticmethod
    def _expressions(s: TypedStatement) -> Iterable[Expr]:
        bound = {r.index for e in walk(s.expr) if isinstance(e, Reduce) for r in e.ranges}
        for root in (*s.subscripts, s.expr):
            yield from (e for e in walk(root) if not (isinstance(e, IndexExpr) and e.name in bound))

    def _read(self, s: TypedStatement, read: Read, domain: Set) -> None:
        tensor = self.tensors.get(read.tensor)
        if tensor is None:
            raise InternalError(f"{s.name} reads the unknown tensor {read.tensor}")
        self._require(read.dtype in (None, tensor.dtype), f"{s.name} reads {read.tensor} as {read.dtype}")
        self._require(len(read.subscripts) == len(tensor.shape), f"{s.name} reads {read.tensor} with another rank")
        defined = read.tensor in self.written or tensor.role is not Role.TEMPORARY or read.tensor == s.target
        runs = not defined and not domain.intersect_params(self.context).is_empty()
        self._require(not runs, f"{s.name} reads {read.tensor} before anything writes it")
        if read.pad is None:
            self._within(s, read.tensor, read.subscripts, domain)

    def _within(self, s: TypedStatement, tensor: str, subscripts: tuple[Expr, ...], domain: Set) -> None:
        """Check that an access stays within its tensor where its subscripts say which element it reaches."""
        if not subscripts or not all(map(is_quasi_affine, subscripts)):
            return
        if self.program.products:
            return  # that a size is the product of two others is no affine condition
        if not {i for e in subscripts for i in indices_of(e)} <= set(s.iterators):
            return  # within an inline reduction, which has a range of its own
        shape = self.tensors[tensor].shape
        if any(isinstance(e, Literal) and e.value == UNBOUNDED_EXTENT for e in shape):
            return  # a buffer, which the proof of legality knows the size of
        relation = read_map(access_relation(self.program, s, tensor, subscripts))
        reached = domain.intersect_params(self.context).apply(relation)
        box = read_set(tensor_box(self.program, tensor))
        if not reached.is_subset(box):
            raise InternalError(f"{s.name} leaves {tensor}: it reaches {reached.subtract(box)}")

    def _once(self, kind: str, names: Iterable[str]) -> None:
        twice = [n for n, count in Counter(names).items() if count > 1]
        self._require(not twice, f"the {kind} {', '.join(twice)} is defined twice")

    @staticmethod
    def _require(holds: bool, message: str) -> None:
        if not holds:
            raise InternalError(message)
