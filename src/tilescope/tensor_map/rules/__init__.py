"""The rules, idea by idea; importing this package enters all of them into the rule book.

arch           what an architecture can make at all
packed         the packed 4- and 6-bit types
tensor         rank, address, dims and strides
box            extents, rows, traversal, size, fill
im2col         corners, channels, pixels; im2col-wide
accepted       what counts although the driver accepts the map
coordinates    where a copy starts
im2col_copies  offsets and base pixels of im2col copies
copies         what else copies demand of a map

An example of a rule is the arguments of a map; with `copy`, a copy through that map; or an expression.
"""

from tilescope.tensor_map.checking import Check
from tilescope.tensor_map.rules import accepted, box, im2col, packed, tensor
from tilescope.tensor_map.rules import arch_limits as arch
from tilescope.tensor_map.rules import copy_rules as copies

__all__ = ["MAP_CHECKS", "accepted", "arch", "box", "copies", "im2col", "packed", "tensor"]

# In the order of a report.
MAP_CHECKS: tuple[Check, ...] = (
    *arch.CHECKS,
    *packed.CHECKS,
    *tensor.CHECKS,
    *box.CHECKS,
    *im2col.CHECKS,
    *accepted.CHECKS,
)
