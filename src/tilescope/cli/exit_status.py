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
        case FaultError():
            listed = [violation.to_dict() for violation in error.violations]
            plain = {"code": error.code, "answer": error.answer, "violations": listed}
            click.echo(json.dumps(plain, indent=2) if as_json else f"{_lines(error)}\n{error.answer}")
            return REFUSED
    status, sentence = _reason(error)
    if status == INTERNAL and os.environ.get("TILESCOPE_DEBUG"):
        traceback.print_exception(error)
    else:
        click.echo(sentence, err=True)
    return status


def _reason(error: BaseException) -> tuple[int, str]:
    """The status of a failure, and the sentence that says why."""
    match error:
        case RuleError():
            return NOT_UNDERSTOOD, _lines(error)
        case DeviceError():
            return MISSING, str(error)
        case ModuleNotFoundError() if extra := _EXTRAS.get((error.name or "").split(".")[0]):
            return MISSING, f"This needs the package {error.name}: pip install 'tilescope[{extra}]'."
        case TilescopeError():
            return NOT_UNDERSTOOD, f"error: {error}"
        case ValueError() if "null byte" in str(error):
            return NOT_UNDERSTOOD, "error: a file's name has no null byte."
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            return NOT_UNDERSTOOD, f"error: {place}{error.strerror or error}."
    said = " ".join(str(error).split())[:200]
    return INTERNAL, (
        f"A mistake in tilescope ({type(error).__name__}: {said}). Please report it with the output of the same command "
        "under TILESCOPE_DEBUG=1."
    )


def _lines(error: RuleError) -> str:
    return "\n".join(f"{violation.severity}: {violation}" for violation in error.violations)


def _silence_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not complain at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  a stand-in for a stream without a descriptor
