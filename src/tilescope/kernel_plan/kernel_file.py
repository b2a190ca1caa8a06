"""Reads a kernel from TOML, JSON or plain data; every mistake is named at once.

    sizes = {M = 128, N = 128, D = 64}

    [roles]
    producer = {warps = 1}
    consumer = {warps = 4, instances = 2}

    [tiles]
    K = {shape = ["N", "D"], data_type = "bf16", stages = [1, 8]}

    [loops]
    kv = {}

    [[steps]]
    role = "producer"
    operation = "load"
    writes = ["K"]
    loop = "kv"

A number may be an expression of the names in `sizes`: shape = ["2 * M", "D"].
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

from tilescope.arch import ARCH
from tilescope.data_type import DataType
from tilescope.errors import PlainData, Violation, argument_range, argument_type, raise_all, unknown_name
from tilescope.kernel_plan.kernel_description import (
    MEMORIES,
    MULTIPLICATIONS,
    OPERATIONS,
    KernelLoop,
    KernelRole,
    KernelStep,
    KernelTile,
    Memory,
    TensorOfTile,
)
from tilescope.kernel_plan.kernel_rules import KERNEL_FILE, KERNEL_STEP
from tilescope.layout import Major
from tilescope.pipeline.expression import Expression
from tilescope.pipeline.parts import MAX_STAGES
from tilescope.reading import attempted, entries, flag, integer, known_name, read_table
from tilescope.swizzle import SWIZZLE
from tilescope.sync.thread_limits import (
    BLOCK_THREADS,
    LEAST_REGISTERS,
    MAX_BLOCKS,
    MOST_REGISTERS,
    REGISTER_STEP,
    WARP_THREADS,
)
from tilescope.value import Value, own_data

Program = Literal["attention"]
_PROGRAMS: tuple[Program, ...] = get_args(Program)
_TOP = (
    "kind",
    "name",
    "arch",
    "sizes",
    "roles",
    "tiles",
    "loops",
    "steps",
    "blocks_per_sm",
    "cluster",
    "program",
    "source",
)
_ROLE = ("warps", "instances", "registers", "other_registers")
_TILE = (
    "shape",
    "data_type",
    "memory",
    "major",
    "stages",
    "overlay",
    "share_lanes",
    "per_instance",
    "ring",
    "swizzle",
    "tensor",
)
_STEP = ("role", "operation", "reads", "writes", "a", "b", "loop")
_MAJORS: tuple[Major, ...] = ("K", "MN")
MAX_ROLES = 32
MAX_TILES = 64
MAX_STEPS = 256
_MAX_EXTENT = 1 << 16
_MAX_ROUNDS = 64
_DEFAULT_ROUNDS = 3
_LARGEST_SIZE = 1 << 40
_DIMENSIONS = (2, 5)  # of a tensor map, least and most
Read = TypeVar("Read")
Table = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDescription(Value):
    """A kernel: roles, tiles, loops, and the steps of all roles in the order in which data passes through them.

    >>> kernel = read_kernel({
    ...     "sizes": {"M": 128},
    ...     "roles": {"producer": {"warps": 1}, "consumer": {"warps": 4}},
    ...     "tiles": {"A": {"shape": ["M", 64], "data_type": "bf16", "stages": 2}},
    ...     "loops": {"k": {}},
    ...     "steps": [{"role": "producer", "operation": "load", "writes": ["A"], "loop": "k"},
    ...               {"role": "consumer", "operation": "threads", "reads": ["A"], "loop": "k"}],
    ... })
    >>> kernel.tile("A").shape, kernel.tile("A").stage_bytes, kernel.threads
    ((128, 64), 16384, 160)
    """

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
    written: PlainData = field(default_factory=dict, repr=False, compare=False)  # as the file has it

    def to_dict(self) -> PlainData:
        """The kernel as a file describes it."""
        return {"kind": self.kind, **self.written}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> KernelDescription:
        """The kernel that plain data describes."""
        return read_kernel(data)

    def tile(self, name: str) -> KernelTile:
        """The tile of this name."""
        return next(tile for tile in self.tiles if tile.name == name)

    def role(self, name: str) -> KernelRole:
        """The role of this name."""
        return next(role for role in self.roles if role.name == name)

    def loop(self, name: str) -> KernelLoop:
        """The loop of this name."""
        return next(loop for loop in self.loops if loop.name == name)

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
        return ((place, step) for place, step in enumerate(self.steps) if tile in step.writes)

    def reads_of(self, tile: str) -> Iterator[tuple[int, KernelStep]]:
        """The steps that read a tile, with their places."""
        return ((place, step) for place, step in enumerate(self.steps) if tile in step.inputs)

    def copies_of(self, tile: KernelTile) -> int:
        """How many of a tile there are beside its stages: one for each instance of the role that writes it."""
        if not tile.per_instance:
            return 1
        return next((self.role(step.role).instances for _, step in self.writes_of(tile.name)), 1)


def kernel_data(text: str | bytes, name: str) -> dict[str, object]:
    """The plain data of a TOML or JSON text; `name` is the file's.

    >>> kernel_data('name = "mine"', "mine.toml")
    {'name': 'mine'}
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        data = json.loads(decoded) if decoded.lstrip().startswith("{") else tomllib.loads(decoded)
    except (ValueError, RecursionError) as error:
        raise KERNEL_FILE.error(name=name, error=str(error)) from None
    if not isinstance(data, dict):
        raise KERNEL_FILE.error(name=name, error="it holds no table")
    return data


