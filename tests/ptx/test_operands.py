"""Operands, one by one, and the constants in them."""

import pytest

from tilescope.ptx import read_module
from tilescope.ptx.lexer import Text
from tilescope.ptx.operand_reader import Problems, quick_operands
from tilescope.ptx.scope import RegisterRange, Scope
from tilescope.ptx.syntax import (
    Address,
    AddressOf,
    Immediate,
    Negated,
    Pair,
    Register,
    Sink,
    SpecialRegister,
    Vector,
)

BEFORE = """.version 8.4 .target sm_90a .global .b32 table[4];
.entry k(.param .u64 out) { .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>; .reg .b32 plain;
"""
R1 = Register("%r1", "b32", 0)
R2 = Register("%r2", "b32", 1)


def read(statement):
    """The operands of one instruction."""
    (instruction,) = read_module(f"{BEFORE}{statement}\n}}").functions["k"].instructions
    return instruction.operands


def variable(name):
    module = read_module(BEFORE + "}")
    return (module.variables | {"out": module.functions["k"].parameters[0]})[name]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0", 0),
        ("42", 42),
        ("42U", 42),
        ("-8", -8),
        ("0x1F", 31),
        ("0XffU", 255),
        ("017", 15),
        ("0b101", 5),
        ("0xFFFFFFFFFFFFFFFF", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1+2*3", 7),
        ("(1+2)*3", 9),
        ("10-4-3", 3),
        ("-7/2", -3),
        ("-7 % 4", -3),
        ("7 % 4", 3),
        ("~0", -1),
        ("- -5", 5),
        ("1<<4|3", 19),
        ("0xF0>>4&6^1", 7),
        ("1<<64", 0),
        ("0xFFFFFFFFFFFFFFFF+2", 1),
        ("2*WARP_SZ", 64),
    ],
)
def test_integers_and_their_expressions(written, value):
    assert read(f"mov.b64 %rd1, {written};")[1] == Immediate(value)


@pytest.mark.parametrize(
    ("written", "bits", "width"),
    [
        ("0f3F800000", 0x3F800000, 32),
        ("0F3f800000", 0x3F800000, 32),
        ("0d3FF0000000000000", 0x3FF0000000000000, 64),
        ("-0f3F800000", 0xBF800000, 32),
        ("1.0", 0x3FF0000000000000, 64),
        ("-1.5e0", 0xBFF8000000000000, 64),
        (".5", 0x3FE0000000000000, 64),
        ("25e-1", 0x4004000000000000, 64),
    ],
)
def test_floats_are_their_bits(written, bits, width):
    assert read(f"mov.f32 %r1, {written};")[1] == Immediate(bits, width)


@pytest.mark.parametrize(
    ("written", "offset"),
    [
        ("[%r1]", 0),
        ("[%r1+4]", 4),
        ("[%r1+-8]", -8),
        ("[%r1-8]", -8),
        ("[ %r1 + 0 ]", 0),
        ("[%r1+0x10]", 16),
        ("[%r1+4*4]", 16),
        ("[%r1 - 8 + 4]", -4),
    ],
)
def test_addresses_have_a_base_and_an_offset(written, offset):
    assert read(f"ld.shared.b32 %r1, {written};")[1] == Address(R1, offset)


def test_an_address_may_begin_with_a_variable_or_a_number():
    assert read("ld.param.b64 %rd1, [out+8];")[1] == Address(variable("out"), 8)
    assert read("ld.shared.b32 %r1, [0x10];")[1] == Address(Immediate(16))
    assert read("ld.shared.b32 %r1, [16+4];")[1] == Address(Immediate(20))


def test_the_coordinates_of_a_copy_stand_in_its_address():
    (address,) = read("prefetch.tensor.2d.L2.global [%rd1, {%r1, 8}];")
    assert address == Address(Register("%rd1", "b64", 0), 0, (Register("%r1", "b32", 1), Immediate(8)))


def test_vectors_hold_operands_and_vectors():
    assert read("mov.b64 %rd1, {%r1, %r2};")[1].elements[1].name == "%r2"
    assert read("mov.b32 {%r1, _}, 0;")[0] == Vector((R1, Sink()))
    assert read("op {%r1}, {{%r1, 0x1}, {%r2}};")[1] == Vector((Vector((R1, Immediate(1))), Vector((R2,))))
    assert read("op {};")[0] == Vector(())


def test_a_copy_with_everything_in_it():
    operands = read(
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%r1], [%rd1, {%r2, %r3, %r4}], [%r5+8], {%r6}, plain, %rd2;"
    )
    assert [type(operand).__name__ for operand in operands] == [
        "Address",
        "Address",
        "Address",
        "Vector",
        "Register",
        "Register",
    ]
    assert [coordinate.name for coordinate in operands[1].coordinates] == ["%r2", "%r3", "%r4"]
    assert operands[2].offset == 8


def test_two_results_stand_with_a_bar_between_them():
    assert read("shfl.sync.idx.b32 %r1|%p1, %r1, 0, 31, -1;")[0] == Pair(R1, Register("%p1", "pred", 1))
    assert read("elect.sync _|%p1, -1;")[0] == Pair(Sink(), Register("%p1", "pred", 0))


def test_predicates_may_be_negated():
    assert read("and.pred %p1, %p1, !%p1;")[2] == Negated(Register("%p1", "pred", 0))


@pytest.mark.parametrize("name", ["%tid.x", "%nctaid.z", "%laneid", "%clock64", "%cluster_ctarank", "WARP_SZ"])
def test_special_registers_have_names(name):
    assert read(f"mov.u32 %r1, {name};")[1] == SpecialRegister(name)


def test_the_name_of_a_variable_is_its_address():
    assert read("mov.u64 %rd1, table;")[1] == variable("table")
    assert read("mov.u64 %rd1, table+8;")[1] == AddressOf(variable("table"), 8)
    assert read("mov.u64 %rd1, table - 4;")[1] == AddressOf(variable("table"), -4)


def test_names_need_no_percent_sign():
    assert read("mov.u32 plain, 1;")[0] == Register("plain", "b32", 0)


@pytest.mark.parametrize(
    "written",
    ["%r1", "%r1, %r2", " %r1 , -4", "[%r1], {%r1, %r2}", "{%r1,%r2},{%r3,0},[%r4+8]", "_, [%r1+-8], 0", "%tid.x"],
)
def test_the_quick_reader_and_the_careful_one_agree(written):
    quick, careful = Scope(), Scope()
    for scope in (quick, careful):
        scope.declare_range("%r", RegisterRange("b32", 9))
    from tilescope.ptx.lexer import Cursor
    from tilescope.ptx.operand_reader import OperandReader

    text = Text(written + ";")
    reader = OperandReader(Cursor(text), careful, Problems(text))
    assert quick_operands(written, quick) == reader.operands(of_labels=False)


@pytest.mark.parametrize(
    "written", ["", "%r1,", ",%r1", "%r1 %r2", "[%r1", "{%r1", "{%r1}}", "[%r1, {%r2}]", "%r9", "08", "$label", "(%r1)"]
)
def test_the_quick_reader_leaves_all_else_to_the_careful_one(written):
    scope = Scope()
    scope.declare_range("%r", RegisterRange("b32", 9))
    assert quick_operands(written, scope) is None
