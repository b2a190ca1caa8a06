"""check, encode, decode and diff: what they take, print and answer."""

import io
import json
import os
import struct
import sys
import threading
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.cli import run
from tilescope.value import Value

SOUND = ["--type", "bf16", "--dims", "4096,4096", "--box", "64,64", "--swizzle", "128B"]
MATRIX = ts.TensorMap("bf16", (4096, 4096), (8192,), (64, 64), swizzle="128B")


def with_option(option, value):
    """The options of a sound map, with another value for one of them, or with one more."""
    said = dict(zip(SOUND[::2], SOUND[1::2], strict=True)) | {option: value}
    return [word for pair in said.items() for word in pair]


CUTLASS = """\
TMA Desc Addr:   0x7ffd7d2800c0
format         9
dim            2
gmem_address   0x7f5a20000000
globalDim      (4096,4096,1,1,1)
globalStrides  (2,8192,0,0,0)
boxDim         (64,64,1,1,1)
elementStrides (1,1,1,1,1)
interleave     0
swizzle        3
l2Promotion    2
oobFill        0
"""
REFUSED = CUTLASS + "Error: Failed to initialize the TMA descriptor 1\n"


@pytest.fixture
def answer(capsys, monkeypatch):
    """Run a command, with text or bytes on stdin: its status, stdout and stderr."""

    def call(*arguments, stdin=""):
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        status = run(list(arguments))
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return call


def test_a_sound_map_is_accepted(answer, wording):
    status, out, err = answer("check", *SOUND)
    assert (status, err) == (0, "")
    first, _, title, *_ = out.splitlines()
    assert "Accepted: tiled map of 4096 x 4096 bfloat16" in first
    assert "box 64 x 64, swizzle 128B" in first
    assert "copy transfers 8192 bytes." in first
    wording("a sound map is accepted", first)
    assert "Accepted. Tiled tensor map: 4096 x 4096 bfloat16" in title
    assert "box 64 x 64, swizzle 128B" in title
    wording("a sound map is accepted, 2", title)
    assert "mbarrier expects  8192 bytes a copy" in out


def test_a_refusal_is_drawn_whole(answer):
    tensor = ["--type", "bf16", "--dims", "4096,4000", "--strides", "8200"]
    status, out, err = answer("check", *tensor, "--box", "128,64", "--swizzle", "128B")
    assert (status, err) == (1, "")
    assert (
        out
        == """\
Refused: strides_bytes[0] = 8200 bytes; strides are multiples of 16 bytes; and 1 more reason.

Refused: 2 broken rules

Broken rules
stride-alignment  strides_bytes[0] = 8200 bytes; strides are multiples of 16
                  bytes. Pad dimension 0 so that the next one steps 8208 bytes.
swizzle-span      box[0] = 128 elements x 2 bytes = 256 bytes; swizzle 128B
                  takes a row of at most 128 bytes. Use box[0] <= 64 and one box
                  per span.

The arguments
data_type      bf16
dims           4096, 4000
strides_bytes  8200
box            128, 64
swizzle        128B
"""
    )


@pytest.mark.parametrize("dims", ["4096,4096", "4096x4096", "4096 4096", "(4096, 4096)", "0x1000,4_096"])
def test_numbers_may_be_written_in_many_ways(dims, answer):
    assert answer("check", "--type", "bf16", "--dims", dims, "--box", "64,64")[0] == 0


def test_strides_are_dense_where_none_are_given(answer):
    for options, strides in (
        (["--type", "bf16", "--dims", "64,8,4", "--box", "8,8,1"], [128, 1024]),
        (
            ["--type", "f16", "--dims", "16,4,2", "--box", "8,1,1", "--interleave", "32B", "--swizzle", "32B"],
            [512, 2048],
        ),
        (["--type", "e2m1", "--dims", "128,8", "--box", "32,8", "--arch", "sm_100"], [64]),
    ):
        status, out, _ = answer("check", *options, "--json")
        assert status == 0
        assert json.loads(out)["tensor_map"]["strides_bytes"] == strides


