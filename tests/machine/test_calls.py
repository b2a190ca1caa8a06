"""Calls through registers, and functions that call themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptx_texts import kernel, per_thread

import tilescope as ts


def outputs(run_kernel, threads, **options):
    out = np.zeros(threads, np.uint32)
    run = run_kernel.run(1, threads, [out], **options)
    assert run.outcome == "finished", run.findings
    assert run.exact
    return out


def function(name, body, parameters=("x",), variables=""):
    """A function of 32-bit parameters, which are %r1, %r2 …; it returns %r9."""
    declared = ", ".join(f".param .b32 {parameter}" for parameter in parameters)
    loads = "".join(f"ld.param.b32 %r{number}, [{parameter}];" for number, parameter in enumerate(parameters, 1))
    return f"""
.func (.param .b32 result) {name}({declared})
{{
    .reg .b32 %r<12>; .reg .pred %p<4>; .reg .b64 %d<4>;
    {variables}
    {loads}
    {body}
    st.param.b32 [result], %r9;
    ret;
}}
"""


def call(callee, result, *arguments, prototype=""):
    """A call with 32-bit arguments."""
    declared = "".join(f".param .b32 a{number}; " for number in range(len(arguments)))
    stores = "".join(f"st.param.b32 [a{number}], {argument}; " for number, argument in enumerate(arguments))
    names = ", ".join(f"a{number}" for number in range(len(arguments)))
    behind = f", {prototype}" if prototype else ""
    return f"{{ {declared}.param .b32 q; {stores}call (q), {callee}, ({names}){behind}; ld.param.b32 {result}, [q]; }}"


PROTOTYPE = "P: .callprototype (.param .b32 _) _ (.param .b32 _);"
THREE = (
    function("increment", "add.u32 %r9, %r1, 1;")
    + function("double", "add.u32 %r9, %r1, %r1;")
    + function("square", "mul.lo.u32 %r9, %r1, %r1;")
)
TABLE = ".global .u64 table[3] = {increment, double, square};\n"
CALLED = [lambda x: x + 1, lambda x: 2 * x, lambda x: x * x]


def by_table(index):
    return per_thread(
        f"""
        {index}
        mov.u64 %d1, table;
        mul.wide.u32 %d2, %r2, 8;
        add.s64 %d1, %d1, %d2;
        ld.global.u64 %d3, [%d1];
        {PROTOTYPE}
        {call("%d3", "%r1", "%r62", prototype="P")}
        """,
        before=THREE + TABLE,
    )


@pytest.mark.parametrize("seed", [None, 1])
def test_each_thread_calls_the_function_whose_address_it_has(seed):
    thread = np.arange(64)
    expected = [CALLED[index](number) for index, number in zip(thread % 3, thread, strict=True)]
    assert outputs(by_table("rem.u32 %r2, %r62, 3;"), 64, seed=seed).tolist() == expected


def test_an_instruction_takes_the_address_of_a_function():
    called = per_thread(
        f"""
        mov.u64 %d1, double;
        setp.lt.u32 %p1, %r62, 5;
        @%p1 mov.u64 %d1, square;
        {PROTOTYPE}
        {call("%d1", "%r1", "%r62", prototype="P")}
        """,
        before=THREE,
    )
    assert outputs(called, 32).tolist() == [number * number if number < 5 else 2 * number for number in range(32)]


def test_a_call_of_another_address_is_a_fault():
    called = per_thread(
        f"mov.u64 %d1, 64; mov.u64 %d2, double; {PROTOTYPE} {call('%d1', '%r1', '%r62', prototype='P')}", before=THREE
    )
    run = called.run(1, 32, [np.zeros(32, np.uint32)])
    assert run.outcome == "fault"
    assert [(finding.rule, finding.values["code"]) for finding in run.findings] == [("run-out-of-bounds", 700)]
    assert "0x40" in run.findings[0].found


def test_a_call_through_a_register_needs_a_function_of_its_type():
    with pytest.raises(ts.RuleError, match="takes the address of no function with these parameters") as refused:
        per_thread(f"mov.u64 %d1, 64; {PROTOTYPE} {call('%d1', '%r1', '%r62', prototype='P')}")
    assert {violation.rule for violation in refused.value.violations} == {"ptx-unsupported"}


def test_initial_values_are_addresses_in_global_and_constant_memory_only():
    with pytest.raises(ts.RuleError) as refused:
        kernel("ret;", before=".shared .b32 s; .global .u64 pointer = generic(s);")
    [violation] = refused.value.violations
    assert (violation.rule, violation.values["name"], violation.values["space"]) == ("ptx-type", "s", "shared")


FIBONACCI = function(
    "fibonacci",
    f"""
    mov.u32 %r9, %r1;
    setp.lt.u32 %p1, %r1, 2;
    @%p1 bra END;
    sub.u32 %r2, %r1, 1;
    {call("fibonacci", "%r3", "%r2")}
    ld.param.b32 %r5, [x];
    sub.u32 %r2, %r5, 2;
    {call("fibonacci", "%r4", "%r2")}
    add.u32 %r9, %r3, %r4;
