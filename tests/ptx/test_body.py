"""A function's body: scopes, registers, labels, guards, calls."""

import pytest

from tilescope.ptx import read_module
from tilescope.ptx.syntax import (
    Address,
    Arguments,
    BranchTable,
    FunctionName,
    Guard,
    Immediate,
    Label,
    Prototype,
    Register,
)

HEAD = ".version 8.4\n.target sm_90a\n.address_size 64\n"


def function(body, before=""):
    """The kernel that has this body."""
    return read_module(f"{HEAD}{before}\n.entry k(.param .u64 out) {{\n{body}\n}}").functions["k"]


def test_an_instruction_is_a_name_with_modifiers_and_operands():
    kernel = function(".reg .f32 %f<3>; .reg .b64 %rd1; ld.global.v2.f32 {%f1, %f2}, [%rd1+8];")
    (load,) = kernel.instructions
    assert (load.name, load.modifiers) == ("ld", ("global", "v2", "f32"))
    assert load.opcode == "ld.global.v2.f32"
    assert load.text == "ld.global.v2.f32 {%f1, %f2}, [%rd1+8]"
    assert load.guard is None
    assert load.source is None
    assert load.line == 6


def test_registers_are_numbered_by_their_first_use():
    kernel = function(".reg .b32 %r<100>; add.s32 %r7, %r99, %r7; neg.s32 %r3, %r7;")
    assert kernel.registers == (Register("%r7", "b32", 0), Register("%r99", "b32", 1), Register("%r3", "b32", 2))


def test_a_range_costs_nothing():
    assert function(".reg .b32 %r<1048576>; ret;").registers == ()


def test_a_number_may_belong_to_either_of_two_ranges():
    kernel = function(".reg .b32 %r<10>; .reg .b64 %r1<30>; mov.b32 %r2, 0; mov.b64 %r12, 0; mov.b64 %r129, 0;")
    types = {register.name: register.type for register in kernel.registers}
    assert types == {"%r2": "b32", "%r12": "b64", "%r129": "b64"}


def test_a_name_that_is_declared_again_inside_braces_is_another_register():
    kernel = function(
        """.reg .b32 x; mov.b32 x, 1;
           { .reg .pred x; setp.eq.s32 x, 0, 0; }
           { .reg .b64 x; mov.b64 x, 2; }
           mov.b32 x, 3;"""
    )
    first, second, third, fourth = (instruction.operands[0] for instruction in kernel.instructions)
    assert (first.type, second.type, third.type) == ("b32", "pred", "b64")
    assert fourth == first


def test_a_name_means_the_outer_register_until_it_is_declared_inside():
    kernel = function(".reg .b32 x; { mov.b32 x, 1; .reg .b64 x; mov.b64 x, 2; }")
    assert [instruction.operands[0].type for instruction in kernel.instructions] == ["b32", "b64"]


def test_registers_may_be_declared_between_instructions():
    kernel = function(".reg .b32 %a; mov.b32 %a, 1; .reg .b32 %b; mov.b32 %b, %a;")
    assert [register.name for register in kernel.registers] == ["%a", "%b"]


def test_the_parts_of_a_vector_register_are_registers():
    kernel = function(".reg .v2 .f32 %v; .reg .b64 %rd; ld.global.v2.f32 %v, [%rd]; neg.f32 %v.x, %v.y;")
    load, negation = kernel.instructions
    assert [part.name for part in load.operands[0].elements] == ["%v.x", "%v.y"]
    assert negation.operands == load.operands[0].elements


def test_a_label_is_the_number_of_the_instruction_that_follows():
    kernel = function("start: ret; middle: exit; bra start; bra end; bra middle; end:")
    targets = [instruction.operands[0] for instruction in kernel.instructions[2:]]
    assert targets == [Label("start", 0), Label("end", 5), Label("middle", 1)]


def test_labels_of_inline_assembly_are_those_of_its_own_braces():
    wait = """{ .reg .pred complete;
        waitLoop: mbarrier.try_wait.parity.shared.b64 complete, [%r1], 0;
        @!complete bra.uni waitLoop; }"""
    kernel = function(".reg .b32 %r<2>;" + wait + wait)
    assert kernel.instructions[1].operands == (Label("waitLoop", 0),)
    assert kernel.instructions[3].operands == (Label("waitLoop", 2),)
    assert kernel.instructions[1].guard.register != kernel.instructions[3].guard.register


