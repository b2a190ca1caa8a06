"""`tilescope verify`: hold tilescope's answers against the GPU of this machine; `tilescope bench`: measure that GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilescope.cli.command import Output, command, output_file, progress_bars, refuse
from tilescope.gpu.benchmark import TOPICS, draw_benchmark
from tilescope.gpu.benchmark import bench as measured
from tilescope.gpu.suites import SUITE_NAMES
from tilescope.gpu.verification import Capture, draw_verification, replay
from tilescope.gpu.verification import verify as verified
from tilescope.inputs import Input
from tilescope.written import number

_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
_SEED = Input("seed", "--seed", "Seed of what is drawn at random", read=number, default="1")


@command(_SEED)
@click.argument("suites", nargs=-1, metavar="[SUITE]...", type=click.Choice(SUITE_NAMES))
@click.option("--count", type=click.IntRange(1), metavar="N", help="Cases per suite. [default: the suite's own]")
@click.option("--save", type=output_file, metavar="FILE", help="Write the cases and the card's answers to a capture.")
@click.option("--replay", "capture", type=_EXISTING, metavar="FILE", help="Check a capture; needs no GPU.")
def verify(
    suites: tuple[str, ...], output: Output, save: Path | None = None, capture: Path | None = None, **said: int
) -> int:
    """Run random cases on the GPU of this machine and compare them with what tilescope says, byte for byte.

    \b
    tilescope verify                             all suites
    tilescope verify loads stores --count 500
    tilescope verify pipelines                   those that are proven must run
    tilescope verify --save h200.npz             to send, or to check later
    tilescope verify --replay h200.npz           without a GPU

    Suites: encode, loads, im2col, multicast, gather4, bulk, plans, stores, reductions, scatter4, faults, mbarriers, wgmma,
    tcgen05, fragments, tensor_memory, ldmatrix, banks, emitted, pipelines.

    Exit status 1: something differs. 3: there is no GPU, or the extra `gpu` is not installed.
    """  # noqa: D301  \b keeps the lines below it apart
    refuse((capture and (suites or said or save), "--replay checks a whole capture; leave the other options out."))
    with progress_bars() as progress:
        if capture is not None:
            verification = replay(Capture.read(capture), progress)
        else:
            verification, made = verified(suites, progress=progress, **said)
            if save is not None:
                made.save(save)
    return output.show(verification, draw_verification(verification), ok=verification.agrees)


@command(
    _SEED,
    Input("card", "--card", "Whose rates the planner uses", default="the card of the architecture"),
    Input("save_as", "--save-card", "Keep the rates as a card", "for --card NAME of other commands."),
)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", type=click.Choice(list(TOPICS)))
@click.option("--tiles", type=click.IntRange(1), metavar="N", help="Random tiles that `plans` measures. [default: 200]")
def bench(topics: tuple[str, ...], output: Output, **said: Any) -> int:
    """Measure the GPU of this machine: plain copies, TMA loads and stores, and the planner's order.

    \b
    tilescope bench                    everything
    tilescope bench loads stores       by box, promotion, bytes in flight, SMs
    tilescope bench plans --tiles 500  candidates of random tiles, streamed
    tilescope bench --save-card mine   then: plan 128x64 bf16 --card mine

    Exit status 3: there is no GPU, or the extra `gpu` is not installed.
    """  # noqa: D301  \b keeps the lines below it apart
    with progress_bars() as progress:
        benchmark = measured(topics, progress=progress, **said)
    return output.show(benchmark, draw_benchmark(benchmark))
