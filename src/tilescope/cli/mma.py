"""`tilescope mma`: operands in shared memory, fragments in registers, descriptors; `tilescope decode`: any number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from tilescope.cli.command import Output, command, reading, refuse
from tilescope.cli.map_source import described, map_options, read_source
from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.inputs import SMEM_ADDRESS, START, Input, chosen, flag
from tilescope.inputs.beside import barrier_facts, fragment_facts, loop_facts, operand_facts
from tilescope.inputs.tiles import ATOM_ORDER, DESCRIPTORS, ELEMENT, FIRST_READER, FRAGMENT, OPERAND, WORD, loop_of
from tilescope.mma.agreement import compatible
from tilescope.mma.canonical import canonical_layout
from tilescope.mma.fragment import fragment as fragment_of
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.readings import descriptor_readings, pasted_word
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.tmem_layout import known_datapath, tmem_layout
from tilescope.pipeline.barrier_reading import barrier_readings
from tilescope.tensor_map.decoding import inspect_tensor_map
from tilescope.tensor_map.pasted import paste_refused, pasted_descriptor
from tilescope.written import number, numbers, pair, tile
from tilescope.written import word as pasted

_TMEM_FORM = (
    Input(
        "cta_group",
        "--cta-group",
        "Blocks that multiply together",
        "2 for a pair: M and N are the pair's.",
        number,
        "1",
    ),
    Input("ws", "--ws", "The .ws instruction (M 32, 64, 128)", read=flag),
    Input("sparse", "--sparse", "The .sp instruction", read=flag),
)
_PLACED = (ATOM_ORDER, replace(START, name="start"))


@click.group(invoke_without_command=True)
@click.pass_context
def mma(context: click.Context) -> None:
    """Draw what tensor cores read and hold: operands, fragments, descriptors."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command(
    *OPERAND[:4],
    *_PLACED,
    replace(ELEMENT, hint="as mn,k; the atom that holds it is drawn."),
    group=mma,
    short_help="Draw an operand as it lies in shared memory.",
)
def layout(tile: Any, data_type: str, output: Output, element: Any = None, **said: Any) -> int:
    """Draw an operand of TILE (mn x k, such as 128x64) elements of TYPE as it lies in shared memory."""
    operand = canonical_layout(data_type=data_type, **chosen(OPERAND[2:4], said)).tile(tile, **chosen(_PLACED, said))
    return output.show(operand, extra=operand_facts(operand, element), element=element)


@command(
    *FRAGMENT,
    Input("element", "--element", "Mark the thread that holds this element", "row,column.", pair),
    group=mma,
    short_help="Draw which thread holds which element.",
)
def fragment(instruction: str, output: Output, lane: int | None = None, element: Any = None, **said: Any) -> int:
    """Draw which thread holds which element, and what each thread holds.

    INSTRUCTION: mma.m16n8k16, wgmma.m64n128k16, ldmatrix.x4.trans or tcgen05.ld.32x32b.x8, for example.
    """
    held = fragment_of(instruction, **said)
    return output.show(held, extra=fragment_facts(held, lane, element), lane=lane, element=element)


@command(
    Input("n", "--n", "Columns of the accumulator D", read=number),
    Input("k", "--k", "Instead of --n", "A, or with --metadata its metadata, of K elements along k.", number),
    *_TMEM_FORM,
    Input("metadata", "--metadata", "With --k, where the metadata of a sparse A lies", read=flag),
    Input("data_type", "--type", "The matrix's own type", default="f32 for D, bf16 for A"),
    Input("address", "--address", "Address of its first cell", "lane << 16 | column.", number, "0"),
    Input("element", "--element", "Say where this element lies", "row,column.", pair),
    group=mma,
    short_help="Draw a matrix in tensor memory (Blackwell).",
)
@click.option("--m", type=reading(number), required=True, metavar="M", help="Rows; with --cta-group 2 the pair's.")
def tmem(
    m: int, metadata: bool, output: Output, n: int | None = None, k: int | None = None, element: Any = None, **said: Any
) -> int:
    """Draw where D (with --n) or A (with --k) lies in tensor memory: lanes by columns, with the warps' quarters."""
    if n is None and k is None:
        known_datapath(m, **chosen(_TMEM_FORM, said))  # a wrong m is told first: no --n would help
    what = "--n N for the accumulator D, or --k K for A"
    refuse(
        (n is None and k is None, f"Give {what} (and --metadata for its metadata)."),
        (n is not None and k is not None, f"Give one of --n and --k: {what}."),
        (metadata and k is None, "Give --k K in place of --n: metadata belong to A."),
    )
    operand: Any = "D" if k is None else "metadata" if metadata else "A"
    matrix = tmem_layout((m, n or k or 0), operand=operand, **said)
    extra = {} if element is None else {"element": list(element), "place": matrix.place(*element)._asdict()}
    return output.show(matrix, extra=extra, element=element)


