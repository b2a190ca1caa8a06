"""Maps edited by tensormap.replace on an H200 read back as the maps that `replace` gives."""

import re
from pathlib import Path

import numpy as np
import pytest

import tilescope as ts
from tilescope.tensor_map.replacement import edited_descriptor

GOLDEN = np.load(Path(__file__).parent.parent / "golden" / "tensormap_replace.npz")
NAMES = {"box_dim": "box", "global_dim": "dims", "element_stride": "element_strides", "global_stride": "strides_bytes"}
TYPES = {row.ptx_code: row.name for row in ts.DATA_TYPE.values() if row.ptx_code is not None}
IMMEDIATE = {
    "elemtype": ("data_type", TYPES),
    "interleave": ("interleave", ("none", "16B", "32B")),
    "swizzle": ("swizzle", ("none", "32B", "64B", "128B")),
    "fill": ("oob_fill", ("zero", "nan")),
}


def edited(before, field, value):
    """The map after the edit, through `replace`; None where the edit is outside the map's rank."""
    immediate = re.fullmatch(r"(\w+)=(\d+)", field)
    if immediate:
        name, codes = IMMEDIATE[immediate[1]]
        return before.replace(**{name: codes[int(immediate[2])]})
    if field == "global_address":
        return before.replace(address=value)
    if field == "rank":
        rank = value + 1
        return before.replace(
            dims=before.dims[:rank],
            strides_bytes=before.strides_bytes[: rank - 1],
            box=before.box[:rank],
            element_strides=before.element_strides[:rank],
        )
    name, ordinal = re.fullmatch(r"(\w+)\[(\d)\]", field).groups()
    entries = list(getattr(before, NAMES[name]))
    if int(ordinal) >= len(entries):
        return None
    entries[int(ordinal)] = value
    return before.replace(**{NAMES[name]: tuple(entries)})


@pytest.mark.parametrize("index", range(len(GOLDEN["field"])))
def test_an_edited_map_reads_as_the_replaced_one(index):
    field, value = str(GOLDEN["field"][index]), int(GOLDEN["value"][index])
    before = ts.decode_tensor_map(GOLDEN["before"][index].tobytes())
    found = ts.inspect_tensor_map(GOLDEN["after"][index].tobytes())
    if found.tensor_map is None:  # such as a box that is no longer a multiple of 16 bytes
        with pytest.raises(ts.TensorMapError) as refused:
            edited(before, field, value)
        assert {each.rule for each in refused.value.violations} <= {each.rule for each in found.violations}
        return
    expected = edited(before, field, value)
    assert found.tensor_map == (before if expected is None else expected)


PTX_NAMES = {
    "elemtype": "elemtype",
    "interleave": "interleave_layout",
    "swizzle": "swizzle_mode",
    "fill": "fill_mode",
}


@pytest.mark.parametrize("index", range(len(GOLDEN["field"])))
def test_the_bytes_of_an_edited_map_are_the_cards(index):
    field, value, ordinal = str(GOLDEN["field"][index]), int(GOLDEN["value"][index]), 0
    if immediate := re.fullmatch(r"(\w+)=(\d+)", field):
        field, value = PTX_NAMES[immediate[1]], int(immediate[2])
    elif entry := re.fullmatch(r"(\w+)\[(\d)\]", field):
        field, ordinal = entry[1], int(entry[2])
    found = edited_descriptor(GOLDEN["before"][index].tobytes(), field, value, ordinal)
    assert found == GOLDEN["after"][index].tobytes()


def test_stale_words_are_a_warning_that_names_them():
    index = list(GOLDEN["field"]).index("box_dim[1]")
    found = ts.inspect_tensor_map(GOLDEN["after"][index].tobytes())
    assert [(each.rule, each.severity, each.argument) for each in found.violations] == [
        ("descriptor-derived", "warning", "box_bytes")
    ]
