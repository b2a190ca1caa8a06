import json

import pytest

from tilescope.cli import run
from tilescope.notation import NOTATION, parse_layout
from tilescope.value import EXTRA, Value

ATOM = "Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)"


def test_prints_the_answer_first_then_what_was_compared(capsys, wording):
    assert run(["convert", ATOM, "--to", "triton"]) == 0
    printed = capsys.readouterr().out
    text = "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>"
    first, *_, last = printed.splitlines()
    assert f"{text} (all 512 addresses equal" in first
    assert "not in the text: shape = (8, 64))." in first
    wording("prints the answer first then what was compared", first)
    assert last == text  # to copy
    assert "512 addresses of both texts" in printed
    assert "As written" not in printed


SWIZZLED = "#shared1 = #ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>"
PADDED = "#ttg.padded_shared<[128:+8] {order = [1, 0], shape = [64, 128]}>"


def test_a_line_of_ttgir_without_a_buffer_is_converted_with_what_had_to_be_assumed(capsys):
    assert run(["convert", SWIZZLED]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "GMMA::Layout_K_SW128_Atom<uint16_t>" in printed
    assert "assumed: elements of 16 bits" in printed
    assert "tile of 8 x 64." in printed
    assert "Say others with --bits" in printed
    assert "--shape." in printed
    assert run(["convert", SWIZZLED, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[EXTRA]["assumed"] == ["element_bits", "shape"]
    assert run(["convert", SWIZZLED, "--bits", "16", "--shape", "64x64"]) == 0
    assert "assumed" not in capsys.readouterr().out


def test_padded_shared_comes_back_as_triton_with_the_width_that_was_assumed(capsys):
    assert run(["convert", PADDED, "--to", "triton"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == PADDED
    assert "assumed: elements of 16 bits." in printed
    assert "no-equivalent" not in printed


def test_what_was_assumed_is_said_of_a_layout_without_a_text_too(capsys, wording):
    assert run(["convert", PADDED, "--to", "driver"]) == 1
    no_text, _, assumed = capsys.readouterr().out.splitlines()
    assert no_text.startswith("driver has no text for")
    assert "elements of 16 bits." in assumed
    wording("what was assumed is said of a layout without a text too", assumed)


def test_draws_both_layouts_on_request(capsys, tmp_path):
    assert run(["convert", ATOM, "--to", "mosaic", "--draw"]) == 0
    printed = capsys.readouterr().out
    assert "As written" in printed
    assert "Read again from mosaic" in printed
    assert run(["convert", ATOM, "--to", "mosaic", "--svg", str(tmp_path / "both.svg")]) == 0
    assert (tmp_path / "both.svg").read_text("utf-8").count("Read again from mosaic") == 1


def test_json_is_the_conversion(capsys):
    arguments = ["--bits", "16", "--shape", "64x128", "--major", "MN", "--address", "0x400", "--json"]
    assert run(["convert", "CU_TENSOR_MAP_SWIZZLE_128B", "--to", "cute", *arguments]) == 0
    found = Value.from_dict(json.loads(capsys.readouterr().out))
    assert found.result == "Sw<3,4,3>_smem_ptr[16b](0x400) o (_64,_128):(_1,_64)"
    assert found.compared == 64 * 128


@pytest.mark.parametrize(("unit", "answer"), [("bytes", "Sw<3,4,3> o smem_ptr"), ("elements", "Sw<3,5,3> o smem_ptr")])
def test_the_unit_of_the_python_form_can_be_said(unit, answer, capsys):
    assert run(["convert", "S<3,4,3> o 0 o (8,64):(64,1)", "--bits", "16", "--to", "cute", "--unit", unit]) == 0
    assert capsys.readouterr().out.startswith(f"In cute: {answer}")


def test_no_equivalent_is_the_answer_no(capsys, wording):
    arguments = ["convert", "Layout((16, 128), 16, padding_bytes=16)", "--to", "mosaic"]
    assert run(arguments) == 1
    printed = capsys.readouterr()
    assert "16 bytes of padding a row" in printed.out
    assert "Use padding_bytes = 0." in printed.out
    wording("no equivalent is the answer no", printed.out)
    assert printed.err == ""
    assert run([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["violations"][0]["rule"] == "no-equivalent"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["(8,64)", "--to", "cute"], "a layout is both"),
        (["(8,64):(64,1)", "--to", "cute"], "--bits"),
        ([ATOM, "--to", "cutlass"], "cutlass"),
        (["128B", "--bits", "16", "--shape", "8", "--to", "cute"], "write 128x64"),
        (["128B", "--bits", "17", "--to", "cute"], "element_bits = 17"),
    ],
)
def test_what_is_not_understood_ends_with_status_2(arguments, reason, capsys):
    assert run(["convert", *arguments]) == 2
    printed = capsys.readouterr()
    assert reason in printed.err
    assert printed.out == ""


def test_without_a_notation_all_are_listed_with_their_texts_or_reasons(capsys):
    text = "Layout((16, 128), 16, padding_bytes=16)"
    assert run(["convert", text, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert Value.from_dict(printed) == parse_layout(text)
    said = printed[EXTRA]["notations"]
    assert set(said) == set(NOTATION)
    for notation in NOTATION:
        status = run(["convert", text, "--to", notation])
        lines = capsys.readouterr().out.splitlines()
        assert (status == 1) == said[notation].startswith("no-equivalent")
        assert (lines[-1] == said[notation]) == (status == 0)
        assert lines[0].startswith(f"In {notation}: " if status == 0 else f"{notation} has no text")
    assert run(["convert", text]) == 0
    listed = capsys.readouterr().out
    assert [notation for notation in NOTATION if f"\n{notation} " not in listed] == []


@pytest.mark.parametrize("notation", ["triton", "gluon"])
def test_what_the_text_says_is_not_called_unsaid(notation, capsys):
    assert run(["convert", ATOM, "--to", notation]) == 0
    assert "unsaid there  shape = (8, 64)\n" in capsys.readouterr().out


@pytest.mark.parametrize(("shape", "said"), [("99999999999x64", "is too large"), ("9999999x64", "1 to 1048576")])
def test_a_shape_that_is_too_large_is_called_so(shape, said, capsys):
    assert run(["convert", "128B", "--bits", "16", "--to", "cute", "--shape", shape]) == 2
    assert said in capsys.readouterr().err
