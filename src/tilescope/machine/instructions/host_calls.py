"""Functions that the driver provides: vprintf and __assertfail.

vprintf(format, arguments)     both generic pointers; the arguments follow each other, each at a multiple of its size
__assertfail(message, file, line, function, character bytes)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.fault import ASSERT, KernelFaultError
from tilescope.machine.instructions.control import call_lists, callee_of
from tilescope.machine.instructions.printf import Conversion, format_conversion, parts_of
from tilescope.machine.program import DTYPE_OF_BITS, Assembler
from tilescope.machine.step import RefusedError, Step
from tilescope.ptx.syntax import Instruction, Variable
from tilescope.sync.address import Addresses
from tilescope.sync.cluster_shape import LaneNumbers, Lanes

HOST_CALLS = frozenset({"vprintf", "__assertfail", "malloc", "free"})
PRINTED_CHARACTERS = 1 << 20  # as much as the card's buffer holds; what follows is left out
_STRING_BYTES = 1 << 16  # of one string that is read


def decode_host_call(assembler: Assembler, instruction: Instruction) -> Step:
    """The step of a call to one of them."""
    name = callee_of(instruction).name
    if name in ("malloc", "free"):
        raise RefusedError(f"{name} in a kernel: there is no heap; give the kernel an array")
    results, arguments = call_lists(instruction)
    offsets = [_offset(assembler, argument) for argument in arguments]
    if name == "vprintf":
        result = _offset(assembler, results[0]) if results else None
        return _printing(offsets, result)
    return _failing(offsets)


def _offset(assembler: Assembler, variable: Variable) -> int:
    """The address of a parameter of the call in local memory."""
    assembler.place(variable)
    return assembler.program.local_offsets[variable.number]


def _parameter(cluster: Cluster, lanes: LaneNumbers, offset: int, size_bytes: int) -> npt.NDArray[np.int64]:
    values = cluster.load("local", lanes, np.full(len(lanes), offset, np.int64), DTYPE_OF_BITS[size_bytes * 8])
    return values.astype(np.int64)


def _printing(offsets: list[int], result: int | None) -> Step:
    """vprintf: every lane prints, in the order of their numbers, and gets the number of its arguments."""
    format_offset, buffer_offset = offsets

    def print_formatted(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        formats = _parameter(cluster, lanes, format_offset, 8)
        buffers = _parameter(cluster, lanes, buffer_offset, 8)
        texts: dict[int, str] = {}
        counts = np.zeros(len(lanes), np.uint32)
        for address in np.unique(formats).tolist():
            chosen = np.flatnonzero(formats == address)
            parts = parts_of(string_at(cluster, int(lanes[chosen[0]]), address))
            counts[chosen] = sum(len(part.argument_bytes) for part in parts if isinstance(part, Conversion))
            if _has_room(cluster):
                lines = _format_lanes(cluster, lanes[chosen], buffers[chosen], parts)
                texts.update(zip(chosen.tolist(), lines, strict=True))
        _write(cluster, [texts[index] for index in sorted(texts)])
        if result is not None:
            cluster.store("local", lanes, np.full(len(lanes), result, np.int64), counts)

    return print_formatted


def _has_room(cluster: Cluster) -> bool:
    return cluster.launch.printed_characters < PRINTED_CHARACTERS


def _write(cluster: Cluster, texts: list[str]) -> None:
    """Append what lanes printed, as far as there is room."""
    launch = cluster.launch
    for text in texts:
        if launch.printed_characters >= PRINTED_CHARACTERS:
            return
        room = PRINTED_CHARACTERS - launch.printed_characters
        launch.printed_characters += len(text)
        launch.printed.append(text[:room].encode("latin-1").decode("utf-8", "replace"))
        if launch.printed_characters >= PRINTED_CHARACTERS:
            launch.printed.append(f"\n… the rest is left out: {PRINTED_CHARACTERS} characters were printed\n")


def _format_lanes(
    cluster: Cluster, lanes: LaneNumbers, buffers: Addresses, parts: tuple[str | Conversion, ...]
) -> list[str]:
    """What every lane prints: arguments are read for all lanes at once."""
    columns: list[list[str]] = []
    offset = 0
    for part in parts:
        if isinstance(part, str):
            columns.append([part] * len(lanes))
            continue
        words: list[list[int]] = []
        for size_bytes in part.argument_bytes:
            offset = rounded_up(offset, size_bytes)
            words.append(_argument(cluster, lanes, buffers + offset, size_bytes))
            offset += size_bytes
        rows = zip(lanes.tolist(), *words, strict=True)
        columns.append([_one_field(cluster, lane, part, list(lane_words)) for lane, *lane_words in rows])
    return ["".join(fields) for fields in zip(*columns, strict=True)] or [""] * len(lanes)


def _one_field(cluster: Cluster, lane: int, part: Conversion, words: list[int]) -> str:
    *stars, value = words
    signed_stars = tuple(star - (1 << 32) if star >> 31 else star for star in stars)
    text = string_at(cluster, lane, value) if part.kind == "string" and value else None
    return format_conversion(part, signed_stars, value, text)


def _argument(cluster: Cluster, lanes: LaneNumbers, addresses: Addresses, size_bytes: int) -> list[int]:
    """One argument of every lane; 0 if a format has more conversions than arguments (the card prints the bytes there)."""
    try:
        loaded = cluster.load("generic", lanes, addresses, DTYPE_OF_BITS[size_bytes * 8])
    except KernelFaultError:
        return [0] * len(lanes)
    words: list[int] = loaded.tolist()
    return words


def string_at(cluster: Cluster, lane: int, address: int) -> str:
    """The bytes from a generic address up to the 0 that ends them, one character each."""
    region = cluster.memory.region_at(address)
    if region is not None:
        start = address - region.address
        content = region.content[start : start + _STRING_BYTES].tobytes()
        return content.partition(b"\0")[0].decode("latin-1")
    characters = bytearray()
    while len(characters) < _STRING_BYTES:
        where = np.array([address + len(characters)], np.int64)
        byte = int(cluster.load("generic", np.array([lane]), where, np.dtype(np.uint8))[0])
        if not byte:
            break
        characters.append(byte)
    return characters.decode("latin-1")


def _failing(offsets: list[int]) -> Step:
    """__assertfail: the kernel ends with error 710, and the sentence that CUDA prints."""

    def fail(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)[:1]
        lane = int(lanes[0])
        message, file, function = (
            string_at(cluster, lane, int(_parameter(cluster, lanes, offsets[index], 8)[0])) for index in (0, 1, 3)
        )
        line = int(_parameter(cluster, lanes, offsets[2], 4)[0])
        raise KernelFaultError(ASSERT, f"{file}:{line}: {function}: Assertion `{message}' failed", lane)

    return fail
