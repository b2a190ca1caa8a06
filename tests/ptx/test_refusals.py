"""What is refused, at which line and column, and what the refusal says."""

import pytest

import tilescope as ts
from tilescope.ptx import read_module

HEAD = ".version 8.4\n.target sm_90a\n.address_size 64\n"


def refused(text):
    """The violations of a text."""
    with pytest.raises(ts.RuleError) as error:
        read_module(text)
    return error.value.violations


def refused_in_body(body):
    """The only violation of a body, whose first line is line 5 of the text."""
    (violation,) = refused(f"{HEAD}.entry k(.param .u64 out) {{\n{body}\n}}\n")
    return violation


@pytest.mark.parametrize(
    ("body", "rule", "line", "column", "words"),
    [
        ("ret", "ptx-syntax", 6, 1, "`}`; expected an operand or `;`"),
        (".reg .b32 a;\nmov.b32 a, 1\nadd.s32 a, a, 1;", "ptx-syntax", 7, 1, "`add`; expected `,` or `;`"),
        (".reg .b32 a;\nmov.b32 a,;", "ptx-syntax", 6, 11, "`;`; expected an operand"),
        (".reg .b32 a;\nld.b32 a, [a;", "ptx-syntax", 6, 13, "`;`; expected `]`, `+` or `,`"),
        (".reg .b32 a;\nmov.b32 a, {a a};", "ptx-syntax", 6, 15, "`a`; expected `,` or `}`"),
        (".reg .b32 a;\nld.b32 a, [a+a];", "ptx-syntax", 6, 14, "`a`; expected a number"),
        (".reg .b32 a;\nld.b32 a, [%tid.x];", "ptx-syntax", 6, 12, "`%tid.x`; expected a register"),
        (".reg .b32 a;\nmov.b32 a, 089;", "ptx-syntax", 6, 12, "leading 0"),
        (".reg .b32 a;\nmov.b32 a, 0f12;", "ptx-syntax", 6, 12, "`0f12`; expected an operand"),
        (".reg .b32 a;\nmov.b32 a, 4/(2-2);", "ptx-syntax", 6, 13, "a division by 0"),
        (".reg .f32 a;\nadd.f32 a, a, 1.0+2.0;", "ptx-syntax", 6, 18, "constant expressions are of integers"),
        (".reg .b32;", "ptx-syntax", 5, 10, "`;`; expected the name"),
        (".loc 1 2\nret;", "ptx-syntax", 5, 1, "`.loc`; expected a .loc"),
        (".branchtargets a;", "ptx-syntax", 5, 1, "`.branchtargets`; expected an instruction"),
        (".reg .b32 a; .reg .b32 a;", "ptx-name", 5, 24, "a is declared again"),
        (".reg .b32 %r<4>; .reg .b32 %r3;", "ptx-name", 5, 28, "%r3 is declared again"),
        (".reg .b32 out;", "ptx-name", 5, 11, "out is declared again"),
        (".reg .b32 a; a: ret;", "ptx-name", 5, 14, "a is declared again"),
        ("a: ret; a: ret;", "ptx-name", 5, 9, "a is declared again"),
        (".shared .b32 s; .shared .b8 s[4];", "ptx-name", 5, 29, "s is declared again"),
        (".reg .b32 %r<4>; neg.s32 %r1, %r4;", "ptx-name", 5, 31, "%r4 is not declared"),
        (".reg .b32 %r<4>; neg.s32 %r01, %r1;", "ptx-name", 5, 26, "%r01 is not declared"),
        ("mov.u32 %r1, 0; .reg .b32 %r<4>;", "ptx-name", 5, 9, "%r1 is not declared"),
        ("{ .reg .b32 a; } mov.b32 a, 1;", "ptx-name", 5, 26, "a is not declared"),
        (".reg .b32 a; ld.b32 a, [b+4];", "ptx-name", 5, 25, "b is not declared"),
        ("@%p1 ret;", "ptx-name", 5, 2, "%p1 is not declared"),
        ("bra nowhere;", "ptx-name", 5, 5, "nowhere is no label"),
        ("{ inside: ret; } bra inside;", "ptx-name", 5, 22, "inside is no label"),
        ("table: .branchtargets nowhere;", "ptx-name", 5, 23, "nowhere is no label"),
        ("call missing;", "ptx-name", 5, 6, "missing is not a function"),
        (".reg .b33 a;", "ptx-type", 5, 6, "`.b33`; the types are .pred, .b8,"),
        (".reg .b32 a; @a ret;", "ptx-type", 5, 15, "type .b32"),
        (".reg .b32 a; mov.b32 a, !a;", "ptx-type", 5, 26, "a has type .b32"),
        (".reg .b32 %r<2147483648>;", "ptx-limit", 5, 14, "2147483648 registers; at most 1048576"),
        (".shared .b8 s[262145];", "ptx-limit", 5, 13, "262145 bytes of .shared; at most 262144"),
        (".global .u64 x = out;", "ptx-syntax", 5, 14, "only those of the module"),
        (".param .b32 a; .param .b32 a;", "ptx-name", 5, 28, "a is declared again"),
        (".local .align 3 .b8 s[4];", "ptx-syntax", 5, 15, "`3`; expected a power of two"),
        (".reg .b64 a; mov.b64 a, 18446744073709551616;", "ptx-limit", 5, 25, "65 bits of an integer"),
    ],
)
def test_a_body_is_refused_where_it_is_wrong(body, rule, line, column, words):
    violation = refused_in_body(body)
    assert violation.rule == rule
    assert (violation.values["line"], violation.values["column"]) == (line, column)
    assert words in str(violation)


