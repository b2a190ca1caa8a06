"""What Triton's host does to launch a kernel: signatures, arguments, descriptors, scratch memory. No Triton is needed."""

from dataclasses import dataclass
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import tilescope as ts
from tilescope.machine.launch.host_array import as_host_array
from tilescope.machine.launch.launch_description import ArrayArgument, PointerArgument
from tilescope.machine.launch.triton_host import Scratch, TritonDescriptor, TritonHost, bind_value, encode_number
from tilescope.machine.launch.triton_parameter import parse_parameter
from tilescope.machine.launch.triton_signature import infer_signature, read_signature

MAP_OF_64 = TritonDescriptor("float16", (64, 64), "128B", 2, is_im2col=False, is_padded=False)


@dataclass
class Tensor:
    """As torch's tensors on the CPU: it says where its bytes are, and of what type."""

    array: np.ndarray
    dtype: str
    device: str = "cpu"

    @property
    def shape(self):
        return self.array.shape

    def data_ptr(self):
        return self.array.ctypes.data

    def is_contiguous(self):
        return self.array.flags.c_contiguous


def host(*types, descriptors=(), scratch=((0, 1), (0, 1)), cluster_blocks=1, **more):
    return TritonHost(
        version="3.9.0",
        arch="sm_90",
        parameters=tuple(parse_parameter(f"p{number}", told) for number, told in enumerate(types)),
        threads=128,
        smem_bytes=1024,
        cluster_blocks=cluster_blocks,
        descriptors=tuple(descriptors),
        scratch=tuple(Scratch(*one) for one in scratch),
        **more,
    )


def bound(made, arguments, ptx_parameters, memory=None, programs=(1, 1, 1)):
    return made.bind(arguments, memory or ts.Memory(), programs, ptx_parameters, "k")


def test_types_stand_in_the_order_of_parameters_without_constexprs():
    read = read_signature(["a", "BLOCK", "n"], "*fp16, i32:16", {"BLOCK": 64})
    assert [(one.name, one.type, one.multiple_of) for one in read.parameters] == [("a", "*fp16", 16), ("n", "i32", 16)]
    assert read.types() == {"a": "*fp16", "n": "i32", "BLOCK": "constexpr"}


def test_types_may_be_given_by_name_and_by_the_names_of_other_tools():
    read = read_signature(["a", "n"], {"n": "int32", "a": "*float16"})
    assert read.types() == {"a": "*fp16", "n": "i32"}


def test_a_parameter_that_is_1_is_compiled_in_and_still_an_argument(wording):
    read = read_signature(["n", "stride"], "i32, i32:1")
    assert (read.types(), read.values()) == ({"n": "i32", "stride": "constexpr"}, {"stride": 1})
    assert bound(host("i32", "i32:1"), [7, 1], 1 + 2).values[0] == (7).to_bytes(4, "little")
    with pytest.raises(ts.RuleError) as refused:
        bound(host("i32", "i32:1"), [7, 2], 1 + 2)
    values = refused.value.violations[0].values
    assert [values[name] for name in ("index", "name", "shown", "type")] == [1, "p1", "2", "i32"]
    wording("another value than the constant", refused.value)


@pytest.mark.parametrize("place", [2, 7, -1])
def test_an_address_in_no_argument_has_no_type(place):
    array = ArrayArgument(data_type="f16", shape=(4,))
    with pytest.raises(ts.RuleError) as refused:
        infer_signature([array, PointerArgument(array=place)])
    assert [(violation.rule, violation.values) for violation in refused.value.violations] == [
        ("triton-signature", {"index": 1})
    ]


def test_defaults_of_constexprs_are_taken():
    read = read_signature(["a", "B", "C"], "*fp16", {"B": 2}, defaults={"B": 1, "C": 3}, always_constant=["B", "C"])
    assert read.constexprs == {"B": 2, "C": 3}


@pytest.mark.parametrize(
    ("signature", "constexprs", "said"),
    [
        ("*fp16", {}, "1 type: '*fp16'"),
        ("*fp16, i33", {}, 'Did you mean "i32"'),
        ("*fp16, i32:8", {}, "multiple of 16"),
        ("*fp16, fp32:16", {}, "multiple of 16"),
        ("tensordesc<fp16>, i32", {}, "tensordesc"),
        ({"a": "*fp16"}, {}, "no type for n"),
        ({"a": "*fp16", "n": "i32", "m": "i32"}, {}, "unknown-name: parameter m"),
        ("*fp16, i32", {"BLOK": 64}, "unknown-name: parameter BLOK"),
        (7, {}, "signature = 7"),
    ],
)
def test_a_wrong_signature_is_refused(signature, constexprs, said):
    with pytest.raises(ts.RuleError) as caught:
        read_signature(["a", "n"], signature, constexprs)
    assert said in str(caught.value)


