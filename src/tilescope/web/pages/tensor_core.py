"""The page of tensor cores: operands in shared memory, the descriptors that read them, fragments, words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tilescope.data_type import DataType
from tilescope.inputs import chosen, command_words, defaults
from tilescope.inputs.beside import barrier_facts, fragment_facts, loop_facts, operand_facts
from tilescope.inputs.tiles import DESCRIPTORS, ELEMENT, FRAGMENT, OPERAND, WORD, loop_of
from tilescope.mma.canonical import CanonicalLayout, canonical_layout
from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.mma.fragment import fragment
from tilescope.mma.readings import descriptor_readings
from tilescope.pipeline.barrier_reading import barrier_readings
from tilescope.view.descriptor_view import k_step_grid, step_link
from tilescope.view.drawing import Beside, Drawing
from tilescope.view.grid import extent
from tilescope.web.call import Call
from tilescope.web.page import Answer, Page, answered, drawn, form, limited

MAX_BYTES = 1 << 18  # of an operand


def answer(show: str, asked: dict[str, Any]) -> Answer:
    """The answer of the form that was chosen."""
    return {"descriptors": _descriptors, "operand": _operand, "fragment": _fragment, "word": _word}[show](asked)


def command(show: str, asked: dict[str, Any]) -> list[str]:
    """The command that asks the same."""
    placed = defaults(canonical_layout) | defaults(CanonicalLayout.tile, smem_address="start")
    taken: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
        "descriptors": (("mma", "descriptors"), defaults(_loop(asked)) | defaults(loop_of)),
        "operand": (("mma", "layout"), placed),
        "fragment": (("mma", "fragment"), defaults(fragment)),
        "word": (("decode",), defaults(descriptor_readings)),
    }
    words, left_out = taken[show]
    return [*words, *command_words(PAGE.forms[show], asked, left_out)]


def _require_small(asked: dict[str, Any]) -> None:
    mn, k = asked["tile"]
    size = mn * k * DataType.named(asked["data_type"]).smem_bits // 8
    limited("bytes of an operand", "tile", size, MAX_BYTES, "Use a tile that a block's shared memory holds.")


def _operand(asked: dict[str, Any]) -> Answer:
    _require_small(asked)
    layout = Call(canonical_layout, (), chosen(OPERAND[1:4], asked), "layout")
    options = chosen(OPERAND[4:5], asked) | {"start": asked.get("smem_address", 0)}
    call = Call(CanonicalLayout.tile, (asked["tile"],), options, "operand", layout)
    element = asked.get("element")
    return answered(call, drawing={"element": element}, extra=operand_facts(call.run(), element))


def _loop(asked: dict[str, Any]) -> Callable[..., DescriptorLoop]:
    """The function that lists the descriptors of the reader that was asked for."""
    return loop_of(**chosen(DESCRIPTORS[-1:], asked))


def _descriptors(asked: dict[str, Any]) -> Answer:
    _require_small(asked)
    options = chosen(DESCRIPTORS[2:-1], asked)
    call = Call(_loop(asked), (asked["tile"], asked["data_type"]), options, "loop")
    loop = call.run()
    drawing = drawn(loop)
    *parts, steps = drawing.parts
    return Answer(
        call,
        loop,
        Drawing(drawing.title, (*parts, Beside((k_step_grid(loop), steps)))),
        extra=loop_facts(loop),
        steps=tuple(_k_steps(loop)),
    )


def _k_steps(loop: DescriptorLoop) -> Iterator[tuple[str, str]]:
    for block, descriptors in enumerate(loop):
        for step, descriptor in enumerate(descriptors):
            mn, k = extent(block * loop.block_mn, loop.block_mn), extent(step * loop.k_per_step, loop.k_per_step)
            reads = f"start {descriptor.start_address:#x}, descriptor {descriptor.encode():#018x}"
            yield step_link(block, step), f"mn {mn}, k {k}: {reads}"


def _fragment(asked: dict[str, Any]) -> Answer:
    call = Call(fragment, (asked["instruction"],), chosen(FRAGMENT[1:3], asked), "fragment")
    held, lane = call.run(), asked.get("lane")
    first, more = (lane or 0) // 32 * 32, " …" if held.values > 8 else ""
    steps = [
        (f"T{thread}", f"thread {thread} holds {', '.join(map(str, held.held_by(thread)[:8]))}{more}")
        for thread in range(first, min(first + 32, held.threads))
    ]
    return answered(call, drawing={"lane": lane}, extra=fragment_facts(held, lane), steps=steps)


def _word(asked: dict[str, Any]) -> Answer:
    options = chosen(WORD[1:2], asked)
    if "data_type" in asked:
        options["element_bits"] = DataType.named(asked["data_type"]).smem_bits
    call = Call(descriptor_readings, (asked["word"],), options, "readings")
    return answered(call, extra=barrier_facts(barrier_readings(asked["word"])))


_FIRST = {"tile": "128x64", "data_type": "bf16", "smem_address": "0x0"}
PAGE = Page(
    "tensor-core",
    "Tensor core",
    "What the tensor core reads and holds: operands, their descriptors, the bytes of each K step, fragments.",
    {
        "descriptors": form(DESCRIPTORS, **_FIRST),
        "operand": form((*OPERAND, ELEMENT), **_FIRST),
        "fragment": form(FRAGMENT, instruction="mma.m16n8k16", operand="A", data_type="bf16"),
        "word": form(WORD, word="0x4000004000010040", data_type="bf16"),
    },
    answer,
    command,
    ("show", "Show"),
)
