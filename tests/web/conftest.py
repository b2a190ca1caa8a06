"""A client that asks the explorer without a network, and a reader of its pages."""

import re
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from tilescope.web.application import application


@pytest.fixture(scope="session")
def client():
    with TestClient(application(), base_url="http://127.0.0.1:8765", follow_redirects=False) as opened:
        yield opened


VOID = {"meta", "link", "input", "br", "option", "tr", "td", "th", "thead", "tbody", "li"}  # may stay open


def is_thread(tag, names):
    """Whether a tag is a link to a public thread, which opens apart from the page and learns nothing of it."""
    is_apart = names.get("rel") == "noopener noreferrer" and names.get("target") == "_blank"
    return tag == "a" and is_apart and re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/issues/\d+", names["href"])


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.found, self.ids, self.labelled = [], [], set(), set()

    def handle_starttag(self, tag, attrs):
        names = dict(attrs)
        if len(names) != len(attrs):
            self.found.append(f"<{tag}> has an attribute twice")
        self.found += [f"<{tag}> has {name}" for name in names if name.startswith("on") or name == "style"]
        self.found += [
            f"<{tag} {name}={names[name]}> loads or runs something foreign"
            for name in ("src", "href", "action")
            if name in names and not (names[name] or "").startswith(("/", "#", "data:,")) and not is_thread(tag, names)
        ]
        if "id" in names:
            self.found += [f"id {names['id']} stands twice"] if names["id"] in self.ids else []
            self.ids.add(names["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open[-1] != tag:
            self.found.append(f"</{tag}> closes {self.open[-1:]}")
        else:
            self.open.pop()


def problems(page):
    """What is wrong with a page's markup: tags that do not close, ids that stand twice, attributes that run code."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.found + [f"<{tag}> stays open" for tag in reader.open]


@pytest.fixture(scope="session")
def markup_problems():
    return problems


@pytest.fixture(scope="session")
def timeless():
    """`timeless(printed)`: what a command prints as JSON, without the seconds that its own run took."""

    def without_seconds(printed):
        if "seconds" in printed.get("extra", {}):
            del printed["extra"]["seconds"]
            printed["answer"] = re.sub(r", \S+ s\.", ".", printed["answer"], count=1)
        return printed

    return without_seconds
