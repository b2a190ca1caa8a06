"""The request to the planner: a tile, its reader, and how it is copied.

tile (mn, k)     128 x 64 bf16, K-major                     MN-major
                 ┌──── k ────┐                              ┌──── mn ────┐
              mn │ contiguous →                           k │ contiguous →
                 └───────────┘                              └────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tilescope.arch import Arch, ArchName, architectures_with
from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.card import Card, CardName, card_called
from tilescope.data_type import DataType
from tilescope.errors import PlanError, RuleError, Violation, argument_type, unknown_name
from tilescope.layout import ATOM_ORDERS, AtomOrder, Major, major_named, oriented
from tilescope.mma.consumer import CONSUMER, Consumer, consumers_of
from tilescope.planner.missing import (
    CONSUMER_FIX,
    CONSUMER_FOUND,
    CONSUMER_LIMIT,
    KIND_FIX,
    KIND_FOUND,
    KIND_LIMIT,
    missing_consumer,
)
from tilescope.planner.obstacle import Broken, Obstacle, broken, violations
from tilescope.reading import entries, flag, integer, integers, known_name, pair, try_read
from tilescope.rule import UNKNOWN_NAME, rule
from tilescope.smem.access import Access
from tilescope.swizzle import CHUNK_BYTES, SWIZZLE, Swizzle, SwizzleName
from tilescope.value import Value, row_field

CopyName = Literal["tma", "cp.async", "ld.global"]
Direction = Literal["load", "store"]
Traffic = Literal["dense", "sparse"]
Operand = Literal["A", "B"]
COPIES = get_args(CopyName)
DEFAULT_ARCH = "sm_90"  # where neither an architecture nor a card is named
EXTENT_NAMES = {"load": ("mn", "k"), "store": ("m", "n")}  # of an operand, and of a result
LARGEST_TILE_EXTENT = 1 << 20  # elements
LARGEST_STAGES = 1024  # that may be asked for
_CHUNK_BITS = CHUNK_BYTES * 8


PLAN_CARD = rule(
    "plan-card",
    "A card has one architecture; if arch is passed too, it is the same.",
    argument="card",
    found="card = {card} with arch = {arch}",
    limit="a card has one architecture, and that of the {card} is {own}",
    fix='Use {arch:="{own}"}, or leave it out.',
    source="the table of cards",
    passing='ts.plan((64, 64), "bf16", card="H200", arch="sm_90")',
    failing='ts.plan((64, 64), "bf16", card="A100", arch="sm_90")',
)


def resolve_card(arch: ArchName | Arch | None, card: CardName | Card | None) -> tuple[Arch, Card | None]:
    """The architecture and the card that two arguments name; the card is None where no card of the architecture is known.

    A card has its architecture; an architecture, or the name of a device in its place, has its default card.

    >>> [row.name for row in resolve_card(None, "RTX 4090")], [row.name for row in resolve_card("RTX4090", None)]
    (['sm_89', 'RTX 4090'], ['sm_89', 'RTX 4090'])
    >>> resolve_card("sm_86", None)[1] is None
    True
    """
    if card is None:
        target = Arch.named(DEFAULT_ARCH if arch is None else arch)
        device = card_called(arch) if isinstance(arch, str) else None
        return target, device or Card.of_arch(target)
    row = Card.named(card)
    if arch is not None and Arch.named(arch) is not row.arch:
        raise PLAN_CARD.error(card=row.name, arch=Arch.named(arch).name, own=row.arch.name)
    return row.arch, row


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class Problem(Value):
    """A tile of (mn, k) elements, its type and majorness, its consumer, and the choices left to the planner.

    >>> problem = Problem((128, 64), "bf16", arch="sm_100")
    >>> problem.consumer, problem.copy, problem.card.name, problem.row_bytes
    ('tcgen05', 'tma', 'B200', 128)
    """

    tile: tuple[int, int]
    data_type: DataType = row_field(DataType.named)
    major: Major
    consumer: str | Access
    arch: Arch = row_field(Arch.named)
    card: Card | None = row_field(Card.named)  # None: nothing is weighed by rates
    swizzle: Swizzle | None = row_field(Swizzle.named)
    atom_order: AtomOrder | None
    operand: Operand | None
    stages: int
    copy: CopyName
    direction: Direction
    traffic: Traffic
    fold: bool
    global_shape: tuple[int, int] | None
    strides_bytes: tuple[int, ...] | None
    extent_names: tuple[str, str]

    def __init__(
        self,
        tile: tuple[int, int],
        data_type: Any,
        *,
        major: Major = "K",
        consumer: str | Access | None = None,
        arch: ArchName | Arch | None = None,
        card: CardName | Card | None = None,
        swizzle: SwizzleName | Swizzle | None = None,
        atom_order: AtomOrder | None = None,
        operand: Operand | None = None,
        stages: int = 1,
        copy: CopyName | None = None,
        direction: Direction = "load",
        traffic: Traffic = "dense",
        fold: bool = False,
        global_shape: tuple[int, int] | None = None,
        strides_bytes: tuple[int, ...] | None = None,
        extent_names: tuple[str, str] | None = None,
    ) -> None:
        """As `plan`; None: the card's architecture (without either: sm_90 and an H200), its tensor core, TMA if it exists.

        `extent_names` are what sentences call the two extents of the tile.
        """
        problems: list[Violation] = []

        def optional(reader: Callable[..., object], argument: str, value: object, *limits: object) -> object:
            """What the reader makes of an argument that may be left out."""
            return None if value is None else try_read(problems, None, reader, argument, value, *limits)

        places = try_read(problems, None, resolve_card, arch, card)
        fields: dict[str, object] = {
            "tile": try_read(problems, None, pair, "tile", tile, 1, LARGEST_TILE_EXTENT),
            "data_type": try_read(problems, None, DataType.named, data_type),
            "major": try_read(problems, None, major_named, major, "major"),
            "swizzle": None if swizzle is None else try_read(problems, None, Swizzle.named, swizzle),
            "atom_order": optional(known_name, "atom_order", atom_order, ATOM_ORDERS),
            "operand": optional(known_name, "operand", operand, get_args(Operand)),
            "stages": try_read(problems, None, integer, "stages", stages, 1, LARGEST_STAGES),
            "copy": optional(known_name, "copy", copy, COPIES),
            "direction": try_read(problems, None, known_name, "direction", direction, get_args(Direction)),
            "traffic": try_read(problems, None, known_name, "traffic", traffic, get_args(Traffic)),
            "fold": try_read(problems, None, flag, "fold", fold),
            "global_shape": optional(pair, "global_shape", global_shape, 1),
            "strides_bytes": optional(integers, "strides_bytes", strides_bytes, 1, 0),
            "extent_names": optional(_two_names, "extent_names", extent_names),
        }
        if problems or places is None:
            raise RuleError(problems)
        target, device = places
        fields |= {"arch": target, "card": device}
        fields["consumer"] = consumers_of(target)[0] if consumer is None else consumer
        if copy is None:
            fields["copy"] = "tma" if target.has("tma") else "cp.async"
        if extent_names is None:
            fields["extent_names"] = EXTENT_NAMES[direction]
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        if contradictions := violations(_contradictions(self)):
            raise PlanError(contradictions)
        object.__setattr__(self, "consumer", _read_consumer(self))  # a pattern is read for the tile

    @property
    def consumer_name(self) -> str:
        """The name of the consumer: a tensor core instruction or an access pattern."""
        return self.consumer if isinstance(self.consumer, str) else self.consumer.name

    @property
    def tensor_core(self) -> Consumer | None:
        """The row of the tensor core's consumer; None if the consumer is an access pattern."""
        return CONSUMER.get(self.consumer) if isinstance(self.consumer, str) else None

    @property
    def reads_by_descriptor(self) -> bool:
        """Whether a tensor core reads the loaded tile by descriptors."""
        return self.for_tensor_core and self.tensor_core is not None and self.tensor_core.reads_by_descriptor

    @property
    def row_names(self) -> tuple[str, str]:
        """The names of the strided and the contiguous extent."""
        return oriented(self.major, *self.extent_names)

    @property
    def rows(self) -> int:
        """Extent of the strided dimension: mn of a K-major tile, k of an MN-major one."""
        return oriented(self.major, *self.tile)[0]

    @property
    def columns(self) -> int:
        """Extent of the contiguous dimension."""
        return oriented(self.major, *self.tile)[1]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the tile in shared memory."""
        return self.columns * self.data_type.smem_bits // 8

    @property
    def moved_bytes(self) -> int:
        """Bytes of one tile in global memory: what a copy moves and an mbarrier expects."""
        return self.rows * self.columns * self.data_type.bits // 8

    @property
    def pitch_bytes(self) -> int:
        """Bytes from one row to the next in global memory: as requested, otherwise those of dense rows of the matrix or tile."""
        own_bytes = oriented(self.major, *(self.global_shape or self.tile))[1] * self.data_type.bits // 8
        return own_bytes if self.strides_bytes is None else self.strides_bytes[0]

    @property
    def for_tensor_core(self) -> bool:
        """Whether the tile must be stored in the atoms of a tensor core."""
        return self.direction == "load" and isinstance(self.consumer, str)


PLAN_CONSUMER = rule(
    "plan-consumer",
    "The architecture has the consumer: wgmma on sm_90, tcgen05 on sm_100, sm_103 and sm_110, ldmatrix everywhere.",
    argument="consumer",
    found=CONSUMER_FOUND,
    limit=CONSUMER_LIMIT,
    fix=CONSUMER_FIX,
    source='PTX ISA, "Target ISA Notes" of the instructions',
    passing='ts.plan((64, 64), "bf16", consumer="wgmma")',
    failing='ts.plan((64, 64), "bf16", consumer="tcgen05")',
)
PLAN_COPY = rule(
    "plan-copy",
    "TMA copies tiles from sm_90 on; before that, cp.async and ld.global do. Stores use TMA, and only TMA reads a "
    "tensor map.",
    argument="copy",
    found="copy = tma on {arch}",
    limit="TMA exists on {known:, }",
    fix='Use {copy:="cp.async"}.',
    source="CUDA programming guide, compute capabilities",
    passing='ts.plan((64, 64), "bf16", arch="sm_80", copy="cp.async")',
    failing='ts.plan((64, 64), "bf16", arch="sm_80", copy="tma")',
)
STORE_WITHOUT_TMA = PLAN_COPY.worded(
    argument="direction",
    found="a store on {arch}",
    limit="stores are planned through TMA, which exists on {known:, }",
    fix='Use {arch:="sm_90"}, or let the threads write their results to global memory.',
)
STORE_BY_THREADS = PLAN_COPY.worded(
    found="copy = {copy} for a store",
    limit="planned stores go through TMA",
    fix='Use {copy:="tma"}.',
)
MAP_FOR_THREADS = PLAN_COPY.worded(
    found="copy = {copy}",
    limit="only TMA reads a tensor map",
    fix='Plan with {copy:="tma"}.',
)
PLAN_TYPE = rule(
    "plan-type",
    "The copy moves the type element by element, and the consumer supports it on this architecture.",
    argument="data_type",
    found="{data_type} by TMA",
    limit="TMA moves {elements} elements of {data_type} as one {moved}",
    fix='Plan {tile: x } of "{moved}": the same bytes and descriptors.',
    source='cuda.h, CUtensorMapDataType; PTX ISA, "tcgen05.mma"',
    passing='ts.plan((64, 32), "u8")',
    failing='ts.plan((64, 256), "b1")',
)
TYPE_THAT_TMA_SPREADS = PLAN_TYPE.worded(
    found="{data_type} by {copy}",
    limit="its values are {global_bits} bits in global memory and {smem_bits} in shared memory",
    fix='Only TMA spreads them out: use {copy:="tma"}.',
)
TYPE_WITHOUT_KIND = PLAN_TYPE.worded(found=KIND_FOUND, limit=KIND_LIMIT, fix=KIND_FIX)
PLAN_ROW = rule(
    "plan-row",
    "A row of the tile is a multiple of 16 contiguous bytes.",
    argument="tile",
    found="[[{matrix}: ]]{extent} = {elements} elements of {element_bits} bits = {row_bytes:.15g} contiguous bytes",
    limit="copies move multiples of 16 bytes",
    fix="Use {extent} = {up}.",
    source="cuda.h, cuTensorMapEncodeTiled; measured on an H200",
    basis="measured",
    passing='ts.plan((64, 64), "bf16")',
    failing='ts.plan((64, 63), "bf16")',
)
PLAN_PITCH = rule(
    "plan-pitch",
    "Threads copy 16 aligned bytes at a time, so rows in global memory are a multiple of 16 bytes apart.",
    argument="global_shape",
    found="rows {pitch_bytes} bytes apart",
    limit="a thread of {copy} copies 16 aligned bytes",
    fix="Pad the rows to {up} bytes.",
    source='PTX ISA, "cp.async"',
    passing='ts.plan((64, 64), "bf16", copy="cp.async", consumer="ldmatrix", strides_bytes=(144,))',
    failing='ts.plan((64, 64), "bf16", copy="cp.async", consumer="ldmatrix", strides_bytes=(130,))',
)
PITCH_ASKED_FOR = PLAN_PITCH.worded(argument="strides_bytes[0]")
PLAN_SWIZZLE = rule(
    "plan-swizzle",
    "Threads copy 16 bytes at a time, so the swizzle moves pieces of 16 bytes or more, and stays inside the tile.",
    argument="swizzle",
    found="swizzle {swizzle} by {copy}",
    limit="a thread copies 16 bytes, and the mode moves pieces of {piece_bytes}",
    fix='Use {swizzle:="128B"}, or {copy:="tma"}.',
    source='PTX ISA, "cp.async"; the table of swizzles',
    passing='ts.plan((64, 64), "bf16", copy="cp.async", consumer="ld.b32 rows", swizzle="128B")',
    failing='ts.plan((64, 64), "bf16", copy="cp.async", consumer="ld.b32 rows", swizzle="128B_ATOM_32B_FLIP_8B")',
)
SWIZZLE_LEAVES_TILE = PLAN_SWIZZLE.worded(
    found="swizzle {swizzle} on a tile of {tile_bytes} bytes",
    limit="it moves pieces within blocks of {block_bytes} bytes, and they would leave the tile",
    fix="Use a tile of {up} bytes, or a smaller swizzle.",
)
PLAN_PATTERN = rule(
    "plan-pattern",
    "The access pattern of a load reads shared memory; that of a store writes it.",
    argument="consumer",
    found="{pattern} for a load",
    limit="{op} writes shared memory; a load needs a pattern that reads it",
    fix='Use {consumer:="ld.b128 rows"}, for example.',
    source="the direction of the instruction",
    passing='ts.plan((64, 64), "bf16", consumer="ld.b128 rows")',
    failing='ts.plan((64, 64), "bf16", consumer="st.b128 rows")',
)
PATTERN_FOR_STORE = PLAN_PATTERN.worded(
    found="{pattern} for a store",
    limit="{op} reads shared memory; a store needs a pattern that writes it",
    fix='Use {consumer:="st.b128 rows"}, for example.',
)


def _contradictions(problem: Problem) -> Iterator[Obstacle]:
    """Arguments that contradict each other for every candidate."""
    core = problem.tensor_core
    if problem.for_tensor_core and core is not None:
        yield from missing_consumer(PLAN_CONSUMER.wording, core.name, problem.arch)
    yield from _wrong_copy(problem)
    yield from uneven_row(problem.row_names[1], problem.columns, problem.data_type)
    if problem.copy != "tma":
        yield from _beyond_threads(problem)


def _wrong_copy(problem: Problem) -> Iterator[Violation]:
    """A copy that the architecture does not have, or that does not move the tile in this direction or of this type."""
    arch = problem.arch
    element = problem.data_type
    if problem.direction == "store" and not arch.has("tma"):
        yield STORE_WITHOUT_TMA.violation(arch=arch.name, known=architectures_with("tma"))
    elif problem.direction == "store" and problem.copy != "tma":
        yield STORE_BY_THREADS.violation(copy=problem.copy)
    elif problem.copy == "tma" and not arch.has("tma"):
        yield PLAN_COPY.violation(arch=arch.name, known=architectures_with("tma"))
    together = element.tma.bits // element.bits
    if problem.copy == "tma" and together > 1:
        tile = oriented(problem.major, problem.rows, ceil_div(problem.columns, together))
        yield PLAN_TYPE.violation(data_type=element.name, elements=together, moved=element.tma.name, tile=tile)


def uneven_row(extent: str, elements: int, data_type: DataType) -> list[Broken]:
    """Refuse rows that copies do not move; `extent` is the name of the contiguous one."""
    bits = data_type.bits
    if elements * bits % _CHUNK_BITS == 0:
        return []
    step = 64 if _CHUNK_BITS % bits else _CHUNK_BITS // bits
    up = rounded_up(elements, step)
    return [
        broken(
            PLAN_ROW,
            change={extent: up},
            extent=extent,
            elements=elements,
            element_bits=bits,
            row_bytes=elements * bits / 8,
            up=up,
        )
    ]


def _beyond_threads(problem: Problem) -> Iterator[Violation]:
    """Refuse what only TMA can do: threads copy 16 aligned bytes at a time."""
    copy = problem.copy
    pitch = problem.pitch_bytes
    if pitch % CHUNK_BYTES:
        broken_rule = PLAN_PITCH if problem.strides_bytes is None else PITCH_ASKED_FOR
        yield broken_rule.violation(pitch_bytes=pitch, copy=copy, up=rounded_up(pitch, CHUNK_BYTES))
    element = problem.data_type
    if element.smem_bits != element.bits:
        yield TYPE_THAT_TMA_SPREADS.violation(
            data_type=element.name, copy=copy, global_bits=element.bits, smem_bits=element.smem_bits
        )
    swizzle = problem.swizzle or SWIZZLE["none"]
    tile_bytes = problem.rows * problem.row_bytes
    block_bytes = swizzle.block_bytes
    if swizzle.piece_bytes < CHUNK_BYTES:
        yield PLAN_SWIZZLE.violation(
            swizzle=swizzle.name, copy=copy, piece_bytes=swizzle.piece_bytes, change={"swizzle": "128B"}
        )
    elif swizzle.bits and tile_bytes % block_bytes:
        up = rounded_up(tile_bytes, block_bytes)
        yield SWIZZLE_LEAVES_TILE.violation(swizzle=swizzle.name, tile_bytes=tile_bytes, block_bytes=block_bytes, up=up)


def _read_consumer(problem: Problem) -> str | Access:
    """A consumer other than a tensor core is an access pattern: an Access, or its text.

    It reads a loaded tile, and writes one that is stored.
    """
    consumer: object = problem.consumer
    if isinstance(consumer, str) and consumer in CONSUMER:
        return consumer
    pattern = _pattern_called(consumer, problem) if isinstance(consumer, str) else consumer
    if not isinstance(pattern, Access):
        consumer_names = (*CONSUMER, "ldmatrix.x4", "ld.b128 columns")
        raise RuleError([unknown_name("consumer", "consumer", consumer, consumer_names)])
    if pattern.op.is_load != (problem.direction == "load"):
        broken_rule = PLAN_PATTERN if problem.direction == "load" else PATTERN_FOR_STORE
        raise PlanError([broken_rule.violation(pattern=pattern.name, op=pattern.op.name)])
    return pattern


def _pattern_called(text: str, problem: Problem) -> Access | None:
    """The access pattern of that name on the problem's tile; None where no pattern has the name."""
    try:
        return Access.named(text, (problem.rows, problem.columns), problem.data_type.smem_bits)
    except RuleError as error:
        if error.violations[0].rule == UNKNOWN_NAME.name:
            return None
        raise PlanError(error.violations) from None


def _two_names(argument: str, value: object) -> tuple[str, str]:
    names = entries(value, 3)
    if names is None or len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise RuleError([argument_type(argument, value, "two names", 'Use ("mn", "k").')])
    return names[0], names[1]
