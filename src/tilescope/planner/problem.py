"""What is asked of the planner: a tile, who reads it, how it gets there.

tile (mn, k)     128 x 64 bf16, K-major                     MN-major
                 ┌──── k ────┐                              ┌──── mn ────┐
              mn │ contiguous →                           k │ contiguous →
                 └───────────┘                              └────────────┘
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from tilescope.arch import Arch, ArchName, architectures_with
from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.card import Card, CardName, card_called
from tilescope.data_type import DataType
from tilescope.errors import PlanError, RuleError, Violation, argument_type, unknown_name
from tilescope.layout import ATOM_ORDERS, AtomOrder, Major, major_named, oriented
from tilescope.mma.consumer import CONSUMER, Consumer, consumers_of, missing_consumer
from tilescope.planner.reason import Obstacle, or_obstacles, plan_rule, violations
from tilescope.reading import attempted, flag, integer, integers, known_name, pair
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
LARGEST_EXTENT = 1 << 20
LARGEST_STAGES = 1024  # that may be asked for


# fmt: off
PLAN_CARD = plan_rule(
    "plan-card", "A card has one architecture: if arch is named too, it is the same.", "the table of cards",
    'ts.plan((64, 64), "bf16", card="H200", arch="sm_90")', 'ts.plan((64, 64), "bf16", card="A100", arch="sm_90")',
    said=("card = {card} with arch = {arch}", "a card has one architecture, and that of the {card} is {own}",
          'Use arch="{own}", or leave it out.'),
)
# fmt: on


def resolved(arch: ArchName | Arch | None, card: CardName | Card | None) -> tuple[Arch, Card | None]:
    """The architecture and the card that two arguments name; the card is None where no card of the architecture is known.

    A card has its architecture; an architecture, or the name of a device in its place, has the card that stands for it.

    >>> [row.name for row in resolved(None, "RTX 4090")], [row.name for row in resolved("RTX4090", None)]
    (['sm_89', 'RTX 4090'], ['sm_89', 'RTX 4090'])
    >>> resolved("sm_86", None)[1] is None
    True
    """
    if card is None:
        target = Arch.named(DEFAULT_ARCH if arch is None else arch)
        return target, (card_called(arch) if isinstance(arch, str) else None) or Card.of_arch(target)
    row = Card.named(card)
    if arch is not None and Arch.named(arch) is not row.arch:
        raise PLAN_CARD.broken("card", card=row.name, arch=Arch.named(arch).name, own=row.arch.name).error()
    return row.arch, row


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class Problem(Value):
    """A tile of (mn, k) elements, its type and majorness, its consumer, and the freedom that is left.

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
        asked = {name: value for name, value in locals().items() if name != "self"}
        problems: list[Violation] = []
        places = attempted(problems, None, resolved, asked.pop("arch"), asked.pop("card"))
        said = {name: value for name, value in asked.items() if value is not None or name in _NEEDED}
        fields = {name: attempted(problems, None, _READERS[name], name, value) for name, value in said.items()}
        if problems or places is None:
            raise RuleError(problems)
        target, device = places
        unsaid = dict.fromkeys(asked) | {
            "arch": target,
            "card": device,
            "consumer": consumers_of(target)[0],
            "copy": "tma" if target.has("tma") else "cp.async",
            "extent_names": EXTENT_NAMES[str(fields["direction"])],
        }
        for name, value in (unsaid | fields).items():
            object.__setattr__(self, name, value)
        if contradictions := violations(_contradictions(self)):
            raise PlanError(contradictions)
        object.__setattr__(self, "consumer", _consumer(self))

    @property
    def consumer_name(self) -> str:
        """The name of whoever reads the tile: a tensor core's, or the access pattern's."""
        return self.consumer if isinstance(self.consumer, str) else self.consumer.name

    @property
    def tensor_core(self) -> Consumer | None:
        """The row of the tensor core's consumer; None where an access pattern reads."""
        return CONSUMER.get(self.consumer) if isinstance(self.consumer, str) else None

    @property
    def reads_by_descriptor(self) -> bool:
        """Whether a tensor core reads the loaded tile by descriptors."""
        return self.for_tensor_core and self.tensor_core is not None and self.tensor_core.reads_by_descriptor

    @property
    def row_names(self) -> tuple[str, str]:
        """What the strided and the contiguous extent are called."""
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
        """From one row to the next in global memory: as asked for, else the whole matrix's (or the tile's) own rows."""
        own_bytes = oriented(self.major, *(self.global_shape or self.tile))[1] * self.data_type.bits // 8
        return own_bytes if self.strides_bytes is None else self.strides_bytes[0]

    @property
    def for_tensor_core(self) -> bool:
        """Whether the tile must lie in the atoms of a tensor core."""
        return self.direction == "load" and isinstance(self.consumer, str)


