"""Resolves names: nested braces, each with separate registers, variables and labels.

    {                                the body:   %r<4> are registers, %r0 … %r3
        .reg .b32 %r<4>;
        {                            its inside: complete, waitLoop
            .reg .pred complete;
        waitLoop:
            @!complete bra waitLoop; the inner one, though another block of inline assembly has a waitLoop too
        }
    }

A range of registers costs nothing: a register is made when it is used for the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from tilescope.names import nearest_name
from tilescope.ptx.syntax import BranchTable, Operand, Prototype, Register, Variable, Vector

SPECIAL_REGISTERS = frozenset(
    {f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyzw"}
    | {f"%{name}.{axis}" for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in "xyzw"}
    | {f"%lanemask_{relation}" for relation in ("eq", "le", "lt", "ge", "gt")}
    | {f"%{name}" for name in ("laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid")}
    | {f"%{name}" for name in ("cluster_ctarank", "cluster_nctarank", "is_explicit_cluster")}
    | {f"%{name}" for name in ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi")}
    | {f"%{name}" for name in ("dynamic_smem_size", "total_smem_size", "aggr_smem_size", "current_graph_exec")}
    | {f"%reserved_smem_offset_{name}" for name in ("begin", "end", "cap", "0", "1")}
    | {f"%envreg{number}" for number in range(32)}
    | {f"%pm{number}" for number in range(8)}
    | {f"%pm{number}_64" for number in range(8)}
    | {"WARP_SZ"}
)
_MOST_DIGITS = 7  # in the number of a register of a range
NAMES_COMPARED = 200  # known names that an unknown one is compared with

Named: TypeAlias = Register | Variable | Vector


class RegisterRange(NamedTuple):
    """`.reg .b32 %r<4>` declares %r0 to %r3."""

    type: str
    size: int  # registers


class Scope:
    """The names that one pair of braces declares. What it does not know, the scope around it may."""

    def __init__(self, around: Scope | None = None) -> None:
        self.around = around
        self.depth: int = around.depth + 1 if around else 0
        self.registers: list[Register] = around.registers if around else []  # of the function, in the order of use
        self.operands: dict[str, Operand] = {}  # what an operand's text means here
        self.labels: dict[str, int] = {}  # the number of the instruction that follows
        self.tables: dict[str, BranchTable | Prototype | None] = {}  # None: a table whose labels are not known yet
        self._named: dict[str, Named] = {}
        self._types: dict[str, str] = {}  # of single registers
        self._ranges: dict[str, RegisterRange] = {}

    def declares(self, name: str) -> bool:
        """Whether a name is taken in this scope."""
        return (
            name in self._named
            or name in self._types
            or name in self._ranges
            or name in self.labels
            or name in self.tables
        )

    def range_has(self, name: str) -> bool:
        """Whether a range of this scope has a register of this name."""
        return self._range_of(name) is not None

    def declare_register(self, name: str, register_type: str) -> None:
        """Add `.reg .type name`."""
        self._types[name] = register_type
        self.operands.clear()  # the name may have meant something of the scope around

    def declare_range(self, prefix: str, register_range: RegisterRange) -> None:
        """Add `.reg .type prefix<count>`."""
        self._ranges[prefix] = register_range
        self.operands.clear()

    def declare(self, name: str, meaning: Variable | Vector) -> None:
        """Add a variable, or a vector of registers."""
        self._named[name] = meaning
        self.operands.clear()

    def make_register(self, name: str, register_type: str) -> Register:
        """A register of the function, numbered."""
        register = Register(name, register_type, len(self.registers))
        self.registers.append(register)
        self._named[name] = register
        return register

    def find(self, name: str) -> Named | None:
        """The register, vector or variable that a name means here; None if there is none.

        >>> scope = Scope()
        >>> scope.declare_range("%r", RegisterRange("b32", 4))
        >>> scope.find("%r3"), scope.find("%r4")
        (Register(name='%r3', type='b32', number=0), None)
        """
        scope: Scope | None = self
        while scope is not None:
            named = scope._find_here(name)
            if named is not None:
                return named
            scope = scope.around
        return None

    def _find_here(self, name: str) -> Named | None:
        named = self._named.get(name)
        if named is not None:
            return named
        if name in self._types:
            return self.make_register(name, self._types[name])
        row = self._range_of(name)
        return None if row is None else self.make_register(name, row.type)

    def _range_of(self, name: str) -> RegisterRange | None:
        """The range that has a register: %r12 may be number 12 of %r<13> or number 2 of %r1<3>."""
        if not self._ranges:
            return None
        digits = len(name) - len(name.rstrip("0123456789"))
        for count in range(min(digits, _MOST_DIGITS), 0, -1):
            prefix, number = name[:-count], name[-count:]
            row = self._ranges.get(prefix)
            is_plain = number[0] != "0" or count == 1
            if row is not None and is_plain and int(number) < row.size:
                return row
        return None

    def outward(self) -> Iterator[Scope]:
        """This scope, the one around it, and so on."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.around

    def find_label(self, name: str) -> int | None:
        """The instruction after a label."""
        return next((scope.labels[name] for scope in self.outward() if name in scope.labels), None)

    def find_table(self, name: str) -> BranchTable | Prototype | None:
        """The table of labels, or the prototype, of this name."""
        return next((scope.tables[name] for scope in self.outward() if name in scope.tables), None)

    def nearest(self, name: str, *, of_labels: bool = False) -> str | None:
        """The known name that is most like an unknown one."""
        names: list[str] = []
        for scope in self.outward():
            names += [*scope.labels, *scope.tables] if of_labels else [*scope._types, *scope._named]
        if not of_labels:
            names += SPECIAL_REGISTERS
        return nearest_name(name, sorted(names[:NAMES_COMPARED]))
