"""Tensor cores: operands in shared memory, in registers and in tensor memory, and the addresses that a descriptor reads.

canonical.py                 the shared-memory layouts that tensor cores read, and tiles made of them
descriptor_form.py           the fields of a descriptor's 64-bit word, of wgmma and of tcgen05
operand_descriptor.py        the 64-bit descriptors of wgmma and tcgen05, and what they read
readable_tile.py             which tiles the instructions of a K loop read, and why not the others
descriptor_loop.py           the descriptors of a whole K loop over a tile
consumer.py                  who reads a tile: the table of consumers, and the loops of wgmma and tcgen05
tcgen05_kind.py              the kinds of tcgen05.mma: types, codes, shapes
instruction_descriptor.py    the 32-bit descriptor of tcgen05.mma
readings.py                  all that a number could be, every word explained field by field
agreement.py                 does it fit? smem_agreement.py: whether a descriptor reads a tile where copies leave it
written_tile.py              where copies leave the elements of a tile; operand_diagnosis.py: why a descriptor does not read them there
tensor_core_arithmetic.py    how tensor cores add, by architecture: the table
accumulation.py              the sum of one instruction, bit for bit, and of a K loop
aligned_sum.py               the adder: align, cut, add; aligned_sum_loop.py: the same compiled by numba
element_value.py             elements as values and exponents
emulation.py                 a matrix product by the whole path: to shared memory, read from there, multiplied
former_mma_arguments.py      its deprecated arguments
tcgen05_product.py           how a product is cut into tcgen05.mma, and what instructions do
pair_shares.py               which block of a cluster of pairs holds what
tmem_address.py              tensor memory (Blackwell): its cells, and the word that names one
tmem_layout.py               D, A and metadata as layouts of tensor memory, and the lanes that an accumulator uses
tmem_form.py                 the shapes of tcgen05.ld, st and cp
tensor_memory.py             allocation, loads, stores, copies and shifts on cells
tmem_agreement.py            whether loads, scale ids and copies fit what lies in tensor memory, and all of it 512 columns
scale_layout.py              block scaling: atoms, copies, words of tensor memory; scale_lanes.py: the lanes of mma.sync
scale_packing.py             formats of block scaling; whole matrices of scale factors into atoms and back
mma_instruction.py           mma, wgmma and wmma: shapes, operands and types
matrix_form.py               the forms of ldmatrix and stmatrix: how large a matrix is, and which lane gets which element
fragment.py                  which lane holds which element of an operand in registers
ldmatrix.py                  shared memory ↔ registers: ldmatrix and stmatrix on numpy arrays
"""
