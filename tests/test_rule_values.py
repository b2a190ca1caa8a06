"""A violation's `values` hold the numbers of its sentence: whoever draws or tests it need not read English.

Every rule's failing example is run, and every number that stands alone in `found` is looked for in `values`:

    box[0] = 512 elements x 2 bytes        512 and 2; the index in box[0] and the names bf16, 128B, x4 are no numbers
"""

import re
from collections.abc import Iterable, Mapping

import pytest

from tilescope.rule import RULES
from tilescope.tensor_map.demonstration import demonstrate

NUMBER = re.compile(r"(?<![\w.\[#'\"/:,-])(-?0x[0-9a-fA-F]+|-?\d+(?:\.\d+)?)(?![\w\]/'\"-]|\.\d|,\d)")
FAILING = [row for row in RULES.values() if row.failing is not None]


def numbers(value):
    """Every number in values, however deep; the length of a sequence is one too, as texts count entries."""
    if isinstance(value, bool):
        return set()
    if isinstance(value, int | float):
        return {float(value)}
    if isinstance(value, str):
        return {float(int(number, 0)) if "." not in number else float(number) for number in NUMBER.findall(value)}
    if isinstance(value, Mapping):
        return set().union(*map(numbers, value.values()))
    if isinstance(value, Iterable):
        entries = list(value)
        return {float(len(entries))}.union(*map(numbers, entries))
    return set()


@pytest.mark.parametrize("row", FAILING, ids=lambda row: row.name)
def test_values_hold_the_numbers_of_the_sentence(row):
    for violation in demonstrate(row, row.failing):
        missing = numbers(violation.found) - numbers(violation.values)
        assert not missing, f"{violation.found!r} says {sorted(missing)}; values: {dict(violation.values)}"
