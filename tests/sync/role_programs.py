"""Role programs written by hand: agents of one block that arrive, wait, read and write."""

from tilescope.sync.role_program import Action, Agent, BarrierInstance, RoleProgram, SlotInstance
from tilescope.sync.thread_limits import BARS


def action(op, *, barriers=(), slots=(), number=0, times=1, choice="", flag=False):
    return Action(op, tuple(barriers), tuple(slots), number, times, flag, choice, into=(), tile=None, mask=0)


def arrive(barrier, times=1):
    return action("arrive", barriers=[barrier], times=times)


def wait(barrier, parity=0):
    return action("wait", barriers=[barrier], number=parity)


def write(slot=0):
    return action("write", slots=[slot])


def read(slot=0):
    return action("read", slots=[slot])


def fence(kind="proxy.async"):
    return action("fence", choice=kind)


def store(slot=0):
    return action("store", slots=[slot])


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
        has_weak_arrivals=False,
        starts_late=False,
    )
