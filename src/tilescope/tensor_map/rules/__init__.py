"""The rules, idea by idea; importing this package enters all of them into the rule book, in the order of a report.

arch         what an architecture can make at all
packed       the limits of the packed 4- and 6-bit types
tensor       rank, address, dims and strides
box          the box, its rows, its traversal, its size, its fill
im2col       corners, channels, pixels; im2col-wide
advice       what the driver accepts and a careful engineer would want to know
im2col_copy  what a copy through an im2col map demands of its offsets and its base pixel
instruction  what every copy demands of its map, its coordinates and its shared address
"""

# isort: off
from tilescope.tensor_map.rules import arch
from tilescope.tensor_map.rules import packed
from tilescope.tensor_map.rules import tensor
from tilescope.tensor_map.rules import box
from tilescope.tensor_map.rules import im2col
from tilescope.tensor_map.rules import advice
from tilescope.tensor_map.rules import im2col_copy
from tilescope.tensor_map.rules import instruction
# isort: on

__all__ = ["advice", "arch", "box", "im2col", "im2col_copy", "instruction", "packed", "tensor"]
