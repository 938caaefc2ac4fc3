"""An operator bound to types, sizes, options and a target: its kernels, from the disk cache or compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from polyker.api.definition import Definition
from polyker.api.targets import load_compiler, target_named, why_elsewhere
from polyker.errors.base import CompileTimeout, PolykerError
from polyker.ir.dtypes import TensorType
from polyker.ir.layout import Layout
from polyker.options import Options
from polyker.process.jobs import load
from polyker.record.codec import decode, encode
from polyker.record.records import CallRecord, KernelRecord
from polyker.record.sizes import MAX_EXACT_SIZE
from polyker.runtime.compiled import Compiled
from polyker.runtime.executable import Executable
from polyker.runtime.size_class import Likely, least
from polyker.store import disk
from polyker.store.entries import CacheEntry
from polyker.store.keys import digest, versions
from polyker.structs import replace

if TYPE_CHECKING:  # the compiler's own data
    from polyker.codegen.artifact import Artifact
    from polyker.codegen.cuda.build import CudaCode
    from polyker.codegen.llvm.jit.binding import LinkedCode
    from polyker.ir.typed import TypedProgram
    from polyker.machine.model import Target
    from polyker.schedule.tree.nodes import ScheduleTree

GivenSchedule: TypeAlias = (
    "tuple[str, TypedProgram, ScheduleTree]"  # a schedule: a text that tells it from others, its program, its tree
)


class KeptKernel(Struct, frozen=True):
    """A kernel as it is kept: what it is for, its record as JSON, its object file, and the digest of all that it depends on."""

    layouts: tuple[Layout, ...]
    likely: Likely
    record: str
    image: bytes
    key: str


class Binding:
    """What an operator is compiled for: `types` of its inputs, `sizes` (symbols by their names), `options`, `target`.

    `given`: a schedule to compile it by, instead of the automatic one.
    """

    def __init__(
        self,
        definition: Definition,
        types: tuple[TensorType, ...],
        sizes: Mapping[str, int | str],
        options: Options,
        target: str | Target,
        given: GivenSchedule | None = None,
    ) -> None:
        self.definition, self.types, self.sizes, self.given = definition, types, sizes, given
        self.options, self.target = options, target
        sized = tuple(sorted(sizes.items()))
        chosen = None if given is None else given[0]
        self.key = (definition.identity, types, sized, target, options.code_key, chosen)
        # Not `cached_property`, whose lock a child of a fork could find held by a thread that is not there.
        self._typed: TypedProgram | None = None
        self._kept_key: str | None = None

    def compiled(self) -> Compiled:
        """Return the program with its kernels, none of which is made yet."""
        load("polyker.codegen.llvm.jit.own")
        classes = self.options.specialize != "never" and self.given is None
        return Compiled(
            self._call_record(), self._executable, lambda: self.typed, self._why_elsewhere(), classes=classes
        )

    @property
    def typed(self) -> TypedProgram:
        """The typed program; raises ShapeError, DTypeError, CompileError."""
        if self._typed is None:
            self._typed = self._bound(self._named, self.sizes)
        return self._typed

    @property
    def _named(self) -> dict[str, TensorType]:
        return dict(zip(self.definition.signature.inputs, self.types, strict=True))

    @property
    def _base_key(self) -> str | None:
        """The digest of all that the kernels depend on; None where they are not kept, as those of the simulator are not."""
        if self._kept_key is not None or self._target_name == "cuda-sim":
            return self._kept_key
        from polyker.codegen.llvm.jit.own import host_key

        place: object = self.target
        if place == "cpu":
            place = host_key()
        elif self._target_name.startswith("cuda"):
            place = target_named(self.target)  # of a device with a number, what it is
        types = tuple((t.dtype.name, t.shape, t.weak) for t in self.types)
        self._kept_key = digest(self.key[0], types, *self.key[2:], place, versions())
        return self._kept_key

    @property
    def _disk_key(self) -> str | None:
        """The same, None where the disk cache is left alone."""
        return None if disk.is_bypassed() else self._base_key

    @property
    def _target_name(self) -> str:
        return self.target if isinstance(self.target, str) else self.target.name

    def _call_record(self) -> CallRecord:
        key = self._disk_key
        entry = None if key is None else disk.read("call", key)
        if entry is not None:
            try:
                return decode(CallRecord, entry.record, self.definition.text)
            except ValueError:
                pass
        load_compiler()
        from polyker.poly.checks import call_record

        made = call_record(self.typed)
        if key is not None:
            disk.write(CacheEntry("call", key, self._about, encode(made, self.definition.text)))
        return made

    @property
    def _about(self) -> str:
        """What the cache's list shows of it."""
        text = " ".join((self.definition.text or str(self.definition.program)).split())[:80]
        return f"{text}  {', '.join(map(str, self.types))}  {self._target_name}"

    def _why_elsewhere(self) -> Exception | None:
        """Return the error of calling its kernels here, or None if this machine runs them."""
        from polyker.codegen.llvm.jit.own import is_supported

        if self.target == "cpu" and is_supported():
            return None
        return why_elsewhere(target_named(self.target))

    def _executable(self, layouts: tuple[Layout, ...], likely: Likely) -> Executable:
        key = "" if self._base_key is None else digest("kernel", self._base_key, layouts, likely)
        if self._disk_key is None:
            return self._made(layouts, likely, key)
        found = self._read(key, layouts, likely)
        if found is not None:
            return found
        with disk.making(key, min(self.options.timeout, 120.0) / 2):
            found = self._read(key, layouts, likely)  # which another process may have made meanwhile
            if found is None:
                found = self._made(layouts, likely, key)
                record = encode(found.record, self.definition.text)
                disk.write(CacheEntry("kernel", key, self._about, record, found.image))
            return found

    def adopt(self, compiled: Compiled, kept: Iterable[KeptKernel]) -> None:
        """Add kernels that were pickled to those of the binding, where they are of this compiler and for this machine."""
        for k in kept:
            place = k.layouts, k.likely
            known = self._base_key is not None and k.key == digest("kernel", self._base_key, *place)
            if known and place not in compiled.executables:
                compiled.executables[place] = self._loaded(k)

    def _read(self, key: str, layouts: tuple[Layout, ...], likely: Likely) -> Executable | None:
        """Return the kernel of a key from the disk, None where there is none."""
        entry = disk.read("kernel", key)
        if entry is None:
            return None
        try:
            return self._loaded(KeptKernel(layouts, likely, entry.record, entry.image, key))
        except ValueError:
            return None

    def _loaded(self, kept: KeptKernel) -> Executable:
        """Return a kept kernel, in memory; raises ValueError where its record is none."""
        from polyker.codegen.llvm.jit.own import linked

        record = decode(KernelRecord, kept.record, self.definition.text)
        code: LinkedCode | CudaCode | None = None
        if record.host is not None:
            load("polyker.codegen.cuda.build")
            from polyker.codegen.cuda.build import CudaCode

            code = CudaCode(kept.image.decode(), target_named(self.target))
        elif self._runs_here:
            code = linked(kept.image, "kernel", record.imports)
        address = 0 if code is None else code.address
        return Executable(
            record, address, code, lambda: self._artifact(kept.layouts, kept.likely), kept.image, kept.key
        )

    @property
    def _runs_here(self) -> bool:
        from polyker.codegen.llvm.jit.own import is_supported

        if self.target == "cpu":
            return is_supported()
        load_compiler()
        from polyker.codegen.llvm.jit.build import is_host

        return is_host(target_named(self.target))

    def _made(self, layouts: tuple[Layout, ...], likely: Likely, key: str) -> Executable:
        load_compiler()
        from polyker.pipeline.record import record_of

        artifact = self._artifact(layouts, likely)
        code = artifact.code
        return Executable(record_of(artifact), code.address, code, artifact, getattr(code, "image", b""), key)

    def _artifact(self, layouts: tuple[Layout, ...], likely: Likely) -> Artifact:
        """Return the compiled kernel for one layout an argument, and for a class of sizes."""
        load_compiler()
        load("polyker.api.stages")
        from polyker.api.stages import guarded, with_deadline
        from polyker.pipeline.compile import compile_typed

        target, typed = target_named(self.target), self._of_class(likely)
        limited = with_deadline(self.options, self._statements)
        ordered = None if self.given is None else self.given[1:]
        work: Callable[[], Artifact] = lambda: compile_typed(typed, layouts, target, limited, ordered)  # noqa: E731
        return guarded(self.definition.program, "compile", limited, work)

    def _bound(self, types: Mapping[str, TensorType], sizes: Mapping[str, int | str]) -> TypedProgram:
        load_compiler()
        load("polyker.api.stages")
        from polyker.api.stages import bound_program, with_deadline

        return bound_program(self.definition.program, types, sizes, with_deadline(self.options, self._statements))

    @property
    def _statements(self) -> int:
        return sum(1 for _ in self.definition.program.statements())

    def _of_class(self, likely: Likely) -> TypedProgram:
        """Return the program for a class of sizes: those that are the same in all calls of it are constants, others expected so.

        Its context holds what is true of all sizes of the class.

        A constant takes no code for what it leaves over of a tile, which is most of a small kernel's.
        """
        from polyker.poly.isl import narrowed

        typed, labels = self.typed, dict(self.typed.sizes)
        values = {labels[name]: value for name, value in likely}
        known = {label: value for label, value in values.items() if value <= MAX_EXACT_SIZE}
        if known:
            fixed = {
                name: replace(t, shape=tuple(known.get(n, n) if isinstance(n, str) else n for n in t.shape))
                for name, t in self._named.items()
            }
            sizes = {name: known.get(v, v) if isinstance(v, str) else v for name, v in self.sizes.items()}
            try:
                typed = self._bound(fixed, sizes)
            except CompileTimeout:
                raise
            except PolykerError:
                pass  # where some sizes are symbols others had to be, too
        kept = [(name, values[label]) for name, label in typed.sizes if label in values]
        bounds = [f"{least(value)} <= {name}" for name, value in kept if value > MAX_EXACT_SIZE]
        likely = tuple((name, max(1, value)) for name, value in kept)
        return replace(typed, context=narrowed(typed.context, bounds), likely=likely)
