"""wgmma: a warpgroup multiplies by a matrix in shared memory while its threads continue.

    wgmma.fence                      nothing to do: registers are read and written when the product is made
    wgmma.mma_async  D, A, B, …      issued: descriptors and scale-d are taken now, operands and D when it is performed
    wgmma.mma_async.sp  D, A, B, E, …  half of A, and its metadata from a register of every thread
    wgmma.commit_group               what was issued becomes a group
    wgmma.wait_group N               all groups but the N newest are performed, in their order

Measured on an H200: the bits of a descriptor that belong to no field are not looked at; that of the first warp counts for
all four; an operand that is outside of the block's shared memory is an illegal address (addresses do not wrap at 2**18), and a
warpgroup without one of its warps an illegal instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.data_type import DataType
from tilescope.layout import Major
from tilescope.machine.cluster import Cluster
from tilescope.machine.decoding.operand_shape import ReadShape
from tilescope.machine.execution.collective import Collective
from tilescope.machine.execution.fault import ILLEGAL_ADDRESS, ILLEGAL_INSTRUCTION, OPERAND_FIX, KernelFaultError
from tilescope.machine.execution.pending import Work
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.instructions.tensor_core.compiled_product import (
    CodesOfGroups,
    RegistersOfGroups,
    is_compiled,
    multiply_groups,
)
from tilescope.machine.instructions.tensor_core.metadata_operand import MetadataOperand, metadata_operand
from tilescope.machine.instructions.tensor_core.mma import Product, decode_product
from tilescope.machine.instructions.tensor_core.register_tile import Elements, LaneGroups, RegisterTile, lane_groups
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import RefusedError, Turn
from tilescope.mma.descriptor_form import WGMMA_FORM
from tilescope.mma.mma_instruction import WGMMA_M
from tilescope.mma.operand_descriptor import WgmmaDescriptor
from tilescope.ptx.syntax import Immediate, Instruction, Operand, Vector
from tilescope.sentence import counted
from tilescope.swizzle import SWIZZLE
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import GroupCommit, GroupWait, OperandRead, WgmmaFence, WgmmaIssued, WgmmaOperand
from tilescope.sync.footprint import CellNumbers

WARPGROUP_LANES = 128
WARPGROUP_WARPS = WARPGROUP_LANES // WARP_LANES
_START = WGMMA_FORM.word.field("start_address")
_PATTERN_BYTES = max(row.repeat_bytes for row in SWIZZLE.values())  # addresses this far apart have the same swizzle
_HIGH_START_MASK = _START.mask & ~_START.place(_PATTERN_BYTES - 1)
_ALL_BITS = (1 << 64) - 1
_UNUSED_MASK = sum(1 << bit for bit in WGMMA_FORM.word.reserved_ones(_ALL_BITS))
_CACHED_READS = 512

Descriptors = npt.NDArray[np.uint64]


class SmemRead(NamedTuple):
    """How an instruction reads one operand from shared memory, for any start of its descriptor."""

    operand: Literal["A", "B"]
    rows: int  # of m or n
    k: int
    element_bits: int
    major: Major
    sign_mask: int  # of an element that is negated; 0: it is not

    @property
    def shape(self) -> ReadShape:
        """The operand before its signs are applied."""
        return ReadShape(self.operand, self.rows, self.k, self.element_bits, self.major)

    @property
    def stored_bytes(self) -> int:
        """Bytes that are read as one: an element, or those that hold eight bits."""
        return max(1, self.element_bits // 8)

    def matrices(self, cluster: Cluster, first_lanes: LaneNumbers, descriptors: Descriptors) -> Elements:
        """The codes that the descriptors of warpgroups read: (groups, rows, k)."""
        words = list(dict.fromkeys(descriptors.tolist()))
        if len(words) == 1:
            return self._same_matrix(cluster, first_lanes, words[0])
        masks = [descriptors == np.uint64(word) for word in words]
        matrices_of_words = [
            self._same_matrix(cluster, first_lanes[is_own], word) for word, is_own in zip(words, masks, strict=True)
        ]
        codes = np.empty((len(descriptors), *matrices_of_words[0].shape[1:]), matrices_of_words[0].dtype)
        for is_own, matrices in zip(masks, matrices_of_words, strict=True):
            codes[is_own] = matrices
        return codes

    def smem_operand(self, cluster: Cluster, lane: int, word: int) -> WgmmaOperand:
        """The operand that a descriptor of a lane's warpgroup names."""
        first_byte = lane // cluster.block_lanes * cluster.shared_stride
        return WgmmaOperand(OperandBytes(self, word, first_byte, first_byte + cluster.shared_stride), self, word)

    def _same_matrix(self, cluster: Cluster, first_lanes: LaneNumbers, word: int) -> Elements:
        """The codes that one descriptor reads, in the block of each warpgroup."""
        ranks = first_lanes // cluster.block_lanes
        places, base = self._reach(cluster, int(first_lanes[0]), word)
        stored = cluster.shared.view(f"u{self.stored_bytes}").reshape(cluster.blocks, -1)
        units = places.units + base // self.stored_bytes
        if (ranks == np.arange(len(ranks))).all():
            codes: Elements = stored[: len(ranks)].take(units.ravel(), axis=1).reshape(len(ranks), *units.shape)
        else:
            codes = stored[ranks[:, None, None], units]
        return self._apply_signs(codes)

    def codes(self, cluster: Cluster, first_lanes: LaneNumbers, word: int, data_type: DataType) -> CodesOfGroups:
        """What one descriptor reads in the blocks of warpgroups, as the compiled loop takes it."""
        _, base = self._reach(cluster, int(first_lanes[0]), word)
        stored = cluster.shared.view(f"u{self.stored_bytes}").reshape(cluster.blocks, -1)
        own_places = _loop_places(self, word & ~(_HIGH_START_MASK | _UNUSED_MASK), base // self.stored_bytes)
        return CodesOfGroups(stored, first_lanes // cluster.block_lanes, own_places, self.sign_mask, data_type)

    def _apply_signs(self, codes: Elements) -> Elements:
        """Codes as in registers, negated if the instruction has a negative scale."""
        if self.element_bits == 1:
            codes = codes.view(np.uint32)
        return codes ^ codes.dtype.type(self.sign_mask) if self.sign_mask else codes

    def announce(self, cluster: Cluster, first_lanes: LaneNumbers, descriptors: Descriptors) -> None:
        """Emit what warpgroups read; a fault where one of them reads past the end of shared memory."""
        for word in dict.fromkeys(descriptors.tolist()):
            reading_lanes = first_lanes[descriptors == np.uint64(word)]
            self._reach(cluster, int(reading_lanes[0]), word)
            for lane in cluster.select_heard_lanes(reading_lanes).tolist() if cluster.bus.is_heard else ():
                self._announce(cluster, lane, word)

    def _announce(self, cluster: Cluster, lane: int, word: int) -> None:
        """Emit that the block of a lane is read."""
        places, base = self._reach(cluster, lane, word)
        rank = lane // cluster.block_lanes
        first_byte = rank * cluster.shared_stride
        first_element = base + int(places.units[0, 0]) * self.stored_bytes
        read_bytes = OperandBytes(self, word, first_byte, first_byte + cluster.shared_stride)
        cluster.emit(OperandRead(cluster.pc, self.shape, rank, word, first_element, read_bytes))

    def _reach(self, cluster: Cluster, lane: int, word: int) -> tuple[_Places, int]:
        """Where a descriptor reads, from which byte of shared memory on; a fault where that is past its end."""
        places = _places(self, word & ~(_HIGH_START_MASK | _UNUSED_MASK))
        base = _START.extract(word & _HIGH_START_MASK)
        held_bytes = cluster.launch.shared_end
        if base + places.end > held_bytes:
            address = base + places.end - self.stored_bytes
            reached = f"operand {self.operand} reaches shared address {address:#x}"
            reason = f"{reached}, but shared memory of a block ends at {held_bytes:#x}"
            raise KernelFaultError(ILLEGAL_ADDRESS, reason, lane, address, fix=OPERAND_FIX)
        return places, base


@dataclass(frozen=True, slots=True, eq=False)
class OperandBytes:
    """The bytes that a descriptor reads from one block: a footprint."""

    read: SmemRead
    word: int
    first_byte: int  # of the block, in the cluster's shared memory
    end_byte: int

    def cells(self, cell_bytes: int) -> CellNumbers:
        """The cells that hold any of the bytes, each once; none where the operand runs past the block: it faults."""
        plain = self.word & ~(_HIGH_START_MASK | _UNUSED_MASK)
        base = self.first_byte + _START.extract(self.word & _HIGH_START_MASK)
        cells = _cells_of(self.read, plain, cell_bytes)
        if base + _places(self.read, plain).end > self.end_byte:
            return cells[:0]
        return cells + base // cell_bytes


def operand_bytes(read: SmemRead, descriptor: int) -> npt.NDArray[np.int64]:
    """The first byte of everything that an operand is read from, in the block's shared memory; `stored_bytes` each."""
    places = _places(read, descriptor & ~(_HIGH_START_MASK | _UNUSED_MASK))
    return places.units.ravel() * read.stored_bytes + _START.extract(descriptor & _HIGH_START_MASK)


class _Places(NamedTuple):
    """Where elements are stored, in units of what is read as one, from the start of the swizzle's pattern on."""

    units: npt.NDArray[np.int64]
    end: int  # the first byte after them


@lru_cache(maxsize=_CACHED_READS)
def _places(read: SmemRead, word: int) -> _Places:
    """The places that a descriptor reads whose start is in the first pattern of shared memory."""
    descriptor = WgmmaDescriptor.decode(word)
    addresses = descriptor.addresses(read.major, read.rows, read.k, read.element_bits)
    if read.element_bits == 1:
        addresses = np.ascontiguousarray(addresses[:, ::8])
    units = addresses // read.stored_bytes
    return _Places(units, (int(units.max()) + 1) * read.stored_bytes)


@lru_cache(maxsize=_CACHED_READS)
def _loop_places(read: SmemRead, word: int, first_unit: int) -> npt.NDArray[np.uint32]:
    """Those places as the compiled loop takes them: A by rows, B by columns, from a unit of shared memory on."""
    units = _places(read, word).units
    in_order = units if read.operand == "A" else units.T
    return (np.ascontiguousarray(in_order).ravel() + first_unit).astype(np.uint32)


@lru_cache(maxsize=_CACHED_READS)
def _cells_of(read: SmemRead, word: int, cell_bytes: int) -> CellNumbers:
    """The cells of those places, from the start of the swizzle's pattern on."""
    places = _places(read, word)
    per_unit = max(1, read.stored_bytes // cell_bytes)
    first = places.units * read.stored_bytes // cell_bytes
    return np.unique(first.ravel()[:, None] + np.arange(per_unit))


def warpgroups_of(cluster: Cluster, at: Lanes) -> LaneGroups:
    """The warpgroups that some lanes belong to; one without all of its four warps is a fault."""
    if isinstance(at, slice) and cluster.block_lanes % WARPGROUP_LANES == 0:
        return lane_groups(cluster, at, WARPGROUP_LANES)
    lanes = cluster.lanes(at)
    if len(lanes) and cluster.block_lanes % WARPGROUP_LANES == 0 and len(lanes) % WARPGROUP_LANES == 0:
        ends = lanes.reshape(-1, WARPGROUP_LANES)[:, [0, -1]]
        if not (ends[:, 0] % WARPGROUP_LANES).any() and (ends[:, 1] - ends[:, 0] == WARPGROUP_LANES - 1).all():
            is_run = int(lanes[-1]) - int(lanes[0]) == len(lanes) - 1  # whole ones, as nearly always: lanes ascend
            return LaneGroups(slice(int(lanes[0]), int(lanes[-1]) + 1) if is_run else lanes, len(ends))
    group_of_lane = cluster.grouping(WARPGROUP_LANES).of_lane
    warps = np.unique(lanes // WARP_LANES)
    groups, warp_counts = np.unique(group_of_lane[warps * WARP_LANES], return_counts=True)
    if (warp_counts < WARPGROUP_WARPS).any():
        group = int(groups[np.argmax(warp_counts < WARPGROUP_WARPS)])
        lane = int(lanes[np.argmax(group_of_lane[lanes] == group)])
        count = counted(int(warp_counts[groups == group][0]), "warp")
        reason = f"wgmma is executed by the four warps of a warpgroup together, and only {count} of this one reached it"
        raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, lane)
    return lane_groups(cluster, lanes, WARPGROUP_LANES)


class Multiplication(NamedTuple):
    """One wgmma.mma_async as it was decoded; registers by number."""

    product: Product
    d_tile: RegisterTile
    d: tuple[int, ...]
    a_tile: RegisterTile
    a: tuple[int, ...]  # the fragment; empty if A is in shared memory
    a_descriptor: int
    a_read: SmemRead
    b_descriptor: int
    b_read: SmemRead
    scale_d: tuple[int, bool]  # a predicate, and whether it is negated
    metadata: MetadataOperand | None = None  # of a sparse A

    @property
    def read_registers(self) -> tuple[int, ...]:
        """The operands that are read when the product is computed, except D."""
        return self.a if self.metadata is None else (*self.a, self.metadata.register)

    def a_codes(self, cluster: Cluster, groups: LaneGroups, own: LaneNumbers) -> CodesOfGroups:
        """A of some of the warpgroups, from registers, as the compiled loop takes it."""
        codes = self.a_tile.gathered(cluster, self.a, groups).reshape(groups.group_count, -1)
        return CodesOfGroups(
            codes, own, np.arange(codes.shape[1], dtype=np.uint32), self.a_read.sign_mask, self.product.a_type
        )

    def issue(self, cluster: Cluster, at: Lanes) -> None:
        """Take what does not wait, and leave the rest to be done later."""
        groups = warpgroups_of(cluster, at)
        first_lanes = groups.lane_numbers(cluster)[::WARPGROUP_LANES]
        number, is_negated = self.scale_d
        cluster.require_alike((self.a_descriptor, self.b_descriptor, number), first_lanes)
        issued = Issued(
            self,
            cluster.pc,
            first_lanes,
            cluster.registers[self.a_descriptor][first_lanes].astype(np.uint64),
            cluster.registers[self.b_descriptor][first_lanes].astype(np.uint64),
            cluster.registers[number][first_lanes].astype(np.bool_) ^ is_negated,
        )

        def perform(lanes: LaneNumbers) -> None:
            issued.in_all_blocks(cluster).perform(cluster.whole, cluster.in_all_blocks(lanes))

        registers = frozenset((*self.d, *self.read_registers))
        if cluster.bus.is_heard:
            self._emit(cluster, issued)
        cluster.pending.add(Work("wgmma", cluster.pc, cluster.lanes(at), perform, registers=registers))

    def _emit(self, cluster: Cluster, issued: Issued) -> None:
        """The operands in shared memory, and the registers, of every warpgroup that multiplies."""
        open_groups = cluster.pending.open_groups["wgmma"]
        read_registers = self.read_registers
        used = frozenset((*read_registers, *self.d))
        for number, first_lane in enumerate(issued.first_lanes.tolist()):
            operands = [self.b_read.smem_operand(cluster, first_lane, int(issued.b_descriptors[number]))]
            if not self.a:
                operands.append(self.a_read.smem_operand(cluster, first_lane, int(issued.a_descriptors[number])))
            lanes = np.arange(first_lane, first_lane + WARPGROUP_LANES)
            read = used if issued.adds_d[number] else frozenset(read_registers)
            group = int(open_groups[first_lane])
            cluster.emit(WgmmaIssued(cluster.pc, lanes, tuple(operands), group, read, used))


class Issued(NamedTuple):
    """A pending wgmma.mma_async; entries are by warpgroup."""

    multiplication: Multiplication
    pc: int
    first_lanes: LaneNumbers
    a_descriptors: Descriptors
    b_descriptors: Descriptors
    adds_d: npt.NDArray[np.bool_]

    def in_all_blocks(self, cluster: Cluster) -> Issued:
        """The same of all blocks that follow the cluster."""
        first_lanes = cluster.lanes(cluster.in_all_blocks(self.first_lanes))
        blocks = len(first_lanes) // len(self.first_lanes)
        if blocks == 1:
            return self
        return Issued(
            self.multiplication,
            self.pc,
            first_lanes,
            np.tile(self.a_descriptors, blocks),
            np.tile(self.b_descriptors, blocks),
            np.tile(self.adds_d, blocks),
        )

    def perform(self, cluster: Cluster, lanes: Lanes) -> None:
        """Multiply for the warpgroups of some lanes: all of them by one sum."""
        waiting_pc = cluster.pc
        cluster.pc = self.pc  # the instruction that a fault names
        decoded = self.multiplication
        groups = warpgroups_of(cluster, lanes)
        own_first = groups.lane_numbers(cluster)[::WARPGROUP_LANES]
        chosen = np.searchsorted(self.first_lanes, own_first)
        if not decoded.a:
            decoded.a_read.announce(cluster, own_first, self.a_descriptors[chosen])
        decoded.b_read.announce(cluster, own_first, self.b_descriptors[chosen])
        if is_compiled(cluster, decoded.product):
            is_refused = self._multiply_compiled(cluster, groups, own_first, chosen)
            if is_refused.any():
                own_first, chosen = own_first[is_refused], chosen[is_refused]
                refused_lanes = (own_first[:, None] + np.arange(WARPGROUP_LANES)).ravel()
                self._multiply_arrays(cluster, LaneGroups(refused_lanes, len(own_first)), own_first, chosen)
        else:
            self._multiply_arrays(cluster, groups, own_first, chosen)
        cluster.pc = waiting_pc

    def _multiply_compiled(
        self, cluster: Cluster, groups: LaneGroups, first_lanes: LaneNumbers, chosen: LaneNumbers
    ) -> npt.NDArray[np.bool_]:
        """Multiply by the compiled loop, for warpgroups with equal descriptors at once. True for those that it refused."""
        decoded = self.multiplication
        is_refused = np.zeros(len(first_lanes), np.bool_)
        a_words = self.a_descriptors[chosen].tolist()
        b_words = self.b_descriptors[chosen].tolist()
        pairs = list(zip(a_words, b_words, strict=True))
        for pair in dict.fromkeys(pairs):
            members = np.array([number for number, other in enumerate(pairs) if other == pair])
            if decoded.a:
                a = decoded.a_codes(cluster, groups, members)
            else:
                a = decoded.a_read.codes(cluster, first_lanes[members], pair[0], decoded.product.a_type)
            b = decoded.b_read.codes(cluster, first_lanes[members], pair[1], decoded.product.b_type)
            d = RegistersOfGroups(decoded.d_tile, decoded.d, first_lanes[members], self.adds_d[chosen[members]])
            is_refused[members] = multiply_groups(cluster, decoded.product, a, b, d)
        return is_refused

    def _multiply_arrays(
        self, cluster: Cluster, groups: LaneGroups, own_first: LaneNumbers, chosen: LaneNumbers
    ) -> None:
        """Multiply arrays of the operands of all warpgroups."""
        decoded = self.multiplication
        if decoded.a:
            a = decoded.a_tile.gathered(cluster, decoded.a, groups)[:, 0]
            if decoded.a_read.sign_mask:
                a ^= a.dtype.type(decoded.a_read.sign_mask)
        else:
            a = decoded.a_read.matrices(cluster, own_first, self.a_descriptors[chosen])
        b = decoded.b_read.matrices(cluster, own_first, self.b_descriptors[chosen])
        before = decoded.d_tile.gathered(cluster, decoded.d, groups)[:, 0]
        before[~self.adds_d[chosen]] = 0
        if decoded.metadata is None:
            after = decoded.product.summed(cluster, a, b, before)
        else:
            nibbles = decoded.metadata.nibbles(cluster, groups)
            after = decoded.product.sparse_summed(cluster, a, b, before, nibbles)
        decoded.d_tile.fill(cluster, decoded.d, groups, after)


def _mma_async(assembler: Assembler, instruction: Instruction, words: Words) -> Turn:
    product = decode_product("wgmma", words)
    words.done()
    if product.bit_operation != "and":
        raise RefusedError("wgmma of bits has only .and.popc")
    metadata: MetadataOperand | None = None
    d_operand, a_operand, b_operand, *others = instruction.operands
    if product.row.is_sparse:
        if len(others) < 2:
            raise RefusedError("after B come the metadata and the sparsity selector")
        metadata = metadata_operand(assembler, product.name, product.a_type.name, *others[:2])
        others = others[2:]
    if not others:
        raise RefusedError("after the matrices comes scale-d")
    scale_operand, *options = others
    d_tile = RegisterTile(product.name, "D", product.d_type.name)
    a_tile = RegisterTile(product.name, "A", product.a_type.name)
    a_in_registers = isinstance(a_operand, Vector)
    chosen = _options(product, options, a_in_registers=a_in_registers)
    element_bits = product.a_type.smem_bits
    no_descriptor = assembler.constant(0, 64)
    multiplication = Multiplication(
        product=product,
        d_tile=d_tile,
        d=d_tile.targets(assembler, d_operand),
        a_tile=a_tile,
        a=a_tile.sources(assembler, a_operand) if a_in_registers else (),
        a_descriptor=no_descriptor if a_in_registers else assembler.source(a_operand, "b64"),
        a_read=SmemRead("A", WGMMA_M, product.row.a_k, element_bits, chosen.a_major, chosen.a_sign_mask),
        b_descriptor=assembler.source(b_operand, "b64"),
        b_read=SmemRead("B", product.n, product.row.k, element_bits, chosen.b_major, chosen.b_sign_mask),
        scale_d=assembler.predicate(scale_operand),
        metadata=metadata,
    )
    return Collective(multiplication.issue, group_lanes=WARPGROUP_LANES)


class _Options(NamedTuple):
    """The constants that end a wgmma.mma_async."""

    a_sign_mask: int = 0
    b_sign_mask: int = 0
    a_major: Major = "K"
    b_major: Major = "K"


def _options(product: Product, operands: list[Operand], *, a_in_registers: bool) -> _Options:
    """imm-scale-a, imm-scale-b (floats), then imm-trans-a unless A is in registers, and imm-trans-b (16 bits)."""
    names = []
    if product.a_type.is_float:
        names += ["imm-scale-a", "imm-scale-b"]
    if product.a_type.bits == 16:
        names += ["imm-trans-b"] if a_in_registers else ["imm-trans-a", "imm-trans-b"]
    if len(operands) != len(names):
        expected = ", ".join(["scale-d", *names])
        raise RefusedError(f"after the matrices come {expected}, not {len(operands) + 1} of these")
    numbers = {name: _constant(name, operand) for name, operand in zip(names, operands, strict=True)}
    sign_mask = 1 << product.a_type.bits - 1
    return _Options(
        a_sign_mask=sign_mask if numbers.get("imm-scale-a") == -1 else 0,
        b_sign_mask=sign_mask if numbers.get("imm-scale-b") == -1 else 0,
        a_major="MN" if numbers.get("imm-trans-a") == 1 else "K",
        b_major="MN" if numbers.get("imm-trans-b") == 1 else "K",
    )


def _constant(name: str, operand: Operand) -> int:
    allowed = (-1, 1) if name.startswith("imm-scale") else (0, 1)
    if not isinstance(operand, Immediate) or operand.value not in allowed:
        raise RefusedError(f"{name} is the constant {allowed[0]} or {allowed[1]}")
    return operand.value


def _fence(assembler: Assembler, instruction: Instruction, words: Words) -> Turn:
    _take_sync(words)

    def fence(cluster: Cluster, at: Lanes) -> None:
        """Registers are read and written when the product is computed: the fence orders only their accesses."""
        cluster.emit(WgmmaFence(cluster.pc, cluster.lanes(at)))

    return Collective(fence, group_lanes=WARPGROUP_LANES)


def _commit_group(assembler: Assembler, instruction: Instruction, words: Words) -> Turn:
    _take_sync(words)

    def commit(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        cluster.emit(GroupCommit(cluster.pc, lanes, "wgmma", cluster.pending.open_groups["wgmma"][lanes]))
        cluster.pending.commit("wgmma", lanes)

    return Collective(commit, group_lanes=WARPGROUP_LANES)


def _wait_group(assembler: Assembler, instruction: Instruction, words: Words) -> Turn:
    _take_sync(words)
    (operand,) = instruction.operands
    if not isinstance(operand, Immediate) or operand.value < 0:
        raise RefusedError("wgmma.wait_group takes a constant of 0 or more")
    newest = operand.value

    def wait(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        cluster.pending.wait_group("wgmma", lanes, newest)
        completed = cluster.pending.open_groups["wgmma"][lanes] - newest
        cluster.emit(GroupWait(cluster.pc, lanes, "wgmma", newest, only_read=False, completed=completed))

    return Collective(wait, group_lanes=WARPGROUP_LANES)


def _take_sync(words: Words) -> None:
    words.flag("sync")
    words.flag("aligned")
    words.done()


_ACTIONS = {"mma_async": _mma_async, "fence": _fence, "commit_group": _commit_group, "wait_group": _wait_group}


def _wgmma(assembler: Assembler, instruction: Instruction) -> Turn:
    words = Words(instruction)
    action = words.required(_ACTIONS, "mma_async, fence, commit_group or wait_group")
    return _ACTIONS[action](assembler, instruction, words)


FAMILIES: dict[str, Decoder] = {"wgmma": _wgmma}
