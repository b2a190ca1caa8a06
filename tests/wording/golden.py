"""The golden files of wording: one text file for each package, in which every entry is a name and the text below it.

[hang-at-a-barrier]
PTX line 16 (bar.sync 1): threads 32-95 of block (0, 0, 0) cannot pass barrier 1 …
"""

import re
from pathlib import Path

FOLDER = Path(__file__).parent
HEADER = re.compile(r"## (.+)")


def golden_file(package):
    return FOLDER / f"{package}.txt"


def golden_texts(package):
    """The texts of a package's golden file, by name."""
    path = golden_file(package)
    texts, name = {}, None
    for line in path.read_text("utf-8").splitlines() if path.exists() else []:
        if header := HEADER.fullmatch(line):
            name = header[1]
            texts[name] = []
        else:
            texts[name].append(line)
    return {name: "\n".join(lines).strip("\n") for name, lines in texts.items()}


def write_golden_texts(package, texts):
    """Write a golden file, sorted by name; a package without texts has none."""
    path = golden_file(package)
    if not texts:
        path.unlink(missing_ok=True)
        return
    path.write_text("\n\n".join(f"## {name}\n{texts[name]}" for name in sorted(texts)) + "\n", "utf-8")


def stored(text):
    """A text as a golden file holds it: without spaces at the ends of lines and empty lines at both ends."""
    lines = [line.rstrip() for line in text.splitlines()]
    assert not any(map(HEADER.fullmatch, lines)), f"a line of the text reads like a name: {text}"
    return "\n".join(lines).strip("\n")
