"""Which instructions multiply matrices in registers: their shapes and types.

    mma.m16n8k16      a warp multiplies A (16 x 16) by B (16 x 8), all in registers
    wgmma.m64n128k16  a warpgroup of 4 warps; B, and A unless it is in registers, come from shared memory
    mma.sp.m16n8k32   A (16 x 32) is sparse: half of it is stored, and metadata E says where it belongs (see sparsity.py)
    wmma.m16n16k16    a warp multiplies A (16 x 16) by B (16 x 16): nvcuda::wmma of CUDA C++, one or two mma on the chip

`per_register` is what decides a fragment's arrangement (see fragment.py): how many neighbouring elements
along k one register holds: 2 of 16 bits, 4 of 8, 8 of 4, 32 of 1; and 1 where an element fills it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.names import nearest_name
from tilescope.reading import is_one_of, known_name
from tilescope.rule import UNKNOWN_NAME, Rule, rule
from tilescope.sentence import format_value

WGMMA_M = 64
K_STEP_BYTES = 32  # what one dense wgmma or tcgen05.mma reads along k

WGMMA_TYPE = rule(
    "wgmma-type",
    "wgmma multiplies f16, bf16, tf32, e4m3, e5m2, s8, u8 and b1.",
    argument="data_type",
    found="{data_type}",
    limit="{instruction} multiplies {known:, }",
    fix="Use one of them, such as {nearest}.",
    source="PTX ISA, wgmma.mma_async",
    architectures=("sm_90",),
    passing='ts.wgmma_descriptors((64, 64), "bf16")',
    failing='ts.wgmma_descriptors((64, 64), "f32")',
)
FRAGMENT_OPERAND = rule(
    "fragment-operand",
    "wgmma reads B from shared memory, so B has no fragment.",
    argument="operand",
    found="B of {instruction}",
    limit="wgmma reads B from shared memory, not from registers",
    fix="Use ts.wgmma_descriptors(…) for B.",
    source="PTX ISA, wgmma.mma_async",
    architectures=("sm_90",),
    passing='ts.fragment("wgmma.m64n128k16", "A", "bf16")',
    failing='ts.fragment("wgmma.m64n128k16", "B", "bf16")',
)
FRAGMENT_TYPE = rule(
    "fragment-type",
    "The data type of an operand is one that PTX lists for the instruction.",
    argument="data_type",
    found="{data_type} for operand {operand}",
    limit="operand {operand} of {instruction} is {known:, }",
    fix="Use {nearest}.",
    source="PTX ISA, mma, wgmma.mma_async and ldmatrix: types of the operands",
    passing='ts.fragment("mma.m16n8k16", "D", "f32")',
    failing='ts.fragment("mma.m16n8k16", "D", "bf16")',
)
ACCUMULATOR_TYPE = FRAGMENT_TYPE.worded(fix="Use {nearest}: pass the accumulator's type, not that of the inputs.")

Operand = Literal["A", "B", "C", "D", "E", "matrix", "tmem"]  # E: the metadata of a sparse A
_WARPS = {"mma": 1, "wgmma": 4, "mma.sp": 1, "wgmma.sp": 4, "wmma": 1}  # that share the operands
_IN_REGISTERS: dict[str, tuple[Operand, ...]] = {
    "mma": ("A", "B", "C", "D"),
    "wgmma": ("A", "C", "D"),
    "mma.sp": ("A", "B", "C", "D", "E"),
    "wgmma.sp": ("A", "C", "D", "E"),
    "wmma": ("A", "B", "C", "D"),
}
_EVERY_8 = tuple(range(8, 257, 8))
_INTEGER_N = (8, 16, 24, *range(32, 257, 16))


@dataclass(frozen=True, slots=True)
class Instruction:
    """A row of the table: one shape (n open for wgmma) with types that have the same fragments.

    >>> row = instructions("mma.m16n8k16")[0][0]
    >>> row.name, row.types, row.accumulators, row.per_register
    ('mma.m16n8k16', ('float16',), ('float16', 'float32'), 2)
    """

    family: str  # mma, wgmma, mma.sp, wgmma.sp or wmma
    warps: int  # that share the operands
    in_registers: tuple[Operand, ...]  # the operands in registers
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
    def is_sparse(self) -> bool:
        """Whether half of A is stored, with metadata."""
        return self.family.endswith(".sp")

    @property
    def a_k(self) -> int:
        """Elements of a row of A that are stored."""
        return self.k // 2 if self.is_sparse else self.k


def _row(
    name: str,
    types: str,
    per_register: int,
    accumulators: str,
    feature: str = "mma",
    *,
    n: tuple[int, ...] = (),
    quad_pairs: bool = False,
) -> Instruction:
    """A row of the table: "mma.m16n8k16", types by PTX's names; `n` if there is a choice."""
    family = name.rsplit(".", maxsplit=1)[0]
    extents = [int(extent) for extent in re.findall(r"\d+", name)]
    return Instruction(
        family=family,
        warps=_WARPS[family],
        in_registers=_IN_REGISTERS[family],
        m=extents[0],
        n=n or (extents[1],),
        k=extents[-1],
        types=tuple(DataType.named(data_type).name for data_type in types.split()),
        per_register=per_register,
        accumulators=tuple(DataType.named(data_type).name for data_type in accumulators.split()),
        feature=feature,
        quad_pairs=quad_pairs,
    )


