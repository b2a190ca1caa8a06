// Pipelines as data: one cluster of blocks is one pipeline under one seed of random delays. Every role is a warp, or several.
//
//   cluster of blocks ── / seeds ──▶ Pipeline ──▶ Warp (one for each warp of each block) ──▶ Step, Step, … END
//
// suites/pipeline_steps.py writes these rows. Slots hold chunks of 16 bytes: {serial, place in the slot, ~serial, MARK}. Every
// copy and every write has a serial number of its own, so a reader sees whose bytes it got.
//
// Everything that waits gives up after a while. bar.sync and barrier.cluster cannot give up: counters in shared memory stand
// for them.
enum { END, WAIT, EXPECT, ARRIVE, COPY, CP_ASYNC, CP_ARRIVE, READ, WRITE, STORE, COMMIT, WAIT_GROUP, FENCE, SYNC, BAR_ARRIVE, CLUSTER, INIT };
enum { BULK_GROUP, CP_ASYNC_GROUP };
enum { PROXY_ASYNC, MBARRIER_INIT };
enum { CLUSTER_SYNC, CLUSTER_ARRIVE, CLUSTER_WAIT };
enum { HUNG_WARPS, HUNG_STEP, WRONG_CHUNKS, WRONG_STEP, WRONG_CHUNK, FOUND, EXPECTED, WARPS_DONE, RESULT_FIELDS };

struct Pipeline { int first_warp, warps_of_cluster, barriers, first_count, slots_at, slots_end, is_ready, target_bytes; };
struct Warp { int first_step, number, warps, role, in_cluster; };  // its number in its role; first_step < 0: idle
struct Step { int op, a, b, c, d, e, f, warps_meet; };

const int MAX_WARPS = 16, BARS = 16, LANES = 32;
const u32 MARK = 0x7115C0DE, ALL_LANES = 0xFFFFFFFF;
const u64 PATIENCE_NS = 20000000, FLIGHT_NS = 100000;
const u32 PATIENCE_POLLS = 1 << 15, QUICK_POLLS = 256;

struct Meeting { u32 came, generation; };

// Gives up when both a time and a number of polls are over: the time alone may pass while another process has the card.
struct Patience {
  u64 start = nanoseconds();
  u32 polls = 0;
  __device__ __forceinline__ bool is_over() {
    if (++polls > QUICK_POLLS) __nanosleep(200);
    return polls > PATIENCE_POLLS && nanoseconds() - start > PATIENCE_NS;
  }
};

__device__ __forceinline__ u32 cluster_rank() { u32 rank; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); return rank; }
__device__ __forceinline__ u32 cluster_blocks() { u32 n; asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n)); return n; }

__device__ __forceinline__ u32 address_in(u32 address, u32 rank) {
  u32 mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

__device__ __forceinline__ int phase_has_ended(u32 barrier, u32 parity) {
  int ended;
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(ended) : "r"(barrier), "r"(parity) : "memory");
  return ended;
}

// Whether the phase ends; all lanes ask, so all of them have acquired what it orders.
__device__ __forceinline__ int waited(u32 barrier, u32 parity) {
  Patience patience;
  while (!__all_sync(ALL_LANES, phase_has_ended(barrier, parity)))
    if (__any_sync(ALL_LANES, patience.is_over())) return 0;
  return 1;
}

__device__ __forceinline__ void arrive(u32 barrier, u32 count, u32 rank) {
  if (count == 0) return;
  if (rank == cluster_rank())
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
  else
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(address_in(barrier, rank)),
                 "r"(count) : "memory");
}

__device__ __forceinline__ void expect(u32 barrier, u32 bytes, int arrives, u32 rank) {
  u32 there = address_in(barrier, rank);
  if (!arrives)
    asm volatile("mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" ::"r"(there), "r"(bytes) : "memory");
  else if (rank == cluster_rank())
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  else
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(there), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void bulk_copy(u32 to, const u8* from, u32 bytes, u32 barrier, u32 mask) {
  if (mask == 1u << cluster_rank())
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier) : "memory");
  else  // the same offsets, of memory and of the barrier, in every block of the mask
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "h"((short)mask) : "memory");
}

