"""ld.global.nc (__ldg): its cache is not coherent, so the kernel that loads bytes with it must not write them.

st [x], then ld.nc [x]     whatever orders the two, the load may return what the cache held before: an error
ld.nc [x], then st [x]     in order: what in-place kernels do, and the documentation forbids: a warning
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import DetectorContext
from tilescope.sync.detector.race import How, Mistake, Side
from tilescope.sync.epoch import Stamps, unpack_stamp
from tilescope.sync.footprint import CellNumbers
from tilescope.sync.shadow.global_cells import Stretch
from tilescope.sync.shadow.noncoherent_reads import NoncoherentReads
from tilescope.sync.shadow.shadow_cells import Accessor, LaneCells, Seen


class Writer(NamedTuple):
    """Who writes: lanes, each with the same number of cells."""

    how: How
    lanes: LaneNumbers
    cells_of_lane: int


def judge_noncoherent_load(context: DetectorContext, stretch: Stretch, at: LaneCells, stamps: Stamps) -> None:
    """Lanes load cells by ld.global.nc: no thread may have written them in this launch."""
    table = stretch.table
    if table.noncoherent is None:
        table.noncoherent = NoncoherentReads(len(table.writes))
    table.noncoherent.put(at.first, at.each, stamps, context.number)
    if not table.is_written:
        return
    cells = at.cells
    written = table.last_writes(cells, context.number)
    is_written = written.stamps != 0
    if not is_written.any():
        return
    first = int(np.argmax(is_written))
    before = context.side(unpack_stamp(int(written.stamps[first])), was_write=True)
    now = Side(context.pc, "read", unpack_stamp(int(stamps[first // at.each])).column)
    facts = {}
    if written.clusters is not None and int(written.clusters[first]) != context.number:
        facts["cluster"] = int(written.clusters[first])
    address = (stretch.first + int(cells[first])) * context.launch.memory.cell_bytes
    context.report("noncoherent load", before, now, "global", address, **facts)


def judge_noncoherent_store(
    context: DetectorContext, stretch: Stretch, cells: CellNumbers, accessor: Accessor, writer: Writer
) -> None:
    """Cells are written: no thread may have loaded them by ld.global.nc in this launch."""
    reads = stretch.table.noncoherent
    if reads is None:
        return
    stamps, clusters = reads.at(cells)
    is_read = stamps != 0
    if not is_read.any():
        return
    is_unordered = is_read & ~accessor.are_ordered(Seen(stamps, clusters), None)
    first = int(np.argmax(is_unordered if is_unordered.any() else is_read))
    before = context.side(unpack_stamp(int(stamps[first])), was_write=False)
    facts = {} if int(clusters[first]) == context.number else {"cluster": int(clusters[first])}
    mistake: Mistake = "noncoherent store" if is_unordered.any() else "noncoherent in place"
    now = Side(context.pc, writer.how, int(writer.lanes[first // writer.cells_of_lane]))
    address = (stretch.first + int(cells[first])) * context.launch.memory.cell_bytes
    context.report(mistake, before, now, "global", address, **facts)
