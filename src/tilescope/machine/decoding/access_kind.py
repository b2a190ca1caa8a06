"""How the load/store unit serves a memory instruction: bytes of a lane, and the operation whose wavefronts were measured."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tilescope.arch import WARP_LANES
from tilescope.errors import RuleError
from tilescope.smem.op import SMEM_OP, SmemOp


class AccessKind(NamedTuple):
    """The memory access that every lane of an instruction makes."""

    size_bytes: int
    shared_op: SmemOp | None  # how shared memory serves it; None: no card was measured
    lanes: int = WARP_LANES  # of a warp that give an address, from the first one on
    is_matrix: bool = False  # whether lanes give the addresses of a matrix's rows


def access_kind(verb: Literal["ld", "st", "cp.async"], size_bytes: int) -> AccessKind:
    """Loads, stores and copies of some bytes a lane; atomics are served as stores of their width.

    >>> access_kind("ld", 16).shared_op.name, access_kind("cp.async", 8).shared_op.name
    ('ld.b128', 'cp.async.8')
    """
    name = f"cp.async.{size_bytes}" if verb == "cp.async" else f"{verb}.b{size_bytes * 8}"
    return _kind(size_bytes, SMEM_OP.get(name))


def matrix_kind(opcode: str, row_bytes: int) -> AccessKind:
    """A row of a matrix for every lane of ldmatrix or stmatrix that gives an address.

    >>> matrix_kind("ldmatrix.sync.aligned.m8n8.x4.shared.b16", 16).shared_op.lanes
    32
    """
    try:
        return _kind(row_bytes, SmemOp.named(opcode))._replace(is_matrix=True)
    except RuleError:
        return AccessKind(row_bytes, None, is_matrix=True)


def _kind(size_bytes: int, shared_op: SmemOp | None) -> AccessKind:
    return AccessKind(size_bytes, shared_op, WARP_LANES if shared_op is None else shared_op.lanes)
