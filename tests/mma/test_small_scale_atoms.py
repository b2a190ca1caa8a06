"""Scale factors in 8x4 atoms lie where TensorRT-LLM's and FlashInfer's kernels look for them."""

import json

import numpy as np
import pytest

import tilescope as ts
from tilescope.cli import run
from tilescope.errors import RuleError
from tilescope.mma.scale_lanes import ScaleLanes


def naive_offset(row, block, blocks):
    """One index after the other, as a nested array [row tile][k tile][8 rows][4 scales] has them."""
    offset = 0
    for row_tile in range(row // 8 + 1):
        for k_tile in range((blocks + 3) // 4):
            for inner_row in range(8):
                for inner_block in range(4):
                    if (row_tile * 8 + inner_row, k_tile * 4 + inner_block) == (row, block):
                        return offset
                    offset += 1
    raise AssertionError


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("rows", "k"), [(8, 64), (8, 256), (20, 160), (33, 1024)])
def test_every_scale_lies_where_a_nested_array_has_it(rows, k):
    scales = ts.scale_layout(rows, k, "nvfp4", atom="8x4")
    for row in range(rows):
        for block in range(scales.blocks):
            assert scales.offset(row, block) == naive_offset(row, block, scales.blocks)
            assert scales.locate(scales.offset(row, block)) == (row, block)


@pytest.mark.parametrize("shape", [(8, 4), (20, 10), (3, 1), (64, 16)])
def test_packing_puts_every_byte_at_its_offset_and_zeros_elsewhere(shape):
    rows, blocks = shape
    scales = np.arange(1, rows * blocks + 1).reshape(shape).astype(np.uint8) | 1
    packed = ts.pack_scales(scales, atom="8x4")
    layout = ts.scale_layout(rows, blocks * 16, "nvfp4", atom="8x4")
    assert len(packed) == layout.size_bytes
    expected = np.zeros(layout.size_bytes, np.uint8)
    for row in range(rows):
        for block in range(blocks):
            expected[naive_offset(row, block, blocks)] = scales[row, block]
    assert (packed == expected).all()
    assert (ts.unpack_scales(packed, shape, atom="8x4") == scales).all()


def test_batches_follow_each_other():
    batches = np.arange(3 * 8 * 8, dtype=np.uint8).reshape(3, 8, 8)
    packed = ts.pack_scales(batches, atom="8x4")
    assert packed.shape == (3, 64)
    assert (packed[1] == ts.pack_scales(batches[1], atom="8x4")).all()
    assert (ts.unpack_scales(packed, (8, 8), atom="8x4") == batches).all()


def test_eight_rows_take_no_padding_where_128x4_takes_fifteen_sixteenths():
    assert ts.scale_layout(8, 256, "nvfp4", atom="8x4").padding_bytes == 0
    assert ts.scale_layout(8, 256, "nvfp4").padding_bytes == 2048 - 128


def test_words_of_neighbouring_rows_are_4_bytes_apart_and_16_in_128x4():
    small, large = ts.scale_layout(8, 64, "nvfp4", atom="8x4"), ts.scale_layout(8, 64, "nvfp4")
    assert [small.offset(row, 3) for row in range(8)] == [4 * row + 3 for row in range(8)]
    assert [large.offset(row, 3) for row in range(8)] == [16 * row + 3 for row in range(8)]


@pytest.mark.parametrize(
    "ask",
    [
        lambda scales: scales.steps(),
        lambda scales: scales.copies(),
        lambda scales: scales.tensor_memory("A"),
        lambda scales: scales.word_columns,
    ],
    ids=["steps", "copies", "tensor_memory", "word_columns"],
)
def test_what_no_document_says_is_refused(ask):
    with pytest.raises(RuleError) as refused:
        ask(ts.scale_layout(8, 256, "nvfp4", atom="8x4"))
    (violation,) = refused.value.violations
    assert violation.rule == "scale-atom-copy"
    assert "we found no documentation" in violation.limit


def test_bytes_of_the_other_layout_are_refused_by_their_number():
    packed = ts.pack_scales(np.ones((8, 16), np.uint8), atom="8x4")
    with pytest.raises(RuleError, match=r"4 atoms.*512 bytes, 2048 bytes"):
        ts.unpack_scales(packed, (8, 16))


def test_an_unknown_layout_is_refused_with_those_that_exist():
    with pytest.raises(RuleError, match="known: 128x4, 8x4"):
        ts.scale_layout(8, 256, "nvfp4", atom="16x4")


def test_the_command_says_where_a_scale_lies(capsys):
    assert run(["mma", "scales", "8x256", "nvfp4", "--atom", "8x4", "--element", "5,100"]) == 0
    shown = capsys.readouterr().out
    assert "byte 54 (0x36): atom 1, row 5, byte 2" in shown
    assert "documented" in shown


def test_the_value_comes_back_from_its_json(capsys):
    assert run(["mma", "scales", "20x256", "nvfp4", "--atom", "8x4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    scales = ts.scale_layout(20, 256, "nvfp4", atom="8x4")
    assert type(scales).from_dict(told) == scales
    of_old_version = {name: value for name, value in told.items() if name != "atom"}
    assert type(scales).from_dict(of_old_version) == ts.scale_layout(20, 256, "nvfp4")


def test_the_drawing_marks_a_block_as_it_marks_its_elements():
    scales = ts.scale_layout(16, 256, "nvfp4", atom="8x4")
    by_block = ts.view.draw(scales, block=(9, 3))
    by_element = ts.view.draw(scales, element=(9, 50))
    assert [cell.text for row in by_block["atom"].rows for cell in row.cells if cell.mark] == ["r9"]
    assert by_block["atom"] == by_element["atom"]
    assert by_block["element"].title == "Scale (row 9, block 3)"
    assert by_block["element"].rows == by_element["element"].rows


def test_no_document_says_how_small_atoms_are_packed_for_copies():
    with pytest.raises(RuleError) as refused:
        ts.scale_layout(8, 256, "nvfp4", atom="8x4").in_shared_memory(np.ones((8, 16), np.uint8))
    assert [violation.rule for violation in refused.value.violations] == ["scale-atom-copy"]


def test_immediates_of_scale_lanes_are_plain_integers():
    lanes = ScaleLanes("nvfp4", "B", thread_id=np.int64(3), byte_id=np.uint8(0))
    assert (type(lanes.thread_id), type(lanes.byte_id)) == (int, int)
    assert lanes == ScaleLanes("nvfp4", "B", thread_id=3)
