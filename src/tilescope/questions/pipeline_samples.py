"""Descriptions of pipelines with one mistake each: what a cause of a symptom looks like on the page that runs it.

    SAMPLES["parity"].text      a ring whose producer waits for the wrong parity: the page says so and marks it

A sample is a correct pipeline with one changed line, so that it differs from a correct one only in its cause.
"""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

_FOLDER = files("tilescope.questions") / "samples"


def _right(name: str) -> str:
    return (_FOLDER / f"{name}.toml").read_text("utf-8").rstrip()


class Sample(NamedTuple):
    """A pipeline with a mistake."""

    cause: str  # of symptoms, by its name
    rule: str  # that the run names
    right: str  # the pipeline without the mistake
    line: str  # of it …
    instead: str  # … and its replacement

    @property
    def text(self) -> str:
        """The description, named after the cause."""
        _, _, body = self.right.partition("\n")
        return f'name = "{self.cause}"\n{body.replace(self.line, self.instead)}'


RING = _right("ring")
CLUSTER = _right("cluster")
STORE = _right("store")

_LISTED = (
    Sample(
        "barrier-bytes",
        "pipeline-bytes",
        RING,
        line='{expect = "full[i % 2]", bytes = 16384},',
        instead='{expect = "full[i % 2]", bytes = "16384 + 64 * (i == 3)"},',
    ),
    Sample(
        "barrier-arrivals",
        "pipeline-arrivals",
        RING,
        line="empty = {stages = 2, count = 1}",
        instead="empty = {stages = 2, count = 2}",
    ),
    Sample(
        "parity",
        "pipeline-start",
        RING,
        line='{wait = "empty[i % 2]", parity = "(i / 2) % 2 ^ 1"},',
        instead='{wait = "empty[i % 2]", parity = "(i / 2) % 2"},',
    ),
    Sample(
        "slot-index",
        "pipeline-stale",
        RING,
        line='{multiply = ["a[i % 2]"], tile = "i"},',
        instead='{multiply = ["a[i % 3 % 2]"], tile = "i"},',
    ),
    Sample(
        "early-release",
        "pipeline-race",
        RING,
        line='{wait_group = "wgmma", pending = 0},',
        instead='{wait_group = "wgmma", pending = 1},',
    ),
    Sample(
        "multicast-receiver",
        "pipeline-receiver",
        CLUSTER,
        line='{expect = "full[i % 2]", bytes = 24576},',
        instead='{expect = "full[i % 2]", bytes = 24576, when = "rank == 0"},',
    ),
    Sample(
        "barrier-init",
        "pipeline-init",
        CLUSTER,
        line='{init = ["full", "empty"]}, {fence = "mbarrier_init"}, {cluster = "sync"},',
        instead='{init = ["full", "empty"]}, {cluster = "sync"},',
    ),
    Sample(
        "early-exit",
        "pipeline-exit",
        CLUSTER,
        line='{cluster = "sync"},  # the last',
        instead="",
    ),
    Sample(
        "proxy-fence",
        "pipeline-fence",
        STORE,
        line='{fence = "proxy.async"},',
        instead="",
    ),
    Sample(
        "bulk-group",
        "pipeline-race",
        STORE,
        line='{wait_group = "bulk", pending = 1, read = true},',
        instead='{wait_group = "bulk", pending = 2, read = true},',
    ),
)
SAMPLES = {sample.cause: sample for sample in _LISTED}
