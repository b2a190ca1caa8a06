"""Copies and descriptors that belong together agree; each deliberate mistake is found, with its cause and its cure."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope import Tcgen05Descriptor, TensorMap, WgmmaDescriptor, compatible, tcgen05_descriptors, wgmma_descriptors
from tilescope.mma.written_tile import WrittenTile
from tilescope.view.descriptor_view import draw_agreement

MODES = ("none", "32B", "64B", "128B")
SPAN = {"none": 16, "32B": 32, "64B": 64, "128B": 128, "128B_ATOM_32B": 128}
DESCRIBE = {"wgmma": wgmma_descriptors, "tcgen05": tcgen05_descriptors}


def tile_cases():
    """(instruction, type, major, swizzle, order, tile, shared address) over layouts, shapes and places."""
    for number, order in enumerate(("column", "row")):
        for mode in MODES:
            for address in (0, 0x480):
                yield "wgmma", "bf16", "K", mode, order, (64, 128), address
                yield "wgmma", "bf16", "MN", mode, order, (128, 32), address
                yield "tcgen05", "e4m3", "MN", mode, order, (256, 64), address
            yield "wgmma", "tf32", "K", mode, order, (192, 64), 0x2000 * number
            yield "wgmma", "s8", "K", mode, order, (128, 256), 0x880
            yield "tcgen05", "e2m1", "K", mode, order, (128, 512), 0x100
        yield "tcgen05", "tf32", "MN", "128B_ATOM_32B", order, (128, 16), 0x600
        yield "tcgen05", "e2m3", "K", "128B", order, (128, 256), 0


def brought(data_type, major, mode, order, tile):
    """A map of boxes one atom wide, and the copies that bring the tile, counted off by hand."""
    row = ts.DataType.named(data_type)
    rows, columns = tile if major == "K" else tile[::-1]
    width = SPAN[mode] * 8 // row.smem_bits
    atom_rows = 4 if mode == "128B_ATOM_32B" else 8
    atom_bytes, high, wide = atom_rows * SPAN[mode], rows // atom_rows, columns // width
    a = TensorMap(row.tma, (columns, rows), (columns * row.bits // 8,), (width, atom_rows), swizzle=mode, arch="sm_100")
    copies = []
    for down in range(high):
        for across in range(wide):
            number = across * high + down if order == "column" else down * wide + across
            copies.append(((across * width, down * atom_rows), number * atom_bytes))
    return a, copies


def described(case, **options):
    instruction, data_type, major, mode, order, tile, address = case
    return DESCRIBE[instruction](
        tile, data_type, major=major, swizzle=mode, atom_order=order, smem_address=address, **options
    )


@pytest.mark.parametrize("case", list(tile_cases()), ids=str)
def test_what_belongs_together_agrees(case):
    _, data_type, major, mode, order, tile, address = case
    a, copies = brought(data_type, major, mode, order, tile)
    for operand in "AB":
        found = compatible(
            a, described(case, operand=operand), copies=copies, smem_address=address, data_type=data_type
        )
        assert found, str(found)
        assert (found.shape, found.differing, found.cause) == (tile, 0, None)
        assert ts.Value.from_dict(found.to_dict()) == found
    assert found.basis == "documented"


@pytest.mark.parametrize("case", [case for case in tile_cases() if case[0] == "wgmma"][::3], ids=str)
def test_addresses_are_where_the_emulator_puts_the_elements(case):
    _, data_type, major, mode, order, tile, address = case
    row = ts.DataType.named(data_type)
    a, copies = brought(data_type, major, mode, order, tile)
    words = np.arange(tile[0] * tile[1] * row.bits // 32, dtype=np.uint32)
    smem = np.zeros(words.nbytes, np.uint8)
    plain = TensorMap("u32" if data_type == "tf32" else a.data_type, a.dims, a.strides_bytes, a.box, swizzle=a.swizzle)
    for coords, offset in copies:
        ts.load(plain, words, coords, smem=smem[offset:], smem_address=address + offset)
    written = WrittenTile.by_copies(a, copies, smem_address=address, major=major, data_type=row, element_bits=row.bits)
    found = written.addresses - address
    rows = np.arange(tile[0])[:, None], np.arange(tile[1])[None, :]
    strided, contiguous = rows if major == "K" else rows[::-1]
    byte = strided * a.strides_bytes[0] + contiguous * row.bits // 8
    assert (smem.view(np.uint32)[found // 4] == byte // 4).all()
    assert (found % 4 == byte % 4).all()


def test_rows_that_overlap_in_memory_are_rows_of_the_tile():
    """Windows of 64 elements, 16 apart: element 16 of a row is element 0 of the next row in global memory."""
    windows = TensorMap("bf16", (64, 8), (32,), (32, 8))
    written = WrittenTile.by_copies(
        windows,
        [((0, 0), 0), ((32, 0), 512)],
        smem_address=0x400,
        major="K",
        data_type=ts.DataType.named("bf16"),
        element_bits=16,
    )
    row, column = np.indices((8, 64))
    assert (written.addresses == 0x400 + column // 32 * 512 + row * 64 + column % 32 * 2).all()


@pytest.mark.slow
@given(st.data())
def test_plans_agree_with_their_own_descriptors(data):
    consumer = data.draw(st.sampled_from(["wgmma", "tcgen05"]))
    major = data.draw(st.sampled_from(["K", "MN"]))
    tile = data.draw(st.sampled_from([(64, 64), (128, 64), (128, 128), (256, 32)]))
    arch = {"wgmma": "sm_90", "tcgen05": "sm_100"}[consumer]
    report = ts.plan(tile, "bf16", consumer=consumer, major=major, arch=arch, fold=True)
    plan = data.draw(st.sampled_from(report.candidates))
    address = 128 * data.draw(st.integers(0, 64))
    found = compatible(plan, smem_address=address)
    assert found, str(found)
    assert found.shape == tile
    assert found.basis == ("measured" if consumer == "wgmma" else "documented")


def judged(case, change, **options):
    """The verdict on the first step's descriptor with a field or two changed, and the right descriptor."""
    _, data_type, major, mode, order, tile, address = case
    a, copies = brought(data_type, major, mode, order, tile)
    loop = described(case)
    right = loop[0][0]
    fields = {name: value for name, value in right.to_dict().items() if name != "kind"}
    wrong = type(right).from_dict(fields | change(right))
    given_as = {
        "copies": copies,
        "smem_address": address,
        "major": major,
        "tile_major": major,
        "data_type": data_type,
        "rows": loop.block_mn,
        "k": loop.k_per_step,
    }
    return compatible(a, wrong, **(given_as | options)), right, wrong


