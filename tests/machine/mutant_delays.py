"""A kernel that sleeps here and there, so that a card shows orders it would seldom take.

Behind every barrier, wait, arrival, fence and copy, and at the start, a warp may sleep for some microseconds. Which warps do
is a hash of the place, the warp, the block, the clock, and the constant `tilescope_delays` of the module, which is set
before a launch; where it is 0, nobody sleeps.
"""

import re

from tilescope.machine.edits.kernel_text import KernelText
from tilescope.ptx.editing import Edit, apply_edits

SITES = (
    "bar.",
    "barrier.",
    "mbarrier.init",
    "mbarrier.arrive",
    "mbarrier.expect_tx",
    "cp.async",
    "cp.reduce",
    "st.async",
    "red.async",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "fence.",
    "membar.",
)
SEED = "tilescope_delays"
LONGEST_NS = 0xFFF  # a card may sleep for twice as long


def sleep(site):
    """A block of instructions in which one warp in four sleeps."""
    place = site * 0x9E3779B1 & 0x7FFFFFFF
    return (
        " { .reg .b32 ts_x, ts_y; .reg .pred ts_p, ts_q;"
        f" ld.const.u32 ts_x, [{SEED}]; setp.ne.u32 ts_p, ts_x, 0;"
        " mov.u32 ts_y, %clock; shr.u32 ts_y, ts_y, 6; xor.b32 ts_x, ts_x, ts_y;"
        " mov.u32 ts_y, %warpid; mad.lo.u32 ts_x, ts_y, 0x5EBCA6B1, ts_x;"
        " mov.u32 ts_y, %ctaid.x; mad.lo.u32 ts_x, ts_y, 0x27D4EB2F, ts_x;"
        f" add.u32 ts_x, ts_x, {place}; mul.lo.u32 ts_x, ts_x, 0x2C1B3C6D;"
        " shr.u32 ts_y, ts_x, 15; xor.b32 ts_x, ts_x, ts_y; mul.lo.u32 ts_x, ts_x, 0x297A2D39;"
        " shr.u32 ts_y, ts_x, 30; setp.eq.u32 ts_q, ts_y, 0; and.pred ts_p, ts_p, ts_q;"
        f" and.b32 ts_x, ts_x, {LONGEST_NS}; @ts_p nanosleep.u32 ts_x; }} "
    )


def delayed(kernel):
    """The text of a kernel with places to sleep; every line keeps its number."""
    functions = tuple(kernel.module.functions[name] for name in kernel.program.functions)
    text = KernelText(kernel.ptx, kernel.module, functions)
    loops = [loop for loops in text.wait_loops.values() for loop in loops]
    polls = {poll.start for loop in loops for poll in loop.polls}
    back = {branch.start for loop in loops for branch in loop.branches}
    sites = [one for one in text.instructions if one.start in back or one.opcode.startswith(SITES)]
    edits = [Edit(end, end, sleep(site)) for site, end in enumerate(_ends(text, sites, polls), 1)]
    start = text.instructions[0].start
    edits.append(Edit(start, start, sleep(0)))
    head = re.search(r"\.address_size\s+64", text.text.code) or re.search(r"\.target\s+\w+", text.text.code)
    edits.append(Edit(head.end(), head.end(), f" .visible .const .align 4 .u32 {SEED}; "))
    return apply_edits(kernel.ptx, edits)


def _ends(text, sites, polls):
    """Where instructions end, each once."""
    return sorted({text.statement(one).end for one in sites if one.start not in polls})
