"""What a 32-bit number says as an instruction descriptor of tcgen05.mma, field by field, whether or not it is a sound one."""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.errors import RuleError, Violation
from tilescope.mma.bits import plain_int
from tilescope.mma.instruction_descriptor import ACCUMULATOR_CODES, MAX_SHIFTS, InstructionDescriptor, word_format
from tilescope.mma.tcgen05_kind import Tcgen05Kind
from tilescope.tensor_map.descriptor import DescriptorField
from tilescope.value import Value, hex_field


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionWord(Value):
    """Everything a 32-bit word says under one kind of tcgen05.mma; `descriptor` is None where it is none.

    >>> word = inspect_instruction_descriptor(0x08400010, "f16")
    >>> [field.meaning for field in word.fields if field.name in ("m", "n", "d_type")]
    ['D is float32', '256 columns of B and D', '128 rows of A and D']
    """

    word: int = hex_field()
    mma_kind: str
    fields: tuple[DescriptorField, ...]
    findings: tuple[Violation, ...]
    descriptor: InstructionDescriptor | None

    @property
    def name(self) -> str:
        """What the word is read as."""
        return f"tcgen05 instruction descriptor, kind {self.mma_kind}"

    @property
    def sound(self) -> bool:
        """Whether it is such a descriptor."""
        return self.descriptor is not None

    @property
    def ignored(self) -> tuple[str, ...]:
        """No field is ignored."""
        return ()


def inspect_instruction_descriptor(word: int, mma_kind: str) -> InstructionWord:
    """What a 32-bit number means as an instruction descriptor of a kind, field by field, sound or not.

    >>> found = inspect_instruction_descriptor(0x08400010, "tf32")  # its types are code 0; tf32 is 2
    >>> found.sound, found.findings[0].found
    (False, 'A type code 0')
    """
    kind = Tcgen05Kind.named(mma_kind)
    form = word_format(kind)
    word = plain_int(word)
    problems = form.word_problems(word)
    if problems:
        raise RuleError(problems)
    values = form.decode(word)
    descriptor: InstructionDescriptor | None = None
    findings: tuple[Violation, ...] = ()
    try:
        descriptor = InstructionDescriptor.decode(word, kind.name)
    except RuleError as error:
        findings = error.violations
    fields = tuple(
        DescriptorField(
            each.name, each.low, each.high - each.low + 1, meaning=_meaning(kind, each.name, values[each.name]),
            raw=values[each.name] // each.unit,
        )
        for each in sorted(form.fields, key=lambda each: each.low)
    )  # fmt: skip
    return InstructionWord(word=word, mma_kind=kind.name, fields=fields, findings=findings, descriptor=descriptor)


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
