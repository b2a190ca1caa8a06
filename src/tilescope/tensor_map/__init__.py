"""Tensor maps: the arguments, the rules, and the 128 bytes.

The names are loaded when one is first used: who only looks a limit up does not wait for readers of logs.
"""

from typing import TYPE_CHECKING

from tilescope.late_names import LateNames

if TYPE_CHECKING:
    from tilescope.tensor_map import rules
    from tilescope.tensor_map.any_map import AnyMap
    from tilescope.tensor_map.copy_instruction import REDUCTIONS, Copy
    from tilescope.tensor_map.difference import TensorMapDiff
    from tilescope.tensor_map.map_arguments import MapArguments, MapReport
    from tilescope.tensor_map.map_decoding import decode_tensor_map, inspect_tensor_map
    from tilescope.tensor_map.map_kinds import Convolution, Im2colMap, Im2colWideMap, TensorMap
    from tilescope.tensor_map.rules.copy_rules import broken_by, require_legal
    from tilescope.tensor_map.text.argument_dump import dumped_arguments
    from tilescope.tensor_map.text.log_difference import MapLogDiff
    from tilescope.tensor_map.text.map_log import LoggedMap, MapLog
    from tilescope.tensor_map.text.pasted import descriptor_bytes

_NAMES_IN = {
    "any_map": ("AnyMap",),
    "text.argument_dump": ("dumped_arguments",),
    "map_arguments": ("MapArguments", "MapReport"),
    "map_decoding": ("decode_tensor_map", "inspect_tensor_map"),
    "difference": ("TensorMapDiff",),
    "copy_instruction": ("REDUCTIONS", "Copy"),
    "map_kinds": ("Convolution", "Im2colMap", "Im2colWideMap", "TensorMap"),
    "text.log_difference": ("MapLogDiff",),
    "text.map_log": ("LoggedMap", "MapLog"),
    "text.pasted": ("descriptor_bytes",),
    "rules.copy_rules": ("broken_by", "require_legal"),
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
