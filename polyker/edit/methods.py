"""The steps as methods, with what they do shown on loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from polyker.edit.calls import checked_call, loops_named, loops_with, skews_of, threads_of, unknown_step
from polyker.errors.tracebacks import api_class

S = TypeVar("S")  # what a step returns: a schedule


@api_class
class Steps(Generic[S]):
    """The steps of a schedule, or of one of its statements: each returns a new schedule, and changes nothing.

    A loop is called as the printed schedule shows it. Where it has a value, that is said by keyword, `s.tile(i=64)`, or in a
    dict, `s.tile({"i.tile": 8})`, for names that are no words of Python; else loops are named by position, `s.reverse("i")`.
    A step raises ScheduleError where it has no place (no such loop, a size below 1), and LegalityError where it would break
    a dependence: the error shows two instances and the element between them, and the nearest steps that are legal.
    """

    __slots__ = ()

    def _step(self, name: str, *given: Mapping[str, object]) -> S:
        """Return the schedule after steps of one name, one for each of the arguments given."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """Refuse a step that there is not, with the one that is meant."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise unknown_step(name)

    def tile(self, /, *loops: Mapping[str, int], **sizes: int) -> S:
        """Cut loops into tiles; the loops over the points of a tile go inside those over the tiles.

        >>> import polyker as pk
        >>> s = pk.op("B[i,j] = A[j,i]").schedule(pk.f32[64, 64], auto=False)
        >>> print(s)
        for i
          for j
            B: B[i, j] = A[j, i]
        >>> print(s.tile(i=8, j=16))
        for i.tile = i//8
          for j.tile = j//16
            for i.point = i % 8
              for j.point = j % 16
                B: B[i, j] = A[j, i]
        """
        return self._step("tile", {"sizes": loops_with("tile", loops, sizes, "number")})

    def split(self, /, *loops: Mapping[str, int], **sizes: int) -> S:
        """Make two loops of one where it stands, also of a reduction's.

        >>> import polyker as pk
        >>> s = pk.op("B[i,j] = A[j,i]").schedule(pk.f32[64, 64], auto=False)
        >>> print(s.split(i=8))
        for i.tile = i//8
          for i.point = i % 8
            for j
              B: B[i, j] = A[j, i]
        """
        return self._step("split", {"sizes": loops_with("split", loops, sizes, "number")})

    def interchange(self, /, *order: str, **named: Any) -> S:
        """Put loops that are directly inside each other into another order, the outermost first.

        >>> import polyker as pk
        >>> s = pk.op("B[i,j] = A[j,i]").schedule(pk.f32[64, 64], auto=False)
        >>> print(s.interchange("j", "i"))
        for j
          for i
            B: B[i, j] = A[j, i]
        """
        return self._step("interchange", {"order": loops_named("interchange", order, named)})

    def distribute(self, /, *loops: str, **named: Any) -> S:
        """Give each statement inside a loop, or each nest, a loop of its own; the inverse of `fuse`.

        >>> import polyker as pk
        >>> s = pk.op("T[i] = A[i] * 2; O[i] = T[i] + T[0]").schedule(pk.f32[64], auto=False)
        >>> print(s)
        for i
          T: T[i] = A[i]*2.0
        for i
          O: O[i] = T[i] + T[0]
        >>> s = s.fuse("T", "O")
        >>> print(s)
        for i
          T: T[i] = A[i]*2.0
          O: O[i] = T[i] + T[0]
        >>> print(s.distribute("i"))
        for i
          T: T[i] = A[i]*2.0
        for i
          O: O[i] = T[i] + T[0]
        """
        return self._step("distribute", *({"loop": loop} for loop in loops_named("distribute", loops, named)))

    def skew(self, /, *loops: Mapping[str, str] | int, **named: str | int) -> S:
        """Let each iteration of one loop begin another one later: the time of j becomes j + factor * i.

        `s.skew({"i.tile": "t.tile"}, factor=2)` says it of loops whose names are no words of Python.

        >>> import polyker as pk
        >>> text = "f(A: f64[N,N]) -> A:\\n A[i,j] = A[i-1,j] + A[i-1,j+1]  for i in 1:N, j in 0:N-1"
        >>> s = pk.op(text).schedule(pk.f64[64, 64], auto=False)
        >>> print(s.skew(j="i", factor=1).interchange("j", "i"))
        for j' = j + i
          for i
            A: A[i, j] = A[i - 1, j] + A[i - 1, j + 1]
        """
        return self._step("skew", *skews_of(loops, named))

    def shift(self, /, *loops: Mapping[str, int], **offsets: int) -> S:
        """Let a statement run some iterations later in a loop, so that others that share the loop run before it.

        >>> import polyker as pk
        >>> s = pk.op("T[i] = A[i] * 2; O[i] = T[i] + T[i+1] for i in 0:63").schedule(pk.f32[64], auto=False)
        >>> print(s["O"].shift(i=1).fuse("T", "O"))
        for i' = i in T; i + 1 in O
          T: T[i] = A[i]*2.0
          O: O[i] = T[i] + T[i + 1]
        """
        return self._step("shift", {"offsets": loops_with("shift", loops, offsets, "number")})

    def reverse(self, /, *loops: str, **named: Any) -> S:
        """Run a loop backwards.

        >>> import polyker as pk
        >>> s = pk.op("B[i] = A[i]").schedule(pk.f32[64], auto=False)
        >>> print(s.reverse("i"))
        for i' = -i
          B: B[i] = A[i]
        """
        return self._step("reverse", *({"loop": loop} for loop in loops_named("reverse", loops, named)))

    def vectorise(self, /, *loops: Mapping[str, int], **lanes: int) -> S:
        """Run iterations of a loop at the same time, as the lanes of a vector.

        >>> import polyker as pk
        >>> s = pk.op("B[i] = A[i]").schedule(pk.f32[64], auto=False)
        >>> print(s.vectorise(i=8))
        for i.tile = i//8
          vector(8) i.point = i % 8
            B: B[i] = A[i]
        """
        return self._step("vectorise", {"sizes": loops_with("vectorise", loops, lanes, "number")})

    vectorize = vectorise

    def unroll(self, /, *loops: Mapping[str, int], **factors: int) -> S:
        """Repeat the body of a loop; a loop of at most so many constant iterations vanishes.

        >>> import polyker as pk
        >>> s = pk.op("B[i] = A[i]").schedule(pk.f32[64], auto=False)
        >>> print(s.unroll(i=4))
        for i.tile = i//4
          unroll(4) i.point = i % 4
            B: B[i] = A[i]
        """
        return self._step("unroll", {"sizes": loops_with("unroll", loops, factors, "number")})

    def parallel(self, /, *loops: str | Mapping[str, int], **threads: int | None) -> S:
        """Run the iterations of a loop on several threads, as many as the options say where no number is given.

        >>> import polyker as pk
        >>> s = pk.op("B[i,j] = A[j,i]").schedule(pk.f32[64, 64], auto=False)
        >>> print(s.parallel("i", threads=4))
        parallel(4) i
          for j
            B: B[i, j] = A[j, i]
        >>> s.parallel("i", threads=4) == s.parallel(i=4) == s.parallel({"i": 4})
        True
        """
        return self._step("parallel", *threads_of(loops, threads, self._threads()))

    parallelise = parallelize = parallel

    def map(self, /, *loops: Mapping[str, str], **roles: str) -> S:
        """Run the iterations of loops by a GPU's blocks, or by the threads of a block: "block.x", "thread.y", "thread.x(32)".

        The number of a block's threads is that of the loop's iterations, which its time says or which stands in parentheses.

        >>> import polyker as pk
        >>> s = pk.op("B[i] = A[i]").schedule(pk.f32[64], target="cuda-sim", auto=False)
        >>> print(s.tile({"i": 32}).map({"i.tile": "block.x", "i.point": "thread.x"}))
        block.x i.tile = i//32
          thread.x(32) i.point = i % 32
            B: B[i] = A[i]
        """
        given = loops_with("map", loops, roles, "role")
        return self._step("map", *({"loop": loop, "role": role} for loop, role in given.items()))

    def _threads(self) -> int:
        raise NotImplementedError

    @checked_call
    def promote(
        self,
        tensor: str,
        /,
        at: str | None = None,
        memory: str | None = None,
        layout: Sequence[int | tuple[int, int]] | None = None,
        pad: int | None = None,
        swizzle: int | bool | None = None,
    ) -> S:
        """Hold what each iteration of a loop uses of a tensor in a buffer: a temporary itself, of others a copy.

        `at`: the loop; None for the whole program. `memory`: "registers", "stack" (up to 32 KiB) or "scratch" (memory that the
        call brings), by its size if None; "shared": on a GPU, that of a block's threads, which copy together. `layout`: the
        tensor's dimensions, outermost first; `(d, n)` are blocks of n of dimension d, so `((1, 16), 0, 1)` makes panels of 16
        columns.

        Two ways to keep the elements of a column of shared memory in different banks: `pad`, elements of no use after each row of
        the last of these dimensions; `swizzle`, a power of two: so many chunks of 16 bytes of a row, which has a power of two
        elements, change places, chunk c of row r to c xor (r mod swizzle). True takes all that helps, up to 8. Rows shorter than
        128 bytes count as one for each 128 bytes. A swizzle takes no memory, and 16 bytes are still one access; columns that
        are read element by element are better off with `pad=1`.

        >>> import polyker as pk
        >>> s = pk.op("C[i,j] += A[i,k] * B[k,j]").schedule(pk.f32[64, 64], pk.f32[64, 64], auto=False)
        >>> s = s["C"].split(k=16)["C"].interchange("k.tile", "i", "j")
        >>> print(s["C"].promote("A", at="k.tile", layout=(1, 0)))
        for i
          for j
            C.start: C[i, j] = 0
        for k.tile = k//16
          with A.packed: f32[64, 16] in stack, laid out by dimensions 1 % 16, 0 % 64
          for i
            for k
              A.packed: A.packed[i, k] = A[i, k]
          for i
            for j
              for k.point = k % 16
                C: C[i, j] += A.packed[i, k]*B[k, j]

        >>> s = pk.op("B[j,i] = A[i,j]").schedule(pk.c128[64, 64], target="cuda-sim", auto=False).tile(j=16, i=16)
        >>> s = s.map({"j.tile": "block.y", "i.tile": "block.x", "j.point": "thread.y", "i.point": "thread.x"})
        >>> print(s)
        block.y j.tile = j//16
          block.x i.tile = i//16
            thread.y(16) j.point = j % 16
              thread.x(16) i.point = i % 16
                B: B[j, i] = A[i, j]
        >>> print(s.promote("A", at="i.tile", memory="shared", swizzle=True))
        block.y j.tile = j//16
          block.x i.tile = i//16
            with A.packed: c128[16, 16] in shared, swizzled by 8
            thread.y(16) i.thread = i % 16
              thread.x(16) j.thread = j % 16
                for i = i//16
                  for j = j//16
                    A.packed: A.packed[i, j] = A[i, j]
            barrier
            thread.y(16) j.point = j % 16
              thread.x(16) i.point = i % 16
                B: B[j, i] = A.packed[i, j]
        """
        given = {"tensor": tensor, "at": at, "memory": memory, "layout": layout, "pad": pad, "swizzle": swizzle}
        return self._step("promote", given)