// bar.sync and bar.arrive: whether `threads` threads come. A warp counts 32, whatever its role says.
__device__ int met(Meeting* meeting, u32 threads, int waits) {
  u32 came_at = shared_address(&meeting->came), generation_at = shared_address(&meeting->generation);
  int in_time = 1;
  __syncwarp();
  if (threadIdx.x % LANES == 0) {
    u32 generation, now, came;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(generation) : "r"(generation_at) : "memory");
    asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], 32;" : "=r"(came) : "r"(came_at) : "memory");
    if (came + LANES >= threads) {
      asm volatile("st.relaxed.cta.shared.u32 [%0], 0;" ::"r"(came_at) : "memory");
      asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], 1;" : "=r"(now) : "r"(generation_at) : "memory");
    } else if (waits) {
      Patience patience;
      do {
        asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(now) : "r"(generation_at) : "memory");
        in_time = now != generation || !patience.is_over();
      } while (now == generation && in_time);
    }
  }
  return __shfl_sync(ALL_LANES, in_time, 0);
}

// barrier.cluster: the words lie in the first block. A warp that leaves is not waited for any more.
//
//   state        members << 16 | those that came
//   generation   how often all members have come
struct ClusterMeeting {
  u32 state_at, generation_at;  // in shared::cluster

  __device__ __forceinline__ u32 add(u32 address, u32 number) const {
    u32 before;
    asm volatile("atom.acq_rel.cluster.shared::cluster.add.u32 %0, [%1], %2;" : "=r"(before) : "r"(address), "r"(number)
                 : "memory");
    return before;
  }
  __device__ __forceinline__ void changed(u32 state) const {
    u32 members = state >> 16, came = state & 0xFFFF;
    if (came == 0 || came != members) return;
    add(state_at, -came);
    add(generation_at, 1);
  }
  __device__ __forceinline__ void arrive() const { changed(add(state_at, 1) + 1); }
  __device__ __forceinline__ void leave() const { changed(add(state_at, -(1u << 16)) - (1u << 16)); }

  // Whether the generation after `seen` others is complete.
  __device__ __forceinline__ int waited(u32 seen) const {
    Patience patience;
    u32 generation;
    while (true) {
      asm volatile("ld.acquire.cluster.shared::cluster.u32 %0, [%1];" : "=r"(generation) : "r"(generation_at) : "memory");
      if (__all_sync(ALL_LANES, generation > seen)) return 1;
      if (__any_sync(ALL_LANES, patience.is_over())) return 0;
    }
  }
};

#define WAIT_FOR(NUMBER, INSTRUCTION) case NUMBER: asm volatile(INSTRUCTION " " #NUMBER ";" ::: "memory"); break;
#define WAIT_FOR_GROUPS(INSTRUCTION)                                                                              \
  switch (pending) {                                                                                              \
    WAIT_FOR(0, INSTRUCTION) WAIT_FOR(1, INSTRUCTION) WAIT_FOR(2, INSTRUCTION) WAIT_FOR(3, INSTRUCTION)           \
    WAIT_FOR(4, INSTRUCTION) WAIT_FOR(5, INSTRUCTION) WAIT_FOR(6, INSTRUCTION) WAIT_FOR(7, INSTRUCTION)           \
  }

__device__ __forceinline__ void wait_bulk_groups(int pending, int read) {
  if (read) {
    WAIT_FOR_GROUPS("cp.async.bulk.wait_group.read")
  } else {
    WAIT_FOR_GROUPS("cp.async.bulk.wait_group")
  }
}

__device__ __forceinline__ void wait_cp_async_groups(int pending) { WAIT_FOR_GROUPS("cp.async.wait_group") }

__device__ __forceinline__ u32 mixed(u32 x) {
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15) * 0x846CA68Bu;
  return x ^ x >> 16;
}

// How long a warp waits before a step. Of four seeds, the first delays nobody, the second everybody a little, the third every
// eighth step for long, and the fourth one warp at every step.
__device__ __forceinline__ void delay(u32 seed, u32 warp_of_cluster, u32 warps_of_cluster, u32 step) {
  u32 drawn = mixed(seed * 0x9E3779B1u ^ mixed(warp_of_cluster * 0x85EBCA77u + step)), cycles = 0;
  switch (seed % 4) {
    case 1: cycles = drawn % 2048; break;
    case 2: cycles = drawn % 8 == 0 ? (drawn >> 8) % 32768 : 0; break;
    case 3: cycles = mixed(seed) % warps_of_cluster == warp_of_cluster ? 4096 + drawn % 8192 : 0; break;
  }
  for (u64 start = clock64(); clock64() - start < cycles;) {
  }
}

