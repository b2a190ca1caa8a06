"""docs/architecture.md names what is there: every package, and files that exist; its picture is drawn from the same list."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import tilescope

PACKAGE = Path(tilescope.__file__).parent


def script(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRAWN = script("architecture_picture")
LAYERS = DRAWN.LAYERS
ORDER = script("test_imports").ORDER
MAX_FILES_OF_A_RACE = 56
PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"


def drawn_packages():
    return [name for _, boxes, _ in LAYERS for box in boxes for name in box.split(" · ")]


def test_the_picture_is_what_the_script_draws():
    assert DRAWN.PICTURE.read_text("utf-8") == DRAWN.picture()


def test_every_package_is_in_the_picture_and_on_the_page():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages - set(drawn_packages()) == set()
    page = PAGE.read_text("utf-8")
    assert [name for name in packages if f"**{name}**" not in page and f"`{name}/`" not in page] == []


def test_the_layers_keep_the_order_of_imports():
    layer = {name: number for number, (_, boxes, _) in enumerate(LAYERS) for box in boxes for name in box.split(" · ")}
    numbers = [
        layer[name] for name in ORDER if name in layer and name not in ("testing", "sentence", "errors", "value")
    ]
    assert numbers == sorted(numbers)


def test_files_that_the_page_names_exist():
    page = PAGE.read_text("utf-8")
    named = {name for name in re.findall(r"`([\w/.]+\.py)`", page) if "/" in name}
    missing = [
        name
        for name in sorted(named)
        if not (PACKAGE / name).exists()
        and not (PAGE.parent.parent / name).exists()
        and not (PACKAGE / "sync" / name).exists()
    ]
    assert len(named) > 20
    assert missing == []


def test_a_data_race_crosses_few_files():
    script = Path(__file__).parent / "files_of_a_race.py"
    files = subprocess.check_output([sys.executable, script], text=True).split()
    assert "machine/report/races/race_report.py" in files
    assert len(files) <= MAX_FILES_OF_A_RACE, files
