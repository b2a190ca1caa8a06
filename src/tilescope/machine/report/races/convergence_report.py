"""The rules of convergence: threads of a warp come to a barrier, and to other instructions of the whole warp, together."""

from __future__ import annotations

from tilescope.arch import WARP_LANES
from tilescope.errors import Wording
from tilescope.machine.launch.launch import Launch
from tilescope.machine.report.places import name_instruction, name_line, name_threads, thread_index
from tilescope.rule import ptx_example, rule
from tilescope.sync.detector.race import Conflict, How, Mistake

CONVERGENCE = rule(
    "run-convergence",
    "All threads of a warp that have not exited execute a barrier together; for mma, ldmatrix, wgmma and other "
    ".aligned instructions, all 32 threads.",
    argument="{where}",
    found=(
        "at {at} {present} of block {block} execute {name}, and {missing} of the same warp do not[[: they left at {branch}]]"
        "[[; seen {met}]]"
    ),
    limit="{name} is .aligned: the behavior is undefined unless the whole warp executes it; a card gives no sign of it",
    fix="Move it out of the branch, to a place that all threads of the warp reach.",
    source="PTX ISA, bar, barrier, mma, ldmatrix, wgmma: the .aligned qualifier; measured on an H200: each warp counts once",
    passing=f"ts.Kernel({ptx_example('run-convergence.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-convergence.fail.ptx')}).run(1, 64).findings",
)
NO_PART_OF_WARP = CONVERGENCE.worded(
    found="at {at} {present} of block {block} execute {name}, and {missing} do not[[: they left at {branch}]][[; seen {met}]]",
    fix="Let all threads of the warps execute it, or return before it by whole warpgroups.",
)
SKIPPED_BARRIER = rule(
    "run-skipped-barrier",
    "A barrier without a thread count is reached by every warp of the block that has not exited.",
    argument="{where}",
    found="at {at} warps of block {block} arrive at {name}, which warp {warp} skipped at {branch}[[; seen {met}]]",
    limit="a barrier without a number of threads is for all threads of the block",
    fix="Move the barrier out of the branch, or use another barrier with the number of threads that arrive at it.",
    source="PTX ISA, bar; CUDA C++ Programming Guide, __syncthreads",
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-skipped-barrier.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-skipped-barrier.fail.ptx')}).run(1, 64).findings",
)
WARP_MASK = rule(
    "run-warp-mask",
    "Exactly the threads in the mask of a shfl, vote, match, redux or bar.warp.sync execute the instruction.",
    argument="{where}",
    found=(
        "at {at} {present} of block {block} execute {name}, and {missing}, which the mask names, do not[[: they left at {branch}]]"
        "[[; seen {met}]]"
    ),
    limit="the instruction waits for all threads of its mask that have not exited; without them its result is undefined",
    fix="Move it out of the branch, or name only the threads that execute it.",
    source="PTX ISA, shfl.sync, vote.sync, match.sync, redux.sync, bar.warp.sync",
    passing=f"ts.Kernel({ptx_example('run-warp-mask.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-warp-mask.fail.ptx')}).run(1, 32).findings",
)
OWN_MASK = WARP_MASK.worded(
    found="at {at} {who} executes {name} with the mask {mask:#010x}, which does not name it[[; seen {met}]]",
    limit="a thread that is not in its own mask gets an undefined result",
    fix="Name all threads that execute it, or let only the threads of the mask execute it.",
)
UNDEFINED_LANE = rule(
    "run-undefined-lane",
    "If a store, an address or a branch depends on a shuffled value, it comes from a lane that executes the shuffle "
    "and is in its mask.",
    argument="{where}",
    found=(
        "at {at} {who} gets a value by {name} from a lane that does not take part, and uses it as {use} at {used_where}[[; seen {met}]]"
    ),
    limit="the value of a lane that has exited, is elsewhere or is not in the mask is undefined",
    fix="Let all lanes that are read execute the shuffle and be in its mask, or use the value only where its source lane takes part.",
    source="PTX ISA, shfl.sync",
    passing=f"ts.Kernel({ptx_example('run-undefined-lane.pass.ptx')}).run(1, 48, [np.zeros(48, np.uint32)]).findings",
    failing=f"ts.Kernel({ptx_example('run-undefined-lane.fail.ptx')}).run(1, 48, [np.zeros(48, np.uint32)]).findings",
)
_USES: dict[How, str] = {
    "store": "a value to store",
    "address": "an address",
    "branch": "the condition of a branch",
}

CONVERGENCE_WORDINGS: dict[Mistake, Wording] = {
    "convergence": CONVERGENCE.wording,
    "skipped barrier": SKIPPED_BARRIER.wording,
    "mask": WARP_MASK.wording,
    "own mask": OWN_MASK,
    "undefined lane": UNDEFINED_LANE.wording,
}


def convergence_wording(conflict: Conflict) -> Wording:
    """The wording for lanes that are missing at an instruction."""
    if conflict.mistake == "convergence" and not conflict.facts["present"]:
        return NO_PART_OF_WARP
    return CONVERGENCE_WORDINGS[conflict.mistake]


def describe_convergence(launch: Launch, conflict: Conflict) -> dict[str, object]:
    """The facts of a finding about lanes that are missing at an instruction."""
    instruction = launch.program.instructions[conflict.now.pc]
    assert instruction is not None
    warps_of_block = launch.block_lanes // WARP_LANES
    other = None if conflict.before is None else name_instruction(launch.program, conflict.before.pc)
    facts: dict[str, object] = {
        "where": name_instruction(launch.program, conflict.now.pc),
        "at": name_line(launch.program, conflict.now.pc),
        "block": conflict.block,
        "name": instruction.opcode,
        "branch": other,
    }
    if conflict.mistake in ("own mask", "undefined lane"):
        assert conflict.now.lane is not None
        thread = thread_index(launch, conflict.now.lane % launch.block_lanes)
        facts["who"] = f"thread {thread} of block {conflict.block}"
        facts["mask"] = conflict.facts.get("mask")
        facts["used_where"] = other
        facts["use"] = None if conflict.before is None else _USES[conflict.before.how]
        return facts
    facts["warp"] = conflict.facts["warp"] % warps_of_block
    if conflict.mistake == "skipped barrier":
        return facts
    first = conflict.facts["warp"] % warps_of_block * WARP_LANES
    present = conflict.facts["present"]
    if present:
        facts["present"] = name_threads(_find_threads(first, present))
    else:
        assert conflict.now.lane is not None
        facts["present"] = f"the warp of thread {conflict.now.lane % launch.block_lanes}"
    facts["missing"] = name_threads(_find_threads(first, conflict.facts["missing"]))
    return facts


def _find_threads(first: int, mask: int) -> list[int]:
    """The numbers of the threads of a warp whose bits are set."""
    return [first + lane for lane in range(WARP_LANES) if mask >> lane & 1]
