"""A kernel as data: roles, tiles, loops and steps, before anything is placed.

    tiles   K   176 x 128 bfloat16, shared, 2 stages     S   64 x 176 float32, registers
    steps   producer  load K                  in loop kv
            consumer  wgmma S = Q K           in loop kv

`kernel_file` reads it from TOML or plain data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tilescope.arithmetic import ceil_div
from tilescope.data_type import DataType
from tilescope.layout import Major
from tilescope.sync.thread_limits import WARP_THREADS
from tilescope.value import Value, row_field

Memory = Literal["shared", "tensor", "registers"]
Program = Literal["attention"]
Multicast = Literal["first", "slices"]
Operation = Literal["load", "store", "wgmma", "tcgen05.mma", "threads"]
MEMORIES: tuple[Memory, ...] = ("shared", "tensor", "registers")
OPERATIONS: tuple[Operation, ...] = ("load", "store", "wgmma", "tcgen05.mma", "threads")
MULTIPLICATIONS: tuple[Operation, ...] = ("wgmma", "tcgen05.mma")
ASYNC_PROXY: tuple[Operation, ...] = ("load", "store", "wgmma", "tcgen05.mma")  # that reach shared memory past threads


@dataclass(frozen=True, slots=True)
class KernelRole(Value):
    """Warps that do the same: `instances` groups of `warps` warps, with `registers` registers per thread.

    `other_registers` are the registers that a thread needs in addition to its tiles.
    """

    name: str
    warps: int  # of one instance
    instances: int = 1
    registers: int | None = None  # for setmaxnreg; None: as many as at entry
    other_registers: int = 0  # that a thread needs besides its tiles
    leader: bool = False  # only in the first block of the cluster, for all blocks

    @property
    def threads(self) -> int:
        """Threads of one instance."""
        return self.warps * WARP_THREADS

    @property
    def all_warps(self) -> int:
        """Warps of all instances."""
        return self.warps * self.instances


@dataclass(frozen=True, slots=True)
class TensorOfTile(Value):
    """The tensor in global memory that a tile is copied from or to: its shape, and the two dimensions of the tile.

    With a filter it is the image of a convolution: rows of the tile are pixels, columns are channels, and TMA walks over the
    pixels (im2col).
    """

    shape: tuple[int, ...]  # outermost first; the last dimension is contiguous
    rows: int  # the dimension that the tile's rows run along; its columns run along the last
    filter: tuple[int, ...] = ()  # extents of a convolution's filter; empty: the tile is a box
    padding: tuple[int, ...] = ()  # of the image, on each side
    stride: tuple[int, ...] = ()  # from one place of the filter to the next
    dilation: tuple[int, ...] = ()  # from one tap of the filter to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTile(Value):
    """A matrix of a kernel: rows of contiguous columns, the memory that holds it, and its stages."""

    name: str
    shape: tuple[int, int]
    data_type: DataType = row_field(DataType.named)
    memory: Memory = "shared"  # shared, tensor or registers
    major: Major = "K"  # which dimension of a product's operand is contiguous
    least_stages: int = 1  # the fewest that it may have
    most_stages: int = 1  # the most that it may have
    overlay: tuple[str, ...] = ()  # tiles that it overlaps; "*": any, if there is no room otherwise
    share_lanes: bool = True  # may an accumulator of 64 rows have the other half of another one's lanes
    per_instance: bool = False  # every instance of the role that writes it has one
    exchanged: bool = False  # the instances of that role read those of all
    multicast: Multicast | None = None  # which block loads it for all of the cluster: the first, or each its slice
    ring: str = ""  # tiles of one ring alternate in its slots
    swizzle: str | None = None
    tensor: TensorOfTile | None = None  # what it is a tile of; null: only the tile is known

    @property
    def elements(self) -> int:
        """Elements of one stage."""
        return self.shape[0] * self.shape[1]

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage, packed."""
        return ceil_div(self.elements * self.data_type.smem_bits, 8)

    def overlays(self, other: KernelTile, *, if_needed: bool) -> bool:
        """Whether one of the two names the other as its overlay; "*" names any tile, if needed."""
        if if_needed and "*" in (*self.overlay, *other.overlay):
            return True
        return other.name in self.overlay or self.name in other.overlay