def read_kernel(data: object, sizes: Mapping[str, int] | None = None) -> KernelDescription:
    """The kernel that plain data describes, with some of its `sizes` replaced.

    >>> data = {"sizes": {"M": 64}, "roles": {"all": {"warps": 4}}, "steps": [],
    ...         "tiles": {"a": {"shape": ["M", 64], "data_type": "bf16"}}}
    >>> read_kernel(data, {"M": 128}).tile("a").shape
    (128, 64)
    """
    return _KernelReader().read(data, {} if sizes is None else sizes)


class _KernelReader:
    """Reads the tables of a kernel, and collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[Violation] = []
        self.sizes: dict[str, int] = {}

    def read(self, data: object, replaced: Mapping[str, int]) -> KernelDescription:
        """The kernel; a RuleError with every mistake."""
        top = dict(self._table("kernel", own_data(data) if isinstance(data, Mapping) else data, _TOP))
        raise_all(self.problems)
        self.sizes = self._read_sizes(top.get("sizes", {}), replaced)
        loops = tuple(self._loop(name, row) for name, row in self._rows("loops", top, MAX_STEPS))
        roles = tuple(self._role(name, row) for name, row in self._rows("roles", top, MAX_ROLES))
        tiles = tuple(self._tile(name, row) for name, row in self._rows("tiles", top, MAX_TILES))
        steps = tuple(self._step(place, row) for place, row in enumerate(self._list("steps", top.get("steps", ()))))
        written_arch = top.get("arch")
        arch = None if written_arch is None else self._try("sm_90", known_name, "arch", written_arch, tuple(ARCH))
        kernel = KernelDescription(
            name=str(top.get("name", "kernel")),
            arch=arch,
            sizes=self.sizes,
            roles=roles,
            tiles=tiles,
            loops=loops,
            steps=steps,
            blocks_per_sm=self._number("blocks_per_sm", top.get("blocks_per_sm", 1), 1, 32),
            cluster=self._number("cluster", top.get("cluster", 1), 1, MAX_BLOCKS),
            program=self._read_program(top.get("program")),
            written={**{name: value for name, value in top.items() if name != "kind"}, "sizes": self.sizes},
        )
        if not roles:
            self.problems.append(argument_range("roles", {}, "a kernel has at least one role", "Add [roles]."))
        raise_all(self.problems)
        self._check_threads(kernel)
        self._check_names(kernel)
        raise_all(self.problems)
        self._check_loops(kernel)
        self._check_steps(kernel)
        raise_all(self.problems)
        return kernel

    def _read_program(self, written: object) -> Program | None:
        return None if written is None else self._try(None, known_name, "program", written, _PROGRAMS)

    def _read_sizes(self, written: object, replaced: Mapping[str, int]) -> dict[str, int]:
        table = dict(self._table("sizes", written))
        for name, size in self._table("sizes", replaced).items():
            if name in table:
                table[name] = size
            else:
                self.problems.append(unknown_name("size", "sizes", name, table))
        known: dict[str, int] = {}
        for name, value in table.items():
            if not name.isidentifier():
                self.problems.append(argument_range("sizes", name, "names of letters, digits and _", "Use M."))
            read = self._try(None, Expression.read, f"sizes.{name}", value, known)
            number = 1 if read is None else self._try(1, read.value, known)
            known[name] = self._try(1, integer, f"sizes.{name}", number, 0, _LARGEST_SIZE)
        return known

    def _loop(self, name: str, written: object) -> KernelLoop:
        row = self._table(f"loops.{name}", written, ("count", "inside"))
        count = self._number(f"loops.{name}.count", row.get("count", _DEFAULT_ROUNDS), 1, _MAX_ROUNDS)
        return KernelLoop(name, count, str(row.get("inside", "")))

    def _role(self, name: str, written: object) -> KernelRole:
        at = f"roles.{name}"
        row = self._table(at, written, _ROLE)
        most_warps = BLOCK_THREADS // WARP_THREADS
        written_registers = row.get("registers")
        registers: int | None = None
        if written_registers is not None:
            registers = self._number(f"{at}.registers", written_registers, LEAST_REGISTERS, MOST_REGISTERS)
            if registers % REGISTER_STEP:
                below = registers // REGISTER_STEP * REGISTER_STEP
                limit = f"setmaxnreg takes multiples of {REGISTER_STEP}"
                self.problems.append(argument_range(f"{at}.registers", registers, limit, f"Use {below}."))
        return KernelRole(
            name,
            warps=self._number(f"{at}.warps", row.get("warps"), 1, most_warps),
            instances=self._number(f"{at}.instances", row.get("instances", 1), 1, most_warps),
            registers=registers,
            other_registers=self._number(f"{at}.other_registers", row.get("other_registers", 0), 0, 1024),
        )

    def _tile(self, name: str, written: object) -> KernelTile:
        at = f"tiles.{name}"
        row = self._table(at, written, _TILE)
        if not name.isidentifier():
            self.problems.append(argument_range(at, name, "a name of letters, digits and _", "Use K, for example."))
        least, most = self._stages(at, row.get("stages", 1))
        swizzle = row.get("swizzle")
        return KernelTile(
            name=name,
            shape=self._shape(at, row.get("shape")),
            data_type=self._try(DataType.named("uint8"), DataType.named, row.get("data_type")),
            memory=self._try(MEMORIES[0], known_name, f"{at}.memory", row.get("memory", MEMORIES[0]), MEMORIES),
            major=self._try(_MAJORS[0], known_name, f"{at}.major", row.get("major", _MAJORS[0]), _MAJORS),
            least_stages=least,
            most_stages=most,
            overlay=self._overlay(at, row.get("overlay", False)),
            share_lanes=self._try(True, flag, f"{at}.share_lanes", row.get("share_lanes", True)),
            per_instance=self._try(False, flag, f"{at}.per_instance", row.get("per_instance", False)),
            ring=str(row.get("ring", "")),
            swizzle=None
            if swizzle is None
            else self._try("none", known_name, f"{at}.swizzle", swizzle, tuple(SWIZZLE)),
            tensor=self._tensor(at, row.get("tensor")),
        )

    def _shape(self, at: str, written: object) -> tuple[int, int]:
        listed = entries(written, 3)
        if listed is None or len(listed) not in (1, 2):
            fix = "Use [128, 64], for example."
            self.problems.append(argument_type(f"{at}.shape", written, "rows and columns", fix))
            return 1, 1
        extents = [self._number(f"{at}.shape[{place}]", each, 1, _MAX_EXTENT) for place, each in enumerate(listed)]
        return (1, extents[0]) if len(extents) == 1 else (extents[0], extents[1])

    def _stages(self, at: str, written: object) -> tuple[int, int]:
        listed = entries(written, 3)
        if listed is None:
            stages = self._number(f"{at}.stages", written, 1, MAX_STAGES)
            return stages, stages
        if len(listed) != 2:
            fix = "Use 2, or [1, 8] for a range."
            self.problems.append(argument_type(f"{at}.stages", written, "a number, or the least and the most", fix))
            return 1, 1
        least = self._number(f"{at}.stages[0]", listed[0], 1, MAX_STAGES)
        most = self._number(f"{at}.stages[1]", listed[1], least, MAX_STAGES)
        return least, most

    def _overlay(self, at: str, written: object) -> tuple[str, ...]:
        if isinstance(written, bool):
            return ("*",) if written else ()
        return tuple(str(name) for name in self._list(f"{at}.overlay", written))

    def _tensor(self, at: str, written: object) -> TensorOfTile | None:
        if written is None:
            return None
        row = self._table(f"{at}.tensor", written, ("shape", "rows"))
        least, most = _DIMENSIONS
        listed = self._list(f"{at}.tensor.shape", row.get("shape", ()))
        if not least <= len(listed) <= most:
            limit = f"a tensor map has {least} to {most} dimensions here"
            self.problems.append(argument_range(f"{at}.tensor.shape", listed, limit, "Use [4, 4096, 16, 128]."))
            return None
        shape = tuple(
            self._number(f"{at}.tensor.shape[{place}]", each, 1, _LARGEST_SIZE) for place, each in enumerate(listed)
        )
        rows = self._number(f"{at}.tensor.rows", row.get("rows", len(shape) - 2), 0, len(shape) - 2)
        return TensorOfTile(shape, rows)

    def _step(self, place: int, written: object) -> KernelStep:
        at = f"steps[{place}]"
        row = self._table(at, written, _STEP)
        return KernelStep(
            role=str(row.get("role", "")),
            operation=self._try(OPERATIONS[-1], known_name, f"{at}.operation", row.get("operation"), OPERATIONS),
            reads=tuple(str(name) for name in self._list(f"{at}.reads", row.get("reads", ()))),
            writes=tuple(str(name) for name in self._list(f"{at}.writes", row.get("writes", ()))),
            a=str(row.get("a", "")),
            b=str(row.get("b", "")),
            loop=str(row.get("loop", "")),
        )

    def _check_threads(self, kernel: KernelDescription) -> None:
        if kernel.threads > BLOCK_THREADS:
            limit = f"a block has at most {BLOCK_THREADS} threads"
            self.problems.append(argument_range("roles", kernel.threads, limit, "Use fewer warps or instances."))

    def _check_names(self, kernel: KernelDescription) -> None:
        """Every name that a step, a loop or an overlay uses is one of the kernel's."""
        tiles = [tile.name for tile in kernel.tiles]
        loops = [loop.name for loop in kernel.loops]
        roles = [role.name for role in kernel.roles]
        for place, step in enumerate(kernel.steps):
            if step.role not in roles:
                self.problems.append(unknown_name("role", f"steps[{place}].role", step.role, roles))
            if step.loop and step.loop not in loops:
                self.problems.append(unknown_name("loop", f"steps[{place}].loop", step.loop, loops))
            for name in step.tiles:
                if name not in tiles:
                    self.problems.append(unknown_name("tile", f"steps[{place}]", name, tiles))
        for tile in kernel.tiles:
            for name in tile.overlay:
                if name not in ("*", *tiles):
                    self.problems.append(unknown_name("tile", f"tiles.{tile.name}.overlay", name, tiles))
        self._check_nesting(kernel)

    def _check_nesting(self, kernel: KernelDescription) -> None:
        """Every loop is inside a known one, and none inside itself."""
        loops = [loop.name for loop in kernel.loops]
        for loop in kernel.loops:
            around = loop.inside
            seen = {loop.name}
            while around:
                if around not in loops:
                    self.problems.append(unknown_name("loop", f"loops.{loop.name}.inside", around, loops))
                    break
                if around in seen:
                    limit = "a loop is not inside itself"
                    self.problems.append(argument_range(f"loops.{loop.name}.inside", around, limit, "Leave it out."))
                    break
                seen.add(around)
                around = kernel.loop(around).inside

    def _check_loops(self, kernel: KernelDescription) -> None:
        """The steps of a loop follow one another."""
        closed: set[str] = set()
        running: tuple[str, ...] = ()
        for place, step in enumerate(kernel.steps):
            path = kernel.path(step.loop)
            again = next((name for name in path if name in closed), None)
            if again is not None:
                self._refuse_step(
                    place,
                    found=f"loop {again} goes on after a step outside it",
                    limit="the steps of a loop follow one another",
                    fix="Move the step, or give the second part a loop of its own.",
                )
            closed |= set(running) - set(path)
            running = path

    def _check_steps(self, kernel: KernelDescription) -> None:
        """Every operation gets tiles of a memory that it reaches."""
        for place, step in enumerate(kernel.steps):
            if step.operation in MULTIPLICATIONS and not (step.a and step.b):
                self._refuse_step(
                    place,
                    found=f"{step.operation} without a or b",
                    limit="a product has both operands",
                    fix='Add a = "Q" and b = "K", for example.',
                )
            for name in step.writes:
                self._check_write(kernel, place, step, kernel.tile(name))
            for name in step.inputs:
                self._check_read(kernel, place, step, kernel.tile(name))
        for tile in kernel.tiles:
            readers = list(kernel.reads_of(tile.name))
            writers = list(kernel.writes_of(tile.name))
            if readers and not writers:
                self._refuse_step(
                    readers[0][0],
                    found=f"it reads {tile.name}, which no step writes",
                    limit="a tile is written before it is read",
                    fix="Add the step that writes it.",
                )
            if tile.memory == "registers" and len({step.role for _, step in (*readers, *writers)}) > 1:
                self._refuse_step(
                    (readers or writers)[0][0],
                    found=f"{tile.name} is used by two roles",
                    limit="registers belong to one role",
                    fix="Pass it through shared or tensor memory.",
                )

    def _check_write(self, kernel: KernelDescription, place: int, step: KernelStep, tile: KernelTile) -> None:
        reached = {
            "load": ("shared",),
            "store": (),
            "wgmma": ("registers",),
            "tcgen05.mma": ("tensor",),
            "threads": MEMORIES,
        }[step.operation]
        if tile.memory not in reached:
            self._refuse_step(
                place,
                found=f"{step.operation} writes {tile.name}, whose memory is {tile.memory}",
                limit=f"{step.operation} writes {' or '.join(reached) or 'global memory'}",
                fix=f"Put {tile.name} there, or use another operation.",
            )
        shared_by_all = tile.memory != "registers" and not tile.per_instance
        if shared_by_all and kernel.role(step.role).instances > 1:
            self._refuse_step(
                place,
                found=f"{kernel.role(step.role).instances} instances of {step.role} write {tile.name}",
                limit="every instance writes a tile of its own",
                fix="Use per_instance = true with the shape of one instance.",
            )

    def _check_read(self, kernel: KernelDescription, place: int, step: KernelStep, tile: KernelTile) -> None:
        is_a = tile.name == step.a
        reached: tuple[str, ...] = MEMORIES
        if step.operation == "store":
            reached = ("shared",)
        elif step.operation in MULTIPLICATIONS:
            first = "registers" if step.operation == "wgmma" else "tensor"
            reached = ("shared", first) if is_a or tile.name in step.reads else ("shared",)
        elif step.operation == "load":
            reached = ()
        if tile.memory not in reached:
            self._refuse_step(
                place,
                found=f"{step.operation} reads {tile.name}, whose memory is {tile.memory}",
                limit=f"{step.operation} reads {' or '.join(reached) or 'global memory'} there",
                fix=f"Put {tile.name} there, or use another operation.",
            )

    def _refuse_step(self, place: int, *, found: str, limit: str, fix: str) -> None:
        self.problems.append(KERNEL_STEP.violation(at=f"steps[{place}]", found=found, limit=limit, fix=fix))

    def _number(self, at: str, written: object, least: int, most: int) -> int:
        """An integer, or what an expression of the sizes gives."""
        if isinstance(written, str):
            expression = self._try(None, Expression.read, at, written, self.sizes)
            written = least if expression is None else self._try(least, expression.value, self.sizes)
        return self._try(least, integer, at, written, least, most)

    def _rows(self, kind: str, top: Table, most: int) -> list[tuple[str, object]]:
        rows = list(self._table(kind, top.get(kind, {})).items())
        if len(rows) > most:
            self.problems.append(argument_range(kind, len(rows), f"at most {most}", "Describe a smaller kernel."))
        return rows[:most]

    def _table(self, at: str, written: object, known: Collection[str] = ()) -> Table:
        return read_table(self.problems, at, written, known, "Use {warps = 4}, for example.")

    def _list(self, at: str, written: object) -> list[object]:
        listed = [written] if isinstance(written, str) else entries(written, MAX_STEPS)
        if listed is None:
            self.problems.append(argument_type(at, written, "a list", 'Use ["K", "V"], for example.'))
            return []
        return listed

    def _try(self, otherwise: Read, reader: Callable[..., Read], *arguments: object) -> Read:
        return attempted(self.problems, otherwise, reader, *arguments)
