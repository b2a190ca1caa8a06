"""The permutation of large buffers, compiled by numba (the extra `fast`).

A store into the cache first reads the line that it is about to overwrite: three transfers for every byte
copied, not two. A *non-temporal* store of a whole line goes past the cache. And the processor fetches
ahead better when it reads several pages in turn, so four are copied side by side:

    page 0        page 1        page 2        page 3          of one block
    line 0   ──▶  line 0   ──▶  line 0   ──▶  line 0   ──┐
    line 1  ◀────────────────────────────────────────────┘
    line 1   ──▶  line 1   ──▶  …

Importing this module loads numba and compiles `stream`, which numba then keeps on disk.
"""

# ruff: noqa: ARG001, PLR0917  an intrinsic takes what numba hands it, one after the other

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import intp, njit, types, void
from numba.extending import intrinsic

_Numba: TypeAlias = Any  # numba and llvmlite have no type hints
_Intrinsic: TypeAlias = tuple[_Numba, Callable[..., object]]  # a signature, and what makes the instructions

_Result = TypeVar("_Result")

PIECE_BYTES = 16  # what the map keeps whole
LINE_BYTES = 64  # of the processor's cache; four pieces
PAGE_BYTES = 1 << 16
BLOCK_BYTES = 4 * PAGE_BYTES


def _line_store(
    typing: object, target: object, first: object, second: object, third: object, fourth: object
) -> _Intrinsic:
    """Write the pieces at four addresses to the line at address `target`, past the cache."""

    def lowered(context: _Numba, builder: _Numba, signature: object, arguments: _Numba) -> object:
        index = ir.IntType(32)
        word = ir.IntType(64)
        pair = ir.VectorType(word, 2)
        line, *pieces = arguments
        parts = [builder.load(builder.inttoptr(piece, pair.as_pointer()), align=1) for piece in pieces]
        while len(parts) > 1:  # two by two, until one vector of eight words is left
            places = list(range(2 * parts[0].type.count))
            joined = ir.Constant(ir.VectorType(index, len(places)), places)
            parts = [builder.shuffle_vector(*parts[pair : pair + 2], joined) for pair in range(0, len(parts), 2)]
        pointer = builder.inttoptr(line, ir.VectorType(word, LINE_BYTES // 8).as_pointer())
        store = builder.store(parts[0], pointer, align=LINE_BYTES)
        store.set_metadata("nontemporal", builder.module.add_metadata([index(1)]))
        return context.get_dummy_value()

    return void(intp, intp, intp, intp, intp), lowered


def _full_fence(typing: object) -> _Intrinsic:
    """Wait for the stores: non-temporal ones are not ordered before later ones by themselves."""

    def lowered(context: _Numba, builder: _Numba, signature: object, arguments: object) -> object:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return void(), lowered


store_line: Any = intrinsic(_line_store)
fence: Any = intrinsic(_full_fence)


def _stream(source: int, target: int, order: npt.NDArray[np.intp], length_bytes: int) -> None:
    """Copy whole blocks between two addresses; `order` has the offset in the source of every piece of a group.

    The target is aligned to a line, and a page is a whole number of groups. An offset may be negative, or extend beyond
    the group: the caller guarantees that the memory exists.
    """
    group_bytes = len(order) * PIECE_BYTES
    for block in range(0, length_bytes, BLOCK_BYTES):
        for group in range(block, block + PAGE_BYTES, group_bytes):
            for piece in range(0, len(order), 4):
                for start in range(group, group + BLOCK_BYTES, PAGE_BYTES):
                    store_line(
                        target + start + piece * PIECE_BYTES,
                        source + start + order[piece],
                        source + start + order[piece + 1],
                        source + start + order[piece + 2],
                        source + start + order[piece + 3],
                    )
    fence()


def compile_loop(loop: Callable[..., _Result], *signature: _Numba) -> Callable[..., _Result]:
    """The loop as machine code that leaves other threads running; without a signature, made for its first arguments."""
    make: Any = njit  # its types know fewer ways to call it
    try:
        return make(*signature, nogil=True, cache=True)(loop)  # type: ignore[no-any-return]
    except RuntimeError:  # no folder for the cache can be written
        return make(*signature, nogil=True)(loop)  # type: ignore[no-any-return]


stream = compile_loop(_stream, void(intp, intp, types.Array(intp, 1, "C"), intp))