def test_a_branch_out_of_braces_finds_the_label_around_them():
    kernel = function("{ { bra done; } done: ret; } done: exit;")
    assert kernel.instructions[0].operands == (Label("done", 1),)


def test_several_labels_may_stand_together():
    kernel = function("a: b: $c:\n_d1: ret; bra b; bra _d1;")
    assert [instruction.operands[0].target for instruction in kernel.instructions[1:]] == [0, 0]


def test_guards_have_a_register_and_a_sign():
    kernel = function(".reg .pred %p<3>; @%p1 ret; @!%p2 exit; @ ! %p1 trap;")
    first, second, third = (instruction.guard for instruction in kernel.instructions)
    assert first == Guard(Register("%p1", "pred", 0), is_negated=False)
    assert second == Guard(Register("%p2", "pred", 1), is_negated=True)
    assert third == Guard(Register("%p1", "pred", 0), is_negated=True)
    assert kernel.instructions[1].text == "@!%p2 exit"


def test_a_branch_table_is_the_targets_of_its_labels():
    kernel = function(
        """.reg .b32 %r<2>;
        table: .branchtargets
            first,
            last;
        brx.idx.uni %r1, table;
        first: ret;
        last: exit;"""
    )
    assert kernel.instructions[0].operands[1] == BranchTable("table", (1, 2))


def test_a_call_has_results_a_function_and_arguments():
    kernel = function(
        """{ .param .b32 param0; st.param.b32 [param0+0], 5; .param .b32 retval0;
        call.uni (retval0),
        f,
        (
        param0
        );
        }
        call done;""",
        before=".func (.param .b32 r) f (.param .b32 a); .func done();",
    )
    parameter, result = kernel.variables
    store, call, plain = kernel.instructions
    assert store.operands == (Address(parameter, 0), Immediate(5))
    assert call.operands == (Arguments((result,)), FunctionName("f"), Arguments((parameter,)))
    assert call.text == "call.uni (retval0), f, ( param0 )"
    assert plain.operands == (FunctionName("done"),)


def test_a_call_through_a_register_names_its_prototype():
    kernel = function(
        """.reg .b64 %rd<2>; .param .b32 p0; .param .b32 r0;
        prototype_5 : .callprototype (.param .b32 _) _ (.param .b32 _);
        call (r0), %rd1, (p0), prototype_5;
        list: .calltargets f;
        call (r0), %rd1, (p0), list;""",
        before=".func (.param .b32 r) f (.param .b32 a);",
    )
    first, second = kernel.instructions
    assert first.operands[1:] == (
        Register("%rd1", "b64", 0),
        Arguments((kernel.variables[0],)),
        Prototype("prototype_5"),
    )
    assert second.operands[3] == Prototype("list")


def test_the_address_of_a_function_may_be_taken():
    kernel = function(".reg .b64 %rd<2>; mov.u64 %rd1, f;", before=".func f();")
    assert kernel.instructions[0].operands[1] == FunctionName("f")


def test_pragmas_are_skipped():
    assert len(function('.pragma "nounroll"; ret;').instructions) == 1


def test_several_instructions_may_stand_on_one_line_and_one_on_several():
    kernel = function(".reg .f32 %f<9>; {neg.f32 %f1,%f2; neg.f32 %f3,%f4;}\nfma.rn.f32\n%f5,\n%f1, %f2,\n%f3;")
    assert [(instruction.line, instruction.text) for instruction in kernel.instructions] == [
        (6, "neg.f32 %f1,%f2"),
        (6, "neg.f32 %f3,%f4"),
        (7, "fma.rn.f32 %f5, %f1, %f2, %f3"),
    ]


@pytest.mark.parametrize("blank", ["\t", "  ", "\n"])
def test_blanks_between_a_name_and_its_modifiers_say_nothing(blank):
    kernel = function(f".reg .b32 %r<3>; mov{blank}.u32{blank}%r1, %r2;")
    assert kernel.instructions[0].opcode == "mov.u32"
