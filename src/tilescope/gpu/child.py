"""The process that touches the card: `python -m tilescope.gpu.child FOLDER PIPE`, spoken to by isolation.py.

After an error of CUDA's its context is spent: it says the number and ends.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tilescope.errors import DeviceError
from tilescope.gpu import streaming
from tilescope.gpu.device import CudaError, Device
from tilescope.gpu.suite import Case
from tilescope.gpu.suites import suite_named


def serve(folder: Path, pipe: int) -> None:
    """The child: with the card and the kernels in a folder, answer what comes through a pipe until it is closed."""
    connection: Connection[dict[str, Any], tuple[str, list[Case]]] = Connection(pipe)
    try:
        device = Device(folder)
    except DeviceError as error:
        connection.send({"missing": str(error)})
        return
    except ModuleNotFoundError as error:
        connection.send({"missing": f"This needs the package {error.name}: pip install 'tilescope[gpu]'."})
        return
    connection.send({"ready": device.facts()})
    with suppress(EOFError):
        while True:
            name, cases = connection.recv()
            try:
                run = streaming.run if name == streaming.NAME else suite_named(name).results
                results = run(device, cases)
                device.free()
            except CudaError as error:
                connection.send({"error": error.args[0]})
                os._exit(0)  # clearing up a spent context may hang
            connection.send({"results": results})


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
