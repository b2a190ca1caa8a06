"""Whole texts of compilers: the recorded kernels, nvcc's, Triton's."""

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tilescope.ptx import read_module
from tilescope.ptx.syntax import Label, SourceLine

KERNELS = sorted((Path(__file__).parent.parent / "golden" / "kernels").glob("*.ptx"))
INSTRUCTIONS = {
    "arith_mma_m16n8k16_f16_f32": 36,
    "arith_mma_m16n8k32_e4m3_f32": 36,
    "arith_wgmma_m64n16k16_bf16_f32": 110,
    "arith_wgmma_m64n16k32_e4m3_f32": 110,
    "attention": 543,
    "emitted_gemm_f16": 669,
    "histogram": 76,
    "mm_pointers_odd": 793,
    "mm_tma_f16": 352,
    "softmax": 168,
    "transpose_tma": 102,
}


def statements(text):
    """How many instructions a text has, counted without the reader: semicolons in bodies that end no directive."""
    code = "\n".join(line.partition("//")[0] for line in text[text.index(".entry") :].splitlines())
    directives = re.findall(r"(?<=[\s{;])\.(?:reg|pragma|shared|local)\s[^;]*;", code)
    return code.count(";") - len(directives)


def test_every_recorded_kernel_is_here():
    assert {path.stem for path in KERNELS} == set(INSTRUCTIONS)


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_a_recorded_kernel_is_read_whole(path):
    text = path.read_text("utf-8")
    instructions = [instruction for kernel in read_module(text).entries for instruction in kernel.instructions]
    assert len(instructions) == INSTRUCTIONS[path.stem] == statements(text)
    assert all(instruction.fields.unknown == () for instruction in instructions)


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_a_recorded_kernel_has_the_parameters_of_its_launch(path):
    launch = json.loads(str(np.load(path.with_suffix(".npz"))["launch"]))
    kernel = read_module(path.read_text("utf-8")).functions[launch["entry"]]
    sizes = {"map": {128}, "array": {8}, "int": {4, 8}, "float": {4}}
    for parameter, given in zip(kernel.parameters, launch["params"], strict=True):
        assert parameter.size_bytes in sizes[given["kind"]], parameter.name


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_an_instruction_stands_on_its_line(path):
    text = path.read_text("utf-8")
    lines = text.splitlines()
    for instruction in read_module(text).entries[0].instructions:
        first_word = instruction.text.split()[0]
        assert first_word in lines[instruction.line - 1]


def test_reductions_are_told_in_the_line_of_the_kernel():
    text = (KERNELS[0].parent / "softmax.ptx").read_text("utf-8")
    kernel = read_module(text).functions["softmax"]
    shuffles = [instruction for instruction in kernel.instructions if instruction.name == "shfl"]
    assert {shuffle.source.file for shuffle in shuffles} == {"standard.py"}
    assert {shuffle.source.outermost.file for shuffle in shuffles} == {"kernels.py"}


def test_nvccs_text_has_calls_tables_and_inlined_lines():
    module = read_module(Path(__file__).with_name("calls.ptx").read_text("utf-8"))
    kernel = module.functions["calls"]
    assert kernel.max_threads == (256, 1, 1)
    assert kernel.required_cluster == (2, 1, 1)
    assert module.functions["vprintf"].instructions is None
    assert Counter(instruction.name for instruction in kernel.instructions)["call"] == 4
    assert module.variables["table"].initial == np.array([1.5, -2.0, 3.25], "<f4").tobytes()
    assert module.variables["packed"].addresses == ((1, "matrix"),)
    assert module.variables["packed"].initial == b"\7\4\0\0\0\0\0\0\0"
    assert module.variables["functions"].addresses == ((0, "_Z9fibonaccii"), (8, "_Z9fibonaccii"))
    scaled = [i.source for i in kernel.instructions if i.source and "6scaled" in (i.source.function or "")]
    assert {str(source) for source in scaled} == {"calls.cu:42 (calls.cu:18)"}
    assert {source.inlined_at.line for source in scaled} == {20, 21}
    assert scaled[0].outermost == SourceLine("calls.cu", 42, 3)


def test_every_label_of_nvccs_text_is_a_place_in_the_function():
    module = read_module(Path(__file__).with_name("calls.ptx").read_text("utf-8"))
    for function in module.functions.values():
        for instruction in function.instructions or ():
            for operand in instruction.operands:
                if isinstance(operand, Label):
                    assert 0 <= operand.target < len(function.instructions)


PRODUCT = """
import triton
import triton.language as tl

@triton.jit
def product(a, b, c, k, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, BLOCK):
        columns = start + rows
        left = tl.load(a + rows[:, None] * k + columns[None, :])
        right = tl.load(b + columns[:, None] * BLOCK + rows[None, :])
        total += tl.dot(left, right)
    total = tl.exp(total - tl.max(total, 1)[:, None])
    tl.store(c + rows[:, None] * BLOCK + rows[None, :], total / tl.sum(total, 1)[:, None])
"""


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_tritons_text_is_read_with_its_lines(capability, require, tmp_path, monkeypatch):
    require("triton")
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # unset, Triton 3.9 warns of what 3.10 will do
    import triton
    from triton.backends.compiler import GPUTarget

    path = tmp_path / "product.py"
    path.write_text(PRODUCT)
    spec = importlib.util.spec_from_file_location("product", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "k": "i32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(module.product, signature, constexprs={"BLOCK": 64})
    text = triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]
    (kernel,) = read_module(text).entries
    assert {word for instruction in kernel.instructions for word in instruction.fields.unknown} == set()
    sources = {instruction.source for instruction in kernel.instructions if instruction.source is not None}
    assert {source.file for source in sources} == {"product.py", "standard.py"}
    assert {source.outermost.file for source in sources} == {"product.py"}
