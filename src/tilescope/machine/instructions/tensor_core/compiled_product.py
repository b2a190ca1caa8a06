"""Products of warpgroups by a compiled loop, where there is one: which instructions it takes, and what it is given.

The loop (warpgroup_loop.py) gathers the operands, adds as the card does and puts D back, for all warpgroups of a batch of blocks, on all
cores. What it refuses is left to the sum of numpy or of aligned_sum_loop.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.machine.cluster import Cluster
from tilescope.machine.instructions.tensor_core.mma import Product
from tilescope.machine.instructions.tensor_core.register_tile import RegisterTile
from tilescope.mma.aligned_sum import count_products, on_all_cores
from tilescope.mma.element_value import narrow_factors
from tilescope.mma.tensor_core_arithmetic import Arithmetic, arithmetic_of
from tilescope.sync.cluster_shape import LaneNumbers

_MOST_FACTOR_BITS = 16
_TERMS_AT_ONCE = 8
_SUM_BITS = 31


class CodesOfGroups(NamedTuple):
    """An operand: codes of blocks, the block of every warpgroup, where its elements are, and the bit that is flipped in them."""

    codes: npt.NDArray[Any]  # (blocks, codes)
    blocks: npt.NDArray[np.int64]
    places: npt.NDArray[np.uint32]  # of A by (m, k), of B by (k, n)
    sign_mask: int
    data_type: DataType

    def arguments(self, part: slice) -> tuple[object, ...]:
        """What the loop takes for some of the warpgroups."""
        table = narrow_factors(self.data_type)
        return self.codes, self.blocks[part], self.places, self.sign_mask, table.values, table.exponents


class RegistersOfGroups(NamedTuple):
    """C and D of warpgroups, in registers."""

    tile: RegisterTile
    registers: Sequence[int]
    first_lanes: LaneNumbers
    are_added: npt.NDArray[np.bool_]  # False: C counts as zero


def is_compiled(cluster: Cluster, product: Product) -> bool:
    """Whether the loop takes a product, and is worth loading: there is numba, and enough to do."""
    return _is_taken(product, _arithmetic(cluster, product)) and count_products(0)


def _arithmetic(cluster: Cluster, product: Product) -> Arithmetic:
    return arithmetic_of(cluster.launch.arch.name, product.name, product.a_type.name)


def _is_taken(product: Product, arithmetic: Arithmetic) -> bool:
    """Whether a product is one of narrow floats, all added to a float32 at once, whose sum fits 32 bits."""
    terms = product.row.k
    return (
        arithmetic.method == "aligned"
        and arithmetic.step_k is None
        and arithmetic.term_elements == 1
        and not product.row.is_sparse
        and product.d_type.name == product.c_type.name == "float32"
        and max(product.a_type.bits, product.b_type.bits) <= _MOST_FACTOR_BITS
        and terms % _TERMS_AT_ONCE == 0
        and terms << arithmetic.fractional_bits + 2 <= 1 << _SUM_BITS
    )


def multiply_groups(
    cluster: Cluster, product: Product, a: CodesOfGroups, b: CodesOfGroups, d: RegistersOfGroups
) -> npt.NDArray[np.bool_]:
    """Multiply for warpgroups. True for those that were refused: their registers are as they were."""
    from tilescope.machine.instructions.tensor_core.warpgroup_loop import multiply

    arithmetic = _arithmetic(cluster, product)
    shape = (product.row.m, product.n, product.row.k)
    d_rows = cluster.rows_of(d.registers)
    order = d.tile.order
    is_refused = np.zeros(len(d.first_lanes), np.bool_)

    def multiply_part(part: slice) -> None:
        multiply(
            *a.arguments(part),
            *b.arguments(part),
            shape,
            cluster.words,
            d_rows,
            d.first_lanes[part],
            order,
            d.are_added[part],
            arithmetic.fractional_bits,
            arithmetic.result_bits,
            is_refused[part],
        )

    products = len(d.first_lanes) * shape[0] * shape[1] * shape[2]
    count_products(products)
    on_all_cores(multiply_part, len(d.first_lanes), products)
    return is_refused
