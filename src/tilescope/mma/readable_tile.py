"""Which tiles the instructions of a K loop read through descriptors, and why they do not read the others.

wgmma, A of 100 x 64 bf16     no: m = 100, and one instruction takes 64 rows of A
wgmma, MN-major tf32          no: wgmma reads elements of 16 bits MN-major
tile at 0x410                 yes, with a warning: TMA writes at multiples of 128 only
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple

from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.errors import Violation
from tilescope.layout import Layout, Major
from tilescope.mma.canonical import READERS, READS_NO_SUCH_LAYOUT, READS_OTHER_WIDTHS, CanonicalLayout, readable_bits
from tilescope.mma.mma_instruction import K_STEP_BYTES
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.reading import is_one_of, known_name, plain_int, try_read
from tilescope.rule import Rule, rule
from tilescope.sentence import format_value
from tilescope.swizzle import CHUNK_BYTES, SMEM_ALIGNMENT, SMEM_LINE_BYTES

SmemOperand = Literal["A", "B"]
SMEM_OPERANDS: tuple[SmemOperand, ...] = ("A", "B")
WIDE_STEP_BYTES = 48
WIDE_LOOP_K = 768  # 4-bit elements: whole steps of 96 in whole atoms of 256
TCGEN05_STEP = rule(
    "tcgen05-step",
    "A K step of tcgen05 is 32 bytes; on sm_103a also 48 bytes, for K-major 4-bit elements with 128B.",
    argument="k_step_bytes",
    found="k_step_bytes = {asked} with {element_bits}-bit elements, {major}-major {mode}, k = {k}",
    limit="a step is 32 bytes; 48 only of 4-bit elements, K-major 128B, with k a multiple of {wide_k} (sm_103a)",
    fix="Use k_step_bytes = {usual}.",
    source='PTX ISA, "Matrix shape" of tcgen05.mma: k = 96',
    architectures=("sm_103",),
    passing='ts.tcgen05_descriptors((128, 768), "e2m1", k_step_bytes=48)',
    failing='ts.tcgen05_descriptors((128, 256), "e2m1", k_step_bytes=48)',
)
WGMMA_ELEMENT = rule(
    "wgmma-element",
    "The layout's elements are as wide as those of the data type.",
    argument="data_type",
    found="{data_type} in a layout of {layout_bits}-bit elements",
    limit="{data_type} has {type_bits} bits",
    fix='Use canonical_layout("{major}", "{swizzle}", "{data_type}").tile({whole}), or a {layout_bits}-bit type.',
    source='PTX ISA, wgmma: "Canonical Layouts" and shapes',
    architectures=("sm_90",),
    passing='ts.wgmma_descriptors(ts.canonical_layout("K", "128B", "bf16").tile((128, 64)), "f16")',
    failing='ts.wgmma_descriptors(ts.canonical_layout("K", "128B", "bf16").tile((128, 64)), "e4m3")',
)
WGMMA_LAYOUT = rule(
    "wgmma-layout",
    "wgmma reads the canonical layouts of PTX; elements of MN-major layouts have 16 bits.",
    argument="major, swizzle",
    found="{major}-major {mode} with {data_type}",
    limit=READS_OTHER_WIDTHS,
    fix="Use K-major, or transpose while copying.",
    source='PTX ISA, wgmma: "Canonical Layouts" and shapes',
    architectures=("sm_90",),
    passing='ts.wgmma_descriptors((128, 64), "tf32")',
    failing='ts.wgmma_descriptors((128, 64), "tf32", major="MN", swizzle="64B")',
)
WGMMA_TILE = rule(
    "wgmma-tile",
    "Tiles for wgmma are multiples of m 64 (A) or n 8 (B), and of 32 bytes along k.",
    argument="tile",
    found="{extent_name} = {extent}",
    limit="{instruction} takes {extent_name} of {data_type} in multiples of {multiple}",
    fix="Use {whole}; TMA fills elements outside the tensor with zeros.",
    source='PTX ISA, wgmma: "Canonical Layouts" and shapes',
    architectures=("sm_90",),
    passing='ts.wgmma_descriptors((128, 64), "bf16")',
    failing='ts.wgmma_descriptors((72, 64), "bf16")',
)
TCGEN05_ELEMENT = rule(
    "tcgen05-element",
    "The layout's elements are as wide as those of the data type.",
    argument="data_type",
    found="{data_type} in a layout of {layout_bits}-bit elements",
    limit="{data_type} has {type_bits} bits",
    fix='Use canonical_layout("{major}", "{swizzle}", "{data_type}").tile({whole}), or a {layout_bits}-bit type.',
    source='PTX ISA, tcgen05: "Canonical Layouts" and shapes',
    architectures=BLACKWELL,
    passing='ts.tcgen05_descriptors(ts.canonical_layout("K", "128B", "bf16").tile((128, 64)), "f16")',
    failing='ts.tcgen05_descriptors(ts.canonical_layout("K", "128B", "bf16").tile((128, 64)), "e4m3")',
)
TCGEN05_LAYOUT = rule(
    "tcgen05-layout",
    "tcgen05 reads the canonical layouts of PTX; elements below 8 bits must be K-major.",
    argument="major, swizzle",
    found="{major}-major {mode} with {data_type}",
    limit=READS_OTHER_WIDTHS,
    fix="Use K-major, or transpose while copying.",
    source='PTX ISA, tcgen05: "Canonical Layouts" and shapes',
    architectures=BLACKWELL,
    passing='ts.tcgen05_descriptors((128, 64), "tf32")',
    failing='ts.tcgen05_descriptors((128, 64), "tf32", major="MN", swizzle="64B")',
)
TCGEN05_TILE = rule(
    "tcgen05-tile",
    "Tiles for tcgen05 are multiples of the m, n and k of one tcgen05.mma.",
    argument="tile",
    found="{extent_name} = {extent}",
    limit="{instruction} takes {extent_name} of {data_type} in multiples of {multiple}",
    fix="Use {whole}; TMA fills elements outside the tensor with zeros.",
    source='PTX ISA, tcgen05: "Canonical Layouts" and shapes',
    architectures=BLACKWELL,
    passing='ts.tcgen05_descriptors((128, 64), "bf16")',
    failing='ts.tcgen05_descriptors((72, 64), "bf16")',
)
TMA_ALIGNMENT = replace(
    SMEM_ALIGNMENT.worded(
        argument="smem_address",
        found="smem_address = {smem_address:#x} is {past_bytes} bytes past {below:#x}",
        limit="TMA writes only at multiples of {line_bytes}; elsewhere the copy ends in error 716, misaligned address",
        fix="Use {below:#x} or {above:#x}; multiples of {alignment_bytes} have base offset 0.",
    ),
    severity="warning",
)
PATTERN_IN_MID_LINE = TMA_ALIGNMENT.worded(
    limit=f"{TMA_ALIGNMENT.limit}. The {{swizzle}} pattern starts in mid-line, at chunk {{chunk}}: rows of an atom cross lines"
)


class LoopRules(NamedTuple):
    """What one instruction demands of the tile that its descriptors read."""

    element: Rule  # of the width of its elements
    layout: Rule
    tile: Rule  # of its extents


LOOP_RULES = {
    "wgmma": LoopRules(element=WGMMA_ELEMENT, layout=WGMMA_LAYOUT, tile=WGMMA_TILE),
    "tcgen05": LoopRules(element=TCGEN05_ELEMENT, layout=TCGEN05_LAYOUT, tile=TCGEN05_TILE),
}


class Extents(NamedTuple):
    """The extents of one instruction: m, n and k."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: int


