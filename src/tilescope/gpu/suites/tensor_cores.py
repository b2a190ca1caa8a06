"""wgmma, tcgen05: the shared addresses that the tensor core reads for random 64-bit descriptors. fragments: its registers.

ldmatrix: registers after ldmatrix, shared memory after stmatrix. tensor_memory: the same of tcgen05.ld and .st.

Addresses: one operand is under test, the other is the unit matrix, so the product shows what was read. Shared memory holds
the four digits of every element's own number, one after the other: four products tell which element came from where.

Registers: every mma.sync, and every wgmma with A in registers, multiplies small integers.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import Arch
from tilescope.data_type import DataType
from tilescope.gpu.device import Device
from tilescope.gpu.suites import UNTOUCHED, Array, Case, Piece, Result, Suite, memory, pool, splitmix_bytes
from tilescope.gpu.suites.maps import drawn_place
from tilescope.layout import Major
from tilescope.mma.descriptor import Tcgen05Descriptor, WgmmaDescriptor
from tilescope.mma.fragment import fragment
from tilescope.mma.instruction import INSTRUCTIONS, K_STEP_BYTES, Instruction, Operand
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.ldmatrix import ldmatrix, stmatrix
from tilescope.mma.tcgen05_kind import KINDS
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_form import named_move
from tilescope.tma.elements import packed


class _Core(NamedTuple):
    """A tensor core that reads operands through descriptors."""

    descriptor: type[WgmmaDescriptor] | type[Tcgen05Descriptor]
    rows: dict[str, int]  # of an operand: m of A, n of B
    swizzles: tuple[str, ...]
    mn_types: tuple[str, ...]  # that it takes MN-major


_FLOAT_TYPES = ("bf16", "f16", "tf32", "e4m3", "e5m2")
_TYPES = (*_FLOAT_TYPES, "s8", "u8")
_CORES = {
    "wgmma": _Core(WgmmaDescriptor, {"A": 64, "B": 64}, ("none", "32B", "64B", "128B"), ("bf16", "f16")),
    "tcgen05": _Core(Tcgen05Descriptor, {"A": 128, "B": 64}, ("none", "32B", "64B", "128B", "128B_ATOM_32B"), _TYPES),
}
_TCGEN05_KINDS = ("f16", "tf32", "f8f6f4", "i8")  # as kernels/tensor_memory.cu numbers them
_READ_BYTES = 1 << 16  # shared memory that a descriptor may point into
_PASSES = 4
_DIGITS = 16
_STRANGE = 0xFFFF  # where the card gave no digit at all


def _draw_descriptor(random: random.Random, arch: str) -> Case | None:
    card = Arch.named(arch)
    name = next(name for name in _CORES if card.has(name))
    core = _CORES[name]
    has_integers = not card.has("tcgen05") or card.has("tcgen05_i8")
    data_type = random.choice(_TYPES if has_integers else _FLOAT_TYPES)
    operand = random.choice("AB")
    major = random.choice(("K", "MN")) if data_type in core.mn_types else "K"
    swizzle = random.choice(core.swizzles)
    case: Case = {
        "core": name,
        "data_type": data_type,
        "operand": operand,
        "major": major,
        "swizzle": swizzle,
        "start_address": 16 * random.randrange(1 << random.randint(0, 12)),
        "leading_bytes": 16 * random.randrange(1 << random.randint(1, 11)),
        "stride_bytes": 16 * random.randrange(1 << random.randint(1, 10)),
        "base_offset": random.choice((0, 0, 0, random.randrange(8))) if swizzle != "none" else 0,
    }
    if (swizzle == "128B_ATOM_32B") != (data_type == "tf32" and major == "MN"):
        return None  # MN-major 32-bit elements lie in atoms of 32 bytes, and nothing else does
    addresses = _addresses(case)
    return case if addresses.min() >= 0 and addresses.max() < _READ_BYTES else None


def _core(case: Case) -> _Core:
    return _CORES[case.get("core", "wgmma")]  # captures of Hopper cards may not say


def _k(row: DataType) -> int:
    return K_STEP_BYTES * 8 // row.bits


def _descriptor(case: Case) -> WgmmaDescriptor | Tcgen05Descriptor:
    return _core(case).descriptor(
        case["start_address"],
        leading_bytes=case["leading_bytes"],
        stride_bytes=case["stride_bytes"],
        swizzle=case["swizzle"],
        base_offset=case["base_offset"],
    )


def _addresses(case: Case) -> npt.NDArray[np.int64]:
    row = DataType.named(case["data_type"])
    rows = _core(case).rows[case["operand"]]
    return _descriptor(case).addresses(major=case["major"], rows=rows, k=_k(row), element_bits=row.bits)


def _predict_addresses(case: Case) -> list[Piece]:
    addresses = _addresses(case).astype("<u2")
    row = "m" if case["operand"] == "A" else "n"
    words = f"address read at {row} = {{}}, k = {{}}"
    return [Piece(words, np.ascontiguousarray(addresses), addresses.shape[1])]


def _addresses_kernel(case: Case) -> str:
    is_mn_major = case["major"] == "MN"
    a_is_mn = int(is_mn_major and case["operand"] == "A")
    b_is_mn = int(is_mn_major and case["operand"] == "B")
    return f"addresses_{case['data_type']}_{a_is_mn}{b_is_mn}"


def _run_descriptors(device: Device, cases: list[Case]) -> Iterator[list[Array]]:
    """The address of every element that was read, from the digits in four products with the unit matrix."""
    core = _core(cases[0])
    row = DataType.named(cases[0]["data_type"])
    k = _k(row)
    known = _digits(row)
    is_wgmma = core is _CORES["wgmma"]
    unit = _core_matrices(np.eye(core.rows["A"], k).astype(row.numpy))
    descriptors = np.array([_descriptor(case).encode() for case in cases], np.uint64)
    of_b = np.array([case["operand"] == "B" for case in cases], np.int32)
    kernel = f"tensor_cores:{_addresses_kernel(cases[0])}" if is_wgmma else "tensor_memory:operand_addresses"
    instructions = () if is_wgmma else _instructions(row, cases)
    products = np.empty((len(cases), _PASSES, 128, 32 if is_wgmma else 64), "<f4" if row.is_float else "<i4")
    device.launch(
        kernel,
        descriptors,
        of_b,
        *instructions,
        known,
        unit,
        unit.size,
        out=[products],
        blocks=len(cases),
        threads=128,
        smem_bytes=_READ_BYTES + unit.size,
    )
    if is_wgmma:  # whose accumulators lie in registers
        held = fragment(f"wgmma.m64n64k{k}", "D", "f32" if row.is_float else "s32")
        products = np.array([[held.collect(words) for words in passes] for passes in products])
    for case, matrix in zip(cases, products, strict=True):
        read = matrix[:, :, :k] if case["operand"] == "A" else matrix[:, :k, :].transpose(0, 2, 1)
        digit = np.searchsorted(known.astype(np.float64), read).clip(0, _DIGITS - 1)
        element = (digit << (4 * np.arange(_PASSES))[:, None, None]).sum(axis=0)
        strange = (known.astype(np.float64)[digit] != read).any(axis=0)
        yield [np.ascontiguousarray(np.where(strange, _STRANGE, element * (row.bits // 8)).astype("<u2"))]


def _instructions(row: DataType, cases: list[Case]) -> tuple[Array, int, int]:
    """What tcgen05.mma is told beside descriptors: its instruction descriptors, its kind, and the bytes of an element."""
    kind = next(kind for kind in _TCGEN05_KINDS if row.name in KINDS[kind].codes)
    words = []
    for case in cases:
        a_major: Major = case["major"] if case["operand"] == "A" else "K"
        b_major: Major = case["major"] if case["operand"] == "B" else "K"
        described = InstructionDescriptor(kind, 128, 64, a_type=row.name, a_major=a_major, b_major=b_major)
        words.append(described.encode())
    return np.array(words, np.uint32), _TCGEN05_KINDS.index(kind), row.bits // 8


def _digits(row: DataType) -> Array:
    """Sixteen numbers that the type holds exactly, ascending: 0 to 15, or quarters for the type with two digits."""
    if row.name == "e5m2":
        return np.arange(0x3C, 0x3C + _DIGITS, dtype=np.uint8).view(row.numpy)  # 1, 1.25, 1.5, 1.75, 2, 2.5, …
    return np.arange(_DIGITS).astype(row.numpy)


def _core_matrices(matrix: Array) -> npt.NDArray[np.uint8]:
    """Rows of 32 bytes as core matrices of 8 rows by 16 bytes, LBO 128, SBO 256: K-major without swizzle."""
    rows = np.ascontiguousarray(matrix).view(np.uint8).reshape(-1, 8, 2, 16)
    return np.ascontiguousarray(rows.transpose(0, 2, 1, 3)).reshape(-1)


WGMMA = Suite(
    "wgmma",
    _draw_descriptor,
    _predict_addresses,
    _run_descriptors,
    kernels=("tensor_cores",),
    kind=_addresses_kernel,
    feature="wgmma",
)
TCGEN05 = replace(WGMMA, name="tcgen05", feature="tcgen05", kernels=("tensor_memory",), together=100)

# Integers that a type holds exactly, and whose sums of products every accumulator holds
_SMALL = (-4, 4)
_SUMMANDS = (-64, 64)
_RANGE = {"b1": (0, 1), "u8": (0, 7), "u4": (0, 15), "s4": (-8, 7)}
_ORDERS = ("row.col", "row.row", "col.row", "col.col")
_WGMMA_N = (8, 24, 64, 256)  # the narrowest, an odd, a usual and the widest


class _Opcode(NamedTuple):
    """An instruction of PTX: its row, its name for `fragment`, m, n and k, and the types of its operands by their PTX names."""

    row: Instruction
    name: str
    mnk: tuple[int, int, int]
    types: dict[str, str]
    counted: str  # what is counted where the operands are bits

    def numbers(self, seed: int) -> list[npt.NDArray[np.int64]]:
        """A, B and C: random integers, four of each where quads of lanes multiply on their own."""
        m, n, k = self.mnk
        return [
            self._matrices(seed, (m, k), _RANGE.get(self.types["A"], _SMALL)),
            self._matrices(seed + 1, (k, n), _RANGE.get(self.types["B"], _SMALL)),
            self._matrices(seed + 2, (m, n), _SUMMANDS),
        ]

    def _matrices(self, seed: int, shape: tuple[int, int], limits: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Random integers between two limits, both included."""
        count = 4 if self.row.quad_pairs else 1
        low, high = limits
        words = splitmix_bytes(seed, 2 * count * shape[0] * shape[1]).view("<u2").astype(np.int64)
        return (low + words % (high - low + 1)).reshape(count, *shape)

    def words(self, operand: Operand, matrices: npt.NDArray[np.int64]) -> Array:
        """(threads, registers) words of an operand."""
        held = fragment(self.name, operand, self.types[operand])
        return _stored(held.distribute(matrices if held.matrices > 1 else matrices[0]), held.data_type).view("<u4")

    def b_operand(self, matrices: npt.NDArray[np.int64]) -> Array:
        """B: words of registers, or for wgmma the bytes of shared memory, rows of n with 32 bytes along k."""
        if self.row.warps == 1:
            return self.words("B", matrices)
        return _core_matrices(_stored(matrices[0].T, DataType.named(self.types["B"])))


