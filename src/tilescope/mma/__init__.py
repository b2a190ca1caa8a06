"""Tensor cores: how operands lie in shared memory and in registers, and what a descriptor reads.

canonical.py      the shared-memory layouts that tensor cores read, and tiles made of them
wgmma.py          the 64-bit matrix descriptor of Hopper: encode, decode, which bytes it reads
wgmma_loop.py     the descriptors of a whole K loop over a tile
instruction.py    the table of mma and wgmma: shapes, types, how many elements fill a register
fragment.py       which lane holds which element of an operand in registers
ldmatrix.py       shared memory ↔ registers: ldmatrix and stmatrix on numpy arrays
shape_stride.py   CuTe's shape:stride, in which fragments are written down
bits.py           words of bit fields, in which descriptors are written down
"""
