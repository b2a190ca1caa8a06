"""Tensor maps: the arguments, the rules, and the 128 bytes."""

from tilescope.tensor_map import rules
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.argument_dump import dumped_arguments
from tilescope.tensor_map.arguments import MapArguments, MapReport
from tilescope.tensor_map.decoding import decode_tensor_map, inspect_tensor_map
from tilescope.tensor_map.difference import TensorMapDiff
from tilescope.tensor_map.instruction import REDUCTIONS, Copy
from tilescope.tensor_map.kinds import Convolution, Im2colMap, Im2colWideMap, TensorMap
from tilescope.tensor_map.log_difference import MapLogDiff
from tilescope.tensor_map.map_log import LoggedMap, MapLog
from tilescope.tensor_map.pasted import descriptor_bytes
from tilescope.tensor_map.rules.copies import broken_by, require_legal

__all__ = [
    "REDUCTIONS",
    "AnyMap",
    "Convolution",
    "Copy",
    "Im2colMap",
    "Im2colWideMap",
    "LoggedMap",
    "MapArguments",
    "MapLog",
    "MapLogDiff",
    "MapReport",
    "TensorMap",
    "TensorMapDiff",
    "broken_by",
    "decode_tensor_map",
    "descriptor_bytes",
    "dumped_arguments",
    "inspect_tensor_map",
    "require_legal",
    "rules",
]
