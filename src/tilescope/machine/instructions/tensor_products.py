"""tcgen05.mma: one thread lets the tensor core of its block, or of a pair, multiply into tensor memory.

    tcgen05.mma.cta_group::1.kind::f16     [d], a-desc, b-desc, idesc, enable-input-d;
    tcgen05.mma.sp.cta_group::1.kind::f16  [d], a-desc, b-desc, [metadata], idesc, enable-input-d;

Addresses and descriptors are taken when it is issued; operands and D are read when it is done, at the latest where somebody
waits for a tcgen05.commit behind it. Of a pair each block holds half of the rows of A and of the columns of B; D has the rows
of its A. Where everything lies in tensor memory is told by `tmem_layout` and `scale_layout`, how it is added by `tensor_core_sum`.
Of a sparse A half is stored; its metadata lies in tensor memory, for kinds f16 and tf32 in the column of a pair that the sparsity
selector of the descriptor chooses.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster
from tilescope.machine.fault import ILLEGAL_INSTRUCTION, KernelFaultError, fault_of
from tilescope.machine.instructions.moving import AddressOf, decode_address
from tilescope.machine.instructions.words import Words
from tilescope.machine.pending import Work
from tilescope.machine.program import Assembler
from tilescope.machine.smem_operand import SmemRead, note_operand, smem_places, stored_codes
from tilescope.machine.step import LaneNumbers, Lanes, RefusedError, Step
from tilescope.machine.tensor_memory import COLUMN_MASK, LANE_SHIFT, Places, pair_ranks
from tilescope.mma.accumulation import ScaleFactors, tensor_core_sum
from tilescope.mma.arithmetic import arithmetic_of
from tilescope.mma.descriptor import Tcgen05Descriptor
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.sparse_sum import sparse_sum
from tilescope.mma.sparsity import Nibbles, nibbles_of_entries
from tilescope.mma.tcgen05_kind import KINDS, Tcgen05Kind
from tilescope.mma.tmem_address import CELL_BITS, LANE_BITS, QUARTER_LANES, TMEM_COLUMNS, TMEM_LANES
from tilescope.mma.tmem_copy import DECOMPRESSIONS, padded_codes
from tilescope.mma.tmem_layout import tmem_layout
from tilescope.ptx.syntax import Address, Immediate, Instruction, Operand, Vector
from tilescope.tma.elements import unpacked

Matrix = npt.NDArray[np.generic]
Codes = npt.NDArray[np.unsignedinteger]
_CACHED_LAYOUTS = 64
_MASK_BITS = 32  # of disable-output-lane
_PADDED_KINDS = ("f8f6f4", "mxf8f6f4")  # whose narrow elements have bytes of their own in tensor memory
_PADDED_TYPES = {4: "16u4_align16b", 6: "16u6_align16b"}
_SCALE_WORDS = ("scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32")
_SCALES_OF_WORD = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4}
_BLOCK_OF_WORD = {"block16": 16, "block32": 32}
_HALF_OF_B_BYTES = 32  # along k, of a sparse product
_WORD_BYTES = 4  # scale factors in a cell


class ProductForm(NamedTuple):
    """What the modifiers of a tcgen05.mma say; the descriptor says the rest."""

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


class Multiplication(NamedTuple):
    """One tcgen05.mma as it was decoded: registers of its operands."""

    form: ProductForm
    d: AddressOf
    a_tmem: AddressOf | None
    a_descriptor: int | None
    b_descriptor: int
    idesc: int
    adds_d: tuple[int, bool]  # enable-input-d: a predicate, and whether it is negated
    a_scales: AddressOf | None = None
    b_scales: AddressOf | None = None
    disabled: tuple[int, ...] = ()
    d_shift: int = 0  # scale-input-d: D is multiplied by 2 to the power of minus this
    zero_mask: int | None = None
    metadata: AddressOf | None = None  # of a sparse A

    def issue(self, cluster: Cluster, at: Lanes) -> None:
        """Every lane that comes issues a product of its own; kernels let one come."""
        lanes = cluster.lanes(at)
        cluster.launch.charge(len(lanes))
        for lane in lanes.tolist():
            self._issue_one(cluster, lane)

    def _issue_one(self, cluster: Cluster, lane: int) -> None:
        own = np.array([lane])
        registers = cluster.registers
        number, is_negated = self.adds_d
        if self.zero_mask is not None and int(registers[self.zero_mask][lane]):
            reason = "a zero-column mask: PTX and CuTe say opposite things of its spans, and tilescope does not guess"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, lane)
        word = int(registers[self.idesc][lane]) & 0xFFFF_FFFF
        try:
            descriptor = _descriptor(word, self.form.kind.name)
        except RuleError as error:
            raise fault_of(error, lane) from None
        product = TensorProduct(
            form=self.form,
            descriptor=descriptor,
            pc=cluster.pc,
            lane=lane,
            ranks=pair_ranks(int(cluster.block_of_lane[lane]), self.form.cta_group, cluster.blocks, lane),
            d=_word(self.d, cluster, own),
            a_tmem=None if self.a_tmem is None else _word(self.a_tmem, cluster, own),
            a_word=0 if self.a_descriptor is None else int(registers[self.a_descriptor][lane]),
            b_word=int(registers[self.b_descriptor][lane]),
            a_scales=None if self.a_scales is None else _word(self.a_scales, cluster, own),
            b_scales=None if self.b_scales is None else _word(self.b_scales, cluster, own),
            adds_d=bool(registers[number][lane]) != is_negated,
            d_shift=self.d_shift,
            disabled=tuple(int(registers[mask][lane]) for mask in self.disabled),
            metadata=None if self.metadata is None else _word(self.metadata, cluster, own),
        )
        try:
            product.begin(cluster)
        except RuleError as error:
            raise fault_of(error, lane) from None


def _word(address: AddressOf, cluster: Cluster, at: LaneNumbers) -> int:
    return int(address(cluster, at)[0]) & 0xFFFF_FFFF


@lru_cache(maxsize=_CACHED_LAYOUTS)
def _descriptor(word: int, kind: str) -> InstructionDescriptor:
    return InstructionDescriptor.decode(word, kind)


class Uses(NamedTuple):
    """The cells of one block's tensor memory that a product touches."""

    rank: int
    d: Places
    read: Places  # A, its metadata and the scale factors


