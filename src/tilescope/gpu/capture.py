"""A capture: what a card answered to the cases of a run, in one file that is checked again without a card.

An archive of arrays (.npz):

    header    JSON: format, card, driver, seed, and each suite's cases and how those ended that gave no bytes
    digests   BLAKE2b-128 of every result: equal results need no more
    kept      whole results, where they are short or differ from what tilescope said when the capture was made
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from tilescope.gpu.suite import Case, Outcome
from tilescope.rule import rule

CAPTURE_FORMAT = rule(
    "capture-format", "A capture has the format number that this version reads.", source="tilescope verify"
)
CAPTURE = rule("capture", "A capture is a file that `tilescope verify --save` wrote.", source="tilescope verify")

FORMAT = 1
_DIGEST_BYTES = 16
_SHORT_BYTES = 64  # results up to this are always kept whole
_HEADER = "header"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one case gave: how it ended, the digest of its bytes, and the bytes where they were kept."""

    ended: str
    digest: bytes
    data: bytes | None

    @classmethod
    def of(cls, outcome: Outcome, *, whole: bool) -> Recorded:
        """The record of an outcome; `whole` keeps its bytes, however long."""
        kept = outcome.data if whole or len(outcome.data) <= _SHORT_BYTES else None
        return cls(outcome.ended, digest_of(outcome.data), kept)

    def agrees(self, expected: Outcome) -> bool:
        """Whether this is what tilescope expects."""
        return self.ended == expected.ended and self.digest == digest_of(expected.data)


@dataclass(frozen=True, slots=True)
class Recording:
    """One suite of a capture."""

    suite: str
    cases: tuple[Case, ...]
    results: tuple[Recorded, ...]


@dataclass(frozen=True, slots=True)
class Capture:
    """A run on a card: its facts, the seed, and every suite's cases and results."""

    facts: Mapping[str, str]  # card, arch, driver, cuda, date
    seed: int
    recordings: tuple[Recording, ...]

    def save(self, path: Path) -> None:
        """Write the capture to a file."""
        header = {
            "format": FORMAT, "facts": dict(self.facts), "seed": self.seed,
            "suites": [
                {"suite": recording.suite, "cases": recording.cases, "ended": [result.ended for result in recording.results]}
                for recording in self.recordings
            ],
        }  # fmt: skip
        arrays = {_HEADER: np.frombuffer(json.dumps(header, separators=(",", ":")).encode(), np.uint8)}
        for each in self.recordings:
            kept = [-1 if result.data is None else len(result.data) for result in each.results]
            whole = b"".join(result.data or b"" for result in each.results)
            digests = b"".join(result.digest for result in each.results)
            arrays[f"{each.suite}.digests"] = np.frombuffer(digests, np.uint8)
            arrays[f"{each.suite}.lengths"] = np.array(kept, np.int64)
            arrays[f"{each.suite}.kept"] = np.frombuffer(whole, np.uint8)
        with path.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    @classmethod
    def read(cls, path: Path) -> Capture:
        """The capture in a file; what is no capture is refused."""
        try:
            with np.load(path) as arrays:
                header = json.loads(arrays[_HEADER].tobytes())
                if header["format"] != FORMAT:
                    raise CAPTURE_FORMAT.error("path", f"{path} has format {header['format']}", f"this tilescope reads {FORMAT}",
                        "Use the tilescope that wrote it, or capture again.",
                    )  # fmt: skip
                recordings = tuple(_recording(each, arrays) for each in header["suites"])
                return cls(header["facts"], header["seed"], recordings)
        except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError, zipfile.BadZipFile, EOFError) as error:
            raise _no_capture(path) from error
        except ValueError as error:
            if getattr(error, "violations", None):
                raise
            raise _no_capture(path) from error


def _no_capture(path: Path) -> Exception:
    return CAPTURE.error(
        "path",
        f"{path}",
        "a file that `tilescope verify --save` wrote",
        "Use the FILE of tilescope verify --save FILE.",
    )


def _recording(described: Mapping[str, Any], arrays: Any) -> Recording:
    name = described["suite"]
    digests, lengths, kept = (arrays[f"{name}.{part}"] for part in ("digests", "lengths", "kept"))
    return Recording(name, tuple(described["cases"]), tuple(_results(described["ended"], digests, lengths, kept)))


def _results(ended: Sequence[str], digests: Any, lengths: Any, kept: Any) -> list[Recorded]:
    place, results = 0, []
    for number, (end, length) in enumerate(zip(ended, lengths.tolist(), strict=True)):
        digest = digests[number * _DIGEST_BYTES :][:_DIGEST_BYTES].tobytes()
        data = None if length < 0 else kept[place : place + length].tobytes()
        place += max(0, length)
        results.append(Recorded(end, digest, data))
    return results


def digest_of(data: bytes) -> bytes:
    """The digest under which a result is recorded."""
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()
