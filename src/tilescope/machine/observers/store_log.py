"""What the threads of a run store, as one number; and other values for loads of words that other threads write.

    first run     who writes which word, and a digest of all stores
    second run    a load that races gets another value wherever another thread writes the word: is the digest the same?

If it is, no store, address or branch depends on what that load returned: its value is not used.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.sync.address import Addresses
from tilescope.sync.bus import Answers, Handler, StaleValues
from tilescope.sync.cluster_shape import BlockIndex, ClusterShape
from tilescope.sync.events import Atomic, Flags, Load, MbarrierTest, MemorySpace, Store, Values

OTHER_BYTES = (0x7B, 0xFB, 0x00)  # of the values that a load gets instead: large, negative, zero
_MOST_WORDS = 1 << 24  # stored words that are remembered; a run with more is not judged
_SpaceKey = tuple[Literal["shared", "global"], int]  # shared memory: of a cluster, by its number


class _Written(NamedTuple):
    """The words that threads write, in ascending order: the least and greatest thread, and the same of the values."""

    words: Addresses
    least_thread: npt.NDArray[np.int64]
    greatest_thread: npt.NDArray[np.int64]
    has_one_value: Flags


class StoreLog:
    """The stores of one run. `first` is the log of the run without changes; None: this one is."""

    def __init__(self, pcs: frozenset[int], first: StoreLog | None = None, other_byte: int = 0) -> None:
        self.pcs = pcs
        self._other_byte = bytes([other_byte])
        self.first = first
        self.clusters: dict[BlockIndex, int] = {} if first is None else first.clusters
        # of the first run: the lanes whose loads race, by instruction and first block of their cluster
        self.racing: dict[tuple[int, BlockIndex], set[int]] = {} if first is None else first.racing
        self.are_values_equal = True  # of all stores to the words whose loads were changed
        self._hash = hashlib.blake2b(digest_size=16)
        self._stores: dict[_SpaceKey, list[tuple[Addresses, npt.NDArray[np.int64], npt.NDArray[np.uint64]]]] = {}
        self._written: dict[_SpaceKey, _Written] = {}
        self._words = 0

    @property
    def is_whole(self) -> bool:
        """Whether all stores were remembered."""
        return self._words <= _MOST_WORDS

    def digest(self) -> bytes:
        """Equal for two runs whose threads store the same values to the same addresses, in the same order."""
        return self._hash.digest()

    def handlers(self, cluster: ClusterShape) -> dict[type, Handler]:
        """The handler of each event of a cluster."""
        number = self.clusters.setdefault(cluster.first_block, len(self.clusters))

        def store(event: Store) -> None:
            self._hash_event(event, event.values)
            if event.access is not None and self.first is None:
                self._keep(number, cluster, event, event.values)

        def atomic(event: Atomic) -> None:
            self._hash_event(event, event.held)
            if self.first is None:
                self._keep(number, cluster, event, np.zeros(len(event.lanes), np.uint32))

        return {Store: store, Atomic: atomic}

    def _hash_event(self, event: Store | Atomic, values: Values) -> None:
        self._hash.update(event.pc.to_bytes(4, "little"))
        self._hash.update(np.ascontiguousarray(event.lanes).tobytes())
        self._hash.update(np.ascontiguousarray(event.places).tobytes())
        self._hash.update(np.ascontiguousarray(values).tobytes())

    def _keep(self, number: int, cluster: ClusterShape, event: Store | Atomic, values: Values) -> None:
        """Remember who stores which bytes."""
        self._words += len(event.lanes) * event.size_bytes
        if not self.is_whole:
            return
        words = (event.places[:, None] + np.arange(event.size_bytes)).ravel()
        threads = (number * cluster.lane_count + event.lanes).repeat(event.size_bytes)
        stored = np.ascontiguousarray(values).view(np.uint8).reshape(len(event.lanes), -1)
        bytes_stored = np.zeros((len(event.lanes), event.size_bytes), np.uint64)
        bytes_stored[:, : stored.shape[1]] = stored[:, : event.size_bytes]
        key = _space_key(event.space, number)
        self._stores.setdefault(key, []).append((words, threads, bytes_stored.ravel()))

    def find_written(self, key: _SpaceKey) -> _Written | None:
        """The bytes that threads stored in one space."""
        if key not in self._written and key in self._stores:
            stores = self._stores.pop(key)
            words = np.concatenate([store[0] for store in stores])
            order = np.argsort(words, kind="stable")
            starts = np.flatnonzero(np.diff(words[order], prepend=-1))
            threads = np.concatenate([store[1] for store in stores])[order]
            values = np.concatenate([store[2] for store in stores])[order]
            self._written[key] = _Written(
                words[order][starts],
                np.minimum.reduceat(threads, starts),
                np.maximum.reduceat(threads, starts),
                np.minimum.reduceat(values, starts) == np.maximum.reduceat(values, starts),
            )
        return self._written.get(key)

    def changed_values(self, load: Load, cluster: ClusterShape) -> StaleValues:
        """Other bytes for the lanes of a load that race, in words that other threads write."""
        first = self.first
        racing = self.racing.get((load.pc, cluster.first_block))
        if first is None or load.pc not in self.pcs or not racing:
            return {}
        number = self.clusters[cluster.first_block]
        written = first.find_written(_space_key(load.space, number))
        if written is None:
            return {}
        words = load.places[:, None] + np.arange(load.size_bytes)
        positions = np.minimum(np.searchsorted(written.words, words), len(written.words) - 1)
        threads = (number * cluster.lane_count + load.lanes)[:, None]
        is_by_others = (written.least_thread[positions] != threads) | (written.greatest_thread[positions] != threads)
        is_racing = np.isin(load.lanes, list(racing))[:, None]
        is_changed = (written.words[positions] == words) & is_by_others & is_racing
        if is_changed.any() and not written.has_one_value[positions][is_changed].all():
            self.are_values_equal = False
        lanes = np.flatnonzero(is_changed.any(axis=1)).tolist()
        return dict.fromkeys(lanes, self._other_byte * load.size_bytes)


def _space_key(space: MemorySpace, number: int) -> _SpaceKey:
    return (space, number if space == "shared" else 0)


class ChangedLoads:
    """Answers as another does, but for loads whose values a log changes."""

    def __init__(self, answers: Answers, log: StoreLog, cluster: ClusterShape) -> None:
        self._answers = answers
        self._log = log
        self._cluster = cluster

    def stale_values(self, load: Load) -> StaleValues:
        """The lanes of a load that get another value."""
        return {**self._answers.stale_values(load), **self._log.changed_values(load, self._cluster)}

    def passing_lanes(self, test: MbarrierTest) -> Flags:
        """For each lane whether its test passes."""
        return self._answers.passing_lanes(test)
