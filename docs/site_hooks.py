"""What the site needs that the pages, which are also read as files, do not say.

Links that leave docs/ (to examples/ and tests/) lead to files of the repository, which the site does not have: they become text.
"""

import re

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:examples|tests|src|CHANGELOG|README)[^)]*\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page without links out of docs/."""
    return _OUTSIDE.sub(r"\1", markdown)
