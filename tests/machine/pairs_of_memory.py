"""Pairs of kernels about global memory, scopes, residency and unwritten bytes: joined to the table of pairs."""

from pair_kernels import Pairs

PAIRS: tuple[Pairs, ...] = ()