# PTX ISA, "Matrix multiply-accumulate operation using mma" and "Asynchronous warpgroup level matrix
# instructions". e2m1, e2m3 and e3m2 of m16n8k32 are stored in one byte each.
# fmt: off
INSTRUCTIONS = (
    #    name              A, B    per register  C, D       feature
    _row("mma.m8n8k4",      "f16",              2, "f16 f32", quad_pairs=True),
    _row("mma.m8n8k4",      "f64",              1, "f64"),
    _row("mma.m8n8k16",     "s8 u8",            4, "s32"),
    _row("mma.m8n8k32",     "s4 u4",            8, "s32"),
    _row("mma.m8n8k128",    "b1",              32, "s32"),
    _row("mma.m16n8k4",     "tf32",             1, "f32"),
    _row("mma.m16n8k4",     "f64",              1, "f64",     "mma_f64_m16"),
    _row("mma.m16n8k8",     "f16",              2, "f16 f32"),
    _row("mma.m16n8k8",     "bf16",             2, "f32"),
    _row("mma.m16n8k8",     "tf32",             1, "f32"),
    _row("mma.m16n8k8",     "f64",              1, "f64",     "mma_f64_m16"),
    _row("mma.m16n8k16",    "f16",              2, "f16 f32"),
    _row("mma.m16n8k16",    "bf16",             2, "f32"),
    _row("mma.m16n8k16",    "s8 u8",            4, "s32"),
    _row("mma.m16n8k16",    "e4m3 e5m2",        4, "f16 f32", "mma_fp8"),
    _row("mma.m16n8k16",    "f64",              1, "f64",     "mma_f64_m16"),
    _row("mma.m16n8k32",    "s8 u8",            4, "s32"),
    _row("mma.m16n8k32",    "e4m3 e5m2",        4, "f16 f32", "mma_fp8"),
    _row("mma.m16n8k32",    "e2m3 e3m2 e2m1",   4, "f16 f32", "mma_f8f6f4"),
    _row("mma.m16n8k32",    "s4 u4",            8, "s32"),
    _row("mma.m16n8k64",    "s4 u4",            8, "s32"),
    _row("mma.m16n8k64",    "e2m1",             8, "f32",     "mma_f8f6f4"),
    _row("mma.m16n8k128",   "b1",              32, "s32"),
    _row("mma.m16n8k256",   "b1",              32, "s32"),
    _row("wgmma.m64nNk8",   "tf32",             1, "f32",     "wgmma", n=_EVERY_8),
    _row("wgmma.m64nNk16",  "f16",              2, "f16 f32", "wgmma", n=_EVERY_8),
    _row("wgmma.m64nNk16",  "bf16",             2, "f32",     "wgmma", n=_EVERY_8),
    _row("wgmma.m64nNk32",  "e4m3 e5m2",        4, "f16 f32", "wgmma", n=_EVERY_8),
    _row("wgmma.m64nNk32",  "s8 u8",            4, "s32",     "wgmma", n=_INTEGER_N),
    _row("wgmma.m64nNk256", "b1",              32, "s32",     "wgmma", n=_INTEGER_N),
)
# PTX ISA, "Matrix multiply-accumulate operation using mma.sp instruction with sparse matrix A" and "… using
# wgmma.mma_async.sp instruction"; k counts the elements of B.
SPARSE_INSTRUCTIONS = (
    #    name                  A, B       per register  C, D       feature
    _row("mma.sp.m16n8k8",      "tf32",             1, "f32"),
    _row("mma.sp.m16n8k16",     "f16",              2, "f16 f32"),
    _row("mma.sp.m16n8k16",     "bf16",             2, "f32"),
    _row("mma.sp.m16n8k16",     "tf32",             1, "f32"),
    _row("mma.sp.m16n8k32",     "f16",              2, "f16 f32"),
    _row("mma.sp.m16n8k32",     "bf16",             2, "f32"),
    _row("mma.sp.m16n8k32",     "s8 u8",            4, "s32"),
    _row("mma.sp.m16n8k64",     "s8 u8",            4, "s32"),
    _row("mma.sp.m16n8k64",     "e4m3 e5m2",        4, "f32",     "mma_fp8"),
    _row("mma.sp.m16n8k64",     "s4 u4",            8, "s32"),
    _row("mma.sp.m16n8k128",    "s4 u4",            8, "s32"),
    _row("wgmma.sp.m64nNk16",   "tf32",             1, "f32",     "wgmma", n=_EVERY_8),
    _row("wgmma.sp.m64nNk32",   "f16",              2, "f16 f32", "wgmma", n=_EVERY_8),
    _row("wgmma.sp.m64nNk32",   "bf16",             2, "f32",     "wgmma", n=_EVERY_8),
    _row("wgmma.sp.m64nNk64",   "e4m3 e5m2",        4, "f16 f32", "wgmma", n=_EVERY_8),
    _row("wgmma.sp.m64nNk64",   "s8 u8",            4, "s32",     "wgmma", n=_INTEGER_N),
)
# PTX ISA, "Matrix multiply-accumulate operation using wmma instructions".
WMMA_INSTRUCTIONS = (
    #    name                  A, B       per register  C, D
    _row("wmma.m16n16k16",      "f16",              2, "f16 f32"),
    _row("wmma.m32n8k16",       "f16",              2, "f16 f32"),
    _row("wmma.m8n32k16",       "f16",              2, "f16 f32"),
    _row("wmma.m16n16k16",      "bf16",             2, "f32"),
    _row("wmma.m32n8k16",       "bf16",             2, "f32"),
    _row("wmma.m8n32k16",       "bf16",             2, "f32"),
    _row("wmma.m16n16k16",      "s8 u8",            4, "s32"),
    _row("wmma.m32n8k16",       "s8 u8",            4, "s32"),
    _row("wmma.m8n32k16",       "s8 u8",            4, "s32"),
    _row("wmma.m16n16k8",       "tf32",             1, "f32"),
    _row("wmma.m8n8k4",         "f64",              1, "f64"),
    _row("wmma.m8n8k32",        "s4 u4",            8, "s32"),
    _row("wmma.m8n8k128",       "b1",              32, "s32"),
)
# fmt: on

