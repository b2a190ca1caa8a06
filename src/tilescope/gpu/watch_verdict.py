"""What the rules say of a call that the driver has answered, and whether the two agree.

                  rules: sound           rules: broken
driver accepts    accepted               disagreement
driver refuses    disagreement           refused, and here is why
driver fails      failed: no context, …  failed
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from tilescope.arch import ARCH
from tilescope.card import CARD, REQUEST_BYTES
from tilescope.errors import TensorMapError, Violation, counted
from tilescope.gpu.watch_record import MOST_DIMS, POINTERS, Call
from tilescope.rule import RULES, rule
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.arguments import MapArguments, MapReport
from tilescope.tensor_map.decoding import decode_tensor_map
from tilescope.tensor_map.kinds import TensorMap

State = Literal["accepted", "refused", "disagreement", "failed"]
SUCCESS, INVALID_VALUE = 0, 1
DECODED_ARCH = "sm_90"  # whose descriptors decode_tensor_map reads
LEAST_SHARE = 0.95  # of the best measured bandwidth, below which a box is worth a note

NULL_POINTER = rule(
    "null-pointer",
    "Every pointer that a call of the driver takes is one that can be read.",
    source="CUDA driver API, cuTensorMapEncodeTiled",
    basis="measured",
    passing="ts.gpu.watch_verdict.null_pointers((), rank=2)",
    failing='ts.gpu.watch_verdict.null_pointers(("globalStrides",), rank=2)',
)
NARROW_ROWS = rule(
    "narrow-rows",
    "Boxes with rows of 128 bytes load fastest; narrower ones leave memory bandwidth unused.",
    source="TMA loads by box width on an H200",
    basis="measured",
    severity="note",
    passing='ts.gpu.watch_verdict.narrow_rows(ts.TensorMap("bf16", (64, 64), (128,), (64, 64)))',
    failing='ts.gpu.watch_verdict.narrow_rows(ts.TensorMap("bf16", (64, 64), (128,), (16, 64)))',
)

# CUresult: its name, and why a call that makes a map answers so. The arguments are not to blame.
RESULTS = {
    SUCCESS: ("CUDA_SUCCESS", ""),
    INVALID_VALUE: ("CUDA_ERROR_INVALID_VALUE", ""),
    3: ("CUDA_ERROR_NOT_INITIALIZED", "cuInit was not called."),
    4: ("CUDA_ERROR_DEINITIALIZED", "The driver is shutting down."),
    100: ("CUDA_ERROR_NO_DEVICE", "There is no GPU."),
    201: (
        "CUDA_ERROR_INVALID_CONTEXT",
        "This thread has no current context: call cuCtxSetCurrent or cudaSetDevice first.",
    ),
    709: ("CUDA_ERROR_CONTEXT_IS_DESTROYED", "The current context was destroyed."),
    801: ("CUDA_ERROR_NOT_SUPPORTED", "This GPU or driver does not make such maps."),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A call, what the rules say of it, and what follows from comparing that with the driver's answer."""

    call: Call
    report: MapReport
    state: State
    reason: str  # of a disagreement or a failure, in a sentence

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that it breaks, by name."""
        return tuple(violation.rule for violation in self.report.violations)

    @property
    def result_name(self) -> str:
        """The driver's answer as cuda.h names it."""
        name = RESULTS.get(self.call.result, ("", ""))[0]
        return f"{name} ({self.call.result})" if name else f"error {self.call.result}"

    @property
    def readdressed(self) -> AnyMap | None:
        """The map that cuTensorMapReplaceAddress was called for, where its bytes can be read."""
        return None if self.call.function.kind else _decoded(self.call)


def judged(call: Call) -> Verdict:
    """The verdict of the rules on a call, beside the driver's."""
    report = _report(call)
    if call.result == SUCCESS:
        if not report.accepted:
            return Verdict(call, report, "disagreement", "The driver accepted this map; the rules refuse it.")
        difference = _difference(call, report.tensor_map)
        return Verdict(call, report, "disagreement" if difference else "accepted", difference)
    if call.result != INVALID_VALUE:
        default = "The driver answers so before it looks at a map's arguments, or for reasons beside them."
        return Verdict(call, report, "failed", RESULTS.get(call.result, ("", default))[1])
    if not report.accepted:
        return Verdict(call, report, "refused", "")
    if not call.function.kind and call.arch != DECODED_ARCH:
        return Verdict(call, report, "failed", f"tilescope cannot read the maps of {call.arch or 'an unknown GPU'}.")
    return Verdict(call, report, "disagreement", "The driver refused this map; no rule that tilescope knows is broken.")


