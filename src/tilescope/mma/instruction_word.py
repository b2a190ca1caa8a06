"""What a 32-bit number says as an instruction descriptor of tcgen05.mma, field by field, whether or not it is a sound one."""

from __future__ import annotations

from tilescope.bits import Inspection
from tilescope.errors import RuleError, Violation, raise_all
from tilescope.mma.instruction_descriptor import ACCUMULATOR_CODES, MAX_SHIFTS, InstructionDescriptor, word_format
from tilescope.mma.tcgen05_kind import Tcgen05Kind
from tilescope.reading import integer


def inspect_instruction_descriptor(word: int, mma_kind: str) -> Inspection:
    """What a 32-bit number means as an instruction descriptor of a kind, field by field, sound or not.

    >>> found = inspect_instruction_descriptor(0x08400010, "tf32")  # its types are code 0; tf32 is 2
    >>> found.sound, found.violations[0].found
    (False, 'A type code 0')
    """
    kind = Tcgen05Kind.named(mma_kind)
    form = word_format(kind)
    word = integer("word", word)
    raise_all(form.word_problems(word))
    descriptor: InstructionDescriptor | None = None
    findings: tuple[Violation, ...] = ()
    try:
        descriptor = InstructionDescriptor.decode(word, kind.name)
    except RuleError as error:
        findings = error.violations
    meanings = {name: _meaning(kind, name, value) for name, value in form.decode(word).items()}
    return Inspection(
        name=f"{form.name}, kind {kind.name}", bits=form.bits, word=word, fields=form.described(word, meanings),
        violations=findings, described=descriptor,
    )  # fmt: skip


# A field's number in words: its value, or the words for 0 and for 1.
_MEANINGS: dict[str, str | tuple[str, str]] = {
    "m": "{value} rows of A and D",
    "n": "{value} columns of B and D",
    "sparsity_selector": "sparsity selector {value}",
    "a_type": "A is {types}",
    "b_type": "B is {types}",
    "d_type": "D is {accumulators}",
    "a_major": ("A is K-major", "A is MN-major"),
    "b_major": ("B is K-major", "B is MN-major"),
    "negate_a": ("A is taken as it is", "A is negated"),
    "negate_b": ("B is taken as it is", "B is negated"),
    "sparse": ("dense", "A is sparse"),
    "saturate": ("sums wrap", "sums saturate"),
    "max_shift": ("no shift", ".ws reuses B with shifts of up to {shift}"),
    "scale_type": ("scale factors are ue4m3", "scale factors are ue8m0"),
    "k": ("k is 64, sparse 128", "k is 96 (sm_103a)"),
    "a_scale_id": "scale factors of A from byte {value}",
    "b_scale_id": "scale factors of B from byte {value}",
}


def _meaning(kind: Tcgen05Kind, name: str, value: int) -> str:
    said = _MEANINGS[name]
    if name == "saturate" and kind.name != "i8":
        said = ("not set: only i8 saturates", "set, but only i8 saturates")
    text = said if isinstance(said, str) else said[bool(value)]
    types, accumulators = (
        {code: type_name for type_name, code in codes.items()}.get(value, f"of no type: code {value}")
        for codes in (kind.codes, ACCUMULATOR_CODES)
    )
    return text.format(value=value, types=types, accumulators=accumulators, shift=MAX_SHIFTS[value % len(MAX_SHIFTS)])
