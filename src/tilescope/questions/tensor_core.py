"""The questions about tensor cores: operands in shared memory, fragments in registers, tensor memory, descriptors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.layout import MAJORS, Layout
from tilescope.mma.agreement import Agreement, compatible
from tilescope.mma.canonical import CanonicalLayout, canonical_layout
from tilescope.mma.consumer import CONSUMER
from tilescope.mma.datapath import known_datapath
from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.mma.fragment import Fragment, fragment
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.readings import descriptor_readings
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.scale_packing import SCALE_ATOM, SCALE_FORMATS
from tilescope.mma.tmem_budget import tmem_budget
from tilescope.mma.tmem_layout import tmem_layout
from tilescope.mma.tmem_load import LoadedElement, loaded_element
from tilescope.planner.map_path import path_of_map
from tilescope.questions.call import Call
from tilescope.questions.first_lines.memory import of_layout
from tilescope.questions.first_lines.plans import of_element_path
from tilescope.questions.first_lines.tensor_core import (
    of_agreement,
    of_budget,
    of_descriptors,
    of_fragment,
    of_instruction,
    of_scales,
    of_tmem,
)
from tilescope.questions.inputs import ATOM_ORDER, ELEMENT, ELEMENT_TYPE, MAJOR, SMEM_ADDRESS, START, TILE, TYPE
from tilescope.questions.maps import BOX, DESCRIBED_MAP, DIMS, MAP_OPTIONS, STRIDES, described, map_call
from tilescope.questions.page import PageForm
from tilescope.questions.plans import LARGEST_TILE_ELEMENTS
from tilescope.questions.question import Answer, Asked, Input, Question, flag, in_words, refuse
from tilescope.questions.tmem_parts import named_layouts, tmem_parts
from tilescope.reading import known_name
from tilescope.rule import ARGUMENT_RANGE
from tilescope.tensor_map import TensorMap
from tilescope.written import number, numbers, pair, tile, word

LARGEST_OPERAND_BYTES = 1 << 18  # on a page
_LOOPS = {name: row.descriptors for name, row in CONSUMER.items() if row.descriptors is not None}
_FIRST_READER = next(iter(_LOOPS))

OPERAND_SWIZZLE = Input(
    "swizzle",
    "--swizzle",
    "Swizzle",
    choices=("none", "32B", "64B", "128B", "128B_ATOM_32B"),
)
OPERAND_INPUTS = (TILE, ELEMENT_TYPE, MAJOR, OPERAND_SWIZZLE, ATOM_ORDER)


def _require_small(asked: Asked) -> None:
    """Refuse an operand that is larger than a page draws."""
    mn, k = asked["tile"]
    if asked.limit("bytes of an operand") is None:
        return
    size = mn * k * DataType.named(asked["data_type"]).smem_bits // 8
    asked.require_at_most(
        "bytes of an operand", size, argument="tile", fix="Use a tile that a block's shared memory holds."
    )


def layout_answer(asked: Asked) -> Answer:
    """An operand as it lies in shared memory."""
    _require_small(asked)
    canonical = Call(canonical_layout, (), asked.options([ELEMENT_TYPE, MAJOR, OPERAND_SWIZZLE]), "layout")
    call = Call(
        CanonicalLayout.tile, (asked["tile"],), asked.options([ATOM_ORDER, START]), "operand", receiver=canonical
    )
    operand = call.run()
    element = asked.get("element")
    return Answer(
        operand,
        call,
        first=of_layout(operand, element),
        shown={"element": element},
        extra=operand_facts(operand, element),
    )


def operand_facts(operand: Layout, element: tuple[int, int] | None) -> dict[str, object]:
    """Where one element lies; nothing if nobody asks for one."""
    return {} if element is None else {"element": list(element), "address": hex(operand.address(*element))}


FRAGMENT_OPERAND = Input(
    "operand",
    "--operand",
    "Operand",
    "of mma and wgmma; E: the metadata of a sparse A.",
    unsaid="none",
    choices=("A", "B", "C", "D", "E"),
)
FRAGMENT_TYPE = replace(TYPE, hint="the operand's own, such as f32 for D.", unsaid="none")


def fragment_answer(asked: Asked) -> Answer:
    """Which thread holds which element."""
    call = Call(fragment, (asked["instruction"],), asked.options([FRAGMENT_OPERAND, FRAGMENT_TYPE]), "fragment")
    held = call.run()
    lane = asked.get("lane")
    element = asked.get("element")
    return Answer(
        held,
        call,
        first=of_fragment(held, lane, element),
        shown={"lane": lane, "element": element},
        extra=fragment_facts(held, lane, element),
    )


def fragment_facts(
    held: Fragment, lane: int | None = None, element: tuple[int, int] | None = None
) -> dict[str, object]:
    """CuTe's inverse layout; what one thread holds, and which thread holds an element, if that is asked for.

    >>> list(fragment_facts(fragment("ldmatrix.x4"), lane=5))
    ['inverse', 'lane', 'holds', 'matrices']
    """
    facts: dict[str, object] = {"inverse": str(held.inverse)}
    if lane is not None:
        facts["lane"] = lane
        facts["holds"] = [list(coord) for coord in held.held_by(lane)]
        facts["matrices"] = [held.matrix_of(lane, value) for value in range(held.values)]
    if element is not None:
        thread, value = held.holder(*element)
        facts["element"] = list(element)
        facts["holder"] = {"thread": thread, "value": value}
    return facts


DESCRIPTOR_OPERAND = Input(
    "operand",
    "--operand",
    "Operand",
    "A is read in blocks of rows, B in one n.",
    choices=("A", "B"),
)
DESCRIPTOR_START = replace(START, argument="")
READER = Input("reader", "--for", "Read by", choices=tuple(_LOOPS))
DESCRIPTOR_OPTIONS = (MAJOR, OPERAND_SWIZZLE, ATOM_ORDER, DESCRIPTOR_START, DESCRIPTOR_OPERAND)


def loop_of(reader: str = _FIRST_READER) -> Callable[..., DescriptorLoop]:
    """The function that lists the descriptors with which a tensor core reads a tile."""
    return _LOOPS[known_name("reader", reader, tuple(_LOOPS))]


def descriptors_answer(asked: Asked) -> Answer:
    """The descriptors of a K loop."""
    _require_small(asked)
    listing = Call(loop_of, (), asked.options([READER])).run()
    call = Call(listing, (asked["tile"], asked["data_type"]), asked.options(DESCRIPTOR_OPTIONS), "loop")
    loop = call.run()
    return Answer(loop, call, first=of_descriptors(loop), extra=loop_facts(loop))


def loop_facts(loop: DescriptorLoop) -> dict[str, object]:
    """The descriptors of a K loop as words, what their numbers mean, and what the rules say about them."""
    return {
        "descriptors": [[hex(step.encode()) for step in steps] for steps in loop],
        "explanation": list(loop.explanation),
        "transpose": loop.transpose,
        "findings": [finding.to_dict() for finding in loop.findings],
    }


TMEM_FORM = (
    Input(
        "cta_group",
        "--cta-group",
        "Blocks that multiply together",
        "2 for a pair: M and N are the pair's.",
        read=number,
    ),
    Input("ws", "--ws", "The .ws instruction (M 32, 64, 128)", read=flag),
    Input("sparse", "--sparse", "The .sp instruction", read=flag),
)
TMEM_OPTIONS = (
    *TMEM_FORM,
    Input("data_type", "--type", "The matrix's own type", unsaid="f32 for D, bf16 for A"),
    Input("address", "--address", "Address of its first cell", "lane << 16 | column.", read=number),
)


def tmem_answer(asked: Asked) -> Answer:
    """Where D or A lies in tensor memory; with `budget`, whether several matrices fit together."""
    if "budget" in asked:
        return _budget_answer(asked)
    refuse(
        "m" not in asked, "Give --m M with --n N or --k K; or --budget D:128x256,A:128x64, what lies there together."
    )
    m: int = asked["m"]
    n: int | None = asked.get("n")
    k: int | None = asked.get("k")
    if n is None and k is None:
        Call(known_datapath, (m,), asked.options(TMEM_FORM)).run()  # a wrong m is told first: no --n would help
    what = "--n N for the accumulator D, or --k K for A"
    refuse(n is None and k is None, f"Give {what} (and --metadata for its metadata).")
    refuse(n is not None and k is not None, f"Give one of --n and --k: {what}.")
    refuse(asked.get("metadata") and k is None, "Give --k K in place of --n: metadata belong to A.")
    if k is None:
        operand = "D"
    else:
        operand = "metadata" if asked.get("metadata") else "A"
    call = Call(tmem_layout, ((m, n or k or 0),), {"operand": operand} | asked.options(TMEM_OPTIONS), "matrix")
    matrix = call.run()
    element = asked.get("element")
    extra: dict[str, object] = {}
    loaded: LoadedElement | None = None
    if element is not None:
        extra = {"element": list(element), "place": matrix.place(*element)._asdict()}
    if "load" in asked:
        refuse(element is None, "--ld says who gets one element by a load: give it with --element ROW,COLUMN.")
        row, column = asked["element"]
        loaded = loaded_element(matrix, row, column, asked["load"])
        extra["loaded"] = loaded._asdict() | {"address": hex(loaded.address)}
    return Answer(
        matrix,
        call,
        first=of_tmem(matrix, element, loaded),
        shown={"element": element, "loaded": loaded},
        extra=extra,
    )


def _budget_answer(asked: Asked) -> Answer:
    """Whether matrices fit into tensor memory together."""
    refuse(
        any(name in asked for name in ("m", "n", "k", "metadata", "data_type", "address", "element", "load")),
        "--budget lists whole matrices, and places them; --cta-group, --ws and --sparse alone go with it.",
    )
    written = Call(tmem_parts, (in_words(asked["budget"]),), name="", module="tilescope.questions.tmem_parts")
    named = Call(
        named_layouts, (written, asked.options(TMEM_FORM)), name="parts", module="tilescope.questions.tmem_parts"
    )
    call = Call(tmem_budget, (named,), name="budget", module="tilescope.mma.tmem_budget")
    budget = call.run()
    return Answer(
        budget,
        call,
        first=of_budget(budget),
        extra={"alloc_columns": budget.alloc_columns},
        is_yes=budget.fits,
        violations=budget.violations,
    )


SCALES_ATOM = Input(
    "atom",
    "--atom",
    "Layout in memory",
    "128x4 for cuBLAS and CUTLASS; 8x4 for TensorRT-LLM's and FlashInfer's kernels of few rows.",
    choices=tuple(SCALE_ATOM),
)


def scales_answer(asked: Asked) -> Answer:
    """Where the scale factors of a block-scaled matrix lie."""
    rows, k = asked["shape"]
    asked.require_at_most("scaled elements", rows * k, argument="shape", fix="Use fewer rows, or a smaller k.")
    call = Call(scale_layout, (rows, k, asked["kind"]), asked.options([SCALES_ATOM]), "scales")
    factors = call.run()
    element: tuple[int, int] | None = asked.get("element")
    block: tuple[int, int] | None = asked.get("block")
    refuse(element is not None and block is not None, "Give one of --element ROW,K and --block ROW,BLOCK.")
    if element is not None:
        row, column = element
        if not (0 <= row < rows and 0 <= column < k):
            last = f"({rows - 1}, {k - 1})"
            raise ARGUMENT_RANGE.error(
                argument="element", found=f"element = {element}", limit=f"(0, 0) to {last}", fix=f"Use at most {last}."
            )
        block = row, column // factors.format.block
    extra: dict[str, object] = {}
    if block is not None:
        extra = {"element": list(element)} if element is not None else {"row": block[0]}
        extra |= {"block": block[1], "offset": int(factors.offset(*block))}
    return Answer(
        factors, call, first=of_scales(factors, block), shown={"element": element, "block": block}, extra=extra
    )


INSTRUCTION_OPTIONS = (
    Input("a_type", "--a-type", "Type of A", unsaid="the kind's, if it has only one"),
    Input("b_type", "--b-type", "Type of B", unsaid="as A"),
    Input("d_type", "--d-type", "Type of the accumulator", "f16, f32 or s32.", unsaid="the widest"),
    Input("a_major", "--a-major", "Contiguous in A", choices=MAJORS),
    Input("b_major", "--b-major", "Contiguous in B", choices=MAJORS),
    Input("negate_a", "--negate-a", "Multiply by -A", read=flag),
    Input("negate_b", "--negate-b", "Multiply by -B", read=flag),
    Input("saturate", "--saturate", "Sums of kind i8 saturate", read=flag),
    Input("sparse", "--sparse", "A is sparse (.sp)", read=flag),
    Input(
        "sparsity_selector",
        "--selector",
        "Selector of the metadata",
        "0 to 3 for kinds f16 and tf32, else 0.",
        read=number,
    ),
    Input("max_shift", "--max-shift", "Largest shift of B under .ws", "0, 8, 16 or 32.", read=number),
    Input("scale_type", "--scale-type", "Type of the scale factors", "ue8m0 or ue4m3."),
    Input("a_scale_id", "--a-scale-id", "First byte of A's scale factors", "0 to 3.", read=number),
    Input("b_scale_id", "--b-scale-id", "First byte of B's scale factors", "0 to 3.", read=number),
    Input(
        "k",
        "--k",
        "K of one step",
        "96 for the wide one of mxf4 and mxf4nvf4 (sm_103a).",
        read=number,
        unsaid="the kind's",
    ),
)


def instruction_answer(asked: Asked) -> Answer:
    """The 32-bit descriptor of an instruction."""
    call = Call(InstructionDescriptor, (asked["kind"], *asked["shape"]), asked.options(INSTRUCTION_OPTIONS))
    descriptor = call.run()
    return Answer(
        descriptor,
        first=of_instruction(descriptor),
        extra={"word": hex(descriptor.encode()), "forms": list(descriptor.forms)},
    )


def placed_copy(text: str) -> tuple[tuple[int, ...], int]:
    """Coordinates of a copy and where it goes: 64,0@8192.

    >>> placed_copy("64,0@0x2000")
    ((64, 0), 8192)
    """
    coords, _, offset = text.partition("@")
    return numbers(coords), number(offset or "0")


READ_OPTIONS = (
    SMEM_ADDRESS,
    Input("major", "--major", "How the instruction reads the tile", unsaid="as --tile-major, else K", choices=MAJORS),
    Input("tile_major", "--tile-major", "Innermost dimension of the map", unsaid="as --major", choices=MAJORS),
    Input("rows", "--rows", "mn that the instruction reads", read=number, unsaid="all, up to 256"),
    Input("k", "--k", "k that the instruction reads", read=number, unsaid="32 bytes"),
    Input("origin", "--origin", "The first element that it reads", "mn,k.", read=pair),
    Input(
        "data_type_read",
        "--read-as",
        "Element type that the tensor core reads",
        unsaid="the map's",
        argument="data_type",
    ),
)
SWIZZLE_OF_MAP = replace(next(row for row in MAP_OPTIONS if row.name == "swizzle"), hint="")
ARCH_OF_MAP = next(option for option in MAP_OPTIONS if option.name == "arch")
WORD = Input("word", label="Descriptor", hint="its 64 bits, as a kernel has them.", read=word, is_hex=True)
PATH_ELEMENT = Input(
    "element", "--element", "Follow element", "of the box, as mn,k: its whole way, instead of the check.", read=pair
)
COPIES = Input(
    "copies",
    "--copy",
    "A copy that brings the tile, such as 64,0@8192: coordinates innermost first, bytes; may be repeated",
    read=placed_copy,
    unsaid="one, to its start",
    is_many=True,
    shown_as="COORDS@OFFSET",
)


def _path_answer(asked: Asked) -> Answer:
    """The way of an element of the tile that the map's box is and the descriptor reads."""
    start = {"smem_address": asked["smem_address"]} if "smem_address" in asked else {}
    call = Call(
        path_of_map,
        (map_call(described(asked)), asked["word"], *asked["element"]),
        start,
        name="path",
        module="tilescope.planner.map_path",
    )
    path = call.run()
    return Answer(path, call, first=of_element_path(path))


