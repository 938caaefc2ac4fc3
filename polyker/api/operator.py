"""Operators: parsed and checked programs that compile themselves for the arrays they are called with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from polyker.api.binding import GivenSchedule
from polyker.api.compiling import (
    CompileKey,
    argument_type,
    check_shape_alone,
    compiled,
    declared_type,
    home_of,
    lies_on_gpu,
)
from polyker.api.definition import Definition, definition_of, is_program, not_an_operator, of_program
from polyker.api.derivatives import Differentiable
from polyker.api.exchange import Exchanged
from polyker.errors.base import CompileTimeout, PolykerError, ShapeError, escape, failure
from polyker.errors.calls import BAD_ARGUMENT, BAD_OPTION, NO_STAGE, ON_DEVICE
from polyker.errors.codegen import NO_GPU_ARRAY
from polyker.errors.given import exact_text, is_a, printed
from polyker.errors.tracebacks import api_boundary, api_class
from polyker.ir.dtypes import TensorType
from polyker.options import (
    Options,
    checked_flag,
    checked_target,
    default_of,
    environment_is_plain,
    environment_target,
    guards,
    interpreting,
    is_given,
    options,
    split_keywords,
)
from polyker.process.jobs import load
from polyker.runtime.arguments import given_outs, operands_of, result_tuple, size_value
from polyker.runtime.arrays import Operand, on_views, views_of
from polyker.runtime.calls import CallPlan
from polyker.runtime.compiled import Compiled, UnfinishedCalls
from polyker.runtime.entry.direct import Direct, weak_calls
from polyker.runtime.entry.dispatch import Dispatch, finished
from polyker.runtime.specialise import Family, symbolic_types

if TYPE_CHECKING:  # what a first call needs nothing of
    from polyker.api.kernel import Kernel
    from polyker.api.schedule_object import Schedule
    from polyker.explain.report import Explanation
    from polyker.ir.program import Program
    from polyker.runtime.compare import Comparison
    from polyker.runtime.entry.tables import CallTable

T = TypeVar("T")
_MAX_TABLES = 8  # most options under which calls go straight to machine code (chosen)
# What holds where a keyword is not given: a name of the program may be the same word.
NONE, AUTO = default_of("None"), default_of("True")
ACC, FASTMATH, SPECIALIZE = (default_of(f"pk.options.{name}") for name in ("acc", "fastmath", "specialize"))
TIMEOUT, THREADS, DETERMINISTIC = (default_of(f"pk.options.{name}") for name in ("timeout", "threads", "deterministic"))
COMPILE_OPTIONS = ("acc", "fastmath", "specialize", "timeout", "threads", "deterministic")


@api_boundary
def op(*definition: object, **sizes: int) -> Operator:
    """Return the operator that a text in the notation, statements of the builder, or JSON define; keywords fix sizes.

    Statements may be in one list, and so may the lines of a text. JSON is what `to_json` of an operator gives, as text or parsed.
    Raises ParseError, and ArgumentError for anything that defines no operator.

    >>> import numpy as np, polyker as pk
    >>> pk.op("C[i,j] += A[i,k] * B[k,j]")(np.eye(2), np.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    fixed = {name: size_value(name, value) for name, value in sizes.items()}
    return Operator(definition_of(definition, fixed))


@api_class
class Operator(Direct, Differentiable, Exchanged):
    """A program of the notation, checked, not yet bound to types or shapes. Made by `op`; call it on arrays.

    A call computes the outputs for arrays given by position or name, and sizes by keyword.
    `out`: an array, or for several outputs a tuple or dict of arrays, to write into; it is returned. What comes
    back is of the library of the first array; several outputs come as a namedtuple. Where the arrays lie on a GPU it
    runs there, on the stream given as `stream=` or the current one of their library, and does not wait: see `sync`.
    A keyword that is a name of the program is the program's, until that is given by position. Raises ShapeError, DTypeError,
    ArgumentError, GatherError, CompileError, CompileTimeout.
    """

    def __init__(self, program: Program | Definition, fixed: Mapping[str, int] | None = None) -> None:
        if fixed is not None and not is_a(fixed, Mapping):
            raise failure(BAD_ARGUMENT, name="fixed", type=type(fixed).__name__, wanted="a dict of sizes")
        if isinstance(program, Definition):
            self._definition = program
        elif is_program(program):
            sizes = {name: size_value(name, value) for name, value in (fixed or {}).items()}
            self._definition = of_program(program, sizes)
        else:
            raise not_an_operator(program)
        signature = self.signature = self._definition.signature
        self.fixed, self.identity = self._definition.fixed, self._definition.identity
        self.__signature__ = self._definition.call_signature(self.fixed)
        self._fields = result_tuple(signature.outputs) if len(signature.outputs) > 1 else None
        self._dispatch = Dispatch(self._fields)
        # By options: calls of other threads may be under way through any of them, so that none is dropped.
        self._tables: dict[Options, tuple[CallTable, Callable[..., Any]]] = {}
        self._families, self._unfinished = dict[Hashable, Family](), UnfinishedCalls()
        self._repeats: Any = None  # of runtime.cuda, from the first call on arrays of a GPU
        self._owns_out = "out" in self._own(0)
        plain = signature.parameters == signature.inputs and not self._owns_out
        self._plain = len(signature.inputs) if plain else -1
        self._through_python = weak_calls(self, Operator._call, (self.identity, *sorted(self.fixed.items())))
        self.hand_on_to(self._through_python)

    @property
    def func(self) -> Callable[..., Any]:
        """The way of a call through Python, by which dask tells what the operator computes."""
        return self._through_python

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as its text and fixed sizes; what it has compiled comes from the disk cache, or is compiled anew."""
        return Operator, (self._definition,)

    def _call(self, args: Sequence[Any], out: Any, named: dict[str, Any]) -> Any:
        """Do what a call of the operator does, for whatever arguments."""
        chosen = options.current
        if named and "stream" in named and "stream" not in self._own(len(args)):
            if self._owns_out and out is not None and "out" in self._own(len(args)):
                named, out = {**named, "out": out}, None
            return self._on_gpu(args, out, named, chosen)
        if self._repeats is not None and not named and len(args) == self._plain and environment_is_plain():
            found = self._repeats.attempt((chosen, "cuda"), args, given_outs(self.signature.outputs, out), None)
            if found is not None:
                return found[0] if self._fields is None else self._fields(*found)
        inputs: Sequence[Any] = args
        given: dict[str, int] = {}
        if named or len(args) != self._plain:
            if self._owns_out and out is not None and "out" in self._own(len(args)):
                named, out = {**named, "out": out}, None
            inputs, given = self._matched(args, named)
        target = environment_target()
        context = (chosen, target, *given.items())
        if not self._owns_out and (views := views_of(inputs, out)) is not None:
            labels = () if self._plain >= 0 else self.signature.inputs
            result = on_views(self, labels, given, views, out, self._fields)
            self._dispatch.offer(context, views, inputs, self._adopt)
            return result
        if interpreting():
            return self._interpreted(inputs, given, out, chosen)
        result = self._dispatch.attempt(context, inputs, out, self._adopt)
        if result is not None:
            return result
        if lies_on_gpu(self.signature, inputs, out):
            return self._on_gpu(args, out, named, chosen)
        operands, outs, wanted, kind = operands_of(self.signature, inputs, out)
        limit = chosen.scratch_bytes
        arrays, plan = self._run(operands, given, chosen, target, lambda c: c.run(operands, given, outs, limit))
        if kind == "numpy":
            self._dispatch.remember(context, inputs, operands, arrays, out, plan)
        return finished(arrays, wanted, out, kind, inputs, self._fields)

    def _matched(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, int]]:
        parameters = self.signature.parameters
        known = {n: v for n, v in self.fixed.items() if n in parameters[len(args) :] and n not in named}
        inputs, sizes = self._definition.matched(args, {**named, **known})
        return inputs, {name: size_value(name, value) for name, value in sizes.items()}

    def _own(self, count: int) -> set[str]:
        """Return the keywords that are the program's, not options, in a call with `count` arguments by position."""
        return self.signature.own_names(count, self.fixed)

    def _adopt(self, plan: CallPlan, context: tuple[Hashable, ...], inputs: Sequence[Any]) -> None:
        """Let calls like this one go to the kernel without more of Python, where this process can do that."""
        load("polyker.runtime.entry.tables")
        from polyker.runtime.entry.tables import Callee, adopted

        chosen, target, *given = cast("tuple[Any, ...]", context)
        if target is not None or self._owns_out:  # which the emitted entry takes for what is written into
            return
        known, where = self._tables.get(chosen), guards()
        if where is None or (known is None and len(self._tables) == _MAX_TABLES):
            return
        sizes: dict[str, int] = dict(given)
        callee = Callee(self.signature, self.fixed, self._through_python, self._fields, where, chosen)
        made = adopted(known and known[0], callee, plan, inputs, sizes)
        if known is None:
            if made is None:
                return
            known = self._tables.setdefault(chosen, made)
        known[0].choose(chosen)
        self.hand_on_to(known[1])

    def _on_gpu(self, args: Sequence[Any], out: Any, named: Mapping[str, Any], chosen: Options) -> Any:
        """Run on the GPU that the arrays lie on."""
        chosen_stream, values = split_keywords(self._own(len(args)), named, ["stream"])
        stream = chosen_stream.get("stream")
        inputs, given = self._matched(args, values)
        labels, outs = (self.signature.inputs, self.signature.outputs), given_outs(self.signature.outputs, out)
        if self._repeats is None:
            self._repeats = load("polyker.runtime.cuda.repeat").DeviceCallCache()
        target = environment_target() or "cuda"
        context = chosen, target, *given.items()
        found = self._repeats.attempt(context, inputs, outs, stream)
        if found is None:
            from polyker.runtime.cuda.arrays import device_operands, first_on_device, on_stream
            from polyker.runtime.cuda.bound import bound_call, run_bound

            like = first_on_device((*inputs, *outs))
            if like is None:
                raise failure(NO_GPU_ARRAY)
            if target.split(":")[0] != "cuda":
                name = next((n for n, v in zip(labels[0], inputs, strict=True) if v is like), "out")
                raise failure(ON_DEVICE, name=name, device="a CUDA device")
            with on_stream((*inputs, *outs), stream) as place:

                def call(compiled: Compiled) -> Sequence[Any]:
                    self._unfinished.note(compiled)
                    bound = bound_call(compiled, labels, operands, given, inputs, outs, chosen.scratch_bytes)
                    run_bound(bound, place.stream)
                    self._repeats.remember(context, inputs, outs, bound)
                    return bound.results

                operands = device_operands(labels[0], inputs)
                number = 0 if place.device is None else place.device.number
                here = f"cuda:{number}" if target == "cuda" and number else target
                found = self._run(operands, given, chosen, here, call)
        return found[0] if self._fields is None else self._fields(*found)

    def sync(self) -> None:
        """Wait for the calls with arrays on the GPU, and raise what they found: GatherError, or what CUDA reports."""
        self._unfinished.sync()

    def _run(
        self,
        operands: Sequence[Operand],
        given: Mapping[str, int],
        chosen: Options,
        target: str | None,
        call: Callable[[Compiled], T],
    ) -> T:
        """Return what a call of the program gives, compiled for these operands' types or for symbolic sizes."""
        types = tuple(o.type for o in operands)
        family_key = tuple((t.dtype, len(t.shape), t.weak) for t in types), tuple(given), target, chosen.code_key
        family = self._families.setdefault(family_key, Family())
        shapes = tuple(t.shape for t in types), tuple(given.items())
        if family.wants_symbolic(shapes, chosen.specialize):
            try:
                names = {name: name for name in given}
                symbolic = self._compiled(symbolic_types(self.signature, types), names, chosen, target)
            except CompileTimeout:
                raise
            except PolykerError:
                family.symbolic = (
                    False  # not every program can be bound to symbols, such as one with a product of sizes
                )
            else:
                try:
                    return call(symbolic)
                except ShapeError:
                    pass  # the program bound to these very shapes tells better what is wrong
        return call(self._compiled(types, given, chosen, target))

    def _compiled(
        self,
        types: Sequence[TensorType],
        sizes: Mapping[str, int | str],
        chosen: Options,
        target: str | None,
        given: GivenSchedule | None = None,
    ) -> Compiled:
        return compiled(self._definition, types, {**sizes, **self.fixed}, chosen, target, given)

    def _interpreted(self, inputs: Sequence[Any], given: Mapping[str, int], out: Any, chosen: Options) -> Any:
        load("polyker.api.stages")
        from polyker.api.stages import interpret

        operands, outs, wanted, kind = operands_of(self.signature, inputs, out)
        arrays = interpret(self.program, operands, {**self.fixed, **given}, outs, chosen)
        return finished(arrays, wanted, out, kind, inputs, self._fields)

    def infer(self, /, *types: Any, **named: Any) -> Any:
        """Return the type of the output, or a namedtuple of several, for types or arrays, without compiling.

        >>> import polyker as pk
        >>> pk.op("C[i,j] += A[i,k] * B[k,j]").infer(A=pk.f32[8, 4], B=pk.f32[4, 9])
        f32[8, 9]

        The `ranges` of each say what the program's indices range over, and what bounded them:

        >>> pk.op("D[i] = X[i+1] - X[i]").infer(pk.f32[10]).ranges
        ('i in 0:9, from X[i], X[i+1]',)
        """
        load("polyker.api.stages")
        from polyker.api.stages import inferred

        given, sizes = self._types(types, named)
        symbols = {name: name for name in self.signature.free_sizes}
        results = inferred(self.program, given, {**symbols, **self.fixed, **sizes}, options.current)
        return results[0] if self._fields is None else self._fields(*results)

    def compile(  # noqa: PLR0913 (the options that users give by keyword)
        self,
        /,
        *types: Any,
        target: str | None = NONE,
        acc: Any = ACC,
        fastmath: Any = FASTMATH,
        specialize: Any = SPECIALIZE,
        timeout: Any = TIMEOUT,
        threads: Any = THREADS,
        deterministic: Any = DETERMINISTIC,
        schedule: Schedule | None = NONE,
        **named: Any,
    ) -> Kernel:
        """Return the kernel for arrays or types, by position or name; sizes that are not given stay symbols.

        `target`: "cpu" (this machine), "cpu:x86-64-v3", a triple, "cuda" (this machine's first GPU), "cuda:1", "cuda:sm_90a";
        where none is given the GPU that one of the arrays lies on, else the CPU. `acc`: the type accumulated in.
        `fastmath`: a set of LLVM's flags. `timeout`: in seconds. `threads`: how many may run the kernel; `deterministic`: its
        bits do not depend on them. `specialize="never"` makes all extents symbols, and one code for all of them; else
        a kernel with symbols is compiled anew for the first sizes of each class (about a quarter of a power of two, 16 at most;
        what `source` shows is for no sizes in particular). `schedule`: one made by
        `schedule` for the same types, instead of the automatic one; types and target are its own where none are given.
        A keyword that is a name of the program is the program's, until that is given by position: for a tensor called `target`
        give the arrays by position, or the option by `polyker.options` or POLYKER_TARGET.
        Raises ShapeError, DTypeError, CompileError, CompileTimeout, BackendUnavailable, ScheduleError.
        """
        given = {"target": target, "acc": acc, "fastmath": fastmath, "specialize": specialize, "timeout": timeout}
        given |= {"threads": threads, "deterministic": deterministic, "schedule": schedule}
        return self._kernel(types, *self._options_apart(types, named, given))

    def _options_apart(
        self, types: Sequence[Any], named: Mapping[str, Any], given: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the options among those given by keyword, and what is the program's."""
        chosen = {name: value for name, value in given.items() if is_given(value)}
        return split_keywords(self._own(len(types)), {**named, **chosen}, chosen)

    def _kernel(self, types: Sequence[Any], chosen: Mapping[str, Any], named: Mapping[str, Any]) -> Kernel:
        """Return the kernel for types or arrays, and options, that are told apart."""
        load("polyker.api.kernel")
        from polyker.api.kernel import Kernel

        changes = {name: chosen[name] for name in COMPILE_OPTIONS if name in chosen}
        target = checked_target(chosen.get("target"))
        schedule = self._schedule_given(chosen.get("schedule"))
        if schedule is not None:
            changes.setdefault("acc", schedule.acc)
            types, named, target = schedule.context(self.program, types, named, target)
        bound = self._bound(types, named, changes, target)
        made = self._compiled(*bound.key, None if schedule is None else schedule.given(self.identity, bound))
        return Kernel(self._definition, made, bound, schedule)

    @staticmethod
    def _schedule_given(value: object) -> Schedule | None:
        """Return a schedule, None for none; raises ArgumentError for anything else."""
        if value is None:
            return None
        load("polyker.api.schedule_object")
        from polyker.api.schedule_object import Schedule

        if is_a(value, Schedule):
            return value
        raise failure(BAD_OPTION, name="schedule", value=printed(value), accepted="what op.schedule(...) gives")

    def schedule(
        self,
        /,
        *types: Any,
        auto: bool = AUTO,
        target: str | None = NONE,
        acc: Any = ACC,
        specialize: Any = SPECIALIZE,
        timeout: Any = TIMEOUT,
        threads: Any = THREADS,
        **named: Any,
    ) -> Schedule:
        """Return the schedule for arrays or types, as in `compile`, to print and to edit; `timeout` is each step's, too.

        It starts as the automatic one, with the accumulators and copies that go with it, and each index in loops of its own; with
        `auto=False` as the order of the text, each statement its own nest. Keywords are told apart as in `compile`.

        >>> import polyker as pk
        >>> pk.op("C[i,j] += A[i,k] * B[k,j]").schedule(pk.f32[64, 64], pk.f32[64, 64], auto=False)
        for i
          for j
            C.start: C[i, j] = 0
        for i
          for j
            for k
              C: C[i, j] += A[i, k]*B[k, j]
        """
        given = {
            "auto": auto,
            "target": target,
            "acc": acc,
            "specialize": specialize,
            "timeout": timeout,
            "threads": threads,
        }
        return self._schedule(types, *self._options_apart(types, named, given))

    def _schedule(self, types: Sequence[Any], chosen: Mapping[str, Any], named: Mapping[str, Any]) -> Schedule:
        """Return the schedule for types or arrays, and options, that are told apart."""
        load("polyker.api.schedule_object")
        from polyker.api.schedule_object import started

        auto = checked_flag("auto", chosen.get("auto", True))
        changes = {name: chosen[name] for name in COMPILE_OPTIONS if name in chosen}
        bound = self._bound(types, named, changes, checked_target(chosen.get("target")))
        return started(self.program, self.identity, bound, auto=auto)

    def _bound(
        self, types: Sequence[Any], named: Mapping[str, Any], changes: Mapping[str, Any], target: str | None
    ) -> CompileKey:
        chosen = options.current.changed(**changes)
        given, sizes = self._types(types, named)
        known = {**self.fixed, **sizes}
        if chosen.specialize == "never":
            given, known = symbolic_types(self.signature, given), self.fixed
        symbols = {name: name for name in self.signature.free_sizes}
        target = target or environment_target() or home_of((*types, *named.values())) or "cpu"
        return CompileKey(given, known, {**symbols, **known}, chosen, target)

    def _types(self, types: Sequence[Any], named: Mapping[str, Any]) -> tuple[tuple[TensorType, ...], dict[str, int]]:
        """Return the inputs' types and the sizes given: of arrays or types by position or name, or as the text declares them."""
        parameters = self.signature.parameters
        rest = [n for n in parameters[len(types) :] if n not in named]
        absent: dict[str, Any] = {n: None for n in rest if n not in self.signature.inputs}
        given_none = len(rest) == len(parameters)
        known = {**self.fixed, **named}
        absent |= {n: t for n in rest if (t := declared_type(self.signature, n, known, symbols=given_none)) is not None}
        values, sizes = self._definition.matched(types, {**named, **absent})
        for n, v in zip(self.signature.inputs, values, strict=True):
            if type(v) is tuple:
                check_shape_alone(self.program, n, v)
        given = tuple(argument_type(v, n) for n, v in zip(self.signature.inputs, values, strict=True))
        return given, {n: size_value(n, v) for n, v in sizes.items() if v is not None}

    def source(self, stage: str = "program", /, *types: Any, **named: Any) -> str:
        """Return a stage as text: "program" as it is, the others of the kernel for these arrays or types, as in `compile`."""
        name = exact_text(stage)
        if name is None:
            from polyker.api.kernel import STAGES

            raise failure(NO_STAGE, stage=printed(stage), target="any target", meant="", stages=", ".join(STAGES))
        if name == "program" and not types and not named:
            return str(self.program)
        return self.compile(*types, **named).source(name)

    def explain(self, /, *types: Any, target: str | None = NONE, **named: Any) -> Explanation:
        """Return what the kernel for arrays or types computes and moves, its floor and the decisions; nothing is run.

        With symbolic sizes amounts are sympy expressions in them. `compile(...).measure(...)` runs it, too. Raises as `compile`.
        """
        chosen: dict[str, Any] = {"target": target} if is_given(target) else {}
        return self.compile(*types, **chosen, **named).explain()

    def check(self, /, *args: Any, **named: Any) -> Comparison:
        """Compare the compiled result with the plain interpreter's; the object returned prints the largest error.

        The interpreter runs one instance of a statement at a time: use small arrays.
        """
        load("polyker.api.stages")
        load("polyker.runtime.compare")
        from polyker.api.stages import interpret
        from polyker.runtime.compare import Comparison, difference

        inputs, given = self._matched(args, named)
        operands, outs, _, _ = operands_of(self.signature, inputs, None)
        chosen, known = options.current, {**self.fixed, **given}
        arrays, _ = self._compiled([o.type for o in operands], given, chosen, None).run(operands, known, outs)
        references = interpret(self.program, operands, known, outs, chosen)
        return Comparison(tuple(map(difference, self.signature.outputs, arrays, references)))

    def __str__(self) -> str:
        load("polyker.api.describe")
        from polyker.api.describe import describe

        return describe(self.program, self.fixed)

    def __repr__(self) -> str:
        return f"<polyker.Operator {escape(' ; '.join(str(self.program).splitlines()))}>"
