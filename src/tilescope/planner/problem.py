"""What is asked of the planner: a tile, who reads it, how it gets there.

tile (mn, k)     128 x 64 bf16, K-major                     MN-major
                 ┌──── k ────┐                              ┌──── mn ────┐
              mn │ contiguous →                           k │ contiguous →
                 └───────────┘                              └────────────┘
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from tilescope.arch import Arch, ArchName, architectures_with
from tilescope.card import Card, CardName, card_called
from tilescope.data_type import DataType
from tilescope.errors import PlanError, RuleError, Violation, broken, printed, unknown_name
from tilescope.layout import ATOM_ORDERS, AtomOrder, Major, major_named, oriented
from tilescope.mma.canonical import tile_shape
from tilescope.mma.consumer import CONSUMER, Consumer, consumers_of, missing_consumer
from tilescope.reading import integer, integers
from tilescope.smem.access import Access
from tilescope.swizzle import CHUNK_BYTES, Swizzle, SwizzleName
from tilescope.value import Value, row_field

CopyName = Literal["tma", "cp.async", "ld.global"]
Direction = Literal["load", "store"]
Traffic = Literal["dense", "sparse"]
Operand = Literal["A", "B"]
COPIES: tuple[CopyName, ...] = ("tma", "cp.async", "ld.global")
DIRECTIONS: tuple[Direction, ...] = ("load", "store")
TRAFFICS: tuple[Traffic, ...] = ("dense", "sparse")
OPERANDS: tuple[Operand, ...] = ("A", "B")
DEFAULT_ARCH = "sm_90"  # where neither an architecture nor a card is named
EXTENT_NAMES = {"load": ("mn", "k"), "store": ("m", "n")}  # of an operand, and of a result
LARGEST_EXTENT = 1 << 20


def resolved(arch: ArchName | Arch | None, card: CardName | Card | None) -> tuple[Arch, Card | None]:
    """The architecture and the card that two arguments name; the card is None where no card of the architecture is known.

    A card has its architecture; an architecture, or the name of a device given as one, has the card that stands for it.

    >>> [row.name for row in resolved(None, "RTX 4090")], [row.name for row in resolved("RTX4090", None)]
    (['sm_89', 'RTX 4090'], ['sm_89', 'RTX 4090'])
    >>> resolved("sm_86", None)[1] is None
    True
    """
    if card is not None:
        row = Card.named(card)
        if arch is not None and Arch.named(arch) is not row.arch:
            found = f"card = {row.name} with arch = {Arch.named(arch).name}"
            limit = f"a card has one architecture, and that of the {row.name} is {row.arch.name}"
            raise broken("plan-card", "card", found, limit, "Leave arch out, or name a card of that architecture.")
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
    major: Major = "K"
    consumer: str | Access = None  # type: ignore[assignment]  # never None once constructed
    arch: Arch = row_field(Arch.named, default=None)
    card: Card | None = row_field(Card.named, default=None)  # None: nothing is weighed by rates
    swizzle: Swizzle | None = row_field(Swizzle.named, default=None)
    atom_order: AtomOrder | None = None
    operand: Operand | None = None
    stages: int = 1
    copy: CopyName = None  # type: ignore[assignment]
    direction: Direction = "load"
    traffic: Traffic = "dense"
    fold: bool = False
    global_shape: tuple[int, int] | None = None
    strides_bytes: tuple[int, ...] | None = None
    extent_names: tuple[str, str] = None  # type: ignore[assignment]

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
        """As `plan`; None: the card's architecture (sm_90 and an H200 where neither is given), its tensor core, TMA if it exists.

        `extent_names` are what sentences call the two extents of the tile.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        problems: list[Violation] = []
        found: dict[str, Any] = {}
        try:
            found["arch"], found["card"] = resolved(given.pop("arch"), given.pop("card"))
        except RuleError as error:
            problems.extend(error.violations)
        for name, value in given.items():
            try:
                found[name] = None if value is None and name in _OPTIONAL else _READERS[name](value)
            except RuleError as error:
                problems.extend(error.violations)
        if problems:
            raise RuleError(problems)
        found["consumer"] = found["consumer"] or consumers_of(found["arch"])[0]
        found["copy"] = found["copy"] or ("tma" if found["arch"].has("tma") else "cp.async")
        found["extent_names"] = found["extent_names"] or EXTENT_NAMES[found["direction"]]
        for name, value in found.items():
            object.__setattr__(self, name, value)
        problems.extend(_contradictions(self))
        object.__setattr__(self, "consumer", self.consumer if problems else _pattern(self, problems))
        if problems:
            raise PlanError(problems)

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
        mn, k = self.extent_names
        return oriented(self.major, mn, k)

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
        """From one row to the next in global memory: as given, else the whole matrix's (or the tile's) own rows."""
        if self.strides_bytes is not None:
            return self.strides_bytes[0]
        mn, k = self.global_shape or self.tile
        return (k if self.major == "K" else mn) * self.data_type.bits // 8

    @property
    def for_tensor_core(self) -> bool:
        """Whether the tile must lie in the atoms of a tensor core."""
        return self.direction == "load" and isinstance(self.consumer, str)


