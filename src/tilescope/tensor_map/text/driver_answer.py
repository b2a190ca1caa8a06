"""Values of a dump besides the arguments of a map: the address of the map itself, and the driver's result.

driver's answer           rules             what follows
1, invalid value          one is broken     that rule is the reason
1, invalid value          none is broken    an older driver (a null address was refused once), or another call
700 to 719, a fault       whatever          an earlier kernel faulted: the answer is not about these arguments
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilescope.cuda_error import CUDA_ERROR
from tilescope.errors import Violation, Wording
from tilescope.rule import rule
from tilescope.tensor_map.checking import TMA_ARCHITECTURES
from tilescope.tensor_map.limits import MAP_ALIGNMENT_BYTES
from tilescope.tensor_map.map_object import MAP_ALIGNMENTS

_INVALID_VALUE = 1
_NO_CONTEXT = 201
_FAULTED = range(700, 720)  # what a kernel leaves behind for every later call
_NOT_SUPPORTED = 801
# The driver's results by CUresult: our name, and how a dump may spell it.
_RESULTS = {
    _INVALID_VALUE: ("invalid value", "invalid argument", "invalid_value"),
    700: ("illegal address", "illegal memory access", "illegal_address"),
    715: ("illegal instruction", "illegal_instruction"),
    716: ("misaligned address", "misaligned"),
    719: ("unspecified launch failure", "launch failure", "launch_failed"),
    _NOT_SUPPORTED: ("not supported", "not_supported"),
    _NO_CONTEXT: ("invalid device context", "context"),
    0: ("success", "no error"),
}
_DUMP = (
    "TMA Desc Addr:   {at}\nformat         6\ndim            3\ngmem_address   0x7f5a20000000\nglobalDim      (1024,1024,1,1,1)\n"
    "globalStrides  (2,2048,2097152,0,0)\nboxDim         (64,128,1,1,1)\nelementStrides (1,1,1,1,1)\ninterleave     0\n"
    "swizzle        3\nl2Promotion    0\noobFill        0\nError: Failed to initialize the TMA descriptor {result}\n"
)
_SAID = "ts.tensor_map.dumped_arguments({!r})[0].check()"
_SOUND = _SAID.format(_DUMP.format(at="0x7ffd7d2800c0", result=0))

DRIVER_RESULT = rule(
    "driver-result",
    "If a dump contains the driver's result, it is 0. The meaning of another result depends on whether a rule is "
    "broken.",
    argument="tensor_map",
    found="the driver answered {result}[[, {words}]]",
    limit="0 is success; no rule explains this answer",
    fix="`tilescope explain {result}` says what it is.",
    source="cuda.h, CUresult; NVIDIA/cutlass#947 (1, an old driver and a null address), vllm-project/vllm#13961 (715, after an "
    "earlier fault)",
    basis="measured",
    subjects=("paste",),
    architectures=TMA_ARCHITECTURES,
    passing=_SOUND,
    failing=_SAID.format(_DUMP.format(at="0x7ffd7d2800c0", result=715)),
)
_UNKNOWN_RESULT = DRIVER_RESULT.worded(
    limit="0 is success; every other answer is a CUresult", fix="Check how the number was printed."
)
_AFTER_FAULT = DRIVER_RESULT.worded(
    limit="an earlier kernel of the context faulted, and every later call answers so, whatever its arguments",
    fix="Find that kernel with compute-sanitizer or CUDA_LAUNCH_BLOCKING=1; these arguments break no rule.",
)
_AFTER_FAULT_AND_BROKEN = _AFTER_FAULT.worded(
    fix="Find that kernel with compute-sanitizer or CUDA_LAUNCH_BLOCKING=1; fix the rules above too."
)
_BROKEN = DRIVER_RESULT.worded(limit="the broken rules are the reason", fix="Do what they say.")
_NULL_ADDRESS = DRIVER_RESULT.worded(
    limit="driver 580 takes these arguments, the null address too; older drivers refuse it",
    fix="Pass the device pointer, or update the driver.",
)
_SOUND_ARGUMENTS = DRIVER_RESULT.worded(
    limit="driver 580 takes these arguments",
    fix="Update the driver, which may be older than what they need; or check that the dump shows what was passed.",
)
_WITHOUT_TMA = DRIVER_RESULT.worded(
    limit="the device or the driver has no TMA", fix="Use sm_90 or later and a driver of CUDA 12."
)
_WITHOUT_CONTEXT = DRIVER_RESULT.worded(
    limit="the call needs a current context",
    fix="Call cudaFree(0) or cuCtxSetCurrent in this thread before it.",
)
MAP_ADDRESS = rule(
    "map-address",
    f"The address of the tensor map is a multiple of 64 bytes; {MAP_ALIGNMENTS}.",
    argument="tensor_map",
    found="TMA Desc Addr {address:#x}, {beyond_bytes} bytes past {nearest:#x}",
    limit="a multiple of 64 bytes; some drivers encode it anywhere, and a copy through it from global memory ends in error 716, "
    "misaligned address",
    fix=f"Leave the alignment to the type, or allocate it at a multiple of 128: {MAP_ALIGNMENTS}.",
    source="cuda.h, cuTensorMapEncodeTiled: tensorMap is aligned to 64 bytes; cuda.h of CUDA 12.9 and 13.0, CUtensorMap_st; "
    "driver 580 encodes it anywhere, and a copy through a map off 64 bytes in global memory then faults on an H200",
    basis="measured",
    severity="warning",
    subjects=("paste",),
    architectures=TMA_ARCHITECTURES,
    passing=_SOUND,
    failing=_SAID.format(_DUMP.format(at="0x7ffd7d2800d0", result=0)),
    code=716,
)
DUMP_TYPE = rule(
    "dump-type",
    "A dump contains the type of the elements. If it contains only their size, the map is checked with a type of that "
    "size.",
    argument="data_type",
    found="the dump does not contain the type",
    limit="{type_from} implies {element_bytes:byte} per element, which is enough for most rules",
    fix="Pass the type (--type) if rules about NaN fill or 4-bit values matter.",
    source="what flash-attention and DeepGEMM print; most rules need only the size",
    basis="measured",
    severity="note",
    subjects=("paste",),
    architectures=TMA_ARCHITECTURES,
    passing=_SOUND,
    failing=_SAID.format("globalDim (64,64,1) globalStrides (2,128,0) boxDim (64,8,1) swizzle 3"),
)


def answer_code(words: str) -> int | None:
    """The CUresult that a dump prints, as its number or in the driver's words; None for words that are none.

    >>> answer_code("1"), answer_code("an illegal memory access was encountered"), answer_code("CUDA_ERROR_NOT_SUPPORTED")
    (1, 700, 801)
    """
    number = re.match(r"\s*(\d{1,4})\b", words)
    if number:
        return int(number[1])
    message = words.casefold()
    for code, spellings in _RESULTS.items():
        if any(spelling in message for spelling in spellings):
            return code
    return None


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """The address of the map (`TMA Desc Addr`) and the driver's result; None for a value that a dump lacks."""

    map_address: int | None = None
    result: int | None = None
    type_from: str = ""  # the source of an element's size, if the dump lacks the type
    element_bytes: int = 0

    @property
    def is_misaligned(self) -> bool:
        """Whether copies fault because of the map's own address."""
        return self.map_address is not None and self.map_address % MAP_ALIGNMENT_BYTES != 0

    def violations(self, violations: Sequence[Violation], address: object) -> Iterator[Violation]:
        """What follows for a map at a global address, in whose arguments the rules found these violations.

        >>> [answer.found for answer in DriverAnswer(0x7FFD7D2800C8, 715).violations((), 0x1000)]
        ['TMA Desc Addr 0x7ffd7d2800c8, 8 bytes past 0x7ffd7d2800c0', 'the driver answered 715, illegal instruction']
        """
        if self.map_address is not None:
            beyond = self.map_address % MAP_ALIGNMENT_BYTES
            if beyond:
                nearest = self.map_address - beyond
                yield MAP_ADDRESS.violation(address=self.map_address, beyond_bytes=beyond, nearest=nearest)
        if self.type_from:
            yield DUMP_TYPE.violation(type_from=self.type_from, element_bytes=self.element_bytes)
        if self.result:
            is_broken = any(violation.severity == "error" for violation in violations)
            wording = _wording_of(self.result, is_broken=is_broken, is_null=address == 0)
            yield wording.violation(result=self.result, words=_words(self.result))


def _wording_of(result: int, *, is_broken: bool, is_null: bool) -> Wording:
    """What an answer means and what to do, by what else is known of the call."""
    if result in _FAULTED:
        return _AFTER_FAULT_AND_BROKEN if is_broken else _AFTER_FAULT
    if result == _INVALID_VALUE:
        if is_broken:
            return _BROKEN
        return _NULL_ADDRESS if is_null else _SOUND_ARGUMENTS
    if result == _NOT_SUPPORTED:
        return _WITHOUT_TMA
    if result == _NO_CONTEXT:
        return _WITHOUT_CONTEXT
    return DRIVER_RESULT.wording if result in CUDA_ERROR else _UNKNOWN_RESULT


def _words(result: int) -> str:
    """What an answer is called."""
    if result not in CUDA_ERROR:
        return "unknown: no CUDA error has that number"
    if result in _RESULTS:
        return _RESULTS[result][0]
    return CUDA_ERROR[result].words
