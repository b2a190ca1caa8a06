"""The page that finds a tile in a dump of shared memory: both as hexadecimal text, or as files that are dropped on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilescope.questions.call import Call
from tilescope.questions.copy_questions import (
    DUMP,
    DUMPED_TILE,
    IDENTIFY,
    IDENTIFY_ADDRESS,
    TILE_SHAPE,
    identify_answer,
)
from tilescope.questions.opened_file import fields_of_dump, fields_of_tile, format_dump
from tilescope.questions.page import Leads, OpenedField, PageForm, address
from tilescope.questions.question import Answer, Asked
from tilescope.questions.shared_inputs import TYPE
from tilescope.swizzle import Swizzle
from tilescope.tma import Identification
from tilescope.tma.array_file import dump_bytes, tile_of
from tilescope.tma.identification import identify

TILE_TEXT = "TILE"  # what a refusal calls a tile that is given as text
MAX_TEXT_CHARACTERS = 200_000  # 64 KiB as xxd writes them: a tile of 256 x 128 elements of two bytes


def _ask_from_input(asked: Asked) -> Asked:
    """A command reads the dump from its input, and has the tile among its words."""
    return asked.saying(dump_text=asked["dump"], dump="-")


def _answer(asked: Asked) -> Answer:
    """The layout, and the Python that reads both texts."""
    module = "tilescope.tma.array_file"
    dump = Call(dump_bytes, (_encode_text(asked["dump_text"]),), name="dump", module=module)
    arguments = (_encode_text(asked["tile"]), TILE_TEXT, asked.get("data_type"), asked.get("shape"))
    tile = Call(tile_of, arguments, name="tile", module=module)
    answer = identify_answer(asked.saying(dump_bytes=dump.run(), tile_array=tile.run()))
    options = asked.options([IDENTIFY_ADDRESS])
    return replace(answer, call=Call(identify, (dump, tile), options, "found"))


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")


def _leads(_: Asked, answer: Answer) -> Leads:
    """The page that draws the layout beside shared memory."""
    identification = answer.value
    if not isinstance(identification, Identification) or not identification.found:
        return {}
    layout = identification.layout.with_start(0)
    return {"dump": {"See the layout beside shared memory": address("layout", {"text": repr(layout)})}}


_COUNTED = np.arange(8 * 32, dtype=np.uint16).reshape(8, 32)
IDENTIFY_FORM = PageForm(
    IDENTIFY,
    inputs=(
        replace(
            DUMP,
            label="Dump of shared memory",
            hint="as xxd, hexdump -C, cuda-gdb or printf show it; the command reads it from its input.",
            is_long=True,
            longest=MAX_TEXT_CHARACTERS,
        ),
        replace(DUMPED_TILE, hint="its bytes, row after row.", is_long=True, longest=MAX_TEXT_CHARACTERS),
        replace(TILE_SHAPE, hint=""),
        TYPE,
        replace(IDENTIFY_ADDRESS, label="Shared address", hint="of the dump's first byte."),
    ),
    presets={
        "dump": format_dump(Swizzle.named("64B").swizzle(_COUNTED).tobytes()),
        "tile": format_dump(_COUNTED.tobytes()),
        "shape": "8x32",
        "data_type": "u16",
    },
    rare=frozenset(["smem_address"]),
    asking=_ask_from_input,
    answer=_answer,
    leads=_leads,
    opens={"dump": OpenedField(fields_of_dump), "tile": OpenedField(fields_of_tile)},
)