# fmt: off
PLAN_CONSUMER = plan_rule(
    "plan-consumer", "The architecture has the consumer: wgmma on sm_90, tcgen05 on sm_100, sm_103 and sm_110, ldmatrix everywhere.",
    'PTX ISA, "Target ISA Notes" of the instructions',
    'ts.plan((64, 64), "bf16", consumer="wgmma")', 'ts.plan((64, 64), "bf16", consumer="tcgen05")',
)
PLAN_COPY = plan_rule(
    "plan-copy",
    "TMA copies tiles from sm_90 on, before that cp.async and ld.global; stores go through TMA, and only TMA reads a tensor map.",
    "CUDA programming guide, compute capabilities",
    'ts.plan((64, 64), "bf16", arch="sm_80", copy="cp.async")', 'ts.plan((64, 64), "bf16", arch="sm_80", copy="tma")',
    store=("a store on {arch}", "stores are planned through TMA, which exists on {known:, }",
           'Use arch="sm_90", or let the threads write their results to global memory.'),
    load=("copy = tma on {arch}", "TMA exists on {known:, }", 'Use copy="cp.async".'),
    threads=("copy = {copy} for a store", "planned stores go through TMA", 'Use copy="tma".'),
    map=("copy = {copy}", "only TMA reads a tensor map", 'Plan with copy="tma".'),
)
PLAN_TYPE = plan_rule(
    "plan-type", "The copy moves the type element by element, and the consumer takes it on this architecture.",
    'cuda.h, CUtensorMapDataType; PTX ISA, "tcgen05.mma"', 'ts.plan((64, 32), "u8")', 'ts.plan((64, 256), "b1")',
    bits=("{data_type} by TMA", "TMA moves {elements} elements of {data_type} as one {moved}",
          'Plan {tile: x } of "{moved}": the same bytes and descriptors.'),
    spread=("{data_type} by {copy}", "its values are {global_bits} bits in global memory and {smem_bits} in shared memory",
            'Only TMA spreads them out: use copy="tma".'),
)
PLAN_ROW = plan_rule(
    "plan-row", "A row of the tile is a multiple of 16 contiguous bytes.", "cuda.h, cuTensorMapEncodeTiled; measured on an H200",
    'ts.plan((64, 64), "bf16")', 'ts.plan((64, 63), "bf16")', "measured",
    said=("{extent} = {elements} elements of {element_bits} bits = {row_bytes:.15g} contiguous bytes",
          "copies move multiples of 16 bytes", "Use {extent} = {up}."),
)
# fmt: on


def _contradictions(problem: Problem) -> list[Obstacle]:
    arch, element, core, copy = problem.arch, problem.data_type, problem.tensor_core, problem.copy
    stores, by_tma, has_tma = problem.direction == "store", copy == "tma", arch.has("tma")
    on_arch = {"arch": arch.name, "known": architectures_with("tma")}
    missing = missing_consumer(core.name, arch) if problem.for_tensor_core and core is not None else None
    together = element.tma.bits // element.bits
    tile = oriented(problem.major, problem.rows, ceil_div(problem.columns, together or 1))
    # fmt: off
    checks = (
        (stores and not has_tma, PLAN_COPY.broken("direction", "store", **on_arch)),
        (not stores and by_tma and not has_tma, PLAN_COPY.broken("copy", "load", **on_arch)),
        (stores and has_tma and not by_tma, PLAN_COPY.broken("copy", "threads", copy=copy)),
        (by_tma and together > 1,
         PLAN_TYPE.broken("data_type", "bits", data_type=element.name, elements=together, moved=element.tma.name, tile=tile)),
    )
    # fmt: on
    return [
        *([] if missing is None else [PLAN_CONSUMER.row.violation("consumer", *missing)]),
        *(one for broken, one in checks if broken),
        *uneven_row(problem.row_names[1], problem.columns, element),
        *([] if by_tma else _beyond_threads(problem)),
    ]


def uneven_row(extent: str, elements: int, data_type: DataType) -> list[Obstacle]:
    """Refuse rows that copies do not move; `extent` is the name of the contiguous one."""
    bits, step = data_type.bits, 64 if 128 % data_type.bits else 128 // data_type.bits
    told = {
        "elements": elements,
        "element_bits": bits,
        "row_bytes": elements * bits / 8,
        "up": rounded_up(elements, step),
    }
    return [PLAN_ROW.broken("tile", extent=extent, **told)] if elements * bits % 128 else []


# fmt: off
PLAN_PITCH = plan_rule(
    "plan-pitch", "Threads copy 16 aligned bytes: rows in global memory lie a multiple of 16 bytes apart.", 'PTX ISA, "cp.async"',
    'ts.plan((64, 64), "bf16", copy="cp.async", consumer="ldmatrix", strides_bytes=(144,))',
    'ts.plan((64, 64), "bf16", copy="cp.async", consumer="ldmatrix", strides_bytes=(130,))',
    said=("rows {pitch_bytes} bytes apart", "a thread of {copy} copies 16 aligned bytes", "Pad the rows to {up} bytes."),
)
PLAN_SWIZZLE = plan_rule(
    "plan-swizzle",
    "Threads copy 16 bytes at a time: the swizzle moves pieces of 16 bytes or more, within blocks that lie in the tile.",
    'PTX ISA, "cp.async"; the table of swizzles',
    'ts.plan((64, 64), "bf16", copy="cp.async", consumer="ld.b32 rows", swizzle="128B")',
    'ts.plan((64, 64), "bf16", copy="cp.async", consumer="ld.b32 rows", swizzle="128B_ATOM_32B_FLIP_8B")',
    piece=("swizzle {swizzle} by {copy}", "a thread copies 16 bytes, and the mode moves pieces of {piece_bytes}",
           'Use swizzle="128B", or copy="tma".'),
    tile=("swizzle {swizzle} on a tile of {tile_bytes} bytes",
          "it moves pieces within blocks of {block_bytes} bytes, and they would leave the tile",
          "Use a tile of {up} bytes, or a smaller swizzle."),
)
# fmt: on


