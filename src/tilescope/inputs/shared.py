"""The inputs that most questions have, and those of a swizzle mode."""

from __future__ import annotations

from dataclasses import replace

from tilescope.data_type import DATA_TYPE
from tilescope.inputs import Input
from tilescope.swizzle import SWIZZLE
from tilescope.written import smem_address

TYPE = Input(
    "data_type",
    "--type",
    "Element type",
    "bf16, u8, e4m3, …, or a driver's name.",
    choices=tuple(DATA_TYPE),
    is_open=True,
)
SMEM_ADDRESS = Input("smem_address", "--smem-address", "Shared address", read=smem_address, unsaid="0x0")
START = replace(SMEM_ADDRESS, option="--smem-address --address")  # where nothing else has an address
MODE = (
    Input("mode", "", "Mode", "a mode, a driver name, or xor:B,M,S: CuTe's Swizzle<B,M,S> on byte addresses.",
          choices=tuple(SWIZZLE), is_open=True),
    replace(START, name="address", hint="of the first line drawn."),
)  # fmt: skip
