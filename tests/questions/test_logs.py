"""Logs: a summary first, what is refused in full, everything else in one line; the same in JSON."""

import io
import json
import sys

import pytest

from tilescope.cli import run
from tilescope.tensor_map import MapLog
from tilescope.tensor_map.text.pasted_source import MapSource
from tilescope.value import Value

MAP = {"data_type": "bf16", "dims": [4096, 4096], "strides_bytes": [8192], "box": [64, 64], "swizzle": "128B"}
TRITON = """Failed to create tensor map descriptor: invalid argument
elemType=9 rank=2 global_address=0x7f0000 elemSize=2
swizzle=3 padding=0
shape=[4096, 4096]
strides=[8192]
blockSize=[128, 64] elementStrides=[1, 1] fill=0
"""


def line(**changes):
    return json.dumps(MAP | changes)


@pytest.fixture
def ask(capsys, monkeypatch):
    """Run a command with a log on stdin: its status, stdout and stderr."""

    def call(*words, log):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log.encode()), encoding="utf-8"))
        status = run(list(words))
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return call


SIXTY = "\n".join(line(box=[128, 64]) if number == 38 else line(dims=[4096, 64 * number]) for number in range(1, 61))


def test_of_sixty_maps_the_refused_one_comes_first(ask):
    status, out, _ = ask("check", "-", log=SIXTY)
    assert status == 1
    summary, _, rest = out.partition("\n")
    assert summary == "60 maps, 1 refused: line 38."
    assert rest.index("swizzle-span") < rest.index("Accepted")


def test_accepted_maps_have_one_line_each(ask):
    _, out, _ = ask("check", "-", log=SIXTY)
    rows = [row.split(maxsplit=1) for row in out.partition("Accepted\n")[2].splitlines()[1:]]
    assert [number for number, _ in rows] == [str(number) for number in range(1, 61) if number != 38]
    assert rows[0][1] == "tiled 4096 x 64 bf16, box 64 x 64, swizzle 128B"


def test_quiet_is_the_summary_and_what_to_do_about_the_first_refusal(ask):
    _, out, _ = ask("check", "-", "-q", log=SIXTY)
    summary, advice = out.splitlines()
    assert summary == "60 maps, 1 refused: line 38."
    assert advice.startswith("Line 38: box[0] = 128 elements x 2 bytes = 256 bytes;")
    assert "swizzle 128B takes a row" in advice
    assert advice.endswith("per span.")
    assert "Use box[0] <= 64 and one box" in advice


def test_all_accepted_says_so(ask):
    status, out, _ = ask("check", "-", "-q", log=f"{line()}\n{line(box=[64, 8])}\n")
    assert (status, out) == (0, "2 maps, all accepted.\n")


def test_equal_maps_are_counted_whatever_their_address(ask):
    log = "\n".join(line(address=hex(0x1000 * number)) for number in range(1, 15)) + "\n" + line(box=[64, 8])
    status, out, _ = ask("check", "-", log=log)
    assert status == 0
    assert out.startswith("15 maps, 2 of them different,")
    assert "x 14  1, 2, 3, …  tiled 4096 x 4096 bf16, box 64 x 64, swizzle 128B\n" in out
    found = json.loads(ask("check", "-", "--json", log=log)[1])
    assert found["maps"][0]["lines"] == list(range(1, 15))
    assert found["maps"][0]["addresses"][:2] == ["0x1000", "0x2000"]


def test_remarks_that_name_an_address_keep_no_equal_maps_apart(ask):
    _, out, _ = ask("check", "-", log="\n".join(line(address=hex(0x1000 + 16 * number)) for number in (1, 2, 3)))
    assert out.startswith("3 maps, all equal, all accepted.\n")
    assert "lines 1, 2 and 3: address = 0x1010 under swizzle 128B" in " ".join(out.split())


def test_maps_that_differ_in_the_verdict_on_their_address_are_told_apart(ask):
    status, out, _ = ask("check", "-", "-q", log=f"{line(address='0x1000')}\n{line(address='0x1008')}")
    assert status == 1
    assert out.startswith("2 maps, 1 refused: line 2.\nLine 2: address = 0x1008")


