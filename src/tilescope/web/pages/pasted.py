"""What was pasted, as the arguments of a map or the bytes of a descriptor."""

from __future__ import annotations

from tilescope.cli.map_source import read_source
from tilescope.tensor_map.arguments import MapArguments


def pasted_map(text: str) -> MapArguments | bytes:
    """The first map of the text."""
    found = read_source((text,))
    return found.asked[0] if found.blob is None else found.blob
