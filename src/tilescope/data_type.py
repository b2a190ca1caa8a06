"""Element types: how many bits, what tools call them, and as what TMA moves them.

TMA has sixteen types. All others are copied as one of them:

    int8, e4m3, e5m2, ue8m0 ──▶ uint8             e2m3, e3m2 ──▶ 16u6_align16b
    int16                   ──▶ uint16            e2m1, int4 ──▶ 16u4_align8b

CUDA, CUTLASS, PyTorch and MLIR spell them in many ways, by a few rules (`_spellings`):

    __nv_bfloat16, cutlass::bfloat16_t, torch.bfloat16, BFloat16, CUDA_R_16BF          bfloat16
    __nv_fp8_e4m3, float_e4m3_t, torch.float8_e4m3fn, fp8_e4m3, f8E4M3FN, kFloat8_e4m3fn    e4m3

The driver and PTX number the same types differently (float64 is 8 here, 9 there): both are columns.
The packed types hold sixteen values in 8 or 12 global bytes; two of them spread out in shared memory:

    16u4_align8b    8 global bytes ──▶  8 shared bytes, dense
    16u4_align16b   8 global bytes ──▶ 16 shared bytes, 8 of data and 8 of padding
    16u6_align16b  12 global bytes ──▶ 16 shared bytes, 12 of data and 4 of padding
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from tilescope.errors import RuleError, unknown_name
from tilescope.rule import rule
from tilescope.sentence import shorten
from tilescope.value import Row

TmaTypeName = Literal[
    "uint8",
    "uint16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float32_ftz",
    "tfloat32",
    "tfloat32_ftz",
    "16u4_align8b",
    "16u4_align16b",
    "16u6_align16b",
]
DataTypeName = Literal[
    TmaTypeName, "int8", "int16", "e4m3", "e5m2", "ue8m0", "e2m3", "e3m2", "e2m1", "int4", "uint4", "b1"
]

ARRAY_TYPE = rule(
    "array-type",
    "The elements of an array have a type that TMA can copy, are little-endian, and have the packing that TMA expects.",
    argument="data_type",
    found="data type {data_type}",
    limit="no numpy or ml_dtypes type holds one such element",
    fix="Use uint8 for the packed bytes.",
    source="cuda.h, CUtensorMapDataType",
    basis="measured",
    subjects=("array",),
    passing="ts.TensorMap.from_array(np.zeros((128, 64), 'f2'), (64, 64))",
    failing="ts.TensorMap.from_array(np.zeros((128, 64), 'c8'), (64, 64))",
)
BIG_ENDIAN_TYPE = ARRAY_TYPE.worded(
    found="elements of {array_type}, big-endian",
    limit="a GPU reads its memory little-endian",
    fix='Use array.astype("<{plain_type}"), or array.view("u1") to move the bytes as they are.',
)
BLOCK_SCALED = rule(
    "block-scaled-type",
    "nvfp4, mxfp4, mxfp6 and mxfp8 are two tensors: elements, and a scale factor for every block of 16 or 32 of them.",
    argument="data_type",
    found="{format}, a format of two tensors",
    limit="{elements} elements, and a {scale} scale factor of 8 bits for every {block} of them",
    fix="Use {first} for the elements, and uint8 for the tensor of scale factors.",
    source="OCP Microscaling Formats (MX) Specification; PTX ISA, tcgen05.mma with block scaling",
    passing='ts.TensorMap("e2m1", (128, 64), (64,), (128, 8), arch="sm_100")',
    failing='ts.TensorMap("nvfp4", (128, 64), (64,), (128, 8), arch="sm_100")',
)


@dataclass(frozen=True, slots=True, eq=False)
class DataType(Row):
    """One element type.

    >>> bf16 = DataType.named("bf16")
    >>> bf16.name, bf16.bits, bf16.driver_code, bf16.ptx_code
    ('bfloat16', 16, 9, 10)
    >>> DataType.named("e4m3").tma.name
    'uint8'
    """

    name: str
    bits: int  # of one element in global memory
    smem_bits: int  # of one element in shared memory, padding shared out
    driver_code: int | None  # CUtensorMapDataType; None: TMA does not know it
    ptx: str  # the PTX spelling, without its dot
    ptx_code: int | None  # .elemtype of tensormap.replace
    numpy_name: str | None  # numpy or ml_dtypes; None: no array type holds it
    is_float: bool  # an integer type takes no NaN fill
    tma_name: str  # the driver's type that moves it

    @classmethod
    def named(cls, name: object) -> DataType:
        """The row called `name`: by the driver, PTX, C++, CUTLASS, MLIR, numpy, ml_dtypes or torch.

        A name, an array type (numpy's, ml_dtypes', torch's) or a row is taken; all else is refused.

        >>> import numpy
        >>> DataType.named(numpy.float32).name, DataType.named(".s8").name, DataType.named("cutlass::half_t").name
        ('float32', 'int8', 'float16')
        """
        if isinstance(name, DataType):
            return name
        row = _from_text(name) if isinstance(name, str) else _from_array_type(name)
        if row is None:
            raise _unknown(name)
        return row

    @classmethod
    def knows(cls, name: object) -> bool:
        """Whether `named` accepts this name.

        >>> DataType.knows("bf16"), DataType.knows("complex64")
        (True, False)
        """
        try:
            cls.named(name)
        except RuleError:
            return False
        return True

    @property
    def tma(self) -> DataType:
        """The driver's type that TMA uses for this one: itself for the driver's sixteen."""
        return DATA_TYPE[self.tma_name]

    @property
    def is_packed(self) -> bool:
        """Whether several elements share a byte."""
        return self.bits < 8

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type of one element; bfloat16 and the narrow floats come from ml_dtypes.

        >>> DataType.named("bf16").numpy.name, DataType.named("tf32").numpy.name
        ('bfloat16', 'float32')
        """
        if self.numpy_name is None:
            raise ARRAY_TYPE.error(data_type=self.name)
        try:
            return np.dtype(self.numpy_name)
        except TypeError:
            import ml_dtypes

            narrow: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.numpy_name))
            return narrow


