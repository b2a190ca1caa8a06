"""Communication of a cluster that a pipeline does not describe: data shared through global memory.

    st.global [out+4*i]                              is not read again     covered: nothing can go wrong
    st.global [part+4*i], then ld.global [part]      threads exchange data     not covered
    atom.global, ld.acquire, st.release              threads exchange data     not covered

A pipeline has the barriers, the copies and the shared memory of a cluster. Its proof does not cover words in global
memory through which threads exchange data. They are recognised by the range of addresses that an instruction accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tilescope.errors import Violation
from tilescope.machine.proof.recorder import GlobalMemoryUse

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


def describe_uncovered(use: GlobalMemoryUse, place: Callable[[int], str]) -> Iterator[str]:
    """What a proof of the pipeline does not cover, with the places of instructions."""
    if use.shared:
        yield f"global memory that threads share by atomics or flags ({_places(use.shared, place)})"
    exchanged = [
        pc
        for pc, read in use.read.items()
        if any(pc not in use.shared and read.overlaps(written) for written in use.written.values())
    ]
    if exchanged:
        yield f"global memory that the kernel writes and reads ({_places(exchanged, place)})"
    if use.map_edits:
        yield f"tensor maps that threads edit ({_places(use.map_edits, place)})"


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


def _places(pcs: Sequence[int] | dict[int, None], place: Callable[[int], str]) -> str:
    names = list(dict.fromkeys(place(pc) for pc in pcs))
    more = ", …" if len(names) > _PLACES_NAMED else ""
    return ", ".join(names[:_PLACES_NAMED]) + more
