"""Which lane holds which element of a matrix in registers: fragments of mma, wgmma, wmma, ldmatrix and stmatrix.

Nearly every fragment is the same arrangement with other numbers. Eight rows are adjacent in the warp, with four lanes
for each row. A lane holds `w` neighbours (one register), then the same 8 rows further down, then 4 w further right. The
A operand of mma.m16n8k8 in bf16, w = 2:

    k            0    1    2    3    4    5    6    7
    row  0      T0V0 T0V1 T1V0 T1V1 T2V0 T2V1 T3V0 T3V1          T: thread (lane), V: value of that thread
    row  1      T4V0 T4V1 T5V0 …
      …
    row  8      T0V2 T0V3 T1V2 T1V3 …                            8 rows down: the next values
      …
    (T, V) → row + 16 * k         ((4,8),(2,2)):((32,1),(16,8))
    (row, k) → T + 32 * V         ((8,2),(2,4)):((4,64),(32,1))

So a fragment is a CuTe layout from (thread, value) to a column-major index (for B: of the n x k matrix, as CuTe
has it), and everything else is computed from it. Only the sm_70 form of mma.m8n8k4 differs: four products of
8 x 8 x 4, each in two quads of lanes ({0-3, 16-19}, {4-7, 20-23}, …).

Of a sparse A the stored elements are arranged so: A of mma.sp.m16n8k32 as a dense 16 x 16. Its metadata, operand E, is a
word a lane, eight nibbles of four bits (see sparsity.py); quad g of the warp has those of rows g and g + 8:

    nibble                        0 1 2 3              4 5 6 7               groups of E (row, group)
    f16, bf16, tf32   lane j      row g, 4j to 4j+3    row g + 8, the same
    8 and 4 bits      lane j      row g + 8 (j mod 2), groups 8 (j / 2) to 8 (j / 2) + 7

If one or two lanes of a quad are enough, the other lanes may hold copies: the sparsity selector chooses which are read.

The documentation does not specify the elements of a wmma fragment. They were measured on an H200: it multiplies by mma,
and a wmma's fragments are those of its mma, for matrices loaded by rows or by columns. ptxas generates the same for
sm_80 to sm_120.

    wmma.m16n16k16    A of one mma.m16n8k16; B and D of two, side by side
    wmma.m32n8k16     B of one; A and D of two, one below the other
    wmma.m8n32k16     the transposed product: A as its B, B as two of its A, D as two of its D, rows and columns exchanged

Operands of f16 always take eight registers. Where fewer are enough the rest hold copies, and only the first ones are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.data_type import DataType
from tilescope.layout import Modes
from tilescope.mma.matrix_form import named_form
from tilescope.mma.mma_instruction import Instruction, Operand, chosen_operand, chosen_type, instructions
from tilescope.mma.sparsity import group_elements
from tilescope.mma.tmem_form import named_move
from tilescope.reading import as_array, integer
from tilescope.rule import ARGUMENT_RANGE, rule
from tilescope.sentence import by
from tilescope.value import Value, row_field

REGISTER_BITS = 32
QUAD_LANES = 4  # lanes that hold a row
NIBBLE_BITS = 4
_MMA_M = 16  # rows of A, and of B, that one mma takes for a wmma
_MMA_N = 8
_WMMA_F16_VALUES = 16  # of a lane, copies among them
_NIBBLES = REGISTER_BITS // NIBBLE_BITS
_TMEM_TYPES = {32: ("uint32", "float32", "int32"), 16: ("uint16", "float16", "bfloat16", "int16")}
_MATRIX_TYPES = {
    16: ("uint16", "float16", "bfloat16", "int16"),
    8: ("uint8", "int8", "e4m3", "e5m2", "ue8m0"),
    6: ("16u6_align16b", "e2m3", "e3m2"),
    4: ("16u4_align16b", "e2m1", "int4", "uint4"),
}
Array = npt.NDArray[Any]  # of any type: what users pass
Index = TypeVar("Index", int, npt.NDArray[np.int64])

FRAGMENT_ORDER = rule(
    "fragment-order",
    "Only mma.m8n8k4 with f16 supports other orders than .row.col.",
    argument="instruction",
    found="{instruction} with A .{a_order} and B .{b_order}",
    limit="only mma.m8n8k4 with f16 takes other orders than .row.col",
    fix="Use .row.col, and load the other order with ldmatrix.trans.",
    source="PTX ISA, mma: .alayout and .blayout",
    passing='ts.fragment("mma.m16n8k16.row.col", "A", "bf16")',
    failing='ts.fragment("mma.m16n8k16.col.row", "A", "bf16")',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment(Value):
    """One operand in registers: (thread, value) ↔ (row, column).

    Coordinates are (m, k) for A, (k, n) for B, (m, n) for C and D; for a sparse A they are (m, stored k), for its
    metadata E (m, group). `matrices` is the number of equal matrices, as of ldmatrix.x4. For wgmma the threads are the
    128 of the warpgroup.

    >>> a = fragment("mma.m16n8k8", operand="A", data_type="bf16")
    >>> a.coord(22, 0), a.coord(22, 1), a.holder(5, 4)
    ((5, 4), (5, 5), (22, 0))
    >>> print(a.tv_layout, a.inverse)
    ((4,8),(2,2)):((32,1),(16,8)) ((8,2),(2,4)):((4,64),(32,1))
    """

    instruction: str
    operand: Operand
    data_type: DataType = row_field(DataType.named)
    shape: tuple[int, int]  # rows, columns
    matrices: int
    element_bits: int  # in a register; narrow floats of mma.m16n8k32 have a byte each
    tv_layout: Modes
    feature: str  # what an architecture must have (see arch.py)

    @property
    def is_sparse(self) -> bool:
        """Whether the operand is of mma.sp or wgmma.sp."""
        return ".sp." in self.instruction

    @property
    def content(self) -> str:
        """The kind of the values: elements of the type, or nibbles of metadata.

        >>> fragment("mma.sp.m16n8k32", operand="E", data_type="f16").content
        'nibbles (A of float16)'
        """
        return f"nibbles (A of {self.data_type.name})" if self.operand == "E" else self.data_type.name

    @property
    def threads(self) -> int:
        """32 for a warp, 128 for a warpgroup."""
        return self.tv_layout.parts[0].size

    @property
    def values(self) -> int:
        """Elements that a thread holds."""
        return self.tv_layout.parts[1].size

    @property
    def registers(self) -> int:
        """32-bit registers that a thread spends.

        >>> fragment("wgmma.m64n256k16", operand="D", data_type="f32").registers
        128
        """
        return self.values * self.element_bits // REGISTER_BITS

    @property
    def inverse(self) -> Modes:
        """CuTe's inverse: (row, column) → thread + threads * value, with the modes gathered by dimension.

        >>> print(fragment("mma.m16n8k16", operand="B", data_type="bf16").inverse)  # (n, k), as CuTe has B
        (8,(2,4,2)):(4,(32,1,64))
        """
        more = (self.matrices,) if self.matrices > 1 else ()
        inverse = self._to_first_copy() if self.copies > 1 else self.tv_layout.right_inverse()
        return inverse.grouped(*self._cute_shape, *more)

    def _to_first_copy(self) -> Modes:
        """From an index to the lowest thread and value that hold it: copies are modes of stride 0."""
        mode_of_stride: dict[int, tuple[int, int]] = {}  # extent, and what a step is worth in thread + threads * value
        worth = 1
        for extent, stride in self.tv_layout.pairs:
            if stride:
                mode_of_stride[stride] = (extent, worth)
            worth *= extent
        modes = tuple(mode_of_stride[stride] for stride in sorted(mode_of_stride))
        return Modes.of_indices([modes]).parts[0]

    @property
    def _cute_shape(self) -> tuple[int, int]:
        rows, columns = self.shape
        return (columns, rows) if self.operand == "B" else (rows, columns)

    def indices(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Matrix, row and column of every (thread, value), as three arrays of (threads, values)."""
        return self._at(np.arange(self.threads)[:, None], np.arange(self.values)[None, :])

    def _at(self, thread: Index, value: Index) -> tuple[Index, Index, Index]:
        """Matrix, row and column of values of threads."""
        index: Index = self.tv_layout.at(thread, value)
        first, second = self._cute_shape
        matrix = index // (first * second)
        slow = index // first % second
        fast = index % first
        return (matrix, slow, fast) if self.operand == "B" else (matrix, fast, slow)

    def _place(self, thread: int, value: int) -> tuple[int, int, int]:
        return self._at(integer("thread", thread, 0, self.threads - 1), integer("value", value, 0, self.values - 1))

    def coord(self, thread: int, value: int) -> tuple[int, int]:
        """The (row, column) that a thread holds as its value `value`.

        >>> fragment("mma.m16n8k16", operand="B", data_type="bf16").coord(1, 2)  # k = 2 + 8, n = 0
        (10, 0)
        """
        return self._place(thread, value)[1:]

    def matrix_of(self, thread: int, value: int) -> int:
        """Which of the `matrices` the element belongs to; 0 where there is one.

        >>> fragment("ldmatrix.x4").matrix_of(0, 5)  # the high half of register 2
        2
        """
        return self._place(thread, value)[0]

    def held_by(self, thread: int) -> tuple[tuple[int, int], ...]:
        """All (row, column) that a thread holds, in the order of its values.

        >>> fragment("mma.m16n8k16", operand="D", data_type="f32").held_by(5)
        ((1, 2), (1, 3), (9, 2), (9, 3))
        """
        return tuple(self.coord(thread, value) for value in range(self.values))

    def holder(self, row: int, column: int, matrix: int = 0) -> tuple[int, int]:
        """The (thread, value) that holds element (row, column)."""
        rows, columns = self.shape
        place = (
            integer("matrix", matrix, 0, self.matrices - 1),
            integer("row", row, 0, rows - 1),
            integer("column", column, 0, columns - 1),
        )
        thread, value = self.holders()
        return int(thread[place]), int(value[place])

    def holders(self, selector: int = 0) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Thread and value of every element, as two arrays of (matrices, rows, columns).

        Of metadata, of which several lanes may hold copies, those that the sparsity selector chooses; of copies in
        other registers of a lane the first, which is the one that is read.

        >>> thread, value = fragment("mma.sp.m16n8k32", operand="E", data_type="f16").holders(selector=1)
        >>> thread[0, 0].tolist(), value[0, 8].tolist()
        ([2, 2, 2, 2, 3, 3, 3, 3], [4, 5, 6, 7, 4, 5, 6, 7])
        """
        threads = np.arange(self.threads)
        values = np.arange(self.values)
        if self.operand == "E":
            lanes = QUAD_LANES // self.copies  # of a quad, that are read
            threads = threads[threads % QUAD_LANES // lanes == integer("selector", selector, 0, self.copies - 1)]
        else:
            values = values[: self.values // self.copies]
        thread = np.empty((self.matrices, *self.shape), np.int64)
        value = np.empty_like(thread)
        place = self._at(threads[:, None], values[None, :])
        thread[place] = threads[:, None]
        value[place] = values[None, :]
        return thread, value

    @property
    def copies(self) -> int:
        """How often an element is held: by lanes, one for each sparsity selector, or by registers of a lane (wmma of f16).

        >>> [fragment(f"mma.sp.m16n8k{k}", operand="E", data_type="f16").copies for k in (16, 32)]
        [4, 2]
        >>> [fragment(f"wmma.{shape}", operand="B", data_type="f16").copies for shape in ("m16n16k16", "m32n8k16")]
        [2, 4]
        """
        rows, columns = self.shape
        return self.threads * self.values // (self.matrices * rows * columns)

    def register_of(self, value: int) -> tuple[int, int]:
        """The 32-bit register of a value, and its lowest bit there.

        >>> fragment("mma.m16n8k16", operand="A", data_type="bf16").register_of(5)
        (2, 16)
        >>> fragment("mma.m16n8k32", operand="A", data_type="e2m1").register_of(1)  # byte 1, its bits 2 to 5
        (0, 10)
        """
        # mma takes 4 bits from the middle of a byte, all else is low: ldmatrix leaves them low, and they are shifted by two.
        is_in_the_middle = self.operand in ("A", "B") and self.element_bits - self.value_bits == 4
        first_bit = integer("value", value, 0, self.values - 1) * self.element_bits
        if is_in_the_middle:
            first_bit += 2
        return divmod(first_bit, REGISTER_BITS)

    @property
    def value_bits(self) -> int:
        """Bits of an element that carry its value: 4 of the byte that mma.m16n8k32 gives an e2m1."""
        return min(self.element_bits, self.data_type.bits)

    def distribute(self, matrix: npt.ArrayLike) -> Array:
        """The elements of a matrix (or of `matrices`, stacked) as (threads, values).

        >>> a = fragment("mma.m16n8k8", operand="A", data_type="bf16")
        >>> a.distribute(np.arange(128).reshape(16, 8))[22]
        array([ 44,  45, 108, 109])
        """
        expected_shape = (self.matrices, *self.shape) if self.matrices > 1 else self.shape
        stacked = self._require_shape("matrix", matrix, expected_shape).reshape(self.matrices, *self.shape)
        return np.asarray(stacked[self.indices()])

    def collect(self, values: npt.ArrayLike) -> Array:
        """The matrix (or matrices, stacked) that (threads, values) hold: the inverse of `distribute`."""
        array = self._require_shape("values", values, (self.threads, self.values))
        stacked: Array = array[self.holders()]
        return stacked if self.matrices > 1 else stacked[0]

    def _require_shape(self, name: str, values: npt.ArrayLike, wanted: tuple[int, ...]) -> Array:
        array = as_array(name, values)
        if array.shape != wanted:
            raise ARGUMENT_RANGE.error(
                argument=name,
                found=f"an array of shape {array.shape}",
                limit=f"operand {self.operand} of {self.instruction} is {by(wanted)}",
                fix=f"Use an array of shape {wanted}.",
                shape=array.shape,
                operand=wanted,
            )
        return array


def fragment(instruction: str, operand: Operand | None = None, data_type: Any = None) -> Fragment:
    """The fragment of an operand: which elements a thread holds, and which thread holds an element.

    `instruction` is a name such as "mma.m16n8k16", "wgmma.m64n128k16", "ldmatrix.x4.trans" or "tcgen05.ld.32x32b.x8" (a whole
    PTX opcode is understood too); `data_type` is the operand's own type, so D of a bf16 product is "f32". Omit either if there
    is only one choice.

    >>> fragment("wgmma.m64n16k16", operand="D", data_type="f32").coord(127, 7)
    (63, 15)
    >>> fragment("ldmatrix.x1.trans").held_by(22)  # column 5 of the stored rows 4 and 5
    ((4, 5), (5, 5))
    >>> fragment("tcgen05.ld.16x256b.x2").coord(30, 7)  # lane 15, column 13 of tensor memory, from its address on
    (15, 13)
    >>> fragment("ldmatrix.m16n16.x1.trans.b8").held_by(0)[:5]  # four rows of a column fill a register
    ((0, 0), (1, 0), (2, 0), (3, 0), (0, 8))
    >>> fragment("wmma.m16n16k16", operand="D", data_type="f32").held_by(5)[:5]  # two mma: columns 0 to 7, then 8 to 15
    ((1, 2), (1, 3), (9, 2), (9, 3), (1, 10))
    """
    name = instruction.strip().casefold() if isinstance(instruction, str) else instruction
    if isinstance(name, str):
        if re.match(r"(ldmatrix|stmatrix)\b", name):
            return _matrices(name, operand, data_type)
        if re.match(r"tcgen05\.(ld|st)\b", name):
            return _tmem_cells(name, operand, data_type)
    rows, n = instructions(name)
    operand = chosen_operand(name, operand, rows[0].in_registers)
    is_input = operand in ("A", "B", "E")
    row_of_type: dict[str, Instruction] = {}
    for row in rows:
        for type_name in row.types if is_input else row.accumulators:
            row_of_type.setdefault(type_name, row)
    chosen = chosen_type(name, operand, data_type, row_of_type)
    row = row_of_type[chosen.name]
    if row.family == "wmma":
        return _of_product(row, n, operand, chosen)
    written = re.search(r"\.(row|col)\.(row|col)\b", name)
    a_order, b_order = written.groups() if written else ("row", "col")
    if row.quad_pairs:
        return _quad_pairs(operand, chosen, a_order, b_order)
    if (a_order, b_order) != ("row", "col"):
        raise FRAGMENT_ORDER.error(instruction=name, a_order=a_order, b_order=b_order)
    return _of_product(row, n, operand, chosen)


def _of_product(row: Instruction, n: int, operand: Operand, data_type: DataType) -> Fragment:
    """The fragment of an operand of mma, wgmma or wmma in the common arrangement."""
    if operand == "E":
        return _of_metadata(row, n, data_type)
    is_input = operand in ("A", "B")
    shape = {"A": (row.m, row.a_k), "B": (row.k, n)}.get(operand, (row.m, n))
    per_register = row.per_register if is_input else 2
    element_bits = data_type.bits
    if is_input and per_register > 1:
        element_bits = REGISTER_BITS // per_register
    if row.family == "wmma":
        tv_layout = _of_wmma(row, n, operand)
    else:
        rows, columns = (n, row.k) if operand == "B" else shape
        tv_layout = _arrange_matrix(rows, columns, per_register, row.warps)
    return Fragment(
        instruction=f"{row.family}.m{row.m}n{n}k{row.k}",
        operand=operand,
        data_type=data_type,
        shape=shape,
        matrices=1,
        element_bits=element_bits,
        tv_layout=tv_layout,
        feature=row.feature,
    )


def _of_metadata(row: Instruction, n: int, data_type: DataType) -> Fragment:
    """The metadata of a sparse A: nibbles of (m, group)."""
    groups = row.k // group_elements(data_type)
    lanes = groups // 4  # of a quad, that are needed
    copies = (QUAD_LANES // lanes, 0)
    below = [(8, 1), (row.warps, row.m // row.warps)]
    if data_type.bits < 16:
        thread = [(2, 8), (lanes // 2, _NIBBLES * row.m), copies, *below]
        value = [(_NIBBLES, row.m)]
    else:
        thread = [(lanes, _NIBBLES // 2 * row.m), copies, *below]
        value = [(_NIBBLES // 2, row.m), (2, 8)]
    return Fragment(
        instruction=f"{row.family}.m{row.m}n{n}k{row.k}",
        operand="E",
        data_type=data_type,
        shape=(row.m, groups),
        matrices=1,
        element_bits=NIBBLE_BITS,
        tv_layout=_nest_parts(thread, value),
        feature=row.feature,
    )


def _arrange_matrix(rows: int, columns: int, per_register: int, warps: int) -> Modes:
    """The common arrangement of a rows x columns matrix, rows fastest (see the drawing above)."""
    w = per_register
    own_rows = rows // warps
    thread = [(4, w * rows), (8, 1), (warps, own_rows)]
    value = [(w, rows), (own_rows // 8, 8), (columns // (4 * w), 4 * w * rows)]
    return _nest_parts(thread, value)


def _of_wmma(row: Instruction, n: int, operand: Operand) -> Modes:
    """How the mma that a wmma consists of hold an operand: those of one, then those of the other."""
    is_transposed = row.m < n
    if operand in ("A", "B"):
        rows = row.m if operand == "A" else n
        columns = row.k
        row_stride = 1
        column_stride = rows
        w = row.per_register
        is_a_of_mma = (operand == "A") != is_transposed
        mma_rows = min(rows, _MMA_M) if is_a_of_mma else _MMA_N
    else:
        rows, columns = (n, row.m) if is_transposed else (row.m, n)
        row_stride, column_stride = (columns, 1) if is_transposed else (1, rows)
        w = 2
        mma_rows = min(rows, _MMA_M)
    copies = 1
    if operand in ("A", "B") and row.types == ("float16",):
        copies = _WMMA_F16_VALUES * WARP_LANES // (rows * columns)
    thread = [(QUAD_LANES, w * column_stride), (8, row_stride)]
    value = [
        (w, column_stride),
        (mma_rows // 8, 8 * row_stride),
        (columns // (QUAD_LANES * w), QUAD_LANES * w * column_stride),
        (rows // mma_rows, mma_rows * row_stride),
        (copies, 0),
    ]
    return _nest_parts(thread, value)


def _nest_parts(*parts: list[tuple[int, int]]) -> Modes:
    """A layout of the parts, extents of 1 dropped, as CuTe writes it."""
    indices = []
    for part in parts:
        modes = tuple((extent, stride) for extent, stride in part if extent > 1)
        indices.append(modes or ((1, 0),))
    return Modes.of_indices(indices)


# PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type". The second mode of the thread, the
# pair of quads, chooses the product: its stride is a whole matrix.
_QUAD_PAIRS: dict[tuple[str, str], tuple[tuple[int, int], Modes]] = {
    # operand, order or type: (rows, columns), ((quad lane, pair, half), value) → index
    ("A", "row"): ((8, 4), Modes(((4, 4, 2), 4), ((1, 32, 4), 8))),
    ("A", "col"): ((8, 4), Modes(((4, 4, 2), 4), ((8, 32, 4), 1))),
    ("B", "row"): ((4, 8), Modes(((4, 4, 2), 4), ((8, 32, 4), 1))),
    ("B", "col"): ((4, 8), Modes(((4, 4, 2), 4), ((1, 32, 4), 8))),
    ("D", "float16"): ((8, 8), Modes(((4, 4, 2), 8), ((1, 64, 4), 8))),
    ("D", "float32"): ((8, 8), Modes(((2, 2, 4, 2), (2, 2, 2)), ((1, 16, 64, 4), (8, 2, 32)))),
}


def _quad_pairs(operand: Operand, data_type: DataType, a_order: str, b_order: str) -> Fragment:
    """m8n8k4 with f16: A and B depend on the instruction's .row and .col, C and D on their type."""
    variant = {"A": a_order, "B": b_order}.get(operand, data_type.name)
    shape, tv_layout = _QUAD_PAIRS["D" if operand == "C" else operand, variant]
    return Fragment(
        instruction=f"mma.m8n8k4.{a_order}.{b_order}",
        operand=operand,
        data_type=data_type,
        shape=shape,
        matrices=4,
        element_bits=data_type.bits,
        tv_layout=tv_layout,
        feature="mma",
    )


