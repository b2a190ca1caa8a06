"""Who reads (or writes) the tile in shared memory, what layout that asks for, and what it costs.

wgmma, tcgen05     the tensor core reads shared memory by descriptor: canonical atoms, no counted wavefronts
ldmatrix           a warp reads 8 rows x 16 bytes at a time: canonical atoms, counted
an access pattern  threads read as they like: rows as TMA leaves them, counted
a store            threads write their results by stmatrix or st.shared, and TMA takes the tile from there
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tilescope.errors import RuleError, Violation, raise_all
from tilescope.layout import AtomOrder, Layout, oriented
from tilescope.mma.canonical import CanonicalLayout, canonical_layout
from tilescope.mma.consumer import CONSUMER
from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.mma.fragment import fragment
from tilescope.mma.tmem_form import epilogue_loads
from tilescope.planner.problem import Operand, Problem
from tilescope.planner.refusal import refusal
from tilescope.reading import attempted
from tilescope.rule import RULES
from tilescope.smem.access import Access, placed
from tilescope.smem.banks import count_ideal, count_wavefronts
from tilescope.smem.pattern import MAX_TILE_BYTES
from tilescope.swizzle import SWIZZLE, Swizzle

SMALLEST_MN = 8
LARGEST_PLAIN_ROW = 256  # elements of an unswizzled box row


class Wavefronts(NamedTuple):
    """Wavefronts of a whole tile, and the fewest that its instructions could take; None: not counted."""

    taken: int | None
    ideal: int | None


UNCOUNTED = Wavefronts(None, None)
Made = TypeVar("Made")
Key = tuple[Swizzle, AtomOrder]


def or_error(make: Callable[..., Made], *arguments: Any) -> Made | RuleError:
    """What a function makes of its arguments, or the error with which it refuses them."""
    try:
        return make(*arguments)
    except RuleError as error:
        return error


def swizzles_for(problem: Problem) -> tuple[Swizzle, ...]:
    """The swizzles worth trying: what the architecture has and the consumer could know."""
    if problem.swizzle is not None:
        return (problem.swizzle,)
    known = [row for row in SWIZZLE.values() if row.feature and problem.arch.has(row.feature)]
    if problem.copy != "tma":  # software may follow any pattern; tensor cores know these
        known = [SWIZZLE[name] for name in ("none", "32B", "64B", "128B")]
    return tuple(row for row in known if row.name != "96B")  # no driver call makes it


def layout_for(problem: Problem, swizzle: Swizzle, atom_order: AtomOrder) -> tuple[Layout, CanonicalLayout | None]:
    """The tile's layout under a swizzle; RuleError where the consumer has no such layout.

    A tile one atom wide or high has one order of atoms: "column".
    """
    laid = _layout(problem, swizzle, atom_order)
    single = atom_order == "row" and 1 in laid[0].as_rows().tiling.grid
    return _layout(problem, swizzle, "column") if single else laid


def _layout(problem: Problem, swizzle: Swizzle, atom_order: AtomOrder) -> tuple[Layout, CanonicalLayout | None]:
    if problem.for_tensor_core:
        canonical = canonical_layout(problem.major, swizzle, problem.data_type)
        raise_all(_unreadable(problem, canonical) or _torn_atoms(problem, canonical))
        return canonical.tile(problem.tile, atom_order=atom_order), canonical
    bits = problem.data_type.smem_bits
    width = problem.columns if swizzle.span_bytes is None else swizzle.span_bytes * 8 // bits
    if swizzle.span_bytes is None and width > LARGEST_PLAIN_ROW:
        widths = range(1, LARGEST_PLAIN_ROW + 1)
        width = max(width for width in widths if problem.columns % width == 0 and width * bits % 128 == 0)
    period = swizzle.repeat_bytes * 8 // (width * bits) or 1
    rows = problem.rows if atom_order == "column" else min(problem.rows, period)
    told = {"swizzle": swizzle.name, "atom_rows": rows, "atom_elements": width, "element_bits": bits}
    refusals = [
        refusal(broken, "tile", case, extent=extent, up=_up(extent, part), other=_other_swizzle(problem), **told)
        for broken, case, extent, part in (
            ("plan-span", "", problem.columns, width),
            ("plan-rows", "atoms", problem.rows, rows),
        )
        if extent % part
    ]
    raise_all(refusals)
    atom = oriented(problem.major, rows, width)
    return Layout(problem.tile, bits, atom=atom, atom_order=atom_order, major=problem.major, swizzle=swizzle), None


def _unreadable(problem: Problem, canonical: CanonicalLayout) -> list[Violation]:
    """Why the tensor core cannot read this tile in this layout."""
    reader, row = CONSUMER[problem.consumer], problem.data_type
    if reader.loop is not None:
        problems = reader.loop.unreadable(problem.tile, row, operand_of(problem), canonical)
        missing = reader.missing_kind(problem.arch, row)
        return problems + ([] if missing is None else [RULES["plan-type"].violation("data_type", *missing)])
    problems = []
    (mn, _), name = problem.tile, problem.extent_names[0]
    if not reader.reads(canonical, problem.major):
        narrow = problem.major == "MN" and row.smem_bits == 8 and problem.arch.has("ldmatrix_b8")
        case = "narrow" if narrow else "MN" if canonical.major == "MN" else ""
        told = {"major": canonical.major, "mode": canonical.mode, "data_type": row.name}
        problems.append(refusal("plan-layout", "major, swizzle", case, **told))
    if mn % SMALLEST_MN:
        problems.append(refusal("plan-tile", "tile", extent=name, rows=mn, up=_up(mn, SMALLEST_MN)))
    return problems


def _torn_atoms(problem: Problem, canonical: CanonicalLayout) -> list[Violation]:
    """Why the tile is no whole number of the layout's atoms."""
    (mn, k), (atom_mn, atom_k) = problem.tile, canonical.atom
    if mn % atom_mn == 0 and k % atom_k == 0:
        return []
    return [refusal("tile-atoms", "tile", mn=mn, k=k, names=problem.extent_names, major=canonical.major, mode=canonical.mode,
        element_bits=canonical.element_bits, atom_mn=atom_mn, atom_k=atom_k, up=(_up(mn, atom_mn), _up(k, atom_k)),
        other=_other_swizzle(problem),
    )]  # fmt: skip


