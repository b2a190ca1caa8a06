"""The page of tensor cores: operands in shared memory, the descriptors that read them, fragments, words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

from tilescope.data_type import DATA_TYPE, DataType
from tilescope.errors import by
from tilescope.mma.canonical import CanonicalLayout, canonical_layout
from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.mma.fragment import fragment
from tilescope.mma.instruction_loops import tcgen05_descriptors, wgmma_descriptors
from tilescope.mma.readings import descriptor_readings
from tilescope.view.drawing import Drawing
from tilescope.view.k_steps import k_step_grid, step_link
from tilescope.view.parts import Beside
from tilescope.web.call import Call
from tilescope.web.field import Field, Optional, choice, integer, limited, option_words, pair, text
from tilescope.web.page import Answer, Page, Step, drawn

MOST_BYTES = 1 << 18  # of an operand
_LOOPS: dict[str, Callable[..., DescriptorLoop]] = {"wgmma": wgmma_descriptors, "tcgen05": tcgen05_descriptors}


def answer(show: str, asked: dict[str, Any]) -> Answer:
    """The answer of the form that was chosen."""
    return {"descriptors": _descriptors, "operand": _operand, "fragment": _fragment, "word": _word}[show](asked)


def _checked_tile(asked: dict[str, Any]) -> tuple[int, int]:
    mn, k = asked["tile"]
    size = abs(mn * k) * DataType.named(asked["data_type"]).smem_bits // 8
    limited("bytes of an operand", "tile", size, MOST_BYTES, "Use a tile that a block's shared memory holds.")
    return mn, k


def _operand(asked: dict[str, Any]) -> Answer:
    tile = _checked_tile(asked)
    layout = Call(canonical_layout, (asked["major"], asked["swizzle"], asked["data_type"]), name="layout")
    options = {"atom_order": asked["atom_order"], "start": asked["smem_address"]}
    call = Call(CanonicalLayout.tile, (tile,), options, "operand", layout)
    found = call.run()
    command = [
        "mma",
        "layout",
        by(tile).replace(" ", ""),
        asked["data_type"],
        *option_words(PAGE.forms["operand"], asked),
    ]
    return Answer(call, tuple(command), found, drawn(found, element=asked["element"]))


def _descriptors(asked: dict[str, Any]) -> Answer:
    tile = _checked_tile(asked)
    options = {name: asked[name] for name in ("swizzle", "major", "atom_order", "operand", "smem_address")}
    call = Call(_LOOPS[asked["reader"]], (tile, asked["data_type"]), options, "loop")
    loop = call.run()
    words = option_words(PAGE.forms["descriptors"], asked)
    command = ("mma", "descriptors", by(tile).replace(" ", ""), asked["data_type"], *words)
    drawing = drawn(loop)
    encoded = [[hex(step.encode()) for step in steps] for steps in loop]
    *parts, steps = drawing.parts
    return Answer(
        call, command, loop, Drawing(drawing.title, (*parts, Beside((k_step_grid(loop), steps)))),
        extra={"descriptors": encoded}, steps=_k_steps(loop),
    )  # fmt: skip


def _k_steps(loop: DescriptorLoop) -> tuple[Step, ...]:
    steps = []
    for block, step in product(range(len(loop)), range(len(loop[0]))):
        descriptor = loop[block][step]
        mn, k = block * loop.block_mn, step * loop.k_per_step
        label = (
            f"mn {mn}-{mn + loop.block_mn - 1}, k {k}-{k + loop.k_per_step - 1}: "
            f"start {descriptor.start_address:#x}, descriptor {descriptor.encode():#018x}"
        )
        steps.append(Step(step_link(block, step), label))
    return tuple(steps)


def _fragment(asked: dict[str, Any]) -> Answer:
    options = {"operand": asked["operand"], "data_type": asked["data_type"]}
    call = Call(fragment, (asked["instruction"],), options, "fragment")
    found = call.run()
    lane = asked["lane"]
    command = ["mma", "fragment", asked["instruction"], *option_words(PAGE.forms["fragment"], asked)]
    drawing = drawn(found, lane=lane)
    first = 0 if lane is None else lane // 32 * 32
    steps = [
        Step(f"T{thread}", f"thread {thread} holds {', '.join(map(str, found.held_by(thread)[:8]))}"
             + (" …" if found.values > 8 else ""))
        for thread in range(first, min(first + 32, found.threads))
    ]  # fmt: skip
    return Answer(call, tuple(command), found, drawing, steps=tuple(steps))


def _word(asked: dict[str, Any]) -> Answer:
    bits = DataType.named(asked["data_type"]).smem_bits
    options = {"major": asked["major"], "element_bits": bits}
    call = Call(descriptor_readings, (asked["word"],), options, "readings")
    found = call.run()
    command = ("decode", hex(asked["word"]), *option_words(PAGE.forms["word"], asked))
    return Answer(call, command, found, drawn(found))


_TYPE = Field("data_type", "Element type", "bf16", choices=tuple(DATA_TYPE))
_MAJOR = choice("major", "Contiguous", ("K", "MN"), option="--major")
_LAYOUT = (
    Field("tile", "Tile", "128x64", pair, "mn x k, in elements."),
    _TYPE,
    _MAJOR,
    choice("swizzle", "Swizzle", ("none", "32B", "64B", "128B", "128B_ATOM_32B"), "128B", option="--swizzle"),
    choice("atom_order", "Atom order", ("column", "row"), hint="column: atoms along the strided dimension follow each other.",
           option="--atom-order"),
    Field("smem_address", "Shared address", "0x0", integer, option="--smem-address", unsaid="0"),
)  # fmt: skip

PAGE = Page(
    "tensor-core",
    "Tensor core",
    "What the tensor core reads and holds: operands, their descriptors, the bytes of each K step, fragments.",
    {
        "descriptors": (*_LAYOUT, choice("operand", "Operand", ("A", "B"), option="--operand"),
                        choice("reader", "Read by", tuple(_LOOPS), option="--for")),
        "operand": (*_LAYOUT, Field("element", "Mark element", read=Optional(pair), hint="mn,k", option="--element")),
        "fragment": (
            Field("instruction", "Instruction", "mma.m16n8k16", choices=(
                "mma.m16n8k16", "mma.m16n8k8", "wgmma.m64n128k16", "ldmatrix.x4", "ldmatrix.x4.trans", "stmatrix.x4")),
            choice("operand", "Operand", ("A", "B", "C", "D", ""), option="--operand"),
            Field("data_type", "Element type", "bf16", Optional(text), choices=tuple(DATA_TYPE), option="--type"),
            Field("lane", "Mark thread", read=Optional(integer), option="--lane"),
        ),
        "word": (
            Field("word", "Word", "0x4000004000010040", integer, "A number from a debugger."),
            _MAJOR,
            replace(_TYPE, option="--type"),
        ),
    },
    answer,
    choice("show", "Show", ("descriptors", "operand", "fragment", "word")),
)  # fmt: skip
