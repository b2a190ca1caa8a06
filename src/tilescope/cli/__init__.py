"""The command line: `tilescope COMMAND …`. Most commands are questions of questions/; the others have a module here.

The imports of a command happen when it is called, so that no command pays for those of others. All errors end here, in
one sentence or one line per violation, and in an exit status:

    0    done
    1    the answer is no: the command returns 1, or the chip would fault (FaultError); the reasons are on stdout
    2    the input was not understood
    3    something is missing: a card, a driver, an optional package
    70   a mistake of tilescope's own; TILESCOPE_DEBUG=1 shows where
    130  interrupted
    141  the reader of the output went away
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from tilescope.cli.help_page import HELP_OPTIONS, help_page
from tilescope.cli.named_commands import NamedCommands
from tilescope.errors import DeviceError, RuleError, TilescopeError
from tilescope.extras import extra_of
from tilescope.questions import MODULES as QUESTION_MODULES
from tilescope.questions import question_of
from tilescope.questions.plain_argument import describe_argument
from tilescope.questions.refusal import broken_rules, is_answer, refusal_json, refusal_text
from tilescope.sentence import saying_arguments

COMMAND_GROUPS = {  # by purpose, and the description of each in the list of commands
    "Something fails, hangs or is wrong": {
        "explain": "What an error, a symptom or a word means, and what to try first.",
        "check": "Why a tensor map is refused (INVALID_VALUE), or what it does.",
        "run": "What a kernel's PTX computes and does wrong, without a GPU.",
        "pipeline": "Why barriers hang or race, or a proof that they do not.",
        "identify": "Which layout or swizzle the bytes of a dump have.",
        "watch": "Run a program; explain each tensor map that the driver refuses.",
    },
    "Where is it stored, and which thread holds it": {
        "load": "Where a TMA copy puts each element and byte of a box.",
        "swizzle": "Where a swizzle mode moves each 16-byte chunk.",
        "draw": "A layout, or a thread-value layout, of any notation, drawn.",
        "convert": "A layout in another notation: CuTe, Triton, PTX, Mosaic.",
        "mma": "Tensor cores: fragments, descriptors, tensor memory, scales.",
    },
    "What to choose, what it costs": {
        "plan": "Swizzle, box and descriptors for a tile, ranked; and the code.",
        "gemm": "Tile, stages and epilogue for a GEMM; and the code.",
        "sweep": "Plans for many tiles and types, as a table.",
        "banks": "Bank conflicts of an access, and a layout without them.",
    },
    "Tensor maps and descriptors": {
        "encode": "The 128 bytes of a tensor map.",
        "decode": "A tensor map, descriptor word or mbarrier, field by field.",
        "diff": "In what two tensor maps differ.",
        "conv": "The im2col map of a convolution, with its encode call.",
    },
    "On this machine": {
        "verify": "Whether the GPU here does what tilescope says.",
        "bench": "How fast the GPU here moves tiles.",
        "serve": "All of this in a browser.",
    },
}
COMMANDS = {name: summary for commands in COMMAND_GROUPS.values() for name, summary in commands.items()}
OWN_MODULES = {  # of the commands that are no question of questions/
    "sweep": "sweep_command",
    "encode": "encode_command",
    "watch": "watch_command",
    "serve": "serve_command",
    "verify": "card_commands",
    "bench": "card_commands",
}
_EXIT_STATUSES = {
    "0": "done",
    "1": "the result is negative; the reasons are on stdout",
    "2": "the input was not understood; the reasons are on stderr",
    "3": "something is missing: a GPU, a driver, an extra",
}
_COMPLETION = "_TILESCOPE_COMPLETE"
_ALLOCATIONS_BETWEEN_COLLECTIONS = 50_000  # most commands end before there is garbage
REFUSED = 1  # the answer is no
NOT_UNDERSTOOD = 2
MISSING = 3
INTERNAL = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT
READER_GONE = 141  # 128 + SIGPIPE


class _Commands(NamedCommands):
    """The table of commands; what a command needs is imported when it is looked up."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in OWN_MODULES:
            commands: tuple[click.Command, ...] = import_module(f"tilescope.cli.{OWN_MODULES[cmd_name]}").COMMANDS
            return next(command for command in commands if command.name == cmd_name)
        if cmd_name == "mma":
            return mma_group()
        return question_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for title, commands in COMMAND_GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), summary) for name, summary in commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit status"):
            formatter.write_dl(list(_EXIT_STATUSES.items()))
        with formatter.section("See also"):
            formatter.write_text(
                "tilescope verify --environment, which prints versions, cards and extras; docs/command-line.md"
            )


def question_command(name: str) -> click.Command:
    """The command of a question."""
    from tilescope.cli.command import click_command
    from tilescope.cli.files import GATHERED

    return click_command(question_of(name), GATHERED.get(name))


