"""The table of pages, in the order of the menu: a page enters here, and nowhere else."""

from urllib.parse import parse_qsl, unquote, urlsplit

from tilescope.errors import RuleError, unknown_name
from tilescope.sentence import shortened
from tilescope.web.page import PAGE_QUERY, Form, Page, query_of
from tilescope.web.pages import symptoms, tensor_core
from tilescope.web.pages.layouts import BANKS_PAGE, LAYOUT_PAGE, SWIZZLE_PAGE
from tilescope.web.pages.maps import COPY_PAGE, MAP_PAGE
from tilescope.web.pages.planning import PIPELINE_PAGE, PLAN_PAGE

_MENU = (
    PLAN_PAGE, MAP_PAGE, COPY_PAGE, SWIZZLE_PAGE, LAYOUT_PAGE, BANKS_PAGE, tensor_core.PAGE, PIPELINE_PAGE, symptoms.PAGE,
)  # fmt: skip
PAGES: dict[str, Page] = {page.name: page for page in _MENU}


def form_at(url: str) -> Form:
    """The form that an address fills, whole or from its path on.

    >>> form_at("/swizzle?mode=64B").written["mode"]
    '64B'
    """
    try:
        place = urlsplit(url)
    except ValueError as error:
        found = f"{shortened(url, 60)!r}: {error}"
        raise PAGE_QUERY.error("url", found, "the address of a page", "Try /swizzle.") from None
    name = unquote(place.path).strip("/")
    if name not in PAGES:
        raise RuleError([unknown_name("page", "url", name[:80], PAGES)])
    query = query_of(parse_qsl(place.query, keep_blank_values=True, max_num_fields=100))
    return PAGES[name].filled(PAGES[name].redirect(query) or query)
