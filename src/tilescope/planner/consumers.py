"""The readers (or writers) of a tile in shared memory, the layouts that they need, and the cost of an access.

wgmma, tcgen05     the tensor core reads shared memory by descriptor: canonical atoms, no counted wavefronts
ldmatrix           a warp reads 8 rows x 16 bytes at a time: canonical atoms, counted
an access pattern  threads read as they like: rows as TMA leaves them, counted
a store            threads write their results by stmatrix or st.shared, and TMA takes the tile from there
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from tilescope.arithmetic import rounded_up
from tilescope.layout import TILE_ATOMS, AtomOrder, Layout, Modes, oriented
from tilescope.layout.modes import coalesced
from tilescope.mma.canonical import CanonicalLayout, canonical_layout
from tilescope.mma.consumer import CONSUMER, Consumer
from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.mma.fragment import fragment
from tilescope.mma.tmem_form import epilogue_loads
from tilescope.planner.missing import missing_kind
from tilescope.planner.obstacle import Broken, Obstacle, broken, or_obstacles
from tilescope.planner.problem import TYPE_WITHOUT_KIND, Operand, Problem
from tilescope.rule import rule
from tilescope.smem.access import Access, placed
from tilescope.smem.banks import count_ideal, count_wavefronts
from tilescope.smem.pattern import MAX_TILE_BYTES
from tilescope.swizzle import CHUNK_BYTES, SWIZZLE, Swizzle
from tilescope.tensor_map.limits import LARGEST_BOX_EXTENT

LDMATRIX_ROWS = 8
PIECE_ELEMENTS = 16  # of a padded type, in one chunk of shared memory


class Wavefronts(NamedTuple):
    """Wavefronts of a whole tile, and the fewest that its instructions could take; None: not counted."""

    taken: int | None
    ideal: int | None


UNCOUNTED = Wavefronts(None, None)
Key = tuple[Swizzle, AtomOrder]
Counted = Wavefronts | list[Obstacle]


def swizzles_for(problem: Problem) -> tuple[Swizzle, ...]:
    """The swizzles worth trying: what the architecture has and the consumer could know."""
    if problem.swizzle is not None:
        return (problem.swizzle,)
    if problem.copy != "tma":  # software may follow any pattern; tensor cores know these
        return tuple(SWIZZLE[name] for name in ("none", "32B", "64B", "128B"))
    supported = (row for row in SWIZZLE.values() if row.feature and problem.arch.has(row.feature))
    return tuple(row for row in supported if row.name != "96B")  # no driver call makes it


_TORN_ATOM = "atoms of swizzle {swizzle} are {atom_rows} rows of {atom_elements} elements of {element_bits} bits"
PLAN_ROWS = rule(
    "plan-rows",
    "The rows of a tile are a multiple of those of its boxes and atoms, and every box starts at a line of 128 bytes.",
    argument="tile",
    found="[[{matrix}: ]]{rows:row} of {pitch_bytes} bytes, {box_bytes} bytes a box",
    limit="the next box starts on a line of 128 bytes",
    fix="Use {up} rows.",
    source="measured on an H200: a shared address off 128 bytes faults",
    basis="measured",
    passing='ts.plan((8, 320), "u8", consumer="ld.b32 rows").best',
    failing='ts.plan((3, 320), "u8", consumer="ld.b32 rows").best',
)
BOX_OFF_LINE_IN_ROW_ORDER = PLAN_ROWS.worded(argument="atom_order", fix="Use {order} order.")
ROWS_TEAR_ATOMS = PLAN_ROWS.worded(
    found="[[{matrix}: ]]{extent} rows in row order",
    limit=_TORN_ATOM,
    fix="Use {up}[[, or a smaller swizzle than {asked}]].",
)
PLAN_SPAN = rule(
    "plan-span",
    "A row of the tile is a multiple of the swizzle's span.",
    argument="tile",
    found="[[{matrix}: ]]{extent} contiguous elements",
    limit=_TORN_ATOM,
    fix="Use {up}[[, or a smaller swizzle than {asked}]].",
    source="cuda.h, cuTensorMapEncodeTiled: a row of the box is at most the span",
    passing='ts.plan((64, 128), "bf16", consumer="ld.b128 rows", swizzle="128B").best',
    failing='ts.plan((64, 96), "bf16", consumer="ld.b128 rows", swizzle="128B").best',
)


def containers_for(problem: Problem, swizzle: Swizzle, atom_order: AtomOrder) -> Layout | list[Obstacle]:
    """The tile's containers under a swizzle, as copies and descriptors count them; or the obstacles to it.

    A tile one atom wide or high has one order of atoms: "column".
    """
    lay_out = _canonical_tile if problem.for_tensor_core else _plain_tile
    laid = lay_out(problem, swizzle, atom_order)
    if atom_order == "row" and isinstance(laid, Layout) and 1 in laid.as_rows().tiling.grid:
        return lay_out(problem, swizzle, "column")
    return laid


def element_layout(problem: Problem, containers: Layout) -> Layout:
    """The addresses of a tile's elements, whose `containers` copies and descriptors count.

    They differ for types that TMA pads. A load leaves sixteen values dense at the start of their chunk of 16 bytes, while
    descriptors and boxes count a byte for each; a store takes a value from each of these bytes:

        16u4_align16b, k = 5     container: byte 5     loaded: bits 20 to 23, byte 2 of the chunk

    >>> tile = Problem((128, 128), "16u4_align16b", arch="sm_100")
    >>> containers = Layout((128, 128), 8, swizzle="128B")
    >>> containers.address(0, 5), element_layout(tile, containers).address(0, 5)
    (5, 2)
    """
    row = problem.data_type
    if row.bits == row.smem_bits or problem.direction == "store":
        return containers
    rows, ((run, _), *further) = oriented(problem.major, *containers.pairs)
    pieces = run // PIECE_ELEMENTS
    columns = coalesced((PIECE_ELEMENTS, row.bits), (pieces, CHUNK_BYTES * 8), *further)
    modes = Modes.of_indices(oriented(problem.major, rows, columns))
    return Layout.from_modes(modes, row.bits, unit_bits=1, swizzle=containers.swizzle, start=containers.start)


def _plain_tile(problem: Problem, swizzle: Swizzle, atom_order: AtomOrder) -> Layout | list[Obstacle]:
    """Rows as TMA leaves them: atoms are one box row wide, and in row order one period of the swizzle high."""
    bits = problem.data_type.smem_bits
    width = _plain_width(problem, swizzle)
    rows = problem.rows
    if atom_order == "row":
        period = swizzle.repeat_bytes * 8 // (width * bits) or 1
        rows = min(rows, period)
    torn: list[Obstacle] = []
    for broken_rule, extent, part in ((PLAN_SPAN, problem.columns, width), (ROWS_TEAR_ATOMS, problem.rows, rows)):
        if extent % part:
            torn.append(
                broken(
                    broken_rule,
                    extent=extent,
                    up=rounded_up(extent, part),
                    asked=_swizzle_asked_for(problem),
                    swizzle=swizzle.name,
                    atom_rows=rows,
                    atom_elements=width,
                    element_bits=bits,
                )
            )
    if torn:
        return torn
    atom = oriented(problem.major, rows, width)
    return Layout(problem.tile, bits, atom=atom, atom_order=atom_order, major=problem.major, swizzle=swizzle)


def _plain_width(problem: Problem, swizzle: Swizzle) -> int:
    """Elements of a box row: the swizzle's span; without one, the most that divide a row and that a box takes."""
    bits = problem.data_type.smem_bits
    if swizzle.span_bytes:
        return swizzle.span_bytes * 8 // bits
    widths = range(1, min(problem.columns, LARGEST_BOX_EXTENT) + 1)
    return max(width for width in widths if problem.columns % width == 0 and width * bits % (CHUNK_BYTES * 8) == 0)


