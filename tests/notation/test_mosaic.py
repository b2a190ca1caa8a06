"""Mosaic's transforms against numpy: the array itself is reshaped and transposed, then swizzled."""

import itertools

import numpy as np
import pytest

from tilescope import RuleError, Swizzle
from tilescope.notation import parse_layout, spell_layout


def stored(shape, transforms):
    """The array of element numbers as the transforms store it."""
    array = np.arange(shape[0] * shape[1]).reshape(shape)
    for name, argument in transforms:
        if name == "TransposeTransform":
            array = array.transpose(argument)
        else:
            rows, columns = argument
            *outer, high, wide = array.shape
            array = array.reshape(*outer, high // rows, rows, wide // columns, columns).swapaxes(-3, -2)
    return array.ravel()


def naive_addresses(shape, transforms, swizzle, bits):
    """Byte address of each element: its place in the stored array, swizzled."""
    elements = stored(shape, transforms)
    addresses = np.empty(len(elements), dtype=np.int64)
    addresses[elements] = Swizzle.named(swizzle).apply(np.arange(len(elements)) * bits // 8)
    return addresses.reshape(shape)


def spelled(transforms):
    return [f"{name}({argument})" for name, argument in transforms]


TILES = ("TileTransform", "plgpu.TilingTransform")


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("order", [None, (1, 0, 2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("turned", [False, True])
def test_tilings_store_what_numpy_stores(bits, width, order, turned):
    columns = width * 8 // bits
    for rows, (high, wide), name in itertools.product((8, 16, 64), ((1, 1), (2, 3), (4, 1)), TILES):
        shape = (rows * high, columns * wide)
        transforms = [("TransposeTransform", (1, 0))] if turned else []
        transforms += [("TileTransform", (rows, columns))] + ([("TransposeTransform", order)] if order else [])
        shape = shape[::-1] if turned else shape
        text = ", ".join(spelled(transforms)).replace("TileTransform", name) + f", SwizzleTransform({width})"
        layout = parse_layout(f"({text})", element_bits=bits, shape=shape)
        assert (layout.addresses() == naive_addresses(shape, transforms, f"{width}B", bits)).all(), text
        again = spell_layout(layout, "mosaic")
        assert parse_layout(again, element_bits=bits, shape=shape) == layout, (text, again)


def test_plain_and_core_matrix_buffers():
    assert (parse_layout("transforms=()", element_bits=16, shape=(4, 8)).addresses().ravel() == np.arange(32) * 2).all()
    core = parse_layout("TileTransform((8, 8))", element_bits=16, shape=(64, 32))
    assert (core.addresses() == naive_addresses((64, 32), [("TileTransform", (8, 8))], "none", 16)).all()
    assert spell_layout(core, "mosaic") == "(TileTransform((8, 8)),)"


@pytest.mark.parametrize(
    "text",
    [
        "(TileTransform((8, 64)), SwizzleTransform(128))",
        "[mgpu.TileTransform(tiling=(8, 64)), mgpu.SwizzleTransform(swizzle=128)]",
        "plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)",
        "transforms=(plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))",
        "gmem_transform=(TileTransform((8, 64)),), swizzle=128",
        "gmem_transform=TileTransform((8, 64)), swizzle=mgpu.SwizzlingMode.k128ByteSwizzle",
    ],
)
def test_reads_the_spellings_of_pallas_and_mosaic(text):
    assert parse_layout(text, element_bits=16) == parse_layout("128B", element_bits=16)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SwizzleTransform(96)", "32, 64 or 128"),
        ("(SwizzleTransform(128), TileTransform((8, 64)))", "Write it last"),
        ("(TileTransform((8, 32)), SwizzleTransform(128))", "Tile by 64 elements"),
        ("TileTransform((7, 64))", "whole tiles"),
        ("TileTransform((0, 64))", "whole tiles"),
        ("TileTransform((8, (64)))", "a flat tuple"),
        ("TransposeTransform((0, 0))", "every number from 0 to 1"),
        ("SqueezeTransform(1)", "TileTransform, TransposeTransform or SwizzleTransform"),
        ("(TileTransform((8, 64))", 'expected ")"'),
    ],
)
def test_says_why_transforms_are_not_understood(text, reason):
    with pytest.raises(RuleError) as refused:
        parse_layout(text, element_bits=16, shape=(64, 64))
    assert reason in str(refused.value)
