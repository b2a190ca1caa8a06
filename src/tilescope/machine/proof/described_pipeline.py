"""What the warps of a cluster did, as a pipeline: barriers by their addresses, slots by the bytes, a role for every warp.

    warp 4   arrive.expect_tx, TMA copy ──▶ {expect = "full_0", bytes = 32768}, {copy = "smem_0x400", …}
    warp 0   try_wait, wgmma            ──▶ {wait = "full_0", parity = 0}, {multiply = ["smem_0x400", …]}

Warps that did the same are one role with several instances; blocks that did the same share their roles. A tile is the number of the copy
that filled a slot, so that a read of another tile than in this run is found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import NamedTuple

from tilescope.arch import WARP_LANES
from tilescope.machine.proof.act import BY_THREADS, Act, CannotSayError
from tilescope.machine.proof.acts import Acts
from tilescope.machine.proof.coverage import describe_uncovered
from tilescope.machine.proof.folding import fold_steps
from tilescope.machine.proof.implied_acts import add_implied_acts
from tilescope.machine.proof.naming import Named, Placed, name_objects
from tilescope.machine.proof.pieces import Pieces, tensor_address
from tilescope.machine.proof.recorded_run import (
    NOT_RECORDED,
    Recorded,
    find_problem,
    not_said,
    require_no_flags,
    require_releases,
)
from tilescope.pipeline.description import MAX_ROLES, Pipeline
from tilescope.pipeline.operations import Written
from tilescope.pipeline.parts import Barrier, Role, Slot, Step
from tilescope.sentence import argument_said
from tilescope.swizzle import CHUNK_BYTES

_WRITES = (*BY_THREADS, "copy")


def pipeline_of(recorded: Recorded, most: int) -> Pipeline:
    """The pipeline of a run; a RuleError if no pipeline can describe it."""
    log = recorded.log
    problem = find_problem(recorded)
    if log is None or problem is not None:
        what, fix = problem or ("nothing was recorded", f"Run it with {argument_said('record', True)}.")
        raise NOT_RECORDED.error(entry=recorded.entry, what=what, fix=fix, most=most)
    try:
        for reason, pc in log.refused.items():
            raise CannotSayError(reason, pc)
        require_no_flags(recorded, log)
        acts = Acts(log)
        require_releases(recorded, acts)
        described = _Description(recorded, acts).pipeline()
        return replace(described, not_covered=tuple(describe_uncovered(log.global_memory, recorded.place)))
    except CannotSayError as error:
        raise not_said(recorded, error) from None


class _Held(NamedTuple):
    """The tile that a piece holds, and the barrier that counted its bytes."""

    tile: int
    barrier: int | None


Tiles = dict[tuple[int, int], _Held | None]  # by block and piece; None: threads wrote it


class _Description:
    """Names and steps for the acts of warps."""

    def __init__(self, recorded: Recorded, acts: Acts) -> None:
        self.recorded = recorded
        self.acts = acts
        add_implied_acts(acts)
        used = {cells for act in self.acts.all_acts() for cells in (act.cells, act.into) if cells is not None}
        self.pieces = Pieces(acts.sets, sorted(used))
        self.written = self._written_pieces()
        self.sharing_warps = self._sharing_warps()
        self.barrier_names = self._barrier_names()
        self.slot_names = self._slot_names()
        self._initialise_together()
        self.steps: dict[tuple[object, ...], Step] = {}

    def _written_pieces(self) -> set[tuple[int, int]]:
        """Pieces that somebody fills, by block."""
        pieces = set()
        for warp, warp_acts in self.acts.of_warp.items():
            for act in warp_acts:
                written = act.cells if act.op in _WRITES else act.into
                if written is not None:
                    pieces |= set(product(self._ranks(warp, act), self.pieces.of(written)))
        return pieces

    def _ranks(self, warp: int, act: Act) -> list[int]:
        if act.mask is None:
            return [warp // self.acts.block_warps]
        return [rank for rank in range(self.acts.log.blocks) if act.mask >> rank & 1]

    def _sharing_warps(self) -> dict[int, list[int]]:
        """The warps, in their blocks, that write a piece as others may at the same time: by atomics, or all the same."""
        sharing: dict[int, list[int]] = defaultdict(list)
        for warp, warp_acts in self.acts.of_warp.items():
            in_block = warp % self.acts.block_warps
            shared = {act.cells for act in warp_acts if act.op in ("atomic", "agreed") and act.cells is not None}
            pieces = set(chain.from_iterable(self.pieces.of(cells) for cells in shared))
            for piece in sorted(pieces):
                if in_block not in sharing[piece]:
                    sharing[piece].append(in_block)
        return sharing

    def _slot_names(self) -> list[Named]:
        """Names of the pieces; those that warps may write at the same time have parts, and no stages."""
        uses: dict[int, set[tuple[int, str]]] = defaultdict(set)
        for warp, warp_acts in self.acts.of_warp.items():
            touched = {(act.op, act.cells) for act in warp_acts} | {("into", act.into) for act in warp_acts}
            for op, cells in touched:
                if cells is not None:
                    for piece in self.pieces.of(cells):
                        uses[piece].add((warp, op))
        placed = []
        kinds = []
        for piece in range(len(self.pieces)):
            address = self._tensor_address(piece)
            kind = "smem" if address is None else "tmem"
            use = (kind, self.pieces.size_bytes(piece), frozenset(uses[piece]))
            offset = self.pieces.first_byte(piece) if address is None else address
            placed.append(Placed(offset, None if piece in self.sharing_warps else use))
            kinds.append(kind)
        taken = {row.name for row in self.barrier_names}
        names = name_objects(placed, kinds, self.recorded.variables)
        return [row._replace(name=f"{row.name}_bytes") if row.name in taken else row for row in names]

    def _tensor_address(self, piece: int) -> int | None:
        """Where a piece of tensor memory begins; None for one of shared memory."""
        return tensor_address(self.pieces.first_byte(piece))

    def _barrier_names(self) -> list[Named]:
        """Names of the barriers: those that count bytes are called full, those that their copiers wait for empty."""
        uses: dict[int, set[tuple[int, str]]] = defaultdict(set)
        for warp, warp_acts in self.acts.of_warp.items():
            for act in warp_acts:
                if act.barrier is not None and act.op != "init":
                    uses[act.barrier].add((warp, act.op))
        copiers = {warp for of_barrier in uses.values() for warp, op in of_barrier if op == "copy"}
        early = self._used_before_all_are_ready()
        placed = []
        kinds = []
        for number, row in enumerate(self.acts.barriers):
            of_barrier = uses[number]
            use = (row.arrivals, row.number, number in early, frozenset(of_barrier))
            placed.append(Placed(row.offset, None if number in early else use))
            if any(op in ("copy", "expect") for _, op in of_barrier):
                kinds.append("full")
            else:
                is_awaited = any(op == "wait" and warp in copiers for warp, op in of_barrier)
                kinds.append("empty" if is_awaited else "mbar")
        names = name_objects(placed, kinds, self.recorded.variables)
        return [
            row if use.number == 0 else row._replace(name=f"{row.name}_{use.number}")
            for row, use in zip(names, self.acts.barriers, strict=True)
        ]

    def _used_before_all_are_ready(self) -> set[int]:
        """Barriers that cannot be initialised together: one is used before the last is made, or made again, or by several warps."""
        of_warp = self.acts.of_warp
        inits = [(warp, act) for warp, warp_acts in of_warp.items() for act in warp_acts if act.op == "init"]
        makers = {(warp // self.acts.block_warps, warp) for warp, _ in inits}
        made_in_block = {(warp // self.acts.block_warps, act.barrier) for warp, act in inits}
        if len(makers) > len({block for block, _ in makers}) or len(made_in_block) < len(inits):
            return set(range(len(self.acts.barriers)))
        last = max((act.order for _, act in inits), default=0)
        early = (act for act in self.acts.all_acts() if act.op != "init" and act.order < last)
        return {act.barrier for act in early if act.barrier is not None}

    def _initialise_together(self) -> None:
        """One init for all stages of a name, where the last of them was initialised."""
        for warp, warp_acts in self.acts.of_warp.items():
            name_of = {place: self._staged_init(act) for place, act in enumerate(warp_acts)}
            last = {name: place for place, name in name_of.items()}
            self.acts.of_warp[warp] = [
                act for place, act in enumerate(warp_acts) if not name_of[place] or last[name_of[place]] == place
            ]

    def _staged_init(self, act: Act) -> str:
        """The name of the barrier that an act initialises, if it has several stages."""
        if act.op != "init" or act.barrier is None or self.barrier_names[act.barrier].stages == 1:
            return ""
        return self.barrier_names[act.barrier].name

    def _slots(self) -> tuple[Slot, ...]:
        rows = []
        for piece, row in enumerate(self.slot_names):
            if row.stage:
                continue
            parts = self._parts(piece)
            is_shared = self._tensor_address(piece) is None
            is_exact = is_shared and len(parts) == 1 and not self.acts.has_inexact_copies
            size = self.pieces.size_bytes(piece) if is_exact else 0
            names = parts if self.sharing_warps.get(piece) else [row.name]
            rows += [Slot(name, row.stages, size, "smem" if is_shared else "tmem") for name in names]
        return tuple(rows)

    def _parts(self, piece: int) -> list[str]:
        """The slots of a piece: if warps may write it at the same time, one part for each warp, so that these do not overlap."""
        row = self.slot_names[piece]
        warps = self.sharing_warps.get(piece)
        return [row.reference] if not warps else [f"{row.name}_of_warp_{warp}" for warp in warps]

    def pipeline(self) -> Pipeline:
        """The pipeline."""
        steps = self._steps_of_warps()
        barriers = [
            Barrier(row.name, use.arrivals, row.stages)
            for row, use in zip(self.barrier_names, self.acts.barriers, strict=True)
            if row.stage == 0
        ]
        blocks = self.acts.log.blocks
        first_block = self.acts.log.first_block
        where = f", block {first_block}" if any(first_block) else ""
        return Pipeline(
            name=f"{self.recorded.entry}{where}",
            barriers=tuple(barriers),
            slots=self._slots(),
            roles=self._roles(steps),
            cluster=(blocks, 1),
            basis="measured",
        )

    def _steps_of_warps(self) -> dict[int, tuple[Step, ...]]:
        """The steps of every warp; tiles are counted in the order of the run."""
        ordered = [
            (act.order, warp, place, act) for warp, acts in self.acts.of_warp.items() for place, act in enumerate(acts)
        ]
        ordered.sort(key=lambda row: row[:3])
        tiles: Tiles = {}
        copies: dict[tuple[int, int], int] = defaultdict(int)
        steps: dict[int, dict[int, list[Step]]] = {warp: {} for warp in self.acts.of_warp}
        for _, warp, place, act in ordered:
            steps[warp][place] = list(self._describe_act(warp, act, tiles, copies))
        return {
            warp: tuple(step for place in sorted(by_place) for step in by_place[place])
            for warp, by_place in steps.items()
        }

    def _describe_act(
        self,
        warp: int,
        act: Act,
        tiles: Tiles,
        copies: dict[tuple[int, int], int],
    ) -> Iterator[Step]:
        if act.cells is None:
            yield self._step(act)
            return
        ranks = self._ranks(warp, act)
        pieces = self.pieces.of(act.cells)
        if act.op == "copy":
            yield from self._copy(act, ranks, pieces, tiles, copies)
        elif act.op in BY_THREADS:
            tiles.update(((rank, piece), None) for rank in ranks for piece in pieces)
            names = [name for piece in pieces for name in self._name_pieces(warp, act, piece)]
            yield self._step(act._replace(op="write"), tuple(names))
        elif act.into is not None:
            yield from self._tensor_work(warp, act, pieces, tiles)
        else:
            yield from self._reads(warp, act, pieces, tiles)

    def _name_pieces(self, warp: int, act: Act, piece: int) -> list[str]:
        parts = self._parts(piece)
        in_block = warp % self.acts.block_warps
        sharing = dict(zip(self.sharing_warps.get(piece, ()), parts, strict=False))
        if act.op == "atomic" or (act.op == "agreed" and in_block != act.warps[0]):
            return [sharing[in_block]]
        if act.op == "agreed":  # the first of them fills the parts of those that do not write
            return [part for sharer, part in sharing.items() if sharer == in_block or sharer not in act.warps]
        return parts

    def _tensor_work(self, warp: int, act: Act, pieces: Sequence[int], tiles: Tiles) -> Iterator[Step]:
        """Steps that read every tile and write every piece of tensor memory: a step has one tile, and goes into one slot."""
        assert act.into is not None
        read = list(self._read_by_tile(warp, act, pieces, tiles).items())
        if not read:
            raise CannotSayError("a tensor core reads shared memory that is never written", act.pc)
        into = self.pieces.of(act.into)
        targets = [part for piece in into for part in self._parts(piece)]
        tiles.update(((rank, piece), None) for rank in self._ranks(warp, act) for piece in into)
        for number in range(max(len(read), len(targets))):
            tile, names = read[min(number, len(read) - 1)]
            arguments: list[tuple[str, Written]] = [*act.arguments, ("into", targets[min(number, len(targets) - 1)])]
            if tile is not None:
                arguments.append(("tile", tile))
            yield self._step(act._replace(arguments=tuple(arguments)), tuple(names))

    def _reads(self, warp: int, act: Act, pieces: Sequence[int], tiles: Tiles) -> Iterator[Step]:
        """A step for every tile that is read."""
        for tile, names in self._read_by_tile(warp, act, pieces, tiles).items():
            arguments = () if tile is None else (("tile", tile),)
            yield self._step(act._replace(arguments=(*act.arguments, *arguments)), tuple(names))

    def _read_by_tile(self, warp: int, act: Act, pieces: Sequence[int], tiles: Tiles) -> dict[int | None, list[str]]:
        """The slots that are read, by the tile that they hold; slots that are never filled in this block are left out."""
        rank = warp // self.acts.block_warps
        by_tile: dict[int | None, list[str]] = defaultdict(list)
        for piece in pieces:
            if (rank, piece) not in self.written:
                continue
            content = tiles.get((rank, piece))
            if content is not None and content.barrier in act.unseen:
                raise CannotSayError(
                    "threads read what others of their warp have waited for, without bar.warp.sync", act.pc
                )
            by_tile[None if content is None or act.op == "store" else content.tile] += self._parts(piece)
        return by_tile

    def _copy(
        self,
        act: Act,
        ranks: Sequence[int],
        pieces: Sequence[int],
        tiles: Tiles,
        copies: dict[tuple[int, int], int],
    ) -> Iterator[Step]:
        """A step for every piece that a copy fills; their bytes together are those of the copy."""
        left = act.size_bytes
        for number, piece in enumerate(pieces):
            tile = max(copies[rank, piece] for rank in ranks)
            for rank in ranks:
                copies[rank, piece] = tile + 1
                tiles[rank, piece] = _Held(tile, act.barrier)
            size = self.pieces.size_bytes(piece)
            if act.barrier is not None:
                is_last = number == len(pieces) - 1
                size = left if is_last else min(size, left)
                left -= size
            parts = self._parts(piece)
            for place, name in enumerate(parts):
                share = size * (place + 1) // len(parts) - size * place // len(parts)
                arguments = dict(act.arguments)
                if share % CHUNK_BYTES and arguments["by"] == "bulk":  # a step of a bulk copy moves whole chunks
                    arguments["by"] = "tma"
                part_arguments = (("bytes", share), *arguments.items(), ("tile", tile))
                yield self._step(act._replace(arguments=part_arguments), name)

    def _step(self, act: Act, target: str | tuple[str, ...] | None = None) -> Step:
        """The step of an act; equal ones are one object, which is read once."""
        arguments: dict[str, Written] = dict(act.arguments)
        acted_on: Written | tuple[str, ...] = act.target if target is None else target
        if act.barrier is not None:
            row = self.barrier_names[act.barrier]
            if act.op == "copy":
                arguments["barrier"] = row.reference
            else:
                acted_on = (row.name,) if act.op == "init" else row.reference
        if act.mask is not None:
            arguments["mask"] = act.mask
            if act.op in ("arrive", "expect") and "cta" in self.recorded.words(act.pc):
                arguments["scope"] = "cta"
        place = self.recorded.place(act.pc)
        key = (act.op, acted_on, tuple(arguments.items()), place)
        step = self.steps.get(key)
        if step is None:
            step = Step(act.op, acted_on, arguments, at=place)
            self.steps[key] = step
        return step

    def _roles(self, steps: dict[int, tuple[Step, ...]]) -> tuple[Role, ...]:
        """Warps that did the same in one block are instances of a role; blocks that did the same share it."""
        block_warps = self.acts.block_warps
        alike: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)  # (block, steps): warps of the block
        for warp, warp_steps in steps.items():
            alike[warp // block_warps, tuple(map(id, warp_steps))].append(warp % block_warps)
        shared: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = defaultdict(list)  # (steps, warps): blocks
        for (block, made_by), made_there in alike.items():
            shared[made_by, tuple(made_there)].append(block)
        blocks = self.acts.log.blocks
        stages = {row.name: row.stages for row in (*self.barrier_names, *self.slot_names)}
        roles = []
        for (_, warps), ranks in shared.items():
            name = _warps_named(warps, rank=ranks[0] if len(ranks) < blocks else None)
            roles.append(
                Role(
                    name=name,
                    steps=fold_steps(steps[ranks[0] * block_warps + warps[0]], stages),
                    threads=WARP_LANES,
                    instances=len(warps),
                    mask=None if len(ranks) == blocks else sum(1 << rank for rank in ranks),
                )
            )
        if len(roles) > MAX_ROLES:
            raise CannotSayError(f"{len(roles)} warps that each do something else; a pipeline has {MAX_ROLES} roles", 0)
        return tuple(roles)


def _warps_named(warps: Sequence[int], rank: int | None = None) -> str:
    """As a role is called: warp 4; warps 0-3; warps 0,2; where blocks differ, warp 1.4 in the block of rank 1.

    >>> _warps_named([4]), _warps_named([0, 1, 2, 3]), _warps_named([0, 2]), _warps_named([4], rank=1)
    ('warp 4', 'warps 0-3', 'warps 0,2', 'warp 1.4')
    """
    block = "" if rank is None else f"{rank}."
    if len(warps) == 1:
        return f"warp {block}{warps[0]}"
    is_run = list(warps) == list(range(warps[0], warps[-1] + 1))
    return f"warps {block}{warps[0]}-{warps[-1]}" if is_run else f"warps {block}{','.join(map(str, warps))}"
