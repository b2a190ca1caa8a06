"""The packets that the injection library sends for calls, and whether driver and rules agree about each call.

A packet comes for each call that differs from those before it. Two calls are alike when caller, result and all arguments
but the address are the same. Further calls of the kind are counted, in memory that the first packet of a process brings
along: their number is known however the process ends.

    packet = struct watch_record of watch_library/watch.h, its text cut to length
    text   = lines of fields separated by tabs:
             native  library  offset  symbol      who called, nearest first
             python  file     line    function    innermost first
             program name                         in the first packet of a process
             failed  reason                       CUPTI did not let us watch

                      rules: sound           rules: broken
    driver accepts    accepted               disagreement
    driver refuses    disagreement           refused, and here is why
    driver fails      failed: no context, …  failed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ctypes import Structure, c_int32, c_uint8, c_uint32, c_uint64, sizeof
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tilescope.arch import ARCH
from tilescope.card import CARD, REQUEST_BYTES
from tilescope.cuda_error import CUDA_ERROR, INVALID_VALUE, SUCCESS
from tilescope.errors import TensorMapError, Violation
from tilescope.rule import rule
from tilescope.tensor_map import Im2colMap, Im2colWideMap, TensorMap, decode_tensor_map
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.limits import MAX_RANK
from tilescope.tensor_map.map_arguments import MapArguments, MapReport
from tilescope.tensor_map.record import WIDE_MODES
from tilescope.tensor_map.rules.tensor_rules import RANK
from tilescope.tensor_map.text.argument_dump import TABLES, row_name
from tilescope.tensor_map.text.map_log import map_in_short

HELLO = 1  # kinds of packets
CALL = 2
LAUNCH = 3
SITES = 16384
State = Literal["accepted", "refused", "disagreement", "failed"]
DECODED_ARCH = "sm_90"  # whose descriptors decode_tensor_map reads
_ANY_MAP = {"data_type": "uint8", "dims": (16,), "strides_bytes": (), "box": (16,)}  # sound at any sound address
LEAST_SHARE = 0.95  # of the best measured bandwidth, below which a box is worth a note
NULL_POINTER = rule(
    "null-pointer",
    "Every pointer that is passed to the driver is readable.",
    argument="{pointer}",
    found="{pointer} is null, or cannot be read",
    limit="the driver reads it",
    fix="Pass an array of {entries:entry|entries}.",
    source="CUDA driver API, cuTensorMapEncodeTiled",
    basis="measured",
    passing="ts.gpu.watch.watch_call.null_pointers((), rank=2)",
    failing='ts.gpu.watch.watch_call.null_pointers(("globalStrides",), rank=2)',
)
NULL_MAP = NULL_POINTER.worded(fix="Pass the address of a CUtensorMap.")
NARROW_ROWS = rule(
    "narrow-rows",
    "Boxes with rows of 128 bytes load fastest; boxes with narrower rows leave memory bandwidth unused.",
    argument="box[0]",
    found="box rows of {row_bytes} bytes",
    limit="128-byte rows loaded {speedup:.1f} times as fast on an H200",
    fix="Use box[0] = {widest} (128 bytes), with swizzle 128B if a tensor core reads the tile.",
    source="TMA loads by box width on an H200",
    basis="measured",
    severity="note",
    passing='ts.gpu.watch.watch_call.narrow_rows(ts.TensorMap("bf16", (64, 64), (128,), (64, 64)))',
    failing='ts.gpu.watch.watch_call.narrow_rows(ts.TensorMap("bf16", (64, 64), (128,), (16, 64)))',
)
TENSOR_RANK = RANK.worded(
    argument="rank",
    found="tensorRank = {rank}",
    limit="a map has 1 to 5 dimensions",
    fix="Pass tensorRank = 2 for a matrix: the number of dimensions that the arrays have, 1 to 5.",
)

# Why a call that makes a map answers with this CUresult. The arguments are not to blame.
WHY_FAILED = {
    3: "cuInit was not called.",
    4: "The driver is shutting down.",
    100: "There is no GPU.",
    201: "This thread has no context: call cuCtxSetCurrent or cudaSetDevice first.",
    709: "The current context was destroyed.",
    801: "This GPU or driver does not make such maps.",
}


class Arguments(Structure):
    """Struct watch_arguments: what makes two maps the same wherever they lie."""

    _fields_ = (
        ("function", c_uint32),
        ("result", c_int32),
        ("capability", c_uint32),
        ("readable", c_uint32),
        ("data_type", c_uint32),
        ("rank", c_uint32),
        ("interleave", c_uint32),
        ("swizzle", c_uint32),
        ("l2_promotion", c_uint32),
        ("oob_fill", c_uint32),
        ("wide_mode", c_uint32),
        ("channels", c_uint32),
        ("pixels", c_uint32),
        ("lower_corner", c_int32 * 3),
        ("upper_corner", c_int32 * 3),
        ("box", c_uint32 * MAX_RANK),
        ("element_strides", c_uint32 * MAX_RANK),
        ("address_class", c_uint32),
        ("dims", c_uint64 * MAX_RANK),
        ("strides_bytes", c_uint64 * MAX_RANK),
    )


class Record(Structure):
    """Struct watch_record without its text."""

    _fields_ = (
        ("kind", c_uint32),
        ("pid", c_uint32),
        ("site", c_uint32),
        ("unused", c_uint32),
        ("arguments", Arguments),
        ("address", c_uint64),
        ("descriptor", c_uint8 * 128),
        ("text_bytes", c_uint32),
        ("also_unused", c_uint32),
    )


class Counts(Structure):
    """What a process counted: calls that found no room in the socket, and repeats of those that were sent."""

    _fields_ = (("lost", c_uint64), ("lost_refused", c_uint64), ("repeats", c_uint64 * SITES))


LARGEST_PACKET_BYTES = sizeof(Record) + 8192


class Pointer(NamedTuple):
    """A pointer that a call takes: its bit in `readable`, cuda.h's name, and how many entries fewer than the rank it has."""

    bit: int
    name: str
    fewer: int = 0