def asked_by(call: Call) -> MapArguments:
    """The arguments of a call that encodes a map, for its own architecture, or the newest known."""
    arguments = dict(call.arguments)
    if call.arch is not None and call.arch not in ARCH:
        arguments["arch"] = list(ARCH)[-1]
    return MapArguments.of(arguments)


def _report(call: Call) -> MapReport:
    if not call.function.kind:
        return _replaced(call)
    asked = asked_by(call)
    if not 0 < call.rank <= MOST_DIMS:
        fix = "Pass tensorRank = 2 for a matrix: the number of dimensions that the arrays have, 1 to 5."
        limit = "a map has 1 to 5 dimensions"
        return _refused(RULES["rank"].violation("rank", f"tensorRank = {call.rank}", limit, fix, rank=call.rank))
    absent = [name for name, value in call.arguments.items() if value is None]
    violations = [violation for violation in asked.check() if violation.argument not in absent]
    violations = [*null_pointers(call.unreadable, call.rank), *violations]
    if any(violation.severity == "error" for violation in violations):
        return _refused(*violations)
    tensor_map = asked.tensor_map()
    return MapReport(True, (*violations, *narrow_rows(tensor_map)), tensor_map)


def _refused(*violations: Violation) -> MapReport:
    return MapReport(False, violations, None)


def null_pointers(names: Iterable[str], rank: int) -> tuple[Violation, ...]:
    """The violations for pointers, by cuda.h's names, that a call passed and nobody can read."""
    entries = {pointer.name: counted(rank - pointer.fewer, "entry", "entries") for pointer in POINTERS.values()}
    fixes = {name: f"Pass an array of {count}." for name, count in entries.items()}
    fixes["tensorMap"] = "Pass the address of a CUtensorMap."
    return tuple(
        NULL_POINTER.violation(name, f"{name} points nowhere", "the driver reads it", fixes[name], rank=rank)
        for name in names
    )


def narrow_rows(tensor_map: AnyMap) -> tuple[Violation, ...]:
    """A note on boxes whose rows are too narrow for memory to deliver all it could."""
    if not isinstance(tensor_map, TensorMap) or tensor_map.interleave.slice_bytes or tensor_map.data_type.is_packed:
        return ()
    row_bytes = tensor_map.box[0] * tensor_map.data_type.bits // 8
    whole_bytes = tensor_map.dims[0] * tensor_map.data_type.bits // 8
    rates = CARD["H200"].tma
    assert rates is not None
    share = rates.load(min(row_bytes, REQUEST_BYTES)) / rates.fastest("load")
    if share >= LEAST_SHARE or whole_bytes <= row_bytes:
        return ()
    wide = REQUEST_BYTES * 8 // tensor_map.data_type.bits
    return (NARROW_ROWS.violation(
        "box[0]",
        f"box rows of {row_bytes} bytes",
        f"boxes of 128-byte rows loaded up to {1 / share:.1f} times as fast on an H200",
        f"Use box[0] = {wide} (128 bytes), with swizzle 128B if a tensor core reads the tile.",
        row_bytes=row_bytes, share=share,
    ),)  # fmt: skip


def _replaced(call: Call) -> MapReport:
    """What the rules say of a map's new address; a map that cannot be read has its address checked alone."""
    address = call.address
    if call.descriptor is None:
        return _refused(*null_pointers(call.unreadable, call.rank))
    before = _decoded(call)
    if before is None:
        violations = TensorMap.check("uint8", (16,), (), (16,), address=address)
        return MapReport(all(violation.severity != "error" for violation in violations), violations, None)
    try:
        after = before.replace(address=address)
    except TensorMapError as error:
        return _refused(*error.violations)
    return MapReport(True, after.findings, after)


def _decoded(call: Call) -> AnyMap | None:
    """The map that lies in memory after the call; None where its bytes are another architecture's, or no map."""
    if call.descriptor is None or call.arch != DECODED_ARCH:
        return None
    with suppress(TensorMapError):
        return decode_tensor_map(call.descriptor)
    return None


def _difference(call: Call, tensor_map: AnyMap | None) -> str:
    """How the 128 bytes that the driver wrote differ from what they should say; empty where they do not."""
    if call.descriptor is None or call.arch != DECODED_ARCH or tensor_map is None:
        return ""
    try:
        written = decode_tensor_map(call.descriptor)
    except TensorMapError as error:
        return f"The driver wrote bytes that tilescope cannot read: {error.violations[0]}"
    names = [name for name in tensor_map.readers if getattr(written, name, None) != getattr(tensor_map, name)]
    return f"The bytes that the driver wrote say something else: {', '.join(names)}." if names else ""
