"""Texts that nobody means: they end in a module or in a refusal, soon."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.ptx import read_module

KERNELS = sorted((Path(__file__).parent.parent / "golden" / "kernels").glob("*.ptx"))
TEXTS = [path.read_text("utf-8") for path in KERNELS] + [Path(__file__).with_name("calls.ptx").read_text("utf-8")]
SHORT = [text for text in TEXTS if len(text) < 12_000]
HEAD = ".version 8.0 .target sm_90 .address_size 64\n"
BODY = HEAD + ".entry k() {\n"

REFUSED = {
    "scopes": BODY + "{" * 10_000,
    "scopes that close": BODY + "{" * 10_000 + "}" * 10_001,
    "braces": BODY + "mov.b32 " + "{" * 10_000 + "}" * 10_000 + ";}",
    "brackets": BODY + "mov.b32 " + "[" * 10_000 + "]" * 10_000 + ";}",
    "parentheses": BODY + "mov.b32 _, " + "(" * 10_000 + "1" + ")" * 10_000 + ";}",
    "signs": BODY + "mov.b32 _, " + "-" * 10_000 + "1;}",
    "lists": HEAD + ".global .b8 x[2] = " + "{" * 10_000,
    "attributes": HEAD + ".global .attribute(" + "(" * 10_000,
    "registers": BODY + ".reg .b32 %r<2147483648>;}",
    "a long integer": BODY + "mov.b32 _, " + "9" * 1_000_000 + ";}",
    "a large array": BODY + ".shared .b8 x[1000000000000];}",
    "many dimensions": BODY + ".shared .b8 x" + "[9]" * 10_000 + ";}",
    "rows far apart": HEAD + ".global .b8 x[2][500000000] = {{1}, {1}};",
    "inlined functions": BODY + "".join(f".loc 1 {i} 0, inlined_at 1 {i - 1} 0\n" for i in range(1, 9999)) + "ret;}",
    "garbage": ("".join(chr(33 + i * 7919 % 90) for i in range(90)) * 11_112)[:1_000_000],
    "garbage in a body": BODY + ("".join(chr(65 + i * 7919 % 60) for i in range(60)) * 16_667)[:1_000_000],
    "no semicolon": BODY + "mov.b32 " * 200_000,
    "unknown names": BODY + "".join(f"neg.s32 %a{i}, %b{i};" for i in range(20_000)) + "}",
    "a string without an end": HEAD + '.pragma "' + "a" * 1_000_000,
    "a comment without an end": HEAD + "/*" + "a" * 1_000_000,
    "blanks": BODY + " " * 2_000_000 + "mov" + " " * 2_000_000,
    "a long name": BODY + "bra " + "a" * 1_000_000 + ";}",
    "zeros": "\0" * 100_000,
    "a surrogate": BODY + "\ud800",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_text_is_refused_with_little_memory(name):
    text = REFUSED[name]
    tracemalloc.start()
    with pytest.raises(ts.RuleError) as error:
        read_module(text)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 64 << 20
    assert all(len(str(violation)) < 1000 for violation in error.value.violations)


@pytest.mark.parametrize(
    ("text", "instructions"),
    [
        (BODY + "".join(f"L{i}: " for i in range(20_000)) + "ret; }", 1),
        (BODY + "mov.b32 _, " + "1+" * 20_000 + "1; }", 1),
        (BODY + "mov.b32 _, " + "9999999999*" * 20_000 + "1; }", 1),
        (BODY + "mov.b32 _, 1<<9999999999; }", 1),
        (BODY + "{" * 99 + "ret;" + "}" * 99 + "}", 1),
        (HEAD + ".global .b8 x[100000] = {" + "7, " * 99_999 + "7};\n.entry k() { ret; }", 1),
    ],
)
def test_a_long_text_is_read(text, instructions):
    assert len(read_module(text).functions["k"].instructions) == instructions


def read_or_refused(text):
    """Read a text, which may be refused, but by a rule, and with a place."""
    try:
        read_module(text)
    except ts.RuleError as error:
        violations = error.violations
    else:
        return
    assert violations
    assert all(violation.values["line"] >= 1 for violation in violations)


@given(st.data())
def test_a_text_that_ends_early_is_read_or_refused(data):
    text = data.draw(st.sampled_from(TEXTS))
    read_or_refused(text[: data.draw(st.integers(0, len(text)))])


@given(st.data())
def test_a_text_with_pieces_taken_out_put_in_or_doubled_is_read_or_refused(data):
    text = data.draw(st.sampled_from(SHORT))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 40)))
        middle = data.draw(
            st.one_of(
                st.text(max_size=6),
                st.sampled_from(list('{}[]();:,.@!%|+-~<>="/*#\n')),
                st.sampled_from([".reg", ".loc 1 2 3", "generic(x)", "0f", "0xFF(", "bra", "{.reg .b32 %r1;", "_|_"]),
                st.just(text[start:end] * 2),
            )
        )
        text = text[:start] + middle + text[end:]
    read_or_refused(text)


@pytest.mark.parametrize("word", [".shared::cluster", ".shared::cta", ".regs", ".param::func", ".loc::x"])
def test_a_directive_is_a_whole_word(word):
    with pytest.raises(ts.RuleError) as refused:
        read_module(BODY + f"{word} .b32 x; ret; }}")
    assert {violation.rule for violation in refused.value.violations} == {"ptx-syntax"}


@given(st.text(alphabet='{}[]();:,.@!%|+-~<>="/*#\n abxr019_$', max_size=80))
def test_any_body_is_read_or_refused(body):
    read_or_refused(BODY + ".reg .b32 a, b, x, r; " + body)
    read_or_refused(HEAD + body)
