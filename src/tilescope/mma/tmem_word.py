"""What a 32-bit number says as an address of tensor memory, field by field, whether or not it is one."""

from __future__ import annotations

from tilescope.bits import Inspection
from tilescope.errors import RuleError
from tilescope.mma.tmem_address import TMEM_WORD, TmemAddress, tmem_word_problems
from tilescope.reading import integer


def inspect_tmem_address(word: int) -> Inspection:
    """What a 32-bit number means as an address of tensor memory.

    >>> [field.meaning for field in inspect_tmem_address(0x00600025).fields]
    ['column 37 of 512', 'lane 96 of 128: quarter 3, reached by warps 3, 7, 11 …']
    >>> inspect_tmem_address(0x08400010).violations[0].found
    '0x08400010 has bit 27 set'
    """
    found = integer("word", word)
    if problems := TMEM_WORD.word_problems(found):
        raise RuleError(problems)
    violations = tuple(tmem_word_problems(found))
    return Inspection(
        name=TMEM_WORD.name, bits=TMEM_WORD.bits, word=found, fields=TMEM_WORD.described(found), violations=violations,
        described=None if violations else TmemAddress.decode(found),
    )  # fmt: skip
