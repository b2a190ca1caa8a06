"""How a command that failed says why, and the status it ends with."""

from __future__ import annotations

import json
import os
import sys
import traceback

import click

from tilescope.errors import DeviceError, FaultError, RuleError, TilescopeError

REFUSED = 1  # the answer is no
NOT_UNDERSTOOD = 2
MISSING = 3
INTERNAL = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT
READER_GONE = 141  # 128 + SIGPIPE

# optional package: the extra of tilescope that brings it
_EXTRAS = {"starlette": "web", "uvicorn": "web", "cuda": "gpu", "numba": "fast"}


def explained(error: BaseException, *, as_json: bool = False) -> int:
    """Print the reasons for `error` and give the exit status that goes with it.

    That the chip would fault is an answer, and goes to stdout; everything else goes to stderr.
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
        case FaultError() if as_json:
            listed = [violation.to_dict() for violation in error.violations]
            click.echo(json.dumps({"code": error.code, "answer": error.answer, "violations": listed}, indent=2))
            return REFUSED
        case FaultError():
            click.echo("\n".join([*_lines(error), error.answer]))
            return REFUSED
        case RuleError():
            _say("\n".join(_lines(error)))
            return NOT_UNDERSTOOD
        case DeviceError():
            _say(str(error))
            return MISSING
        case ModuleNotFoundError() if _extra(error):
            _say(f"This needs the package {error.name}: pip install 'tilescope[{_extra(error)}]'.")
            return MISSING
        case TilescopeError():
            _say(f"error: {error}")
            return NOT_UNDERSTOOD
        case ValueError() if "null byte" in str(error):
            _say("error: a file's name has no null byte.")
            return NOT_UNDERSTOOD
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            _say(f"error: {place}{error.strerror or error}.")
            return NOT_UNDERSTOOD
    if os.environ.get("TILESCOPE_DEBUG"):
        traceback.print_exception(error)
    else:
        _say(
            f"A mistake in tilescope ({type(error).__name__}: {_one_line(str(error))}). Please report it with the output "
            "of the same command under TILESCOPE_DEBUG=1."
        )
    return INTERNAL


def _extra(error: ModuleNotFoundError) -> str | None:
    return _EXTRAS.get((error.name or "").split(".")[0])


def _lines(error: RuleError) -> list[str]:
    return [f"{violation.severity}: {violation}" for violation in error.violations]


def _say(text: str) -> None:
    click.echo(text, err=True)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def _silence_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not complain at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  a stand-in for a stream without a descriptor
