"""Launch files: a launch as TOML, read and written.

[launch]
ptx = "add.ptx"                    # beside this file
grid = [4]
block = [256]

[[argument]]                       # one for each parameter, in their order
name = "a"
kind = "array"
type = "f32"
shape = [1000]
fill = "random"                    # or zeros, ones, arange; or file = "a.npy"

[[argument]]
kind = "map"                       # over the array of another argument, by its number or name; or with type and shape
array = "a"
box = [64]

[[argument]]
kind = "int"                       # or float
value = 1000

[[memory]]                         # of a recorded launch: bytes at an address of the card, before and after
address = "0x7f0000000000"
file = "memory0.npy"
after = "after0.npy"
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from typing import TypeVar

from tilescope.errors import Violation, argument_type, raise_all, unknown_name
from tilescope.machine.launch.argument_text import ARGUMENT_TEXT
from tilescope.machine.launch.launch_description import (
    ALL,
    CORNERS,
    FILLS,
    ArgumentDescription,
    ArrayArgument,
    Blocks,
    BytesArgument,
    FillName,
    LaunchDescription,
    MapArgument,
    MemoryDescription,
    NumberArgument,
    PointerArgument,
)
from tilescope.pipeline.toml_text import toml_value
from tilescope.reading import integer, integers, known_name, try_read
from tilescope.rule import rule
from tilescope.sentence import format_value, shorten
from tilescope.tensor_map.limits import ADDRESS_END
from tilescope.tensor_map.map_arguments import MAP_KINDS

LAUNCH_FILE = rule(
    "launch-file",
    "A launch file is TOML with a table [launch], and an [[argument]] for each parameter of the kernel.",
    argument="file",
    found="{name}: {error}",
    limit="a launch file is TOML with [launch] and [[argument]]",
    fix="Start from what `tilescope run kernel.ptx --template` prints.",
    source="docs/running.md",
    passing='ts.machine.launch.launch_file.read_launch(b"[launch]\\ngrid = [4]", "launch.toml")',
    failing='ts.machine.launch.launch_file.read_launch(b"[launch", "launch.toml")',
)
_NO_ARGUMENT = ARGUMENT_TEXT.worded(found="argument {index} has {found_keys}", limit="{limit_text}", fix="{fix_text}")

LAUNCH_SUFFIX = ".launch.toml"  # of the launch file next to a program: gemm.launch.toml next to gemm.cu
_LAUNCH_KEYS = ("ptx", "entry", "grid", "block", "cluster", "smem_bytes", "arch", "seed", "max_steps", "blocks")
_MEMORY_KEYS = ("address", "file", "after", "missing_bytes")
_ARRAY_KEYS = ("type", "shape", "fill", "file")
_KEYS: dict[str, tuple[str, ...]] = {  # of an argument, by its kind; a map has those of tensor maps too
    "array": _ARRAY_KEYS,
    "map": ("array", *_ARRAY_KEYS),
    "int": ("value",),
    "float": ("value",),
    "bytes": ("value",),
    "pointer": ("array", "offset_bytes"),
}
Read = TypeVar("Read")


def read_launch(content: bytes, name: str) -> LaunchDescription:
    """Read a launch file; `name` is the file name in error messages.

    >>> read_launch(b'''
    ... [launch]
    ... grid = [2, 2]
    ... [[argument]]
    ... kind = "int"
    ... value = 7
    ... ''', "launch.toml")
    LaunchDescription(grid=(2, 2), arguments=(NumberArgument(value=7),))
    """
    try:
        data = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise LAUNCH_FILE.error(name=name, error=shorten(str(error))) from None
    return _Reader().read_launch(data)


class _Reader:
    """Collects every problem while reading; an unreadable entry gets a harmless value."""

    def __init__(self) -> None:
        self._problems: list[Violation] = []

    def read_launch(self, data: Mapping[str, object]) -> LaunchDescription:
        top = self._read_table("launch file", data, ("launch", "argument", "memory"))
        table = self._read_table("launch", top.get("launch", {}), _LAUNCH_KEYS)
        arguments = self._read_rows("argument", top.get("argument", []))
        memory = self._read_rows("memory", top.get("memory", []))
        launch = LaunchDescription(
            ptx=self._read_text("launch.ptx", table.get("ptx")) or "",
            entry=self._read_text("launch.entry", table.get("entry")),
            grid=self._read_extents("launch.grid", table.get("grid")),
            block=self._read_extents("launch.block", table.get("block")),
            cluster=self._read_extents("launch.cluster", table.get("cluster")),
            smem_bytes=self._read_integer("launch.smem_bytes", table.get("smem_bytes")),
            arch=self._read_text("launch.arch", table.get("arch")),
            seed=self._read_integer("launch.seed", table.get("seed")),
            max_steps=self._read_integer("launch.max_steps", table.get("max_steps")),
            blocks=self._read_blocks(table.get("blocks", ALL)),
            arguments=tuple(self._read_argument(index, row) for index, row in enumerate(arguments)),
            memory=tuple(self._read_memory(f"memory[{index}]", row) for index, row in enumerate(memory)),
        )
        raise_all(self._problems)
        return launch

    def _read_rows(self, name: str, rows: object) -> list[object]:
        if isinstance(rows, list):
            return rows
        self._problems.append(argument_type(name, rows, f"tables: [[{name}]]", f"Write [[{name}]]."))
        return []

    def _read_memory(self, at: str, row: object) -> MemoryDescription:
        table = self._read_table(at, row, _MEMORY_KEYS)
        return MemoryDescription(
            address=self._read_address(f"{at}.address", table.get("address")),
            file=self._read_text(f"{at}.file", table.get("file")) or "",
            after=self._read_text(f"{at}.after", table.get("after")) or "",
            missing_bytes=self._read_integer(f"{at}.missing_bytes", table.get("missing_bytes")) or 0,
        )

    def _read_address(self, at: str, written: object) -> int:
        """An address on the card: hexadecimal text, or an integer."""
        try:
            number = int(written, 16) if isinstance(written, str) else integer(at, written)
        except ValueError:  # from int, or a RuleError
            self._problems.append(argument_type(at, written, "an address", 'Write "0x7f0000000000", for example.'))
            return 0
        return self._try(0, integer, at, number, 0, ADDRESS_END - 1)

    def _read_argument(self, index: int, row: object) -> ArgumentDescription:
        at = f"argument[{index}]"
        table = self._read_table(at, row)
        name = self._read_text(f"{at}.name", table.get("name")) or ""
        kind = self._try("", known_name, f"{at}.kind", table.get("kind"), tuple(_KEYS), "kind of argument")
        if not kind:
            return NumberArgument(name=name, value=0)
        if kind != "map":
            self._read_table(at, table, ("name", "kind", *_KEYS[kind]))
        match kind:
            case "array":
                return self._read_array(at, index, table, name)
            case "map":
                return self._read_map(at, index, table, name)
            case "bytes":
                return BytesArgument(name=name, content=self._read_hex(f"{at}.value", table.get("value")))
            case "pointer":
                array = self._read_reference(f"{at}.array", table.get("array"))
                offset = self._read_integer(f"{at}.offset_bytes", table.get("offset_bytes", 0)) or 0
                return PointerArgument(name=name, array=array, offset_bytes=offset)
        return NumberArgument(name=name, value=self._read_number(f"{at}.value", table.get("value"), kind))

    def _read_array(self, at: str, index: int, table: Mapping[str, object], name: str) -> ArrayArgument:
        data_type = self._read_text(f"{at}.type", table.get("type")) or ""
        shape = self._read_extents(f"{at}.shape", table.get("shape")) or ()
        file = self._read_text(f"{at}.file", table.get("file")) or ""
        default: FillName = "random"
        fill = self._try(default, known_name, f"{at}.fill", table.get("fill", default), FILLS, "fill")
        if not file and not (data_type and shape):
            self._problems.append(
                _NO_ARGUMENT.violation(
                    index=index,
                    found_keys="no file, and no type and shape",
                    limit_text="an array has both, or a file",
                    fix_text='Add type = "f32" and shape = [1024], for example.',
                )
            )
        return ArrayArgument(name=name, data_type=data_type, shape=shape, fill=fill, file=file)

    def _read_map(self, at: str, index: int, table: Mapping[str, object], name: str) -> MapArgument:
        option_names = {argument for kind in MAP_KINDS.values() for argument in kind.readers}
        self._read_table(at, table, ("name", "kind", *_KEYS["map"], *sorted(option_names)))
        options = {key: value for key, value in table.items() if key in option_names}
        array: int | str | ArrayArgument
        if "array" in table:
            array = self._read_reference(f"{at}.array", table["array"])
        else:
            array = self._read_array(at, index, table, "")
        return MapArgument(name=name, array=array, options=options)

    def _read_reference(self, at: str, written: object) -> int | str:
        if isinstance(written, str):
            return written
        return self._try(0, integer, at, written, 0)

    def _read_extents(self, at: str, written: object) -> tuple[int, ...] | None:
        if written is None:
            return None
        listed = [written] if isinstance(written, int) else written
        return self._try((1,), integers, at, listed, None, 1)

    def _read_integer(self, at: str, written: object) -> int | None:
        return None if written is None else self._try(0, integer, at, written)

    def _read_number(self, at: str, written: object, kind: str) -> int | float:
        if kind == "int":
            return self._try(0, integer, at, written)
        if isinstance(written, int | float) and not isinstance(written, bool):
            return float(written)
        self._problems.append(argument_type(at, written, "a number", "Use 1.0, for example."))
        return 0.0

    def _read_hex(self, at: str, written: object) -> str:
        try:
            return bytes.fromhex(str(written)).hex()
        except ValueError:
            limit = "bytes in hexadecimal, as text"
            self._problems.append(argument_type(at, written, limit, 'Use "00ff", for example.'))
            return ""

    def _read_blocks(self, written: object) -> Blocks:
        if isinstance(written, str):
            return self._try(ALL, known_name, "launch.blocks", written, (ALL, CORNERS), "choice of blocks")
        if not isinstance(written, list):
            fix = 'Use [[0, 0], [1, 1]], "corners" or "all".'
            self._problems.append(argument_type("launch.blocks", written, "a list of blocks", fix))
            return ALL
        return tuple(self._try((0,), integers, "launch.blocks", block) for block in written)

    def _read_text(self, at: str, written: object) -> str | None:
        if written is None or isinstance(written, str):
            return written
        self._problems.append(argument_type(at, written, "a text", f"Write {format_value(str(written))}."))
        return None

    def _read_table(self, at: str, written: object, known: Collection[str] = ()) -> Mapping[str, object]:
        if not isinstance(written, Mapping):
            self._problems.append(argument_type(at, written, "a table", "Write [launch] and [[argument]]."))
            return {}
        unknown = [name for name in written if known and name not in known]
        self._problems += [unknown_name(f"key of {at}", at, name, known) for name in unknown]
        return written

    def _try(self, otherwise: Read, reader: object, *arguments: object) -> Read:
        return try_read(self._problems, otherwise, reader, *arguments)  # type: ignore[arg-type]


def format_launch(launch: LaunchDescription, comments: Mapping[str, str] | None = None) -> str:
    """The text of a launch file; `comments` are written after the [launch] keys and the arguments of these names.

    >>> print(format_launch(LaunchDescription(grid=(4,), arguments=(NumberArgument(name="n", value=7),))))
    [launch]
    grid = [4]
    <BLANKLINE>
    [[argument]]
    name = "n"
    kind = "int"
    value = 7
    """
    comments = comments or {}
    lines = ["[launch]"]
    for key in _LAUNCH_KEYS:
        value = getattr(launch, key)
        if value not in (None, "", ALL):
            lines.append(_append_comment(f"{key} = {toml_value(value)}", comments.get(key)))
    for argument in launch.arguments:
        lines += ["", _append_comment("[[argument]]", comments.get(argument.name))]
        lines += [f"{key} = {toml_value(value)}" for key, value in _collect_fields(argument).items() if value != ""]
    for memory in launch.memory:
        lines += ["", "[[memory]]", f'address = "{memory.address:#x}"', f"file = {toml_value(memory.file)}"]
        if memory.after:
            lines.append(f"after = {toml_value(memory.after)}")
        if memory.missing_bytes:
            lines.append(f"missing_bytes = {memory.missing_bytes}")
    return "\n".join(lines)


def _append_comment(line: str, comment: str | None) -> str:
    return line if comment is None else f"{line}  # {comment}"


def _collect_fields(argument: ArgumentDescription) -> dict[str, object]:
    """The keys and values of an argument, in the order of the file."""
    named = {"name": argument.name}
    match argument:
        case ArrayArgument():
            return {**named, "kind": "array", **_collect_array_fields(argument)}
        case MapArgument(array=ArrayArgument() as array):
            return {**named, "kind": "map", **_collect_array_fields(array), **argument.options}
        case MapArgument():
            return {**named, "kind": "map", "array": argument.array, **argument.options}
        case NumberArgument():
            kind = "float" if isinstance(argument.value, float) else "int"
            return {**named, "kind": kind, "value": argument.value}
        case BytesArgument():
            return {**named, "kind": "bytes", "value": argument.content}
    return {**named, "kind": "pointer", "array": argument.array, "offset_bytes": argument.offset_bytes}


def _collect_array_fields(array: ArrayArgument) -> dict[str, object]:
    fields: dict[str, object] = {"type": array.data_type}
    if array.shape:
        fields["shape"] = array.shape
    if array.file:
        return {**fields, "file": array.file}
    return {**fields, "fill": array.fill}
