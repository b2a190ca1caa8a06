"""The descriptors of a K loop read exactly the tile, in every layout."""

import re

import numpy as np
import pytest

import tilescope as ts
from tilescope import WgmmaDescriptor, tcgen05_descriptors, wgmma_descriptors
from tilescope.mma.consumer import WgmmaLoop

MODES = ("none", "32B", "64B", "128B")
K_MAJOR_TYPES = ("bf16", "f16", "tf32", "e4m3", "s8", "b1")
SHAPES = {"A": [(64, 1), (192, 2), (256, 3)], "B": [(64, 1), (192, 2), (320, 3)]}


def cases():
    for operand, shapes in SHAPES.items():
        for mn, spans in shapes:
            for mode in MODES:
                for order in ("column", "row"):
                    for name in K_MAJOR_TYPES:
                        yield operand, "K", mode, order, name, mn, spans * 128 * 8 // ts.DataType.named(name).bits
                    yield operand, "MN", mode, order, "bf16", mn, 16 * spans


@pytest.mark.parametrize(("operand", "major", "mode", "order", "name", "mn", "k"), list(cases()))
def test_the_descriptors_read_the_whole_tile_and_nothing_else(*, operand, major, mode, order, name, mn, k):
    loop = wgmma_descriptors(
        (mn, k), name, major=major, swizzle=mode, atom_order=order, operand=operand, smem_address=0x480
    )
    bits = ts.DataType.named(name).smem_bits
    addresses = loop.layout.addresses()
    step, block = loop.k_per_step, loop.block_mn
    assert step * bits == 256
    read = np.concatenate(
        [
            np.concatenate([each.addresses(major, block, step, bits) for each in steps], axis=1)
            for steps in loop.descriptors
        ]
    )
    assert (read == addresses).all()
    assert {each.base_offset for steps in loop for each in steps} == {0}


def test_64_rows_of_64_bytes_with_32_byte_atoms():
    column = wgmma_descriptors((64, 32), "bf16", swizzle="32B")
    assert (column.stride_bytes, column.advance_bytes) == (256, (2048,))
    row = wgmma_descriptors((64, 32), "bf16", swizzle="32B", atom_order="row")
    assert (row.stride_bytes, row.advance_bytes) == (512, (256,))


def test_the_loop_advances_inside_the_atom_and_then_to_the_next():
    loop = wgmma_descriptors((64, 128), "bf16", swizzle="128B", smem_address=0x400)
    starts = [each.start_address - 0x400 for each in loop[0]]
    assert starts == [0, 32, 64, 96, 8192, 8224, 8256, 8288]
    encoded = [each.encode() - loop[0][0].encode() for each in loop[0]]
    assert encoded == [0, 2, 4, 6, 512, 514, 516, 518]
    inside, to_the_next = loop.explanation[-2:]
    assert inside.startswith("k step = +32 bytes (+2 encoded)")
    assert to_the_next.startswith("k step = +8096 bytes (+506 encoded)")


def test_mn_major_and_core_matrices_advance_by_two_neighbours():
    mn = wgmma_descriptors((64, 64), "bf16", major="MN", swizzle="128B")
    assert set(mn.advance_bytes) == {2 * mn.stride_bytes}
    none = wgmma_descriptors((64, 64), "bf16", major="MN", swizzle="none")
    assert set(none.advance_bytes) == {2 * none.leading_bytes}
    core = wgmma_descriptors((64, 64), "bf16", swizzle="none")
    assert set(core.advance_bytes) == {2 * core.leading_bytes}
    assert core.explanation[-1].endswith("past 2 atoms along k")


def test_b_is_read_in_the_largest_n_that_divides_it():
    def block(n, data_type="bf16", **options):
        return wgmma_descriptors((n, 128), data_type, swizzle="32B", operand="B", **options).block_mn

    assert [block(n) for n in (8, 40, 256, 264, 320, 512)] == [8, 40, 256, 88, 160, 256]
    assert [block(n, "s8") for n in (24, 40, 48, 240, 272)] == [24, 8, 48, 240, 16]
    # MN-major: a block starts at an atom, so it is a whole number of them.
    wide = wgmma_descriptors((320, 16), "bf16", major="MN", swizzle="128B", operand="B")
    assert wide.block_mn == 64


def test_says_which_neighbour_is_not_reached():
    loop = wgmma_descriptors((128, 64), "bf16", major="MN", swizzle="128B")
    assert "instruction takes 64 of mn" in loop.explanation[0]
    assert "not reached" not in wgmma_descriptors((128, 64), "bf16", major="MN", swizzle="64B").explanation[0]


def test_survives_plain_data():
    loop = wgmma_descriptors((128, 64), "bf16", swizzle="64B", operand="B", smem_address=0x800)
    assert ts.Value.from_dict(loop.to_dict()) == loop
    assert loop[0][0] == WgmmaDescriptor(0x800, leading_bytes=16, stride_bytes=512, swizzle="64B")