def _swizzle_asked_for(problem: Problem) -> str | None:
    """The swizzle to be replaced by a smaller one; None where the search tries all of them."""
    return problem.swizzle.name if problem.swizzle and problem.swizzle.bits else None


_TRANSPOSE = 'Use {major:="K"}: transpose the tile once, or while copying.'
PLAN_LAYOUT = rule(
    "plan-layout",
    "The consumer supports the combination of majorness, swizzle and element width.",
    argument="swizzle",
    found="[[{matrix}: ]]{major}-major {mode} with {data_type}",
    limit="ldmatrix does not read this layout",
    fix="Use swizzle 128B, 64B, 32B or none.",
    source='PTX ISA, "ldmatrix" and "stmatrix"',
    passing='ts.plan((64, 64), "u8", consumer="ldmatrix").best',
    failing='ts.plan((64, 64), "u8", consumer="ldmatrix", major="MN").best',
)
MAJOR_NOT_READ = PLAN_LAYOUT.worded(
    argument="major",
    found="[[{matrix}: ]]an MN-major tile of {data_type}",
    limit="ldmatrix.trans reads elements of {widths:, } bits",
    fix=_TRANSPOSE,
)
BYTES_NOT_TRANSPOSED = MAJOR_NOT_READ.worded(
    limit="ldmatrix.trans is planned for elements of 16 bits; m16n16.trans of 8 bits is not",
)
ELEMENTS_NOT_STORED = PLAN_LAYOUT.worded(
    argument="major",
    found="[[{matrix}: ]]single elements of {element_bits} bits",
    limit="a lane stores 8, 16, 32, 64 or 128 bits",
    fix="Use the K-major tile, where neighbours share a byte.",
)
PLAN_TILE = rule(
    "plan-tile",
    "A tile for ldmatrix has a multiple of 8 rows.",
    argument="tile",
    found="[[{matrix}: ]]{extent} = {rows}",
    limit="ldmatrix reads 8 rows at a time",
    fix="Use {extent} = {up}.",
    source='PTX ISA, "ldmatrix": 8 rows of 16 bytes',
    passing='ts.plan((16, 64), "bf16", consumer="ldmatrix").best',
    failing='ts.plan((12, 64), "bf16", consumer="ldmatrix").best',
)
PLAN_ATOMS = TILE_ATOMS.worded(
    argument="tile",
    found="[[{matrix}: ]]a tile of {mn} x {k} ({names: x })",
    limit="{major}-major {mode} with {element_bits}-bit elements has atoms of {atom_mn} x {atom_k}, "
    "and a tile is a whole number of them",
    fix="Use {up: x } ({names: x })[[, or a smaller swizzle than {asked}]].",
)