def _from_text(name: str) -> DataType | None:
    """The row that a text names, exactly or by the tools' spelling rules."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    for spelling in _spellings(name[:_LONGEST_NAME]):
        if spelling in _BY_NAME:
            return _BY_NAME[spelling]
    return None


def _spellings(name: str) -> Iterator[str]:
    """What the table may call a type: without namespaces, prefixes and suffixes, then by its exponent or by its bits.

    >>> list(_spellings("cutlass::float_e4m3_t"))
    ['cutlass::float_e4m3_t', 'float_e4m3', 'e4m3']
    """
    spelling = " ".join(name.casefold().replace("*", " ").replace("const ", " ").split()).lstrip(".")
    yield spelling
    plain = re.split(r"::|\.(?!ftz)", spelling)[-1]
    plain = re.sub(r"^(?:cu_tensor_map_data_type_|(?:__)?nv_|__|k(?=[bfhiu]))|(?:_t|_x2|&)$", "", plain)
    yield re.sub(r"_t$", "", plain)
    by_exponent = re.fullmatch(r"(?:fp|float|f)?_?[468]?_?(u?e\dm\d)(?:fnu?)?(?:_t)?", plain)
    if by_exponent:
        exponent = by_exponent[1]
        yield "ue8m0" if exponent == "e8m0" else exponent
    in_cuda = re.fullmatch(r"cuda_r_(\d+)(b?f|i|u)(?:_(u?e\dm\d))?", plain)
    if in_cuda:
        bits, kind, exponent = in_cuda.groups()
        yield exponent or _CUDA_KINDS[kind] + bits
    by_bits = re.fullmatch(r"(u|ui|b|s|si|i)(?:nt)?(\d{1,2})b?", plain)
    if by_bits:
        kind, bits = by_bits.groups()
        sign = "u" if kind in ("u", "ui", "b") else "s"
        yield "b1" if bits == "1" else sign + bits


class _BlockFormat(NamedTuple):
    """A format of two tensors: its elements, the type of its scale factors, and how many elements share one."""

    elements: tuple[str, ...]
    scale: str
    block: int


_LONGEST_NAME = 200  # characters that are read
_CUDA_KINDS = {"f": "f", "bf": "bf", "i": "s", "u": "u"}  # of cudaDataType, as PTX begins them
_BLOCK_FORMATS = {
    "nvfp4": _BlockFormat(("e2m1",), "ue4m3", 16),
    "mxfp4": _BlockFormat(("e2m1",), "ue8m0", 32),
    "mxfp6": _BlockFormat(("e2m3", "e3m2"), "ue8m0", 32),
    "mxfp8": _BlockFormat(("e4m3", "e5m2"), "ue8m0", 32),
}


def elements_of_format(name: object) -> DataType | None:
    """The usual elements of a format with scale factors; None: `name` is not one.

    >>> elements_of_format("nvfp4").name, elements_of_format("MXFP8").name, elements_of_format("bf16")
    ('e2m1', 'e4m3', None)
    """
    block_format = _block_format(name)
    return None if block_format is None else DataType.named(block_format.elements[0])


def _block_format(name: object) -> _BlockFormat | None:
    text = name.casefold() if isinstance(name, str) else ""
    scaled = re.match(r"(?:\w*::|\w*\.)*(mx|nv)_?(?:fp|float|f)_?([468])", text)
    return _BLOCK_FORMATS.get(f"{scaled[1]}fp{scaled[2]}") if scaled else None


def _unknown(name: object) -> RuleError:
    """The error for a name of no type: of fp8, fp6 and fp4 with the types that it may mean, of a format with its two tensors."""
    text = name.casefold() if isinstance(name, str) else ""
    block_format = _block_format(name)
    if block_format is not None:
        first = block_format.elements[0]
        return BLOCK_SCALED.error(
            format=shorten(str(name), 60),
            elements=" or ".join(block_format.elements),
            scale=block_format.scale,
            block=block_format.block,
            first=first,
            change={"data_type": first},
        )
    floats = _floats_of_width(text)
    if floats:
        return RuleError([unknown_name("data type", "data_type", name, floats)])
    return RuleError([unknown_name("data type", "data_type", name, DATA_TYPE, _BY_NAME)])


def _floats_of_width(text: str) -> list[str]:
    """The narrow floats that "fp8", "float6" or "f4" may mean."""
    width = re.fullmatch(r"(?:torch\.)?(?:fp|float|f)([468])(?:_t)?", text)
    if width is None:
        return []
    return [row.name for row in DATA_TYPE.values() if row.bits == int(width[1]) and row.name.startswith("e")]


def _from_array_type(given: object) -> DataType | None:
    """The row of an array type: a numpy dtype, a numpy scalar type, a torch dtype, a scalar type of jax, or Python's own three.

    numpy makes a dtype out of far more (dictionaries, tuples, buffers); none of that is one element's type.
    """
    if type(given).__module__ == "torch":
        return _BY_NAME.get(str(given).removeprefix("torch."))
    if isinstance(given, type):
        if issubclass(given, np.generic):
            return _BY_NAME.get(given.__name__)
        if given in _PYTHON_TYPES:
            return DATA_TYPE[_PYTHON_TYPES[given]]
        given = getattr(given, "dtype", None)  # of jax.numpy.bfloat16, which is a class
    if not isinstance(given, np.dtype):
        return None
    if given.str.startswith(">"):
        raise BIG_ENDIAN_TYPE.error(array_type=given.str, plain_type=given.str[1:])
    return _BY_NAME.get(given.name)


_PYTHON_TYPES: dict[type, str] = {bool: "uint8", int: "int64", float: "float64"}  # as numpy makes arrays of them


# fmt: off
DATA_TYPE: dict[str, DataType] = {row.name: row for row in (
    #         name          bits smem driver ptx        ptx numpy               float  moved as
    DataType("uint8",          8,   8,    0, "u8",         0, "uint8",           False, "uint8"),
    DataType("uint16",        16,  16,    1, "u16",        1, "uint16",          False, "uint16"),
    DataType("uint32",        32,  32,    2, "u32",        2, "uint32",          False, "uint32"),
    DataType("int32",         32,  32,    3, "s32",        3, "int32",           False, "int32"),
    DataType("uint64",        64,  64,    4, "u64",        4, "uint64",          False, "uint64"),
    DataType("int64",         64,  64,    5, "s64",        5, "int64",           False, "int64"),
    DataType("float16",       16,  16,    6, "f16",        6, "float16",         True,  "float16"),
    DataType("float32",       32,  32,    7, "f32",        7, "float32",         True,  "float32"),
    DataType("float64",       64,  64,    8, "f64",        9, "float64",         True,  "float64"),
    DataType("bfloat16",      16,  16,    9, "bf16",      10, "bfloat16",        True,  "bfloat16"),
    DataType("float32_ftz",   32,  32,   10, "f32.ftz",    8, "float32",         True,  "float32_ftz"),
    DataType("tfloat32",      32,  32,   11, "tf32",      11, "float32",         True,  "tfloat32"),
    DataType("tfloat32_ftz",  32,  32,   12, "tf32.ftz",  12, "float32",         True,  "tfloat32_ftz"),
    DataType("16u4_align8b",   4,   4,   13, "b4x16",     13, None,              False, "16u4_align8b"),
    DataType("16u4_align16b",  4,   8,   14, "b4x16_p64", 14, None,              False, "16u4_align16b"),
    DataType("16u6_align16b",  6,   8,   15, "b6x16_p32", 15, None,              False, "16u6_align16b"),
    DataType("int8",           8,   8, None, "s8",      None, "int8",            False, "uint8"),
    DataType("int16",         16,  16, None, "s16",     None, "int16",           False, "uint16"),
    DataType("e4m3",           8,   8, None, "e4m3",    None, "float8_e4m3fn",   True,  "uint8"),
    DataType("e5m2",           8,   8, None, "e5m2",    None, "float8_e5m2",     True,  "uint8"),
    DataType("ue8m0",          8,   8, None, "ue8m0",   None, "float8_e8m0fnu",  True,  "uint8"),
    DataType("e2m3",           6,   8, None, "e2m3",    None, "float6_e2m3fn",   True,  "16u6_align16b"),
    DataType("e3m2",           6,   8, None, "e3m2",    None, "float6_e3m2fn",   True,  "16u6_align16b"),
    DataType("e2m1",           4,   4, None, "e2m1",    None, "float4_e2m1fn",   True,  "16u4_align8b"),
    DataType("int4",           4,   4, None, "s4",      None, "int4",            False, "16u4_align8b"),
    DataType("uint4",          4,   4, None, "u4",      None, "uint4",           False, "16u4_align8b"),
    DataType("b1",             1,   1, None, "b1",      None, None,              False, "uint8"),
)}
# fmt: on

_ALIASES = {
    "float16": ("half", "fp16"),
    "float32": ("float", "fp32"),
    "float64": ("double", "fp64"),
    "tfloat32": ("tf32",),
    "b1": ("bin1",),
    "uint8": ("bool", "unsigned char", "uchar", "byte", "ue4m3"),
    "int8": ("char", "signed char"),
    "int16": ("short",),
    "int32": ("int",),
    "uint16": ("unsigned short", "ushort"),
    "uint32": ("unsigned", "unsigned int"),
    "int64": ("long", "long long", "longlong"),
    "uint64": ("unsigned long long", "unsigned long", "ulonglong", "size"),
    "16u4_align16b": ("float_e2m1_unpacksmem", "type_erased_dynamic_float4_unpacksmem"),
    "16u6_align16b": (
        "float_e2m3_unpacksmem",
        "float_e3m2_unpacksmem",
        "type_erased_dynamic_float6_unpacksmem",
        "b6p2x16",  # what a store of the type is called
    ),
}
_BY_NAME: dict[str, DataType] = (
    {row.numpy_name: row for row in reversed(DATA_TYPE.values()) if row.numpy_name}
    | {row.ptx: row for row in DATA_TYPE.values()}
    | {alias: DATA_TYPE[name] for name, aliases in _ALIASES.items() for alias in aliases}
    | DATA_TYPE
)