def _stored(numbers: Array, row: DataType) -> Array:
    """Integers as the bytes of a type; those of fewer than 8 bits lie side by side."""
    if row.bits < 8:
        return packed(numbers.astype(np.int8), row.bits)
    return np.ascontiguousarray(numbers.astype(row.numpy)).view(np.uint8)


@cache
def opcodes() -> dict[str, _Opcode]:
    """Every instruction of Hopper's mma.sync and wgmma: what kernels/tensor_cores.cu multiplies with.

    >>> "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" in opcodes()
    True
    """
    made = {}
    for row in INSTRUCTIONS:
        if not Arch.named("sm_90").has(row.feature):
            continue
        types = [DataType.named(name).ptx for name in row.types]
        sums = [DataType.named(name).ptx for name in row.accumulators]
        counts: tuple[str, ...] = ("xor.popc", "and.popc") if types == ["b1"] else ("",)
        ns: Sequence[int]
        orders: tuple[str, ...]
        if row.warps > 1:
            start = "wgmma.mma_async.sync.aligned"
            ns = _WGMMA_N
            orders = ("",)
            counts = counts[-1:]
        else:
            start = "mma.sync.aligned"
            ns = row.n
            orders = _ORDERS if row.quad_pairs else _ORDERS[:1]
        for n, order, d, a, b, count in product(ns, orders, sums, types, types, counts):
            shape = f"m{row.m}n{n}k{row.k}"
            c = "" if row.warps > 1 else d
            name = ".".join(filter(None, (row.family, shape, order)))
            opcode = ".".join(filter(None, (start, shape, order, d, a, b, c, count)))
            made[opcode] = _Opcode(row, name, (row.m, n, row.k), {"A": a, "B": b, "D": d}, count)
    return made


