"""Emitted programs compile everywhere, hold exactly the planned instructions, and read as recorded."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from emitter_sample import EVERY, GEMMS, PLANS, is_copied_by_tma
from emitter_toolchain import link, nvrtc, nvrtc_ptx, run

import tilescope as ts
from tilescope.emitter.emission import TARGETS, device_half, emit_file

HERE = Path(__file__).parent
SAMPLED = [name for number, name in enumerate(EVERY) if number % 16 == 0]
SNAPSHOTS = {
    "tile-wgmma.cu": ("cuda", PLANS, "00"),
    "tile-mma-cp-async.cu": ("cuda", PLANS, "40"),
    "tile-threads.cu": ("cuda", PLANS, "70"),
    "tile-store.cu": ("cuda", PLANS, "83"),
    "gemm-wgmma.cu": ("cuda", GEMMS, "00"),
    "gemm-mma.cu": ("cuda", GEMMS, "12"),
    "tile-wgmma.ptx": ("ptx", PLANS, "00"),
    "tile-store.ptx": ("ptx", PLANS, "83"),
    "tile-mma-cp-async.ptx": ("ptx", PLANS, "40"),
    "tile-wgmma.hpp": ("cute", PLANS, "00"),
    "tile-gluon.py": ("triton", PLANS, "00"),
    "tile.py": ("python", PLANS, "00"),
    "gemm.py": ("python", GEMMS, "03"),
}


def target_of(source):
    return re.search(r"code=(sm_\w+)", source)[1]


def some(names):
    """All of them; but for the sample, under ./test --all only."""
    return [pytest.param(name, marks=[] if name in SAMPLED else [pytest.mark.slow]) for name in names]


@pytest.mark.thinned(64)
@pytest.mark.parametrize("name", some(EVERY))
def test_the_device_half_compiles_without_an_include_path(name):
    source = ts.emit(EVERY[name], "cuda")
    assert nvrtc(source, target_of(source))


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_the_whole_program_links(name, tmp_path):
    source = ts.emit(EVERY[name], "cuda")
    assert link(source, target_of(source), tmp_path).stat().st_size > 0


@pytest.mark.parametrize("name", some(PLANS))
def test_ptx_assembles(name, tmp_path):
    source = ts.emit(PLANS[name], "ptx")
    path = tmp_path / "tile.ptx"
    path.write_text(source)
    target = re.search(r"\.target (\S+)", source)[1]
    run("ptxas", f"-arch={target}", "-o", tmp_path / "tile.cubin", path)


CONSUMER_BLACKWELL = {
    "tile": {"consumer": "ldmatrix", "arch": "sm_120", "stages": 2},
    "tile on its sibling": {"consumer": "ldmatrix", "arch": "sm_121"},
    "swizzle in larger atoms": {"consumer": "ld.b128 rows", "arch": "sm_120", "swizzle": "128B_ATOM_32B"},
    "gemm": {"arch": "sm_120"},
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", CONSUMER_BLACKWELL)
def test_loads_on_sm_120_name_the_blocks_own_shared_memory(name, tmp_path):
    """PTX 8.6's form: .shared::cluster means the same bytes, and is slow there."""
    options = CONSUMER_BLACKWELL[name]
    plan = (
        ts.plan_gemm(512, 512, 512, "bf16", **options) if name == "gemm" else ts.plan((64, 64), "bf16", **options).best
    )
    for target in ("cuda", "python", *(("ptx",) if name != "gemm" else ())):
        text = ts.emit(plan, target)
        assert re.search(r"cp\.async\.bulk\.tensor\.2d\.shared::cta\.global", text)
        assert "shared::cluster" not in text
    assert nvrtc(ts.emit(plan, "cuda"), "sm_120a")
    if name != "gemm":
        path = tmp_path / "tile.ptx"
        path.write_text(ts.emit(plan, "ptx"))
        run("ptxas", "-arch=sm_120a", "-o", tmp_path / "tile.cubin", path)


def test_loads_on_sm_90_keep_the_form_that_every_toolkit_with_tma_assembles():
    plan = ts.plan((64, 64), "bf16").best
    for target in ("cuda", "ptx"):
        assert "cp.async.bulk.tensor.2d.shared::cluster.global" in ts.emit(plan, target)


@pytest.mark.parametrize("name", some(filter(is_copied_by_tma, PLANS)))
def test_the_stage_loop_holds_exactly_the_planned_copies_and_products(name):
    """The loop is kept rolled: one body, no prologue."""
    plan = PLANS[name]
    source = ts.emit(plan, "cuda")
    ptx = nvrtc_ptx(device_half(source), target_of(source))
    assert ptx.count("cp.async.bulk.tensor") == plan.tma_instructions
    if plan.problem.consumer == "wgmma" and plan.problem.direction == "load":
        loop = plan.descriptors()
        assert ptx.count("wgmma.mma_async") == len(loop) * len(loop[0])


