"""Instruction descriptors: the documents' worked words, every field against a naive packing, random words, all shapes."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilescope as ts
from tilescope import InstructionDescriptor
from tilescope.mma.instruction_descriptor import inspect_instruction_descriptor
from tilescope.mma.tcgen05_kind import KINDS

# f16 x f16 -> f32; bf16; e4m3 with MN-major B.
WORKED = {
    0x08400010: ("f16", 128, 256, {"a_type": "f16"}),
    0x08200490: ("f16", 128, 128, {"a_type": "bf16"}),
    0x04110010: ("f8f6f4", 64, 64, {"a_type": "e4m3", "b_major": "MN"}),
}
NARROW = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
TYPES = {
    "f16": {"float16": 0, "bfloat16": 1},
    "tf32": {"tfloat32": 2},
    "f8f6f4": NARROW,
    "i8": {"uint8": 0, "int8": 1},
    "mxf8f6f4": NARROW,
    "mxf4": {"e2m1": 1},
    "mxf4nvf4": {"e2m1": 1},
}
SCALED = ("mxf8f6f4", "mxf4", "mxf4nvf4")
TRANSPOSABLE = {"float16", "bfloat16", "tfloat32", "e4m3", "e5m2", "int8", "uint8"}


@pytest.mark.parametrize(("word", "given_as"), WORKED.items(), ids=map(hex, WORKED))
def test_worked_examples(word, given_as):
    kind, m, n, options = given_as
    descriptor = InstructionDescriptor(kind, m, n, **options)
    assert descriptor.encode() == word
    assert InstructionDescriptor.decode(word, kind) == descriptor
    assert ts.Value.from_dict(descriptor.to_dict()) == descriptor


def legal_shapes(kind, transposed_bytes, sparse=False, k=None):
    """(m, n) of every form, written out from PTX ISA, "Matrix shape" of tcgen05.mma."""
    scaled = kind in SCALED
    one = {"m": (128,) if scaled else (64, 128), "n": range(8, 257, 8), "bytes": 16}
    two = {"m": (256,) if scaled and sparse else (128, 256), "n": range(16, 257, 16), "bytes": 32}
    forms = [one, two]
    if kind == "i8":
        one["n"], two["n"] = [8, 16, 24, 32, *range(48, 257, 16)], range(32, 257, 32)
    if not scaled:
        forms.append({"m": (32, 64, 128), "n": (64, 128) if sparse else (64, 128, 256), "bytes": 16})
    if k == 96:  # PTX ISA 9.4; up to 9.3 the pair alone
        two["m"] = (256,)
    return {
        (m, n) for form in forms for m in form["m"] for n in form["n"] if not transposed_bytes or n % form["bytes"] == 0
    }


@pytest.mark.parametrize(
    ("kind", "b_major"),
    [(kind, major) for kind in TYPES for major in ("K", "MN") if major == "K" or "mxf4" not in kind],
)
def test_takes_exactly_the_shapes_of_the_list(kind, b_major):
    name = next(iter(TYPES[kind]))
    legal = legal_shapes(kind, b_major == "MN" and ts.DataType.named(name).bits == 8)
    for m, n in itertools.product((0, 16, 32, 48, 64, 96, 128, 192, 256, 512), range(0, 272, 4)):
        if (m, n) in legal:
            assert InstructionDescriptor(kind, m, n, a_type=name, b_major=b_major).forms
            continue
        with pytest.raises(ts.RuleError, match=f"kind {kind} has cta_group::1 with m") as caught:
            InstructionDescriptor(kind, m, n, a_type=name, b_major=b_major)
        assert [each.rule for each in caught.value.violations] == ["tcgen05-shape"], (m, n)


@pytest.mark.parametrize(
    ("asked", "fix"), [((100, 200), "m = 128, n = 200"), ((128, 260), "n = 256"), ((30, 100), "m = 32, n = 128")]
)
def test_advises_the_nearest_shape(asked, fix):
    with pytest.raises(ts.RuleError) as caught:
        InstructionDescriptor("f16", *asked, a_type="bf16")
    assert [each.fix for each in caught.value.violations] == [f"Use {fix}."]


@pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, {"sparse": True}) for kind in TYPES), ("mxf4", {"k": 96}), ("mxf4nvf4", {"k": 96})],
)
def test_sparse_and_wide_instructions_have_shapes_of_their_own(kind, options):
    name = next(iter(TYPES[kind]))
    legal = legal_shapes(kind, transposed_bytes=False, **options)
    for m, n in itertools.product((32, 64, 128, 256), range(8, 264, 8)):
        if (m, n) in legal:
            assert InstructionDescriptor(kind, m, n, a_type=name, **options).forms
            continue
        with pytest.raises(ts.RuleError) as caught:
            InstructionDescriptor(kind, m, n, a_type=name, **options)
        assert [each.rule for each in caught.value.violations] == ["tcgen05-shape"], (m, n)


def test_forms_of_sparse_instructions():
    """PTX's table: sparse .ws has n 64 and 128; sparse block-scaled pairs have m 256."""
    assert InstructionDescriptor("f16", 128, 256, a_type="f16", sparse=True).forms == ("cta_group::1", "cta_group::2")
    assert InstructionDescriptor("mxf4", 128, 256, sparse=True).forms == ("cta_group::1",)
    with pytest.raises(ts.RuleError, match=r"m 32, 64, 128, n 64, 128\."):
        InstructionDescriptor("f16", 32, 256, a_type="f16", sparse=True)
    with pytest.raises(ts.RuleError, match="a shift belongs to"):
        InstructionDescriptor("f16", 128, 256, a_type="f16", sparse=True, max_shift=8)


