"""Every cell of the three tables (architectures, data types, swizzles), held against the published ones.

A *law* takes a table and asserts something about it. The laws hold for our tables, and the last test
changes each cell in turn and sees some law broken.
"""

import dataclasses
from typing import get_args

import ml_dtypes
import numpy as np
import pytest

from tilescope.arch import ARCH, ArchName, Basis
from tilescope.data_type import DATA_TYPE, DataTypeName, TmaTypeName
from tilescope.swizzle import SWIZZLE, SwizzleName

# CUDA programming guide, table of compute capabilities; CUDA occupancy header, blocks per multiprocessor.
SHARED_MEMORY = """
sm_80    8.0   164 KB  166912 B  32 blocks
sm_86    8.6   100 KB  101376 B  16 blocks
sm_89    8.9   100 KB  101376 B  24 blocks
sm_90    9.0   228 KB  232448 B  32 blocks
sm_100  10.0   228 KB  232448 B  32 blocks
sm_103  10.3   228 KB  232448 B  32 blocks
sm_110  11.0   228 KB  232448 B  24 blocks
sm_120  12.0   100 KB  101376 B  24 blocks
"""

# What ptxas 13.0 assembles for TMA. 80 to 89 share a column, which has nothing.
TMA_INSTRUCTIONS = """
                      80/86/89  90     100    103    110    120
tma                   -         plain  plain  plain  plain  plain
multicast             -         plain  plain  plain  plain  plain
cta_group             -         -      a,f    a,f    a,f    -
gather4               -         -      plain  plain  plain  plain
gather4_cluster       -         -      a,f    a,f    a,f    -
scatter4              -         -      a,f    a,f    a,f    -
im2col_wide           -         -      plain  plain  plain  plain
im2col_wide_cluster   -         -      a,f    a,f    a,f    -
im2col_wide_128       -         -      a,f    a,f    a,f    -
tensormap_replace     -         a      a,f    a,f    a,f    a,f
packed_types          -         -      a,f    a,f    a,f    a,f
swizzle_atomicity     -         -      a,f    a,f    a,f    a,f
swizzle_96B           -         -      -      a      -      -
"""

# PTX ISA, restrictions of the packed types: a store of .b6p2x16 with rows of 48 bytes.
PACKED_RESTRICTIONS = """
                      80/86/89  90     100    103    110    120
half_row_16u6_store   -         -      -      a      -      -
"""

# The same for the instructions that read shared memory. Y: every target.
MATRIX_INSTRUCTIONS = """
             80  86  89  90     100    103    110    120
ldmatrix     Y   Y   Y   Y      Y      Y      Y      Y
ldmatrix_b8  -   -   -   -      a,f    a,f    a,f    a,f
stmatrix     -   -   -   plain  plain  plain  plain  plain
stmatrix_b8  -   -   -   -      a,f    a,f    a,f    a,f
mma          Y   Y   Y   Y      Y      Y      Y      Y
mma_fp8      -   -   Y   Y      Y      Y      Y      Y
mma_f8f6f4   -   -   -   -      -      -      -      a,f
mma_f64_m16  -   -   -   plain  plain  plain  plain  plain
wgmma        -   -   -   a      -      -      -      -
tcgen05      -   -   -   -      a,f    a,f    a,f    -
tcgen05_i8   -   -   -   -      a      -      a      -
tcgen05_k96  -   -   -   -      -      a      -      -
tcgen05_ld_red -  -   -   -      -      a,f    a,f    -
tcgen05_shift -  -   -   -      a      a      a      -
"""


def rows_of(text):
    return [line.split() for line in text.strip().splitlines()]


def shared_memory_is_the_guides(table):
    published = {}
    for name, capability, per_sm, _, per_block, _, blocks, _ in rows_of(SHARED_MEMORY):
        major, minor = capability.split(".")
        published[name] = (name, (int(major), int(minor)), int(per_sm) * 1024, int(per_block), int(blocks))
    ours = {
        key: (row.name, row.compute_capability, row.smem_per_sm_bytes, row.smem_per_block_bytes, row.blocks_per_sm)
        for key, row in table.items()
    }
    assert ours == published


def block_has_all_but_one_kib(table):
    assert all(row.smem_per_sm_bytes - row.smem_per_block_bytes == 1024 for row in table.values())


def only_hopper_was_measured(table):
    assert {row.name: row.basis for row in table.values() if row.basis != "documented"} == {"sm_90": "measured"}


