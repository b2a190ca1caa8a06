"""Shared-memory banks: what a warp's access costs, who is to blame, and the layout that cures it.

op.py          one table of warp-wide operations: widths, groups
banks.py       the rule: wavefronts of one access or of millions
fast.py        the same rule compiled, for large batches where numba is installed
report.py      one access explained: groups, colliding lanes, words, counters
expression.py  lane addresses from an expression such as "(lane % 8) * 144 + lane / 8 * 16"
access.py      access patterns as values, placed on any layout
tile.py        what patterns cost on one layout
search.py      the layouts on which several patterns cost least
"""