def test_a_map_spelled_otherwise_is_the_same_map():
    log = MapLog.of(MapSource.read(f"{line()}\n{line(data_type='bfloat16', interleave='none')}".encode()))
    assert [one.lines for one in log.maps] == [(1, 2)]


def test_json_has_an_object_a_map_and_how_many_are_refused(ask):
    status, out, _ = ask("check", "-", "--json", log=SIXTY)
    found = json.loads(out)
    assert status == 1
    assert (found["kind"], found["total"], found["refused"], found["refused_lines"]) == ("map_log", 60, 1, [38])
    assert list(found).index("refused") < list(found).index("maps")
    refused = found["maps"][37]
    assert (refused["line"], refused["verdict"], refused["arguments"]["box"]) == (38, "refused", [128, 64])
    assert [broken["rule"] for broken in refused["violations"]] == ["swizzle-span"]
    assert {one["verdict"] for one in found["maps"] if one["line"] != 38} == {"accepted"}
    assert Value.from_dict(found).refused == 1


def test_a_line_is_where_a_dump_begins_in_its_log(ask):
    log = "INFO loading\n" * 4 + TRITON + "INFO training\n" + line(box=[64, 8]) + "\nINFO done\n"
    found = json.loads(ask("check", "-", "--json", log=log)[1])
    assert [(one["line"], one["verdict"]) for one in found["maps"]] == [(5, "refused"), (12, "accepted")]


def test_calls_in_a_source_are_known_by_their_lines():
    call = (
        "/* two\n lines */ cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, 0, d, s, %s, e,\n"
        "  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,\n"
        "  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);\n"
    )
    arrays = "cuuint64_t d[2] = {64, 64}, s[1] = {128};\ncuuint32_t a[2] = {64, 8}, b[2] = {128, 8}, e[2] = {1, 1};\n"
    found = MapSource.read((arrays + call % "a" + call % "b").encode())
    assert [asked.lines for asked in found.asked] == [(4,), (8,)]


def test_one_map_that_is_not_understood_leaves_the_others_their_verdicts(ask):
    log = f"{line()}\n{line(swizzle='512B')}\n{line(box=[300, 64])}"
    status, out, _ = ask("check", "-", log=log)
    assert status == 1
    assert out.startswith("3 maps, 1 refused: line 3, 1 not understood:")
    assert "line 2." in out
    assert "Line 2: not understood. tiled" in out
    found = json.loads(ask("check", "-", "--json", log=log)[1])
    assert [one["verdict"] for one in found["maps"]] == ["accepted", "not understood", "refused"]


def test_a_log_that_is_not_understood_at_all_is_refused_as_one_map_is(ask):
    status, out, err = ask("check", "-", log=f"{line(swizzle='512B')}\n{line(swizzle='1024B')}")
    assert (status, out) == (2, "")
    assert "swizzle 512B" in err
    assert "swizzle 1024B" in err


def test_records_of_a_logger_are_no_maps(ask):
    log = f'{{"level": "info", "message": "start"}}\n{line()}\n{{"level": "info"}}\n{line(box=[64, 8])}\n'
    found = json.loads(ask("check", "-", "--json", log=log)[1])
    assert [one["line"] for one in found["maps"]] == [2, 4]


def test_a_broken_line_of_json_does_not_hide_the_others(ask):
    found = json.loads(ask("check", "-", "--json", log=f"{line()}\n{line()[:40]}\n{line(box=[64, 8])}\n")[1])
    assert [one["line"] for one in found["maps"]] == [1, 3]


def test_calls_without_their_arguments_are_mentioned(ask):
    log = (
        f'{{"tensor_map": {line()}}}\n{{"tensor_map": null, "arguments": {{}}}}\n{{"tensor_map": {line(box=[64, 8])}}}'
    )
    status, out, _ = ask("check", "-", log=log)
    assert status == 0
    assert "Line 2 has a call" in out


def test_remarks_on_accepted_maps_are_said_once_with_their_lines(ask):
    overlapping = {"strides_bytes": [4096]}
    log = "\n".join([line(), line(box=[64, 8], **overlapping), line(box=[64, 16], **overlapping)])
    _, out, _ = ask("check", "-", log=log)
    assert out.count("stride-overlap") == 1
    assert "lines 2 and 3: strides_bytes[0] = 4096 bytes" in " ".join(out.split())


