"""Directives of a module: head, functions, parameters, variables."""

import pytest

import tilescope as ts
from tilescope.ptx import read_module

HEAD = ".version 8.4\n.target sm_90a\n.address_size 64\n"


def test_the_head_names_version_and_target():
    module = read_module(".version 8.4\n.target sm_90a, debug\n.address_size 64\n")
    assert (module.version, module.target) == ("8.4", "sm_90a")


def test_entries_are_the_kernels_in_their_order():
    module = read_module(HEAD + ".visible .entry b() { ret; }\n.func f() { ret; }\n.weak .entry a() { ret; }")
    assert [entry.name for entry in module.entries] == ["b", "a"]
    assert list(module.functions) == ["b", "f", "a"]


def test_parameters_have_type_size_and_alignment():
    (kernel,) = read_module(
        HEAD
        + """.entry k(
            .param .u64 .ptr .global .align 16 out,
            .param .u32 n,
            .param .align 64 .b8 map[128],
            .param .v4 .f32 four
        ) { ret; }"""
    ).entries
    described = [(p.name, p.space, p.type, p.size_bytes, p.alignment_bytes) for p in kernel.parameters]
    assert described == [
        ("out", "param", "u64", 8, 8),
        ("n", "param", "u32", 4, 4),
        ("map", "param", "b8", 128, 64),
        ("four", "param", "f32", 16, 16),
    ]


def test_launch_directives_are_fields():
    (kernel,) = read_module(
        HEAD
        + """.entry k() .maxntid 256, 2 .reqntid 128 .minnctapersm 2 .maxnreg 64 .explicitcluster
            .reqnctapercluster 2, 1, 1 .maxclusterrank 8 .pragma "nounroll"; { ret; }"""
    ).entries
    assert kernel.max_threads == (256, 2)
    assert kernel.required_threads == (128,)
    assert kernel.required_cluster == (2, 1, 1)
    assert kernel.max_cluster_rank == 8


def test_a_function_has_results_and_one_that_is_declared_has_no_instructions():
    module = read_module(
        HEAD
        + """.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 values);
            .func fail .noreturn;
            .visible .func (.param .align 8 .b8 pair[16]) f (.param .b32 a) { ret; }"""
    )
    assert module.functions["vprintf"].instructions is None
    assert [result.name for result in module.functions["vprintf"].results] == ["status"]
    assert module.functions["fail"].instructions is None
    assert module.functions["f"].results[0].size_bytes == 16
    assert [instruction.text for instruction in module.functions["f"].instructions] == ["ret"]


def test_a_declaration_may_come_before_the_definition_and_after_it():
    module = read_module(HEAD + ".func f(.param .b32 a); .func f(.param .b32 b) { ret; } .func f(.param .b32 c);")
    assert [parameter.name for parameter in module.functions["f"].parameters] == ["b"]
    assert len(module.functions["f"].instructions) == 1


def test_parameters_of_prototypes_need_no_names():
    module = read_module(HEAD + ".extern .func (.param .b32 _) f (.param .b64 _, .param .b64 _);")
    assert len(module.functions["f"].parameters) == 2


def test_an_alias_is_the_function_by_another_name():
    module = read_module(HEAD + ".func f() { ret; } .func g(); .alias g, f;")
    assert module.functions["g"].instructions == module.functions["f"].instructions
    assert module.functions["g"].name == "g"


def test_extern_shared_memory_has_no_size():
    module = read_module(HEAD + ".extern .shared .align 1024 .b8 smem[];")
    smem = module.variables["smem"]
    assert (smem.space, smem.size_bytes, smem.alignment_bytes, smem.is_extern) == ("shared", None, 1024, True)


def test_one_directive_may_declare_several_variables():
    module = read_module(HEAD + ".global .align 8 .u32 a, b[4][2], c = 7;")
    assert [(v.name, v.size_bytes, v.alignment_bytes) for v in module.variables.values()] == [
        ("a", 4, 8),
        ("b", 32, 8),
        ("c", 4, 8),
    ]


def test_every_variable_has_a_number_of_its_own():
    module = read_module(
        HEAD + ".global .u32 a; .entry k(.param .u32 a) { { .shared .b32 a; { .local .b32 a; } } ret; }"
    )
    kernel = module.functions["k"]
    numbers = [variable.number for variable in (module.variables["a"], *kernel.parameters, *kernel.variables)]
    assert len(set(numbers)) == 4
    assert [variable.space for variable in kernel.variables] == ["shared", "local"]


def test_an_extern_variable_may_be_defined_later():
    module = read_module(HEAD + ".extern .global .u32 a; .visible .global .u32 a = 5;")
    assert module.variables["a"].initial == b"\x05\0\0\0"
    assert not module.variables["a"].is_extern


def test_attributes_and_debug_sections_are_skipped():
    module = read_module(
        HEAD
        + """.global .attribute(.managed) .align 4 .u32 m;
            .section .debug_abbrev { .b8 1 .b8 17 .b32 L1-L2 }
            .func .attribute(.unified(0xAB, 0xCD)) f() { ret; }"""
    )
    assert list(module.variables) == ["m"]
    assert list(module.functions) == ["f"]


def test_comments_and_line_breaks_may_stand_anywhere():
    (kernel,) = read_module(
        """// made by hand
        .version /* which */ 8.0 .target sm_90 .entry /* a
        kernel */ k(
            .param .u64 out // where results go
        ) { .reg .b32 %r
            <4>; mov.u32
              %r1, // the lane
              /* of the warp */ %laneid
              ; ret; }"""
    ).entries
    assert [instruction.text for instruction in kernel.instructions] == ["mov.u32 %r1, %laneid", "ret"]
    assert [instruction.line for instruction in kernel.instructions] == [6, 9]


def test_lines_of_the_preprocessor_are_skipped():
    kernel = read_module(HEAD + '# 1 "kernel.cu"\n.entry k() {\n  # 2\n ret; }').functions["k"]
    assert kernel.instructions[0].line == 7


def test_windows_line_ends_are_line_ends():
    text = (HEAD + ".entry k()\n{\n  ret;\n}\n").replace("\n", "\r\n")
    assert read_module(text).functions["k"].instructions[0].line == 6


@pytest.mark.parametrize("text", [b"ret;", None, 7])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(ts.RuleError, match="argument-type"):
        read_module(text)
