"""Who reads a tile from shared memory for the tensor core: one table of the three ways.

consumer   who finds the elements                     sums lie in      reads through
wgmma      the tensor core, by descriptors (Hopper)   registers        the async proxy
tcgen05    the tensor core, by descriptors            tensor memory    the async proxy
ldmatrix   the lanes of a warp, by their addresses    registers        the generic proxy, as every load

The descriptors of a K loop over a tile are those of the instruction: how much of m, n and k one takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from tilescope.arch import Arch, Basis
from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.errors import raise_all
from tilescope.layout import AtomOrder, Layout, Major
from tilescope.mma.canonical import CanonicalLayout, DescriptorOffsets, canonical_layout, readable_bits
from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.mma.mma_instruction import K_STEP_BYTES, WGMMA_M, wgmma_for
from tilescope.mma.operand_descriptor import OperandDescriptor, Tcgen05Descriptor, WgmmaDescriptor
from tilescope.mma.readable_tile import SMEM_OPERANDS, TCGEN05_TILE, WIDE_STEP_BYTES, Extents, SmemOperand
from tilescope.mma.tcgen05_kind import MMA_GROUP, tcgen05_for
from tilescope.reading import is_one_of, known_name, pair, plain_int
from tilescope.sentence import format_value
from tilescope.swizzle import Swizzle, SwizzleName

ConsumerName = Literal["wgmma", "tcgen05", "ldmatrix"]
# PTX ISA, "Instruction descriptor" of tcgen05: 1 for an MN-major operand. instruction_descriptor.py has all its fields.
TRANSPOSE_BITS: dict[SmemOperand, int] = {"A": 15, "B": 16}
PAIR_TILE = TCGEN05_TILE.worded(
    found="{extent_name} = {extent} of a pair",
    limit="a tile of a pair is that of both blocks, and cta_group::2 takes {extent_name} of {data_type} "
    "in multiples of {multiple}",
)
BLOCKS_OF_A_GROUP = MMA_GROUP.worded(
    argument="cta_group", found="{asked}", limit="one block multiplies, or a pair", fix="Use 1 or 2."
)


@dataclass(frozen=True, slots=True)
class WgmmaLoop(DescriptorLoop):
    """The descriptors with which wgmma reads an operand tile, indexed [mn_block][k_step].

    >>> loop = wgmma_descriptors((128, 64), "bf16", swizzle="128B")
    >>> len(loop), len(loop[0]), loop.instruction
    (2, 4, 'wgmma.m64nNk16')
    >>> [descriptor.start_address for descriptor in loop[1]]
    [8192, 8224, 8256, 8288]
    >>> wgmma_descriptors((64, 128), "bf16", swizzle="128B").advance_bytes
    (32, 32, 32, 8096, 32, 32, 32)
    >>> for sentence in wgmma_descriptors((64, 32), "bf16", swizzle="32B").explanation:
    ...     print(sentence)
    leading = 16 bytes (ignored: inside a swizzled atom k is contiguous, and one instruction stays inside)
    stride = 256 bytes from the atom at (mn 0, k 0) to the next 8 mn, at (mn 8, k 0)
    imm-trans-a = 0 (tnspA: Major::K)
    k step = +2048 bytes (+128 encoded), to the next atom
    """

    described: ClassVar[type[OperandDescriptor]] = WgmmaDescriptor

    @classmethod
    def extents(cls, data_type: DataType) -> Extents:
        """64 rows of A, the n of the type, 32 bytes of k."""
        row = wgmma_for(data_type)
        return Extents((WGMMA_M,), row.n, row.k)

    @property
    def instruction(self) -> str:
        """The instruction that reads these descriptors; the other operand's extent as a letter."""
        return f"wgmma.m{WGMMA_M}n{self.block_mn if self.operand == 'B' else 'N'}k{self.k_per_step}"

    @property
    def transpose_fact(self) -> tuple[str, str]:
        """The immediate for the majorness; only 16-bit types have one.

        >>> wgmma_descriptors((64, 128), "e4m3").transpose_fact
        ('imm-trans-a', 'none: e4m3 is read K-major alone')
        """
        immediate = f"imm-trans-{self.operand.lower()}"
        if self.data_type.smem_bits not in readable_bits("wgmma", "MN"):
            return immediate, f"none: {self.data_type.name} is read K-major alone"
        major = self.canonical.major
        return immediate, f"{int(major == 'MN')} (tnsp{self.operand}: Major::{major})"


