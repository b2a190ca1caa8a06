"""tilescope's own `Layout(...)`, as Python writes it.

Layout((64, 128), 16, atom=(64, 64), swizzle="128B")           (mn, k), k contiguous
Layout((128, 64), 16, atom=(64, 64), major="MN")               mn contiguous
Layout.from_modes((((32, 4), 4), ((16, 4), 1)), 8)             any shape and stride
Layout((8, 64), (64, 1))                                       shape and stride of pycute and tensor-layouts
"""

from __future__ import annotations

import re
from typing import Any

from tilescope.layout import Layout, Modes
from tilescope.notation.equivalent import tile_of
from tilescope.notation.hints import Hints
from tilescope.notation.text import Scanner

_ARGUMENTS = ("atom", "atom_order", "padding_bytes", "major", "swizzle", "start")
_QUOTED = ("atom_order", "major", "swizzle")


def starts(text: str) -> bool:
    """Whether the text constructs a `Layout` in Python."""
    return re.match(r"(?:\w+\.)*Layout(?:\.from_modes)?\s*\(", text) is not None


def read(text: str, hints: Hints) -> Layout:
    """A `Layout(...)` as Python writes it.

    >>> read('Layout((16, 64), 16, swizzle="128B")', Hints())
    Layout((16, 64), 16, swizzle="128B")
    """
    scan = Scanner(text)
    from_modes = scan.name().endswith("from_modes")
    scan.expect("(")
    if from_modes:
        scan.expect("(")
    scan.accept("shape", "=")
    shape = scan.integers()
    scan.expect(",")
    scan.accept("element_bits", "=")
    if from_modes or scan.at("("):
        modes = Modes(shape, scan.integers())
        bits = None
        if from_modes:
            scan.expect(")", ",")
            bits = scan.integer()
        arguments = _arguments(scan, ("unit_bits", "swizzle", "start") if from_modes else ())
        layout = Layout.from_modes(modes, hints.bits(bits, "the layout"), **({"start": hints.start} | arguments))
    else:
        bits, arguments = scan.integer(), _arguments(scan, _ARGUMENTS)
        if "major" not in arguments and hints.major is not None:
            arguments["major"] = hints.major
        layout = Layout(shape, hints.bits(bits, "the Layout"), **({"start": hints.start} | arguments))  # type: ignore[arg-type]
    hints.agrees_with(layout, "the Layout")
    return layout


def spell(layout: Layout) -> str:
    """The tile as tilescope constructs it.

    >>> spell(Layout((64, 128), 16, atom=(64, 64), swizzle="128B"))
    'Layout((64, 128), 16, atom=(64, 64), swizzle="128B")'
    """
    tile_of(layout)
    return repr(layout)


def _arguments(scan: Scanner, known: tuple[str, ...]) -> dict[str, Any]:
    """What follows by name, up to the end."""
    arguments: dict[str, Any] = {}
    while scan.accept(","):
        key = scan.peek().spelling
        if key not in known or key in arguments:
            scan.refuse("one of " + ", ".join(known) + ", once")
        scan.take()
        scan.expect("=")
        arguments[key] = _quoted(scan) if key in _QUOTED else scan.integers()
    scan.expect(")")
    scan.finished()
    return arguments


def _quoted(scan: Scanner) -> str:
    """A string in quotes: a mode's or an order's name."""
    quote = scan.peek().spelling
    if quote not in ('"', "'"):
        scan.refuse('a name in quotes, such as "128B"')
    scan.take()
    said = ""
    while not scan.at(quote) and scan.peek().kind != "end":
        said += scan.take().spelling
    scan.expect(quote)
    return said
