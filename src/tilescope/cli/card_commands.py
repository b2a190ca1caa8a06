"""`tilescope verify`: hold tilescope's answers against the GPU of this machine; `tilescope bench`: measure that GPU."""

from __future__ import annotations

from pathlib import Path

import click

from tilescope.cli.command import (
    Output,
    asked_by,
    output_file,
    output_options,
    parameters,
    progress_bars,
    show,
)
from tilescope.cli.manual import ManualCommand
from tilescope.gpu.bench.benchmark import TOPICS, benchmark_line, draw_benchmark
from tilescope.gpu.bench.benchmark import bench as measured
from tilescope.gpu.bench.gemm_benchmark import Asked, bench_gemm, draw_gemm_benchmark, gemm_benchmark_line, saved_text
from tilescope.gpu.bench.gemm_tuning import tune_gemm
from tilescope.gpu.driver.environment import draw_environment, environment_line
from tilescope.gpu.driver.environment import environment as environment_here
from tilescope.gpu.verify.suites import SUITE_NAMES
from tilescope.gpu.verify.verification import Capture, CardLostError, draw_verification, replay, verification_line
from tilescope.gpu.verify.verification import verify as verified
from tilescope.questions.question import Answer, Input
from tilescope.written import number, product

_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
_SEED = Input("seed", "--seed", "Seed of what is drawn at random", read=number)
_VERIFY_INPUTS = (
    _SEED,
    Input("count", "--count", "Cases per suite", read=number, unsaid="the suite's own", least=1),
    Input("only", "--only", "The one case of every suite to run, counted from 0", read=number, unsaid="all", least=0),
)
_BENCH_INPUTS = (
    _SEED,
    Input("card", "--card", "Whose rates the planner uses", unsaid="the card of the architecture"),
    Input("save_as", "--save-card", "Keep the rates as a card", "for --card NAME of other commands."),
    Input("tiles", "--tiles", "Random tiles that `plans` measures", read=number, least=1),
)
_VERIFY_HELP = """Run random cases on the GPU of this machine and compare the results with tilescope's, byte for byte.

With --environment nothing runs: versions of Python, packages, driver, CUDA toolkit, nvcc, NVRTC and Triton are printed,
the cards, and which extras of tilescope are installed. Add it to bug reports.

Suites: encode, loads, im2col, multicast, gather4, bulk, plans, stores, reductions, scatter4, faults, mbarriers, wgmma,
tcgen05, fragments, tensor_memory, ldmatrix, banks, emitted, pipelines, kernels, approx, shifts, remote_arrivals,
pair_exits, rates.
"""
_BENCH_HELP = """Measure the GPU of this machine: plain copies, TMA loads and stores, and the planner's order.
"""


def verify(
    *,
    suites: tuple[str, ...],
    save: Path | None,
    capture: Path | None,
    of_environment: bool,
    as_json: bool,
    is_quiet: bool,
    svg_path: Path | None,
    **said: object,
) -> int:
    """Compare with the card, or with a capture of what one did; or tell what is installed here."""
    output = Output(as_json, svg_path, is_quiet=is_quiet)
    output.require_one_on_stdout()
    options = asked_by(_VERIFY_INPUTS, said)
    if of_environment:
        if suites or options or save or capture:
            raise click.UsageError("--environment runs nothing; leave suites and the other options out.")
        environment = environment_here()
        return show(Answer(environment, first=environment_line(environment)), output, draw_environment(environment))
    if capture is not None and (suites or options or save):
        raise click.UsageError("--replay checks a whole capture; leave the other options out.")
    with progress_bars() as progress:
        if capture is not None:
            verification = replay(Capture.read(capture), progress)
        else:
            try:
                verification, new_capture = verified(suites, progress=progress, announce=_announce, **options)
            except CardLostError as lost:
                if save is not None:
                    lost.capture.save(save)
                    click.echo(f"{save} has the suites before the card was lost: send it as it is.", err=True)
                raise
            if save is not None:
                new_capture.save(save)
    answer = Answer(verification, first=verification_line(verification), is_yes=verification.agrees)
    return show(answer, output, draw_verification(verification))


def _announce(text: str) -> None:
    click.echo(text, err=True)


