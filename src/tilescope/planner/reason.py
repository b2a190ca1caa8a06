"""Why a plan is as it is: facts with names, and the one place where they become sentences.

    Reason("row-of-spans", {"swizzle": "128B", "row_bytes": 256, "spans": 2, "span_bytes": 128})
        data for programs     .name, .values
        a sentence for people "Swizzle 128B: a row of 256 bytes is 2 spans of 128."

`sentence` has the template language; {card:an} also takes an article.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from tilescope.card import CARD
from tilescope.sentence import UNITS, fact_names, fill_template
from tilescope.value import Value

SENTENCES = {
    # a tile: swizzle, copies, rates
    "row-is-a-span": "Swizzle {swizzle}: a row of {row_bytes} bytes is one span.",
    "row-of-spans": "Swizzle {swizzle}: a row of {row_bytes} bytes is {spans} spans of {span_bytes}.",
    "core-matrices": "Swizzle none: core matrices of 8 rows x 16 bytes.",
    "plain-rows": "Swizzle {swizzle}: rows of {row_bytes} bytes.",
    "boxes": "{copies:copy|copies} of box {box: x }[[ in {order} order]] ({request_bytes} bytes a request).",
    "folded-box": "1 copy of box {box: x }: the map sees columns of spans ({request_bytes} bytes a request).",
    "copied-by-threads": (
        "{copy}: each thread moves 16 bytes, 8 threads a line of 128; requests of {request_bytes} bytes."
    ),
    "fastest-rate": "Predicted {direction} rate: {gb_per_s:.0f} GB/s on {card:an}, the fastest measured.",
    "rate": (
        "Predicted {direction} rate: {gb_per_s:.0f} GB/s on {card:an}, {share:%} of the fastest measured"
        "[[: {in_flight_bytes} bytes in flight on an SM are too few]]."
    ),
    "memory-rate": (
        "Predicted {direction} rate: at most {gb_per_s:.0f} GB/s on {card:an} ({basis})"
        "[[: requests of {request_bytes} bytes use {share:%} of its sectors]]."
    ),
    "not-weighed": "Not weighed: {cells:, }, which {verb} not known for {card:an}.",
    "no-card": "Nothing is weighed by rates: no card of {arch} is known.",
    "no-sms": "Pass sms=: without the number of SMs, the tile that fetches least in all comes first.",
    "issue": (
        "One thread issues {copies} copies in {issue_us:us}, and their bytes take {memory_us:us}: "
        "let several warps issue."
    ),
    "packed": (
        "{data_type} is stored two to a byte, as the block-scaled kinds read it. Plan {unpacked} for kind f8f6f4, which has no "
        "scale factors and reads a byte for each element."
    ),
    "promotion": "L2 promotion {promotion}: never slower than none or 256B on an H200.",
    "promotion-of-stores": "L2 promotion {promotion}: made no difference to stores on an H200.",
    "promotion-of-sparse-traffic": "L2 promotion none: sparse traffic should not fetch neighbours.",
    # shared memory and who waits for whom
    "wavefronts": (
        "Shared-memory {what} ({access}): {taken} wavefronts, {lost} lost to bank conflicts"
        "[[, hidden behind {hidden_behind} cycles of global memory]]."
    ),
    "no-conflict": "Shared-memory {what} ({access}): {taken} wavefronts, no conflict.",
    "uncounted": "TMA writes and tensor-core reads have no counted wavefronts; canonical atoms are made for them.",
    "plain-rows-would-do": (
        'Plain rows of {row_bytes} bytes have no conflict either, and longer requests: plan for consumer="{access}".'
    ),
    "budget": (
        "Shared memory: [[{stages} x {stage_bytes} = ]]{total_bytes} bytes[[ and {barrier_bytes} of mbarriers]], "
        "aligned to {alignment_bytes}; blocks that fit an SM: {blocks}."
    ),
    "wait": "Between the copy and the reads: {steps:, then }.",
    "wait-of-store": "Between the writes and the copy: {steps:, then }; one thread stores.",
    "overwrite": ("A store overwrites {over_bytes} bytes behind each row: the tensor's end is rounded up to 16 bytes."),
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
    "tiles": "Tile {tile: x }[[ of {whose}]]: {tiles:tile} of C[[ for {sms:SM}, {rounds:round}, {full:%} full]].",
    "floor": "Floor {floor_us:us} by the rates of {card:an}, bound by {bound}: {terms:; }.",
    "sustained": "Held for seconds, the power of {card:an} allows {tflops} TFLOP/s: {us:us}.",
    "time": (
        "Predicted {us:us}: {launch_us:us} launch, {main_us:us} main loop (bound by {bound}), {epilogue_us:us} epilogue"
        "[[, {adding_us:us} adding parts of k]]. What would move it: {moves}."
    ),
    "next-time": "{next: x }[[, {schedule},]] comes next, predicted {us:us}.",
    "documented-time": (
        "Predicted {us:us} by documented rates: {main_us:us} main loop (bound by {bound}), {epilogue_us:us} to store the last "
        "round. Launch, L2 and power are not known."
    ),
    "pair": (
        "Two blocks take a tile together (cta_group::2): each loads {rows} rows and {columns} columns of the operands, "
        "and has {sums_rows} x {sums_columns} of the accumulators."
    ),
    "dynamic": (
        "Cluster launch control: {blocks:block} are launched, in {clusters} clusters of {in_a_cluster}, and those that run take "
        "over the tiles of those that have not begun."
    ),
    "multicast": (
        "The {blocks:block} of a cluster take {clustered: x } tiles and share {shared: and } by multicast: a block fetches {fetched_bytes} "
        "bytes of a stage's {stage_bytes}. How many clusters of this size run at once is in no document."
    ),
    "swapped": "Swapped: {core} takes {rows} rows of B, and {columns} of A as its columns.",
    "split": (
        "k is split over the {blocks:block} of a cluster, {steps} K steps each; "
        "they send each other {part_bytes} bytes of sums through distributed shared memory."
    ),
    "parts": "k is split over {parts} clusters, which add through {workspace_bytes} bytes of global memory.",
    "tail": (
        "The {tiles} tiles of the last round are shared by {parts} blocks each, "
        "which add through {workspace_bytes} bytes of global memory."
    ),
    "group": "Tiles are taken in groups of {group} along m: what they share stays in the L2.",
    "dependent": (
        "Dependent launch: it starts while the kernel before it runs, fetches B for {stages:stage}, "
        "and waits for that kernel before it reads A."
    ),
    "fused": (
        "Fused, in float32 before a sum is stored: {fused}[[; gate and up columns are stored {gate} in B, {groups} in turn in shared "
        "memory: both halves of an element of C are in one thread]]."
    ),
    "block-scales": (
        "Scales of float32: A's ({a_shape: x }, one for a row and 128 of k, M-major), B's ({b_shape: x }, one for 128 x 128, along k). "
        "A K step's sums are multiplied by both as they are promoted; threads fetch them while its products are made."
    ),
    "timed": "Corrected by measurements of this card, {card}, {date}: this kernel itself was timed.",
    "corrected": (
        "Corrected by measurements of this card, {card}, {date}: the mean of measured to predicted times of {kernels:kernel} "
        "like this one."
    ),
    "batch": "{count} products: A, B and C of each are stored one after the other, {tiles:tile} of C each.",
    "experts": ("{count} experts, {rows} rows: {how}. Planned for {m} rows each on average, {tiles:tile} of C."),
    "not-planned": "Not planned: {options: or }[[; {idle:SM} have no tile]].",
    "would-lead": "{tile: x } would come first, but: {found}; {limit}.",
    "near-floors": (
        "Of {near} tiles within a tenth of the lowest floor, none lets its busiest SM fetch less than "
        "{busiest_bytes:MB}[[; {tied: x } ties: {more} instructions a K step, not {fewest}]]"
        "[[; {alike: x } is equal in every term]][[, a tile of {whose}]]."
    ),
    "next-floor": "No other tile's floor is within a tenth of it: {next: x }[[ of {whose}]] comes next.",
    "behind-time": "predicted {here:us}, more than 0.25 % above the shortest, {there:us}",
    "behind-sharing": "predicted as fast within 0.25 %, but {blocks} blocks share k and wait for each other",
    "behind-cluster": "predicted as fast within 0.25 %, but clusters of {blocks} blocks wait for each other",
    "behind-floor": "floor {here:us}, more than a tenth above the lowest, {there:us}",
    "behind-bytes": "its busiest SM fetches {here:MB}, not {there:MB}",
    "behind-all-bytes": "all SMs together fetch {here:MB}, not {there:MB}",
    "behind-few-bytes": "its busiest SM fetches {here} bytes, not {there}",
    "behind-instructions": "{here} instructions a K step, not {there}",
    "behind-order": "equal in every term; fewer rows come first",
    # a product: accumulators, stages, rows, epilogue
    "registers": "Accumulators, {m} x {n} of 4 bytes: {taken} of the {available} bytes of an SM's registers.",
    "tensor-memory": (
        "{accumulators:accumulator} of {m} x {n} x 4 bytes: {taken} of {available} columns of tensor memory, "
        "{allocated} allocated."
    ),
    "stages": (
        "{stages:stage} of {a_bytes} + {b_bytes} bytes[[, an epilogue of {epilogue_bytes}]]"
        "[[ and {barriers} mbarriers of 8]]: {smem_bytes} of {budget_bytes} bytes."
    ),
    "rows": (
        "Rows of {matrices: and }, {columns} {extent} contiguous: {row_bytes} bytes in shared memory, "
        "[[{spans:span} of {swizzle}]][[core matrices of 8 x {chunk_bytes} bytes]]."
    ),
    "epilogue": (
        "Epilogue: {columns} columns of C at a time[[, {slices:slice} in turn]], written by {access}, "
        "stored by TMA with swizzle {swizzle}."
    ),
    "no-epilogue": "Without TMA the accumulators are stored straight from registers: no shared memory for C.",
    "exchanged": (
        "A and B are exchanged: mma takes 16 rows, here of B, and 8 columns, here of A; its accumulators "
        "hold the transpose of C."
    ),
    "scales": (
        "Scale factors of {format}, one for {block} elements of k: {a_bytes} + {b_bytes} bytes a stage[[, and {copies} tcgen05.cp "
        "bring them to {columns} columns of tensor memory]]."
    ),
    "unpacked": (
        "Without scale factors, kind f8f6f4 multiplies {data_type}: {operand_type} gives every element a byte of shared memory. "
        'Use data_type="mxfp4" or "nvfp4" for packed elements with scale factors.'
    ),
}


def with_article(name: str) -> str:
    """The name of a card after its article, which depends on the sound of its first letter; a saved card gets no article.

    >>> with_article("H200"), with_article("B200"), with_article("RTX 5090"), with_article("mine")
    ('an H200', 'a B200', 'an RTX 5090', 'the card mine')
    """
    if name not in CARD:
        return f"the card {name}"
    return f"{'an' if name[0] in 'AEFHILMNORSX' else 'a'} {name}"


_UNITS = {**UNITS, "an": with_article}


@dataclass(frozen=True, slots=True)
class Reason(Value):
    """One reason: its subject and its numbers. `str` formats the sentence.

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
    def of(cls, name: str, **facts: object) -> Reason:
        """A reason with those of the facts that its sentence names."""
        return cls(name, {fact: facts[fact] for fact in fact_names(SENTENCES[name]) if fact in facts})

    def __reduce__(self) -> tuple[type[Reason], tuple[str, dict[str, object]]]:
        return Reason, (self.name, dict(self.values))  # a mapping proxy cannot be pickled

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.values.items())))

    @property
    def sentence(self) -> str:
        """The reason as a sentence."""
        return fill_template(SENTENCES[self.name], self.values, _UNITS)

    def text(self) -> str:
        """The reason as a sentence."""
        return self.sentence