def test_every_option_reaches_the_map(answer):
    options = [
        *SOUND,
        "--strides",
        "16384",
        "--element-strides",
        "1,2",
        "--l2",
        "128B",
        "--fill",
        "nan",
        "--address",
        "0x1000",
    ]
    found = json.loads(answer("check", *options, "--json")[1])
    assert Value.from_dict(found["tensor_map"]) == MATRIX.with_fields(
        strides_bytes=(16384,), element_strides=(1, 2), l2_promotion="128B", oob_fill="nan", address=0x1000
    )


def test_im2col_and_im2col_wide(answer):
    im2col = [
        "--type",
        "f16",
        "--dims",
        "64,32,32,8",
        "--channels",
        "64",
        "--pixels",
        "64",
        "--lower",
        "-1,-1",
        "--upper",
        "-1,-1",
    ]
    found = json.loads(answer("check", *im2col, "--json")[1])
    assert found["tensor_map"]["kind"] == "im2col_map"
    wide = [
        "--type",
        "f16",
        "--dims",
        "64,32,32,8",
        "--channels",
        "64",
        "--pixels",
        "64",
        "--lower",
        "-1",
        "--upper",
        "-1",
        "--wide",
        "W",
    ]
    status, out, _ = answer("check", *wide, "--json")
    assert status == 0
    assert json.loads(out)["tensor_map"]["lower_width"] == -1
    assert answer("check", *wide, "--arch", "sm_90")[0] == 1


def test_missing_and_unknown_arguments_are_reasons(answer):
    for options in (["--type", "bf16"], ["--dims", "64,64"]):
        status, out, err = answer("check", *options)
        assert (status, out) == (2, "")
        assert "no box" in err
    status, _, err = answer("check", "-", stdin='{"dims": [64], "boxes": [64]}')
    assert status == 2
    assert "boxes" in err


def test_json_from_a_file_stdin_and_what_json_printed(answer, tmp_path):
    file = tmp_path / "map.json"
    file.write_text(json.dumps(MATRIX.to_dict()))
    for arguments, stdin in (
        (["check", str(file)], ""),
        (["check", "-"], file.read_text()),
        (["check"], file.read_text()),
        (["check", file.read_text()], ""),
    ):
        status, out, _ = answer(*arguments, "--json", stdin=stdin)
        assert status == 0
        assert Value.from_dict(json.loads(out)).tensor_map == MATRIX
    assert json.loads(answer("check", str(file), "--box", "32,8", "--json")[1])["tensor_map"]["box"] == [32, 8]
    report = answer("check", *SOUND, "--json")[1]
    assert answer("check", "-", stdin=report)[0] == 0  # a report holds its map


def test_a_pasted_dump(answer, tmp_path):
    log = tmp_path / "failed.log"
    log.write_text(CUTLASS)
    assert answer("check", str(log))[0] == 0
    status, out, _ = answer("check", stdin=CUTLASS.replace("boxDim         (64", "boxDim         (128"))
    assert status == 1
    assert "swizzle-span" in out
    assert answer("check", str(log), "--arch", "sm_80")[0] == 1


def test_a_dump_that_the_driver_refused_is_not_called_accepted(answer):
    """NVIDIA/cutlass#947, vllm-project/vllm#13961."""
    status, out, _ = answer("check", "-", stdin=REFUSED)
    assert status == 1
    first, _, title, *_ = out.splitlines()
    assert first.startswith("No rule is broken,")
    assert "map: the driver answered 1" in first
    assert title.startswith("Sound arguments,")
    assert answer("encode", "-", stdin=REFUSED)[:2] == answer("encode", "-", stdin=CUTLASS)[:2]


def test_fill_none_is_the_drivers_name_for_zeros(answer):
    """cuda.h: CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE."""
    for name in ("none", "NONE", "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE", "zero"):
        assert answer("check", *SOUND, "--fill", name) == answer("check", *SOUND)


@pytest.mark.parametrize("option", ["--type", "--swizzle", "--interleave", "--l2", "--fill", "--arch"])
def test_an_unknown_name_is_input_not_understood(answer, option):
    status, out, err = answer("check", *with_option(option, "strange"))
    assert (status, out) == (2, "")
    assert "unknown-name: " in err


