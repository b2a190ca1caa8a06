"""`tilescope verify`: hold tilescope's answers against the GPU of this machine, or against a capture of one."""

from __future__ import annotations

from pathlib import Path

import click

from tilescope.cli.options import output_file, output_options
from tilescope.cli.output import Output
from tilescope.cli.progress import progress_bars
from tilescope.gpu.capture import Capture
from tilescope.gpu.suites import SUITE_NAMES
from tilescope.gpu.verification import draw_verification, replay
from tilescope.gpu.verification import verify as verified

_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("suites", nargs=-1, metavar="[SUITE]...", type=click.Choice(SUITE_NAMES))
@click.option("--count", type=click.IntRange(1), metavar="N", help="Cases of every suite. [default: the suite's own]")
@click.option("--seed", type=int, default=1, show_default=True, metavar="N", help="Seed of the random cases.")
@click.option("--save", type=output_file, metavar="FILE", help="Write the cases and the card's answers to a capture.")
@click.option("--replay", "capture", type=_EXISTING, metavar="FILE", help="Check a capture; needs no GPU.")
@output_options
def verify(
    suites: tuple[str, ...], count: int | None, seed: int, save: Path | None, capture: Path | None, output: Output
) -> int:
    """Run random cases on the GPU of this machine and compare them with what tilescope says, byte for byte.

    \b
    tilescope verify                             all suites
    tilescope verify loads stores --count 500
    tilescope verify --save h200.npz             to send, or to check later
    tilescope verify --replay h200.npz           without a GPU

    Exit status 1: something differs. 3: there is no GPU, or the extra `gpu` is not installed.
    """  # noqa: D301  \b keeps the lines below it apart
    if capture is not None and (suites or count or save):
        raise click.UsageError("--replay checks a whole capture; leave the other options out.")
    with progress_bars() as progress:
        if capture is not None:
            verification = replay(Capture.read(capture), progress)
        else:
            verification, made = verified(suites, count=count, seed=seed, progress=progress)
            if save is not None:
                made.save(save)
    output.show(verification, draw_verification(verification))
    return 0 if verification.agrees else 1
