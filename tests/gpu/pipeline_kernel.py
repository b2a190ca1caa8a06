"""A kernel that carries out any pipeline's steps: they are its data, so that one compilation serves every description.

    description ── tilescope's own unrolling ──▶ eight integers an action ──▶ kernel ──▶ who got where, what barriers hold

Every agent of the description is a group of warps. Copies are bulk copies; a multiplication reads its slots and compares
them with the tile that should be there. A wait that does not pass within the time given is noted and ends the block's
work; then every barrier is invalidated, which writes its state to memory, and read.

`python pipeline_kernel.py FILE` runs the description in FILE and prints the outcome as JSON: tests start it as a child,
since a fault takes the process with it.
"""

from __future__ import annotations

import ctypes
import json
import sys

import numpy as np

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.unrolled_pipeline import UnrolledPipeline
from tilescope.sync.role_events import (
    BarrierArrive,
    BulkStoreIssued,
    ClusterArrive,
    ClusterWait,
    CopyIssued,
    CpAsyncArriveIssued,
    Fence,
    GroupCommit,
    GroupWait,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierWait,
    RegisterRequest,
    SlotAccess,
    Store,
)

ARCH = "sm_90a"
INTEGERS = 8  # of an action
WAIT_NS = 300_000_000
OPS = (
    "end",
    "wait",
    "expect",
    "arrive",
    "copy",
    "read",
    "write",
    "store",
    "commit",
    "wait_group",
    "fence",
    "sync",
    "cluster",
    "init",
    "cp_copy",
    "cp_arrive",
    "bar_arrive",
)

