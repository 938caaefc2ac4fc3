"""A kernel that can be called: its record and its machine code, with what explains it made on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyker.record.records import KernelRecord

if TYPE_CHECKING:  # the compiler's own data
    from polyker.codegen.artifact import Artifact


class Executable:
    """A kernel's record and the address of its code, 0 where this processor does not run it.

    `holder` keeps the code in memory; `made` returns the whole artifact, compiled once more where the code came from the disk.
    `image`: its object file, or a GPU's text; `key`: of all that it depends on, the name of its entry in the disk cache, empty
    where it is kept nowhere.
    """

    __slots__ = ("_artifact", "_made", "address", "from_disk", "holder", "image", "key", "record")

    def __init__(
        self,
        record: KernelRecord,
        address: int,
        holder: object,
        made: Callable[[], Artifact] | Artifact,
        image: bytes = b"",
        key: str = "",
    ) -> None:
        self.record, self.address, self.holder, self.image, self.key = record, address, holder, image, key
        self.from_disk = callable(made)
        self._artifact: Any = None if callable(made) else made
        self._made = made

    @property
    def origin(self) -> str:
        """Where the code came from, in a few words."""
        return (
            f"compiled by another process, cache entry {self.key[:12]}"
            if self.from_disk
            else "compiled by this process"
        )

    def artifact(self) -> Artifact:
        """Return the artifact: the program, its schedule, the kernel, and each stage as text."""
        if self._artifact is None and callable(self._made):
            self._artifact = self._made()
        found: Artifact = self._artifact
        return found
