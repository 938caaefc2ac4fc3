"""The user's names of all that a scheduled program holds: statements, tensors, indices and loops.

A statement is called by what it defines, `C`; the second that defines C is `C#2`. What the compiler added is named after what
it serves: `C.start` sets C to the identity of its reduction, `C.acc` is the accumulator, `C.store` writes it to C, `A.packed`
is a copy of A, `O.max` an inline reduction of O. Generated names (t0, i0, S0) never come out of here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from polyker.ir.expr import Call, Expr, IndexExpr, Literal
from polyker.ir.quasi_affine import coefficients, indices_of
from polyker.ir.typed import TypedProgram, TypedStatement, TypedTensor
from polyker.schedule.tree.nodes import Member
from polyker.structs import replace

_COPIES = {"pack": "packed", "padded": "padded", "windows": "windows", "copy": "copy"}
_RESULTS = ("acc", "total", "result")


class ShownNames(Struct, frozen=True):
    """`statements`: generated name -> shown name. `families`: generated name -> the shown name of the statement it serves."""

    statements: Mapping[str, str]
    families: Mapping[str, str]
    indices: Mapping[str, str]

    def loop(self, label: str) -> str:
        """Return the shown name of a loop by its label in the tree, such as `i.tile` for `i0.tile`."""
        base, dot, rest = label.partition(".")
        return self.indices.get(base, base) + dot + rest

    def shown(self, member: Member) -> str:
        """Return the name of a loop: a new one, such as `j'`, where its time is not its index's alone but shifted, skewed or
        reversed."""
        return self._moved(member, self.loop(member.label))[0]

    def loop_of(self, member: Member, statement: str) -> tuple[str, ...]:
        """Return the names under which a statement knows a loop, the one that is shown first.

        A loop that several statements share has the label of one of them; the others know it by their own index, too. A loop
        whose time was moved keeps the name that it had before.
        """
        base, dot, rest = member.label.partition(".")
        own = indices_of(member.time(statement))
        known = [self.loop(member.label)]
        if base not in own and len(own) == 1:
            known.insert(0, self.indices.get(next(iter(own)), base) + dot + rest)
        names = [self._moved(member, name) for name in known]
        return tuple(dict.fromkeys([*(n[0] for n in names), *(n for found in names for n in found)]))

    def _moved(self, member: Member, name: str) -> tuple[str, ...]:
        """Return a loop's name with a prime at each part that was moved, as in `j'.tile`, then its names from before."""
        own = [time for s, time in member.times if self.statements.get(s) == self.families.get(s)]
        found = [tuple(name.split("."))]
        for cuts in sorted(set().union(*map(_moves, own or [t for _, t in member.times]))):
            at = max(0, len(found[0]) - 1 - cuts)
            found = [(*parts[:at], self._primed(parts[at], at), *parts[at + 1 :]) for parts in found] + found
        return tuple(".".join(parts) for parts in found)

    def _primed(self, part: str, at: int) -> str:
        part += "'"
        while at == 0 and part in self.indices.values():
            part += "'"
        return part


def _moves(time: Expr) -> frozenset[int]:
    """Return where a loop was shifted, skewed or reversed: how many times it was cut since, for each; none for an index."""
    match time:
        case Call(op="floordiv" | "mod", args=(inner, Literal())):
            return frozenset(cuts + 1 for cuts in _moves(inner))
        case Call(args=args):
            first = next((a for a in args if not isinstance(a, Literal)), None)  # the others are what it leans on
            return frozenset((0,)) | (frozenset() if first is None else _moves(first))
        case _:
            return frozenset()


def named(typed: TypedProgram, program: TypedProgram) -> tuple[TypedProgram, ShownNames]:
    """Return the scheduled program with names of the user's as its labels, and the names of its statements.

    `typed`: the program as the user wrote it, which the scheduled one was made from.
    """
    found = _Naming(typed, program)
    tensors = tuple(replace(t, label=found.tensor(t.name)) for t in program.tensors)
    labels = _index_labels(program)
    statements, families = found.statements()
    return replace(program, tensors=tensors, labels=tuple(labels.items())), ShownNames(statements, families, labels)


class _Naming:
    """Names tensors and statements; what was made for a statement is told by its span, or by what reads it."""

    def __init__(self, typed: TypedProgram, program: TypedProgram) -> None:
        self.program = program
        self.labels = {t.name: t.label for t in typed.tensors}
        self.user: dict[str, str] = {}  # statements of the user's
        count: dict[str, int] = {}
        for s in typed.statements():
            label = self.labels[s.target]
            count[label] = count.get(label, 0) + 1
            self.user[s.name] = label if count[label] == 1 else f"{label}#{count[label]}"
        self.spans = {s.span: self.user[s.name] for s in typed.statements() if s.span is not None}
        self.writers: dict[str, list[TypedStatement]] = {}
        self.readers: dict[str, list[TypedStatement]] = {}
        for s in program.statements():
            self.writers.setdefault(s.target, []).append(s)
            for read in s.reads():
                self.readers.setdefault(read.tensor, []).append(s)
        self.known: dict[str, str] = dict(self.labels)
        for tensor in program.tensors:
            self.tensor(tensor.name)

    def tensor(self, name: str) -> str:
        """Return the name of a tensor."""
        if name not in self.known:
            found = self.program.tensor(name)
            self.known[name] = found.label  # ends a walk in circles
            self.known[name] = self._fresh(self._named(found))
        return self.known[name]

    def _fresh(self, name: str) -> str:
        taken = {v for k, v in self.known.items()} | set(self.user.values())
        shown, n = name, 2
        while shown in taken:
            shown, n = f"{name}{n}", n + 1
        return shown

    def _named(self, found: TypedTensor) -> str:
        writers = self.writers.get(found.name, [])
        if found.label in _COPIES:
            source = next((r.tensor for w in writers for r in w.reads()), None)
            return f"{found.label if source is None else self.tensor(source)}.{_COPIES[found.label]}"
        kind = self.kind(found.name)
        return f"{self.served(found.name)}.{'packed' if kind == 'result' else kind}"

    def kind(self, tensor: str) -> str:
        """Return what a made tensor is: its label, `total` where the lanes of an accumulator are folded into it."""
        folds = (w.op != "set" and {r.tensor for r in w.reads()} for w in self.writers.get(tensor, []))
        found: str = self.program.tensor(tensor).label
        if found == "sum" and any(f and all(self.program.tensor(t).label == "acc" for t in f) for f in folds):
            return "total"
        return found

    def served(self, tensor: str) -> str:
        """Return the name of the statement of the user's, or of the inline reduction, that a made tensor serves."""
        writers = self.writers.get(tensor, [])
        for w in writers:
            if w.name in self.user:
                return self.user[w.name]
        if self.kind(tensor) not in _RESULTS:
            for w in writers:
                if w.span is not None and w.span in self.spans:
                    return self.spans[w.span]
        for reader in self.readers.get(tensor, []):
            if reader.name in self.user:
                return self.user[reader.name]
            if reader.target != tensor:
                made = reader.target not in self.labels and self.kind(reader.target) in _RESULTS
                return self.served(reader.target) if made else self.tensor(reader.target)
        return self.program.tensor(tensor).label

    def statements(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the names of the statements, and of what each serves."""
        shown: dict[str, str] = {}
        families: dict[str, str] = {}
        taken = {self.user[s.name] for s in self.program.statements() if s.name in self.user}
        for s in self.program.statements():
            if s.name in self.user:
                shown[s.name] = families[s.name] = self.user[s.name]
                continue
            family, part = self._part(s)
            name, n = family + part, 2
            while name in taken:
                name, n = f"{family}{part}#{n}", n + 1
            taken.add(name)
            shown[s.name], families[s.name] = name, family
        return shown, families

    def _part(self, s: TypedStatement) -> tuple[str, str]:
        """Return what a made statement serves, and its part in that."""
        kind = "" if s.target in self.labels else self.kind(s.target)
        family = self.served(s.target) if kind in _RESULTS else self.tensor(s.target)
        if s.op == "set" and isinstance(s.expr, Literal):
            return family, ".start"
        reads = {r.tensor for r in s.reads()} - {s.target}
        if kind == "total":
            return family, ".fold"
        if any(r not in self.labels and self.kind(r) in _RESULTS for r in reads):
            return family, ".store"
        return family, ""


def _index_labels(program: TypedProgram) -> dict[str, str]:
    """Return iterator -> name: the user's, or that of an iterator that subscripts the same dimension of a tensor."""
    labels = dict(program.labels)
    fresh = [i for s in program.statements() for i in s.iterators if i not in labels]
    hints: dict[tuple[str, int], str] = {}
    for _ in range(3):
        for s in program.statements():
            for tensor, subscripts in _accesses(s):
                for d, e in enumerate(subscripts):
                    hint = _hint(e, labels)
                    if hint is not None and ("." not in hint or (tensor, d) not in hints):
                        hints[tensor, d] = hint
        for s in program.statements():
            taken = {labels[i] for i in s.iterators if i in labels}
            for tensor, subscripts in _accesses(s):
                for d, e in enumerate(subscripts):
                    i = _bare(e)
                    if i is not None and i not in labels and (tensor, d) in hints:
                        labels[i] = hints[tensor, d]
                        while labels[i] in taken:
                            labels[i] += "'"
                        taken.add(labels[i])
        if all(i in labels for i in fresh):
            break
    taken = set(labels.values())
    for n, i in enumerate(i for i in dict.fromkeys(fresh) if i not in labels):
        name = f"x{n}"
        while name in taken:
            name += "_"
        labels[i] = name
        taken.add(name)
    return labels


def _accesses(s: TypedStatement) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    yield s.target, s.subscripts
    yield from ((r.tensor, r.subscripts) for r in s.reads())


def _bare(e: Expr) -> str | None:
    """Return the index of a subscript that is an index plus a constant."""
    parts = coefficients(e)
    own = [k for k in parts or {} if k]
    return own[0] if len(own) == 1 and parts and parts[own[0]] == 1 and own[0] in indices_of(e) else None


def _hint(e: Expr, labels: Mapping[str, str]) -> str | None:
    index = _bare(e)
    if index is not None:
        return labels.get(index)
    match e:
        case Call(op="floordiv" | "mod" as op, args=(inner, Literal())):
            own = indices_of(inner)
            name = labels.get(next(iter(own))) if len(own) == 1 else None
            return None if name is None else f"{name.partition('.')[0]}.{'block' if op == 'floordiv' else 'lane'}"
        case IndexExpr(name=name):
            return labels.get(name)
        case _:
            return None