def mma_group() -> click.Group:
    """The questions about tensor cores, as commands of a group."""
    from tilescope.cli.manual import ManualGroup

    names = [name for name in QUESTION_MODULES if name.startswith("mma ")]
    return ManualGroup(
        "mma",
        callback=_show_help,
        help="What tensor cores read and hold: operands in shared memory, fragments in registers, the descriptors "
        "that locate an operand, tensor memory and scale factors of Blackwell.",
        commands=[question_command(name) for name in names],
        invoke_without_command=True,
    )


@click.pass_context
def _show_help(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _show_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """Print the version and end."""
    if is_asked:
        from tilescope.cli.version_text import version_text

        click.echo(f"tilescope {version_text()}")
        context.exit()


@click.command(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": [*HELP_OPTIONS]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@click.pass_context
def tilescope(context: click.Context) -> None:
    """Answers about the path a tile takes on an NVIDIA GPU: tensor maps, TMA, swizzles, barriers, tensor cores.

    \b
    tilescope explain "my kernel hangs"   start here, in your own words
    tilescope COMMAND --help              what a command takes, and examples
    tilescope COMMAND … -q                the answer in one line
    """  # noqa: D301  \b keeps the lines below it apart
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit status; reasons for input that is not understood are on stderr.

    >>> run(["swizzle", "128B", "--json"])  # doctest: +ELLIPSIS
    {
      "kind": "swizzle",
      "version": 1,
      "answer": "Swizzle 128B moves byte a to a ^ ((a >> 3) & 0x70), a pattern of 1024 bytes.",
      "name": "128B",
    ...
    0
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _stand_in_for_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without box-drawing characters still gets the rest
    page = help_page(arguments)
    if page is not None:
        click.echo(page, nl=False)
        return 0
    try:
        with saying_arguments(describe_argument), tilescope.make_context("tilescope", arguments) as context:
            status = tilescope.invoke(context)
    except BaseException as error:  # noqa: BLE001  the one place where failures become exit statuses
        is_quiet = "-q" in arguments or "--quiet" in arguments
        return report_error(error, as_json="--json" in arguments, is_quiet=is_quiet)
    return status if isinstance(status, int) else 0


def report_error(error: BaseException, *, as_json: bool = False, is_quiet: bool = False) -> int:
    """Print the reasons for `error` and give the exit status that goes with it.

    That the hardware refuses, or that the chip would fault, is an answer and goes to stdout; everything else goes to stderr.
    """
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case SystemExit(code=int() as status):
            return status
        case click.ClickException():
            error.show()
            return NOT_UNDERSTOOD
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case BrokenPipeError():
            _silence_stdout()
            return READER_GONE
        case RuleError() if is_answer(error):
            click.echo(refusal_json(error) if as_json else refusal_text(error, is_quiet=is_quiet))
            return REFUSED
    status, sentence = _reason(error)
    if status == INTERNAL and os.environ.get("TILESCOPE_DEBUG"):
        import traceback

        traceback.print_exception(error)
    else:
        click.echo(sentence, err=True)
    return status


def _reason(error: BaseException) -> tuple[int, str]:
    """The exit status of a failure, and the sentence with the reason."""
    match error:
        case RuleError():
            return NOT_UNDERSTOOD, broken_rules(error)
        case DeviceError():
            return MISSING, str(error)
        case ModuleNotFoundError() if extra := extra_of(error.name or ""):
            return MISSING, f"This needs the package {error.name}: pip install 'tilescope[{extra}]'."
        case TilescopeError():
            return NOT_UNDERSTOOD, f"error: {error}"
        case ValueError() if "null byte" in str(error) or "null character" in str(
            error
        ):  # before Python 3.13, and since
            return NOT_UNDERSTOOD, "error: a file's name has no null byte."
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            return NOT_UNDERSTOOD, f"error: {place}{error.strerror or error}."
    message = " ".join(str(error).split())[:200]
    return INTERNAL, (
        f"A mistake in tilescope ({type(error).__name__}: {message}). Please report it with the output of the same command "
        "under TILESCOPE_DEBUG=1."
    )


def _silence_stdout() -> None:
    """Discard buffered output, so that the interpreter does not complain at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  a stand-in for a stream without a descriptor


def _stand_in_for_closed_streams() -> None:
    """Python has None for a stream that the shell closed (`>&-`): nothing is read there, and what is written is lost."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  open to the end


def main() -> NoReturn:
    """The program: what `tilescope` and `python -m tilescope` call."""
    gc.set_threshold(_ALLOCATIONS_BETWEEN_COLLECTIONS)
    if instruction := os.environ.get(_COMPLETION):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(tilescope, {}, "tilescope", _COMPLETION, instruction))
    sys.exit(run())
