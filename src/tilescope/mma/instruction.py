"""Which tensor-core instructions exist: shapes, the types each takes, and how many elements fill a register.

    mma.m16n8k16      a warp multiplies A (16 x 16) by B (16 x 8), all in registers
    wgmma.m64n128k16  a warpgroup of 4 warps; B, and A unless it is in registers, come from shared memory

`per_register` is what decides a fragment's arrangement (see fragment.py): how many neighbouring elements
along k one register holds: 2 of 16 bits, 4 of 8, 8 of 4, 32 of 1; and 1 where an element fills it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilescope.data_type import DataType
from tilescope.errors import RuleError, nearest_name, printed
from tilescope.rule import UNKNOWN_NAME, Rule, rule

WGMMA_M = 64
K_STEP_BYTES = 32  # what one dense wgmma or tcgen05.mma reads along k
WGMMA_TYPE = rule(
    "wgmma-type", "wgmma multiplies f16, bf16, tf32, e4m3, e5m2, s8, u8 and b1.", source="PTX ISA, wgmma.mma_async",
    architectures=("sm_90",), passing='ts.wgmma_descriptors((64, 64), "bf16")', failing='ts.wgmma_descriptors((64, 64), "f32")',
)  # fmt: skip
_EVERY_8 = tuple(range(8, 257, 8))
_INTEGER_N = (8, 16, 24, *range(32, 257, 16))


@dataclass(frozen=True, slots=True)
class Instruction:
    """A row of the table: one shape (n open for wgmma) with types that are arranged alike.

    >>> row = instructions("mma.m16n8k16")[0]
    >>> row.name, row.types, row.accumulators, row.per_register
    ('mma.m16n8k16', ('float16',), ('float16', 'float32'), 2)
    """

    family: str  # mma or wgmma
    m: int
    n: tuple[int, ...]
    k: int
    types: tuple[str, ...]  # of A and B
    per_register: int
    accumulators: tuple[str, ...]  # of C and D
    feature: str  # what an architecture must have (see arch.py)
    quad_pairs: bool = False  # the sm_70 form: four 8 x 8 x 4 products, each in two quads of lanes

    @property
    def name(self) -> str:
        """As users write it; n as a letter where there is a choice."""
        return f"{self.family}.m{self.m}n{self.n[0] if len(self.n) == 1 else 'N'}k{self.k}"

    @property
    def warps(self) -> int:
        """How many warps share the operands."""
        return 4 if self.family == "wgmma" else 1


def _mma(
    shape: str, types: str, per_register: int, accumulators: str, feature: str = "mma", **special: bool
) -> Instruction:
    m, n, k = _shape_of(shape)
    return Instruction("mma", m, (n,), k, _names(types), per_register, _names(accumulators), feature, **special)


def _wgmma(k: int, types: str, per_register: int, accumulators: str, n: tuple[int, ...]) -> Instruction:
    return Instruction("wgmma", WGMMA_M, n, k, _names(types), per_register, _names(accumulators), "wgmma")


def _names(types: str) -> tuple[str, ...]:
    return tuple(DataType.named(name).name for name in types.split())


def _shape_of(text: str) -> tuple[int, int, int]:
    found = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", text)
    assert found is not None
    return int(found[1]), int(found[2]), int(found[3])


# PTX ISA, "Matrix multiply-accumulate operation using mma" and "Asynchronous warpgroup level matrix
# instructions". e2m1, e2m3 and e3m2 of m16n8k32 lie in bytes of their own.
# fmt: off
INSTRUCTIONS = (
    #      shape         A, B              per register  C, D
    _mma("m8n8k4",    "f16",                   2, "f16 f32", quad_pairs=True),
    _mma("m8n8k4",    "f64",                   1, "f64"),
    _mma("m8n8k16",   "s8 u8",                 4, "s32"),
    _mma("m8n8k32",   "s4 u4",                 8, "s32"),
    _mma("m8n8k128",  "b1",                   32, "s32"),
    _mma("m16n8k4",   "tf32",                  1, "f32"),
    _mma("m16n8k4",   "f64",                   1, "f64",     "mma_f64_m16"),
    _mma("m16n8k8",   "f16",                   2, "f16 f32"),
    _mma("m16n8k8",   "bf16",                  2, "f32"),
    _mma("m16n8k8",   "tf32",                  1, "f32"),
    _mma("m16n8k8",   "f64",                   1, "f64",     "mma_f64_m16"),
    _mma("m16n8k16",  "f16",                   2, "f16 f32"),
    _mma("m16n8k16",  "bf16",                  2, "f32"),
    _mma("m16n8k16",  "s8 u8",                 4, "s32"),
    _mma("m16n8k16",  "e4m3 e5m2",             4, "f16 f32", "mma_fp8"),
    _mma("m16n8k16",  "f64",                   1, "f64",     "mma_f64_m16"),
    _mma("m16n8k32",  "s8 u8",                 4, "s32"),
    _mma("m16n8k32",  "e4m3 e5m2",             4, "f16 f32", "mma_fp8"),
    _mma("m16n8k32",  "e2m3 e3m2 e2m1",        4, "f16 f32", "mma_f8f6f4"),
    _mma("m16n8k32",  "s4 u4",                 8, "s32"),
    _mma("m16n8k64",  "s4 u4",                 8, "s32"),
    _mma("m16n8k64",  "e2m1",                  8, "f32",     "mma_f8f6f4"),
    _mma("m16n8k128", "b1",                   32, "s32"),
    _mma("m16n8k256", "b1",                   32, "s32"),
    _wgmma(8,         "tf32",                  1, "f32",     _EVERY_8),
    _wgmma(16,        "f16",                   2, "f16 f32", _EVERY_8),
    _wgmma(16,        "bf16",                  2, "f32",     _EVERY_8),
    _wgmma(32,        "e4m3 e5m2",             4, "f16 f32", _EVERY_8),
    _wgmma(32,        "s8 u8",                 4, "s32",     _INTEGER_N),
    _wgmma(256,       "b1",                   32, "s32",     _INTEGER_N),
)
# fmt: on


def instructions(name: str) -> tuple[Instruction, ...]:
    """The rows that `name` stands for, such as "mma.m16n8k16", "m64n128k16" or a whole PTX opcode.

    >>> [row.types for row in instructions("wgmma.m64n256k32")]
    [('e4m3', 'e5m2'), ('int8', 'uint8')]
    """
    found = re.search(r"\bm(\d{1,4})n(\d{1,4})k(\d{1,4})\b", name.casefold()) if isinstance(name, str) else None
    if found is not None:
        m, n, k = int(found[1]), int(found[2]), int(found[3])
        family = "wgmma" if m == WGMMA_M else "mma"
        prefix = name.strip().casefold()[: found.start()].rstrip(".").split(".")[0]
        rows = tuple(row for row in INSTRUCTIONS if (row.m, row.k) == (m, k) and n in row.n)
        if rows and prefix in ("", family):
            return rows
    known = list(dict.fromkeys(row.name for row in INSTRUCTIONS))
    nearest = nearest_name(name, known) if isinstance(name, str) else None
    raise UNKNOWN_NAME.error(
        "instruction", printed(name),
        f"there are {', '.join(known)} (N: 8 to 256 in eights; for s8, u8 and b1: 8, 16, 24, then 32 to 256 in sixteens), "
        "and ldmatrix, stmatrix .x1, .x2, .x4 with or without .trans",
        f"Use {(nearest or 'mma.m16n8k16').replace('N', '128')}.",
    )  # fmt: skip


def instruction_n(name: str) -> int:
    """The n in the name of an instruction that `instructions` knows."""
    found = re.search(r"n(\d+)k", name.casefold())
    assert found is not None
    return int(found[1])


def wgmma_for(data_type: object) -> Instruction:
    """The wgmma that multiplies this type.

    >>> wgmma_for("bf16").k, wgmma_for("s8").n[-2:]
    (16, (240, 256))
    """
    row = DataType.named(data_type)
    for instruction in INSTRUCTIONS:
        if instruction.family == "wgmma" and row.name in instruction.types:
            return instruction
    known = [name for instruction in INSTRUCTIONS if instruction.family == "wgmma" for name in instruction.types]
    raise no_such_type(WGMMA_TYPE, row, "wgmma", known)


def no_such_type(broken: Rule, row: DataType, instruction: str, known: list[str]) -> RuleError:
    """The error for a type that an instruction does not multiply, with one of as many bits as its fix."""
    fix = "Use tfloat32: its elements are float32 whose low 13 bits are ignored."
    if row.name != "float32":
        alike = [name for name in known if DataType.named(name).bits == row.bits]
        fix = f"Use {alike[0]}, of {row.bits} bits too." if alike else f"Use {known[0]}."
    return broken.error("data_type", row.name, f"{instruction} multiplies {', '.join(known)}", fix)
