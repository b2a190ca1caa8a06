"""One change of a kernel's text, before a kernel is made of it."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple

from tilescope.ptx.editing import Edit, Statement, only_bodies, statement_of
from tilescope.ptx.lexer import Text
from tilescope.ptx.syntax import Function, Instruction, Module

MutantKind = Literal[
    "wait",
    "wait loop",
    "fence",
    "wgmma fence",
    "tcgen05 fence",
    "commit",
    "barrier",
    "arrival",
    "bytes",
    "count",
    "parity",
    "slot",
    "swizzle",
]


class Change(NamedTuple):
    """What is changed, and the edits that do it; `instruction` is None where all of a kind are."""

    kind: MutantKind
    what: str  # "bar.sync removed"
    instruction: Instruction | None
    edits: tuple[Edit, ...]


class KernelText:
    """A PTX text, and the functions that one of its kernels runs."""

    def __init__(self, ptx: str, module: Module, functions: tuple[Function, ...]) -> None:
        self.text = Text(ptx)
        self.module = module
        self.functions = functions  # the entry first

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of all its functions."""
        return tuple(one for function in self.functions for one in function.instructions or ())

    @cached_property
    def short(self) -> str:
        """The text with empty bodies for functions that the kernel does not run, so that it is read more quickly."""
        return only_bodies(self.text, self.module, {function.name for function in self.functions})

    def statement(self, instruction: Instruction) -> Statement:
        """Where an instruction stands."""
        return statement_of(self.text.code, instruction)
