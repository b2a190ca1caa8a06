"""Element types are found under every name people use, and convert to array types and back."""

import sys
import types
from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.data_type import DATA_TYPE, DataType
from tilescope.errors import RuleError

WITH_ARRAYS = [row for row in DATA_TYPE.values() if row.numpy_name is not None]


@pytest.mark.parametrize("row", DATA_TYPE.values(), ids=lambda row: row.name)
def test_is_found_by_its_names(row):
    for name in (row.name, row.name.upper(), f" {row.name}\n", row.ptx, f".{row.ptx}", row):
        assert DataType.named(name) is row
    if row.driver_code is not None:
        assert DataType.named(f"CU_TENSOR_MAP_DATA_TYPE_{row.name.upper()}") is row


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("half", "float16"),
        ("fp16", "float16"),
        ("f16", "float16"),
        ("float", "float32"),
        ("fp32", "float32"),
        ("double", "float64"),
        ("bf16", "bfloat16"),
        ("BF16", "bfloat16"),
        ("tf32", "tfloat32"),
        ("u8", "uint8"),
        ("s8", "int8"),
        ("bool", "uint8"),
        ("e4m3fn", "e4m3"),
        ("float8_e4m3fn", "e4m3"),
        ("float8_e5m2", "e5m2"),
        ("float4_e2m1fn", "e2m1"),
        ("b6p2x16", "16u6_align16b"),
        ("torch.bfloat16", "bfloat16"),
    ],
)
def test_is_found_by_its_aliases(alias, name):
    assert DataType.named(alias) is DATA_TYPE[name]


def test_no_name_stands_for_two_rows():
    """A PTX spelling or alias never hides another row's own name."""
    for row in DATA_TYPE.values():
        assert {DataType.named(name).name for name in (row.name, row.ptx)} == {row.name}


@pytest.mark.parametrize("row", WITH_ARRAYS, ids=lambda row: row.name)
def test_array_type_leads_back(row):
    """To the row itself, or, where several rows share an array type, to the one of the array type's name."""
    back = DataType.named(row.numpy)
    assert back.numpy == row.numpy
    assert back.name == ("float32" if row.numpy == np.float32 else row.name)
    for given_type in (row.numpy, row.numpy.type, row.numpy.name):
        assert DataType.named(given_type) is back


@pytest.mark.parametrize("scalar", [np.float32, np.uint8, np.int64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_array_element_of_the_type_has_its_bits(scalar):
    row = DataType.named(np.zeros(3, scalar).dtype)
    assert row.numpy.itemsize * 8 == row.bits


@pytest.mark.parametrize("dtype", [">f4", ">i2", ">u8"])
def test_a_big_endian_type_is_none_of_a_gpu(dtype):
    with pytest.raises(RuleError, match=f"array-type: elements of {dtype}, big-endian") as refused:
        DataType.named(np.dtype(dtype))
    assert f'astype("<{dtype[1:]}")' in refused.value.violations[0].fix
    assert DataType.named(np.dtype(">u1")).name == "uint8"  # a single byte has no order


def test_python_types_are_numpys():
    assert [DataType.named(each).name for each in (int, float, bool)] == ["int64", "float64", "uint8"]


def test_torch_types_are_found_by_their_names():
    """Without torch: a class of a module of that name, which prints as torch's does."""
    torch_like = types.new_class("dtype", exec_body=lambda body: body.update(__module__="torch"))
    for spelling, name in (
        ("bfloat16", "bfloat16"),
        ("float8_e4m3fn", "e4m3"),
        ("uint8", "uint8"),
        ("half", "float16"),
    ):
        torch_like.__repr__ = lambda _, spelling=spelling: f"torch.{spelling}"
        assert DataType.named(torch_like()).name == name
    torch_like.__repr__ = lambda _: "torch.complex64"
    with pytest.raises(RuleError):
        DataType.named(torch_like())
    assert "torch" not in sys.modules


@pytest.mark.parametrize("row", DATA_TYPE.values(), ids=lambda row: row.name)
def test_tma_moves_it_as_a_type_of_its_own(row):
    assert row.tma.driver_code is not None
    assert row.tma.tma is row.tma
    assert (row.tma is row) == (row.driver_code is not None)
    assert row.is_packed == (row.bits < 8)


@pytest.mark.parametrize("name", ["16u4_align8b", "16u4_align16b", "16u6_align16b", "b1"])
def test_type_without_arrays_says_so(name):
    with pytest.raises(RuleError, match=f"array-type: data type {name}"):
        _ = DataType.named(name).numpy


@pytest.mark.parametrize(
    ("given_name", "nearest"),
    [
        ("bflaot16", "bfloat16"),
        ("flot32", "float32"),
        ("uint9", "uint8"),
        ("16u4_align8", "16u4_align8b"),
        ("e4m4", "e4m3"),
    ],
)
def test_unknown_name_suggests_the_nearest(given_name, nearest):
    with pytest.raises(RuleError, match=f"Did you mean {nearest}") as caught:
        DataType.named(given_name)
    assert caught.value.violations[0].change == {"data_type": nearest}


@pytest.mark.parametrize(
    "strange",
    [
        None, 7, 1.5, b"uint9", [], ["float16"], {}, {"names": 3}, (1, 2, 3), ("i4", 2**70), object(), object, complex, str,
        np.dtype("M8[s]"), np.dtype([("a", "f4")]), np.zeros(3), "", "\x00", "x" * 10_000, "f4,f4", "(2,)f4", "torch.complex64",
    ],
    ids=lambda strange: repr(strange)[:20],
)  # fmt: skip
def test_strange_name_is_a_rule_error(strange):
    with pytest.raises(RuleError, match="unknown-name: data type"):
        DataType.named(strange)


@given(
    st.text()
    | st.binary()
    | st.integers()
    | st.lists(st.integers() | st.text())
    | st.dictionaries(st.text(), st.text())
)
def test_anything_is_found_or_refused(anything):
    with suppress(RuleError):
        assert DataType.named(anything).name in DATA_TYPE