@command(
    Input("shape", read=tile),
    Input("kind"),
    Input("element", "--element", "Say where the scale of this element lies", "row,k.", pair),
    group=mma,
    short_help="Draw the scale factors of a block-scaled matrix.",
)
def scales(shape: Any, kind: str, output: Output, element: Any = None) -> int:
    """Draw where the scale factors of SHAPE (rows x k, such as 128x256) elements of KIND (mxfp8, mxfp4, nvfp4) lie."""
    rows, k = shape
    factors = scale_layout(rows, k, kind)
    extra = {}
    if element is not None:
        row, block = element[0], element[1] // factors.format.block
        extra = {"element": list(element), "block": block, "offset": int(factors.offset(row, block))}
    return output.show(factors, extra=extra, element=element)


@command(
    Input("kind"),
    Input("shape", read=tile),
    Input("a_type", "--a-type", "Type of A", default="the kind's, if it has only one"),
    Input("b_type", "--b-type", "Type of B", default="as A"),
    Input("d_type", "--d-type", "Type of the accumulator", "f16, f32 or s32.", default="the widest"),
    Input("a_major", "--a-major", "Contiguous in A", default="K", choices=("K", "MN")),
    Input("b_major", "--b-major", "Contiguous in B", default="K", choices=("K", "MN")),
    Input("negate_a", "--negate-a", "Multiply by -A", read=flag),
    Input("negate_b", "--negate-b", "Multiply by -B", read=flag),
    Input("saturate", "--saturate", "Sums of kind i8 saturate", read=flag),
    Input("sparse", "--sparse", "A is sparse (.sp)", read=flag),
    Input(
        "sparsity_selector",
        "--selector",
        "Selector of the metadata",
        "0 to 3 for kinds f16 and tf32, else 0.",
        number,
        "0",
    ),
    Input("max_shift", "--max-shift", "Largest shift of B under .ws", "0, 8, 16 or 32.", number, "0"),
    Input("scale_type", "--scale-type", "Type of the scale factors", "ue8m0 or ue4m3."),
    Input("a_scale_id", "--a-scale-id", "First byte of A's scale factors", "0 to 3.", number, "0"),
    Input("b_scale_id", "--b-scale-id", "First byte of B's scale factors", "0 to 3.", number, "0"),
    Input("k", "--k", "K of one step", "96 for the wide one of mxf4 and mxf4nvf4 (sm_103a).", number, "the kind's"),
    group=mma,
    short_help="Build tcgen05's instruction descriptor.",
)
def instruction(kind: str, shape: tuple[int, int], output: Output, **said: Any) -> int:
    """Build the 32-bit descriptor of tcgen05.mma: KIND (f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4) and M x N.

    For a pair of blocks (cta_group::2) M and N are those of the pair.

    \b
    tilescope mma instruction f16 128x256 --a-type bf16
    tilescope mma instruction mxf4nvf4 256x256 --scale-type ue4m3
    """  # noqa: D301  \b keeps the lines below it apart
    descriptor = InstructionDescriptor(kind, *shape, **said)
    return output.show(descriptor, extra={"word": hex(descriptor.encode()), "forms": list(descriptor.forms)})


@command(*DESCRIPTORS, group=mma, short_help="List the descriptors of a K loop.")
def descriptors(tile: Any, data_type: str, output: Output, reader: str = FIRST_READER, **said: Any) -> int:
    """List the descriptors that read an operand of TILE (mn x k) elements of TYPE, for the whole K loop."""
    loop = loop_of(reader)(tile, data_type, **said)
    return output.show(loop, extra=loop_facts(loop))


def placed_copy(text: str) -> tuple[tuple[int, ...], int]:
    """Coordinates of a copy and where it goes: 64,0@8192.

    >>> placed_copy("64,0@0x2000")
    ((64, 0), 8192)
    """
    coords, _, offset = text.partition("@")
    return numbers(coords), number(offset or "0")


