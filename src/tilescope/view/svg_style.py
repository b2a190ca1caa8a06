"""The style of an SVG drawing: fonts, sizes, the classes of text and cells, and the hatching of what holds no data."""

from __future__ import annotations

import re

from tilescope.view.palette import CHUNK_COLOURS, ROLES, Colour

BODY = 13  # font sizes in pixels
SMALL = 12
TINY = 11
TITLE = 19
SUBTITLE = 15
NARROW_TEXT = 360  # pixels of text beside a grid, and of the title and notes of a narrow grid

_MONO = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace'
_SANS = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans","Liberation Sans",Arial,sans-serif'
_WHITE = "#ffffff"
_RULE = re.compile(r"([^{}]+)(\{[^{}]*\})")  # its selectors, and what they get


def style_sheet() -> str:
    """The rules behind every class; all are held under the drawing's own class, so that a page keeps its style."""
    rules = [
        f"text{{font:{BODY}px {_SANS};font-variant-ligatures:none;fill:{ROLES['background'].ink}}}",
        f".m,.h,.l,.cells text{{font-family:{_MONO}}}",
        f".h,.dense text{{font-size:{TINY}px}}.l,.small{{font-size:{SMALL}px}}.roomy text{{font-size:{BODY}px}}",
        ".h,.cells text{text-anchor:middle}.l,.end{text-anchor:end}.start{text-anchor:start}",
        f".h,.l,.head{{fill:{ROLES['header'].ink}}}.muted{{fill:{ROLES['muted'].ink}}}",
        f".title{{font-size:{TITLE}px;font-weight:600}}.sub{{font-size:{SUBTITLE}px;font-weight:600}}",
        ".strong{font-weight:600}",
        ".painted path{stroke:#ffffff;stroke-width:0.5}.painted .dot{stroke:none}",
        ".cells rect{stroke:#ffffff;stroke-width:1}.line{stroke:#9aa1ad;stroke-width:1}",
        ".cells text{fill:#000000;pointer-events:none}.cells text.w{fill:#ffffff}",  # the tooltip is the cell's
    ]
    rules += [_colour_rules(colour) for colour in (*CHUNK_COLOURS, *ROLES.values())]
    rules += [  # after the surfaces: a frame bears the name of its mark, which is a colour's too
        ".cells .halo{fill:none;stroke:#ffffff;pointer-events:none}",
        ".cells .frame{fill:none;stroke-width:2;pointer-events:none}",
        f".cells .frame.collision{{stroke:{ROLES['collision'].fill}}}",
        f".cells .frame.focus{{stroke:{ROLES['focus'].fill}}}",
    ]
    return "".join(_under_drawing(selectors) + block for selectors, block in _RULE.findall("".join(rules)))


_ON_LIGHT = ".cells .background{fill:none}"
_ON_DARK = (
    "text{fill:#e7eaf0}.h,.l,.head{fill:#b9c0cc}.muted{fill:#a2aab8}.line{stroke:#a2aab8}"
    ".cells rect{stroke:#12151b}.cells text{fill:#000000}.cells text.w{fill:#ffffff}"
    ".cells .background{fill:none}.cells text.on-background{fill:#e7eaf0}"
    ".cells .unused{fill:#232933}.cells text.on-unused,.cells text.on-gap{fill:#a2aab8}"
    f".cells text.on-fill{{fill:{ROLES['fill'].ink}}}"
    ".cells .halo{fill:none;stroke:#12151b}"
    f".cells .frame{{fill:none}}.cells .frame.collision{{stroke:{ROLES['collision'].fill}}}.cells .frame.focus{{stroke:#ffffff}}"
)


def figure_style(ground: str) -> str:
    """The rules for a figure without a background, on a "light" or a "dark" page."""
    rules = _ON_DARK if ground == "dark" else _ON_LIGHT
    return style_sheet() + "".join(_under_drawing(selectors) + block for selectors, block in _RULE.findall(rules))


def _under_drawing(selectors: str) -> str:
    """Selectors, separated by commas, of elements inside a drawing."""
    return ",".join(f".tilescope {selector}" for selector in selectors.split(","))


def _colour_rules(colour: Colour) -> str:
    """The surface of a colour, and the ink on it."""
    fill = f"url(#{_pattern_id(colour)})" if colour.hatched else colour.fill
    return f".cells .{colour.name}{{fill:{fill}}}.cells text.on-{colour.name}{{fill:{colour.ink}}}"


def hatchings(ground: str = "") -> str:
    """Thin diagonals for the colours without data; on a "light" or "dark" `ground` a white one is transparent."""
    return "".join(
        f'<pattern id="{_pattern_id(colour)}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" fill="{_hatched_fill(colour, ground)}"/>'
        f'<path d="M-1 1l2-2M0 6l6-6M5 7l2-2" stroke="{_hatched_line(colour, ground)}" stroke-width="1"/></pattern>'
        for colour in ROLES.values()
        if colour.hatched
    )


def _hatched_fill(colour: Colour, ground: str) -> str:
    return "none" if ground and colour.fill == _WHITE else colour.fill


def _hatched_line(colour: Colour, ground: str) -> str:
    return "#4a5160" if ground == "dark" and colour.fill == _WHITE else "#b9bfca"


def _pattern_id(colour: Colour) -> str:
    return f"tilescope-{colour.name}"
