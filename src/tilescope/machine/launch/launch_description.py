"""A launch as data: the shape of the grid, and an argument for every parameter of the kernel.

    --arg f16:256x192          ArrayArgument(data_type="f16", shape=(256, 192))         256 x 192 random numbers
    --arg f32:1000:zeros       ArrayArgument(data_type="f32", shape=(1000,), fill="zeros")
    --arg map:0,box=64x128     MapArgument(array=0, options={"box": (64, 128)})         over the array of argument 0
    --arg 1000                 NumberArgument(value=1000)
    --arg bytes:00ff           BytesArgument(content="00ff")                            a struct by value
    --arg ptr:0+1024           PointerArgument(array=0, offset_bytes=1024)              into the array of argument 0

`argument_text` parses such texts, `launch_file` reads and writes launches as TOML, `described_launch` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from tilescope.value import Value, hex_field

FillName = Literal["random", "zeros", "ones", "arange"]
FILLS: tuple[FillName, ...] = get_args(FillName)
Blocks: TypeAlias = "tuple[tuple[int, ...], ...] | str"
CORNERS = "corners"
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayArgument(Value):
    """An array in global memory; the parameter gets its address.

    With a `file` its elements are read from there, and so are type and shape if they are left out.
    """

    name: str = ""  # of the argument; maps and pointers may refer to it
    data_type: str = ""
    shape: tuple[int, ...] = ()  # outermost first
    fill: FillName = "random"
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapArgument(Value):
    """A tensor map, 128 bytes by value, over the array of another argument or over its own array."""

    name: str = ""
    array: int | str | ArrayArgument
    options: Mapping[str, Any] = field(default_factory=dict)  # arguments of the map: box, swizzle, lower_corner …

    def __post_init__(self) -> None:
        plain = {name: tuple(value) if isinstance(value, list) else value for name, value in self.options.items()}
        object.__setattr__(self, "options", plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberArgument(Value):
    """An integer or a float."""

    name: str = ""
    value: int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesArgument(Value):
    """A struct by value, its bytes in hexadecimal."""

    name: str = ""
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerArgument(Value):
    """An address inside the array of another argument."""

    name: str = ""
    array: int | str
    offset_bytes: int = 0


ArgumentDescription: TypeAlias = ArrayArgument | MapArgument | NumberArgument | BytesArgument | PointerArgument


def own_array(argument: ArgumentDescription | None) -> ArrayArgument | None:
    """The array that an argument itself describes: an array argument, or the own array of a map; None otherwise."""
    if isinstance(argument, MapArgument):
        return argument.array if isinstance(argument.array, ArrayArgument) else None
    return argument if isinstance(argument, ArrayArgument) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDescription(Value):
    """Global memory of a recorded launch, at its address on the card; `after` is its content after the launch."""

    address: int = hex_field()
    file: str
    after: str = ""  # empty: not recorded
    missing_bytes: int = 0  # bytes of the allocation that were not recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDescription(Value):
    """What a launch file specifies; None or empty: not specified.

    >>> launch = LaunchDescription(grid=(2, 2), block=(256,), arguments=(NumberArgument(value=7),))
    >>> LaunchDescription.from_dict(launch.to_dict()) == launch
    True
    """

    ptx: str = ""  # a file, relative to the launch file
    entry: str | None = None
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    cluster: tuple[int, ...] | None = None
    smem_bytes: int | None = None  # dynamic shared memory
    arch: str | None = None
    seed: int | None = None
    max_steps: int | None = None
    blocks: Blocks = ALL
    arguments: tuple[ArgumentDescription, ...] = ()
    memory: tuple[MemoryDescription, ...] = ()
