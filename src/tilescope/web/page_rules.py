"""What the explorer demands of an address."""

from __future__ import annotations

from tilescope.rule import rule

PAGE_LIMIT = rule(
    "page-limit",
    "A page of the explorer takes only so much at once; the command line takes more.",
    source="the explorer",
)
PAGE_QUERY = rule(
    "page-query",
    "The address of a page gives every field once.",
    source="the explorer",
)
