"""One-dimensional bulk copies move and refuse what an H200 moves and refuses."""

import numpy as np
import pytest

import tilescope as ts

MEMORY = np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize("size", range(130))
def test_sizes_are_cut_down_to_sixteen(size):
    moved = size // 16 * 16
    assert ts.bulk_load(MEMORY, 0x1020, size, memory_address=0x1000).tolist() == list(range(0x20, 0x20 + moved))
    smem = np.full(128, 0xEE, np.uint8)
    assert ts.bulk_load(MEMORY, 0x20, size, smem=smem, smem_address=0x90) is smem
    assert smem[:moved].tolist() == list(range(0x20, 0x20 + moved))
    assert (smem[moved:] == 0xEE).all()
    memory = np.zeros(256, np.uint8)
    assert ts.bulk_store(MEMORY, memory, 0x40, size) is memory
    assert memory[0x40 : 0x40 + moved].tolist() == list(range(moved))
    assert memory.sum() == MEMORY[:moved].sum(dtype=int)


@pytest.mark.parametrize("offset", range(1, 16))
def test_addresses_off_sixteen_are_misaligned(offset):
    for copy in (
        lambda: ts.bulk_load(MEMORY, offset, 16),
        lambda: ts.bulk_load(MEMORY, 0, 16, smem_address=offset),
        lambda: ts.bulk_store(MEMORY, np.zeros(256, np.uint8), offset, 16),
        lambda: ts.bulk_store(MEMORY, np.zeros(256, np.uint8), 0, 16, smem_address=offset),
    ):
        with pytest.raises(ts.MisalignedAddressError) as fault:
            copy()
        assert fault.value.code == 716
    with pytest.raises(ts.MisalignedAddressError) as fault:
        ts.bulk_load(MEMORY, offset, 16, smem_address=offset)
    assert [each.argument for each in fault.value.violations] == ["address", "smem_address"]


@pytest.mark.parametrize(
    "copy",
    [
        lambda: ts.bulk_load(MEMORY, 256, 16),
        lambda: ts.bulk_load(MEMORY, 0, 32, memory_address=16),
        lambda: ts.bulk_load(MEMORY, 0, 272),
        lambda: ts.bulk_load(MEMORY, -16, 16),
        lambda: ts.bulk_load(MEMORY, 0, 1 << 32),
        lambda: ts.bulk_load(MEMORY, 0, 32, smem=np.zeros(16, np.uint8)),
        lambda: ts.bulk_load(MEMORY, 0, "16"),
        lambda: ts.bulk_store(MEMORY[:16], np.zeros(64, np.uint8), 0, 32),
        lambda: ts.bulk_store(MEMORY, b"0123456789abcdef", 0, 16),
    ],
)
def test_what_the_arrays_cannot_hold_is_refused(copy):
    with pytest.raises(ts.RuleError) as refused:
        copy()
    assert not isinstance(refused.value, ts.FaultError)


def test_a_copy_of_nothing_needs_no_memory():
    assert ts.bulk_load(b"", 0x100, 8).size == 0
