"""Pairs of kernels about asynchronous copies and proxies: joined to the table of pairs."""

from pair_kernels import Pairs

PAIRS: tuple[Pairs, ...] = ()
