"""Drawings of tensor maps, descriptors, differences and rules."""

import struct
import xml.etree.ElementTree as ET

import pytest

import tilescope as ts
from tilescope import view
from tilescope.tensor_map import MapArguments, TensorMapDiff
from tilescope.tensor_map.samples import IMAGES, MATRIX, SLICES, WIDE
from tilescope.view.tensor_map_view import in_words


def test_a_map_is_drawn_whole():
    tensor_map = ts.TensorMap("bf16", (100, 4096), (208,), (32, 64), swizzle="128B", element_strides=(1, 2))
    assert (
        tensor_map.text()
        == """\
Tiled tensor map: 100 x 4096 bfloat16, box 32 x 64, swizzle 128B

A tensor of 100 x 4096 bfloat16 elements at 0x0. One copy transfers a box of 32
x 64: every 2nd element of dim 1. In shared memory it is 32 rows of 64 bytes,
128 bytes apart (the gaps keep their old content): 4096 bytes, swizzled 128B.
Elements outside the tensor are loaded as zero.

Dimensions, innermost first
dim  extent  stride bytes  box  element stride  visited  boxes
  0     100             2   32               1       32      4
  1    4096           208   64               2       32     64

One copy
shared memory     4096 bytes a copy
shared address    multiple of 1024 bytes (128 is enough for the chip, and starts
                  inside the swizzle pattern)
mbarrier expects  2048 bytes a copy
interleave        none
L2 promotion      none
architecture      sm_90, measured on a card

Good to know
store-overrun  dims[0] = 100 elements end 8 bytes into a 16-byte piece; a store
               or reduction also overwrites the 8 bytes after the last element
               of each row. Use dims[0] = 104 if those bytes are padding, or
               store the last elements of each row with threads."""
    )


def test_an_inspection_is_drawn_whole():
    assert (
        ts.inspect_tensor_map(ts.TensorMap("u8", (256,), (), (64,), address=0x1000).encode()).text()
        == """\
Tiled tensor map: 256 uint8, box 64

A tensor of 256 uint8 elements at 0x1000. One copy transfers a box of 64. In
shared memory it is 1 row of 64 bytes: 64 bytes. Elements outside the tensor are
loaded as zero.

The descriptor
            63    56      48      40      32      24      16       8       0
word 0      ·······[------------------------address------------------------]
word 1      ·············································hhgfeedd[c-][b]···a
words 2-3   no named bits
word 4      ································[-----------dims[0]------------]
word 5      no named bits
word 6      [box[0]]·····················[a]································
word 7      no named bits
word 8      [--------------------------box_bytes---------------------------]
word 9      [-------------------------repeat_bytes-------------------------]
words 10-15 no named bits

word    key  bits   field               value   meaning
word 0  a    0-56   address             0x1000  0x1000
word 1  a    0      im2col              0       tiled
word 1  b    4-6    rank                0       1 dimension
word 1  c    7-10   data_type           0       uint8
word 1  d    11-12  interleave          0       none
word 1  e    13-14  swizzle             0       none
word 1  f    15     oob_fill            0       zero
word 1  g    16     tf32                0       as it is
word 1  h    17-18  l2_promotion        0       none
word 4  a    0-31   dims[0]             0xff    256 elements
word 6  a    32-34  element_strides[0]  0       1
word 6  b    56-63  box[0]              0x3f    64 elements
word 8  a    0-63   box_bytes           0x40    64 bytes
word 9  a    0-63   repeat_bytes        0x10    16: no swizzle
Bits without a name are zero."""
    )


@pytest.mark.parametrize(
    ("tensor_map", "said"),
    [
        (
            ts.Im2colMap(**IMAGES),
            "channels, walking base positions W -1 to 30",
        ),
        (ts.Im2colWideMap(**WIDE), "copy transfers 64 pixels of 64"),
        (ts.Im2colWideMap(**WIDE | {"mode": "W128"}), "copy transfers 128 pixels of 64"),
        (
            ts.TensorMap(**SLICES),
            "tensor of 8 x 8 x 8 pixels (W to N",
        ),
        (
            ts.TensorMap(**MATRIX, oob_fill="nan", l2_promotion="128B"),
            "every 16 bits). L2 fetches 128B",
        ),
        (ts.TensorMap(**MATRIX, element_strides=(2, 1)), "64 x 64."),  # dim 0 ignores it
    ],
)
def test_maps_in_words(tensor_map, said):
    assert said in in_words(tensor_map)


def test_unknown_bits_are_gathered_and_marked(read_svg):
    found = ts.inspect_tensor_map(ts.TensorMap(**MATRIX).encode()[:96] + b"\xff\x0f" + bytes(30))
    drawn = view.draw(found)
    marked = [field for field in drawn["ruler"].fields if field.mark == "collision"]
    assert [(field.low, field.high, field.name) for field in marked] == [(768, 779, "unknown")]
    page = read_svg(found.svg())
    assert any(cell.mark == "collision" for row in page.rows for cell in row)


@pytest.mark.parametrize("rank", range(1, 9))
@pytest.mark.parametrize("im2col", [0, 1])
def test_bytes_that_claim_any_rank_can_be_drawn(im2col, rank):
    for others in (0, 255):
        word = struct.pack("<Q", im2col | rank - 1 << 4 | others << 7)
        found = ts.inspect_tensor_map(bytes([others]) * 8 + word + bytes([others]) * 112)
        assert found.field("rank").raw == rank - 1
        assert found.text()


SAMPLES = [
    ts.TensorMap(**MATRIX),
    ts.Im2colMap(**IMAGES),
    ts.Im2colWideMap(**WIDE),
    ts.TensorMap(**SLICES),
    ts.inspect_tensor_map(bytes(range(128))),
    ts.inspect_tensor_map(ts.Im2colMap(**IMAGES).encode()),
    TensorMapDiff.of(ts.TensorMap(**MATRIX), ts.Im2colMap(**IMAGES)),
    TensorMapDiff.of(ts.TensorMap(**MATRIX), ts.TensorMap(**MATRIX)),
    MapArguments.of(MATRIX).report(),
    MapArguments.of(MATRIX | {"box": (300, 0)}).report(),
    *ts.RULES.values(),
]


@pytest.mark.parametrize("value", SAMPLES, ids=lambda value: getattr(value, "name", value.kind))
def test_everything_can_be_drawn_both_ways_and_fits(value, read_svg):
    for width in (60, 80, 120):
        lines = value.text() if width == 80 else view.text(value, width=width)
        assert lines.strip()
    ET.fromstring(value.svg())
    page = read_svg(value.svg())
    assert max(text.right for text in page.texts) <= page.size[0]
