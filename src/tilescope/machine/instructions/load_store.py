"""Registers and memory: mov, ld, st, st.bulk, cvta, mapa, isspacep.

Registers hold unsigned words of their width. A load into a wider register is extended by its type; a store takes the
low bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tilescope.machine.cluster import Cluster
from tilescope.machine.cluster import Words as Values
from tilescope.machine.decoding.access_kind import access_kind
from tilescope.machine.execution.fault import ILLEGAL_ADDRESS, ILLEGAL_INSTRUCTION, KernelFaultError
from tilescope.machine.execution.special import CLOCKS, require_special
from tilescope.machine.instructions.modifiers import Words, require_target
from tilescope.machine.program import DTYPE_OF_BITS, Assembler, Decoder, require_kind
from tilescope.machine.step import RefusedError, Step, WordOperation, WordSource
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.ptx.syntax import (
    BITS_OF_TYPE,
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    SpecialRegister,
    Variable,
    Vector,
    named_variable,
    operand_text,
)
from tilescope.sentence import counted
from tilescope.sync.address import (
    PARAM_WINDOW,
    SHARED_OFFSET_MASK,
    SHARED_RANK_SHIFT,
    SHARED_WINDOW,
    WINDOW_BYTES,
    WINDOWS,
    Addresses,
    Space,
    is_in_window,
)
from tilescope.sync.cluster_shape import Lanes

AddressOf = Callable[[Cluster, Lanes], Addresses]
_PARTS = (2, 4)  # of a value that a mov joins or splits
_BULK_WORD_BYTES = 8  # that st.bulk writes at once
_ZERO = np.zeros(1, np.uint64)


def decode_address(assembler: Assembler, operand: Operand) -> AddressOf:
    """A function that gives the addresses of [base+offset] for some lanes."""
    number, offset = assembler.address(operand)

    def addresses(cluster: Cluster, at: Lanes) -> Addresses:
        base = cluster.registers[number][at].astype(np.int64)
        return base + offset if offset else base

    return addresses


def space_of(assembler: Assembler, operand: Operand, space: Space) -> Space:
    """The space of an access: the space of a named variable takes precedence (parameters of functions are local memory)."""
    if isinstance(operand, Address) and isinstance(operand.base, Variable):
        return assembler.space_of(operand.base)
    return space


def convert_word(values: Values, dtype: np.dtype[np.generic], *, is_signed: bool) -> Values:
    """Words as wide as a register: cut, or extended by the sign."""
    if values.dtype == dtype:
        return values
    if is_signed and values.dtype.itemsize < dtype.itemsize:
        signed = values.view(f"i{values.dtype.itemsize}").astype(f"i{dtype.itemsize}")
        return signed.view(dtype)
    return values.astype(dtype)


def _ld(assembler: Assembler, instruction: Instruction) -> Step:
    words = Words(instruction)
    space = space_of(assembler, instruction.operands[1], words.space())
    count = words.vector()
    words.without_effect()
    type_name = words.type()
    words.done()
    elements = assembler.vector(instruction.operands[0])
    bits = BITS_OF_TYPE[type_name]
    _require_registers(elements, count, bits)
    targets = [assembler.target(element) for element in elements]
    addresses = decode_address(assembler, instruction.operands[1])
    dtype = DTYPE_OF_BITS[min(bits, 64)]
    pieces = count * bits // (dtype.itemsize * 8)
    is_signed = type_name.startswith("s")
    is_counted = "const" not in instruction.modifiers  # constants have a separate cache
    cost = access_kind("ld", dtype.itemsize * pieces) if is_counted else None

    def load(cluster: Cluster, at: Lanes) -> None:
        places = addresses(cluster, at)
        loaded = cluster.load(space, at, places, dtype, pieces, cost=cost)
        if count == 1:
            _put(cluster, at, targets[0], loaded, is_signed=is_signed)
            return
        per_register = pieces // count
        for index, target in enumerate(targets):
            if per_register == 1:
                value = loaded[:, index]
            else:
                value = loaded[:, index * per_register : (index + 1) * per_register]
            _put(cluster, at, target, value, is_signed=is_signed)

    return load


def _require_registers(elements: Sequence[Operand], count: int, bits: int) -> None:
    """Refuse a load or store that has too few registers, or a register that is narrower than its element."""
    if len(elements) != count:
        raise RefusedError(f"{counted(count, 'register')} expected, not {len(elements)}")
    for element in elements:
        if isinstance(element, Register) and BITS_OF_TYPE[element.type] < bits:
            raise RefusedError(f"{element.name} has {BITS_OF_TYPE[element.type]} bits, and an element {bits}")


def _put(cluster: Cluster, at: Lanes, target: int | None, values: Values, *, is_signed: bool) -> None:
    if target is None:
        return
    register = cluster.registers[target]
    register[at] = values if values.ndim > 1 else convert_word(values, register.dtype, is_signed=is_signed)


def _st(assembler: Assembler, instruction: Instruction) -> Step:
    words = Words(instruction)
    space = space_of(assembler, instruction.operands[0], words.space())
    count = words.vector()
    words.without_effect()
    type_name = words.type()
    words.done()
    bits = BITS_OF_TYPE[type_name]
    dtype = DTYPE_OF_BITS[min(bits, 64)]
    elements = assembler.vector(instruction.operands[1])
    _require_registers(elements, count, bits)
    sources = [assembler.source(element, type_name) for element in elements]
    addresses = decode_address(assembler, instruction.operands[0])
    cost = access_kind("st", count * bits // 8)

    def store(cluster: Cluster, at: Lanes) -> None:
        if count == 1:
            value = cluster.registers[sources[0]][at]
            values = value if value.ndim > 1 else value.astype(dtype, copy=False)
        else:
            parts = [cluster.registers[source][at] for source in sources]
            join = np.concatenate if parts[0].ndim > 1 else _stack_typed
            values = join([part.astype(dtype, copy=False) for part in parts], axis=1)
        places = addresses(cluster, at)
        cluster.store(space, at, places, values, cost=cost)

    return store


def _store_bulk(assembler: Assembler, instruction: Instruction) -> Step:
    """st.bulk: zeros over a region of shared memory, in words of 8 bytes (documented, not measured)."""
    require_target(assembler.module, BLACKWELL, "st.bulk")
    words = Words(instruction)
    words.flag("bulk")
    space = space_of(assembler, instruction.operands[0], words.space())
    words.without_effect()
    words.done()
    if len(instruction.operands) != 3 or instruction.operands[2] != Immediate(0):
        raise RefusedError("st.bulk has an address, a size and the value 0")
    if space not in ("shared", "generic"):
        raise RefusedError("st.bulk writes shared memory")
    addresses = decode_address(assembler, instruction.operands[0])
    size = assembler.source(instruction.operands[1], "u64")

    def store(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        places = addresses(cluster, at)
        sizes = np.broadcast_to(cluster.registers[size][at].astype(np.int64), places.shape)
        _require_sizes(sizes, lanes)
        if space == "generic":
            is_shared = is_in_window("shared", places)
            if not is_shared.all():
                first = int(np.argmin(is_shared))
                reason = f"st.bulk to {int(places[first]):#x}, which is no address of shared memory"
                raise KernelFaultError(ILLEGAL_ADDRESS, reason, int(lanes[first]))
            places = places - SHARED_WINDOW
        for offset in range(0, int(sizes.max(initial=0)), _BULK_WORD_BYTES):
            chosen = np.flatnonzero(sizes > offset)
            cluster.store("shared", lanes[chosen], places[chosen] + offset, _ZERO.repeat(len(chosen)))

    return store


def _require_sizes(sizes: Addresses, lanes: Lanes) -> None:
    """A fault where a size is not a multiple of 8: the PTX ISA does not define it."""
    is_wrong = (sizes % _BULK_WORD_BYTES != 0) | (sizes < 0)
    if is_wrong.any():
        first = int(np.argmax(is_wrong))
        reason = f"st.bulk of {int(sizes[first])} bytes, which is not a multiple of {_BULK_WORD_BYTES}"
        raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, int(np.asarray(lanes)[first]))


def _stack_typed(parts: list[Values], axis: int) -> Values:
    return np.stack(parts, axis=axis)


def _mov(assembler: Assembler, instruction: Instruction) -> Step:
    target, source = instruction.operands
    words = Words(instruction)
    type_name = words.type()
    words.done()
    if isinstance(source, Vector):
        return _pack(assembler, target, source)
    if isinstance(target, Vector):
        return _unpack(assembler, target, source, type_name)
    if isinstance(target, Register):
        require_kind(target, type_name)
    number = assembler.written(target)
    if isinstance(source, SpecialRegister):
        require_special(source.name)
        if source.name in CLOCKS:
            return _read_clock(assembler, number)
    source_register = assembler.source(source, type_name)
    return _copy(assembler, number, source_register)


def _copy(assembler: Assembler, target: int, source: int) -> Step:
    target_dtype = assembler.dtype(target)
    bits = _bits_of(assembler.dtype(source))
    assembler.note_arithmetic(WordOperation("mov", (), (WordSource(source, bits),), (target,), (bits,)))
    if target_dtype == assembler.dtype(source):

        def move(cluster: Cluster, at: Lanes) -> None:
            cluster.registers[target][at] = cluster.registers[source][at]

        return move

    def move_converted(cluster: Cluster, at: Lanes) -> None:
        cluster.registers[target][at] = cluster.registers[source][at].astype(target_dtype)

    return move_converted


def _bits_of(dtype: np.dtype[np.generic]) -> int:
    """The bits of a register that compiled code can take; a predicate has one."""
    return 1 if dtype == np.bool_ else 8 * dtype.itemsize


def _read_clock(assembler: Assembler, target: int) -> Step:
    assembler.program.clock_reads.add(len(assembler.program.steps))

    def read(cluster: Cluster, at: Lanes) -> None:
        register = cluster.registers[target]
        register[at] = np.array(cluster.launch.clock(), np.uint64).astype(register.dtype)

    return read


def _pack(assembler: Assembler, target: Operand, source: Vector) -> Step:
    """mov.b32 %r, {%rs1, %rs2}: the first part is the lowest."""
    number = assembler.written(target)
    target_dtype = assembler.dtype(number)
    part_bits = _part_bits(source, target_dtype.itemsize * 8)
    parts = [assembler.source(element, f"b{part_bits}") for element in source.elements]
    part_dtype = DTYPE_OF_BITS[part_bits]
    words = tuple(WordSource(part, part_bits) for part in parts)
    assembler.note_arithmetic(WordOperation("pack", (), words, (number,), (_bits_of(target_dtype),)))

    def pack(cluster: Cluster, at: Lanes) -> None:
        stacked = np.stack([cluster.registers[part][at].astype(part_dtype) for part in parts], axis=1)
        packed = stacked.view(target_dtype.base)
        cluster.registers[number][at] = packed if target_dtype.shape else packed[:, 0]

    return pack


def _unpack(assembler: Assembler, target: Vector, source: Operand, type_name: str) -> Step:
    """mov.b32 {%rs1, %rs2}, %r."""
    part_dtype = DTYPE_OF_BITS[_part_bits(target, BITS_OF_TYPE[type_name])]
    targets = [assembler.target(element) for element in target.elements]
    number = assembler.source(source, type_name)
    source_bits = 8 * assembler.dtype(number).itemsize
    if source_bits != BITS_OF_TYPE[type_name]:
        raise RefusedError(f"{operand_text(source)} has {source_bits} bits, where {BITS_OF_TYPE[type_name]} are split")
    part_bits = (_bits_of(part_dtype),) * len(targets)
    words = (WordSource(number, source_bits),)
    assembler.note_arithmetic(WordOperation("unpack", (), words, tuple(targets), part_bits))

    def unpack(cluster: Cluster, at: Lanes) -> None:
        values = np.ascontiguousarray(cluster.registers[number][at])
        parts = values.view(part_dtype).reshape(len(values), len(targets))
        for index, part in enumerate(targets):
            _put(cluster, at, part, parts[:, index], is_signed=False)

    return unpack


def _part_bits(vector: Vector, total_bits: int) -> int:
    """The bits of each of the two or four equal parts that a mov joins or splits."""
    parts = len(vector.elements)
    bits = total_bits // parts if parts in _PARTS else 0
    if f"b{bits}" not in BITS_OF_TYPE:
        raise RefusedError(f"a mov joins or splits 2 or 4 equal parts, not {parts} of {total_bits} bits")
    for element in vector.elements:
        if isinstance(element, Register) and BITS_OF_TYPE[element.type] != bits:
            raise RefusedError(f"{element.name} has {BITS_OF_TYPE[element.type]} bits, and a part {bits}")
    return bits


def _cvta(assembler: Assembler, instruction: Instruction) -> Step:
    """cvta.shared: to a generic address; cvta.to.shared: back.

    Parameters have one window for both; an address of theirs that went through 32 bits gets it back.
    """
    words = Words(instruction)
    is_back = words.flag("to")
    space = words.space()
    words.type()
    words.done()
    target = assembler.written(instruction.operands[0])
    written = instruction.operands[1]
    source = assembler.source(written, "u64")
    variable = named_variable(written)
    if variable is not None:
        space = assembler.space_of(variable)
    target_dtype = assembler.dtype(target)
    if space == "param":

        def convert_parameter(cluster: Cluster, at: Lanes) -> None:
            offset = cluster.registers[source][at].astype(np.int64) & (WINDOW_BYTES - 1)
            cluster.registers[target][at] = (PARAM_WINDOW + offset).astype(target_dtype)

        return convert_parameter
    window = WINDOWS.get(space, 0)
    shift = -window if is_back else window

    def convert(cluster: Cluster, at: Lanes) -> None:
        address = cluster.registers[source][at].astype(np.int64) + shift
        cluster.registers[target][at] = address.astype(target_dtype)

    return convert


def _mapa(assembler: Assembler, instruction: Instruction) -> Step:
    """The address of the same variable in another block of the cluster."""
    shared = _shared_address(assembler, instruction)
    rank = assembler.source(instruction.operands[2], "u32")
    target_dtype = assembler.dtype(shared.target)

    def map_address(cluster: Cluster, at: Lanes) -> None:
        offset = shared.in_window(cluster, at) & SHARED_OFFSET_MASK
        address = (cluster.registers[rank][at].astype(np.int64) << SHARED_RANK_SHIFT) + offset + shared.window
        cluster.registers[shared.target][at] = address.astype(target_dtype)

    return map_address


def _getctarank(assembler: Assembler, instruction: Instruction) -> Step:
    """The rank of the block whose shared memory an address is in."""
    shared = _shared_address(assembler, instruction)

    def rank(cluster: Cluster, at: Lanes) -> None:
        ranks = shared.in_window(cluster, at) >> SHARED_RANK_SHIFT
        cluster.registers[shared.target][at] = ranks.astype(np.uint32)

    return rank


class _SharedAddress(NamedTuple):
    """A shared address that an instruction reads, and the register that gets what is made of it."""

    target: int
    source: int
    window: int  # where shared memory begins among generic addresses; 0: the address is no generic one

    def in_window(self, cluster: Cluster, at: Lanes) -> Addresses:
        """The addresses from the window's beginning on."""
        return cluster.registers[self.source][at].astype(np.int64) - self.window