def assert_caught(found, cause):
    assert not found
    assert found.cause == cause, str(found)
    assert found.differing > 0
    assert found.difference.read_address != found.difference.written_address
    assert f"(mn {found.difference.mn}, k {found.difference.k})" in found.sentence
    assert hex(found.difference.read_address) in found.sentence
    assert ts.Value.from_dict(found.to_dict()) == found


CASES = list(tile_cases())
TWO_STEPS = [case for case in CASES if case[3] == "none" or (case[2] == "MN" and case[5][0] > 64)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("off", [16, 128, -128])
def test_a_wrong_start_address_is_named(case, off):
    found, right, _ = judged(case, lambda right: {"start_address": (right.start_address + off) % 0x40000})
    assert_caught(found, "start-address")
    assert found.correction == right
    assert f"Use start_address={right.start_address:#x}" in found.sentence


@pytest.mark.parametrize("case", [case for case in CASES if case[3] != "none"], ids=str)
def test_a_wrong_base_offset_is_named(case):
    found, right, _ = judged(case, lambda _: {"base_offset": 1})
    assert_caught(found, "base-offset")
    assert found.correction == right


@pytest.mark.parametrize("case", [case for case in CASES if case[3] == "32B"], ids=str)
def test_a_base_offset_of_a_whole_period_is_harmless(case):
    found, _, _ = judged(case, lambda _: {"base_offset": 2})
    assert found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_leading_and_stride_exchanged_is_named(case):
    def exchanged(right):
        return {"leading_bytes": right.stride_bytes, "stride_bytes": right.leading_bytes}

    found, right, wrong = judged(case, exchanged)
    if found:  # equal, or neither reached by one instruction
        assert (wrong.addresses(case[2], 64, 8, 16) == right.addresses(case[2], 64, 8, 16)).all()
        return
    assert_caught(found, "leading-stride-exchanged")
    assert found.correction == right


@pytest.mark.slow
def test_most_tiles_notice_the_exchange():
    def exchanged(right):
        return {"leading_bytes": right.stride_bytes, "stride_bytes": right.leading_bytes}

    noticed = [not judged(case, exchanged)[0] for case in CASES]
    assert sum(noticed) >= 0.8 * len(noticed)


@pytest.mark.parametrize("case", [case for case in CASES if case[3] in MODES[1:]], ids=str)
@pytest.mark.parametrize("mode", MODES[1:])
def test_another_swizzle_mode_is_named(case, mode):
    if mode == case[3]:
        return
    found, _, _ = judged(case, lambda _: {"swizzle": mode})
    assert_caught(found, "swizzle-mode")
    assert found.correction.swizzle.name == case[3]
    a, copies = brought(*case[1:6])
    loop = described(case)
    again = compatible(
        a,
        found.correction,
        copies=copies,
        smem_address=case[6],
        major=case[2],
        rows=loop.block_mn,
        k=loop.k_per_step,
        data_type=case[1],
    )
    assert again


@pytest.mark.parametrize("case", [case for case in CASES if case[:2] == ("wgmma", "bf16")], ids=str)
def test_the_other_majorness_is_named(case):
    other = {"K": "MN", "MN": "K"}[case[2]]
    found, right, _ = judged(case, lambda _: {}, major=other)
    assert_caught(found, "majorness")
    assert f'Use major="{case[2]}"' in found.sentence
    assert found.correction == right


def test_majorness_is_suspected_where_nobody_says_how_the_tile_lies():
    # A K-major tile of 128 rows, told to be MN-major: there are only 64 of mn then.
    a = TensorMap("bf16", (64, 128), (128,), (64, 128), swizzle="128B")
    right = WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    found = compatible(a, right, major="MN", rows=128, k=16)
    assert found.cause == "not-written"
    assert 'pass major="K" if the tile' in found.sentence
    assert compatible(a, right, major="MN", rows=128, k=16, tile_major="K").cause == "majorness"


@pytest.mark.parametrize("columns", [16, 32, 64])
@pytest.mark.parametrize("rows", [8, 64, 128])
@pytest.mark.parametrize("described_as", [WgmmaDescriptor, Tcgen05Descriptor])
def test_tma_none_is_not_mma_none(columns, rows, described_as):
    a = TensorMap("bf16", (columns, rows), (2 * columns,), (columns, rows))
    for leading, stride in ((128, 256), (128 * rows // 8, 128)):
        found = compatible(a, described_as(0, leading_bytes=leading, stride_bytes=stride, swizzle="none"))
        assert found.cause == "none-against-none", str(found)
        assert "Use box[0] = 8 " in found.sentence
        assert found.correction is None


def test_tma_none_is_mma_none_where_a_row_is_16_bytes():
    a = TensorMap("bf16", (64, 64), (128,), (8, 64))
    descriptor = WgmmaDescriptor(0x400, leading_bytes=1024, stride_bytes=128, swizzle="none")
    found = compatible(a, descriptor, copies=[((0, 0), 0), ((8, 0), 1024)], smem_address=0x400)
    assert found
    assert found.basis == "measured"
    alone = compatible(a, descriptor, smem_address=0x400)
    assert alone
    assert alone.shape == (64, 8)


@pytest.mark.parametrize("mode", ["32B", "64B", "128B"])
def test_a_box_wider_than_the_atom_is_named(mode):
    wide = 2 * SPAN[mode] // 2
    a = TensorMap("bf16", (wide, 64), (2 * wide,), (wide, 64))
    found = compatible(a, WgmmaDescriptor(0, leading_bytes=16, stride_bytes=8 * SPAN[mode], swizzle=mode))
    assert found.cause == "box-wider-than-atom", str(found)
    assert f"Use box[0] = {SPAN[mode] // 2}," in found.sentence


@pytest.mark.parametrize("mode", ["32B", "64B", "128B"])
def test_plain_rows_under_a_swizzled_descriptor_are_named(mode):
    columns = SPAN[mode] // 2
    a = TensorMap("bf16", (columns, 64), (2 * columns,), (columns, 64))
    found = compatible(a, WgmmaDescriptor(0, leading_bytes=16, stride_bytes=8 * SPAN[mode], swizzle=mode))
    assert found.cause == "swizzle-mode"
    assert f"Use swizzle {mode}" in found.sentence


@pytest.mark.parametrize("mode", ["128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"])
def test_modes_without_a_counterpart_are_named(mode):
    a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle=mode, arch="sm_100")
    found = compatible(a, Tcgen05Descriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B"))
    assert (found.cause, found.correction) == ("swizzle-mode", None)
    assert "which no tcgen05 descriptor reads" in found.sentence


def test_a_misplaced_copy_may_look_like_the_other_majorness_and_is_told_so():
    a = TensorMap("bf16", (64, 64), (128,), (64, 32), swizzle="128B")
    reader = WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    copies = [((0, 0), 0), ((0, 32), 8192)]  # the second belongs at 4096
    guessed = compatible(a, reader, rows=64, copies=copies)
    assert guessed.cause == "majorness"
    assert 'k, pass tile_major="K"' in guessed.sentence
    told = compatible(a, reader, rows=64, copies=copies, tile_major="K")
    assert told.cause != "majorness"
    assert "tile_major" not in told.sentence


def test_elements_that_no_copy_brings_are_named():
    a = TensorMap("bf16", (64, 64), (128,), (64, 32), swizzle="128B")
    found = compatible(a, WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B"), rows=64)
    assert found.cause == "not-written"
    assert (found.difference.mn, found.difference.k, found.difference.written_address) == (32, 0, None)
    assert "read at 0x1000" in found.sentence


def test_what_lies_in_place_of_an_element_that_no_copy_brings_is_named():
    a = TensorMap("bf16", (32, 32), (64,), (32, 32), swizzle="64B")
    reader = WgmmaDescriptor(1536, leading_bytes=16, stride_bytes=0, swizzle="64B")
    found = compatible(a, reader, rows=64, origin=(24, 0), tile_major="K")
    assert "Element (mn 32, k 0) is read at 0x600" in found.sentence
    assert "where (mn 24, k 0) lies" in found.sentence


def test_a_copy_that_overwrites_another_is_seen():
    a = TensorMap("bf16", (128, 64), (256,), (64, 64), swizzle="128B")
    loop = wgmma_descriptors((64, 128), "bf16", swizzle="128B")
    assert compatible(a, loop, copies=[((0, 0), 0), ((64, 0), 8192)])
    found = compatible(a, loop, copies=[((0, 0), 0), ((64, 0), 4096)])
    assert not found
    gone = compatible(a, loop[0][0], copies=[((0, 0), 0), ((64, 0), 0)])
    assert (gone.cause, gone.difference.written_address, gone.difference.found) == ("not-written", None, (0, 64))


def test_two_mistakes_are_both_told():
    case = ("wgmma", "bf16", "K", "none", "column", (64, 64), 0)

    def twice(right):
        return {"leading_bytes": right.stride_bytes, "stride_bytes": right.leading_bytes, "start_address": 0x800}

    found, right, _ = judged(case, twice)
    assert found.cause == "leading-stride-exchanged"
    assert "Start address" in found.sentence
    assert found.correction == right


def test_a_later_step_is_checked_from_its_origin():
    a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    second = wgmma_descriptors((64, 64), "bf16", swizzle="128B")[0][1]
    assert compatible(a, second, origin=(0, 16))
    found = compatible(a, second)
    assert (found.cause, found.difference.found) == ("start-address", (0, 16))


def test_bytes_moved_as_another_type_are_read_as_the_tensor_cores():
    a = TensorMap("u8", (128, 64), (128,), (128, 64), swizzle="128B")
    descriptor = WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    assert compatible(a, descriptor, data_type="bf16").shape == (64, 16)
    assert compatible(a, descriptor).shape == (64, 32)


def test_folded_maps_name_the_same_elements():
    flat = TensorMap("bf16", (128, 64), (256,), (64, 64), swizzle="128B")
    folded = TensorMap("bf16", (64, 64, 2), (256, 128), (64, 64, 2), swizzle="128B")
    loop = wgmma_descriptors((64, 128), "bf16", swizzle="128B")
    assert compatible(folded, loop)
    assert compatible(flat, loop, copies=[((0, 0), 0), ((64, 0), 8192)])


def test_48_byte_steps_agree():
    case = ("tcgen05", "e2m1", "K", "128B", "column", (128, 768), 0x400)
    a, copies = brought(*case[1:6])
    loop = described(case, k_step_bytes=48)
    assert compatible(a, loop, copies=copies, smem_address=0x400, data_type="e2m1")
    step = loop[0][2]
    fields = {name: value for name, value in step.to_dict().items() if name != "kind"}
    wrong = Tcgen05Descriptor.from_dict(fields | {"leading_bytes": 0})
    found = compatible(a, wrong, copies=copies, smem_address=0x400, data_type="e2m1", origin=(0, 192), k=96)
    assert (found.cause, found.correction) == ("leading-bytes", step)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tensor_map_or_plan": "a map"}, "plan or a layout"),
        ({"descriptor": 0x4000004000010040}, "Decode the word first"),
        ({"descriptor": None}, "Pass the descriptor that reads"),
        ({"smem_address": 64}, "128"),
        ({"copies": 5}, "pairs of coordinates"),
        ({"copies": [(0, 0)]}, "pairs of coordinates"),
        ({"origin": (64, 0)}, r"origin\[0\] = 64; 0 to 63"),
        ({"origin": "zero"}, "a sequence of integers"),
        ({"rows": 0}, "1 to 256"),
        ({"k": 1000}, "along k"),
        ({"major": "row"}, "known: K, MN"),
    ],
)
def test_refuses_what_it_cannot_compare(changed, message):
    sound = {
        "tensor_map_or_plan": TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B"),
        "descriptor": WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B"),
    }
    with pytest.raises(ts.RuleError, match=message):
        compatible(**(sound | changed))


@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_a_layout_stands_for_the_tile_that_lies_there(major, swizzle):
    """Constructed, parsed and planned; the loop of the same tile agrees, one of another order or start does not."""
    canonical = ts.canonical_layout(major, swizzle, "bf16")
    tile = canonical.tile((128, 128), start=0x2000)
    assert ts.compatible(tile, ts.wgmma_descriptors(tile, "bf16"))
    assert ts.compatible(ts.parse_layout(repr(tile)), ts.wgmma_descriptors(tile, "bf16"))
    assert ts.compatible(tile, tile)
    other = canonical.tile((128, 128), atom_order="row", start=0x2000)
    wrong = ts.compatible(tile, other)
    assert (bool(wrong), wrong.cause, wrong.correction == tile) == (False, "atom-order", True)
    assert not ts.compatible(tile, ts.wgmma_descriptors(other, "bf16"))
    moved = ts.compatible(tile, tile.with_start(0x4000))
    assert (moved.cause, moved.correction) == ("start-address", tile)
    assert ts.compatible(tile, tile.with_start(0x4000), smem_address=0x4000)


def test_a_layout_names_what_is_wrong_with_it(wording):
    tile = ts.Layout((64, 64), 16, swizzle="128B")
    a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    wording("a layout names what is wrong with it", str(ts.compatible(a, tile)))
    plain = ts.compatible(a, ts.Layout((64, 64), 16))
    assert (plain.cause, plain.correction) == ("swizzle-mode", tile)
    assert plain.sentence.endswith("the layout has none.")
    assert "tile was written with 128B" in plain.sentence
    mn_major = ts.canonical_layout("MN", "128B", "bf16").tile((64, 64))
    assert ts.compatible(tile, mn_major).cause == "majorness"
    assert ts.compatible(a, ts.Layout((128, 64), 16, swizzle="128B")).cause == "not-written"
    assert ts.compatible(a, ts.Layout((64, 32), 16, swizzle="64B")).cause == "several"
    rows = ts.compatible(
        ts.Layout((64, 64), 16), WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    )
    assert (rows.cause, "the layout wrote plain rows" in rows.sentence) == ("swizzle-mode", True)
    staged = ts.Layout.from_modes(((64, 64, 3), (64, 1, 4096)), 16, swizzle="128B")
    assert ts.compatible(a, staged)
    assert ts.Value.from_dict(plain.to_dict()) == plain
    assert draw_agreement(plain).title == "The layout is another: swizzle-mode"
    with pytest.raises(ts.RuleError, match="a layout of shared memory"):
        ts.compatible(tile, ts.tmem_layout((128, 64)))
    with pytest.raises(ts.RuleError, match="names no coordinates"):
        ts.compatible(tile, tile, cta_rank=0)


def test_a_planned_layout_agrees_with_its_own_descriptors():
    plan = ts.plan((128, 64), "bf16", consumer="wgmma").best
    assert ts.compatible(plan, plan.layout)
    assert ts.compatible(plan.layout, plan.descriptors())


@pytest.mark.parametrize("data_type", ["e2m3", "16u4_align16b"])
def test_the_values_of_a_padded_type_lie_dense_where_the_planned_layout_has_them(data_type):
    """Descriptors count containers of a byte instead: a layout of the values beside them is refused."""
    plan = ts.plan((128, 256), data_type, arch="sm_100").best
    assert ts.compatible(plan)
    assert ts.compatible(plan, plan.layout)
    assert ts.compatible(plan, plan.containers)
    assert ts.compatible(plan.containers, plan.descriptors())
    with pytest.raises(ts.RuleError, match=r"containers of 8 bits.*Use the plan"):
        ts.compatible(plan.layout, plan.descriptors())


def test_a_layout_of_the_other_majorness_is_told_its_atom_order_only_where_that_differs_too():
    """One column of atoms has one order; of two, the order that was written is part of the cure."""
    k_major, mn_major = (ts.canonical_layout(major, "128B", "bf16") for major in ("K", "MN"))
    narrow = ts.compatible(mn_major.tile((64, 64)), k_major.tile((64, 64), atom_order="row"))
    assert narrow.sentence.endswith("the layout has K-major.")
    assert "MN-major" in narrow.sentence
    wide = ts.compatible(mn_major.tile((128, 128), atom_order="row"), k_major.tile((128, 128)))
    assert wide.cause == "majorness"
    assert wide.sentence.endswith("row, the layout has column.")
    assert wide.correction == mn_major.tile((128, 128), atom_order="row")