def _draw_opcode(random: random.Random, arch: str) -> Case:
    has = Arch.named(arch).has
    known = [name for name, opcode in opcodes().items() if opcode.row.warps == 1 or has(opcode.row.feature)]
    return {"opcode": random.choice(known), "seed": random.randrange(1 << 31)}


def _predict_sums(case: Case) -> list[Piece]:
    """D: the product of bits counts those that both have (and), or that differ (xor)."""
    opcode = opcodes()[case["opcode"]]
    a, b, c = opcode.numbers(case["seed"])
    products = (a[..., None] != b[:, None]).sum(axis=2) if opcode.counted == "xor.popc" else a @ b
    words = opcode.words("D", c + products)
    return [Piece("thread {}, register {}", words, words.shape[1])]


def _run_products(device: Device, cases: list[Case]) -> Iterable[Result]:
    opcode = opcodes()[cases[0]["opcode"]]
    numbers = (opcode.numbers(case["seed"]) for case in cases)
    operands = [(opcode.words("A", a), opcode.b_operand(b), opcode.words("D", c)) for a, b, c in numbers]
    a = np.stack([words for words, _, _ in operands])
    b = np.stack([words for _, words, _ in operands])
    d = np.stack([words for _, _, words in operands])
    kernel = cases[0]["opcode"].replace(".", "_")
    device.launch(
        f"tensor_cores:{kernel}",
        a,
        b,
        b[0].nbytes,
        out=[d],
        blocks=len(cases),
        threads=32 * opcode.row.warps,
        smem_bytes=b[0].nbytes,
    )
    return ([words] for words in d)


