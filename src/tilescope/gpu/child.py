"""The process that touches the card: `python -m tilescope.gpu.child FOLDER-WITH-CUBINS`, spoken to by isolation.py.

It greets with the facts of its card, or with what is missing, then runs the cases that it is sent. After an error of
CUDA's its context is spent: it says the number and ends.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilescope.errors import DeviceError


def main() -> None:
    """Answer questions from stdin until it is closed."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    try:
        from tilescope.gpu.device import CudaError, Device

        device = Device(_Cubins(Path(sys.argv[1])))
    except DeviceError as error:
        _say(answers, {"missing": str(error)})
        return
    except ModuleNotFoundError as error:
        _say(answers, {"missing": f"This needs the package {error.name}: pip install 'tilescope[gpu]'."})
        return
    _say(answers, {"ready": device.facts()})
    for line in sys.stdin.buffer:
        question = json.loads(line)
        try:
            if question.get("about") == "card":
                _say(answers, device.about())
                continue
            results = _runner(question["suite"])(device, question["cases"])
            device.free()
        except CudaError as error:
            _say(answers, {"error": error.code})
            os._exit(0)  # clearing up a spent context may hang
        _say(answers, {"results": [base64.b64encode(result).decode() for result in results]})


def _runner(name: str) -> Callable[[Any, list[Any]], list[bytes]]:
    """What runs the cases of a suite; those of "streams" are measured."""
    if name == "streams":
        from tilescope.gpu.streaming import run

        return run
    from tilescope.gpu.suite_table import suite_named

    return suite_named(name).run


class _Cubins(dict[str, bytes]):
    """Compiled kernels by the names of their files, read when first asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, name: str) -> bytes:
        self[name] = (self._folder / f"{name}.cubin").read_bytes()
        return self[name]


def _say(stream: Any, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer).encode() + b"\n")
    stream.flush()


if __name__ == "__main__":
    main()