def features_are_what_ptxas_takes(table):
    published = {name: {} for name in table}
    for text in (TMA_INSTRUCTIONS, PACKED_RESTRICTIONS, MATRIX_INSTRUCTIONS):
        columns, *rows = rows_of(text)
        for feature, *cells in rows:
            for column, cell in zip(columns, cells, strict=True):
                for number in column.split("/"):
                    published[f"sm_{number}"][feature] = "plain" if cell == "Y" else cell
    assert {name: dict(row.features) for name, row in table.items()} == published


ARCH_LAWS = (
    shared_memory_is_the_guides,
    block_has_all_but_one_kib,
    only_hopper_was_measured,
    features_are_what_ptxas_takes,
)

# cuda.h, CUtensorMapDataType; PTX ISA, "tensormap.replace", .elemtype; whether NaN may fill it.
DRIVER_TYPES = """
 0  UINT8           8  .u8          0  no
 1  UINT16         16  .u16         1  no
 2  UINT32         32  .u32         2  no
 3  INT32          32  .s32         3  no
 4  UINT64         64  .u64         4  no
 5  INT64          64  .s64         5  no
 6  FLOAT16        16  .f16         6  yes
 7  FLOAT32        32  .f32         7  yes
 8  FLOAT64        64  .f64         9  yes
 9  BFLOAT16       16  .bf16       10  yes
10  FLOAT32_FTZ    32  .f32.ftz     8  yes
11  TFLOAT32       32  .tf32       11  yes
12  TFLOAT32_FTZ   32  .tf32.ftz   12  yes
13  16U4_ALIGN8B    4  .b4x16      13  no
14  16U4_ALIGN16B   4  .b4x16_p64  14  no
15  16U6_ALIGN16B   6  .b6x16_p32  15  no
"""

# PTX ISA, "Sub-byte types": bytes of one group of sixteen values in global and in shared memory.
PACKED_GROUPS = """
16u4_align8b    8   8
16u4_align16b   8  16
16u6_align16b  12  16
"""

# CuTe, copy_sm90_desc.hpp, and the spellings of mma: what TMA has no type for, and as which it moves it.
OTHER_TYPES = """
int8    8  .s8     UINT8
int16  16  .s16    UINT16
e4m3    8  .e4m3   UINT8
e5m2    8  .e5m2   UINT8
ue8m0   8  .ue8m0  UINT8
e2m3    6  .e2m3   16U6_ALIGN16B
e3m2    6  .e3m2   16U6_ALIGN16B
e2m1    4  .e2m1   16U4_ALIGN8B
int4    4  .s4     16U4_ALIGN8B
uint4   4  .u4     16U4_ALIGN8B
b1      1  .b1     UINT8
"""

NUMPY_TYPES = {
    **{name: np.dtype(name) for name in ("uint8", "uint16", "uint32", "int32", "uint64", "int64", "int8", "int16")},
    **{name: np.dtype(name) for name in ("float16", "float32", "float64")},
    **dict.fromkeys(("float32_ftz", "tfloat32", "tfloat32_ftz"), np.dtype("float32")),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "ue8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "int4": np.dtype(ml_dtypes.int4),
    "uint4": np.dtype(ml_dtypes.uint4),
}


def driver_types_are_the_headers(table):
    published = {
        driver_name.lower(): (driver_name.lower(), int(bits), int(code), ptx[1:], int(ptx_code), is_float == "yes")
        for code, driver_name, bits, ptx, ptx_code, is_float in rows_of(DRIVER_TYPES)
    }
    ours = {
        key: (row.name, row.bits, row.driver_code, row.ptx, row.ptx_code, row.is_float)
        for key, row in table.items()
        if row.driver_code is not None
    }
    assert ours == published
    assert all(table[name].tma_name == name for name in published)


def other_types_travel_as_cute_moves_them(table):
    published = {
        name: (name, int(bits), ptx[1:], moved_as.lower(), None) for name, bits, ptx, moved_as in rows_of(OTHER_TYPES)
    }
    ours = {
        key: (row.name, row.bits, row.ptx, row.tma_name, row.ptx_code)
        for key, row in table.items()
        if row.driver_code is None
    }
    assert ours == published


def groups_of_sixteen_take_their_bytes(table):
    groups = {name: (int(gmem), int(smem)) for name, gmem, smem in rows_of(PACKED_GROUPS)}
    for row in table.values():
        bytes_of_sixteen = row.bits * 16 // 8, row.smem_bits * 16 // 8
        same = bytes_of_sixteen[0], bytes_of_sixteen[0]
        assert bytes_of_sixteen == groups.get(row.tma_name if row.name != "b1" else "", same), row.name


