"""The tables of a kernel's file, read into rows; every mistake is collected.

    K = {shape = ["N", "D"], data_type = "bf16", stages = [1, 8]}    KernelTile("K", (176, 128), …)

A number may be an expression of the names in `sizes`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar, get_args

from tilescope.data_type import DataType
from tilescope.errors import Violation, argument_range, argument_type, unknown_name
from tilescope.kernel_plan.kernel_description import (
    MEMORIES,
    OPERATIONS,
    KernelLoop,
    KernelRole,
    KernelStep,
    KernelTile,
    Multicast,
    TensorOfTile,
)
from tilescope.layout import Major
from tilescope.pipeline.expression import Expression
from tilescope.pipeline.parts import MAX_STAGES
from tilescope.reading import entries, flag, integer, known_name, read_table, try_read
from tilescope.swizzle import SWIZZLE
from tilescope.sync.thread_limits import (
    BLOCK_THREADS,
    LEAST_REGISTERS,
    MOST_REGISTERS,
    REGISTER_STEP,
    WARP_THREADS,
)

_ROLE = ("warps", "instances", "registers", "other_registers", "leader")
_TILE = (
    "shape",
    "data_type",
    "memory",
    "major",
    "stages",
    "overlay",
    "share_lanes",
    "per_instance",
    "exchanged",
    "multicast",
    "ring",
    "swizzle",
    "tensor",
)
_CONVOLUTION = ("filter", "padding", "stride", "dilation")  # of a tensor that is an image
_STEP = ("role", "operation", "reads", "writes", "a", "b", "loop")
_MULTICASTS: tuple[Multicast, ...] = get_args(Multicast)
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
Name = TypeVar("Name", bound=str)
Table = Mapping[str, object]


class KernelTables:
    """Reads the tables of a kernel, and collects mistakes in `problems`."""

    def __init__(self) -> None:
        self.problems: list[Violation] = []
        self.sizes: dict[str, int] = {}

    def read_sizes(self, written: object, replaced: Mapping[str, int]) -> dict[str, int]:
        """The numbers by name, some of them replaced; each may use those before it."""
        table = dict(self.table("sizes", written))
        for name, size in self.table("sizes", replaced).items():
            if name in table:
                table[name] = size
            else:
                self.problems.append(unknown_name("size", "sizes", name, table))
        numbers: dict[str, int] = {}
        for name, value in table.items():
            if not name.isidentifier():
                self.problems.append(argument_range("sizes", name, "names of letters, digits and _", "Use M."))
            read = self.attempt(None, Expression.read, f"sizes.{name}", value, numbers)
            number = 1 if read is None else self.attempt(1, read.value, numbers)
            numbers[name] = self.attempt(1, integer, f"sizes.{name}", number, 0, _LARGEST_SIZE)
        return numbers

    def read_loop(self, name: str, written: object) -> KernelLoop:
        """A loop."""
        row = self.table(f"loops.{name}", written, ("count", "inside"))
        count = self.number(f"loops.{name}.count", row.get("count", _DEFAULT_ROUNDS), 1, _MAX_ROUNDS)
        return KernelLoop(name, count, str(row.get("inside", "")))

    def read_role(self, name: str, written: object) -> KernelRole:
        """A role."""
        at = f"roles.{name}"
        row = self.table(at, written, _ROLE)
        most_warps = BLOCK_THREADS // WARP_THREADS
        written_registers = row.get("registers")
        registers: int | None = None
        if written_registers is not None:
            registers = self.number(f"{at}.registers", written_registers, LEAST_REGISTERS, MOST_REGISTERS)
            if registers % REGISTER_STEP:
                below = registers // REGISTER_STEP * REGISTER_STEP
                limit = f"setmaxnreg takes multiples of {REGISTER_STEP}"
                self.problems.append(argument_range(f"{at}.registers", registers, limit, f"Use {below}."))
        return KernelRole(
            name,
            warps=self.number(f"{at}.warps", row.get("warps"), 1, most_warps),
            instances=self.number(f"{at}.instances", row.get("instances", 1), 1, most_warps),
            registers=registers,
            other_registers=self.number(f"{at}.other_registers", row.get("other_registers", 0), 0, 1024),
            leader=self.attempt(False, flag, f"{at}.leader", row.get("leader", False)),
        )

    def read_tile(self, name: str, written: object) -> KernelTile:
        """A tile."""
        at = f"tiles.{name}"
        row = self.table(at, written, _TILE)
        if not name.isidentifier():
            self.problems.append(argument_range(at, name, "a name of letters, digits and _", "Use K, for example."))
        least, most = self._read_stages(at, row.get("stages", 1))
        return KernelTile(
            name=name,
            shape=self._read_shape(at, row.get("shape")),
            data_type=self.attempt(DataType.named("uint8"), DataType.named, row.get("data_type")),
            memory=self.attempt(MEMORIES[0], known_name, f"{at}.memory", row.get("memory", MEMORIES[0]), MEMORIES),
            major=self.attempt(_MAJORS[0], known_name, f"{at}.major", row.get("major", _MAJORS[0]), _MAJORS),
            least_stages=least,
            most_stages=most,
            overlay=self._read_overlay(at, row.get("overlay", False)),
            share_lanes=self.attempt(True, flag, f"{at}.share_lanes", row.get("share_lanes", True)),
            per_instance=self.attempt(False, flag, f"{at}.per_instance", row.get("per_instance", False)),
            exchanged=self.attempt(False, flag, f"{at}.exchanged", row.get("exchanged", False)),
            multicast=self._optional_name(f"{at}.multicast", row.get("multicast"), _MULTICASTS),
            ring=str(row.get("ring", "")),
            swizzle=self._optional_name(f"{at}.swizzle", row.get("swizzle"), tuple(SWIZZLE)),
            tensor=self._read_tensor(at, row.get("tensor")),
        )

    def _optional_name(self, at: str, written: object, known: tuple[Name, ...]) -> Name | None:
        """One of some names; None if nothing is written."""
        return None if written is None else self.attempt(None, known_name, at, written, known)

    def _read_shape(self, at: str, written: object) -> tuple[int, int]:
        listed = entries(written, 3)
        if listed is None or len(listed) not in (1, 2):
            fix = "Use [128, 64], for example."
            self.problems.append(argument_type(f"{at}.shape", written, "rows and columns", fix))
            return 1, 1
        extents = [self.number(f"{at}.shape[{place}]", each, 1, _MAX_EXTENT) for place, each in enumerate(listed)]
        return (1, extents[0]) if len(extents) == 1 else (extents[0], extents[1])

    def _read_stages(self, at: str, written: object) -> tuple[int, int]:
        listed = entries(written, 3)
        if listed is None:
            stages = self.number(f"{at}.stages", written, 1, MAX_STAGES)
            return stages, stages
        if len(listed) != 2:
            fix = "Use 2, or [1, 8] for a range."
            self.problems.append(argument_type(f"{at}.stages", written, "a number, or the least and the most", fix))
            return 1, 1
        least = self.number(f"{at}.stages[0]", listed[0], 1, MAX_STAGES)
        most = self.number(f"{at}.stages[1]", listed[1], least, MAX_STAGES)
        return least, most

    def _read_overlay(self, at: str, written: object) -> tuple[str, ...]:
        if isinstance(written, bool):
            return ("*",) if written else ()
        return tuple(str(name) for name in self.list_of(f"{at}.overlay", written))

    def _read_tensor(self, at: str, written: object) -> TensorOfTile | None:
        if written is None:
            return None
        row = self.table(f"{at}.tensor", written, ("shape", "rows", *_CONVOLUTION))
        least, most = _DIMENSIONS
        listed = self.list_of(f"{at}.tensor.shape", row.get("shape", ()))
        if not least <= len(listed) <= most:
            limit = f"a tensor map has {least} to {most} dimensions here"
            self.problems.append(argument_range(f"{at}.tensor.shape", listed, limit, "Use [4, 4096, 16, 128]."))
            return None
        shape = tuple(
            self.number(f"{at}.tensor.shape[{place}]", each, 1, _LARGEST_SIZE) for place, each in enumerate(listed)
        )
        rows = self.number(f"{at}.tensor.rows", row.get("rows", len(shape) - 2), 0, len(shape) - 2)
        if "filter" not in row:
            return TensorOfTile(shape, rows)
        return TensorOfTile(
            shape, rows, *(self._read_extents(f"{at}.tensor.{name}", row, name) for name in _CONVOLUTION)
        )

    def _read_extents(self, at: str, row: Table, name: str) -> tuple[int, ...]:
        """Extents of a convolution, outermost first; of the filter, one for each extent of the image."""
        dimensions = len(self.list_of(at, row["filter"]))
        usual = 0 if name == "padding" else 1
        listed = entries(row.get(name, usual), _DIMENSIONS[1])
        if listed is None:
            return (self.number(at, row.get(name, usual), usual, _MAX_EXTENT),) * dimensions
        return tuple(self.number(f"{at}[{place}]", each, usual, _MAX_EXTENT) for place, each in enumerate(listed))

    def read_step(self, place: int, written: object) -> KernelStep:
        """A step."""
        at = f"steps[{place}]"
        row = self.table(at, written, _STEP)
        return KernelStep(
            role=str(row.get("role", "")),
            operation=self.attempt(OPERATIONS[-1], known_name, f"{at}.operation", row.get("operation"), OPERATIONS),
            reads=tuple(str(name) for name in self.list_of(f"{at}.reads", row.get("reads", ()))),
            writes=tuple(str(name) for name in self.list_of(f"{at}.writes", row.get("writes", ()))),
            a=str(row.get("a", "")),
            b=str(row.get("b", "")),
            loop=str(row.get("loop", "")),
        )

    def number(self, at: str, written: object, least: int, most: int) -> int:
        """An integer, or what an expression of the sizes gives."""
        if isinstance(written, str):
            expression = self.attempt(None, Expression.read, at, written, self.sizes)
            written = least if expression is None else self.attempt(least, expression.value, self.sizes)
        return self.attempt(least, integer, at, written, least, most)

    def rows(self, kind: str, top: Table, most: int) -> list[tuple[str, object]]:
        """The rows of a table of the file, by name."""
        rows = list(self.table(kind, top.get(kind, {})).items())
        if len(rows) > most:
            self.problems.append(argument_range(kind, len(rows), f"at most {most}", "Describe a smaller kernel."))
        return rows[:most]

    def table(self, at: str, written: object, known: Collection[str] = ()) -> Table:
        """A table; with `known`, one without other keys."""
        return read_table(self.problems, at, written, known, "Use {warps = 4}, for example.")

    def list_of(self, at: str, written: object) -> list[object]:
        """A list; a single word is a list of one."""
        listed = [written] if isinstance(written, str) else entries(written, MAX_STEPS)
        if listed is None:
            self.problems.append(argument_type(at, written, "a list", 'Use ["K", "V"], for example.'))
            return []
        return listed

    def attempt(self, otherwise: Read, reader: Callable[..., Read], *arguments: object) -> Read:
        """What a reader gives; `otherwise` if it refuses, which is noted."""
        return try_read(self.problems, otherwise, reader, *arguments)