@pytest.mark.thinned(64)
@pytest.mark.parametrize("name", some(EVERY))
def test_the_python_script_compiles_its_kernel_and_says_what_is_missing(name, tmp_path):
    script = tmp_path / "tile.py"
    script.write_text(ts.emit(EVERY[name], "python"))
    ast.parse(script.read_text())
    if name not in SAMPLED[:4]:
        return
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        assert "the kernel compiled for sm_" in done.stderr
        assert done.stderr.count("\n") == 1
    else:
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", EVERY)
def test_text_is_deterministic_and_free_of_machine_detail(name):
    plan = EVERY[name]
    for target in TARGETS:
        try:
            text = ts.emit(plan, target)
        except ts.RuleError:
            continue
        assert text == ts.emit(plan, target)
        assert text.endswith("\n")
        assert not re.search(r"[ \t]$|\n\n\n|/home|/tmp|/root", text, re.MULTILINE)


@pytest.mark.parametrize("file", SNAPSHOTS)
def test_texts_are_as_recorded(file):
    assert snapshot(file) == (HERE / "snapshots" / f"{file}.txt").read_text("utf-8"), (
        "if it is meant: .venv/bin/python tests/emitter/test_programs.py --write"
    )


def snapshot(file):
    target, table, number = SNAPSHOTS[file]
    return ts.emit(table[next(name for name in table if name.startswith(number))], target)


FUNCTION = re.compile(r"^(?:static|extern|inline|__\w+__|template)?[^\n=;#]*?\b(\w+)\([^;=]*\) \{", re.MULTILINE)


@pytest.mark.parametrize("name", [*some(PLANS), *GEMMS])
def test_every_function_of_a_program_is_called(name):
    source = re.sub(r"//[^\n]*|(?:__launch_bounds__|__cluster_dims__)\(.*?\)", "", ts.emit(EVERY[name], "cuda"))
    defined = [found for found in FUNCTION.findall(source) if found not in ("main", "if", "for", "while", "asm", "do")]
    assert {"shared_address"} <= set(defined)
    assert [function for function in defined if len(re.findall(rf"\b{function}\b", source)) < 2] == []


@pytest.mark.parametrize("name", [*some(PLANS), *GEMMS])
def test_no_loop_of_a_program_has_one_turn(name):
    source = ts.emit(EVERY[name], "cuda")
    assert re.search(r"for \(int \w+ = 0; \w+ < 1;", source) is None
    assert re.search(r"\* 1\b|\b0 \+|\+ 0\b", re.sub(r"//[^\n]*", "", device_half(source))) is None


@pytest.mark.parametrize(("name", "suggested"), [(next(iter(PLANS)), "tile.cu"), ("01-16x4096x4096-bf16", "gemm.cu")])
def test_the_build_line_names_the_programs_own_file(name, suggested):
    plan = EVERY[name]
    architecture = "-gencode=arch=compute_90a,code=sm_90a"
    program = suggested.removesuffix(".cu")
    assert f"nvcc -std=c++17 {architecture} -o {program} {suggested} && ./{program}\n" in ts.emit(plan, "cuda")
    assert f"{architecture} -o fast fast.cu && ./fast\n" in emit_file(plan, "cuda", "fast.cu")
    assert f"{architecture} -o fast.out -x cu fast && ./fast.out\n" in emit_file(plan, "cuda", "fast")
    assert f"-o 'my {program}' 'my {suggested}' && './my {program}'\n" in emit_file(plan, "cuda", f"my {suggested}")
    assert f" {suggested} && " in emit_file(plan, "cuda", "a\nb.cu")  # no comment would hold it
    assert "nvcc -std" not in emit_file(plan, "python", "fast.py")  # a script compiles its kernel itself


def test_gluon_is_another_name_of_triton():
    plan = next(iter(PLANS.values()))
    assert ts.emit(plan, "gluon") == ts.emit(plan, "triton")
    assert "gluon" not in TARGETS


def test_what_cannot_be_emitted_says_why():
    tcgen05 = ts.plan((128, 64), "bf16", arch="sm_100", consumer="tcgen05").best
    with pytest.raises(ts.RuleError, match="tcgen05"):
        ts.emit(tcgen05, "cuda")
    with pytest.raises(ts.RuleError, match="Did you mean cuda"):
        ts.emit(PLANS[next(iter(PLANS))], "cuda2")
    with pytest.raises(ts.RuleError, match="one tile"):
        ts.emit(GEMMS[next(iter(GEMMS))], "ptx")


if __name__ == "__main__":
    for file in SNAPSHOTS:  # --write
        (HERE / "snapshots" / f"{file}.txt").write_text(snapshot(file), "utf-8")
