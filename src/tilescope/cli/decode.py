"""`tilescope decode`: what a number from a debugger means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from tilescope.cli.map_source import read_source
from tilescope.cli.options import number, output_options
from tilescope.cli.output import Output
from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.mma.readings import descriptor_readings, pasted_word
from tilescope.tensor_map.decoding import inspect_tensor_map
from tilescope.tensor_map.paste import pasted_descriptor
from tilescope.view.mbarrier_view import barrier_readings


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--major", default="K", metavar="K|MN", help="Which dimension is contiguous. [default: K]")
@click.option("--type", "data_type", default="bf16", metavar="TYPE", help="Element type. [default: bf16]")
@click.option("--addresses", is_flag=True, help="List the address of every 16 bytes that one instruction reads.")
@click.option("--rows", type=number, default="64", help="mn that the instruction reads. [default: 64]")
@output_options
def decode(
    words: tuple[str, ...], major: str, data_type: str, addresses: bool, rows: int, output: Output
) -> int | None:
    """Explain WORDS: a tensor map, any descriptor number of a tensor core, or an mbarrier, field by field.

    A tensor map is 128 bytes: 256 hexadecimal digits, 16 or 32 words as cuda-gdb or printf show them (any separators,
    0x or not), JSON, or a file with any of these or with the bytes themselves; - is stdin.

    \b
    tilescope decode map.bin
    tilescope decode - < words-from-cuda-gdb.txt
    tilescope decode 0x4000004000010040 --major K --type bf16
    tilescope decode 0x08200490
    tilescope decode 0x000003f0001ffffe

    A number is read as everything it could be: the 64-bit descriptors of wgmma and tcgen05, up to 32 bits tcgen05's instruction
    descriptor of each kind, and an mbarrier or the token of an arrival. Majorness and element type of an operand are not in its word; the
    instruction has them, so say them with --major and --type. Exit status 1: the bytes or bits are no descriptor.
    """  # noqa: D301  \b keeps the lines below it apart
    if rows < 1:
        raise click.BadParameter(f"{rows} rows; an instruction reads at least 1.", param_hint="--rows")
    word = pasted_word(words[0]) if len(words) == 1 else None
    if word is not None:
        return show_descriptor_word(word, major, data_type, rows if addresses else None, output)
    try:
        source = read_source(words)
    except RuleError as error:
        raise RuleError(_or_a_word(violation) for violation in error.violations) from None
    found = inspect_tensor_map(source.tensor_map().encode() if source.blob is None else source.blob)
    output.show(found)
    return 0 if found.tensor_map is not None else 1


def _or_a_word(violation: Violation) -> Violation:
    """What is neither a tensor map nor a descriptor word is told of both."""
    if violation.rule != pasted_descriptor.name:
        return violation
    return replace(violation, limit=f"one integer of at most 64 bits, or {violation.limit}")


def show_descriptor_word(word: int, major: Any, data_type: str, rows: int | None, output: Output) -> int:
    """Draw what a number could be, with its reads where `rows` are asked for; 1 where it is no descriptor."""
    found = descriptor_readings(word, major=major, element_bits=DataType.named(data_type).smem_bits)
    extra: dict[str, Any] = {}
    operands = [each for each in found.possible if each.major is not None]
    if rows is not None and operands:
        bits = operands[0].element_bits or 0
        read = operands[0].descriptor.addresses(operands[0].major, rows, K_STEP_BYTES * 8 // bits, bits)
        extra = {"addresses": [[hex(address) for address in line] for line in read.tolist()]}
    barriers = barrier_readings(word)
    extra |= {name.replace(" ", "_"): each.to_dict() for name, each in barriers.items()}
    output.show(found, extra=extra, rows=rows)
    return 0 if found.possible or barriers else 1