_WGMMA = {name: row for row in INSTRUCTIONS if row.family == "wgmma" for name in row.types}


def instructions(name: str) -> tuple[tuple[Instruction, ...], int]:
    """The rows for `name`, such as "mma.m16n8k16", "m64n128k16" or a whole PTX opcode; and its n.

    >>> rows, n = instructions("wgmma.m64n256k32")
    >>> [row.types for row in rows], n
    ([('e4m3', 'e5m2'), ('int8', 'uint8')], 256)
    """
    written = name.strip().casefold() if isinstance(name, str) else ""
    shape = re.search(r"\bm(\d{1,4})n(\d{1,4})k(\d{1,4})\b", written)
    if shape:
        m, n, k = map(int, shape.groups())
        family = written[: shape.start()].rstrip(".").split(".")[0]
        if re.search(r"\.sp\b", written):
            family += ".sp"
        rows = tuple(row for row in _table(family) if (row.m, row.k) == (m, k) and n in row.n)
        if rows and family in ("", rows[0].family):
            return rows, n
    names = list(dict.fromkeys(row.name for row in (*INSTRUCTIONS, *SPARSE_INSTRUCTIONS, *WMMA_INSTRUCTIONS)))
    limit = (
        f"there are {', '.join(names)} (N: 8 to 256 in eights; for s8, u8 and b1: 8, 16, 24, then 32 to 256 in sixteens), "
        "ldmatrix, stmatrix .x1, .x2, .x4 with or without .trans, and tcgen05.ld, tcgen05.st such as tcgen05.ld.32x32b.x8"
    )
    nearest = nearest_name(written, [*names, "ldmatrix.x4", "tcgen05.ld.32x32b.x8"]) or "mma.m16n8k16"
    fix = f"Use {nearest.replace('N', '128')}."
    raise UNKNOWN_NAME.error(argument="instruction", found=format_value(name), limit=limit, fix=fix)


