"""What is asked of the planner: a tile, who reads it, how it gets there.

tile (mn, k)     128 x 64 bf16, K-major                     MN-major
                 ┌──── k ────┐                              ┌──── mn ────┐
              mn │ contiguous →                           k │ contiguous →
                 └───────────┘                              └────────────┘
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from tilescope.arch import Arch, ArchName, architectures_with
from tilescope.data_type import DataType
from tilescope.errors import PlanError, RuleError, Violation, printed, unknown_name
from tilescope.layout import ATOM_ORDERS, AtomOrder, Major, major_named, oriented
from tilescope.mma.canonical import tile_shape
from tilescope.smem.access import Access
from tilescope.swizzle import CHUNK_BYTES, Swizzle, SwizzleName
from tilescope.tensor_map.reading import integer, integers
from tilescope.value import Value, row_field

CopyName = Literal["tma", "cp.async", "ld.global"]
Direction = Literal["load", "store"]
Traffic = Literal["dense", "sparse"]
Operand = Literal["A", "B"]
CONSUMERS = ("wgmma", "tcgen05", "ldmatrix")
COPIES: tuple[CopyName, ...] = ("tma", "cp.async", "ld.global")
DIRECTIONS: tuple[Direction, ...] = ("load", "store")
TRAFFICS: tuple[Traffic, ...] = ("dense", "sparse")
OPERANDS: tuple[Operand, ...] = ("A", "B")
LARGEST_EXTENT = 1 << 20


@dataclass(frozen=True, slots=True, init=False, kw_only=True)
class Problem(Value):
    """A tile of (mn, k) elements, its type and majorness, its consumer, and the freedom that is left."""

    tile: tuple[int, int]
    data_type: DataType = row_field(DataType.named)
    major: Major = "K"
    consumer: str | Access = "wgmma"
    arch: Arch = row_field(Arch.named, default=None)
    swizzle: Swizzle | None = row_field(Swizzle.named, default=None)
    atom_order: AtomOrder | None = None
    operand: Operand | None = None
    stages: int = 1
    copy: CopyName = "tma"
    direction: Direction = "load"
    traffic: Traffic = "dense"
    fold: bool = False
    global_shape: tuple[int, int] | None = None
    strides_bytes: tuple[int, ...] | None = None

    def __init__(
        self,
        tile: tuple[int, int],
        data_type: Any,
        *,
        major: Major = "K",
        consumer: str | Access = "wgmma",
        arch: ArchName | Arch = "sm_90",
        swizzle: SwizzleName | Swizzle | None = None,
        atom_order: AtomOrder | None = None,
        operand: Operand | None = None,
        stages: int = 1,
        copy: CopyName = "tma",
        direction: Direction = "load",
        traffic: Traffic = "dense",
        fold: bool = False,
        global_shape: tuple[int, int] | None = None,
        strides_bytes: tuple[int, ...] | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        problems: list[Violation] = []
        for name, read in _READERS.items():
            try:
                value = read(given[name])
            except RuleError as error:
                problems.extend(error.violations)
                value = None
            object.__setattr__(self, name, value)
        understood = not problems
        if understood:
            problems.extend(_contradictions(self))
            object.__setattr__(self, "consumer", self.consumer if problems else _pattern(self, problems))
        if problems:
            raise (PlanError if understood else RuleError)(problems)

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


def best_consumer(arch: Arch) -> str:
    """The architecture's own tensor-core instruction: wgmma, tcgen05, or mma fed by ldmatrix.

    >>> [best_consumer(Arch.named(name)) for name in ("sm_90", "sm_100", "sm_120")]
    ['wgmma', 'tcgen05', 'ldmatrix']
    """
    return next(name for name in CONSUMERS if arch.has(name))


def _pattern(problem: Problem, problems: list[Violation]) -> str | Access:
    """A consumer that is no tensor core is an access pattern, given as such or by its text.

    It reads a loaded tile, and writes one that is stored.
    """
    consumer = problem.consumer
    if isinstance(consumer, str):
        if consumer in CONSUMERS:
            return consumer
        try:
            consumer = Access.named(consumer, (problem.rows, problem.columns), problem.data_type.smem_bits)
        except RuleError as error:
            known = (*CONSUMERS, "ldmatrix.x4", "ld.b128 columns")
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
    problems = []
    arch, consumer = problem.arch, problem.consumer
    loads = problem.direction == "load"
    if loads and isinstance(consumer, str) and consumer in CONSUMERS and not arch.has(consumer):
        here = [name for name in CONSUMERS if arch.has(name)]
        nearest = here[0]
        problems.append(Violation(
            "plan-consumer", "error", "consumer", f"consumer = {consumer} on {arch.name}",
            f"{consumer} exists on {', '.join(architectures_with(consumer))}; {arch.name} has {', '.join(here)}",
            f'Use consumer="{nearest}", or arch="{architectures_with(consumer)[0]}".',
        ))  # fmt: skip
    if problem.direction == "store" and not arch.has("tma"):
        problems.append(Violation(
            "plan-copy", "error", "direction", f"a store on {arch.name}",
            f"stores are planned through TMA, which exists on {', '.join(architectures_with('tma'))}",
            "Use one of these, or let each thread write its results to global memory.",
        ))  # fmt: skip
    elif problem.copy == "tma" and not arch.has("tma"):
        problems.append(Violation(
            "plan-copy", "error", "copy", f"copy = tma on {arch.name}",
            f"TMA exists on {', '.join(architectures_with('tma'))}", 'Use copy="cp.async".',
        ))  # fmt: skip
    elif problem.direction == "store" and problem.copy != "tma":
        problems.append(Violation(
            "plan-copy", "error", "copy", f"copy = {problem.copy} for a store", "planned stores go through TMA",
            'Use copy="tma".',
        ))  # fmt: skip
    if problem.copy != "tma":
        problems += _beyond_threads(problem)
    elif problem.data_type.tma.bits != problem.data_type.bits:
        each = problem.data_type.tma.bits // problem.data_type.bits
        mn, k = problem.tile
        bytes_tile = (mn, -(-k // each)) if problem.major == "K" else (-(-mn // each), k)
        problems.append(Violation(
            "plan-type", "error", "data_type", f"{problem.data_type.name} by TMA",
            f"TMA moves {each} elements of {problem.data_type.name} as one {problem.data_type.tma.name}",
            f'Plan {bytes_tile[0]} x {bytes_tile[1]} of "{problem.data_type.tma.name}": the same bytes and descriptors.',
        ))  # fmt: skip
    bits = problem.columns * problem.data_type.bits
    if bits % 128:
        step = 128 // problem.data_type.bits if 128 % problem.data_type.bits == 0 else 64
        up = -(-problem.columns // step) * step
        name = "k" if problem.major == "K" else "mn"
        problems.append(Violation(
            "plan-row", "error", "tile",
            f"{name} = {problem.columns} elements of {problem.data_type.bits} bits = {bits / 8:g} contiguous bytes",
            "copies move multiples of 16 bytes", f"Use {name} = {up}.",
        ))  # fmt: skip
    return problems


def _beyond_threads(problem: Problem) -> list[Violation]:
    """What TMA does on its way and threads that copy 16 bytes each cannot."""
    problems = []
    if problem.pitch_bytes % CHUNK_BYTES:
        up = -(-problem.pitch_bytes // CHUNK_BYTES) * CHUNK_BYTES
        argument = "strides_bytes[0]" if problem.strides_bytes is not None else "global_shape"
        problems.append(Violation(
            "plan-pitch", "error", argument, f"rows {problem.pitch_bytes} bytes apart",
            f"a thread of {problem.copy} copies 16 aligned bytes", f"Pad the rows to {up} bytes.",
        ))  # fmt: skip
    if problem.data_type.smem_bits != problem.data_type.bits:
        problems.append(Violation(
            "plan-type", "error", "data_type", f"{problem.data_type.name} by {problem.copy}",
            f"its values are {problem.data_type.bits} bits in global memory and {problem.data_type.smem_bits} in shared memory",
            'Only TMA spreads them out: use copy="tma".',
        ))  # fmt: skip
    swizzle = problem.swizzle
    if swizzle is not None and swizzle.piece_bytes < CHUNK_BYTES:
        problems.append(Violation(
            "plan-swizzle", "error", "swizzle", f"swizzle {swizzle.name} by {problem.copy}",
            f"a thread copies 16 bytes, and the mode moves pieces of {swizzle.piece_bytes}",
            "Use another swizzle, or TMA.",
        ))  # fmt: skip
    elif swizzle is not None and problem.rows * problem.row_bytes % swizzle.block_bytes:
        problems.append(Violation(
            "plan-swizzle", "error", "swizzle", f"swizzle {swizzle.name} on a tile of {problem.rows * problem.row_bytes} bytes",
            f"it moves pieces within blocks of {swizzle.block_bytes} bytes, and they would leave the tile",
            "Use a larger tile, or a smaller swizzle.",
        ))  # fmt: skip
    return problems


def _one_of(argument: str, known: tuple[str, ...]) -> Any:
    def read(given: Any) -> Any:
        if isinstance(given, str) and given in known:
            return given
        raise RuleError([unknown_name(argument, argument, given, known)])

    return read


def _optional(read: Any) -> Any:
    return lambda given: None if given is None else read(given)


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
    raise RuleError([unknown_name("consumer", "consumer", given, CONSUMERS)])


def _flag(given: Any) -> bool:
    if isinstance(given, bool):
        return given
    raise RuleError([Violation("argument-type", "error", "fold", printed(given), "True or False", "Use fold=True.")])


_READERS: dict[str, Any] = {
    "tile": _extent_pair("tile"),
    "data_type": DataType.named,
    "major": major_named,
    "consumer": _consumer,
    "arch": Arch.named,
    "swizzle": _optional(Swizzle.named),
    "atom_order": _optional(_one_of("atom_order", ATOM_ORDERS)),
    "operand": _optional(_one_of("operand", OPERANDS)),
    "stages": _stages,
    "copy": _one_of("copy", COPIES),
    "direction": _one_of("direction", DIRECTIONS),
    "traffic": _one_of("traffic", TRAFFICS),
    "fold": _flag,
    "global_shape": _optional(_extent_pair("global_shape")),
    "strides_bytes": _optional(pitch_given),
}