def _other_swizzle(problem: Problem) -> str | None:
    """Advice for those who asked for a swizzle: where nobody did, all of them are tried."""
    return None if problem.swizzle is None else "a smaller swizzle"


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def counted_accesses(problem: Problem) -> tuple[Access, ...]:
    """The accesses whose wavefronts are counted: the consumer's reads, for a store the ways in which its producer may write.

    None where a tensor core reads by descriptor. Of several, the kernel takes the cheapest.
    """
    if isinstance(problem.consumer, Access):
        return (problem.consumer,)
    if problem.direction == "store":
        return epilogue_patterns(problem)
    return () if problem.reads_by_descriptor else (ldmatrix_pattern(problem),)


def cheapest(
    accesses: tuple[Access, ...], layouts: Mapping[Key, Layout]
) -> tuple[str, Mapping[Key, Wavefronts | RuleError]]:
    """The access that takes the fewest wavefronts on one of the layouts, the first of equals; and its counts on all.

    A RuleError stands for a layout on which the access would be torn.
    """
    counts: Mapping[Key, Wavefronts | RuleError] = dict.fromkeys(layouts, UNCOUNTED)
    name, least = "", math.inf
    for access in accesses:
        if int(count_ideal(access.op, *access.flat()).sum()) >= least:
            continue  # no layout gives it fewer
        on_each = {key: or_error(wavefronts_on, layout, access) for key, layout in layouts.items()}
        taken = min(
            (counted.taken or 0 for counted in on_each.values() if isinstance(counted, Wavefronts)),
            default=MAX_TILE_BYTES,
        )
        if taken < least:
            name, counts, least = access.name, on_each, taken
    return name, counts


def wavefronts_on(layout: Layout, access: Access) -> Wavefronts:
    """What all these accesses take on a layout."""
    offset, mask = access.flat()
    address = placed(access.op, offset, layout)
    taken, ideal = (count(access.op, address, mask).sum() for count in (count_wavefronts, count_ideal))
    return Wavefronts(int(taken), int(ideal))


