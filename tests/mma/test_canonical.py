"""Operand layouts against the published atom table, CuTe's definitions, and themselves turned round."""

import itertools

import numpy as np
import pycute
import pytest

import tilescope as ts
from tilescope.mma.canonical import CanonicalLayout, canonical_layout

XOR_MODES = ("none", "32B", "64B", "128B")
LAYOUTS = [(major, mode) for major in ("K", "MN") for mode in XOR_MODES] + [("MN", "128B_ATOM_32B")]
WIDTHS = (1, 4, 8, 16, 32)
SPAN_BYTES = {"none": 16, "32B": 32, "64B": 64, "128B": 128, "128B_ATOM_32B": 128}
CUTE_SWIZZLE = {"none": (0, 4, 3), "32B": (1, 4, 3), "64B": (2, 4, 3), "128B": (3, 4, 3), "128B_ATOM_32B": (2, 5, 2)}
every_layout = pytest.mark.parametrize(("major", "mode"), LAYOUTS)
every_width = pytest.mark.parametrize("bits", WIDTHS)

# PTX ISA, "Strides" and "Shared memory matrix layout": extent along the contiguous dimension, in elements.
CONTIGUOUS_EXTENT = {
    8: {"none": 16, "32B": 32, "64B": 64, "128B": 128},
    16: {"none": 8, "32B": 16, "64B": 32, "128B": 64},
    32: {"none": 4, "32B": 8, "64B": 16, "128B": 32},
    4: {"none": 32, "32B": 64, "64B": 128, "128B": 256},
}


def cute_swizzled(address, mode):
    """CuTe's Swizzle<B, M, S> on one byte address, bit by bit."""
    count, base, shift = CUTE_SWIZZLE[mode]
    for bit in range(count):
        address ^= (address >> base + shift + bit & 1) << base + bit
    return address


def cute_atom_in_bits(major, mode):
    """CuTe's Layout_{K,MN}_*_Atom_Bits."""
    span_bits = 8 * SPAN_BYTES[mode]
    if major == "K":
        return pycute.Layout((8, span_bits), (span_bits, 1))
    return pycute.Layout((span_bits, 4 if mode == "128B_ATOM_32B" else 8), (1, span_bits))


