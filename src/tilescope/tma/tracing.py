"""Where every byte of a copy comes from and goes to, without moving any.

    shared address   0x400  0x410  0x420  …            "which element is at 0x410?"   element_at(0x410)
    source offset       16      0     48  …            "where is A[37, 12]?"          address_of(12, 37)
                   or fill, or gap                     "and byte 4711 of the tensor?" address_of_source(4711)

A trace is its arguments: everything else follows from them, so plain data carries them and the rest for reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import ClassVar, Literal, overload

import numpy as np
import numpy.typing as npt

from tilescope.arch import Basis
from tilescope.errors import RuleError, argument_range
from tilescope.reading import integer, integer_array, integers, known_name
from tilescope.rule import rule
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tensor_map import AnyMap, Copy, Im2colWideMap
from tilescope.tma.elements import SIX_BIT_TYPE, dense_bytes
from tilescope.tma.request import request_copy
from tilescope.tma.walk import FAR_BYTES, Walk, placement, row_coords, source_offset, walk
from tilescope.value import Value, hex_field, read_only

TRACE_EXTENT = rule(
    "trace-extent",
    "The bytes of the tensor that a traced copy accesses are below byte 2^62.",
    argument="coords",
    found="row {row} at byte {byte:#x} of the tensor",
    limit="a trace counts up to byte 2^62; a global address is below 2^57",
    fix="Start the box nearer to the tensor's first byte, or check strides_bytes.",
    source="global addresses are below 2^57",
    basis="measured",
    passing='ts.trace(ts.TensorMap("u8", (16, 1 << 32), ((1 << 40) - 16,), (16, 1)), (0, 1 << 20))',
    failing='ts.trace(ts.TensorMap("u8", (16, 1 << 32), ((1 << 40) - 16,), (16, 1)), (0, 1 << 30))',
)
Operation = Literal["load", "store", "gather4", "scatter4"]
OPERATIONS: tuple[Operation, ...] = ("load", "store", "gather4", "scatter4")
Holds = Literal["element", "overrun", "fill", "gap"]
_HOLDS: tuple[Holds, ...] = ("element", "overrun", "fill", "gap")
_PADDING = -1  # no byte of the dense row


@dataclass(frozen=True, slots=True)
class Origin(Value):
    """The origin of one byte of shared memory in the tensor.

    "element": a byte of an element; "fill": the copy writes the fill value there (a store drops it), because `coords`
    are outside the tensor; "overrun": a store writes it after the end of a row of the tensor; "gap": the copy does not
    change it.
    """

    holds: Holds
    row: int | None = None  # of the copy
    coords: tuple[int, ...] | None = None  # innermost first; interleaved: of the pixel
    byte: int | None = None  # within the element; interleaved: within the pixel's slice
    source_offset: int | None = hex_field(default=None)  # from the tensor's first byte


@dataclass(frozen=True, slots=True)
class Run(Value):
    """Adjacent bytes of shared memory that come from adjacent bytes of the tensor, or have the same kind."""

    length_bytes: int
    holds: Holds
    address: int = hex_field()
    source_offset: int | None = hex_field(default=None)


@dataclass(frozen=True, eq=False)
class Trace(Value):
    """Where every byte of one copy comes from and goes to; made by `ts.trace`.

    >>> import tilescope as ts
    >>> a = ts.TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B")
    >>> found = Trace(a, (0, 32), smem_address=0x400)
    >>> found.element_at(0x490).coords  # line 1 holds row 33, and starts with its second piece
    (0, 33)
    >>> hex(found.address_of(0, 33)), found.transaction_bytes, found.filled_rows
    ('0x490', 1024, 0)
    """

    _derived: ClassVar[tuple[str, ...]] = (
        "footprint_bytes",
        "transaction_bytes",
        "written_bytes",
        "filled_rows",
        "overrun_bytes",
        "basis",
        "runs",
    )
    FILL: ClassVar[int] = -1  # in `source_offset`: outside the tensor
    GAP: ClassVar[int] = -2  # in `source_offset`: not part of the copy

    tensor_map: AnyMap
    coords: tuple[int, ...]
    offsets: tuple[int, ...] = ()
    smem_address: int = hex_field(default=0)
    operation: Operation = "load"
    # Of each byte from smem_address on, the offset in the tensor, FILL or GAP. A 6-bit value that a store takes
    # from a byte of its own names the byte where its lowest bit goes.
    source_offset: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)
    copy: Copy = field(init=False, repr=False, compare=False)  # as the rules and the walk look at it
    walk: Walk = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known_name("operation", self.operation, OPERATIONS)
        copy = request_copy(
            self.tensor_map,
            "load" if self.is_load else "store",
            self.coords,
            smem_address=self.smem_address,
            offsets=self.offsets,
            rows4=self.operation in ("gather4", "scatter4"),
        )
        walked = walk(copy)
        place = object.__setattr__
        place(self, "coords", copy.coords)
        place(self, "offsets", copy.offsets)
        place(self, "smem_address", copy.smem_address)
        place(self, "copy", copy)
        place(self, "walk", walked)
        place(self, "source_offset", read_only(_source_offsets(copy, walked)))

    @property
    def footprint_bytes(self) -> int:
        """Shared memory that the copy covers, gaps included."""
        return len(self.source_offset)

    @property
    def transaction_bytes(self) -> int | None:
        """What the mbarrier must expect: filled elements count, gaps do not. None for a store, which has no barrier."""
        return self.walk.rows * self.walk.row_bytes if self.is_load else None

    @property
    def written_bytes(self) -> int:
        """Bytes that change owner: of shared memory for a load, fill included; of global memory for a store."""
        return self.transaction_bytes or int(self.walk.inside.sum()) * self.walk.reach_bytes

    @property
    def filled_rows(self) -> int:
        """Rows that are outside the tensor altogether: filled by a load, dropped by a store."""
        if self.walk.high_bytes <= self.walk.low_bytes:
            return self.walk.rows
        return int((~self.walk.inside).sum())

    @property
    def outside_bytes(self) -> int:
        """Bytes outside the tensor in each of the other rows, at its ends."""
        if self.filled_rows == self.walk.rows:
            return 0
        return self.walk.row_bytes - (self.walk.high_bytes - self.walk.low_bytes)

    @property
    def overrun_bytes(self) -> int:
        """Bytes after the tensor's rows that a store overwrites: it rounds their end up to 16 bytes."""
        if self.is_load:
            return 0
        return int(self.walk.inside.sum()) * (self.walk.reach_bytes - self.walk.high_bytes)

    @cached_property
    def row_coords(self) -> npt.NDArray[np.int64]:
        """(rows, rank) coordinates of the first element of each row."""
        return read_only(row_coords(self.copy))

    @property
    def rows(self) -> int:
        """Rows of the copy in shared memory; an interleaved copy's rows are single pixels."""
        return self.walk.rows

    @property
    def base_offset(self) -> int:
        """The line of the swizzle's pattern on which the copy's shared memory starts."""
        return self.tensor_map.swizzle.base_offset(self.smem_address)

    @property
    def row_elements(self) -> int:
        """Elements of a row of the copy."""
        a = self.tensor_map
        return a.interleave.slice_bytes * 8 // a.data_type.bits if a.interleave.slice_bytes else a.inner_elements

    def address_in_box(self, row: int, column: int) -> int:
        """The shared address of the first byte of an element, by its row of the copy and its place in the row."""
        a = self.tensor_map
        byte = column * a.data_type.bits // 8 if a.interleave.slice_bytes else self._shared_byte(column)
        return a.swizzle.apply(self.smem_address + row * a.pitch_bytes + byte)

    @property
    def is_load(self) -> bool:
        """Whether the copy goes to shared memory."""
        return self.operation in ("load", "gather4")

    @property
    def basis(self) -> Basis:
        """Whether this kind of copy was "measured" on a card or follows what is "documented"."""
        is_documented = self.operation in ("gather4", "scatter4") or isinstance(self.tensor_map, Im2colWideMap)
        return "documented" if is_documented else self.tensor_map.basis

    @property
    def runs(self) -> tuple[Run, ...]:
        """The same as `source_offset`, in as few pieces as possible."""
        source = self.source_offset
        holds = _kinds(self.copy, self.walk)
        goes_on = (source[1:] < 0) | (source[1:] == source[:-1] + 1)
        follows = goes_on & (holds[1:] == holds[:-1])
        edges = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(source)]
        return tuple(
            Run(
                length_bytes=end - begin,
                holds=_HOLDS[holds[begin]],
                address=self.smem_address + begin,
                source_offset=_offset_or_none(source[begin]),
            )
            for begin, end in pairwise(edges)
        )

    def element_at(self, address: int) -> Origin:
        """The contents at a shared address: an element, fill, or nothing of this copy.

        >>> import tilescope as ts
        >>> a = ts.TensorMap("f16", (20, 5), (64,), (16, 3), swizzle="64B")
        >>> found = Trace(a, (8, 3))
        >>> found.element_at(0x42).coords, found.element_at(0x18).holds, found.element_at(0x20).holds
        ((9, 4), 'fill', 'gap')
        """
        address = integer("address", address)
        offset = address - self.smem_address
        if not 0 <= offset < self.footprint_bytes:
            return Origin("gap")
        a = self.tensor_map
        row, byte = divmod(a.swizzle.apply(address) - self.smem_address, a.pitch_bytes)
        in_row = _dense_bytes_of_row(self.copy)
        dense = int(in_row[byte]) if byte < len(in_row) else _PADDING
        if dense == _PADDING or not 0 <= row < self.rows:
            return Origin("gap")
        coords = self.row_coords[row].tolist()
        within = dense
        if _takes_a_byte_a_value(self.copy):
            coords[0] += byte
            within = 0
        elif not a.interleave.slice_bytes:
            element, bit = divmod(dense * 8, a.data_type.bits)
            coords[0] += element
            within = bit // 8
        source = _offset_or_none(self.source_offset[offset])
        return Origin(self._contents_of_row(source, dense), row, tuple(coords), within, source)

    def _contents_of_row(self, source: int | None, dense: int) -> Holds:
        """What a byte of a row is, by its offset in the tensor and its place in the dense row."""
        if source is None:
            return "fill"
        return "element" if dense < self.walk.high_bytes else "overrun"

    def address_of(self, *coords: int) -> int | None:
        """The shared address of the element with these coordinates, innermost first; None if the copy does not include it.

        For an interleaved tensor, elements are pixels of a slice. If a copy has an element twice (gather4 may name a
        row twice), the first one counts. An element outside the tensor has the address of its fill.
        """
        element_coords = integers("coords", coords)
        a = self.tensor_map
        if len(element_coords) != a.rank:
            limit = f"{a.rank} coordinates for rank {a.rank}, innermost first"
            fix = f"Use {a.rank} coordinates; tensor_map.coords(*index) turns a numpy index round."
            raise RuleError([argument_range("coords", element_coords, limit, fix)])
        outer = 0 if a.interleave.slice_bytes else 1  # the first dimension in which rows differ
        element = element_coords[0] - self.coords[0] if outer else 0
        hits = np.flatnonzero((self.row_coords[:, outer:] == element_coords[outer:]).all(axis=1))
        is_held = len(hits) and 0 <= element < a.inner_elements
        return self.address_in_box(int(hits[0]), element) if is_held else None

    @overload
    def address_of_source(self, offset: int) -> int | None: ...

    @overload
    def address_of_source(self, offset: Sequence[int] | npt.NDArray[np.integer]) -> npt.NDArray[np.int64]: ...

    def address_of_source(self, offset: object) -> int | npt.NDArray[np.int64] | None:
        """The shared address of a byte of the tensor, by its offset from the first one; None if the copy does not include it.

        An integer array gives an array, with -1 for bytes that the copy does not include.
        """
        several = integer_array(offset)
        if several is None or not several.ndim:
            number = integer("offset", offset)
            hits = np.flatnonzero((self.source_offset == number) & (self.source_offset >= 0))  # FILL is no offset
            return int(hits[0]) + self.smem_address if len(hits) else None
        present = np.flatnonzero(self.source_offset >= 0)
        order = np.argsort(self.source_offset[present], kind="stable")
        offsets = self.source_offset[present][order]
        queried = several.astype(np.int64)  # unsigned numbers from 2^63 on turn negative, which no offset is
        place = np.searchsorted(offsets, queried)
        hit = place < len(offsets)
        hit[hit] = offsets[place[hit]] == queried[hit]
        addresses = np.full(queried.shape, -1, np.int64)
        addresses[hit] = present[order[place[hit]]] + self.smem_address
        return addresses

    def _shared_byte(self, element: int) -> int:
        """The byte of a shared row where an element begins."""
        if _takes_a_byte_a_value(self.copy):
            return element
        data_type = self.tensor_map.data_type
        group, within = divmod(element * data_type.bits // 8, dense_bytes(data_type))
        return group * CHUNK_BYTES + within


def trace(
    tensor_map: AnyMap,
    coords: Sequence[int] | None = None,
    *,
    offsets: Sequence[int] = (),
    smem_address: int = 0,
    operation: Operation = "load",
) -> Trace:
    """Where every byte of a copy comes from and goes to, and what it counts.

    The box starts at `coords`, or at the tensor's first element. `operation` is "load", "store" (reductions too),
    "gather4" or "scatter4"; those two take the column and four rows as `coords`.

    >>> import tilescope as ts
    >>> a = ts.TensorMap("u8", (20, 4), (32,), (32, 2))
    >>> stored = ts.trace(a, (0, 0), operation="store")
    >>> stored.written_bytes, stored.overrun_bytes  # 20 bytes of each row, rounded up to 32
    (64, 24)
    """
    if coords is None and isinstance(tensor_map, AnyMap):
        coords = (0,) * tensor_map.rank
    return Trace(tensor_map, coords, offsets, smem_address, operation)  # type: ignore[arg-type]


def _offset_or_none(source: np.int64) -> int | None:
    """An offset of the tensor; None for FILL and GAP."""
    return None if source < 0 else int(source)


def _source_offsets(copy: Copy, walked: Walk) -> npt.NDArray[np.int64]:
    """Of each shared byte, its offset in the tensor, or FILL, or GAP."""
    _require_near(copy, walked)
    inside = walked.starts[:, None] + _dense_bytes_of_row(copy)
    return _as_they_lie(copy, walked, inside, fill=Trace.FILL, gap=Trace.GAP)


def _kinds(copy: Copy, walked: Walk) -> npt.NDArray[np.int64]:
    """Of each shared byte, what it holds, as an index into _HOLDS."""
    is_element = _dense_bytes_of_row(copy) < walked.high_bytes
    inside = np.where(is_element, _HOLDS.index("element"), _HOLDS.index("overrun"))
    return _as_they_lie(copy, walked, inside, fill=_HOLDS.index("fill"), gap=_HOLDS.index("gap"))


def _as_they_lie(
    copy: Copy, walked: Walk, inside: npt.NDArray[np.int64], *, fill: int, gap: int
) -> npt.NDArray[np.int64]:
    """One number for each shared byte: that of `inside`, by row and byte, where it moves, else `fill` or `gap`."""
    byte = _dense_bytes_of_row(copy)
    reach = walked.high_bytes if copy.direction == "load" else walked.reach_bytes
    moved = walked.inside[:, None] & (byte >= walked.low_bytes) & (byte < reach)
    rows = np.where(moved, inside, fill)
    if byte[-1] == _PADDING:  # as in every piece of a padded type
        rows[:, byte == _PADDING] = gap
    placed = placement(copy.tensor_map, walked.rows, copy.smem_address)
    values = np.full(placed.footprint_bytes, gap, np.int64)
    values.reshape(-1, placed.piece_bytes)[placed.places] = rows.reshape(-1, placed.piece_bytes)
    return values


def _dense_bytes_of_row(copy: Copy) -> npt.NDArray[np.int64]:
    """The byte of the dense row for each byte of a shared row, or _PADDING."""
    a: AnyMap = copy.tensor_map
    return _dense_of_shared(
        a.interleave.slice_bytes or a.inner_bytes,
        a.data_type.bits if _takes_a_byte_a_value(copy) else 0,
        dense_bytes(a.data_type),
    )


@lru_cache(maxsize=32)
def _dense_of_shared(row_bytes: int, bits: int, dense: int) -> npt.NDArray[np.int64]:
    shared = np.arange(row_bytes)
    if bits:  # a value takes a byte
        return shared * bits // 8
    within = shared % CHUNK_BYTES
    return np.where(within < dense, shared // CHUNK_BYTES * dense + within, _PADDING)


def _require_near(copy: Copy, walked: Walk) -> None:
    """Refuse offsets that the walk cut because 64 bits do not hold them; no memory does either."""
    if walked.last_start is None or walked.last_start < FAR_BYTES:
        return
    row = int(np.flatnonzero(walked.inside & (walked.starts >= FAR_BYTES))[0])
    start = source_offset(copy.tensor_map, tuple(row_coords(copy)[row].tolist()))
    raise TRACE_EXTENT.error(row=row, byte=start)


def first_bit_in_box(trace: Trace, column: int) -> int:
    """The bit of the byte at `address_in_box` where an element begins: 0 unless elements share bytes."""
    return 0 if _takes_a_byte_a_value(trace.copy) else column * trace.tensor_map.data_type.bits % 8


def _takes_a_byte_a_value(copy: Copy) -> bool:
    """A store of 6-bit values reads each from a byte; everything else is as in global memory."""
    return copy.direction != "load" and copy.tensor_map.data_type.name == SIX_BIT_TYPE