// What a reader of a chunk found, where that is something else than it should be.
__device__ __forceinline__ void compare(const u32 (&word)[4], u32 chunk, u32 serial, int step, int* result) {
  if (word[0] == serial && word[1] == chunk && word[2] == ~serial && word[3] == MARK) return;
  if (atomicAdd(result + WRONG_CHUNKS, 1)) return;
  result[WRONG_STEP] = step;
  result[WRONG_CHUNK] = chunk;
  result[FOUND] = word[0];
  result[EXPECTED] = serial;
}

__device__ __forceinline__ void carry_out(const Pipeline* pipelines, const Warp* warps, const Step* steps,
                                          const u32* serials, const int* counts, const u8* source, int seeds,
                                          int target_bytes, u8* targets, int* results) {
  __shared__ Meeting meetings[2 * BARS];  // of bar.sync, then of the warps of every role
  __shared__ u32 cluster_words[2];
  u32 rank = cluster_rank(), blocks = cluster_blocks(), job = blockIdx.x / blocks, seed = job % seeds;
  Pipeline pipeline = pipelines[job / seeds];
  int* result = results + job * RESULT_FIELDS;
  u32 base = shared_address(smem);
  ClusterMeeting cluster{address_in(shared_address(cluster_words), 0), address_in(shared_address(cluster_words + 1), 0)};

  if (threadIdx.x < 2 * BARS) meetings[threadIdx.x] = Meeting{0, 0};
  if (threadIdx.x == 0) {
    cluster_words[0] = pipeline.warps_of_cluster << 16;
    cluster_words[1] = 0;
    if (pipeline.is_ready)
      for (int i = 0; i < pipeline.barriers; i++) barrier_init(base + 8 * i, counts[pipeline.first_count + i]);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  for (int i = pipeline.slots_at + threadIdx.x; i < pipeline.slots_end; i += blockDim.x) smem[i] = 0xEE;
  u8* target = targets + (u64)job * target_bytes;
  for (int i = rank * blockDim.x + threadIdx.x; i < pipeline.target_bytes; i += blocks * blockDim.x) target[i] = 0xEE;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");

  int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  Warp self = warps[pipeline.first_warp + rank * MAX_WARPS + warp];
  int thread = self.number * LANES + lane, threads = self.warps * LANES;
  bool is_first = thread == 0, in_time = true;
  u32 cluster_arrivals = 0, cluster_waits = 0;
  int at = self.first_step;

  for (; self.first_step >= 0 && steps[at].op != END; at++) {
    Step step = steps[at];
    u32 barrier = base + 8 * step.a;
    delay(seed, self.in_cluster, pipeline.warps_of_cluster, at - self.first_step);
    __syncwarp();
    switch (step.op) {
      case WAIT:
        in_time = waited(barrier, step.b);
        break;
      case EXPECT:
        if (is_first) expect(barrier, step.b, step.c, step.d);
        break;
      case ARRIVE: {  // all warps of the role share the arrivals, if there is one for each
        int own = step.b / self.warps + (self.number < step.b % self.warps);
        if (step.b < self.warps) own = self.number == 0 ? step.b : 0;
        if (lane == 0) arrive(barrier, own, step.c);
        break;
      }
      case COPY:  // by so many lanes of the first warp, one behind another
        if (thread < step.f)
          bulk_copy(base + step.b + thread * step.c, source + step.e + thread * step.c, step.c, barrier, step.d);
        break;
      case CP_ASYNC:
        for (int i = thread; thread < step.d && i < step.b / 16; i += step.d)
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(base + step.a + 16 * i),
                       "l"(source + step.c + 16 * i) : "memory");
        break;
      case CP_ARRIVE:
        if (thread < step.b && step.c)
          asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
        else if (thread < step.b)
          asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
        break;
      case READ: {  // chunks go round the warps, or all belong to the first
        int readers = step.d ? 1 : self.warps;
        for (int chunk = self.number + readers * lane; self.number < readers && chunk < step.b; chunk += readers * LANES) {
          u32 word[4];
          asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                       : "r"(base + step.a + 16 * chunk) : "memory");
          compare(word, chunk, serials[step.c + chunk], at, result);
        }
        break;
      }
      case WRITE:
        for (int chunk = self.number + self.warps * lane; chunk < step.b; chunk += threads)
          asm volatile("st.volatile.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(base + step.a + 16 * chunk),
                       "r"(step.c), "r"(chunk), "r"(~step.c), "r"(MARK) : "memory");
        break;
      case STORE:
        if (is_first)
          asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target + step.d),
                       "r"(base + step.a), "r"(16 * step.b) : "memory");
        break;
      case COMMIT:
        if (step.a == CP_ASYNC_GROUP) asm volatile("cp.async.commit_group;" ::: "memory");
        else if (is_first) asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        break;
      case WAIT_GROUP:
        if (step.a == CP_ASYNC_GROUP) wait_cp_async_groups(step.b);
        else if (is_first) wait_bulk_groups(step.b, step.c);
        break;
      case FENCE:
        if (step.a == PROXY_ASYNC) async_fence();
        else if (is_first) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        break;
      case SYNC:
      case BAR_ARRIVE:
        in_time = met(meetings + step.a, step.b, step.op == SYNC);
        break;
      case CLUSTER:
        if (step.a != CLUSTER_WAIT) cluster_arrivals++;
        if (step.a != CLUSTER_WAIT && lane == 0) cluster.arrive();
        __syncwarp();
        if (step.a != CLUSTER_ARRIVE) in_time = cluster.waited(cluster_waits++);
        break;
      case INIT:
        if (is_first) barrier_init(barrier, step.b);
        break;
    }
    __syncwarp();
    if (in_time && step.warps_meet && self.warps > 1)
      in_time = met(meetings + BARS + self.role, threads, 1);
    if (!in_time) break;
  }
  __syncwarp();
  if (self.first_step >= 0 && in_time) {
    if (cluster_arrivals > cluster_waits) cluster.waited(cluster_arrivals - 1);  // it still counts in this generation
    if (lane == 0) cluster.leave();
  }
  __syncwarp();

  // The interpreter's own end: nothing stays under way, whatever the pipeline forgot.
  asm volatile("cp.async.wait_all;" ::: "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncwarp();
  if (self.first_step >= 0 && in_time && self.number == 0)
    for (int each = self.first_step; each < at; each++) {
      Step step = steps[each];
      for (int chunk = lane; step.op == STORE && chunk < step.b; chunk += LANES) {
        u32 word[4];
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                     : "l"(target + step.d + 16 * chunk) : "memory");
        compare(word, chunk, serials[step.c + chunk], each, result);
      }
    }
  if (self.first_step >= 0 && lane == 0) {
    atomicAdd(result + WARPS_DONE, 1);
    if (!in_time && atomicAdd(result + HUNG_WARPS, 1) == 0) result[HUNG_STEP] = at;
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
  // What is still under way lands, and a fault of a barrier is reported, while the block lives.
  for (u64 start = nanoseconds(); nanoseconds() - start < FLIGHT_NS;) {
  }
}

extern "C" __launch_bounds__(512) __global__ void __cluster_dims__(1, 1, 1)
    clusters_of_1(const Pipeline* pipelines, const Warp* warps, const Step* steps, const u32* serials, const int* counts,
                  const u8* source, int seeds, int target_bytes, u8* targets, int* results) {
  carry_out(pipelines, warps, steps, serials, counts, source, seeds, target_bytes, targets, results);
}

extern "C" __launch_bounds__(512) __global__ void __cluster_dims__(2, 1, 1)
    clusters_of_2(const Pipeline* pipelines, const Warp* warps, const Step* steps, const u32* serials, const int* counts,
                  const u8* source, int seeds, int target_bytes, u8* targets, int* results) {
  carry_out(pipelines, warps, steps, serials, counts, source, seeds, target_bytes, targets, results);
}

extern "C" __launch_bounds__(512) __global__ void __cluster_dims__(4, 1, 1)
    clusters_of_4(const Pipeline* pipelines, const Warp* warps, const Step* steps, const u32* serials, const int* counts,
                  const u8* source, int seeds, int target_bytes, u8* targets, int* results) {
  carry_out(pipelines, warps, steps, serials, counts, source, seeds, target_bytes, targets, results);
}
