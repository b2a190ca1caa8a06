"""printf and assert: what a kernel prints, against the C library; what a failed assertion says."""

import ctypes
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptx_texts import kernel

from tilescope.errors import RuleError
from tilescope.machine.instructions.host_calls import PRINTED_CHARACTERS
from tilescope.machine.instructions.printf import format_conversion, parts_of

VPRINTF = ".extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);"
ASSERTFAIL = """
.extern .func __assertfail(.param .b64 message, .param .b64 file, .param .b32 line, .param .b64 function,
                           .param .b64 character_bytes);
"""


def text_variable(name, text):
    content = [*text.encode(), 0]
    return f".global .align 1 .b8 {name}[{len(content)}] = {{{', '.join(map(str, content))}}};\n"


def printing(text, stores, guard=""):
    """A kernel whose threads print a format with arguments that `stores` put into the buffer [depot]."""
    return kernel(
        f"""
        .local .align 8 .b8 depot[64];
        mov.u32 %r1, %tid.x;
        ld.param.u64 %d9, [out];
        {stores}
        mov.u64 %d1, depot;
        cvta.local.u64 %d2, %d1;
        mov.u64 %d3, text;
        cvta.global.u64 %d4, %d3;
        {{
            .param .b64 format;
            .param .b64 arguments;
            .param .b32 result;
            st.param.b64 [format], %d4;
            st.param.b64 [arguments], %d2;
            {guard} call.uni (result), vprintf, (format, arguments);
            ld.param.b32 %r2, [result];
        }}
        mul.wide.u32 %d5, %r1, 4;
        add.s64 %d5, %d9, %d5;
        st.global.u32 [%d5], %r2;
        """,
        before=VPRINTF + text_variable("text", text),
    )


def test_every_thread_prints_in_the_order_of_their_numbers():
    out = np.zeros(40, np.uint32)
    run = printing("thread %d\n", "st.local.u32 [depot], %r1;").run(1, 40, [out])
    assert run.printed == "".join(f"thread {number}\n" for number in range(40))
    np.testing.assert_array_equal(out, [1] * 40)  # the number of arguments


def test_arguments_lie_at_multiples_of_their_size():
    stores = """
        st.local.u32 [depot], -7;
        st.local.f64 [depot+8], 0d3FF8000000000000;
        st.local.u32 [depot+16], 65;
        st.local.u64 [depot+24], 1234567890123;
    """
    run = printing("%d|%.2f|%c|%llu", stores).run(1, 1, [np.zeros(1, np.uint32)])
    assert run.printed == "-7|1.50|A|1234567890123"


def test_a_string_may_lie_in_any_memory():
    """In an array that the kernel was given, and in the thread's own memory."""
    stores = """
        st.local.u64 [depot], %d9;
        st.local.u32 [depot+32], 0x00434241;
        mov.u64 %d1, depot;
        cvta.local.u64 %d2, %d1;
        add.s64 %d2, %d2, 32;
        st.local.u64 [depot+8], %d2;
    """
    out = np.zeros(4, np.uint32)
    out.view(np.uint8)[:4] = list(b"xyz\0")
    assert printing("%s %s", stores).run(1, 1, [out]).printed == "xyz ABC"


def test_only_the_threads_of_the_guard_print():
    stores = "st.local.u32 [depot], %r1; setp.eq.u32 %p1, %r1, 3;"
    assert printing("%d\n", stores, guard="@%p1").run(1, 8, [np.zeros(8, np.uint32)]).printed == "3\n"


def test_text_is_utf8():
    assert printing("größer\n", "").run(1, 1, [np.zeros(1, np.uint32)]).printed == "größer\n"


def test_what_a_kernel_prints_is_bounded():
    run = printing("%60000d", "st.local.u32 [depot], %r1;").run(1, 64, [np.zeros(64, np.uint32)])
    assert PRINTED_CHARACTERS < len(run.printed) < PRINTED_CHARACTERS + 100
    assert "the rest is left out" in run.printed


def c_prints(text, *arguments):
    buffer = ctypes.create_string_buffer(4096)
    ctypes.CDLL(None).snprintf(buffer, ctypes.c_size_t(4096), text.encode(), *arguments)
    return buffer.value.decode("latin-1")


