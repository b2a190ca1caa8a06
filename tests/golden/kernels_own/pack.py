"""Make the recordings of this folder from what the recorder wrote: python pack.py FOLDER/kernels_own.npz FOLDER/launches.json"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def main(recorded, launches):
    """Write NAME.npz for every kernel of the recorder's archive: the launch, and the arrays that the kernel changed."""
    known = json.loads(Path(launches).read_text())
    with np.load(recorded) as archive:
        names = sorted({key.partition("/")[0] for key in archive.files})
        for name in names:
            kept = {key.partition("/")[2]: archive[key] for key in archive.files if key.startswith(f"{name}/")}
            if not str(kept["printed"]):
                del kept["printed"]
            np.savez_compressed(HERE / f"{name}.npz", launch=np.array(json.dumps(known[name])), **kept)


if __name__ == "__main__":
    main(*sys.argv[1:])