@pytest.mark.parametrize("kind", ["mxf4", "mxf4nvf4"])
def test_k_96_exists_in_one_block(kind):
    """PTX ISA 9.4, "Matrix shape": cta_group::1 has m 128 with k = 64 and 96; a pair has k = 96 with m 256 alone."""
    assert InstructionDescriptor(kind, 128, 256, k=96).forms == ("cta_group::1",)
    assert InstructionDescriptor(kind, 128, 8, k=96).forms == ("cta_group::1",)
    assert InstructionDescriptor(kind, 256, 256, k=96).forms == ("cta_group::2",)


@pytest.mark.parametrize(("kind", "a_type"), [("i8", "s8"), ("f8f6f4", "e4m3"), ("f8f6f4", "e2m1")])
def test_the_sparsity_selector_is_0_where_all_metadata_columns_are_taken(kind, a_type):
    """PTX ISA, "Sparsity selector": it must be 0 for .kind::i8 and .kind::f8f6f4."""
    word = InstructionDescriptor(kind, 128, 64, a_type=a_type, sparse=True).encode()
    for selector in (1, 2, 3):
        with pytest.raises(ts.RuleError, match=f"sparsity_selector.*{kind}.*0"):
            InstructionDescriptor(kind, 128, 64, a_type=a_type, sparse=True, sparsity_selector=selector)
        with pytest.raises(ts.RuleError, match="sparsity_selector"):
            InstructionDescriptor.decode(word | selector, kind)
    for selected in ("f16", "tf32"):
        descriptor = InstructionDescriptor(selected, 128, 64, a_type=selected, sparse=True, sparsity_selector=1)
        assert descriptor.encode() & 3 == 1


@pytest.mark.parametrize(
    ("kind", "options", "ids"),
    [
        ("mxf8f6f4", {"a_type": "e4m3"}, (0, 1, 2, 3)),
        ("mxf4", {}, (0, 2)),
        ("mxf4nvf4", {"scale_type": "ue8m0"}, (0, 2)),
        ("mxf4nvf4", {"scale_type": "ue4m3"}, (0,)),
        ("mxf4", {"k": 96}, (0, 1, 2, 3)),
        ("mxf4nvf4", {"scale_type": "ue4m3", "k": 96}, (0, 2)),
    ],
)
def test_scale_ids_are_those_of_the_tables(kind, options, ids):
    """PTX ISA, "Scale factor A ID / B ID" of tcgen05.mma: ue4m3 comes in blocks of 16, four (k = 96: six) to a row."""
    for given_id in range(4):
        if given_id in ids:
            assert InstructionDescriptor(kind, 256, 64, a_scale_id=given_id, b_scale_id=given_id, **options).forms
        else:
            with pytest.raises(ts.RuleError, match=f"a_scale_id = {given_id}"):
                InstructionDescriptor(kind, 256, 64, a_scale_id=given_id, **options)


