"""Pairs of kernels about divergent barriers, warps and shuffles: joined to the table of pairs."""

from pair_kernels import Pairs

PAIRS: tuple[Pairs, ...] = ()