def test_every_mistake_of_a_signature_is_told_at_once():
    with pytest.raises(ts.RuleError) as caught:
        read_signature(["a", "n"], "*fp17, i33", {"X": 1})
    assert len(caught.value.violations) == 3


@pytest.mark.parametrize(
    ("told", "number", "content"),
    [
        ("i8", -1, "ff"),
        ("i1", True, "01"),
        ("u16", 65535, "ffff"),
        ("i64", -2, "feffffffffffffff"),
        ("fp16", 1.0, "003c"),
        ("bf16", 1.0, "803f"),
        ("fp32", 1, "0000803f"),
        ("fp64", 1.0, "000000000000f03f"),
    ],
)
def test_numbers_have_the_bytes_of_their_type(told, number, content):
    assert encode_number(parse_parameter("n", told), number).hex() == content
    assert (
        encode_number(
            parse_parameter("n", told), np.float64(number) if "p" in told or "b" in told else np.int64(number)
        ).hex()
        == content
    )


@pytest.mark.parametrize(("told", "number"), [("i8", 256), ("i32", 1.5), ("i32", "7"), ("fp32", "7"), ("i32:16", 8)])
def test_a_number_that_does_not_fit_is_refused(told, number):
    with pytest.raises(ts.RuleError, match="triton-argument"):
        encode_number(parse_parameter("n", told), number)


def test_a_pointer_takes_arrays_addresses_and_none():
    memory, array = ts.Memory(), np.zeros(8, np.float16)
    pointer = parse_parameter("a", "*fp16")
    address = memory.place(array)
    assert bind_value(pointer, array, memory) == bind_value(pointer, address, memory) == address
    assert bind_value(pointer, None, memory) == 0


def test_an_array_whose_address_triton_may_not_count_on_is_refused(wording):
    memory, array = ts.Memory(), np.zeros(8, np.float16)
    memory.place(array)
    with pytest.raises(ts.RuleError) as refused:
        bind_value(parse_parameter("a", "*fp16"), array[1:], memory)
    values = refused.value.violations[0].values
    assert [values[name] for name in ("name", "multiple", "type")] == ["a", 16, "*fp16:1"]
    wording("an address that is no multiple", refused.value)
    assert bind_value(parse_parameter("a", "*fp16:1"), array[1:], memory) % 16 == 2


def test_elements_of_another_type_are_refused(wording):
    with pytest.raises(ts.RuleError) as refused:
        bind_value(parse_parameter("a", "*fp16"), np.zeros(8, np.float32), ts.Memory())
    values = refused.value.violations[0].values
    assert [values[name] for name in ("name", "shown", "type", "wanted")] == ["a", "float32", "*fp16", "float16"]
    wording("elements of another type", refused.value)


def test_a_descriptor_is_its_map_its_shape_and_its_strides():
    made, memory, array = (
        host("tensordesc<fp16[64,64]>", descriptors=[MAP_OF_64]),
        ts.Memory(),
        np.zeros((128, 192), np.float16),
    )
    tensor_map, *rest = bound(made, [array], 5 + 2, memory).values
    assert tensor_map == memory.map(array, (64, 64), swizzle="128B", l2_promotion="128B")
    assert rest == [128, 192, 192, 1, 0, 0]


def test_a_descriptor_of_triton_says_shape_strides_and_fill():
    memory, base = ts.Memory(), np.zeros(128 * 192, np.float16)
    described = SimpleNamespace(base=base, shape=[100, 64], strides=[192, 1], block_shape=[64, 64], padding="nan")
    tensor_map, *rest = bound(host("tensordesc<fp16[64,64]>", descriptors=[MAP_OF_64]), [described], 7, memory).values
    assert (tensor_map.dims, tensor_map.strides_bytes, tensor_map.oob_fill.name) == ((64, 100), (384,), "nan")
    assert rest[:4] == [100, 64, 192, 1]


def test_a_map_may_stand_for_a_descriptor():
    memory, array = ts.Memory(), np.zeros((128, 192), np.float16)
    given = memory.map(array, (32, 64), swizzle="64B")
    found, *rest = bound(host("tensordesc<fp16[64,64]>", descriptors=[MAP_OF_64]), [given], 7, memory).values
    assert (found, rest[:4]) == (given, [128, 192, 192, 1])


