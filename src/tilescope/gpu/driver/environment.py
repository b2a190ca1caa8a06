"""The versions, cards and extras of a machine, for bug reports. Nothing is started on a card.

    tilescope verify --environment

Versions of packages come from their metadata, those of the driver from its management library. Of programs only nvcc is
started, to print its version. What is missing is listed as missing. Folders and names of users are left out.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tilescope import __version__
from tilescope.extras import EXTRAS
from tilescope.gpu.driver.nvml import NvmlFacts, nvml_facts
from tilescope.machine.launch.cuda_compiler import find_nvcc, read_nvcc_version
from tilescope.questions.first_line import FirstLine, make_line
from tilescope.sentence import listed
from tilescope.value import Value
from tilescope.view.drawing import Drawing
from tilescope.view.drawing_parts import Part
from tilescope.view.table import Table

_REQUIRED_PACKAGES = ("numpy", "ml-dtypes", "click", "rich", "jinja2", "platformdirs")
_OTHER_PACKAGES = ("triton", "torch")  # that users run together with tilescope
_NVRTC_PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")


@dataclass(frozen=True, slots=True)
class Software(Value):
    """A program, library or package."""

    name: str
    release: str | None  # its version; None: it was not found

    @property
    def told(self) -> str:
        """Its name and version.

        >>> Software("numpy", "2.4.1").told
        'numpy 2.4.1'
        """
        return f"{self.name} {self.release}"


@dataclass(frozen=True, slots=True)
class MachineCard(Value):
    """A card of the machine, as its driver names it."""

    name: str
    arch: str  # its compute capability: sm_90


@dataclass(frozen=True, slots=True)
class ExtraState(Value):
    """An extra of tilescope, and which of its packages are installed."""

    name: str
    packages: tuple[Software, ...]  # in the order of the extra

    @property
    def is_installed(self) -> bool:
        """Whether none of its packages is missing."""
        return all(package.release is not None for package in self.packages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Value):
    """Versions, cards and extras of a machine."""

    system: str  # operating system and processor
    software: tuple[Software, ...]  # Python, tilescope, what it needs, compilers, the driver
    cards: tuple[MachineCard, ...]  # none: no card, or no driver
    extras: tuple[ExtraState, ...]


def environment() -> Environment:
    """The environment of this process; what is missing is listed as missing.

    >>> here = environment()
    >>> [each.name for each in here.software[:3]]
    ['Python', 'tilescope', 'numpy']
    """
    driver = nvml_facts()
    return Environment(
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        software=(
            Software("Python", f"{platform.python_version()} ({platform.python_implementation()})"),
            Software("tilescope", __version__),
            *_packages(_REQUIRED_PACKAGES),
            *_driver_software(driver),
            *_compilers(),
            *_packages(_OTHER_PACKAGES),
        ),
        cards=() if driver is None else tuple(MachineCard(card.name, card.arch) for card in driver.cards),
        extras=tuple(ExtraState(extra.name, _packages(package.name for package in extra.packages)) for extra in EXTRAS),
    )


def package_version(name: str) -> str | None:
    """The version of an installed package; None where it is not installed.

    >>> package_version("no-such-package") is None
    True
    """
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages(names: Iterable[str]) -> tuple[Software, ...]:
    return tuple(Software(name, package_version(name)) for name in names)


def _driver_software(driver: NvmlFacts | None) -> tuple[Software, Software]:
    if driver is None:
        return Software("NVIDIA driver", None), Software("CUDA of the driver", None)
    return Software("NVIDIA driver", driver.driver), Software("CUDA of the driver", driver.cuda)


def _compilers() -> tuple[Software, Software, Software]:
    nvcc = find_nvcc()
    root = None if nvcc is None else nvcc.resolve().parent.parent
    return (
        Software("CUDA toolkit", None if root is None else _toolkit_version(root)),
        Software("nvcc", None if nvcc is None else read_nvcc_version(nvcc)),
        Software("NVRTC", _nvrtc_version(root)),
    )


def _toolkit_version(root: Path) -> str | None:
    """The version of a toolkit; None for nvcc from a Python package, which is not a toolkit."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((root / "version.json").read_text("utf-8"))["cuda"]["version"])
    return None


def _nvrtc_version(root: Path | None) -> str | None:
    """The version of NVRTC's package, or the one in the name of a toolkit's library."""
    for name in _NVRTC_PACKAGES:
        version = package_version(name)
        if version is not None:
            return version
    libraries = [] if root is None else sorted(root.glob("lib*/libnvrtc.so.*.*"))
    return libraries[-1].name.removeprefix("libnvrtc.so.") if libraries else None


def environment_line(found: Environment) -> FirstLine:
    """Tilescope and Python, the card, and which extras are missing, in one sentence."""
    versions = {each.name: each.release for each in found.software}
    missing = [extra.name for extra in found.extras if not extra.is_installed]
    return make_line(
        "tilescope {version} on Python {python}, {cards}; {extras}.",
        version=versions["tilescope"],
        python=versions["Python"],
        cards=listed([card.name for card in found.cards]) if found.cards else "no NVIDIA card",
        extras=f"extras missing: {listed(missing)}" if missing else "all extras",
    )


def draw_environment(found: Environment) -> Drawing:
    """The tables that `tilescope verify --environment` prints."""
    versions = Table([(each.name, each.release or "not found") for each in found.software], title="Versions")
    cards: Part = "No NVIDIA card was found."
    if found.cards:
        cards = Table([(card.name, card.arch) for card in found.cards], title="Cards")
    rows = []
    for extra in found.extras:
        installed = [package.told for package in extra.packages if package.release is not None]
        missing = [package.name for package in extra.packages if package.release is None]
        rows.append((extra.name, ", ".join(installed) or "nothing", ", ".join(missing) or "nothing"))
    extras = Table(rows, ("extra", "installed", "missing"), title="Extras")
    return Drawing(found.system, {"versions": versions, "cards": cards, "extras": extras})
