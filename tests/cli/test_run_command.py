"""`tilescope run`: kernels from PTX files, their arguments as words, launch files, what is printed and saved."""

import json
import re
import shutil
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import tilescope as ts
from tilescope.cli import run
from tilescope.cli.command import step_counter
from tilescope.machine.launch.launch_file import read_launch
from tilescope.machine.launch.launch_template import build_launch_template
from tilescope.questions.run_page import RUN_FORM

KERNELS = Path(__file__).parent.parent / "golden" / "kernels"
OWN_KERNELS = KERNELS.with_name("kernels_own")
RECORDED = sorted(path.stem for path in KERNELS.glob("*.npz"))
SEVERAL_ENTRIES = {"emitted_gemm_f16": "gemm_kernel"}
LAUNCH = ["double.ptx", "--grid", "2", "--block", "32", "--arg", "f32:40", "--arg", "40"]
SPIN = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry spin(.param .u64 flag) {
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %rd;
    ld.param.u64 %rd, [flag];
$again:
    ld.volatile.global.u32 %r, [%rd];
    setp.eq.s32 %p, %r, 0;
    @%p bra $again;
    ret;
}
"""


@pytest.fixture(autouse=True)
def _kernel(tmp_path, monkeypatch):
    shutil.copy(Path(__file__).parent / "double.ptx", tmp_path)
    monkeypatch.chdir(tmp_path)


def printed(capsys, *words):
    """The exit status, and what stands on stdout and on stderr."""
    status = run(["run", *words])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_a_run_says_its_outcome_first_then_arrays_and_no_more(capsys):
    status, out, _ = printed(capsys, *LAUNCH[:-4], "--arg", "f32:40:ones", "--arg", "40")
    assert status == 0
    first, *rest = out.splitlines()
    told = r"double_all finished: 2 blocks .* 31 warp instructions, \S+ s\. .*"
    assert re.fullmatch(told, first)
    assert rest == [
        "",
        "double_all: grid 2, block 32",
        "",
        "Arrays that changed",
        "argument  array   changed  first changed  least  most  NaN",
        "0 a       f32 40       40  2, 2, 2, 2         2     2    0",
    ]


def test_the_lines_that_ran_come_with_draw_lines(capsys):
    status, out, _ = printed(capsys, *LAUNCH, "--draw", "lines")
    assert status == 0
    assert out.splitlines()[-7:] == [
        "",
        "What ran, by source line",
        "line         instructions  warp executions  share",
        "double.cu:2             6               12   39 %",
        "double.cu:4             6               12   39 %",
        "double.cu:3             2                4   13 %",
        "double.cu:5             1                3   10 %",
    ]


def test_json_has_the_run_and_what_stands_beside_it(capsys):
    status, out, _ = printed(capsys, *LAUNCH, "--json")
    assert status == 0
    data = json.loads(out)
    assert (data["kind"], data["entry"], data["outcome"], data["blocks_run"]) == (
        "kernel_run",
        "double_all",
        "finished",
        2,
    )
    beside = data["extra"]
    assert beside["exact"] is True
    assert beside["outputs"][0]["changed"] == 40
    assert beside["lines"][0] == {
        "kind": "line_count",
        "line": "double.cu:2",
        "instructions": 6,
        "warps": 12,
        "share": 12 / 31,
        "wavefronts": None,
        "least_wavefronts": None,
        "sectors": None,
        "least_sectors": None,
    }


SCATTER = """
.version 8.0
.target sm_90
.address_size 64
.file 1 "/build/scatter.cu"
.visible .entry scatter(.param .u64 a) {
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    .loc 1 2 0
    mov.u32 %r1, %tid.x;
    ld.param.u64 %rd1, [a];
    .loc 1 3 0
    mad.wide.u32 %rd2, %r1, 32, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
"""
SCATTERED = ["scatter.ptx", "--grid", "2", "--block", "32", "--arg", "u32:256:zeros", "--by", "line"]


def test_costs_stand_beside_the_source_which_lies_beside_the_ptx(capsys):
    Path("scatter.ptx").write_text(SCATTER)
    Path("scatter.cu").write_text("__global__ void scatter(int *a) {\n  int t = threadIdx.x;\n  a[8 * t] = t;\n}\n")
    status, out, _ = printed(capsys, *SCATTERED)
    assert status == 0
    start = out.index("What it costs")
    assert out[start:].splitlines()[1:4] == [
        "line          warps  wavefronts / least  sectors / least  source",
        "scatter.cu:3      6                   -           64 / 8  a[8 * t] = t;",
        "scatter.cu:2      4                   -                -  int t = threadIdx.x;",
    ]
    assert "run-sectors" in out[:start]


def test_costs_stand_beside_line_numbers_where_no_source_is_found(capsys):
    Path("scatter.ptx").write_text(SCATTER)
    _, out, _ = printed(capsys, *SCATTERED, "--svg", "scatter.svg")
    assert "scatter.cu:3      6                   -           64 / 8\n" in out
    assert "64 / 8" in Path("scatter.svg").read_text()


def test_json_has_the_costs_of_lines_and_instructions(capsys):
    Path("scatter.ptx").write_text(SCATTER)
    _, out, _ = printed(capsys, *SCATTERED, "--json")
    data = json.loads(out)
    (line,) = [line for line in data["extra"]["lines"] if line["sectors"] is not None]
    assert (line["line"], line["sectors"], line["least_sectors"]) == ("scatter.cu:3", 64, 8)
    (store,) = [row for row in data["instructions"] if row["sectors"] is not None]
    assert (store["ptx_text"], store["sectors"], store["least_sectors"]) == ("st.global.u32 [%rd2], %r1", 64, 8)


def test_arrays_are_saved_by_argument_and_into_a_folder(capsys):
    status, _, err = printed(capsys, *LAUNCH, "--save", "0=out.npy", "--save", "results/all")
    assert status == 0
    assert "wrote out.npy: float32 of shape (40,)" in err
    saved = np.load("out.npy")
    assert (saved == np.load("results/all/0_a.npy")).all()
    unchanged = np.random.default_rng(0).standard_normal(40, np.float32)
    assert (saved == 2 * unchanged).all()


def test_an_array_that_was_saved_is_an_argument(capsys):
    printed(capsys, *LAUNCH, "--save", "0=once.npy")
    words = [*LAUNCH[:-4], "--arg", "@once.npy", "--arg", "40", "--save", "0=twice.npy"]
    assert printed(capsys, *words)[0] == 0
    assert (np.load("twice.npy") == 2 * np.load("once.npy")).all()


@pytest.mark.parametrize("between", [(), ("--",)], ids=["words", "behind --"])
def test_words_behind_the_file_are_arguments_of_the_kernel(capsys, between):
    file, *launch = LAUNCH[:-4]
    _, by_option, _ = printed(capsys, *LAUNCH, "--json")
    status, out, _ = printed(capsys, file, *launch, "--json", *between, LAUNCH[-3], LAUNCH[-1])
    assert status == 0
    assert json.loads(out)["extra"]["outputs"] == json.loads(by_option)["extra"]["outputs"]


def test_arguments_are_given_in_one_way(capsys):
    status, _, err = printed(capsys, *LAUNCH, "--", "40")
    assert status == 2
    assert "'40' and --arg both give arguments" in err


def test_a_spin_that_nobody_ends_is_a_hang(capsys):
    Path("spin.ptx").write_text(SPIN)
    status, out, _ = printed(capsys, "spin.ptx", "--grid", "1", "--block", "32", "--arg", "s32:1:zeros")
    assert status == 1
    first, _, rest = out.partition("\n\n")
    assert first.startswith("spin hangs: PTX line 11: a thread cannot leave a loop")
    assert first.endswith("(run-hang).")
    assert rest.startswith("0 blocks of 32 threads had finished, ")
    assert "\nWhat is wrong\nrun-hang     PTX line 11: a thread cannot leave" in out
    assert "\ninstruction  PTX line 11 (ld.volatile.global.u32 %r, [%rd])\n" in out
    assert "\nthread       threads 0-31 of block (0, 0, 0)\n" in out
    assert printed(capsys, "spin.ptx", "--grid", "1", "--block", "32", "--arg", "s32:1:ones")[0] == 0


UNWRITTEN = """.version 8.0
.target sm_90
.address_size 64
.entry k() {
    .shared .b32 s;
    .reg .b32 %r;
    ld.shared.u32 %r, [s];
    ret;
}
"""


@pytest.fixture
def unwritten():
    Path("unwritten.ptx").write_text(UNWRITTEN)
    return ["unwritten.ptx", "--grid", "1", "--block", "32"]


def test_a_warning_about_the_result_denies_certainty_and_fails_only_strictly(capsys, unwritten):
    status, out, _ = printed(capsys, *unwritten)
    assert status == 0
    first = out.splitlines()[0]
    assert "with 1 warning (run-unwritten)" in first
    assert "not certain" in first
    assert "card's" not in first
    status, strict_out, _ = printed(capsys, *unwritten, "--strict")
    assert status == 1
    assert "Worth a look\nrun-unwritten" in strict_out


def test_a_strict_run_says_in_its_first_lines_which_warning_fails_it(capsys, unwritten):
    status, out, _ = printed(capsys, *unwritten, "--strict", "-q")
    first, fix = out.splitlines()
    assert status == 1
    assert "with 1 warning: " in first
    assert first.endswith("(run-unwritten).")
    assert fix


@pytest.mark.parametrize("entry", ["run-unwritten", "run-unwritten@7"])
def test_an_accepted_finding_is_listed_and_does_not_count(capsys, unwritten, entry):
    status, out, _ = printed(capsys, *unwritten, "--strict", "--allow", entry)
    assert status == 0
    assert "with 1 accepted finding (run-unwritten)" in out.splitlines()[0]
    assert "not certain" in out.splitlines()[0]
    assert "\nAccepted\nrun-unwritten" in out
    assert "Worth a look" not in out


def test_an_entry_that_matches_nothing_is_reported(capsys, unwritten):
    status, out, _ = printed(capsys, *unwritten, "--allow", "run-unwritten@8")
    assert status == 0
    assert "\nwarning: --allow run-unwritten@8 matched no finding of this run.\n" in out
    assert printed(capsys, *unwritten, "--strict", "--allow", "run-unwritten@8")[0] == 1


def test_json_says_what_was_accepted(capsys, unwritten):
    options = ["--strict", "--allow", "run-unwritten@7", "--allow", "run-race", "--json"]
    status, out, _ = printed(capsys, *unwritten, *options)
    assert status == 0
    extra = json.loads(out)["extra"]
    assert [(row["allow"], row["finding"]["rule"]) for row in extra["accepted"]] == [
        ("run-unwritten@7", "run-unwritten")
    ]
    assert extra["unmatched"] == ["run-race"]
    assert extra["exact"] is False


def test_a_rule_that_does_not_exist_is_refused_before_the_run(capsys, unwritten):
    status, out, err = printed(capsys, *unwritten, "--allow", "run-unwriten")
    assert (status, out) == (2, "")
    assert "Did you mean run-unwritten?" in err


def test_what_printf_wrote_follows_the_outcome_as_it_is(capsys):
    launch = ["--grid", "1", "--block", "32", "--arg", "s32:32:zeros", "--arg", "s32:32:zeros"]
    status, out, _ = printed(capsys, str(OWN_KERNELS / "printing.ptx"), *launch)
    assert status == 0
    outcome, _, rest = out.partition("\n\n")
    assert outcome.startswith("printing finished: ")
    assert "\n" not in outcome
    assert rest.startswith("plain\n0 0 0 0 0 A|    0|0    |00000|+0\n")


def test_a_fault_is_the_answer_no(capsys):
    status, out, _ = printed(capsys, *LAUNCH[:-1], "41")
    assert status == 1
    assert out.startswith("double_all ends with a fault: ")
    assert "What is wrong\nrun-out-of-bounds  double.cu:4" in out
    assert "PTX line" in out


def test_the_svg_of_a_run_says_its_outcome_and_what_printf_wrote(capsys):
    status, out, _ = printed(capsys, *LAUNCH[:-1], "41", "--svg", "fault.svg")
    assert status == 1
    assert out.count("ends with a fault") == 1
    assert "double_all ends with a fault: " in svg_text("fault.svg")
    launch = ["--grid", "1", "--block", "32", "--arg", "s32:32:zeros", "--arg", "s32:32:zeros"]
    _, out, _ = printed(capsys, str(OWN_KERNELS / "printing.ptx"), *launch, "--svg", "printing.svg")
    assert out.count("plain\n") == 1
    assert "printf plain" in svg_text("printing.svg")


def svg_text(path):
    """The words of a drawing, with one blank between them."""
    return " ".join(" ".join(ET.parse(path).getroot().itertext()).split())


def test_a_run_is_stopped_after_so_many_steps(capsys):
    status, out, _ = printed(capsys, *LAUNCH, "--max-steps", "5")
    assert status == 1
    assert out.startswith("double_all was stopped before its")
    assert "\nrun-stopped " in out


@pytest.mark.parametrize(
    ("options", "doubled"),
    [
        ([], (2, 2, 2)),
        (["--blocks", "all"], (2, 2, 2)),
        (["--blocks", "corners"], (2, 1, 2)),
        (["--blocks", "1,0"], (1, 2, 1)),
        (["--blocks", "0", "--blocks", "1"], (2, 2, 1)),
    ],
)
def test_blocks_are_chosen(options, doubled, capsys):
    words = ["double.ptx", "--grid", "3", "--block", "32", "--arg", "f32:96:ones", "--arg", "96", *options]
    assert printed(capsys, *words, "--save", "0=out.npy")[0] == 0
    assert np.load("out.npy").reshape(3, 32).tolist() == [[factor] * 32 for factor in doubled]


def test_a_seed_changes_no_result_of_a_right_kernel(capsys):
    for seed in ("0", "1"):
        printed(capsys, *LAUNCH, "--seed", seed, "--save", f"0={seed}.npy")
    assert (np.load("0.npy") == np.load("1.npy")).all()


def test_at_most_20_lines_are_listed_unless_all_are_asked_for(capsys):
    body = "\n".join(f".loc 1 {line} 0\nmov.u32 %r, {line};" for line in range(1, 31))
    head = '.version 8.0\n.target sm_90\n.address_size 64\n.file 1 "long.cu"\n.entry k() {\n.reg .b32 %r;\n'
    Path("long.ptx").write_text(f"{head}{body}\nret;\n}}\n")
    words = ["long.ptx", "--grid", "1", "--block", "32"]
    assert "long.cu:" not in printed(capsys, *words)[1]
    short = printed(capsys, *words, "--by", "line")[1]
    assert short.count("long.cu:") == 20
    assert "The first 20 of 30 lines." in short
    assert printed(capsys, *words, "--all-lines")[1].count("long.cu:") == 30


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--launch file"),
        (["nosuch.ptx"], "does not exist"),
        (["double.ptx"], "launch-missing: no grid"),
        (["double.ptx", "--grid", "1"], "launch-missing: no block"),
        ([*LAUNCH, "--entry", "nope"], "kernel-entry: entry = 'nope'"),
        ([*LAUNCH, "--arg", "1"], "kernel-arguments: 3 arguments; double_all has 2 parameters: a, n"),
        ([*LAUNCH[:-1], "1.5"], "kernel-argument: 1.5; n is a .u32. Pass a number of 32 bits."),
        ([*LAUNCH, "--blocks", "all", "--blocks", "0"], "--blocks all cannot be combined"),
        ([*LAUNCH, "--save", "1=n.npy"], "argument 1 is not an array"),
        (["double.ptx", "--grid", "0", *LAUNCH[3:]], "argument-range: grid = (0,)"),
        ([*LAUNCH, "--arch", "sm_1"], "unknown-name"),
        ([*LAUNCH, "--launch", "double.ptx"], "launch-file: double.ptx"),
        (["-", "--launch", "-"], "stdin holds one file"),
    ],
)
def test_what_is_not_understood_is_told_on_stderr(words, said, capsys, wording):
    status, out, err = printed(capsys, *words)
    assert (status, out) == (2, "")
    assert said in err
    wording(f"run: {' '.join(words) or 'nothing'}", err)
    assert "Traceback" not in err


def test_all_that_a_launch_lacks_is_told_at_once_with_options_that_fit(capsys):
    status, _, err = printed(capsys, "double.ptx")
    assert status == 2
    assert [line.split(";")[0] for line in err.splitlines()] == [
        "error: launch-missing: no grid",
        "error: launch-missing: no block",
        "error: kernel-arguments: no arguments",
    ]
    assert "double_all has 2 parameters: a, n." in err
    assert "Add --arg f32:1024 --arg 0" in err
    assert printed(capsys, "double.ptx", "--grid", "4", "--block", "128", "--arg", "f32:1024", "--arg", "0")[0] == 0


def test_a_text_that_is_no_ptx_is_refused_with_its_place(capsys):
    Path("bad.ptx").write_bytes(Path("double.ptx").read_bytes().replace(b"ret;", b"ret"))
    status, _, err = printed(capsys, "bad.ptx", *LAUNCH[1:])
    assert status == 2
    assert re.match(r"error: ptx-syntax: line \d+, column \d+: ", err)


def test_a_template_is_a_launch_file(capsys):
    status, out, _ = printed(capsys, "double.ptx", "--template")
    assert status == 0
    assert tomllib.loads(out) == {
        "launch": {"ptx": "double.ptx", "entry": "double_all", "grid": [1], "block": [128], "smem_bytes": 0},
        "argument": [
            {"name": "a", "kind": "array", "type": "f32", "shape": [1024], "fill": "random"},
            {"name": "n", "kind": "int", "value": 0},
        ],
    }
    Path("folder").mkdir()
    shutil.copy("double.ptx", "folder")
    Path("folder/launch.toml").write_text(out.replace("value = 0", "value = 128"))
    status, out, _ = printed(capsys, "--launch", "folder/launch.toml", "--save", "0=out.npy")
    assert status == 0
    assert "0 a       f32 1024      128" in out


def test_options_replace_what_a_launch_file_says(capsys):
    template = printed(capsys, "double.ptx", "--template")[1]
    Path("launch.toml").write_text(template.replace("value = 0", "value = 1024"))
    _, out, _ = printed(capsys, "--launch", "launch.toml", "--grid", "2", "--block", "64")
    assert "double_all: grid 2, block 64" in out
    status, _, err = printed(capsys, "--launch", "launch.toml", "--arg", "f32:8", "--arg", "8")
    assert status == 2
    assert "--arg and the launch file" in err


def test_files_that_a_launch_file_names_lie_beside_it(capsys):
    Path("folder").mkdir()
    np.save("folder/a.npy", np.full(8, 3, np.float32))
    shutil.copy("double.ptx", "folder")
    Path("folder/launch.toml").write_text(
        '[launch]\nptx = "double.ptx"\ngrid = [1]\nblock = [8]\n'
        '[[argument]]\nkind = "array"\nfile = "a.npy"\n[[argument]]\nkind = "int"\nvalue = 8\n'
    )
    assert printed(capsys, "--launch", "folder/launch.toml", "--save", "0=out.npy")[0] == 0
    assert np.load("out.npy").tolist() == [6] * 8


@pytest.mark.parametrize("name", RECORDED)
def test_the_template_of_a_recorded_kernel_fits_its_parameters(name):
    kernel = ts.Kernel((KERNELS / f"{name}.ptx").read_text("utf-8"), SEVERAL_ENTRIES.get(name))
    template = build_launch_template(kernel, f"{name}.ptx")
    assert read_launch(template.text.encode(), "launch.toml") == template.launch
    recorded = json.loads(str(np.load(KERNELS / f"{name}.npz")["launch"]))
    kinds = [one.kind.removesuffix("_argument") for one in template.launch.arguments]
    wanted = [{"int": "number", "float": "number"}.get(one["kind"], one["kind"]) for one in recorded["params"]]
    assert kinds == wanted
    if kernel.module.functions[kernel.entry].required_threads is not None:
        assert list(template.launch.block) == recorded["block"]


def recorded_words(name, folder):
    """The command line that launches a recorded kernel, its arrays in a folder."""
    recording = np.load(KERNELS / f"{name}.npz")
    launch = json.loads(str(recording["launch"]))
    for number, described in enumerate(launch["arrays"]):
        array = recording[f"before{number}"].view(described["type"]).reshape(described["shape"])
        np.save(folder / f"{number}.npy", array)
    words = [str(KERNELS / f"{name}.ptx"), "--entry", launch["entry"], "--smem", str(launch["smem_bytes"])]
    words += ["--grid", "x".join(map(str, launch["grid"])), "--block", "x".join(map(str, launch["block"]))]
    for param in launch["params"]:
        match param["kind"]:
            case "map":
                box = "x".join(map(str, param["box"]))
                words += ["--arg", f"map:@{param['array']}.npy,box={box},swizzle={param['swizzle']}"]
            case "array":
                words += ["--arg", f"@{param['array']}.npy"]
            case _:
                words += ["--arg", str(param["value"])]
    return words


@pytest.mark.parametrize("name", ["mm_tma_f16", "histogram"])
def test_a_recorded_kernel_gives_the_bytes_of_the_card(name, tmp_path, capsys):
    recording = np.load(KERNELS / f"{name}.npz")
    launch = json.loads(str(recording["launch"]))
    (changed,) = [int(key.removeprefix("after")) for key in recording if key.startswith("after")]
    argument = next(place for place, param in enumerate(launch["params"]) if param.get("array") == changed)
    status, out, err = printed(capsys, *recorded_words(name, tmp_path), "--save", f"{argument}=after.npy")
    assert status == 0, out + err
    assert np.load("after.npy").tobytes() == recording[f"after{changed}"].tobytes()


def test_quiet_prints_the_outcome_and_the_fix_alone(capsys):
    status, out, _ = printed(capsys, *LAUNCH, "-q")
    assert status == 0
    assert re.fullmatch(r"double_all finished: 2 blocks .* 31 warp instructions, .*\n", out)
    Path("spin.ptx").write_text(SPIN)
    status, out, _ = printed(capsys, "spin.ptx", "--grid", "1", "--block", "32", "--arg", "u32:1:zeros", "-q")
    assert status == 1
    sentence, fix = out.splitlines()
    assert sentence.startswith("spin hangs: PTX line 11: a thread cannot leave a loop")
    assert fix


SHARED = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry shared() {
    .shared .align 128 .b8 s[256];
    .reg .b32 %r<3>;
    mov.u32 %r1, s;
    st.shared.u32 [%r1], 7;
    st.shared.u32 [%r1+128], 8;
    ret;
}
"""


@pytest.fixture
def shared_kernel(tmp_path):
    (tmp_path / "shared.ptx").write_text(SHARED)
    return ["shared.ptx", "--grid", "2", "--block", "1", "--draw", "smem"]


def test_shared_memory_is_drawn_in_place_of_the_lines(capsys, shared_kernel):
    status, out, _ = printed(capsys, *shared_kernel)
    assert status == 0
    assert out.splitlines()[0].startswith("shared finished")
    assert "0x0480       B  ·" in out
    assert "B  PTX line 10 (st.shared.u32 [%r1+128], 8): 4 bytes" in out
    assert "What ran" not in out


def test_shared_memory_at_a_moment_and_of_a_block(capsys, shared_kernel):
    _, out, _ = printed(capsys, *shared_kernel, "--at", "10", "--draw-block", "1,0,0")
    assert "block (1, 0, 0) right before PTX line 10" in out
    assert "B" not in out.split("Lines of 128")[1].split("bank")[1].splitlines()[2]


def test_shared_memory_as_json_and_as_svg(capsys, shared_kernel, tmp_path):
    _, out, _ = printed(capsys, *shared_kernel, "--json", "--svg", "smem.svg")
    picture = ts.value.Value.from_dict(json.loads(out)["extra"]["smem"])
    assert [writer.ptx_lines for writer in picture.writers] == [(9,), (10,)]
    assert "PTX line 10" in "".join(ET.parse(tmp_path / "smem.svg").getroot().itertext())


def test_a_block_that_did_not_run_is_named(capsys, shared_kernel):
    status, out, _ = printed(capsys, *shared_kernel, "--draw-block", "1", "--blocks", "0")
    assert status == 0
    assert "Block (1,) did not run" in out


@pytest.mark.parametrize("words", [["--at", "10", "--draw", "lines"], ["--draw-block", "0"], ["--thread", "0"]])
def test_options_of_a_picture_need_the_picture(capsys, words):
    status, _, err = printed(capsys, *LAUNCH, *words)
    assert status == 2
    assert "--at and --draw-block" in err
    assert "--draw smem and --draw state" in err


def test_at_a_step_the_state_is_drawn(capsys):
    status, out, _ = printed(capsys, *LAUNCH, "--at", "3", "--thread", "5")
    assert status == 0
    assert "Step 3 of " in out
    assert "Registers of thread 5" in out
    status, out, _ = printed(capsys, *LAUNCH, "--at", "3", "--json")
    state = ts.value.Value.from_dict(json.loads(out)["extra"]["state"])
    assert (state.step, state.ran.block) == (3, (0, 0, 0))
    assert state == ts.value.Value.from_dict(state.to_dict())


def test_a_step_that_the_run_does_not_have_is_refused_with_the_range(capsys):
    status, _, err = printed(capsys, *LAUNCH, "--at", "123456")
    assert status == 2
    assert "step 123456; steps 0 to " in err


def test_a_step_is_a_number(capsys):
    status, _, err = printed(capsys, *LAUNCH, "--at", "mm.py:12")
    assert status == 2
    assert "a step is a number" in err


def test_a_moment_without_an_instruction_is_refused(capsys, shared_kernel):
    status, _, err = printed(capsys, *shared_kernel, "--at", "3")
    assert status == 2
    assert "'3', a line without an instruction" in err
    assert "Use PTX line 8" not in err
    assert "Use 8" in err


def test_remedies_are_tried_unless_they_are_not_wanted(capsys, tmp_path):
    for name in ("ptx", "launch"):
        (tmp_path / f"sample.{name}").write_text(RUN_FORM.presets[name])
    words = ["sample.ptx", "--launch", "sample.launch"]
    assert "tried, and this finding" in " ".join(printed(capsys, *words)[1].split())
    status, out, _ = printed(capsys, *words, "--no-remedies")
    assert status == 1
    assert "tried" not in out


TURN = """.version 8.0
.target sm_90
.address_size 64
.visible .entry turn(.param .u64 a) {
    .shared .align 128 .b8 s[256];
    .reg .b32 %r<6>; .reg .b64 %d<3>;
    ld.param.u64 %d1, [a]; mov.u32 %r1, %tid.x; mov.u32 %r2, s;
    mad.lo.u32 %r3, %r1, 4, %r2; st.shared.u32 [%r3], %r1;
    bar.sync 0;
    bar.sync 0;
    sub.u32 %r4, 63, %r1; mad.lo.u32 %r4, %r4, 4, %r2; ld.shared.u32 %r5, [%r4];
    mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2], %r5;
    ret;
}
"""
TURNED = ["turn.ptx", "--grid", "1", "--block", "64", "--arg", "u32:64:zeros"]


def test_advice_names_barriers_that_ordered_nothing(capsys):
    Path("turn.ptx").write_text(TURN)
    status, out, _ = printed(capsys, *TURNED, "--advice")
    assert status == 0
    assert "Good to know\nrun-idle-barrier  1" in out
    assert "2 bar.sync that ran ordered" in out
    assert "nothing: PTX line 9" in out
    assert "run-idle-barrier" not in printed(capsys, *TURNED)[1]


@pytest.mark.parametrize("drawn", ["smem", "timeline"])
def test_costs_by_line_and_a_picture_stand_below_each_other(drawn, capsys):
    Path("turn.ptx").write_text(TURN)
    status, out, _ = printed(capsys, *TURNED, "--by", "line", "--draw", drawn, "--svg", "turn.svg")
    assert status == 0
    costs = out.index("What it costs, by source")
    picture = out.index("Lines of 128 bytes" if drawn == "smem" else "Timeline (")
    assert costs < picture
    assert "What it costs" in Path("turn.svg").read_text("utf-8")


def test_a_proof_is_said_once_and_what_it_holds_for_below(capsys):
    Path("turn.ptx").write_text(TURN)
    _, out, _ = printed(capsys, *TURNED, "--prove", "--draw", "timeline", "--svg", "turn.svg")
    assert out.count("Proven for every order") == 1
    assert out.splitlines()[0].endswith("no hang, no race.")
    assert "first cluster took" in out
    assert "Proven for every order" in Path("turn.svg").read_text("utf-8")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_long_run_counts_its_instructions_on_a_terminal(monkeypatch, capsys, is_terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    times = iter(range(100))
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    with step_counter() as progress:
        for steps in (1000, 2000, 3000):
            if progress is not None:
                progress(steps)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.findall(r"\r(\d+)", shown.err) == (["2000", "3000"] if is_terminal else [])
    assert shown.err.endswith("\r\x1b[K") == is_terminal
