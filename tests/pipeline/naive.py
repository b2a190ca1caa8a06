"""A second simulator, which tries every order of a small pipeline: slow, plain, and written from the rules alone.

It knows nothing of clocks or of what a role can know. It holds what a chip would hold, and moves it in every possible way: the
next step of any role, or the landing of anything under way, whole or up to the byte at which its barrier's count is 0. A state
that was met before is not continued again. What it calls bad it has seen happen in some order:

    hang        nobody can move and somebody has not left
    fault       more arrivals than pending, bytes beyond 2^20 - 1, an operation on a block that has left
    race        an access begins while a conflicting one is under way
    fence       an access begins where a fence should have come before
    beyond      a copy reaches beyond its slot
    overlap     copies of one phase lie upon each other
    unfilled    a slot is read that holds nothing
    partial     a slot is read that holds a gap, or bytes from before beside new ones
    stale       a slot is read that holds another tile than meant
    undefined   a barrier is used before its init or initialised twice, threads meet in wrong numbers
    exit        a role leaves while its stores or its multiplications are under way

Left out: fences whose absence is a note (those of tensor memory, and after cp.async or a read by threads), the scope of an
arrival, dependent launches, flags in global memory.
"""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import NamedTuple

ANY = -1  # no tile named
NONE = -1  # no mbarrier
DEAD = -1  # a phase has ended after which no arrivals are expected: all were dropped
WARP_THREADS = 32
WARPGROUP_THREADS = 128
TX_END_BYTES = 1 << 20
GROUPS = ("wgmma", "bulk", "cp.async")
BARRIER_OPS = ("wait", "tail", "expect", "arrive", "release", "cp_arrive", "commit")
BY_ASYNC_PROXY = ("tma", "bulk", "wgmma", "tcgen05", "store")
TENSOR_CORES = ("wgmma", "tcgen05")
CLUSTER = (-1, 0)  # where all blocks meet; bar.sync n of block r is (r, n)


class BadOrderError(Exception):
    """What goes wrong in this order."""


class Access(NamedTuple):
    """Bytes of a slot that are read or written, until the access is over."""

    slot: int
    agent: int
    pc: int
    writes: bool
    how: str  # generic: by threads; waited: cp.async for which every warp has waited, for its own alone; else as steps say
    begin: int
    end: int
    fill: tuple = ()  # of a copy: its barrier and phase, or its role and group


class Segment(NamedTuple):
    """What bytes of a slot hold."""

    begin: int
    end: int
    tile: int
    fill: tuple
    was_read: bool = False
    old: bool = False  # left from before when the slot began to be filled again


class Filled(NamedTuple):
    """A copy that was issued, for others of the same fill."""

    slot: int
    fill: tuple
    begin: int
    end: int
    tile: int
    placed: bool  # whether it said its offset


class Copied(NamedTuple):
    """A copy as a step says it."""

    receivers: list[tuple[int, int | None]]  # slots and barriers
    by: str
    size: int
    offset: int | None
    group: int  # how often the agent has committed cp.async or arrived for them
    tile: int


class Touched(NamedTuple):
    """Slots that a step reads or writes at once, or that a tensor core or a store reads."""

    op: str
    slots: list[int]
    into: list[int]
    how: str
    tile: int


class Flight(NamedTuple):
    """What is under way to a barrier: the bytes of a copy, or arrivals that come when accesses are over."""

    barrier: int  # of threads: NONE
    amount: int  # at a barrier of threads: as many as are wanted there
    agent: int
    pc: int
    copy: Access | None
    tile: int
    ends: tuple[Access, ...]
    meeting: tuple = ()  # the barrier of threads: its block and number


class Unfenced(NamedTuple):
    """Bytes that threads or cp.async wrote to shared memory, and no fence.proxy.async since."""

    slot: int
    agent: int
    begin: int
    end: int
    by_copy: bool  # by cp.async, after which tensor cores need no fence


def number(given, names):
    """The value of an integer or of an expression; / divides integers."""
    return given if isinstance(given, int) else int(eval(given.replace("//", "/").replace("/", "//"), {}, names))


def unrolled(steps, names):
    """The steps of a role with their names, one after another."""
    for step in steps:
        if "loop" in step:
            start = number(step.get("start", 0), names)
            for value in range(start, start + number(step["count"], names)):
                yield from unrolled(step["steps"], {**names, step["loop"]: value})
        elif number(step.get("when", 1), names):
            yield step, names