FLAGS = st.text("-+ #0", max_size=3)
WIDTHS = st.sampled_from(["", "1", "7", "20"])
PRECISIONS = st.sampled_from(["", ".", ".0", ".1", ".3", ".12"])


@given(
    FLAGS,
    WIDTHS,
    PRECISIONS,
    st.sampled_from(["hh", "h", "", "l", "ll", "z"]),
    st.sampled_from("diouxX"),
    st.integers(0, 2**64 - 1),
    st.integers(0, 64),
)
def test_integers_look_as_c_prints_them(flags, width, precision, length, letter, word, bits):
    text = f"%{flags}{width}{precision}{length}{letter}"
    value = word & ((1 << bits) - 1)
    is_long = length in ("l", "ll", "z")
    argument = ctypes.c_uint64(value) if is_long else ctypes.c_uint32(value & 0xFFFFFFFF)
    assert format_conversion(parts_of(text)[0], (), value, None) == c_prints(text, argument), text


FLOATS = st.one_of(st.floats(), st.floats(width=16), st.sampled_from([0.0, -0.0, 5e-324, 1.5, 2.5, 1e22, 9.9999999]))


@given(FLAGS, WIDTHS, PRECISIONS, st.sampled_from("eEfFgGaA"), FLOATS)
def test_floats_look_as_c_prints_them(flags, width, precision, letter, value):
    text = f"%{flags}{width}{precision}{letter}"
    word = struct.unpack("<Q", struct.pack("<d", value))[0]
    assert format_conversion(parts_of(text)[0], (), word, None) == c_prints(text, ctypes.c_double(value)), text


@pytest.mark.parametrize(
    ("text", "stars", "word", "string", "expected"),
    [
        ("%*d", (5,), 42, None, "   42"),
        ("%*d|", (-5,), 42, None, "42   "),
        ("%.*f", (1,), 0x4009000000000000, None, "3.1"),
        ("%.0d", (), 0, None, ""),
        ("%.d", (), 5, None, "5"),
        ("%p", (), 0, None, "(nil)"),
        ("%p", (), 0x7F00, None, "0x7f00"),
        ("%s", (), 0, None, "(null)"),
        ("%.2s", (), 1, "abc", "ab"),
        ("%-4c|", (), 65, None, "A   "),
    ],
)
def test_stars_pointers_strings_and_characters(text, stars, word, string, expected):
    assert format_conversion(parts_of(text)[0], stars, word, string) == expected


def test_what_is_no_conversion_stays_text():
    assert parts_of("100 %k %") == ("100 %k %",)
    assert parts_of("%%") == ("%",)


ASSERTING = """
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 5;
    @%p1 bra FINE;
    mov.u64 %d1, message;
    cvta.global.u64 %d1, %d1;
    mov.u64 %d2, file;
    cvta.global.u64 %d2, %d2;
    mov.u64 %d3, function;
    cvta.global.u64 %d3, %d3;
    {
        .param .b64 a;
        .param .b64 b;
        .param .b32 c;
        .param .b64 d;
        .param .b64 e;
        st.param.b64 [a], %d1;
        st.param.b64 [b], %d2;
        st.param.b32 [c], 42;
        st.param.b64 [d], %d3;
        st.param.b64 [e], 1;
        call.uni __assertfail, (a, b, c, d, e);
    }
FINE:
    ret;
"""


def test_a_failed_assertion_is_fault_710_with_its_words():
    texts = text_variable("message", "x < 5") + text_variable("file", "scale.cu") + text_variable("function", "scale")
    run = kernel(ASSERTING, "", before=ASSERTFAIL + texts).run(1, 32)
    assert run.outcome == "fault"
    finding = run.findings[0]
    assert finding.values["code"] == 710
    assert "scale.cu:42: scale: Assertion `x < 5'" in finding.found
    assert "thread (5, 0, 0) of block" in finding.found


def test_a_heap_is_refused():
    body = "{ .param .b64 a; .param .b64 b; st.param.b64 [a], 16; call.uni (b), malloc, (a); }"
    with pytest.raises(RuleError, match="give the kernel an array"):
        kernel(body, before=".extern .func (.param .b64 b) malloc(.param .b64 a);")
