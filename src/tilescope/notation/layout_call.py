"""tilescope's own `Layout(...)`, as Python writes it.

Layout((64, 128), 16, atom=(64, 64), swizzle="128B")           (mn, k), k contiguous
Layout((128, 64), 16, atom=(64, 64), major="MN")               mn contiguous
Layout.from_modes((((32, 4), 4), ((16, 4), 1)), 8)             any shape and stride
Layout((8, 64), (64, 1))                                       shape and stride of pycute and tensor-layouts
"""

from __future__ import annotations

from tilescope.layout import Layout, as_modes
from tilescope.notation.hints import Hints, tile_of
from tilescope.notation.text import Fields, Scanner, require_known

_PLAIN = ("shape", "element_bits", "atom", "atom_order", "padding_bytes", "major", "swizzle", "start")
_NESTED = ("modes", "element_bits", "unit_bits", "swizzle", "start")
_QUOTED = ("atom_order", "major", "swizzle")


def read(text: str, hints: Hints) -> Layout:
    """A `Layout(...)` as Python writes it.

    >>> read('Layout((16, 64), 16, swizzle="128B")', Hints())
    Layout((16, 64), 16, swizzle="128B")
    """
    scan = Scanner(text)
    names = _NESTED if scan.name().endswith("from_modes") else _PLAIN
    scan.expect("(")
    fields = scan.fields(")", names[:2], _QUOTED)
    scan.finished()
    require_known(fields, names, "argument")
    tile = fields.pop(names[0], None)
    bits = fields.pop("element_bits", None)
    options: Fields = {"start": hints.start} | fields
    if names is _NESTED:
        element_bits = hints.bits(bits, "the layout")
        layout = Layout.from_modes(as_modes(_to_tuples(tile)), element_bits, **options)
    elif isinstance(bits, list):  # strides in their place: shape and stride, as pycute writes them
        element_bits = hints.bits(None, "the layout")
        layout = Layout.from_modes(as_modes(_to_tuples((tile, bits))), element_bits, **options)
    else:
        options.setdefault("major", hints.major or "K")
        layout = Layout(tile, hints.bits(bits, "the Layout"), **options)
    hints.check_shape(layout)
    return layout


def spell(layout: Layout) -> tuple[str]:
    """The tile as tilescope constructs it.

    >>> spell(Layout((64, 128), 16, atom=(64, 64), swizzle="128B"))
    ('Layout((64, 128), 16, atom=(64, 64), swizzle="128B")',)
    """
    tile_of(layout)
    return (repr(layout),)


def _to_tuples(tree: object) -> object:
    if isinstance(tree, list | tuple):
        return tuple(map(_to_tuples, tree))
    return tree
