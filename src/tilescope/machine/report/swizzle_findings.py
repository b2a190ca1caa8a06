"""Tiles that are written under one swizzle and read under another, and descriptors whose strides belong to another swizzle.

The addresses of threads show under which swizzle they see a tile (thread_tiles). How certain that is:

    error      lanes, or the instructions that write a tile, go along rows and columns at once, and only another swizzle makes both
               straight; rows of ldmatrix, stmatrix, wmma or of accumulators, which the hardware assigns to lanes
    warning    lanes go straight through memory, which is right if the order of a tile does not matter; one lane a row, whose order
               may avoid bank conflicts; rows that follow each other in global memory: that may hold an image of a swizzled tile

A descriptor's strides are wrong if two elements of an operand get the same place under its swizzle, and under another swizzle
every element has a place of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilescope.errors import RuleError, Violation, Wording
from tilescope.machine.dataflow import made_of
from tilescope.machine.launch.launch import Launch
from tilescope.machine.observers.lane_pattern import BIT_OF_MODE, MODES, PLAIN, modes_in
from tilescope.machine.observers.operand_reads import ReadKey, ReadTally
from tilescope.machine.observers.thread_tiles import Misfit, MisfitKind
from tilescope.machine.operand_shape import ReadShape
from tilescope.machine.program import Program
from tilescope.machine.report.cost_findings import SWIZZLE_MISMATCH
from tilescope.machine.report.places import instruction_named, line_facts
from tilescope.mma.descriptor_form import TCGEN05_FORM, WGMMA_FORM
from tilescope.mma.operand_descriptor import OperandDescriptor
from tilescope.rule import ptx_example, rule
from tilescope.sentence import listed
from tilescope.swizzle import Swizzle


def _stored_example(swizzle: str) -> str:
    """A run in which lanes write 4 rows of 128 bytes in plain order, and TMA stores them through a map of `swizzle`."""
    tile = f"memory.map(np.zeros((4, 128), np.float16), (64, 4), swizzle='{swizzle}')"
    run = f"ts.Kernel({ptx_example('run-swizzle-doubt.ptx')}).run(1, 32, [{tile}], memory=memory)"
    return f"(lambda memory: {run}.findings)(ts.Memory())"


_OTHERS = "[[ and {others:other instruction}]]"
_THREADS = "{writer}[[ and {writers:other instruction}]]"
WRITTEN_OPERAND = SWIZZLE_MISMATCH.worded(
    found=f"{{where}}{_OTHERS}: operand {{operand}} of block {{block}} at {{start:#x}} is read with swizzle {{said}}, "
    f"and {_THREADS} wrote it with swizzle {{lies}}",
    fix="Use swizzle {lies} in the descriptor (code {code} in bits {code_bits}), or write the tile with swizzle {said}.",
)
STORED_TILE = SWIZZLE_MISMATCH.worded(
    found=f"{{where}}{_OTHERS}: the box of block {{block}} at {{start:#x}} is stored through a map of swizzle {{said}}, "
    f"and {_THREADS} wrote it with swizzle {{lies}}",
    limit="a map of another swizzle takes other bytes for the elements of the box",
    fix="Use swizzle {lies} in the tensor map, or write the tile with swizzle {said}.",
)
LOADED_TILE = SWIZZLE_MISMATCH.worded(
    found="{where}" + _OTHERS + ": threads of block {block} read the tile at {start:#x} as one of swizzle {lies}, "
    "and {copy} wrote it with {said}",
    limit="under another swizzle other elements of the tile lie at these addresses",
    fix="Use swizzle {lies} in the tensor map, or read the tile with swizzle {said}.",
)
PASSED_TILE = SWIZZLE_MISMATCH.worded(
    found="{where}" + _OTHERS + ": the box of block {block} at {start:#x} is stored through a map of swizzle {said}, "
    "and {copy} loaded it with {lies}",
    limit="a map of another swizzle takes other bytes for the elements of the box",
    fix="Use one swizzle in both tensor maps.",
)
SWIZZLE_DOUBT = rule(
    "run-swizzle-doubt",
    "Threads access a tile in the order of its swizzle, unless its order does not matter.",
    argument="{where}",
    found=STORED_TILE.found,
    limit=STORED_TILE.limit,
    fix=f"{STORED_TILE.fix} Nothing is wrong if {{excuse}}.",
    source="measured on an H200: where TMA puts the bytes of a box, and what wgmma reads for a descriptor",
    basis="measured",
    severity="warning",
    passing=_stored_example("none"),
    failing=_stored_example("128B"),
)
_CERTAIN: dict[MisfitKind, Wording] = {
    "operand": WRITTEN_OPERAND,
    "store": STORED_TILE,
    "load": LOADED_TILE,
    "copy": PASSED_TILE,
}
_DOUBTFUL: dict[MisfitKind, Wording] = {
    kind: SWIZZLE_DOUBT.worded(found=told.found, limit=told.limit, fix=f"{told.fix} Nothing is wrong if {{excuse}}.")
    for kind, told in _CERTAIN.items()
}
OVERLAP = rule(
    "run-operand-overlap",
    "The strides of a descriptor fit its swizzle: every element of an operand has a place of its own.",
    argument="{where}",
    found="{where}"
    + _OTHERS
    + ": operand {operand}, {rows} x {k} elements, is read with swizzle {said}, leading dimension "
    "{leading_bytes} bytes, stride {stride_bytes} bytes: {shared_places} of {elements} elements share their place with another",
    limit="these strides belong to swizzle {fitting}, under which every element has a place of its own",
    fix="Use swizzle {fitting} in the descriptor (code {code} in bits {code_bits}), or the strides of swizzle {said}.",
    source="measured on an H200: what wgmma reads for a descriptor",
    basis="measured",
    passing=f"ts.Kernel({ptx_example('run-operand-overlap.pass.ptx')}).run(1, 128).findings",
    failing=f"ts.Kernel({ptx_example('run-operand-overlap.fail.ptx')}).run(1, 128).findings",
)
SWAPPED_STRIDES = OVERLAP.worded(
    limit="with leading dimension and stride exchanged, every element has a place of its own",
    fix="Exchange them: leading dimension {stride_bytes} bytes (bits 16-29), stride {leading_bytes} bytes (bits 32-45).",
)
_MATRIX_NAMES = ("ldmatrix", "stmatrix", "wmma")
_PRODUCT_NAMES = ("mma", "wgmma", "wmma")


class Verdict(NamedTuple):
    """Whether a misfit is certainly a mistake; if not, what would make it right."""

    is_certain: bool
    excuse: str = ""


def swizzle_findings(launch: Launch) -> tuple[Violation, ...]:
    """Tiles under another swizzle, and operands whose strides belong to another one."""
    costs = launch.costs
    if costs is None:
        return ()
    products = _product_registers(launch.program) if costs.tiles.misfits else frozenset()
    alike: dict[tuple[object, ...], list[Misfit]] = {}
    for misfit in sorted(costs.tiles.misfits.values(), key=lambda one: (one.pc, one.operand)):
        verdict = _verdict(launch.program, misfit, products)
        other = misfit.accesses[0].pc if misfit.copy is None else misfit.copy.pc
        if misfit.kind == "store":
            other = misfit.pc
        key = (misfit.kind, misfit.operand, misfit.said, misfit.pattern.straight, other, verdict)
        alike.setdefault(key, []).append(misfit)
    misfits = [_misfit_violation(launch, ones, _verdict(launch.program, ones[0], products)) for ones in alike.values()]
    mismatched = {(one.read.pc, one.read.shape.operand) for one in costs.operands.mismatches.values()}
    other_reads = {
        key: tally for key, tally in costs.operands.reads.items() if (key.pc, key.shape.operand) not in mismatched
    }
    return (*misfits, *_overlaps(launch, other_reads))


def _verdict(program: Program, misfit: Misfit, products: frozenset[int]) -> Verdict:
    """Whether addresses alone show the mistake."""
    is_image = misfit.is_packed and (misfit.said == "none" or misfit.pattern.straight & PLAIN)
    by_hardware = any(_is_dealt_by_hardware(program, access.pc, products) for access in misfit.accesses)
    if misfit.kind == "copy" and misfit.is_changed:
        return Verdict(False, "the elements are meant to be in another order there")
    if misfit.kind == "copy":
        return Verdict(not is_image, "global memory is meant to hold an image of the swizzled tile")
    if misfit.kind == "load" and is_image and misfit.said == "none":
        return Verdict(False, "global memory holds an image of the swizzled tile")
    if by_hardware:
        return Verdict(True)
    if misfit.pattern.straight & PLAIN:
        return Verdict(False, "the order of the tile does not matter here, or global memory holds it swizzled already")
    if is_image:
        return Verdict(False, "global memory is meant to hold an image of the swizzled tile")
    if misfit.pattern.additive & BIT_OF_MODE[misfit.said]:
        return Verdict(False, "every lane takes the chunks of its own row in an order that avoids bank conflicts")
    return Verdict(True)


def _is_dealt_by_hardware(program: Program, pc: int, products: frozenset[int]) -> bool:
    """Whether rows of an access are those of a matrix: of ldmatrix, stmatrix, wmma, or of accumulators that are stored."""
    instruction = program.instructions[pc]
    if instruction is not None and instruction.name in _MATRIX_NAMES:
        return True
    is_store = not program.targets[pc]
    return is_store and not products.isdisjoint(program.registers_named[pc])


def _product_registers(program: Program) -> frozenset[int]:
    """The registers that hold accumulators, or what is made of them."""
    accumulators: list[int] = []
    for pc, instruction in enumerate(program.instructions):
        if instruction is not None and instruction.name in _PRODUCT_NAMES:
            accumulators.extend(program.targets[pc])
    return made_of(program, accumulators)


def _misfit_violation(launch: Launch, alike: list[Misfit], verdict: Verdict) -> Violation:
    """A finding about misfits that differ only in the instruction; the first one is named."""
    misfit = alike[0]
    program = launch.program
    fitting = modes_in(misfit.pattern.straight)
    pcs = list(dict.fromkeys(access.pc for one in alike for access in one.accesses if access.pc != one.pc))
    copy = None if misfit.copy is None or misfit.kind == "store" else misfit.copy
    wording = _CERTAIN[misfit.kind] if verdict.is_certain else _DOUBTFUL[misfit.kind]
    others = len({one.pc for one in alike}) - 1
    named_pcs = [misfit.pc, *pcs[:1]] if copy is None else [misfit.pc, copy.pc]
    instruction = program.instructions[misfit.pc]
    form = TCGEN05_FORM if instruction is not None and instruction.name == "tcgen05" else WGMMA_FORM
    return wording.violation(
        where=instruction_named(program, misfit.pc),
        **line_facts(program, *named_pcs),
        others=others or None,
        operand=misfit.operand or None,
        block=misfit.block,
        start=misfit.start,
        said=misfit.said,
        lies=listed(fitting, "or"),
        fitting=fitting,
        code=form.codes.get(fitting[0]),
        code_bits=form.swizzle_bits,
        writer=instruction_named(program, pcs[0]) if pcs else None,
        writers=len(pcs) - 1 or None,
        copy=None if copy is None else instruction_named(program, copy.pc),
        map_number=None if misfit.copy is None else misfit.copy.map_number,
        excuse=verdict.excuse,
    )


class _Overlap(NamedTuple):
    """An operand of which several elements have the same place under its own swizzle."""

    shape: ReadShape
    descriptor: OperandDescriptor
    shared_places: int
    fitting: list[str]  # swizzles under which every element has its own place; empty: leading and stride are exchanged


def _overlaps(launch: Launch, reads: dict[ReadKey, ReadTally]) -> list[Violation]:
    """Operands of which elements share a place under their own swizzle, and do not under another one."""
    pcs: dict[tuple[ReadShape, int], list[int]] = {}
    for key in sorted(reads):
        pcs.setdefault((key.shape, key.word), []).append(key.pc)
    violations = []
    for (shape, word), own_pcs in pcs.items():
        overlap = _overlap_of(shape, shape.descriptor(word))
        if overlap is not None:
            violations.append(_overlap_violation(launch, own_pcs, overlap))
    return violations


def _overlap_of(shape: ReadShape, descriptor: OperandDescriptor) -> _Overlap | None:
    if descriptor.leading_is_address:
        return None
    shared_places = _shared_places(shape, descriptor)
    if not shared_places:
        return None
    fitting = [
        mode.name
        for mode in MODES
        if mode != descriptor.swizzle and _shared_places(shape, _under(descriptor, mode)) == 0
    ]
    if fitting or _shared_places(shape, _exchanged(descriptor)) == 0:
        return _Overlap(shape, descriptor, shared_places, fitting)
    return None


def _under(descriptor: OperandDescriptor, swizzle: Swizzle) -> OperandDescriptor:
    return type(descriptor)(
        0,
        leading_bytes=descriptor.leading_bytes,
        stride_bytes=descriptor.stride_bytes,
        swizzle=swizzle,
        base_offset=descriptor.base_offset,
    )


def _exchanged(descriptor: OperandDescriptor) -> OperandDescriptor:
    """With the leading dimension as the stride, and the other way round."""
    return type(descriptor)(
        0,
        leading_bytes=descriptor.stride_bytes,
        stride_bytes=descriptor.leading_bytes,
        swizzle=descriptor.swizzle,
        base_offset=descriptor.base_offset,
    )


def _shared_places(shape: ReadShape, descriptor: OperandDescriptor) -> int | None:
    """How many elements share their place with an earlier one; None if the descriptor cannot be read so."""
    try:
        addresses = shape.addresses(descriptor)
    except RuleError:
        return None
    step = max(1, 8 // shape.element_bits)  # elements that share a byte
    places = addresses[:, ::step].ravel()
    return (places.size - len(np.unique(places))) * step


def _overlap_violation(launch: Launch, pcs: list[int], overlap: _Overlap) -> Violation:
    shape = overlap.shape
    descriptor = overlap.descriptor
    form = descriptor.form
    wording = OVERLAP.wording if overlap.fitting else SWAPPED_STRIDES
    return wording.violation(
        where=instruction_named(launch.program, pcs[0]),
        **line_facts(launch.program, *pcs),
        others=len(pcs) - 1 or None,
        operand=shape.operand,
        rows=shape.rows,
        k=shape.k,
        elements=shape.rows * shape.k,
        shared_places=overlap.shared_places,
        said=descriptor.swizzle.name,
        leading_bytes=descriptor.leading_bytes,
        stride_bytes=descriptor.stride_bytes,
        fitting=listed(overlap.fitting, "or"),
        code=form.codes[overlap.fitting[0]] if overlap.fitting else None,
        code_bits=form.swizzle_bits,
    )
