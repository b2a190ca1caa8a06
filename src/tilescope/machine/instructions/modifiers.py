"""The modifiers of an instruction, taken one after another; unused modifiers are refused."""

from __future__ import annotations

from collections.abc import Collection

from tilescope.arch import Arch
from tilescope.machine.step import RefusedError
from tilescope.ptx.opcode import meaning_of
from tilescope.ptx.syntax import BITS_OF_TYPE, Instruction, Module
from tilescope.sync.address import Space

_SPACES: dict[str, Space] = {
    "global": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "shared::cluster": "shared",
    "local": "local",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
    "const": "global",
}
_WITHOUT_EFFECT = frozenset({"scope", "order", "cache", "hints"})  # kinds of modifiers that change no value


def require_target(module: Module, architectures: Collection[str], what: str) -> None:
    """Refuse what the architecture of the text does not have."""
    if Arch.named(module.target).name not in architectures:
        raise RefusedError(f"{what} exists on {', '.join(architectures)}, and the text is for {module.target}")


class Words:
    """The modifiers of one instruction.

    >>> from tilescope.ptx.syntax import Instruction
    >>> words = Words(Instruction("ld", ("global", "v4", "b32"), (), None, 1, None, ""))
    >>> words.space(), words.vector(), words.type(), words.done()
    ('global', 4, 'b32', None)
    """

    def __init__(self, instruction: Instruction) -> None:
        self._instruction = instruction
        self._left = list(instruction.modifiers)

    def flag(self, word: str) -> bool:
        """Whether the word is there."""
        if word in self._left:
            self._left.remove(word)
            return True
        return False

    def one_of(self, words: Collection[str], default: str | None = None) -> str | None:
        """The first modifier that is one of these."""
        for word in self._left:
            if word in words:
                self._left.remove(word)
                return word
        return default

    def required(self, words: Collection[str], what: str) -> str:
        """The first modifier that is one of these; without it the instruction is refused."""
        word = self.one_of(words)
        if word is None:
            raise RefusedError(f"{self._instruction.opcode} has no {what}")
        return word

    def type(self) -> str:
        """The first type."""
        return self.required(BITS_OF_TYPE, "type")

    def space(self) -> Space:
        """The state space; generic where none is named."""
        word = self.one_of(_SPACES)
        return "generic" if word is None else _SPACES[word]

    def vector(self) -> int:
        """How many registers: 1, or that of .v2, .v4, .v8."""
        word = self.one_of(("v2", "v4", "v8"))
        return 1 if word is None else int(word[1:])

    def without_effect(self) -> None:
        """Take what does not change values: scopes, orders, cache hints and policies."""
        name = self._instruction.name
        self._left = [word for word in self._left if meaning_of(name, word) not in _WITHOUT_EFFECT]

    def done(self) -> None:
        """Refuse unknown modifiers."""
        if self._left:
            raise RefusedError(f".{self._left[0]} of {self._instruction.opcode} is not understood")