def step_problems(k_step_bytes: int, canonical: CanonicalLayout, k: int) -> list[Violation]:
    """Why a loop over `k` elements cannot go in steps of this length."""
    taken = [K_STEP_BYTES]
    is_wide = (canonical.major, canonical.swizzle.name, canonical.element_bits) == ("K", "128B", 4)
    if is_wide and k % WIDE_LOOP_K == 0:
        taken.append(WIDE_STEP_BYTES)
    if is_one_of(k_step_bytes, taken):
        return []
    return [
        TCGEN05_STEP.violation(
            asked=format_value(k_step_bytes),
            k_step_bytes=plain_int(k_step_bytes),
            element_bits=canonical.element_bits,
            major=canonical.major,
            mode=canonical.mode,
            k=k,
            wide_k=WIDE_LOOP_K,
            usual=K_STEP_BYTES,
            change={"k_step_bytes": K_STEP_BYTES},
        )
    ]


def tile_problems(
    instruction: str,
    extents: Extents,
    shape: tuple[int, int],
    data_type: DataType,
    *,
    operand: SmemOperand,
    canonical: CanonicalLayout,
) -> list[Violation]:
    """Why no sequence of the instruction reads a tile of this shape in this layout."""
    problems: list[Violation] = []
    is_a = try_read(problems, "B", known_name, "operand", operand, SMEM_OPERANDS) == "A"
    if data_type.smem_bits != canonical.element_bits:
        problems.append(_other_width(instruction, shape, data_type, canonical))
    problems += _layout_problems(instruction, data_type, canonical)
    mn, k = shape
    mn_name = "m" if is_a else "n"
    mn_multiple = extents.m[0] if is_a else extents.n[0]
    for extent_name, extent, multiple in ((mn_name, mn, mn_multiple), ("k", k, extents.k)):
        if extent % multiple:
            value: dict[str, Any] = {extent_name: extent}
            rounded = rounded_up(extent, multiple)
            problem = LOOP_RULES[instruction].tile.violation(
                extent_name=extent_name,
                extent=extent,
                instruction=instruction,
                data_type=data_type.name,
                multiple=multiple,
                whole=rounded,
                change={extent_name: rounded},
                **value,
            )
            problems.append(problem)
    return problems


