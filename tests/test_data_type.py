"""Element types are found under every name people use, and convert to array types and back."""

import ctypes
import sys
import types
from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
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


# The names that headers and frameworks give their types: cuda_fp16.h, cuda_bf16.h, cuda_fp8.h, cutlass/numeric_types.h,
# torch, ATen, MLIR, library_types.h.
FOREIGN = {
    "float16": "half_t __half cutlass::half_t torch.half torch.float16 c10::Half at::kHalf f16 CUDA_R_16F cutlass.Float16 tl.float16",
    "bfloat16": "__nv_bfloat16 nv_bfloat16 cutlass::bfloat16_t cute::bfloat16_t bfloat16_t at::kBFloat16 BFloat16 CUDA_R_16BF",
    "float32": "torch.float32 Float32 CUDA_R_32F",
    "tfloat32": "tfloat32_t cutlass::tfloat32_t cutlass.TFloat32",
    "int8": "int8_t i8 si8 std::int8_t torch.int8 CUDA_R_8I char",
    "uint8": "uint8_t ui8 cutlass.Uint8 torch.uint8 b8 float_ue4m3_t unsigned\u00a0char",
    "int32": "int32_t i32 int torch.int32",
    "uint64": "uint64_t size_t unsigned\u00a0long\u00a0long",
    "e4m3": "float_e4m3_t cutlass::float_e4m3_t __nv_fp8_e4m3 torch.float8_e4m3fn fp8_e4m3 fp8e4m3 f8E4M3FN kFloat8_e4m3fn "
    "c10::Float8_e4m3fn Float8E4M3FN CUDA_R_8F_E4M3",
    "e5m2": "float_e5m2_t __nv_fp8_e5m2 torch.float8_e5m2 f8E5M2",
    "ue8m0": "float_ue8m0_t __nv_fp8_e8m0 torch.float8_e8m0fnu f8E8M0FNU",
    "e2m1": "float_e2m1_t __nv_fp4_e2m1 torch.float4_e2m1fn_x2 f4E2M1FN CUDA_R_4F_E2M1",
    "e3m2": "float_e3m2_t __nv_fp6_e3m2 f6E3M2FN",
    "16u4_align16b": "cutlass::detail::float_e2m1_unpacksmem_t",
    "16u6_align16b": "cutlass::detail::float_e3m2_unpacksmem_t",
    "int4": "int4b_t i4",
    "uint4": "cutlass::uint4b_t",
    "b1": "uint1b_t cutlass::bin1_t",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_is_found_by_the_names_of_headers_and_frameworks(name):
    for spelled in FOREIGN[name].split(" "):
        assert DataType.named(spelled.replace("\u00a0", " ")).name == name, spelled


@pytest.mark.parametrize(
    ("spelled", "elements", "scale", "block"),
    [
        ("nvfp4", "e2m1", "ue4m3", 16),
        ("cutlass::nv_float4_t<float_e2m1_t>", "e2m1", "ue4m3", 16),
        ("mxfp4", "e2m1", "ue8m0", 32),
        ("MXFP6", "e2m3 or e3m2", "ue8m0", 32),
        ("mxfp8_e4m3", "e4m3 or e5m2", "ue8m0", 32),
        ("mx_float8_t<float_e5m2_t>", "e4m3 or e5m2", "ue8m0", 32),
    ],
)
def test_a_block_scaled_format_says_what_it_is_made_of(spelled, elements, scale, block):
    with pytest.raises(RuleError, match=f"{elements} elements.* {scale} .*8 bits.* {block} "):
        DataType.named(spelled)


def test_fp8_alone_names_the_types_it_may_mean():
    with pytest.raises(RuleError, match=r"fp8; known: e4m3, e5m2\."):
        DataType.named("fp8")


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
        None,
        7,
        1.5,
        b"uint9",
        [],
        ["float16"],
        {},
        {"names": 3},
        (1, 2, 3),
        ("i4", 2**70),
        object(),
        object,
        complex,
        str,
        np.dtype("M8[s]"),
        np.dtype([("a", "f4")]),
        np.zeros(3),
        "",
        "\x00",
        "x" * 10_000,
        "f4,f4",
        "(2,)f4",
        "torch.complex64",
        {"": (None, 2**63)},
        {"a": ("f4", 2**64)},
        {"names": ["a"], "formats": ["f4"], "offsets": [2**63]},
        ("f4", (2**40, 2**40)),
        ("f4", {}),
        [("a", "f4")],
        [("", 2**63)],
        b"f4",
        bytearray(b"f4"),
        memoryview(b"f4"),
        np.array("f4"),
        np.float32(1),
        np.array(3),
        ctypes.c_int,
        ctypes.c_float,
        type,
        np.ndarray,
        np.generic,
        np.floating,
        np.str_,
        np.void,
        np.complex64,
        np.longdouble,
        np.dtypes.StringDType(),
        types.SimpleNamespace(dtype="f4"),
        2**63,
        -(2**63),
        10**5000,
        ...,
    ],
    ids=lambda strange: type(strange).__name__,
)
def test_strange_name_is_a_rule_error(strange):
    with pytest.raises(RuleError, match="unknown-name: data type"):
        DataType.named(strange)


def test_a_class_that_carries_an_array_type_is_found():
    """jax.numpy.float32 is such a class; numpy has a type for it, and so do we."""
    jax_like = types.new_class("float32", exec_body=lambda body: body.update(dtype=np.dtype("f4")))
    assert DataType.named(jax_like).name == "float32"


@example({"": (None, 2**63)})  # np.dtype of it is an OverflowError
@given(
    st.recursive(
        st.none() | st.text() | st.binary() | st.integers(),
        lambda part: st.lists(part) | st.tuples(part, part) | st.dictionaries(st.text(), part),
        max_leaves=4,
    )
)
def test_anything_is_found_or_refused(anything):
    with suppress(RuleError):
        assert DataType.named(anything).name in DATA_TYPE
