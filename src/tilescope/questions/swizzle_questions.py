"""The question about a swizzle mode: its table, rule, limits and codes."""

from __future__ import annotations

from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, make_line
from tilescope.questions.page import PageForm
from tilescope.questions.question import Answer, Asked, Input, Question
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.written import smem_address


def answer(asked: Asked) -> Answer:
    """The mode, drawn from a shared address on."""
    call = Call(Swizzle.named, (asked["mode"],), name="swizzle")
    mode = call.run()
    start: int = asked.get("address", 0)
    return Answer(
        mode, call, first=_summarize_swizzle(mode, start), shown={"address": start}, extra=swizzle_facts(mode, start)
    )


def _summarize_swizzle(mode: Swizzle, address: int) -> FirstLine:
    """Where the mode puts a byte."""
    if mode.bits == 0:
        return make_line("Swizzle {name} moves nothing: every byte keeps its address.", name=mode.name)
    return make_line(
        "Swizzle {name} moves byte a to {c}, a pattern of {repeat_bytes} bytes[[; a buffer at {address:#x} starts on "
        "its line {base_offset}]].",
        name=mode.name,
        c=mode.c_expression,
        repeat_bytes=mode.repeat_bytes,
        address=address,
        base_offset=str(mode.base_offset(address)),
    )


def swizzle_facts(mode: Swizzle, address: int) -> dict[str, object]:
    """The base offset of a buffer at a shared address; nothing at address 0, where the pattern begins.

    >>> swizzle_facts(Swizzle.named("128B"), 0x480)
    {'address': '0x480', 'base_offset': 1}
    """
    return {"address": hex(address), "base_offset": mode.base_offset(address)} if address else {}


MODE = Input(
    "mode",
    "",
    "Mode",
    "a mode, a driver name, or xor:B,M,S: CuTe's Swizzle<B,M,S> on byte addresses.",
    choices=tuple(SWIZZLE),
    is_open=True,
)
ADDRESS = Input(
    "address",
    "--smem-address --address",
    "Shared address",
    "address of the first line drawn.",
    read=smem_address,
    is_hex=True,
)
SWIZZLE_QUESTION = Question(
    name="swizzle",
    help="""Show the swizzle MODE: where each chunk of a line is stored, the formula, limits, codes and sources.

    A swizzle moves the 16-byte chunks of a 128-byte line of shared memory by an XOR with the number of the line, so that
    chunks of a column are in different banks.

    MODE is none, 32B, 64B, 96B, 128B, 128B_ATOM_32B, 128B_ATOM_32B_FLIP_8B, 128B_ATOM_64B, a driver name
    such as CU_TENSOR_MAP_SWIZZLE_128B, or any XOR swizzle on byte addresses as xor:B,M,S (CuTe's Swizzle<B,M,S>).
    """,
    inputs=(MODE, ADDRESS),
    answer=answer,
    functions=(Swizzle.swizzle,),
)
SWIZZLE_FORM = PageForm(
    SWIZZLE_QUESTION,
    inputs=(MODE, ADDRESS),
    presets={"mode": "128B", "address": "0x0"},
    walks=True,
)
QUESTIONS = (SWIZZLE_QUESTION,)