def array_types_are_as_wide(table):
    for row in table.values():
        if row.name not in NUMPY_TYPES:
            assert row.numpy_name is None, row.name
            continue
        assert row.numpy_name == NUMPY_TYPES[row.name].name
        assert row.numpy == NUMPY_TYPES[row.name]
        limits = ml_dtypes.finfo if row.is_float else ml_dtypes.iinfo
        assert limits(row.numpy).bits == row.bits, row.name


def arrays_hold_all_but_groups_and_bits(table):
    without = {row.name: row.is_float for row in table.values() if row.numpy_name is None}
    assert without == dict.fromkeys(["16u4_align8b", "16u4_align16b", "16u6_align16b", "b1"], False)


DATA_TYPE_LAWS = (
    driver_types_are_the_headers,
    other_types_travel_as_cute_moves_them,
    groups_of_sixteen_take_their_bytes,
    array_types_are_as_wide,
    arrays_hold_all_but_groups_and_bits,
)

# PTX ISA, "Swizzling Modes": the source chunk found at each (line, place). The tables with larger atoms
# write two or four chunks into one cell.
CHUNKS = {
    "none": ["01234567", "01234567"],
    "32B": ["01234567", "10325476"],
    "64B": ["01234567", "10325476", "23016745", "32107654"],
    "96B": ["01234567", "10325476"],
    "128B": [
        "01234567",
        "10325476",
        "23016745",
        "32107654",
        "45670123",
        "54761032",
        "67452301",
        "76543210",
    ],
    "128B_ATOM_32B": ["01 23 45 67", "23 01 67 45", "45 67 01 23", "67 45 23 01"],
    "128B_ATOM_32B_FLIP_8B": ["01 23 45 67", "23 01 67 45", "45 67 01 23", "67 45 23 01"],
    "128B_ATOM_64B": ["0123 4567", "4567 0123"],
}

# cuda.h, CUtensorMapSwizzle; PTX ISA, "tensormap.replace" (mode, atomicity), wgmma "Matrix Descriptor Format",
# tcgen05 "Shared memory descriptor"; CuTe's triple on byte addresses; the widest row of a box; where it repeats.
MODES = """
name                   driver  mode  atomicity  wgmma  tcgen05  B M S  span  repeats
none                        0     0          -      0        0  0 4 3     -      128
32B                         1     1          0      3        6  1 4 3    32      256
64B                         2     2          0      2        4  2 4 3    64      512
128B                        3     3          0      1        2  3 4 3   128     1024
128B_ATOM_32B               4     3          1      -        1  2 5 2   128      512
128B_ATOM_32B_FLIP_8B       5     3          2      -        -  2 5 2   128      512
128B_ATOM_64B               6     3          3      -        -  1 6 1   128      256
96B                         -     4          0      -        -  1 4 3    96      256
"""

# On which cards TMA has the mode, and where that was seen on one.
CARDS = {
    "none 32B 64B 128B": ("sm_90 sm_100 sm_103 sm_110 sm_120", "tma", "measured"),
    "128B_ATOM_32B 128B_ATOM_32B_FLIP_8B 128B_ATOM_64B": (
        "sm_100 sm_103 sm_110 sm_120",
        "swizzle_atomicity",
        "documented",
    ),
    "96B": ("sm_103", "swizzle_96B", "documented"),
}


def chunks_lie_as_in_the_ptx_tables(table):
    """Byte by byte, over two rounds of each table; the odd lines of the flip mode exchange 8-byte halves."""
    assert table.keys() == CHUNKS.keys()
    for name, lines in CHUNKS.items():
        expected = []
        for line, places in enumerate(lines * 2):
            for source in map(int, places.replace(" ", "")):
                chunk = np.arange(16) + line * 128 + source * 16
                expected.append(np.roll(chunk, 8) if "FLIP" in name and line % 2 else chunk)
        stored = np.concatenate(expected)
        places = np.arange(len(stored))
        wrong = np.flatnonzero(table[name].apply(stored) != places)
        assert wrong.size == 0, f"{name}: byte {places[wrong[0]]} does not come from {stored[wrong[0]]}"


def patterns_are_the_ptx_tables(table):
    for name, lines in CHUNKS.items():
        rows = tuple(tuple(map(int, line.replace(" ", ""))) for line in lines)
        assert table[name].pattern() == (rows[:1] if name == "none" else rows), name


