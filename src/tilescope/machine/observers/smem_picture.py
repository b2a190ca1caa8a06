"""Shared memory of a block at one moment of a run: which line wrote which bytes last.

0x400-0x43f    writer 0    mm.py:12, PTX line 40 (st.shared.b32 …)
0x440-0x47f    nobody
0x480-0x487    an mbarrier
0x800-0x27ff   writer 1    a tensor copy: its map gives the element at each address
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilescope.tensor_map import AnyMap
from tilescope.value import Value, hex_field


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemWriter(Value):
    """A line whose instructions wrote some of the shared memory last, and how many bytes of it.

    Instructions without a source line are distinguished by their PTX lines. `ptx_text` is the first instruction.
    """

    source_line: str | None
    ptx_lines: tuple[int, ...]
    ptx_text: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemStretch(Value):
    """Adjacent bytes that one line wrote; `writer` is its number, or None if they were not written.

    `is_under_way`: a copy was issued that will write them, and its bytes may not be there. `content` is hexadecimal.
    """

    address: int = hex_field()
    bytes: int
    writer: int | None
    is_under_way: bool
    content: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemTile(Value):
    """A box that a tensor copy loaded: where it begins in shared memory, and in the tensor of its map."""

    address: int = hex_field()
    writer: int
    coords: tuple[int, ...]
    tensor_map: AnyMap


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemPicture(Value):
    """Shared memory of a block: at the end, or right before a line (`at`) ran for the `times`-th time.

    `came` counts how often a thread reached the line. If it is less than `times`, the picture shows the end instead.
    """

    block: tuple[int, int, int]
    at: str | None
    times: int
    came: int
    bytes: int  # up to the end of its dynamic memory, the reserved KiB included
    writers: tuple[SmemWriter, ...]
    stretches: tuple[SmemStretch, ...]
    tiles: tuple[SmemTile, ...]
    mbarriers: tuple[int, ...] = hex_field()

    @property
    def is_at_end(self) -> bool:
        """Whether it shows what the block left, not the moment of a line."""
        return self.at is None or self.came < self.times
