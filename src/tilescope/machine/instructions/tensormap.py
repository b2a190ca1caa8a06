"""Tensor maps that a kernel edits: tensormap.replace and tensormap.cp_fenceproxy."""

from __future__ import annotations

import numpy as np

from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.collective import Collective
from tilescope.machine.execution.records import CutEdit
from tilescope.machine.instructions.load_store import AddressOf, decode_address, space_of
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import RefusedError, Step, Turn
from tilescope.ptx.syntax import Immediate, Instruction, Operand, operand_text
from tilescope.sync.cluster_shape import Lanes
from tilescope.sync.events import TensormapRelease
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES
from tilescope.tensor_map.replacement import KEPT_VALUES, REPLACE_FIELDS, edited_descriptor, is_in_rank, kept_value

_WORD = np.dtype(np.uint64)
_WORDS = DESCRIPTOR_BYTES // _WORD.itemsize
_PAIR = 2  # words that one access moves: a map is aligned to 64 bytes
_UNKNOWN_BITS = "swizzle_atomicity"
_SWIZZLE_MODES = 4


def _tensormap(assembler: Assembler, instruction: Instruction) -> Step | Turn:
    words = Words(instruction)
    action = words.required(("replace", "cp_fenceproxy"), "replace or cp_fenceproxy")
    return (_replace if action == "replace" else _copy_and_fence)(assembler, instruction, words)


def _replace(assembler: Assembler, instruction: Instruction, words: Words) -> Step:
    """tensormap.replace.tile.FIELD{.space}.b1024.TYPE [map], {ordinal,} value."""
    words.flag("tile")
    field = words.required(tuple(REPLACE_FIELDS), "field")
    if field == _UNKNOWN_BITS:
        raise RefusedError(f"where a map holds {field} is not known")
    row = REPLACE_FIELDS[field]
    space = words.space()
    words.flag("b1024")
    words.flag(row.width)
    words.done()
    operands = instruction.operands
    addresses = decode_address(assembler, operands[0])
    space = space_of(assembler, operands[0], space)
    ordinal = 0
    if row.ordinals:
        ordinal = _constant(operands[1])
        if not 0 <= ordinal < row.ordinals:
            raise RefusedError(f"{field} has entries 0 to {row.ordinals - 1}, not {ordinal}")
    if field == "swizzle_mode" and _constant(operands[-1]) >= _SWIZZLE_MODES:
        raise RefusedError("where a map holds swizzle 96B is not known")
    value = assembler.source(operands[-1], row.width)

    def replace(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        values = cluster.registers[value][at].tolist()
        cluster.launch.charge(len(values))
        for lane, address, number in zip(lanes, addresses(cluster, at), values, strict=True):
            alone = np.array([lane])
            places = address + np.arange(_WORDS) * _WORD.itemsize
            loaded = cluster.load(space, np.repeat(alone, _WORDS), places, _WORD)
            edited = edited_descriptor(loaded.tobytes(), field, number, ordinal)
            if field in KEPT_VALUES and is_in_rank(edited, field, ordinal):
                stored = kept_value(edited, field, ordinal)
                if stored != number:
                    cluster.launch.cut_edits.setdefault(cluster.pc, CutEdit(cluster.pc, field, ordinal, number, stored))
            cluster.store(space, np.repeat(alone, _WORDS), places, np.frombuffer(edited, _WORD))

    return replace


def _constant(operand: Operand) -> int:
    if not isinstance(operand, Immediate):
        raise RefusedError(f"a constant is expected, not {operand_text(operand)}")
    return operand.value


def _copy_and_fence(assembler: Assembler, instruction: Instruction, words: Words) -> Turn:
    """tensormap.cp_fenceproxy: the warp copies a map from shared to global memory, and publishes it."""
    for word in ("global", "shared::cta", "tensormap::generic", "sync", "aligned"):
        words.flag(word)
    words.without_effect()
    words.done()
    target, source, size = instruction.operands
    if _constant(size) != DESCRIPTOR_BYTES:
        raise RefusedError(f"a map is {DESCRIPTOR_BYTES} bytes")
    return Collective(_copy(decode_address(assembler, target), decode_address(assembler, source)))


def _copy(targets: AddressOf, sources: AddressOf) -> Step:
    def copy(cluster: Cluster, at: Lanes) -> None:
        target = targets(cluster, at)
        source = sources(cluster, at)
        for offset in range(0, DESCRIPTOR_BYTES, _PAIR * _WORD.itemsize):
            pair = cluster.load("shared", at, source + offset, _WORD, _PAIR)
            cluster.store("global", at, target + offset, pair)
        cluster.emit(TensormapRelease(cluster.pc, cluster.lanes(at), source))

    return copy


FAMILIES: dict[str, Decoder] = {"tensormap": _tensormap}