def codes_and_spans_are_the_documents(table):
    published, ours = {}, {}
    for name, *cells in rows_of(MODES)[1:]:
        published[name] = [name, *(None if cell == "-" else int(cell) for cell in cells)]
    for key, row in table.items():
        codes = row.driver_code, row.ptx_mode, row.ptx_atomicity, row.wgmma_code, row.tcgen05_code
        ours[key] = [row.name, *codes, row.bits, row.base, row.shift, row.span_bytes, row.repeat_bytes]
    assert ours == published


def modes_are_on_their_cards(table):
    for names, (cards, feature, basis) in CARDS.items():
        for name in names.split():
            assert table[name].architectures == tuple(cards.split()), name
            assert (table[name].feature, table[name].basis) == (feature, basis), name


def one_mode_flips(table):
    assert {row.name: row.flip_bytes for row in table.values() if row.flip_bytes} == {"128B_ATOM_32B_FLIP_8B": 8}


SWIZZLE_LAWS = (
    chunks_lie_as_in_the_ptx_tables,
    patterns_are_the_ptx_tables,
    codes_and_spans_are_the_documents,
    modes_are_on_their_cards,
    one_mode_flips,
)

TABLES = {"arch": (ARCH, ARCH_LAWS), "data_type": (DATA_TYPE, DATA_TYPE_LAWS), "swizzle": (SWIZZLE, SWIZZLE_LAWS)}


@pytest.mark.parametrize(
    ("table", "law"),
    [pytest.param(table, law, id=law.__name__) for table, laws in TABLES.values() for law in laws],
)
def test_law_holds(table, law):
    law(table)


def literal_names(kind):
    return [name for each in get_args(kind) for name in (literal_names(each) if get_args(each) else [each])]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (ArchName, list(ARCH)),
        (SwizzleName, list(SWIZZLE)),
        (DataTypeName, list(DATA_TYPE)),
        (TmaTypeName, [row.name for row in DATA_TYPE.values() if row.driver_code is not None]),
        (Basis, sorted({row.basis for table in (ARCH, SWIZZLE) for row in table.values()}, reverse=True)),
    ],
    ids=["ArchName", "SwizzleName", "DataTypeName", "TmaTypeName", "Basis"],
)
def test_literal_type_names_the_rows_of_the_table(kind, names):
    assert literal_names(kind) == names


@pytest.mark.parametrize(
    ("enumeration", "prefix", "table"),
    [
        ("CUtensorMapDataType", "CU_TENSOR_MAP_DATA_TYPE_", DATA_TYPE),
        ("CUtensorMapSwizzle", "CU_TENSOR_MAP_SWIZZLE_", SWIZZLE),
    ],
)
def test_driver_codes_are_those_of_the_installed_bindings(enumeration, prefix, table):
    from cuda.bindings import driver

    theirs = {each.name: int(each) for each in getattr(driver, enumeration)}
    ours = {prefix + row.name.upper(): row.driver_code for row in table.values() if row.driver_code is not None}
    assert ours == theirs


def other_values(value, column):
    """What might stand in a cell by mistake: the numbers beside it, and whatever else its column holds."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value - 1, value + 1]
        case tuple():
            return [(*value[:place], value[place] + 1, *value[place + 1 :]) for place in range(len(value))]
        case None:
            return [0, *{each for each in column if each is not None}]
        case str():
            return [value + "x", *(set(column) - {value})]
    targets = {each for features in column for each in features.values()}  # a mapping: one cell for each feature
    return [
        {**value, feature: other} for feature, target in value.items() for other in (*(targets - {target}), None)
    ] + [{key: each for key, each in value.items() if key != feature} for feature in value]


def changed_tables(table):
    """The table once for each wrong value of each cell, once without each row, and what was changed."""
    for key, row in table.items():
        yield f"{key} left out", {name: each for name, each in table.items() if name != key}
        for field in dataclasses.fields(row):
            column = [getattr(each, field.name) for each in table.values()]
            for value in other_values(getattr(row, field.name), column):
                changed = dataclasses.replace(row, **{field.name: value})
                yield f"{key}.{field.name} = {value!r}", {**table, key: changed}


def notices(law, table):
    try:
        law(table)
    except Exception:  # noqa: BLE001  a test fails by whatever its code raises
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_each_changed_cell_breaks_a_law(name):
    table, laws = TABLES[name]
    unnoticed = [what for what, changed in changed_tables(table) if not any(notices(law, changed) for law in laws)]
    assert unnoticed == []
