"""`tilescope bench`: how fast the GPU of this machine moves tiles, and whether the planner's order holds on it."""

from __future__ import annotations

import click

from tilescope.cli.options import output_options
from tilescope.cli.output import Output
from tilescope.cli.progress import progress_bars
from tilescope.gpu.benchmark import TOPICS, draw_benchmark
from tilescope.gpu.benchmark import bench as measured


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", type=click.Choice(list(TOPICS)))
@click.option("--tiles", type=click.IntRange(1), default=200, show_default=True, metavar="N", help="Tiles of `plans`.")
@click.option("--seed", type=int, default=1, show_default=True, metavar="N", help="Seed of the random tiles.")
@click.option("--card", metavar="NAME", help="Whose rates the planner uses. [default: the card of the architecture]")
@click.option(
    "--save-card", "save_as", metavar="NAME", help="Keep the rates as a card, for --card NAME of other commands."
)
@output_options
def bench(topics: tuple[str, ...], tiles: int, seed: int, card: str | None, save_as: str | None, output: Output) -> int:
    """Measure the GPU of this machine: plain copies, TMA loads and stores, and the planner's order.

    \b
    tilescope bench                    everything
    tilescope bench loads stores       by box, promotion, bytes in flight, SMs
    tilescope bench plans --tiles 500  candidates of random tiles, streamed
    tilescope bench --save-card mine   then: plan 128x64 bf16 --card mine

    Exit status 3: there is no GPU, or the extra `gpu` is not installed.
    """  # noqa: D301  \b keeps the lines below it apart
    with progress_bars() as progress:
        benchmark = measured(topics, tiles=tiles, seed=seed, card=card, save_as=save_as, progress=progress)
    output.show(benchmark, draw_benchmark(benchmark))
    return 0