POINTERS = {
    "dims": Pointer(1, "globalDim"),
    "strides_bytes": Pointer(2, "globalStrides", 1),
    "box": Pointer(4, "boxDim"),
    "element_strides": Pointer(8, "elementStrides"),
    "lower_corner": Pointer(16, "pixelBoxLowerCorner", 2),
    "upper_corner": Pointer(32, "pixelBoxUpperCorner", 2),
    "tensor_map": Pointer(64, "tensorMap"),
}


class Function(NamedTuple):
    """A function of the driver: the class of the map that it encodes (None: it changes a map), and both in short."""

    name: str
    map_class: type[AnyMap] | None
    short: str


# as watch.h numbers them
FUNCTIONS = (
    Function("cuTensorMapEncodeTiled", TensorMap, "tiled"),
    Function("cuTensorMapEncodeIm2col", Im2colMap, "im2col"),
    Function("cuTensorMapEncodeIm2colWide", Im2colWideMap, "im2col-wide"),
    Function("cuTensorMapReplaceAddress", None, "address replaced"),
)


class Frame(NamedTuple):
    """One call on the way to the driver: in a library at an offset, or in a Python file at a line."""

    file: str
    place: int  # offset or line
    function: str

    @property
    def python_place(self) -> str:
        """The last folder, the file and the line."""
        return f"{'/'.join(Path(self.file).parts[-2:])}:{self.place}"