def test_only_integer_sums_wrap():
    def said(kind, saturate=0):
        word = inspect_instruction_descriptor(0x08200010 | saturate << 3, kind)
        return next(field.meaning for field in word.fields if field.name == "saturate")

    assert (said("i8"), said("i8", 1)) == ("sums wrap", "sums saturate")
    for kind in ("f16", "tf32", "f8f6f4"):
        assert said(kind) == "not set: only i8 saturates"
        assert said(kind, 1) == "set, but only i8 saturates"


def naive_word(d, kind):
    word = int(d.sparse) << 2 | int(d.negate_a) << 13 | int(d.negate_b) << 14
    word |= (d.a_major == "MN") << 15 | (d.b_major == "MN") << 16 | d.n >> 3 << 17
    word |= TYPES[kind][d.a_type.name] << 7 | TYPES[kind][d.b_type.name] << 10
    if kind in SCALED:
        word |= (
            d.b_scale_id << 4
            | (d.scale_type == "ue8m0") << 23
            | d.m >> 7 << 27
            | d.a_scale_id << 29
            | (d.k == 96) << 31
        )
    else:
        word |= (
            d.sparsity_selector | int(d.saturate) << 3 | {"float16": 0, "float32": 1, "int32": 2}[d.d_type.name] << 4
        )
        word |= d.m >> 4 << 24 | {0: 0, 8: 1, 16: 2, 32: 3}[d.max_shift] << 30
    return word


@st.composite
def descriptors(draw):
    kind = draw(st.sampled_from(sorted(TYPES)))
    a_type, b_type = (draw(st.sampled_from(sorted(TYPES[kind]))) for _ in "ab")
    majors = [draw(st.sampled_from(["K", "MN"])) if name in TRANSPOSABLE else "K" for name in (a_type, b_type)]
    bytes_of_b = majors[1] == "MN" and ts.DataType.named(b_type).bits == 8
    options = {
        "a_type": a_type,
        "b_type": b_type,
        "a_major": majors[0],
        "b_major": majors[1],
        "sparse": draw(st.booleans()),
    }
    if "mxf4" in kind and not options["sparse"]:
        options["k"] = draw(st.sampled_from([64, 96]))
    m, n = draw(st.sampled_from(sorted(legal_shapes(kind, bytes_of_b, options["sparse"], options.get("k")))))
    if kind == "i8":
        options["saturate"] = draw(st.booleans())
    else:
        options |= {"negate_a": draw(st.booleans()), "negate_b": draw(st.booleans())}
    if kind in SCALED:
        if kind == "mxf4nvf4":
            options["scale_type"] = draw(st.sampled_from(["ue8m0", "ue4m3"]))
        in_blocks_of_16 = options.get("scale_type") == "ue4m3"
        is_wide = options.get("k") == 96 or kind == "mxf8f6f4"
        if in_blocks_of_16:
            ids = st.sampled_from((0, 2) if is_wide else (0,))
        else:
            ids = st.sampled_from((0, 1, 2, 3) if is_wide else (0, 2))
        options |= {"a_scale_id": draw(ids), "b_scale_id": draw(ids)}
    else:
        if options["sparse"] and kind in ("f16", "tf32"):
            options["sparsity_selector"] = draw(st.integers(0, 3))
        if m in (32, 64, 128) and n in ((64, 128) if options["sparse"] else (64, 128, 256)):
            options["max_shift"] = draw(st.sampled_from([0, 8, 16, 32]))
        if kind in ("f16", "f8f6f4") and "bfloat16" not in (a_type, b_type):
            options["d_type"] = draw(st.sampled_from(["f16", "f32"]))
    return InstructionDescriptor(kind, m, n, **options)


@given(descriptors())
def test_encode_and_decode_are_inverse(descriptor):
    kind = descriptor.mma_kind
    word = descriptor.encode()
    assert word == naive_word(descriptor, kind)
    assert InstructionDescriptor.decode(word, kind) == descriptor
    assert ts.Value.from_dict(descriptor.to_dict()) == descriptor
    assert str(descriptor).startswith(f"kind {kind}: {descriptor.a_type.name} x {descriptor.b_type.name}")
    assert descriptor.forms


