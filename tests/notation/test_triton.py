"""Triton's encodings against its own definition: which tensor index lies at each offset."""

import itertools

import numpy as np
import pytest

from tilescope import RuleError
from tilescope.notation import parse_layout, spell_layout


def swizzled_offsets(shape, vec, per_phase, max_phase, order):
    """Offset of each element: in its row, pieces of `vec` change places by XOR with the row's phase."""
    fast, slow = order
    index = np.indices(shape)
    row, column = index[slow], index[fast]
    phase = row // per_phase % max_phase
    return row * shape[fast] + (column ^ vec * phase % shape[fast])


def nvmma_offsets(shape, width, transposed, bits):
    """Offset of each element, from the bases of Triton's linear layout: what each bit of an offset adds to the index."""
    bases = []
    vec, per_phase, max_phase = (128 // bits, 128 // width, width // 16) if width else (1, 1, 1)
    box = [min(extent, 256) for extent in shape]
    if width:
        inner = 0 if transposed else 1
        box[inner] = 8 * width // bits
        rows, columns = (box[1], box[0]) if transposed else box
        flat = [(0, 1 << bit) for bit in range(columns.bit_length() - 1)]
        flat += [(1 << bit, vec * ((1 << bit) // per_phase % max_phase)) for bit in range(3)]
        flat += [(1 << bit, 0) for bit in range(3, rows.bit_length() - 1)]
        bases = [base[::-1] if transposed else base for base in flat]
        dims = (0, 1)
    else:
        bases = [(0, 1 << bit) for bit in range(box[1].bit_length() - 1)]
        bases += [(1 << bit, 0) for bit in range(box[0].bit_length() - 1)]
        dims = (1, 0)
    for dim in dims:
        reached = box[dim]
        while reached < shape[dim]:
            bases.append((reached, 0) if dim == 0 else (0, reached))
            reached *= 2
    offset = np.arange(shape[0] * shape[1])
    row, column = np.zeros_like(offset), np.zeros_like(offset)
    for bit, (row_base, column_base) in enumerate(bases):
        row ^= (offset >> bit & 1) * row_base
        column ^= (offset >> bit & 1) * column_base
    offsets = np.full(shape, -1, dtype=np.int64)
    offsets[row, column] = offset
    return offsets


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_swizzled_shared_puts_every_element_where_triton_does(order, bits):
    cases = itertools.product((1, 4, 8, 16), (1, 2, 4), (1, 2, 4, 8, 16), [(8, 64), (64, 16), (16, 16), (32, 8)])
    for vec, per_phase, max_phase, shape in cases:
        text = f"#ttg.swizzled_shared<{{vec = {vec}, perPhase = {per_phase}, maxPhase = {max_phase}, order = {list(order)}}}>"
        layout = parse_layout(text, element_bits=bits, shape=shape)
        wanted = swizzled_offsets(shape, vec, per_phase, max_phase, order) * bits // 8
        assert (layout.addresses() == wanted).all(), text
        again = spell_layout(layout, "triton")
        assert parse_layout(again, element_bits=bits, shape=shape).first_difference(layout) is None


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("width", [0, 32, 64, 128])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_nvmma_shared_puts_every_element_where_triton_does(width, transposed, bits):
    text = (
        f"#ttg.nvmma_shared<{{swizzlingByteWidth = {width}, transposed = {str(transposed).lower()}, "
        f"elementBitWidth = {bits}}}>"
    )
    if width == 0 and transposed:
        with pytest.raises(
            RuleError, match=r"up to 3\.8 stores rows .* 3\.9 \(triton-lang/triton#10453\) stores the transposed tile"
        ):
            parse_layout(text, shape=(64, 64))
        return
    for shape in ((128, 128), (8, 128), (128, 8), (512, 256), (256, 512)):
        strided, contiguous = shape[::-1] if transposed else shape
        if width and (strided < 8 or contiguous * bits < width * 8):
            with pytest.raises(RuleError, match="at least 8 rows"):
                parse_layout(text, shape=shape)
            continue
        layout = parse_layout(text, shape=shape)
        assert (layout.addresses() == nvmma_offsets(shape, width, transposed, bits) * bits // 8).all(), (text, shape)
        assert spell_layout(layout, "triton") == text, shape
        gluon = spell_layout(layout, "gluon")
        assert parse_layout(gluon, shape=shape) == layout


@pytest.mark.parametrize(
    ("cluster", "splits"),
    [
        ("CGALayout = [[0, 0]]", False), ("CGALayout = [[0, 0], [0, 0]]", False), ("CGALayout = [[1, 0]]", True),
        ("CGALayout = [[0, 0], [0, 1]]", True), ("CTAsPerCGA = [2, 1], CTASplitNum = [1, 1]", False),
        ("CTAsPerCGA = [2, 1], CTASplitNum = [2, 1]", True),
    ],
)  # fmt: skip
def test_blocks_that_share_a_tile_do_not_split_it(cluster, splits):
    """A basis of zeros is a broadcast (LinearLayout of Triton): every block of the cluster has the whole tile."""
    text = f"#ttg.nvmma_shared<{{swizzlingByteWidth = 128, elementBitWidth = 16, {cluster}}}>"
    if splits:
        with pytest.raises(RuleError, match="splits the tile"):
            parse_layout(text)
    else:
        assert parse_layout(text) == parse_layout("gl.NVMMASharedLayout(128, 16)")


def test_a_layout_without_a_contiguous_index_is_refused_in_plain_words():
    with pytest.raises(RuleError, match="stores a tile in which one of its two indices is contiguous"):
        spell_layout(parse_layout("(8,8):(2,16)", element_bits=16), "triton")


def test_the_shapes_of_the_smallest_tiles_are_known():
    assert parse_layout("gl.NVMMASharedLayout(64, 16, 2)").shape == (8, 32)
    assert parse_layout("gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=16, transposed=True)").shape == (
        32,
        8,
    )
    assert parse_layout("SwizzledSharedLayout(8, 2, 4, [1, 0])", element_bits=16).shape == (8, 32)


@pytest.mark.parametrize(
    "text",
    [
        "!ttg.memdesc<64x128xf16, #ttg.nvmma_shared<{swizzlingByteWidth = 128, elementBitWidth = 16}>, #smem, mutable>",
        "#ttg.nvmma_shared<{swizzlingByteWidth = 128, CTAsPerCGA = [1, 1], CTASplitNum = [1, 1], CTAOrder = [1, 0]}>",
        "#ttg.nvmma_shared<{swizzlingByteWidth=128, transposed=false, elementBitWidth=16, CGALayout = []}>",
        "ttgl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2, transposed=False, cga_layout=None)",
    ],
)
def test_reads_a_buffer_type_and_the_encodings_of_one_block(text):
    wanted = parse_layout("gl.NVMMASharedLayout(128, 16)", shape=(64, 128))
    assert parse_layout(text, element_bits=16, shape=(64, 128)) == wanted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#ttg.swizzled_shared<{vec = 3, perPhase = 1, maxPhase = 8, order = [1, 0]}>", "a power of two"),
        ("#ttg.swizzled_shared<{vec = 8, perPhase = 1, order = [1, 0]}>", "maxPhase"),
        ("#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [0, 0]}>", "order"),
        (
            "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0], hasLeadingOffset = true}>",
            "nvmma",
        ),
        (
            "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0], CTASplitNum = [2, 1]}>",
            "one block",
        ),
        ("#ttg.swizzled_shared<{vec = 8, vec = 8}>", "vec once"),
        ("#ttg.nvmma_shared<{swizzlingByteWidth = 96, transposed = false, elementBitWidth = 16}>", "0, 32, 64 or 128"),
        (
            "#ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16, fp4Padded = true}>",
            "padding",
        ),
        (
            "#ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16, rank = 3}>",
            "two indices",
        ),
        ("#ttg.nvmma_shared<{swizzlingByteWidth = 64, wide = 1, elementBitWidth = 16}>", "the field wide"),
        ("!ttg.memdesc<2x64x128xf16, #ttg.nvmma_shared<{swizzlingByteWidth = 128}>, #smem>", "rank 3"),
        ("gl.NVMMASharedLayout(128, 16, 2, False, False, 1)", "a field such as"),
    ],
)
def test_says_why_an_encoding_is_not_understood(text, reason):
    with pytest.raises(RuleError, match=reason):
        parse_layout(text, element_bits=16, shape=(64, 128))