class Call:
    """A packet: one call of the driver, its arguments as tilescope names them, its result, and its callers."""

    def __init__(self, data: bytes) -> None:
        self.record = Record.from_buffer_copy(data)
        text = data[sizeof(Record) :].decode("utf-8", errors="replace")
        self._lines = [line.split("\t") for line in text.split("\n")]
        self.native = self._frames("native", base=16)
        self.python = self._frames("python", base=10)
        passed = self.record.arguments
        self.function = FUNCTIONS[passed.function]
        self.result = passed.result
        self.rank: int = passed.rank
        self.arch = f"sm_{passed.capability}" if passed.capability else None
        has_map = passed.readable & POINTERS["tensor_map"].bit
        self.descriptor = bytes(self.record.descriptor) if has_map else None  # after the call
        arrays = self._arrays()
        absent = [name for name, value in arrays.items() if value is None]
        if self.descriptor is None and (self._is_rank or self.function.map_class is None):
            absent.append("tensor_map")
        self.unreadable = tuple(POINTERS[name].name for name in absent)  # as cuda.h calls them
        self.arguments = self._arguments(arrays)

    @property
    def _is_rank(self) -> bool:
        """Whether a map can have this rank; the arrays of another were not read."""
        return 0 < self.rank <= MAX_RANK

    def _frames(self, word: str, base: int) -> tuple[Frame, ...]:
        """The callers in lines that begin with a word; their places are numbers of this base."""
        lines = [line for line in self._lines if line[0] == word and len(line) == 4]
        return tuple(Frame(file, int(place, base), function) for _, file, place, function in lines)

    def _arrays(self) -> dict[str, tuple[int, ...] | None]:
        """The arrays that were passed, as long as the rank implies; None if one could not be read."""
        encoded = self.function.map_class
        arrays: dict[str, tuple[int, ...] | None] = {}
        if encoded is None or not self._is_rank:
            return arrays
        passed = self.record.arguments
        for name, pointer in POINTERS.items():
            if name in encoded.readers:
                count = max(0, self.rank - pointer.fewer)
                is_readable = not count or passed.readable & pointer.bit
                arrays[name] = tuple(getattr(passed, name)[:count]) if is_readable else None
        return arrays

    def _arguments(self, arrays: Mapping[str, object]) -> dict[str, Any]:
        """The arguments of the map as tilescope names them; of a call that changes one, those that it had."""
        passed = self.record.arguments
        options = {name: row_name(table, getattr(passed, name)) for name, table in TABLES.items()}
        values = {
            "data_type": options.pop("data_type"),
            **arrays,
            "channels_per_pixel": passed.channels,
            "pixels_per_column": passed.pixels,
            "lower_width": passed.lower_corner[0],
            "upper_width": passed.upper_corner[0],
            "mode": dict(enumerate(WIDE_MODES)).get(passed.wide_mode, f"number {passed.wide_mode}"),
            **options,
            "address": self.record.address,
        }
        if self.arch:
            values["arch"] = self.arch
        encoded = self.function.map_class
        if encoded is not None:
            return {"kind": encoded.kind} | {name: value for name, value in values.items() if name in encoded.readers}
        before = self.decoded
        return ({} if before is None else before.to_dict()) | {"address": self.record.address}

    def told(self, word: str) -> str | None:
        """The rest of the line that begins with this word."""
        return next((fields[0] for name, *fields in self._lines if name == word and fields), None)

    @property
    def short(self) -> str:
        """The map in a few words, without its address: "tiled 4096 x 4096 bfloat16, box 64 x 64, swizzle 128B"."""
        if self.function.map_class is None:
            return self.function.short
        kind = self.function.short
        return map_in_short(kind if self.arguments.get("dims") else f"{kind} of rank {self.rank}", self.arguments)

    @property
    def caller(self) -> str:
        """The library that called, and the Python line if there is one."""
        library = Path(self.native[0].file).name if self.native else "unknown"
        return f"{library}, {self.python[0].python_place}" if self.python else library

    @property
    def asked(self) -> MapArguments:
        """The arguments of the map for its own architecture, or the newest known; of an invalid map only the address."""
        arguments = self.arguments if "kind" in self.arguments else _ANY_MAP | self.arguments
        if self.arch is not None and self.arch not in ARCH:
            newest = list(ARCH)[-1]
            arguments = arguments | {"arch": newest}
        return MapArguments.of(arguments)

    @property
    def decoded(self) -> AnyMap | None:
        """The map in memory after the call; None if its bytes are another architecture's, or not a map."""
        if self.descriptor is None or self.arch != DECODED_ARCH:
            return None
        try:
            return decode_tensor_map(self.descriptor)
        except TensorMapError:
            return None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A call, its violations, and the comparison with the driver's result."""

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
        error = CUDA_ERROR.get(self.call.result)
        return f"{error.name} ({error.number})" if error else f"error {self.call.result}"


