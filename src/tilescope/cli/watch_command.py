"""`tilescope watch`: which tensor maps a program makes, and why the driver refused one."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilescope.cli.manual import ManualCommand
from tilescope.errors import DeviceError

if TYPE_CHECKING:
    from tilescope.gpu.watch.watch_recording import Recording

_DEFAULT_LIMIT_MB = 256
_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command(cls=ManualCommand, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--out", "out_path", type=_FILE, metavar="FILE", help="Write the maps to FILE, one a line, as JSON.")
@click.option("--verbose", is_flag=True, help="Also print a line for each accepted map.")
@click.option(
    "-q", "--quiet", "is_quiet", is_flag=True, help="Print one line at the end: how many maps, how many refused."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Report on stderr in JSON, one object a line; the last is the summary."
)
@click.option(
    "--record",
    "kernel",
    metavar="KERNEL[:N]",
    help="Record the first, or Nth, launch of a kernel with this in its name.",
)
@click.option("--record-to", "record_path", type=_FILE, metavar="FILE", help="Where.  [default: KERNEL.launch]")
@click.option(
    "--record-limit",
    "limit",
    type=click.IntRange(min=1),
    metavar="MB",
    help=f"Megabytes of memory that a recording has at most.  [default: {_DEFAULT_LIMIT_MB}]",
)
def watch(
    command: tuple[str, ...],
    out_path: Path | None,
    kernel: str | None,
    record_path: Path | None,
    limit: int | None,
    **shown: bool,
) -> int:
    """Run COMMAND and explain every tensor map that the driver refuses, in any library.

    --record writes one launch to a file that `tilescope run` takes with the program's PTX: grid, block, cluster, shared
    memory, parameters, and the allocations that their pointers and tensor maps reach, before and after. The device
    is synchronized before and after that launch.
    """
    verbose, is_quiet, as_json = shown["verbose"], shown["is_quiet"], shown["as_json"]
    if is_quiet and (verbose or as_json):
        raise click.UsageError("--quiet prints one line; leave --verbose and --json out.")
    if kernel is None and (record_path is not None or limit is not None):
        raise click.UsageError("--record-to and --record-limit are for --record.")
    if not sys.platform.startswith("linux"):
        raise DeviceError("watch needs Linux: it uses CUPTI and preloads a library.")
    from tilescope.gpu.watch.watch_signals import hold_signals

    with hold_signals() as signals, ExitStack() as files:
        from tilescope.gpu.watch.watch_session import (
            watch as watched,  # which loads numpy, whose threads inherit what is blocked
        )

        recording = None if kernel is None else _read_recording(kernel, record_path, limit)
        out = files.enter_context(out_path.open("w", encoding="utf-8")) if out_path else None
        return watched(
            command, signals, out=out, verbose=verbose, as_json=as_json, is_quiet=is_quiet, recording=recording
        )


def _read_recording(said: str, path: Path | None, limit_mb: int | None) -> Recording:
    """The launch for --record: a part of a name, and after a colon the number of its launch."""
    from tilescope.gpu.watch.watch_recording import DEFAULT_MOST_BYTES, Recording, default_path

    kernel, colon, number = said.rpartition(":")
    if not (colon and number.isdecimal() and int(number) > 0 and not kernel.endswith(":")):
        kernel = said
        number = "1"
    most_bytes = DEFAULT_MOST_BYTES if limit_mb is None else limit_mb * 1_000_000
    return Recording(kernel, path or default_path(kernel), int(number), most_bytes)


COMMANDS = (watch,)
