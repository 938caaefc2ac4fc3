"""Choose the contraction order of a sum of products.

All orders of pairs are tried where there are few factors; of many, those that opt_einsum proposes. Arithmetic and the bytes of
the temporaries rank them; then the model of the register tiles (polyker.cost.plan) judges the best ones, with steps put
together again where a temporary does not pay, against the statement as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod

from msgspec import Struct, field

from polyker.cost.choose import choose
from polyker.cost.measure import Layouts, MeasuredStatement, accesses, measure
from polyker.cost.pieces import waiting
from polyker.cost.plan import vector_lanes
from polyker.cost.table import GAIN, LOAD, NEST
from polyker.cost.temporaries import MIN_SEARCHED_CYCLES, insisted, places, room, traffic
from polyker.ir.decision import Decision
from polyker.ir.expr import Expr, reads_in
from polyker.ir.quasi_affine import indices_of
from polyker.ir.typed import TypedProgram, TypedStatement, replaced
from polyker.machine.model import Target
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.reductions.factor import (
    ContractionStep,
    ContractionTree,
    Product,
    factored,
    outline,
    product_of,
    steps_of,
)

# How many times as long a step takes whose operands are copied: a nest of loops and code of their own, which fuse with nothing
# (fitted to 41 orders of contraction).
PACKED_FACTOR = 1.08
# An order whose tiles cost at most this multiple of the arithmetic ends the search (experience value).
GOOD_ENOUGH_RATIO = 1.18
# Most factors of which all orders are tried; most orders that the tile model evaluates; least share of a step in the cycles for
# which it is evaluated (bound the compile time).
MAX_EXHAUSTIVE_FACTORS, MAX_COSTED_ORDERS, MIN_COSTED_STEP_SHARE = 5, 4, 0.02
# Factors of which opt_einsum finds the best order: the time grows as their number's power of three.
MAX_OPTIMAL_FACTORS = 9


class Contracted(Struct, frozen=True):
    """A program with its sums of products taken in steps, and in words what they are.

    `large`: temporaries that are only worth their memory if statements run together, so that a part of each is enough.
    """

    program: TypedProgram
    notes: tuple[Decision, ...]
    large: frozenset[str]


def contract(
    program: TypedProgram, target: Target, layout: Layouts, *, large: bool = True, budget: int | None = None
) -> Contracted:
    """Return the program with its sums of products taken in the steps that the model finds best.

    `large`: also where a temporary is too large, if the steps can share a loop so that a part of it is enough. `budget`: bytes
    that temporaries may take, if there is a limit.
    """
    fresh = Fresh(program)
    notes: list[Decision] = []
    held: set[str] = set()

    def change(statement: TypedStatement) -> list[TypedStatement]:
        product = product_of(statement)
        if product is None or (len(product.factors) < 3 and not _alone(product)):
            return [statement]
        search = _OrderSearch(program, product, target, layout, large, budget)
        made = search.result(fresh, notes)
        if made is None:
            return [statement]
        if search.room < sum(search.bytes(s) for s in search.chosen[:-1]):
            held.update(s.target for s in made[:-1])
        return made

    body = replaced(program.body, change)
    return Contracted(fresh.finish(body) if fresh.tensors else program, tuple(notes), frozenset(held))


class _OrderSearch(Struct, dict=True):
    """The search for the steps of one product. Trees say which steps there are, see `rewrite.reductions.factor`."""

    program: TypedProgram
    product: Product
    target: Target
    layout: Layouts
    large: bool
    budget: int | None
    chosen: list[ContractionStep] = field(default_factory=list)
    known: dict[object, float] = field(default_factory=dict)

    def result(self, fresh: Fresh, notes: list[Decision]) -> list[TypedStatement] | None:
        """Return the statements of the best steps, None where the statement had better stay as it is."""
        rank = insisted()
        if rank is not None:
            trees = self.ranked()
            found = self.made(fresh, self.steps(trees[rank % len(trees)][1])) if trees else None
            if found is not None:
                notes.append(Decision(found[-1].name, self.described(found)))
            return found
        whole = self.steps(tuple(range(len(self.product.factors))))
        at_once = self.estimate(whole)
        if at_once < MIN_SEARCHED_CYCLES:
            return None
        likely = [(cycles, t) for cycles, t in self.ranked()[:MAX_COSTED_ORDERS] if cycles < (1 - GAIN) * at_once]
        if not likely:
            return None
        before = self.cycles(whole)
        judged: list[tuple[float, int, ContractionTree]] = []
        for n, (least, tree) in enumerate(likely):
            if judged and min(judged)[0] <= GOOD_ENOUGH_RATIO * least:
                break
            judged.append((self.cycles(self.steps(tree)), n, tree))
        for _, _, tree in sorted(judged):
            cycles, steps = self.improved(tree)
            found = self.made(fresh, steps) if cycles < (1 - GAIN) * before else None
            if found is not None:
                won = 100 * (1 - cycles / before)
                chosen = f"{self.described(found)}; the model wins {won:.0f}% of the cycles"
                notes.append(Decision(found[-1].name, chosen, cost=cycles / before))
                return found
        won = max((1 - cycles / before for cycles, _, _ in judged), default=0.0)
        refused = (
            f"the sum of {len(self.product.factors)} factors is taken at once: "
            f"steps would win {max(0.0, 100 * won):.0f}% of the cycles, which is under {100 * GAIN:.0f}%"
        )
        notes.append(Decision(self.product.statement.name, refused=refused))
        return None

    def made(self, fresh: Fresh, steps: list[ContractionStep]) -> list[TypedStatement] | None:
        """Return the statements of some steps, None where the domain does not allow them."""
        self.chosen = steps
        return factored(self.program, fresh, self.product, steps, self.places)

    def ranked(self) -> list[tuple[float, ContractionTree]]:
        """Return the orders that are tried with their cycles, the likeliest first."""
        found = [(self.estimate(s), self.shape(s), n, t) for n, (t, s) in enumerate(self.candidates())]
        return [(cycles, t) for cycles, _, _, t in sorted(found)]

    def described(self, made: list[TypedStatement]) -> str:
        """Return what was chosen in words."""
        parts = [
            f"{s.target} over {', '.join(s.reduced)}" if s.reduced else f"{s.target} multiplied out"
            for s in made[:-1]
            if any(s.reads())
        ]
        return f"the sum of {len(self.product.factors)} factors is taken in steps: first {', '.join(parts)}"

    @cached_property
    def measured(self) -> MeasuredStatement:
        """The statement as it stands."""
        return measure(self.program, self.product.statement, self.layout)

    @cached_property
    def places(self) -> Mapping[str, tuple[Expr, Expr]]:
        """The least value and the extent of each iterator."""
        return places(self.program, self.measured)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The order of the temporaries' dimensions: as in the largest tensor, then as in the next."""
        tensors = sorted(self.measured.accesses, key=lambda a: (-self.measured.footprint(a), a.read is not None))
        names: list[str] = []
        for a in tensors:
            subscripts = self.product.statement.subscripts if a.read is None else a.read.subscripts
            for s in subscripts:
                names += [i for i in self.product.statement.iterators if i in indices_of(s)]
        return tuple(dict.fromkeys((*names, *self.product.statement.iterators)))

    def size(self, iterators: Sequence[str] | frozenset[str]) -> int:
        """Return how many points some iterators have."""
        return prod(self.measured.extent(i) for i in iterators)

    @cached_property
    def contiguous(self) -> list[frozenset[str]]:
        """The iterators along which each factor is contiguous."""
        near = {a.read: frozenset(i for i in a.strides if abs(a.stride(i)) == 1) for a in self.measured.accesses}
        return [frozenset().union(*(near[r] for r in reads_in(f))) for f in self.product.factors]

    def steps(self, tree: ContractionTree, last: Mapping[int, str] | None = None) -> list[ContractionStep]:
        """Return the steps of a tree.

        The innermost dimension of a step's result is one along which an operand is contiguous; `last`: another, by the step.
        """
        near = list(self.contiguous)

        def innermost(n: int, operands: tuple[int, ...], kept: frozenset[str]) -> str | None:
            found = [i for o in operands for i in near[o] if i in kept]
            inner = (last or {}).get(n) or max(found or kept, key=self.order.index, default=None)
            near.append(frozenset({inner} if inner else ()))
            return inner

        return steps_of(self.product, tree, self.order, innermost)

    def shape(self, steps: list[ContractionStep]) -> list[list[int]]:
        """Return a key that tells different steps apart, whatever the order of the factors."""
        return [sorted(map(self.measured.extent, s.points)) for s in steps]

    def candidates(self) -> Iterator[tuple[ContractionTree, list[ContractionStep]]]:
        """Yield the trees that are tried."""
        alone = _alone(self.product)
        leaves: list[ContractionTree] = [(n,) if found & alone else n for n, found in enumerate(self.product.indices)]
        trees = _pairings(leaves) if len(leaves) <= MAX_EXHAUSTIVE_FACTORS else self.proposed()
        for tree in trees:
            steps = self.steps(tree)
            if len(steps) > 1 and self.may_hold(steps):
                yield tree, steps

    def proposed(self) -> Iterator[ContractionTree]:
        """Yield the orders that opt_einsum finds; each sums first over what one factor alone has."""
        from opt_einsum import paths  # heavy, and seldom needed

        inputs = list(self.product.indices)
        output = frozenset().union(*inputs) - self.product.free
        sizes = {i: self.measured.extent(i) for found in inputs for i in found}
        found = []
        if len(inputs) <= MAX_OPTIMAL_FACTORS:
            for minimised in ("flops", "write", "combo", "size"):
                search = paths.DynamicProgramming(minimize=minimised, search_outer=True)
                found.append(search(inputs, output, sizes))
        else:
            found.append(paths.greedy(inputs, output, sizes))
        for path in dict.fromkeys(map(tuple, found)):
            left: list[ContractionTree] = list(range(len(inputs)))
            for step in path:
                parts = tuple(left[n] for n in step)
                left = [t for n, t in enumerate(left) if n not in step]
                left.append(parts)
            yield left[0]

    def may_hold(self, steps: list[ContractionStep]) -> bool:
        """Whether the temporaries are not too large, or what is needed of them at a time is not where loops are shared.

        Of symbolic sizes without expected values a temporary has no more dimensions than a factor or the result.
        """
        if self.program.sizes and not self.program.likely:
            element = frozenset(i for s in self.product.statement.subscripts for i in indices_of(s))
            most = max(map(len, (*self.product.indices, element)))
            return all(len(s.kept) <= most for s in steps[:-1])
        if sum(map(self.bytes, steps[:-1])) <= self.room:
            return True
        shared = self.size([i for i in steps[-1].kept if all(i in s.kept for s in steps)])
        return self.large and sum(map(self.bytes, steps[:-1])) <= shared * self.target.cache(2).size

    @cached_property
    def room(self) -> int:
        """The bytes that temporaries may take."""
        return room(self.measured, self.target, self.budget)

    def bytes(self, step: ContractionStep) -> int:
        """Return the size of a step's temporary."""
        return self.size(step.kept) * self.product.statement.acc.itemsize

    def estimate(self, steps: list[ContractionStep]) -> float:
        """Return the cycles of some steps, if their tiles are good ones."""
        return sum(self.rough(steps, n) + self.traffic(s, s is steps[-1]) for n, s in enumerate(steps))

    def rough(self, steps: list[ContractionStep], n: int) -> float:
        """Return the cycles of one step: of its arithmetic, or of its loads where operands have a value for each point."""
        step = steps[n]
        full = sum(self.operand(steps, o) == frozenset(step.points) for o in step.operands)
        work = max(1, len(step.operands) - 1) / self.target.fma_per_cycle
        each = max(work, LOAD * (full + (not step.reduced))) / vector_lanes(self.measured, self.target)
        return self.size(step.points) * each

    def traffic(self, step: ContractionStep, is_last: bool) -> float:
        """Return the cycles to begin a step, and to write and read its temporary."""
        if is_last:
            return NEST
        return NEST + traffic(self.bytes(step), self.target)

    def operand(self, steps: list[ContractionStep], number: int) -> frozenset[str]:
        """Return the iterators that an operand depends on."""
        factors = len(self.product.factors)
        return self.product.indices[number] if number < factors else frozenset(steps[number - factors].kept)

    def improved(self, tree: ContractionTree) -> tuple[float, list[ContractionStep]]:
        """Return a tree's cycles and steps, with steps joined and dimensions ordered as the model of the tiles finds it best."""
        cycles = self.cycles(self.steps(tree))
        while True:
            fewer = [(self.steps(t), t) for t in _joined(tree)]
            tried = [
                (self.cycles(s), n, t) for n, (s, t) in enumerate(fewer) if len(s) > 1 and self.estimate(s) < cycles
            ]
            if not tried or min(tried)[0] >= cycles:
                break
            cycles, _, tree = min(tried)
        last: dict[int, str] = {}
        for n, step in enumerate(self.steps(tree)[:-1]):
            for i in step.kept[:-1]:
                if cycles > GOOD_ENOUGH_RATIO * self.estimate(self.steps(tree)) and any(
                    i in near for near in self.contiguous
                ):
                    other = self.cycles(self.steps(tree, {**last, n: i}))
                    if other < 0.99 * cycles:
                        cycles, last = other, {**last, n: i}
        return cycles, self.steps(tree, last)

    def cycles(self, steps: list[ContractionStep]) -> float:
        """Return the cycles of some steps by the model of the tiles."""
        factors = len(self.product.factors)
        trial = Fresh(self.program)
        statements = outline(trial, self.product, steps, self.places)
        program = trial.finish(self.program.body)
        least = MIN_COSTED_STEP_SHARE * self.rough(
            [ContractionStep(tuple(range(factors)), steps[-1].kept, self.product.statement.reduced)], 0
        )
        total = 0.0
        for n, (step, statement) in enumerate(zip(steps, statements, strict=True)):
            total += self.traffic(step, step is steps[-1])
            rough = self.rough(steps, n)
            if rough < least:
                total += rough
                continue
            operands = tuple(o if o < factors else steps[o - factors].kept for o in step.operands)
            key = operands, step.kept, step.reduced, step is steps[-1]
            if key not in self.known:
                self.known[key] = self.tiled(program, statement)
            total += self.known[key]
        return total

    def tiled(self, program: TypedProgram, statement: TypedStatement) -> float:
        """Return the cycles of a statement by the model of the tiles."""
        bounds = {i: self.measured.bounds[i] for i in statement.iterators}
        measured = MeasuredStatement(statement, accesses(program, statement, self.layout), bounds, self.measured.likely)
        free = statement.kept
        plan = choose(measured, free, statement.reduced, self.target)
        copies = PACKED_FACTOR if plan.packed or plan.packs_result else 1.0
        return self.size(statement.iterators) * plan.cost * copies + waiting(measured, plan, self.target)


def _alone(product: Product) -> frozenset[str]:
    """Return the iterators to sum over that only one of several factors depends on."""
    uses = [i for found in product.indices for i in found]
    return frozenset(i for i in product.free if uses.count(i) == 1 < len(product.factors))


def _pairings(leaves: list[ContractionTree]) -> Iterator[ContractionTree]:
    """Yield all orders in which pairs can be taken, each once."""
    if len(leaves) == 1:
        yield leaves[0]
        return
    first, *rest = leaves
    # The first leaf is on the left of the last pair.
    for chosen in range(1 << len(rest)):
        left = [first, *(t for n, t in enumerate(rest) if chosen >> n & 1)]
        right = [t for n, t in enumerate(rest) if not chosen >> n & 1]
        if right:
            for a in _pairings(left):
                for b in _pairings(right):
                    yield a, b


def _joined(tree: ContractionTree) -> Iterator[ContractionTree]:
    """Yield the tree with one step put together with the one that uses it."""
    if isinstance(tree, int):
        return
    for n, node in enumerate(tree):
        if not isinstance(node, int):
            yield (*tree[:n], *node, *tree[n + 1 :])
            for other in _joined(node):
                yield (*tree[:n], other, *tree[n + 1 :])
