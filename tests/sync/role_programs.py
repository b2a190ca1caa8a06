"""Role programs written by hand: agents of one block that arrive, wait, read and write."""

from tilescope.sync.role_events import (
    BulkStoreIssued,
    CopyIssued,
    Load,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    ProxyFence,
    Store,
)
from tilescope.sync.role_program import Agent, BarrierInstance, RoleProgram, SlotInstance
from tilescope.sync.thread_limits import BARS


def arrive(barrier, arrivals=1):
    return MbarrierArrive(barriers=(barrier,), arrivals=arrivals)


def wait(barrier, parity=0):
    return MbarrierWait(barriers=(barrier,), parity=parity)


def write(slot=0):
    return Store(slots=(slot,))


def read(slot=0):
    return Load(slots=(slot,))


def arrive_and_expect(barrier, size_bytes):
    return MbarrierArrive(barriers=(barrier,), expected_bytes=size_bytes)


def expect(barrier, size_bytes):
    return MbarrierExpect(barriers=(barrier,), size_bytes=size_bytes)


def copy(barrier, size_bytes=64, slot=0):
    return CopyIssued(barriers=(barrier,), slots=(slot,), size_bytes=size_bytes, how="tma")


def fence():
    return ProxyFence()


def store(slot=0):
    return BulkStoreIssued(slots=(slot,))


def role_program(*roles, mbarriers=(1,), warps=1):
    """A block whose roles do these actions; `mbarriers` are the arrivals that each needs. It has one slot of 64 bytes."""
    names = [*("mbarrier" for _ in mbarriers), *("bar" for _ in range(BARS)), "cluster", "grid"]
    return RoleProgram(
        agents=[
            Agent(f"role {number}", home=0, warps=warps, actions=lambda steps=steps: iter(steps))
            for number, steps in enumerate(roles)
        ],
        barriers=[
            BarrierInstance(name, home=0, arrivals=mbarriers[number] if name == "mbarrier" else 0)
            for number, name in enumerate(names)
        ],
        slots=[SlotInstance("a", home=0, bytes=64, space="smem")],
        blocks=1,
        cluster_blocks=1,
        mbarriers=len(mbarriers),
        cluster=len(mbarriers) + BARS,
        first_flag=len(mbarriers) + BARS + 1,
        grid=len(mbarriers) + BARS + 1,
        registers=0,
        thresholds={},
        initialises=False,
        invalidates=False,
        has_weak_arrivals=False,
        starts_late=False,
    )