@pytest.mark.parametrize("bits", CONTIGUOUS_EXTENT)
@pytest.mark.parametrize("mode", XOR_MODES)
def test_atoms_are_those_of_the_table(mode, bits):
    extent = CONTIGUOUS_EXTENT[bits][mode]
    assert CanonicalLayout("K", mode, bits).atom == (8, extent)
    assert CanonicalLayout("MN", mode, bits).atom == (extent, 8)
    assert CanonicalLayout("K", mode, bits).atom_bytes == {"none": 128, "32B": 256, "64B": 512, "128B": 1024}[mode]
    assert CanonicalLayout("K", mode, bits).core_matrix == (8, 128 // bits)
    assert CanonicalLayout("MN", mode, bits).core_matrix == (128 // bits, 8)


@every_width
def test_blackwells_atom_has_four_rows_of_128_bytes(bits):
    layout = CanonicalLayout("MN", "128B_ATOM_32B", bits)
    assert layout.atom == (1024 // bits, 4)
    assert (layout.atom_bytes, layout.core_matrices, layout.basis) == (512, 4, "documented")


@every_width
@every_layout
def test_every_element_of_the_atom_lies_where_cute_puts_it(major, mode, bits):
    layout = CanonicalLayout(major, mode, bits)
    atom = cute_atom_in_bits(major, mode)
    mn, k = layout.atom
    tile = layout.tile((mn, k))
    addresses = tile.addresses()
    for row, column in itertools.product(range(mn), range(k)):
        # Neighbouring elements along the contiguous dimension are `bits` apart in the layout of bits.
        bit = atom(row, column * bits) if major == "K" else atom(row * bits, column)
        assert addresses[row, column] == cute_swizzled(bit // 8, mode), (row, column)


@every_layout
def test_atom_layout_is_cutes_divided_by_the_element(major, mode):
    for bits in WIDTHS:
        layout = CanonicalLayout(major, mode, bits)
        span = SPAN_BYTES[mode] * 8 // bits
        rows = 4 if mode == "128B_ATOM_32B" else 8
        expected = f"({rows},{span}):({span},1)" if major == "K" else f"({span},{rows}):(1,{span})"
        assert str(layout.atom_layout) == expected


def canonical_in_cute(major, mode, bits, leading, stride):
    """The table "Canonical layouts" of the documents, in elements; m and k repeat twice."""
    t = 128 // bits
    wide = SPAN_BYTES[mode] // 16
    leading, stride = leading * 8 // bits, stride * 8 // bits
    if major == "K":
        return pycute.Layout(((8, 4), (t, 2)), ((wide * t, stride), (1, leading if mode == "none" else t)))
    if mode == "none":
        return pycute.Layout(((t, 1, 4), (8, 2)), ((1, t, stride), (t, leading)))
    rows = 4 if mode == "128B_ATOM_32B" else 8
    return pycute.Layout(((t, wide, 4), (rows, 2)), ((1, t, leading), (wide * t, stride)))


@every_width
@every_layout
@pytest.mark.parametrize(("leading", "stride"), [(0, 0), (16, 0x3FFF0), (4080, 48)])
def test_logical_address_is_the_documents_canonical_layout(major, mode, bits, leading, stride):
    layout = CanonicalLayout(major, mode, bits)
    cute = canonical_in_cute(major, mode, bits, leading, stride)
    mn, k = (pycute.size(part) for part in cute)
    mn_index, k_index = np.meshgrid(range(0, mn, max(1, mn // 64)), range(0, k, max(1, k // 64)), indexing="ij")
    got = layout.logical(mn_index, k_index, start=0, leading_bytes=leading, stride_bytes=stride)
    for row, column, address in zip(mn_index.flat, k_index.flat, got.flat, strict=True):
        assert address == cute(int(row), int(column)) * bits // 8


# PTX ISA's own examples: (major, mode, bits), exact layout in elements, LBO, SBO in bytes.
PTX_EXAMPLES = [
    ("K", "none", 32, ((8, 2), (4, 4)), ((4, 32), (1, 64)), 256, 128),
    ("K", "32B", 32, ((8, 2), (4, 4)), ((8, 64), (1, 4)), 16, 256),
    ("MN", "none", 16, ((8, 1, 2), (8, 2)), ((1, 8, 64), (8, 128)), 256, 128),
    ("MN", "32B", 16, ((8, 2, 2), (8, 2)), ((1, 8, 128), (16, 256)), 256, 512),
    ("MN", "64B", 16, ((8, 4, 2), (8, 2)), ((1, 8, 256), (32, 512)), 512, 1024),
]


@pytest.mark.parametrize(("major", "mode", "bits", "shape", "stride", "lbo", "sbo"), PTX_EXAMPLES)
def test_the_ptx_examples_are_reproduced(*, major, mode, bits, shape, stride, lbo, sbo):
    exact = pycute.Layout(shape, stride)
    mn, k = (pycute.size(part) for part in exact)
    k = min(k, 8 * SPAN_BYTES[mode] // bits) if mode != "none" and major == "K" else k  # one atom wide
    layout = CanonicalLayout(major, mode, bits)
    for row, column in itertools.product(range(mn), range(k)):
        logical = layout.logical(row, column, start=0, leading_bytes=lbo, stride_bytes=sbo)
        assert logical == exact(row, column) * bits // 8, (row, column)


@pytest.mark.parametrize("order", ["column", "row"])
@every_width
@every_layout
def test_a_tile_fills_its_bytes_once_and_locate_turns_it_round(major, mode, bits, order):
    layout = CanonicalLayout(major, mode, bits)
    mn, k = (3 * layout.atom[0], 2 * layout.atom[1])
    tile = layout.tile((mn, k), atom_order=order, start=0x2000)
    addresses = tile.addresses()
    per_byte = max(1, 8 // bits)
    step_bytes = max(1, bits // 8)
    found, counts = np.unique(addresses, return_counts=True)
    assert found.tolist() == list(range(0x2000, 0x2000 + tile.size_bytes, step_bytes))
    assert (counts == per_byte).all()
    for row, column in ((0, 0), (1, 0), (0, 1), (mn - 1, k - 1), (mn // 2, k // 3)):
        back = tile.locate(int(addresses[row, column]))
        first = (row, column // per_byte * per_byte) if major == "K" else (row // per_byte * per_byte, column)
        assert back == first
    assert tile.locate(0x2000 - 1) is None


@pytest.mark.parametrize("order", ["column", "row"])
@every_layout
def test_leading_and_stride_are_the_distances_of_neighbours(major, mode, order):
    layout = CanonicalLayout(major, mode, 16)
    tile = layout.tile((4 * layout.atom[0], 3 * layout.atom[1]), atom_order=order)
    leading_bytes, stride_bytes = layout.offsets(tile)
    assert stride_bytes == tile.logical(*layout.stride_step) - tile.logical(0, 0)
    if layout.leading_step is None:
        assert leading_bytes == 16
    else:
        assert leading_bytes == tile.logical(*layout.leading_step) - tile.logical(0, 0)


def design_table(major, mode, order, *, rows, columns, atom_bytes):
    """Leading and stride for a grid of rows x columns atoms (strided x contiguous)."""
    down, right = (atom_bytes, rows * atom_bytes) if order == "column" else (columns * atom_bytes, atom_bytes)
    if major == "K":
        return (right if mode == "none" else 16), down
    return (down, right) if mode == "none" else (right, down)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (8, 1), (1, 4), (8, 4), (3, 5)])
@pytest.mark.parametrize("order", ["column", "row"])
@every_layout
def test_leading_and_stride_follow_the_table_of_atom_grids(major, mode, order, rows, columns):
    layout = CanonicalLayout(major, mode, 16)
    strided, contiguous = layout.atom if major == "K" else layout.atom[::-1]
    shape = (rows * strided, columns * contiguous)
    tile = layout.tile(shape if major == "K" else shape[::-1], atom_order=order)
    expected = design_table(major, mode, order, rows=rows, columns=columns, atom_bytes=layout.atom_bytes)
    assert layout.offsets(tile) == expected


def test_samples_of_a_k_major_128b_tile():
    tile = canonical_layout("K", "128B", "bf16").tile((16, 64))
    samples = {(0, 0): 0, (1, 0): 144, (1, 8): 128, (7, 63): 910, (8, 0): 1024, (9, 16): 1200}
    assert {where: tile.address(*where) for where in samples} == samples


def test_core_matrices_are_not_plain_rows():
    core = canonical_layout("K", "none", "bf16").tile((8, 32))
    plain = ts.Layout((8, 32), 16)
    assert core.address(0, 8) == 128  # the second core matrix
    assert plain.address(0, 8) == 16  # TMA's none: along the row
    narrow = canonical_layout("K", "none", "bf16").tile((64, 8))
    assert (narrow.addresses() == ts.Layout((64, 8), 16).addresses()).all()  # 16-byte rows: the same
    assert "none (core matrices)" in str(canonical_layout("K", "none", "bf16"))


def test_types_of_equal_width_share_a_layout():
    assert canonical_layout("K", "64B", "bf16") == canonical_layout("k", ts.SWIZZLE["64B"], np.float16)
    assert canonical_layout("N", "64B", "bf16").major == "MN"
    assert canonical_layout("K", "128B", "e2m1").atom == (8, 256)
    assert canonical_layout("K", "128B", "e2m3").atom == (8, 128)  # six bits travel in bytes


def test_readers_and_basis():
    def readers(major, mode, data_type):
        return [reader.instruction for reader in canonical_layout(major, mode, data_type).readers]

    assert readers("K", "128B", "bf16") == ["wgmma", "tcgen05", "ldmatrix"]
    assert readers("MN", "128B", "bf16") == ["wgmma", "tcgen05", "ldmatrix.trans"]
    assert readers("MN", "128B", "tf32") == []
    assert readers("MN", "128B_ATOM_32B", "tf32") == ["tcgen05"]
    assert readers("MN", "128B", "e4m3") == ["tcgen05"]
    assert canonical_layout("K", "32B", "tf32").basis == "measured"
    assert canonical_layout("K", "32B", "e2m1").basis == "documented"
    assert canonical_layout("MN", "32B", "e4m3").basis == "documented"


@every_layout
def test_survives_plain_data(major, mode):
    layout = CanonicalLayout(major, mode, 16)
    assert ts.Value.from_dict(layout.to_dict()) == layout
    tile = layout.tile(layout.atom, atom_order="row", start=0x400)
    assert ts.Value.from_dict(tile.to_dict()) == tile
    assert tile.to_dict()["start"] == "0x400"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("K", "128B_ATOM_32B", "tf32"), "exists MN-major"),
        (("MN", "96B", "bf16"), "none, 32B, 64B, 128B, 128B_ATOM_32B"),
        (("K", "128B_ATOM_64B", "bf16"), "none, 32B, 64B, 128B"),
        (("row", "128B", "bf16"), "known: K, MN"),
        ((None, "128B", "bf16"), "known: K, MN"),
        (("K", "256B", "bf16"), "known: none, 32B"),
        (("K", "128B", "f64"), "1, 4, 8, 16 or 32 bits"),
        (("K", "128B", "float17"), "known: "),
    ],
)
def test_refuses_what_no_tensor_core_reads(arguments, message):
    with pytest.raises(ts.RuleError, match=message):
        canonical_layout(*arguments)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((12, 64), "Use 16 x 64"),
        ((64, 32), "Use 64 x 64"),
        ((0, 64), "at least 1"),
        ("64x64", "a sequence of integers"),
        ((64,), "2 integers"),
        ((64, 64.5), "an integer"),
        (None, "a sequence"),
        ((64, float("inf")), "an integer"),
    ],
)
def test_refuses_tiles_that_are_no_whole_atoms(shape, message):
    with pytest.raises(ts.RuleError, match=message):
        canonical_layout("K", "128B", "bf16").tile(shape)


def test_names_all_problems_at_once():
    with pytest.raises(ts.RuleError) as caught:
        CanonicalLayout("K", "128B_ATOM_32B", 12)
    assert {violation.rule for violation in caught.value.violations} == {"canonical-swizzle", "canonical-element"}