def _beyond_threads(problem: Problem) -> list[Obstacle]:
    """Refuse what only TMA can do: threads copy 16 aligned bytes at a time."""
    pitch, copy, element = problem.pitch_bytes, problem.copy, problem.data_type
    swizzle, tile_bytes = problem.swizzle or SWIZZLE["none"], problem.rows * problem.row_bytes
    piece, block, name = swizzle.piece_bytes, swizzle.block_bytes, swizzle.name
    spaced = "global_shape" if problem.strides_bytes is None else "strides_bytes[0]"
    # fmt: off
    checks = (
        (pitch % CHUNK_BYTES,
         PLAN_PITCH.broken(spaced, pitch_bytes=pitch, copy=copy, up=rounded_up(pitch, CHUNK_BYTES))),
        (element.smem_bits != element.bits,
         PLAN_TYPE.broken("data_type", "spread", data_type=element.name, copy=copy, global_bits=element.bits, smem_bits=element.smem_bits)),
        (piece < CHUNK_BYTES,
         PLAN_SWIZZLE.broken("swizzle", "piece", {"swizzle": "128B"}, swizzle=name, copy=copy, piece_bytes=piece)),
        (piece >= CHUNK_BYTES and swizzle.bits and tile_bytes % block,
         PLAN_SWIZZLE.broken("swizzle", "tile", swizzle=name, tile_bytes=tile_bytes, block_bytes=block,
                             up=rounded_up(tile_bytes, block))),
    )
    # fmt: on
    return [one for broken, one in checks if broken]


# fmt: off
PLAN_PATTERN = plan_rule(
    "plan-pattern", "The access pattern of a load reads shared memory; that of a store writes it.", "the direction of the instruction",
    'ts.plan((64, 64), "bf16", consumer="ld.b128 rows")', 'ts.plan((64, 64), "bf16", consumer="st.b128 rows")',
    load=("{pattern} for a load", "{op} writes shared memory; a load needs a pattern that reads it",
          'Use consumer="ld.b128 rows", for example.'),
    store=("{pattern} for a store", "{op} reads shared memory; a store needs a pattern that writes it",
           'Use consumer="st.b128 rows", for example.'),
)
# fmt: on


def _consumer(problem: Problem) -> str | Access:
    """A consumer other than a tensor core is an access pattern: an Access, or its text.

    It reads a loaded tile, and writes one that is stored.
    """
    consumer: Any = problem.consumer
    if isinstance(consumer, str):
        if consumer in CONSUMER:
            return consumer
        tile, bits = (problem.rows, problem.columns), problem.data_type.smem_bits
        consumer = or_obstacles(Access.named, consumer, tile, bits)
        if isinstance(consumer, list) and consumer[0].rule != "unknown-name":
            raise PlanError(violations(consumer))
    if not isinstance(consumer, Access):
        known = (*CONSUMER, "ldmatrix.x4", "ld.b128 columns")
        raise RuleError([unknown_name("consumer", "consumer", problem.consumer, known)])
    if consumer.op.is_load != (problem.direction == "load"):
        told = {"pattern": consumer.name, "op": consumer.op.name}
        raise PLAN_PATTERN.broken("consumer", problem.direction, **told).error(PlanError)
    return consumer


def _names(argument: str, value: Any) -> tuple[str, str]:
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(name, str) for name in value):
        return value[0], value[1]
    raise RuleError([argument_type(argument, value, "two names", 'Use ("mn", "k").')])


_NEEDED = ("tile", "data_type", "major", "stages", "direction", "traffic", "fold")
_READERS: dict[str, Callable[[str, Any], Any]] = {
    "tile": partial(pair, least=1, most=LARGEST_EXTENT),
    "data_type": lambda _, value: DataType.named(value),
    "major": lambda name, value: major_named(value, name),
    "consumer": lambda _, value: value,  # read once the tile is known
    "swizzle": lambda _, value: Swizzle.named(value),
    "atom_order": partial(known_name, known=ATOM_ORDERS),
    "operand": partial(known_name, known=get_args(Operand)),
    "stages": partial(integer, least=1, most=LARGEST_STAGES),
    "copy": partial(known_name, known=COPIES),
    "direction": partial(known_name, known=get_args(Direction)),
    "traffic": partial(known_name, known=get_args(Traffic)),
    "fold": flag,
    "global_shape": partial(pair, least=1),
    "strides_bytes": partial(integers, count=1, least=0),
    "extent_names": _names,
}