@given(st.integers(0, (1 << 32) - 1), st.sampled_from(sorted(KINDS)))
@example(0, "f16")
@example((1 << 32) - 1, "mxf4")
def test_every_word_is_explained_or_refused_by_name(word, kind):
    found = inspect_instruction_descriptor(word, kind)
    assert all(field.meaning for field in found.fields)
    covered = sum(((1 << field.width_bits) - 1) << field.bit for field in found.fields)
    assert sum(field.raw << field.bit for field in found.fields) == word & covered
    if found.sound:
        assert found.descriptor.encode() == word
        assert not found.violations
    else:
        assert found.violations
        with pytest.raises(ts.RuleError):
            InstructionDescriptor.decode(word, kind)
    assert ts.Value.from_dict(found.to_dict()) == found


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("f16", {}, "takes float16, bfloat16"),
        ("f16", {"a_type": "tf32"}, "Use kind tf32"),
        ("f16", {"a_type": "bf16", "d_type": "f16"}, "summed in float32"),
        ("tf32", {"d_type": "f16"}, "d_type.*tf32.*float32"),
        ("i8", {"a_type": "s8", "negate_a": True}, "only the other kinds negate"),
        ("f16", {"a_type": "f16", "saturate": True}, "only i8 saturates"),
        ("f16", {"a_type": "f16", "sparse": 1}, "True or False"),
        ("f16", {"a_type": "f16", "sparsity_selector": 1}, "sparsity_selector of kind f16 is 0"),
        (
            "f8f6f4",
            {"a_type": "e2m3", "a_major": "MN"},
            "a_major.*f8f6f4.*a_type = e2m3.*MN-major.*float16",
        ),
        ("mxf4", {"b_major": "MN"}, 'Use b_major="K"'),
        ("mxf4", {"scale_type": "ue4m3"}, "scale_type.*mxf4.*ue8m0"),
        ("mxf4", {"a_scale_id": 1}, "a_scale_id.*mxf4.*0.*2"),
        ("mxf4", {"k": 96, "sparse": True}, "k of kind mxf4 is 64"),
        ("f16", {"a_type": "f16", "k": 32}, "k of kind f16 is 16"),
        ("f16", {"a_type": "f16", "max_shift": 7}, "max_shift.*f16.*= 128.*= 128.*0.*8.*16.*32"),
        ("f16", {"a_type": "f16", "scale_type": "ue8m0"}, "scale_type = 'ue8m0'"),
        ("int8", {"a_type": "s8"}, "known: f16, tf32"),
        (None, {"a_type": "s8"}, "known: f16, tf32"),
    ],
)
def test_refuses_what_no_instruction_has(kind, options, message):
    with pytest.raises(ts.RuleError, match=message):
        InstructionDescriptor(kind, 128, 128, **options)


def test_a_shift_belongs_to_ws():
    assert InstructionDescriptor("f16", 32, 64, a_type="f16", max_shift=8).forms == ("cta_group::1.ws",)
    with pytest.raises(ts.RuleError, match="a shift belongs to"):
        InstructionDescriptor("f16", 128, 16, a_type="f16", max_shift=8)


def test_names_all_that_is_wrong_at_once():
    with pytest.raises(ts.RuleError) as caught:
        InstructionDescriptor("f16", 100, 7, a_type="e4m3", d_type="s32", saturate=True)
    assert [each.argument for each in caught.value.violations] == ["a_type", "b_type", "d_type", "saturate", "m, n"]


def test_only_words_of_32_bits_can_be_instruction_descriptors_or_addresses_of_tensor_memory():
    bits = {word: {reading.bits for reading in ts.descriptor_readings(word).readings} for word in (2**32 - 1, 2**32)}
    assert bits == {2**32 - 1: {32, 64}, 2**32: {64}}


@pytest.mark.parametrize("bits", [(6,), (6, 23)])
def test_bits_that_a_kind_does_not_use_are_named(bits, wording):
    word = 0x08400010 | sum(1 << bit for bit in bits)
    with pytest.raises(ts.RuleError) as refused:
        InstructionDescriptor.decode(word, "f16")
    (found,) = refused.value.violations
    assert (found.rule, found.values["bits"], found.values["without"]) == ("tcgen05-reserved", bits, 0x08400010)
    wording(f"reserved bits of an instruction descriptor, {len(bits)}", found)


@pytest.mark.parametrize("word", [-1, 1 << 32, "0x40", None, True])
def test_refuses_what_is_no_word(word):
    with pytest.raises(ts.RuleError, match=r"32 bits|word is an integer"):
        InstructionDescriptor.decode(word, "f16")
