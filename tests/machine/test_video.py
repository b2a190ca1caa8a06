"""Video instructions, against the pseudocode of the PTX ISA in Python's integers, and against what nvcc makes of intrinsics."""

import itertools
import operator

import numpy as np
import pytest
from ptx_texts import kernel

import tilescope as ts

WORDS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12F48A7C, 0x80FF7F01]
TRIPLES = list(itertools.islice(itertools.cycle(itertools.product(WORDS, WORDS)), 144))
A = np.array([a for a, _ in TRIPLES], np.uint32)
B = np.array([b for _, b in TRIPLES], np.uint32)
C = np.random.default_rng(7).integers(0, 1 << 32, len(A), dtype=np.uint32)
COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


def computed(opcode, target="d", a="a", b="b", c=", c"):
    """What the machine makes of A, B and C, a thread for each triple."""
    body = f"""
    .reg .b32 a, b, c, d, t; .reg .b64 p, q;
    mov.u32 t, %tid.x; mul.wide.u32 q, t, 4;
    ld.param.u64 p, [A]; add.s64 p, p, q; ld.global.u32 a, [p];
    ld.param.u64 p, [B]; add.s64 p, p, q; ld.global.u32 b, [p];
    ld.param.u64 p, [C]; add.s64 p, p, q; ld.global.u32 c, [p];
    {opcode} {target}, {a}, {b}{c};
    ld.param.u64 p, [D]; add.s64 p, p, q; st.global.u32 [p], d;
    """
    result = np.zeros(len(A), np.uint32)
    parameters = ".param .u64 A, .param .u64 B, .param .u64 C, .param .u64 D"
    run = kernel(body, parameters).run(1, len(A), [A.copy(), B.copy(), C.copy(), result])
    assert run.outcome == "finished"
    return result.tolist()


def part(word, selector, type_name):
    """A byte, a half-word or a word as an integer."""
    bits, number = {"": (32, 0), "b": (8, int(selector[1:] or 0)), "h": (16, int(selector[1:] or 0))}[selector[:1]]
    value = word >> bits * number & (1 << bits) - 1
    return value - (1 << bits) if type_name == "s32" and value >> bits - 1 else value


def clamp(value, bits, type_name):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if type_name == "s32" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def primary(name, a, b, mode="clamp"):
    match name:
        case "vadd":
            return a + b
        case "vsub":
            return a - b
        case "vabsdiff":
            return abs(a - b)
        case "vmin":
            return min(a, b)
        case "vmax":
            return max(a, b)
        case "vavrg":
            return (a + b + 1) // 2 if a + b >= 0 else (a + b) // 2
        case "vshl":
            return a << (b % 32 if mode == "wrap" else min(b, 32))
        case "vshr":
            return a >> (b % 32 if mode == "wrap" else min(b, 32))
    return int(COMPARISONS[name](a, b))


def signed_33(value):
    return (value + (1 << 32)) % (1 << 33) - (1 << 32)


def merged(value, selector, c):
    bits = 8 if selector[0] == "b" else 16
    start = bits * int(selector[1:])
    mask = (1 << bits) - 1 << start
    return c & ~mask | value << start & mask


TYPES = ("u32", "s32")
SECONDARY = {"add": operator.add, "min": min, "max": max}


