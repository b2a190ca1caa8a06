"""Tensor maps: the arguments, the rules, and the 128 bytes.

The names are loaded when one is first used: who only looks a limit up does not wait for readers of logs.
"""

from typing import TYPE_CHECKING

from tilescope.late_names import LateNames

if TYPE_CHECKING:
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

_NAMES_IN = {
    "any_map": ("AnyMap",),
    "argument_dump": ("dumped_arguments",),
    "arguments": ("MapArguments", "MapReport"),
    "decoding": ("decode_tensor_map", "inspect_tensor_map"),
    "difference": ("TensorMapDiff",),
    "instruction": ("REDUCTIONS", "Copy"),
    "kinds": ("Convolution", "Im2colMap", "Im2colWideMap", "TensorMap"),
    "log_difference": ("MapLogDiff",),
    "map_log": ("LoggedMap", "MapLog"),
    "pasted": ("descriptor_bytes",),
    "rules.copies": ("broken_by", "require_legal"),
}
__getattr__ = LateNames(__name__, _NAMES_IN).loaded

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


def __dir__() -> list[str]:
    return sorted(__all__)
