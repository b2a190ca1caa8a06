"""compatible() on tensor memory: each usual mistake is named, and the cure it names is one."""

import pytest

from tilescope.errors import RuleError
from tilescope.mma.agreement import compatible
from tilescope.mma.consumer import tcgen05_descriptors
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.operand_descriptor import Tcgen05Descriptor
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_address import TmemAddress
from tilescope.mma.tmem_layout import tmem_layout
from tilescope.tensor_map import TensorMap

LOAD = "tcgen05.ld.32x32b.x64"


@pytest.mark.parametrize("warp", range(8))
@pytest.mark.parametrize("quarter", range(4))
def test_a_foreign_lane_quarter_is_a_warning_that_names_the_right_lane(warp, quarter):
    d = tmem_layout((128, 64), address=TmemAddress(0, 8))
    asked, own = TmemAddress(32 * quarter, 8), warp % 4
    found = compatible(d, LOAD, warp=warp, address=asked)
    loads = f"Warp {warp} loads rows {32 * own} to {32 * own + 31} of D."
    assert found
    assert TensorMemory().alloc(128).load(LOAD, asked, warp=warp).shape == (32, 64)
    if own == quarter:
        assert (found.sentence, found.cause) == (loads, None)
    else:
        assert (found.cause, found.correction) == ("lane-quarter", TmemAddress(32 * own, 8))
        assert found.sentence.startswith(f"{loads} Lane quarter:")
        assert f"warp {warp} reaches lanes {32 * own}" in found.sentence
        assert f"{32 * own + 31} alone" in found.sentence


def test_other_mistakes_of_loads(wording):
    half = tmem_layout((64, 64))
    wording("other mistakes of loads", str(compatible(half, LOAD, warp=1, address=TmemAddress(32))))
    assert (
        compatible(half, "tcgen05.ld.16x256b.x8", warp=1, address=TmemAddress(48)).cause == "lane-start"
    )  # nothing lies there
    assert compatible(half, LOAD, warp=0, address=TmemAddress(4)).cause == "lane-start"
    assert compatible(half, LOAD, warp=0, address=TmemAddress(0, 64)).cause == "columns"
    assert compatible(half, "tcgen05.ld.32x32b.x16.pack::16b", warp=0).cause == "packing"
    narrow = tmem_layout((64, 64), data_type="f16")
    assert compatible(narrow, "tcgen05.ld.32x32b.x16.pack::16b", warp=0)
    metadata = tmem_layout((128, 32), operand="metadata", data_type="f16")  # two rows to a cell
    told = str(compatible(metadata, "tcgen05.ld.32x32b.x1", warp=1, address=TmemAddress(32)))
    assert "Warp 1 loads rows 32 to 63" in told
    wording("other mistakes of loads, 2", told)
    pair = tmem_layout((128, 64), cta_group=2)  # layout B: columns 32 to 63 of n in the lower lanes
    assert (
        str(compatible(pair, "tcgen05.ld.32x32b.x32", warp=2, address=TmemAddress(64)))
        == "Warp 2 loads rows 0 to 31 of D."
    )


@pytest.mark.parametrize(("kind", "k"), [("mxfp8", 32), ("mxfp4", 64), ("nvfp4", 64)])
@pytest.mark.parametrize("operand", ["A", "B"])
def test_a_wrong_scale_id_or_column_is_named(kind, k, operand):
    scales = scale_layout(128, 512, kind)
    row = scales.format
    other = "b" if operand == "A" else "a"
    for step in scales.steps():
        for scale_id in row.ids(k):
            of_the_other = next((wrong for wrong in row.ids(k) if wrong != scale_id), scale_id)
            scale_ids = {f"{operand.lower()}_scale_id": scale_id, f"{other}_scale_id": of_the_other}
            descriptor = InstructionDescriptor(
                row.mma_kind,
                128,
                128,
                a_type="e4m3" if kind == "mxfp8" else "e2m1",
                scale_type=row.scale_type,
                **scale_ids,
            )
            found = compatible(scales, descriptor, operand=operand, k=step.k, address=TmemAddress(0, step.column))
            assert bool(found) == (scale_id == step.scale_id)
            if not found:
                assert (found.cause, found.scale_id) == ("scale-byte", step.scale_id)
                assert f"{operand.lower()}_scale_id={step.scale_id}" in str(found)
            elsewhere = compatible(
                scales, descriptor, operand=operand, k=step.k, address=TmemAddress(0, step.column + 4)
            )
            assert elsewhere.cause == "scale-column"
            assert elsewhere.correction == TmemAddress(0, step.column)


def test_scales_of_k_96_say_on_what_they_rest():
    scales = scale_layout(128, 768, "mxfp4")
    for step in scales.steps(96):
        descriptor = InstructionDescriptor("mxf4", 256, 64, k=96, a_scale_id=step.scale_id, b_scale_id=step.scale_id)
        found = compatible(scales, descriptor, operand="A", k=step.k, address=TmemAddress(0, step.column))
        assert (bool(found), "one source: CUTLASS" in str(found)) == (True, True)


