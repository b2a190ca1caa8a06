"""The drawings of operands, fragments and descriptors say what the values say."""

import re

import pytest

from tilescope import (
    InstructionDescriptor,
    Tcgen05Descriptor,
    TensorMap,
    WgmmaDescriptor,
    canonical_layout,
    compatible,
    descriptor_readings,
    fragment,
    inspect_descriptor,
    tcgen05_descriptors,
    view,
    wgmma_descriptors,
)
from tilescope.errors import RuleError
from tilescope.mma.tcgen05_kind import KINDS
from tilescope.view.ruler import BitRuler

LAYOUTS = [("K", mode) for mode in ("none", "32B", "64B", "128B")] + [
    ("MN", mode) for mode in ("none", "32B", "64B", "128B", "128B_ATOM_32B")
]


@pytest.mark.parametrize("bits", ["b1", "e2m1", "e4m3", "bf16", "tf32"])
@pytest.mark.parametrize("order", ["column", "row"])
@pytest.mark.parametrize(("major", "mode"), LAYOUTS)
def test_an_operand_is_drawn_where_it_lies(major, mode, order, bits):
    layout = canonical_layout(major, mode, bits)
    tile = layout.tile((3 * layout.atom[0], 2 * layout.atom[1]), atom_order=order, start=0x2000)
    element = (2 * layout.atom[0] + 1, layout.atom[1] + 2)
    drawing = view.draw(tile, element=element)
    starts = drawing["atoms"]
    for down, row in enumerate(starts.rows):
        for right, cell in enumerate(row.cells):
            mn, k = (down, right) if major == "K" else (right, down)
            assert int(cell.text, 0) == tile.logical(mn * layout.atom[0], k * layout.atom[1])
            assert bool(cell.mark) == ((mn, k) == (2, 1))
    per_chunk = 128 // layout.element_bits
    by_element = drawing["by element"]
    marked = []
    for row in by_element.rows:
        for number, cell in enumerate(row.cells):
            first = int(by_element.tiers[0].headers[number].text.split("-")[0])
            mn, k = (int(row.labels[0]), first) if major == "K" else (first, int(row.labels[0]))
            address = tile.address(mn, k)
            assert int(cell.text, 0) == address
            assert cell.colour == address % 128 // 16
            marked += [(mn, k)] if cell.mark else []
    where = (
        (element[0], element[1] // per_chunk * per_chunk)
        if major == "K"
        else (element[0] // per_chunk * per_chunk, element[1])
    )
    assert marked == [where]
    seen = 0
    for row in drawing["by memory"].rows:
        for place, cell in enumerate(row.cells):
            if cell.text:
                mn, k = map(int, cell.text.split(","))
                assert tile.address(mn, k) == int(row.labels[0], 0) + 16 * place
                seen += 1
    assert seen * 16 == layout.atom_bytes


def test_an_operand_of_128_x_64_fits_a_terminal():
    for major, mode in LAYOUTS[:-1]:
        text = view.text(canonical_layout(major, mode, "bf16").tile((128, 64)), width=80)
        assert max(map(len, text.splitlines())) <= 80
        assert len(text.splitlines()) < 80


def test_a_large_map_of_atoms_is_cut_around_the_element():
    tile = canonical_layout("K", "none", "bf16").tile((512, 512))
    starts = view.draw(tile, element=(500, 400))["atoms"]
    assert (len(starts.rows), starts.columns) == (16, 16)
    assert sum(bool(cell.mark) for row in starts.rows for cell in row.cells) == 1
    assert starts.notes[0].startswith("Drawn: 16 x 16 of 64 x 64 atoms")


def test_core_matrices_and_plain_rows_are_told_apart():
    text = " ".join(view.text(canonical_layout("K", "none", "bf16").tile((64, 32))).split())
    assert "none (core matrices)" in text
    assert "not a tile of plain" in text


def test_a_canonical_layout_is_drawn_as_one_atom():
    text = view.text(canonical_layout("MN", "128B_ATOM_32B", "tf32"))
    assert text.startswith("MN-major 128B_ATOM_32B:")
    assert "atom of 32 x 4 (mn x k)" in text
    assert "32-bit elements" in text
    assert "documented" in text


@pytest.mark.parametrize(
    ("major", "mode", "data_type", "said"),
    [
        ("K", "128B", "bf16", "the core matrix, "),
        ("MN", "none", "u8", "the core matrix, "),
        ("MN", "128B_ATOM_32B", "tf32", "its column of the atom"),  # whose core matrices are two chunks wide
    ],
)
def test_colours_of_an_atom_are_core_matrices_where_these_are_columns_of_chunks(major, mode, data_type, said):
    text = " ".join(view.text(canonical_layout(major, mode, data_type)).split())
    assert f"Colour: {said}" in text


def test_an_element_outside_is_refused():
    with pytest.raises(RuleError, match="outside the tile"):
        view.draw(canonical_layout("K", "128B", "bf16").tile((64, 64)), element=(64, 0))


FRAGMENTS = [
    ("mma.m16n8k16", "A", "bf16"),
    ("mma.m16n8k16", "B", "bf16"),
    ("mma.m16n8k16", "D", "f32"),
    ("mma.m16n8k8", "A", "tf32"),
    ("mma.m16n8k32", "B", "e4m3"),
    ("mma.m16n8k64", "A", "s4"),
    ("mma.m16n8k256", "B", "b1"),
    ("mma.m8n8k4", "A", "f64"),
    ("mma.m8n8k4.row.col", "A", "f16"),
    ("mma.m8n8k4.col.row", "A", "f16"),
    ("mma.m8n8k4", "D", "f32"),
    ("wgmma.m64n8k16", "D", "f32"),
    ("wgmma.m64n256k16", "D", "f16"),
    ("wgmma.m64n64k32", "A", "s8"),
    ("ldmatrix.x4", "matrix", "bf16"),
    ("ldmatrix.x2.trans", "matrix", "bf16"),
]


def first_number(text):
    return int(text.split("-")[0])


@pytest.mark.parametrize(("instruction", "operand", "data_type"), FRAGMENTS)
def test_a_fragment_is_drawn_both_ways(instruction, operand, data_type):
    found = fragment(instruction, operand, data_type)
    lane = 22 if found.threads == 32 else 70
    drawing = view.draw(found, lane=lane)
    by_element = drawing["elements"]
    matrix = found.matrix_of(lane, 0)
    for row in by_element.rows:
        for header, cell in zip(by_element.tiers[0].headers, row.cells, strict=True):
            thread, value = map(int, re.fullmatch(r"T(\d+)V(\d+)", cell.text).groups())
            assert found.holder(first_number(row.labels[0]), first_number(header.text), matrix) == (thread, value)
            assert bool(cell.mark) == (thread == lane)
            assert cell.colour == thread % 32
    by_thread = drawing["threads"]
    assert len(by_thread.rows) == 32
    for row in by_thread.rows:
        for header, cell in zip(by_thread.tiers[-1].headers, row.cells, strict=True):
            thread, value = int(row.labels[0]), first_number(header.text[1:])
            assert tuple(first_number(part) for part in cell.text.split(",")) == found.coord(thread, value)
    assert [(int(line[-2]), int(line[-1])) for line in drawing["lane"].rows] == list(found.held_by(lane))


def test_a_fragment_shows_its_cute_layouts():
    text = view.text(fragment("mma.m16n8k8", "A", "bf16"))
    assert "((4,8),(2,2)):((32,1),(16,8))" in text
    assert "((8,2),(2,4)):((4,64),(32,1))" in text


def test_the_holder_of_an_element_is_marked():
    found = fragment("wgmma.m64n256k16", "D", "f32")
    grid = view.draw(found, element=(37, 200))["elements"]
    marked = {
        (int(row.labels[0]), int(header.text))
        for row in grid.rows
        for header, cell in zip(grid.tiers[0].headers, row.cells, strict=True)
        if cell.mark
    }
    assert (37, 200) in marked


def test_a_thread_that_does_not_exist_is_refused():
    with pytest.raises(RuleError, match="thread = 32; 0 to 31"):
        view.draw(fragment("mma.m16n8k8", "A", "bf16"), lane=32)


DESCRIPTOR_TEXT = """\
wgmma descriptor 0x4000004000010040

Read as K-major with 16-bit elements (the instruction decides that, not the
word).

63    56      48      40      32      24      16       8       0
ee··········[d]···[---stride---]··[--leading---]··[---start----]

key  bits   field        value  meaning
a    0-13   start        0x40   0x400, before the swizzle: line 8, byte 0
b    16-29  leading      0x1    16 bytes (ignored: inside a swizzled atom k is
                                contiguous, and one instruction stays inside)
c    32-45  stride       0x40   1024 bytes from the atom at (mn 0, k 0) to the
                                next 8 mn, at (mn 8, k 0)
d    49-51  base offset  0x0    0: the pattern starts where the absolute address
                                says, as TMA writes it
e    62-63  swizzle      0x1    128B: atoms of 8 x 64 (mn x k), 1024 bytes
Start, leading and stride are stored divided by 16; unnamed bits are 0."""


def test_a_descriptor_is_drawn_as_its_word():
    descriptor = WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    assert view.text(descriptor) == DESCRIPTOR_TEXT
    assert view.text(inspect_descriptor(descriptor.encode())) == DESCRIPTOR_TEXT


def test_ignored_fields_are_grey_and_reserved_bits_red():
    word = inspect_descriptor(0x4000404000010040)
    fields = {field.name: field for field in view.draw(word)["ruler"].fields}
    assert fields["leading"].colour == "unused"
    assert fields["stride"].colour != "unused"
    assert (fields["reserved"].low, fields["reserved"].mark) == (46, "collision")
    assert "tcgen05" in view.text(word)


@pytest.mark.parametrize(("major", "bits"), [("K", 8), ("K", 16), ("K", 32), ("MN", 16)])
def test_the_listed_addresses_are_those_it_reads(major, bits):
    descriptor = WgmmaDescriptor(0x420, leading_bytes=1024, stride_bytes=2048, swizzle="64B")
    word = inspect_descriptor(descriptor.encode(), major=major, element_bits=bits)
    expected = descriptor.addresses(major, 48, 256 // bits, bits)
    drawing = view.draw(word, rows=48)
    grids = drawing["addresses"].parts if major == "K" else [drawing["rows 0"]]  # bands of 16 rows
    shown = {}
    for grid in grids:
        for row in grid.rows:
            for header, cell in zip(grid.tiers[0].headers, row.cells, strict=True):
                place = int(row.labels[0]), first_number(header.text)
                shown[place if major == "K" else place[::-1]] = int(cell.text, 0)
    assert len(shown) == expected.size * bits // 128
    assert all(expected[place] == address for place, address in shown.items())


def test_a_loop_lists_every_descriptor():
    loop = wgmma_descriptors((128, 128), "bf16", swizzle="128B", smem_address=0x400)
    listed = view.draw(loop)["steps"]
    assert [line[-1] for line in listed.rows] == [f"{each.encode():#018x}" for steps in loop for each in steps]
    assert [line[3] for line in listed.rows[:8]] == ["", "+32", "+32", "+32", "+16288", "+32", "+32", "+32"]


@pytest.mark.parametrize("name", ["ldmatrix.x4", "ldmatrix.x2.trans", "ldmatrix.m16n16.x2.trans.b8", "stmatrix.x4"])
def test_what_a_lane_holds_of_several_matrices_names_the_matrix(name):
    """Lane 13 of ldmatrix.x4 held "row 3, column 2" four times."""
    held = fragment(name)
    table = view.draw(held, lane=13)["lane"]
    assert table.headings == ("value", "register", "bits", "matrix", "row", "column")
    for value, row in enumerate(table.rows):
        assert tuple(map(int, row[3:])) == (held.matrix_of(13, value), *held.coord(13, value))
    assert len({row[3:] for row in table.rows}) == held.values
    by_thread = view.draw(held)["threads"]
    width = 32 // held.element_bits
    matrices = [held.matrix_of(0, value) for value in range(0, held.values, width)]
    assert [int(header.text) for header in by_thread.tiers[0].headers] == matrices
    (note,) = by_thread.notes
    assert note.startswith(f"Lane {held.shape[0]} j + r ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mma.m16n8k256", "A", "b1"), "`T5V32` stands for values 32 to 63"),
        (("mma.m16n8k8", "A", "bf16"), "`T5V2` stands for values 2 to 3"),
        (("mma.m8n8k16", "A", "s8"), "`T5V0` stands for values 0 to 3"),
    ],
)
def test_the_cell_that_is_explained_exists(arguments, said):
    assert said in view.draw(fragment(*arguments))["sentence"]