class TensorProduct(NamedTuple):
    """A tcgen05.mma under way."""

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

    # What it touches ---------------------------------------------------------------------------------------------------

    @property
    def k(self) -> int:
        """Elements of k that it multiplies: a sparse A has twice as many as are stored."""
        return 2 * self.descriptor.k if self.form.sparse else self.descriptor.k

    @property
    def own_m(self) -> int:
        """Rows of one block."""
        return self.descriptor.m // len(self.ranks)

    @property
    def d_key(self) -> DKey:
        """What says where D lies."""
        word = self.descriptor
        return DKey(word.m, word.n, word.d_type.name, self.form.cta_group, self.form.ws, self.d, self.form.sparse)

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
        if cluster.order is not None:
            self._tell_order(cluster)

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
            known = ", ".join(self.descriptor.forms)
            reason = f"m {self.descriptor.m}, n {self.descriptor.n} with .{form}; such a descriptor belongs to {known}"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, self.lane)
        if self.descriptor.sparse != self.form.sparse:
            reason = "an instruction descriptor of a sparse A, with an instruction without .sp"
            if self.form.sparse:
                reason = "tcgen05.mma.sp with an instruction descriptor of a dense A"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, self.lane)
        if self.form.sparse:
            self._require_sparse()

    def _require_sparse(self) -> None:
        """A fault where documents do not say what a sparse product reads."""
        if self.descriptor.sparsity_selector > 1:
            reason = f"sparsity selector {self.descriptor.sparsity_selector}: documents speak of the columns of 0 and 1 alone"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, self.lane)
        if (
            self.descriptor.b_major == "K"
            and Tcgen05Descriptor.decode(self.b_word).swizzle.span_bytes == _HALF_OF_B_BYTES
        ):
            reason = "a K-major B of 64 bytes in a 32B swizzle: no document says where its second half lies"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, self.lane)
        _metadata_cells(self._metadata_key())

    def _tell_order(self, cluster: Cluster) -> None:
        assert cluster.order is not None
        tensor = cluster.order.tensor
        for rank in self.ranks:
            for read, word in self._smem_reads():
                addresses = smem_places(read, word, self.lane).addresses
                tensor.read_shared("tcgen05.mma", self.lane, rank, addresses, read.stored_bytes)
        d = np.unique(accumulator_places(self.d_key))
        reads = [self._tmem_reads()] * len(self.ranks)
        tensor.multiply(
            self.lane,
            [Uses(rank, d, read) for rank, read in zip(self.ranks, reads, strict=True)],
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
            parts.append(_a_cells(self._a_key()).cells.reshape(-1))
        if self.metadata is not None:
            parts.append(_metadata_cells(self._metadata_key()).cells.reshape(-1))
        scales = self.form.scales(self.descriptor.k)
        if self.a_scales is not None and self.b_scales is not None:
            parts.append(_scale_cells(self._scale_key("A", scales)).reshape(-1))
            parts.append(_scale_cells(self._scale_key("B", scales)).reshape(-1))
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    # What it does ------------------------------------------------------------------------------------------------------

    def _perform(self, cluster: Cluster) -> None:
        """Multiply: the rows of all blocks by all columns of B in one sum."""
        places = accumulator_places(self.d_key)
        b = np.concatenate([self._smem_operand(cluster, rank, "B") for rank in self.ranks])
        before = np.concatenate([self._before(cluster, rank, places) for rank in self.ranks])
        a = [
            np.concatenate(parts) for parts in zip(*[self._a_copies(cluster, rank) for rank in self.ranks], strict=True)
        ]
        scales = self._scales(cluster)
        nibbles = self._nibbles(cluster)
        parts = max(len(a), len(nibbles))  # lanes of another part of n read copies of A and its metadata of their own
        width = self.descriptor.n // parts
        sums = []
        for number in range(parts):
            columns = slice(number * width, (number + 1) * width)
            copy = a[number % len(a)]
            own_nibbles = nibbles[number % len(nibbles)] if nibbles else None
            own_scales = _columns_of(scales, columns)
            own_before = before[:, columns]
            sums.append(self._summed(cluster, copy, b[columns], own_before, scales=own_scales, nibbles=own_nibbles))
        d = np.concatenate(sums, axis=1)
        for index, rank in enumerate(self.ranks):
            self._write(cluster, index, rank, places, d[index * self.own_m : (index + 1) * self.own_m])

    def _summed(
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
                "arithmetic": arithmetic_of(cluster.launch.arch, f"tcgen05.{word.mma_kind}", word.a_type.name),
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
            [summed(slice(number * step, (number + 1) * step), one) for number, one in enumerate(scales)]
        )

    def _nibbles(self, cluster: Cluster) -> list[Nibbles]:
        """The metadata of all rows: every copy that lies in tensor memory; none of a dense A."""
        if self.metadata is None:
            return []
        placed = _metadata_cells(self._metadata_key())
        mask = np.uint32((1 << placed.element_bits) - 1)
        of_blocks = [cluster.tensor_memory.cells[rank][placed.cells] >> placed.bits & mask for rank in self.ranks]
        entries = np.concatenate(of_blocks).astype(np.uint8)  # (rows, k, copies)
        copies = [np.ascontiguousarray(entries[..., copy]) for copy in range(entries.shape[-1])]
        return [nibbles_of_entries(copy, self._held_type) for copy in copies]

    def _metadata_key(self) -> AKey:
        assert self.metadata is not None
        word = self.descriptor
        # An even column and the selector; kinds without a choice have both columns.
        address = self.metadata + word.sparsity_selector
        return AKey(word.m, self.k, self._held_type.name, self.form.cta_group, self.form.ws, address, sparse=True)

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

    # Operands ----------------------------------------------------------------------------------------------------------

    def _smem_operand(self, cluster: Cluster, rank: int, operand: Literal["A", "B"]) -> Codes:
        """The codes of an operand in one block's shared memory, (rows, k), its signs turned where they are negated."""
        word = self.descriptor
        is_a = operand == "A"
        read = self.a_read if is_a else self.b_read
        smem_word = self.a_word if is_a else self.b_word
        stored = stored_codes(cluster, read, smem_word, rank, self.lane)
        if cluster.costs is not None:
            note_operand(cluster, operand, read, smem_word, rank)
        element = word.a_type if is_a else word.b_type
        if self.form.kind.is_dense_4_bit:
            stored = unpacked(stored.astype(np.uint8), element.bits)
        elif element.bits < 8:
            stored = padded_codes(stored.astype(np.uint8), element.bits)
        return _negated(stored, element, word.negate_a if is_a else word.negate_b)

    def _a_copies(self, cluster: Cluster, rank: int) -> list[Codes]:
        """A of one block: once, or every copy of it that lies in tensor memory."""
        if self.a_tmem is None:
            return [self._smem_operand(cluster, rank, "A")]
        element = self.descriptor.a_type
        placed = _a_cells(self._a_key())
        cells = cluster.tensor_memory.cells[rank][placed.cells]  # (rows, k, copies)
        codes = cells >> placed.bits & np.uint32((1 << placed.element_bits) - 1)
        narrow = (codes >> np.uint32(placed.lowest_bit)).astype(f"u{max(1, element.bits // 8)}")
        negated = _negated(narrow, element, self.descriptor.negate_a)
        return [np.ascontiguousarray(negated[..., copy]) for copy in range(negated.shape[-1])]

    def _a_key(self) -> AKey:
        assert self.a_tmem is not None
        word = self.descriptor
        form = self.form
        return AKey(word.m, word.k, self._held_type.name, form.cta_group, form.ws, self.a_tmem, form.sparse)

    @property
    def _held_type(self) -> DataType:
        """The type of A as tensor memory holds it: narrow elements may have bytes of their own."""
        element = self.descriptor.a_type
        if self.form.kind.name in _PADDED_KINDS and element.bits < 8:
            return DataType.named(_PADDED_TYPES[element.bits])
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
        read = cells[_scale_cells(self._scale_key(operand, scales), in_bytes=True)]  # (rows, copies, scales)
        if operand == "B":
            return [np.ascontiguousarray(read[:, copy]) for copy in range(read.shape[1])]
        own_quarter = np.arange(len(read)) // QUARTER_LANES % read.shape[1]
        return [np.ascontiguousarray(read[np.arange(len(read)), own_quarter])]


def _columns_of(scales: list[ScaleFactors] | None, columns: slice) -> list[ScaleFactors] | None:
    """The factors of some columns of B."""
    if scales is None:
        return None
    return [one._replace(b=one.b[columns]) for one in scales]


def _negated(codes: Codes, element: DataType, is_negated: bool) -> Codes:
    if not is_negated:
        return codes
    turned: Codes = codes ^ codes.dtype.type(1 << element.bits - 1)
    return turned


def _element_bits(element: DataType, kind: Tcgen05Kind) -> int:
    """Bits that are read as one: an element, or the byte that it has, or that two of 4 bits share."""
    return 4 if kind.is_dense_4_bit else max(8, element.bits)


# Where matrices lie ------------------------------------------------------------------------------------------------------


class DKey(NamedTuple):
    """A D: shape, type, form of the instruction, and its address word."""

    m: int
    n: int
    data_type: str
    cta_group: int
    ws: bool
    word: int
    sparse: bool = False  # whether its A is


class AKey(NamedTuple):
    """An A in tensor memory, or the metadata of one."""

    m: int
    k: int
    data_type: str
    cta_group: int
    ws: bool
    word: int
    sparse: bool = False


class ScaleKey(NamedTuple):
    """Scale factors in tensor memory: as many of every row, from byte `first` of its word on."""

    operand: Literal["A", "B"]
    rows: int
    m: int
    cta_group: int
    word: int
    first: int
    scales: int


class ACells(NamedTuple):
    """The cells of A, (rows, k, copies), and where in them its elements are."""

    cells: Places
    bits: npt.NDArray[np.uint32]
    element_bits: int
    lowest_bit: int  # of the element in its container


def _cells_of(bit_addresses: npt.NDArray[np.int64]) -> Places:
    """Lane * 512 + column of bit addresses."""
    return np.asarray(bit_addresses // LANE_BITS * TMEM_COLUMNS + bit_addresses % LANE_BITS // CELL_BITS)


@lru_cache(maxsize=_CACHED_LAYOUTS)
def accumulator_places(key: DKey) -> Places:
    """The cells of D, (rows of a block, n)."""
    layout = tmem_layout(
        (key.m, key.n),
        data_type=key.data_type,
        cta_group=key.cta_group,
        ws=key.ws,
        sparse=key.sparse,
        address=key.word,
    )
    return _cells_of(layout.bit_addresses()[..., 0])


@lru_cache(maxsize=_CACHED_LAYOUTS)
def _a_cells(key: AKey) -> ACells:
    layout = tmem_layout(
        (key.m, key.k),
        operand="A",
        data_type=key.data_type,
        cta_group=key.cta_group,
        ws=key.ws,
        sparse=key.sparse,
        address=key.word,
    )
    addresses = layout.bit_addresses()
    lowest_bit = 0
    for spread in DECOMPRESSIONS.values():
        if key.data_type == _PADDED_TYPES.get(spread.bits):
            lowest_bit = spread.lowest_bit
    return ACells(_cells_of(addresses), (addresses % CELL_BITS).astype(np.uint32), layout.element_bits, lowest_bit)


@lru_cache(maxsize=_CACHED_LAYOUTS)
def _metadata_cells(key: AKey) -> ACells:
    """The cells of metadata: an entry for every element of k."""
    layout = tmem_layout(
        (key.m, key.k),
        operand="metadata",
        data_type=key.data_type,
        cta_group=key.cta_group,
        ws=key.ws,
        address=key.word,
    )
    addresses = layout.bit_addresses()
    return ACells(_cells_of(addresses), (addresses % CELL_BITS).astype(np.uint32), layout.element_bits, 0)


@lru_cache(maxsize=_CACHED_LAYOUTS)
def _scale_cells(key: ScaleKey, *, in_bytes: bool = False) -> Places:
    """The cells (or their bytes) of scale factors, (rows, copies, scales).

    Those of k = 96 run on into the next word, as many columns further on as `scale_layout` puts it there.
    """
    layout = scale_layout(key.rows, 64, "nvfp4")  # the places of words do not depend on the format
    placed = layout.tensor_memory(key.operand, m=key.m, cta_group=key.cta_group).bit_addresses()[: key.rows, 0]
    first_column = key.word & COLUMN_MASK
    first_lane = key.word >> LANE_SHIFT
    lane = placed // LANE_BITS + first_lane
    column = placed % LANE_BITS // CELL_BITS + first_column
    further, byte = np.divmod(key.first + np.arange(key.scales), _WORD_BYTES)
    word_columns = layout.columns_per_word(key.operand, m=key.m, cta_group=key.cta_group)
    columns = column[..., None] + further * word_columns
    if int(columns.max()) >= TMEM_COLUMNS or int(lane.max()) >= TMEM_LANES:
        reason = f"scale factors of {key.operand} reach column {int(columns.max())} of tensor memory"
        raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, None, key.word)
    cells = lane[..., None] * TMEM_COLUMNS + columns
    return np.asarray(cells * _WORD_BYTES + byte if in_bytes else cells)


# Decoding ----------------------------------------------------------------------------------------------------------------


def decode_product(assembler: Assembler, instruction: Instruction, words: Words, cta_group: int) -> Step:
    """tcgen05.mma{.ws}.cta_group.kind…, what stands behind it."""
    sparse = words.flag("sp")
    if words.flag("ashift"):
        raise RefusedError(".ashift moves the rows of A down, and no document says which way that is")
    ws = words.flag("ws")
    kind = KINDS[words.required([f"kind::{name}" for name in KINDS], "kind").removeprefix("kind::")]
    is_scaled = words.flag("block_scale")
    scale_word = words.one_of(_SCALE_WORDS)
    words.without_effect()  # .collector: what is kept for the next product changes no value
    words.done()
    if is_scaled != kind.is_scaled:
        raise RefusedError(f"kind::{kind.name} {'needs' if kind.is_scaled else 'has no'} .block_scale")
    if kind.name == "mxf4nvf4" and scale_word is None:
        raise RefusedError("kind::mxf4nvf4 names its scale factors: .block16 or .block32")
    form = ProductForm(kind, cta_group, ws, scale_word, sparse)
    d, a, b, *rest = instruction.operands
    metadata = decode_address(assembler, rest.pop(0)) if sparse else None
    idesc = rest.pop(0)
    in_tmem = isinstance(a, Address)
    scale_addresses: list[AddressOf] = []
    if is_scaled:
        scale_addresses = [decode_address(assembler, one) for one in rest[:2]]
        rest = rest[2:]
    disabled: tuple[int, ...] = ()
    if rest and isinstance(rest[0], Vector):
        disabled = _masks(assembler, rest.pop(0), cta_group)
    adds_d = assembler.predicate(rest.pop(0))
    return Multiplication(
        form=form,
        d=decode_address(assembler, d),
        a_tmem=decode_address(assembler, a) if in_tmem else None,
        a_descriptor=None if in_tmem else assembler.source(a, "b64"),
        b_descriptor=assembler.source(b, "b64"),
        idesc=assembler.source(idesc, "b32"),
        adds_d=adds_d,
        a_scales=scale_addresses[0] if is_scaled else None,
        b_scales=scale_addresses[1] if is_scaled else None,
        disabled=disabled,
        d_shift=_d_shift(kind, rest) if not ws else 0,
        zero_mask=assembler.source(rest.pop(0), "b64") if ws and rest else None,
        metadata=metadata,
    ).issue


def _masks(assembler: Assembler, vector: Operand, cta_group: int) -> tuple[int, ...]:
    masks = tuple(assembler.source(one, "b32") for one in assembler.vector(vector))
    if len(masks) != 4 * cta_group:
        raise RefusedError(
            f"disable-output-lane has {4 * cta_group} masks with cta_group::{cta_group}, not {len(masks)}"
        )
    return masks


def _d_shift(kind: Tcgen05Kind, operands: list[Operand]) -> int:
    """scale-input-d, 0 to 15, of kinds f16 and tf32."""
    if not operands:
        return 0
    operand = operands.pop(0)
    if kind.name not in ("f16", "tf32") or not isinstance(operand, Immediate) or not 0 <= operand.value <= 15:
        raise RefusedError("scale-input-d is a constant from 0 to 15, with kind::f16 and kind::tf32")
    return operand.value