def ldmatrix_pattern(problem: Problem) -> Access:
    """The widest ldmatrix walk that fits the tile."""
    tile, bits, transposed = (problem.rows, problem.columns), problem.data_type.smem_bits, problem.major == "MN"
    return _widest(lambda count: Access.ldmatrix(tile, bits, count=count, transpose=transposed))


def reads_plain_rows_freely(problem: Problem) -> bool:
    """Whether ldmatrix meets no conflict in one box of rows as they lie in global memory: an odd number of chunks a row.

    >>> [reads_plain_rows_freely(Problem((64, k), "bf16", consumer="ldmatrix")) for k in (64, 72)]
    [False, True]
    """
    if problem.columns > LARGEST_PLAIN_ROW:
        return False
    rows = Layout((problem.rows, problem.columns), problem.data_type.smem_bits)
    plain = wavefronts_on(rows, ldmatrix_pattern(problem))
    return plain.taken == plain.ideal


def epilogue_patterns(problem: Problem) -> tuple[Access, ...]:
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
        raise RuleError([refusal("plan-layout", "major", "element", element_bits=bits)])
    if bits <= 32 and core is not None and core.accumulators == "tensor memory":
        return tmem_epilogues(tile, bits, transpose=transposed)
    if bits == 16 and problem.arch.has("stmatrix"):
        return (_widest(lambda count: Access.stmatrix(tile, bits, count=count, transpose=transposed)),)
    held = fragment("mma.m8n8k4", "D", "f64") if bits == 64 else fragment("mma.m16n8k16", "D", "f32")
    return (Access.fragment(held, tile, transpose=transposed, element_bits=bits),)


def tmem_epilogues(tile: tuple[int, int], element_bits: int, *, transpose: bool) -> tuple[Access, ...]:
    """The ways to write a tile of results that tcgen05.ld brought into registers; the errors of all where none is possible.

    The tile is rows x columns, columns contiguous; `transpose` where its columns are m, the lanes of tensor memory.

    >>> [access.name for access in tmem_epilogues((128, 64), 16, transpose=False)][:3]
    ['stmatrix.x4 tcgen05.ld.16x256b', 'st.b128 tcgen05.ld.32x32b.x8', 'st.b32 tcgen05.ld.16x256b.x1']
    """
    ways: list[Access | None] = []
    problems: list[Violation] = []
    if element_bits == 16:
        stored = partial(Access.stmatrix, tile, element_bits, transpose=transpose)
        walk = attempted(problems, None, _widest, lambda count: stored(count=count))
        ways += [walk and Access(walk.op, walk.lane_address, walk.active, f"{walk.op.name} tcgen05.ld.16x256b")]
    for load in epilogue_loads(1 if transpose else tile[1], element_bits):
        written = partial(Access.fragment, transpose=transpose, element_bits=element_bits)
        ways.append(attempted(problems, None, written, fragment(load), tile))
    possible = tuple(access for access in ways if access is not None)
    raise_all(() if possible else dict.fromkeys(problems))
    return possible


def _widest(make: Callable[[int], Access]) -> Access:
    """The walk with the most matrices an instruction that the tile allows."""
    for count in (4, 2):
        with suppress(RuleError):
            return make(count)
    return make(1)


def operand_of(problem: Problem) -> Operand:
    """The operand a tile serves as: as asked, else A where its rows allow it."""
    rows_of_a = _loop(problem).extents(problem.data_type).m[0]
    return problem.operand or ("A" if problem.tile[0] % rows_of_a == 0 else "B")


def descriptors_of(problem: Problem, layout: Layout) -> DescriptorLoop:
    """The descriptors with which a tensor core reads the problem's tile from shared memory."""
    return _loop(problem)(layout, operand_of(problem), problem.data_type)


def _loop(problem: Problem) -> type[DescriptorLoop]:
    if problem.reads_by_descriptor and problem.tensor_core is not None and problem.tensor_core.loop is not None:
        return problem.tensor_core.loop
    readers = tuple(name for name, row in CONSUMER.items() if row.reads_by_descriptor)
    told = {"consumer": problem.consumer_name, "direction": problem.direction, "readers": readers}
    raise RuleError([refusal("plan-descriptors", "consumer", **told)])
