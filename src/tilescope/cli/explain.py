"""`tilescope explain`: a term, a rule, a field, a mode, a type or an architecture in a few sentences."""

from __future__ import annotations

import click

from tilescope.cli import topics
from tilescope.cli.options import completing, output_options
from tilescope.cli.output import Output
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Table


@click.command()
@click.argument("topic", nargs=-1, shell_complete=completing(topics.names()))
@output_options(svg=False)
def explain(topic: tuple[str, ...], output: Output) -> None:
    """Explain TOPIC: a term such as "base offset", a rule, a field, a mode, a data type, an architecture, or what you see.

    What you see may be an error code (715), an error's name, or a few words: hang, "garbage in every second row".

    Without TOPIC: list everything that can be explained.
    """
    if not topic:
        index = topics.index()
        rows = tuple((group, ", ".join(names)) for group, names in index.groups)
        output.show(index, Drawing("What can be explained", (Table(rows),)))
        return
    found = topics.find(" ".join(topic))
    if not isinstance(found, topics.Topic):  # a rule draws itself
        output.show(found)
        return
    facts = (Table(found.facts),) if found.facts else ()
    see = (f"See also: {', '.join(found.see)}.",) if found.see else ()
    output.show(found, Drawing(found.name, (found.meaning, *facts, *see)))
