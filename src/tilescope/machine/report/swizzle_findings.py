"""Tiles that are written with one swizzle and read with another, and descriptors whose strides belong to another swizzle.

The addresses of threads reveal the swizzle that they assume for a tile (thread_tiles). How certain that is:

    error      the lanes, or the instructions that write a tile, step along rows and columns, and only another swizzle makes both
               steps linear; rows of ldmatrix, stmatrix, wmma or of accumulators, which the hardware assigns to lanes
    warning    lanes access memory linearly, which is right if the order of a tile does not matter; one lane per row, whose order
               may avoid bank conflicts; contiguous rows in global memory, which may hold an image of a swizzled tile

The strides of a descriptor are wrong if two elements of an operand get the same address with its swizzle, and no two elements do
with another swizzle.

A swizzle is only advised if the same checks pass with it. Plain rows of 128 bytes fit no descriptor: without a swizzle it reads core
matrices, 8 rows of 16 bytes one after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tilescope.errors import RuleError, Violation, Wording
from tilescope.machine.decoding.dataflow import made_of
from tilescope.machine.decoding.operand_shape import ReadShape
from tilescope.machine.launch.launch import Launch
from tilescope.machine.observers.lane_pattern import BIT_OF_MODE, MODES, PLAIN, modes_in
from tilescope.machine.observers.operand_reads import ReadKey, ReadTally
from tilescope.machine.observers.thread_tiles import Misfit, MisfitKind
from tilescope.machine.program import Program
from tilescope.machine.report.cost_findings import SWIZZLE_MISMATCH
from tilescope.machine.report.places import line_facts, name_instruction
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
_CORE_MATRICES = "without a swizzle a descriptor reads core matrices, 8 rows of 16 bytes one after another"
PLAIN_OPERAND = WRITTEN_OPERAND.worded(
    limit=f"with these strides the tile has rows of {{row_bytes}} bytes, and {_CORE_MATRICES}: no descriptor reads rows in plain order",
    fix="Write the tile with swizzle {said}, or write core matrices and use their strides without a swizzle.",
)
OTHER_DESCRIPTOR = WRITTEN_OPERAND.worded(
    fix="Use swizzle {lies} in the descriptor (code {code} in bits {code_bits}): its strides do not fit swizzle {said}.",
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
    limit="under another swizzle these addresses hold other elements of the tile",
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
    kind: SWIZZLE_DOUBT.worded(
        found=wording.found, limit=wording.limit, fix=f"{wording.fix} Nothing is wrong if {{excuse}}."
    )
    for kind, wording in _CERTAIN.items()
}
OVERLAP = rule(
    "run-operand-overlap",
    "The strides of a descriptor fit its swizzle: every element of an operand has a distinct address.",
    argument="{where}",
    found="{where}"
    + _OTHERS
    + ": operand {operand}, {rows} x {k} elements, is read with swizzle {said}, leading dimension "
    "{leading_bytes} bytes, stride {stride_bytes} bytes: {shared_places} of {elements} elements share their place with another",
    limit="these strides belong to swizzle {fitting}, under which every element has a distinct address",
    fix="Use swizzle {fitting} in the descriptor (code {code} in bits {code_bits}), or the strides of swizzle {said}.",
    source="measured on an H200: what wgmma reads for a descriptor",
    basis="measured",
    passing=f"ts.Kernel({ptx_example('run-operand-overlap.pass.ptx')}).run(1, 128).findings",
    failing=f"ts.Kernel({ptx_example('run-operand-overlap.fail.ptx')}).run(1, 128).findings",
)
SWAPPED_STRIDES = OVERLAP.worded(
    limit="with leading dimension and stride exchanged, every element has a distinct address",
    fix="Exchange them: leading dimension {stride_bytes} bytes (bits 16-29), stride {leading_bytes} bytes (bits 32-45).",
)
PLAIN_ROWS = OVERLAP.worded(
    limit=f"with these strides the tile has rows of {{row_bytes}} bytes, which threads wrote in plain order; {_CORE_MATRICES},"
    " and with a swizzle it reads other bytes",
    fix="Write the tile with swizzle {fitting} and use it in the descriptor too (code {code} in bits {code_bits}), or write core matrices.",
)
_ROWS_OF_A_GROUP = 8  # rows from one stride of a descriptor to the next
_MATRIX_NAMES = ("ldmatrix", "stmatrix", "wmma")
_PRODUCT_NAMES = ("mma", "wgmma", "wmma")


class Verdict(NamedTuple):
    """Whether a misfit is certainly a mistake; if not, the excuse that would make it right."""

    is_certain: bool
    excuse: str = ""


def report_swizzles(launch: Launch) -> tuple[Violation, ...]:
    """Tiles that are accessed with another swizzle, and operands whose strides belong to another swizzle."""
    costs = launch.costs
    if costs is None:
        return ()
    products = _product_registers(launch.program) if costs.tiles.misfits else frozenset()
    groups: dict[tuple[object, ...], list[Misfit]] = {}
    for misfit in sorted(costs.tiles.misfits.values(), key=lambda misfit: (misfit.pc, misfit.operand)):
        verdict = _judge(launch.program, misfit, products)
        other = misfit.accesses[0].pc if misfit.copy is None else misfit.copy.pc
        if misfit.kind == "store":
            other = misfit.pc
        key = (misfit.kind, misfit.operand, misfit.said, misfit.pattern.straight, other, verdict)
        groups.setdefault(key, []).append(misfit)
    misfits = [_report_misfits(launch, equal, _judge(launch.program, equal[0], products)) for equal in groups.values()]
    mismatched: set[tuple[int, str]] = {
        (mismatch.read.pc, mismatch.read.shape.operand) for mismatch in costs.operands.mismatches.values()
    }
    for misfit in costs.tiles.misfits.values():
        if _judge(launch.program, misfit, products).is_certain:  # its finding names the swizzle to use
            mismatched.add((misfit.pc, misfit.operand))
    other_reads = {
        key: tally for key, tally in costs.operands.reads.items() if (key.pc, key.shape.operand) not in mismatched
    }
    return (*misfits, *_report_overlaps(launch, other_reads, costs.tiles.written))


def _judge(program: Program, misfit: Misfit, products: frozenset[int]) -> Verdict:
    """Whether the addresses alone prove the mistake."""
    is_image = misfit.is_packed and (misfit.said == "none" or misfit.pattern.straight & PLAIN)
    by_hardware = any(_is_assigned_by_hardware(program, access.pc, products) for access in misfit.accesses)
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
        return Verdict(False, "every lane takes the chunks of its row in an order that avoids bank conflicts")
    return Verdict(True)


def _is_assigned_by_hardware(program: Program, pc: int, products: frozenset[int]) -> bool:
    """Whether the hardware assigns the rows of an access to lanes: ldmatrix, stmatrix, wmma, or stored accumulators."""
    instruction = program.instructions[pc]
    if instruction is not None and instruction.name in _MATRIX_NAMES:
        return True
    is_store = not program.targets[pc]
    return is_store and not products.isdisjoint(program.registers_named[pc])


def _product_registers(program: Program) -> frozenset[int]:
    """The registers that hold accumulators, or values computed from them."""
    accumulators: list[int] = []
    for pc, instruction in enumerate(program.instructions):
        if instruction is not None and instruction.name in _PRODUCT_NAMES:
            accumulators.extend(program.targets[pc])
    return made_of(program, accumulators)


def _report_misfits(launch: Launch, equal: list[Misfit], verdict: Verdict) -> Violation:
    """A finding about misfits that differ only in the instruction; it names the first one."""
    misfit = equal[0]
    program = launch.program
    fitting = modes_in(misfit.pattern.straight)
    pcs = list(dict.fromkeys(access.pc for other in equal for access in other.accesses if access.pc != other.pc))
    copy = None if misfit.copy is None or misfit.kind == "store" else misfit.copy
    wording = _CERTAIN[misfit.kind] if verdict.is_certain else _DOUBTFUL[misfit.kind]
    read = _find_read(launch, misfit)
    if read is not None and misfit.pattern.straight & PLAIN and _overlaps_with(read, "none"):
        wording = wording.worded(limit=PLAIN_OPERAND.limit, fix=PLAIN_OPERAND.fix)
    elif read is not None and _overlaps_with(read, misfit.said):
        wording = wording.worded(fix=OTHER_DESCRIPTOR.fix)
    others = len({other.pc for other in equal}) - 1
    line_pcs = [misfit.pc, *pcs[:1]] if copy is None else [misfit.pc, copy.pc]
    instruction = program.instructions[misfit.pc]
    form = TCGEN05_FORM if instruction is not None and instruction.name == "tcgen05" else WGMMA_FORM
    return wording.violation(
        where=name_instruction(program, misfit.pc),
        **line_facts(program, *line_pcs),
        others=others or None,
        operand=misfit.operand or None,
        block=misfit.block,
        start=misfit.start,
        said=misfit.said,
        lies=listed(fitting, "or"),
        fitting=fitting,
        code=form.codes.get(fitting[0]),
        code_bits=form.swizzle_bits,
        writer=name_instruction(program, pcs[0]) if pcs else None,
        writers=len(pcs) - 1 or None,
        copy=None if copy is None else name_instruction(program, copy.pc),
        map_number=None if misfit.copy is None else misfit.copy.map_number,
        excuse=verdict.excuse,
        row_bytes=None if read is None else read.descriptor.stride_bytes // _ROWS_OF_A_GROUP,
    )


def _find_read(launch: Launch, misfit: Misfit) -> ReadKey | None:
    """How the operand of a misfit is read; None if the misfit is of another kind."""
    if misfit.kind != "operand" or launch.costs is None:
        return None
    reads = launch.costs.operands.reads
    return next((key for key in reads if (key.pc, key.shape.operand) == (misfit.pc, misfit.operand)), None)


def _overlaps_with(read: ReadKey, swizzle: str) -> bool:
    """Whether elements of an operand share an address if its descriptor has a swizzle, with the strides that it has."""
    return bool(_count_shared_places(read.shape, _with_swizzle(read.descriptor, Swizzle.named(swizzle))))


class _Overlap(NamedTuple):
    """An operand in which several elements have the same address with its own swizzle."""

    shape: ReadShape
    descriptor: OperandDescriptor
    shared_places: int
    fitting: list[str]  # swizzles with which each element has its own address; empty: leading and stride are exchanged


def _report_overlaps(
    launch: Launch, reads: dict[ReadKey, ReadTally], written: Mapping[tuple[int, str], int]
) -> list[Violation]:
    """Findings about operands in which elements share an address with their own swizzle, but not with another one."""
    pcs: dict[tuple[ReadShape, int], list[int]] = {}
    for key in sorted(reads):
        pcs.setdefault((key.shape, key.word), []).append(key.pc)
    violations = []
    for (shape, word), own_pcs in pcs.items():
        overlap = _find_overlap(shape, shape.descriptor(word))
        if overlap is not None:
            modes = written.get((own_pcs[0], shape.operand))
            violations.append(_report_overlap(launch, own_pcs, overlap, modes))
    return violations


def _find_overlap(shape: ReadShape, descriptor: OperandDescriptor) -> _Overlap | None:
    if descriptor.leading_is_address:
        return None
    shared_places = _count_shared_places(shape, descriptor)
    if not shared_places:
        return None
    fitting = [
        mode.name
        for mode in MODES
        if mode != descriptor.swizzle and _count_shared_places(shape, _with_swizzle(descriptor, mode)) == 0
    ]
    if fitting or _count_shared_places(shape, _with_exchanged_strides(descriptor)) == 0:
        return _Overlap(shape, descriptor, shared_places, fitting)
    return None


def _with_swizzle(descriptor: OperandDescriptor, swizzle: Swizzle) -> OperandDescriptor:
    return type(descriptor)(
        0,
        leading_bytes=descriptor.leading_bytes,
        stride_bytes=descriptor.stride_bytes,
        swizzle=swizzle,
        base_offset=descriptor.base_offset,
    )


def _with_exchanged_strides(descriptor: OperandDescriptor) -> OperandDescriptor:
    """The descriptor with leading dimension and stride exchanged."""
    return type(descriptor)(
        0,
        leading_bytes=descriptor.stride_bytes,
        stride_bytes=descriptor.leading_bytes,
        swizzle=descriptor.swizzle,
        base_offset=descriptor.base_offset,
    )


def _count_shared_places(shape: ReadShape, descriptor: OperandDescriptor) -> int | None:
    """The number of elements that share their address with an earlier one; None if the shape does not fit the descriptor."""
    try:
        addresses = shape.addresses(descriptor)
    except RuleError:
        return None
    step = max(1, 8 // shape.element_bits)  # elements that share a byte
    places = addresses[:, ::step].ravel()
    return (places.size - len(np.unique(places))) * step


def _report_overlap(launch: Launch, pcs: list[int], overlap: _Overlap, written: int | None) -> Violation:
    """A finding about an operand; `written` are the modes under which threads wrote it, None if they are not known."""
    shape = overlap.shape
    descriptor = overlap.descriptor
    form = descriptor.form
    row_bytes = descriptor.stride_bytes // _ROWS_OF_A_GROUP
    wording = OVERLAP.wording if overlap.fitting else SWAPPED_STRIDES
    fitting = overlap.fitting
    if fitting and written is not None:
        as_written = [name for name in fitting if written & BIT_OF_MODE[name]]
        of_rows = [name for name in fitting if Swizzle.named(name).span_bytes == row_bytes]
        fitting = as_written or of_rows or fitting
        if not as_written:
            wording = PLAIN_ROWS
    return wording.violation(
        where=name_instruction(launch.program, pcs[0]),
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
        fitting=listed(fitting, "or"),
        code=form.codes[fitting[0]] if fitting else None,
        code_bits=form.swizzle_bits,
        row_bytes=row_bytes,
    )
