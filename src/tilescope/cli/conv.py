"""`tilescope conv`: the im2col map of a convolution."""

from __future__ import annotations

from typing import Any

import click

from tilescope.cli.options import extents, given, numbers, output_options
from tilescope.cli.output import Output
from tilescope.errors import TensorMapError
from tilescope.tensor_map.arguments import MapReport
from tilescope.tensor_map.convolution import PASSES
from tilescope.tensor_map.im2col import Convolution


@click.command()
@click.argument("image", type=extents, metavar="NxHxWxC")
@click.argument("filters", type=extents, metavar="KxRxS")
@click.argument("data_type", metavar="TYPE")
@click.option("--direction", type=click.Choice(PASSES), help="[default: forward]")
@click.option("--pad", type=numbers, metavar="P[,P]", help="One number, or one for each dimension. [default: 0]")
@click.option("--stride", type=numbers, metavar="T[,T]", help="[default: 1]")
@click.option("--dilation", type=numbers, metavar="E[,E]", help="[default: 1]")
@click.option("--channels", "channels_per_pixel", type=int, help="Of one copy. [default: a span of the widest swizzle]")
@click.option("--pixels", "pixels_per_column", type=int, help="Of one copy. [default: 128]")
@click.option("--swizzle", metavar="MODE", help="[default: the widest that divides the channels]")
@click.option("--arch", help="[default: sm_90]")
@output_options
def conv(image: tuple[int, ...], filters: tuple[int, ...], data_type: str, output: Output, **options: Any) -> int:
    """Make the im2col map of a convolution, with the corners, the strides and the offsets of every filter tap.

    The image is NxWxC, NxHxWxC or NxDxHxWxC, channels last; the filter is its count and taps: KxS, KxRxS, KxTxRxS.

    \b
    tilescope conv 8x56x56x64 128x3x3 bf16 --pad 1
    tilescope conv 8x56x56x64 128x3x3 bf16 --pad 1 --direction dgrad
    tilescope conv 2x16x32x32x64 64x3x3x3 f16 --pad 1 --direction wgrad

    wgrad's map is that of the activations. Exit status 1: there is no such map, as for dgrad with a stride, and why.
    """  # noqa: D301  \b keeps the lines below it apart
    try:
        found = Convolution.of(image, filters, data_type, **given(options))
    except TensorMapError as error:
        output.show(MapReport(False, error.violations, None))
        return 1
    output.show(found)
    return 0