@pytest.mark.thinned(15)
@pytest.mark.parametrize("types", list(itertools.product(TYPES, TYPES, TYPES)), ids="".join)
@pytest.mark.parametrize("name", ["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl.clamp", "vshl.wrap", "vshr.clamp"])
@pytest.mark.parametrize("is_saturated", [False, True])
def test_scalar_forms_follow_the_pseudocode(name, types, is_saturated):
    d_type, a_type, b_type = types
    name, _, mode = name.partition(".")
    if mode:
        b_type = "u32"
    saturated = ".sat" if is_saturated else ""
    opcode = f"{name}.{d_type}.{a_type}.{b_type}{saturated}{'.' + mode if mode else ''}"

    def result(a, b, a_part="", b_part="", d_bits=32):
        found = primary(name, part(a, a_part, a_type), part(b, b_part, b_type), mode)
        return clamp(found, d_bits, d_type) if is_saturated else signed_33(found)

    triples = list(zip(A.tolist(), B.tolist(), C.tolist(), strict=True))
    assert computed(opcode, c="") == [result(a, b) % 2**32 for a, b, _ in triples]
    assert computed(opcode, a="a.b3", b="b.h1", c="") == [result(a, b, "b3", "h1") % 2**32 for a, b, _ in triples]
    for secondary, combine in SECONDARY.items():
        expected = [combine(result(a, b, "h0"), part(c, "", d_type)) % 2**32 for a, b, c in triples]
        assert computed(f"{opcode}.{secondary}", a="a.h0") == expected
    for selector, bits in (("b2", 8), ("h1", 16), ("b0", 8)):
        expected = [merged(result(a, b, "", "b1", bits), selector, c) for a, b, c in triples]
        assert computed(opcode, target=f"d.{selector}", b="b.b1") == expected


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_vset_compares_and_combines(comparison):
    triples = list(zip(A.tolist(), B.tolist(), C.tolist(), strict=True))
    expected = [primary(comparison, part(a, "h1", "s32"), part(b, "", "u32")) for a, b, _ in triples]
    assert computed(f"vset.s32.u32.{comparison}", a="a.h1", c="") == expected
    added = [(one + c) % 2**32 for one, (_, _, c) in zip(expected, triples, strict=True)]
    assert computed(f"vset.s32.u32.{comparison}.add", a="a.h1") == added


@pytest.mark.parametrize("types", list(itertools.product(TYPES, TYPES)), ids="".join)
@pytest.mark.parametrize("scale", ["", ".shr7", ".shr15"])
@pytest.mark.parametrize("option", ["", ".sat", ".po", ".po.sat"])
def test_vmad_multiplies_exactly(types, scale, option):
    a_type, b_type = types
    is_signed = "s32" in types
    shift = int(scale[4:] or 0)

    def result(a, b, c):
        total = part(a, "", a_type) * part(b, "h1", b_type) + part(c, "", "s32" if is_signed else "u32")
        total = total + (".po" in option) >> shift
        return (clamp(total, 32, "s32" if is_signed else "u32") if ".sat" in option else total) % 2**32

    expected = [result(a, b, c) for a, b, c in zip(A.tolist(), B.tolist(), C.tolist(), strict=True)]
    assert computed(f"vmad.s32.{a_type}.{b_type}{option}{scale}", b="b.h1") == expected


@pytest.mark.parametrize("types", list(itertools.product(TYPES, TYPES)), ids="".join)
@pytest.mark.parametrize("ending", ["", ".sat", ".shr7", ".sat.shr15"])
@pytest.mark.parametrize(
    ("a", "b", "c"), [("-a", "b.h1", "c"), ("a", "-b.h1", "c"), ("-a", "-b.h1", "c"), ("a", "b.h1", "-c")]
)
def test_vmad_negates_the_product_or_the_addend(types, ending, a, b, c):
    is_signed = "s32" in types or (a[0] == "-") != (b[0] == "-") or c[0] == "-"
    final = "s32" if is_signed else "u32"
    shift = int(ending.rpartition("shr")[2] or 0) if "shr" in ending else 0

    def result(first, second, third):
        product = part(first, "", types[0]) * part(second, "h1", types[1])
        added = part(third, "", final)
        if (a[0] == "-") != (b[0] == "-"):
            product = -product
        elif c[0] == "-":
            added = part(third ^ 0xFFFFFFFF, "", final) + 1
        total = product + added >> shift
        return (clamp(total, 32, final) if ".sat" in ending else total) % 2**32

    expected = [result(*row) for row in zip(A.tolist(), B.tolist(), C.tolist(), strict=True)]
    assert computed(f"vmad.s32.{types[0]}.{types[1]}{ending}", a=a, b=b, c=f", {c}") == expected


def simd(name, count, types, a, b, c, *, a_digits, b_digits, mask, ending):
    """The pseudocode of the SIMD forms; digits name the parts of {b, a}, the part of the lowest result first."""
    bits = 32 // count
    d_type, a_type, b_type = types
    letter = "b" if count == 4 else "h"
    both = a | b << 32

    def selected(digit, type_name):
        return part(both >> bits * digit & (1 << bits) - 1, f"{letter}0", type_name)

    parts = [primary(name, selected(i, a_type), selected(j, b_type)) for i, j in zip(a_digits, b_digits, strict=True)]
    if ending == ".sat":
        parts = [clamp(one, bits, d_type) for one in parts]
    if ending == ".add":
        return (c + sum(one for number, one in enumerate(parts) if number in mask)) % 2**32
    for number in mask:
        c = merged(parts[number], f"{letter}{number}", c)
    return c


