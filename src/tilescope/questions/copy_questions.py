"""The questions about copies by TMA: what one does, byte for byte, and which layout a tile in a dump has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, element_line, make_line, place_facts, shared_bits
from tilescope.questions.map_inputs import (
    DESCRIBED_MAP,
    MAP_FIELDS,
    MAP_INPUTS,
    MAP_PRESETS,
    asking_map,
    fix_map,
    map_arguments,
    map_call,
    map_taken,
    read_map,
)
from tilescope.questions.page import PageForm
from tilescope.questions.question import Answer, Asked, Input, Made, Question, defaults
from tilescope.questions.shared_inputs import SMEM_ADDRESS, START, TYPE
from tilescope.sentence import fill_template
from tilescope.tensor_map import Im2colMap, Im2colWideMap, TensorMap
from tilescope.tma import Trace, gather4, load, trace
from tilescope.tma.array_file import as_npy, map_of_array
from tilescope.tma.identification import Identification, identify
from tilescope.tma.place import Place, place_at, place_of
from tilescope.tma.tracing import OPERATIONS, first_bit_in_box
from tilescope.written import number, numbers, pair, smem_address, tile

LARGEST_SMEM_BYTES = 1 << 18  # of a copy on a page
_LINES = 256  # drawn on a page
_PLACE_LINES = 8  # drawn around one place: a whole pattern
_EXACT = (32, 160)  # columns and rows of a tensor that a page draws one by one
COORDS = Input(
    "coords", "--coords", "Coordinates", "where the box starts, innermost first.", read=numbers, unsaid="0,0,…"
)
OFFSETS = Input(
    "offsets", "--offsets", "Offsets", "W, H, D of an im2col map; halo and offset of a wide one.", read=numbers
)
OPERATION = Input("operation", "--operation", "Operation", choices=OPERATIONS)
COPY_INPUTS = (COORDS, OFFSETS, SMEM_ADDRESS, OPERATION)


_INSTEAD = "an XOR of the offset in the buffer gives {address:#x} instead"


def load_answer(asked: Asked) -> Answer:
    """The trace of one copy; with an array as the tensor it is carried out."""
    array = asked.get("array")
    if array is not None and "source" not in asked:
        tensor_map = map_of_array(array, asked["npy"], map_arguments(asked))
        making = None
    else:
        maps = read_map(asked)
        tensor_map = maps.tensor_map()
        making = map_call(maps)
    asked.require_at_most("bytes of shared memory", tensor_map.smem_bytes, argument="box", fix="Use a smaller box.")
    options = asked.options(COPY_INPUTS)
    copied = Call(trace, (tensor_map,), options).run()
    array_file = None
    if array is not None and copied.is_load:
        smem = _carried_out(copied, array)
        array_file = Made(as_npy(smem), f": {len(smem)} bytes")
    places = []
    if "element" in asked:
        places.append(place_of(copied, *asked["element"]))
    if "at" in asked:
        places.append(place_at(copied, asked["at"]))
    return Answer(
        copied,
        None if making is None else Call(trace, (making,), options, "trace"),
        first=_summarize_trace(copied, tuple(places), "element" in asked),
        shown={"places": tuple(places), "lines": asked.get("lines", _PLACE_LINES if places else None)},
        extra={"places": [place.to_dict() for place in places]} if places else {},
        violations=tensor_map.findings,
        made=array_file,
    )


def _carried_out(copied: Trace, array: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """The bytes that the copy leaves in shared memory."""
    smem: npt.NDArray[np.uint8]
    start = copied.smem_address
    if copied.operation == "gather4":
        column, *rows = copied.coords
        smem = gather4(copied.tensor_map, array, column, rows, smem_address=start)
    else:
        smem = load(copied.tensor_map, array, copied.coords, offsets=copied.offsets, smem_address=start)
    return smem


def load_taken(asked: Asked) -> dict[str, object]:
    """The defaults of a copy and its map."""
    return {**map_taken(asked), **defaults(trace)}


DUMP = Input("dump", "", "Dump", read=str)
DUMPED_TILE = Input("tile", "", "Tile", read=str)
TILE_SHAPE = Input("shape", "--shape", "Rows and columns of the tile", "where its file does not say.", read=tile)
IDENTIFY_ADDRESS = Input(
    "smem_address", START.option, "Shared address of the dump's first byte", read=smem_address, unsaid="unknown"
)


def identify_answer(asked: Asked) -> Answer:
    """The layout of a tile in a dump; a command reads both from files."""
    call = Call(identify, (asked["dump_bytes"], asked["tile_array"]), asked.options([IDENTIFY_ADDRESS]))
    identification = call.run()
    return Answer(identification, first=_summarize_identification(identification), is_yes=identification.explained)


def _summarize_trace(trace: Trace, places: tuple[Place, ...], asked_element: bool) -> FirstLine:
    """The bytes that a copy moves, or the place of the requested element."""
    if places:
        lines = [
            _summarize_place(trace, place, by_address=position > 0 or not asked_element)
            for position, place in enumerate(places)
        ]
        return FirstLine(" ".join(line.sentence for line in lines))
    a = trace.tensor_map
    return make_line(
        "The {operation} moves {rows:row} of {row_bytes} bytes {direction} shared address {smem:#x}[[; the mbarrier "
        "expects {expected} bytes]][[; {outside} rows are outside the tensor]][[; {cut_bytes} bytes of a row are "
        "outside the tensor]][[; {overrun_bytes} bytes behind the tensor's rows are overwritten]].",
        operation=trace.operation,
        rows=trace.rows,
        row_bytes=a.interleave.slice_bytes or a.inner_bytes,
        direction="to" if trace.is_load else "from",
        smem=trace.smem_address,
        expected=trace.transaction_bytes,
        outside=trace.filled_rows,
        cut_bytes=trace.outside_bytes,
        overrun_bytes=trace.overrun_bytes,
    )


def _summarize_place(trace: Trace, place: Place, *, by_address: bool) -> FirstLine:
    """The place of an element, or the element at an address."""
    if place.element is None:
        return make_line(
            "Byte {address:#x} holds nothing of this copy, which writes {first:#x} to {last:#x}.",
            address=place.address,
            first=trace.smem_address,
            last=trace.smem_address + trace.tensor_map.smem_bytes - 1,
        )
    instead = ""
    if place.offset_xor_address is not None and place.offset_xor_address != place.address:
        instead = fill_template(_INSTEAD, {"address": place.offset_xor_address})
    if not by_address:
        bits = shared_bits(place.first_bit or 0, trace.tensor_map.data_type.bits)
        return element_line(place.element, place.address, instead, bits)
    return make_line(
        "Byte {address:#x} (line {line}, chunk {chunk}, bank {bank}) holds {elements} of the box, "
        "coordinates {coords}[[, {outside}]][[; {instead}]].",
        elements=_elements_of_byte(trace, place.element),
        coords=place.coords,
        outside="outside the tensor" if place.holds == "fill" else "",
        instead=instead,
        **place_facts(place.address),
    )


def _elements_of_byte(trace: Trace, first: tuple[int, int]) -> str:
    """The elements that have bits in a byte, of which the first is known; of 4 and of 6 bits there are two."""
    if not first_bit_in_box(trace, 1):
        return f"element {first}"
    row, column = first
    parts = "" if trace.tensor_map.data_type.bits == 4 else "parts of "
    return f"{parts}elements {first} and {(row, column + 1)}"


def _summarize_identification(found: Identification) -> FirstLine:
    """The place of a tile in a dump."""
    if not found.found:
        sentence = fill_template(
            "The tile is not in the dump: even the best layout leaves {wrong} of {compared} bytes wrong.",
            {"wrong": found.wrong_bytes, "compared": found.compared_bytes},
        )
        return FirstLine(
            sentence, "Check that the dump is of the same stage, and that the tile has the right type and values."
        )
    facts = {
        "subject": "The tile is" if found.explained else "A part of the tile is",
        "offset": found.offset,
        "swizzle": found.swizzle.name,
        "base_offset": found.base_offset,
        "order": found.order_words,
        "transposed": "transposed" if found.transposed else "",
        "fits": found.compared_bytes - found.wrong_bytes - found.missing_bytes,
        "compared": found.compared_bytes,
    }
    where = (
        "{subject} at byte {offset:#x} of the dump: swizzle {swizzle}[[, base offset {base_offset}]], {order}"
        "[[, {transposed}]]; {fits} of {compared} bytes fit"
    )
    wrong = found.first_wrong
    if wrong is None:
        return make_line(where + ".", **facts)
    return make_line(
        where
        + ", the first wrong at {address:#x}: element ({row}, {column}) should be {expected:#04x}, not {is_now:#04x}.",
        address=wrong.address,
        row=wrong.row,
        column=wrong.column,
        expected=wrong.expected,
        is_now=wrong.found,
        **facts,
    )


LOAD = Question(
    name="load",
    help="""Show what one copy does: the box in the tensor, and shared memory line by line.

    The map is described by options, or by SOURCE as for `tilescope check`: a file, - for stdin, or text. An array
    (--npy) has its own type, dims and strides; options override them one by one.

    --element and --at locate one element. The answer also names the address that a wrong XOR of the offset in the
    buffer would give. ROW counts the rows of the box in order.

    gather4 and scatter4 take the column and four rows as --coords. With --npy the copy is carried out, and --out FILE
    writes the bytes that it leaves in shared memory.
    """,
    inputs=(
        *COPY_INPUTS,
        Input("element", "--element", "Locate this element of the box", "row, then column.", read=pair),
        Input("at", "--at", "Show the element at this shared address", read=smem_address),
        *DESCRIBED_MAP,
        Input(
            "lines",
            "--lines",
            "Lines of shared memory to draw",
            read=number,
            unsaid="32, or 8 around one place",
            least=1,
        ),
        Input(
            "npy",
            "--npy",
            "An array as the tensor; its type, dims and strides need no options",
            file="array",
            shown_as="FILE",
        ),
    ),
    answer=load_answer,
    functions=(TensorMap, trace),
    taken=load_taken,
    said_first=MAP_INPUTS,
    makes="Write what shared memory holds, as .npy; - is stdout.",
    makes_if="--out needs a load, and --npy FILE with the tensor.",
)
IDENTIFY = Question(
    name="identify",
    help="""Find the TILE in the DUMP, and report its address, its layout and how many bytes match.

    Both are files, - is stdin: .npy as np.save writes it, raw bytes, or hexadecimal text of xxd, hexdump -C, cuda-gdb
    or printf; or such a text itself. Swizzles of the hardware and any other XOR swizzle are tried, rows any distance
    apart, atoms and boxes in any order, and the transposed tile.
    """,
    inputs=(
        TYPE,
        TILE_SHAPE,
        IDENTIFY_ADDRESS,
        DUMP,
        DUMPED_TILE,
    ),
    answer=identify_answer,
    functions=(identify,),
)


def _load_form(kind: str, coords: tuple[Input, ...], start: str) -> PageForm:
    """The form of the page of copies through one kind of map; `start` is where the copy starts at first."""
    return PageForm(
        LOAD,
        inputs=(*coords, SMEM_ADDRESS, OPERATION, *MAP_FIELDS[kind]),
        presets=MAP_PRESETS[kind] | {"coords": start},
        asking=asking_map,
        limits={"bytes of shared memory": LARGEST_SMEM_BYTES},
        shown={"lines": _LINES, "exact": _EXACT},
        walks=True,
        dragged="coords",
        fixes=fix_map,
    )


LOAD_FORMS = {
    TensorMap.kind: _load_form(TensorMap.kind, (COORDS,), "16,11"),
    Im2colMap.kind: _load_form(Im2colMap.kind, (COORDS, OFFSETS), "0,-1,-1,0"),
    Im2colWideMap.kind: _load_form(Im2colWideMap.kind, (COORDS, OFFSETS), "0,0,0,0"),
}
QUESTIONS = (LOAD, IDENTIFY)
