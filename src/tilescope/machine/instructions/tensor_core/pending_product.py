"""A pending tcgen05.mma: its accesses, its operands, and its result in D.

Addresses and descriptors are taken when it is issued; operands and D are read when it is done, at the latest where somebody
waits for a later tcgen05.commit. Of a pair each block holds half of the rows of A and of the columns of B; D has the rows
of its A. Of a sparse A half is stored; its metadata is in tensor memory, for kinds f16 and tf32 in the column of a pair that
the sparsity selector of the descriptor chooses. `tensor_core_sum` defines the rounding of a sum.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.fault import ILLEGAL_INSTRUCTION, KernelFaultError, fault_of
from tilescope.machine.execution.pending import Work
from tilescope.machine.execution.tmem_state import Places
from tilescope.machine.instructions.tensor_core.product_places import (
    PADDED_TYPES,
    MatrixKey,
    ScaleKey,
    a_cells,
    accumulator_places,
    metadata_cells,
    scale_cells,
)
from tilescope.machine.instructions.tensor_core.smem_operand import (
    SmemRead,
    emit_operand_read,
    smem_places,
    stored_codes,
)
from tilescope.mma.accumulation import ScaleFactors, tensor_core_sum
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.operand_descriptor import Tcgen05Descriptor
from tilescope.mma.sparse_sum import sparse_sum
from tilescope.mma.sparsity import Nibbles, nibbles_of_entries
from tilescope.mma.tcgen05_kind import Tcgen05Kind
from tilescope.mma.tensor_core_arithmetic import arithmetic_of
from tilescope.mma.tmem_address import QUARTER_LANES, TMEM_COLUMNS
from tilescope.mma.tmem_copy import padded_codes
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.events import TmemWork
from tilescope.tma.elements import unpack_values

Matrix = npt.NDArray[np.generic]
Codes = npt.NDArray[np.unsignedinteger]
_MASK_BITS = 32  # of disable-output-lane
_PADDED_KINDS = ("f8f6f4", "mxf8f6f4")  # whose narrow elements are unpacked to bytes in tensor memory
_SCALES_OF_WORD = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4}
_BLOCK_OF_WORD = {"block16": 16, "block32": 32}
_HALF_OF_B_BYTES = 32  # along k, of a sparse product


class ProductForm(NamedTuple):
    """The fields of a tcgen05.mma from its modifiers; the descriptor has the others."""

    kind: Tcgen05Kind
    cta_group: int
    ws: bool
    scale_word: str | None  # .scale_vec::NX or .blockN
    sparse: bool = False

    def scales(self, k: int) -> int:
        """Scale factors of a row for `k` elements of A, of a sparse A the stored ones; 0 where the kind has none."""
        if not self.kind.is_scaled:
            return 0
        if self.scale_word in _SCALES_OF_WORD:
            return _SCALES_OF_WORD[self.scale_word]
        block = 32 if self.scale_word is None else _BLOCK_OF_WORD[self.scale_word]
        return k // block


class TensorProduct(NamedTuple):
    """A pending tcgen05.mma."""

    form: ProductForm
    descriptor: InstructionDescriptor
    pc: int
    lane: int
    ranks: tuple[int, ...]
    d: int  # address words of tensor memory
    a_tmem: int | None
    a_word: int  # descriptors of shared memory
    b_word: int
    a_scales: int | None
    b_scales: int | None
    adds_d: bool
    d_shift: int
    disabled: tuple[int, ...]
    metadata: int | None = None

    @property
    def k(self) -> int:
        """Elements of k that it multiplies: a sparse A has twice as many as are stored."""
        return 2 * self.descriptor.k if self.form.sparse else self.descriptor.k

    @property
    def own_m(self) -> int:
        """Rows of one block."""
        return self.descriptor.m // len(self.ranks)

    @property
    def d_key(self) -> MatrixKey:
        """The key of D's location."""
        word = self.descriptor
        return MatrixKey(word.m, word.n, word.d_type.name, self.form.cta_group, self.form.ws, self.d, self.form.sparse)

    @property
    def a_read(self) -> SmemRead:
        """How A is read from the shared memory of each block."""
        word = self.descriptor
        return SmemRead("operand A", self.own_m, word.k, _element_bits(word.a_type, self.form.kind), word.a_major)

    @property
    def b_read(self) -> SmemRead:
        """How B is read from the shared memory of each block."""
        word = self.descriptor
        columns = word.n // len(self.ranks)
        return SmemRead("operand B", columns, self.k, _element_bits(word.b_type, self.form.kind), word.b_major)

    def begin(self, cluster: Cluster) -> None:
        """Check what can be checked now, and leave the rest to be done later."""
        self._require_form()
        accumulator_places(self.d_key)
        if cluster.bus.is_heard:
            cluster.emit(self._event())

        def perform(lanes: LaneNumbers) -> None:
            cluster.pc = self.pc
            try:
                self._perform(cluster)
            except RuleError as error:
                raise fault_of(error, self.lane) from None

        cluster.pending.add(Work("tcgen05", self.pc, np.array([self.lane]), perform))

    def _require_form(self) -> None:
        """A fault where the descriptor is of another form than the instruction, or of one that is not multiplied here."""
        form = f"cta_group::{self.form.cta_group}.ws" if self.form.ws else f"cta_group::{self.form.cta_group}"
        if form not in self.descriptor.forms:
            forms = ", ".join(self.descriptor.forms)
            reason = f"m {self.descriptor.m}, n {self.descriptor.n} with .{form}; such a descriptor belongs to {forms}"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, self.lane)
        if self.descriptor.sparse != self.form.sparse:
            reason = "an instruction descriptor of a sparse A, with an instruction without .sp"
            if self.form.sparse:
                reason = "tcgen05.mma.sp with an instruction descriptor of a dense A"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, self.lane)
        if self.form.sparse:
            self._require_sparse()

    def _require_sparse(self) -> None:
        """A fault if the documentation does not specify what a sparse product reads."""
        if self.descriptor.sparsity_selector > 1:
            reason = f"sparsity selector {self.descriptor.sparsity_selector}: documents speak of the columns of 0 and 1 alone"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, self.lane)
        if self.descriptor.b_major == "K":
            b_swizzle = Tcgen05Descriptor.decode(self.b_word).swizzle
            if b_swizzle.span_bytes == _HALF_OF_B_BYTES:
                reason = "a K-major B of 64 bytes in a 32B swizzle: no document says where its second half is"
                raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, self.lane)
        metadata_cells(self._metadata_key())

    def _event(self) -> TmemWork:
        """What it reads and writes; of tensor memory the same in each block of a pair."""
        reads = self._smem_reads()
        return TmemWork(
            self.pc,
            self.lane,
            "tcgen05.mma",
            self.ranks,
            tuple(smem_places(read, word, self.lane).addresses for read, word in reads),
            tuple(read.stored_bytes for read, _ in reads),
            read=self._tmem_reads(),
            written=np.unique(accumulator_places(self.d_key)),
            adds_d=self.adds_d,
            shape=(self.d, self.descriptor.m, self.descriptor.n),
        )

    def _smem_reads(self) -> list[tuple[SmemRead, int]]:
        reads = [(self.b_read, self.b_word)]
        if self.a_tmem is None:
            reads.append((self.a_read, self.a_word))
        return reads

    def _tmem_reads(self) -> Places:
        """The cells of A and of scale factors, of one block."""
        parts: list[Places] = []
        if self.a_tmem is not None:
            parts.append(a_cells(self._a_key()).cells.reshape(-1))
        if self.metadata is not None:
            parts.append(metadata_cells(self._metadata_key()).cells.reshape(-1))
        scales = self.form.scales(self.descriptor.k)
        if self.a_scales is not None and self.b_scales is not None:
            parts.append(scale_cells(self._scale_key("A", scales)).reshape(-1))
            parts.append(scale_cells(self._scale_key("B", scales)).reshape(-1))
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    def _perform(self, cluster: Cluster) -> None:
        """Multiply: the rows of all blocks by all columns of B in one sum."""
        places = accumulator_places(self.d_key)
        b = np.concatenate([self._smem_operand(cluster, rank, "B") for rank in self.ranks])
        before = np.concatenate([self._before(cluster, rank, places) for rank in self.ranks])
        a_of_blocks = [self._a_copies(cluster, rank) for rank in self.ranks]
        a = [np.concatenate(of_blocks) for of_blocks in zip(*a_of_blocks, strict=True)]  # rows of all blocks, by copy
        scales = self._scales(cluster)
        nibbles = self._nibbles(cluster)
        parts = max(len(a), len(nibbles))  # lanes of another part of n read their own copies of A and its metadata
        width = self.descriptor.n // parts
        sums = []
        for number in range(parts):
            columns = slice(number * width, (number + 1) * width)
            copy = a[number % len(a)]
            own_nibbles = nibbles[number % len(nibbles)] if nibbles else None
            own_scales = _columns_of(scales, columns)
            own_before = before[:, columns]
            sums.append(
                self._sum_quarters(cluster, copy, b[columns], own_before, scales=own_scales, nibbles=own_nibbles)
            )
        d = np.concatenate(sums, axis=1)
        for index, rank in enumerate(self.ranks):
            self._write(cluster, index, rank, places, d[index * self.own_m : (index + 1) * self.own_m])

    def _sum_quarters(
        self,
        cluster: Cluster,
        a: Codes,
        b: Codes,
        before: Matrix,
        *,
        scales: list[ScaleFactors] | None,
        nibbles: Nibbles | None,
    ) -> Matrix:
        """The sum; scale factors of B may differ from quarter to quarter of the lanes, where a copy of them is missing."""
        word = self.descriptor

        def summed(rows: slice, own_scales: ScaleFactors | None) -> Matrix:
            options: dict[str, Any] = {
                "arithmetic": arithmetic_of(cluster.launch.arch.name, f"tcgen05.{word.mma_kind}", word.a_type.name),
                "a_type": word.a_type,
                "b_type": word.b_type,
                "output_type": word.d_type,
                "saturate": word.saturate,
                "scales": own_scales,
            }
            if nibbles is None:
                return tensor_core_sum(a[rows], b, before[rows], **options)
            return sparse_sum(a[rows], b, before[rows], nibbles[rows], held_type=self._held_type, **options)

        if scales is None:
            return summed(slice(None), None)
        if len(scales) == 1:
            return summed(slice(None), scales[0])
        step = len(a) // len(scales)
        return np.concatenate(
            [summed(slice(number * step, (number + 1) * step), factors) for number, factors in enumerate(scales)]
        )

    def _nibbles(self, cluster: Cluster) -> list[Nibbles]:
        """The metadata of all rows: every copy that is in tensor memory; none of a dense A."""
        if self.metadata is None:
            return []
        placed = metadata_cells(self._metadata_key())
        mask = np.uint32((1 << placed.element_bits) - 1)
        of_blocks = [cluster.tensor_memory.cells[rank][placed.cells] >> placed.bits & mask for rank in self.ranks]
        entries = np.concatenate(of_blocks).astype(np.uint8)  # (rows, k, copies)
        copies = [np.ascontiguousarray(entries[..., copy]) for copy in range(entries.shape[-1])]
        return [nibbles_of_entries(copy, self._held_type) for copy in copies]

    def _metadata_key(self) -> MatrixKey:
        assert self.metadata is not None
        word = self.descriptor
        # An even column and the selector; kinds without a choice have both columns.
        address = self.metadata + word.sparsity_selector
        return MatrixKey(word.m, self.k, self._held_type.name, self.form.cta_group, self.form.ws, address, sparse=True)

    def _before(self, cluster: Cluster, rank: int, places: Places) -> Matrix:
        """D before, or zeros."""
        held_type = self.descriptor.d_type.numpy
        if not self.adds_d:
            return np.zeros(places.shape, held_type)
        cells = cluster.tensor_memory.cells[rank][places]
        before: Matrix = cells.astype(f"u{held_type.itemsize}").view(held_type)
        return before if not self.d_shift else before * held_type.type(2.0**-self.d_shift)

    def _write(self, cluster: Cluster, index: int, rank: int, places: Places, d: Matrix) -> None:
        """D into its cells, but for the lanes that are masked out."""
        cells = cluster.tensor_memory.cells[rank]
        codes = np.ascontiguousarray(d).view(f"u{d.dtype.itemsize}").astype(np.uint32)
        if any(self.disabled):
            masks = self.disabled[index * 4 : index * 4 + 4]
            lane = places // TMEM_COLUMNS
            is_disabled = np.array(masks, np.int64)[lane // _MASK_BITS] >> lane % _MASK_BITS & 1 != 0
            codes = np.where(is_disabled, cells[places], codes)
        cells[places] = codes

    def _smem_operand(self, cluster: Cluster, rank: int, operand: Literal["A", "B"]) -> Codes:
        """The codes of an operand in one block's shared memory, (rows, k), its signs turned where they are negated."""
        word = self.descriptor
        is_a = operand == "A"
        read = self.a_read if is_a else self.b_read
        smem_word = self.a_word if is_a else self.b_word
        stored = stored_codes(cluster, read, smem_word, rank, self.lane)
        if cluster.bus.is_heard:
            emit_operand_read(cluster, operand, read, smem_word, rank)
        element = word.a_type if is_a else word.b_type
        if self.form.kind.is_dense_4_bit:
            stored = unpack_values(stored.astype(np.uint8), element.bits)
        elif element.bits < 8:
            stored = padded_codes(stored.astype(np.uint8), element.bits)
        return _negate(stored, element, word.negate_a if is_a else word.negate_b)

    def _a_copies(self, cluster: Cluster, rank: int) -> list[Codes]:
        """A of one block: once, or every copy of it that is in tensor memory."""
        if self.a_tmem is None:
            return [self._smem_operand(cluster, rank, "A")]
        element = self.descriptor.a_type
        placed = a_cells(self._a_key())
        cells = cluster.tensor_memory.cells[rank][placed.cells]  # (rows, k, copies)
        codes = cells >> placed.bits & np.uint32((1 << placed.element_bits) - 1)
        narrow = (codes >> np.uint32(placed.lowest_bit)).astype(f"u{max(1, element.bits // 8)}")
        negated = _negate(narrow, element, self.descriptor.negate_a)
        return [np.ascontiguousarray(negated[..., copy]) for copy in range(negated.shape[-1])]

    def _a_key(self) -> MatrixKey:
        assert self.a_tmem is not None
        word = self.descriptor
        form = self.form
        return MatrixKey(word.m, word.k, self._held_type.name, form.cta_group, form.ws, self.a_tmem, form.sparse)

    @property
    def _held_type(self) -> DataType:
        """The type of A as tensor memory holds it: narrow elements may be padded to bytes."""
        element = self.descriptor.a_type
        if self.form.kind.name in _PADDED_KINDS and element.bits < 8:
            return DataType.named(PADDED_TYPES[element.bits])
        return element

    def _scale_key(self, operand: Literal["A", "B"], scales: int) -> ScaleKey:
        word = self.descriptor
        is_a = operand == "A"
        address = self.a_scales if is_a else self.b_scales
        assert address is not None
        rows = self.own_m if is_a else word.n
        first = word.a_scale_id if is_a else word.b_scale_id
        return ScaleKey(operand, rows, word.m, self.form.cta_group, address, first, scales)

    def _scales(self, cluster: Cluster) -> list[ScaleFactors] | None:
        """Scale factors of all rows and columns; of B once, or once for every quarter of lanes where they differ."""
        if self.a_scales is None or self.b_scales is None:
            return None
        scales = self.form.scales(self.descriptor.k)
        data_type = DataType.named("ue8m0" if self.descriptor.scale_type == "ue8m0" else "e4m3")
        of_a = np.concatenate([self._read_scales(cluster, rank, "A", scales)[0] for rank in self.ranks])
        of_b = [copy for rank in self.ranks for copy in self._read_scales(cluster, rank, "B", scales)]
        if all(np.array_equal(copy, of_b[0]) for copy in of_b):
            return [ScaleFactors(of_a, of_b[0], data_type)]
        step = len(of_a) // len(of_b)
        return [
            ScaleFactors(of_a[number * step : (number + 1) * step], copy, data_type) for number, copy in enumerate(of_b)
        ]

    def _read_scales(
        self, cluster: Cluster, rank: int, operand: Literal["A", "B"], scales: int
    ) -> list[npt.NDArray[np.uint8]]:
        """The factors of every row, (rows, scales): of A from the row's own quarter of lanes, of B every copy."""
        cells = cluster.tensor_memory.cells[rank].view(np.uint8)
        read = cells[scale_cells(self._scale_key(operand, scales), in_bytes=True)]  # (rows, copies, scales)
        if operand == "B":
            return [np.ascontiguousarray(read[:, copy]) for copy in range(read.shape[1])]
        own_quarter = np.arange(len(read)) // QUARTER_LANES % read.shape[1]
        return [np.ascontiguousarray(read[np.arange(len(read)), own_quarter])]


def _columns_of(scales: list[ScaleFactors] | None, columns: slice) -> list[ScaleFactors] | None:
    """The factors of some columns of B."""
    if scales is None:
        return None
    return [factors._replace(b=factors.b[columns]) for factors in scales]


def _negate(codes: Codes, element: DataType, is_negated: bool) -> Codes:
    if not is_negated:
        return codes
    turned: Codes = codes ^ codes.dtype.type(1 << element.bits - 1)
    return turned


def _element_bits(element: DataType, kind: Tcgen05Kind) -> int:
    """Bits that are read as one: an element, or the byte that it has, or that two of 4 bits share."""
    return 4 if kind.is_dense_4_bit else max(8, element.bits)
