"""Who reads a tile from shared memory for the tensor core: one table of the three ways.

consumer   who finds the elements                     sums lie in      reads through
wgmma      the tensor core, by descriptors (Hopper)   registers        the async proxy
tcgen05    the tensor core, by descriptors            tensor memory    the async proxy
ldmatrix   the lanes of a warp, by their addresses    registers        the generic proxy, as every load
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from tilescope.arch import Arch, Basis, architectures_with
from tilescope.data_type import DataType
from tilescope.layout import Major
from tilescope.mma.canonical import READERS, CanonicalLayout
from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.mma.instruction_loops import Tcgen05Loop, WgmmaLoop
from tilescope.mma.tcgen05_kind import tcgen05_for

ConsumerName = Literal["wgmma", "tcgen05", "ldmatrix"]


class Consumer(NamedTuple):
    """One way to read a tile for the tensor core."""

    name: ConsumerName
    feature: str  # what an architecture must have
    loop: type[DescriptorLoop] | None  # its descriptors; None: lanes give the addresses
    instruction: dict[str, str]  # what reads a tile, by majorness: the names in mma.canonical.READERS
    accumulators: Literal["registers", "tensor memory"]

    @property
    def reads_by_descriptor(self) -> bool:
        """Whether the tensor core itself reads shared memory, through the async proxy."""
        return self.loop is not None

    def basis(self, canonical: CanonicalLayout | None) -> Basis:
        """What the layout's address map rests on: lanes read what their addresses say."""
        return canonical.basis if self.reads_by_descriptor and canonical is not None else "measured"

    def mn_major_bits(self) -> tuple[int, ...]:
        """Widths of the elements that it reads from MN-major tiles.

        >>> CONSUMER["wgmma"].mn_major_bits(), CONSUMER["tcgen05"].mn_major_bits()
        ((16,), (8, 16, 32))
        """
        key = (self.instruction["MN"], "MN")
        return tuple(sorted({bits for row in READERS if row[:2] == key for bits in row.element_bits}))

    def reads(self, canonical: CanonicalLayout, major: Major) -> bool:
        """Whether it reads this canonical layout."""
        return any(row.instruction == self.instruction[major] for row in canonical.readers)

    def missing_kind(self, arch: Arch, data_type: DataType) -> tuple[str, str, str] | None:
        """Found, limit and fix where the architecture has the instruction, but not for this type; else None."""
        kind = tcgen05_for(data_type) if self.accumulators == "tensor memory" else None
        if kind is None or arch.has(kind.feature):
            return None
        homes = architectures_with(kind.feature)
        return (
            f"{data_type.name} on {arch.name}", f"kind {kind.name} of tcgen05.mma exists on {', '.join(homes)}",
            f'Use consumer="ldmatrix", or arch="{homes[0]}".',
        )  # fmt: skip

    def is_scaled(self, data_type: DataType) -> bool:
        """Whether the type is multiplied with scale factors.

        >>> [CONSUMER[name].is_scaled(DataType.named("e2m1")) for name in ("tcgen05", "ldmatrix")]
        [True, True]
        """
        if self.accumulators == "tensor memory":
            return tcgen05_for(data_type).is_scaled
        return not self.reads_by_descriptor and data_type.name in ("e2m1", "16u4_align8b")


# The first that an architecture has is its own.
# fmt: off
CONSUMER: dict[Any, Consumer] = {row.name: row for row in (
    #        name        feature     loop         read by                                       sums
    Consumer("wgmma",    "wgmma",    WgmmaLoop,   {"K": "wgmma",    "MN": "wgmma"},           "registers"),
    Consumer("tcgen05",  "tcgen05",  Tcgen05Loop, {"K": "tcgen05",  "MN": "tcgen05"},         "tensor memory"),
    Consumer("ldmatrix", "ldmatrix", None,        {"K": "ldmatrix", "MN": "ldmatrix.trans"},  "registers"),
)}
# fmt: on


def consumers_of(arch: Arch) -> tuple[str, ...]:
    """The consumers of an architecture, its own first.

    >>> [consumers_of(Arch.named(name))[0] for name in ("sm_90", "sm_100", "sm_120")]
    ['wgmma', 'tcgen05', 'ldmatrix']
    """
    return tuple(name for name, row in CONSUMER.items() if arch.has(row.feature))


def missing_consumer(name: str, arch: Arch) -> tuple[str, str, str] | None:
    """Found, limit and fix where an architecture does not have a consumer; else None."""
    here, homes = consumers_of(arch), architectures_with(CONSUMER[name].feature)
    if name in here:
        return None
    return (
        f"consumer = {name} on {arch.name}",
        f"{name} exists on {', '.join(homes)}; {arch.name} has {', '.join(here)}",
        f'Use consumer="{here[0]}", or arch="{homes[0]}".',
    )  # fmt: skip