def judge_call(call: Call) -> Verdict:
    """Check a call by the rules and compare the verdict with the driver's."""
    report = _report(call)
    if call.result == SUCCESS:
        if not report.accepted:
            return Verdict(call, report, "disagreement", "The driver accepted this map; the rules refuse it.")
        difference = _difference(call, report.tensor_map)
        return Verdict(call, report, "disagreement" if difference else "accepted", difference)
    if call.result != INVALID_VALUE:
        default = "The driver gives this answer before it checks a map's arguments, or for another reason."
        return Verdict(call, report, "failed", WHY_FAILED.get(call.result, default))
    if not report.accepted:
        return Verdict(call, report, "refused", "")
    if call.function.map_class is None and call.arch != DECODED_ARCH:
        return Verdict(call, report, "failed", f"tilescope cannot read the maps of {call.arch or 'an unknown GPU'}.")
    return Verdict(call, report, "disagreement", "The driver refused this map; no rule that tilescope knows is broken.")


def _report(call: Call) -> MapReport:
    if call.function.map_class and not 0 < call.rank <= MAX_RANK:
        return MapReport(False, (TENSOR_RANK.violation(rank=call.rank),), None)
    checked = [violation for violation in call.asked.check() if call.arguments.get(violation.argument, "") is not None]
    violations = (*null_pointers(call.unreadable, call.rank), *checked)
    if any(violation.severity == "error" for violation in violations):
        return MapReport(False, violations, None)
    tensor_map = call.asked.tensor_map() if "kind" in call.arguments else None
    notes = narrow_rows(tensor_map) if call.function.map_class else ()
    return MapReport(True, (*violations, *notes), tensor_map)


def null_pointers(names: Iterable[str], rank: int) -> tuple[Violation, ...]:
    """The violations for pointers, by cuda.h's names, that a call passed and the driver cannot read."""
    fewer = {pointer.name: pointer.fewer for pointer in POINTERS.values()}
    violations = []
    for name in names:
        if name == POINTERS["tensor_map"].name:
            violations.append(NULL_MAP.violation(pointer=name, rank=rank))
        else:
            violations.append(NULL_POINTER.violation(pointer=name, rank=rank, entries=rank - fewer[name]))
    return tuple(violations)


def narrow_rows(tensor_map: AnyMap | None) -> tuple[Violation, ...]:
    """A note on boxes whose rows are too narrow for memory to deliver all it could."""
    if not isinstance(tensor_map, TensorMap) or tensor_map.interleave.slice_bytes or tensor_map.data_type.is_packed:
        return ()
    row_bytes = tensor_map.box[0] * tensor_map.data_type.bits // 8
    rates = CARD["H200"].tma
    assert rates is not None
    share = rates.load(min(row_bytes, REQUEST_BYTES)) / rates.fastest("load")
    if share >= LEAST_SHARE or tensor_map.dims[0] <= tensor_map.box[0]:
        return ()
    widest = REQUEST_BYTES * 8 // tensor_map.data_type.bits
    return (NARROW_ROWS.violation(row_bytes=row_bytes, share=share, speedup=1 / share, widest=widest),)


def _difference(call: Call, tensor_map: AnyMap | None) -> str:
    """How the 128 bytes that the driver wrote differ from the expected ones; empty if they do not."""
    if call.descriptor is None or call.arch != DECODED_ARCH or tensor_map is None:
        return ""
    try:
        written = decode_tensor_map(call.descriptor)
    except TensorMapError as error:
        return f"The driver wrote bytes that tilescope cannot read: {error.violations[0]}"
    names = [name for name in tensor_map.readers if getattr(written, name, None) != getattr(tensor_map, name)]
    return f"The bytes that the driver wrote say something else: {', '.join(names)}." if names else ""