def _shared_address(assembler: Assembler, instruction: Instruction) -> _SharedAddress:
    words = Words(instruction)
    space = words.space()
    words.type()
    words.done()
    target = assembler.written(instruction.operands[0])
    source = assembler.source(instruction.operands[1], "u64")
    return _SharedAddress(target, source, SHARED_WINDOW if space == "generic" else 0)


def _isspacep(assembler: Assembler, instruction: Instruction) -> Step:
    """Whether a generic address is in a window; shared::cta means that of the lane's block."""
    is_own = "shared::cta" in instruction.modifiers or "shared" in instruction.modifiers
    words = Words(instruction)
    space = words.space()
    words.done()
    target = assembler.written(instruction.operands[0])
    source = assembler.source(instruction.operands[1], "u64")

    def is_in_space(cluster: Cluster, at: Lanes) -> None:
        address = cluster.registers[source][at].astype(np.int64)
        inside = {name: is_in_window(name, address) for name in WINDOWS}
        if space == "global":
            result = ~(inside["shared"] | inside["local"] | inside["param"])
        else:
            result = inside[space]
        if space == "shared" and is_own:
            ranks = cluster.block_of_lane[at]
            result = result & ((address - SHARED_WINDOW) >> SHARED_RANK_SHIFT == ranks)
        cluster.registers[target][at] = result

    return is_in_space


def _createpolicy(assembler: Assembler, instruction: Instruction) -> Step:
    """A cache policy: a word that changes no value."""
    target = assembler.written(instruction.operands[0])

    def create(cluster: Cluster, at: Lanes) -> None:
        cluster.registers[target][at] = 0

    return create


FAMILIES: dict[str, Decoder] = {
    "ld": _ld,
    "ldu": _ld,
    "st": _st,
    "st.bulk": _store_bulk,
    "mov": _mov,
    "cvta": _cvta,
    "mapa": _mapa,
    "getctarank": _getctarank,
    "isspacep": _isspacep,
    "createpolicy": _createpolicy,
}