def test_check_for_blackwell_names_the_size_flag(answer):
    """Known issues of drivers 595.71.05 (quoted in triton-lang/triton#10442) and 595.91.07."""
    small = ("--type", "bf16", "--dims", "64,64", "--box", "64,64", "--strides", "256")
    status, out, _ = answer("check", *small, "--arch", "sm_100")
    assert status == 0
    assert "descriptor-size-flag" in out
    assert "descriptor-size-flag" not in answer("check", *small)[1]
    assert "descriptor-size-flag" not in answer("check", *small[:-2], "--arch", "sm_100")[1]


BATCHES = ("check", "--fix", "--type", "f16", "--dims", "1023,1024,4", "--box", "64,128,1", "--swizzle", "128B")


@pytest.mark.parametrize("strides", [(), ("--strides", "2046,2095104")])
def test_fix_pads_the_batches_with_the_rows_and_says_so(answer, strides):
    """Rows of 2048 bytes make a matrix of 2097152: the next batch starts behind it."""
    status, out, _ = answer(*BATCHES, *strides)
    assert status == 0
    first, changed, *_ = out.splitlines()
    assert first.startswith("// Accepted with 1 change: strides_bytes: (2046, 2095104) → (2048, 2097152):")
    assert changed == "// changed strides_bytes: (2046, 2095104) → (2048, 2097152)"
    assert "strides_bytes[] = {2048, 2097152};" in out
    _, again, _ = answer("check", out.partition("# 1023")[0], "--dims", "1023,1024,4")
    assert "Accepted." in again
    assert "warning" not in again


def test_fix_keeps_a_broadcast(answer):
    _, out, _ = answer(*BATCHES, "--strides", "2046,0")
    assert out.splitlines()[1] == "// changed strides_bytes: (2046, 0) → (2048, 0)"


def test_fix_lists_every_change_and_a_sound_map_has_none(answer):
    _, out, _ = answer(
        "check", "--fix", "--type", "u16", "--dims", "64", "--box", "300", "--fill", "nan", "--address", "0x8"
    )
    assert out.splitlines()[1:4] == [
        "// changed box: (300,) → (256,)",
        "// changed oob_fill: nan → zero",
        "// changed address: 0x8 → 0x0",
    ]
    _, out, _ = answer("check", "--fix", "--type", "u8", "--dims", "64", "--box", "64")
    accepted, unchanged, *_ = out.splitlines()
    assert accepted.startswith("// Accepted: ")
    assert unchanged.startswith("// nothing changed")


def test_fix_as_json_is_the_map_and_what_changed(answer):
    _, out, _ = answer(*BATCHES, "--json")
    found = json.loads(out)
    assert found["strides_bytes"] == [2048, 2097152]
    assert found["extra"]["changes"] == ["strides_bytes: (2046, 2095104) → (2048, 2097152)"]


def test_127_bytes_are_no_map(answer):
    status, out, err = answer("decode", "0" * 254)
    assert (status, out) == (2, "")
    assert "254 digits" in err
    assert answer("decode", "0" * 256)[0] in (0, 1)
    assert "0x0" in answer("decode", "0")[1]


def test_several_dumps_are_all_answered(answer):
    both = CUTLASS + CUTLASS.replace("(64,64", "(64,300")
    status, out, _ = answer("check", "-", stdin=both)
    assert status == 1
    assert out.startswith("2 maps, 1 refused: line ")
    assert ": refused, 1 broken rule. tiled" in out
    found = json.loads(answer("check", "-", "--json", stdin=both)[1])
    assert [each["verdict"] for each in found["maps"]] == ["accepted", "refused"]


