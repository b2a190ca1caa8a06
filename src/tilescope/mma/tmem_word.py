"""What a 32-bit number says as an address of tensor memory, field by field, whether or not it is one."""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.errors import RuleError, Violation
from tilescope.mma.bits import plain_int
from tilescope.mma.tmem_address import (
    QUARTER_LANES,
    TMEM_COLUMNS,
    TMEM_LANES,
    TMEM_WORD,
    TmemAddress,
    tmem_word_problems,
)
from tilescope.tensor_map.descriptor import DescriptorField
from tilescope.value import Value, hex_field


@dataclass(frozen=True, slots=True, kw_only=True)
class TmemWord(Value):
    """Everything a 32-bit word says as an address of tensor memory; `descriptor` is the address, None where it is none.

    >>> [field.meaning for field in inspect_tmem_address(0x00600025).fields]
    ['column 37 of 512', 'lane 96 of 128: quarter 3, reached by warps 3, 7, 11 …']
    """

    word: int = hex_field()
    fields: tuple[DescriptorField, ...]
    findings: tuple[Violation, ...]
    descriptor: TmemAddress | None

    @property
    def name(self) -> str:
        """What the word is read as."""
        return "tensor-memory address"

    @property
    def sound(self) -> bool:
        """Whether it is such an address."""
        return self.descriptor is not None

    @property
    def ignored(self) -> tuple[str, ...]:
        """No field is ignored."""
        return ()


def inspect_tmem_address(word: int) -> TmemWord:
    """What a 32-bit number means as an address of tensor memory.

    >>> inspect_tmem_address(0x08400010).findings[0].found
    '0x08400010 has bit 27 set'
    """
    found = plain_int(word)
    if problems := TMEM_WORD.word_problems(found):
        raise RuleError(problems)
    findings = tuple(tmem_word_problems(found))
    values = TMEM_WORD.decode(found)
    quarter = values["lane"] // QUARTER_LANES
    said = {
        "column": f"column {values['column']} of {TMEM_COLUMNS}",
        "lane": f"lane {values['lane']} of {TMEM_LANES}: quarter {quarter}, reached by warps {quarter}, {quarter + 4}, {quarter + 8} …",
    }
    fields = tuple(
        DescriptorField(each.name, each.low, each.high - each.low + 1, meaning=said[each.name], raw=values[each.name])
        for each in TMEM_WORD.fields
    )
    return TmemWord(
        word=found, fields=fields, findings=findings, descriptor=None if findings else TmemAddress(**values)
    )
