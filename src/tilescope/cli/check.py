"""`tilescope check`: would the driver take this tensor map, and if not, why."""

from __future__ import annotations

import click

from tilescope.cli.map_options import map_options
from tilescope.cli.map_source import described
from tilescope.cli.options import output_options
from tilescope.cli.output import Output
from tilescope.errors import TensorMapError
from tilescope.rule import ARGUMENT_TYPE, UNKNOWN_NAME
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.source import MapSource

NOT_UNDERSTOOD = (UNKNOWN_NAME.name, ARGUMENT_TYPE.name)  # what no driver was asked


@click.command()
@click.argument("source", nargs=-1)
@click.option("--fix", is_flag=True, help="Print the call of the nearest map that is accepted, in C++ and Python.")
@map_options
@output_options
def check(source: tuple[str, ...], fix: bool, asked: MapArguments | None, output: Output) -> int:
    """Say whether the driver takes a tensor map, and every reason why not.

    The map is described by options, or by SOURCE: a file or text with JSON, with the arguments that CUTLASS, TileLang,
    Triton and others print when a map fails, with a call of the driver in C++ or Python, or with the words of a descriptor;
    - is stdin. A log may be of any length. --from-json FILE takes nothing but JSON. Options replace what SOURCE says.
    FILE:3 is the third line of a file that holds one map a line, as watch writes it.

    \b
    tilescope check --type bf16 --dims 4096,4096 --box 128,64 --swizzle 128B
    tilescope check failed.log --arch sm_100
    pbpaste | tilescope check -

    Exit status 1: refused; 2: not understood, such as a name that no table has.
    """  # noqa: D301  \b keeps the lines below it apart
    found = described(source, asked)
    first, *more = found.reports()
    unread = [
        violation for report in (first, *more) for violation in report.violations if violation.rule in NOT_UNDERSTOOD
    ]
    if unread:
        raise TensorMapError(unread)
    if fix:
        return _print_fixed(found)
    arguments = [each.given for each in found.asked] or [{}]
    output.show(first, extra={"others": [each.to_dict() for each in more]} if more else {}, asked=arguments[0])
    if not output.as_json:
        for each, told in zip(more, arguments[1:], strict=True):
            click.echo()
            Output().show(each, asked=told)
    return 0 if all(each.accepted for each in (first, *more)) else 1


def _print_fixed(found: MapSource) -> int:
    """The encode calls of the maps, mended as the broken rules say."""
    from tilescope.emitter import snippet
    from tilescope.tensor_map.repair import repaired

    maps = [repaired(asked).tensor_map() for asked in found.asked] or [found.tensor_map()]
    for tensor_map in maps:
        click.echo(snippet(tensor_map, "encode"))
        click.echo(snippet(tensor_map, "encode-bindings"))
    return 0
