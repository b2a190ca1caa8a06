"""A race found and mended: the finding says which two instructions meet, and where a barrier goes.

Each thread stores a number to shared memory and loads the one of its mirror image, which another warp stored. On a card the
numbers may well be right. The run here looks at the order of accesses, whatever the numbers are.

    $ python examples/race.py
    run-race: at PTX line 21 thread (0, 0, 0) of block (0, 0, 0) reads shared address 0x5fc (tile+508),
    which thread (127, 0, 0) writes at PTX line 19 (st.shared.b32 [%r4], %r2).
    Put `bar.sync 0;` (__syncthreads()) before PTX line 21 (ld.shared.b32 %r6, [%r5+508]): tried, and
    this finding is gone.
    with bar.sync 0; before line 21: finished, 0 findings
"""

import textwrap

import numpy as np

import tilescope as ts

PTX = """
.version 8.0
.target sm_90
.address_size 64

.visible .entry mirrored(.param .u64 a)
{
    .shared .align 4 .b8 tile[512];
    .reg .b32 %r<7>;
    .reg .b64 %rd<4>;

    ld.param.u64 %rd1, [a];
    mov.u32 %r1, %tid.x;                      // 128 threads
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.b32 %r2, [%rd3];
    mov.u32 %r3, tile;
    mad.lo.u32 %r4, %r1, 4, %r3;
    st.shared.b32 [%r4], %r2;
    mad.lo.u32 %r5, %r1, -4, %r3;
    ld.shared.b32 %r6, [%r5+508];
    st.global.b32 [%rd3], %r6;
    ret;
}
"""


def run(ptx):
    numbers = np.arange(128, dtype=np.int32)
    return ts.Kernel(ptx).run(grid=1, block=128, args=[numbers])


race = run(PTX).findings[0]
print(textwrap.fill(f"{race.rule}: {race.found}.", 100))
print(textwrap.fill(race.fix, 100))

place = race.change["insert_ptx"][0]  # the cure as data: the text, and the line that it goes before or behind
lines = PTX.splitlines()
lines.insert(place["line"] - 1, place["text"])
mended = run("\n".join(lines))
print(f"with {place['text']} before line {place['line']}: {mended.outcome}, {len(mended.findings)} findings")