def _unreadable(problem: Problem, canonical: CanonicalLayout) -> list[Obstacle]:
    """Why the tensor core cannot read this tile in this layout."""
    reader = CONSUMER[problem.consumer]
    element = problem.data_type
    if reader.loop is not None:
        kinds = missing_kind(TYPE_WITHOUT_KIND, reader, problem.arch, element)
        return [*reader.loop.unreadable(problem.tile, element, operand_of(problem), canonical), *kinds]
    obstacles: list[Obstacle] = []
    if not reader.reads(canonical, problem.major):
        obstacles.append(_unread(problem, reader, canonical))
    rows = problem.tile[0]
    if rows % LDMATRIX_ROWS:
        obstacles.append(
            broken(PLAN_TILE, extent=problem.extent_names[0], rows=rows, up=rounded_up(rows, LDMATRIX_ROWS))
        )
    return obstacles


def _unread(problem: Problem, reader: Consumer, canonical: CanonicalLayout) -> Broken:
    """Why lanes do not read this layout: because of the width of MN-major elements, or because of the swizzle."""
    element = problem.data_type
    widths = reader.mn_major_bits()
    if problem.major == "K" or element.smem_bits in widths:
        return broken(PLAN_LAYOUT, major=problem.major, mode=canonical.mode, data_type=element.name)
    bytes_are_transposed = element.smem_bits == 8 and problem.arch.has("ldmatrix_b8")
    broken_rule = BYTES_NOT_TRANSPOSED if bytes_are_transposed else MAJOR_NOT_READ
    return broken(broken_rule, data_type=element.name, widths=widths, change={"major": "K"})


