"""`tilescope watch`: which tensor maps a program makes, and why the driver refused one."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import click

from tilescope.errors import DeviceError

_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--out", "out_path", type=_FILE, metavar="FILE", help="Write the maps to FILE, one a line, as JSON.")
@click.option("--verbose", is_flag=True, help="Also print a line for each accepted map.")
@click.option(
    "-q", "--quiet", "is_quiet", is_flag=True, help="Print one line at the end: how many maps, how many refused."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Report on stderr in JSON, one object a line; the last is the summary."
)
def watch(command: tuple[str, ...], out_path: Path | None, verbose: bool, is_quiet: bool, as_json: bool) -> int:
    """Run COMMAND and explain every tensor map that the driver refuses, whoever made it.

    \b
    tilescope watch -- python train.py
    tilescope watch --out maps.jsonl -- torchrun --nproc-per-node 8 train.py
    tilescope check maps.jsonl:3

    Exit status: that of COMMAND; 3 where CUPTI or a C compiler is missing.
    """  # noqa: D301  \b keeps the lines below it apart
    if is_quiet and (verbose or as_json):
        raise click.UsageError("--quiet prints one line; leave --verbose and --json out.")
    if not sys.platform.startswith("linux"):
        raise DeviceError("watch needs Linux: it stands on CUPTI and on libraries that the driver loads.")
    from tilescope.gpu.watch_signals import held_signals

    with held_signals() as signals, ExitStack() as files:
        from tilescope.gpu.watch import watch as watched  # which loads numpy, whose threads inherit what is blocked

        out = files.enter_context(out_path.open("w", encoding="utf-8")) if out_path else None
        return watched(command, signals, out=out, verbose=verbose, as_json=as_json, is_quiet=is_quiet)


COMMANDS = (watch,)