def check_answer(asked: Asked) -> Answer:
    """Whether the bytes that TMA wrote are those that a descriptor reads."""
    if "element" in asked:
        return _path_answer(asked)
    tensor_map = described(asked).tensor_map()
    readings = [reading for reading in descriptor_readings(asked["word"]).readings if reading.major is not None]
    sound = [reading.descriptor for reading in readings if reading.sound]
    if not sound:
        raise RuleError(reading.violations[0] for reading in readings)
    call = Call(compatible, (tensor_map, sound[0]), asked.options((*READ_OPTIONS, COPIES)))
    agreement = call.run()
    assert isinstance(agreement, Agreement)  # of a map; the other kind compares what lies in tensor memory
    return Answer(agreement, first=of_agreement(agreement), is_yes=agreement.agrees)


LAYOUT = Question(
    name="mma layout",
    summary="An operand as it lies in shared memory, swizzled.",
    help="""Draw an operand of TILE (mn x k, such as 128x64) elements of TYPE as it lies in shared memory.

    The tensor core reads it in atoms of 8 rows; the drawing shows the atoms, the order in which they lie, and the chunks
    of the first one under the banks. --element marks an element and says its address.
    """,
    inputs=(*OPERAND_INPUTS, START, replace(ELEMENT, hint="as mn,k; the atom that holds it is drawn.")),
    answer=layout_answer,
    functions=(canonical_layout, CanonicalLayout.tile),
)
FRAGMENT_INSTRUCTION = Input(
    "instruction",
    "",
    "Instruction",
    choices=(
        "mma.m16n8k16",
        "mma.m16n8k8",
        "wgmma.m64n128k16",
        "mma.sp.m16n8k32",
        "ldmatrix.x4",
        "ldmatrix.x4.trans",
        "stmatrix.x4",
    ),
    is_open=True,
)
LANE = Input("lane", "--lane", "Mark thread", read=number)
FRAGMENT = Question(
    name="mma fragment",
    summary="Which thread holds which element, in which register.",
    help="""Draw which thread holds which element of an operand, and what each thread holds.

    INSTRUCTION: mma.m16n8k16, wgmma.m64n128k16, mma.sp.m16n8k32, ldmatrix.x4.trans or tcgen05.ld.32x32b.x8, for example.
    """,
    inputs=(
        FRAGMENT_INSTRUCTION,
        FRAGMENT_OPERAND,
        FRAGMENT_TYPE,
        LANE,
        Input("element", "--element", "Mark the thread that holds this element", "row,column.", read=pair),
    ),
    answer=fragment_answer,
    functions=(fragment,),
)
TMEM_M = Input("m", "--m", "Rows; with --cta-group 2 the pair's", read=number, shown_as="M")
TMEM_N = Input("n", "--n", "Columns of the accumulator D", read=number)
TMEM_K = Input("k", "--k", "Instead of --n", "A, or with --metadata its metadata, of K elements along k.", read=number)
TMEM_METADATA = Input("metadata", "--metadata", "With --k, where the metadata of a sparse A lies", read=flag)
TMEM_ELEMENT = Input("element", "--element", "Say where this element lies", "row,column.", read=pair)
TMEM_LOAD = Input(
    "load", "--ld", "With --element, who gets it", "by a tcgen05.ld such as 32x32b.x32.", shown_as="SHAPE"
)
TMEM_BUDGET = Input(
    "budget",
    "--budget",
    "Whether these fit together",
    "D, A, metadata: MxN[:TYPE][*COUNT]; SFA, SFB: ROWSxK:KIND.",
    read=tmem_parts,
    shown_as="PART,…",
)
TMEM = Question(
    name="mma tmem",
    summary="Tensor memory: where D or A lies, who loads it, what fits.",
    help="""Draw where D (with --n) or A (with --k) lies in tensor memory: lanes by columns, with the warps' quarters.

    --ld names the warp, lane and register that get the element. --budget adds up columns: accumulators that use half of
    the lanes (m 64) share theirs.
    """,
    inputs=(
        TMEM_N,
        TMEM_K,
        *TMEM_FORM,
        TMEM_METADATA,
        *TMEM_OPTIONS[len(TMEM_FORM) :],
        TMEM_ELEMENT,
        TMEM_LOAD,
        TMEM_BUDGET,
        TMEM_M,
    ),
    answer=tmem_answer,
    functions=(tmem_layout,),
)
SCALED_SHAPE = Input("shape", "", "Matrix", "rows x k, in elements.", read=tile)
SCALE_KIND = Input(
    "kind", "", "Kind", "mxfp8, mxfp4 or nvfp4, or a kind of tcgen05.mma.", choices=tuple(SCALE_FORMATS), is_open=True
)
SCALES = Question(
    name="mma scales",
    summary="Where the scale factors of mxfp8, mxfp4, nvfp4 lie.",
    help="""Draw where the scale factors of SHAPE (rows x k, such as 128x256) elements of KIND (mxfp8, mxfp4, nvfp4)
    lie.

    A block of 16 or 32 elements along k has one factor. In memory 128 rows x 4 factors are one piece of 512 bytes, as
    tcgen05.cp takes it; --element and --block say the byte of one factor.
    """,
    inputs=(
        SCALED_SHAPE,
        SCALE_KIND,
        Input(
            "element",
            "--element",
            "Say where the scale of this element of the matrix lies",
            "row,k, in elements.",
            read=pair,
        ),
        Input("block", "--block", "The same by block", "row,block, as ScaleLayout.offset takes them.", read=pair),
        SCALES_ATOM,
    ),
    answer=scales_answer,
    functions=(scale_layout,),
)
INSTRUCTION = Question(
    name="mma instruction",
    summary="The instruction descriptor (idesc) of tcgen05.mma.",
    help="""Build the 32-bit descriptor of tcgen05.mma: KIND (f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4) and
    M x N.

    For a pair of blocks (cta_group::2) M and N are those of the pair.
    """,
    inputs=(Input("kind"), Input("shape", read=tile), *INSTRUCTION_OPTIONS),
    answer=instruction_answer,
    functions=(InstructionDescriptor,),
)
DESCRIPTORS = Question(
    name="mma descriptors",
    summary="Matrix descriptors (LBO, SBO) of a K loop, transpose bits.",
    help="""List the descriptors that read an operand of TILE (mn x k) elements of TYPE, for the whole K loop.

    Every number comes with the reason for it: the leading and the stride byte offset (LBO, SBO) by the two atoms that
    they lead from and to, the step from one instruction to the next, and the transpose bit.
    """,
    inputs=(*OPERAND_INPUTS, DESCRIPTOR_START, DESCRIPTOR_OPERAND, READER),
    answer=descriptors_answer,
    functions=(loop_of(), loop_of),
)
CHECK = Question(
    name="mma check",
    summary="Whether a descriptor reads what TMA wrote, or why not.",
    help="""Say whether the bytes that TMA wrote are the bytes that the descriptor WORD reads, and if not, why.

    The tensor map is described by options or by SOURCE, as for `tilescope check`.
    """,
    inputs=(*READ_OPTIONS, WORD, PATH_ELEMENT, *DESCRIBED_MAP, COPIES),
    answer=check_answer,
    functions=(compatible, TensorMap),
)

