"""A sparse A, stored as the instructions take it: half of its elements, and metadata by lane or by cell.

    a (m, k)  ──compress──▶  values (m, k / 2)  +  metadata  ──decompress──▶  a

    instruction                  metadata                                             shape
    none                         a nibble for every group of a row                    (m, groups)
    mma.sp.m16n8k32              a word for every lane of the warp                     (m / 16, k / 32, 32)
    wgmma.sp.m64n128k32          a word for every thread of the warpgroup              (m / 64, k / 32, 128)
    tcgen05.mma.sp               cells of tensor memory, a word for a lane and column  (m / 128, k / 32, 128, columns)

The words of mma.sp and wgmma.sp are measured on an H200; those of tcgen05 rest on documents (see tmem_layout.py). Lanes that
the selector does not choose hold 0.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.mma.element_matrix import element_matrix
from tilescope.mma.fragment import NIBBLE_BITS, Fragment, fragment
from tilescope.mma.mma_instruction import SPARSE_INSTRUCTIONS
from tilescope.mma.sparsity import (
    ORDERED_NIBBLES,
    TF32_NIBBLES,
    Compressed,
    Matrix,
    Nibbles,
    compress_rows,
    entries_of_elements,
    expand_rows,
    group_elements,
    nibbles_of_entries,
)
from tilescope.mma.tcgen05_kind import KINDS
from tilescope.mma.tmem_address import TMEM_LANES, CellPlaces, cells_of
from tilescope.mma.tmem_layout import METADATA_INSTRUCTION_K, TmemLayout, tmem_layout
from tilescope.reading import array_where, as_array, integer
from tilescope.rule import rule
from tilescope.sentence import by

Words = npt.NDArray[np.uint32]
_NIBBLES_OF_WORD = 8
_SWAPPED_NIBBLES = tuple((nibble & 3) << 2 | nibble >> 2 for nibble in ORDERED_NIBBLES)
_MMA_TYPES = dict.fromkeys(name for row in SPARSE_INSTRUCTIONS for name in row.types)
_TCGEN05_TYPES = dict.fromkeys(name for kind in KINDS.values() for name in kind.codes)
_TYPES = tuple({**_MMA_TYPES, **_TCGEN05_TYPES})

SPARSE_TYPE = rule(
    "sparse-type",
    "Sparse matrices have the types that mma.sp, wgmma.sp or tcgen05.mma.sp multiply.",
    argument="data_type",
    found="{data_type}",
    limit="a sparse A is {known:, }",
    fix="Use {nearest}.",
    source="PTX ISA, mma.sp, wgmma.mma_async.sp and tcgen05.mma.sp: types",
    passing='ts.compress([[5, 0]], "tf32")',
    failing='ts.compress([[5, 0]], "float32")',
)
SPARSE_SHAPE = rule(
    "sparse-shape",
    "A sparse matrix has whole groups along k, and whole instructions along m and k if an instruction is passed.",
    argument="a",
    found="a matrix of {shape: x }",
    limit="{holder} takes {rows} rows and {columns} elements of k",
    fix="Pad it with zeros to {whole: x }.",
    source="PTX ISA, mma.sp: sparse matrix storage",
    passing='ts.compress(np.eye(16, 32), "bf16", instruction="mma.sp.m16n8k32")',
    failing='ts.compress(np.eye(16, 16), "bf16", instruction="mma.sp.m16n8k32")',
)
SPARSE_SELECTOR = rule(
    "sparse-selector",
    "The sparsity selector chooses the lanes of every four that hold the metadata, and is below the number of choices.",
    argument="selector",
    found="selector = {selector}",
    limit="{instruction} of {data_type} reads {lanes} of four lanes, so that its selector is {known:or}",
    fix="Use {selector:={nearest}}.",
    source="PTX ISA, mma.sp: sparsity selector",
    passing='ts.compress(np.eye(16, 32), "bf16", instruction="mma.sp.m16n8k32", selector=1)',
    failing='ts.compress(np.eye(16, 32), "bf16", instruction="mma.sp.m16n8k32", selector=2)',
)
TCGEN05_SELECTOR = SPARSE_SELECTOR.worded(
    limit="the selector of tcgen05.mma.sp is in its instruction descriptor, and says which column of a pair these cells are",
    fix="Leave it out, and use ts.InstructionDescriptor(…, sparsity_selector={selector}).",
)
SPARSE_METADATA = rule(
    "sparse-metadata",
    "Metadata selects two different positions of every group; for tf32 it is 0x4 or 0xe.",
    argument="metadata",
    found="{nibble:#x} for row {row}, k {first} to {last}",
    limit="metadata of {data_type} is one of {known:, }",
    fix="Use {nearest:#x}, the first places of the group, where nothing is stored.",
    source="PTX ISA, mma.sp: sparse matrix storage",
    passing='ts.decompress([[5.0, 7.0]], [[0x8]], "bf16")',
    failing='ts.decompress([[5.0, 7.0]], [[0x5]], "bf16")',
)


def compress(
    a: npt.ArrayLike, data_type: Any = None, *, instruction: str | None = None, selector: int = 0
) -> Compressed:
    """The stored half of a sparse A (m, k), and its metadata: `values` and `metadata`.

    At most two of four adjacent elements along k may be nonzero: one of two for tf32, two of four pairs for 4 bits. If fewer
    are nonzero, zeros are stored. Without `instruction`, the metadata is one nibble per group. With an instruction such as
    "mma.sp.m16n8k32", "wgmma.sp.m64n128k32" or "tcgen05.mma.sp", it has the layout of that instruction (see the table above):
    words of the lanes that `selector` chooses, or cells of tensor memory. Without `data_type`, the type is that of `a`.

    >>> values, metadata = compress([[5, 0, 7, 0, 0, 2, 0, 3]], "bf16")
    >>> values.astype(int).tolist(), [hex(nibble) for nibble in metadata[0]]
    ([[5, 7, 2, 3]], ['0x8', '0xd'])
    >>> identity = np.eye(16, 16)
    >>> words = compress(identity, "bf16", instruction="mma.sp.m16n8k16", selector=1).metadata
    >>> words.shape, [hex(word) for word in words[0, 0, 8:12]]  # the lanes of rows 2 and 10
    ((1, 1, 32), ['0x0', '0x48444448', '0x0', '0x0'])
    """
    row = _sparse_type(as_array("a", a).dtype if data_type is None else data_type)
    matrix = element_matrix("a", a, row)
    form = _form(instruction, row, selector)
    _check_shape(matrix.shape, form, row)
    stored = compress_rows(matrix, row)
    return Compressed(stored.values, form.metadata(stored.metadata))


def decompress(
    values: npt.ArrayLike,
    metadata: npt.ArrayLike,
    data_type: Any = None,
    *,
    instruction: str | None = None,
    selector: int = 0,
) -> Matrix:
    """The matrix A (m, k) that `values` (m, k / 2) and `metadata` encode: the inverse of `compress`.

    Metadata that selects a position twice is refused: PTX does not define its effect.

    >>> decompress([[5, 7, 2, 3]], [[0x8, 0xD]], "bf16").astype(int).tolist()
    [[5, 0, 7, 0, 0, 2, 0, 3]]
    """
    row = _sparse_type(as_array("values", values).dtype if data_type is None else data_type)
    stored = element_matrix("values", values, row)
    form = _form(instruction, row, selector)
    m, k = stored.shape[0], 2 * stored.shape[1]
    _check_shape((m, k), form, row)
    expected_shape = form.metadata_shape(m, k)
    words = array_where(
        "metadata",
        metadata,
        lambda array: array.shape == expected_shape and array.dtype.kind in "iu",
        f"metadata of a matrix of {by((m, k))} is integers of {by(expected_shape)}",
        f"Use an array of shape {expected_shape}.",
    )
    nibbles = form.nibbles(words)
    _check_nibbles(nibbles, row)
    return expand_rows(stored, nibbles, row)


class _NibbleForm(NamedTuple):
    """Metadata as it is: a nibble for every group of a row."""

    data_type: DataType
    name: str = "metadata"
    rows: int = 1  # of the unit in which it comes
    k: int = 0

    def metadata_shape(self, m: int, k: int) -> tuple[int, ...]:
        return (m, k // self.k)

    def metadata(self, nibbles: Nibbles) -> Nibbles:
        return nibbles

    def nibbles(self, metadata: Matrix) -> Nibbles:
        return metadata.astype(np.uint8)


class _LaneForm(NamedTuple):
    """Metadata in the registers of lanes: (m / rows, k / k of the instruction, lanes)."""

    data_type: DataType
    name: str
    rows: int
    k: int
    held: Fragment
    selector: int

    def metadata_shape(self, m: int, k: int) -> tuple[int, ...]:
        return (m // self.rows, k // self.k, self.held.threads)

    def metadata(self, nibbles: Nibbles) -> Words:
        tiles = _split_into_blocks(nibbles, self.rows, self.held.shape[1])
        thread, value = self.held.holders(self.selector)
        of_lanes = np.zeros((*tiles.shape[:2], self.held.threads, _NIBBLES_OF_WORD), np.uint32)
        of_lanes[..., thread[0], value[0]] = tiles
        shifts = NIBBLE_BITS * np.arange(_NIBBLES_OF_WORD, dtype=np.uint32)
        words: Words = np.bitwise_or.reduce(of_lanes << shifts, axis=-1)
        return words

    def nibbles(self, metadata: Matrix) -> Nibbles:
        thread, value = self.held.holders(self.selector)
        words = metadata.astype(np.uint32)[..., thread[0]]
        return _join_blocks((words >> (NIBBLE_BITS * value[0]).astype(np.uint32) & 0xF).astype(np.uint8))


class _CellForm(NamedTuple):
    """Metadata in tensor memory: (m / 128, k / k of the instruction, lanes, columns)."""

    data_type: DataType
    name: str
    rows: int
    k: int
    layout: TmemLayout

    def _entry_cells(self) -> CellPlaces:
        """The place of the entry of every element (m, k)."""
        return cells_of(self.layout.bit_addresses()[..., 0])

    def metadata_shape(self, m: int, k: int) -> tuple[int, ...]:
        return (m // self.rows, k // self.k, self.rows, self.layout.columns)

    def metadata(self, nibbles: Nibbles) -> Words:
        entries = entries_of_elements(nibbles, self.data_type, self.layout.element_bits)
        tiles = _split_into_blocks(entries, self.rows, self.k).astype(np.uint32)
        cells = np.zeros((*tiles.shape[:2], self.rows, self.layout.columns), np.uint32)
        lane, column, first_bit = self._entry_cells()
        for block in np.ndindex(tiles.shape[:2]):
            np.bitwise_or.at(cells[block], (lane, column), tiles[block] << first_bit.astype(np.uint32))
        return cells

    def nibbles(self, metadata: Matrix) -> Nibbles:
        lane, column, first_bit = self._entry_cells()
        mask = np.uint32((1 << self.layout.element_bits) - 1)
        entries = metadata.astype(np.uint32)[..., lane, column] >> first_bit.astype(np.uint32) & mask
        return nibbles_of_entries(_join_blocks(entries.astype(np.uint8)), self.data_type)


def _split_into_blocks(matrix: Matrix, rows: int, columns: int) -> Matrix:
    """(m, k) in blocks of rows x columns: (m / rows, k / columns, rows, columns)."""
    down = len(matrix) // rows
    return matrix.reshape(down, rows, -1, columns).swapaxes(1, 2)


def _join_blocks(blocks: Matrix) -> Matrix:
    down, across, rows, columns = blocks.shape
    return blocks.swapaxes(1, 2).reshape(down * rows, across * columns)


def _form(instruction: str | None, row: DataType, selector: int) -> _NibbleForm | _LaneForm | _CellForm:
    """The layout of an instruction's metadata; None: nibbles."""
    selector = integer("selector", selector)
    if instruction is None:
        return _NibbleForm(row, k=group_elements(row))
    if isinstance(instruction, str) and re.match(r"tcgen05\b", instruction.strip().casefold()):
        if selector != 0:
            raise TCGEN05_SELECTOR.error(selector=selector)
        k = METADATA_INSTRUCTION_K[row.smem_bits]
        layout = tmem_layout((TMEM_LANES, k), operand="metadata", data_type=row)
        return _CellForm(row, "tcgen05.mma.sp", TMEM_LANES, k, layout)
    metadata_fragment = fragment(instruction, "E", row)
    if not 0 <= selector < metadata_fragment.copies:
        raise SPARSE_SELECTOR.error(
            selector=selector,
            instruction=metadata_fragment.instruction,
            data_type=row.name,
            lanes=4 // metadata_fragment.copies,
            known=tuple(range(metadata_fragment.copies)),
            nearest=metadata_fragment.copies - 1 if selector > 0 else 0,
        )
    k = metadata_fragment.shape[1] * group_elements(row)
    return _LaneForm(row, metadata_fragment.instruction, metadata_fragment.shape[0], k, metadata_fragment, selector)