def test_encode_prints_what_decode_reads(answer, tmp_path):
    blob = MATRIX.encode()
    file = tmp_path / "map.bin"
    said, _, _ = answer("encode", *SOUND)[1].rpartition(f"{blob.hex()}\n")
    assert said.startswith("// 128 bytes")
    assert said.count("\n") == 1
    assert answer("encode", *SOUND) == (0, f"{said}{blob.hex()}\n", "")
    assert answer("encode", *SOUND, "--hex") == (0, blob.hex() + "\n", "")
    in_c = answer("encode", *SOUND, "--c")[1]
    assert in_c.startswith(f"{said}alignas(128) const unsigned long long")
    assert "tensor_map[16] = {\n    0x0000000000000000ull" in in_c
    status, out, err = answer("encode", *SOUND, "--out", str(file))
    assert (status, out, err) == (0, "", f"wrote {file}\n")
    assert file.read_bytes() == blob
    as_json = answer("encode", *SOUND, "--json")[1]
    assert json.loads(as_json)["extra"]["hex"] == blob.hex()
    for source, stdin in (
        ([blob.hex()], ""),
        ([str(file)], ""),
        (["-"], blob),
        (["-"], in_c),
        (["-"], blob.hex()),
        (["-"], f"{said}{blob.hex()}"),
        ([f"{word:#x}" for word in struct.unpack("<16Q", blob)], ""),
        ([json.dumps(MATRIX.to_dict())], ""),
    ):
        status, out, err = answer("decode", *source, "--json", stdin=stdin)
        assert (status, err) == (0, "")
        assert Value.from_dict(json.loads(out)).tensor_map == MATRIX


def test_encode_writes_its_bytes_to_stdout(capsysbinary, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["encode", *SOUND, "--out", "-"]) == 0
    assert capsysbinary.readouterr() == (MATRIX.encode(), b"")
    assert run(["encode", *SOUND, "--out", "-", "--json"]) == 2
    assert run(["encode", *SOUND, "--out", str(tmp_path)]) == 2
    assert run(["encode", *SOUND, "--out", "none/map.bin"]) == 2
    assert capsysbinary.readouterr().out == b""
    assert list(tmp_path.iterdir()) == []


def test_decode_says_in_words_what_the_map_is(answer):
    status, out, _ = answer("decode", MATRIX.encode().hex())
    assert status == 0
    assert " ".join(out.split()).startswith("The 128 bytes are a tiled")
    assert "map of 4096 x 4096 bfloat16, box 64 x 64, swizzle 128B" in " ".join(out.split())
    assert "0x0. Tiled tensor map: 4096 x 4096 bfloat16" in " ".join(out.split())
    assert "box 64 x 64, swizzle 128B A tensor of 4096 x 4096" in " ".join(out.split())
    assert "bfloat16 elements at 0x0." in " ".join(out.split())
    assert "64 x 64. In shared memory" in " ".join(out.split())
    assert "64 rows of 128 bytes: 8192 bytes" in " ".join(out.split())
    assert "swizzled 128B." in " ".join(out.split())


def test_bytes_that_are_no_map_are_answered_with_no(answer):
    status, out, _ = answer("decode", "ff" * 128)
    assert status == 1
    first, _, title, *_ = out.splitlines()
    assert first.startswith("The 128 bytes are not a tensor")
    assert "map: 455 unknown bits set" in first
    assert title == "Not a tensor map"
    assert "descriptor-bits" in out


@pytest.mark.parametrize("words", [["abc"], ["0x1"] * 15, ["0x" + "1" * 17], [""]])
def test_what_is_not_understood_is_refused(words, answer):
    status, out, err = answer("decode", *words)
    assert (status, out) == (2, "")
    assert err.startswith("error: pasted-descriptor: ")
    assert "; one integer of at most 64" in err
    assert "bits, or 16 words of 64 bits" in err  # `decode` reads both
    assert "one integer" not in answer("check", *words)[2]  # `check` a tensor map alone


def test_a_short_number_is_a_descriptor_word(answer):
    assert "wgmma" in answer("decode", "0x4000004000010040")[1]


def test_diff(answer, tmp_path):
    one, other = tmp_path / "one.json", tmp_path / "other.bin"
    one.write_text(json.dumps(MATRIX.to_dict()))
    other.write_bytes(MATRIX.encode())
    status, out, _ = answer("diff", str(one), str(other))
    assert (status, out.splitlines()[2]) == (0, "The same map")
    other.write_bytes(MATRIX.with_fields(box=(64, 32)).encode())
    assert answer("diff", str(one), str(other)) == (
        1,
        """\
The maps differ in 1 argument: box[1] is 64 and 32.

1 argument differs

Arguments
        one  other
box[1]  64   32

What follows
                   one   other
smem_bytes         8192  4096
transaction_bytes  8192  4096
box_bytes          8192  4096

Words of the descriptor
        one                 other
word 7  0x000000000000003f  0x000000000000001f
word 8  0x0000000000002000  0x0000000000001000
""",
        "",
    )
    assert json.loads(answer("diff", str(one), str(other), "--json")[1])["arguments"][0]["name"] == "box[1]"
    assert answer("diff", str(one), "ff" * 128)[0] == 1


