"""`tilescope run --triton` and `--cuda`: kernels that are compiled first, and what goes wrong with them."""

import json
import sys

import pytest

from tilescope.cli import run

ADD = """
import triton
import triton.language as tl

print("the module runs")
TWO = 2


@triton.jit
def add(x, y, n, BLOCK: tl.constexpr, MORE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + MORE, mask=at < n)
"""
SCALE = """
struct Params { float* a; int n; float by; };

extern "C" __global__ void scale(const __grid_constant__ Params params) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < params.n) params.a[i] *= params.by;
}
"""
TRITON = ["--triton", "add.py:add", "--signature", "*fp32, *fp32, i32", "--grid", "2"]
ARGUMENTS = ["--arg", "f32:200:ones", "--arg", "f32:200:zeros", "--arg", "200"]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    (tmp_path / "add.py").write_text(ADD)
    (tmp_path / "scale.cu").write_text(SCALE)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def nvcc(require):
    require("gxx")
    require("nvcc")


def printed(capsys, *words):
    status = run(["run", *words])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_a_kernel_of_triton_is_compiled_and_run_and_the_import_is_said(require, capsys):
    require("triton")
    status, out, err = printed(capsys, *TRITON, "--constexpr", "BLOCK=128", "--constexpr", "MORE=TWO", *ARGUMENTS)
    assert status == 0
    assert "the module runs" in err
    assert "Imported add.py" in out
    assert "128 threads" in out
    assert "1 y       f32 200      200  3, 3, 3, 3" in out


def test_a_python_file_is_a_kernel_of_triton_whose_types_are_those_of_its_arguments(require, capsys):
    require("triton")
    constants = ("--constexpr", "BLOCK=128", "--constexpr", "MORE=1")
    status, out, _ = printed(capsys, "add.py", "--grid", "2", *constants, *ARGUMENTS)
    assert status == 0
    assert "Types, by its arguments: *fp32" in out
    assert "*fp32, i32." in out
    assert "1 y       f32 200      200  2, 2, 2, 2" in out


def test_of_several_kernels_one_has_to_be_named(require, capsys, tmp_path):
    require("triton")
    (tmp_path / "add.py").write_text(ADD + ADD.replace("def add", "def sub"))
    status, _, err = printed(capsys, "add.py", *ARGUMENTS)
    assert status == 2
    assert "say which function of add.py" in " ".join(err.split())
    assert "add.py:FUNCTION." in " ".join(err.split())
    assert "add, sub." in err


@pytest.mark.slow
@pytest.mark.usefixtures("nvcc")
def test_a_cu_file_is_compiled_without_being_asked_to_and_has_the_names_of_its_source(capsys, tmp_path):
    (tmp_path / "scale.cu").write_text(SCALE.replace('extern "C" ', ""))
    status, out, _ = printed(capsys, "scale.cu", "--grid", "1", "--block", "32", "--arg", f"bytes:{'00' * 16}")
    assert status == 0
    assert out.startswith("scale finished: 1 block of 32 threads")
    status, _, err = printed(capsys, "scale.cu", "--grid", "1", "--block", "32")
    assert status == 2
    assert "scale has 1 parameter: param_0." in " ".join(err.split())


def test_a_binary_is_told_where_its_ptx_is(capsys, tmp_path):
    (tmp_path / "kernel.cubin").write_bytes(b"\x7fELF\0\0")
    status, _, err = printed(capsys, "kernel.cubin", "--grid", "1")
    assert status == 2
    assert "cuobjdump --dump-ptx" in " ".join(err.split())


def test_json_says_who_compiled_it(require, capsys):
    require("triton")
    constants = ("--constexpr", "BLOCK=128", "--constexpr", "MORE=1")
    status, out, _ = printed(capsys, *TRITON, *constants, "--option", "num_warps=2", *ARGUMENTS, "--json")
    told = json.loads(out)
    assert status == 0
    assert told["block"] == [64, 1, 1]
    assert told["extra"]["compiled"].startswith("Imported add.py")


