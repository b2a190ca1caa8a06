"""One place of a copy: held against the bytes that the copy leaves, and an XOR of the offset that is written out."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.cli import run
from tilescope.tma.place import place_at, place_of

MATRIX = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
XOR = {"128B": lambda byte: byte ^ (byte >> 7 & 7) << 4, "64B": lambda byte: byte ^ (byte >> 7 & 3) << 4}


@given(
    swizzle=st.sampled_from(["128B", "64B"]),
    line=st.integers(0, 15),
    row=st.integers(0, 7),
    column=st.integers(0, 31),
    corner=st.tuples(st.integers(0, 4), st.integers(-4, 60)),
)
def test_an_element_lies_where_the_copy_leaves_it(swizzle, line, row, column, corner):
    a = ts.TensorMap.from_array(MATRIX, (8, 32), swizzle=swizzle, address=0)
    coords, base = (8 * corner[0], corner[1]), 128 * line
    trace = ts.trace(a, coords, smem_address=base)
    found = place_of(trace, row, column)
    smem = ts.load(a, MATRIX, coords, smem_address=base).view(np.uint16)
    y, x = coords[1] + row, coords[0] + column
    inside = 0 <= y < 64 and x < 64
    assert smem[(found.address - base) // 2] == (MATRIX[y, x] if inside else 0)
    assert (found.holds, found.coords, found.element) == ("element" if inside else "fill", (x, y), (row, column))
    assert place_at(trace, found.address) == found
    assert place_at(trace, found.address + 1).byte == 1
    pitch = {"128B": 128, "64B": 64}[swizzle]  # a row of 64 bytes takes a span
    assert found.offset_xor_address == base + XOR[swizzle](row * pitch + 2 * column)
    assert found.element_instead == place_at(trace, found.offset_xor_address).element


def test_a_gap_holds_nothing_and_a_box_has_an_end():
    a = ts.TensorMap.from_array(MATRIX, (8, 32), swizzle="128B", address=0)
    trace = ts.trace(a, (0, 0))
    assert place_at(trace, 0x60) == ts.Value.from_dict(place_at(trace, 0x60).to_dict())
    assert (place_at(trace, 0x60).holds, place_at(trace, 0x60).element) == ("gap", None)
    assert place_at(trace, 1 << 20).holds == "gap"
    for row, column in ((8, 0), (0, 32), (-1, 0)):
        with pytest.raises(ts.RuleError, match="the box has"):
            place_of(trace, row, column)


@pytest.mark.parametrize(("interleave", "slice_bytes"), [("16B", 16), ("32B", 32)])
def test_a_pixel_of_a_slice_has_columns_too(interleave, slice_bytes):
    a = ts.TensorMap(
        "u8",
        (16, 4, 2),
        (slice_bytes * 16, slice_bytes * 64),
        (16, 2, 1),
        interleave=interleave,
        swizzle="32B" if interleave == "32B" else "none",
    )
    memory = np.random.default_rng(0).integers(0, 256, slice_bytes * 128, np.uint8)
    smem = ts.load(a, memory, (0, 0, 0))
    trace = ts.trace(a, (0, 0, 0))
    for row, column in ((0, 0), (9, 5), (15, slice_bytes - 1)):
        found = place_of(trace, row, column)
        assert (found.element, smem[found.address]) == (
            (row, column),
            memory[row % 16 * slice_bytes + row // 16 * slice_bytes * 16 + column],
        )


MAP = ["--type", "bf16", "--dims", "64,64", "--box", "64,8", "--swizzle", "128B", "--coords", "0,8"]


def test_the_command_says_where_and_what_the_other_xor_gives(capsys):
    assert run(["load", *MAP, "--smem-address", "0x480", "--element", "1,8", "--at", "0x490"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "row 1, column 8 of the box" in said
    assert "byte 0" in said
    assert "tensor coordinates (8, 9)" in said
    assert "0x530: line 10, chunk 3, bank 12" in said
    assert "0x500 instead, where row 1, column 16 lies." in said
    assert "hardware XORs the address" in said
    assert "0x480 instead, where row 0, column 8 lies" in said
    assert run(["load", *MAP, "--smem-address", "0x400", "--element", "1,8"]) == 0
    assert "buffer starts where" in " ".join(capsys.readouterr().out.split())
    assert run(["load", *MAP, "--at", "0x4000"]) == 0
    assert "nothing of this copy" in capsys.readouterr().out
    assert run(["load", *MAP, "--element", "1,8", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["extra"]["places"][0]["element"] == [1, 8]
    assert run(["load", *MAP, "--element", "8,0"]) == 2
    assert "the box has 8 rows" in capsys.readouterr().err


PACKED = {"16u4_align8b": (4, 128), "16u4_align16b": (4, 8), "16u6_align16b": (6, 12)}  # bits; dense bytes of a piece


COPIED = [(data_type, "load") for data_type in PACKED] + [("16u4_align8b", "store"), ("16u6_align16b", "store")]


@pytest.mark.parametrize(("data_type", "operation"), COPIED)  # 16u4_align16b can only be loaded
def test_an_element_narrower_than_a_byte_is_the_one_that_was_asked_for(data_type, operation):
    bits, piece_bytes = PACKED[data_type]
    a = ts.TensorMap(data_type, (256, 4), (256 * bits // 8,), (128, 2), arch="sm_100")
    trace = ts.trace(a, (128, 1), operation=operation)
    for column in range(128):
        piece, bit = divmod(column * bits, piece_bytes * 8)
        expected = (piece * (64 if piece_bytes == 128 else 16) + bit // 8, bit % 8)
        if (bits, operation) == (6, "store"):
            expected = (column, 0)  # a value takes a byte
        found = place_of(trace, 0, column)
        assert (found.address, found.first_bit) == expected
        assert (found.element, found.coords) == ((0, column), (128 + column, 1))


def test_a_byte_of_two_elements_names_both(capsys):
    a = ["load", "--type=e2m1", "--dims=256,8", "--box=256,8", "--arch=sm_100", "--quiet"]
    assert run([*a, "--element=1,33"]) == 0
    shown_text = capsys.readouterr().out
    assert "Element (1, 33) is at byte 0x90" in shown_text
    assert "bits 4 to 7" in shown_text
    assert run([*a, "--at=0x90"]) == 0
    shown_text = capsys.readouterr().out
    assert "holds elements (1, 32) and (1" in shown_text
    assert "33) of the box" in shown_text
    assert run(["mma", "layout", "128x256", "e2m1", "--swizzle=none", "--element=1,33", "--quiet"]) == 0
    assert "bits 4 to 7:" in capsys.readouterr().out
