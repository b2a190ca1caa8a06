"""Whatever is pasted: a layout or a reason, never another exception and never a long wait."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilescope import Layout, RuleError
from tilescope.notation import NOTATION, parse_layout

TEXTS = {
    "empty": "",
    "blank": " \n\t ",
    "long": "(8,64):(64,1)" * 100_000,
    "long name": "S" * 3_999,
    "long tuple": "(" + "1," * 1_990 + "1)",
    "deep": "(" * 1_900 + "8" + ")" * 1_900,
    "deep pair": "(" * 17 + "8" + ")" * 17 + ":" + "(" * 17 + "1" + ")" * 17,
    "deep brackets": "[" * 3_000,
    "unbalanced": "((8,64):(64,1)",
    "unbalanced close": "(8,64)):(64,1)",
    "unbalanced swizzle": "Sw<3,4,3 o 0 o (8,64):(64,1)",
    "crossed": "(8,64]:(64,1)",
    "huge": "(8,64):(64,999999999999999999999999999999)",
    "huge hex": "Sw<3,4,3>_smem_ptr[16b](0xffffffffffffffffffffff) o (8,64):(64,1)",
    "huge product": "(1099511627776,1099511627776,1099511627776):(1099511627776,1,1)",
    "huge swizzle": "Sw<999999999,999999999,999999999> o 0 o (8,64):(64,1)",
    "negative swizzle": "Sw<3,4,-999999999> o 0 o (8,64):(64,1)",
    "huge pycute": "SW_" + "9" * 500 + "_4_3 o 0 o (8,64):(64,1)",
    "huge bits": "smem_ptr[99999999b](unset) o (8,64):(64,1)",
    "huge vec": "#ttg.swizzled_shared<{vec = 1099511627776, perPhase = 1099511627776, maxPhase = 1099511627776, order = [1, 0]}>",
    "huge tile": "(TileTransform((1099511627776, 1099511627776)), SwizzleTransform(128))",
    "huge memdesc": "!ttg.memdesc<9999999x9999999xf16, #ttg.nvmma_shared<{swizzlingByteWidth = 128}>, #smem>",
    "huge layout": "Layout((1099511627776, 1099511627776), 16, atom=(3, 5))",
    "null": "(8,64)\x00:(64,1)",
    "escape": "(8,64)\x1b[31m:(64,1)",
    "letters": "(\uff18,64):(64,1)",
    "digits": "(٨,64):(64,1)",
    "emoji": "Sw<3,4,3> o 🙂 o (8,64):(64,1)",
    "surrogate": "(8,64):(64,\ud800)",
    "zero": "(0):(0)",
    "underscores": "(__8,64):(64,1)",
    "operators": " o o o o ",
    "quotes": 'Layout((8, 64), 16, swizzle="' + "1" * 3_000,
    "braces": "#ttg.swizzled_shared<{" + "vec = 8," * 400,
    "code": "__import__('os').system('true')",
    "slow memdesc": "!ttg.memdesc<" + "1x" * 1_900,
    "slow type": '!cute.layout<"' + "<" * 3_900,
    "most parentheses": "(" * 65_000,
    "most dots": "a." * 30_000,
    "most casts": "(int)" * 12_000 + "8",
    "nested constants": "C<" * 30_000,
    "nested pointers": "ptr<" * 16_000,
    "nested tuples": "cute::tuple<" * 5_000,
    "nested atoms": "Layout_K_SW128_Atom<" * 3_000,
    "many swizzles": "Sw<3,4,3> o " * 5_000,
    "many colons": "):(" * 20_000,
    "long prefix": "x " * 32_000 + "(8,64):(64,1)",
    "long suffix": "8" + "u" * 60_000,
    "long decimal": "(" + "9" * 60_000 + "):(1)",
    "long pointer": "smem_ptr[16b](0x" + "f" * 50_000 + ") o (8,64):(64,1)",
    "many buffers": "!ttg.memdesc<64x64xf16, #s<" * 2_400,
    "many definitions": "#a = #ttg.nvmma_shared<{" * 2_700,
    "many bases": "#ttg.shared_linear<{offset = [" + "[0, 1], " * 8_000 + "]}, alignment = 16>",
    "huge basis": "#ttg.shared_linear<{offset = [[0, 999999999999]]}, alignment = 16>",
    "nested bases": "#ttg.shared_linear<{offset = " + "[" * 30_000,
    "many indices": "!ttg.memdesc<" + "9x" * 9 + "f16, #ttg.swizzled_shared<{vec = 8, order = [8,7,6,5,4,3,2,1,0]}>>",
    "open memref": '!cute.memref<f16, smem, "(8,64):(64,1)',
    "digits of a swizzle": "Sw<٣,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)",
    "null in a buffer": "!ttg.memdesc<64x64xf16, #s\x00",
    "only tensor memory": "!ttg.memdesc<64x64xf16, #x.tensor_memory>",
    "slow ptx": ".swizzle_mode" + " " * 3_900 + "!",
}


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_gives_a_reason(name):
    with pytest.raises(RuleError) as refused:
        parse_layout(TEXTS[name], element_bits=16).addresses()
    for violation in refused.value.violations:
        assert violation.found
        assert violation.limit
        assert violation.fix
        assert len(str(violation)) < 1000


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("long", "at most 65536 characters"),
        ("deep", "at most 16 parentheses"),
        ("deep pair", "at most 16 parentheses"),
        ("huge", "at most 2^40"),
        ("huge hex", "at most 2^48"),
        ("huge product", "addresses are below 2^48"),
        ("null", "plain ASCII"),
        ("unbalanced", 'expected "'),
    ],
)
def test_the_reason_is_the_right_one(name, reason):
    with pytest.raises(RuleError) as refused:
        parse_layout(TEXTS[name], element_bits=16)
    assert reason in str(refused.value)


@pytest.mark.parametrize("text", [None, 3, b"(8,64):(64,1)", ["(8,64):(64,1)"], object()])
def test_what_is_no_text_gives_a_reason(text):
    with pytest.raises(RuleError, match="text is a text"):
        parse_layout(text)


PIECES = [
    "Sw",
    "S",
    "Swizzle",
    "<3,4,3>",
    "<",
    ">",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    " o ",
    "_8",
    "8",
    "64",
    "0",
    "-1",
    "_",
    "smem_ptr[16b]",
    "(unset)",
    "(0x400)",
    "tile_to_shape(",
    "GMMA::Layout_K_SW128_Atom",
    "<half_t>",
    "Shape<_8,_64>",
    "#ttg.swizzled_shared<{",
    "vec = 8",
    "order = [1, 0]",
    "}>",
    "TileTransform(",
    "(8, 64)",
    "SwizzleTransform(128)",
    "Layout(",
    'swizzle="128B"',
    ".swizzle_mode = 3",
    "128B",
    "?",
    "@",
    "Int<8>{}",
    "composition(",
    "!ttg.memdesc<64x64xf16, ",
    ".T",
    "=",
    "#shared = ",
    "#shared",
    "#smem>",
    "#ttg.shared_linear<{offset = [[0, 1], [1, 0]]}",
    "#ttg.padded_shared<[64:+8] {",
    "alignment = 16>",
    "tensor<",
    "ptr<f16, smem, align<1024>",
    "raw_ptr(0x400: f16, smem",
    "cute::C<(int)8>",
    "cute::tuple<",
    "ComposedLayout<",
    "sA: ",
    "\n",
    "smem_ptr_flag_bits<16>",
    "_smem_ptr[16b](0x7f8800000400)",
    '"',
]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.sampled_from([None, (8, 64), (64, 8)]))
@example("(((8)))(((", None)
def test_pieces_in_any_order_give_a_layout_or_a_reason(text, shape):
    try:
        layout = parse_layout(text, element_bits=16, shape=shape)
    except RuleError:
        return
    assert isinstance(layout, Layout)


@given(st.text(max_size=60), st.sampled_from([None, 4, 16]))
def test_any_text_gives_a_layout_or_a_reason(text, bits):
    try:
        parse_layout(text, element_bits=bits)
    except RuleError:
        return


def test_damaged_examples_give_a_layout_or_a_reason():
    random_numbers = random.Random(7)
    for row in NOTATION.values():
        for _ in range(150):
            letters = list(row.example)
            for _ in range(random_numbers.randint(1, 4)):
                place = random_numbers.randrange(len(letters))
                letters[place] = random_numbers.choice(["", "(", ")", "9", "<", ",", " ", letters[place] * 2, "{", "x"])
            try:
                parse_layout("".join(letters), element_bits=16, shape=(64, 64))
            except RuleError:
                continue


def test_the_example_of_each_notation_reads():
    for row in NOTATION.values():
        shape = (64, 64) if row.name == "tilescope" else (8, 64)
        assert parse_layout(row.example, element_bits=16, shape=shape).swizzle.name == "128B"
