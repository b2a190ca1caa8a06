"""Why a tile goes wrong: the causes behind what people see, with the test that tells one from another.

    symptom  "illegal instruction (715)"
       └── cause  coordinate-16-bytes    mechanism · how to tell · fix · the tilescope command that tests it

A cause is written once, in causes.toml; several symptoms point to it, in different orders. Commands are examples that
run as they stand: put your own numbers in.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.arch import Basis
from tilescope.symptoms.tables import row_named, table
from tilescope.value import Row


@dataclass(frozen=True, slots=True, eq=False)
class Cause(Row):
    """One mistake: what goes wrong, how to tell, the fix, and the command that tests it.

    >>> Cause.named("coordinate-16-bytes").fix
    'Start boxes at multiples of 16 bytes in the innermost dimension, or pad the tensor in front.'
    """

    name: str
    mechanism: str
    tell: str
    fix: str
    command: str
    basis: Basis
    threads: tuple[str, ...] = ()  # public threads in which it was the answer

    @classmethod
    def named(cls, name: object) -> Cause:
        """The cause called `name`."""
        return row_named(cls, CAUSE, name)


CAUSE = {name: Cause(name, **entry) for name, entry in table("causes").items()}
