"""What an architecture lacks for a tile or a product: the consumer, or the kind of tcgen05 that multiplies its type."""

from __future__ import annotations

from tilescope.arch import Arch, architectures_with
from tilescope.data_type import DataType
from tilescope.errors import Violation, Wording
from tilescope.mma.consumer import CONSUMER, Consumer, consumers_of
from tilescope.mma.tcgen05_kind import tcgen05_for

# templates that apply to both, for every broken rule
CONSUMER_FOUND = "consumer = {consumer} on {arch}"
CONSUMER_LIMIT = "{consumer} exists on {homes:, }; {arch} has {consumers:, }"
CONSUMER_FIX = 'Use {consumer:="{own}"}, or {arch:="{home}"}.'
KIND_FOUND = "{data_type} on {arch}"
KIND_LIMIT = "kind {kind} of tcgen05.mma exists on {homes:, }"
KIND_FIX = 'Use {consumer:="ldmatrix"}, or {arch:="{home}"}.'


def missing_consumer(told: Wording, name: str, arch: Arch) -> list[Violation]:
    """The violation of a rule where the architecture does not have the consumer; else none."""
    consumers = consumers_of(arch)
    if name in consumers:
        return []
    homes = architectures_with(CONSUMER[name].feature)
    return [
        told.violation(
            consumer=name,
            arch=arch.name,
            homes=homes,
            home=homes[0],
            consumers=consumers,
            own=consumers[0],
        )
    ]


def missing_kind(told: Wording, consumer: Consumer, arch: Arch, data_type: DataType) -> list[Violation]:
    """The violation of a rule where the architecture has the instruction, but not for this type; else none."""
    if consumer.accumulators != "tensor memory":
        return []
    kind = tcgen05_for(data_type)
    if arch.has(kind.feature):
        return []
    homes = architectures_with(kind.feature)
    return [told.violation(data_type=data_type.name, arch=arch.name, kind=kind.name, homes=homes, home=homes[0])]
