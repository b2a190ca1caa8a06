"""The arithmetic of scalar instructions: pure functions of arrays, one element a thread; equal to an H200's bits.

    operation("mad", ("lo", "s32")).compute(a, b, c)       arrays of bits in, an array of bits out

compute.py        what an instruction is: its function, the types of its operands
integer.py        add sub mul mad div rem min max …, and the carry
bits.py           logic, shifts, fields, bytes, counts
float_format.py   the formats of floats, and rounding to any of them
exact.py          sums, products and quotients without a second rounding
floating.py       add sub mul fma div sqrt min max … of floats
approximate.py    .approx functions, within the ISA's bounds
comparison.py     setp set selp slct
conversion.py     cvt
forms.py          an instruction's words → its operation

tests/golden/instructions.npz has 500 results of each of some 1,500 forms, recorded on the card.
"""

from tilescope.machine.arithmetic.compute import Operation, UnknownForm
from tilescope.machine.arithmetic.forms import operation

__all__ = ["Operation", "UnknownForm", "operation"]
