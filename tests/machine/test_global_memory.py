"""Global memory: growth of releases at one word, and the limits of what the race detector can name."""

import numpy as np
import pytest
from ptx_texts import finished, kernel

import tilescope as ts
from tilescope.machine.decoding import assembly
from tilescope.sync.lane_clocks import LaneClocks

COUNTED = """
    ld.param.u64 %d1, [counter];
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra END;
    atom.acq_rel.gpu.global.add.u32 %r2, [%d1], 1;
END:
"""


def test_an_acquire_and_release_of_a_counter_visits_one_earlier_release(monkeypatch):
    acquired = []
    acquire = LaneClocks.acquire

    def count(self, lanes, clock):
        acquired.append(clock.cluster)
        acquire(self, lanes, clock)

    monkeypatch.setattr(LaneClocks, "acquire", count)
    counter = np.zeros(1, np.uint32)
    finished(kernel(COUNTED, ".param .u64 counter"), 32, [counter], blocks=48)
    assert counter[0] == 48
    assert len(acquired) == 47


def test_more_instructions_than_a_stamp_can_name_are_refused(monkeypatch):
    body = "mov.u32 %r1, 1;\n" * 8
    kernel(body)
    monkeypatch.setattr(assembly, "PC_END", 7)
    with pytest.raises(ts.RuleError, match="at most 7 instructions") as refused:
        kernel(body)
    assert [violation.rule for violation in refused.value.violations] == ["ptx-unsupported"]
