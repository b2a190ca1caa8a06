"""Plans for tcgen05: every layout that exists is planned, agrees with its descriptors, and nothing else is."""

import pytest

import tilescope as ts
from tilescope import compatible, plan
from tilescope.mma.consumer import Tcgen05Loop

XOR_16 = {"none", "32B", "64B", "128B"}
ARCHITECTURES = ("sm_100", "sm_103", "sm_110")
PLANNED = [
    ((128, 64), "bf16", "K", XOR_16),
    ((128, 64), "bf16", "MN", XOR_16),
    ((256, 128), "e4m3", "K", XOR_16),
    ((256, 128), "e4m3", "MN", XOR_16),
    ((128, 32), "tf32", "K", XOR_16),
    ((128, 32), "tf32", "MN", {"128B_ATOM_32B"}),
    ((128, 512), "e2m1", "K", XOR_16),
    ((128, 256), "e2m3", "K", {"128B"}),
    ((24, 64), "f16", "K", XOR_16),
]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("tile", "data_type", "major", "swizzles"), PLANNED)
def test_every_layout_that_exists_is_planned_and_agrees(tile, data_type, major, swizzles, arch):
    report = plan(tile, data_type, major=major, consumer="tcgen05", arch=arch, fold=True)
    assert {candidate.swizzle.name for candidate in report.candidates} == swizzles
    for candidate in report.candidates:
        loop = candidate.descriptors(0x400)
        assert isinstance(loop, Tcgen05Loop)
        assert (loop.addresses() == candidate.containers.with_start(0x400).addresses()).all()
        assert (loop.addresses() // 16 == candidate.address(*_indices(tile), 0x400) // 16).all()  # the same chunk
        assert candidate.basis == "documented"
        found = compatible(candidate, smem_address=0x400, data_type=data_type)
        assert found, str(found)


def _indices(tile):
    import numpy as np

    return np.arange(tile[0])[:, None], np.arange(tile[1])[None, :]


def test_dense_4_bit_tiles_are_moved_and_read_two_to_a_byte():
    best = plan((128, 256), "e2m1", consumer="tcgen05", arch="sm_100").best
    assert (best.swizzle.name, best.box, best.smem_bytes, best.transaction_bytes) == ("128B", (256, 128), 16384, 16384)
    assert best.tensor_map(0, (1024, 1024)).data_type.name == "16u4_align8b"
    assert [hex(step.encode()) for step in best.descriptors(0x400)[0]] == [
        "0x4000404000010040",
        "0x4000404000010042",
        "0x4000404000010044",
        "0x4000404000010046",
    ]


def test_mn_major_tf32_goes_in_pieces_of_32_bytes():
    best = plan((128, 32), "tf32", major="MN", consumer="tcgen05", arch="sm_100").best
    assert (best.swizzle.name, best.box) == ("128B_ATOM_32B", (32, 32))
    assert best.tensor_map(0, (1024, 1024)).swizzle.driver_code == 4
    first = best.descriptors()[0][0]
    assert (first.leading_bytes, first.stride_bytes) == (4096, 512)


def test_6_bit_tiles_are_padded_to_a_byte_each():
    best = plan((128, 128), "e3m2", consumer="tcgen05", arch="sm_110").best
    assert (best.box, best.smem_bytes, best.transaction_bytes) == ((128, 128), 16384, 12288)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (((64, 64), "tf32", {"major": "MN", "swizzle": "128B"}), "tcgen05-layout"),
        (((128, 128), "e2m3", {"major": "MN"}), "tcgen05-layout"),
        (((128, 24), "bf16", {}), "tcgen05-tile"),
        (((60, 64), "bf16", {"operand": "A"}), "tcgen05-tile"),
        (((64, 256), "e2m1", {"operand": "A"}), "tcgen05-tile"),  # block-scaled: 128 rows of A
        (((128, 64), "f64", {}), "canonical-element"),
        (((128, 64), "f32", {}), "tcgen05-type"),
        (((128, 128), "s8", {"arch": "sm_103"}), "plan-type"),
    ],
)
def test_what_no_tcgen05_reads_is_refused_with_its_reason(arguments, rule):
    tile, data_type, options = arguments
    report = plan(tile, data_type, **({"consumer": "tcgen05", "arch": "sm_100"} | options))
    assert not report.candidates
    with pytest.raises(ts.PlanError) as caught:
        _ = report.best
    assert rule in [violation.rule for violation in caught.value.violations]


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_architectures_without_tcgen05_say_what_they_have(arch):
    with pytest.raises(ts.RuleError, match="tcgen05 exists on sm_100, sm_103, sm_110"):
        plan((128, 64), "bf16", consumer="tcgen05", arch=arch)


def test_half_rows_of_6_bit_values_are_stored_but_not_loaded():
    loads = plan((128, 128), "e2m3", consumer="tcgen05", arch="sm_103")
    assert {candidate.swizzle.name for candidate in loads.candidates} == {"128B"}
    assert "packed-load" in [violation.rule for refusal in loads.refused for violation in refusal.violations]
    stores = plan((128, 128), "e2m3", direction="store", consumer="ldmatrix", arch="sm_103")
    assert stores.candidates