@pytest.mark.parametrize(
    ("tile", "data_type", "options", "rules"),
    [
        ((60, 64), "bf16", {}, ["wgmma-tile"]),
        ((64, 24), "bf16", {"swizzle": "none"}, ["wgmma-tile"]),
        ((63, 15), "bf16", {"swizzle": "none"}, ["wgmma-tile", "wgmma-tile"]),
        ((12, 64), "bf16", {"operand": "B"}, ["wgmma-tile"]),
        ((64, 64), "bf16", {"operand": "C"}, ["unknown-name"]),
        ((64, 64), "tf32", {"major": "MN"}, ["wgmma-layout"]),
        ((64, 64), "bf16", {"major": "MN", "swizzle": "128B_ATOM_32B"}, ["wgmma-layout"]),
        ((60, 64), "e4m3", {"major": "MN"}, ["wgmma-layout", "wgmma-tile"]),
        ((64, 64), "f32", {}, ["wgmma-type"]),
        ((64, 64), "e2m1", {}, ["wgmma-type"]),
        ((64, 32), "bf16", {}, ["tile-atoms"]),
        ((np.int64(64), np.int64(24)), "bf16", {"swizzle": "none"}, ["wgmma-tile"]),
        ("64x64", "bf16", {}, ["argument-type"]),
        ((64, 64), "bf16", {"smem_address": 8}, ["descriptor-field"]),
        ((64, 64), "bf16", {"smem_address": 0x40000}, ["descriptor-field"]),
        ((64, 64), "bf16", {"atom_order": "diagonal"}, ["unknown-name"]),
    ],
)
def test_refuses_what_no_sequence_of_wgmma_reads(tile, data_type, options, rules):
    with pytest.raises(ts.RuleError) as caught:
        wgmma_descriptors(tile, data_type, **({"swizzle": "128B"} | options))
    assert [violation.rule for violation in caught.value.violations] == rules


def test_a_layout_made_for_another_width_is_refused():
    tile = ts.canonical_layout("K", "128B", "e4m3").tile((64, 128))
    with pytest.raises(ts.RuleError, match="8-bit elements"):
        WgmmaLoop(tile, "A", "bf16")


@pytest.mark.parametrize("describe", [wgmma_descriptors, tcgen05_descriptors])
@pytest.mark.parametrize("mode", ["none", "32B", "128B"])
@pytest.mark.parametrize(("address", "warned"), [(0x8000, False), (0x8080, False), (0x8010, True), (0x8040, True)])
def test_warns_of_a_tile_where_tma_cannot_write(describe, mode, address, warned):
    """An H200 ends copies to a shared address off 128 with error 716; rows of a swizzled atom there cross lines."""
    found = describe((128, 64), "bf16", swizzle=mode, smem_address=address).findings
    assert bool(found) == warned
    for each in found:
        assert (each.rule, each.severity, each.argument) == ("smem-alignment", "warning", "smem_address")
        assert "TMA writes only at multiples" in each.limit
        assert "128" in each.limit
        assert "716" in each.limit
        assert ("mid-line" in each.limit) == (mode != "none")
        assert "0x8000" in each.fix


FOLLOWED = [  # a call that is refused, the rule, and how its fix is followed
    (
        'ts.wgmma_descriptors(ts.canonical_layout("K", "128B", "bf16").tile((128, 64)), "e4m3")',
        "wgmma-element",
        'ts.wgmma_descriptors({}, "e4m3")',
    ),
    (
        'ts.tcgen05_descriptors(ts.canonical_layout("K", "64B", "bf16").tile((128, 32)), "tf32")',
        "tcgen05-element",
        'ts.tcgen05_descriptors({}, "tf32")',
    ),
    ('ts.wgmma_descriptors(ts.Layout((64, 64), 8), "e4m3")', "descriptor-layout", 'ts.wgmma_descriptors({}, "e4m3")'),
    ('ts.wgmma_descriptors(ts.Layout((64, 80), 16), "bf16")', "descriptor-layout", 'ts.wgmma_descriptors({}, "bf16")'),
]


@pytest.mark.parametrize(("refused", "rule", "call"), FOLLOWED)
def test_the_layout_that_a_fix_names_is_read(refused, rule, call):
    with pytest.raises(ts.RuleError) as caught:
        eval(refused)
    fix = next(violation.fix for violation in caught.value.violations if violation.rule == rule)
    named = re.search(r"canonical_layout\(.*?\)\.tile\(\(.*?\)\)", fix)
    assert eval(call.format("ts." + named[0]))


@pytest.mark.parametrize("k", [256, 512, 768, 1024, 1536])
def test_steps_of_48_bytes_take_what_their_refusal_names(k):
    try:
        assert ts.tcgen05_descriptors((128, k), "e2m1", k_step_bytes=48)
    except ts.RuleError as error:
        violation = next(found for found in error.violations if found.rule == "tcgen05-step")
        assert "multiple of 768" in violation.limit
        assert k % 768
    else:
        assert k % 768 == 0
