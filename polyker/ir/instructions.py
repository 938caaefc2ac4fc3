"""The table of dot-product instructions for narrow integers; docs/how_to/add_an_instruction.md adds a row.

The factors lie side by side in 32 bits, the first lowest. Matrix units of GPUs have no row: no kernel asks for them yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from polyker.ir.dtypes import DType, i8, i16, u8


class DotProduct(Struct, frozen=True):
    """An instruction on vectors of 32-bit elements: the sum of the products of the narrow integers in x and in y, modulo 2^32.

    `op`: what the IR calls it, the same for all instructions of one meaning, which is that of `left` and `right`, the types in x
    and in y. `triple`: how triples of its processors begin; `features`: LLVM's, one of which it needs, none where all processors
    have it. `llvm`: LLVM's intrinsics by the lanes of the result; where it `accumulates`, they take the sum so far first, else
    sums are added by an instruction more. `cost`: instructions that a vector of sums takes, that addition included.
    """

    name: str
    op: str
    left: DType
    right: DType
    triple: str
    features: tuple[str, ...] = ()
    llvm: Mapping[int, str] = field(default_factory=dict)
    accumulates: bool = False
    cost: int = 1

    @property
    def terms(self) -> int:
        """How many products it adds up in 32 bits."""
        return 4 // self.left.itemsize


_VNNI = ("avx512vnni", "avxvnni")
_PAIRS = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
INSTRUCTIONS = (
    DotProduct("vpmaddwd", "dot2", i16, i16, "x86_64", (), _PAIRS, cost=2),
    DotProduct("vpdpwssd", "dot2", i16, i16, "x86_64", _VNNI, _PAIRS),  # LLVM makes it of vpmaddwd and an addition
    DotProduct("vpdpbusd", "dot4", u8, i8, "x86_64", _VNNI,
               {lanes: f"llvm.x86.avx512.vpdpbusd.{32 * lanes}" for lanes in (4, 8, 16)}, accumulates=True),
)  # fmt: skip
# One instruction of each meaning.
MEANINGS = {r.op: r for r in INSTRUCTIONS}
INTRINSICS = frozenset(name for r in INSTRUCTIONS for name in r.llvm.values())


def instructions(triple: str, features: str) -> tuple[DotProduct, ...]:
    """Return the instructions of a processor, the cheapest of each meaning."""
    have = features.split(",")
    found: dict[str, DotProduct] = {}
    for r in INSTRUCTIONS:
        known = triple.startswith(r.triple) and (not r.features or any(f"+{f}" in have for f in r.features))
        if known and (r.op not in found or r.cost < found[r.op].cost):
            found[r.op] = r
    return tuple(found.values())


def most_terms(triple: str, features: str) -> int:
    """Return how many products one instruction of a processor adds up in 32 bits at most, 1 where there is none."""
    return max((r.terms for r in instructions(triple, features)), default=1)
