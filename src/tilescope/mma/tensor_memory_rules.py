"""What tensor memory, its copies, scale factors and two-block products demand."""

from __future__ import annotations

from tilescope.rule import rule

ARRAY = rule(
    "array",
    "An array holds plain numbers in rows of equal length; one that is written to is writeable.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
INSTRUCTION = rule(
    "instruction",
    "A tensor-core instruction is one that PTX has, such as mma.m16n8k16 or wgmma.m64n128k16.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
MMA_GROUP = rule(
    "mma-group",
    "One block multiplies, or, with tcgen05, a pair.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
MMA_LANES = rule(
    "mma-lanes",
    "disable-output-lane is one 32-bit mask for each quarter of each block.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
MMA_MATRIX = rule(
    "mma-matrix",
    "A and B of a product are matrices: arrays of two dimensions.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
MMA_SCALES = rule(
    "mma-scales",
    "A block-scaled product has a kind, and one scale byte for each block of both operands.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
PAIR_CLUSTER = rule(
    "pair-cluster",
    "A cluster of pairs has an even number of blocks in x, and at most 16.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
PAIR_RANK = rule(
    "pair-rank",
    "The blocks of a pair have ranks 0 and 1.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
SCALE_ARRAY = rule(
    "scale-array",
    "Scale factors have one byte each.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
SCALE_ID = rule(
    "scale-id",
    "The immediates of a block-scaled mma.sync are those that its scale_vec allows.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
SCALE_K = rule(
    "scale-k",
    "An instruction begins at a multiple of its own k, which its kind decides.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
SCALE_OPERAND = rule(
    "scale-operand",
    "Scale factors belong to A or to B.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
SCALE_ROWS = rule(
    "scale-rows",
    "For B of a pair with m = 128, each half of n is a multiple of 32 columns.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
SCALE_SIZE = rule(
    "scale-size",
    "Packed scale factors are whole atoms of 512 bytes, padding included.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TILE_INDEX = rule(
    "tile-index",
    "An index lies inside the tile.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_ADDRESS = rule(
    "tmem-address",
    "An address of tensor memory has its lane in bits 16-22 and its column in bits 0-8; the others are zero.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_ALLOC = rule(
    "tmem-alloc",
    "tcgen05.alloc takes 32, 64, 128, 256 or 512 columns.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_ALLOC_ORDER = rule(
    "tmem-alloc-order",
    "Successive allocations of a block should not grow.",
    source="PTX ISA, Tensor Memory and tcgen05",
    severity="warning",
)
TMEM_BUDGET = rule(
    "tmem-budget",
    "Accumulators, A, metadata and scale factors fit into 512 columns together.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_COUNT = rule(
    "tmem-count",
    "A shape of tcgen05.ld and st has counts from .x1 to its largest, powers of two.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_CP_COLUMN = rule(
    "tmem-cp-column",
    "Every kernel seen copies to a multiple of 4 columns.",
    source="PTX ISA, Tensor Memory and tcgen05",
    severity="warning",
)
TMEM_CP_SHAPE = rule(
    "tmem-cp-shape",
    "tcgen05.cp has six shapes; those of 64 and 32 rows are multicast to two or four quarters.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_DATAPATH = rule(
    "tmem-datapath",
    "tcgen05.mma has certain m for one block, a pair and .ws; PTX calls their layouts A to G.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_DEALLOC = rule(
    "tmem-dealloc",
    "dealloc gives back exactly what one alloc got.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_DECOMPRESSION = rule(
    "tmem-decompression",
    "Where 4- and 6-bit values land in their bytes rests on one source, or is unconfirmed.",
    source="PTX ISA, Tensor Memory and tcgen05",
    severity="note",
)
TMEM_EXTENT = rule(
    "tmem-extent",
    "What lies in tensor memory, or is moved there, stays within 128 lanes and 512 columns.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_FULL = rule(
    "tmem-full",
    "alloc waits until a free range is found; a block that holds the columns itself would wait forever.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_K = rule(
    "tmem-k",
    "A in tensor memory is a whole number of instructions along k; metadata is that of one instruction.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_LANE = rule(
    "tmem-lane",
    "D, A and metadata start at a multiple of 32 lanes (layouts C and F also 16 further on), loads at their quarter.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_N = rule(
    "tmem-n",
    "An accumulator is as wide as one instruction allows.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_PACK = rule(
    "tmem-pack",
    "tcgen05.ld packs two columns into a register, tcgen05.st unpacks them.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_PARTS = rule(
    "tmem-parts",
    "A budget is made of layouts of tensor memory by name, or (layout, count).",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_REDUCTION = rule(
    "tmem-reduction",
    "tcgen05.ld.red exists for .32x32b and .16x32bx2 with counts from .x2 on, and one of .min, .max.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_REGISTERS = rule(
    "tmem-registers",
    "A load or store moves 32 lanes' registers of 32 bits, as many as its shape and count say.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_SHIFT = rule(
    "tmem-shift",
    "How many rows tcgen05.shift moves is not documented.",
    source="PTX ISA, Tensor Memory and tcgen05",
    severity="note",
)
TMEM_TYPE = rule(
    "tmem-type",
    "Accumulators are float32, float16 or int32.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_UNKNOWN = rule(
    "tmem-unknown",
    "Where no document says how a matrix lies in tensor memory, tilescope does not guess.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_WARP = rule(
    "tmem-warp",
    "A warp is counted from 0 within its block.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_QUARTER = rule(
    "tmem-quarter",
    "A warp reaches the 32 lanes of the quarter that is its number modulo 4.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_SPLIT = rule(
    "tmem-split",
    "Only .16x32bx2 has an immediate: how many columns its second half lies further on.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_UNALLOCATED = rule(
    "tmem-unallocated",
    "Instructions touch columns that the block has allocated.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_RELINQUISHED = rule(
    "tmem-relinquished",
    "A block that gave up its right to allocate does not allocate again.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_CELLS = rule(
    "tmem-cells",
    "Tensor memory is 128 x 512 cells of 32 bits.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_FINDINGS = rule(
    "tmem-findings",
    "Findings are violations.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
TMEM_LEAK = rule(
    "tmem-leak",
    "A kernel frees all columns before it ends.",
    source="PTX ISA, Tensor Memory and tcgen05",
)