def test_options_replace_arguments_of_every_map(ask):
    status, out, _ = ask("check", "-", "--box", "64,8", "-q", log=SIXTY)
    assert (status, out) == (0, "60 maps, all accepted.\n")


def test_fix_prints_the_refused_maps_alone(ask):
    status, out, _ = ask("check", "-", "--fix", log=SIXTY)
    assert status == 0
    assert out.startswith("// 60 maps, 1 refused: line 38.\n// line 38\n")
    assert out.count("cuTensorMapEncodeTiled") == 2  # in C++ and in Python
    fixed = json.loads(ask("check", "-", "--fix", "--json", log=SIXTY)[1])["extra"]["fixed"]
    assert [(one["lines"], one["tensor_map"]["box"]) for one in fixed] == [([38], [64, 64])]


def test_more_than_fifty_refusals_have_a_line_each(ask):
    log = "\n".join(line(box=[64 + 8 * number, 64]) for number in range(1, 61))
    _, out, _ = ask("check", "-", log=log)
    assert out.count("The arguments\n") == 50
    assert out.count(": swizzle-span") + out.count(": box-range") >= 10


def test_long_and_short_logs_are_read_alike():
    text = "\n".join(["noise", line(), TRITON, line(box=[64, 8])]).encode()
    short = MapSource.read(text)
    assert short == MapSource.read_log(text, io.BytesIO(b""))
    assert [asked.lines for asked in short.asked] == [(2,), (3,), (10,)]


def test_decode_reads_every_map_of_a_log(ask):
    log = f"{line()}\n{line(box=[128, 64])}\n{line(box=[64, 8])}\n{line()}"
    status, out, _ = ask("decode", "-", log=log)
    assert status == 1
    assert out.startswith("4 maps, 2 of them different,")
    assert "1 without bytes: line 2" in out
    assert "`tilescope check` says why." in out
    assert "Lines 1 and 4: tiled 4096 x 4096 bf16, box 64 x 64" in out
    assert "swizzle 128B." in out
    found = json.loads(ask("decode", "-", "--json", log=log)[1])
    assert [entry["lines"] for entry in found["entries"]] == [[1, 4], [3]]
    assert found["refused_lines"] == [2]


def test_decode_reads_several_words(ask):
    status, out, _ = ask("decode", "0x4000004000010040", "0x4000004000010080", log="")
    assert status == 0
    assert out.startswith("2 words: 0x4000004000010040, a wgmma descriptor; 0x4000004000010080,")
    assert "start 0x400," in out
    assert "start 0x800," in out


def test_diff_compares_logs_map_by_map(ask, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(f"{line(address='0x2000')}\n{line(box=[64, 16])}\n{line(box=[64, 24])}\n")
    status, out, _ = ask("diff", "-", str(other), log=f"{line()}\n{line(box=[64, 8])}\n")
    assert status == 1
    assert out.startswith("1 map in both logs, 1 changed:")
    assert "line 2, 1 only in the second" in out
    assert "line 3." in out
    assert "box[1]  8    16" in out
    found = json.loads(ask("diff", "-", str(other), "--json", log=f"{line()}\n{line(box=[64, 8])}\n")[1])
    assert found["changed"][0]["arguments"][0] | {"kind": ""} == {
        "kind": "",
        "name": "box[1]",
        "one": "8",
        "other": "16",
    }


def test_diff_of_equal_logs_in_another_order_is_none(ask, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(f"{line(box=[64, 8])}\n{line()}\n")
    assert ask("diff", "-", str(other), "-q", log=f"{line()}\n{line(box=[64, 8])}\n")[:2] == (
        0,
        "2 maps in both logs.\n",
    )


def test_load_says_how_to_name_one_map_of_a_log(ask):
    status, _, err = ask("load", "-", "--coords", "0,0", log=f"\n{line()}\n{line(box=[64, 8])}")
    assert status == 2
    assert "such as FILE:2" in err