def _canonical_tile(problem: Problem, swizzle: Swizzle, atom_order: AtomOrder) -> Layout | list[Obstacle]:
    """The tile in the atoms of the tensor core."""
    canonical = canonical_layout(problem.major, swizzle, problem.data_type)
    if against := _unreadable(problem, canonical):
        return against
    mn, k = problem.tile
    atom_mn, atom_k = canonical.atom
    if mn % atom_mn == 0 and k % atom_k == 0:
        return canonical.tile(problem.tile, atom_order=atom_order)
    return [
        broken(
            PLAN_ATOMS,
            mn=mn,
            k=k,
            names=problem.extent_names,
            asked=_swizzle_asked_for(problem),
            major=canonical.major,
            mode=canonical.mode,
            element_bits=canonical.element_bits,
            atom_mn=atom_mn,
            atom_k=atom_k,
            up=(rounded_up(mn, atom_mn), rounded_up(k, atom_k)),
        )
    ]


def counted_accesses(problem: Problem) -> tuple[Access, ...] | list[Obstacle]:
    """The accesses whose wavefronts are counted: the consumer's reads, for a store the ways in which its producer may write.

    None where a tensor core reads by descriptor. Of several, the kernel takes the cheapest.
    """
    if isinstance(problem.consumer, Access):
        return (problem.consumer,)
    if problem.direction == "store":
        return _epilogues(problem)
    if problem.reads_by_descriptor:
        return ()
    tile = problem.rows, problem.columns
    walks = partial(Access.ldmatrix, tile, problem.data_type.smem_bits, transpose=problem.major == "MN")
    return (_widest(walks),)


def cheapest(accesses: tuple[Access, ...], layouts: Mapping[Key, Layout]) -> tuple[str, Mapping[Key, Counted]]:
    """The access that takes the fewest wavefronts on one of the layouts, the first of equals; and its counts on all.

    Obstacles replace a layout on which the access would be torn.
    """
    name = ""
    counts: Mapping[Key, Counted] = dict.fromkeys(layouts, UNCOUNTED)
    least = math.inf
    for access in accesses:
        if int(count_ideal(access.op, *access.flat()).sum()) >= least:
            continue  # no layout gives it fewer
        tried = {key: or_obstacles(wavefronts_on, layout, access) for key, layout in layouts.items()}
        taken = [counted.taken or 0 for counted in tried.values() if isinstance(counted, Wavefronts)]
        fewest = min(taken, default=MAX_TILE_BYTES)
        if fewest < least:
            name = access.name
            counts = tried
            least = fewest
    return name, counts


def wavefronts_on(layout: Layout, access: Access) -> Wavefronts:
    """What all these accesses take on a layout."""
    offset, mask = access.flat()
    address = placed(access.op, offset, layout)
    taken = count_wavefronts(access.op, address, mask).sum()
    ideal = count_ideal(access.op, address, mask).sum()
    return Wavefronts(int(taken), int(ideal))


