"""Kernels recorded on the card: the text, the launch, the arrays before it, and the bytes that the card left in them.

A recording is NAME.ptx and NAME.npz. The archive holds `launch` (JSON: entry, grid, block, smem_bytes, cluster and arch
where they are given, params in the order of the PTX parameters, arrays) and `afterN` for every array N that the kernel
changed. Scratch memory is not compared: it may hold addresses. What array N held before is `beforeN`, or follows from
the array's `fill`. `printed` is what printf wrote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from kernel_arrays import filled

import tilescope as ts

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = (GOLDEN / "kernels", GOLDEN / "kernels_own")
PATHS = {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("*.npz"))}
NAMES = list(PATHS)


@dataclass(frozen=True)
class Recording:
    """What the card was given, and what it left."""

    launch: dict
    before: list[np.ndarray] = field(repr=False)
    after: list[np.ndarray] = field(repr=False)
    printed: str

    def differences(self, arrays):
        """How the bytes of arrays differ from the card's: a sentence for each array that does."""
        for number, described in enumerate(self.launch["arrays"]):
            if described.get("is_scratch"):
                continue
            found, expected = arrays[number], self.after[number]
            is_wrong = found != expected
            if is_wrong.any():
                at = int(is_wrong.argmax())
                yield f"array {number}: {np.count_nonzero(is_wrong)} of {is_wrong.size} differ, first at {at}"


@cache
def recording(name):
    """The recording of a name."""
    with np.load(PATHS[name]) as archive:
        launch = json.loads(str(archive["launch"]))
        before, after = [], []
        for number, array in enumerate(launch["arrays"]):
            held = archive[f"before{number}"] if f"before{number}" in archive else filled(array)
            before.append(held)
            after.append(archive.get(f"after{number}", held))
        printed = str(archive.get("printed", ""))
    return Recording(launch, before, after, printed)


@cache
def kernel(name):
    """The kernel of a recording, read once for all its runs."""
    return ts.Kernel(PATHS[name].with_suffix(".ptx").read_text(), entry=recording(name).launch["entry"])


def argument(parameter, addresses):
    """What Kernel.run takes for one parameter of a launch."""
    if parameter["kind"] == "array":
        return addresses[parameter["array"]]
    if parameter["kind"] in {"int", "float"}:
        return parameter["value"]
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in parameter.items()}
    kind, address = given.pop("kind"), addresses[given.pop("array")]
    made = ts.TensorMap if kind == "map" else ts.Im2colMap
    return made(**given, address=address)


def run_again(name, *, seed=None):
    """Run a recorded kernel from the card's arrays: the run, and the bytes of the arrays after it."""
    return run_with(kernel(name), name, seed=seed)


def run_with(other, name, **options):
    """Run a kernel, the recorded one or another in its place, as the recording was launched."""
    found = recording(name)
    launch, memory = found.launch, ts.Memory()
    arrays = [held.copy() for held in found.before]
    addresses = [memory.place(array) for array in arrays]
    run = other.run(
        grid=launch["grid"],
        block=launch["block"],
        args=[argument(parameter, addresses) for parameter in launch["params"]],
        memory=memory,
        smem_bytes=launch["smem_bytes"],
        cluster=launch.get("cluster"),
        arch=launch.get("arch"),
        **options,
    )
    return run, arrays
