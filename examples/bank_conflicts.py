"""Rows are stored 16 bytes a lane and read by ldmatrix. What does it cost, and which layout costs nothing?

$ python examples/bank_conflicts.py
st.b128 rows: 64 wavefronts, 64 without conflicts (no conflict)
ldmatrix.x4: 512 wavefronts, 64 without conflicts (8-way conflict)
5 of 47 layouts tried serve every pattern without a conflict.
best: swizzle 128B - (a = base + mn * 128 + k * 2, a ^ ((a >> 3) & 0x70))
"""

import tilescope as ts

tile, bits = (64, 64), 16
patterns = [ts.Access.rows(tile, bits, "st.b128"), ts.Access.ldmatrix(tile, bits)]
plain = ts.Layout(tile, bits)
for cost in ts.tile_report(patterns, plain).costs:
    print(f"{cost.name}: {cost.wavefronts} wavefronts, {cost.ideal} without conflicts ({cost.verdict})")

search = ts.find_layouts(patterns, tile=plain)
print(search.conclusion)
print("best:", search.best.label, "-", search.best.layout.terms().c)
