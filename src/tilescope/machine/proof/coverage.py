"""What the threads of a cluster did that a pipeline does not describe: how they share global memory.

    st.global [out+4*i]                              nobody reads it again     covered: nothing can go wrong
    st.global [part+4*i], then ld.global [part]      threads exchange data     not covered
    atom.global, ld.acquire, st.release              threads exchange data     not covered

A pipeline has the barriers, the copies and the shared memory of a cluster. So its proof says nothing of words in global memory
through which threads exchange data. They are recognised by the range of addresses that an instruction accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tilescope.errors import Violation
from tilescope.sync.address import Addresses

_PLACES_NAMED = 2
# Rules about what a pipeline describes: barriers and waits. A proof must not pass over an error of these.
_OF_SYNCHRONIZATION = (
    "run-barrier-init",
    "run-barrier-lifetime",
    "run-barrier-overwritten",
    "run-convergence",
    "run-copy-wait",
    "run-cp-async",
    "run-expected-bytes",
    "run-hang",
    "run-phase-parity",
    "run-refill",
    "run-store-source",
    "run-tmem-order",
)


@dataclass(slots=True)
class _Range:
    """The addresses that one instruction accessed, from the lowest to the end of the highest."""

    start: int
    end: int

    def overlaps(self, other: _Range) -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(slots=True)
class GlobalMemoryUse:
    """The global memory that a cluster reads and writes, by instruction."""

    _read: dict[int, _Range] = field(default_factory=dict)
    _written: dict[int, _Range] = field(default_factory=dict)
    _shared: dict[int, None] = field(default_factory=dict)  # atomics, and accesses through which threads synchronize
    _edits_maps: dict[int, None] = field(default_factory=dict)

    def add_read(self, pc: int, addresses: Addresses, size_bytes: int) -> None:
        """An instruction reads `size_bytes` from each address on."""
        _extend(self._read, pc, addresses, size_bytes)

    def add_write(self, pc: int, addresses: Addresses, size_bytes: int) -> None:
        """An instruction writes `size_bytes` from each address on."""
        _extend(self._written, pc, addresses, size_bytes)

    def add_shared(self, pc: int) -> None:
        """An atomic, or an access through which threads synchronize."""
        self._shared[pc] = None

    def add_map_edit(self, pc: int) -> None:
        """A fence that hands on an edited tensor map."""
        self._edits_maps[pc] = None

    def reasons(self, place: Callable[[int], str]) -> Iterator[str]:
        """What a proof of the pipeline does not cover, with the places of instructions."""
        if self._shared:
            yield f"global memory that threads share by atomics or flags ({_places(self._shared, place)})"
        exchanged = [
            pc
            for pc, read in self._read.items()
            if any(pc not in self._shared and read.overlaps(written) for written in self._written.values())
        ]
        if exchanged:
            yield f"global memory that the kernel writes and reads ({_places(exchanged, place)})"
        if self._edits_maps:
            yield f"tensor maps that threads edit ({_places(self._edits_maps, place)})"


def describe_found(findings: Sequence[Violation], *, of_synchronization: bool) -> Iterator[str]:
    """The errors of the run, once for each rule: those about barriers and waits, or all others."""
    seen = set()
    for finding in findings:
        is_chosen = finding.severity == "error" and (finding.rule in _OF_SYNCHRONIZATION) == of_synchronization
        if is_chosen and finding.rule not in seen:
            seen.add(finding.rule)
            lines = finding.values.get("ptx_lines", ())
            where = f" at PTX line {lines[0]}" if lines else ""
            yield f"{finding.rule}, which the run found{where}"


def _extend(ranges: dict[int, _Range], pc: int, addresses: Addresses, size_bytes: int) -> None:
    if not len(addresses):
        return
    start = int(addresses.min())
    end = int(addresses.max()) + size_bytes
    known = ranges.get(pc)
    if known is None:
        ranges[pc] = _Range(start, end)
    else:
        known.start = min(known.start, start)
        known.end = max(known.end, end)


def _places(pcs: Sequence[int] | dict[int, None], place: Callable[[int], str]) -> str:
    names = list(dict.fromkeys(place(pc) for pc in pcs))
    more = ", …" if len(names) > _PLACES_NAMED else ""
    return ", ".join(names[:_PLACES_NAMED]) + more
