"""Rows of tables as topics: swizzle modes, data types, architectures, fields of a tensor map.

>>> swizzle_topic("SW128").name, type_topic("bf16").name, arch_topic("sm_90a").name
('128B', 'bfloat16', 'sm_90')
>>> type_topic("bf17") is None
True
"""

from __future__ import annotations

import re

from tilescope.arch import KIB, SHARED_ROWS, Arch, target_of
from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.swizzle import Swizzle
from tilescope.swizzle.swizzle_facts import facts, rule_sentence, used_by
from tilescope.symptoms.topic import Topic
from tilescope.tensor_map import field_topics


def _bare_mode(name: str) -> str:
    """The mode that a phrase names: "128B swizzle mode", or SW128 as CuTe's atoms write it."""
    bare = re.sub(r"(?i)\bswizzl(?:e|ing)\b(?!<)|\bmode\b", " ", name).strip()
    return re.sub(r"(?i)^(?:K_|MN_)?SW(\d+)$", r"\1B", bare) or name


def swizzle_topic(name: str) -> Topic | None:
    """The swizzle that a name or a phrase denotes, as a topic; None if there is none."""
    for spelling in (name, _bare_mode(name)):
        try:
            return _mode_topic(Swizzle.named(spelling))
        except RuleError:
            continue
    return None


def _mode_topic(row: Swizzle) -> Topic:
    row_facts = facts(row)
    mode = row.hardware_mode
    sentences = [rule_sentence(row)]
    if row.feature is None:
        sentences.append(f"In C: {row_facts['C']}.")
        sentences.append(f"The pattern repeats {row_facts['repeats']}.")
        sentences.append(f"Used by {used_by(row)}." if mode is None else f"It is {used_by(row)}.")
        see = ("swizzle",) if mode is None else ("swizzle", mode.name, "span")
        return Topic(row.name, "swizzle modes", " ".join(sentences), see)
    sentences.append(f"The inner row of a box is {row_facts['inner width']}.")
    if row.bits:
        sentences.append(f"The pattern repeats {row_facts['repeats']}.")
    sentences.append(f"TMA has it on {', '.join(row.architectures)}; {row_facts['basis']}.")
    if "note" in row_facts:
        sentences.append(row_facts["note"])
    sentences.append(f"`tilescope swizzle {row.name}` draws it.")
    return Topic(row.name, "swizzle modes", " ".join(sentences), ("swizzle", "span", "base offset"))


def type_topic(name: str) -> Topic | None:
    """The data type of that name, as a topic; None if there is none."""
    try:
        row = DataType.named(name)
    except RuleError:
        return None
    width = "1 bit" if row.bits == 1 else f"{row.bits} bits"
    sentences = [f"A {_kind_of_type(row)} of {width} an element, in PTX `.{row.ptx}`."]
    if row.driver_code is None:
        sentences.append(f"TMA does not know it and moves it as {row.tma_name}.")
    else:
        fill = "zero or NaN" if row.is_float else "zero"
        sentences.append(
            f"TMA knows it: the driver's number for it is {row.driver_code}, that of PTX {row.ptx_code}. "
            f"Fill outside the tensor is {fill}."
        )
    if row.smem_bits != row.bits:
        sentences.append(f"In shared memory an element takes {row.smem_bits} bits, padding included.")
    return Topic(row.name, "data types", " ".join(sentences), ("tensor map", "out-of-bounds fill"))


def _kind_of_type(row: DataType) -> str:
    if row.is_float:
        return "floating-point type"
    return "type" if row.name.startswith(("16u", "b1")) else "integer type"


def arch_topic(name: str) -> Topic | None:
    """The architecture or target of that name, as a topic; None if there is none."""
    try:
        row = Arch.named(name)
    except RuleError:
        return None
    target = target_of(name)
    shown = target if target in SHARED_ROWS else row.name
    special = _features(row, f"{row.name}a")
    smem_per_sm = f"{row.smem_per_sm_bytes // KIB} KiB of shared memory an SM"
    smem_per_block = f"at most {row.smem_per_block_bytes // KIB} KiB a block"
    sentences = [
        f"Compute capability {shown[3:-1]}.{shown[-1]}, with {smem_per_sm} and {smem_per_block}.",
        f"At most {row.blocks_per_sm} blocks an SM.",
        f"Code for {shown} has {_features(row, row.name)}.",
    ]
    if special:
        sentences.append(f"Code for {shown}a also has {special}.")
    if shown != row.name:
        sentences.append(f"These are the facts of {row.name}, whose row it shares.")
    basis = "was measured on a card" if row.basis == "measured" else "is known from documentation"
    sentences.append(f"What tilescope says about it {basis}.")
    return Topic(shown, "architectures", " ".join(sentences), ("TMA", "wgmma", "tcgen05"))


def _features(row: Arch, target: str) -> str:
    """What code for a target of the architecture has."""
    return ", ".join(feature.replace("_", " ") for feature in row.features if row.target(feature) == target)


def field_topic(name: str) -> Topic | None:
    """The field of a tensor map of that name, as a topic; None if there is none."""
    field = field_topics.topic(name)
    return None if field is None else Topic(field.name, "tensor map fields", field.meaning, field.see, field.facts)
