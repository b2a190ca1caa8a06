"""Initial values of variables."""

import pytest

from tilescope.ptx import read_module

HEAD = ".version 8.4 .target sm_90a .address_size 64 .global .b8 text[8]; .const .b32 fixed; .func f();\n"


def initial(declaration):
    """The variable x that a declaration makes."""
    return read_module(HEAD + declaration).variables["x"]


@pytest.mark.parametrize(
    ("declaration", "data"),
    [
        (".global .u32 x = 258;", b"\x02\x01\0\0"),
        (".global .s16 x = -2;", b"\xfe\xff"),
        (".global .u8 x = 0xFF;", b"\xff"),
        (".global .b8 x[4] = {104, 105};", b"hi"),
        (".global .b8 x[4] = {0x68, 1+1, -1};", b"h\x02\xff"),
        (".global .f32 x = 0f3F800000;", b"\0\0\x80\x3f"),
        (".global .f32 x = 1.5;", b"\0\0\xc0\x3f"),
        (".global .f32 x = 1;", b"\0\0\x80\x3f"),
        (".global .f64 x = 0d4004000000000000;", b"\0\0\0\0\0\0\x04\x40"),
        (".global .b32 x = 0f3F800000;", b"\0\0\x80\x3f"),
        (".global .f16 x = 1e9;", b"\0\x7c"),
        (".global .b8 x[2][3] = {{1, 2}, {3}};", b"\1\2\0\3"),
        (".global .u8 x = 300;", b"\x2c"),
        (".global .b8 x[2][2][2] = {{{1}, {2}}, {{3, 4}}};", b"\1\0\2\0\3\4"),
        (".global .v2 .b8 x[2] = {{1, 2}, {3}};", b"\1\2\3"),
        (".global .b8 x[] = {1, 2, 3};", b"\1\2\3"),
        (".const .align 4 .b8 x[4] = {};", b""),
    ],
)
def test_values_become_bytes_up_to_the_last_that_is_given(declaration, data):
    assert initial(declaration).initial == data


def test_open_extents_are_those_of_the_values():
    assert initial(".global .b8 x[] = {1, 2, 3};").size_bytes == 3
    assert initial(".global .b16 x[][2] = {{1, 2}, {3}};").size_bytes == 8


def test_a_variable_without_values_has_none():
    assert initial(".global .b8 x[4];").initial is None


def test_addresses_are_told_beside_what_is_added_to_them():
    table = initial(".global .u64 x[4] = {7, generic(text)+4, text, f};")
    assert table.addresses == ((8, "text"), (16, "text"), (24, "f"))
    assert table.initial == b"\7\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0" + bytes(16)


def test_an_address_may_be_given_byte_by_byte():
    masks = ", ".join(f"{0xFF << 8 * byte:#x}(generic(text)+2)" for byte in range(8))
    packed = initial(f".global .b8 x[10] = {{7, {masks}, 9}};")
    assert packed.addresses == ((1, "text"),)
    assert packed.initial == b"\7\2\0\0\0\0\0\0\0\x09"


def test_an_address_may_name_what_is_declared_later():
    module = read_module(HEAD + ".global .u64 x = later; .global .b32 later;")
    assert module.variables["x"].addresses == ((0, "later"),)
