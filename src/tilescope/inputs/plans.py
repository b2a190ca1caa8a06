"""The inputs of questions about plans, products and pipelines."""

from __future__ import annotations

from dataclasses import replace

from tilescope.arch import ARCH
from tilescope.card import CARD
from tilescope.inputs import Input, flag
from tilescope.inputs.tiles import ATOM_ORDER, ELEMENT_TYPE, MAJOR, TILE
from tilescope.mma.consumer import CONSUMER
from tilescope.planner.problem import COPIES
from tilescope.swizzle import SWIZZLE
from tilescope.written import extents, number, numbers, product, tile

ARCHITECTURE = Input("arch", "--arch", "Architecture", default="the card's, or sm_90", choices=tuple(ARCH))
CARD_INPUT = Input(
    "card",
    "--card",
    "Card",
    "whose measured or documented rates rank the plans.",
    default="the architecture's",
    choices=tuple(CARD),
    is_open=True,
)
CONSUMER_INPUT = Input(
    "consumer", "--consumer", "Read by", default="the best tensor core", choices=tuple(CONSUMER), is_open=True
)
COPIED_BY = Input("copy", "--copy", "Copied by", default="TMA if the architecture has it", choices=COPIES)
DIRECTION = Input("direction", "--direction", "Direction", default="load", choices=("load", "store"))
STAGES = Input("stages", "--stages", "Stages", read=number)

PLAN = (
    TILE,
    ELEMENT_TYPE,
    MAJOR,
    replace(CONSUMER_INPUT, hint='one of wgmma, tcgen05, ldmatrix, or a pattern: "ld.b128 columns".'),
    ARCHITECTURE,
    CARD_INPUT,
    Input("swizzle", "--swizzle", "Swizzle", default="the best", choices=tuple(SWIZZLE), is_open=True),
    replace(ATOM_ORDER, hint="", default="the best"),
    Input("operand", "--operand", "Operand", default="either", choices=("A", "B")),
    replace(STAGES, default="1"),
    COPIED_BY,
    DIRECTION,
    Input("traffic", "--traffic", "Traffic", default="dense", choices=("dense", "sparse")),
    Input("fold", "--fold", "Also try maps of rank 3 and 4", read=flag),
    Input("global_shape", "--global-shape", "Whole matrix", "as mn x k.", tile, "the tile"),
    Input("strides_bytes", "--strides-bytes", "Strides in bytes", "from row to row of the matrix.", numbers, "dense"),
)
GEMM = (
    Input("shape", "", "Product", "in elements, m x n x k.", product),
    ELEMENT_TYPE,
    ARCHITECTURE,
    CARD_INPUT,
    CONSUMER_INPUT,
    Input("tile", "--tile", "Tile", "this one instead of the best.", product),
    replace(STAGES, default="as many as fit and help"),
    Input("a_major", "--a-major", "Contiguous in A", default="K", choices=MAJOR.choices),
    Input("b_major", "--b-major", "Contiguous in B", default="K", choices=MAJOR.choices),
    Input("output_type", "--output-type", "Type of C", default="TYPE; s32 for b1"),
    Input("sms", "--sms", "SMs to plan for", "", number, "the card's"),
)
PROBLEM = (ARCHITECTURE, CONSUMER_INPUT, COPIED_BY, DIRECTION)  # of a pipeline's tiles
PIPELINE = (
    replace(STAGES, default="those of the plan"),
    Input("consumers", "--consumers", "Consumers", "warpgroups.", number, "1; a GEMM of 128 rows or more: 2"),
    Input("steps", "--steps", "K steps", read=number, default="4 x stages + 2"),
    Input("cluster", "--cluster", "Cluster", "blocks, x by y.", extents, "1x1"),
    Input("arrivals", "--arrivals", "Arrivals", "a consumer arrives once per warpgroup, warp or thread.",
          default="warpgroup; warp if threads read the tile", choices=("warpgroup", "warp", "thread")),
    Input("no_multicast", "--no-multicast", "Every block loads its own tiles", read=flag),
    Input("cta_group", "--cta-group", "Blocks that multiply together",
          "2 for a pair (tcgen05). A tile is then that of the pair, and each block brings half.", number, "1"),
)  # fmt: skip
