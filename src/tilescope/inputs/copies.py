"""The inputs of questions about one copy through a tensor map."""

from __future__ import annotations

from tilescope.inputs import SMEM_ADDRESS, Input
from tilescope.tma.tracing import OPERATIONS
from tilescope.written import numbers

COPY = (
    Input("coords", "--coords", "Coordinates", "where the box starts, innermost first.", numbers, "0,0,…"),
    Input("offsets", "--offsets", "Offsets", "W, H, D of an im2col map; halo and offset of a wide one.", numbers),
    SMEM_ADDRESS,
    Input("operation", "--operation", "Operation", unsaid="load", choices=OPERATIONS),
)
