"""Scale factors of float32 that kernels of wgmma apply in registers: one for 1 x 128 of A, one for 128 x 128 of B.

    a K step of 128      step = A[:, k] B[:, k]^T                wgmma, into fresh accumulators
                         d   += step * (scale of A's row and k   *   scale of B's block of rows and k)

    of A    (k / 128, m)          float32, M-major: neighbouring rows are neighbours. A row of the array is m rounded up to a
                                  multiple of 4, 16 bytes, so that its parts can be fetched by bulk copies
    of B    (n / 128, k / 128)    float32, along k: a row of the array is k / 128 rounded up to a multiple of 4

Every item of a batch, or of experts with masked rows, has both arrays; contiguous experts share the one of A. All
columns of a tile are in one block of B, so a thread needs one scale of it (two with gates side by side).
"""

from __future__ import annotations

from tilescope.arithmetic import ceil_div, rounded_up

BLOCK = 128  # elements of k, and rows of B, under one scale
NAME = "block128"
_ROW_MULTIPLE = 4  # of float32: 16 bytes
_TWO_WARPGROUPS_ROWS = 128  # a block of 64 rows each
_STEP_US = 0.03  # more for a K step …
_SCALE_US = 0.02  # … and for every scale of A that a thread loads


def a_scale_shape(rows: int, k: int) -> tuple[int, int]:
    """The array of A's scales: blocks of k, and rows with their padding.

    >>> a_scale_shape(70, 300)
    (3, 72)
    """
    return ceil_div(k, BLOCK), rounded_up(rows, _ROW_MULTIPLE)


def b_scale_shape(n: int, k: int) -> tuple[int, int]:
    """The array of B's scales: blocks of rows, and blocks of k with their padding.

    >>> b_scale_shape(160, 300)
    (2, 4)
    """
    return ceil_div(n, BLOCK), rounded_up(ceil_div(k, BLOCK), _ROW_MULTIPLE)


def thread_scales(columns: int, blocks: int, *, swapped: bool) -> int:
    """Scales of A that a thread holds: two rows of every 64; swapped, two of every 8 columns of its sums.

    >>> thread_scales(128, 1, swapped=False), thread_scales(64, 1, swapped=True)
    (2, 16)
    """
    return columns // 4 if swapped else 2 * blocks


def scaled_step_us(rows: int, columns: int, *, swapped: bool) -> float:
    """What a K step takes longer than without scales, by rows and columns of the sums; measured on an H200."""
    blocks = max(1, rows // _TWO_WARPGROUPS_ROWS)
    return _STEP_US + _SCALE_US * thread_scales(columns, blocks, swapped=swapped)


def lies_in_one_block(tile_n: int, n: int, *, swapped: bool, side_by_side: bool) -> bool:
    """Whether the columns that a warpgroup multiplies together have one scale of B, or one of gates and one of the others.

    If swapped, wgmma takes 64 rows of B at a time, which never straddle blocks. Gates stored as two halves begin at n /
    2: both halves of a tile must start at multiples of their width.

    >>> lies_in_one_block(96, 192, swapped=False, side_by_side=False)
    False
    """
    if side_by_side and n % tile_n:
        return False
    return swapped or BLOCK % tile_n == 0
