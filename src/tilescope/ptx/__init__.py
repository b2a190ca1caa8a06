"""PTX text into data: `read_module` gives what `syntax` describes."""

from tilescope.ptx.reader import read_module
from tilescope.ptx.syntax import Function, Instruction, Module

__all__ = ["Function", "Instruction", "Module", "read_module"]
