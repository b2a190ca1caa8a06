"""Kernels with one mistake: what `Kernel.mutants` makes. A test that is worth its time notices them."""
