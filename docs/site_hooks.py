"""What the site needs that the pages, which are also read as files, do not say.

Links that leave docs/ (to examples/ and tests/) lead to files of the repository, which the site does not have: they become text.
A picture is a link to itself: a drawing may be wider than the column of text.
"""

import re

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:examples|tests|src|CHANGELOG|README)[^)]*\)")
_PICTURE = re.compile(r"^!\[([^\]]*)\]\(([^)]+)\)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page without links out of docs/, and with pictures that open."""
    return _PICTURE.sub(r"[![\1](\2)](\2)", _OUTSIDE.sub(r"\1", markdown))
