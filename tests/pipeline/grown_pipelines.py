"""Pipelines grown step by step: every step is right where it is appended, so one order is right; others may not be.

data = Growth(random.Random(7)).data
"""

from changed_pipelines import some_step
from naive import BadOrderError, Naive
from right_pipelines import role


class Growth:
    """A pipeline to which steps are appended that the naive chip takes as it is then, one after another."""

    def __init__(self, rng):
        self.rng = rng
        names = "pqrs"[: rng.choice((1, 2, 2, 2, 3, 3, 4))]
        blocks = rng.choice((1, 1, 2)) if len(names) > 1 else 1
        self.data = {
            "barriers": {name: {"count": rng.choice((1, 1, 1, 2))} for name in "fgh"[: rng.randint(1, 3)]},
            "slots": {name: {"bytes": rng.choice((0, 32, 32, 64))} for name in "ab"[: rng.randint(1, 2)]},
            "roles": [
                role(name, rng.choice((1, 32, 32, 64, 128)), [], mask=1 << rng.randrange(blocks)) for name in names
            ],
        }
        if blocks == 1:
            for each in self.data["roles"]:
                del each["mask"]
        else:
            self.data["cluster"] = [2, 1]
            self.data["roles"][-1]["mask"] = 3 - self.data["roles"][0]["mask"]  # both blocks have a role
            self.data["roles"].sort(key=lambda each: each["mask"])  # agents have the order of roles
        self.tensor_memory = rng.random() < 0.15
        if self.tensor_memory:
            self.data["slots"]["acc"] = {"space": "tmem"}
        self.chip = Naive(self.data)
        self.world = self.chip.fresh_world()
        self.users = {}  # of a slot in a block: agents that touched it since it was filled
        self.tiles = 0
        self.begin()
        for _ in range(rng.randint(2, 9)):
            rng.choice(self.habits())()
        self.finish()

    def habits(self):
        habits = [self.fill_by_copy] * 4 + [self.fill_by_threads] * 3 + [self.use] * 5 + [self.stray] * 2
        habits += [self.hand_over_to_anyone, self.fill_by_cp_async, self.meet]
        if self.tensor_memory:
            habits += [self.multiply_into_tensor_memory] * 4
        return habits

    # ---- one step ----

    def rank(self, agent):
        return self.chip.ranks[agent]

    def some_agent(self, rank=None):
        return self.rng.choice([agent for agent in self.chip.agents if rank in (None, self.rank(agent))])

    def do(self, agent, **step):
        """Append a step to a role if the chip takes it now; whether it did."""
        steps = self.data["roles"][agent]["steps"]
        if len(steps) >= 16:
            return False
        program = self.chip.program([*steps, step], self.rank(agent))
        before = self.chip.programs[agent]
        self.chip.programs[agent] = program
        following = self.world.copy()
        try:
            if self.chip.ready(following, agent):
                self.chip.step(following, agent)
                self.world = following
                steps.append(step)
                return True
        except BadOrderError:
            pass
        self.chip.programs[agent] = before
        return False

    def land(self, chance=1.0):
        """Whatever is under way lands, or some of it."""
        for flight in sorted(self.world.flights):
            if self.rng.random() < chance:
                following = self.world.copy()
                try:
                    self.chip.land(following, flight)
                except BadOrderError:
                    continue
                self.world = following

    def barrier_state(self, name, rank):
        return self.world.barriers[self.chip.barriers[name, 0, rank]]

    def wait(self, agent, name):
        """Wait for the last phase that has ended."""
        phase = self.barrier_state(name, self.rank(agent))[0]
        return phase > 0 and self.do(agent, wait=name, parity=(phase - 1) & 1)

    # ---- several steps ----

    def begin(self):
        """Sometimes barriers are initialised by a role in each block, and all meet."""
        if self.rng.random() > 0.25:
            return
        self.chip.initialises = True
        names = list(self.data["barriers"])
        for rank in range(self.chip.blocks):
            first = next(agent for agent in self.chip.agents if self.rank(agent) == rank)
            self.do(first, init=names)
            if self.rng.random() < 0.9:
                self.do(first, fence="mbarrier_init")
        self.meet()

    def meet(self):
        """All agents of a block, or of the cluster, meet; now and then one of them is left out."""
        if self.chip.blocks == 2:
            apart = self.rng.random() < 0.3
            for agent in self.chip.agents:
                self.do(agent, cluster="arrive" if apart else "sync")
            if apart:
                for agent in self.chip.agents:
                    self.do(agent, cluster="wait")
            return
        number = self.rng.randrange(1, 4)
        for agent in self.chip.agents:
            self.do(agent, sync=number)

    def hand_over(self, first, second):
        """The first agent arrives at a barrier of the second's block, which waits for it."""
        rank = self.rank(second)
        name = self.rng.choice(list(self.data["barriers"]))
        _, pending, tx, _ = self.barrier_state(name, rank)
        if tx:
            return False
        step = {"arrive": name, "count": pending}
        if self.rank(first) != rank:
            step["mask"] = 1 << rank
        if self.chip.warps[first] > pending and self.rng.random() < 0.9:
            self.do(first, sync=8 + first, threads=32 * self.chip.warps[first])
        if not self.do(first, **step):
            return False
        for flight in self.chip.last_warps(self.world, first):
            self.chip.land(self.world, flight)
        return self.rng.random() < 0.95 and self.wait(second, name)

    def hand_over_to_anyone(self):
        self.hand_over(self.some_agent(), self.some_agent())

    def hand_over_from_users(self, slot, rank, agent):
        """Those who touched a slot let an agent know, mostly."""
        for other in sorted(self.users.get((slot, rank), ())):
            if other != agent and self.rng.random() < 0.92:
                self.hand_over(other, agent)

    def come_to(self, slot, agent):
        self.hand_over_from_users(slot, self.rank(agent), agent)

    def shared_slots(self):
        return [name for name, row in self.data["slots"].items() if row.get("space") != "tmem"]

    def named(self):
        """A tile, or none."""
        return {"tile": self.tiles} if self.rng.random() < 0.7 else {}

    def fill_by_copy(self):
        """Expect bytes, copy them, wait for them and read them; in a cluster also into the other block, or into both."""
        agent, slot = self.some_agent(), self.rng.choice(self.shared_slots())
        barrier = self.rng.choice(list(self.data["barriers"]))
        ranks, there = [self.rank(agent)], {}
        if self.chip.blocks == 2 and self.rng.random() < 0.5:
            ranks = self.rng.choice(([1 - ranks[0]], [0, 1]))
            there = {"mask": sum(1 << rank for rank in ranks)}
        for rank in ranks:
            self.hand_over_from_users(slot, rank, agent)
        size = self.data["slots"][slot]["bytes"] or 32
        pending = max(self.barrier_state(barrier, rank)[1] for rank in ranks)
        issued = [self.do(agent, **step) for step in self.copy_steps(slot, size, barrier, pending, there)]
        self.land(0.9)
        for rank in ranks:
            reader = self.some_agent(rank)
            if any(issued):
                self.users[slot, rank] = {reader}
            if self.rng.random() < 0.93 and self.wait(reader, barrier) and self.rng.random() < 0.7:
                self.read(reader, slot)

    def copy_steps(self, slot, size, barrier, pending, there):
        """Steps that fill a slot and end a phase of the barrier, now and then in another order."""
        self.tiles += 1
        parts = self.rng.choice((1, 1, 2))
        common = {"barrier": barrier, "by": self.rng.choice(("tma", "bulk")), **self.named(), **there}
        copies = [{"copy": slot, "bytes": size // parts, **common} for _ in range(parts)]
        if parts == 2 and self.rng.random() < 0.5:
            copies[0]["offset"], copies[1]["offset"] = size // 2, 0
        apart = pending > 1 or self.rng.random() < 0.2
        steps = [{"expect": barrier, "bytes": size, "arrive": not apart, **there}, *copies]
        if apart:
            steps += [{"fence": "proxy.async"}] * self.rng.choice((0, 0, 5))
            steps.append({"arrive": barrier, "count": pending, **there})
        if self.rng.random() < 0.2:
            first, second = self.rng.sample(range(len(steps)), 2)
            steps[first], steps[second] = steps[second], steps[first]
        return steps

    def fill_by_threads(self):
        agent, slot = self.some_agent(), self.rng.choice(self.shared_slots())
        self.come_to(slot, agent)
        self.tiles += 1
        if self.do(agent, write=[slot], **self.named()):
            self.users[slot, self.rank(agent)] = {agent}
            if self.rng.random() < 0.6:
                self.do(agent, fence="proxy.async")

    def fill_by_cp_async(self):
        agent, slot = self.some_agent(), self.rng.choice(self.shared_slots())
        self.come_to(slot, agent)
        size = self.data["slots"][slot]["bytes"] or 32
        self.tiles += 1
        if not self.do(agent, copy=slot, bytes=size, by="cp.async", **self.named()):
            return
        self.users[slot, self.rank(agent)] = {agent}
        if self.rng.random() < 0.5:
            self.do(agent, commit="cp.async")
            self.do(agent, wait_group="cp.async")
            return
        barrier = self.rng.choice(list(self.data["barriers"]))
        _, pending, _, _ = self.barrier_state(barrier, self.rank(agent))
        self.do(agent, cp_arrive=barrier, count=pending, noinc=True)
        self.land()
        reader = self.some_agent(self.rank(agent))
        if self.wait(reader, barrier):
            self.users[slot, self.rank(agent)] = {reader}

    def use(self):
        agent, slot = self.some_agent(), self.rng.choice(self.shared_slots())
        self.come_to(slot, agent)
        self.read(agent, slot)

    def read(self, agent, slot):
        """Read a slot by threads, by wgmma or by a store."""
        way = self.rng.choice(("read", "read", "wgmma", "store"))
        kind = {"wgmma": "wgmma", "store": "bulk"}.get(way)
        op = {"wgmma": "multiply"}.get(way, way)
        if kind and self.rng.random() < 0.3:
            self.do(agent, fence="proxy.async")
        named = self.named() if op != "store" and self.rng.random() < 0.8 else {}
        if not self.do(agent, **{op: [slot]}, **named):
            return
        if kind:
            self.do(agent, commit=kind)
            if self.rng.random() < 0.9:
                self.do(agent, wait_group=kind)
        self.users.setdefault((slot, self.rank(agent)), set()).add(agent)

    def multiply_into_tensor_memory(self):
        """tcgen05 reads a slot and writes tensor memory; somebody waits for it and reads that."""
        agent, slot = self.some_agent(), self.rng.choice(self.shared_slots())
        rank, barrier = self.rank(agent), self.rng.choice(list(self.data["barriers"]))
        self.come_to(slot, agent)
        self.come_to("acc", agent)
        if not self.do(agent, multiply=[slot], unit="tcgen05", into="acc"):
            return
        _, pending, _, _ = self.barrier_state(barrier, rank)
        for _ in range(pending):
            self.do(agent, commit=barrier)
        self.land(0.9)
        reader = self.some_agent(rank)
        self.users["acc", rank] = {reader}
        self.users[slot, rank] = {reader}
        if self.wait(reader, barrier):
            if self.rng.random() < 0.9:
                self.do(reader, fence="tcgen05.after")
            self.do(reader, read=["acc"])
            if self.rng.random() < 0.9:
                self.do(reader, fence="tcgen05.before")

    def stray(self):
        """A step for no reason."""
        self.do(self.some_agent(), **some_step(self.rng, self.data))

    def finish(self):
        """Whoever may leave too early waits, mostly; in a cluster all meet."""
        for agent in self.chip.agents:
            for kind in ("wgmma", "bulk"):
                opened, closed = self.world.groups[self.chip.group(agent, kind)]
                if (opened or closed) and self.rng.random() < 0.9:
                    self.do(agent, wait_group=kind)
        if self.chip.blocks == 2 and self.rng.random() < 0.8:
            self.meet()
