"""The shared-memory layouts that tensor cores read: atoms of 8 rows, and tiles made of them.

An operand is a matrix of mn x k elements: m rows of A or n columns of B, and the reduction k. It is
*K-major* when k is contiguous, *MN-major* when mn is. Drawn with the contiguous dimension left to
right, an atom has 8 rows, as wide as the swizzle's span, and is stored whole, one row after another:

                        K-major                          MN-major
                    k →  span bytes                  mn →  span bytes
              mn 0  ├──────┬──────┬───┤         k 0  ├──────┬──────┬───┤
              mn 1  │ 16 B │ 16 B │ … │         k 1  │ 16 B │ 16 B │ … │
                …   │  core matrix    │           …  │                 │
              mn 7  ├──────┴──────┴───┤         k 7  ├──────┴──────┴───┤

    mode                    span    atom bytes      bf16 atom K-major    MN-major (mn x k)
    none (core matrices)      16       128            8 x  8               8 x 8
    32B                       32       256            8 x 16              16 x 8
    64B                       64       512            8 x 32              32 x 8
    128B                     128      1024            8 x 64              64 x 8
    128B_ATOM_32B            128       512              -                 32 x 4     (Blackwell, tf32 only)

"none" here still means core matrices of 8 x 16 bytes, 128 contiguous bytes. TMA's "none" means plain
rows. The two agree only where a row is 16 bytes wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.errors import raise_all
from tilescope.layout import ATOM_ORDERS, TILE_ATOMS, AtomOrder, Layout, Major, Modes, major_named, oriented
from tilescope.reading import is_one_of, pair, plain_int
from tilescope.rule import Basis, rule
from tilescope.sentence import format_value
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES, Swizzle, SwizzleName
from tilescope.value import Value, row_field

MMA_ELEMENT_BITS = (1, 4, 8, 16, 32)
IGNORED_LEADING_BYTES = 16  # what CuTe writes where the hardware does not look (PTX: "assumed to be 1")
_XOR_16 = ("none", "32B", "64B", "128B")  # the modes whose chunks of 16 bytes stay whole
_MODES = {"K": _XOR_16, "MN": (*_XOR_16, "128B_ATOM_32B")}
_TYPE_OF_BITS = {1: "b1", 4: "e2m1", 8: "e4m3", 16: "bf16", 32: "tf32"}
# What an instruction reads instead of an operand that it does not: other widths in this layout, or other layouts.
READS_OTHER_WIDTHS = "{instruction} reads {major}-major {mode} with elements of {widths:, } bits"
READS_NO_SUCH_LAYOUT = "{instruction} reads no {major}-major operand with {mode}"
Index = TypeVar("Index", int, npt.NDArray[np.int64])

CANONICAL_SWIZZLE = rule(
    "canonical-swizzle",
    "Tensor cores read K-major operands with none, 32B, 64B and 128B, and MN-major operands also with 128B_ATOM_32B.",
    argument="swizzle",
    found="{major}-major with swizzle {swizzle}",
    limit="tensor cores read {major}-major operands with {modes:, }",
    fix="Use {nearest}.",
    source='PTX ISA, "Canonical Layouts"',
    passing='ts.canonical_layout("MN", "128B_ATOM_32B", "tf32")',
    failing='ts.canonical_layout("K", "128B_ATOM_32B", "tf32")',
)
MN_MAJOR_SWIZZLE = CANONICAL_SWIZZLE.worded(found="{major}-major with swizzle {swizzle} (it exists MN-major)")
CANONICAL_ELEMENT = rule(
    "canonical-element",
    "Tensor cores read elements of 1, 4, 8, 16 or 32 bits from shared memory.",
    argument="element_bits",
    found="element_bits = {width}",
    limit="tensor cores read elements of 1, 4, 8, 16 or 32 bits from shared memory",
    fix="Use element_bits = 16, for example.",
    source="PTX ISA, types of wgmma.mma_async and tcgen05.mma",
    passing='ts.canonical_layout("K", "128B", "bf16")',
    failing='ts.canonical_layout("K", "128B", "f64")',
)
CANONICAL_TYPE = CANONICAL_ELEMENT.worded(
    argument="data_type",
    found="{data_type} has {element_bits} bits",
    fix="Use b1, e2m1, e4m3, int8, bf16, f16 or tf32.",
)
DESCRIPTOR_LAYOUT = rule(
    "descriptor-layout",
    "A descriptor reads tiles made of a tensor core's atoms, stored one after another by column or by row.",
    argument="layout",
    found="{layout}",
    limit="a descriptor reads whole atoms of {major}-major {mode}, {atom_bits} bits, by column or by row",
    fix='Use canonical_layout("{major}", "128B", "{data_type}").tile({whole}), for example.',
    source='PTX ISA, "Canonical Layouts"',
    passing='ts.wgmma_descriptors(ts.Layout((64, 64), 16, swizzle="128B"), "bf16")',
    failing='ts.wgmma_descriptors(ts.Layout((64, 64), 16), "bf16")',
)
PARTIAL_ATOMS = TILE_ATOMS.worded(
    argument="tile",
    found="a tile of {tile: x } (mn x k)",
    limit="{major}-major {mode} with {element_bits}-bit elements has atoms of {atom: x }, and a tile is a whole number of them",
    fix='Use {whole: x }[[, or swizzle "{fitting}"]].',
)


class Reader(NamedTuple):
    """An instruction, and the layouts it reads."""

    instruction: str
    major: Major
    element_bits: tuple[int, ...]
    swizzles: tuple[str, ...]
    basis: Basis


class DescriptorOffsets(NamedTuple):
    """The offset fields of a descriptor, in bytes."""

    leading_bytes: int  # 16 where the hardware does not look
    stride_bytes: int


# wgmma: "Matrix Descriptor Format", imm-trans exists for 16-bit types only; tcgen05: the table of valid
# swizzles by type (its K-major 128B_ATOM_32B is left out: no other source defines its atom).
READERS = (
    Reader("wgmma", major="K", element_bits=(8, 16, 32), swizzles=_XOR_16, basis="measured"),
    Reader("wgmma", major="K", element_bits=(1,), swizzles=_XOR_16, basis="documented"),
    Reader("wgmma", major="MN", element_bits=(16,), swizzles=_XOR_16, basis="measured"),
    Reader("tcgen05", major="K", element_bits=(4, 8, 16, 32), swizzles=_XOR_16, basis="documented"),
    Reader("tcgen05", major="MN", element_bits=(8, 16), swizzles=_XOR_16, basis="documented"),
    Reader("tcgen05", major="MN", element_bits=(32,), swizzles=("128B_ATOM_32B",), basis="documented"),
    Reader("ldmatrix", major="K", element_bits=(1, 4, 8, 16, 32), swizzles=_XOR_16, basis="documented"),
    Reader("ldmatrix.trans", major="MN", element_bits=(16,), swizzles=_XOR_16, basis="documented"),
)


@dataclass(frozen=True, slots=True, init=False)
class CanonicalLayout(Value):
    """One of the layouts that a tensor core reads from shared memory, by majorness, swizzle and element bits.

    >>> layout = canonical_layout("K", "128B", "bf16")
    >>> layout.atom, layout.atom_bytes, layout.core_matrix
    ((8, 64), 1024, (8, 8))
    >>> print(canonical_layout("MN", "none", "bf16"))
    MN-major none (core matrices), 16-bit elements: atom 8 x 8 (mn x k), 128 bytes
    """

    major: Major
    swizzle: Swizzle = row_field(Swizzle.named)
    element_bits: int = 16

    def __init__(self, major: Major, swizzle: SwizzleName | Swizzle, element_bits: int = 16) -> None:
        row = Swizzle.named(swizzle)
        major = major_named(major)
        problems = []
        if row.name not in _MODES[major]:
            nearest = "128B" if row.span_bytes == SMEM_LINE_BYTES else "32B"
            wording = MN_MAJOR_SWIZZLE if row.name in _MODES["MN"] else CANONICAL_SWIZZLE.wording
            problem = wording.violation(
                major=major, swizzle=row.name, modes=_MODES[major], nearest=nearest, change={"swizzle": nearest}
            )
            problems.append(problem)
        if not is_one_of(element_bits, MMA_ELEMENT_BITS):
            width = format_value(element_bits)
            problems.append(CANONICAL_ELEMENT.violation(width=width, element_bits=plain_int(element_bits)))
        raise_all(problems)
        object.__setattr__(self, "major", major)
        object.__setattr__(self, "swizzle", row)
        object.__setattr__(self, "element_bits", element_bits)

    @property
    def mode(self) -> str:
        """The name of the swizzle; for "none", with its meaning for a tensor core."""
        return mode_of(self.swizzle)

    @property
    def span_bytes(self) -> int:
        """The width of an atom's row: the swizzle's span; 16 for none."""
        return self.swizzle.span_bytes or CHUNK_BYTES

    @property
    def atom_bytes(self) -> int:
        """Bytes of an atom: one period of the swizzle."""
        return self.swizzle.repeat_bytes

    @property
    def atom_rows(self) -> int:
        """Rows of an atom: 8; 4 for 128B_ATOM_32B."""
        return self.atom_bytes // self.span_bytes

    @property
    def atom(self) -> tuple[int, int]:
        """The atom in elements, mn x k.

        >>> canonical_layout("MN", "128B_ATOM_32B", "tf32").atom
        (32, 4)
        """
        return oriented(self.major, self.atom_rows, self._elements(self.span_bytes))

    @property
    def core_matrix(self) -> tuple[int, int]:
        """The contents of one column of chunks, mn x k elements: 8 rows x 16 bytes (4 x 32 for 128B_ATOM_32B)."""
        return oriented(self.major, self.atom_rows, self._elements(self.swizzle.atom_bytes))

    @property
    def core_matrices(self) -> int:
        """The number of adjacent core matrices in an atom.

        >>> [canonical_layout("K", mode, "bf16").core_matrices for mode in ("none", "32B", "64B", "128B")]
        [1, 2, 4, 8]
        """
        return self.span_bytes // self.swizzle.atom_bytes

    @property
    def atom_layout(self) -> Modes:
        """The atom before its swizzle, as CuTe writes it: (mn, k) → element.

        >>> print(canonical_layout("K", "64B", "bf16").atom_layout, canonical_layout("MN", "64B", "bf16").atom_layout)
        (8,32):(32,1) (32,8):(1,32)
        """
        return Modes(self.atom, oriented(self.major, self._elements(self.span_bytes), 1))

    @property
    def leading_step(self) -> tuple[int, int] | None:
        """The (mn, k) at `leading_bytes` after (0, 0); None if the hardware ignores the field.

        >>> for major in ("K", "MN"):
        ...     for swizzle in ("none", "64B"):
        ...         layout = canonical_layout(major, swizzle, "bf16")
        ...         print(f"{major:2} {swizzle:4}  leading {layout.leading_step}  stride {layout.stride_step}")
        K  none  leading (0, 8)  stride (8, 0)
        K  64B   leading None  stride (8, 0)
        MN none  leading (0, 8)  stride (8, 0)
        MN 64B   leading (32, 0)  stride (0, 8)
        """
        mn, k = self.atom
        if self.swizzle.bits == 0:
            return 0, k
        return None if self.major == "K" else (mn, 0)

    @property
    def stride_step(self) -> tuple[int, int]:
        """The (mn, k) at `stride_bytes` after (0, 0)."""
        mn, k = self.atom
        return (0, k) if self.swizzle.bits and self.major == "MN" else (mn, 0)

    @property
    def ignored_fields(self) -> tuple[str, ...]:
        """Fields of a descriptor that the hardware does not look at.

        >>> canonical_layout("K", "128B", "bf16").ignored_fields, canonical_layout("K", "none", "bf16").ignored_fields
        (('leading_bytes',), ('base_offset',))
        """
        ignored = []
        if self.leading_step is None:
            ignored.append("leading_bytes")
        if self.swizzle.bits == 0:
            ignored.append("base_offset")
        return tuple(ignored)

    def neighbours(self, name: str) -> str:
        """Which two elements `leading_bytes` or `stride_bytes` connects.

        >>> canonical_layout("MN", "128B", "bf16").neighbours("leading_bytes")
        'from the atom at (mn 0, k 0) to the next 128 bytes of mn, at (mn 64, k 0)'
        """
        step = self.leading_step if name == "leading_bytes" else self.stride_step
        if step is None:
            return "(ignored: inside a swizzled atom k is contiguous, and one instruction stays inside)"
        mn, k = step
        along = "mn" if mn else "k"
        is_contiguous = along.upper() == self.major
        amount = f"{self.span_bytes} bytes of {along}" if is_contiguous else f"{mn or k} {along}"
        piece = "core matrix" if self.swizzle.bits == 0 else "atom"
        return f"from the {piece} at (mn 0, k 0) to the next {amount}, at (mn {mn}, k {k})"

    @property
    def readers(self) -> tuple[Reader, ...]:
        """The instructions that read this layout with elements of this width.

        >>> [reader.instruction for reader in canonical_layout("MN", "128B", "bf16").readers]
        ['wgmma', 'tcgen05', 'ldmatrix.trans']
        """
        readers = (row for row in READERS if row.major == self.major and self.swizzle.name in row.swizzles)
        return tuple(row for row in readers if self.element_bits in row.element_bits)

    @property
    def basis(self) -> Basis:
        """Whether it was measured on a card, or is only documented."""
        return "measured" if any(reader.basis == "measured" for reader in self.readers) else "documented"

    @classmethod
    def of(cls, layout: Layout) -> CanonicalLayout | None:
        """The canonical layout of a tile in shared memory; None if no tensor core reads the tile.

        >>> print(CanonicalLayout.of(Layout((64, 64), 16, swizzle="128B")))
        K-major 128B, 16-bit elements: atom 8 x 64 (mn x k), 1024 bytes
        >>> CanonicalLayout.of(Layout((64, 64), 16)) is None  # plain rows
        True
        """
        major = layout.major
        mode = layout.swizzle.hardware_mode
        if major is None or mode is None or mode.name not in _MODES[major]:
            return None
        if layout.element_bits not in MMA_ELEMENT_BITS:
            return None
        canonical = cls(major, mode, layout.element_bits)
        return None if canonical._same_tile(layout) is None else canonical

    def _same_tile(self, layout: Layout) -> Layout | None:
        """The same tile made of these atoms, in either order; None if the layout is not such a tile."""
        atoms = (layout.major, layout.swizzle, layout.element_bits, layout.atom, layout.padding_bytes)
        if atoms == (self.major, self.swizzle, self.element_bits, self.atom, 0):
            return layout
        if len(layout.shape) != 2:
            return None
        mn, k = layout.shape
        if not self._divides((mn, k)):
            return None
        likeliest_first = dict.fromkeys((layout.atom_order or "column", *ATOM_ORDERS))
        for order in likeliest_first:
            tile = self.tile((mn, k), atom_order=order, start=layout.start)
            if tile == layout:
                return tile
        return None

    def _divides(self, shape: tuple[int, int]) -> bool:
        """Whether a tile of (mn, k) elements is a whole number of these atoms."""
        atom_mn, atom_k = self.atom
        return shape[0] % atom_mn == 0 and shape[1] % atom_k == 0

    def _rounded_up(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The next tile that is a whole number of these atoms."""
        return tuple(rounded_up(extent, step) for extent, step in zip(shape, self.atom, strict=True))

    def tile(self, shape: tuple[int, int], *, atom_order: AtomOrder = "column", start: int = 0) -> Layout:
        """A tile of `shape` (mn, k) elements made of these atoms, at shared address `start`.

        >>> tile = canonical_layout("K", "32B", "bf16").tile((64, 32))
        >>> tile.address(0, 16)  # the next 16 k: past the 8 atoms of the first column
        2048
        >>> canonical_layout("K", "32B", "bf16").tile((64, 32), atom_order="row").address(0, 16)
        256
        """
        shape = pair("tile", shape, 1)
        if not self._divides(shape):
            rounded_shape = self._rounded_up(shape)
            modes = (CanonicalLayout(self.major, Swizzle.named(name), self.element_bits) for name in reversed(_XOR_16))
            raise PARTIAL_ATOMS.error(
                tile=shape,
                major=self.major,
                mode=self.mode,
                element_bits=self.element_bits,
                atom=self.atom,
                whole=rounded_shape,
                fitting=next((mode.swizzle.name for mode in modes if mode._divides(shape)), None),
                change={"tile": rounded_shape},
            )
        return Layout(
            shape,
            self.element_bits,
            atom=self.atom,
            atom_order=atom_order,
            major=self.major,
            swizzle=self.swizzle,
            start=start,
        )

    def offsets(self, layout: Layout) -> DescriptorOffsets:
        """What the leading and stride fields of a descriptor must be to read a tile of these atoms.

        >>> canonical = canonical_layout("K", "32B", "bf16")
        >>> canonical.offsets(canonical.tile((64, 32))).stride_bytes
        256
        >>> canonical.offsets(canonical.tile((64, 32), atom_order="row")).stride_bytes
        512
        """
        tile = self._same_tile(layout)
        if tile is None:
            widest = CanonicalLayout(self.major, "128B", self.element_bits)
            raise DESCRIPTOR_LAYOUT.error(
                layout=repr(layout),
                shape=layout.shape,
                element_bits=layout.element_bits,
                major=self.major,
                mode=self.mode,
                atom_bits=self.element_bits,
                data_type=_TYPE_OF_BITS[self.element_bits],
                whole=widest._rounded_up(layout.shape),
            )
        assert tile.tiling is not None
        leading, stride = self._down_and_right(*tile.tiling.atom_strides_bytes)
        return DescriptorOffsets(IGNORED_LEADING_BYTES if self.leading_step is None else leading, stride)

    def logical(self, mn: Index, k: Index, *, start: int, leading_bytes: int, stride_bytes: int) -> Index:
        """Address, before the swizzle, at which a descriptor with these fields finds element (mn, k).

            K-major   none        start + mn/8 * stride + mn%8 * 16   + k/8 * leading     + k%8 * e     (k/8: 16 bytes of k)
            K-major   swizzled    start + mn/8 * stride + mn%8 * span + k/span * leading  + k%span * e
            MN-major  none        start + k/8 * leading + k%8 * 16    + mn/8 * stride     + mn%8 * e
            MN-major  swizzled    start + k/8 * stride  + k%8 * span  + mn/span * leading + mn%span * e

        e: bytes of an element. In 128B_ATOM_32B an atom has 4 k, not 8. In a K-major swizzled operand, a dense
        instruction stays within the span, so leading is ignored. A sparse one reads 64 bytes of B: in 32B its second
        half is leading bytes further on (measured for wgmma.sp).

        >>> layout = canonical_layout("K", "none", "bf16")
        >>> layout.logical(9, 8, start=0x400, leading_bytes=128, stride_bytes=256) == 0x400 + 256 + 16 + 128
        True
        """
        row, column = oriented(self.major, mn, k)
        byte = column * self.element_bits // 8
        span = self.span_bytes
        rows = self.atom_rows
        down, right = self._down_and_right(leading_bytes, stride_bytes)
        address: Index = start + row // rows * down + row % rows * span + byte // span * right + byte % span
        return address

    def _down_and_right(self, leading: int, stride: int) -> tuple[int, int]:
        """Leading and stride as the steps to the atom below and on the right, and the other way round."""
        return (leading, stride) if self.major == "MN" and self.swizzle.bits == 0 else (stride, leading)

    def _elements(self, length_bytes: int) -> int:
        return length_bytes * 8 // self.element_bits

    def __str__(self) -> str:
        mn, k = self.atom
        return (
            f"{self.major}-major {self.mode}, {self.element_bits}-bit elements: "
            f"atom {mn} x {k} (mn x k), {self.atom_bytes} bytes"
        )