def _other_width(
    instruction: str, shape: tuple[int, int], data_type: DataType, canonical: CanonicalLayout
) -> Violation:
    """The layout was made for elements of another width than those of the type."""
    atom = CanonicalLayout(canonical.major, canonical.swizzle, data_type.smem_bits).atom
    return LOOP_RULES[instruction].element.violation(
        data_type=data_type.name,
        layout_bits=canonical.element_bits,
        type_bits=data_type.smem_bits,
        major=canonical.major,
        swizzle=canonical.swizzle.name,
        whole=tuple(rounded_up(extent, step) for extent, step in zip(shape, atom, strict=True)),
    )


def _layout_problems(instruction: str, data_type: DataType, canonical: CanonicalLayout) -> list[Violation]:
    """Whether the instruction reads the layout; narrow types only K-major, also if each takes a byte of shared memory."""
    major = canonical.major
    bits = canonical.element_bits
    widths = readable_bits(instruction, major, canonical.swizzle)
    is_narrow = data_type.is_packed and major == "MN"
    if bits in widths and not is_narrow:
        return []
    wording = LOOP_RULES[instruction].layout.wording
    if not widths:
        wording = wording.worded(limit=READS_NO_SUCH_LAYOUT)
    elif bits in widths:
        wording = wording.worded(limit="elements below 8 bits are read only K-major")
    other_swizzle = None if is_narrow else _last_swizzle(instruction, major, bits)
    if other_swizzle is not None:
        wording = wording.worded(fix="Use swizzle {other_swizzle}.")
    problem = wording.violation(
        instruction=instruction,
        major=major,
        mode=canonical.mode,
        data_type=data_type.name,
        element_bits=bits,
        widths=widths,
        other_swizzle=other_swizzle,
    )
    return [problem]


def _last_swizzle(instruction: str, major: Major, element_bits: int) -> str | None:
    """The widest swizzle with which an instruction reads elements of this width; None if it reads none."""
    rows = [row for row in READERS if (row.instruction, row.major) == (instruction, major)]
    fitting = [row for row in rows if element_bits in row.element_bits]
    return fitting[-1].swizzles[-1] if fitting else None


def tma_alignment_findings(layout: Layout) -> tuple[Violation, ...]:
    """A warning where a tile starts at an address that TMA cannot write to."""
    start = layout.start
    past_bytes = start % SMEM_LINE_BYTES
    if past_bytes == 0:
        return ()
    swizzle = layout.swizzle
    below = start - past_bytes
    wording = PATTERN_IN_MID_LINE if swizzle.bits else TMA_ALIGNMENT
    violation = wording.violation(
        smem_address=start,
        past_bytes=past_bytes,
        below=below,
        above=below + SMEM_LINE_BYTES,
        line_bytes=SMEM_LINE_BYTES,
        swizzle=swizzle.name,
        chunk=past_bytes // CHUNK_BYTES,
        alignment_bytes=layout.alignment_bytes,
    )
    return (violation,)
