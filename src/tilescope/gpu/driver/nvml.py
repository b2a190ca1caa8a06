"""The driver's facts about this machine's cards, from its management library, without a context or waking a card.

NVML is a library of the driver. Its functions return 0, and write the result through pointers:

    nvmlInit_v2 ─▶ nvmlDeviceGetCount_v2 ─▶ nvmlDeviceGetHandleByIndex_v2 ─▶ nvmlDeviceGetName … ─▶ nvmlShutdown
"""

from __future__ import annotations

import ctypes
import sys
from typing import NamedTuple

_LIBRARY = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
_LONGEST_TEXT_BYTES = 128  # names of cards have at most 96


class NvmlCard(NamedTuple):
    """A card as the driver names it."""

    name: str
    arch: str  # "sm_90"


class NvmlFacts(NamedTuple):
    """The driver and its cards."""

    driver: str  # "580.159.04"
    cuda: str  # the newest CUDA that the driver takes: "13.0"
    cards: tuple[NvmlCard, ...]


class _NvmlError(Exception):
    """A function of NVML returned something else than success."""


def nvml_facts(library: str = _LIBRARY) -> NvmlFacts | None:
    """The driver and its cards; None where there is no driver, or one that does not answer."""
    try:
        nvml = ctypes.CDLL(library)
        _call(nvml, "nvmlInit_v2")
    except (OSError, AttributeError, _NvmlError):
        return None
    try:
        return NvmlFacts(_text(nvml, "nvmlSystemGetDriverVersion"), _cuda_version(nvml), _cards(nvml))
    except (AttributeError, _NvmlError):  # a driver of another age
        return None
    finally:
        nvml.nvmlShutdown()


def _cards(nvml: ctypes.CDLL) -> tuple[NvmlCard, ...]:
    count = ctypes.c_uint()
    _call(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    cards = []
    for index in range(count.value):
        card = ctypes.c_void_p()
        major = ctypes.c_int()
        minor = ctypes.c_int()
        _call(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(card))
        _call(nvml, "nvmlDeviceGetCudaComputeCapability", card, ctypes.byref(major), ctypes.byref(minor))
        cards.append(NvmlCard(_text(nvml, "nvmlDeviceGetName", card), f"sm_{major.value}{minor.value}"))
    return tuple(cards)


def _cuda_version(nvml: ctypes.CDLL) -> str:
    """The number is 1000 x major + 10 x minor."""
    number = ctypes.c_int()
    _call(nvml, "nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(number))
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _text(nvml: ctypes.CDLL, function: str, *arguments: object) -> str:
    text = ctypes.create_string_buffer(_LONGEST_TEXT_BYTES)
    _call(nvml, function, *arguments, text, ctypes.c_uint(_LONGEST_TEXT_BYTES))
    return text.value.decode("utf-8", errors="replace")


def _call(nvml: ctypes.CDLL, function: str, *arguments: object) -> None:
    result = getattr(nvml, function)(*arguments)
    if result != 0:
        raise _NvmlError(function, result)
