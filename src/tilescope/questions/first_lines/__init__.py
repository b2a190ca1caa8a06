"""The first line of every answer: a sentence that stands alone, with the numbers that were asked for.

    facts of the answer ──▶ template ──▶ Element (37, 21) lies at byte 0x12fa: line 37, chunk 7, bank 30.
                                         │
                                         ├──▶ the first line in a terminal, all that --quiet prints
                                         ├──▶ "answer" in JSON
                                         └──▶ the headline of a page

Every module words the lines of some questions; a question passes its line to `Answer(first=…)`. Where the answer is
no, the line has an advice: what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilescope.errors import Violation
from tilescope.questions.question import FirstLine
from tilescope.sentence import filled
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES

_BANK_BYTES = 4
_BYTE_BITS = 8
_BROKEN = "{verdict}: {found}; {limit}[[; and {more:more reason}]]."
_ELEMENT = (
    "Element ({row}, {column}) lies at byte {address:#x}[[, bits {bits: to }]]:"
    " line {line}, chunk {chunk}, bank {bank}[[; {beside}]]."
)


def line(template: str, **facts: object) -> FirstLine:
    """The line that a template makes of facts.

    >>> line("{stages:stage} fit.", stages=3).sentence
    '3 stages fit.'
    """
    return FirstLine(filled(template, facts))


def refused(verdict: str, violations: Sequence[Violation]) -> FirstLine:
    """The line of an answer that is no: the first reason, how many more there are, and what to do.

    >>> from tilescope.rule import ARGUMENT_RANGE
    >>> wrong = ARGUMENT_RANGE.violation(argument="dims", found="6 dims", limit="a map has 1 to 5", fix="Merge two.")
    >>> refused("Refused", [wrong])
    FirstLine(sentence='Refused: 6 dims; a map has 1 to 5.', advice='Merge two.')
    """
    first, *others = violations
    said = filled(_BROKEN, {"verdict": verdict, "found": first.found, "limit": first.limit, "more": len(others)})
    return FirstLine(said, first.fix)


def element_line(
    element: tuple[int, int], address: int, beside: str = "", bits: tuple[int, int] | None = None
) -> FirstLine:
    """Where an element lies in shared memory; `bits` are the first and last of an element that shares its byte.

    >>> element_line((37, 21), 0x12FA).sentence
    'Element (37, 21) lies at byte 0x12fa: line 37, chunk 7, bank 30.'
    >>> element_line((1, 33), 0x90, bits=(4, 7)).sentence
    'Element (1, 33) lies at byte 0x90, bits 4 to 7: line 1, chunk 1, bank 4.'
    """
    row, column = element
    facts = {"row": row, "column": column, "beside": beside, "bits": bits, **place_facts(address)}
    return FirstLine(filled(_ELEMENT, facts))


def bits_of_byte(first_bit: int, element_bits: int) -> tuple[int, int] | None:
    """The first and last bit of an element that shares its byte, counted from that byte on; None for whole bytes.

    >>> bits_of_byte(4, element_bits=4), bits_of_byte(0, element_bits=16)
    ((4, 7), None)
    """
    return (first_bit, first_bit + element_bits - 1) if element_bits < _BYTE_BITS else None


def place_facts(address: int) -> Mapping[str, int]:
    """The line, chunk and bank of a shared address.

    >>> dict(place_facts(0x12FA))
    {'address': 4858, 'line': 37, 'chunk': 7, 'bank': 30}
    """
    return {
        "address": address,
        "line": address // SMEM_LINE_BYTES,
        "chunk": address % SMEM_LINE_BYTES // CHUNK_BYTES,
        "bank": address % SMEM_LINE_BYTES // _BANK_BYTES,
    }