@pytest.mark.parametrize(
    ("text", "rule", "line", "column", "words"),
    [
        ("", "ptx-syntax", 1, 1, "nothing; a PTX text begins with .version and .target"),
        (".entry k() { ret; }", "ptx-syntax", 1, 1, "a PTX text begins with .version and .target"),
        (".version 8.0\n.entry k() { ret; }", "ptx-syntax", 2, 1, "a PTX text begins with .version and .target"),
        (
            ".version 8.0 .target sm_90 .address_size 32",
            "ptx-limit",
            1,
            42,
            ".address_size 32; only addresses of 64 bits",
        ),
        (HEAD + "ret;", "ptx-syntax", 4, 1, "`ret`; expected a directive such as .entry"),
        (HEAD + ".reg .b32 a;", "ptx-syntax", 4, 1, "`.reg`; expected a directive such as .entry"),
        (HEAD + ".entry k() {", "ptx-syntax", 4, 13, "label or `}`"),
        (HEAD + ".entry k()", "ptx-syntax", 4, 11, "expected `{`, `;` or a directive"),
        (HEAD + ".entry k(.reg .b32 a) { ret; }", "ptx-syntax", 4, 10, "`.reg`; expected `.param`"),
        (HEAD + ".entry k(.param .b32 a, .param .b32 a) { ret; }", "ptx-name", 4, 37, "a is declared again"),
        (HEAD + ".entry k() .reqntid 1, 2, 3, 4 { ret; }", "ptx-syntax", 4, 30, "`4`; expected at most three numbers"),
        (HEAD + ".func f() { ret; } .func f() { ret; }", "ptx-name", 4, 26, "f is declared again"),
        (HEAD + ".global .b32 a; .global .b32 a;", "ptx-name", 4, 30, "a is declared again"),
        (HEAD + ".global .b32 a; .func a();", "ptx-name", 4, 23, "a is declared again"),
        (HEAD + ".global .texref t;", "ptx-type", 4, 9, "`.texref`; the types are"),
        (HEAD + ".global .pred t;", "ptx-syntax", 4, 15, "`t`; expected the type"),
        (HEAD + ".global .b8 x[2] = {1, 2, 3};", "ptx-syntax", 4, 27, "`3`; expected at most 2 values"),
        (HEAD + ".global .b8 x[2][2] = {1, 2};", "ptx-syntax", 4, 24, "`1`; expected `{`"),
        (HEAD + ".global .b8 x[2] = {{1}};", "ptx-syntax", 4, 21, "`{`; expected a value"),
        (HEAD + ".global .b8 x[2] = {1,};", "ptx-syntax", 4, 23, "`}`; expected a value"),
        (HEAD + ".global .b32 x = 1.5;", "ptx-type", 4, 18, "`1.5`; a value that .b32 holds"),
        (HEAD + ".global .u64 x = y;", "ptx-name", 4, 18, "y is not declared"),
        (HEAD + ".const .b32 y; .const .u64 x = y;", "ptx-type", 4, 32, "the address of y within .const"),
        (HEAD + ".global .b32 y; .global .u32 x = y;", "ptx-type", 4, 34, "an address in a variable of type .u32"),
        (HEAD + ".global .b32 y; .global .b8 x[2] = {0xFF(y), 1};", "ptx-type", 4, 42, "in bytes: 0xFF(x)"),
        (HEAD + ".global .b32 y; .global .b8 x[9] = {0xFF00(y)};", "ptx-type", 4, 37, "in bytes: 0xFF(x)"),
        (HEAD + ".alias f, g;", "ptx-name", 4, 11, "g is not declared"),
        (HEAD + '.pragma "nounroll', "ptx-syntax", 4, 9, "a string without an end"),
        (HEAD + "/* never closed", "ptx-syntax", 4, 1, "a comment without an end"),
        (HEAD + "é", "ptx-syntax", 4, 1, "character 'é'"),
        (HEAD + ".entry k() { ret; } # end", "ptx-syntax", 4, 21, "character '#'"),
        (HEAD + ".section .debug_str {", "ptx-syntax", 4, 21, "expected the `}` that ends"),
    ],
)
def test_a_module_is_refused_where_it_is_wrong(text, rule, line, column, words):
    (violation,) = refused(text)
    assert violation.rule == rule
    assert (violation.values["line"], violation.values["column"]) == (line, column)
    assert words in str(violation)