def _epilogues(problem: Problem) -> tuple[Access, ...] | list[Obstacle]:
    """How a tile of results can be written from the registers if no access is requested.

    tcgen05                what a tcgen05.ld brought      every form of it that serves
    16 bits                stmatrix                       eight rows of 16 bytes at a time
    64 bits                mma's D fragment               two neighbours a lane
    wgmma, mma (ldmatrix)  the D fragment, converted      two neighbours a lane: 16 bits of 8-bit results

    In an MN-major tile a lane's neighbours are far apart: single elements.
    """
    tile = problem.rows, problem.columns
    bits = problem.data_type.smem_bits
    transposed = problem.major == "MN"
    core = problem.tensor_core
    if transposed and bits < 8:
        return [broken(ELEMENTS_NOT_STORED, element_bits=bits)]
    if bits <= 32 and core is not None and core.accumulators == "tensor memory":
        return tmem_epilogues(tile, bits, transpose=transposed)
    if bits == 16 and problem.arch.has("stmatrix"):
        return (_widest(partial(Access.stmatrix, tile, bits, transpose=transposed)),)
    accumulator = fragment("mma.m8n8k4", "D", "f64") if bits == 64 else fragment("mma.m16n8k16", "D", "f32")
    return (Access.fragment(accumulator, tile, transpose=transposed, element_bits=bits),)


def tmem_epilogues(tile: tuple[int, int], element_bits: int, *, transpose: bool) -> tuple[Access, ...] | list[Obstacle]:
    """The patterns that write a tile of results after tcgen05.ld, or the obstacles to all of them.

    The tile is rows x columns, columns contiguous; `transpose` where its columns are m, the lanes of tensor memory.

    >>> [access.name for access in tmem_epilogues((128, 64), 16, transpose=False)][:3]
    ['stmatrix.x4 tcgen05.ld.16x256b', 'st.b128 tcgen05.ld.32x32b.x8', 'st.b32 tcgen05.ld.16x256b.x1']
    """
    walks = partial(Access.stmatrix, tile, element_bits, transpose=transpose)
    written = partial(Access.fragment, tile=tile, transpose=transpose, element_bits=element_bits)
    loads = epilogue_loads(1 if transpose else tile[1], element_bits)
    ways = [or_obstacles(_widest, walks, " tcgen05.ld.16x256b")] if element_bits == 16 else []
    ways += [or_obstacles(written, fragment(load)) for load in loads]
    possible = tuple(way for way in ways if isinstance(way, Access))
    return possible or [obstacle for way in ways if isinstance(way, list) for obstacle in way]


def _widest(walks: Callable[..., Access], after: str = "") -> Access:
    """The walk with the most matrices per instruction that the tile allows; its name has the preceding load."""
    wider = (or_obstacles(walks, count=count) for count in (4, 2))
    walk = next((walk for walk in wider if isinstance(walk, Access)), None) or walks(count=1)
    return Access(walk.op, walk.lane_address, walk.active, walk.name + after)


def operand_of(problem: Problem) -> Operand:
    """The operand of a tile: as requested, else A if its rows allow it."""
    if problem.operand is not None:
        return problem.operand
    fewest_rows = _loop(problem).extents(problem.data_type).m[0]
    return "A" if problem.tile[0] % fewest_rows == 0 else "B"


def descriptors_of(problem: Problem, layout: Layout) -> DescriptorLoop:
    """The descriptors with which a tensor core reads the problem's tile from shared memory."""
    return _loop(problem)(layout, operand_of(problem), problem.data_type)


PLAN_DESCRIPTORS = rule(
    "plan-descriptors",
    "Only wgmma and tcgen05 read shared memory by descriptor.",
    argument="consumer",
    found="consumer = {consumer} for a {direction}",
    limit="{readers:and} read shared memory by descriptor",
    fix="Use address(mn, k), or plan for wgmma.",
    source='PTX ISA, "matrix descriptor"',
    passing='ts.plan((64, 64), "bf16", consumer="wgmma").best.descriptors()',
    failing='ts.plan((64, 64), "bf16", consumer="ldmatrix").best.descriptors()',
)


def _loop(problem: Problem) -> type[DescriptorLoop]:
    if problem.reads_by_descriptor and problem.tensor_core is not None and problem.tensor_core.loop is not None:
        return problem.tensor_core.loop
    readers = tuple(name for name, row in CONSUMER.items() if row.reads_by_descriptor)
    raise PLAN_DESCRIPTORS.error(consumer=problem.consumer_name, direction=problem.direction, readers=readers)
