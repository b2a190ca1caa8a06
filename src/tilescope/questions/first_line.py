"""The first line of every answer: one complete sentence, with the numbers that the user asked for.

    facts of the answer ──▶ template ──▶ Element (37, 21) is at byte 0x12fa: line 37, chunk 7, bank 30.
                                         │
                                         ├──▶ the first line in a terminal, all that --quiet prints
                                         ├──▶ "answer" in JSON
                                         └──▶ the headline of a page

Every question summarizes its own answer, because the line depends on the inputs: `mma layout` with --element has the
place of that element. If the answer is no, the line also has advice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tilescope.sentence import fill_template

if TYPE_CHECKING:
    from tilescope.errors import Violation
    from tilescope.layout import Layout

_BANK_BYTES = 4
_BROKEN = "{verdict}: {found}; {limit}[[; and {more:more reason}]]."
_ELEMENT = (
    "Element ({row}, {column}) is at byte {address:#x}[[, bits {bits: to }]]:"
    " line {line}, chunk {chunk}, bank {bank}[[; {beside}]]."
)


class FirstLine(NamedTuple):
    """The answer in one complete sentence, and advice if the answer is no."""

    sentence: str
    advice: str = ""


NO_LINE = FirstLine("")  # of an answer below another one


def make_line(template: str, **facts: object) -> FirstLine:
    """Fill a template with facts.

    >>> make_line("{stages:stage} fit.", stages=3).sentence
    '3 stages fit.'
    """
    return FirstLine(fill_template(template, facts))


def refusal_line(verdict: str, violations: Sequence[Violation]) -> FirstLine:
    """The line of an answer that is no: the first reason, how many more there are, and what to do.

    >>> from tilescope.rule import ARGUMENT_RANGE
    >>> wrong = ARGUMENT_RANGE.violation(argument="dims", found="6 dims", limit="a map has 1 to 5", fix="Merge two.")
    >>> refusal_line("Refused", [wrong])
    FirstLine(sentence='Refused: 6 dims; a map has 1 to 5.', advice='Merge two.')
    """
    first, *others = violations
    facts = {"verdict": verdict, "found": first.found, "limit": first.limit, "more": len(others)}
    return FirstLine(fill_template(_BROKEN, facts), first.fix)


def element_line(
    element: tuple[int, int], address: int, beside: str = "", bits: tuple[int, int] | None = None
) -> FirstLine:
    """Where an element is in shared memory; `bits` are the first and last of an element that shares its byte.

    >>> element_line((37, 21), 0x12FA).sentence
    'Element (37, 21) is at byte 0x12fa: line 37, chunk 7, bank 30.'
    >>> element_line((1, 33), 0x90, bits=(4, 7)).sentence
    'Element (1, 33) is at byte 0x90, bits 4 to 7: line 1, chunk 1, bank 4.'
    """
    row, column = element
    facts = {"row": row, "column": column, "beside": beside, "bits": bits, **place_facts(address)}
    return FirstLine(fill_template(_ELEMENT, facts))


def layout_line(layout: Layout, element: tuple[int, int] | None) -> FirstLine:
    """Where one element of a layout is stored, or how all of them are."""
    if element is not None:
        first_bit = int(layout.bit_modes.at(*element)) % layout.unit_bits
        return element_line(element, layout.address(*element), bits=shared_bits(first_bit, layout.element_bits))
    return make_line(
        "{shape: x } elements of {bits:bit} take {size_bytes:byte} from {start:#x}: element ({names:, }) is at {c}.",
        shape=layout.shape,
        bits=layout.element_bits,
        size_bytes=layout.size_bytes,
        start=layout.start,
        names=("mn", "k", "stage")[: len(layout.shape)],
        c=layout.terms().c,
    )


def shared_bits(first_bit: int, element_bits: int, whole_bits: int = 8) -> tuple[int, int] | None:
    """The first and last bit of an element that shares its byte (or register) with others; None if it fills it.

    >>> shared_bits(4, element_bits=4), shared_bits(0, element_bits=16)
    ((4, 7), None)
    >>> shared_bits(16, element_bits=16, whole_bits=32)
    (16, 31)
    """
    return (first_bit, first_bit + element_bits - 1) if element_bits < whole_bits else None


def place_facts(address: int) -> Mapping[str, int]:
    """The line, chunk and bank of a shared address.

    >>> dict(place_facts(0x12FA))
    {'address': 4858, 'line': 37, 'chunk': 7, 'bank': 30}
    """
    from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES  # late: most first lines name no address

    return {
        "address": address,
        "line": address // SMEM_LINE_BYTES,
        "chunk": address % SMEM_LINE_BYTES // CHUNK_BYTES,
        "bank": address % SMEM_LINE_BYTES // _BANK_BYTES,
    }
