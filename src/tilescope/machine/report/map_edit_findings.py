"""Edits of a tensor map that the map cannot keep: tensormap.replace writes a field of a few bits, and says nothing.

    global_stride 120      the map keeps strides as multiples of 16: 112, and every row is read from another place
    box_dim 300            the map keeps 8 bits: a box of 44

Triton writes such an edit for a descriptor that a kernel makes over rows whose stride is no multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.errors import Violation
from tilescope.machine.launch.launch import Launch
from tilescope.machine.report.places import instruction_named, line_facts
from tilescope.rule import ptx_example, rule
from tilescope.tensor_map.replacement import KEPT_VALUES, REPLACE_FIELDS

_MAP = "[np.frombuffer(ts.TensorMap('u32', (64, 64), (256,), (4, 4)).encode(), 'u1').copy()]"

MAP_EDIT = rule(
    "run-map-edit",
    "What tensormap.replace writes into a map fits into the field: strides are multiples of 16 bytes, boxes have 1 to 256 elements.",
    argument="{field}",
    found="at {where} {field}[[{place}]] = {value} is written into a tensor map, which keeps {kept}",
    limit="{keeps}; the instruction reports nothing, and copies go by what the map keeps",
    fix="Use {instead}[[: {how}]].",
    source='PTX ISA, "tensormap.replace"',
    passing=f"ts.Kernel({ptx_example('run-map-edit.pass.ptx')}).run(1, 1, {_MAP}).findings",
    failing=f"ts.Kernel({ptx_example('run-map-edit.fail.ptx')}).run(1, 1, {_MAP}).findings",
)


def map_edit_findings(launch: Launch) -> Iterator[Violation]:
    """A finding for every tensormap.replace of the text whose value a map did not keep."""
    for edit in launch.cut_edits.values():
        row = KEPT_VALUES[edit.field]
        yield MAP_EDIT.violation(
            where=instruction_named(launch.program, edit.pc),
            field=edit.field,
            place=f"[{edit.ordinal}]" if REPLACE_FIELDS[edit.field].ordinals else None,
            value=edit.value,
            kept=edit.kept,
            keeps=row.limit,
            instead=row.nearest(edit.value),
            how=row.how,
            **line_facts(launch.program, edit.pc),
        )
