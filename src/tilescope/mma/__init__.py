"""Tensor cores: how operands lie in shared memory and in registers, and what a descriptor reads.

canonical.py                 the shared-memory layouts that tensor cores read, and tiles made of them
operand_descriptor.py        what the 64-bit descriptors share: fields, and the bytes they read
wgmma.py, tcgen05.py         those of Hopper and of Blackwell
descriptor_loop.py           the descriptors of a whole K loop over a tile: wgmma_loop.py, tcgen05_loop.py
tcgen05_kind.py              the kinds of tcgen05.mma: types, codes, shapes
instruction_descriptor.py    the 32-bit descriptor of tcgen05.mma
descriptor_word.py           any 64-bit word explained field by field; readings.py: all that a number could be
written.py, agreement.py     where copies leave a tile, and whether a descriptor reads it there; diagnosis.py: why not
emulation.py                 a matrix product by the whole path; operand_path.py: to shared memory, and read from there
tcgen05_emulation.py         scale factors, pairs, tensor memory; sparse_a.py: half of A, and the metadata that says which
tmem_address.py              tensor memory (Blackwell): its cells, and the word that names one
datapath.py, tmem_layout.py  which lanes an accumulator uses; D, A and metadata as layouts of tensor memory
tmem_form.py, tmem_form.py     the shapes of tcgen05.ld and st, and of tcgen05.cp
tensor_memory.py             allocation, loads, stores, copies and shifts on cells; tmem_allocation.py: what fits
tmem_agreement.py            whether loads, scale ids and copies fit what lies in tensor memory
scale_format.py              block scaling: formats; scale_layout.py: atoms, copies, words; scale_lanes.py: of mma.sync
scale_packing.py             whole matrices of scale factors into atoms and back; scale_streaming.py: compiled
cta_pair.py                  which block of a cluster of pairs holds what
instruction.py               mma and wgmma instructions: shapes and types
fragment.py                  which lane holds which element of an operand in registers; fragment_arguments.py: of which type
ldmatrix.py                  shared memory ↔ registers: ldmatrix and stmatrix on numpy arrays; matrix_form.py: their forms
packed.py                    values narrower than a byte, dense or one to a byte
bits.py                      words of bit fields, in which descriptors are written down
"""
