"""The notebooks of examples/, executed: `python tests/notebooks.py NOTEBOOK` prints a notebook with its outputs, as JSON.

python tests/notebooks.py --write [NAME …] stores the outputs in the notebooks. What changes from run to run is left out: times,
and the version of Python. Needs nbclient and ipykernel.
"""

import importlib.metadata
import importlib.util
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SECONDS_OF_A_CELL = 300
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def triton_version():
    return importlib.metadata.version("triton") if importlib.util.find_spec("triton") else ""


def executed(path):
    """The notebook with fresh outputs; its cells run in an empty folder."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(
            notebook,
            timeout=SECONDS_OF_A_CELL,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            coalesce_streams=True,  # the kernel flushes by time: one print may come as two outputs
        )
        client.execute()
    notebook.metadata = dict(METADATA)
    if uses_triton(notebook.cells):
        notebook.metadata["triton"] = triton_version()  # numbers of instructions are those of this compiler
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
        cell.metadata = {}
    return notebook


def uses_triton(cells):
    return any("import triton" in "".join(cell["source"]) for cell in cells)


def as_text(notebook):
    import nbformat

    return nbformat.writes(notebook, version=4) + "\n"


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        for path in NOTEBOOKS:
            if not sys.argv[2:] or path.stem in sys.argv[2:]:
                path.write_text(as_text(executed(path)), "utf-8")
    else:
        sys.stdout.write(json.dumps(json.loads(as_text(executed(Path(sys.argv[1]))))))
