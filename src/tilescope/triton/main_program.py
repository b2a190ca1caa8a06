"""A whole Python program under the driver: a file or a module, run as Python would run it.

    run_program(ProgramRequest("train.py", arguments=("--steps", "2")), device)      status 0, and device.report()

Exceptions of the program are printed as by Python, except for a kernel that cannot be compiled, which gets a sentence
without frames of Triton; the exit status is the one of Python.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tilescope.triton.compilation import read_compile_failure
from tilescope.triton.host_device import Device

_FAILED = 1


class ProgramRequest(NamedTuple):
    """A program, its arguments, and whether it is named as a module (-m)."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False


def run_program(request: ProgramRequest, device: Device) -> int:
    """Run a program with the device active, and return its exit status."""
    with device, _as_main_program(request):
        try:
            if request.is_module:
                runpy.run_module(request.name, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(request.name, run_name="__main__")
        except SystemExit as end:
            return _exit_status(end.code)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  the program may raise anything
            _print_error(error)
            return _FAILED
        finally:
            sys.stdout.flush()
    return 0


@contextmanager
def _as_main_program(request: ProgramRequest) -> Iterator[None]:
    """sys.argv and sys.path as the program expects them."""
    arguments_before = sys.argv
    folder = str(Path.cwd()) if request.is_module else str(Path(request.name).absolute().parent)
    sys.argv = [request.name, *request.arguments]
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.argv = arguments_before
        if folder in sys.path:
            sys.path.remove(folder)


def _exit_status(code: object) -> int:
    """The status of sys.exit(code), as Python gives it."""
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code)
    sys.stderr.write(f"{code}\n")
    return _FAILED


def _print_error(error: BaseException) -> None:
    """Print a traceback from the program's first frame on; for a kernel that cannot be compiled, Triton's message."""
    if failure := read_compile_failure(error):
        sys.stderr.write(f"{failure}\n")
        return
    trace = error.__traceback__
    own_files = (__file__, runpy.__file__, "<frozen runpy>")
    while trace is not None and trace.tb_frame.f_code.co_filename in own_files:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)