def digits(selector, default):
    return [int(digit) for digit in reversed(selector[2:])] if selector else default


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    ("name", "ending"),
    [
        *itertools.product(["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"], ["", ".sat", ".add"]),
        *itertools.product(["vset.lt", "vset.ge"], ["", ".add"]),  # vset has no .sat
    ],
)
@pytest.mark.parametrize("types", [("u32", "u32", "u32"), ("s32", "s32", "s32"), ("s32", "u32", "s32")], ids="".join)
def test_simd_forms_follow_the_pseudocode(name, count, types, ending):
    name, _, comparison = name.partition(".")
    listed = f"{'.'.join(types[1:])}.{comparison}" if comparison else ".".join(types)
    choices = {2: [("", "", ""), (".h0", ".h31", ".h02")], 4: [("", "", ""), (".b310", ".b7053", ".b1122")]}
    for mask, a_selector, b_selector in choices[count]:
        expected = [
            simd(
                comparison or name,
                count,
                types,
                *triple,
                a_digits=digits(a_selector, list(range(count))),
                b_digits=digits(b_selector, list(range(count, 2 * count))),
                mask=digits(mask, list(range(count))),
                ending=ending,
            )
            for triple in zip(A.tolist(), B.tolist(), C.tolist(), strict=True)
        ]
        found = computed(f"{name}{count}.{listed}{ending}", f"d{mask}", f"a{a_selector}", f"b{b_selector}")
        assert found == expected


@pytest.mark.parametrize(
    "text",
    [
        "vadd.s32.s32.s32 d.b4, a, b, c;",
        "vadd.s32.s32.s32 d, a.h10, b;",
        "vadd.s32.s32.s32 d, a, b, c;",
        "vadd.s32.s32.s32.max d.b0, a, b, c;",
        "vadd2.s32.s32.s32 d, a, b;",
        "vadd2.s32.s32.s32 d.h01, a, b, c;",
        "vadd2.s32.s32.s32 d, a.b10, b, c;",
        "vadd4.s32.s32.s32.sat.add d, a, b, c;",
        "vshl.u32.u32.u32 d, a, b;",
        "vset.u32.u32 d, a, b;",
        "vmad.u32.u32.u32.po d, -a, b, c;",
        "vmad.s32.s32.s32 d, -a, b, -c;",
        "vadd.s32.s32.s32 d, -a, b;",
        "add.s32 d, -a, b;",
    ],
)
def test_other_forms_are_refused(text):
    with pytest.raises(ts.RuleError) as refused:
        kernel(f".reg .b32 a, b, c, d; {text}", "")
    assert refused.value.violations[0].rule == "ptx-unsupported"


INTRINSICS = """
extern "C" __global__ void differences(const unsigned* a, const unsigned* b, unsigned* out) {
    unsigned x = a[threadIdx.x], y = b[threadIdx.x];
    unsigned* own = out + 4 * threadIdx.x;
    own[0] = __vabsdiffu4(x, y);
    own[1] = __vsadu4(x, y);
    own[2] = __vabsdiffu2(x, y);
    own[3] = __vsadu2(x, y);
}
"""


@pytest.mark.slow
def test_what_nvcc_makes_of_intrinsics(require, tmp_path):
    require("nvcc")
    (tmp_path / "differences.cu").write_text(INTRINSICS)
    compiled = ts.Kernel.from_cuda(tmp_path / "differences.cu")
    out = np.zeros((len(A), 4), np.uint32)
    assert compiled.run(1, len(A), [A.copy(), B.copy(), out]).outcome == "finished"
    bytes_apart = np.abs(A.view(np.uint8).astype(int) - B.view(np.uint8)).reshape(-1, 4)
    halves_apart = np.abs(A.view(np.uint16).astype(int) - B.view(np.uint16)).reshape(-1, 2)
    assert out[:, 0].tolist() == bytes_apart.astype(np.uint8).view(np.uint32).ravel().tolist()
    assert out[:, 1].tolist() == bytes_apart.sum(axis=1).tolist()
    assert out[:, 2].tolist() == halves_apart.astype(np.uint16).view(np.uint32).ravel().tolist()
    assert out[:, 3].tolist() == halves_apart.sum(axis=1).tolist()
