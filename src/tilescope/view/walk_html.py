"""A drawing as HTML that answers to the mouse, without a server: for notebooks, and for pages of one's own.

    <p class="said">      what the mouse is over, or the sentence of the step
    <input type="range">  one place for each step of the walk, and one before them for the whole drawing
    <svg>                 the drawing; cells that show the same thing share a word of data-link
    <script>              walk.js: lights up what belongs together

A notebook that is not trusted loses its pictures and scripts. Then only a sentence with the reason is left.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from tilescope.view.drawing import Drawing
from tilescope.view.svg_document import SCRIPTED_NOTEBOOK, document
from tilescope.view.walk_step import Step

_STYLE = (
    ".tilescope-walk.marking rect[data-link]:not(.near){opacity:.2}"
    ".tilescope-walk.marking rect[data-link]:not(.near)+text{fill:#555!important}"  # white would be lost on a pale cell
    ".tilescope-walk input{width:min(100%,40em);vertical-align:middle}"
    ".tilescope-walk .said{min-height:1.4em;margin:.3em 0}"
)
_WITHOUT_SCRIPT = "If there is no picture below, open this notebook in Jupyter and trust it."


def walk_html(drawing: Drawing, steps: Sequence[Step]) -> str:
    """A piece of HTML with the drawing, a slider over the steps if there are any, and the script that both need.

    >>> drawn = walk_html(Drawing("Two <cells>", {"said": "Nothing."}), ())
    >>> "<h" in drawn, "Two &lt;cells&gt;" in drawn, 'type="range"' in drawn
    (False, True, False)
    """
    plain_steps = [[step.links, step.sentence] for step in steps]
    slider = ""
    if steps:
        slider = f'<input type="range" min="0" max="{len(steps)}" value="0" aria-label="Step" hidden>'
    lines = [
        f'<div class="tilescope-walk" data-steps="{html.escape(json.dumps(plain_steps))}">',
        f"<style>{_STYLE}</style>",
        f'<p class="said" aria-live="polite">{_WITHOUT_SCRIPT}</p>',
        slider,
        document(drawing.title, drawing.parts, SCRIPTED_NOTEBOOK).rstrip(),
        "</div>",
        f"<script>{_script()}</script>",
    ]
    return "\n".join(line for line in lines if line)


@cache
def _script() -> str:
    return (files("tilescope.view") / "walk.js").read_text("utf-8")
