"""Maps of arrays that exist: numpy, ml_dtypes, DLPack, the array interfaces, and arrays like torch's."""

import ctypes
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import tilescope as ts


def aligned(shape, dtype, order="C"):
    """An array whose first element lies at a multiple of 128 bytes."""
    dtype = np.dtype(dtype)
    room = np.zeros(int(np.prod(shape)) * dtype.itemsize + 128, np.uint8)
    start = -room.ctypes.data % 128
    return room[start : start + int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape, order=order)


def refusals(array, box_shape, **options):
    with pytest.raises(ts.TensorMapError) as raised:
        ts.TensorMap.from_array(array, box_shape, **options)
    return raised.value.violations


def rules(violations):
    return [each.rule for each in violations]


@pytest.mark.parametrize(
    ("dtype", "moved_as"),
    [
        ("uint8", "uint8"),
        ("int8", "uint8"),
        ("bool", "uint8"),
        ("int16", "uint16"),
        ("uint16", "uint16"),
        ("int32", "int32"),
        ("uint32", "uint32"),
        ("int64", "int64"),
        ("uint64", "uint64"),
        ("float16", "float16"),
        ("float32", "float32"),
        ("float64", "float64"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (ml_dtypes.float8_e4m3fn, "uint8"),
        (ml_dtypes.float8_e5m2, "uint8"),
        (ml_dtypes.float8_e8m0fnu, "uint8"),
    ],
)
def test_numpy_and_ml_dtypes(dtype, moved_as):
    array = aligned((6, 4, 32), dtype)
    tensor_map = ts.TensorMap.from_array(array, (1, 2, 16))
    size = array.itemsize
    assert tensor_map.data_type.name == moved_as
    assert (tensor_map.dims, tensor_map.box) == ((32, 4, 6), (16, 2, 1))
    assert tensor_map.strides_bytes == (32 * size, 128 * size)
    assert tensor_map.address == array.ctypes.data


def test_views_keep_their_strides():
    array = aligned((128, 64), "float16")
    tensor_map = ts.TensorMap.from_array(array[::2, 8:40], (8, 32), swizzle="64B")
    assert (tensor_map.dims, tensor_map.strides_bytes) == ((32, 64), (256,))
    assert tensor_map.address == array.ctypes.data + 16
    assert tensor_map.coords(16, 8) == (8, 16)


def test_a_given_address_replaces_the_pointer():
    assert ts.TensorMap.from_array(np.zeros((8, 64), "float16"), (8, 64), address=0x7000).address == 0x7000


class WithDlpack:
    """Only DLPack, as numpy exports it."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class WithDlpackType(WithDlpack):
    """DLPack with another element type of the same size: numpy exports none of the others."""

    def __init__(self, array, code, bits):
        super().__init__(array)
        self._type = code, bits

    def __dlpack__(self, **options):
        capsule = super().__dlpack__(**options)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype = ctypes.c_void_p
        pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
        place = pointer(capsule, b"dltensor") + 20  # behind data, device and ndim: 8 + 8 + 4 bytes
        (ctypes.c_uint8 * 2).from_address(place)[:] = self._type
        return capsule


# dlpack.h, DLDataTypeCode
@pytest.mark.parametrize(
    ("code", "bits", "moved_as"),
    [
        (4, 16, "bfloat16"),  # kDLBfloat
        (6, 8, "uint8"),  # kDLBool
        (10, 8, "uint8"),  # kDLFloat8_e4m3fn
        (12, 8, "uint8"),  # kDLFloat8_e5m2
        (14, 8, "uint8"),  # kDLFloat8_e8m0fnu
    ],
)
def test_types_of_dlpack_that_numpy_lacks(code, bits, moved_as):
    array = aligned((16, 64), f"uint{bits}")
    assert ts.TensorMap.from_array(WithDlpackType(array, code, bits), (8, 32)).data_type.name == moved_as


@pytest.mark.parametrize(("code", "bits"), [(3, 64), (5, 64), (7, 8), (17, 8)])
def test_types_of_dlpack_that_no_map_has_are_refused(code, bits):
    """Pointers, complex numbers, and two of the narrow floats."""
    array = aligned((16, 64), f"uint{bits}")
    (found,) = refusals(WithDlpackType(array, code, bits), (8, 32))
    assert (found.rule, found.values["code"], found.values["bits"]) == ("array-type", code, bits)


class TorchType:
    """A torch.dtype: an object of module torch that prints as torch.float16."""

    __module__ = "torch"

    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"


def like_torch(array, dtype_name):
    """What torch.Tensor offers; strides count elements."""
    return SimpleNamespace(
        data_ptr=lambda: array.ctypes.data,
        stride=lambda: tuple(step // array.itemsize for step in array.strides),
        element_size=lambda: array.itemsize,
        shape=array.shape,
        dtype=TorchType(dtype_name),
    )


def with_interface(array, name):
    return SimpleNamespace(**{name: array.__array_interface__})


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "uint64", "float16", "float32", "float64"])
def test_every_protocol_gives_the_map_of_the_numpy_array(dtype):
    array = aligned((16, 64), dtype)[::2]
    wanted = ts.TensorMap.from_array(array, (8, 32))
    for other in (
        WithDlpack(array),
        like_torch(array, dtype),
        with_interface(array, "__array_interface__"),
        with_interface(array, "__cuda_array_interface__"),
    ):
        assert ts.TensorMap.from_array(other, (8, 32)) == wanted


def test_an_interface_without_strides_is_dense_and_ml_dtypes_know_their_own_name():
    interface = {"shape": (8, 64), "typestr": "<V2", "data": (0x1000, False), "strides": None, "version": 3}
    array = SimpleNamespace(__cuda_array_interface__=interface, dtype=np.dtype(ml_dtypes.bfloat16))
    tensor_map = ts.TensorMap.from_array(array, (8, 64))
    assert (tensor_map.data_type.name, tensor_map.strides_bytes, tensor_map.address) == ("bfloat16", (128,), 0x1000)


def test_packed_values_are_described_through_bytes():
    array = aligned((64, 64), "uint8")  # 128 four-bit values a row
    tensor_map = ts.TensorMap.from_array(array, (8, 128), data_type="e2m1", arch="sm_100")
    assert (tensor_map.data_type.name, tensor_map.dims, tensor_map.strides_bytes) == ("16u4_align8b", (128, 64), (64,))
    found = refusals(np.zeros((8, 64), ml_dtypes.int4), (8, 64), arch="sm_100", address=0)
    assert rules(found) == ["array-type"]
    assert "data_type" in found[0].fix


def test_a_type_that_does_not_divide_the_rows_is_refused():
    assert "array-type" in rules(refusals(aligned((8, 20), "uint8"), (8, 2), data_type="float64"))


def test_the_step_of_a_single_index_does_not_matter():
    array = aligned((1, 64), "float16")
    odd = np.lib.stride_tricks.as_strided(array, (1, 64), (-6, 2))
    assert ts.TensorMap.from_array(odd, (1, 64)).strides_bytes == (0,)
    assert ts.TensorMap.from_array(
        np.lib.stride_tricks.as_strided(array, (1, 64), (130, 2)), (1, 64)
    ).strides_bytes == (160,)


@pytest.mark.parametrize(
    ("change", "rule", "fix"),
    [
        (lambda a: a[::-1], "array-strides", "Use np.ascontiguousarray, or flip"),
        (lambda a: a.T, "array-strides", "Move axis 0 last (np.moveaxis)."),
        (lambda a: a[:, ::2], "array-strides", "Use np.ascontiguousarray."),
        (lambda a: a[:, 1:9], "address-alignment", "Start the tensor at"),
        (lambda a: a.reshape(-1)[: 60 * 127].reshape(127, 60), "stride-alignment", "Pad dimension 0"),
        (lambda a: a[0, 0], "rank", "Use array.reshape(1)."),
        (lambda a: a[:0], "dim-range", "Use 1; a tensor without elements"),
        (lambda a: a.astype("complex64"), "array-type", "View it as an unsigned"),
        (lambda a: a.astype(">f4"), "array-type", 'Use array.astype("<f4")'),
        (lambda a: with_interface(a.astype(">f4"), "__array_interface__"), "array-type", 'Use array.astype("<f4")'),
        (str, "array-interface", "Use a numpy, torch, cupy"),
    ],
)
def test_what_cannot_be_described_says_why_and_names_a_fix(change, rule, fix):
    array = change(aligned((128, 64), "float16"))
    found = {each.rule: each for each in refusals(array, (8, 8))}
    assert found[rule].fix.startswith(fix)


def test_rank_is_one_to_five():
    assert rules(refusals(np.float32(3).reshape(()), ())) == ["rank"]
    found = refusals(aligned((1, 2, 2, 2, 2, 16), "uint8"), (1, 1, 1, 1, 1, 16))
    assert rules(found) == ["rank"]
    assert "reshape" in found[0].fix
    assert ts.TensorMap.from_array(aligned((2, 2, 2, 2, 16), "uint8"), (1, 1, 1, 1, 16)).rank == 5


def test_everything_wrong_with_an_array_comes_at_once():
    array = aligned((128, 64), "float16")[::-1, 1:33]
    assert rules(refusals(array, (8, 32, 1))) == ["array-strides", "array-box", "address-alignment"]


class Failing:
    """An array whose protocols raise."""

    @property
    def __array_interface__(self):
        raise RuntimeError("no host memory")

    def __dlpack__(self):
        raise BufferError("read-only")


@pytest.mark.parametrize(
    "array",
    [
        Failing(),
        SimpleNamespace(__array_interface__={}),
        SimpleNamespace(__array_interface__={"typestr": "nonsense", "shape": (1,)}),
        SimpleNamespace(__dlpack__=object),
        None,
        [[1, 2], [3, 4]],
    ],
)
def test_a_broken_protocol_is_a_reason_not_a_crash(array):
    assert rules(refusals(array, (8, 8))) == ["array-interface"]


def test_a_box_of_the_wrong_type_is_a_violation():
    with pytest.raises(ts.RuleError, match="argument-type: box_shape"):
        ts.TensorMap.from_array(aligned((8, 64), "float16"), "8x64")


@pytest.mark.parametrize("columns", [2, 3])
def test_a_last_axis_of_two_elements_has_a_stride_too(columns):
    apart = np.zeros((4, columns, 16), np.float32)[:, :, 0]  # neighbours of a row are 64 bytes apart
    with pytest.raises(ts.RuleError) as refused:
        ts.TensorMap.from_array(apart, (4, columns), address=0)
    assert "array-strides" in {violation.rule for violation in refused.value.violations}
