"""Shared-memory banks: the cost of a warp's access, the lanes that conflict, and a layout without conflicts.

op.py              one table of warp-wide operations: widths, groups
banks.py           the rule: wavefronts of one access or of many
wavefront_loop.py  the same rule as a loop that numba compiles, for millions
report.py          one access explained: groups, colliding lanes, words, counters; what patterns cost on one layout
lane_expression.py  lane addresses from an expression such as "(lane % 8) * 144 + lane / 8 * 16"
pattern.py         where the lanes of a warp go in a tile
access.py          access patterns as values, placed on any layout
layout_search.py   the layouts on which several patterns cost least
"""
