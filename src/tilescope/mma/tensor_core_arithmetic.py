"""How tensor cores add, by architecture, instruction and type: one table.

No document says how an mma adds. Two papers do (arXiv 2511.10909 with the repository microsoft/MMA-Sim, and arXiv 2512.07004).
On an H200 every dense form of mma.sync, wgmma and wmma was run on operands of all kinds (subnormals, zeros, infinities, NaN); the
rows of sm_90 are what it answered, all bits equal. Where the papers differ the card is followed: nothing is aligned to a
product that is zero, and fp8 in mma.sync is done in f16. Rows of other architectures are the papers', with zeros as on sm_90.

    method          what happens
    aligned         products and C are aligned, cut to F fractional bits and added at once (see aligned_sum.py)
    in f16          fp8 becomes f16; two f16 products of half of k each, the first without C; then C is added and rounded
    fused float32   no tensor core: a chain of float32 fma, then C (mma.m8n8k4 of f16, since sm_80)
    fused float64   an fma of float64 for every k, one after the other, beginning with C
    exact           integers and bits

What comes out of the aligned sum is cut towards zero to float32 (of fp8 on sm_89 and in wgmma to 13 fractional bits), or
rounded to the nearest float16. A NaN is always the same, and no sum is -0.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple

from tilescope.arch import Arch
from tilescope.data_type import DataType
from tilescope.rule import Basis, rule

Method = Literal["aligned", "in f16", "fused float32", "fused float64", "exact"]
CutBits = Literal[13, 23]

MMA_ARITHMETIC = rule(
    "mma-arithmetic",
    "Accumulation is emulated for an instruction of the architecture, with a type that it multiplies.",
    argument="arch",
    found="{instruction} of {data_type} on {arch}",
    limit="{family} multiplies it on {known:, }",
    fix="Use {own}.",
    source="PTX ISA, mma, wgmma.mma_async and tcgen05.mma: target notes",
    passing='ts.emulate_mma(np.eye(64), np.eye(64), data_type="bf16", arch="sm_90")',
    failing='ts.emulate_mma(np.eye(64), np.eye(64), data_type="bf16", arch="sm_80")',
)
NO_SUCH_PRODUCT = MMA_ARITHMETIC.worded(
    argument="data_type", limit="{family} does not multiply that type", fix="Use bfloat16."
)


class Arithmetic(NamedTuple):
    """How one instruction adds the products of a type.

    >>> fp8 = arithmetic_of("sm_90", "wgmma", "e4m3")
    >>> fp8.method, fp8.fractional_bits, fp8.result_bits, fp8.basis
    ('aligned', 13, 13, 'measured')
    """

    method: Method
    fractional_bits: int = 0  # what aligning leaves of a product
    result_bits: CutBits = 23  # what cutting leaves of a float32 result
    step_k: int | None = None  # products added at once; None: all of an instruction
    term_elements: int = 1  # products added exactly before they are aligned
    basis: Basis = "documented"


class _Row(NamedTuple):
    """One row of the table: the instructions that it applies to, and how they accumulate."""

    instructions: tuple[str, ...]  # families, or one shape or kind of them
    architectures: tuple[str, ...]
    types: tuple[str, ...]
    arithmetic: Arithmetic


_MEASURED_ON = "sm_90"
_AMPERE = ("sm_80", "sm_86", "sm_89")
_DATACENTER = ("sm_100", "sm_103", "sm_110")
_SINCE_HOPPER = ("sm_90", *_DATACENTER, "sm_120")
_SINCE_AMPERE = (*_AMPERE, *_SINCE_HOPPER)
_HALVES = ("float16", "bfloat16")
_FP8 = ("e4m3", "e5m2")
_NARROW = (*_FP8, "e2m3", "e3m2", "e2m1", "16u4_align16b", "16u6_align16b")
_F25 = Arithmetic("aligned", 25)
_F13 = Arithmetic("aligned", 13, result_bits=13)
_F35_OF_16 = Arithmetic("aligned", 35, term_elements=16)

# Machine code shows the methods "in f16" and "fused float32": ptxas writes the same for sm_100 and sm_110 as for sm_90.
# It also shows that a wmma of tf32 is done by two mma of k = 4, on sm_80 to sm_120.
_ROWS = (
    _Row(("mma.m8n8k4",), _SINCE_AMPERE, ("float16",), Arithmetic("fused float32")),
    _Row(("mma", "wmma"), _AMPERE, _HALVES, Arithmetic("aligned", 24, step_k=8)),
    _Row(("mma", "wmma"), _AMPERE, ("tfloat32",), Arithmetic("aligned", 24, step_k=4)),
    _Row(("mma",), _SINCE_HOPPER, ("tfloat32",), _F25),
    _Row(("mma", "wmma"), _SINCE_HOPPER, _HALVES, _F25),
    _Row(("wmma",), _SINCE_HOPPER, ("tfloat32",), _F25._replace(step_k=4)),
    _Row(("mma",), ("sm_89",), _FP8, _F13._replace(step_k=16)),
    _Row(("mma",), ("sm_90", *_DATACENTER), _FP8, Arithmetic("in f16", 25)),
    _Row(("mma",), ("sm_120",), _NARROW, _F25),
    _Row(("mma.m16n8k64",), ("sm_120",), ("e2m1",), _F35_OF_16),
    _Row(("mma", "wmma"), _SINCE_AMPERE, ("float64",), Arithmetic("fused float64")),
    _Row(("mma", "wmma"), _SINCE_AMPERE, ("int8", "uint8", "int4", "uint4", "b1"), Arithmetic("exact")),
    _Row(("wgmma",), ("sm_90",), (*_HALVES, "tfloat32"), _F25),
    _Row(("wgmma",), ("sm_90",), _FP8, _F13),
    _Row(("wgmma",), ("sm_90",), ("int8", "uint8", "b1"), Arithmetic("exact")),
    _Row(("tcgen05",), _DATACENTER, (*_HALVES, "tfloat32", *_NARROW), _F25),
    _Row(("tcgen05.mxf4",), _DATACENTER, ("e2m1",), _F35_OF_16),
    _Row(("tcgen05.mxf4nvf4",), _DATACENTER, ("e2m1",), _F35_OF_16),
    _Row(("tcgen05",), ("sm_100", "sm_110"), ("int8", "uint8"), Arithmetic("exact")),
)


def arithmetic_of(arch: Any, instruction: str, data_type: Any) -> Arithmetic:
    """How an instruction adds: "mma", "wgmma", "wmma", "tcgen05", or one shape or kind: "mma.m8n8k4", "tcgen05.mxf4".

    >>> arithmetic_of("sm_80", "mma", "f16").step_k, arithmetic_of("sm_90", "mma", "f16").fractional_bits
    (8, 25)
    >>> arithmetic_of("sm_90", "mma.m16n8k32", "e4m3").method, arithmetic_of("sm_100", "tcgen05", "e4m3").basis
    ('in f16', 'documented')
    """
    return _named_arithmetic(Arch.named(arch).name, instruction, DataType.named(data_type).name)


@cache
def _named_arithmetic(arch: str, instruction: str, data_type: str) -> Arithmetic:
    """The row of one shape or kind, or else that of its family."""
    family = instruction.split(".", maxsplit=1)[0]
    for name in (instruction, family):
        for row in _ROWS:
            if name in row.instructions and arch in row.architectures and data_type in row.types:
                return row.arithmetic._replace(basis="measured" if arch == _MEASURED_ON else "documented")
    architectures: list[str] = []
    for row in _ROWS:
        if family in row.instructions and data_type in row.types:
            architectures.extend(name for name in row.architectures if name not in architectures)
    if not architectures:
        raise NO_SUCH_PRODUCT.error(instruction=instruction, data_type=data_type, arch=arch, family=family)
    raise MMA_ARITHMETIC.error(
        instruction=instruction,
        data_type=data_type,
        arch=arch,
        known=tuple(architectures),
        family=family,
        own=architectures[0],
    )