@dataclass(frozen=True, slots=True)
class Tcgen05Loop(DescriptorLoop):
    """The descriptors with which tcgen05 reads an operand tile, indexed [mn_block][k_step].

    >>> loop = tcgen05_descriptors((256, 64), "bf16", swizzle="128B")
    >>> len(loop), len(loop[0]), loop.instruction
    (2, 4, 'tcgen05.mma.kind::f16, m128 k16')
    >>> [hex(descriptor.encode()) for descriptor in loop[1]][:2]
    ['0x4000404000010400', '0x4000404000010402']
    """

    described: ClassVar[type[OperandDescriptor]] = Tcgen05Descriptor
    form: ClassVar[str] = "cta_group::1"  # of the instruction: its row in Tcgen05Kind.shapes
    blocks: ClassVar[int] = 1  # that share m and n of the instruction

    k_step_bytes: int = K_STEP_BYTES

    @classmethod
    def extents(cls, data_type: DataType) -> Extents:
        """What one block holds of the instruction's m and n, and 32 bytes of k."""
        kind = tcgen05_for(data_type)
        shapes = next((row for row in kind.shapes() if row.form == cls.form), kind.shapes()[0])
        own_m = tuple(m // cls.blocks for m in shapes.m)
        own_n = tuple(n // cls.blocks for n in shapes.n)
        return Extents(own_m, own_n, kind.k)

    def _descriptor_at(self, mn: int, k: int, offsets: DescriptorOffsets) -> OperandDescriptor:
        if self.k_step_bytes != WIDE_STEP_BYTES:
            return DescriptorLoop._descriptor_at(self, mn, k, offsets)
        atom_k = self.canonical.atom[1]
        last_atom = self.layout.shape[1] // atom_k - 1
        following = min(k // atom_k + 1, last_atom)  # where the step goes on; the last one needs none
        return Tcgen05Descriptor(
            self.layout.logical(mn, k),
            leading_bytes=self.layout.logical(mn, following * atom_k),
            stride_bytes=offsets.stride_bytes,
            swizzle=self.layout.swizzle,
            leading_is_address=True,
        )

    @property
    def instruction(self) -> str:
        """The instruction that reads these descriptors."""
        form = "" if self.form == Tcgen05Loop.form else f".{self.form}"
        extent = f"{'m' if self.operand == 'A' else 'n'}{self.block_mn * self.blocks}"
        return f"tcgen05.mma{form}.kind::{tcgen05_for(self.data_type).name}, {extent} k{self.k_per_step}"

    @property
    def transpose_fact(self) -> tuple[str, str]:
        """The bit of the instruction descriptor for the majorness."""
        is_mn = self.canonical.major == "MN"
        bit = TRANSPOSE_BITS[self.operand]
        return f"transpose {self.operand}", f"{int(is_mn)} (bit {bit} of the instruction descriptor)"


@dataclass(frozen=True, slots=True)
class Tcgen05PairLoop(Tcgen05Loop):
    """The descriptors of one block of a pair (cta_group::2): it holds half of A's rows, and half of B's columns.

    >>> loop = tcgen05_descriptors((256, 64), "bf16", swizzle="128B", cta_group=2)
    >>> len(loop), loop.layout.shape, loop.instruction
    (1, (128, 64), 'tcgen05.mma.cta_group::2.kind::f16, m256 k16')
    """

    form: ClassVar[str] = "cta_group::2"
    blocks: ClassVar[int] = 2
    _extends_a_kind: ClassVar[bool] = True  # for one block, the loop is a value by itself


@dataclass(frozen=True, slots=True)
class Tcgen05WsLoop(Tcgen05Loop):
    """The descriptors of the .ws instruction, which also has m = 32."""

    form: ClassVar[str] = "cta_group::1.ws"
    _extends_a_kind: ClassVar[bool] = True


def _tile_layout(
    kind: type[DescriptorLoop],
    tile: tuple[int, int],
    canonical: CanonicalLayout,
    data_type: DataType,
    *,
    atom_order: AtomOrder,
    operand: SmemOperand,
    smem_address: int,
) -> Layout:
    """The tile in atoms of a canonical layout; refused where the instruction does not read it."""
    shape = pair("tile", tile, 1)
    raise_all(kind.unreadable(shape, data_type, operand, canonical))  # before the description of atoms in the shape
    return canonical.tile(shape, atom_order=atom_order, start=smem_address)


def _half_of_pair(tile: tuple[int, int], data_type: DataType, operand: SmemOperand) -> tuple[int, int]:
    """What one block holds of a pair's tile; refused where a pair has no instructions for all of it."""
    mn, k = pair("tile", tile, 1)
    is_a = known_name("operand", operand, SMEM_OPERANDS) == "A"
    extents = Tcgen05PairLoop.extents(data_type)
    multiple = 2 * (extents.m[0] if is_a else extents.n[0])
    if mn % multiple:
        extent_name = "m" if is_a else "n"
        value: dict[str, Any] = {extent_name: mn}
        raise PAIR_TILE.error(
            extent_name=extent_name,
            extent=mn,
            data_type=data_type.name,
            multiple=multiple,
            whole=rounded_up(mn, multiple),
            **value,
        )
    return mn // 2, k


def wgmma_descriptors(
    tile: tuple[int, int] | Layout,
    data_type: Any,
    *,
    swizzle: SwizzleName | Swizzle = "128B",
    major: Major = "K",
    atom_order: AtomOrder = "column",
    operand: SmemOperand = "A",
    smem_address: int = 0,
) -> WgmmaLoop:
    """The descriptors with which wgmma reads a tile of (mn, k) elements, for every block of mn and K step.

    A is read in blocks of 64 rows, B in the largest n that the instruction has and that divides the tile. A `Layout` in
    place of the tile has its own swizzle, majorness, order and address.

    >>> loop = wgmma_descriptors((64, 64), "bf16", swizzle="128B", smem_address=0x400)
    >>> [hex(descriptor.encode()) for descriptor in loop[0]][:2]
    ['0x4000004000010040', '0x4000004000010042']
    >>> loop = wgmma_descriptors((128, 32), "bf16", major="MN", swizzle="64B", operand="B")
    >>> loop.leading_bytes, loop.stride_bytes, loop.advance_bytes
    (2048, 512, (1024,))
    """
    row = DataType.named(data_type)
    if not isinstance(tile, Layout):
        tile = _tile_layout(
            WgmmaLoop,
            tile,
            canonical_layout(major, swizzle, row),
            row,
            atom_order=atom_order,
            operand=operand,
            smem_address=smem_address,
        )
    return WgmmaLoop(tile, operand, row)


def tcgen05_descriptors(
    tile: tuple[int, int] | Layout,
    data_type: Any,
    *,
    swizzle: SwizzleName | Swizzle = "128B",
    major: Major = "K",
    atom_order: AtomOrder = "column",
    operand: SmemOperand = "A",
    smem_address: int = 0,
    k_step_bytes: int = K_STEP_BYTES,
    cta_group: int = 1,
) -> Tcgen05Loop:
    """The descriptors with which tcgen05 reads a tile of (mn, k) elements, for every block of mn and K step.

    A is read in blocks of 128 rows, or 64; B in the largest n that one instruction has and that divides the tile. With
    cta_group=2 the tile is the pair's, as m and n of the instruction are: the descriptors are those of one block, which holds
    half of A's rows or of B's columns. `k_step_bytes` is 48 for the k = 96 instructions of sm_103a. A `Layout` in place of the
    tile has its own swizzle, majorness, order and address: it is the shared memory of one block.

    >>> loop = tcgen05_descriptors((128, 8), "tf32", major="MN", swizzle="128B_ATOM_32B", smem_address=0x400)
    >>> loop.leading_bytes, loop.stride_bytes, hex(loop[0][0].encode())
    (1024, 512, '0x2000402000400040')
    >>> wide = tcgen05_descriptors((128, 768), "e2m1", swizzle="128B", k_step_bytes=48)
    >>> [(hex(step.start_address), hex(step.leading_bytes)) for step in wide[0]][1:4]
    [('0x30', '0x4000'), ('0x60', '0x4000'), ('0x4010', '0x8000')]
    """
    if not is_one_of(cta_group, (1, 2)):
        raise BLOCKS_OF_A_GROUP.error(asked=format_value(cta_group), cta_group=plain_int(cta_group))
    kind = Tcgen05PairLoop if cta_group == 2 else Tcgen05Loop
    row = DataType.named(data_type)
    if not isinstance(tile, Layout):
        of_one_block = _half_of_pair(tile, row, operand) if cta_group == 2 else tile
        tile = _tile_layout(
            kind,
            of_one_block,
            canonical_layout(major, swizzle, row),
            row,
            atom_order=atom_order,
            operand=operand,
            smem_address=smem_address,
        )
    return kind(tile, operand, row, k_step_bytes=k_step_bytes)


class Consumer(NamedTuple):
    """One way to read a tile for the tensor core."""

    name: ConsumerName
    feature: str  # what an architecture must have
    loop: type[DescriptorLoop] | None  # its descriptors; None: lanes give the addresses
    descriptors: Callable[..., DescriptorLoop] | None  # the public function that lists them
    instruction: dict[str, str]  # what reads a tile, by majorness: the names in mma.canonical.READERS
    accumulators: Literal["registers", "tensor memory"]

    @property
    def reads_by_descriptor(self) -> bool:
        """Whether the tensor core itself reads shared memory, through the async proxy."""
        return self.loop is not None

    def basis(self, canonical: CanonicalLayout | None) -> Basis:
        """The basis of the layout's address map: lanes read the addresses that they compute."""
        return canonical.basis if self.reads_by_descriptor and canonical is not None else "measured"

    def mn_major_bits(self) -> tuple[int, ...]:
        """Widths of the elements that it reads from MN-major tiles.

        >>> CONSUMER["wgmma"].mn_major_bits(), CONSUMER["tcgen05"].mn_major_bits()
        ((16,), (8, 16, 32))
        """
        return readable_bits(self.instruction["MN"], "MN")

    def reads(self, canonical: CanonicalLayout, major: Major) -> bool:
        """Whether it reads this canonical layout."""
        return any(row.instruction == self.instruction[major] for row in canonical.readers)

    def reads_packed(self, data_type: DataType) -> bool:
        """Whether it reads the type two elements to a byte, for products with scale factors.

        >>> [CONSUMER[name].reads_packed(DataType.named("e2m1")) for name in ("tcgen05", "ldmatrix", "wgmma")]
        [True, True, False]
        """
        return self.name != "wgmma" and data_type.name in ("e2m1", "16u4_align8b")


# The first that an architecture has is its own.
CONSUMER: dict[Any, Consumer] = {
    "wgmma": Consumer(
        name="wgmma",
        feature="wgmma",
        loop=WgmmaLoop,
        descriptors=wgmma_descriptors,
        instruction={"K": "wgmma", "MN": "wgmma"},
        accumulators="registers",
    ),
    "tcgen05": Consumer(
        name="tcgen05",
        feature="tcgen05",
        loop=Tcgen05Loop,
        descriptors=tcgen05_descriptors,
        instruction={"K": "tcgen05", "MN": "tcgen05"},
        accumulators="tensor memory",
    ),
    "ldmatrix": Consumer(
        name="ldmatrix",
        feature="ldmatrix",
        loop=None,
        descriptors=None,
        instruction={"K": "ldmatrix", "MN": "ldmatrix.trans"},
        accumulators="registers",
    ),
}


def consumers_of(arch: Arch) -> tuple[str, ...]:
    """The consumers of an architecture, its own first.

    >>> [consumers_of(Arch.named(name))[0] for name in ("sm_90", "sm_100", "sm_120")]
    ['wgmma', 'tcgen05', 'ldmatrix']
    """
    return tuple(name for name, row in CONSUMER.items() if arch.has(row.feature))
