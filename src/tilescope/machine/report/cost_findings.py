"""Findings about bank conflicts, uncoalesced sectors, and operands that are read with another swizzle than they were written with.

A finding names the source line with the highest excess: wavefronts of shared memory, or 32-byte sectors of global memory, beyond
the smallest possible number for the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tilescope.arch import WARP_LANES
from tilescope.errors import Violation, Wording
from tilescope.machine.launch.launch import Launch
from tilescope.machine.observers.access_cost import SECTOR_BYTES, Instance, Tally
from tilescope.machine.observers.costs import Costs
from tilescope.machine.observers.operand_reads import Mismatch
from tilescope.machine.program import Program
from tilescope.machine.report.conflict_fix import TileFix, TileUse, find_fix, overlaps, overlaps_range
from tilescope.machine.report.places import line_facts, name_instruction, name_line, name_threads
from tilescope.machine.report.run_costs import busiest_collision, worst_access
from tilescope.rule import ptx_example, rule
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.address import SHARED_OFFSET_MASK

_LINES_NAMED = 10  # findings of each kind; the counts of all lines are in the run
_SECTORS_RATIO = 2  # more than this many times the fewest possible sectors are worth a note


def _tile_example(file: str, swizzle: str, columns: int) -> str:
    """A run that loads a tile of 64 x 64 elements out of a matrix of `columns` columns, and multiplies the tile by the same tile."""
    tile = f"memory.map(np.zeros((64, {columns}), np.float16), (64, 64), swizzle='{swizzle}')"
    run = f"ts.Kernel({ptx_example(file)}).run(1, 128, [{tile}], memory=memory)"
    return f"(lambda memory: {run}.findings)(ts.Memory())"


BANK_CONFLICT = rule(
    "run-bank-conflict",
    "Lanes that are served together access different banks of shared memory, or the same word of a bank.",
    argument="{where}",
    found="{where}: {wavefronts:wavefront}, {least} without conflicts[[, in {instructions} instructions of this line]]; "
    "{who} of block {block} access {degree} different words of bank {bank} at once",
    limit="a wavefront takes one word from each of 32 banks",
    fix="Give the rows of the tile another pitch or swizzle, or assign the tile to lanes differently; `tilescope banks` tries them all.",
    source="measured on an H200: wavefronts of ld, st, ldmatrix, stmatrix and cp.async.ca as Nsight Compute counts them",
    basis="measured",
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-bank-conflict.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-bank-conflict.fail.ptx')}).run(1, 32).findings",
)
SWIZZLE_FIX = BANK_CONFLICT.worded(
    fix="Swizzle the tile by {cure_swizzle}, where it is written and where it is read: then no access of this run to it has a conflict."
)
MAP_FIX = BANK_CONFLICT.worded(
    fix="Use swizzle {cure_swizzle} in the tensor map, and in the addresses of its readers: then no access of this run to the tile "
    "has a conflict."
)
PADDING_FIX = BANK_CONFLICT.worded(
    fix="Leave {padding_bytes} bytes free after every {row_bytes}: then no access of this run to the tile has a conflict."
)
OPERAND_TILE = BANK_CONFLICT.worded(
    fix="Assign the elements to lanes differently: a tensor core reads these bytes too, and its descriptor fixes the layout of the tile."
)
SECTORS = rule(
    "run-sectors",
    "The lanes of a warp use most of the 32-byte sectors of global memory that they access.",
    argument="{where}",
    found="{where}: {sectors:sector}, {least} would hold the bytes[[, in {instructions} instructions of this line]]",
    limit="global memory is fetched and written in sectors of {sector_bytes} bytes",
    fix="Let neighbouring lanes take neighbouring bytes, or let a lane take up to 16 bytes at once.",
    source="CUDA C++ Best Practices Guide, coalesced access to global memory",
    severity="note",
    passing=f"ts.Kernel({ptx_example('run-sectors.pass.ptx')}).run(1, 32, [np.zeros(1024, np.uint32)]).findings",
    failing=f"ts.Kernel({ptx_example('run-sectors.fail.ptx')}).run(1, 32, [np.zeros(1024, np.uint32)]).findings",
)
_OPERAND = "{where}[[ and {others:other instruction}]]: operand {operand} of block {block} at {start:#x}"
COST_RULES = frozenset({BANK_CONFLICT.name, SECTORS.name})  # about performance, not correctness
SWIZZLE_MISMATCH = rule(
    "run-swizzle-mismatch",
    "wgmma, tcgen05.mma, TMA and threads read a tile in shared memory with the swizzle with which it was written.",
    argument="{where}",
    found=f"{_OPERAND} is read with swizzle {{read_swizzle}}, and was written with {{written_swizzle}} by {{copy}}",
    limit="a descriptor of another swizzle takes other bytes for the elements of the tile",
    fix="Use swizzle {written_swizzle} in the descriptor (code {written_code} in bits {code_bits}), or {read_swizzle} in the tensor map.",
    source="measured on an H200: what wgmma reads for a descriptor, and where TMA puts the bytes of a box",
    basis="measured",
    passing=_tile_example("run-swizzle-mismatch.pass.ptx", "128B", 128),
    failing=_tile_example("run-swizzle-mismatch.fail.ptx", "128B", 128),
)
NOT_SWIZZLED_BACK = SWIZZLE_MISMATCH.worded(
    fix="Use swizzle {written_swizzle} in the descriptor: code {written_code} in bits {code_bits}.",
)
PLAIN_ROWS = SWIZZLE_MISMATCH.worded(
    found=f"{_OPERAND} is read as core matrices (no swizzle), and {{copy}} wrote plain rows of {{row_bytes}} bytes",
    limit="a core matrix is 8 rows of {chunk_bytes} bytes that follow each other",
    fix="Use a swizzle in the map and in the descriptor, or a box with rows of {chunk_bytes} bytes.",
)
UNSWIZZLED = SWIZZLE_MISMATCH.worded(
    found=f"{_OPERAND} is read with swizzle {{read_swizzle}}, and {{copy}} wrote plain rows (swizzle none)",
    fix="Use swizzle {read_swizzle} in the tensor map.",
)
BASE_OFFSET = SWIZZLE_MISMATCH.worded(
    found=f"{_OPERAND} is read with base offset {{base_offset}}, and {{copy}} wrote it by absolute addresses",
    limit="TMA swizzles by the absolute address, which is base offset 0",
    fix="Use base offset 0 in the descriptor (bits 49-51).",
)
PACKED_TILE = rule(
    "run-packed-tile",
    "A tile that TMA copies without a swizzle already has the tensor core's layout in global memory.",
    argument="{where}",
    found=f"{_OPERAND} is read with swizzle {{read_swizzle}}, and {{copy}} wrote rows of {{row_bytes}} bytes as they follow each "
    "other in global memory",
    limit="without a swizzle TMA writes plain rows, and a descriptor reads them as atoms, which is right only if they were packed before",
    fix="Use a swizzle in the tensor map and in the descriptor, unless global memory holds packed atoms.",
    source="measured on an H200: what wgmma reads for a descriptor, and where TMA puts the bytes of a box",
    basis="measured",
    severity="warning",
    passing=_tile_example("run-packed-tile.ptx", "128B", 64),
    failing=_tile_example("run-packed-tile.ptx", "none", 64),
)


class _Line(NamedTuple):
    """The instructions of one line: their total cost, and the instruction with the highest excess."""

    pcs: tuple[int, ...]
    cost: int
    least: int
    worst_pc: int

    @property
    def instructions(self) -> int | None:
        """The number of instructions; None for a single one, which the message does not count."""
        return len(self.pcs) if len(self.pcs) > 1 else None


class _CopiedTile(NamedTuple):
    """Shared memory that a TMA or bulk copy accessed, and the swizzle of its map; None for a bulk copy."""

    start: int
    end: int
    swizzle: str | None


def report_costs(launch: Launch, *, is_finished: bool) -> tuple[Violation, ...]:
    """Operands read with another swizzle; for a run that finished also bank conflicts and sectors, the worst lines first."""
    costs = launch.costs
    if costs is None:
        return ()
    groups = _group_mismatches(launch.program, costs.operands.mismatches.values())
    findings = [_report_mismatch(launch, mismatches) for mismatches in groups]
    if is_finished:
        conflicts = _costly_lines(launch, costs.wavefronts.tallies, lambda tally: tally.cost > tally.least)
        tiles = _copied_tiles(launch) if conflicts else set()
        findings += [_report_conflict(launch, costs, line, tiles) for line in conflicts[:_LINES_NAMED]]
        scattered = _costly_lines(
            launch, costs.sectors.tallies, lambda tally: tally.cost > _SECTORS_RATIO * tally.least
        )
        findings += [_report_sectors(launch, line) for line in scattered[:_LINES_NAMED]]
    return tuple(findings)


def _costly_lines(launch: Launch, tallies: dict[int, Tally], is_costly: Callable[[Tally], bool]) -> list[_Line]:
    """The costly instructions by source line, the highest excess first."""
    pcs_of_line: dict[str, list[int]] = {}
    for pc, tally in tallies.items():
        instruction = launch.program.instructions[pc]
        if instruction is not None and is_costly(tally):
            pcs_of_line.setdefault(instruction.line_name, []).append(pc)
    lines = []
    for pcs in map(sorted, pcs_of_line.values()):
        cost = sum(tallies[pc].cost for pc in pcs)
        least = sum(tallies[pc].least for pc in pcs)
        worst_pc = max(pcs, key=lambda pc: tallies[pc].cost - tallies[pc].least)
        lines.append(_Line(tuple(pcs), cost, least, worst_pc))
    return sorted(lines, key=lambda line: (line.least - line.cost, line.worst_pc))


def _report_conflict(launch: Launch, costs: Costs, line: _Line, tiles: set[_CopiedTile]) -> Violation:
    worst = worst_access(costs.wavefronts.tallies[line.worst_pc])
    assert worst is not None
    collision = busiest_collision(worst.report())
    fix = None
    wording = BANK_CONFLICT.wording
    if _is_operand(costs, costs.wavefronts.tallies[line.worst_pc].worst):
        wording = OPERAND_TILE
    else:
        use = _tile_use(costs, line, tiles)
        fix = None if use is None else find_fix(use)
        if use is not None and fix is not None:
            wording = _choose_wording(use, fix)
    fix_facts = TileFix() if fix is None else fix
    return wording.violation(
        where=name_instruction(launch.program, line.worst_pc),
        **line_facts(launch.program, line.worst_pc, *line.pcs),
        wavefronts=line.cost,
        least=line.least,
        instructions=line.instructions,
        who=name_threads([worst.warp * WARP_LANES + lane for lane in worst.lanes]),
        lanes=worst.lanes,
        block=worst.block,
        degree=collision.degree,
        bank=worst.bank,
        cure_swizzle=fix_facts.swizzle,
        row_bytes=fix_facts.row_bytes,
        padding_bytes=fix_facts.padding_bytes,
    )


def _choose_wording(use: TileUse, fix: TileFix) -> Wording:
    if fix.swizzle is None:
        return PADDING_FIX
    return SWIZZLE_FIX if use.written_swizzle is None else MAP_FIX


def _tile_use(costs: Costs, line: _Line, tiles: set[_CopiedTile]) -> TileUse | None:
    """The accesses to the tile of a line with conflicts; None if bulk copies use the tile, or copies with several swizzles."""
    worst = costs.wavefronts.tallies[line.worst_pc].worst
    assert worst is not None
    line_instances = [costs.wavefronts.tallies[pc].worst for pc in line.pcs]
    others = [tally.worst for pc, tally in costs.wavefronts.tallies.items() if pc not in line.pcs]
    instances = [instance for instance in line_instances if instance is not None]
    instances += [instance for instance in others if instance is not None and overlaps(instance, worst)]
    swizzles = {tile.swizzle for tile in tiles if overlaps_range(worst, tile.start, tile.end)}
    if len(swizzles) > 1 or None in swizzles:
        return None
    return TileUse(instances, next(iter(swizzles), None))


def _copied_tiles(launch: Launch) -> set[_CopiedTile]:
    """The tiles that copies accessed."""
    tiles = set()
    for copy in launch.copies:
        start = copy.shared_address & SHARED_OFFSET_MASK
        swizzle = None if copy.map_number is None else launch.maps[copy.map_number].swizzle.name
        tiles.add(_CopiedTile(start, start + copy.bytes, swizzle))
    return tiles


def _is_operand(costs: Costs, instance: Instance | None) -> bool:
    """Whether an access overlaps an operand of a tensor core, whose descriptor determines the layout of the tile."""
    if instance is None:
        return False
    reads = [(key, start) for key, tally in costs.operands.reads.items() for start in tally.starts]
    return any(overlaps_range(instance, start, key.end(start)) for key, start in reads)


def _report_sectors(launch: Launch, line: _Line) -> Violation:
    return SECTORS.violation(
        where=name_instruction(launch.program, line.worst_pc),
        **line_facts(launch.program, line.worst_pc, *line.pcs),
        sectors=line.cost,
        least=line.least,
        instructions=line.instructions,
        sector_bytes=SECTOR_BYTES,
    )


def _group_mismatches(program: Program, mismatches: Iterable[Mismatch]) -> list[list[Mismatch]]:
    """Groups of mismatches that make one finding: the same operand, descriptor (without its start) and copying line."""
    groups: dict[tuple[str, str, int, str], list[Mismatch]] = {}
    for mismatch in sorted(mismatches, key=_mismatch_order):
        shape = mismatch.read.shape
        copied_at = name_line(program, mismatch.copy.pc)
        key = (shape.instruction, shape.operand, mismatch.read.word, copied_at)
        groups.setdefault(key, []).append(mismatch)
    return list(groups.values())


def _mismatch_order(mismatch: Mismatch) -> tuple[int, str, int]:
    return mismatch.read.pc, mismatch.read.shape.operand, mismatch.copy.pc


def _report_mismatch(launch: Launch, equal: list[Mismatch]) -> Violation:
    mismatch = equal[0]
    others = len({other.read.pc for other in equal}) - 1
    descriptor = mismatch.read.descriptor
    copy = mismatch.copy
    is_plain = copy.swizzle.bits == 0
    if is_plain and copy.is_packed:
        wording = PACKED_TILE.wording
    elif mismatch.cause == "plain-rows":
        wording = PLAIN_ROWS
    elif mismatch.cause == "base-offset":
        wording = BASE_OFFSET
    elif is_plain:
        wording = UNSWIZZLED
    else:
        wording = NOT_SWIZZLED_BACK if descriptor.swizzle.bits == 0 else SWIZZLE_MISMATCH.wording
    return wording.violation(
        where=name_instruction(launch.program, mismatch.read.pc),
        **line_facts(launch.program, mismatch.read.pc, copy.pc),
        others=others or None,
        operand=mismatch.read.shape.operand,
        block=mismatch.block,
        start=mismatch.start,
        read_swizzle=descriptor.swizzle.name,
        base_offset=descriptor.base_offset,
        written_swizzle=copy.swizzle.name,
        written_code=descriptor.form.codes.get(copy.swizzle.name),
        code_bits=descriptor.form.swizzle_bits,
        copy=name_instruction(launch.program, copy.pc),
        row_bytes=copy.row_bytes,
        chunk_bytes=CHUNK_BYTES,
        map_number=copy.map_number,
    )