def test_all_unknown_names_of_a_text_are_told_at_once():
    violations = refused(
        HEAD + ".entry k() { .reg .b32 a; add.s32 a, %b, %c; bra d; }\n.entry l() { st.b32 [e], {f, 1}; }"
    )
    assert [(violation.rule, violation.found) for violation in violations] == [
        ("ptx-name", "line 4, column 38: %b is not declared"),
        ("ptx-name", "line 4, column 42: %c is not declared"),
        ("ptx-name", "line 4, column 50: d is no label"),
        ("ptx-name", "line 5, column 22: e is not declared"),
        ("ptx-name", "line 5, column 27: f is not declared"),
    ]


def test_a_mistyped_name_is_recognised(wording):
    violation = refused_in_body(".reg .b32 counter; mov.b32 conuter, 1;")
    wording("a mistyped name is recognised", violation.fix)
    assert refused_in_body("loop: ret; bra lop;").fix.startswith("Did you mean loop?")
    assert refused_in_body(".reg .b32 a; mov.b32 a, %tid;").fix.startswith("Did you mean %tid.")


def test_many_unknown_names_end_after_the_first_twenty():
    violations = refused(HEAD + ".entry k() {" + "neg.s32 %a, %b;" * 100 + "}")
    assert len(violations) == 21
    assert "20 names that are not declared" in violations[-1].found


def test_only_functions_have_parameters_of_any_extent():
    head = ".version 8.0 .target sm_90 .address_size 64 "
    assert ts.ptx.read_module(head + ".extern .func f(.param .u64 a, .param .b8 rest[]);").functions["f"].parameters
    with pytest.raises(ts.RuleError) as refused:
        ts.ptx.read_module(head + ".visible .entry k(.param .b8 rest[]) { ret; }")
    [violation] = refused.value.violations
    assert (violation.rule, violation.values["name"]) == ("ptx-type", "rest")
