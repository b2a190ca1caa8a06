"""Editing an encoded map on the device: what tensormap.replace can change, and what it cannot.

    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [map], 1, 32;      box[1] = 32

The instruction takes one field at a time and checks nothing; `replace` here checks the result like any
other map. An edited map must be published before a copy may use it (`PUBLISHING`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tilescope.errors import RuleError, TensorMapError, unknown_name
from tilescope.reading import integers
from tilescope.tensor_map.checking import map_rule
from tilescope.tensor_map.rules.samples import MATRIX, PTX_REPLACE


@dataclass(frozen=True, slots=True)
class ReplaceField:
    """One field of tensormap.replace: the argument it changes, and how the instruction writes it."""

    argument: str
    ptx: str
    width: str  # of the value operand
    ordinals: int  # how many entries it has; 0: a single value
    value: str


# PTX ISA, "tensormap.replace".
# fmt: off
REPLACE_FIELDS = {row.ptx: row for row in (
    #            argument           PTX field            width  entries  value
    ReplaceField("address",         "global_address",    "b64", 0, "byte address"),
    ReplaceField("dims",            "rank",              "b32", 0, "rank - 1"),
    ReplaceField("box",             "box_dim",           "b32", 5, "elements"),
    ReplaceField("dims",            "global_dim",        "b32", 5, "elements; 2^32 does not fit"),
    ReplaceField("strides_bytes",   "global_stride",     "b64", 4, "bytes (toolkits before 12.5: bytes / 16)"),
    ReplaceField("element_strides", "element_stride",    "b32", 5, "elements"),
    ReplaceField("data_type",       "elemtype",          "b32", 0, "PTX type code, immediate; 13..15 from sm_100 on"),
    ReplaceField("interleave",      "interleave_layout", "b32", 0, "0 none, 1 16B, 2 32B, immediate"),
    ReplaceField("swizzle",         "swizzle_mode",      "b32", 0, "0 none, 1 32B, 2 64B, 3 128B, immediate; 4 (96B) on sm_103a"),
    ReplaceField("swizzle",         "swizzle_atomicity", "b32", 0, "0 16B, 1 32B, 2 32B + 8B flip, 3 64B, immediate; from sm_100 on"),
    ReplaceField("oob_fill",        "fill_mode",         "b32", 0, "0 zero, 1 nan, immediate"),
)}
# fmt: on
PUBLISHING = (
    "edit the copy of the map in shared memory (one thread), then __syncwarp()",
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [gmem], [smem], 128;  (whole warp)",
    "fence.proxy.tensormap::generic.acquire.gpu [gmem], 128;  (in the consumer, before its first copy)",
)


replace_field = map_rule(
    "replace-field",
    "tensormap.replace changes a tiled map's address, shape, type, swizzle, interleave and fill; cuTensorMapReplaceAddress an "
    "address alone.",
    documented=f"{PTX_REPLACE}; cuda.h, cuTensorMapReplaceAddress",
    subjects=("replacement",),
    passing=MATRIX | {"replace": {"address": 0x1000}},
    failing=MATRIX | {"replace": {"l2_promotion": "128B"}},
)


def replacement_fields(a: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a map to change, after what the instruction itself cannot write was refused."""
    problems = []
    replaceable = sorted({row.argument for row in REPLACE_FIELDS.values()})
    for name in fields:
        if name not in a.readers:
            problems.append(unknown_name("argument", name, name, replaceable))
        elif name not in replaceable or (a.subject != "tiled" and name != "address"):
            which = "a tiled map's fields" if a.subject == "tiled" else "an im2col map's address only"
            limit = f"tensormap.replace writes {', '.join(replaceable)}: {which}"
            fix = f"Encode another map with this {name}."
            problems.append(replace_field.violation(name, f"{name} of a {a.subject} map", limit, fix))
    if set(fields) != {"address"} and not a.arch.has("tensormap_replace"):
        limit, fix = "tensormap.replace needs sm_90a or later", "Replace the address alone, on the host."
        problems.append(replace_field.violation("arch", f"arch = {a.arch.name}", limit, fix))
    with suppress(RuleError):  # what is no sequence of integers is refused where the map is made
        if 1 << 32 in integers("dims", fields.get("dims", ())):
            limit, fix = "global_dim is written with 32 bits", "Use 2^32 - 1, or encode another map."
            problems.append(replace_field.violation("dims", "a dim of 2^32 elements", limit, fix))
    if problems:
        raise TensorMapError(problems)
    return dict(fields)
