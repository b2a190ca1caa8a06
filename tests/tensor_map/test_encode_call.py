"""Calls of the driver out of C++ and Python source, with the names and arrays that they use."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.emitter import snippet
from tilescope.tensor_map.text.encode_call import encode_calls
from tilescope.tensor_map.text.pasted_source import MapSource

WANTED = ts.TensorMap("f16", (4096, 1024), (8192,), (64, 128), swizzle="128B", l2_promotion="128B")
OPTIONS = (
    "CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, "
    "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE"
)
CALL = f"cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, ptr, dim, stride, box, step, {OPTIONS});"
ARRAYS = "cuuint64_t dim[2] = {4096, 1024}, stride[1] = {8192}; cuuint32_t box[2] = {64, 128}, step[] = {1, 1};\n"
WRITTEN_OUT = (
    CALL.replace("dim,", "{4096, 1024},")
    .replace("stride,", "{8192},")
    .replace("box,", "{64, 128},")
    .replace("step,", "{1, 1},")
)
PYTHON = """
K = 2048 * 2
err, tensor_map = cuda.cuTensorMapEncodeTiled(
    cuda.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, x.data_ptr(),
    [cuda.cuuint64_t(K), cuda.cuuint64_t(1024)],  # innermost first
    [cuda.cuuint64_t(K * 2)], [cuda.cuuint32_t(64), cuda.cuuint32_t(128)], [cuda.cuuint32_t(1)] * 1 if False else step,
    cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, cuda.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
    cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
""".replace("[cuda.cuuint32_t(1)] * 1 if False else step", "[cuda.cuuint32_t(1), cuda.cuuint32_t(1)]")


@pytest.mark.parametrize(
    "text",
    [
        ARRAYS + CALL,
        WRITTEN_OUT,
        WRITTEN_OUT.replace("ptr", "reinterpret_cast<void*>(A)"),
        WRITTEN_OUT.replace("CU_TENSOR_MAP_", "CUtensorMapX::CU_TENSOR_MAP_"),
        WRITTEN_OUT.replace("CU_TENSOR_MAP_", ""),
        WRITTEN_OUT.replace("CU_TENSOR_MAP_SWIZZLE_128B", "(CUtensorMapSwizzle)3").replace(
            "CU_TENSOR_MAP_DATA_TYPE_FLOAT16", "6"
        ),
        WRITTEN_OUT.replace("CU_TENSOR_MAP_SWIZZLE_128B", "static_cast<CUtensorMapSwizzle>(3)"),
        "constexpr auto kSwizzle = CU_TENSOR_MAP_SWIZZLE_128B;"
        + WRITTEN_OUT.replace("CU_TENSOR_MAP_SWIZZLE_128B", "kSwizzle"),
        "#define BK 64\n#define BM (2 * BK)\n" + WRITTEN_OUT.replace("{64, 128}", "{BK, BM}"),
        "constexpr int K = 4096, M = 1 << 10;\n"
        + WRITTEN_OUT.replace("{4096, 1024}", "{K, M}").replace("8192", "K * sizeof(__half)"),
        "const size_t K = 4'096ULL;\n"
        + WRITTEN_OUT.replace("{4096,", "{static_cast<cuuint64_t>(K),").replace("8192", "(uint64_t)K * 2u"),
        "std::array<cuuint64_t, 2> dim{4096, 1024}; std::vector<uint64_t> stride = {8192}; uint32_t box[2]{64, 128}, step[2]{1, 1};\n"
        + CALL.replace("dim,", "dim.data(),").replace("stride,", "stride.data(),").replace("box,", "&box[0],"),
        "cuuint64_t dim[5]; dim[0] = 4096; dim[1] = 1024; uint64_t stride[5]; stride[0] = 8192;\n"
        + ARRAYS.split(";")[1]
        + ";"
        + CALL,
        "uint64_t all[2] = {2, 8192};\n" + ARRAYS + CALL.replace("stride,", "all + 1,"),
        "cuuint64_t dim[2] = {7, 7};\n" + ARRAYS + CALL + "\ncuuint64_t dim[2] = {9, 9};",
        ARRAYS
        + "CUDA_CHECK("
        + CALL.replace("cuTensorMapEncodeTiled", "lazy_cuTensorMapEncodeTiled").rstrip(";")
        + ");",
        ARRAYS + CALL.replace("2, ptr", "/*tensorRank=*/2, // rank\n ptr"),
        PYTHON,
        PYTHON.replace("2, x.data_ptr()", "tensorRank=2, globalAddress=ptr").replace(
            "[cuda.cuuint64_t(K * 2)]", "globalStrides=[K * 2]"
        ),
        "box = (64, 128)\n"
        + PYTHON.replace("[cuda.cuuint32_t(64), cuda.cuuint32_t(128)]", "[cuda.cuuint32_t(b) for b in box]"),
        snippet(WANTED, "encode"),
        snippet(WANTED, "encode-bindings"),
    ],
    ids=range(22),
)
def test_a_call_is_read_however_it_is_written(text):
    (asked,) = MapSource.read(text.encode()).asked
    assert asked.tensor_map() == WANTED


@pytest.mark.parametrize(
    ("assigned", "dims"),
    [("dim[0] = 512;", (512, 8, 4)), ("dim[1] = 512;", (64, 512, 4)), ("dim[2] = 512;", (64, 8, 512))],
)
def test_an_assignment_to_an_entry_leaves_the_others(assigned, dims):
    text = f"cuuint64_t dim[3] = {{64, 8, 4}}; {assigned} cuuint64_t stride[2] = {{128, 1024}};\n"
    call = CALL.replace(", 2, ptr", ", 3, ptr").replace("box,", "{64, 8, 4},").replace("step,", "{1, 1, 1},")
    (asked,) = encode_calls(text + call)
    assert asked.given["dims"] == dims


def test_im2col_calls_are_read_in_both_languages():
    wanted = ts.Im2colMap(
        "f16",
        (64, 9, 14, 64),
        (128, 1152, 16128),
        lower_corner=(-1, -1),
        upper_corner=(-1, -1),
        channels_per_pixel=8,
        pixels_per_column=64,
    )
    for language in ("encode", "encode-bindings"):
        (asked,) = encode_calls(snippet(wanted, language))
        assert asked.tensor_map() == wanted


def test_a_number_is_the_address_and_a_pointer_is_not_guessed():
    (asked,) = encode_calls(WRITTEN_OUT.replace("ptr", "(void*)0x7f5a20000000"))
    assert asked.given["address"] == 0x7F5A20000000
    (asked,) = encode_calls(WRITTEN_OUT)
    assert "address" not in asked.given


def test_two_calls_are_two_maps():
    found = encode_calls(WRITTEN_OUT + WRITTEN_OUT + WRITTEN_OUT.replace("{64, 128}", "{64, 64}"))
    assert [asked.given["box"] for asked in found] == [(64, 128), (64, 64)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CALL, r"it.*cuuint64_t dim\[\] = \{64, 64\}"),
        (WRITTEN_OUT.replace("1024", "M"), "it.*int M = 64"),
        ("int a = b; int b = a;" + WRITTEN_OUT.replace("1024", "a"), "lead in circles"),
        (WRITTEN_OUT.replace("1024", "rows ? 2 : 3"), "no sum, product or shift"),
        (WRITTEN_OUT.replace("1024", "1 / 0"), "1 // 0|1 / 0"),
        (WRITTEN_OUT.replace("1024", "1 << 9999999999"), "in dims"),
        (WRITTEN_OUT.replace("1024", "9" * 5000), "in dims"),
        (WRITTEN_OUT.replace("1024", "(" * 900 + "1" + ")" * 900), "in dims"),
        (
            WRITTEN_OUT.replace(", CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE", ""),
            "10 arguments behind the map.*Paste",
        ),
        (WRITTEN_OUT.replace("1024", "sizeof(nothing)"), "nothing"),
        (WRITTEN_OUT.replace("{4096, 1024}", "rank=2"), "no dims"),
        (WRITTEN_OUT.replace("{4096, 1024}", "{" + "1," * 9000), "argument-dump"),
    ],
)
def test_says_what_a_call_leaves_out(text, reason):
    with pytest.raises(ts.RuleError, match=f"(?s){reason}"):
        MapSource.read(text.encode()).tensor_map()


def test_a_sentence_and_a_declaration_are_no_calls():
    assert encode_calls("cuTensorMapEncodeTiled() failed: invalid argument") == ()
    declared = "CUresult cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType t, cuuint32_t r, void* a, b, c, d, e, f);"
    assert encode_calls(declared) == ()


PIECES = [
    *CALL.replace("(", " ( ").split(),
    *ARRAYS.split(),
    "{",
    "}",
    "(",
    "[",
    "]",
    "٣",
    "\x00",
    "1 <<",
    "= {",
    "//",
    "/*",
    "#define",
    "for x in",
    "sizeof(",
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map(" ".join))
@example("cuTensorMapEncodeTiled(" + "a," * 8)
def test_pieces_of_calls_give_maps_or_a_reason(pieces):
    try:
        MapSource.read((pieces + CALL).encode()).reports()
    except ts.RuleError:
        return


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "text",
    [
        "cuTensorMapEncodeTiled(" * 40_000,
        "a = {" * 200_000 + CALL,
        "/*" * 400_000 + CALL,
        "x = (" * 200_000 + CALL,
        "\n" * 900_000 + CALL,
        CALL.replace("dim", "(" * 900_000),
        "#define A A\n" * 80_000 + CALL,
        "int a = b;" * 90_000 + CALL,
    ],
    ids=range(8),
)
def test_a_megabyte_around_a_call_gives_a_reason(text):
    with pytest.raises(ts.RuleError):
        MapSource.read(text.encode()).tensor_map()


@pytest.mark.parametrize("cast", ["(cuuint64_t[])", "(cuuint64_t[2])", "(const uint64_t[])", "(cuuint64_t [])"])
def test_compound_literals_are_lists(cast):
    literals = WRITTEN_OUT.replace("{4096", f"{cast}{{4096").replace("{8192", "(cuuint64_t[1]) {8192")
    literals = literals.replace("{64", "(cuuint32_t[]){64").replace("{1,", "(uint32_t[]){1,")
    (asked,) = encode_calls(literals)
    assert asked.tensor_map() == WANTED


def test_all_names_that_the_text_does_not_define_are_reported_at_once():
    call = CALL.replace("dim,", "{K, M},").replace("stride,", "{K * sizeof(half)},").replace("box,", "{64, BOX + PAD},")
    with pytest.raises(ts.RuleError) as refused:
        encode_calls(call)
    assert {one.rule for one in refused.value.violations} == {"encode-call"}
    assert sorted(one.values["name"] for one in refused.value.violations) == ["BOX", "K", "M", "PAD", "step"]


def test_a_name_behind_a_definition_is_reported_too():
    with pytest.raises(ts.RuleError) as refused:
        encode_calls("cuuint64_t dim[2] = {K, M};" + CALL)
    assert [one.values["name"] for one in refused.value.violations] == ["K", "M", "stride", "box", "step"]
