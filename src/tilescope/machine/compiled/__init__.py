"""Kernels from compilers that are installed here: Triton and Gluon, nvcc and NVRTC. None of them needs a card."""
