"""A command that may run a Python program: the words after `--`, or after `-m MODULE`, are the program's."""

from __future__ import annotations

import click

from tilescope.cli.manual import ManualCommand

END_OF_OPTIONS = "--"
MODULE_OPTION = "-m"
PROGRAM_ARGUMENTS = "program_arguments"


class ProgramCommand(ManualCommand):
    """`run program.py -- --steps 2` and `run -m pytest tests -k softmax`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words up to the program's own, which are passed to the program."""
        words, passed = split_program_arguments(args)
        rest = super().parse_args(ctx, words)
        ctx.params[PROGRAM_ARGUMENTS] = (*ctx.params.get(PROGRAM_ARGUMENTS, ()), *passed)
        return rest


def split_program_arguments(args: list[str]) -> tuple[list[str], list[str]]:
    """The words of the command, and those of the program.

    >>> split_program_arguments(["train.py", "--arch", "sm_90", "--", "--steps", "2"])
    (['train.py', '--arch', 'sm_90'], ['--steps', '2'])
    >>> split_program_arguments(["-m", "pytest", "tests", "-x"])
    (['-m', 'pytest'], ['tests', '-x'])
    """
    for index, word in enumerate(args):
        if word == END_OF_OPTIONS:
            return args[:index], args[index + 1 :]
        if word == MODULE_OPTION:
            passed = args[index + 2 :]
            if passed[:1] == [END_OF_OPTIONS]:
                passed = passed[1:]
            return args[: index + 2], passed
    return args, []
