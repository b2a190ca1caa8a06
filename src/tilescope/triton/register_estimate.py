"""An estimate of the registers of a kernel's thread: the PTX does not contain the allocation of ptxas.

The estimate is the largest number of 32-bit registers whose first and last mention in the text enclose one line, and a
few for addresses. ptxas allocates registers in groups of 8, and at most 255 per thread.
"""

from __future__ import annotations

import re
from collections import Counter

from tilescope.arithmetic import rounded_up

REGISTERS_PER_SM = 65536
_MOST_PER_THREAD = 255
_GROUP = 8
_ALWAYS = 10  # addresses, the stack, special registers
_REGISTER = re.compile(r"%(?P<kind>rd|rs|r|fd|f|h|hh|b|rq)\d+\b")
_WORDS = {"rd": 2, "fd": 2, "rq": 4}  # of 32 bits; predicates have separate registers


def estimate_registers(ptx: str, threads: int) -> int:
    """Registers of a thread; at most as many as a block of that many threads can have.

    >>> estimate_registers("mov.b32 %r1, 0; mov.b64 %rd1, 0; st.global.b32 [%rd1], %r1;", 128)
    16
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    words: dict[str, int] = {}
    for number, line in enumerate(ptx.splitlines()):
        for match in _REGISTER.finditer(line):
            name = match[0]
            first.setdefault(name, number)
            last[name] = number
            words[name] = _WORDS.get(match["kind"], 1)
    changes: Counter[int] = Counter()
    for name, start in first.items():
        changes[start] += words[name]
        changes[last[name] + 1] -= words[name]
    live = 0
    most = 0
    for number in sorted(changes):
        live += changes[number]
        most = max(most, live)
    room = REGISTERS_PER_SM // max(threads, 1) // _GROUP * _GROUP
    return min(rounded_up(most + _ALWAYS, _GROUP), _MOST_PER_THREAD, max(room, _GROUP))