@pytest.mark.parametrize("command", [["check", *SOUND], ["encode", *SOUND], ["decode", MATRIX.encode().hex()]])
def test_drawings_are_written_as_svg(command, answer, tmp_path):
    file = tmp_path / "drawing.svg"
    assert answer(*command, "--svg", str(file))[0] == 0
    assert ET.parse(file).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    "arguments",
    [
        ["encode"],
        ["check", "--dims", "a,b"],
        ["check", "--address", "1.5"],
        ["check", "/no/such/file"],
        ["diff", "abc"],
        ["decode"],
        ["encode", *SOUND, "--arch", "sm_100"],
        ["check", "ff" * 128, "--box", "64,64"],
    ],
)
def test_usage_errors(arguments, answer):
    status, out, err = answer(*arguments)
    assert (status, out) == (2, "")
    assert err
    assert "Traceback" not in err


def test_too_much_input_is_refused(answer):
    status, _, err = answer("check", "-", stdin="x" * (1 << 20) + "y")
    assert status == 2
    assert "input-size" in err


@given(text=st.text(max_size=80) | st.binary(max_size=200))
def test_any_input_is_answered_or_refused(text):
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    with pytest.MonkeyPatch.context() as patch:
        for command in ("check", "decode"):
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
            assert run([command, "-"]) in (0, 1, 2)


def test_rules_fields_and_the_replacing_instruction_are_explained(answer):
    for rule in list(ts.RULES)[::8]:
        status, out, _ = answer("explain", rule)
        assert status == 0
        assert out.startswith(f"{rule}: ")
    assert json.loads(answer("explain", "swizzle-span", "--json")[1])["kind"] == "rule"
    assert "word 7, bits 0-7" in answer("explain", "box[1]")[1]
    assert answer("explain", "field", "swizzle")[1].startswith("field swizzle: ")
    for asked in ("tensormap.replace", "replace", "cuTensorMapReplaceAddress"):
        out = answer("explain", asked)[1]
        assert "global_stride" in out
        assert "tensormap.cp_fenceproxy" in out
        assert "fence.proxy.tensormap::generic.acquire" in out
    status, out, _ = answer("explain", "box-rnage")
    assert status == 1
    assert "box-range" in out


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (["check", "nosuch.json"], "", "no such file: nosuch.json"),
        (["check", "bf16", "4096x1000"], "", "--type bf16 --dims 1000,4096 "),
        (["load", "4096x1000"], "", "--dims 1000,4096 "),
        (["encode", "e4m3"], "", "--type e4m3 "),
        (["check", "no such file.bin"], "", "no such file.bin"),
        (["decode", "nosuch.bin"], "", "no such file: nosuch.bin"),
        (["diff", MATRIX.encode().hex(), "nosuch"], "", "no such file: nosuch"),
        (["check", "."], "", ". is a directory"),
        (["check"], "", "stdin is empty"),
        (["check", "-"], " \n", "stdin is empty"),
        (["encode"], "", "stdin is empty"),
        (["diff", "-", "-"], "", "Only one of them can be -"),
        (["check", "-", "-"], "", "2 sources"),
        (["check", "[1,2"], "", "no JSON"),
        (["check", "-"], '{"dims": [64', "no JSON"),
        (["check", "-"], "{dims: 64}", "no JSON"),
        (["check", "-"], bytes(200), "200 bytes that are not text"),
        (["check", "--type", "bf16", "--dims", "64,,64", "--box", "8,8"], "", "a comma without a number"),
        (["encode", "-"], CUTLASS + CUTLASS.replace("(64,64", "(64,32"), "the arguments of 2 maps"),
    ],
)
def test_what_is_no_map_is_told_what_it_is(arguments, stdin, said, answer):
    status, out, err = answer(*arguments, stdin=stdin)
    assert (status, out) == (2, "")
    assert said in err
    assert "0 numbers" not in err


