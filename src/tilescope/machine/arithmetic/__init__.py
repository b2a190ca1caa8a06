"""The arithmetic of scalar instructions: pure functions of arrays, one element per thread, bit-exact with an H200.

    operation("mad", ("lo", "s32")).compute(a, b, c)       arrays of bits in, an array of bits out

compute.py              an operation: its function, and the types of its operands
integer.py              add sub mul mad div rem min max … of integers, and the carry
logic.py, bit_fields.py logic and shifts; fields, bytes, counts
float_format.py         the formats of floats, and rounding to any of them
float_words.py          bits as numbers and back: subnormals, NaN, clamps
float_style.py          the modifiers that operations on floats share
floating.py             add sub mul fma div rcp sqrt of floats; fma_loop.py: fma compiled by numba
sign_and_order.py       neg abs copysign testp min max of floats
special_unit.py         the special function unit of an H200: rcp rsqrt sqrt lg2 ex2 sin cos tanh, and quotients
special_unit_loop.py    the same, compiled by numba
approximate.py          the .approx and .full instructions, of all types
compare.py              setp set selp slct
cvt.py                  cvt: integer_conversion.py, float_conversion.py, pair_conversion.py
computed_forms.py       the operation of an instruction by its name and modifiers

tests/golden/instructions.npz has 500 results for each of about 1,500 forms, recorded on the card.
"""

from tilescope.machine.arithmetic.compute import Operation, UnknownForm
from tilescope.machine.arithmetic.computed_forms import operation

__all__ = ["Operation", "UnknownForm", "operation"]
