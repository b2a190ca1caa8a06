"""What the site needs that the pages, which are also read as files, do not say.

Links that leave docs/ (to examples/ and tests/) lead to files of the repository, which the site does not have: they become text.
A picture is a link to itself: a drawing may be wider than the column of text. Python with prompts is coloured as a session.
"""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:examples|tests|src|CHANGELOG|README)[^)]*\)")
_PICTURE = re.compile(r"^!\[([^\]]*)\]\(([^)]+)\)$", re.MULTILINE)
_ALONE_IN_THEIR_TAB = ("index.md", "hardware.md", "comparison.md")
_SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """The page without links out of docs/, with pictures that open and sessions that are coloured."""
    if page.file.src_uri in _ALONE_IN_THEIR_TAB:
        page.meta["hide"] = ["navigation"]
    inside = _OUTSIDE.sub(r"\1", markdown)
    return _SESSION.sub("```pycon\n", _PICTURE.sub(r"[![\1](\2)](\2)", inside))
