"""Pairs of kernels about mbarriers as bytes of shared memory, their phases and scopes: joined to the table of pairs."""

from pair_kernels import Pairs

PAIRS: tuple[Pairs, ...] = ()