def test_a_long_loop_is_cut():
    loop = wgmma_descriptors((256, 512), "bf16", swizzle="32B")
    assert "The first 64 of 128 descriptors." in view.text(loop)


INSTRUCTION_TEXT = """\
tcgen05 instruction descriptor, kind mxf4 0x88400880

kind mxf4: e2m1 x e2m1 -> float32, m256 n256 k96, A K-major, B K-major, scales
ue8m0, ids 0 and 0; for cta_group::2."""


def test_an_instruction_descriptor_is_drawn_as_its_word():
    descriptor = InstructionDescriptor("mxf4", 256, 256, k=96)
    text = view.text(descriptor)
    assert text.startswith(INSTRUCTION_TEXT.replace("0x88400880", f"{descriptor.encode():#010x}"))
    ruler = view.draw(descriptor)["ruler"]
    assert (ruler.bits, ruler.row_bits) == (32, 32)
    fields = {field.name: (field.low, field.high, field.meaning) for field in ruler.fields}
    assert fields["M"] == (27, 28, "256 rows of A and D")
    assert fields["K"] == (31, 31, "k is 96 (sm_103a)")
    assert fields["scale type"] == (23, 23, "scale factors are ue8m0")


@pytest.mark.parametrize("kind", KINDS)
def test_no_key_of_a_ruler_reads_as_the_name_of_another_field(kind):
    """M is a field's name, so that m is no key: two fields called m were drawn."""
    ruler = view.draw(InstructionDescriptor(kind, 256, 128, a_type=next(iter(KINDS[kind].codes))))["ruler"]
    keys = [piece.key.casefold() for row in ruler.rows() for piece, _ in row.fields]
    assert len(set(keys)) == len(ruler.fields)
    assert not set(keys) & {field.name.casefold() for field in ruler.fields}


