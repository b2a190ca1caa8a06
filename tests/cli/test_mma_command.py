"""`tilescope mma`: what it prints, writes and refuses."""

import json
import xml.etree.ElementTree as ET

import pytest

import tilescope as ts
from tilescope import view
from tilescope.cli import run
from tilescope.value import Value


def drawing(capsys):
    """What was printed below the first line."""
    return capsys.readouterr().out.split("\n\n", 1)[1]


def test_draws_an_operand(capsys):
    assert run(["mma", "layout", "128x64", "bf16", "--major", "MN", "--swizzle", "64B", "--atom-order", "row"]) == 0
    tile = ts.canonical_layout("MN", "64B", "bf16").tile((128, 64), atom_order="row")
    assert drawing(capsys) == view.text(tile) + "\n"


def test_marks_an_element(capsys):
    assert run(["mma", "layout", "64x64", "bf16", "--element", "9,16", "--address", "0x400", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["extra"] == {"element": [9, 16], "address": hex(0x400 + 1200)}
    assert Value.from_dict(found) == ts.canonical_layout("K", "128B", "bf16").tile((64, 64), start=0x400)


def test_draws_a_fragment(capsys):
    assert run(["mma", "fragment", "mma.m16n8k16", "--operand", "A", "--type", "bf16", "--lane", "22"]) == 0
    expected = view.text(ts.fragment("mma.m16n8k16", "A", "bf16"), lane=22)
    assert drawing(capsys) == expected + "\n"


def test_says_what_a_lane_holds_and_who_holds_an_element(capsys):
    arguments = ["mma", "fragment", "mma.m16n8k8", "--operand", "A", "--type", "bf16"]
    assert run([*arguments, "--lane", "22", "--element", "5,5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["extra"]
    assert found["holds"] == [[5, 4], [5, 5], [13, 4], [13, 5]]
    assert found["holder"] == {"thread": 22, "value": 1}
    assert found["inverse"] == "((8,2),(2,4)):((4,64),(32,1))"


def test_says_of_which_matrix_a_lane_holds_an_element(capsys):
    assert run(["mma", "fragment", "ldmatrix.x2", "--lane", "13", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["extra"]
    assert found["holds"] == [[3, 2], [3, 3], [3, 2], [3, 3]]
    assert found["matrices"] == [0, 0, 1, 1]


def test_ldmatrix_needs_neither_operand_nor_type(capsys):
    assert run(["mma", "fragment", "ldmatrix.x4.trans"]) == 0
    assert drawing(capsys).startswith("ldmatrix.x4.trans: 4 x 8 x 8 uint16 (row x column)\n")


def test_lists_the_descriptors_of_a_loop(capsys):
    arguments = ["mma", "descriptors", "64x32", "bf16", "--swizzle", "32B", "--atom-order", "row"]
    assert run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["extra"]
    loop = ts.wgmma_descriptors((64, 32), "bf16", swizzle="32B", atom_order="row")
    assert found["descriptors"] == [[hex(each.encode()) for each in steps] for steps in loop]
    assert found["explanation"] == list(loop.explanation)
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert "stride       512 bytes" in shown
    assert "imm-trans-a  0 (tnspA: Major::K)" in shown


def test_warns_of_descriptors_for_an_address_that_tma_cannot_write(capsys):
    arguments = ["mma", "descriptors", "64x64", "bf16", "--smem-address", "0x8010"]
    assert run(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "warning smem_address = 0x8010 is 16 bytes past 0x8000" in shown
    assert "128B pattern starts in mid-line" in shown
    assert "chunk 1" in shown
    assert run([*arguments, "--json"]) == 0
    assert [each["rule"] for each in json.loads(capsys.readouterr().out)["extra"]["findings"]] == ["smem-alignment"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["layout", "128x64", "bf16"],
        ["fragment", "wgmma.m64n256k16", "--operand", "D", "--type", "f32"],
        ["descriptors", "64x64", "bf16"],
    ],
)
def test_writes_svg(arguments, tmp_path, capsys):
    path = tmp_path / "drawing.svg"
    assert run(["mma", *arguments, "--svg", str(path)]) == 0
    assert ET.fromstring(path.read_text("utf-8")).tag.endswith("svg")
    assert "wrote" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["layout", "128", "bf16"], "write 128x64"),
        (["layout", "128x64x2", "bf16"], "3 extents; write 2"),
        (["layout", "64x64", "bf61"], "data type"),
        (["layout", "64x64", "bf16", "--element", "64,0"], "outside the tile"),
        (["layout", "64x64", "bf16", "--element", "64"], "such as 5,8"),
        (["layout", "64x64", "bf16", "--element", "1,2,3"], "such as 5,8"),
        (["layout", "64x64", "bf16", "--atom-order", "up"], "known: column, row"),
        (["fragment", "mma.m16n8k17", "--operand", "A", "--type", "bf16"], "mma.m16n8k16"),
        (["fragment", "mma.m16n8k16", "--type", "bf16"], "known: A, B, C, D"),
        (["fragment", "mma.m16n8k16", "--operand", "A", "--type", "bf16", "--lane", "32"], "; 0 to 31"),
        (["fragment", "mma.m16n8k16", "--operand", "A", "--type", "bf16", "--lane", "-1"], "; 0 to 31"),
        (["descriptors", "64x64", "bf16", "--operand", "C"], "operand C; known: A, B"),
        (["nonsense"], "nonsense"),
    ],
)
def test_refuses_with_the_reason_on_stderr(arguments, said, capsys):
    assert run(["mma", *arguments]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


MAP = ["--type", "bf16", "--dims", "128,64", "--box", "64,64", "--swizzle", "128B"]
WIDE_MAP = ["--type", "bf16", "--dims", "128,64", "--box", "128,64", "--swizzle", "128B"]
WORD = "0x4000004000010040"


def test_lists_the_descriptors_for_tcgen05(capsys):
    arguments = ["mma", "descriptors", "128x256", "e2m1", "--for", "tcgen05", "--address", "0x400", "--json"]
    assert run(arguments) == 0
    loop = ts.tcgen05_descriptors((128, 256), "e2m1", swizzle="128B", smem_address=0x400)
    assert json.loads(capsys.readouterr().out)["extra"]["descriptors"] == [[hex(each.encode()) for each in loop[0]]]


def test_says_that_a_descriptor_reads_what_was_written(capsys, tmp_path):
    picture = tmp_path / "agreement.svg"
    arguments = ["mma", "check", WORD, *MAP, "--smem-address", "0x400"]
    assert run([*arguments, "--svg", str(picture)]) == 0
    assert drawing(capsys).startswith("Copies and descriptor agree\n")
    ET.parse(picture)
    assert run([*arguments, "--json"]) == 0
    found = Value.from_dict(json.loads(capsys.readouterr().out))
    assert found.agrees
    assert found.shape == (64, 16)


def test_says_why_a_descriptor_reads_something_else(capsys):
    arguments = ["mma", "check", WORD, *MAP, "--smem-address", "0x400", "--copy", "0,0@0", "--copy", "64,0@0x2000"]
    assert run([*arguments, "--origin", "0,64", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["cause"], found["difference"]["written_address"]) == ("start-address", "0x2400")
    assert found["correction"]["start_address"] == "0x2400"
    assert run([*arguments, "--major", "MN", "--tile-major", "K"]) == 1
    assert "majorness" in capsys.readouterr().out.splitlines()[0]


def test_takes_tcgen05_words_too(capsys):
    blackwell = hex(ts.Tcgen05Descriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B").encode())
    assert run(["mma", "check", blackwell, *MAP, "--read-as", "f16", "--rows", "64", "--k", "16"]) == 0
    assert "documented" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([WORD, "nosuch.json"], "no such file: nosuch.json"),
        ([str(1 << 64), *MAP], "64 bits"),
        ([WORD, *MAP, "--copy", "0,0@here"], "here"),
        ([WORD, *MAP, "--origin", "5,6,7"], "write two"),
    ],
)
def test_check_refuses_with_the_reason_on_stderr(arguments, said, capsys):
    assert run(["mma", "check", *arguments]) == 2
    shown = capsys.readouterr()
    assert said.casefold() in shown.err.casefold()
    assert shown.out == ""


def test_a_copy_that_faults_is_answered_with_no(capsys):
    assert run(["mma", "check", WORD, *MAP, "--smem-address", "64"]) == 1
    assert "The chip answers with error 716" in capsys.readouterr().out


def test_alone_it_shows_its_help(capsys):
    assert run(["mma"]) == 0
    assert capsys.readouterr().out.startswith("Usage: tilescope mma")


def test_an_unknown_operand_is_told_in_a_sentence(capsys, wording):
    assert run(["mma", "fragment", "mma.m16n8k16", "--operand", "Z", "--type", "bf16"]) == 2
    wording("an unknown operand is told in a sentence", capsys.readouterr().err)


def test_draws_tensor_memory(capsys):
    assert run(["mma", "tmem", "--m", "128", "--n", "128", "--cta-group", "2", "--element", "70,100"]) == 0
    expected = view.text(ts.tmem_layout((128, 128), cta_group=2), element=(70, 100))
    assert drawing(capsys) == expected + "\n"
    assert run(["mma", "tmem", "--m", "64", "--k", "64", "--ws", "--type", "e4m3", "--address", "0x40"]) == 0
    placed = ts.tmem_layout((64, 64), operand="A", data_type="e4m3", ws=True, address=0x40)
    assert drawing(capsys) == view.text(placed) + "\n"
    assert run(["mma", "tmem", "--m", "128", "--k", "32", "--metadata", "--element", "21,19", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["extra"]["place"] == {"cta": 0, "lanes": [29], "column": 0, "bit": 3}


def test_draws_scale_factors(capsys):
    assert run(["mma", "scales", "128x256", "nvfp4", "--element", "37,80"]) == 0
    assert drawing(capsys) == view.text(ts.scale_layout(128, 256, "nvfp4"), element=(37, 80)) + "\n"
    assert run(["mma", "scales", "128x256", "nvfp4", "--element", "37,80", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["extra"] == {"element": [37, 80], "block": 5, "offset": 597}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tmem", "--m", "128", "--n", "64", "--element", "128,0"], "argument-range"),
        (["tmem", "--m", "128"], "--n"),
        (["tmem", "--m", "128", "--n", "64", "--k", "64"], "--n"),
        (["tmem", "--m", "128", "--n", "64", "--metadata"], "--k"),
        (["scales", "128x256", "nvfp5"], "nvfp4"),
        (["scales", "128x256", "nvfp4", "--element", "128,0"], "argument-range"),
        (["scales", "128", "nvfp4"], "128x64"),
    ],
)
def test_wrong_tensor_memory_is_refused_with_its_rule(capsys, arguments, said):
    assert run(["mma", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_builds_an_instruction_descriptor_that_decode_reads_back(capsys):
    assert run(["mma", "instruction", "f16", "128x256", "--a-type", "f16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["extra"]["word"] == "0x8400010"  # as CuTe's make_instr_desc has it
    assert Value.from_dict(found) == ts.InstructionDescriptor("f16", 128, 256, a_type="f16")
    assert run(["mma", "instruction", "mxf4nvf4", "256x256", "--scale-type", "ue4m3", "--negate-b", "--k", "96"]) == 0
    said = capsys.readouterr().out
    word = said.split()[said.split().index("mxf4nvf4") + 1]
    assert run(["decode", word]) == 0
    read = " ".join(capsys.readouterr().out.split())
    assert "m256 n256 k96" in read
    assert "B is negated" in read
    assert run(["mma", "instruction", "f16", "128x250", "--a-type", "bf16"]) == 1
    assert "Use n = 248." in capsys.readouterr().out


def test_the_transpose_bits_are_those_of_the_instruction():
    for operand, majors in (("A", {"a_major": "MN"}), ("B", {"b_major": "MN"})):
        plain = ts.InstructionDescriptor("f16", 128, 128, a_type="bf16").encode()
        transposed = ts.InstructionDescriptor("f16", 128, 128, a_type="bf16", **majors).encode()
        bit = (plain ^ transposed).bit_length() - 1
        loop = ts.tcgen05_descriptors((128, 64), "bf16", major="MN", operand=operand)
        assert f"transpose {operand} = 1 (bit {bit}" in loop.transpose
        assert loop.transpose.startswith(f"transpose {operand} = 1 (bit {bit} ")


def test_the_holder_of_one_element_of_many_is_listed_with_the_values_around_it(capsys):
    arguments = ["mma", "fragment", "wgmma.m64n256k16", "--operand", "D", "--type", "f32"]
    assert run([*arguments, "--element", "60,200"]) == 0
    shown = capsys.readouterr().out
    assert "  102       102  0-31  60  200\n" in shown
    assert "Values 96 to 103 of 128." in shown
    assert "60,200*" in shown
    assert run([*arguments, "--lane", "112"]) == 0
    assert "  127       127  0-31  60  249\n" in capsys.readouterr().out  # of a thread everything


def test_ld_names_warp_lane_and_register(capsys):
    arguments = ["mma", "tmem", "--m", "128", "--n", "64", "--ld", "16x256b.x4"]
    assert run([*arguments, "--element", "37,40"]) == 0
    shown = capsys.readouterr().out
    assert "By tcgen05.ld.16x256b.x4\nwarp      1 (mod 4)\naddress   0x00200020\n" in shown
    assert "lane      20 of the warp" in shown
    assert "thread 52 of a warpgroup\nregister  4" in shown
    assert run([*arguments, "--element", "37,40", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["extra"]["loaded"] == {
        "instruction": "tcgen05.ld.16x256b.x4",
        "cta": 0,
        "warp": 1,
        "lane": 20,
        "register": 4,
        "bit": 0,
        "address": "0x200020",
    }
    assert run(arguments) == 2
    assert "give it with --element ROW,COLUMN" in capsys.readouterr().err


def test_the_scale_factors_of_a_pair_take_fewer_columns(capsys):
    parts = ["mma", "tmem", "--budget", "D:128x256,SFB:256x1024:nvfp4", "--json"]
    assert run([*parts, "--cta-group", "2"]) == 0
    assert [part["columns"] for part in json.loads(capsys.readouterr().out)["parts"]] == [128, 64]
    assert run(parts) == 0
    assert [part["columns"] for part in json.loads(capsys.readouterr().out)["parts"]] == [256, 128]


def test_a_budget_adds_up_columns_and_shares_lanes(capsys):
    assert run(["mma", "tmem", "--budget", "D:64x128*2,D:64x64,A:64x64,SFA:128x256:nvfp4,32"]) == 0
    shown = capsys.readouterr().out
    assert "D 1      D            128  0-127, from lane 16\n" in shown
    assert "D (2)    D             64  128-191\n" in shown
    assert "columns  columns       32  " in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tmem"], "Give --m M"),
        (["tmem", "--budget", "128by64"], "no matrix of tensor"),
        (["tmem", "--budget", "SFA:128x256"], "write SFA:128x256:nvfp4"),
        (["tmem", "--budget", "D:128x256", "--m", "128"], "--budget lists whole matrices"),
        (["tmem", "--budget", "D:128x256", "--address", "64"], "--budget lists whole matrices"),
        (["tmem", "--budget", "D:128x256*0"], "argument-type"),
        (["scales", "128x256", "nvfp4", "--element", "0,0", "--block", "0,0"], "--element ROW,K"),
        (["scales", "128x256", "nvfp4", "--block", "0,16"], "argument-range"),
    ],
)
def test_a_budget_or_block_that_says_nothing_is_refused(arguments, said, capsys):
    assert run(["mma", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["layout", "60x64", "bf16"], "Use 64 x 64"),
        (["layout", "64x64", "bf16", "--swizzle", "96B"], "tensor cores read K-major operands"),
        (["fragment", "mma.m16n8k16", "--operand", "A"], "no type"),
        (["descriptors", "63x64", "bf16"], "multiples of 64"),
        (["descriptors", "64x64", "f32"], "Use tfloat32"),
        (["check", "0x4000c04000010040", *MAP], "a wgmma descriptor keeps bits"),
        (["check", WORD, *MAP, "--rows", "300"], "1 to 256"),
        (["check", WORD, *WIDE_MAP], "swizzle-span"),
        (["tmem", "--m", "96", "--n", "64"], "tmem-datapath"),
        (["tmem", "--m", "128", "--n", "60"], "tmem-n"),
        (["tmem", "--m", "128", "--n", "64", "--address", "0x100000"], "tmem-lane"),
        (["fragment", "tcgen05.ld.16x256b.x64"], "tmem-count"),
        (["tmem", "--budget", "D:96x256"], "tmem-datapath"),
    ],
)
def test_what_tensor_cores_do_not_have_is_answered_with_no(arguments, said, capsys):
    assert run(["mma", *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("Refused: ")
    assert said in shown.out
    assert shown.err == ""


def test_the_block_of_a_scale_is_counted_as_python_counts_it(capsys):
    assert run(["mma", "scales", "128x256", "nvfp4", "--block", "37,5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["extra"]
    assert found == {"row": 37, "block": 5, "offset": ts.scale_layout(128, 256, "nvfp4").offset(37, 5)}
    assert run(["mma", "scales", "128x256", "nvfp4", "--element", "37,80", "--json"]) == 0  # k 80 lies in block 5
    assert json.loads(capsys.readouterr().out)["extra"]["offset"] == found["offset"]