def test_b_scales_of_a_pair_with_m_128_take_4_columns_for_each_word():
    """n = 256: W is 8 for one block and 4 for the pair, whose halves of n lie in quarters of their own."""
    scales = scale_layout(256, 1024, "nvfp4")
    descriptor = InstructionDescriptor("mxf4nvf4", 128, 256, scale_type="ue4m3")
    for step in scales.steps(operand="B", m=128, cta_group=2):
        place = TmemAddress(0, step.column)
        assert step.column == 4 * (step.k // 64)
        assert compatible(scales, descriptor, operand="B", k=step.k, address=place, cta_rank=0)
        alone = compatible(scales, descriptor, operand="B", k=step.k, address=place)
        assert bool(alone) == (step.k == 0)
        assert alone.correction == (None if step.k == 0 else TmemAddress(0, 2 * step.column))
    copies = scales.copies("B", m=128, cta_group=2)
    assert compatible(scales, copies, operand="B")
    assert compatible(scales, copies[:-1], operand="B").cause == "atom-missing"
    moved = [copies[1]._replace(address=copies[0].address), copies[0]._replace(address=copies[1].address), *copies[2:]]
    wrong = compatible(scales, moved, operand="B")
    assert wrong.cause == "atom-order"
    assert "both halves of 256 columns" in str(wrong)
    assert "blocks 0 to 3" in str(wrong)


def test_scales_of_another_kind_are_named():
    descriptor = InstructionDescriptor("mxf4", 128, 128)
    assert compatible(scale_layout(128, 256, "nvfp4"), descriptor, operand="A", k=0).cause == "scale-type"


def test_a_wrong_atom_order_is_named():
    scales = scale_layout(256, 512, "nvfp4")  # 2 x 8 atoms
    right = scales.copies(smem_address=0x4000, address=TmemAddress(0, 128))
    assert compatible(scales, right, operand="B")
    down, along = scales.atoms
    exchanged = []  # atoms of the rows follow each other in shared memory, instead of those of k
    for word in range(along):
        for row in range(down):
            start = 0x4000 + (word * down + row) * 512
            descriptor = Tcgen05Descriptor(start, leading_bytes=0, stride_bytes=128, swizzle="none")
            exchanged.append((descriptor, TmemAddress(0, 128 + 8 * word + 4 * row)))
    found = compatible(scales, exchanged, operand="B")
    assert found.cause == "atom-order"
    assert str(found).startswith("Atom order:")
    assert "column 132 gets atom 1 (rows from 0" in str(found)
    assert "blocks from 4)" in str(found)
    assert found.correction == TmemAddress(0, 132)
    assert compatible(scales, [each[1:] for each in right[:-1]], operand="B").cause == "atom-missing"
    wide = [(Tcgen05Descriptor(0, leading_bytes=0, stride_bytes=256, swizzle="none"), 0)]
    assert compatible(scales, wide, operand="B").cause == "atom-rows"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("first", [0, 64, 128, 192])
def test_a_half_of_b_in_the_wrong_block_is_named(rank, first):
    b = TensorMap("bf16", (64, 256), (128,), (64, 64), swizzle="128B")
    loop = tcgen05_descriptors((64, 64), "bf16", swizzle="128B", operand="B", cta_group=2)
    found = compatible(b, loop, cta_rank=rank, copies=[((0, first), 0)])
    belongs = first // 64 % 2
    assert bool(found) == (belongs == rank)
    if not found:
        own = first // 128 * 128 + 64 * rank
        assert found.cause == "pair-half"
        assert f"Copy from coordinate {own}." in found.sentence
        assert compatible(b, loop, cta_rank=rank, copies=[((0, own), 0)])


@pytest.mark.parametrize(
    ("reader", "options"),
    [
        (LOAD, {"warp": -1}),
        (LOAD, {}),
        (None, {"warp": 0}),
        (LOAD, {"warp": 0, "address": "x"}),
    ],
)
def test_junk_instead_of_a_load_is_refused(reader, options):
    with pytest.raises(RuleError):
        compatible(tmem_layout((128, 64)), reader, **options)


@pytest.mark.parametrize(
    ("reader", "options"),
    [
        (None, {"operand": "A"}),
        ([], {"operand": "A"}),
        (scale_layout(128, 256, "nvfp4").copies(), {}),
        (InstructionDescriptor("mxf4nvf4", 128, 128), {"operand": "A", "k": 3}),
    ],
)
def test_junk_instead_of_a_reader_of_scales_is_refused(reader, options):
    with pytest.raises(RuleError):
        compatible(scale_layout(128, 256, "nvfp4"), reader, **options)


@pytest.mark.parametrize("first_byte", [0x4000, 0x4010, 0x40F0])
def test_atoms_may_start_anywhere_if_they_follow_each_other(first_byte):
    def descriptor(start):
        return Tcgen05Descriptor(start, leading_bytes=0, stride_bytes=128, swizzle="none")

    scales = scale_layout(256, 256, "nvfp4")
    copies = [
        (descriptor(copy.descriptor.start_address - 0x4000 + first_byte), copy.address)
        for copy in scales.copies(smem_address=0x4000, address=TmemAddress(0, 128))
    ]
    assert compatible(scales, copies, operand="B")
    last, address = copies[-1]
    copies[-1] = (descriptor(last.start_address + 16), address)
    assert "a copy starts 16 bytes after one" in str(compatible(scales, copies, operand="B"))