def test_a_pipe_is_as_good_as_a_file(tmp_path, answer):
    for command in (["check"], ["decode"], ["diff", MATRIX.encode().hex()]):
        pipe = tmp_path / f"pipe-{command[0]}"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_bytes, args=(MATRIX.encode(),), daemon=True)
        writer.start()
        assert answer(*command, str(pipe))[0] == 0
        writer.join()


def test_encode_takes_what_check_takes(tmp_path, answer):
    file = tmp_path / "map.json"
    file.write_text(json.dumps(MATRIX.to_dict()))
    for source, stdin in (([str(file)], ""), (["-"], MATRIX.encode()), ([], MATRIX.encode()), ([str(file)], "")):
        assert answer("encode", "--hex", *source, stdin=stdin)[1] == MATRIX.encode().hex() + "\n"
    smaller = MATRIX.with_fields(box=(64, 8))
    assert answer("encode", "--hex", str(file), "--box", "64,8")[1] == smaller.encode().hex() + "\n"


@pytest.mark.parametrize("command", [["check"], ["encode"], ["load"], ["mma", "check", "0x4000004000010040"]])
def test_from_json_names_the_file_of_a_map(command, tmp_path, answer):
    file = tmp_path / "7f"  # a name that could be hexadecimal digits of a map
    file.write_text(json.dumps(MATRIX.to_dict()))
    wanted = answer(*command, *SOUND)
    assert wanted[1]
    assert answer(*command, "--from-json", str(file)) == wanted
    assert answer(*command, "--from-json", "-", stdin=file.read_text()) == wanted
    assert answer(*command, "--from-json", str(file), "--box", "32,64") == answer(
        *command, *with_option("--box", "32,64")
    )
    for options, said in (
        ([str(file), "--from-json", str(file)], "SOURCE and --from-json both give"),
        (["--from-json", str(tmp_path / "nosuch.json")], "nosuch.json' does not exist"),
        (["--from-json", str(tmp_path)], "is a directory"),
        (["--from-json", "-"], "stdin is empty"),
    ):
        status, out, err = answer(*command, *options)
        assert (status, out) == (2, "")
        assert said in err
    for no_json in (MATRIX.encode(), MATRIX.encode().hex(), CUTLASS, "[1, 2]", "{"):
        status, out, err = answer(*command, "--from-json", "-", stdin=no_json)
        assert (status, out) == (2, "")
        assert "argument-json" in err


def test_names_may_stand_for_the_numbers_of_a_dump(answer):
    named = CUTLASS.replace("format         9", "format         CU_TENSOR_MAP_DATA_TYPE_BFLOAT16")
    named = named.replace("swizzle        3", "swizzle        CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B")
    named = named.replace(
        "l2Promotion    2", "l2Promotion    <CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B: 2>"
    )
    assert named.count("CU_TENSOR_MAP") == 3
    assert answer("check", "-", stdin=named) == answer("check", "-", stdin=CUTLASS)
    status, _, err = answer("check", "-", stdin=named.replace("SWIZZLE_128B", "SWIZZLE_129B"))
    assert status == 2
    assert "CU_TENSOR_MAP_SWIZZLE_129B" in err


def test_conv_prints_the_encode_call(answer):
    status, out, _ = answer("conv", "8x56x56x64", "128x3x3", "bf16", "--pad", "1")
    assert status == 0
    assert "cuTensorMapEncodeIm2col(" in out
    found = json.loads(answer("conv", "8x56x56x64", "128x3x3", "bf16", "--pad", "1", "--json")[1])
    assert found["extra"]["encode"] in out
    assert answer("check", found["extra"]["encode"], "-q")[1].startswith(
        "Accepted: im2col map of 64 x 56 x 56 x 8 bfloat16"
    )


def test_what_is_wrong_with_every_line_of_a_log_is_said_once(tmp_path, capsys):
    log = tmp_path / "maps.jsonl"
    lines = [
        f'{{"type": "bf16", "dims": [64, {rows}], "strides_bytes": [128], "box": [64, 8]}}' for rows in range(8, 68)
    ]
    log.write_text("\n".join(lines))
    assert run(["check", str(log)]) == 2
    reasons = capsys.readouterr().err.splitlines()
    assert len(reasons) == 2
    assert all(reason.endswith("(60 times)") for reason in reasons)