def _matrices(name: str, operand: Operand | None, data_type: object) -> Fragment:
    """What ldmatrix and stmatrix move (see matrix_form.py)."""
    direction, form, count = named_form(name)
    opcode = form.opcode(direction, count)
    types = _MATRIX_TYPES[form.packed_bits]
    return Fragment(
        instruction=opcode,
        operand=chosen_operand(opcode, operand or "matrix", ("matrix",)),
        data_type=chosen_type(opcode, "matrix", types[0] if data_type is None else data_type, types),
        shape=(form.rows, form.columns),
        matrices=count,
        element_bits=form.element_bits,
        tv_layout=_nest_parts(list(form.lanes), [*form.values, (count, form.rows * form.columns)]),
        feature=direction + form.needs,
    )


def _tmem_cells(name: str, operand: Operand | None, data_type: object) -> Fragment:
    """What tcgen05.ld and tcgen05.st move (see tmem_form.py): (lane, column) of tensor memory, from the address on."""
    move = named_move(name)
    element_bits = 16 if move.packed else REGISTER_BITS  # of a register, from one cell
    types = _TMEM_TYPES[element_bits]
    return Fragment(
        instruction=move.opcode,
        operand=chosen_operand(move.opcode, operand or "tmem", ("tmem",)),
        data_type=chosen_type(move.opcode, "tmem", types[0] if data_type is None else data_type, types),
        shape=(move.form.lanes, move.columns),
        matrices=move.form.places,
        element_bits=element_bits,
        tv_layout=_nest_parts(*move.modes),
        feature="tcgen05_ld_red" if move.reduction else "tcgen05",
    )
