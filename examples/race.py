"""A race found and mended: the finding says which two lines meet, and where a barrier goes.

The kernel is reverse.cu, as nvcc compiles it. Each thread stores a number to shared memory and loads the one of its mirror
image, which another warp stored. On a card the numbers may well be right. The run here looks at the order of accesses.

    $ python examples/race.py
    run-race: at reverse.cu:7 thread (0, 0, 0) of block (0, 0, 0) reads shared address 0x4fc (tile+252),
    which thread (63, 0, 0) writes at reverse.cu:6, PTX line 37 (st.shared.f32 [%r4], %f1).
    Put `__syncthreads()` (`bar.sync 0;`) before reverse.cu:7, PTX line 43 (ld.shared.f32 %f2, [%r8]):
    tried, and this finding is gone.
    with bar.sync 0; before PTX line 43: finished, 0 findings
"""

import textwrap
from pathlib import Path

import numpy as np

import tilescope as ts

PTX = Path(__file__).with_name("reverse.ptx").read_text("utf-8")


def run(ptx):
    numbers = np.arange(64, dtype=np.float32)
    return ts.Kernel(ptx).run(grid=1, block=64, args=[numbers])


race = run(PTX).findings[0]
print(textwrap.fill(f"{race.rule}: {race.found}.", 100))
print(textwrap.fill(race.fix, 100))

place = race.change["insert_ptx"][0]  # the cure as data: the text, and the line of PTX that it goes before
lines = PTX.splitlines()
lines.insert(place["line"] - 1, place["text"])
mended = run("\n".join(lines))
print(f"with {place['text']} before PTX line {place['line']}: {mended.outcome}, {len(mended.findings)} findings")
