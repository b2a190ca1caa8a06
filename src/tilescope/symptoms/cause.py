"""Why a tile goes wrong: the causes behind what people see, with the test that tells one from another.

    symptom  "illegal instruction (715)"
       └── cause  coordinate-16-bytes    mechanism · how to tell · fix · the tilescope command that tests it

A cause is written once; several symptoms point to it, in different orders. Commands are examples that run as they
stand: put your own numbers in.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.arch import Basis
from tilescope.errors import RuleError, unknown_name
from tilescope.value import Row


@dataclass(frozen=True, slots=True, eq=False)
class Cause(Row):
    """One mistake: what goes wrong, how to tell, the fix, and the command that tests it.

    >>> Cause.named("coordinate-16-bytes").fix
    'Start boxes at multiples of 16 bytes in the innermost dimension, or pad the tensor in front.'
    """

    name: str
    mechanism: str
    tell: str
    fix: str
    command: str  # "" where no command of tilescope can test it
    basis: Basis
    threads: tuple[str, ...] = ()  # public threads in which it was the answer

    @classmethod
    def named(cls, name: object) -> Cause:
        """The cause called `name`."""
        if isinstance(name, Cause):
            return name
        row = CAUSE.get(name) if isinstance(name, str) else None
        if row is None:
            raise RuleError([unknown_name("cause", "cause", name, CAUSE)])
        return row


_CHECK = "tilescope check --type bf16 --dims 4096,1000 --box 64,64 --swizzle 128B"
_LOAD = "tilescope load --type bf16 --dims 4096,4096 --box 64,64 --swizzle 128B"
_DESCRIPTOR = "tilescope mma check 0x4000004000010040 --smem-address 0x400 --type bf16 --dims 64,64 --box 64,64"

CAUSE = {row.name: row for row in (
    # ── the tensor map ──────────────────────────────────────────────────────────────────────────────────────────────
    Cause(
        "stride-16-bytes",
        "A global stride is not a multiple of 16 bytes: a row of an odd number of elements, or a slice of one.",
        "Multiply the row length by the element size: the remainder by 16 is not 0.",
        "Pad the rows to 16 bytes, or copy the tensor into one with padded rows.",
        "tilescope check --type bf16 --dims 4100,1000 --strides 8200 --box 64,64",
        "measured", ("tile-ai/tilelang#460",),
    ),
    Cause(
        "base-16-bytes",
        "The tensor starts off 16 bytes, usually because it is a slice or a view of another one.",
        "Print the data pointer: its last hexadecimal digit is not 0. A map made on the host is refused with 1, a map "
        "made on the device faults with 716.",
        "Clone the tensor, or slice at a multiple of 16 bytes.",
        f"{_CHECK} --address 0x7f0000000008",
        "measured", ("pytorch/pytorch#184563", "pytorch/pytorch#184714"),
    ),
    Cause(
        "box-limits",
        "The box breaks a limit: a row wider than the swizzle's span, more than 256 elements in a dimension, rows that "
        "are no multiple of 16 bytes, or NaN fill for an integer type.",
        "It is arithmetic on the arguments: `check` names every broken limit at once.",
        "Use the box that `check` names, and more copies.",
        "tilescope check --type bf16 --dims 4096,1000 --box 128,64 --swizzle 128B",
        "measured", ("tile-ai/tilelang#3106",),
    ),
    Cause(
        "earlier-fault",
        "A kernel died earlier. The error is sticky: every later call, the encode call too, returns its code.",
        "Run with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer; the first failing kernel is the guilty one. The "
        "arguments of the map pass `check`.",
        "Look the code up instead: `tilescope explain 715`, 716, 719 or 700.",
        _CHECK,
        "documented", ("vllm-project/vllm#13961", "btxchain/btx#89"),
    ),
    Cause(
        "no-context",
        "No CUDA context is current in the calling thread.",
        "The encode call answers 201; a call of cudaFree(0) or torch.cuda.init() in the same thread before it helps.",
        "Make a context current in this thread before encoding.",
        "", "measured",
    ),
    Cause(
        "map-alignment",
        "The CUtensorMap object is not aligned to 64 bytes: it lies inside a struct, in a workspace, or on the heap.",
        "Print the address of the map, on the host and in the kernel: it must end in 00, 40, 80 or c0. Some drivers refuse to "
        "encode there; driver 580 encodes, and the copy faults with 716.",
        "Declare it with alignas(64), or round the workspace offset up to 64.",
        "", "measured", ("NVIDIA/cutlass#2905",),
    ),
    Cause(
        "map-placement",
        "The kernel's tensor map is a plain by-value copy or lies on the stack.",
        "The parameter lacks __grid_constant__, or the address passed to the copy is a local variable's.",
        "Pass it as `const __grid_constant__ CUtensorMap`, or keep it in constant or global memory.",
        "", "documented", ("pranjalssh/fast.cu#8",),
    ),
    Cause(
        "map-fence",
        "A map in global memory was rewritten, and the copy still reads the old one from the descriptor cache.",
        "Results are those of the previous map: right on the first call, wrong later or in a CUDA graph.",
        "Execute fence.proxy.tensormap::generic.acquire on the map before the first copy that uses it.",
        "", "documented", ("triton-lang/triton#4342", "NVIDIA/cudnn-frontend#1126"),
    ),
    Cause(
        "map-edited-in-use",
        "The map is rewritten while earlier copies still read it.",
        "It goes away with one tile per launch, or with a wait for all copies before the rewrite.",
        "Drain first: cp.async.bulk.commit_group and wait_group.read for stores, the full barrier for loads.",
        "", "documented", ("deepseek-ai/DeepGEMM#343", "NVIDIA/cutlass#2162", "NVIDIA/cutlass#3165"),
    ),
    Cause(
        "map-small-tensor-flag",
        "Drivers before 595.71.05 set bit 21 of word 1 wrongly for tensors that are not dense and have less than 128 KiB "
        "behind them; Blackwell then reads past the end now and then.",
        "Blackwell only, sporadic, small strided tensors. `decode` shows the bit.",
        "Update the driver, or clear bit 21 of word 1, as CUTLASS and Triton do.",
        "tilescope check --type bf16 --dims 64,64 --strides 256 --box 64,64 --swizzle 128B --arch sm_100",
        "documented", ("triton-lang/triton#9235", "triton-lang/triton#10442"),
    ),
    # ── the copy ────────────────────────────────────────────────────────────────────────────────────────────────────
    Cause(
        "coordinate-16-bytes",
        "The innermost coordinate times the element size is not a multiple of 16 bytes.",
        "Only some blocks fault: those whose tile starts at an odd place. `load` refuses the same coordinates.",
        "Start boxes at multiples of 16 bytes in the innermost dimension, or pad the tensor in front.",
        f"{_LOAD} --coords 4,128",
        "measured", ("triton-lang/triton#7385",),
    ),
    Cause(
        "shared-address-128",
        "The shared address of a tensor copy is not a multiple of 128, or its mbarrier is not at a multiple of 8.",
        "Print the shared address (__cvta_generic_to_shared): its remainder by 128 is not 0.",
        "Align the buffer: __align__(1024) for swizzled tiles, 128 for plain ones, 8 for mbarriers.",
        f"{_LOAD} --smem-address 0x450",
        "measured", ("NVIDIA/Fuser#3023", "inclusionAI/humming#21"),
    ),
    Cause(
        "negative-store",
        "A store or a reduction has a negative coordinate. Loads take those; stores do not.",
        "Only blocks at the upper or left edge fault.",
        "Start stores at coordinate 0 and skip what lies before it.",
        f"{_LOAD} --coords 0,-8 --operation store",
        "measured",
    ),
    Cause(
        "reduction-type",
        "The type has no such reduction: float min and max exist for f16 and bf16 only, inc and dec for u32 only.",
        "The plain store with the same map works.",
        "Use a type and an operation that exist together; `explain reduce-type` lists them.",
        "tilescope explain reduce-type",
        "measured",
    ),
    Cause(
        "bulk-16-bytes",
        "A one-dimensional bulk copy has an address off 16 bytes (fault 716), or a size off 16: the tail is dropped "
        "without a word, and a barrier that expects the full size waits for ever.",
        "Print address and size: a remainder by 16.",
        "Round the size up to 16 bytes on both sides, and expect the rounded size.",
        "", "measured", ("tile-ai/tilelang#2528", "tile-ai/tilelang#2525"),
    ),
    Cause(
        "store-rounds-to-16",
        "A store rounds the end of each row up to 16 bytes and overwrites what follows it.",
        "dims[0] times the element size is no multiple of 16, and the damaged bytes lie just after a row.",
        "Leave 16 bytes of room after each row, or store the last column by threads.",
        "tilescope load --type f32 --dims 6,8 --strides 32 --box 8,8 --operation store",
        "measured",
    ),
    Cause(
        "fill",
        "The box reaches beyond the tensor: loads fill with zeros, or with NaN (0x7FF7) where the map says so. The filled "
        "bytes count for the barrier.",
        "The wrong elements are those outside the tensor. `load` draws them.",
        "Nothing to mend at an edge. Elsewhere the coordinates are wrong: they count elements, innermost first.",
        f"{_LOAD} --coords 4064,4064",
        "measured", ("triton-lang/triton#7364",),
    ),
    Cause(
        "gap",
        "The box's rows are narrower than the swizzle's span. The rest of each row is a gap that keeps its old bytes.",
        "Old data in a fixed part of every row; box[0] times the element size is less than the span.",
        "Use a swizzle whose span equals the row, or read only the row's own bytes.",
        "tilescope load --type bf16 --dims 4096,4096 --box 32,64 --swizzle 128B",
        "measured",
    ),
    Cause(
        "dimension-order",
        "Dimensions, box or coordinates are in C order. TMA wants the innermost one first.",
        "Right for square or symmetric input, transposed or empty otherwise.",
        "Reverse them; strides leave out dimension 0. `TensorMap.from_array` does it.",
        f"{_LOAD} --coords 64,0",
        "documented", ("NVIDIA/cutlass#3189",),
    ),
    # ── swizzles and operands ───────────────────────────────────────────────────────────────────────────────────────
    Cause(
        "swizzle-phase",
        "The swizzled buffer does not start at a multiple of the pattern (1024, 512 or 256 bytes), and the reader XORs offsets "
        "from its start. The hardware XORs absolute addresses.",
        "It is right when the buffer is aligned to 1024 bytes and wrong when it moves by 128.",
        "Align the buffer, or XOR the absolute shared address.",
        f"{_LOAD} --smem-address 0x480",
        "measured", ("tile-ai/tilelang#2379", "cloudrift-ai/emmy#200", "Neroued/ninfer#167"),
    ),
    Cause(
        "swizzle-mode",
        "TMA writes with one swizzle and the reader assumes another, or none. TMA's plain rows are not the core matrices "
        "that a tensor core reads with swizzle none.",
        "7 of 8 lines are wrong (87.5 %) for 128B, 3 of 4 for 64B, 1 of 2 for 32B.",
        "Put the same mode into the map and into the descriptor. Their codes differ: `swizzle` lists them.",
        _DESCRIPTOR,
        "measured", ("KnowingNothing/MatmulTutorial#14",),
    ),
    Cause(
        "swizzle-by-row",
        "A 64B or 32B swizzle is computed from the row. The hardware takes the 128-byte line, which holds two or four rows.",
        "Every second pair (64B) of rows is right.",
        "XOR with bits of the address, (address >> 7), not with the row.",
        "tilescope swizzle 64B", "measured",
    ),
    Cause(
        "atom-step",
        "The tile is wider than the span. The next atom starts rows x span bytes further on, not in the same row; or an atom "
        "straddles two warps' tiles.",
        "Right while the row fits the span (64 elements of 16 bits), wrong beyond.",
        "Step by whole atoms along k; `mma descriptors` lists each step's address.",
        "tilescope mma descriptors 64x128 bf16",
        "measured", ("NVIDIA/Fuser#4771", "NVIDIA/Fuser#4918"),
    ),
    Cause(
        "leading-and-stride",
        "LBO and SBO of the matrix descriptor are exchanged, or not divided by 16.",
        "Blocks of 8 x 8 are right inside and lie in the wrong place.",
        "Take them from `mma descriptors`. They change roles between MN-major none and MN-major swizzled.",
        "tilescope decode 0x4000004000010040 --addresses",
        "measured", ("KnowingNothing/MatmulTutorial#10", "tile-ai/tilelang#813"),
    ),
    Cause(
        "majorness",
        "The instruction's transpose flag does not match the layout in shared memory.",
        "The result is transposed, or right for symmetric input only.",
        "K-major means k is contiguous. Set the flag by what lies in shared memory.",
        f"{_DESCRIPTOR} --swizzle 128B --major MN",
        "documented",
    ),
    Cause(
        "stale-accumulator",
        "The accumulator was never written and is then scaled by 0; 0 x NaN is NaN.",
        "NaN appears only where the first product is skipped.",
        "Clear the accumulator, or let the first multiply overwrite it (scale-d = 0).",
        "", "documented", ("Dao-AILab/flash-attention#2906",),
    ),
    # ── barriers ────────────────────────────────────────────────────────────────────────────────────────────────────
    Cause(
        "barrier-bytes",
        "The bytes that the mbarrier expects differ from those the copies bring: a clamped box, a forgotten operand, padded "
        "types, or a factor of the cluster size.",
        "Decode the barrier's word after mbarrier.inval, or arrive's token: bytes left over zero are too few, below too many.",
        "Expect the sum of `transaction_bytes` of all copies of the stage; filled parts count, gaps do not.",
        "tilescope plan 128x64 bf16 --stages 4",
        "measured", ("mirage-project/mirage#705", "tile-ai/tilelang#2644"),
    ),
    Cause(
        "barrier-arrivals",
        "The barrier's count differs from its arrivals: with too few it never ends, with too many the launch fails (719).",
        "Count who arrives: one for arrive.expect_tx, one per warp, per thread or per block that releases.",
        "Initialise the barrier with the number of arrivals of one phase.",
        "tilescope explain mbarrier",
        "measured", ("deepseek-ai/DeepGEMM#51", "deepseek-ai/DeepEP#293"),
    ),
    Cause(
        "multicast-receiver",
        "With multicast, only the issuing block told its barrier to expect bytes. Every receiving block must.",
        "It works without multicast, or with a cluster of one.",
        "Let each receiving block expect its own bytes on its own barrier.",
        "tilescope explain multicast",
        "documented", ("facebookexperimental/triton#908",),
    ),
    Cause(
        "leader-barrier",
        "A two-block load (cta_group::2) whose destination is .shared::cta never signals the leader's barrier.",
        "Odd blocks hang on Blackwell; one-block code works.",
        "Use .shared::cluster with the leader's barrier address.",
        "", "documented",
    ),
    Cause(
        "parity",
        "A role starts with the wrong parity, restarts it for each tile, or takes it from the loop counter instead of the "
        "barrier's history.",
        "It hangs at the first stage, or the first tile is right and later ones are wrong.",
        "Consumers start with parity 0, producers that wait for free slots with 1. Flip when the stage index wraps.",
        "tilescope explain parity",
        "measured", ("tile-ai/tilelang#2674", "tile-ai/tilelang#2927", "tile-ai/tilelang#3087"),
    ),
    Cause(
        "slot-index",
        "Producer and consumer count stages differently: one restarts at 0 for each tile, the other runs on.",
        "Right when the number of k steps is a multiple of the stages (times two).",
        "Use one running counter in both roles; slot = counter mod stages.",
        "", "documented", ("tile-ai/tilelang#2785",),
    ),
    Cause(
        "early-release",
        "A slot is released before its last read, or without waiting for the other blocks of the cluster.",
        "Wrong elements differ from run to run; a wait before the release cures it.",
        "Release after wgmma.wait_group or tcgen05.commit has covered the last read; with multicast, all readers release.",
        "", "documented", ("inclusionAI/humming#56",),
    ),
    Cause(
        "barrier-init",
        "Barriers are used before their initialisation is visible to the cluster.",
        "It hangs now and then, more often with clusters.",
        "After init: fence.mbarrier_init.release.cluster, then a cluster barrier (a block barrier without clusters).",
        "", "documented", ("MoonshotAI/FlashKDA#24",),
    ),
    Cause(
        "early-exit",
        "A block of a cluster ends while another still reads it, arrives at its barrier or multicasts to it.",
        "Only the last blocks fail; cuda-gdb names CUDA_EXCEPTION_17.",
        "End every kernel that uses distributed shared memory with a cluster barrier.",
        "", "documented", ("triton-lang/triton#11730", "facebookexperimental/triton#1105", "sgl-project/sglang#32954"),
    ),
    # ── visibility ──────────────────────────────────────────────────────────────────────────────────────────────────
    Cause(
        "proxy-fence",
        "Threads wrote shared memory and TMA or the tensor core read it (or the other way round) without fence.proxy.async.",
        "Wrong elements differ from run to run; a sleep before the copy changes them.",
        "Every writing thread executes fence.proxy.async.shared::cta, then a barrier, then the copy.",
        "tilescope plan 64x64 bf16 --direction store",
        "documented", ("NVIDIA/Fuser#1962", "MoonshotAI/FlashKDA#24", "deepseek-ai/DeepEP#642", "NVIDIA/TransformerEngine#2695"),
    ),
    Cause(
        "bulk-group",
        "The wait for bulk stores runs in another thread than the stores, allows too many groups, or waits for .read where "
        "the written bytes must be visible.",
        "Output is missing or old at the end of the kernel.",
        "The thread that issued the stores commits and waits; wait_group 0 without .read before others read the result.",
        "", "documented", ("NVIDIA/TransformerEngine#3417", "deepseek-ai/DeepEP#657", "HazyResearch/ThunderKittens#194"),
    ),
    Cause(
        "asm-clobber",
        'An inline assembly wait lacks the "memory" clobber, and the compiler moves loads above it.',
        "Right with -G, printf or a sanitizer, wrong in a release build.",
        'Write asm volatile(… ::: "memory") for every wait, fence and copy.',
        "", "documented", ("HazyResearch/ThunderKittens#209",),
    ),
    Cause(
        "dependent-launch",
        "A kernel launched early by programmatic dependent launch reads its input before griddepcontrol.wait.",
        "Right without the launch attribute or with a synchronisation between the kernels.",
        "Read what the previous kernel writes only after griddepcontrol.wait.",
        "", "documented", ("NVIDIA/cutlass#2760", "NVIDIA/cccl#9134", "NVIDIA/cccl#3131"),
    ),
    # ── resources ───────────────────────────────────────────────────────────────────────────────────────────────────
    Cause(
        "architecture",
        "The code was built for another target. wgmma exists on sm_90a only, tcgen05 on sm_100a, sm_103a and sm_110a; sm_120 has "
        "neither, and 99 KiB of shared memory a block. Code for an `a` target runs nowhere else.",
        "cuobjdump lists the targets inside; the card's compute capability is not among them.",
        "Build for the card's own target, such as sm_90a, sm_100a, sm_120a.",
        "tilescope explain sm_120",
        "documented", ("NVIDIA/cutlass#3174", "NVIDIA/cutlass#2513", "thu-ml/SageAttention#291", "triton-lang/triton#11859"),
    ),
    Cause(
        "shared-memory-cap",
        "The block asks for more dynamic shared memory than the card gives, or the attribute that raises the limit above 48 KiB "
        "was not set.",
        "It fails with more stages and works with fewer.",
        "Set cudaFuncAttributeMaxDynamicSharedMemorySize, and take the stages that `plan` says fit.",
        "tilescope plan 128x64 bf16 --stages 16",
        "documented", ("NVIDIA/numba-cuda-mlir#148", "NVIDIA/cutlass#1247"),
    ),
    Cause(
        "cluster-size",
        "The cluster has more than 8 blocks without the opt-in, does not divide the grid, or its blocks do not fit side by side.",
        "The launch works with a smaller cluster or less shared memory.",
        "Divide the grid by the cluster, set the non-portable attribute above 8, lower the shared memory.",
        "", "documented", ("cupy/cupy#8778", "cupy/cupy#8851", "jax-ml/jax#33720"),
    ),
    Cause(
        "register-pool",
        "setmaxnreg.inc asks for more registers than the block's pool has left, and waits for ever.",
        "Without setmaxnreg the kernel runs.",
        "Let warpgroups x registers x 128 stay within what the block was launched with.",
        "", "documented", ("NVIDIA/cutlass#2007", "tile-ai/tilelang#2406", "pytorch/helion#3620"),
    ),
    Cause(
        "too-few-registers",
        "A warp cut to 24 registers calls a function or printf.",
        "The fault (715) goes away without the printf.",
        "Give that warp 40 registers or more, or remove the call.",
        "", "documented", ("Dao-AILab/flash-attention#1257", "NVIDIA/cutlass#2932"),
    ),
    Cause(
        "tensor-memory",
        "Tensor memory is freed before the other block allocated (719), never freed (721), or allocated before the other block runs.",
        "Blackwell only; two-block kernels, or the second launch.",
        "Allocate, relinquish and free in the same warp of each block, with a cluster barrier between.",
        "tilescope explain TMEM",
        "documented", ("NVIDIA/cutlass#3435", "NVIDIA/cutlass#3316"),
    ),
    Cause(
        "freed-or-short-tensor",
        "The map describes memory that was freed, or more than was allocated.",
        "compute-sanitizer names UTMALDG or UTMASTG; the tensor died before the kernel ran.",
        "Keep the tensor alive until the kernel has ended, and describe only what exists.",
        _CHECK,
        "documented",
    ),
    Cause(
        "thread-access",
        "A plain load or store, or ldmatrix, has an address off its own size (16 bytes for ldmatrix and 128-bit accesses).",
        "compute-sanitizer names the instruction.",
        "Align the row pitch to 16 bytes.",
        "tilescope banks 64x64 bf16 --pattern ldmatrix.x4",
        "documented",
    ),
    # ── speed ───────────────────────────────────────────────────────────────────────────────────────────────────────
    Cause(
        "plain-pitch",
        "Rows lie 128 bytes (or a multiple) apart without a swizzle, so a column of chunks falls into the same banks; or the reader "
        "ignores the swizzle that the writer used.",
        "`banks` counts the same conflict for the plain tile and none for the swizzled one.",
        "Swizzle, or pad each row by 16 bytes: `banks --fix` searches.",
        "tilescope banks 64x64 bf16 --pattern ldmatrix.x4 --fix",
        "measured",
    ),
    Cause(
        "counter-reading",
        "Nsight Compute's n-way is wavefronts per request: 4 for a clean 128-bit load. Its counters also mix in other traffic.",
        "The same counter says 4 for a kernel of one 128-bit load without conflicts.",
        "Compare l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum with the count of `banks`.",
        'tilescope banks 64x64 bf16 --pattern "ld.b128 rows"',
        "measured", ("NVIDIA/cutlass#1882", "triton-lang/triton#8149", "Bruce-Lee-LY/cuda_hgemm#13"),
    ),
    Cause(
        "small-boxes",
        "Boxes are small: one thread issues a copy every 46 ns at best, so boxes below about 8 KiB are bound by issuing.",
        "The rate grows with the box or with more issuing warps.",
        "Use larger boxes, or let several warps issue.",
        "tilescope plan 64x64 bf16",
        "measured", ("tile-ai/tilelang#941", "kekzl/imp#169", "NVIDIA/cutlass#3030"),
    ),
    Cause(
        "narrow-boxes",
        "Rows of the box are 64, 32 or 16 bytes wide: 1, 13 or 44 % less bandwidth than rows of 128 bytes.",
        "`plan` predicts the rate of each width.",
        "Make the contiguous extent of the box 128 bytes.",
        "tilescope plan 64x64 bf16 --swizzle 32B",
        "measured",
    ),
    Cause(
        "few-stages",
        "Too few bytes are in flight: one SM needs about 32 KiB to saturate memory.",
        "More stages, or more blocks on an SM, make it faster.",
        "Keep 32 KiB or more in flight on each SM.",
        "tilescope plan 128x64 bf16 --stages 4",
        "measured",
    ),
    Cause(
        "serialised-wgmma",
        "ptxas serialises wgmma (warning C7510), because registers of a running product are touched.",
        "The build prints C7510.",
        "Touch accumulators only after wgmma.wait_group, and keep them out of branches and function calls.",
        "", "documented", ("NVIDIA/cutlass#2706",),
    ),
    Cause(
        "multicast-target",
        "Multicast outside the a and f targets is slow; empty waits across blocks cost time too.",
        "Without multicast it is faster.",
        "Build for the a target, or load without multicast.",
        "tilescope explain multicast",
        "documented",
    ),
    Cause(
        "launch-bounds",
        "setmaxnreg is ignored (warning C7508), because the kernel has no minimum of blocks in its launch bounds.",
        "The build prints C7508.",
        "Write __launch_bounds__(threads, 1).",
        "", "documented", ("NVIDIA/Fuser#3972",),
    ),
    Cause(
        "too-many-registers",
        "Threads times registers exceed what an SM has (65,536).",
        "Fewer threads, or __launch_bounds__, make it launch.",
        "Lower the registers with launch bounds or -maxrregcount.",
        "", "documented",
    ),
    Cause(
        "address-space",
        "An instruction got an address of another space, such as cp.async with a destination in local memory.",
        "compute-sanitizer names the instruction and the address.",
        "Convert generic pointers with __cvta_generic_to_shared, and keep the buffer in shared memory.",
        "", "documented", ("tile-ai/tilelang#2497",),
    ),
)}  # fmt: skip
