"""Terms explained in a few sentences. Data only: `topics` finds them, `explain` prints them."""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """A word, what it means, other spellings, and what to read next."""

    name: str
    meaning: str
    aliases: tuple[str, ...] = ()
    see: tuple[str, ...] = ()


TERMS = (
    Term(
        "swizzle",
        "A fixed permutation of the 16-byte chunks inside each 128-byte line of shared memory: the line's number "
        "is XORed into the chunk's number. Chunks that lie below each other in a tile then fall into different "
        "banks, and a column of them can be read without conflicts. TMA applies it on the way into shared memory "
        "and undoes it on the way out, the tensor core undoes it as its descriptor says, and code that touches "
        "the bytes itself must apply the same XOR to the absolute shared address. Every mode is its own inverse.",
        ("swizzling", "swizzle mode"),
        ("chunk", "line", "span", "base offset", "128B"),
    ),
    Term(
        "chunk",
        "16 bytes of shared memory at a multiple of 16: four neighbouring banks, eight chunks to a line. Most "
        "swizzle modes move single chunks, and ldmatrix reads one chunk as a row of a matrix.",
        ("chunks",),
        ("line", "bank", "atom"),
    ),
    Term(
        "line",
        "128 bytes of shared memory at a multiple of 128: one pass over the 32 banks. The line's number is the "
        "absolute shared address divided by 128. A line is not a row of a box: two rows of 64 bytes or four rows "
        "of 32 bytes share one line and its XOR, which is why `row % 4` gives the wrong chunk in the 64B mode.",
        ("lines", "smem line"),
        ("chunk", "bank", "swizzle"),
    ),
    Term(
        "span",
        "The widest row, in bytes, that a swizzle mode takes: 32 for 32B, 64 for 64B, 96 for 96B and 128 for the "
        "128B modes. Without interleave, box[0] times the element size must not exceed it. A narrower row still "
        "takes a whole span in shared memory, and the bytes of the gap keep what they held before.",
        ("swizzle width",),
        ("box", "swizzle"),
    ),
    Term(
        "atom",
        "Two things have this name. The atom of a swizzle is the piece it moves whole: 16 bytes, or 32 and 64 in "
        "the modes 128B_ATOM_32B and 128B_ATOM_64B. The atom of a tensor-core layout is the smallest tile that is "
        "stored whole: 8 rows of one span (K-major), or one span by 8 values of k (MN-major).",
        ("atoms", "swizzle atom", "atomicity"),
        ("chunk", "span", "core matrix"),
    ),
    Term(
        "period",
        "The number of lines after which a swizzle pattern starts again: 2 for 32B, 4 for 64B, 8 for 128B, which "
        "makes 256, 512 and 1024 bytes. A buffer aligned to that many bytes starts at the top of the pattern.",
        ("repeat", "repeat bytes", "pattern"),
        ("base offset", "line"),
    ),
    Term(
        "base offset",
        "The line of the swizzle pattern on which a buffer starts: (shared address / 128) modulo the period. It "
        "is 0 for a buffer aligned to the pattern (1024, 512, 256 bytes for 128B, 64B, 32B). TMA and the tensor "
        "core take the line from the absolute address, so nothing has to be corrected; code that indexes from the "
        "start of its buffer has to add it. A wgmma descriptor has a field of that name in bits 49-51, subtracted "
        "from the line number before the XOR: 0 leaves the pattern where the absolute address puts it.",
        ("matrix base offset",),
        ("period", "line", "matrix descriptor"),
    ),
    Term(
        "bank",
        "Shared memory is 32 banks, each 4 bytes wide: bank = (byte address / 4) mod 32. In one pass each bank "
        "serves one 4-byte word; lanes that want the same word share it, different words of one bank wait for "
        "each other.",
        ("banks", "bank conflict", "bank conflicts", "conflict"),
        ("wavefront", "line"),
    ),
    Term(
        "wavefront",
        "One pass of a warp's shared-memory access over the banks. The lanes are served in groups: all 32 for "
        "accesses of up to 32 bits a lane, two groups of 16 for 64 bits, four groups of 8 for 128 bits, the 8 "
        "rows of each matrix for ldmatrix and stmatrix. A group costs as many wavefronts as the largest number of "
        "different words that it wants from one bank. Loads of 64 and 128 bits in which lanes i and i^1 (or i and "
        "i^2) agree throughout the warp need half the groups.",
        ("wavefronts", "pass", "passes"),
        ("bank",),
    ),
    Term(
        "K-major",
        "An operand of a matrix product stored with k, the dimension that is summed over, contiguous: A row-major "
        "as M x K, B as N x K. It is the only choice for wgmma operands that are not 16 bits wide.",
        ("kmajor",),
        ("MN-major", "core matrix", "LBO"),
    ),
    Term(
        "MN-major",
        "An operand of a matrix product stored with m (of A) or n (of B) contiguous. wgmma takes it for f16 and "
        "bf16 only.",
        ("m-major", "n-major", "mnmajor"),
        ("K-major", "LBO"),
    ),
    Term(
        "core matrix",
        "8 rows of 16 bytes, stored as 128 contiguous bytes: the brick of the tensor core's layout without "
        "swizzle. A TMA box without swizzle lies row after row and has that form only where its rows are exactly "
        "16 bytes; a wider tile needs one box for each 16 bytes.",
        ("core matrices", "interleaved layout", "inter"),
        ("LBO", "SBO", "none"),
    ),
    Term(
        "TMA",
        "The Tensor Memory Accelerator, from sm_90 on: one thread issues one instruction, and the engine copies a "
        "box of up to five dimensions between global and shared memory. It computes the addresses, fills what "
        "lies outside the tensor, swizzles, and reports to an mbarrier (loads) or a bulk group (stores). What the "
        "tensor looks like is in a tensor map.",
        ("tensor memory accelerator", "cp.async.bulk.tensor", "bulk tensor copy"),
        ("tensor map", "box", "mbarrier", "swizzle"),
    ),
    Term(
        "tensor map",
        "The 128-byte description of a tensor in global memory that TMA works from: address, sizes, strides, box, "
        "element type, swizzle, interleave, fill and L2 promotion (CUtensorMap). The driver makes it "
        "(cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col) and answers every broken rule with INVALID_VALUE and "
        "no reason. Kernels usually take it as a `const __grid_constant__` parameter.",
        ("cutensormap", "tensormap", "tma descriptor", "descriptor"),
        ("TMA", "box", "interleave", "L2 promotion", "out-of-bounds fill"),
    ),
    Term(
        "box",
        "The tile that one TMA instruction moves, 1 to 256 elements in each dimension, innermost first. box[0] "
        "times the element size is a multiple of 16 bytes and, with a swizzle and without interleave, at most the "
        "span. A box may reach beyond the tensor and may even be larger than it.",
        ("boxdim", "box dim", "tile box"),
        ("span", "out-of-bounds fill", "element stride"),
    ),
    Term(
        "element stride",
        "How far TMA steps from one element of the box to the next, 1 to 8 in each dimension. Dimension i visits "
        "box[i] / stride positions, rounded up. Without interleave the stride of dimension 0 is ignored.",
        ("elementstrides", "element strides", "traversal stride"),
        ("box",),
    ),
    Term(
        "interleave",
        "Tensors whose channels are cut into slices of 16 or 32 bytes (NC/8HWC8 and the like). Their dimensions "
        "count pixels and slices, W first, the slices last but one; one transfer moves exactly one slice, each "
        "pixel 16 or 32 packed bytes in shared memory. Needs rank 3 to 5. The documents allow 32B interleave with "
        "the 32B swizzle alone; the driver accepts others too.",
        ("interleaved", "interleave 16B", "interleave 32B"),
        ("tensor map", "im2col"),
    ),
    Term(
        "im2col",
        "The way TMA reads the input of a convolution: a load takes a number of pixels, walking W, then H, then "
        "D, then N inside a bounding box given by two corners, shifted by an offset for the filter tap. Each "
        "pixel gives one row of channels in shared memory; pixels outside the tensor are filled, which makes the "
        "padding.",
        ("im2col mode", "convolution"),
        ("TMA", "box", "out-of-bounds fill"),
    ),
    Term(
        "matrix descriptor",
        "The 64-bit word by which wgmma and tcgen05 find an operand in shared memory: start address, LBO and SBO "
        "in units of 16 bytes, base offset, swizzle. The two number the swizzles differently: 128B is 1 in bits "
        "62-63 for wgmma and 2 in bits 61-63 for tcgen05.",
        ("smem descriptor", "wgmma descriptor", "tcgen05 descriptor", "shared memory descriptor"),
        ("LBO", "SBO", "base offset"),
    ),
    Term(
        "LBO",
        "Leading byte offset, bits 16-29 of a matrix descriptor, in units of 16 bytes. K-major without swizzle: "
        "from one 16-byte column of core matrices to the next along k. K-major with swizzle: ignored. MN-major "
        "with swizzle: from one span along m or n to the next. MN-major without swizzle it swaps roles with "
        "SBO: from 8 values of k to the next 8.",
        ("leading byte offset", "leading dimension byte offset", "leading_bytes"),
        ("SBO", "matrix descriptor", "core matrix"),
    ),
    Term(
        "SBO",
        "Stride byte offset, bits 32-45 of a matrix descriptor, in units of 16 bytes. K-major: from 8 rows to the "
        "next 8 rows. MN-major with swizzle: from 8 values of k to the next 8. MN-major without swizzle it "
        "swaps roles with LBO: from one 16-byte piece along m or n to the next.",
        ("stride byte offset", "stride dimension byte offset", "stride_bytes"),
        ("LBO", "matrix descriptor", "core matrix"),
    ),
    Term(
        "mbarrier",
        "A 64-bit barrier in shared memory that counts arrivals and bytes. A TMA load is announced to it with "
        "expect_tx and subtracts the bytes it delivers; when arrivals and bytes are both complete, the phase "
        "flips and the waiters go on.",
        ("barrier", "expect_tx", "complete_tx"),
        ("transaction bytes", "TMA"),
    ),
    Term(
        "transaction bytes",
        "The bytes that an mbarrier must expect of one TMA load: elements of the box times the element size, "
        "element strides rounded up. What is filled because it lies outside the tensor counts; the gaps of rows "
        "narrower than the span do not. Packed 4- and 6-bit types count the bytes they take in global memory "
        "(documented). At most 1,048,575 bytes may be outstanding in a phase.",
        ("tx bytes", "tx-count", "expect bytes"),
        ("mbarrier", "out-of-bounds fill"),
    ),
    Term(
        "L2 promotion",
        "A hint in the tensor map: how many bytes the L2 cache fetches at once for a TMA load (none, 64B, 128B, "
        "256B). It changes speed, never results. On an H200, loading 64 x 64 fp16 tiles, 128B was the fastest for "
        "every width of box and 256B never was.",
        ("l2promotion", "promotion"),
        ("tensor map",),
    ),
    Term(
        "out-of-bounds fill",
        "What a TMA load writes where the box leaves the tensor: zero, or for floating types NaN (0x7FF7 in every "
        "16 bits) on request. Stores drop such rows; within a row they round the end of the tensor up to 16 "
        "bytes, so a row whose length is not a multiple of 16 bytes overwrites what follows it.",
        ("oob fill", "oob", "oobfill", "fill", "out of bounds"),
        ("box", "transaction bytes"),
    ),
    Term(
        "gather4",
        "A TMA load of four freely chosen rows of a two-dimensional tensor, from one column on: coordinates "
        "column, row0, row1, row2, row3. The map has rank 2, box[1] = 1 and no interleave. scatter4 is the store. "
        "From sm_100 on; documented, not measured.",
        ("scatter4", "tile::gather4", "tile::scatter4"),
        ("TMA", "box"),
    ),
    Term(
        "multicast",
        "One TMA load that writes its box into several blocks of a cluster, to the same offset in each. A 16-bit "
        "mask says which: bit r is the block of rank r. Each of them gets the bytes on its own mbarrier and must "
        "expect them.",
        ("ctamask", "multicast::cluster"),
        ("TMA", "transaction bytes"),
    ),
    Term(
        "proxy fence",
        "TMA and the tensor core reach shared memory through the async proxy, ordinary loads and stores through the "
        "generic one. Bytes written by threads that a TMA store or the tensor core is to read need `fence.proxy.async` "
        "by the writers before the barrier; without it old bytes may be read.",
        ("fence.proxy.async", "async proxy", "fence"),
        ("TMA", "mbarrier"),
    ),
    Term(
        "wgmma",
        "The matrix instruction of sm_90a: four warps together multiply a 64 x K tile of A by a K x N tile of B, "
        "32 bytes of k at a time. B, and usually A, is read from shared memory through matrix descriptors.",
        ("wgmma.mma_async", "warpgroup mma"),
        ("matrix descriptor", "K-major", "MN-major"),
    ),
    Term(
        "tcgen05",
        "The matrix instructions of sm_100, sm_103 and sm_110. Operands come from shared memory through "
        "descriptors like wgmma's with other swizzle codes; accumulators live in Tensor Memory.",
        ("tcgen05.mma", "umma"),
        ("matrix descriptor", "wgmma"),
    ),
    Term(
        "parity",
        "Which of two phases a wait on an mbarrier names: the wait with parity p passes when the phase of that parity has "
        "ended, so on a fresh barrier parity 0 blocks and parity 1 passes at once. Consumers start with 0, a producer that "
        "waits for free slots with 1, and both flip when the stage index wraps.",
        ("phase", "phase bit", "phases"),
        ("mbarrier",),
    ),
    Term(
        "atom order",
        "How the atoms of a tile follow each other in shared memory, with its contiguous dimension drawn left to right: "
        "column order goes down the strided dimension first, so that one TMA box spans a column of atoms; row order goes "
        "along the contiguous dimension first.",
        ("column order", "row order"),
        ("atom", "box"),
    ),
    Term(
        "K step",
        "32 bytes along k: what one wgmma or tcgen05 instruction takes of its operands. Inside a swizzled K-major atom the "
        "next step adds 2 to the descriptor (32 bytes / 16), at the atom's end it jumps to the next atom.",
        ("k steps", "k loop", "kstep"),
        ("matrix descriptor", "atom"),
    ),
    Term(
        "request",
        "The contiguous global bytes that TMA asks for at once: a row of the box, at most 128 bytes. Narrow rows waste "
        "bandwidth: 64, 32 and 16 bytes load 1, 13 and 44 % slower than 128 on an H200.",
        ("gmem request", "request bytes", "requests"),
        ("box", "L2 promotion"),
    ),
    Term(
        "floor",
        "The least time that a kernel with these tiles needs: the longest of arithmetic, shared-memory reads, one SM's loads "
        "and the card's memory, at the rates that the answer names.",
        ("floor us", "roofline", "lower bound"),
        ("request",),
    ),
    Term(
        "ldmatrix",
        "A load of one, two or four 8 x 8 matrices of 16-bit elements from shared memory into the registers of a "
        "warp. Lanes 8i to 8i + 7 give the addresses of the eight 16-byte rows of matrix i. It is free of "
        "conflicts when the eight rows of each matrix lie in different chunks of their lines. stmatrix is the "
        "store, from sm_90 on.",
        ("ldsm", "stmatrix"),
        ("chunk", "wavefront"),
    ),
    Term(
        "tensor memory",
        "Blackwell's memory for accumulators: 128 lanes x 512 columns of 32 bits for each block, 256 KB. tcgen05.mma "
        "leaves D there, may take A from there, and finds its scale factors there; tcgen05.ld and st move it to and "
        "from registers, tcgen05.cp fills it from shared memory. Columns are allocated by the kernel. "
        "`tilescope mma tmem --m 128 --n 256` draws where an accumulator lies. Known from documents.",
        ("tmem", "tensor memory address", "taddr"),
        ("lane quarter", "tcgen05.ld", "tcgen05.alloc", "data path layout", "tcgen05"),
    ),
    Term(
        "lane quarter",
        "32 of the 128 lanes of tensor memory. A warp reaches only the quarter that is its number modulo 4: warp 0 "
        "and warp 4 lanes 0 to 31, warp 1 lanes 32 to 63, and so on. The lane field of the address (bits 16-22) has "
        "to name that quarter; debug builds trap where it does not.",
        ("quarter", "subpartition", "lane"),
        ("tensor memory", "tcgen05.ld"),
    ),
    Term(
        "tcgen05.ld",
        "Loads one warp's quarter of tensor memory into registers; tcgen05.st stores. The shape says which thread "
        "gets what: .32x32b gives a thread one lane, .16x256b is the fragment of mma's C (rows g and g + 8), which "
        "stmatrix stores. A count .x1 to .x128 repeats it along the columns, .pack::16b puts two 16-bit columns "
        "into a register. `tilescope mma fragment tcgen05.ld.16x256b.x2` draws it.",
        ("tcgen05.st", "tmem load", "tmem store", "ld.red", "tcgen05.ld.red"),
        ("tensor memory", "lane quarter"),
    ),
    Term(
        "tcgen05.cp",
        "Copies rows of shared memory, found by a descriptor, into lanes of tensor memory; 64 rows are repeated in two "
        "quarters, 32 rows in all four. One atom of scale factors is exactly one .32x128b.warpx4. On the way 4- and "
        "6-bit values can be spread to a byte each.",
        ("tcgen05.shift", "utccp"),
        ("scale factor", "tensor memory"),
    ),
    Term(
        "tcgen05.alloc",
        "One warp asks for 32, 64, 128, 256 or 512 columns of tensor memory; the address is written to shared memory. It "
        "waits until they are free, so two blocks on an SM that want 512 each run one after the other. The block "
        "says with relinquish_alloc_permit that it will not ask again, and frees everything with dealloc before "
        "the kernel ends. In a pair of blocks one warp of each does it.",
        ("tcgen05.dealloc", "relinquish", "tmem allocation", "relinquish_alloc_permit"),
        ("tensor memory", "CTA pair"),
    ),
    Term(
        "data path layout",
        "How an accumulator uses the 128 lanes, by M, the number of blocks and .ws: PTX calls them A to G. M 128 fills "
        "a lane for each row (D; A for each block of a pair with M 256). M 64 uses 16 lanes of each quarter (F), so "
        "that two accumulators share columns. A pair with M 128 (B) and .ws with M 64 or 32 (E, G) put parts of n "
        "into other quarters.",
        ("datapath", "layout A", "layout B", "layout F"),
        ("tensor memory", "CTA pair"),
    ),
    Term(
        "scale factor",
        "One byte that multiplies a block of 16 or 32 elements along k: ue8m0, a power of two, in mxfp8 and mxfp4, ue4m3 "
        "in nvfp4. Kernels keep them in atoms of 128 rows x 4 scales, 512 bytes, in which row l holds the words of rows "
        "l, 32 + l, 64 + l and 96 + l. The id in the instruction descriptor says with which byte of a word an "
        "instruction begins. `tilescope mma scales 128x256 nvfp4` draws it.",
        ("block scaling", "scale factors", "mxfp8", "mxfp4", "nvfp4", "scale_vec", "sfa", "sfb", "128x4 atom"),
        ("tcgen05.cp", "tensor memory"),
    ),
    Term(
        "CTA pair",
        "Two blocks of a cluster whose ranks differ in the lowest bit, which multiply together (cta_group::2). M and N are "
        "those of the pair: each block holds half of A's rows, half of B's columns, and its own rows of D with all "
        "columns. One thread of the pair issues; the same shared and tensor-memory offsets serve both blocks. Scale "
        "factors of A are split like A, those of B are complete in both.",
        ("cta_group", "cta_group::2", "2-CTA", "pair"),
        ("tensor memory", "tcgen05"),
    ),
    Term(
        "disable-output-lane",
        "Masks of tcgen05.mma, 4 words of 32 bits for one block and 8 for a pair: a set bit keeps a lane of D as it was.",
        ("output lane mask",),
        ("tensor memory",),
    ),
)