SOURCE = r"""
typedef unsigned long long u64; typedef unsigned int u32; typedef unsigned char u8;
extern __shared__ __align__(1024) u8 smem[];
struct Agent { int first_warp, warps, begin, bar; };   // bar: the id of its own bar.sync, 0: one warp
struct Job { const int* code; const Agent* agents; const u8* source; u8* target; int* status; u64* words; int agents_of_block;
             int barriers, barrier_at, slots_end, source_slots, slot_bytes, jitter, implicit_init, stay; u64 wait_ns; };
__device__ u32 shared_address(const void* p) {
  u32 a; asm("{.reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t;}" : "=r"(a) : "l"(p)); return a; }
__device__ u32 rank_of() { u32 r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ u64 now() { u64 t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }
__device__ u32 at_rank(u32 a, u32 r) { u32 d; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(r)); return d; }
__device__ bool passes(u32 bar, u32 parity) {
  u32 ok; asm volatile("{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                       : "=r"(ok) : "r"(bar), "r"(parity) : "memory"); return ok; }
__device__ u32 word_of(u32 tile, u32 slot, u32 i) { return tile * 0x9E3779B1u + slot * 0x85EBCA77u + i * 0xC2B2AE3Du; }
__device__ void meet(const Agent& a, int thread) {
  if (a.bar) asm volatile("bar.sync %0, %1;" :: "r"(a.bar), "r"(32 * a.warps) : "memory"); else __syncwarp(); }

extern "C" __global__ void __launch_bounds__(1024) carry_out(const __grid_constant__ Job job) {
  __shared__ int stopped; __shared__ volatile int passed[32];
  u32 rank = rank_of();
  const Agent* mine = job.agents + rank * job.agents_of_block;
  int warp = threadIdx.x / 32, agent = 0;
  while (agent < job.agents_of_block && !(warp >= mine[agent].first_warp && warp < mine[agent].first_warp + mine[agent].warps)) agent++;
  if (threadIdx.x == 0) {
    stopped = 0;
    for (int b = 0; b < job.barriers; b++)
      if (job.implicit_init)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(smem) + job.barrier_at + 8 * b),
                     "r"(job.code[-1 - b]) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
  for (int i = threadIdx.x; i < job.slots_end; i += blockDim.x) smem[i] = 0xEE;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  u32 base = shared_address(smem), bars = base + job.barrier_at;
  if (agent < job.agents_of_block) {
    Agent self = mine[agent];
    int thread = threadIdx.x - 32 * self.first_warp, threads = 32 * self.warps, bad = 0, place = 0, outcome = 1;
    const int* code = job.code + self.begin;
    u32 noise = job.jitter * 2654435761u + agent * 40503u + rank * 977u;
    for (;; code += 8, place++) {
      int op = code[0];
      if (op == 0) break;
      if (job.jitter) { noise = noise * 1664525u + 1013904223u; __nanosleep((noise >> 16) & 2047); }
      u32 bar = bars + 8 * code[1];
      bool first = thread == 0;
      if (op == 1) {
        if (first) {  // one thread polls and tells the others
          u64 until = now() + job.wait_ns; bool ok = false;
          while (!(ok = passes(bar, code[2])) && now() < until && !*(volatile int*)&stopped) {}
          if (!ok) *(volatile int*)&stopped = 1;
          passed[agent] = ok; }
        meet(self, thread);
        bool ok = passed[agent];
        meet(self, thread);
        if (!ok) { outcome = 2; break; }
      } else if (op == 2 && first) {
        u32 to = at_rank(bar, code[3]);
        if (!code[4])
          asm volatile("mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" :: "r"(to), "r"(code[2]) : "memory");
        else if (code[3] == rank)
          asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(code[2]) : "memory");
        else
          asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;"
                       :: "r"(to), "r"(code[2]) : "memory");
      } else if (op == 3 && first) {
        if (code[3] == rank) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(code[2]) : "memory");
        else asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1;"
                          :: "r"(at_rank(bar, code[3])), "r"(code[2]) : "memory");
      } else if (op == 4 && first) {
        u32 into = base + code[2]; int bytes = code[3], mask = code[4];
        const u8* from = job.source + ((u64)code[5] * job.source_slots + code[6]) * job.slot_bytes + code[7];
        if (mask != 1 << rank)  // to other blocks, or to several
          asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
                       :: "r"(into), "l"(from), "r"(bytes), "r"(bar), "h"((short)mask) : "memory");
        else
          asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                       :: "r"(into), "l"(from), "r"(bytes), "r"(bar) : "memory");
      } else if (op == 5) {
        volatile u32* held = (volatile u32*)(smem + code[2]);
        for (int i = thread; i < code[3] / 4; i += threads) bad += held[i] != word_of(code[5], code[6], i);
        meet(self, thread);
      } else if (op == 6) {
        u32* held = (u32*)(smem + code[2]);
        for (int i = thread; i < code[3] / 4; i += threads) held[i] = word_of(code[5], code[6], i);
      } else if (op == 7 && first) {
        u8* to = job.target + ((u64)code[5] * job.source_slots + code[6]) * job.slot_bytes;
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                     :: "l"(to), "r"(base + code[2]), "r"(code[3]) : "memory");
      } else if (op == 8) {
        if (code[1] == 0) { if (first) asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
        else asm volatile("cp.async.commit_group;" ::: "memory");
      } else if (op == 9) {
        if (code[1] == 0) { if (first) {
          if (code[2] == 0 && code[3]) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
          else if (code[2] == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
          else if (code[2] == 1) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
          else asm volatile("cp.async.bulk.wait_group.read 2;" ::: "memory"); } }
        else asm volatile("cp.async.wait_group 0;" ::: "memory");
      } else if (op == 10) {
        if (code[1] == 0) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        else asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      } else if (op == 11) asm volatile("bar.sync %0, %1;" :: "r"(code[1]), "r"(code[2]) : "memory");
      else if (op == 12) {
        if (code[1] != 1) asm volatile("barrier.cluster.arrive;" ::: "memory");
        if (code[1] != 2) asm volatile("barrier.cluster.wait;" ::: "memory");
      } else if (op == 13 && first) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(code[2]) : "memory");
      else if (op == 14) {
        const u8* from = job.source + ((u64)code[5] * job.source_slots + code[6]) * job.slot_bytes;
        for (int i = thread; i < code[3] / 16; i += threads)
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(base + code[2] + 16 * i), "l"(from + 16 * i) : "memory");
      } else if (op == 15) {
        if (code[3]) asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(bar) : "memory");
        else asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" :: "r"(bar) : "memory");
      } else if (op == 16) asm volatile("bar.arrive %0, %1;" :: "r"(code[1]), "r"(code[2]) : "memory");
      if (op != 11 && op != 16 && op != 12) meet(self, thread);
    }
    for (int step = 16; step; step /= 2) bad += __shfl_xor_sync(~0u, bad, step);
    if (thread % 32 == 0) {
      int* status = job.status + 4 * (rank * job.agents_of_block + agent);
      atomicAdd(status + 2, bad);
      if (thread == 0) { status[0] = outcome; status[1] = place; } }
  }
  if (job.stay) {
    asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
    __nanosleep(200000);
    if (threadIdx.x == 0)
      for (int b = 0; b < job.barriers; b++) {
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(bars + 8 * b) : "memory");
        job.words[rank * job.barriers + b] = *(volatile u64*)(smem + job.barrier_at + 8 * b); }
  }
}
"""


def compiled():
    """The kernel as a cubin; NVRTC needs no card for that."""
    from cuda.core import Program as Source
    from cuda.core import ProgramOptions

    return Source(SOURCE, "c++", ProgramOptions(arch=ARCH)).compile("cubin")


