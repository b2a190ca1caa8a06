"""The facts of a tile for the template of the PTX text: the instructions of one copy and of one consumer step.

copies of a box at offset 8192, at column 64 of the tile     add.u32 %a, %base, 8192;
                                                             add.u32 %n, %first_k, 64;
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tilescope.emitter.role_text import stage_facts
from tilescope.emitter.source_template import Facts, template_values
from tilescope.emitter.tile_program import StoreFacts, TileCopy, TileProgram
from tilescope.emitter.tile_reader import ThreadReader, WgmmaReader
from tilescope.layout import oriented
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.plans import Plan
from tilescope.swizzle import CHUNK_BYTES

_VERSION = {"sm_80": "7.0", "sm_86": "7.1", "sm_89": "7.8", "sm_90": "8.0", "sm_90a": "8.0", "sm_120": "8.7"}
_DEFAULT_VERSION = "8.6"


def ptx_facts(plan: Plan, program: TileProgram) -> Facts:
    """Facts that only the PTX text needs: the instructions of one copy and one consumer step."""
    problem = plan.problem
    reader = program.reader
    strided, contiguous = oriented(problem.major, "mn", "k")
    vector_bytes = reader.vector_bytes if isinstance(reader, ThreadReader) else CHUNK_BYTES
    starts = [int(word, 0) for word in reader.descriptors[0]] if isinstance(reader, WgmmaReader) else []
    kind, count = _result_registers(program)
    facts: Facts = {
        "strided": f"%{strided}",  # registers of an element's indices in the tile, and of the tile's in the matrix
        "contiguous": f"%{contiguous}",
        "first_strided": f"%first_{strided}",
        "first_contiguous": f"%first_{contiguous}",
        "k_bytes": problem.tile[1] * problem.data_type.bits // 8,
        "row_vectors": problem.row_bytes // vector_bytes,
        "ptx_version": _VERSION.get(program.work.target, _DEFAULT_VERSION),
        "register_kind": kind,
        "d_registers": [f"%d{number}" for number in range(count)],
        "copies": [_copy_lines(copy) for copy in program.matrix.copies],
        "advances": ", ".join(str(after - before) for before, after in pairwise(starts)) or "nothing",
    }
    if program.roles is not None:
        facts |= template_values(stage_facts(plan_pipeline(plan)))
    return facts


def _result_registers(program: TileProgram) -> tuple[str, int]:
    """The kind of the registers that hold what is read, or written, and how many a lane has."""
    work = program.work
    reader = program.reader
    if isinstance(work, StoreFacts):
        if work.stmatrix_count:
            return "b32", work.stmatrix_count
        return f"b{max(program.tile.problem.data_type.bits, 16)}", 1
    if isinstance(reader, WgmmaReader):
        return reader.decode.accumulator, reader.wgmma_registers
    if isinstance(reader, ThreadReader):
        return "b16" if reader.vector_words.ptx == "b16" else "b32", reader.vector_words.count
    return "b32", 4  # of ldmatrix.x4


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy's shared address in %a, and the registers that hold its coordinates."""

    lines: list[str]
    registers: list[str]


def _copy_lines(copy: TileCopy) -> _Copy:
    lines = [f"add.u32 %a, %base, {copy.offset};"]
    registers = []
    for axis, (index, offset, divisor) in enumerate(copy.coords):
        first = f"%first_{index}"
        computed = "%t" if axis % 2 else "%n"
        if not index:
            registers.append(str(offset))
        elif divisor > 1:
            lines.append(f"div.u32 {computed}, {first}, {divisor};")
            if offset:
                lines.append(f"add.u32 {computed}, {computed}, {offset};")
            registers.append(computed)
        elif offset:
            lines.append(f"add.u32 {computed}, {first}, {offset};")
            registers.append(computed)
        else:
            registers.append(first)
    return _Copy(lines, registers)
