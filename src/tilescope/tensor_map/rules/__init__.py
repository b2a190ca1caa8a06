"""The rules, idea by idea; importing this package enters all of them into the rule book, in the order of a report.

arch         what an architecture can make at all; the packed 4- and 6-bit types
tensor       rank, address, dims and strides; the box, its rows, its traversal, its size, its fill
im2col       corners, channels, pixels; im2col-wide; offsets and base pixels of copies
advice       what the driver accepts and a careful engineer would want to know
instruction  what every copy demands of its map, its coordinates and its shared address
"""

# isort: off
from tilescope.tensor_map.rules import arch
from tilescope.tensor_map.rules import tensor
from tilescope.tensor_map.rules import im2col
from tilescope.tensor_map.rules import advice
from tilescope.tensor_map.rules import instruction
# isort: on

__all__ = ["advice", "arch", "im2col", "instruction", "tensor"]
