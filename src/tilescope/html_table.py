"""A table as HTML that a notebook shows, in place of a long line of text.

Every cell has its own style: notebooks align cells to the right and break no lines, and a style sheet of ours would be
taken out where a notebook is not trusted, while a table stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MAX_ROWS = 60
_CODE = re.compile(r"`([^`]+)`")
_CELL_STYLE = "text-align:left;vertical-align:top;white-space:normal;max-width:60ch"


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "") -> str:
    """A table of texts, with the text between backticks as code; of many rows, the first.

    >>> print(html_table(["rule"], [["stride < 16"]]).replace(f' style="{_CELL_STYLE}"', ""))
    <table>
    <tr><th>rule</th></tr>
    <tr><td>stride &lt; 16</td></tr>
    </table>
    """
    listed = [*rows]
    lines = ["<table>"]
    if caption:
        lines.append(f'<caption style="text-align:left">{_marked_up(caption)}</caption>')
    if headings:
        lines.append(_line("th", headings))
    lines += [_line("td", row) for row in listed[:MAX_ROWS]]
    lines.append("</table>")
    left_out = len(listed) - MAX_ROWS
    if left_out > 0:
        lines.append(f"<p>… {left_out} more</p>")
    return "\n".join(lines)


def _line(tag: str, texts: Iterable[str]) -> str:
    cells = (f'<{tag} style="{_CELL_STYLE}">{_marked_up(text)}</{tag}>' for text in texts)
    return f"<tr>{''.join(cells)}</tr>"


def _marked_up(text: str) -> str:
    import html

    return _CODE.sub(r"<code>\1</code>", html.escape(text))
