"""From a compiled kernel to the record that calls of it need."""

from __future__ import annotations

from polyker.codegen.artifact import Artifact
from polyker.codegen.ir.walk import is_parallel
from polyker.codegen.ir.work import kernel_work
from polyker.poly.checks import call_record, tensor_record
from polyker.record.host_code import HostCode
from polyker.record.records import KernelRecord
from polyker.record.work import settled


def record_of(artifact: Artifact) -> KernelRecord:
    """Return the record of a kernel."""
    kernel, typed = artifact.kernel, artifact.typed
    place = {t.name: n for n, t in enumerate(artifact.scratch)}
    pairs = (
        tuple(sorted((min(place[a], place[b]), max(place[a], place[b])) for a, b in found))
        for found in (kernel.disjoint, kernel.in_place)
    )
    disjoint, in_place = pairs
    return KernelRecord(
        call=call_record(typed),
        arguments=artifact.arguments,
        layouts=artifact.layouts,
        alignments=tuple(b.alignment for b in kernel.buffers[: len(artifact.arguments)]),
        integers=artifact.integers,
        products=artifact.products,
        scratch=tuple(map(tensor_record, artifact.scratch)),
        disjoint_in_time=disjoint,
        in_place=in_place,
        lifetimes=kernel.lifetimes,
        guards=tuple(sorted(artifact.guards.items())),
        parallel=is_parallel(kernel),
        work=settled(kernel_work(kernel), bool(typed.sizes)),
        imports=artifact.code.imports,
        host=None if artifact.code.address else _host_code(artifact),
    )


def _host_code(artifact: Artifact) -> HostCode | None:
    """Return what the host does for kernels of a GPU; None where there is none."""
    from polyker.codegen.cuda.build import CudaCode
    from polyker.codegen.cuda.host_code import host_code

    return host_code(artifact.kernel) if isinstance(artifact.code, CudaCode) else None
