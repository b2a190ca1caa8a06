"""Rows are stored 16 bytes a lane and read by ldmatrix. What does it cost, and which layout costs nothing?"""

import tilescope as ts

tile, bits = (64, 64), 16
patterns = [ts.Access.rows(tile, bits, "st.b128"), ts.Access.ldmatrix(tile, bits)]
plain = ts.Layout(tile, bits)
for cost in ts.tile_report(patterns, plain).costs:
    print(f"{cost.name}: {cost.wavefronts} wavefronts, {cost.ideal} without conflicts ({cost.verdict})")

search = ts.find_layouts(patterns, tile=plain)
print(search.conclusion)
print("best:", search.best.label, "-", search.best.layout.terms().c)