END:
""",
)
ACKERMANN = function(
    "ackermann",
    f"""
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra ZERO;
    sub.u32 %r3, %r1, 1;
    mov.u32 %r4, 1;
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra OUTER;
    sub.u32 %r5, %r2, 1;
    {call("ackermann", "%r4", "%r1", "%r5")}
OUTER:
    {call("ackermann", "%r9", "%r3", "%r4")}
    bra.uni END;
ZERO:
    add.u32 %r9, %r2, 1;
END:
""",
    parameters=("m", "n"),
)
MUTUAL = (
    ".func (.param .b32 result) is_odd(.param .b32 x);\n"
    + function(
        "is_even",
        f"mov.u32 %r9, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra END; sub.u32 %r2, %r1, 1; {call('is_odd', '%r9', '%r2')} END:",
    )
    + function(
        "is_odd",
        f"mov.u32 %r9, 0; setp.eq.u32 %p1, %r1, 0; @%p1 bra END; sub.u32 %r2, %r1, 1; {call('is_even', '%r9', '%r2')} END:",
    )
)


@pytest.mark.parametrize("seed", [None, 3])
def test_a_function_that_calls_itself_keeps_the_values_of_each_call(seed):
    called = per_thread("rem.u32 %r2, %r62, 10;" + call("fibonacci", "%r1", "%r2"), before=FIBONACCI)
    numbers = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]
    assert outputs(called, 40, seed=seed).tolist() == numbers * 4


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), min_size=1, max_size=40))
def test_calls_are_kept_for_each_thread_apart(pairs):
    def ackermann(m, n):
        if m == 0:
            return n + 1
        return ackermann(m - 1, 1 if n == 0 else ackermann(m, n - 1))

    called = kernel(
        f"""
        mov.u32 %r62, %tid.x;
        ld.param.u64 %d30, [out];
        mul.wide.u32 %d31, %r62, 4;
        add.s64 %d30, %d30, %d31;
        ld.global.u32 %r5, [%d30];
        shr.u32 %r2, %r5, 8;
        and.b32 %r3, %r5, 255;
        {call("ackermann", "%r1", "%r2", "%r3")}
        st.global.u32 [%d30], %r1;
        """,
        before=ACKERMANN,
    )
    values = np.array([m << 8 | n for m, n in pairs], np.uint32)
    run = called.run(1, len(pairs), [values])
    assert run.outcome == "finished", run.findings
    assert values.tolist() == [ackermann(m, n) for m, n in pairs]


def test_functions_call_each_other_in_turn():
    called = per_thread(call("is_even", "%r1", "%r62"), before=MUTUAL)
    assert outputs(called, 64).tolist() == [1, 0] * 32


def test_threads_that_have_returned_wait_for_their_warp():
    """The store behind the call is one instruction of the warp: four sectors for 32 words."""
    called = per_thread("rem.u32 %r2, %r62, 7;" + call("fibonacci", "%r1", "%r2"), before=FIBONACCI)
    run = called.run(1, 32, [np.zeros(32, np.uint32)])
    [stored] = [row for row in run.instructions if row.ptx_text.startswith("st.global")]
    assert (stored.warps, stored.sectors) == (1, 4)


def test_calls_that_never_return_are_a_fault():
    endless = function("endless", call("endless", "%r9", "%r1"))
    run = per_thread(call("endless", "%r1", "%r62"), before=endless).run(1, 32, [np.zeros(32, np.uint32)])
    assert run.outcome == "fault"
    assert [finding.values["code"] for finding in run.findings] == [700]
    assert "cudaLimitStackSize" in run.findings[0].fix


@pytest.mark.parametrize(
    ("variables", "instruction", "reason"),
    [
        (".local .align 4 .b8 depot[16];", "mov.u64 %d1, depot;", "depot would have another address in each call"),
        ("", "mov.u64 %d1, x;", "x would have another address in each call"),
        ("", "stacksave.u64 %d1;", "has a stacksave"),
    ],
)
def test_what_each_call_would_need_for_itself_is_refused(variables, instruction, reason):
    functions = function("f", f"{instruction} {call('f', '%r9', '%r1')}", variables=variables)
    with pytest.raises(ts.RuleError, match=reason) as refused:
        per_thread(call("f", "%r1", "%r62"), before=functions)
    assert {violation.rule for violation in refused.value.violations} == {"ptx-unsupported"}


def test_undefined_values_are_kept_with_the_call():
    """A value from a lane that does not take part is kept by the first call, and stored after the second has returned."""
    functions = function(
        "f",
        f"""
        mov.u32 %r9, %r1;
        setp.eq.u32 %p1, %r2, 0;
        @%p1 bra END;
        mov.u32 %r3, 7;
        mov.u32 %r4, 0;
        {call("f", "%r5", "%r3", "%r4")}
        add.u32 %r9, %r1, 0;
    END:
        """,
        parameters=("x", "again"),
    )
    called = per_thread(
        "shfl.sync.down.b32 %r2, %r62, 16, 31, 65535; mov.u32 %r3, 1;" + call("f", "%r1", "%r2", "%r3"),
        before=functions,
    )
    run = called.run(1, 16, [np.zeros(16, np.uint32)])
    assert "run-undefined-lane" in {finding.rule for finding in run.findings}
