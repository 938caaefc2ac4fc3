"""PK6xx: targets, code generation and machine code."""

from __future__ import annotations

from polyker.errors.base import ArgumentError, BackendUnavailable, CompileError, InternalError, register

UNKNOWN_TARGET = register(
    "PK601", CompileError, "unknown target {name!r}", "{meant}known targets: cpu (this machine), {known}, and more"
)
UNKNOWN_CPU = register(
    "PK603",
    CompileError,
    "unknown processor {cpu!r} with features {features!r} for {triple}",
    "known processors: {known}",
)
MACHINE_FILE = register(
    "PK612",
    CompileError,
    "{path}, which POLYKER_MACHINE names, says nothing of a processor: {why}",
    "see the machine files in the documentation, or leave the variable empty",
)
NO_CUDA = register(
    "PK602",
    BackendUnavailable,
    "target 'cuda' is this machine's GPU, and there is no description of it: {reason}",
    "name one: {known}",
)
NO_COMPILER = register(
    "PK604",
    BackendUnavailable,
    "the simulator of CUDA kernels needs a C++ compiler: {reason}",
    "install g++, or name a compiler by the environment variable CXX",
)
COMPILER_FAILED = register("PK605", InternalError, "{compiler} does not compile the generated text: {reason}")
NO_NVCC = register(
    "PK607",
    BackendUnavailable,
    "PTX and machine code of CUDA kernels need nvcc or NVRTC: {reason}",
    "install the CUDA toolkit or the package nvidia-cuda-nvrtc; the CUDA text needs nothing",
)
CUDA_FAILED = register("PK608", InternalError, "CUDA reports in {function}: {reason}")
ON_HOST = register(
    "PK609",
    ArgumentError,
    "`{name}` lies in the memory of the host, other arrays of the call on a device",
    "copy it there",
)
OVERLAPS = register("PK610", ArgumentError, "`out` for `{name}` overlaps `{other}` in the memory of the device")
LOST = register(
    "PK611",
    CompileError,
    "the loops of this schedule would not run every instance: isl's generator of loops fails on it",
    "leave out the last step, such as a skew of a loop by another one that was cut from the same index",
)
TOO_MUCH_SHARED = register(
    "PK626",
    CompileError,
    "{kernel} takes {bytes} bytes of shared memory, and a block has at most {limit} on {target}",
    "hold smaller tiles in shared memory, or fewer",
)
LAUNCH_FAILED = register(
    "PK620", InternalError, "CUDA does not launch {kernel} of grid {grid} and blocks of {block} threads: {reason}"
)
BAD_STREAM = register(
    "PK621",
    ArgumentError,
    "`stream` is a {type}",
    "give a stream's handle as an integer, or a stream of torch, CuPy, Numba, PyCUDA or cuda.core",
)
NO_RESULT_ARRAY = register(
    "PK622", ArgumentError, "no new arrays of {library} can be made on a device", "give arrays for the results by `out`"
)
OTHER_DEVICE = register(
    "PK623",
    ArgumentError,
    "`{name}` lies on CUDA device {device}, other arrays of the call on device {other}",
    "copy it there",
)
NO_RESOURCES = register(
    "PK624",
    ArgumentError,
    "a kernel for {target} has no registers and shared memory to tell of",
    "compile it for a GPU, such as cuda:sm_90a",
)
NO_GPU_ARRAY = register(
    "PK625",
    ArgumentError,
    "`stream` is for calls with arrays on a GPU, and none of these lies there",
    "compile a kernel for `cuda`, which copies arrays of the host over and back",
)
DEVICE_LOST = register(
    "PK627",
    InternalError,
    "CUDA device {device} failed, as CUDA reports in {function}: {reason}; {whose}",
    "no call of this process can use the device any more: start a new one; compute-sanitizer finds the place",
)
OTHER_ARCH = register(
    "PK628",
    BackendUnavailable,
    "the machine code of {about} is for another GPU than CUDA device {device}, which is {arch}",
    "compile it for the device that its arrays lie on: target='cuda:0', 'cuda:1' and so on, or 'cuda' for device 0",
)
NO_DEVICE = register(
    "PK629", BackendUnavailable, "there is no CUDA device {device}: this machine has {count}, counted from 0"
)
