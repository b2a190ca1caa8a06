"""The rules, idea by idea; importing this package enters all of them into the rule book.

arch_limits    what an architecture can make at all
packed_rules   the packed 4- and 6-bit types
tensor_rules   rank, address, dims and strides
box_rules      extents, rows, traversal, size, fill
im2col_rules   corners, channels, pixels; im2col-wide
accepted       what counts although the driver accepts the map
coordinates    where a copy starts
im2col_copies  offsets and base pixels of im2col copies
copy_rules     what else copies demand of a map

An example of a rule is the arguments of a map; with `copy`, a copy through that map; or an expression.
"""

from tilescope.tensor_map.checking import Check
from tilescope.tensor_map.rules import (
    accepted,
    arch_limits,
    box_rules,
    copy_rules,
    im2col_rules,
    packed_rules,
    tensor_rules,
)

__all__ = [
    "MAP_CHECKS",
    "accepted",
    "arch_limits",
    "box_rules",
    "copy_rules",
    "im2col_rules",
    "packed_rules",
    "tensor_rules",
]

# In the order of a report.
MAP_CHECKS: tuple[Check, ...] = (
    *arch_limits.CHECKS,
    *packed_rules.CHECKS,
    *tensor_rules.CHECKS,
    *box_rules.CHECKS,
    *im2col_rules.CHECKS,
    *accepted.CHECKS,
)