class Agents(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("first_warp", "warps", "begin", "bar")]


class Job(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("code", "agents", "source", "target", "status", "words")),
        *(
            (name, ctypes.c_int)
            for name in (
                "agents_of_block",
                "barriers",
                "barrier_at",
                "slots_end",
                "source_slots",
                "slot_bytes",
                "jitter",
                "implicit_init",
                "stay",
            )
        ),
        ("wait_ns", ctypes.c_uint64),
    ]


def row(op, *numbers):
    """A step as the kernel reads it."""
    return [OPS.index(op), *numbers, *[0] * (INTEGERS - 1 - len(numbers))]


def without_operands(action):
    """The rows of an action that acts on no barrier and no slot."""
    match action:
        case GroupCommit(unit="wgmma") | GroupWait(unit="wgmma") | RegisterRequest():
            return []
        case GroupCommit():
            return [row("commit", int(action.unit == "cp.async"))]
        case GroupWait():
            return [row("wait_group", int(action.unit == "cp.async"), action.newest, int(action.only_read))]
        case Fence():
            return [row("fence", int(isinstance(action, MbarrierInitFence)))]
        case ClusterWait():
            return [row("cluster", 1)]
        case ClusterArrive():
            return [row("cluster", 0 if action.waits else 2)]
    raise NotImplementedError(action)


