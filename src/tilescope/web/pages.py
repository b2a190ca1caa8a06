"""The pages by the path that leads to them, in the order of the menu."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from tilescope.errors import RuleError, unknown_name
from tilescope.questions.menu import MENU
from tilescope.questions.opened_file import fields_of_dump
from tilescope.questions.page import OpenedField, Page
from tilescope.sentence import shorten
from tilescope.web.form import PAGE_QUERY, PASTE, Form, filled_form, query_of

PAGES: dict[str, Page] = {page.name: page for page in MENU}
OTHER_NAMES = {  # names of a page that users type: the equivalent command, or the hardware's term
    "tmem": "tensor-memory",
    "map": "tensor-map",
    "check": "tensor-map",
    "encode": "tensor-map",
    "draw": "layout",
    "mma": "tensor-core",
    "explain": "symptoms",
}
NO_ADDRESS = PAGE_QUERY.worded(
    argument="url", found="'{url}': {reason}", limit="the address of a page", fix="Try /swizzle."
)


def redirect_query(page: Page, query: Mapping[str, str]) -> Mapping[str, str] | None:
    """The query to which a page sends another one, as a pasted text to the fields that it fills; None if to none."""
    return None if page.redirect is None else page.redirect(query)


def open_file(page: Page, field: str, content: bytes) -> Mapping[str, str]:
    """The fields that a file fills which is dropped on a field; RuleError where the field takes none, or not this one.

    >>> open_file(PAGES["pipeline"], "text", b"[[roles]]")
    {'text': '[[roles]]'}
    """
    takes = {name: opened for form in page.forms.values() for name, opened in form.opens.items()}
    if page.pasted:
        takes[PASTE] = OpenedField(fields_of_dump)
    if field not in takes:
        raise RuleError([unknown_name("field that takes a file", "field", field[:80], takes)])
    return takes[field].read(field, content)


def form_at(url: str) -> Form:
    """The form that an address fills, whole or from its path on.

    >>> form_at("/swizzle?mode=64B").written["mode"]
    '64B'
    """
    try:
        place = urlsplit(url)
    except ValueError as error:
        raise NO_ADDRESS.error(url=shorten(url, 60), reason=str(error)) from None
    name = unquote(place.path).strip("/")
    name = OTHER_NAMES.get(name, name)
    if name not in PAGES:
        raise RuleError([unknown_name("page", "url", name[:80], PAGES)])
    query = query_of(parse_qsl(place.query, keep_blank_values=True, max_num_fields=100))
    return filled_form(PAGES[name], redirect_query(PAGES[name], query) or query)
