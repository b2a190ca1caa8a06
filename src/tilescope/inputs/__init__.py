"""What people may say to a question: one table, from which a command has its options and a page its fields.

Input("major", "--major", "Contiguous", default="K", choices=("K", "MN"))

tilescope plan 128x64 bf16 --major MN     --help: "Contiguous. [default: K]"
/plan?major=MN                            a field with the label "Contiguous"
plan((128, 64), "bf16", major="MN")       what the library is told, and nothing if nobody says it
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any, TypeAlias

from tilescope import written
from tilescope.data_type import DATA_TYPE
from tilescope.sentence import shortened
from tilescope.swizzle import SWIZZLE

Reader: TypeAlias = Callable[[str], Any]  # a ValueError has two arguments: what is wrong, and what to write instead


def text(said: str) -> str:
    """The text as it stands, without blanks at its ends."""
    return said.strip()


def flag(said: str) -> bool:
    """A box of a page that is ticked, or an option that stands alone."""
    if said not in ("", "yes"):
        raise ValueError(f"{shortened(said, 80)!r} is no tick", "yes, or nothing")
    return said == "yes"


# reader: how --help writes a value, and what a refusal calls it
READERS: dict[Reader, tuple[str, str]] = {
    text: ("", "text"),
    flag: ("", "ticked or empty"),
    written.number: ("N", "a number"),
    written.word: ("N", "a number"),
    written.numbers: ("N,…", "numbers"),
    written.pair: ("N,N", "two numbers"),
    written.extents: ("NxN", "a shape"),
    written.tile: ("NxN", "two numbers"),
    written.rows_and_columns: ("NxN", "a shape"),
    written.product: ("MxNxK", "three numbers"),
    written.smem_address: ("A", "an address of shared memory"),
}
_LONGEST_METAVAR = 22  # characters; what is longer stands on a line of its own
_SHAPES = (written.extents, written.tile, written.rows_and_columns, written.product)


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a question: the argument of the library, the option of the command, the field of the page."""

    name: str  # of the argument, and in the address of a page
    option: str = ""  # of the command, its other spellings behind it; empty: its place among the words says what it is
    label: str = ""
    hint: str = ""
    read: Reader = text
    default: str = ""  # what the library takes if nobody says it, as --help and a page word it
    choices: tuple[str, ...] = ()
    is_open: bool = False  # whether other names than the choices are taken
    is_long: bool = False  # whether it is a text of several lines

    @property
    def metavar(self) -> str:
        """How --help writes the value: N,… for numbers, K|MN for a few names, TYPE,… for several names."""
        name = re.split("[-_]", (self.option or self.name).split()[0])[-1].upper()
        if self.read is not text:
            return READERS[self.read][0] if self.read in READERS else f"{name},…"
        choices = "" if self.is_open else "|".join(self.choices)
        return choices if 0 < len(choices) <= _LONGEST_METAVAR else name

    @property
    def help(self) -> str:
        """What --help says."""
        default = f" [default: {self.default}]" if self.default else ""
        names = ", ".join(self.choices[:4]) + (", …" if len(self.choices) > 4 else ".")
        hint = self.hint or (names if self.choices and self.metavar != "|".join(self.choices) else "")
        return (f"{self.label}: {hint}" if hint else f"{self.label}.") + default

    def words(self, value: Any) -> list[str]:
        """The words of a command that say `value`; none for an option that is not given.

        >>> Input("smem_address", "--smem-address", read=written.smem_address).words(1024)
        ['--smem-address', '0x400']
        >>> Input("word", read=written.number).words(0x4000004000010040)
        ['0x4000004000010040']
        """
        if value is None or value is False:
            return []
        said = hex(value) if self.read is written.smem_address or self.name in ("address", "word") else in_words(value)
        said = said.replace(",", "x") if self.read in _SHAPES else said
        option = self.option.split()[:1]
        if not option or value is True:
            return option or [said]
        if not said:
            return []
        return [f"{option[0]}={said}"] if said.startswith("-") else [option[0], said]


def chosen(inputs: Iterable[Input], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that inputs of a table have."""
    return {row.name: values[row.name] for row in inputs if row.name in values}


def defaults(function: Callable[..., Any], **other_names: str) -> dict[str, Any]:
    """What a function takes if nobody says it, by the names of inputs; `other_names` are arguments that it calls otherwise.

    >>> def placed(shape, swizzle="none", start=0): ...
    >>> defaults(placed, smem_address="start")
    {'swizzle': 'none', 'smem_address': 0}
    """
    names = {argument: name for name, argument in other_names.items()}
    return {
        names.get(name, name): parameter.default
        for name, parameter in signature(function).parameters.items()
        if parameter.default is not Parameter.empty
    }


def command_words(inputs: Iterable[Input], values: Mapping[str, Any], taken: Mapping[str, Any]) -> list[str]:
    """The words of a command that say these values: first those that have no option, then the options.

    Options that say what the called function takes anyway, `taken`, are left out.

    >>> rows = (Input("mode"), Input("major", "--major"), Input("pad", "--pad", read=written.number))
    >>> command_words(rows, {"mode": "128B", "major": "K", "pad": 0}, {"major": "K", "pad": None})
    ['128B', '--pad', '0']
    """
    ordered = sorted(inputs, key=lambda row: bool(row.option))
    return [
        word
        for row in ordered
        if not row.option or not _is_taken(row.name, values.get(row.name), taken)
        for word in row.words(values.get(row.name))
    ]


def _is_taken(name: str, value: Any, taken: Mapping[str, Any]) -> bool:
    return name in taken and type(value) is type(taken[name]) and bool(value == taken[name])


def in_words(value: Any) -> str:
    """A value as people write it: (64, 8) is "64,8".

    >>> in_words((64, 8)), in_words("128B"), in_words(None)
    ('64,8', '128B', '')
    """
    if value is None:
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(getattr(value, "name", value))


# What most questions have, and what that of a swizzle mode has.
TYPE = Input(
    "data_type",
    "--type",
    "Element type",
    "such as bf16, u8, e4m3, or a driver's name.",
    choices=tuple(DATA_TYPE),
    is_open=True,
)
SMEM_ADDRESS = Input("smem_address", "--smem-address", "Shared address", read=written.smem_address, default="0x0")
START = replace(SMEM_ADDRESS, option="--smem-address --address")  # where nothing else has an address
MODE = (
    Input("mode", "", "Mode", "a mode, a driver name, or xor:B,M,S: CuTe's Swizzle<B,M,S> on byte addresses.",
          choices=tuple(SWIZZLE), is_open=True),
    replace(START, name="address", hint="where the first line drawn lies."),
)  # fmt: skip