def test_a_tcgen05_descriptor_is_drawn_as_its_word():
    descriptor = Tcgen05Descriptor(
        0x60, leading_bytes=0x4000, stride_bytes=1024, swizzle="128B", leading_is_address=True
    )
    fields = {field.name: field for field in view.draw(descriptor)["ruler"].fields}
    assert fields["leading"].meaning.startswith("0x4000: where k goes on")
    assert fields["leading"].colour != "unused"
    assert (fields["leading mode"].low, fields["leading mode"].value) == (52, "0x1")


def test_readings_name_every_kind_and_draw_the_possible_ones():
    found = descriptor_readings(0x08200490)
    drawing = view.draw(found)
    verdicts = drawing["verdicts"]
    assert [row[:2] for row in verdicts.rows] == [
        (reading.name, "yes" if reading.sound else "no") for reading in found.readings
    ]
    assert len([part for part in drawing.parts if isinstance(part, BitRuler)]) == len(found.possible) == 3


def test_an_agreement_marks_the_fields_that_are_wrong():
    a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    wrong = WgmmaDescriptor(0x80, leading_bytes=16, stride_bytes=512, swizzle="128B")
    drawing = view.draw(compatible(a, wrong))
    given, right = drawing["ruler"], drawing["right ruler"]
    assert [field.name for field in given.fields if field.mark] == ["start", "stride"]
    assert [field.name for field in right.fields if field.mark] == []
    assert {field.name: field.value for field in right.fields}["stride"] == "0x40"


def test_an_agreement_without_a_right_descriptor_shows_the_given_one(wording):
    a = TensorMap("bf16", (64, 64), (128,), (64, 64))
    found = compatible(a, WgmmaDescriptor(0, leading_bytes=128, stride_bytes=256, swizzle="none"))
    drawing = view.draw(found)
    wording("an agreement without a right descriptor shows the given one", drawing.title)
    assert not [field for field in drawing["ruler"].fields if field.mark]


def test_majorness_alone_is_no_wrong_field():
    a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    right = WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    found = compatible(a, right, major="MN", tile_major="K")
    assert found.cause == "majorness"
    assert not [field for field in view.draw(found)["ruler"].fields if field.mark]


def test_a_blackwell_loop_lists_every_descriptor():
    loop = tcgen05_descriptors((128, 32), "tf32", major="MN", swizzle="128B_ATOM_32B")
    listed = view.draw(loop)["steps"]
    assert [line[-1] for line in listed.rows] == [f"{each.encode():#018x}" for steps in loop for each in steps]
