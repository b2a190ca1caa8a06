"""What is asked of the planner: a tile, who reads it, how it gets there.

tile (mn, k)     128 x 64 bf16, K-major                     MN-major
                 ┌──── k ────┐                              ┌──── mn ────┐
              mn │ contiguous →                           k │ contiguous →
                 └───────────┘                              └────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from tilescope.arch import Arch, ArchName, architectures_with
from tilescope.card import Card, CardName, card_called
from tilescope.data_type import DataType
from tilescope.errors import PlanError, RuleError, Violation, argument_type, unknown_name
from tilescope.layout import ATOM_ORDERS, AtomOrder, Major, major_named, oriented
from tilescope.mma.consumer import CONSUMER, Consumer, consumers_of, missing_consumer
from tilescope.planner.refusal import refusal
from tilescope.reading import attempted, flag, integer, integers, known_name, pair
from tilescope.rule import RULES
from tilescope.smem.access import Access
from tilescope.swizzle import CHUNK_BYTES, Swizzle, SwizzleName
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


def resolved(arch: ArchName | Arch | None, card: CardName | Card | None) -> tuple[Arch, Card | None]:
    """The architecture and the card that two arguments name; the card is None where no card of the architecture is known.

    A card has its architecture; an architecture, or the name of a device in its place, has the card that stands for it.

    >>> [row.name for row in resolved(None, "RTX 4090")], [row.name for row in resolved("RTX4090", None)]
    (['sm_89', 'RTX 4090'], ['sm_89', 'RTX 4090'])
    >>> resolved("sm_86", None)[1] is None
    True
    """
    if card is not None:
        row = Card.named(card)
        if arch is not None and Arch.named(arch) is not row.arch:
            told = {"card": row.name, "arch": Arch.named(arch).name, "own": row.arch.name}
            raise RuleError([refusal("plan-card", "card", **told)])
        return row.arch, row
    target = Arch.named(DEFAULT_ARCH if arch is None else arch)
    device = card_called(arch) if isinstance(arch, str) else None
    return target, device or Card.of_arch(target)


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
        fields = {
            name: None
            if value is None and name in _OPTIONAL
            else attempted(problems, None, _READERS[name], name, value)
            for name, value in asked.items()
        }
        if problems or places is None:
            raise RuleError(problems)
        target, device = places
        fields |= {
            "arch": target, "card": device, "consumer": fields["consumer"] or consumers_of(target)[0],
            "copy": fields["copy"] or ("tma" if target.has("tma") else "cp.async"),
            "extent_names": fields["extent_names"] or EXTENT_NAMES[str(fields["direction"])],
        }  # fmt: skip
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        problems.extend(_contradictions(self))
        object.__setattr__(self, "consumer", self.consumer if problems else _pattern(self, problems))
        if problems:
            raise PlanError(problems)

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
        if self.strides_bytes is not None:
            return self.strides_bytes[0]
        return oriented(self.major, *(self.global_shape or self.tile))[1] * self.data_type.bits // 8

    @property
    def for_tensor_core(self) -> bool:
        """Whether the tile must lie in the atoms of a tensor core."""
        return self.direction == "load" and isinstance(self.consumer, str)


def _pattern(problem: Problem, problems: list[Violation]) -> str | Access:
    """A consumer other than a tensor core is an access pattern: an Access, or its text.

    It reads a loaded tile, and writes one that is stored.
    """
    consumer = problem.consumer
    if isinstance(consumer, str):
        if consumer in CONSUMER:
            return consumer
        try:
            consumer = Access.named(consumer, (problem.rows, problem.columns), problem.data_type.smem_bits)
        except RuleError as error:
            known = (*CONSUMER, "ldmatrix.x4", "ld.b128 columns")
            if error.violations[0].rule == "unknown-name":
                raise RuleError([unknown_name("consumer", "consumer", problem.consumer, known)]) from None
            problems.extend(error.violations)
            return problem.consumer
    if consumer.op.is_load != (problem.direction == "load"):
        does, wants = ("reads", "writes") if consumer.op.is_load else ("writes", "reads")
        fitting = "st.b128 rows" if consumer.op.is_load else "ld.b128 rows"
        told = {"pattern": consumer.name, "op": consumer.op.name, "direction": problem.direction}
        problems.append(refusal("plan-pattern", "consumer", does=does, wants=wants, fitting=fitting, **told))
    return consumer


def _contradictions(problem: Problem) -> Iterator[Violation]:
    arch, element, row, copy = problem.arch, problem.data_type, problem.tensor_core, problem.copy
    stores, has_tma, known = problem.direction == "store", arch.has("tma"), architectures_with("tma")
    missing = missing_consumer(row.name, arch) if problem.for_tensor_core and row is not None else None
    if missing is not None:
        yield RULES["plan-consumer"].violation("consumer", *missing)
    if stores and not has_tma:
        yield refusal("plan-copy", "direction", "store", arch=arch.name, known=known)
    elif copy == "tma" and not has_tma:
        yield refusal("plan-copy", "copy", "load", arch=arch.name, known=known)
    elif stores and copy != "tma":
        yield refusal("plan-copy", "copy", "threads", copy=copy)
    columns, name, bits = problem.columns, problem.row_names[1], problem.columns * element.bits
    together = element.tma.bits // element.bits or 1
    if copy == "tma" and together > 1:
        extents = zip(problem.extent_names, problem.tile, strict=True)
        tile = tuple(-(-extent // together) if axis == name else extent for axis, extent in extents)
        told = {"data_type": element.name, "elements": together, "moved": element.tma.name, "tile": tile}
        yield refusal("plan-type", "data_type", "bits", **told)
    if bits % 128:
        step = 128 // element.bits if 128 % element.bits == 0 else 64
        told = {"extent": name, "elements": columns, "element_bits": element.bits, "row_bytes": bits / 8}
        yield refusal("plan-row", "tile", up=-(-columns // step) * step, **told)
    if copy != "tma":
        yield from _beyond_threads(problem)


def _beyond_threads(problem: Problem) -> Iterator[Violation]:
    """Refuse what only TMA can do: threads copy 16 aligned bytes at a time."""
    pitch, copy, element = problem.pitch_bytes, problem.copy, problem.data_type
    swizzle, tile_bytes = problem.swizzle or Swizzle.named("none"), problem.rows * problem.row_bytes
    if pitch % CHUNK_BYTES:
        argument = "global_shape" if problem.strides_bytes is None else "strides_bytes[0]"
        yield refusal("plan-pitch", argument, pitch_bytes=pitch, copy=copy, up=-(-pitch // CHUNK_BYTES) * CHUNK_BYTES)
    if element.smem_bits != element.bits:
        told = {"data_type": element.name, "copy": copy, "global_bits": element.bits, "smem_bits": element.smem_bits}
        yield refusal("plan-type", "data_type", "spread", **told)
    if swizzle.piece_bytes < CHUNK_BYTES:
        told = {"swizzle": swizzle.name, "copy": copy, "piece_bytes": swizzle.piece_bytes}
        yield refusal("plan-swizzle", "swizzle", "", {"swizzle": "128B"}, **told)
    elif swizzle.bits and tile_bytes % swizzle.block_bytes:
        up = -(-tile_bytes // swizzle.block_bytes) * swizzle.block_bytes
        told = {"swizzle": swizzle.name, "tile_bytes": tile_bytes, "block_bytes": swizzle.block_bytes}
        yield refusal("plan-swizzle", "swizzle", "tile", up=up, **told)


def _consumer(argument: str, value: Any) -> str | Access:
    if isinstance(value, str | Access):
        return value
    raise RuleError([unknown_name("consumer", argument, value, CONSUMER)])


def _names(argument: str, value: Any) -> tuple[str, str]:
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(name, str) for name in value):
        return value[0], value[1]
    raise RuleError([argument_type(argument, value, "two names", 'Use ("mn", "k").')])


_OPTIONAL = frozenset({
    "consumer", "swizzle", "atom_order", "operand", "copy", "global_shape", "strides_bytes", "extent_names",
})  # fmt: skip
_READERS: dict[str, Callable[[str, Any], Any]] = {
    "tile": partial(pair, least=1, most=LARGEST_EXTENT),
    "data_type": lambda _, value: DataType.named(value),
    "major": lambda _, value: major_named(value),
    "consumer": _consumer,
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