def test_an_im2col_descriptor_has_corners_pixels_and_channels():
    described = TritonDescriptor("float16", (32, 64), "64B", 2, is_im2col=True, is_padded=False)
    base = np.zeros((2, 8, 8, 32), np.float16)
    argument = SimpleNamespace(
        base=base,
        shape=base.shape,
        strides=[2048, 256, 32, 1],
        block_shape=[64, 32],
        pixel_box_lower_corner=[-1, -2],
        pixel_box_upper_corner=[-1, 0],
        element_strides=[1, 1, 1, 1],
    )
    made = host("tensordesc_im2col<fp16[64,32],input_rank=4>", descriptors=[described])
    tensor_map, *rest = bound(made, [argument], 9 + 2).values
    assert (tensor_map.lower_corner, tensor_map.upper_corner) == ((-2, -1), (0, -1))
    assert (tensor_map.pixels_per_column, tensor_map.channels_per_pixel) == (64, 32)
    assert rest[:8] == [2, 8, 8, 32, 2048, 256, 32, 1]


@pytest.mark.parametrize("knows_rounding", [True, False])
def test_without_tma_a_descriptor_is_an_address_and_its_shape_and_strides_twice(knows_rounding):
    made, memory, array = (
        host("tensordesc<fp16[64,64]>", knows_rounding=knows_rounding),
        ts.Memory(),
        np.zeros((128, 192), np.float16),
    )
    flags = [b"\0", b"\0"] if knows_rounding else [b"\0"]
    extents = [128, 192, 192, 1]
    expected = [memory.place(array), *extents, *flags, *extents]
    assert bound(made, [array], len(expected), memory).values == expected


def test_a_tensor_of_another_rank_is_refused(wording):
    with pytest.raises(ts.RuleError) as refused:
        bound(host("tensordesc<fp16[64,64]>", descriptors=[MAP_OF_64]), [np.zeros(64, np.float16)], 7)
    assert refused.value.violations[0].values == {"index": 0, "name": "p0", "shape": (64,), "rank": 2}
    wording("a tensor of another rank", refused.value)


def test_scratch_memory_is_as_large_as_all_blocks_want_it():
    memory = ts.Memory()
    made = host("i32", scratch=((256, 128), (0, 1)), cluster_blocks=2)
    _, scratch, profile = bound(made, [7], 3, memory, programs=(3, 2, 1)).values
    assert profile == 0
    assert memory._contents.region_at(scratch).content.nbytes == 256 * 2 * 6
    assert (made.grid((3, 2, 1)), made.cluster) == ((6, 2, 1), (2, 1, 1))


def test_parameters_that_no_known_launcher_fills_are_refused():
    with pytest.raises(ts.RuleError) as refused:
        bound(host("i32"), [7], 9)
    values = refused.value.violations[0].values
    assert [values[name] for name in ("entry", "found_count", "least", "most")] == ["k", 9, 1, 3]


def test_a_missing_argument_is_told_with_the_names(wording):
    with pytest.raises(ts.RuleError) as refused:
        bound(host("i32", "i32"), [7], 4)
    assert refused.value.violations[0].values == {"given": 1, "names": ("p0", "p1")}
    wording("a missing argument", refused.value)


def test_every_argument_that_does_not_fit_is_told():
    with pytest.raises(ts.RuleError) as caught:
        bound(host("i32", "*fp16", "i32"), ["x", "y", 7], 5)
    assert [violation.argument for violation in caught.value.violations] == ["args[0]", "args[1]"]


def test_a_tensor_shares_its_bytes_whatever_its_type():
    array = np.zeros((4, 8), ml_dtypes.bfloat16)
    shared = as_host_array(Tensor(array, "torch.bfloat16"))
    shared[1, 2] = 3
    assert (array[1, 2], shared.dtype, shared.shape) == (3, array.dtype, (4, 8))
    assert as_host_array(Tensor(np.zeros(3, np.float32), "torch.float32")).dtype == np.float32


def test_a_tensor_lives_as_long_as_its_array():
    tensor = Tensor(np.arange(1000, dtype=np.int64), "torch.int64")
    shared = as_host_array(tensor)
    del tensor
    assert shared.sum() == 999 * 500


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (Tensor(np.zeros(3, np.float32), "torch.float32", "cuda:0"), "a tensor on cuda:0"),
        (Tensor(np.zeros((3, 4), np.float32).T, "torch.float32"), "bytes do not follow"),
        (Tensor(np.zeros(3, np.uint8), "torch.quint4x2"), "a tensor of torch.quint4x2"),
    ],
)
def test_other_tensors_are_refused(tensor, said):
    with pytest.raises(ts.RuleError, match=said):
        ts.Memory().place(tensor)
