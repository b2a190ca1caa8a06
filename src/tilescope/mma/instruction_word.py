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


def _meaning(kind: Tcgen05Kind, name: str, value: int) -> str:
    """A field's number in words."""
    by_code = {code: type_name for type_name, code in kind.codes.items()}
    letter = name[0].upper() if name[:2] in ("a_", "b_") else name[-1].upper()
    match name:
        case "m":
            return f"{value} rows of A and D"
        case "n":
            return f"{value} columns of B and D"
        case "a_type" | "b_type":
            return f"{letter} is {by_code.get(value, f'of no type: code {value}')}"
        case "d_type":
            accumulators = {code: type_name for type_name, code in ACCUMULATOR_CODES.items()}
            return f"D is {accumulators.get(value, f'of no type: code {value}')}"
        case "a_major" | "b_major":
            return f"{letter} is {'MN' if value else 'K'}-major"
        case "negate_a" | "negate_b":
            return f"{letter} is {'negated' if value else 'taken as it is'}"
        case "sparse":
            return "A is sparse" if value else "dense"
        case "sparsity_selector":
            return f"sparsity selector {value}"
        case "saturate":
            if kind.name != "i8":
                return "set, but only i8 saturates" if value else "not set: only i8 saturates"
            return "sums saturate" if value else "sums wrap"
        case "max_shift":
            return f".ws reuses B with shifts of up to {MAX_SHIFTS[value]}" if value else "no shift"
        case "scale_type":
            return f"scale factors are {'ue8m0' if value else 'ue4m3'}"
        case "k":
            return "k is 96 (sm_103a)" if value else "k is 64, sparse 128"
    return f"scale factors of {letter} from byte {value}"
