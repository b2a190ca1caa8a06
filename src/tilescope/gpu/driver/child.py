"""The child process that has the card: it answers cases that come through a pipe (isolation.py is the caller's side).

    python -m tilescope.gpu.driver.child FOLDER PIPE      FOLDER holds the compiled kernels, PIPE is a number that it inherits

Run so, this module is called __main__. It therefore defines no kind of `Value`: an import under its own name, by a suite
that reads plain data, would define that kind a second time.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypedDict

from tilescope.errors import DeviceError
from tilescope.gpu.bench import stream_timing
from tilescope.gpu.driver.device import CardFacts, CudaError, Device
from tilescope.gpu.verify.suites import Case, suite_named


class Answer(TypedDict, total=False):
    """What a child sends: one of these."""

    ready: CardFacts
    missing: str  # why there is no card
    results: list[bytes]
    error: int  # CUDA's


def serve(folder: Path, pipe: int) -> None:
    """The child: with the card and the kernels in a folder, answer what comes through a pipe until it is closed."""
    connection: Connection[Answer, tuple[str, list[Case]]] = Connection(pipe)
    try:
        device = Device(folder)
    except DeviceError as error:
        connection.send({"missing": str(error)})
        return
    connection.send({"ready": device.facts})
    with suppress(EOFError):
        while True:
            name, cases = connection.recv()
            try:
                run = stream_timing.run if name == stream_timing.NAME else suite_named(name).results
                results = run(device, cases)
                device.free()
            except CudaError as error:
                connection.send({"error": error.args[0]})
                os._exit(0)  # clearing up a spent context may hang
            connection.send({"results": results})


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
