"""Random PTX programs and whole kernels for `tilescope verify kernels`: a seed gives a text, its launch and its inputs.

program.py          a program: steps of PTX whose only ties are registers; its text; the part that one result needs
inputs.py           the numbers that threads start from
forms.py            the scalar instructions that are drawn
grower.py           what a program under growth has so far
scalar_steps.py     arithmetic, with guards, branches, loops, carries
warp_steps.py       shfl, vote, match, redux, elect
shared_steps.py     shared memory with barriers and mbarriers, atomics, ldmatrix and stmatrix
copy_steps.py       cp.async, bulk copies, tensor copies with random maps
product_steps.py    mma.sync and wgmma
wmma_steps.py       wmma
growing.py          a seed → a program
doubtful.py         programs of which compilers make something of their own
running.py          a program here and on the card
whole_kernels.py    whole kernels: their launches, here and on the card
"""
