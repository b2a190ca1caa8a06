"""At which blocks of a cluster arrivals count: a leading role acts for all blocks, a multicast tile is filled in all.

role waits        role arrives       goes to              count
in every block    in every block     its own block        as in one block
in block 0        in every block     block 0              that of all blocks
in every block    in block 0         every block          as in one block
loads for all     in every block     every block          that of all blocks: the slots of all are free
"""

from __future__ import annotations

from collections.abc import Collection

from tilescope.kernel_plan.kernel_description import KernelParts


def acting_blocks(kernel: KernelParts) -> int:
    """Blocks of the cluster that communicate; 1: every block works independently."""
    crosses = any(role.leader for role in kernel.roles) or any(tile.multicast for tile in kernel.tiles)
    return kernel.cluster if crosses else 1


def every_block(kernel: KernelParts) -> int:
    """A mask of all blocks of the cluster."""
    return (1 << acting_blocks(kernel)) - 1


def leads(kernel: KernelParts, roles: Collection[str]) -> bool:
    """Whether these roles are only in block 0."""
    return acting_blocks(kernel) > 1 and any(kernel.role(name).leader for name in roles)


def is_multicast(kernel: KernelParts, tiles: Collection[str]) -> bool:
    """Whether one of these tiles is loaded by a block for all of them."""
    return acting_blocks(kernel) > 1 and any(kernel.tile(name).multicast for name in tiles)


def arrival_mask(
    kernel: KernelParts, arriving: str, waiting: Collection[str], freed: Collection[str] = ()
) -> int | None:
    """The blocks at which a role arrives; None: its own. `freed` are the tiles that the arrival releases."""
    if leads(kernel, waiting):
        return 1
    if leads(kernel, [arriving]) or is_multicast(kernel, freed):
        return every_block(kernel)
    return None


def arrival_factor(kernel: KernelParts, arriving: str, waiting: Collection[str], freed: Collection[str] = ()) -> int:
    """How many blocks' roles of this name arrive at one barrier."""
    from_all = leads(kernel, waiting) or is_multicast(kernel, freed)
    return acting_blocks(kernel) if from_all and not leads(kernel, [arriving]) else 1
