"""Who reads (or writes) the tile in shared memory, what layout that asks for, and what it costs.

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
from tilescope.planner.problem import PLAN_TYPE, Operand, Problem
from tilescope.planner.reason import Obstacle, PlanRule, or_obstacles, plan_rule
from tilescope.smem.access import Access, placed
from tilescope.smem.banks import count_ideal, count_wavefronts
from tilescope.smem.pattern import MAX_TILE_BYTES
from tilescope.swizzle import CHUNK_BYTES, SWIZZLE, Swizzle

SMALLEST_MN = 8
LARGEST_PLAIN_ROW = 256  # elements of an unswizzled box row
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
    known = (row for row in SWIZZLE.values() if row.feature and problem.arch.has(row.feature))
    return tuple(row for row in known if row.name != "96B")  # no driver call makes it


# fmt: off
PLAN_ROWS = plan_rule(
    "plan-rows", "The rows of a tile are a whole number of its boxes and atoms, and every box starts on a line of 128 bytes.",
    "measured on an H200: a shared address off 128 bytes faults",
    'ts.plan((8, 320), "u8", consumer="ld.b32 rows").best', 'ts.plan((3, 320), "u8", consumer="ld.b32 rows").best', "measured",
    said=("{rows:row} of {pitch_bytes} bytes, {box_bytes} bytes a box", "the next box starts on a line of 128 bytes",
          "Use [{up} rows][{order} order]."),
    atoms=("{extent} rows in row order",
           "atoms of swizzle {swizzle} are {atom_rows} rows of {atom_elements} elements of {element_bits} bits",
           "Use {up}[, or a smaller swizzle than {asked}]."),
)
PLAN_SPAN = plan_rule(
    "plan-span", "A row of the tile is a whole number of the swizzle's spans.",
    "cuda.h, cuTensorMapEncodeTiled: a row of the box is at most the span",
    'ts.plan((64, 128), "bf16", consumer="ld.b128 rows", swizzle="128B").best',
    'ts.plan((64, 96), "bf16", consumer="ld.b128 rows", swizzle="128B").best',
    said=("{extent} contiguous elements", PLAN_ROWS.texts["atoms"][1], "Use {up}[, or a smaller swizzle than {asked}]."),
)
# fmt: on


def containers_for(problem: Problem, swizzle: Swizzle, atom_order: AtomOrder) -> Layout | list[Obstacle]:
    """The tile's containers under a swizzle, as copies and descriptors count them; or what stands against it.

    A tile one atom wide or high has one order of atoms: "column".
    """
    laid = (_canonical_tile if problem.for_tensor_core else _plain_tile)(problem, swizzle, atom_order)
    single = isinstance(laid, Layout) and atom_order == "row" and 1 in laid.as_rows().tiling.grid
    return containers_for(problem, swizzle, "column") if single else laid


def element_layout(problem: Problem, containers: Layout) -> Layout:
    """Where the elements lie, of a tile whose `containers` copies and descriptors count.

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
    bits, columns, major, span = problem.data_type.smem_bits, problem.columns, problem.major, swizzle.span_bytes
    widths = range(1, min(columns, LARGEST_PLAIN_ROW) + 1) if span is None else [span * 8 // bits]
    width = max(width for width in widths if span or (columns % width == 0 and width * bits % 128 == 0))
    period = swizzle.repeat_bytes * 8 // (width * bits) or 1
    rows = problem.rows if atom_order == "column" else min(problem.rows, period)
    told = {"swizzle": swizzle.name, "atom_rows": rows, "atom_elements": width, "element_bits": bits}
    torn: list[Obstacle] = [
        row.broken(
            "tile",
            case,
            extent=extent,
            up=rounded_up(extent, part),
            asked=swizzle.name if problem.swizzle and swizzle.bits else None,
            **told,
        )
        for row, case, extent, part in (
            (PLAN_SPAN, "said", columns, width),
            (PLAN_ROWS, "atoms", problem.rows, rows),
        )
        if extent % part
    ]
    atom = oriented(major, rows, width)
    return torn or Layout(problem.tile, bits, atom=atom, atom_order=atom_order, major=major, swizzle=swizzle)


# fmt: off
_TRANSPOSED = 'Use major="K": transpose the tile once, or while copying.'
PLAN_LAYOUT = plan_rule(
    "plan-layout", "The consumer reads the layout: majorness, swizzle and element width together.", 'PTX ISA, "ldmatrix" and "stmatrix"',
    'ts.plan((64, 64), "u8", consumer="ldmatrix").best', 'ts.plan((64, 64), "u8", consumer="ldmatrix", major="MN").best',
    swizzle=("{major}-major {mode} with {data_type}", "ldmatrix does not read this layout", "Use swizzle 128B, 64B, 32B or none."),
    major=("an MN-major tile of {data_type}", "ldmatrix.trans reads elements of {widths:, } bits", _TRANSPOSED),
    narrow=("an MN-major tile of {data_type}", "ldmatrix.trans is planned for elements of 16 bits; m16n16.trans of 8 bits is not",
            _TRANSPOSED),
    element=("single elements of {element_bits} bits", "a lane stores 8, 16, 32, 64 or 128 bits",
             "Use the K-major tile, where neighbours share a byte."),
)
PLAN_TILE = plan_rule(
    "plan-tile", "A tile for ldmatrix has a multiple of 8 rows.", 'PTX ISA, "ldmatrix": 8 rows of 16 bytes',
    'ts.plan((16, 64), "bf16", consumer="ldmatrix").best', 'ts.plan((12, 64), "bf16", consumer="ldmatrix").best',
    said=("{extent} = {rows}", "ldmatrix reads 8 rows at a time", "Use {extent} = {up}."),
)
_TORN_ATOMS = PlanRule(TILE_ATOMS, {"said": (
    "a tile of {mn} x {k} ({names: x })",
    "{major}-major {mode} with {element_bits}-bit elements has atoms of {atom_mn} x {atom_k}, and a tile is a whole number of them",
    "Use {up: x } ({names: x })[, or a smaller swizzle than {asked}].",
)})
# fmt: on


def _unreadable(problem: Problem, canonical: CanonicalLayout) -> list[Obstacle]:
    """Why the tensor core cannot read this tile in this layout."""
    reader, row, mn = CONSUMER[problem.consumer], problem.data_type, problem.tile[0]
    if reader.loop is not None:
        missing = reader.missing_kind(problem.arch, row)
        kinds = [] if missing is None else [PLAN_TYPE.row.violation("data_type", *missing)]
        return [*reader.loop.unreadable(problem.tile, row, operand_of(problem), canonical), *kinds]
    told = {"extent": problem.extent_names[0], "rows": mn, "up": rounded_up(mn, SMALLEST_MN)}
    torn: list[Obstacle] = [PLAN_TILE.broken("tile", **told)] if mn % SMALLEST_MN else []
    return torn if reader.reads(canonical, problem.major) else [_unread(problem, reader, canonical), *torn]


def _unread(problem: Problem, reader: Consumer, canonical: CanonicalLayout) -> Obstacle:
    """Why lanes do not read this layout: for the width of MN-major elements, whatever the swizzle, or for the swizzle."""
    row, widths = problem.data_type, reader.mn_major_bits()
    if problem.major == "K" or row.smem_bits in widths:
        return PLAN_LAYOUT.broken("swizzle", "swizzle", major=problem.major, mode=canonical.mode, data_type=row.name)
    case = "narrow" if row.smem_bits == 8 and problem.arch.has("ldmatrix_b8") else "major"
    return PLAN_LAYOUT.broken("major", case, {"major": "K"}, data_type=row.name, widths=widths)


def _canonical_tile(problem: Problem, swizzle: Swizzle, atom_order: AtomOrder) -> Layout | list[Obstacle]:
    canonical = canonical_layout(problem.major, swizzle, problem.data_type)
    (mn, k), (atom_mn, atom_k), against = problem.tile, canonical.atom, _unreadable(problem, canonical)
    if against or (mn % atom_mn == 0 and k % atom_k == 0):
        return against or canonical.tile(problem.tile, atom_order=atom_order)
    told = {"major": canonical.major, "mode": canonical.mode, "element_bits": canonical.element_bits}
    told |= {"atom_mn": atom_mn, "atom_k": atom_k, "up": (rounded_up(mn, atom_mn), rounded_up(k, atom_k))}
    return [
        _TORN_ATOMS.broken(
            "tile",
            mn=mn,
            k=k,
            names=problem.extent_names,
            asked=swizzle.name if problem.swizzle and swizzle.bits else None,
            **told,
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
    tile, bits, transposed = (problem.rows, problem.columns), problem.data_type.smem_bits, problem.major == "MN"
    walks = partial(Access.ldmatrix, tile, bits, transpose=transposed)
    return () if problem.reads_by_descriptor else (_widest(walks),)


def cheapest(accesses: tuple[Access, ...], layouts: Mapping[Key, Layout]) -> tuple[str, Mapping[Key, Counted]]:
    """The access that takes the fewest wavefronts on one of the layouts, the first of equals; and its counts on all.

    Obstacles stand for a layout on which the access would be torn.
    """
    counts: Mapping[Key, Counted] = dict.fromkeys(layouts, UNCOUNTED)
    name, least = "", math.inf
    for access in accesses:
        if int(count_ideal(access.op, *access.flat()).sum()) >= least:
            continue  # no layout gives it fewer
        tried = {key: or_obstacles(wavefronts_on, layout, access) for key, layout in layouts.items()}
        taken = [counted.taken or 0 for counted in tried.values() if isinstance(counted, Wavefronts)]
        if min(taken, default=MAX_TILE_BYTES) < least:
            name, counts, least = access.name, tried, min(taken, default=MAX_TILE_BYTES)
    return name, counts


def wavefronts_on(layout: Layout, access: Access) -> Wavefronts:
    """What all these accesses take on a layout."""
    offset, mask = access.flat()
    address = placed(access.op, offset, layout)
    taken, ideal = (count(access.op, address, mask).sum() for count in (count_wavefronts, count_ideal))
    return Wavefronts(int(taken), int(ideal))


def _epilogues(problem: Problem) -> tuple[Access, ...] | list[Obstacle]:
    """How a tile of results may leave the registers, where nobody says otherwise.

    tcgen05                what a tcgen05.ld brought      every form of it that serves
    16 bits                stmatrix                       eight rows of 16 bytes at a time
    64 bits                mma's D fragment               two neighbours a lane
    wgmma, mma (ldmatrix)  the D fragment, converted      two neighbours a lane: 16 bits of 8-bit results

    In an MN-major tile a lane's neighbours are far apart: single elements.
    """
    tile, bits = (problem.rows, problem.columns), problem.data_type.smem_bits
    transposed, core = problem.major == "MN", problem.tensor_core
    if transposed and bits < 8:
        return [PLAN_LAYOUT.broken("major", "element", element_bits=bits)]
    if bits <= 32 and core is not None and core.accumulators == "tensor memory":
        return tmem_epilogues(tile, bits, transpose=transposed)
    if bits == 16 and problem.arch.has("stmatrix"):
        return (_widest(partial(Access.stmatrix, tile, bits, transpose=transposed)),)
    held = fragment("mma.m8n8k4", "D", "f64") if bits == 64 else fragment("mma.m16n8k16", "D", "f32")
    return (Access.fragment(held, tile, transpose=transposed, element_bits=bits),)


def tmem_epilogues(tile: tuple[int, int], element_bits: int, *, transpose: bool) -> tuple[Access, ...] | list[Obstacle]:
    """The ways to write a tile of results that tcgen05.ld brought into registers; what stands against all where none is possible.

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
    return possible or [one for way in ways if isinstance(way, list) for one in way]


def _widest(walks: Callable[..., Access], after: str = "") -> Access:
    """The walk with the most matrices an instruction that the tile allows; its name says what it comes after."""
    wide = (or_obstacles(partial(walks, count=count)) for count in (4, 2))
    walk = next((walk for walk in wide if isinstance(walk, Access)), None) or walks(count=1)
    return Access(walk.op, walk.lane_address, walk.active, walk.name + after)


def operand_of(problem: Problem) -> Operand:
    """The operand a tile serves as: as asked, else A where its rows allow it."""
    return problem.operand or ("B" if problem.tile[0] % _loop(problem).extents(problem.data_type).m[0] else "A")


def descriptors_of(problem: Problem, layout: Layout) -> DescriptorLoop:
    """The descriptors with which a tensor core reads the problem's tile from shared memory."""
    return _loop(problem)(layout, operand_of(problem), problem.data_type)


# fmt: off
PLAN_DESCRIPTORS = plan_rule(
    "plan-descriptors", "wgmma and tcgen05 read shared memory by descriptor; other consumers have none.", 'PTX ISA, "matrix descriptor"',
    'ts.plan((64, 64), "bf16", consumer="wgmma").best.descriptors()',
    'ts.plan((64, 64), "bf16", consumer="ldmatrix").best.descriptors()',
    said=("consumer = {consumer} for a {direction}", "{readers: and } read shared memory by descriptor",
          "Use address(mn, k), or plan for wgmma."),
)
# fmt: on


def _loop(problem: Problem) -> type[DescriptorLoop]:
    if problem.reads_by_descriptor and problem.tensor_core is not None and problem.tensor_core.loop is not None:
        return problem.tensor_core.loop
    readers = tuple(name for name, row in CONSUMER.items() if row.reads_by_descriptor)
    told = {"consumer": problem.consumer_name, "direction": problem.direction, "readers": readers}
    raise PLAN_DESCRIPTORS.broken("consumer", **told).error()
