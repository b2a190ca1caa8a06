"""What people see: error codes, hangs, wrong elements, slow copies, each with its likely causes in order.

    "illegal instruction", 715, CUDA_ERROR_ILLEGAL_INSTRUCTION      phrases: all words of one must be in the question
        1. coordinate-16-bytes   2. negative-store   3. …           causes, most likely first

Phrases are written in plain words; `question.py` folds the words that mean the same ("stuck", "deadlock": hang).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.errors import RuleError, unknown_name
from tilescope.value import Row


@dataclass(frozen=True, slots=True, eq=False)
class Symptom(Row):
    """Something seen: the phrases by which people name it, the causes to try in order, and what to know first.

    >>> Symptom.named("unspecified launch failure (719)").causes[0]
    'barrier-arrivals'
    """

    name: str
    phrases: tuple[str, ...]
    causes: tuple[str, ...]
    note: str = ""

    @classmethod
    def named(cls, name: object) -> Symptom:
        """The symptom called `name`."""
        if isinstance(name, Symptom):
            return name
        row = SYMPTOM.get(name) if isinstance(name, str) else None
        if row is None:
            raise RuleError([unknown_name("symptom", "symptom", name, SYMPTOM)])
        return row


_STICKY = (
    "The error is sticky: every later CUDA call returns it, so the call that reports it is rarely the guilty one. Run with "
    "CUDA_LAUNCH_BLOCKING=1, then under compute-sanitizer."
)

SYMPTOM = {row.name: row for row in (
    # ── codes of the encode call ────────────────────────────────────────────────────────────────────────────────────
    Symptom(
        "the encode call answers INVALID_VALUE (1)",
        ("invalid value", "cuda error invalid value", "error 1", "code 1", "failed to initialize the tma descriptor 1",
         "failed initialize tma descriptor", "encode fail", "encodetiled fail", "encode tiled error", "tensor map refuse",
         "invalid argument", "cuda error invalid argument", "tensor map fail"),
        ("stride-16-bytes", "base-16-bytes", "box-limits", "map-alignment"),
        "Pure arithmetic: give `tilescope check` the arguments, or paste what the program printed.",
    ),
    Symptom(
        "the encode call answers 700, 715, 716 or 719",
        ("failed initialize tma descriptor 700", "failed initialize tma descriptor 715", "failed initialize tma descriptor 716",
         "failed initialize tma descriptor 719", "encode fail 700", "encode fail 715", "encode fail 716", "encode fail 719",
         "tma descriptor 700", "tma descriptor 715", "tma descriptor 716", "tma descriptor 719"),
        ("earlier-fault",),
        "The encode call only repeats the code of a kernel that died before it.",
    ),
    Symptom(
        "the encode call answers 201",
        ("201", "invalid context", "cuda error invalid context", "encode fail 201"),
        ("no-context",),
    ),
    # ── codes of a launch ───────────────────────────────────────────────────────────────────────────────────────────
    Symptom(
        "invalid value at launch",
        ("invalid value launch", "invalid argument launch", "launch fail more stage", "too much shared memory",
         "shared memory too large", "out of shared memory"),
        ("shared-memory-cap", "cluster-size"),
    ),
    Symptom(
        "no image for the device, or PTX that does not load (98, 200, 209, 218, 222)",
        ("98", "200", "209", "218", "222", "no kernel image", "invalid device function", "no binary for gpu", "invalid ptx",
         "unsupported ptx", "invalid image", "unsupported toolchain"),
        ("architecture",),
    ),
    Symptom(
        'ptxas: "not supported on .target"',
        ("ptxas not supported target", "not supported target", "arch conditional mma", "feature not supported target",
         "requires target sm 90a", "instruction not supported"),
        ("architecture",),
    ),
    Symptom(
        "launch out of resources (701)",
        ("701", "out of resources", "too many resources requested launch"),
        ("too-many-registers", "shared-memory-cap"),
    ),
    Symptom(
        "the cluster launch is refused (912)",
        ("912", "cluster launch refuse", "cluster launch fail", "cluster misconfiguration", "invalid cluster size"),
        ("cluster-size",),
    ),
    # ── faults ──────────────────────────────────────────────────────────────────────────────────────────────────────
    Symptom(
        "illegal address (700)",
        ("700", "illegal address", "illegal memory access", "cuda error illegal address", "xid 31", "page fault", "mmu fault",
         "segfault gpu", "invalid global read", "invalid global write"),
        ("freed-or-short-tensor", "map-edited-in-use", "map-small-tensor-flag"),
        _STICKY + " The sanitizer names UTMALDG or UTMASTG where TMA is to blame.",
    ),
    Symptom(
        "illegal instruction (715)",
        ("715", "illegal instruction", "cuda error illegal instruction", "illegal instruction parameter", "illegal opcode"),
        ("coordinate-16-bytes", "negative-store", "too-few-registers", "reduction-type", "architecture", "map-placement"),
        _STICKY,
    ),
    Symptom(
        "misaligned address (716)",
        ("716", "misaligned address", "cuda error misaligned address", "misaligned", "misaligned shared", "unaligned address",
         "address not aligned"),
        ("shared-address-128", "bulk-16-bytes", "map-alignment", "base-16-bytes", "thread-access"),
        _STICKY,
    ),
    Symptom(
        "invalid address space (717)",
        ("717", "invalid address space", "cuda error invalid address space"),
        ("address-space",),
        _STICKY,
    ),
    Symptom(
        "unspecified launch failure (719)",
        ("719", "launch failure", "unspecified launch failure", "cuda error launch failed", "launch failed", "cuda exception 17"),
        ("barrier-arrivals", "early-exit", "tensor-memory", "barrier-bytes", "shared-memory-cap"),
        _STICKY,
    ),
    Symptom(
        "error 721",
        ("721", "tensor memory not freed", "tmem not freed", "tmem leak", "tensor memory leak"),
        ("tensor-memory",),
    ),
    Symptom(
        "Xid 13",
        ("xid 13", "graphics engine exception", "graphics sm warp exception", "warp exception"),
        ("coordinate-16-bytes", "shared-address-128", "too-few-registers", "architecture", "freed-or-short-tensor"),
        "Xid 13 is any warp exception; its text names it. Illegal Instruction Parameter: `explain 715`. Misaligned Address: "
        "`explain 716`. MMU Fault: `explain 700`.",
    ),
    Symptom(
        "Xid 43 or 109",
        ("xid 43", "xid 109", "context switch timeout", "launch timeout", "702", "channel reset"),
        ("parity", "barrier-bytes", "barrier-arrivals", "register-pool"),
        "Xid 109 is a hang; Xid 43 only says that the channel was reset after the program's own error.",
    ),
    Symptom(
        "Xid 94",
        ("xid 94", "xid 95", "ecc error", "uncorrectable ecc"),
        (),
        "A memory error of the card, contained or not. The program is not to blame.",
    ),
    # ── hangs ───────────────────────────────────────────────────────────────────────────────────────────────────────
    Symptom(
        "the kernel hangs",
        ("hang", "hang first stage", "hang mbarrier", "hang try wait", "hang wait", "hang barrier", "hang first iteration",
         "never finish", "not finish", "never flip", "try wait loop", "timeout", "time out", "no progress", "expect tx", "expect byte",
         "wrong tx count", "100 utilisation"),
        ("parity", "barrier-bytes", "barrier-arrivals", "bulk-16-bytes", "barrier-init", "register-pool"),
        "Read the barrier's word after mbarrier.inval, or the token of arrive, and `tilescope decode` it: bytes left over are "
        "barrier-bytes, arrivals left over are barrier-arrivals. A plain load of a live barrier shows old bytes.",
    ),
    Symptom(
        "it hangs after as many steps as there are stages",
        ("hang after stage", "hang after n stage", "hang after 2 stage", "hang after 3 stage", "hang after 4 stage",
         "hang second round",
         "hang stage wrap", "hang when k large", "hang empty barrier", "hang producer", "hang after several iteration"),
        ("barrier-arrivals", "parity", "early-release"),
        "The full barriers work, so the empty side is wrong: nobody frees the first slot.",
    ),
    Symptom(
        "it hangs before any load",
        ("hang before load", "hang start", "hang setmaxnreg", "hang register", "hang before first load", "hang alloc",
         "hang tmem alloc"),
        ("register-pool", "tensor-memory", "cluster-size"),
    ),
    Symptom(
        "it hangs with multicast only",
        ("hang multicast", "hang cluster", "hang cluster size 2", "multicast hang without work"),
        ("multicast-receiver", "barrier-arrivals", "early-exit", "barrier-init"),
    ),
    Symptom(
        "odd blocks hang in two-block products",
        ("hang odd block", "hang 2 sm", "hang two block", "hang cta group 2", "hang 2cta", "hang odd cta"),
        ("multicast-receiver", "leader-barrier", "barrier-bytes"),
    ),
    Symptom(
        "it hangs on a GeForce of the 50 series only",
        ("hang 5090", "hang sm 120", "hang rtx 5090", "hang geforce"),
        ("register-pool", "dimension-order", "shared-memory-cap"),
    ),
    Symptom(
        "it works on Hopper and fails on Blackwell",
        ("work h100 fail b200", "work hopper fail blackwell", "fail b200", "fail 5090", "fail blackwell", "work h100 fail 5090",
         "not work sm 100", "not work sm 120"),
        ("architecture", "shared-memory-cap", "swizzle-phase", "map-small-tensor-flag"),
    ),
    # ── wrong data ──────────────────────────────────────────────────────────────────────────────────────────────────
    Symptom(
        "the first tile is right, later ones are wrong",
        ("first tile right wrong", "first tile correct wrong later", "later tile wrong", "second tile wrong", "wrong after first tile",
         "first iteration right wrong", "persistent kernel wrong"),
        ("parity", "slot-index", "early-release", "map-edited-in-use"),
    ),
    Symptom(
        "two stages are right, three are wrong",
        ("2 stage right 3 wrong", "two stage right three wrong", "3 stage wrong", "more stage wrong", "wrong stage 3"),
        ("parity", "slot-index"),
    ),
    Symptom(
        "wrong elements that differ from run to run",
        ("random wrong", "wrong differ run", "nondeterministic", "flaky", "race", "race condition", "intermittent wrong",
         "sometimes wrong", "wrong sporadic", "different every run"),
        ("proxy-fence", "early-release", "bulk-group", "dependent-launch", "map-edited-in-use"),
        "A sleep before the copy, or compute-sanitizer's racecheck, changes the picture.",
    ),
    Symptom(
        "right under a sanitizer, -G or printf, wrong in release",
        ("right sanitizer wrong", "right debug wrong release", "printf fix", "work printf", "wrong release", "right with g",
         "work under compute sanitizer", "heisenbug"),
        ("asm-clobber", "proxy-fence", "dependent-launch"),
    ),
    Symptom(
        "wrong in CUDA graphs or on the second call",
        ("wrong cuda graph", "wrong graph", "second call wrong", "wrong second call", "wrong replay", "graph replay"),
        ("map-fence", "map-edited-in-use"),
    ),
    Symptom(
        "right only when shared memory is 1024-aligned",
        ("wrong unless aligned", "wrong not 1024 aligned", "offset 128 wrong", "wrong smem offset", "1024 aligned", "1024 alignment",
         "wrong second buffer", "wrong shared offset"),
        ("swizzle-phase",),
    ),
    Symptom(
        "about 87 % of the elements are wrong",
        ("87 wrong", "87 percent wrong", "87 5 wrong", "most element wrong", "7 of 8 wrong", "7 8 wrong", "silent wrong swizzle",
         "wrong swizzle", "swizzle mismatch"),
        ("swizzle-mode",),
        "A 128B swizzle moves chunks in 7 of 8 lines: 87.5 % stay wrong for a reader that ignores it.",
    ),
    Symptom(
        "about 75 % or 50 % of the elements are wrong",
        ("75 wrong", "50 wrong", "75 percent wrong", "50 percent wrong", "half wrong", "3 of 4 wrong", "half element wrong"),
        ("swizzle-mode", "swizzle-by-row"),
        "A 64B swizzle moves chunks in 3 of 4 lines, a 32B swizzle in 1 of 2.",
    ),
    Symptom(
        "garbage in every second row",
        ("garbage second row", "wrong second row", "every other row wrong", "garbage every other row", "chunk swapped",
         "16 byte swapped",
         "pair swapped", "alternate row wrong", "odd row wrong"),
        ("swizzle-mode", "swizzle-by-row"),
        "The 32B mode exchanges neighbouring chunks of 16 bytes in every second line.",
    ),
    Symptom(
        "K = 64 is right, K = 128 is wrong",
        ("k 64 right 128 wrong", "k 128 wrong", "k step wrong", "second k block wrong", "wide tile wrong", "wrong larger k",
         "k tile 128 wrong"),
        ("atom-step", "box-limits"),
        "64 elements of 16 bits are one span of 128 bytes.",
    ),
    Symptom(
        "right for N = 128, wrong for 96 or 192",
        ("n 96 wrong", "n 192 wrong", "n not power of two wrong", "wrong n 192", "wrong n 96"),
        ("atom-step",),
    ),
    Symptom(
        "the result is transposed, or right for square input only",
        ("transposed", "result transposed", "only square right", "right symmetric", "transpose wrong", "wrong non square",
         "row column exchanged"),
        ("dimension-order", "majorness", "leading-and-stride"),
    ),
    Symptom(
        "8 x 8 blocks are right inside and misplaced",
        ("8x8 block misplaced", "8 x 8 block wrong place", "block permuted", "8x8 wrong", "core matrix wrong", "lbo sbo",
         "lbo sbo confusion",
         "lbo sbo exchanged", "block wrong order", "tile scrambled"),
        ("leading-and-stride", "swizzle-mode"),
    ),
    Symptom(
        "zeros in the result",
        ("zero edge", "all zero", "zero everywhere", "output zero", "zero instead of data", "load zero", "tile zero"),
        ("fill", "dimension-order", "bulk-group"),
        "At the edge of the tensor zeros are normal. Everywhere: coordinates in C order or in bytes.",
    ),
    Symptom(
        "NaN in the result",
        ("nan", "nan edge", "nan output", "nan result"),
        ("fill", "stale-accumulator", "gap"),
    ),
    Symptom(
        "old data between the rows",
        ("old data row", "stale data", "garbage between row", "gap old byte", "leftover byte", "uninitialised row"),
        ("gap", "map-fence", "proxy-fence"),
    ),
    Symptom(
        "neighbouring data is overwritten",
        ("overwrite neighbour", "neighbouring row overwritten", "corrupt next tensor", "store corrupt", "store overwrite",
         "memory corruption store",
         "clobber neighbour"),
        ("store-rounds-to-16", "freed-or-short-tensor"),
    ),
    Symptom(
        "the last few elements are missing",
        ("last element missing", "tail missing", "last few missing", "end of row missing", "truncated copy", "bulk copy short"),
        ("bulk-16-bytes",),
    ),
    Symptom(
        "output is missing at the end of the kernel",
        ("output missing", "missing output end", "store not visible", "store lost", "last tile missing", "store not written"),
        ("bulk-group", "proxy-fence"),
    ),
    Symptom(
        "rank 0 is right, rank 1 is wrong with multicast",
        ("multicast wrong", "rank 1 wrong", "second block wrong multicast", "multicast rank 1 wrong", "cta 1 wrong"),
        ("early-release", "multicast-receiver"),
    ),
    # ── speed ───────────────────────────────────────────────────────────────────────────────────────────────────────
    Symptom(
        "bank conflicts are reported",
        ("bank conflict", "8 way bank conflict", "4 way bank conflict", "2 way bank conflict", "16 way bank conflict",
         "32 way bank conflict",
         "shared memory conflict", "smem conflict", "n way conflict"),
        ("plain-pitch", "swizzle-by-row", "counter-reading"),
    ),
    Symptom(
        "Nsight Compute shows conflicts that theory does not have",
        ("ncu conflict", "nsight conflict", "profiler conflict", "ncu bank conflict theory 0", "ncu bank conflict swizzle",
         "nsight compute bank conflict"),
        ("counter-reading", "swizzle-phase"),
    ),
    Symptom(
        "slower with a swizzle",
        ("slow swizzle", "slower swizzle", "swizzle slow down", "swizzle no help"),
        ("narrow-boxes", "plain-pitch"),
    ),
    Symptom(
        "TMA is slow",
        ("tma slow", "slow tma cp async", "tma slower than cp async", "low bandwidth tma", "tma low throughput", "slow load",
         "low bandwidth",
         "tma bandwidth"),
        ("small-boxes", "narrow-boxes", "few-stages", "serialised-wgmma", "map-fence"),
    ),
    Symptom(
        "multicast is slow",
        ("slow multicast", "multicast slower", "multicast no gain"),
        ("multicast-target", "early-release"),
    ),
    Symptom(
        "warning C7508: setmaxnreg is ignored",
        ("c7508", "setmaxnreg ignored"),
        ("launch-bounds",),
    ),
    Symptom(
        "warning C7510: wgmma is serialised",
        ("c7510", "wgmma serialised", "wgmma serialized", "potential performance loss wgmma", "wgmma mma async serialized"),
        ("serialised-wgmma",),
    ),
)}  # fmt: skip
