"""A capture: what a card answered to the cases of a run, in one file that is checked again without a card.

An archive of arrays (.npz):

    header    JSON: format, card, driver, seed, and each suite's cases and how those ended that gave no bytes
    digests   BLAKE2b-128 of every result: equal results need no more
    kept      whole results, where they are short or differ from what tilescope said when the capture was made
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
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


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one case gave: how it ended, the digest of its bytes, and the bytes where they were kept."""

    ended: str
    digest: bytes
    data: bytes | None

    @classmethod
    def of(cls, outcome: Outcome) -> Recorded:
        """The record of an outcome, all of its bytes kept."""
        return cls(outcome.ended, digest_of(outcome.data), outcome.data)

    def shortened(self) -> Recorded:
        """The record without bytes that are long: the digest of what is as expected says enough."""
        return self if self.data is None or len(self.data) <= _SHORT_BYTES else Recorded(self.ended, self.digest, None)

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
        suites = [
            {
                "suite": recording.suite,
                "cases": recording.cases,
                "ended": [result.ended for result in recording.results],
            }
            for recording in self.recordings
        ]
        header = {"format": FORMAT, "facts": dict(self.facts), "seed": self.seed, "suites": suites}
        arrays: dict[str, Any] = {"header": np.frombuffer(json.dumps(header, separators=(",", ":")).encode(), np.uint8)}
        for recording in self.recordings:
            results = recording.results
            lengths = [-1 if result.data is None else len(result.data) for result in results]
            parts = {
                "digests": np.frombuffer(b"".join(result.digest for result in results), np.uint8),
                "lengths": np.array(lengths, np.int64),
                "kept": np.frombuffer(b"".join(result.data or b"" for result in results), np.uint8),
            }
            arrays |= {f"{recording.suite}.{name}": array for name, array in parts.items()}
        with path.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def read(cls, path: Path) -> Capture:
        """The capture in a file; what is no capture is refused."""
        try:
            with np.load(path) as arrays:
                header = json.loads(arrays["header"].tobytes())
                if (number := header["format"]) == FORMAT:
                    recordings = tuple(_recording(suite, arrays) for suite in header["suites"])
                    return cls(header["facts"], header["seed"], recordings)
        except (KeyError, TypeError, ValueError, zipfile.BadZipFile, EOFError) as error:
            limit = "a file that `tilescope verify --save` wrote"
            raise CAPTURE.error("path", f"{path}", limit, "Use the FILE of tilescope verify --save FILE.") from error
        raise CAPTURE_FORMAT.error(
            "path",
            f"{path} has format {number}",
            f"this tilescope reads {FORMAT}",
            "Use the tilescope that wrote it, or capture again.",
        )


def _recording(header: Mapping[str, Any], arrays: Any) -> Recording:
    name = header["suite"]
    digests, lengths, kept = (arrays[f"{name}.{part}"] for part in ("digests", "lengths", "kept"))
    data = np.split(kept, np.cumsum(np.maximum(lengths, 0)))
    results = (
        Recorded(ended, digest.tobytes(), None if length < 0 else whole.tobytes())
        for ended, digest, length, whole in zip(
            header["ended"], digests.reshape(-1, _DIGEST_BYTES), lengths.tolist(), data[:-1], strict=True
        )
    )
    return Recording(name, tuple(header["cases"]), tuple(results))


def digest_of(data: bytes) -> bytes:
    """The digest under which a result is recorded."""
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()
