"""Kernels with one mistake each, made by `Kernel.mutants`: a good test of a kernel notices them."""
