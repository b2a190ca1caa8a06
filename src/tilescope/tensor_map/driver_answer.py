"""What a dump says beside the arguments of a map, where the map itself lies and what the driver answered, and what it leaves out.

driver's answer           rules             what follows
1, invalid value          one is broken     that rule is the reason
1, invalid value          none is broken    an older driver (a null address was refused once), or another call
700 to 719, a fault       whatever          an earlier kernel faulted: the answer is not about these arguments
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilescope.errors import FAULTS, Violation, counted
from tilescope.tensor_map.checking import map_rule

MAP_ALIGNMENT_BYTES = 64
INVALID_VALUE, _INVALID_CONTEXT, _NOT_SUPPORTED = 1, 201, 801
_RESULTS = {
    INVALID_VALUE: "invalid value",
    _INVALID_CONTEXT: "invalid device context",
    700: "illegal address",
    _NOT_SUPPORTED: "not supported",
} | {code: kind.fault for code, kind in FAULTS.items()}
_FAULTED = range(700, 720)  # what a kernel leaves behind for every later call

_DUMP = (
    "TMA Desc Addr:   {at}\nformat         6\ndim            3\ngmem_address   0x7f5a20000000\nglobalDim      (1024,1024,1,1,1)\n"
    "globalStrides  (2,2048,2097152,0,0)\nboxDim         (64,128,1,1,1)\nelementStrides (1,1,1,1,1)\ninterleave     0\n"
    "swizzle        3\nl2Promotion    0\noobFill        0\nError: Failed to initialize the TMA descriptor {result}\n"
)
_SAID = "ts.tensor_map.dumped_arguments({!r})[0].check()"
_SOUND = _SAID.format(_DUMP.format(at="0x7ffd7d2800c0", result=0))
DRIVER_RESULT = map_rule(
    "driver-result",
    "The driver's answer, where a dump has it, is 0; what another answer says depends on whether a rule is broken.",
    source="cuda.h, CUresult; NVIDIA/cutlass#947 (1, an old driver and a null address), vllm-project/vllm#13961 (715, after an "
    "earlier fault)",
    subjects=("paste",),
    passing=_SOUND,
    failing=_SAID.format(_DUMP.format(at="0x7ffd7d2800c0", result=715)),
)
MAP_ADDRESS = map_rule(
    "map-address",
    "The tensor map itself lies at a multiple of 64 bytes.",
    severity="warning",
    source="cuda.h, cuTensorMapEncodeTiled: tensorMap is aligned to 64 bytes; driver 580 encodes it anywhere, and a copy through a map "
    "off 64 bytes in global memory then faults on an H200",
    subjects=("paste",),
    code=716,
    passing=_SOUND,
    failing=_SAID.format(_DUMP.format(at="0x7ffd7d2800d0", result=0)),
)
DUMP_TYPE = map_rule(
    "dump-type",
    "A dump says the type of the elements; where it has their size alone, a type of that size is checked.",
    severity="note",
    source="what flash-attention and DeepGEMM print; most rules ask for the size alone",
    subjects=("paste",),
    passing=_SOUND,
    failing=_SAID.format("globalDim (64,64,1) globalStrides (2,128,0) boxDim (64,8,1) swizzle 3"),
)
# The driver's words for its answers, and the parts of their names that tell them apart.
_WORDS = {
    **dict.fromkeys(("invalid argument", "invalid_value"), INVALID_VALUE),
    **dict.fromkeys(("illegal memory access", "illegal_address"), 700),
    **dict.fromkeys(("illegal instruction", "illegal_instruction"), 715),
    "misaligned": 716,
    **dict.fromkeys(("launch failure", "launch_failed"), 719),
    **dict.fromkeys(("not supported", "not_supported"), _NOT_SUPPORTED),
    "context": _INVALID_CONTEXT,
    **dict.fromkeys(("success", "no error"), 0),
}
# What an answer means and what to do, by the answer and what else is known of the call.
_FOLLOWS = {
    (INVALID_VALUE, "broken"): ("the broken rules are the reason", "Do what they say."),
    (INVALID_VALUE, "null"): (
        "driver 580 takes these arguments, the null address too; older drivers refuse it",
        "Pass the device pointer, or update the driver.",
    ),
    (INVALID_VALUE, ""): (
        "driver 580 takes these arguments",
        "Update the driver, which may be older than what they need; or check that the dump shows what was passed.",
    ),
    (_NOT_SUPPORTED, ""): (
        "the device or the driver has no TMA",
        "Use sm_90 or later and a driver of CUDA 12.",
    ),
    (_INVALID_CONTEXT, ""): (
        "the call needs a current context",
        "Call cudaFree(0) or cuCtxSetCurrent in this thread before it.",
    ),
}


def answer_code(words: str) -> int | None:
    """The CUresult that a dump prints, as its number or in the driver's words; None for words that are none.

    >>> answer_code("1"), answer_code("an illegal memory access was encountered"), answer_code("CUDA_ERROR_NOT_SUPPORTED")
    (1, 700, 801)
    """
    number = re.match(r"\s*(\d{1,4})\b", words)
    if number is not None:
        return int(number[1])
    return next((code for said, code in _WORDS.items() if said in words.casefold()), None)


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """Where the map lies (`TMA Desc Addr`) and what the driver answered; None for what a dump does not say."""

    map_address: int | None = None
    result: int | None = None
    type_from: str = ""  # what told the size of an element, where the dump does not say the type
    element_bytes: int = 0

    def violations(self, violations: Sequence[Violation], address: Any) -> list[Violation]:
        """What follows for a map at a global address, in whose arguments the rules found these violations.

        >>> [answer.found for answer in DriverAnswer(0x7FFD7D2800C8, 715).violations((), 0x1000)]
        ['TMA Desc Addr 0x7ffd7d2800c8, 8 bytes past 0x7ffd7d2800c0', 'the driver answered 715, illegal instruction']
        """
        said = []
        if self.map_address is not None and (beyond := self.map_address % MAP_ALIGNMENT_BYTES):
            nearest = self.map_address - beyond
            found = f"TMA Desc Addr {self.map_address:#x}, {beyond} bytes past {nearest:#x}"
            limit = (
                "a multiple of 64 bytes; some drivers encode it anywhere, and a copy through it from global memory ends in "
                "error 716, misaligned address"
            )
            numbers = {"address": self.map_address, "beyond_bytes": beyond, "nearest": nearest}
            fix = "Declare the map alignas(64), or allocate it so."
            said.append(MAP_ADDRESS.violation("tensor_map", found, limit, fix, **numbers))
        if self.type_from:
            size = counted(self.element_bytes, "byte")
            limit = f"{self.type_from} says {size} an element, and most rules ask for no more"
            fix = "Give the type (--type) where rules of NaN fill or of 4-bit values matter."
            found = "the dump does not say the type"
            said.append(DUMP_TYPE.violation("data_type", found, limit, fix, element_bytes=self.element_bytes))
        if self.result:
            found = f"the driver answered {self.result}" + (
                f", {_RESULTS[self.result]}" if self.result in _RESULTS else ""
            )
            is_broken = any(violation.severity == "error" for violation in violations)
            limit, fix = self._what_follows(is_broken, address)
            said.append(DRIVER_RESULT.violation("tensor_map", found, limit, fix, result=self.result))
        return said

    def _what_follows(self, is_broken: bool, address: Any) -> tuple[str, str]:
        """What the driver's answer and the rules say together: the reason, and what to do."""
        if self.result in _FAULTED:
            both = "mend the rules above too" if is_broken else "these arguments break no rule"
            return (
                "an earlier kernel of the context faulted, and every later call answers so, whatever its arguments",
                f"Find that kernel with compute-sanitizer or CUDA_LAUNCH_BLOCKING=1; {both}.",
            )
        unknown = "0 is success; no rule explains this answer", f"Look up CUresult {self.result} in cuda.h."
        more = "broken" if is_broken else "null" if address == 0 else ""
        return _FOLLOWS.get((self.result or 0, more)) or _FOLLOWS.get((self.result or 0, ""), unknown)
