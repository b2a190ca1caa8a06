"""Compiles a posted text in a separate process, within limits of time and memory.

    POST /run/compile ──▶ python -m tilescope.web.source_compiler ──▶ {"ptx": …, "launch": …, "said": …} or {"refused": …}

Importing Python executes it. So a text is compiled only after a click on a page of this server, for the user who runs
the server, and never for a link (web/application.py, web/connection_owner.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tilescope.errors import RuleError, TilescopeError, unknown_name
from tilescope.questions.question import PAGE_LIMIT
from tilescope.questions.run_page import MAX_PTX_CHARACTERS
from tilescope.questions.source_text import CUDA, LANGUAGES, SourceText, compile_text

COMPILE_SECONDS = 60
COMPILE_BYTES = 12 << 30  # of address space, which a compiler maps more of than it uses
MAX_SOURCE_CHARACTERS = 200_000
_OUTPUT_BYTES = 4 * MAX_PTX_CHARACTERS

TOO_SLOW = PAGE_LIMIT.worded(
    argument="source",
    found="a compilation that goes on after {seconds} s",
    limit="a page compiles for at most {seconds} s",
    fix="Compile it with tilescope run.",
)
NO_ANSWER = PAGE_LIMIT.worded(
    argument="source",
    found="a compilation that ended without an answer (status {status})",
    limit="a page compiles within {most} bytes of memory",
    fix="Compile it with tilescope run, which has no such limit.",
)


def read_source(fields: Mapping[str, str]) -> SourceText:
    """The text that posted fields describe; RuleError where a field is unknown, or the text too long."""
    unknown = [name for name in fields if name not in SourceText._fields]
    if unknown:
        raise RuleError([unknown_name("field", "body", name[:80], SourceText._fields) for name in unknown])
    text = SourceText(**{"language": CUDA, "source": "", **fields})
    if text.language not in LANGUAGES:
        raise RuleError([unknown_name("language", "language", text.language[:80], LANGUAGES)])
    count = sum(map(len, text))
    if count > MAX_SOURCE_CHARACTERS:
        fix = "Compile it with tilescope run, which takes more."
        raise PAGE_LIMIT.error(argument="source", what="characters", count=count, most=MAX_SOURCE_CHARACTERS, fix=fix)
    return text


def compile_apart(text: SourceText) -> dict[str, str]:
    """Compile a text in a separate process: {"ptx", "launch", "said"}, or {"refused": reason}."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (
        tempfile.TemporaryDirectory(prefix="tilescope-compile-") as folder,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "tilescope.web.source_compiler"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            start_new_session=True,
        ) as process,
    ):
        try:
            answer, _ = process.communicate(json.dumps(text._asdict()).encode(), timeout=COMPILE_SECONDS)
        except subprocess.TimeoutExpired:
            return {"refused": str(TOO_SLOW.violation(seconds=COMPILE_SECONDS))}
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # the process, and the compilers that it has started
    try:
        fields: dict[str, str] = json.loads(answer[:_OUTPUT_BYTES])
    except ValueError:
        return {"refused": str(NO_ANSWER.violation(status=process.returncode, most=COMPILE_BYTES))}
    return fields


def _limit_resources() -> None:
    """Hold this process, and the compilers that it starts, to limits of time and memory."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (COMPILE_SECONDS, COMPILE_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (COMPILE_BYTES, COMPILE_BYTES))


def _answer(text: SourceText) -> dict[str, str]:
    try:
        compiled = compile_text(text, Path())  # where the process was started
    except RuleError as error:
        return {"refused": "\n".join(map(str, error.violations))}
    except TilescopeError as error:
        return {"refused": str(error)}
    if len(compiled.ptx) > MAX_PTX_CHARACTERS:
        too_long = PAGE_LIMIT.violation(
            argument="source",
            what="characters of PTX",
            count=len(compiled.ptx),
            most=MAX_PTX_CHARACTERS,
            fix="Compile it with tilescope run, which takes more.",
        )
        return {"refused": str(too_long)}
    return {"ptx": compiled.ptx, "launch": compiled.launch, "said": compiled.sentence}


def main() -> None:
    """Compile the text on stdin, and write the answer to stdout; what an import prints goes to stderr."""
    _limit_resources()
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answer.write(json.dumps(_answer(SourceText(**json.load(sys.stdin)))).encode())
    answer.close()


if __name__ == "__main__":
    main()