def _sparse_type(data_type: Any) -> DataType:
    row = DataType.named(data_type)
    if row.name in _TYPES:
        return row
    alike = [name for name in _TYPES if DataType.named(name).bits == row.bits]
    raise SPARSE_TYPE.error(data_type=row.name, known=_TYPES, nearest=alike[0] if alike else "bfloat16")


def _check_shape(shape: tuple[int, ...], form: _NibbleForm | _LaneForm | _CellForm, row: DataType) -> None:
    """Refuse anything but whole groups, or whole instructions."""
    m, k = shape
    if m % form.rows == 0 and k % form.k == 0:
        return
    rounded_shape = (rounded_up(m, form.rows), rounded_up(k, form.k))
    holder = f"a group of {row.name}" if isinstance(form, _NibbleForm) else form.name
    raise SPARSE_SHAPE.error(shape=(m, k), holder=holder, rows=form.rows, columns=form.k, whole=rounded_shape)


def _check_nibbles(nibbles: Nibbles, row: DataType) -> None:
    """Refuse metadata that names a place twice, or half of a tf32."""
    valid = sorted((*ORDERED_NIBBLES, *_SWAPPED_NIBBLES))
    if row.smem_bits == 32:
        valid = TF32_NIBBLES.tolist()
    wrong = np.argwhere(~np.isin(nibbles, valid))
    if not len(wrong):
        return
    line, group = wrong[0].tolist()
    extent = group_elements(row)
    raise SPARSE_METADATA.error(
        nibble=int(nibbles[line, group]),
        row=line,
        first=group * extent,
        last=group * extent + extent - 1,
        data_type=row.name,
        known=tuple(hex(nibble) for nibble in valid),
        nearest=ORDERED_NIBBLES[0],
    )