def _pattern(problem: Problem, problems: list[Violation]) -> str | Access:
    """A consumer that is no tensor core is an access pattern, given as such or by its text.

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
        problems.append(Violation(
            "plan-pattern", "error", "consumer", f"{consumer.name} for a {problem.direction}",
            f"{consumer.op.name} {does} shared memory; what this plan needs {wants} it", f'Use consumer="{fitting}", say.',
        ))  # fmt: skip
    return consumer


def _contradictions(problem: Problem) -> list[Violation]:
    arch, element, row = problem.arch, problem.data_type, problem.tensor_core
    missing = missing_consumer(row.name, arch) if problem.for_tensor_core and row is not None else None
    found = [] if missing is None else [Violation("plan-consumer", "error", "consumer", *missing)]
    stores, by_tma, have_tma = problem.direction == "store", problem.copy == "tma", ", ".join(architectures_with("tma"))
    columns, name, bits = problem.columns, problem.row_names[1], problem.columns * element.bits
    step = 128 // element.bits if 128 % element.bits == 0 else 64
    together = element.tma.bits // element.bits or 1
    in_bytes = " x ".join(str(-(-extent // together) if each == name else extent) for each, extent in _extents(problem))
    checks = (
        (stores and not arch.has("tma"), Violation(
            "plan-copy", "error", "direction", f"a store on {arch.name}",
            f"stores are planned through TMA, which exists on {have_tma}",
            "Use one of these, or let each thread write its results to global memory.",
        )),
        (not stores and by_tma and not arch.has("tma"), Violation(
            "plan-copy", "error", "copy", f"copy = tma on {arch.name}", f"TMA exists on {have_tma}", 'Use copy="cp.async".',
        )),
        (stores and not by_tma and arch.has("tma"), Violation(
            "plan-copy", "error", "copy", f"copy = {problem.copy} for a store", "planned stores go through TMA",
            'Use copy="tma".',
        )),
        (by_tma and together > 1, Violation(
            "plan-type", "error", "data_type", f"{element.name} by TMA",
            f"TMA moves {together} elements of {element.name} as one {element.tma.name}",
            f'Plan {in_bytes} of "{element.tma.name}": the same bytes and descriptors.',
        )),
        (bits % 128 > 0, Violation(
            "plan-row", "error", "tile", f"{name} = {columns} elements of {element.bits} bits = {bits / 8:g} contiguous bytes",
            "copies move multiples of 16 bytes", f"Use {name} = {-(-columns // step) * step}.",
        )),
    )  # fmt: skip
    return [*found, *(each for broken, each in checks if broken), *([] if by_tma else _beyond_threads(problem))]


def _extents(problem: Problem) -> Iterator[tuple[str, int]]:
    return zip(problem.extent_names, problem.tile, strict=True)


def _beyond_threads(problem: Problem) -> list[Violation]:
    """What TMA does on its way and threads that copy 16 bytes each cannot."""
    pitch, copy, element = problem.pitch_bytes, problem.copy, problem.data_type
    swizzle, tile_bytes = problem.swizzle or Swizzle.named("none"), problem.rows * problem.row_bytes
    torn = swizzle.piece_bytes < CHUNK_BYTES
    checks = (
        (pitch % CHUNK_BYTES > 0, Violation(
            "plan-pitch", "error", "global_shape" if problem.strides_bytes is None else "strides_bytes[0]",
            f"rows {pitch} bytes apart", f"a thread of {copy} copies 16 aligned bytes",
            f"Pad the rows to {-(-pitch // CHUNK_BYTES) * CHUNK_BYTES} bytes.",
        )),
        (element.smem_bits != element.bits, Violation(
            "plan-type", "error", "data_type", f"{element.name} by {copy}",
            f"its values are {element.bits} bits in global memory and {element.smem_bits} in shared memory",
            'Only TMA spreads them out: use copy="tma".',
        )),
        (torn, Violation(
            "plan-swizzle", "error", "swizzle", f"swizzle {swizzle.name} by {copy}",
            f"a thread copies 16 bytes, and the mode moves pieces of {swizzle.piece_bytes}", "Use another swizzle, or TMA.",
        )),
        (not torn and swizzle.bits > 0 and tile_bytes % swizzle.block_bytes > 0, Violation(
            "plan-swizzle", "error", "swizzle", f"swizzle {swizzle.name} on a tile of {tile_bytes} bytes",
            f"it moves pieces within blocks of {swizzle.block_bytes} bytes, and they would leave the tile",
            "Use a larger tile, or a smaller swizzle.",
        )),
    )  # fmt: skip
    return [each for broken, each in checks if broken]


def _one_of(argument: str, known: tuple[str, ...]) -> Any:
    def read(given: Any) -> Any:
        if isinstance(given, str) and given in known:
            return given
        raise RuleError([unknown_name(argument, argument, given, known)])

    return read


def _extent_pair(argument: str) -> Any:
    def read(given: Any) -> tuple[int, int]:
        try:
            pair = tile_shape(given)
        except RuleError as error:
            raise RuleError(replace(each, argument=argument) for each in error.violations) from None
        if max(pair) > LARGEST_EXTENT and argument == "tile":
            raise RuleError([Violation(
                "plan-tile", "error", argument, f"a tile of {pair[0]} x {pair[1]}", f"at most {LARGEST_EXTENT} in each dimension",
                "Plan the tile of one block, not the matrix; global_shape takes the matrix.",
            )])  # fmt: skip
        return pair

    return read


def _stages(given: Any) -> int:
    stages = integer("stages", given)
    if not 1 <= stages <= 1024:
        raise RuleError([Violation("plan-stages", "error", "stages", f"stages = {stages}", "1 to 1024", "Use 2 to 8.")])
    return stages


def pitch_given(given: Any) -> tuple[int, ...]:
    """The one stride of a matrix, as `strides_bytes` has it."""
    strides = integers("strides_bytes", given)
    if len(strides) != 1 or strides[0] < 0:
        raise RuleError([Violation(
            "plan-strides", "error", "strides_bytes", printed(given), "a matrix has one stride: bytes from row to row",
            "Give (pitch_bytes,).",
        )])  # fmt: skip
    return strides


def _consumer(given: Any) -> Any:
    if isinstance(given, str | Access):
        return given
    raise RuleError([unknown_name("consumer", "consumer", given, CONSUMER)])


def _flag(given: Any) -> bool:
    if isinstance(given, bool):
        return given
    raise RuleError([Violation("argument-type", "error", "fold", printed(given), "True or False", "Use fold=True.")])


def _names(given: Any) -> tuple[str, str]:
    if isinstance(given, list | tuple) and len(given) == 2 and all(isinstance(name, str) for name in given):
        return given[0], given[1]
    raise broken("argument-type", "extent_names", printed(given), "two names", 'Give ("mn", "k").')


matrix_shape = _extent_pair("global_shape")
_OPTIONAL = frozenset({
    "consumer", "swizzle", "atom_order", "operand", "copy", "global_shape", "strides_bytes", "extent_names",
})  # fmt: skip
_READERS: dict[str, Any] = {
    "tile": _extent_pair("tile"),
    "data_type": DataType.named,
    "major": major_named,
    "consumer": _consumer,
    "swizzle": Swizzle.named,
    "atom_order": _one_of("atom_order", ATOM_ORDERS),
    "operand": _one_of("operand", OPERANDS),
    "stages": _stages,
    "copy": _one_of("copy", COPIES),
    "direction": _one_of("direction", DIRECTIONS),
    "traffic": _one_of("traffic", TRAFFICS),
    "fold": _flag,
    "global_shape": matrix_shape,
    "strides_bytes": pitch_given,
    "extent_names": _names,
}