def rounded_up(count, multiple):
    return -(-count // multiple) * multiple


def replaced(values, index, value):
    """The tuple with one element replaced."""
    return (*values[:index], value, *values[index + 1 :])


class World:
    """What the chip holds. All parts are immutable and moves replace them: a copy is shallow, the parts are the key."""

    __slots__ = (
        "accesses",  # under way
        "arrived",  # agents that have arrived at the cluster's barrier, which has not opened yet
        "barriers",  # phase, pending, tx, expected
        "content",  # of every slot: its segments
        "fenced",  # barriers that other blocks may use
        "fills",  # copies issued, those of the last fill from each source
        "flights",
        "groups",  # of every agent and kind: accesses of the open group, and of those that were committed
        "made",  # barriers that are initialised, and by whom
        "marks",  # fences that are missing
        "meetings",  # of a barrier of threads: who is there, and how many threads are wanted
        "passed",  # agents for which the cluster's barrier has opened, and that have not waited yet
        "pcs",  # next step of every agent; len(steps): it leaves next, len(steps) + 1: it has left
        "pool",  # registers of every block that nobody holds
        "registers",  # of a thread of every agent
        "standing",  # the meeting in which an agent stands before it goes on, or None
    )

    def copy(self):
        other = World.__new__(World)
        for name in World.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    key = property(attrgetter(*__slots__))


class Naive:
    """The programs of all agents (a role in a block), and what each step does to the world."""

    def __init__(self, data, limit=400_000):
        self.limit = limit
        self.across, down = (*data.get("cluster", (1, 1)), 1)[:2]
        self.blocks = self.across * down
        self.constants = data.get("constants", {})
        self.counts, self.barriers, self.slots, self.spaces, self.sizes = [], {}, {}, [], []
        for rank in range(self.blocks):
            for name, each in data.get("barriers", {}).items():
                for stage in range(each.get("stages", 1)):
                    self.barriers[name, stage, rank] = len(self.barriers)
                    self.counts.append(each["count"])
            for name, each in data.get("slots", {}).items():
                for stage in range(each.get("stages", 1)):
                    self.slots[name, stage, rank] = len(self.slots)
                    self.spaces.append(each.get("space", "smem"))
                    self.sizes.append(each.get("bytes", 0))
        self.barrier_ranks = [rank for _, _, rank in self.barriers]
        self.slot_ranks = [rank for _, _, rank in self.slots]
        self.programs, self.ranks, self.threads = [], [], []
        for rank in range(self.blocks):
            for role in data["roles"]:
                if role.get("mask") is None or role["mask"] >> rank & 1:
                    for instance in range(role.get("instances", 1)):
                        self.ranks.append(rank)
                        self.threads.append(role.get("threads", 1))
                        self.programs.append(self.program(role["steps"], rank, instance))
        self.agents = range(len(self.programs))
        self.warps = [rounded_up(threads, WARP_THREADS) // WARP_THREADS for threads in self.threads]
        self.initialises = any(step[0] == "init" for program in self.programs for step in program)
        self.entry = data.get("registers") or 0

    # ---- from data to programs ----

    def program(self, steps, rank, instance=0):
        """What an agent does: (op, arguments …), with barriers and slots as numbers."""
        names = {"rank": rank, "x": rank % self.across, "y": rank // self.across, "instance": instance}
        names |= {"blocks": self.blocks, **self.constants}
        program, group = [], 0
        for step, known in unrolled(steps, names):
            op = next(iter(step))
            program.append(self.read_step(op, step, known, rank, group))
            group += op == "cp_arrive" or step.get("commit") == "cp.async"
        return program

    def place(self, table, given, rank, names):
        name, _, index = given.partition("[")
        return table[name, number(index.rstrip("]") or 0, names), rank]

    def read_step(self, op, step, names, rank, group):
        """`group`: how often the agent has committed cp.async or arrived for them."""
        ranks = [rank]
        if "mask" in step:
            mask = number(step["mask"], names)
            ranks = [each for each in range(self.blocks) if mask >> each & 1]
            if mask >> self.blocks:
                return ("beyond_cluster",)
        if op == "copy":
            return op, self.read_copy(step, names, ranks, group)
        if op in ("read", "write", "multiply", "store"):
            return "touch", self.read_touched(op, step, names, ranks)
        if op in BARRIER_OPS and step[op] not in GROUPS:
            return self.read_barrier_step(op, step, names, ranks)
        return self.read_own_step(op, step, names, rank)

    def read_barrier_step(self, op, step, names, ranks):
        """A step at a barrier, or at that barrier of several blocks."""
        barriers = [self.place(self.barriers, step[op], each, names) for each in ranks]
        match op:
            case "wait" | "tail":
                return "wait", barriers[0], number(step["parity"], names)
            case "expect":
                return op, barriers, number(step["bytes"], names), step.get("arrive", True)
            case "arrive" | "release":
                return "arrive", barriers, number(step.get("count", 1), names), step.get("drop", False)
            case "cp_arrive":
                return op, barriers, number(step.get("count", 1), names), step.get("noinc", False)
        return "commit_to", barriers

    def read_own_step(self, op, step, names, rank):
        """A step in the agent's own block that names no barrier and no slot, or inits barriers."""
        target = step[op]
        match op:
            case "wait_group":
                return op, target, number(step.get("pending", 0), names)
            case "sync" | "bar_arrive":
                return op, (rank, number(target, names)), number(step.get("threads", 0), names)
            case "init":
                named = [target] if isinstance(target, str) else target
                return op, [which for (name, _, at), which in self.barriers.items() if at == rank and name in named]
            case "registers":
                return op, number(target, names)
        return op, target  # fence, cluster, commit of a group

    def read_touched(self, op, step, names, ranks):
        target = step[op]
        targets = [target] if isinstance(target, str) else target
        slots = [self.place(self.slots, given, each, names) for each in ranks for given in targets]
        into = [self.place(self.slots, step["into"], each, names) for each in ranks] if step.get("into") else []
        how = "generic"
        if op == "store":
            how = "store"
        elif op == "multiply" and step.get("unit") != "mma":
            how = step.get("unit", "wgmma")
        return Touched(op, slots, into, how, number(step["tile"], names) if "tile" in step else ANY)

    def read_copy(self, step, names, ranks, group):
        by = step.get("by", "tma")
        size = number(step["bytes"], names)
        if by == "bulk":
            size = size // 16 * 16
        size *= number(step.get("lanes", 1), names)
        offset = number(step["offset"], names) if "offset" in step else None
        receivers = []
        for rank in ranks:
            barrier = None
            if step.get("barrier"):
                owner = number(step["barrier_rank"], {**names, "rank": rank}) if "barrier_rank" in step else rank
                barrier = self.place(self.barriers, step["barrier"], owner, names)
            receivers.append((self.place(self.slots, step["copy"], rank, names), barrier))
        tile = number(step["tile"], names) if "tile" in step else ANY
        return Copied(receivers, by, size, offset, group, tile)

    # ---- every order ----

    def fresh_world(self):
        world, agents = World.__new__(World), len(self.programs)
        world.accesses = world.arrived = world.fenced = world.fills = world.flights = frozenset()
        world.made = world.marks = world.meetings = world.passed = frozenset()
        world.barriers = tuple((0, count, 0, count) for count in self.counts)
        world.content = ((),) * len(self.slots)
        world.groups = (((), ()),) * (len(GROUPS) * agents)
        world.pcs, world.standing, world.registers = (0,) * agents, (None,) * agents, (self.entry,) * agents
        world.pool = (0,) * self.blocks
        return world

    def explore(self):
        """The first bad thing that happens in some order; "" where all orders were seen, None where there are too many."""
        start = self.fresh_world()
        try:
            self.run_unseen(start)
            seen, stack = {start.key}, [start]
            while stack:
                world = stack.pop()
                moves = self.moves(world)
                if not moves and not all(self.left(world, agent) for agent in self.agents):
                    return "hang"
                for act, what in moves:
                    following = world.copy()
                    act(following, what)
                    self.run_unseen(following)
                    key = following.key
                    if key not in seen:
                        if len(seen) >= self.limit:
                            return None
                        seen.add(key)
                        stack.append(following)
        except BadOrderError as bad:
            return str(bad)
        return ""

    def moves(self, world):
        moves = [(self.step, agent) for agent in self.agents if self.ready(world, agent)]
        for flight in sorted(world.flights):
            late = self.last_warps(world, flight.agent)
            if flight in late and any(earlier.pc < flight.pc for earlier in late):
                continue  # a warp arrives in the order of its steps
            moves.append((self.land, flight))
            if flight.copy and 0 < world.barriers[flight.barrier][2] < flight.amount:
                moves.append((self.land_piece, flight))
        return moves

    def run_unseen(self, world):
        """Do steps at once that nobody else can see, or that would only hide something bad if they came later."""
        for agent in self.agents:
            while self.is_unseen(world, agent):
                self.step(world, agent)

    def is_unseen(self, world, agent):
        """Whether an agent's next step ends no access that others could meet, and does nothing but this:

        commit a group; wait for groups of nothing; a fence that clears no mark now, and could clear one later; leave,
        after which others can do all that they could.
        """
        if world.standing[agent] or self.left(world, agent):
            return False
        op, *rest = self.next_step(world, agent)
        if op not in ("commit", "wait_group", "fence", "leave"):
            return False
        if (self.warps[agent] == 1 or op == "leave") and self.by_threads(world, agent):
            return False
        if not self.ready(world, agent):
            return False
        if op == "wait_group":
            return not self.over(world, agent, *rest)
        if op == "fence":
            return rest[0] != "mbarrier_init" and not self.cleared(world, agent, rest[0])
        return True

    # ---- agents ----

    def next_step(self, world, agent):
        pc = world.pcs[agent]
        return self.programs[agent][pc] if pc < len(self.programs[agent]) else ("leave",)

    def left(self, world, agent):
        return world.pcs[agent] > len(self.programs[agent])

    def gone(self, world, rank):
        """Whether all agents of a block have left."""
        return all(self.left(world, agent) for agent in self.agents if self.ranks[agent] == rank)

    def ready(self, world, agent):
        if self.left(world, agent) or world.standing[agent]:
            return False
        op, *rest = self.next_step(world, agent)
        if op == "wait":
            barrier, parity = rest
            return world.barriers[barrier][0] & 1 != parity or not self.usable(world, barrier, agent)
        if op == "registers":
            return self.registers_needed(world, agent, *rest) <= world.pool[self.ranks[agent]]
        if self.waits_for_all_warps(op, *rest) and self.last_warps(world, agent):
            return False
        return not (op == "cluster" and rest[0] == "wait" and agent in world.arrived)

    def step(self, world, agent):
        op, *rest = self.next_step(world, agent)
        if self.warps[agent] == 1 or self.waits_for_all_warps(op, *rest):
            world.accesses -= self.by_threads(world, agent)
        getattr(self, f"do_{op}")(world, agent, *rest)
        world.pcs = replaced(world.pcs, agent, world.pcs[agent] + 1)
        if op == "leave":
            self.settle(world, CLUSTER)  # it waits for nobody who has left
            if any(self.outlives(world, access, self.ranks[agent]) for access in world.accesses):
                raise BadOrderError("fault")

    def outlives(self, world, access, rank):
        """Whether a block has left, and another block still uses its memory, or a copy that no barrier hears of."""
        untold = access.how in ("tma", "bulk") and access.fill[0] == "role"
        used = untold or self.ranks[access.agent] != rank
        return used and self.slot_ranks[access.slot] == rank and self.gone(world, rank)

    def by_threads(self, world, agent):
        """An agent's accesses that end with its steps: of one warp with the next, of several with one that covers them."""
        return self.under_way(world, agent, "generic") | self.under_way(world, agent, "waited")

    def waits_for_all_warps(self, op, *rest):
        """Whether no warp of an agent goes on before all have come: their accesses before that are over."""
        return op in ("sync", "leave") or (op == "cluster" and rest[0] == "sync")

    def arrives_with_all_warps(self, agent, op, *rest):
        """Whether all warps of an agent arrive at an mbarrier: when the last of them has, their accesses are over.

        Until then one of them may have gone on already. Their arrivals count together, with the last.
        """
        return op in ("arrive", "cp_arrive") and rest[1] >= self.warps[agent]

    def last_warps(self, world, agent):
        """The arrivals of an agent's last warps that have not come yet."""
        ops = ("arrive", "bar_arrive", "cluster")
        return [each for each in world.flights if each.agent == agent and self.programs[agent][each.pc][0] in ops]

    def ahead(self, world, agent):
        """The steps that other warps of an agent may do before one of them has done the next, which is for one thread alone.

        They go on until a step makes them wait: for the warp that is behind, or for a phase that has not ended yet.
        """
        if self.warps[agent] > 1:
            for step in self.programs[agent][world.pcs[agent] + 1 :]:
                op, *rest = step
                if op == "sync" or (op == "cluster" and rest[0] != "arrive"):
                    return
                yield step
                if op == "wait" and world.barriers[rest[0]][0] & 1 == rest[1]:
                    return

    def written_by_all_warps(self, step):
        """The slots into which all warps of an agent write."""
        match step:
            case ("copy", Copied() as copied) if copied.by == "cp.async":
                return {slot for slot, _ in copied.receivers}
            case ("touch", Touched() as touched) if touched.op == "write":
                return set(touched.slots)
        return set()

    def used_by_all_warps(self, step, agent):
        """The barriers on which all warps of an agent act."""
        op, *rest = step
        if op == "wait":
            return rest[:1]
        return rest[0] if self.arrives_with_all_warps(agent, *step) else ()

    def do_leave(self, world, agent):
        for kind in ("bulk", "wgmma"):
            opened, closed = world.groups[self.group(agent, kind)]
            if opened or any(closed):
                raise BadOrderError("exit")
        committed = set(chain.from_iterable(flight.ends for flight in world.flights))
        if any(access.agent == agent and access.how == "tcgen05" for access in world.accesses - committed):
            raise BadOrderError("exit")

    def do_beyond_cluster(self, world, agent):
        raise BadOrderError("fault")

    def registers_needed(self, world, agent, registers):
        return (registers - world.registers[agent]) * rounded_up(self.threads[agent], WARPGROUP_THREADS)

    def do_registers(self, world, agent, registers):
        rank = self.ranks[agent]
        world.pool = replaced(world.pool, rank, world.pool[rank] - self.registers_needed(world, agent, registers))
        world.registers = replaced(world.registers, agent, registers)

    # ---- mbarriers ----

    def usable(self, world, barrier, agent):
        """Whether a barrier is initialised; for another block also fenced."""
        if not self.initialises:
            return True
        made = any(which == barrier for which, _ in world.made)
        return made and (self.barrier_ranks[barrier] == self.ranks[agent] or barrier in world.fenced)

    def reach(self, world, barrier, agent):
        """An agent acts on a barrier."""
        if not self.usable(world, barrier, agent):
            raise BadOrderError("undefined")
        self.reach_block(world, self.barrier_ranks[barrier], agent)

    def reach_block(self, world, rank, agent):
        if rank != self.ranks[agent] and self.gone(world, rank):
            raise BadOrderError("fault")

    def count(self, world, barrier, *, arrivals=0, tx=0, dropped=0):
        phase, pending, outstanding, expected = world.barriers[barrier]
        is_dead = expected == DEAD  # it never ends a phase again
        pending, outstanding, expected = pending - arrivals, outstanding + tx, expected - dropped
        if pending < 0 or abs(outstanding) >= TX_END_BYTES:
            raise BadOrderError("fault")
        if pending == 0 and outstanding == 0 and not is_dead:
            phase, pending, expected = phase + 1, expected, expected or DEAD
        world.barriers = replaced(world.barriers, barrier, (phase, pending, outstanding, expected))

    def do_init(self, world, agent, barriers):
        for barrier in barriers:
            if any(which == barrier for which, _ in world.made):
                raise BadOrderError("undefined")
            if any(barrier in self.used_by_all_warps(step, agent) for step in self.ahead(world, agent)):
                raise BadOrderError("undefined")
            world.made |= {(barrier, agent)}

    def do_wait(self, world, agent, barrier, _parity):
        self.reach(world, barrier, agent)

    def do_expect(self, world, agent, barriers, size, arrives):
        for barrier in barriers:
            self.reach(world, barrier, agent)
            self.count(world, barrier, arrivals=int(arrives), tx=size)

    def do_arrive(self, world, agent, barriers, times, drop):
        all_warps = self.arrives_with_all_warps(agent, "arrive", barriers, times)
        before = self.by_threads(world, agent) if all_warps else ()
        for barrier in barriers:
            self.reach(world, barrier, agent)
            if before and not drop:  # the last warp may be late
                self.fly_arrivals(world, agent, barrier, times, before)
            else:
                self.count(world, barrier, arrivals=times, dropped=times if drop else 0)

    def do_cp_arrive(self, world, agent, barriers, times, noinc):
        before = self.under_way(world, agent, "cp.async")
        if self.arrives_with_all_warps(agent, "cp_arrive", barriers, times):
            before |= self.by_threads(world, agent)
        for barrier in barriers:
            self.reach(world, barrier, agent)
            if not noinc:
                self.count(world, barrier, arrivals=-times)
            self.fly_arrivals(world, agent, barrier, times, before)

    def do_commit_to(self, world, agent, barriers):
        for barrier in barriers:
            self.reach(world, barrier, agent)
            self.fly_arrivals(world, agent, barrier, 1, self.under_way(world, agent, "tcgen05"))

    def under_way(self, world, agent, how):
        return {access for access in world.accesses if access.agent == agent and access.how == how}

    def fly_arrivals(self, world, agent, barrier, times, accesses):
        """Arrivals that come when accesses are over."""
        world.flights |= {Flight(barrier, times, agent, world.pcs[agent], None, ANY, tuple(sorted(accesses)))}

    def land_piece(self, world, flight):
        """The bytes of a copy count piece by piece: land those with which the barrier's count is 0."""
        piece = world.barriers[flight.barrier][2]
        world.flights = world.flights - {flight} | {flight._replace(amount=flight.amount - piece)}
        self.count(world, flight.barrier, tx=-piece)

    def land(self, world, flight):
        world.flights -= {flight}
        waited = {access._replace(how="waited") for access in flight.ends}
        self.end(world, world.accesses & {*flight.ends, *waited})
        if flight.meeting:
            self.meet(world, flight.agent, flight.meeting, flight.amount)
            return
        barrier_rank = self.barrier_ranks[flight.barrier]
        if flight.copy is None:
            self.reach_block(world, barrier_rank, flight.agent)
            self.count(world, flight.barrier, arrivals=flight.amount)
            return
        if self.gone(world, self.slot_ranks[flight.copy.slot]) or self.gone(world, barrier_rank):
            raise BadOrderError("fault")
        self.fill(world, flight.copy, flight.tile)
        self.end(world, [flight.copy])
        self.count(world, flight.barrier, tx=-flight.amount)

    # ---- memory ----

    def do_copy(self, world, agent, copied):
        for slot, barrier in copied.receivers:
            if barrier is not None:
                self.reach(world, barrier, agent)
            self.reach_block(world, self.slot_ranks[slot], agent)
            if copied.size == 0:
                continue
            if copied.by == "cp.async" or barrier is None:
                fill = ("role", agent, copied.group)
            else:
                fill = ("barrier", barrier, world.barriers[barrier][0])
            begin, end = self.extent(world, slot, fill, copied)
            copy = Access(slot, agent, world.pcs[agent], True, copied.by, begin, end, fill)
            self.begin(world, copy)
            self.age(world, slot, fill)
            if copied.by == "cp.async":
                self.fill(world, copy, copied.tile)
                self.add_to_group(world, agent, "cp.async", copy)
            elif barrier is not None:
                world.flights |= {Flight(barrier, copied.size, agent, copy.pc, copy, copied.tile, ())}

    def extent(self, world, slot, fill, copied):
        """Where a copy lies in its slot; the whole of a slot that does not state its bytes is (0, 1)."""
        size, offset, tile = copied.size, copied.offset, copied.tile
        same_fill = [each for each in world.fills if each.slot == slot and each.fill == fill]
        slot_size = self.sizes[slot]
        if slot_size == 0:
            begin, end = 0, 1
            if any(each.tile != tile and ANY not in (each.tile, tile) for each in same_fill):
                raise BadOrderError("overlap")
        else:
            begin = offset
            if offset is None:
                begin = sum(each.end - each.begin for each in same_fill if not each.placed)
            end = begin + size
            if end > slot_size:
                raise BadOrderError("beyond" if offset is not None or size > slot_size else "overlap")
            if any(each.begin < end and begin < each.end for each in same_fill):
                raise BadOrderError("overlap")
        before = {each for each in world.fills if each.slot == slot and each.fill[:2] == fill[:2] and each.fill != fill}
        world.fills = world.fills - before | {Filled(slot, fill, begin, end, tile, offset is not None)}
        return begin, end

    def age(self, world, slot, fill):
        """A copy into a slot is issued: what was read there, or came from the same source earlier, is from before."""

        def is_old(segment):
            return segment.old or segment.was_read or (segment.fill[:2] == fill[:2] and segment.fill < fill)

        aged = tuple(segment._replace(old=is_old(segment)) for segment in world.content[slot])
        world.content = replaced(world.content, slot, aged)

    def fill(self, world, access, tile):
        """The access's bytes hold a tile."""
        segments = [Segment(access.begin, access.end, tile, access.fill)]
        for segment in world.content[access.slot]:
            if segment.begin < access.begin:
                segments.append(segment._replace(end=min(segment.end, access.begin)))
            if segment.end > access.end:
                segments.append(segment._replace(begin=max(segment.begin, access.end)))
        world.content = replaced(world.content, access.slot, tuple(sorted(segments)))

    def take(self, world, slot, tile):
        """The whole slot is read."""
        segments = world.content[slot]
        if not segments:
            raise BadOrderError("unfilled")
        filled = sum(segment.end - segment.begin for segment in segments)
        if filled < self.sizes[slot] or any(segment.old for segment in segments):
            raise BadOrderError("partial")
        if any(segment.tile != tile and ANY not in (segment.tile, tile) for segment in segments):
            raise BadOrderError("stale")
        marked = tuple(segment._replace(was_read=True) for segment in segments)
        world.content = replaced(world.content, slot, marked)

    def do_touch(self, world, agent, touched):
        writes = touched.op == "write"
        for slot in touched.slots:
            access = self.touch(world, agent, slot, writes=writes, how=touched.how)
            if writes:
                self.fill(world, access, touched.tile)
            else:
                self.take(world, slot, touched.tile)
        for slot in touched.into:
            self.fill(world, self.touch(world, agent, slot, writes=True, how=touched.how), ANY)

    def touch(self, world, agent, slot, *, writes, how):
        self.reach_block(world, self.slot_ranks[slot], agent)
        access = Access(slot, agent, world.pcs[agent], writes, how, 0, self.sizes[slot] or 1)
        self.begin(world, access)
        if how == "wgmma":
            self.add_to_group(world, agent, "wgmma", access)
        elif how == "store":
            self.add_to_group(world, agent, "bulk", access)
        return access

    def begin(self, world, access):
        """An access begins: it must meet no other, and no missing fence."""
        for other in world.accesses:
            if self.conflict(access, other):
                raise BadOrderError("race")
        for mark in world.marks:
            if mark.slot == access.slot and self.lacks_fence(access, mark):
                raise BadOrderError("fence")
        world.accesses |= {access}
        self.leave_marks(world, access)

    def conflict(self, access, other):
        if other.slot != access.slot or not (access.writes or other.writes):
            return False
        if other.end <= access.begin or access.end <= other.begin:
            return False
        same_fill = access.fill and access.fill == other.fill  # `extent` has seen to their places
        in_order = access.agent == other.agent and access.how == other.how and access.how in ("generic", "tcgen05")
        return not same_fill and not in_order

    def lacks_fence(self, access, mark):
        if access.how not in BY_ASYNC_PROXY or (mark.by_copy and access.how in TENSOR_CORES):
            return False
        return mark.begin < access.end and access.begin < mark.end

    def leave_marks(self, world, access):
        """Which fences are missing once an access has begun; what was overwritten as a whole needs none any more."""
        slot, agent = access.slot, access.agent
        if access.writes and not access.fill:
            world.marks = frozenset(mark for mark in world.marks if mark.slot != slot)
        if access.how == "generic" and access.writes and self.spaces[slot] != "tmem":
            world.marks |= {Unfenced(slot, agent, access.begin, access.end, by_copy=False)}

    def end(self, world, accesses):
        """Asynchronous accesses are over."""
        for access in accesses:
            world.accesses -= {access}
            if access.how == "cp.async":
                world.marks |= {Unfenced(access.slot, access.agent, access.begin, access.end, by_copy=True)}

    def cleared(self, world, agent, fence):
        """The marks that a fence clears. What another role's warps are still writing, it does not."""
        if fence != "proxy.async":
            return set()
        by_threads = [each for each in world.accesses if each.how in ("generic", "waited")]
        writing = {(each.slot, each.agent) for each in by_threads if each.writes}
        return {mark for mark in world.marks if mark.agent == agent or (mark.slot, mark.agent) not in writing}

    def do_fence(self, world, agent, fence):
        if fence == "mbarrier_init":
            world.fenced |= {barrier for barrier, maker in world.made if maker == agent}
        else:
            world.marks -= self.cleared(world, agent, fence)

    # ---- groups ----

    def group(self, agent, kind):
        return len(GROUPS) * agent + GROUPS.index(kind)

    def add_to_group(self, world, agent, kind, access):
        which = self.group(agent, kind)
        opened, closed = world.groups[which]
        world.groups = replaced(world.groups, which, ((*opened, access), closed))

    def do_commit(self, world, agent, kind):
        which = self.group(agent, kind)
        opened, closed = world.groups[which]
        world.groups = replaced(world.groups, which, ((), (*closed, opened)))

    def over(self, world, agent, kind, pending):
        """The accesses that are over when all but `pending` groups are."""
        _, closed = world.groups[self.group(agent, kind)]
        retired = closed[: max(0, len(closed) - pending)]
        return [access for access in chain.from_iterable(retired) if access in world.accesses]

    def do_wait_group(self, world, agent, kind, pending):
        over = self.over(world, agent, kind, pending)
        self.end(world, over)
        if kind == "cp.async" and self.warps[agent] > 1:  # a thread has waited for its own alone
            world.accesses |= {access._replace(how="waited") for access in over}
        if kind == "bulk":
            stored = {access.slot for access in over}
            if any(stored & self.written_by_all_warps(step) for step in self.ahead(world, agent)):
                raise BadOrderError("race")
        which = self.group(agent, kind)
        opened, closed = world.groups[which]
        world.groups = replaced(world.groups, which, (opened, closed[max(0, len(closed) - pending) :]))

    # ---- barriers of threads ----

    def do_sync(self, world, agent, key, threads):
        world.standing = replaced(world.standing, agent, key)
        self.meet(world, agent, key, threads)

    def do_bar_arrive(self, world, agent, key, threads):
        self.come(world, agent, key, threads)

    def do_cluster(self, world, agent, choice):
        if choice == "wait":
            if agent not in world.passed:
                raise BadOrderError("undefined")
            world.passed -= {agent}
            return
        if agent in world.arrived or agent in world.passed:  # twice without a wait between
            raise BadOrderError("undefined")
        if choice == "sync":
            world.standing = replaced(world.standing, agent, CLUSTER)
        else:
            world.arrived |= {agent}
        self.come(world, agent, CLUSTER, 0)

    def come(self, world, agent, key, threads):
        """All warps arrive at a barrier of threads. Where they go on at once, the last of them may be late."""
        before = self.by_threads(world, agent)
        if before or self.last_warps(world, agent):
            late = Flight(NONE, threads, agent, world.pcs[agent], None, ANY, tuple(sorted(before)), key)
            world.flights |= {late}
        else:
            self.meet(world, agent, key, threads)

    def meet(self, world, agent, key, threads):
        members = [each for each in self.agents if self.ranks[each] == self.ranks[agent]]
        wanted = 0
        if key != CLUSTER:
            wanted = threads or sum(self.warps[each] for each in members) * WARP_THREADS
        there = ()
        for meeting in world.meetings:
            if meeting[0] == key:
                _, there, asked = meeting
                if asked != wanted:
                    raise BadOrderError("undefined")
                world.meetings -= {meeting}
        world.meetings |= {(key, tuple(sorted((*there, agent))), wanted)}
        self.settle(world, key)

    def settle(self, world, key):
        """Open a barrier of threads if all are there."""
        for meeting in world.meetings:
            if meeting[0] == key:
                break
        else:
            return
        _, there, wanted = meeting
        if key == CLUSTER:
            if not all(each in there or self.left(world, each) for each in self.agents):
                return
        else:
            came = sum(self.warps[each] for each in there) * WARP_THREADS
            if came > wanted:
                raise BadOrderError("undefined")
            if came < wanted:
                return
        world.meetings -= {meeting}
        for each in there:
            if world.standing[each] == key:
                world.standing = replaced(world.standing, each, None)
            elif key == CLUSTER:
                world.arrived -= {each}
                world.passed |= {each}


def naive(data, limit=400_000):
    """ "" where every order is right, else the first bad thing seen; None: too many orders."""
    return Naive(data, limit).explore()
