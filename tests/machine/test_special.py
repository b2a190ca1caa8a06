"""Special registers that an H200 was asked for."""

import numpy as np
import pytest
from ptx_texts import per_thread

MEASURED = {
    "%nwarpid": 64,
    "%nsmid": 132,
    "%dynamic_smem_size": 512,
    "%total_smem_size": 512 + 16,
    "%aggr_smem_size": 512 + 16 + 1024,
    "%reserved_smem_offset_begin": 0,
    "%reserved_smem_offset_end": 0x120,
    "%reserved_smem_offset_cap": 0x400,
}


@pytest.mark.parametrize("register", MEASURED)
def test_a_register_holds_what_the_card_gave(register):
    out = np.zeros(32, np.uint32)
    reading = per_thread(f".shared .align 16 .b8 own[16]; mov.u32 %r2, own; mov.u32 %r1, {register};")
    assert reading.run(1, 32, [out], smem_bytes=512).outcome == "finished"
    np.testing.assert_array_equal(out, [MEASURED[register]] * 32)
