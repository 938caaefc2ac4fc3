"""Link machine code in a process that leaves it only holes of a few pages, each gigabytes from the next room."""

from __future__ import annotations

import ctypes
import mmap

import polyker as pk

PAGE = mmap.PAGESIZE
RESERVED = 0x4022  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
APART = 6 << 30
FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def reserve(size: int) -> int:
    """Return the address of `size` bytes of address space that nothing can use."""
    address = _libc.mmap(None, size, 0, RESERVED, -1, 0)
    assert address != FAILED, ctypes.get_errno()
    return int(address)


def main(count: int = 30) -> None:
    """Build kernels whose constants do not fit beside their code, then print how many."""
    pk.op("O[i] = tanh(X[i])").compile(pk.f64[16])  # imports and maps what stays
    holes = reserve(8 * count * PAGE)
    below = reserve(APART)
    for pages in (64, 16, 4, 2, 1):
        while reserve(pages * PAGE) > below:
            pass
    kernels = []
    for n in range(count):
        _libc.munmap(holes + 8 * n * PAGE, PAGE * (1 + n % 3))
        kernels.append(pk.op(f"O[i] = tanh(X[i] + {n})").compile(pk.f64[16]))
    print(len(kernels))


if __name__ == "__main__":
    main()