@command(
    SMEM_ADDRESS,
    Input(
        "major", "--major", "How the instruction reads the tile", default="as --tile-major, else K", choices=("K", "MN")
    ),
    Input("tile_major", "--tile-major", "Innermost dimension of the map", default="as --major", choices=("K", "MN")),
    Input("rows", "--rows", "mn that the instruction reads", read=number, default="all, up to 256"),
    Input("k", "--k", "k that the instruction reads", read=number, default="32 bytes"),
    Input("origin", "--origin", "The first element that it reads", "mn,k.", pair, "0,0"),
    Input("data_type_read", "--read-as", "Element type that the tensor core reads", default="the map's"),
    group=mma,
    short_help="Say whether a descriptor reads what TMA wrote.",
)
@click.argument("word", type=reading(pasted))
@map_options
@click.option(
    "--copy", "copies", type=reading(placed_copy), multiple=True, metavar="COORDS@OFFSET",
    help="A copy that brings the tile, such as 64,0@8192; may be repeated. [default: one, to its start]",
)  # fmt: skip
def check(
    word: int,
    source: Any,
    copies: Any,
    output: Output,
    asked: Any = None,
    data_type_read: str | None = None,
    **said: Any,
) -> int:
    """Say whether the bytes that TMA wrote are the bytes that the descriptor WORD reads, and if not, why.

    \b
    tilescope mma check 0x4000004000010040 map.bin --smem-address 0x400
    tilescope mma check 0x4000004000010040 --smem-address 0x400 --type bf16 \\
        --dims 64,64 --box 64,64 --swizzle 128B

    The tensor map is described by options or by SOURCE, as for `tilescope check`. Exit status 1: they do not agree.
    """  # noqa: D301  \b keeps the lines below it apart
    tensor_map = described(source, asked).tensor_map()
    readings = [reading for reading in descriptor_readings(word).readings if reading.major is not None]
    sound = [reading.descriptor for reading in readings if reading.sound]
    if not sound:
        raise RuleError(reading.violations[0] for reading in readings)
    agreement = compatible(tensor_map, sound[0], copies=copies or None, data_type=data_type_read, **said)
    return output.show(agreement, ok=agreement.agrees)


@command(*WORD[1:], Input("rows", "--rows", "mn that the instruction reads", read=number, default="64"))
@click.argument("words", nargs=-1, required=True)
@click.option("--addresses", is_flag=True, help="List the address of every 16 bytes that one instruction reads.")
def decode(words: tuple[str, ...], addresses: bool, output: Output, rows: int | None = None, **said: Any) -> int:
    """Explain WORDS: a tensor map, any descriptor number of a tensor core, or an mbarrier, field by field.

    A tensor map is 128 bytes: 256 hexadecimal digits, 16 or 32 words as cuda-gdb or printf show them (any separators,
    0x or not), JSON, or a file with any of these or with the bytes themselves; - is stdin.

    \b
    tilescope decode map.bin
    tilescope decode - < words-from-cuda-gdb.txt
    tilescope decode 0x4000004000010040 --major K --type bf16
    tilescope decode 0x08200490
    tilescope decode 0x000003f0001ffffe

    A number is read as everything it could be: the 64-bit descriptors of wgmma and tcgen05, up to 32 bits tcgen05's instruction
    descriptor of each kind, and an mbarrier or the token of an arrival. Majorness and element type of an operand are not in its word; the
    instruction has them, so say them with --major and --type. Exit status 1: the bytes or bits are no descriptor.
    """  # noqa: D301  \b keeps the lines below it apart
    refuse((rows is not None and rows < 1, f"--rows {rows}: an instruction reads at least 1."))
    word = pasted_word(words[0]) if len(words) == 1 else None
    if word is not None:
        return _show_word(word, output, addresses=addresses, rows=rows, **said)
    try:
        source = read_source(words, takes_options=False)
    except RuleError as error:  # what is neither a tensor map nor a descriptor word is told of both
        raise RuleError(
            paste_refused(violation.values, or_word=True) if violation.rule == pasted_descriptor.name else violation
            for violation in error.violations
        ) from None
    inspection = inspect_tensor_map(source.tensor_map().encode() if source.blob is None else source.blob)
    return output.show(inspection, ok=inspection.tensor_map is not None)


def _show_word(
    word: int, output: Output, *, addresses: bool, rows: int | None, data_type: str | None = None, **said: Any
) -> int:
    """Draw what a number could be, with the bytes it reads if `addresses` are asked for."""
    width: Any = {} if data_type is None else {"element_bits": DataType.named(data_type).smem_bits}
    readings = descriptor_readings(word, **said, **width)
    operand = next((reading for reading in readings.possible if reading.major is not None), None)
    extra: dict[str, Any] = {}
    if addresses and operand is not None:
        bits: Any = operand.element_bits
        asked = {"k": K_STEP_BYTES * 8 // bits, "element_bits": bits} | ({} if rows is None else {"rows": rows})
        read = operand.descriptor.addresses(operand.major, **asked)
        extra = {"addresses": [[hex(address) for address in line] for line in read.tolist()]}
        rows = len(read)
    barriers = barrier_readings(word)
    extra |= barrier_facts(barriers)
    return output.show(readings, extra=extra, ok=bool(readings.possible or barriers), rows=rows if addresses else None)
