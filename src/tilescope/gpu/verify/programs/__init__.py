"""Random PTX programs and whole kernels for `tilescope verify kernels`: a seed gives a text, its launch and its inputs.

random_program.py     a program: steps of PTX whose only ties are registers; its text; the part that one result needs
program_inputs.py     the numbers that threads start from
instruction_forms.py  the scalar instructions that are drawn
program_builder.py    allocates registers and memory while a program is built
scalar_steps.py       arithmetic, with guards, branches, loops, carries
warp_steps.py         shfl, vote, match, redux, elect
shared_steps.py       shared memory with barriers and mbarriers, atomics, ldmatrix and stmatrix
copy_steps.py         cp.async, bulk copies, tensor copies with random maps
product_steps.py      mma.sync and wgmma
wmma_steps.py         wmma
program_generator.py  generates the program of a seed
doubtful.py           programs of which compilers make something of their own
program_run.py        runs a program in the emulator and on the card
whole_kernels.py      whole kernels: their launches, here and on the card
"""
