"""The kernels of the package compile, and there is one for every instruction of the tables; neither needs a card."""

import re
from importlib.resources import files

import pytest

from tilescope.arch import Arch
from tilescope.data_type import DataType
from tilescope.gpu.driver.nvrtc import compile_kernels, kernel_source
from tilescope.gpu.verify.suites import SUITE_NAMES, suite_named
from tilescope.gpu.verify.suites.copy_suite import OPERATIONS
from tilescope.gpu.verify.suites.product_suite import opcodes
from tilescope.gpu.verify.suites.tmem_suite import FORMS
from tilescope.mma.mma_instruction import INSTRUCTIONS
from tilescope.smem.op import SMEM_OP

KERNEL_FILES = sorted(path.stem for path in (files("tilescope.gpu") / "kernels").glob("*.cu"))
TARGETS = [
    "sm_90a",
    *(pytest.param(f"{name}a", marks=pytest.mark.slow) for name in ("sm_100", "sm_103", "sm_110", "sm_120")),
]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "tensor_cores" else []) for name in KERNEL_FILES]
)
@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_compiles(name, target):
    code = compile_kernels(name, target)
    used_by = [suite_named(suite) for suite in SUITE_NAMES if name in suite_named(suite).kernels]
    if used_by and not any(Arch.named(target[:-1]).has(suite.feature) for suite in used_by):
        return  # an empty file for an architecture without it
    declared = re.findall(r"__global__ void (?:__\w+__\([^)]*\)\s*)*(\w+)\(", kernel_source(name))
    kernels = [kernel for kernel in declared if kernel != "NAME"]
    if name == "tensor_cores":
        kernels = [
            opcode.replace(".", "_") for opcode, parts in opcodes().items() if "sm_90" in target or parts.row.warps == 1
        ]
    assert [kernel for kernel in kernels if kernel.encode() not in code] == []


def test_every_suite_names_files_that_exist():
    assert {name for suite in SUITE_NAMES for name in suite_named(suite).kernels} <= set(KERNEL_FILES)


def test_products_are_drawn_of_every_instruction_of_the_card():
    """Each row of the table with each of its types and accumulators, whatever B's type and the operation on bits are."""
    hopper = Arch.named("sm_90")
    written = {
        (parts.name.partition(".")[0], f"m{parts.mnk[0]}", f"k{parts.mnk[2]}", parts.types["D"], parts.types["A"])
        for parts in opcodes().values()
    }
    wanted = {
        (row.family, f"m{row.m}", f"k{row.k}", DataType.named(accumulator).ptx, DataType.named(name).ptx)
        for row in INSTRUCTIONS
        if hopper.has(row.feature)
        for name in row.types
        for accumulator in row.accumulators
    }
    assert written == wanted
    assert len(opcodes()) == 134


def test_the_kernels_number_operations_as_the_suites_do():
    listed = re.search(r"enum \{ (STORE.*?), OPERATIONS \}", kernel_source("copies"))[1].split(", ")
    assert [name.casefold() for name in listed] == ["store", *OPERATIONS[1:]]
    accesses = re.findall(
        r'DO\((\d+), "(ld|st)(matrix)?\S*?(x\d)?(\.trans)?(?:\.shared\S*)? ', kernel_source("accesses")
    )
    assert len(accesses) == sum(not row.is_copy for row in SMEM_OP.values())  # copies need a tensor to copy from
    for number, direction, matrix, count, transpose in accesses:
        name = list(SMEM_OP)[int(number)]
        assert name.startswith(f"{direction}{matrix}.{count}" if matrix else f"{direction}.b")
        assert name.endswith(".trans") == bool(transpose)
    forms = re.findall(r'DO\((\d+), \d, "([\w.]+)"( PACKED)?', kernel_source("tensor_memory"))
    assert [(int(number), form + "packed" * bool(packed)) for number, form, packed in forms] == list(enumerate(FORMS))
