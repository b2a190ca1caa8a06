"""What all tests share: how hypothesis searches, and `require`."""

import os
import shutil

import pytest
from hypothesis import settings

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# What some tests need beside Python: the programs that serve, and the Debian package that brings the first.
PIECES = {
    "browser": (("chromium", "chromium-browser", "google-chrome"), "chromium"),
    "gxx": (("g++",), "g++"),
}
REQUIRED = set(filter(None, os.environ.get("TILESCOPE_REQUIRE", "").split(",")))


def pytest_configure():
    if unknown := REQUIRED - PIECES.keys():
        raise pytest.UsageError(f"TILESCOPE_REQUIRE names {', '.join(sorted(unknown))}; known: {', '.join(PIECES)}")


@pytest.fixture(scope="session")
def require():
    """`require("browser")` is the path of the program that serves; where there is none, the test is
    skipped, or fails if TILESCOPE_REQUIRE names the piece.
    """

    def program(piece):
        programs, package = PIECES[piece]
        path = next(filter(None, map(shutil.which, programs)), None)
        if path is None:
            (pytest.fail if piece in REQUIRED else pytest.skip)(f"{piece} is missing: apt-get install -y {package}")
        return path

    return program
