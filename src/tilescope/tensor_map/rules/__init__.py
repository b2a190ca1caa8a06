"""The rules, idea by idea; importing this package enters all of them into the rule book.

arch      what an architecture can make at all; the packed 4- and 6-bit types
tensor    rank, address, dims and strides; the box, its rows, its traversal, its size, its fill
im2col    corners, channels, pixels; im2col-wide
accepted  what counts although the driver accepts the map
copies    what copies demand of it

An example of a rule is the arguments of a map; with `copy`, a copy through that map; or an expression.
"""

from tilescope.tensor_map.checking import Check
from tilescope.tensor_map.rules import accepted, arch, copies, im2col, tensor

__all__ = ["MAP_CHECKS", "accepted", "arch", "copies", "im2col", "tensor"]

# In the order of a report.
MAP_CHECKS: tuple[Check, ...] = (*arch.CHECKS, *tensor.CHECKS, *im2col.CHECKS, *accepted.CHECKS)