@dataclass(frozen=True, slots=True)
class KernelLoop(Value):
    """A loop of steps; `inside` is the loop around it, `count` the rounds of which the pipeline is proven."""

    name: str
    count: int
    inside: str = ""  # the loop around it


@dataclass(frozen=True, slots=True)
class KernelStep(Value):
    """A step of a role: the tiles that it reads, including a and b of a product, and those that it writes."""

    role: str
    operation: Operation
    reads: tuple[str, ...] = ()  # tiles, in addition to a and b
    writes: tuple[str, ...] = ()  # tiles
    a: str = ""
    b: str = ""
    loop: str = ""  # the innermost one around it; empty: none

    @property
    def inputs(self) -> tuple[str, ...]:
        """All tiles that it reads, operands first."""
        return tuple(dict.fromkeys(name for name in (self.a, self.b, *self.reads) if name))

    @property
    def tiles(self) -> tuple[str, ...]:
        """All tiles that it reads or writes."""
        return tuple(dict.fromkeys((*self.inputs, *self.writes)))

    @property
    def title(self) -> str:
        """The step in a few words: "wgmma S = Q K"."""
        written = ", ".join(self.writes)
        read = " ".join(self.inputs) if self.operation in MULTIPLICATIONS else ", ".join(self.inputs)
        if written and read:
            return f"{self.operation} {written} = {read}"
        return f"{self.operation} {written or read}"


class _Index:
    """The rows of a kernel by name, and the places of the steps that write and read each tile."""

    __slots__ = ("loops", "reads", "roles", "tiles", "writes")

    def __init__(self, kernel: KernelParts) -> None:
        self.roles = {role.name: role for role in kernel.roles}
        self.tiles = {tile.name: tile for tile in kernel.tiles}
        self.loops = {loop.name: loop for loop in kernel.loops}
        self.writes: dict[str, list[int]] = {}
        self.reads: dict[str, list[int]] = {}
        for place, step in enumerate(kernel.steps):
            for accesses, names in ((self.writes, set(step.writes)), (self.reads, step.inputs)):
                for name in names:
                    accesses.setdefault(name, []).append(place)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelParts:
    """The parts of a kernel: roles, tiles, loops, and all steps in the order in which data passes through them."""

    name: str
    arch: str | None  # None: the caller's
    sizes: Mapping[str, int]  # numbers by name, of which shapes and counts are made
    roles: tuple[KernelRole, ...]
    tiles: tuple[KernelTile, ...]
    loops: tuple[KernelLoop, ...]  # those around steps
    steps: tuple[KernelStep, ...]
    blocks_per_sm: int = 1
    cluster: int = 1
    program: Program | None = None  # that `emit` writes whole, without gaps
    _index: _Index = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", _Index(self))

    def tile(self, name: str) -> KernelTile:
        """The tile of this name."""
        return self._index.tiles[name]

    def role(self, name: str) -> KernelRole:
        """The role of this name."""
        return self._index.roles[name]

    def loop(self, name: str) -> KernelLoop:
        """The loop of this name."""
        return self._index.loops[name]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return sum(role.all_warps for role in self.roles) * WARP_THREADS

    def in_memory(self, memory: Memory) -> tuple[KernelTile, ...]:
        """The tiles of one memory."""
        return tuple(tile for tile in self.tiles if tile.memory == memory)

    def path(self, loop: str) -> tuple[str, ...]:
        """The loops around a step of `loop`, outermost first, itself included."""
        names: list[str] = []
        while loop:
            names.insert(0, loop)
            loop = self.loop(loop).inside
        return tuple(names)

    def writes_of(self, tile: str) -> Iterator[tuple[int, KernelStep]]:
        """The steps that write a tile, with their places."""
        return ((place, self.steps[place]) for place in self._index.writes.get(tile, ()))

    def reads_of(self, tile: str) -> Iterator[tuple[int, KernelStep]]:
        """The steps that read a tile, with their places."""
        return ((place, self.steps[place]) for place in self._index.reads.get(tile, ()))

    def copies_of(self, tile: KernelTile) -> int:
        """The copies of a tile in addition to its stages: one for each instance of the role that writes it."""
        if not tile.per_instance:
            return 1
        return next((self.role(step.role).instances for _, step in self.writes_of(tile.name)), 1)
