"""`tilescope decode`: what a number from a debugger means."""

from __future__ import annotations

import click

from tilescope.cli.options import number, output_options
from tilescope.cli.output import Output
from tilescope.data_type import DataType
from tilescope.errors import broken, shortened
from tilescope.mma.descriptor_word import inspect_descriptor

DESCRIPTOR_BITS = 64


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--major", default="K", metavar="K|MN", help="Which dimension is contiguous. [default: K]")
@click.option("--type", "data_type", default="bf16", metavar="TYPE", help="Element type. [default: bf16]")
@click.option("--addresses", is_flag=True, help="List the address of every 16 bytes that one instruction reads.")
@click.option("--rows", type=number, default=64, help="mn that the instruction reads. [default: 64]")
@output_options
def decode(
    words: tuple[str, ...], major: str, data_type: str, addresses: bool, rows: int, output: Output
) -> int | None:
    """Explain WORDS: a 64-bit wgmma descriptor such as 0x4000004000010040, field by field.

    Majorness and element type are not in the word; the instruction has them, so say them with --major and --type.
    """
    word = descriptor_word(words)
    if word is None:
        raise broken(
            "decode-input", "words", shortened(" ".join(words)), "one integer of at most 64 bits is a descriptor word",
            "Give one word, such as 0x4000004000010040.",
        )  # fmt: skip
    return show_descriptor_word(word, major, data_type, rows if addresses else None, output)


def descriptor_word(words: tuple[str, ...]) -> int | None:
    """The number that the words are, if they are one integer of at most 64 bits.

    >>> descriptor_word(("0x40",)), descriptor_word(("1", "2")), descriptor_word(("0x1" + 16 * "0",))
    (64, None, None)
    """
    try:
        (text,) = words
        word = int(text, 0)
    except ValueError:
        return None
    return word if 0 <= word < 1 << DESCRIPTOR_BITS else None


def show_descriptor_word(word: int, major: str, data_type: str, rows: int | None, output: Output) -> int:
    """Draw a descriptor word, with its reads where `rows` are asked for; 1 where it is no descriptor."""
    bits = DataType.named(data_type).smem_bits
    found = inspect_descriptor(word, major=major, element_bits=bits)
    extra = {}
    if rows is not None and found.descriptor is not None:
        read = found.descriptor.addresses(found.major, rows, 32 * 8 // bits, bits)
        extra = {"addresses": [[hex(address) for address in line] for line in read.tolist()]}
    output.show(found, extra=extra, rows=rows)
    return 0 if found.descriptor is not None else 1
