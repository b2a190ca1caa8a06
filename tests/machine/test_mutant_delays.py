"""Kernels with delays do what they did without: they only sleep here and there."""

import pytest
from kernel_recording import kernel, recording, run_with
from mutant_delays import SEED, delayed

import tilescope as ts


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", ["transpose_tma", "ring", "cp_async", "grid_barrier"])
def test_delays_leave_the_bytes_and_the_lines_as_they_were(name):
    text = delayed(kernel(name))
    assert len(text.splitlines()) == len(kernel(name).ptx.splitlines())
    run, arrays = run_with(ts.Kernel(text, kernel(name).entry), name, findings=False)
    assert run.outcome == "finished"
    assert list(recording(name).differences(arrays)) == []
    assert any("nanosleep.u32 ts_x" in row.ptx_text and row.threads for row in run.instructions)
    assert f".const .align 4 .u32 {SEED};" in text
