"""I start `tilescope watch -- python train.py` on my laptop, which has no GPU. What does it say?"""

import sys

IS_SLOW = True


def solve(desk):
    desk.write("train.py", "print('step 1')\n")
    said = desk.type(f"tilescope watch -- {sys.executable} train.py")
    assert said.status == 0  # the program's own
    assert "step 1" in said.out
    assert "0 calls in 0 processes, 0 refused" in said.err
    assert "initialised CUDA" in said.err
    missing = desk.type("tilescope watch -- no-such-program")
    assert missing.status == 2
    assert "no-such-program: No such file" in missing.err