FRAGMENTS = Suite(
    "fragments",
    _draw_opcode,
    _predict_sums,
    _run_products,
    kernels=("tensor_cores",),
    kind=lambda case: str(case["opcode"]),
    feature="mma",
)

_SMEM_BYTES = 8192
_ROW_BYTES = 16
_COUNTS = (1, 2, 4)
_REGISTERS = 4  # of a lane, at most


def _draw_matrices(random: random.Random, _arch: str) -> Case:
    """32 rows: anywhere for ldmatrix, no two the same for stmatrix."""
    direction = random.choice(("ldmatrix", "stmatrix"))
    places = range(_SMEM_BYTES // _ROW_BYTES)
    chosen = random.choices(places, k=32) if direction == "ldmatrix" else random.sample(places, 32)
    return {
        "direction": direction,
        "count": random.choice(_COUNTS),
        "transpose": random.random() < 0.5,
        "rows": [place * _ROW_BYTES for place in chosen],
        "registers": 512 * random.randrange(1000),
    }


def _before(case: Case, registers: int) -> Array:
    """What the registers of a warp hold before."""
    return pool()[case["registers"] :][: 4 * 32 * registers].view("<u4").reshape(32, registers)


def _predict_matrices(case: Case) -> list[Piece]:
    count = case["count"]
    transpose = case["transpose"]
    if case["direction"] == "ldmatrix":
        registers = np.zeros((32, _REGISTERS), "<u4")
        registers[:, :count] = ldmatrix(pool()[:_SMEM_BYTES], case["rows"], count=count, transpose=transpose)
        return [Piece("lane {}, register {}", registers, _REGISTERS)]
    smem = np.full(_SMEM_BYTES, UNTOUCHED, np.uint8)
    stmatrix(_before(case, _REGISTERS)[:, :count], smem, case["rows"], transpose=transpose)
    return [memory("shared memory", smem)]


def _run_matrices(device: Device, cases: list[Case]) -> Iterable[Result]:
    registers = np.stack([_before(case, _REGISTERS) for case in cases])
    images = np.empty((len(cases), _SMEM_BYTES), np.uint8)
    device.launch(
        "matrices:matrices",
        np.array([_matrices_operation(case) for case in cases], np.int32),
        np.array([case["rows"] for case in cases], np.int32),
        pool(),
        _SMEM_BYTES,
        out=(registers, images),
        blocks=len(cases),
        threads=32,
        smem_bytes=_SMEM_BYTES,
    )
    for case, words, image in zip(cases, registers, images, strict=True):
        yield [words if case["direction"] == "ldmatrix" else image]


def _matrices_operation(case: Case) -> int:
    """As kernels/matrices.cu numbers them: three counts, as they are and transposed, of ldmatrix and of stmatrix."""
    number = _COUNTS.index(case["count"])
    if case["transpose"]:
        number += len(_COUNTS)
    if case["direction"] == "stmatrix":
        number += 2 * len(_COUNTS)
    return number


LDMATRIX = Suite(
    "ldmatrix", _draw_matrices, _predict_matrices, _run_matrices, kernels=("matrices",), feature="stmatrix"
)

# as kernels/tensor_memory.cu numbers them
FORMS = (
    "32x32b.x1",
    "32x32b.x2",
    "32x32b.x8",
    "16x64b.x1",
    "16x64b.x4",
    "16x128b.x1",
    "16x128b.x4",
    "16x256b.x1",
    "16x256b.x2",
    "16x32bx2.x1",
    "16x32bx2.x4",
    "32x32b.x2.packed",
    "16x64b.x4.packed",
    "16x256b.x2.packed",
)
_COLUMNS = 128  # that a block allocates
_LANES = 128
_MOVED_REGISTERS = 8  # of a thread, at most
_SPLIT = 16  # columns to the second half of .16x32bx2
_PACKED = {"ld": "pack::16b", "st": "unpack::16b"}


def _draw_move(random: random.Random, _arch: str) -> Case:
    """A form at any column that it fits at; forms of 16 lanes in either half of the warp's quarter."""
    form = random.choice(FORMS)
    warp = random.randrange(4)
    direction = random.choice(("ld", "st"))
    move = named_move(_opcode(direction, form))
    reach = move.columns + (_SPLIT if move.form.places > 1 else 0)
    lane = 32 * warp
    if move.form.lanes == 16 and move.form.places == 1:
        lane += 16 * random.randrange(2)
    return {
        "direction": direction,
        "form": form,
        "warp": warp,
        "lane": lane,
        "column": random.randrange(_COLUMNS - reach + 1),
        "registers": drawn_place(random),
    }


def _opcode(direction: str, form: str) -> str:
    return f"tcgen05.{direction}.{form.replace('packed', _PACKED[direction])}"


def _cells() -> Array:
    """What the cells hold before."""
    return pool()[: 4 * _LANES * _COLUMNS].view("<u4").reshape(_LANES, _COLUMNS)


def _predict_move(case: Case) -> list[Piece]:
    memory = TensorMemory().alloc(_COLUMNS)
    cells = memory.cells.copy()
    cells[:, :_COLUMNS] = _cells()
    memory = TensorMemory(cells, memory.allocations)
    opcode = _opcode(case["direction"], case["form"])
    address = case["lane"] << 16 | case["column"]
    split = _SPLIT if "x2.x" in case["form"] else None
    registers = _before(case, _MOVED_REGISTERS).copy()
    moved = registers[:, : named_move(opcode).registers]
    if case["direction"] == "ld":
        moved[:] = memory.load(opcode, address, warp=case["warp"], split=split)
    else:
        memory = memory.store(opcode, moved, address, warp=case["warp"], split=split)
    after = np.ascontiguousarray(memory.cells[:, :_COLUMNS])
    return [Piece("thread {}, register {}", registers, _MOVED_REGISTERS), Piece("lane {}, column {}", after, _COLUMNS)]


def _run_moves(device: Device, cases: list[Case]) -> Iterable[Result]:
    table = [
        [FORMS.index(case["form"]), case["direction"] == "st", case["warp"], case["lane"] << 16 | case["column"]]
        for case in cases
    ]
    registers = np.stack([_before(case, _MOVED_REGISTERS) for case in cases])
    loaded = np.empty_like(registers)
    after = np.empty((len(cases), _LANES, _COLUMNS), "<u4")
    device.launch(
        "tensor_memory:moves",
        np.array(table, np.int32),
        _cells(),
        registers,
        out=(loaded, after),
        blocks=len(cases),
        threads=128,
    )
    return zip(loaded, after, strict=True)


TENSOR_MEMORY = Suite(
    "tensor_memory", _draw_move, _predict_move, _run_moves, kernels=("tensor_memory",), feature="tcgen05"
)