_FIRST = {"tile": "128x64", "data_type": "bf16", "smem_address": "0x0"}
_LIMITS = {"bytes of an operand": LARGEST_OPERAND_BYTES}
LAYOUT_FORM = PageForm(LAYOUT, inputs=(*OPERAND_INPUTS, START, ELEMENT), presets=_FIRST, limits=_LIMITS)
DESCRIPTORS_FORM = PageForm(
    DESCRIPTORS,
    inputs=DESCRIPTORS.inputs,
    presets=_FIRST,
    limits=_LIMITS,
    shown={"chunks": True},
    walks=True,
)
FRAGMENT_FORM = PageForm(
    FRAGMENT,
    inputs=(FRAGMENT_INSTRUCTION, FRAGMENT_OPERAND, FRAGMENT_TYPE, LANE),
    presets={"instruction": "mma.m16n8k16", "operand": "A", "data_type": "bf16"},
    walks=True,
)
MAP_PATH_FORM = PageForm(
    CHECK,
    inputs=(WORD, PATH_ELEMENT, TYPE, DIMS, BOX, SWIZZLE_OF_MAP, SMEM_ADDRESS, STRIDES, ARCH_OF_MAP),
    presets={
        "word": "0x4000004000010002",
        "element": "37,21",
        "data_type": "bf16",
        "dims": "64,128",
        "box": "64,128",
        "swizzle": "128B",
        "smem_address": "0x0",
    },
    limits={"elements": LARGEST_TILE_ELEMENTS},
    rare=frozenset(["strides_bytes", "arch"]),
    walks=True,
    picked="element",
)
QUESTIONS = (LAYOUT, FRAGMENT, TMEM, SCALES, INSTRUCTION, DESCRIPTORS, CHECK)
