"""The C99 header of a library of kernels: what each function takes, returns and needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polyker.export.entry import Subject, scratch_bytes
from polyker.export.names import NOTES, c_type, shown
from polyker.export.pool import pool_header
from polyker.export.tensors import TensorEntry, dlpack_parameters, meanings
from polyker.record.records import TensorRecord

RUNTIME = """\
#ifndef PK_STRUCT_RUNTIME
#define PK_STRUCT_RUNTIME
/* What runs parallel loops. parallel_for calls function(context, i) once for each i in [begin, end), on any threads, and returns
   when all have returned: 0, or what one of them returned that is not 0. user is handed on to it. */
struct polyker_runtime {
  void *reserved[3]; /* null */
  int (*parallel_for)(int (*function)(void *context, int64_t index), void *context, int64_t begin, int64_t end, void *user);
  void *user;
};
#endif
"""


def header(name: str, subjects: Sequence[Subject], texts: Sequence[str], *, pool: bool = False) -> str:
    """Return the header of a library; `texts`: of the operators, in the notation; `pool`: it comes with threads."""
    guard = f"POLYKER_{name.upper()}_H"
    parallel = any(s.threads for s in subjects)
    functions = "\n".join(_function(s, t) for s, t in zip(subjects, texts, strict=True))
    return f"""\
/* Made by polyker. */
#ifndef {guard}
#define {guard}
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

{RUNTIME if parallel else ""}{pool_header() if pool else ""}{functions}
#ifdef __cplusplus
}}
#endif
#endif
"""


def _function(subject: Subject, text: str) -> str:
    name, size = subject.name, "int32_t" if subject.narrow else "int64_t"
    sizes = [f"{size} {label}" for label in subject.sizes.values()]
    parameters = [_parameter(subject, t) for t in subject.given] + sizes
    parameters += ["void *scratch"] * subject.takes_scratch
    parameters += ["const struct polyker_runtime *runtime"] * subject.threads
    by_tensors = meanings(subject) if subject.abi != "c" else {}
    numbers = "".join(f"\n     {n}: {comment(told)}" for n, told in (*subject.meanings.items(), *by_tensors.items()))
    told = "\n".join(f"   {line}" for line in _told(subject))
    return f"""\
/* {comment(text)}

{told}
   Returns 0, or
     one of these numbers, and where it is over 1000 nothing was written:{numbers or " none"} */
int32_t {name}({", ".join(parameters) or "void"});
/* Bytes of scratch memory that a call of {name} needs. */
{size} {name}_scratch({", ".join(sizes) or "void"});
/* What a number that {name} returned means; never null. */
const char *{name}_error(int32_t number);
{_dlpack(subject) if subject.abi == "dlpack" else ""}"""


def _dlpack(subject: Subject) -> str:
    """Return the declaration of the entry by DLPack."""
    entry, types = (
        TensorEntry(subject),
        {
            "ins": "const DLTensor *const *ins",
            "outs": "DLTensor *const *outs",
            "sizes": "const int64_t *sizes",
            "scratch": "void *scratch",
            "runtime": "const struct polyker_runtime *runtime",
        },
    )
    outputs = subject.record.call.outputs
    ins = [subject.tensors[t.name] for t in subject.given if t.name not in outputs]
    outs = [subject.tensors[t.name] for t in subject.given if t.name in outputs]
    free = [subject.sizes[n] for n in entry.free]
    given = ", ".join(types[p] for p in dlpack_parameters(subject))
    return f"""\
/* The same by tensors of DLPack, whose type, shape and place are checked. Include dlpack.h first.
   ins: {", ".join(ins) or "null"}; outs: {", ".join(outs)}; sizes: {", ".join(free) or "null"}. */
#if defined(DLPACK_VERSION) || defined(DLPACK_MAJOR_VERSION)
int32_t {subject.name}_dlpack({given});
#endif
"""


def _parameter(subject: Subject, tensor: TensorRecord) -> str:
    label, kind = subject.tensors[tensor.name], c_type(tensor.dtype)
    if tensor.name in subject.by_value:
        return f"{kind} {label}"
    return f"{'' if tensor.name in subject.record.call.outputs else 'const '}{kind} *{label}"


def _told(subject: Subject) -> Iterator[str]:
    """Yield what each parameter is."""
    yield from (told_tensor(subject, t) for t in subject.given)
    for label in subject.sizes.values():
        yield f"{label}: a size"
    if subject.takes_scratch:
        fixed = scratch_bytes(subject.record)
        many = f"{subject.name}_scratch({', '.join(subject.sizes.values())})" if fixed is None else str(fixed[1])
        yield (
            f"scratch: {many} bytes at a multiple of 64, which the call may overwrite"
            if subject.record.scratch
            else "scratch: null, as it needs none"
        )
    if subject.threads:
        yield "runtime: what runs parallel loops; null: this thread does"
    yield "Arrays that are written overlap no other array."


def told_tensor(subject: Subject, tensor: TensorRecord) -> str:
    """Return what an array is: its type, its order, and whether it is written."""
    call = subject.record.call
    inside = ", ".join(shown(n, subject.sizes) for n in tensor.shape)
    dense = ", dense, row by row" if tensor.shape else ""
    role = "read and written" if tensor.name in call.inputs and tensor.name in call.outputs else "written"
    role = role if tensor.name in call.outputs else "read"
    note = f" ({NOTES[tensor.dtype.name]})" if tensor.dtype.name in NOTES else ""
    return f"{subject.tensors[tensor.name]}: {tensor.dtype.name}[{inside}]{note}{dense}, {role}"


def comment(text: str) -> str:
    """Return a text that ends no comment and begins none."""
    plain = text.strip().encode("ascii", "backslashreplace").decode()
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("\\\n", "\\ \n").replace("??/", "? ?/")