def bench(
    *,
    topics: tuple[str, ...],
    data_type: str,
    is_dependent: bool,
    is_tuned: bool,
    scales: str | None,
    save: Path | None,
    as_json: bool,
    is_quiet: bool,
    svg_path: Path | None,
    **said: object,
) -> int:
    """Measure the card."""
    output = Output(as_json, svg_path, is_quiet=is_quiet)
    output.require_one_on_stdout()
    if topics[:1] == ("gemm",):
        products = [_product_options(shape, data_type, scales) for shape in topics[1:]]
        how = {"dependent": is_dependent, "tune": is_tuned}
        return _bench_gemm(products, save, output, said, {name for name, chosen in how.items() if chosen})
    if is_tuned:
        raise click.UsageError("--tune times the alternatives of a product: tilescope bench gemm --tune 512x4096x7168.")
    unknown = [topic for topic in topics if topic not in TOPICS]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join([*TOPICS, 'gemm'])}.", param_hint="TOPIC")
    if save is not None:
        raise click.UsageError("--save keeps the numbers of `bench gemm`; rates are kept with --save-card.")
    with progress_bars() as progress:
        benchmark = measured(topics, progress=progress, **asked_by(_BENCH_INPUTS, said))
    return show(Answer(benchmark, first=benchmark_line(benchmark)), output, draw_benchmark(benchmark))


def _product_options(shape: str, data_type: str, scales: str | None) -> Asked:
    m, n, k = product(shape)
    return Asked((m, n, k), data_type, scales)


def _bench_gemm(
    products: list[Asked], save: Path | None, output: Output, said: dict[str, object], how: set[str]
) -> int:
    """Compare products with cuBLAS, or measure all alternatives of them."""
    options = asked_by(_BENCH_INPUTS, said)
    if "tiles" in options:
        raise click.UsageError("--tiles are those of `bench plans`; `bench gemm` takes shapes.")
    if "save_as" in options and "tune" not in how:
        raise click.UsageError(
            "`bench gemm` keeps a card with --tune: tilescope bench gemm --tune SHAPE --save-card NAME."
        )
    if "tune" in how and not products:
        raise click.UsageError("--tune needs a shape: tilescope bench gemm --tune 512x4096x7168.")
    if how == {"tune", "dependent"}:
        raise click.UsageError("--tune times kernels one after another; leave --dependent out.")
    with progress_bars() as progress:
        if "tune" in how:
            benchmark = tune_gemm(products, progress=progress, **options)
        else:
            benchmark = bench_gemm(products, dependent="dependent" in how, progress=progress, **options)
    if save is not None:
        save.write_text(saved_text(benchmark), "utf-8")
    return show(Answer(benchmark, first=gemm_benchmark_line(benchmark)), output, draw_gemm_benchmark(benchmark))


COMMANDS = (
    ManualCommand(
        "verify",
        callback=verify,
        params=[
            *parameters(_VERIFY_INPUTS, (verified,)),
            click.Argument(["suites"], nargs=-1, metavar="[SUITE]...", type=click.Choice(SUITE_NAMES)),
            click.Option(
                ["--save"],
                type=output_file,
                metavar="FILE",
                help="Write the cases and the card's results to a capture file.",
            ),
            click.Option(
                ["--replay", "capture"], type=_EXISTING, metavar="FILE", help="Check a capture; needs no GPU."
            ),
            click.Option(
                ["--environment", "of_environment"],
                is_flag=True,
                help="Print versions, cards and extras of this machine, and run nothing; needs no GPU.",
            ),
            *output_options(),
        ],
        help=_VERIFY_HELP,
    ),
    ManualCommand(
        "bench",
        callback=bench,
        params=[
            *parameters(_BENCH_INPUTS, (measured,)),
            click.Argument(["topics"], nargs=-1, metavar="[TOPIC]... | gemm [SHAPE]..."),
            click.Option(["--type", "data_type"], default="bf16", metavar="TYPE", help="Type of the shapes of `gemm`."),
            click.Option(
                ["--dependent", "is_dependent"],
                is_flag=True,
                help="Start kernels of `gemm` before those before them have ended.",
            ),
            click.Option(["--scales"], metavar="SCALES", help="Scales of the shapes of `gemm`: block128."),
            click.Option(
                ["--tune", "is_tuned"],
                is_flag=True,
                help="Time every ranked alternative of the shapes of `gemm`; with --save-card NAME, plans for --card NAME use the times.",
            ),
            click.Option(["--save"], type=output_file, metavar="FILE", help="Write the numbers of `gemm` as JSON."),
            *output_options(),
        ],
        help=_BENCH_HELP,
    ),
)