def canonical_layout(
    major: Major = "K", swizzle: SwizzleName | Swizzle = "128B", data_type: Any = "bf16"
) -> CanonicalLayout:
    """The layout in which a tensor core reads elements of `data_type`, with its atom; `tile` extends it to a shape.

    >>> canonical_layout("MN", "64B", "bf16").atom
    (32, 8)
    >>> canonical_layout("K", "128B", "e4m3").tile((128, 128)).address(1, 0)
    144
    """
    row = DataType.named(data_type)
    if row.smem_bits not in MMA_ELEMENT_BITS:
        raise CANONICAL_TYPE.error(data_type=row.name, element_bits=row.smem_bits)
    return CanonicalLayout(major, swizzle, row.smem_bits)


@cache  # cached for the candidates of a plan
def readable_bits(instruction: str, major: Major, swizzle: Swizzle | None = None) -> tuple[int, ...]:
    """Widths of the elements that an instruction reads in this layout (in any where none is named), the narrowest first.

    >>> readable_bits("tcgen05", "MN", Swizzle.named("128B_ATOM_32B")), readable_bits("wgmma", "K")
    ((32,), (1, 8, 16, 32))
    """
    widths: set[int] = set()
    for row in READERS:
        if (row.instruction, row.major) == (instruction, major) and (swizzle is None or swizzle.name in row.swizzles):
            widths.update(row.element_bits)
    return tuple(sorted(widths))


def mode_of(swizzle: Swizzle) -> str:
    """A swizzle's name, with what "none" means to a tensor core."""
    return "none (core matrices)" if swizzle.span_bytes is None else swizzle.name