class Encoding:
    """A pipeline's actions as integers, and where its slots and barriers lie in shared memory."""

    def __init__(self, pipeline):
        self.pipeline = pipeline
        self.program = UnrolledPipeline(pipeline)
        self.blocks = pipeline.blocks
        slots = self.program.slots[: len(self.program.slots) // self.blocks]
        self.per_block = max(1, len(slots))
        self.barriers = self.program.mbarriers // self.blocks
        sizes = [max(16, slot.of.bytes) for slot in slots]
        self.slot_at = np.cumsum([0, *(-(-size // 128) * 128 for size in sizes)]).tolist()
        self.slots_end = self.slot_at[-1]
        self.slot_bytes = max(sizes, default=16)
        self.tiles = 1
        counts = [barrier.of.count for barrier in self.program.barriers[: self.barriers]]
        code, agents = [], []
        for rank in range(self.blocks):
            warp = 0
            for number, agent in enumerate(each for each in self.program.agents if each.block == rank):
                warps = agent.of.whole_threads(32) // 32
                agents.append((warp, warps, len(code) * INTEGERS, 15 - number if warps > 1 else 0))
                warp += warps
                for action in self.program.actions(agent):
                    code += self.encoded(agent, action)
                code.append([0] * INTEGERS)
        self.agents_of_block = len(agents) // self.blocks
        self.threads = 32 * warp
        self.code = np.array(
            [*([0] * max(0, 64 - len(counts))), *reversed(counts), *np.array(code).ravel().tolist()], np.int32
        )
        self.code_start = 64
        self.agents = agents

    def slot(self, number):
        local = number % self.per_block
        return self.slot_at[local], self.program.slots[number].of.bytes, local

    def encoded(self, agent, action):
        """The integers of one action; one row for every block that it acts on."""
        tile = getattr(action, "tile", None) or 0
        self.tiles = max(self.tiles, tile + 1)
        match action:
            case CopyIssued():
                return [self.copied(agent, action, tile)]
            case Store():
                return [self.touched("write", slot, tile) for slot in action.slots]
            case BulkStoreIssued():
                return [self.touched("store", action.slots[0], tile)]
            case SlotAccess():
                return [self.touched("read", slot, tile) for slot in action.slots]
            case BarrierArrive():
                of_block = [each.of.whole_threads(32) for each in self.program.agents if each.block == agent.block]
                op = "sync" if action.waits else "bar_arrive"
                return [row(op, action.number, action.threads or sum(of_block))]
            case MbarrierInit() | MbarrierWait() | MbarrierExpect() | MbarrierArrive() | CpAsyncArriveIssued():
                return self.at_barriers(action)
        return without_operands(action)

    def at_barriers(self, action):
        """The rows of an action at barriers, which may be those of several blocks."""
        rows = []
        for barrier in action.barriers:
            at = barrier % max(1, self.barriers)
            part = self.program.barriers[barrier]
            match action:
                case MbarrierInit():
                    rows.append(row("init", at, part.of.count))
                case MbarrierWait():
                    rows.append(row("wait", at, action.parity))
                case MbarrierExpect():
                    rows.append(row("expect", at, action.size_bytes, part.block, 0))
                case MbarrierArrive() if action.step.op == "expect":
                    rows.append(row("expect", at, action.expected_bytes, part.block, 1))
                case MbarrierArrive():
                    rows.append(row("arrive", at, action.arrivals, part.block))
                case CpAsyncArriveIssued():
                    rows.append(row("cp_arrive", at, action.arrivals, int(action.is_counted)))
        return rows

    def copied(self, agent, action, tile):
        at, size, slot = self.slot(action.slots[0])
        if action.how == "cp.async":
            return row("cp_copy", 0, at, action.size_bytes, 0, tile, slot)
        barrier = action.barriers[0] % max(1, self.barriers)
        mask = sum(1 << self.program.slots[each].block for each in action.slots)
        part = agent.block * action.size_bytes % max(1, size) if mask & (mask - 1) else 0
        return row("copy", barrier, at + part, action.size_bytes, mask, tile, slot, part)

    def touched(self, op, number, tile):
        at, size, slot = self.slot(number)
        return row(op, 0, at, size, 0, tile, slot)

    def words(self, tile, slot, size):
        index = np.arange(size // 4, dtype=np.uint64)
        return ((tile * 0x9E3779B1 + slot * 0x85EBCA77 + index * 0xC2B2AE3D) & 0xFFFFFFFF).astype(np.uint32)

    def source(self):
        image = np.zeros((self.tiles, self.per_block, self.slot_bytes // 4), np.uint32)
        for tile in range(self.tiles):
            for slot in range(self.per_block):
                image[tile, slot] = self.words(tile, slot, self.slot_bytes)
        return image


def carry_out(pipeline, *, jitter=0, stay=True, wait_ns=WAIT_NS):
    """Run a pipeline on the card: for every agent whether it ended (1) or was stuck (2), where, wrong words; barrier words."""
    from cuda.bindings import driver
    from cuda.core import Device

    found = Encoding(pipeline)
    device = Device()
    device.set_current()
    stream = device.create_stream()
    kernel = compiled().get_kernel("carry_out")
    _, function = driver.cuKernelGetFunction(driver.CUkernel(int(kernel.handle)))
    buffers = []

    def upload(array):
        result, pointer = driver.cuMemAlloc(max(array.nbytes, 16))
        assert int(result) == 0, result
        assert int(driver.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes)[0]) == 0
        buffers.append(array)
        return int(pointer)

    agents = (Agents * len(found.agents))(*(Agents(*each) for each in found.agents))
    status = np.zeros((len(found.agents), 4), np.int32)
    words = np.zeros((found.blocks, max(1, found.barriers)), np.uint64)
    source = found.source()
    target = np.zeros_like(source)
    barrier_at = -(-found.slots_end // 8) * 8
    smem = barrier_at + 8 * max(1, found.barriers)
    target_at = upload(target)
    status_at = upload(status)
    words_at = upload(words)
    job = Job(
        upload(found.code) + 4 * found.code_start,
        upload(np.frombuffer(bytes(agents), np.uint8)),
        upload(source),
        target_at,
        status_at,
        words_at,
        found.agents_of_block,
        found.barriers,
        barrier_at,
        found.slots_end,
        found.per_block,
        found.slot_bytes,
        jitter,
        int(not found.program.role_program.initialises),
        int(stay),
        wait_ns,
    )
    attribute = driver.CUfunction_attribute
    driver.cuFuncSetAttribute(function, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem)
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = found.blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = found.threads, 1, 1
    config.sharedMemBytes, config.hStream = smem, int(stream.handle)
    cluster = driver.CUlaunchAttribute()
    cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z = found.blocks, 1, 1
    config.attrs, config.numAttrs = [cluster], 1
    pointers = np.array([ctypes.addressof(job)], np.uint64)
    (result,) = driver.cuLaunchKernelEx(config, function, pointers.ctypes.data, 0)
    assert int(result) == 0, result
    (result,) = driver.cuStreamSynchronize(int(stream.handle))
    if int(result):
        return {"fault": int(result)}
    for array, pointer in ((status, status_at), (words, words_at), (target, target_at)):
        assert int(driver.cuMemcpyDtoH(array.ctypes.data, pointer, array.nbytes)[0]) == 0
    return {
        "fault": 0,
        "outcome": status[:, 0].tolist(),
        "place": status[:, 1].tolist(),
        "wrong": status[:, 2].tolist(),
        "words": [hex(word) for word in words.ravel().tolist()] if found.barriers else [],
        "stored": int((target == source).all(axis=2).sum()),
    }


if __name__ == "__main__":
    options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    print(json.dumps(carry_out(Pipeline.from_file(sys.argv[1]), **options)))  # noqa: T201  its one purpose