def _table(family: str) -> tuple[Instruction, ...]:
    """The rows among which those of a family are."""
    if family.endswith(".sp"):
        return SPARSE_INSTRUCTIONS
    return WMMA_INSTRUCTIONS if family == "wmma" else INSTRUCTIONS


def chosen_operand(instruction: str, operand: object, held: tuple[Operand, ...]) -> Operand:
    """The operand; an error if it is not in the registers of the instruction."""
    if is_one_of(operand, ("B",)) and "B" not in held and "A" in held:
        raise FRAGMENT_OPERAND.error(instruction=instruction)
    return known_name("operand", operand, held)


def chosen_type(instruction: str, operand: Operand, data_type: object, known: Iterable[str]) -> DataType:
    """The type; an error if the operand does not support it; None means the only one."""
    names = tuple(known)
    if data_type is None and len(names) == 1:
        return DataType.named(names[0])
    row = None if data_type is None else DataType.named(data_type)
    if row is not None and row.name in names:
        return row
    wording = FRAGMENT_TYPE.wording
    nearest = names[0]
    if row is not None and operand in ("C", "D"):
        wording = ACCUMULATOR_TYPE
        if _summed_in(row) in names:
            nearest = _summed_in(row)
    raise wording.error(
        data_type="no type" if row is None else row.name,
        operand=operand,
        instruction=instruction,
        known=names,
        nearest=nearest,
        change={"data_type": nearest},
    )


def _summed_in(data_type: DataType) -> str:
    """The type in which products of such inputs are summed."""
    if data_type.name == "float64":
        return "float64"
    return "float32" if data_type.is_float else "int32"


def wgmma_for(data_type: object) -> Instruction:
    """The wgmma that multiplies this type.

    >>> wgmma_for("bf16").k, wgmma_for("s8").n[-2:]
    (16, (240, 256))
    """
    row = DataType.named(data_type)
    if row.name not in _WGMMA:
        raise no_such_type(WGMMA_TYPE, row, "wgmma", list(_WGMMA))
    return _WGMMA[row.name]


def no_such_type(broken: Rule, row: DataType, instruction: str, known: list[str]) -> RuleError:
    """The error for a type that an instruction does not multiply, with one of as many bits as its fix."""
    alike = [name for name in known if DataType.named(name).bits == row.bits]
    if row.name == "float32":
        fix = "Use tfloat32: its elements are float32 whose low 13 bits are ignored."
    elif alike:
        fix = "Use {nearest}, of {bits} bits too."
    else:
        fix = WGMMA_TYPE.fix
    nearest = alike[0] if alike else known[0]
    wording = broken.worded(argument=WGMMA_TYPE.argument, found=WGMMA_TYPE.found, limit=WGMMA_TYPE.limit, fix=fix)
    return wording.error(
        data_type=row.name,
        bits=row.bits,
        instruction=instruction,
        known=tuple(known),
        nearest=nearest,
        change={"data_type": nearest},
    )