def test_help_says_that_the_module_is_imported(capsys):
    with pytest.raises(SystemExit) as ended:
        sys.exit(run(["run", "--help"]))
    assert ended.value.code == 0
    assert "runs its top-level code" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--triton", ":add", "--signature", "i32"], "write MODULE.py:FUNCTION"),
        (["--triton", "none.py:add", "--signature", "i32"], "there is no file"),
        (
            ["--triton", "add.py:sub", "--signature", "i32"],
            "functions of @triton.jit",
        ),
        (["--triton", "add.py:add"], "such as --arg f16:1024"),
        (["add.py", "--arg", "@a.npy"], "argument 0 has no type"),
        (["scale.cu", "--cuda", "scale.cu"], "FILE and --cuda both name"),
        (["--triton", "add.py:add", "--cuda", "scale.cu"], "--triton and --cuda both name"),
        (["--signature", "i32", "double.ptx"], "does not exist"),
        (["--cuda", "scale.cu", "--signature", "i32"], "--signature and --constexpr"),
        ([*TRITON, "--constexpr", "BLOCK"], "write NAME=VALUE"),
        ([*TRITON, "--entry", "add"], "--triton names one"),
    ],
)
def test_what_does_not_go_together_is_refused(words, said, require, capsys):
    require("triton")
    status, _, err = printed(capsys, *words)
    assert status == 2
    assert said in " ".join(err.split())


def test_a_module_that_raises_is_told_in_a_sentence(require, capsys, tmp_path):
    require("triton")
    (tmp_path / "add.py").write_text("raise RuntimeError('no card')\n")
    status, _, err = printed(capsys, *TRITON)
    assert status == 2
    assert "add.py could not be imported" in " ".join(err.split())


def test_a_module_that_lacks_a_package_is_told_which_to_install(capsys, tmp_path):
    (tmp_path / "add.py").write_text("import no_such_package.kernels\n")
    status, _, err = printed(capsys, *TRITON)
    assert status == 3
    assert "add.py imports no_such_package" in err
    assert "tilescope: pip install no_such_package." in err


def test_without_triton_the_exit_status_is_3(capsys, monkeypatch, tmp_path):
    (tmp_path / "add.py").write_text("def add(): pass\n")
    monkeypatch.setitem(sys.modules, "triton", None)
    status, _, err = printed(capsys, *TRITON)
    assert status == 3
    assert err.count("\n") == 1
    assert "pip install 'tilescope[triton]'" in err


@pytest.mark.usefixtures("nvcc")
def test_a_file_of_cuda_is_compiled_and_run(capsys):
    status, out, _ = printed(
        capsys, "--cuda", "scale.cu", "--grid", "1", "--block", "32", "--arg", f"bytes:{'00' * 16}", "--by", "line"
    )
    assert status == 0
    assert "Compiled scale.cu by nvcc V" in out
    assert "if (i < params.n)" in out


@pytest.mark.slow
@pytest.mark.usefixtures("nvcc")
def test_a_template_of_a_compiled_kernel_names_no_ptx(capsys):
    status, out, _ = printed(capsys, "--cuda", "scale.cu", "--template")
    assert status == 0
    assert 'entry = "scale"' in out
    assert "ptx =" not in out


def test_a_kernel_of_triton_has_no_template(require, capsys):
    require("triton")
    status, _, err = printed(capsys, *TRITON, "--constexpr", "BLOCK=128", "--constexpr", "MORE=1", "--template")
    assert status == 2
    assert "signature says what" in " ".join(err.split())


@pytest.mark.usefixtures("nvcc")
def test_errors_of_the_cuda_compiler_are_shown(capsys, tmp_path):
    (tmp_path / "scale.cu").write_text("__global__ void wrong() { x = 1; }\n")
    status, _, err = printed(capsys, "--cuda", "scale.cu", "--grid", "1", "--block", "32")
    assert status == 2
    assert "scale.cu(1): error" in err
    assert 'identifier "x" is undefined' in err


@pytest.mark.slow
@pytest.mark.usefixtures("nvcc")
def test_the_target_of_the_compiler_is_the_architecture(capsys):
    words = ("--cuda", "scale.cu", "--grid", "1", "--block", "32", "--arg", f"bytes:{'00' * 16}", "--arch", "sm_80")
    status, out, _ = printed(capsys, *words)
    assert status == 0
    assert "for sm_80." in out
