"""What the planner refuses: its rules, and the sentences for every way to break one.

    refusal("plan-tile", "tile", extent="mn", rows=12, up=16)
        a Violation: "plan-tile: mn = 12; ldmatrix reads 8 rows at a time. Use mn = 16."; its values: rows 12, up 16

Sentences are templates as in reason.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilescope.errors import Violation
from tilescope.layout import AtomOrder
from tilescope.planner.reason import sentence
from tilescope.rule import RULES, rule
from tilescope.swizzle import Swizzle
from tilescope.value import Value, row_field

_MEASURED = ("plan-row", "plan-rows", "gemm-rows")
# fmt: off
for _name, _demand, _source, _passing, _failing in (
    ("plan-card", "A card has one architecture: if arch is named too, it is the same.", "the table of cards",
     'ts.plan((64, 64), "bf16", card="H200", arch="sm_90")', 'ts.plan((64, 64), "bf16", card="A100", arch="sm_90")'),
    ("plan-consumer",
     "The architecture has the consumer: wgmma on sm_90, tcgen05 on sm_100, sm_103 and sm_110, ldmatrix everywhere.",
     'PTX ISA, "Target ISA Notes" of the instructions', 'ts.plan((64, 64), "bf16", consumer="wgmma")',
     'ts.plan((64, 64), "bf16", consumer="tcgen05")'),
    ("plan-pattern", "The access pattern of a load reads shared memory; that of a store writes it.",
     "the direction of the instruction", 'ts.plan((64, 64), "bf16", consumer="ld.b128 rows")',
     'ts.plan((64, 64), "bf16", consumer="st.b128 rows")'),
    ("plan-copy",
     "TMA copies tiles from sm_90 on, before that cp.async and ld.global; stores go through TMA, and only TMA reads a tensor map.",
     "CUDA programming guide, compute capabilities", 'ts.plan((64, 64), "bf16", arch="sm_80", copy="cp.async")',
     'ts.plan((64, 64), "bf16", arch="sm_80", copy="tma")'),
    ("plan-type", "The copy moves the type element by element, and the consumer takes it on this architecture.",
     'cuda.h, CUtensorMapDataType; PTX ISA, "tcgen05.mma"', 'ts.plan((64, 32), "u8")', 'ts.plan((64, 256), "b1")'),
    ("plan-row", "A row of the tile is a multiple of 16 contiguous bytes.", "cuda.h, cuTensorMapEncodeTiled; measured on an H200",
     'ts.plan((64, 64), "bf16")', 'ts.plan((64, 63), "bf16")'),
    ("plan-pitch", "Threads copy 16 aligned bytes: rows in global memory lie a multiple of 16 bytes apart.", 'PTX ISA, "cp.async"',
     'ts.plan((64, 64), "bf16", copy="cp.async", consumer="ldmatrix", strides_bytes=(144,))',
     'ts.plan((64, 64), "bf16", copy="cp.async", consumer="ldmatrix", strides_bytes=(130,))'),
    ("plan-swizzle",
     "Threads copy 16 bytes at a time: the swizzle moves pieces of 16 bytes or more, within blocks that lie in the tile.",
     'PTX ISA, "cp.async"; the table of swizzles',
     'ts.plan((64, 64), "bf16", copy="cp.async", consumer="ld.b32 rows", swizzle="128B")',
     'ts.plan((64, 64), "bf16", copy="cp.async", consumer="ld.b32 rows", swizzle="128B_ATOM_32B_FLIP_8B")'),
    ("plan-span", "A row of the tile is a whole number of the swizzle's spans.",
     "cuda.h, cuTensorMapEncodeTiled: a row of the box is at most the span",
     'ts.plan((64, 128), "bf16", consumer="ld.b128 rows", swizzle="128B").best',
     'ts.plan((64, 96), "bf16", consumer="ld.b128 rows", swizzle="128B").best'),
    ("plan-layout", "The consumer reads the layout: majorness, swizzle and element width together.",
     'PTX ISA, "ldmatrix" and "stmatrix"', 'ts.plan((64, 64), "u8", consumer="ldmatrix").best',
     'ts.plan((64, 64), "u8", consumer="ldmatrix", major="MN").best'),
    ("plan-tile", "A tile for ldmatrix has a multiple of 8 rows.", 'PTX ISA, "ldmatrix": 8 rows of 16 bytes',
     'ts.plan((16, 64), "bf16", consumer="ldmatrix").best', 'ts.plan((12, 64), "bf16", consumer="ldmatrix").best'),
    ("plan-descriptors", "wgmma and tcgen05 read shared memory by descriptor; other consumers have none.",
     'PTX ISA, "matrix descriptor"', 'ts.plan((64, 64), "bf16", consumer="wgmma").best.descriptors()',
     'ts.plan((64, 64), "bf16", consumer="ldmatrix").best.descriptors()'),
    ("plan-rows", "The rows of a tile are a whole number of its boxes and atoms, and every box starts on a line of 128 bytes.",
     "measured on an H200: a shared address off 128 bytes faults", 'ts.plan((8, 320), "u8", consumer="ld.b32 rows").best',
     'ts.plan((3, 320), "u8", consumer="ld.b32 rows").best'),
    ("plan-fold", "A folded map sees the matrix as columns of one swizzle span, in row order also as groups of rows: whole ones.",
     "the dims of the folded map",
     '[v for refused in ts.plan((64, 128), "bf16", fold=True, global_shape=(512, 192)).refused for v in refused.violations]',
     '[v for refused in ts.plan((64, 128), "bf16", fold=True, global_shape=(512, 200)).refused for v in refused.violations]'),
    ("plan-corner",
     "A tile that is copied through a folded map starts on a whole column of spans, in row order also on a whole group of rows.",
     "the coordinates of the folded map",
     '[plan.copy_coords(plan.copies[0], 0, 64) for plan in ts.plan((64, 128), "bf16", fold=True).candidates]',
     '[plan.copy_coords(plan.copies[0], 0, 8) for plan in ts.plan((64, 128), "bf16", fold=True).candidates]'),
    ("plan-smem", "All stages and their mbarriers fit into the shared memory of a block.",
     "CUDA programming guide, compute capabilities", 'ts.plan((128, 64), "bf16", stages=14).best',
     'ts.plan((128, 64), "bf16", stages=15).best'),
    ("plan-proof", "The emulated copies of a plan bring every element where its consumer reads it.",
     "tilescope's own emulator; only a mistake in the planner breaks it, so no example does", 'ts.plan((64, 64), "bf16").best', None),
    ("gemm-consumer", "The architecture has the consumer of the product: wgmma, tcgen05, or ldmatrix with mma.",
     'PTX ISA, "Target ISA Notes" of the instructions', 'ts.plan_gemm(256, 256, 256, "bf16", consumer="wgmma")',
     'ts.plan_gemm(256, 256, 256, "bf16", consumer="tcgen05")'),
    ("gemm-type", "The tensor core multiplies the type on this architecture, and the copies move it and the type of C.",
     'PTX ISA, "mma", "tcgen05.mma"; cuda.h, CUtensorMapDataType', 'ts.plan_gemm(256, 256, 256, "bf16", arch="sm_80")',
     'ts.plan_gemm(256, 256, 256, "e4m3", arch="sm_80")'),
    ("gemm-major", "A and B are MN-major only if the tensor core reads MN-major elements of their width.",
     'PTX ISA, "wgmma.mma_async", "tcgen05.mma", "ldmatrix"', 'ts.plan_gemm(256, 256, 256, "bf16", b_major="MN")',
     'ts.plan_gemm(256, 256, 256, "e4m3", b_major="MN")'),
    ("gemm-rows", "Rows of A and B in global memory are multiples of 16 bytes, and rows of C where TMA stores them.",
     "cuda.h, cuTensorMapEncodeTiled; measured on an H200", 'ts.plan_gemm(256, 256, 264, "bf16")',
     'ts.plan_gemm(256, 256, 260, "bf16")'),
    ("gemm-tile", "A tile is a whole number of the tensor core's instructions, and of the rows in which TMA moves its elements.",
     'PTX ISA, "mma", "tcgen05.mma"; CUTLASS', 'ts.plan_gemm(256, 256, 256, "bf16", consumer="ldmatrix", tile=(16, 8, 64))',
     'ts.plan_gemm(256, 256, 256, "bf16", consumer="ldmatrix", tile=(12, 8, 64))'),
    ("gemm-accumulators", "The accumulators of a tile fit into the registers of an SM, or into tensor memory.",
     'CUDA programming guide, compute capabilities; PTX ISA, "tensor memory"',
     'ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 256, 64))', 'ts.plan_gemm(512, 512, 512, "bf16", tile=(256, 256, 64))'),
    ("gemm-smem", "All stages, the epilogue and the barriers of a GEMM fit into the shared memory of a block.",
     "CUDA programming guide, compute capabilities", 'ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 128, 64), stages=6)',
     'ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 128, 64), stages=8)'),
    ("plan-pipeline", "A pipeline is planned for plans that are copied alike, with stages, consumers and a cluster that fit them.",
     "the arguments of plan_pipeline", 'ts.plan_pipeline(ts.plan((64, 64), "bf16").best, stages=2)', "ts.plan_pipeline([])"),
    ("problem-file",
     "A file of problems is JSON (a list of objects), TOML ([[problem]]) or CSV with named columns, by the arguments of Problem.",
     "`ts.Problem`", 'ts.planner.read_problems(b"tile,data_type\\n64x64,bf16\\n")', 'ts.planner.read_problems(b"[1, 2]")'),
):
    rule(_name, _demand, source=_source, basis="measured" if _name in _MEASURED else "documented", passing=_passing, failing=_failing)

# What was found, what the limit is, and what works instead, by the rule that is broken (and the case of it).
_ON_ARCH = "{data_type} on {arch}"
_ATOMS = "atoms of swizzle {swizzle} are {atom_rows} rows of {atom_elements} elements of {element_bits} bits"
REFUSALS = {
    # a problem
    "plan-card": ("card = {card} with arch = {arch}", "a card has one architecture, and that of the {card} is {own}",
                  'Use arch="{own}", or leave it out.'),
    "plan-pattern": ("{pattern} for a {direction}", "{op} {does} shared memory; a {direction} needs a pattern that {wants} it",
                     'Use consumer="{fitting}", for example.'),
    "plan-copy store": ("a store on {arch}", "stores are planned through TMA, which exists on {known:, }",
                        'Use arch="sm_90", or let the threads write their results to global memory.'),
    "plan-copy load": ("copy = tma on {arch}", "TMA exists on {known:, }", 'Use copy="cp.async".'),
    "plan-copy threads": ("copy = {copy} for a store", "planned stores go through TMA", 'Use copy="tma".'),
    "plan-copy map": ("copy = {copy}", "only TMA reads a tensor map", 'Plan with copy="tma".'),
    "plan-type bits": ("{data_type} by TMA", "TMA moves {elements} elements of {data_type} as one {moved}",
                       'Plan {tile: x } of "{moved}": the same bytes and descriptors.'),
    "plan-type spread": ("{data_type} by {copy}",
                         "its values are {global_bits} bits in global memory and {smem_bits} in shared memory",
                         'Only TMA spreads them out: use copy="tma".'),
    "plan-row": ("{extent} = {elements} elements of {element_bits} bits = {row_bytes:g} contiguous bytes",
                 "copies move multiples of 16 bytes", "Use {extent} = {up}."),
    "plan-pitch": ("rows {pitch_bytes} bytes apart", "a thread of {copy} copies 16 aligned bytes", "Pad the rows to {up} bytes."),
    "plan-swizzle": ("swizzle {swizzle} by {copy}", "a thread copies 16 bytes, and the mode moves pieces of {piece_bytes}",
                     'Use swizzle="128B", or copy="tma".'),
    "plan-swizzle tile": ("swizzle {swizzle} on a tile of {tile_bytes} bytes",
                          "it moves pieces within blocks of {block_bytes} bytes, and they would leave the tile",
                          "Use a tile of {up} bytes, or a smaller swizzle."),
    # a candidate
    "plan-span": ("{extent} contiguous elements", _ATOMS, "Use {up}[, or {other}]."),
    "plan-rows atoms": ("{extent} rows in row order", _ATOMS, "Use {up}[, or {other}]."),
    "plan-rows": ("{rows:row} of {pitch_bytes} bytes, {box_bytes} bytes a box", "the next box starts on a line of 128 bytes",
                  "Use [{up} rows][{order} order]."),
    "plan-layout": ("{major}-major {mode} with {data_type}", "ldmatrix does not read this layout",
                    "Use swizzle 128B, 64B, 32B or none."),
    "plan-layout MN": ("{major}-major {mode} with {data_type}", "ldmatrix does not read this layout",
                       "Use a K-major tile, or transpose while copying."),
    "plan-layout narrow": ("{major}-major {mode} with {data_type}",
                           "ldmatrix.trans is planned for elements of 16 bits; m16n16.trans of 8 bits is not",
                           "Use a K-major tile, or transpose while copying."),
    "plan-layout element": ("single elements of {element_bits} bits", "a lane stores 8, 16, 32, 64 or 128 bits",
                            "Use the K-major tile, where neighbours share a byte."),
    "plan-tile": ("{extent} = {rows}", "ldmatrix reads 8 rows at a time", "Use {extent} = {up}."),
    "tile-atoms": ("a tile of {mn} x {k} ({names: x })",
                   ("{major}-major {mode} with {element_bits}-bit elements has atoms of {atom_mn} x {atom_k}, and a tile is a whole "
                   "number of them"), "Use {up: x } ({names: x })[, or {other}]."),
    "plan-descriptors": ("consumer = {consumer} for a {direction}", "{readers: and } read shared memory by descriptor",
                         "Use address(mn, k), or plan for wgmma."),
    "plan-fold": ("{elements} contiguous elements", "a folded map sees them as columns of {span_elements}",
                  "Pad the rows to {up} elements, or use the plan that is not folded."),
    "plan-fold rows": ("{rows} rows", "a map folded in row order sees groups of {group_rows}",
                       "Pad the matrix to {up} rows, or use column order."),
    "plan-corner": ("(mn, k) = ({mn}, {k})", "a folded map sees columns of {columns}[ and groups of {rows} rows]",
                    "Start the tile {earlier} {unit} earlier, or use the plan that is not folded."),
    "plan-smem": ("{needed_bytes} bytes", "a block of {arch} has {limit_bytes} bytes of shared memory (and {reserved_bytes} reserved)",
                  "Use a tile of {smaller: x }."),
    "plan-smem stages": ("{stages} x {stage_bytes}[ and {barrier_bytes} of mbarriers] = {needed_bytes} bytes",
                         "a block of {arch} has {limit_bytes} bytes of shared memory (and {reserved_bytes} reserved)", "Use stages={fit}."),
    "plan-proof": ("swizzle {swizzle}, {order} order: wrong at {where}",
                   "the emulated copies must bring every element where its consumer reads it",
                   "Report this plan: tilescope made a mistake."),
    # a product
    "gemm-type": (_ON_ARCH, "mma on {arch}, fed by ldmatrix in 32-bit registers, multiplies {known:, }",
                  'Use data_type="bfloat16"[, or arch="{elsewhere}"].'),
    "gemm-type float32": (_ON_ARCH, "mma on {arch}, fed by ldmatrix in 32-bit registers, multiplies {known:, }",
                          "Use tfloat32: its elements are float32 whose low 13 bits are ignored."),
    "gemm-type data_type": (_ON_ARCH, ("TMA moves {data_type} as {moved}, {together} to an element, and a product of bits (and.popc) "
                            "is not the product of these bytes"),
                            "Plan the operand tiles as {moved} with ts.plan, k / 8 bytes wide; the product itself is not planned."),
    "gemm-type output_type": (_ON_ARCH, "TMA moves {data_type} as {moved}, {together} to an element", 'Use output_type="int32".'),
    "gemm-type packed": (_ON_ARCH, "TMA moves elements below 8 bits on {known:, }",
                         'Use {argument}="int8", or another type of at least 8 bits.'),
    "gemm-type stored": (_ON_ARCH, "TMA cannot store {data_type}", 'Use output_type="bfloat16".'),
    "gemm-major": ("{matrix} MN-major, of {data_type}", "{instruction} reads MN-major elements of {widths:, } bits",
                   'Use {argument}="K": transpose {matrix} once, or while copying.'),
    "gemm-rows": ("{extent} = {elements}: rows of {matrix} are {row_bytes:g} bytes of {data_type}",
                  "{mover} rows that are multiples of {multiple_elements} elements, {multiple_bytes} bytes",
                  "Use {extent} = {up}, with rows of {matrix} padded to {up_bytes} bytes."),
    "gemm-tile rows": ("{matrix}: {extent} = {elements} elements of {data_type}", "TMA moves them in rows of {multiple_elements}",
                       "Use {extent} = {up}."),
    "gemm-tile": ("a tile of {tile: x }",
                  "{forms:, } take whole multiples of their m, n and k, with A and B as they are or exchanged", "Use {up: x }."),
    "gemm-tile exchanged": ("m = {m}, for which mma takes A and B exchanged, with C of {data_type}",
                            "the accumulators then hold the transpose of C, and a lane stores no single elements of {element_bits} bits",
                            "Use m = {up}, or an output_type of 8 bits or more."),
    "gemm-tile narrow": ("n = {n}[, taken in blocks of {block_n}] with instructions of {rows} rows of A",
                         "PTX lists multiples of 8, but older CUTLASS takes kind {kind} beside 128 rows with multiples of 16 alone",
                         "Use n = {up}, or m = 64."),
    "gemm-accumulators": ("{m} x {n} accumulators of {accumulator_bytes} bytes = {total_bytes} bytes",
                          ("an SM has 65536 registers of 4 bytes, and two warpgroups, with 255 registers a thread at most, "
                          "hold {limit_bytes} bytes"), "Use at most 128 x 256 or 256 x 128."),
    "gemm-accumulators tmem": (("{m} x {n} accumulators of {accumulator_bytes} bytes = {total_bytes} bytes, {columns} columns of "
                               "tensor memory"), ("tensor memory has {limit_columns} columns of {lanes} lanes x 4 bytes"
                               "[, and {others} need some of them]"), "Use at most 128 x 256 or 256 x 128."),
    "gemm-smem": ("tiles of A and B of {operand_bytes} bytes together", "a block of {arch} has {limit_bytes} bytes of shared memory",
                  "Use {smaller: x }."),
    "gemm-smem stages": (("{stages:stage} of {a_bytes} + {b_bytes} bytes[ and an epilogue of {epilogue_bytes}] = {needed_bytes} bytes "
                         "with barriers"), ("a block of {arch} has {limit_bytes} bytes"
                         "[, and at least {fewest} stages are planned unless stages=1 is asked for]"), "Use {fixes: or }."),
    # a pipeline
    "plan-pipeline plan": ("{plan}", "a plan, plans, or a GEMM plan", "Use ts.plan(…).best, a list of plans, or ts.plan_gemm(…)."),
    "plan-pipeline alike": ("plans of different directions or copies", "tiles of a stage arrive together",
                            'Plan all of them with direction="{direction}", copy="{copy}".'),
    "plan-pipeline pair": ("cta_group = {cta_group} with {unit} and {blocks:block} along x",
                           "pairs of blocks along x multiply by tcgen05", 'Plan with consumer="tcgen05", and use cluster=2.'),
    "plan-pipeline threads": ("a cluster with copy = {copy}", "TMA multicasts, threads do not", "Use cluster=1."),
    "plan-pipeline store": ("a cluster for a store", "every block stores its own tile", "Use cluster=1."),
    "plan-pipeline parts": ("{tile_bytes} bytes in {parts} parts", "parts are multiples of 16 bytes",
                            "Use multicast=False, or cluster=1."),
    "plan-pipeline cluster": ("cluster = {cluster}", "a number of blocks, or (x, y), at most {limit_blocks} together",
                              "Use cluster=(2, 1)."),
}
# fmt: on


def refusal(
    broken: str, argument: str, case: str = "", change: Mapping[str, Any] | None = None, /, **values: Any
) -> Violation:
    """The violation of a rule, its sentences made of its values.

    >>> str(refusal("plan-tile", "tile", extent="mn", rows=12, up=16))
    'plan-tile: mn = 12; ldmatrix reads 8 rows at a time. Use mn = 16.'
    """
    found, limit, fix = (sentence(text, values) for text in REFUSALS[f"{broken} {case}".strip()])
    numbers = {name: value for name, value in values.items() if _is_number(value)}
    return RULES[broken].violation(argument, found, limit, fix, change, **numbers)


def _is_number(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_number, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Value):
    """A candidate that cannot be, and why."""

    swizzle: Swizzle = row_field(Swizzle.named)
    atom_order: AtomOrder
    folded: bool
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class Unplanned(Value):
    """A tile or a product for which there is no plan at all, and why."""

    asked: str
    violations: tuple[Violation, ...]
