"""`ts.pack`: structs by value, as C lays them out, and kernels that take them."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts

C_TYPES = {
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}
FIELDS = st.lists(st.tuples(st.sampled_from(sorted(C_TYPES)), st.integers(0, 100)), min_size=1, max_size=12)
# struct Params { CUtensorMap map; float* a; unsigned n; } of which a kernel adds n to the numbers at a
ADD = """
.version 8.0 .target sm_90 .address_size 64
.visible .entry add(.param .align 64 .b8 params[192]) {
    .reg .b32 %r<5>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [params+128];
    ld.param.u32 %r1, [params+136];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r3, [%rd3];
    add.u32 %r4, %r3, %r1;
    st.global.u32 [%rd3], %r4;
    ret;
}
"""


@given(FIELDS)
def test_fields_lie_where_the_c_compiler_puts_them(fields):
    class Struct(ctypes.Structure):
        _fields_ = [(f"f{number}", C_TYPES[name]) for number, (name, _) in enumerate(fields)]

    values = {f"f{number}": np.dtype(name).type(value) for number, (name, value) in enumerate(fields)}
    packed = ts.pack(**values)
    assert packed == bytes(Struct(*(value for _, value in fields)))
    assert dict(packed.offsets) == {name: getattr(Struct, name).offset for name in values}
    assert packed.alignment_bytes == ctypes.alignment(Struct)


def test_a_struct_in_a_struct_keeps_its_alignment_and_its_padding():
    inner = ts.pack(a=np.int64(1), b=np.int8(2))
    assert len(inner) == 16
    assert ts.pack(first=np.int8(3), inner=inner, last=np.int8(4)).offsets == {"first": 0, "inner": 8, "last": 24}


def test_plain_bytes_stand_where_they_are():
    assert ts.pack(first=np.int8(3), rest=b"\1\2\3").hex() == "03010203"


def test_pairs_say_the_type_of_python_numbers():
    packed = ts.pack(a=("s64", 7), b=("f32", [1, 2]), c=("bf16", 1.0), d=True, e=None)
    assert packed.offsets == {"a": 0, "b": 8, "c": 16, "d": 18, "e": 24}
    assert packed[8:16] == np.array([1, 2], np.float32).tobytes()


def test_a_map_begins_at_a_multiple_of_64():
    tensor_map = ts.TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    packed = ts.pack(n=7, map=tensor_map)
    assert (packed.offsets["map"], len(packed)) == (64, 192)
    assert packed[64:192] == tensor_map.encode()


@pytest.mark.parametrize(
    "value",
    [
        "text",
        1 << 40,
        -(1 << 31) - 1,
        ("s64",),
        ("s32", 1 << 40),
        ("u8", -1),
        ("e2m1", 1),
        [1, 2],
        np.str_("x"),
        np.datetime64("2020"),
    ],
)
def test_what_has_no_type_is_refused(value):
    with pytest.raises(ts.RuleError, match="pack-field"):
        ts.pack(a=value)


def test_every_field_that_is_wrong_is_named():
    with pytest.raises(ts.RuleError) as caught:
        ts.pack(a="text", n=7, b=np.zeros(4))
    assert [violation.argument for violation in caught.value.violations] == ["a", "b"]
    assert "ts.pack(memory, b=array)" in caught.value.violations[1].fix


def test_a_kernel_takes_a_packed_struct_with_a_map_and_an_array_in_it():
    memory = ts.Memory()
    numbers = np.arange(32, dtype=np.uint32)
    tensor_map = memory.map(np.zeros((64, 64), np.float16), (64, 64), swizzle="128B")
    params = ts.pack(memory, map=tensor_map, a=numbers, n=5)
    assert ts.Kernel(ADD).run(1, 32, [params], memory=memory).outcome == "finished"
    assert numbers.tolist() == list(range(5, 37))


def test_another_size_is_told_with_both_numbers_and_where_the_fields_lie(wording):
    kernel = ts.Kernel(ADD)
    assert kernel.parameters[0].size_bytes == 192
    with pytest.raises(ts.RuleError) as refused:
        kernel.run(1, 32, [ts.pack(a=None, n=5)])
    values = refused.value.violations[0].values
    assert (values["name"], values["given_bytes"], values["wanted_bytes"]) == ("params", 16, 192)
    assert "a at 0, n at 8" in values["layout"]
    wording("a packed parameter of another size", refused.value)
    with pytest.raises(ts.RuleError) as refused:
        kernel.run(1, 32, [b"abc"])
    values = refused.value.violations[0].values
    assert (values["given_bytes"], values["wanted_bytes"], values["layout"]) == (3, 192, None)


# struct Params { unsigned n; CUtensorMap map; float* a; }: the map lies at 64 before CUDA 13, and at 128 from then on
BEHIND_A_NUMBER = """
.version VERSION .target sm_90 .address_size 64
.visible .entry read(.param .align ALIGN .b8 params[SIZE], .param .u64 out) {
    .reg .b32 %r1;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [params+END];
    ld.param.u32 %r1, [params];
    ld.param.u64 %rd2, [out];
    st.global.u64 [%rd2], %rd1;
    st.global.u32 [%rd2+8], %r1;
    ret;
}
"""


@pytest.mark.parametrize(
    ("version", "map_at", "size_bytes"),
    [("8.0", 64, 256), ("8.8", 64, 256), ("9.0", 128, 384), ("9.1", 128, 384), ("10.0", 128, 384), ("9.0", 64, 256)],
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_map_lies_where_the_headers_of_the_kernel_put_it(version, map_at, size_bytes, is_nested):
    text = BEHIND_A_NUMBER.replace("VERSION", version).replace("ALIGN", str(map_at))
    kernel = ts.Kernel(text.replace("SIZE", str(size_bytes)).replace("END", str(map_at + 128)))
    memory = ts.Memory()
    tile = np.zeros((64, 64), np.float16)
    pointed = np.zeros(4, np.float32)
    tensor_map = memory.map(tile, (64, 64))
    if is_nested:
        params = ts.pack(memory, n=7, inner=ts.pack(memory, map=tensor_map, a=pointed))
    else:
        params = ts.pack(memory, n=7, map=tensor_map, a=pointed)
    out = np.zeros(2, np.uint64)
    run = kernel.run(1, 1, [params, out], memory=memory)
    assert run.outcome == "finished"
    assert out.tolist() == [memory.place(pointed), 7]
