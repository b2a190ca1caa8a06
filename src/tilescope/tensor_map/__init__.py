"""Tensor maps: the arguments, the rules, and the 128 bytes."""

from tilescope.tensor_map.convolution import Convolution
from tilescope.tensor_map.decoding import Inspection, decode_tensor_map, inspect_tensor_map
from tilescope.tensor_map.instruction_rules import REDUCTIONS, Copy, broken_by, require_legal
from tilescope.tensor_map.maps import AnyMap, Im2colMap, Im2colWideMap, TensorMap
from tilescope.tensor_map.rule import RULES, Rule

__all__ = [
    "REDUCTIONS",
    "RULES",
    "AnyMap",
    "Convolution",
    "Copy",
    "Im2colMap",
    "Im2colWideMap",
    "Inspection",
    "Rule",
    "TensorMap",
    "broken_by",
    "decode_tensor_map",
    "inspect_tensor_map",
    "require_legal",
]
