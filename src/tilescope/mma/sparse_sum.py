"""The sum that a tensor core makes of a sparse A: stored elements times the elements of B that the metadata chooses.

    row of A, stored     5 7   2 3         metadata 0x8 0xd
    column of B          1 2 3 4   1 2 3 4
    chosen               1   3       2   4          5 * 1 + 7 * 3 + 2 * 2 + 3 * 4 + C

Measured on an H200 with every form of mma.sp and wgmma.sp (golden/sparse_products.md): the stored products are added as a dense
instruction adds its products, all of them in one step, and what the metadata leaves out does not count, not even an infinity.
fp8 in mma.sp is done in f16 like the dense one: groups 0, 2, 4 … of k first, then the others, then C.
"""

from __future__ import annotations

from typing import Any

from tilescope.data_type import DataType
from tilescope.mma.accumulation import tensor_core_sum
from tilescope.mma.element_value import Array
from tilescope.mma.sparsity import Nibbles, seen_by_rows
from tilescope.mma.tensor_core_arithmetic import Arithmetic


def sparse_sum(
    a: Array,
    b: Array,
    c: Array,
    nibbles: Nibbles,
    *,
    arithmetic: Arithmetic,
    a_type: DataType,
    held_type: DataType | None = None,
    **options: Any,
) -> Array:
    """D (…, m, n) of one instruction: stored A (…, m, k / 2), B (…, n, k), C (…, m, n), nibbles (…, m, groups).

    `held_type` has the width of A's elements in memory, which determines a group: 4-bit elements in bytes are chosen
    one by one, packed ones in pairs. Without it A has its own type's width. `options` are those of tensor_core_sum; a
    scale factor covers as many stored elements as elements of a dense A.

    >>> import numpy as np
    >>> from tilescope.mma.tensor_core_arithmetic import arithmetic_of
    >>> f16 = DataType.named("f16")
    >>> a, b = np.array([[5, 7, 2, 3]], np.float16), np.array([[1, 2, 3, 4] * 2], np.float16)
    >>> nibbles, hopper = np.array([[0x8, 0xD]], np.uint8), arithmetic_of("sm_90", "mma", f16)
    >>> sparse_sum(a, b, np.zeros((1, 1), np.float32), nibbles, arithmetic=hopper, a_type=f16).item()
    42.0
    """
    seen = seen_by_rows(b, nibbles, held_type or a_type)
    d = tensor_core_sum(a[..., None, :], seen, c[..., None, :], arithmetic=arithmetic, a_type=a_type, **options)
    return d[..., 0, :]
