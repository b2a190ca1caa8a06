"""The scale factors of a product as a caller gives them: a triple of the format, A's and B's, read and checked."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import ceil_div
from tilescope.errors import Violation, raise_all
from tilescope.mma.scale_format import ScaleFormat
from tilescope.mma.scale_packing import Array
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.reading import as_array
from tilescope.rule import rule
from tilescope.sentence import format_value

MMA_SCALES = rule(
    "mma-scales",
    "A block-scaled product has a kind, and one scale byte for each block of elements of both operands.",
    argument="{operand}",
    found="an array of shape {shape}, {dtype}",
    limit="{format} has one {scale_type} byte for {block} elements of k: {scales: x } of them",
    fix="Use a uint8 array of shape {scales}.",
    source="PTX ISA, tcgen05.mma: Block scaling",
    architectures=BLACKWELL,
    passing=(
        'ts.emulate_mma(np.eye(128), np.eye(128), data_type="e4m3", consumer="tcgen05", '
        'scales=("mxfp8", np.ones((128, 4), np.uint8), np.ones((128, 4), np.uint8)))'
    ),
    failing=(
        'ts.emulate_mma(np.eye(128), np.eye(128), data_type="e4m3", consumer="tcgen05", '
        'scales=("mxfp8", np.ones((128, 3), np.uint8), np.ones((128, 4), np.uint8)))'
    ),
)
INCOMPLETE_SCALES = MMA_SCALES.worded(
    argument="scales",
    found="scales = {passed}",
    limit="scaled products need a format and the scale factors of A and of B",
    fix='Use scales=("mxfp8", a_scales, b_scales).',
)
SIGNED_SCALE = MMA_SCALES.worded(
    found="a scale with its sign bit set",
    limit="ue4m3 has no sign: the top bit is zero",
    fix="Use {operand} & 0x7F.",
)
Scales = tuple[Any, npt.ArrayLike, npt.ArrayLike]  # a format, the scale factors of A, those of B


class Scaling(NamedTuple):
    """Scale factors of both operands, as bytes: A (m, blocks), B (n, blocks)."""

    format: ScaleFormat
    a: Array
    b: Array

    def part(self, rows: slice, columns: slice) -> Scaling:
        """Those of a part of D."""
        return Scaling(self.format, self.a[rows], self.b[columns])


def read_scaling(scales: Scales | None, shape: tuple[int, int, int], *, sparse: bool) -> Scaling | None:
    """The scale factors as bytes, or None without any; all mistakes are named at once."""
    if scales is None:
        return None
    if not isinstance(scales, list | tuple) or len(scales) != 3 or any(part is None for part in scales):
        raise INCOMPLETE_SCALES.error(passed=format_value(scales))
    kind, a_scales, b_scales = scales
    row = ScaleFormat.named(kind)
    m, n, k = shape
    block = 2 * row.block if sparse else row.block  # a sparse instruction takes twice the k with as many scales
    blocks = ceil_div(k, block)
    problems: list[Violation] = []
    factors: list[Array] = []
    for name, value, expected_shape in (("scales[1]", a_scales, (m, blocks)), ("scales[2]", b_scales, (n, blocks))):
        array = as_array(name, value)
        if array.shape != expected_shape or array.dtype.itemsize != 1 or array.dtype.kind in "bS":
            wrong_array = MMA_SCALES.violation(
                operand=name,
                shape=array.shape,
                dtype=str(array.dtype),
                format=row.name,
                scale_type=row.scale_type,
                block=block,
                scales=expected_shape,
            )
            problems.append(wrong_array)
            continue
        scale_bytes = np.ascontiguousarray(array).view(np.uint8)
        if row.scale_type == "ue4m3" and (scale_bytes & 0x80).any():
            problems.append(SIGNED_SCALE.violation(operand=name))
        factors.append(scale_bytes)
    raise_all(problems)
    return Scaling(row, *factors)
