"""Sparse matrices: what is stored, where the metadata lies, and products of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope import RuleError, WgmmaDescriptor, compress, decompress, emulate_mma, fragment, tmem_layout
from tilescope.data_type import DataType
from tilescope.layout import Modes
from tilescope.mma.mma_instruction import SPARSE_INSTRUCTIONS
from tilescope.mma.sparsity import expand_rows, group_elements, seen_by_rows

TYPES = ("tf32", "f16", "bf16", "s8", "u8", "e4m3", "e5m2", "s4", "u4")
MEASURED = [(row, name) for row in SPARSE_INSTRUCTIONS for name in row.types]


def named(row):
    """An instruction with one n."""
    return row.name.replace("nN", "n64")


def sparse_matrix(random, m, k, data_type):
    """Small numbers, of which every group keeps at most half: elements, or pairs of 4 bits."""
    row = DataType.named(data_type)
    group = group_elements(row)
    together = 2 if row.smem_bits == 4 else 1
    pieces = random.integers(0, 4, (m, k // group, group // together, together))
    if data_type in {"s8", "s4", "tf32", "f16"}:
        pieces = pieces - 2
    rank = random.random(pieces.shape[:3]).argsort(axis=-1)
    kept = rank < pieces.shape[2] // 2
    return np.where(kept[..., None], pieces, 0).reshape(m, k).astype(row.numpy)


def test_metadata_lies_as_cute_has_it():
    """mma_traits_sm90_gmma_sparse.hpp: ELayout_64x64, 64x32 and 64x16; there k counts elements, here groups."""
    elements = {
        "e4m3": Modes(((2, 2, 8, 4), (4, 8)), ((8, 2048, 1, 16), (64, 256))),
        "f16": Modes(((2, 2, 8, 4), (4, 4, 2)), ((1024, 0, 1, 16), (64, 256, 8))),
        "tf32": Modes(((2, 2, 8, 4), (2, 4, 2)), ((512, 0, 1, 16), (64, 128, 8))),
    }
    for data_type, layout in elements.items():
        k = {"e4m3": 64, "f16": 32, "tf32": 16}[data_type]
        group = group_elements(DataType.named(data_type))
        held = fragment(f"wgmma.sp.m64n8k{k}", "E", data_type)
        for thread in range(128):
            of_cute = [layout.at(thread, value * group) for value in range(8)]
            assert list(held.held_by(thread)) == [(index % 64, index // 64 // group) for index in of_cute]


def ptx_place(row, group, groups, bits, selector):
    """Lane and nibble of (row, group), as the figures of PTX have them."""
    quad = row // 16 * 32 + row % 8 * 4
    is_lower = row % 16 >= 8
    if bits >= 16:
        return quad + selector * (groups // 4) + group // 4, group % 4 + 4 * is_lower
    return quad + 2 * selector + 2 * (group // 8) + is_lower, group % 8


@pytest.mark.parametrize(("row", "data_type"), MEASURED, ids=lambda value: getattr(value, "name", value))
def test_words_of_lanes_are_those_of_the_figures(row, data_type):
    random = np.random.default_rng(5)
    a = sparse_matrix(random, row.m, row.k, DataType.named(data_type).ptx)
    nibbles = compress(a, data_type).metadata
    groups = nibbles.shape[1]
    held = fragment(named(row), "E", data_type)
    for selector in range(held.copies):
        words = compress(a, data_type, instruction=named(row), selector=selector).metadata[0, 0]
        naive = np.zeros(held.threads, np.uint32)
        for line in range(row.m):
            for group in range(groups):
                lane, nibble = ptx_place(line, group, groups, DataType.named(data_type).bits, selector)
                naive[lane] |= np.uint32(nibbles[line, group]) << np.uint32(4 * nibble)
        assert words.tolist() == naive.tolist()


def test_there_are_as_many_selectors_as_lanes_that_could_hold_the_metadata():
    found = {(row.k, name): fragment(named(row), "E", name).copies for row, name in MEASURED if row.family == "mma.sp"}
    assert found[16, "float16"] == found[8, "tfloat32"] == 4
    assert found[32, "bfloat16"] == found[16, "tfloat32"] == found[32, "int8"] == found[64, "uint4"] == 2
    assert found[64, "uint8"] == found[64, "e4m3"] == found[128, "int4"] == 1


def test_the_holder_of_a_nibble_is_that_of_selector_0():
    held = fragment("mma.sp.m16n8k16", "E", "bf16")
    assert held.holder(9, 2) == (4, 6)
    assert held.inverse.at(9, 2) == 4 + 32 * 6
    assert [held.holders(selector)[0][0, 9, 2] for selector in range(4)] == [4, 5, 6, 7]


def test_cells_of_tensor_memory_hold_the_entries_of_their_elements():
    a = sparse_matrix(np.random.default_rng(3), 256, 64, "bf16")
    cells = compress(a, "bf16", instruction="tcgen05.mma.sp").metadata
    assert cells.shape == (2, 2, 128, 1)
    layout = tmem_layout((128, 32), operand="metadata", data_type="bf16")
    nibbles = compress(a, "bf16").metadata
    for row, k in ((0, 0), (5, 3), (13, 17), (100, 31), (127, 30)):
        place = layout.place(row, k)
        bit = int(cells[1, 1, place.lanes[0], place.column]) >> place.bit & 1
        assert bit == int(nibbles[128 + row, (32 + k) // 4]) >> k % 4 & 1


@given(st.integers(0, 10**6), st.sampled_from(TYPES), st.booleans())
def test_decompress_undoes_compress(seed, data_type, in_cells):
    random = np.random.default_rng(seed)
    rows = [row for row in SPARSE_INSTRUCTIONS if DataType.named(data_type).name in row.types]
    row = rows[seed % len(rows)]
    instruction, m = ("tcgen05.mma.sp", 128) if in_cells else (named(row), row.m)
    selector = 0 if in_cells else seed % fragment(instruction, "E", data_type).copies
    a = sparse_matrix(random, 2 * m, 2 * max(each.k for each in rows), data_type)
    if in_cells and data_type in {"s4", "u4"}:
        instruction = None
    options = {"instruction": instruction, "selector": selector}
    values, metadata = compress(a, data_type, **options)
    assert values.shape == (len(a), a.shape[1] // 2)
    back = decompress(values, metadata, data_type, **options)
    assert back.dtype == a.dtype
    assert (back == a).all()


def test_fewer_than_half_are_filled_up_with_zeros_in_order():
    values, metadata = compress([[0, 0, 0, 9], [0, 0, 0, 0], [0, 3, 0, 0]], "f16")
    assert values.tolist() == [[0, 9], [0, 0], [0, 3]]
    assert metadata.tolist() == [[0xC], [0x4], [0x4]]


def test_of_tf32_one_of_two_is_stored_and_of_4_bits_pairs():
    assert compress([[0, 7, 5, 0]], "tf32").metadata.tolist() == [[0xE, 0x4]]
    values, metadata = compress([[0, 0, 1, 2, 0, 0, 0, 3]], "s4")
    assert (values.astype(int).tolist(), metadata.tolist()) == ([[1, 2, 0, 3]], [[0xD]])


REFUSED = {
    "mma-sparse": (
        lambda: compress([[1, 0, 2, 0], [1, 2, 0, 3]], "bf16"),
        "row 1 has 3 elements that are not zero in k 0 to 3: 1, 2, 0, 3",
    ),
    "sparse-type": (lambda: compress(np.eye(4)), "float64"),
    "sparse-shape": (lambda: compress(np.eye(16, 24), "f16", instruction="mma.sp.m16n8k16"), "a matrix of 16 x 24"),
    "sparse-selector": (
        lambda: compress(np.eye(16, 64), "s8", instruction="mma.sp.m16n8k64", selector=1),
        "selector = 1",
    ),
    "sparse-metadata": (lambda: decompress([[1, 2, 3, 4]], [[0x4, 0xA]], "f16"), "0xa for row 0, k 4 to 7"),
    "argument-range": (lambda: decompress([[1, 2]], [[0x4, 0x4]], "f16"), "an array of shape (1, 2), int64"),
    "fragment-type": (
        lambda: compress(np.eye(16, 32), "tf32", instruction="mma.sp.m16n8k32"),
        "tfloat32 for operand E",
    ),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_what_is_not_sparse_is_refused_with_its_place(rule):
    call, found = REFUSED[rule]
    with pytest.raises(RuleError) as caught:
        call()
    (violation,) = caught.value.violations
    assert (violation.rule, violation.found) == (rule, found)


@pytest.mark.parametrize("data_type", TYPES)
def test_rows_see_the_elements_of_b_that_their_stored_ones_meet(data_type):
    random = np.random.default_rng(11)
    row = DataType.named(data_type)
    a = sparse_matrix(random, 16, 64, data_type)
    b = random.integers(0, 4, (8, 64)).astype(row.numpy)
    values, metadata = compress(a, data_type)
    seen = seen_by_rows(b, metadata, row).astype(float)
    found = (values.astype(float)[:, None] * seen).sum(axis=-1)
    assert (expand_rows(values, metadata, row) == a).all()
    assert (found == a.astype(float) @ b.astype(float).T).all()


@pytest.mark.parametrize(
    ("consumer", "data_type", "swizzle"),
    [
        ("wgmma", "f16", "64B"),
        ("wgmma", "tf32", "64B"),
        ("wgmma", "e4m3", "64B"),
        ("wgmma", "u8", "32B"),
        ("ldmatrix", "bf16", "64B"),
        ("ldmatrix", "e5m2", "64B"),
        ("ldmatrix", "s8", "32B"),
    ],
)
def test_a_sparse_product_equals_the_dense_one(consumer, data_type, swizzle):
    random = np.random.default_rng(7)
    k = 2 * 512 // DataType.named(data_type).bits
    a = sparse_matrix(random, 64, k, data_type)
    b = random.integers(0, 4, (k, 16)).astype(DataType.named(data_type).numpy)
    c = random.integers(-5, 5, (64, 16))
    options = {"data_type": data_type, "consumer": consumer, "swizzle": swizzle, "c": c, "sparse": True}
    wanted = a.astype(float) @ b.astype(float) + c
    assert (emulate_mma(a, b, **options) == wanted).all()
    assert (emulate_mma(a, b, exact_sum=True, **options) == wanted).all()


def test_a_sparse_instruction_adds_all_it_stores_at_once():
    """64 bytes of B are one step: the second half is not cut to what the first left, as two dense instructions would be."""
    a = np.zeros((64, 32))
    a[:, [0, 4, 8, 16, 20, 24]] = 2.0**-13  # six products of 2**-24, three in each half
    a[:, 31] = 1
    options = {"data_type": "f16", "c": np.full((64, 8), 2.0), "swizzle": ("32B", "64B")}
    b = np.where(np.arange(32) == 31, 1.0, 2.0**-11)[:, None] * np.ones((32, 8))
    sparse = emulate_mma(a, b, sparse=True, **options)
    dense = emulate_mma(a, b, **options | {"swizzle": ("64B", "64B")})
    assert (sparse == 3 + 2.0**-22).all()
    assert (dense == 3).all()


@pytest.mark.parametrize(
    ("data_type", "k", "rule"), [("f16", 48, "mma-shape"), ("e2m3", 64, "mma-type"), ("e4m3", 32, "mma-shape")]
)
def test_what_no_sparse_instruction_multiplies_is_refused(data_type, k, rule):
    with pytest.raises(RuleError) as caught:
        emulate_mma(np.zeros((16, k)), np.zeros((k, 8)), data_type=data_type, consumer="ldmatrix", sparse=True)
    assert caught.value.violations[0].rule == rule


def test_the_second_half_of_a_sparse_b_in_32b_swizzle_lies_leading_bytes_further_on():
    """As wgmma.sp read it on an H200; a dense instruction stays in the first half."""
    descriptor = WgmmaDescriptor(0x1000, leading_bytes=0x800, stride_bytes=256, swizzle="32B")
    addresses = descriptor.addresses("K", rows=16, k=64, element_bits=8)
    assert addresses[0, [0, 31, 32, 63]].tolist() == [0x1000, 0x101F, 0x1800, 0x181F]
    assert (addresses[:, 32:] - addresses[:, :32] == 0x800).all()
