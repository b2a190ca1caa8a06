"""The drawing of an agreement: the verdict, the first difference, and the descriptor beside the one that would fit."""

from __future__ import annotations

from tilescope.bits import Inspection
from tilescope.layout import Layout, Major
from tilescope.mma.agreement import Agreement
from tilescope.mma.descriptor import OperandDescriptor
from tilescope.mma.readings import inspect_descriptor
from tilescope.view.descriptor_view import word_ruler
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Table


def draw_agreement(found: Agreement) -> Drawing:
    """Whether copies and descriptor agree; fields that are wrong are marked.

    >>> from tilescope.mma.agreement import compatible
    >>> from tilescope.mma.descriptor import WgmmaDescriptor
    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    >>> draw_agreement(compatible(a, WgmmaDescriptor(0, leading_bytes=16, stride_bytes=512, swizzle="128B"))).title
    'The descriptor reads something else: stride-bytes'
    """
    said = Paragraph(found.sentence)
    if isinstance(found.descriptor, Layout):
        verdict = "The layout has the tile where it lies" if found.agrees else f"The layout is another: {found.cause}"
        return Drawing(verdict, (said, _facts(found)))
    given = _word(found.descriptor, found.major, found.element_bits)
    if found.agrees:
        return Drawing("Copies and descriptor agree", (said, word_ruler(given, "The descriptor"), _facts(found)))
    title, shown = f"The descriptor reads something else: {found.cause}", f"The descriptor: {given.word:#018x}"
    if not isinstance(found.correction, OperandDescriptor) or found.correction_major is None:
        return Drawing(title, (said, _facts(found), word_ruler(given, shown)))
    right = _word(found.correction, found.correction_major, found.element_bits)
    wrong = _differing(given, right)
    rulers = [word_ruler(given, shown, wrong), word_ruler(right, f"What reads these copies: {right.word:#018x}")]
    return Drawing(title, (said, _facts(found), *(rulers if wrong else rulers[:1])))


def _word(descriptor: OperandDescriptor, major: Major, element_bits: int) -> Inspection:
    instruction = descriptor.form.instruction
    return inspect_descriptor(descriptor.encode(), major=major, element_bits=element_bits, instruction=instruction)


def _differing(given: Inspection, right: Inspection) -> tuple[str, ...]:
    """The fields in which the two differ and that are looked at."""
    pairs = zip(given.fields, right.fields, strict=True)
    return tuple(one.name for one, other in pairs if one.raw != other.raw and one.name not in right.ignored)


def _facts(found: Agreement) -> Table:
    mn, k = found.shape
    rows = [("compared", f"{mn} x {k} elements (mn x k), read as {found.major}-major")]
    first = found.difference
    if first is not None:
        written = "by no copy" if first.written_address is None else f"at {first.written_address:#x}"
        lies = "nothing of the tile" if first.found is None else f"(mn {first.found[0]}, k {first.found[1]})"
        rows += [
            ("differing", f"{found.differing} of {mn * k}"),
            ("first", f"(mn {first.mn}, k {first.k}): written {written}, read at {first.read_address:#x}"),
            ("lies there", lies),
            ("cause", str(found.cause)),
        ]
    return Table((*rows, ("basis", found.basis)))
