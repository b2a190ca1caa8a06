"""What a layout must be to have a text: a tile of two indices, strides of whole elements, a swizzle with a name."""

from __future__ import annotations

from typing import Any

from tilescope.errors import RuleError
from tilescope.layout import Layout, Modes, Rows
from tilescope.notation.text import refusal
from tilescope.rule import rule
from tilescope.swizzle import SWIZZLE, Swizzle

NO_EQUIVALENT = rule(
    "no-equivalent", "A notation has a text only for layouts that it can express, address for address.",
    source="the text, read again and compared",
    passing='ts.spell_layout(ts.Layout((64, 64), 16, swizzle="128B"), "triton")',
    failing='ts.spell_layout(ts.Layout((64, 64), 16, padding_bytes=16), "triton")',
)  # fmt: skip


def no_equivalent(found: str, limit: str, fix: str, **values: Any) -> RuleError:
    """The error for a layout that a notation cannot say."""
    return NO_EQUIVALENT.error("layout", found, limit, fix, **values)


def xor_swizzle(bits: int, base: int, shift: int) -> Swizzle:
    """The swizzle of byte addresses with these three numbers: TMA's own row where it has one.

    >>> xor_swizzle(3, 4, 3).name, xor_swizzle(0, 4, 3).name, xor_swizzle(2, 3, 3).name
    ('128B', 'none', 'xor:2,3,3')
    """
    swizzle = Swizzle.xor(bits, base, shift) if bits else SWIZZLE["none"]
    return swizzle.hardware_mode or swizzle


def on_pattern(start: int, swizzle: Swizzle) -> int:
    """The start of a buffer whose swizzle counts from its first byte: where the pattern of addresses starts."""
    repeat = swizzle.repeat_bytes
    if start % repeat:
        limit = f"buffers start on the pattern, every {repeat} bytes"
        raise refusal(
            f"start {start:#x}", limit, f"Use {start // repeat * repeat:#x}.", start=start, repeat_bytes=repeat
        )
    return start


def strides_of(layout: Layout) -> Modes:
    """The modes with strides in elements."""
    if layout.modes is None:
        raise no_equivalent(
            f"{layout!r}", "strides count whole elements", "Use a padding that is a multiple of the element."
        )
    return layout.modes


def pair_of(layout: Layout) -> tuple[int, int]:
    """The tile's (mn, k); refused where there are other indices, with the tile of one stage where that is one.

    >>> pair_of(Layout((64, 32), 16))
    (64, 32)
    """
    if len(layout.shape) == 2:
        return layout.shape[0], layout.shape[1]
    stage = layout.stage()
    fix = "Spell it as cute."
    if stage is not None:
        fix = f"One stage of it is a tile: {stage.modes}."
    found = f"{layout.modes or layout!r} has {len(layout.shape)} indices"
    raise no_equivalent(found, "a tile has two, mn and k", fix, rank=len(layout.shape))


def tile_of(layout: Layout) -> Rows:
    """The tile as rows of equal atoms; refused with the reason where it is none."""
    pair_of(layout)
    if layout.major is None:
        limit = "in a tile mn or k is contiguous"
        raise no_equivalent(f"{layout.modes} has no index of stride 1", limit, "Spell it as cute.")
    if layout.atom is None:
        limit = "a tile is a grid of equal atoms, one after the other by column or by row"
        raise no_equivalent(f"{layout.modes or layout!r}", limit, "Spell it as cute.")
    return layout.as_rows()
