"""What was pasted, as the arguments of a map or the bytes of a descriptor."""

from __future__ import annotations

from tilescope.cli.map_source import _DUMP, _JSON
from tilescope.tensor_map.argument_dump import dumped_arguments
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.paste import descriptor_bytes


def pasted_map(text: str) -> MapArguments | bytes:
    """The first map of the text."""
    if _JSON.match(text):
        return MapArguments.from_json(text)
    if _DUMP.search(text):
        return dumped_arguments(text)[0]
    return descriptor_bytes(text)
