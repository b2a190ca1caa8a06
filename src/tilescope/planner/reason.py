"""Why a plan is as it is, and why another cannot be: facts with names, and the one place where they become sentences.

    Reason("row-of-spans", {"swizzle": "128B", "row_bytes": 256, "spans": 2, "span_bytes": 128})
        data for programs     .name, .values
        a sentence for people "Swizzle 128B: a row of 256 bytes is 2 spans of 128."
    refusal(PLAN_TILE, "tile", extent="mn", rows=12, up=16)
        a Violation           "plan-tile: mn = 12; ldmatrix reads 8 rows at a time. Use mn = 16."

A sentence is a template. {copies:copy|copies} counts, {share:%} {time:us} {size:MB} have units, {card:an} takes an article,
{tile: x } joins; what stands in [brackets] is left out where a value in it is None or 0.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar

from tilescope.errors import Violation, counted
from tilescope.rule import Rule
from tilescope.value import Value

# fmt: off
SENTENCES = {
    # a tile: swizzle, copies, rates
    "row-is-a-span": "Swizzle {swizzle}: a row of {row_bytes} bytes is one span.",
    "row-of-spans": "Swizzle {swizzle}: a row of {row_bytes} bytes is {spans} spans of {span_bytes}.",
    "core-matrices": "Swizzle none: core matrices of 8 rows x 16 bytes.",
    "plain-rows": "Swizzle {swizzle}: rows of {row_bytes} bytes.",
    "boxes": "{copies:copy|copies} of box {box: x }[ in {order} order] ({request_bytes} bytes a request).",
    "folded-box": "1 copy of box {box: x }: the map sees columns of spans ({request_bytes} bytes a request).",
    "copied-by-threads": "{copy}: each thread moves 16 bytes, 8 threads a line of 128; requests of {request_bytes} bytes.",
    "fastest-rate": "Predicted {direction} rate: {gb_per_s:.0f} GB/s on {card:an}, the fastest measured.",
    "rate": "Predicted {direction} rate: {gb_per_s:.0f} GB/s on {card:an}, {share:%} of the fastest measured"
            "[: {in_flight_bytes} bytes in flight on an SM are too few].",
    "memory-rate": "Predicted {direction} rate: at most {gb_per_s:.0f} GB/s on {card:an} ({basis})"
                   "[: requests of {request_bytes} bytes use {share:%} of its sectors].",
    "not-weighed": "Not weighed: {cells:, }, which {verb} not known of {card:an}.",
    "no-card": "Nothing is weighed by rates: no card of {arch} is known.",
    "no-sms": "Give sms=: without the number of SMs the tile that fetches least in all comes first.",
    "issue": "One thread issues {copies} copies in {issue_us:us}, and their bytes take {memory_us:us}: let several warps issue.",
    "promotion": "L2 promotion {promotion}: never slower than none or 256B on an H200.",
    "promotion-of-stores": "L2 promotion {promotion}: made no difference to stores on an H200.",
    "promotion-of-sparse-traffic": "L2 promotion none: sparse traffic should not fetch neighbours.",
    # shared memory and who waits for whom
    "wavefronts": "Shared-memory {what} ({access}): {taken} wavefronts, {lost} lost to bank conflicts"
                  "[, hidden behind {hidden_behind} cycles of global memory].",
    "no-conflict": "Shared-memory {what} ({access}): {taken} wavefronts, no conflict.",
    "uncounted": "TMA writes and tensor-core reads have no counted wavefronts; canonical atoms are made for them.",
    "plain-rows-would-do": "Plain rows of {row_bytes} bytes have no conflict either, and longer requests: "
                           'plan for consumer="{access}".',
    "budget": "Shared memory: [{stages} x {stage_bytes} = ]{total_bytes} bytes[ and {barrier_bytes} of mbarriers], "
              "aligned to {alignment_bytes}; blocks that fit an SM: {blocks}.",
    "wait": "Between the copy and the reads: {steps:, then }.",
    "wait-of-store": "Between the writes and the copy: {steps:, then }; one thread stores.",
    "overwrite": "A store overwrites {over_bytes} bytes behind each row: the tensor's end is rounded up to 16 bytes.",
    "edge": "Edge, {extent}: {tiles:tile} of {part}, the last with {last} of {part}: {outside} {fate}.",
    "warning": "Warning, {rule}: {found}; {limit}. {fix}",
    # why another plan comes first
    "behind-conflicts": "{here} wavefronts lost to conflicts, not {there}",
    "behind-bandwidth": "{here:%} of the bandwidth, not {there:%}",
    "behind-request": "requests of {here} bytes, not {there}",
    "behind-copies": "{here} copies, not {there}",
    "behind-unused-bytes": "{here} bytes of shared memory unused, not {there}",
    "behind-alignment": "needs {here}-byte alignment, not {there}",
    "equal": "equal in every term",
    "first": "first",
    # a product: tiles and floors
    "tiles": "Tile {tile: x }: {tiles:tile} of C[ for {sms:SM}, {rounds:round}, {full:%} full].",
    "floor": "Floor {floor_us:us} by the rates of {card:an}, bound by {bound}: {terms:; }.",
    "not-planned": "Not planned: {options: or }[; {idle:SM} have no tile].",
    "would-lead": "{tile: x } would come first, but: {found}; {limit}.",
    "near-floors": "Of {near} tiles within a tenth of the lowest floor, none lets its busiest SM fetch less than {busiest_bytes:MB}"
                   "[; {tied: x } ties: {more} instructions a K step, not {fewest}][; {alike: x } is equal in every term].",
    "next-floor": "No other tile's floor is within a tenth of it: {next: x } comes next.",
    "behind-floor": "floor {here:us}, more than a tenth above the lowest, {there:us}",
    "behind-bytes": "its busiest SM fetches {here:MB}, not {there:MB}",
    "behind-all-bytes": "all SMs together fetch {here:MB}, not {there:MB}",
    "behind-few-bytes": "its busiest SM fetches {here} bytes, not {there}",
    "behind-instructions": "{here} instructions a K step, not {there}",
    "behind-order": "equal in every term; fewer rows come first",
    # a product: accumulators, stages, rows, epilogue
    "registers": "Accumulators, {m} x {n} of 4 bytes: {taken} of the {available} bytes of an SM's registers.",
    "tensor-memory": "Accumulators, {m} x {n} of 4 bytes: {taken} of {available} columns of tensor memory.",
    "stages": "{stages:stage} of {a_bytes} + {b_bytes} bytes[, an epilogue of {epilogue_bytes}][ and {barriers} mbarriers of 8]: "
              "{smem_bytes} of {budget_bytes} bytes.",
    "rows": "Rows of {matrices: and }, {columns} {extent} contiguous: {row_bytes} bytes in shared memory, "
            "[{spans:span} of {swizzle}][core matrices of 8 x {chunk_bytes} bytes].",
    "epilogue": "Epilogue: {columns} columns of C at a time[, {slices:slice} in turn], written by {access}, "
                "stored by TMA with swizzle {swizzle}.",
    "no-epilogue": "Without TMA the accumulators are stored straight from registers: no shared memory for C.",
    "exchanged": "A and B are exchanged: mma takes 16 rows, here of B, and 8 columns, here of A; its accumulators hold the "
                 "transpose of C.",
    "scale-factors": "{data_type} packed two to a byte is multiplied with scale factors: their memory is not planned here.",
}

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
    "plan-smem": ("{needed_bytes} bytes", "a block of {arch} has {limit_bytes} bytes of shared memory (and 1024 reserved)",
                  "Use a tile of {smaller: x }."),
    "plan-smem stages": ("{stages} x {stage_bytes}[ and {barrier_bytes} of mbarriers] = {needed_bytes} bytes",
                         "a block of {arch} has {limit_bytes} bytes of shared memory (and 1024 reserved)", "Use stages={fit}."),
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
    broken: Rule, argument: str, case: str = "", change: Mapping[str, Any] | None = None, /, **values: Any
) -> Violation:
    """The violation of a rule, its sentences made of its values.

    >>> from tilescope.planner.consumers import PLAN_TILE
    >>> str(refusal(PLAN_TILE, "tile", extent="mn", rows=12, up=16))
    'plan-tile: mn = 12; ldmatrix reads 8 rows at a time. Use mn = 16.'
    """
    found, limit, fix = (_sentence(text, values) for text in REFUSALS[f"{broken.name} {case}".strip()])
    numbers = {name: value for name, value in values.items() if _is_number(value)}
    return broken.violation(argument, found, limit, fix, change, **numbers)


def _is_number(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_number, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Reason(Value):
    """One reason: what it is about, and its numbers. `str` makes the sentence.

    >>> print(Reason("behind-copies", {"here": 4, "there": 1}))
    4 copies, not 1
    """

    _derived: ClassVar[tuple[str, ...]] = ("sentence",)

    name: str
    values: Mapping[str, Any]

    def __post_init__(self) -> None:
        frozen = {key: tuple(value) if isinstance(value, list) else value for key, value in self.values.items()}
        object.__setattr__(self, "values", MappingProxyType(frozen))

    @classmethod
    def of(cls, name: str, **values: Any) -> Reason:
        """A reason from its values."""
        return cls(name, values)

    def __reduce__(self) -> tuple[Any, tuple[str, dict[str, Any]]]:
        return Reason, (self.name, dict(self.values))  # a mapping proxy cannot be pickled

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.values.items())))

    @property
    def sentence(self) -> str:
        """The reason as a sentence."""
        return _sentence(SENTENCES[self.name], self.values)

    def __str__(self) -> str:
        return self.sentence

    def text(self) -> str:
        """The reason as a sentence."""
        return self.sentence


@cache
def _pieces(template: str) -> tuple[tuple[bool, tuple[tuple[str, str | None, str | None], ...]], ...]:
    """A template taken apart: whether a piece stands in brackets; its texts, each with the value behind it and its unit."""
    pieces = re.split(r"\[([^\]]*)\]", template)
    return tuple(
        (number % 2 == 1, tuple(part[:3] for part in string.Formatter().parse(piece)))
        for number, piece in enumerate(pieces)
    )


def _sentence(template: str, values: Mapping[str, Any]) -> str:
    """The template filled; what stands in brackets only where all its values are something."""
    return "".join(
        text + ("" if name is None else _shown(values[name], unit or ""))
        for in_brackets, parts in _pieces(template)
        if not in_brackets or all(values.get(name) for _, name, _ in parts if name)
        for text, name, unit in parts
    )


def _shown(value: Any, unit: str) -> str:
    if isinstance(value, tuple):
        return unit.join(map(str, value))
    if unit in _UNITS:
        return _UNITS[unit](value)
    if unit and isinstance(value, int):
        one, _, several = unit.partition("|")
        return counted(value, one, several or None)
    return format(value, unit)


def in_us(microseconds: float) -> str:
    """A time with three digits or more.

    >>> in_us(179.41), in_us(7.372), in_us(0.01234)
    ('179.4 us', '7.37 us', '0.0123 us')
    """
    return f"{microseconds:.1f} us" if microseconds >= 100 else f"{microseconds:#.3g} us"


def in_mb(count_bytes: float) -> str:
    """Megabytes with three digits or more."""
    megabytes = count_bytes / 1e6
    return f"{megabytes:.1f} MB" if megabytes >= 100 else f"{megabytes:#.3g} MB"


def with_article(name: str) -> str:
    """The name of a card, or of another thing spelled in letters, after its article.

    >>> with_article("H200"), with_article("B200"), with_article("RTX 5090")
    ('an H200', 'a B200', 'an RTX 5090')
    """
    return f"{'an' if name[0] in 'AEFHILMNORSX' else 'a'} {name}"


def in_percent(share: float) -> str:
    """A share as people write it: 97 %."""
    return f"{100 * share:.0f} %"


_UNITS: dict[str, Callable[[Any], str]] = {"us": in_us, "MB": in_mb, "an": with_article, "%": in_percent}
