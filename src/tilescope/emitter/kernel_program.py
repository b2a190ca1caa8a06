"""A planned kernel as CUDA: its shared memory, its barriers, and the loops of its roles, with named gaps for the arithmetic.

    struct Shared          a union of padded members, one for each tile, so that overlays have their addresses
    init_barriers          the counts of the plan
    kernel                 a branch for each role; waits, arrivals, copies and fences are those of the proven pipeline
    gap_consumer_3         what step 3 of the consumer computes: empty, until somebody writes it

A known kernel may provide the bodies of its gaps: `kernel_source(plan, bodies)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilescope.emitter.device_functions import BULK_HELPERS, CLUSTER_HELPERS, HELPERS, TENSOR_MEMORY_HELPERS
from tilescope.emitter.kernel_roles import INDENT, gap_name, identifier, role_lines
from tilescope.emitter.map_encoding import encode_function
from tilescope.kernel_plan.cluster_arrivals import acting_blocks, leads
from tilescope.kernel_plan.planned_kernel import KernelPlan, PlacedTile

_OFFSETOF = (
    "#if !defined(__CUDACC_RTC__) || __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1304  // NVRTC has offsetof since",
)


def kernel_target(plan: KernelPlan) -> str:
    """The architecture that the kernel is compiled for: the exact one, as wgmma, tcgen05 and setmaxnreg need it."""
    has_own = any(plan.arch.has(feature) for feature in ("wgmma", "tcgen05"))
    return f"{plan.arch.name}a" if has_own else plan.arch.name


def kernel_source(plan: KernelPlan, build: str = "", bodies: Mapping[str, str] | None = None) -> str:
    """The source text; `bodies` are those of gaps, by name.

    >>> from tilescope.kernel_plan import plan_kernel
    >>> source = kernel_source(plan_kernel("gemm"))
    >>> "static_assert(sizeof(Shared) == 197632" in source, "gap_consumer_1" in source
    (True, True)
    """
    writer = _Writer(plan, bodies or {})
    return writer.source(build)


class _Writer:
    """Writes the parts of a kernel's source."""

    def __init__(self, plan: KernelPlan, bodies: Mapping[str, str]) -> None:
        self.plan = plan
        self.bodies = bodies
        self.uses_tensor_memory = bool(plan.columns)
        self.blocks = acting_blocks(plan.kernel)
        self.has_leader = leads(plan.kernel, [role.name for role in plan.kernel.roles])
        self.loops = [loop.name for loop in plan.kernel.loops]
        copied = [tile for tile in plan.tiles if self._is_copied(tile.name)]
        self.mapped = [tile for tile in copied if tile.tensor_map is not None]
        self.unmapped = [tile for tile in copied if tile.tensor_map is None]  # contiguous bytes

    def source(self, build: str) -> str:
        """All parts below each other."""
        plan = self.plan
        head = [
            f"// {plan.kernel.name}: {plan.smem_bytes} bytes of shared memory, {plan.kernel.threads} threads, {kernel_target(plan)}.",
            "// The synchronization is that of the plan; gap_ functions are for the arithmetic and the coordinates.",
        ]
        if build:
            head += ["//", f"//     {build}"]
        parts = ["\n".join(head), *self._facts(), HELPERS.strip("\n")]
        if self.blocks > 1:
            parts.append(CLUSTER_HELPERS.strip("\n"))
        if self.uses_tensor_memory:
            parts.append(TENSOR_MEMORY_HELPERS.strip("\n").replace("GROUP", "2" if self.has_leader else "1"))
        parts += [
            *self._copies(),
            *self._bulk_copies(),
            self._declare_shared(),
            self._init(),
            *self._gaps(),
            self._kernel(),
            *self._encodings(),
        ]
        return "\n\n".join(parts) + "\n"

    def _is_copied(self, name: str) -> bool:
        kernel = self.plan.kernel
        loads = any(step.operation == "load" for _, step in kernel.writes_of(name))
        return loads or any(step.operation == "store" for _, step in kernel.reads_of(name))

    def _facts(self) -> Iterator[str]:
        lines = [f"constexpr int {name} = {value};" for name, value in self.plan.kernel.sizes.items()]
        lines.append(f"constexpr int THREADS = {self.plan.kernel.threads};")
        if self.uses_tensor_memory:
            lines.append(f"constexpr int ALLOC_COLUMNS = {self.plan.alloc_columns};")
            lines += [
                f"constexpr int COLUMN_{identifier(row.name)} = {row.first_column};  // {row.columns} columns, lane {row.lane}"
                for row in self.plan.columns
            ]
        yield "\n".join(lines)

    def _copies(self) -> Iterator[str]:
        """The copies of each rank that a map has; an im2col map takes the offsets of a filter tap besides."""
        kinds = {(tile.tensor_map.rank, tile.convolution is not None) for tile in self.mapped if tile.tensor_map}
        for rank, is_im2col in sorted(kinds):
            yield self._copy_in("copy_in", rank, is_im2col)
            if self.has_leader:
                yield self._copy_in("copy_in_for_first", rank, is_im2col)
            if self.blocks > 1 and any(tile.multicast for tile in self.plan.kernel.tiles) and not is_im2col:
                yield self._copy_in("copy_in_all", rank, is_im2col)
            if not is_im2col:
                operands = ", ".join(f'"r"(at[{place}])' for place in range(rank))
                out = ", ".join(f"%{place + 2}" for place in range(rank))
                yield (
                    f"__device__ __forceinline__ void copy_out(const Map* map, const void* from, const int (&at)[{rank}]) {{\n"
                    f'    asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%0, {{{out}}}], [%1];"\n'
                    f'        ::"l"(map), "r"(shared_address(from)), {operands} : "memory");\n}}'
                )

    def _bulk_copies(self) -> Iterator[str]:
        """The copies of tiles without a map: their bytes are contiguous."""
        if self.unmapped:
            yield BULK_HELPERS.strip("\n")

    def _copy_in(self, name: str, rank: int, is_im2col: bool) -> str:
        """A function that loads: into its own block, for the barrier of the first block, or into all blocks."""
        group = ".cta_group::2" if name == "copy_in_for_first" else ""
        mode = ".im2col" if is_im2col else ""
        all_blocks = ".multicast::cluster" if name == "copy_in_all" else ""
        bar = "address_in(bar, 0)" if name == "copy_in_for_first" else "shared_address(bar)"
        taken = ["void* to", "const Map* map", "unsigned long long* bar", f"const int (&at)[{rank}]"]
        operands = [f'"r"(at[{place}])' for place in range(rank)]
        into = ", ".join(f"%{place + 3}" for place in range(rank))
        further = ""
        if is_im2col:
            taken.append(f"const unsigned short (&tap)[{rank - 2}]")
            operands += [f'"h"(tap[{place}])' for place in range(rank - 2)]
            further = f", {{{', '.join(f'%{rank + 3 + place}' for place in range(rank - 2))}}}"
        if all_blocks:
            taken.append("unsigned short mask")
            operands.append('"h"(mask)')
            further += f", %{rank + 3}"
        load = (
            f"cp.async.bulk.tensor.{rank}d{group}.shared::cluster.global{mode}.mbarrier::complete_tx::bytes{all_blocks}"
        )
        return (
            f"__device__ __forceinline__ void {name}({', '.join(taken)}) {{\n"
            f'    asm volatile("{load} [%0], [%1, {{{into}}}], [%2]{further};"\n'
            f'        ::"r"(shared_address(to)), "l"(map), "r"({bar}), {", ".join(operands)} : "memory");\n}}'
        )

    def _declare_shared(self) -> str:
        """Shared memory: the offset of every tile; overlaid tiles use the same bytes."""
        plan = self.plan
        alignment = max([tile.alignment_bytes for tile in plan.tiles] + [8])
        lines = [f"union alignas({alignment}) Shared {{", f"{INDENT}unsigned char all[{plan.smem_bytes}];"]
        checks = [f'static_assert(sizeof(Shared) == {plan.smem_bytes}, "as planned");', *_OFFSETOF]
        for tile in plan.tiles:
            before = f"unsigned char before[{tile.offset_bytes}]; " if tile.offset_bytes else ""
            lines.append(f"{INDENT}struct {{ {before}unsigned char data[{tile.size_bytes}]; }} {tile.name};")
            checks.append(
                f'static_assert(__builtin_offsetof(Shared, {tile.name}.data) % {tile.alignment_bytes} == 0, "{tile.name}");'
            )
        if plan.barriers or self.uses_tensor_memory:
            before = f"unsigned char before[{plan.barriers_offset_bytes}]; " if plan.barriers_offset_bytes else ""
            members = " ".join(f"unsigned long long {row.name}[{row.stages}];" for row in plan.barriers)
            pointer = " unsigned tensor_memory;" if self.uses_tensor_memory else ""
            lines.append(f"{INDENT}struct {{ {before}{members}{pointer} }} bars;")
        lines.append("};")
        checks.append(
            f'#endif\nstatic_assert(sizeof(Shared) <= {plan.smem_limit_bytes}, "a block of {plan.arch.name}");'
        )
        return "\n".join([*lines, *checks])

    def _init(self) -> str:
        lines = ["__device__ __forceinline__ void init_barriers(Shared& shared) {"]
        stages = "for (int stage = 0; stage < {0}; ++stage)"
        lines += [
            f"{INDENT}{stages.format(row.stages)} mbarrier_init(&shared.bars.{row.name}[stage], {row.count});"
            for row in self.plan.barriers
        ]
        lines.append(f'{INDENT}asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");')
        return "\n".join([*lines, "}"])

    def _gaps(self) -> Iterator[str]:
        """A function for the arithmetic of each step, and one for the coordinates of each tile that is copied."""
        counters = "".join(f", int {name}" for name in self.loops)
        for place, step in enumerate(self.plan.kernel.steps):
            if step.operation not in ("load", "store"):
                name = gap_name(step, place)
                body = self.bodies.get(name, f"{INDENT}// {step.title}")
                yield (f"__device__ __forceinline__ void {name}(Shared& shared, int instance{counters}) {{\n{body}\n}}")
        for tile in self.unmapped:
            name = f"gap_offset_{tile.name}"
            body = self.bodies.get(name, f"{INDENT}return 0;  // bytes from the start of {tile.name}")
            yield f"__device__ __forceinline__ long long {name}(int instance{counters}) {{\n{body}\n}}"
        for tile in self.mapped:
            assert tile.tensor_map is not None
            name = f"gap_coordinates_{tile.name}"
            body = self.bodies.get(name, f"{INDENT}// of the tile's first element, innermost first")
            rank = tile.tensor_map.rank
            yield f"__device__ __forceinline__ void {name}(int (&at)[{rank}], int instance{counters}) {{\n{body}\n}}"
            if tile.convolution is not None:
                name = f"gap_tap_{tile.name}"
                body = self.bodies.get(name, f"{INDENT}// offsets of the filter tap, innermost first: {_taps(tile)}")
                taken = f"unsigned short (&tap)[{rank - 2}], int instance{counters}"
                yield f"__device__ __forceinline__ void {name}({taken}) {{\n{body}\n}}"

    def _kernel(self) -> str:
        plan = self.plan
        maps = [f"const __grid_constant__ Map map_{tile.name}" for tile in self.mapped]
        maps += [f"unsigned char* const global_{tile.name}" for tile in self.unmapped]
        rounds = [f"const int {name}_rounds" for name in self.loops]
        bounds = f"__launch_bounds__({plan.kernel.threads}, {plan.blocks_per_sm})"
        if self.blocks > 1:
            bounds = f"__cluster_dims__({self.blocks}, 1, 1) {bounds}"
        lines = [
            f'extern "C" __global__ void {bounds} kernel({", ".join([*maps, *rounds])}) {{',
            f"{INDENT}extern __shared__ __align__(1024) unsigned char memory[];",
            f"{INDENT}Shared& shared = *reinterpret_cast<Shared*>(memory);",
            f"{INDENT}const int warp = threadIdx.x / 32;",
            f"{INDENT}if (threadIdx.x == 0) init_barriers(shared);",
        ]
        meet = "cluster_sync" if self.blocks > 1 else "__syncthreads"
        if self.blocks > 1:
            lines.append(f"{INDENT}const int rank = rank_in_cluster();")
        if self.has_leader:
            lines.append(f"{INDENT}{meet}();  // both blocks run before columns of both are allocated")
        if self.uses_tensor_memory:
            lines.append(f"{INDENT}if (warp == 0) tensor_alloc(&shared.bars.tensor_memory, ALLOC_COLUMNS);")
        lines.append(f"{INDENT}{meet}();")
        first = 0
        for number, role in enumerate(plan.pipeline.roles):
            row = plan.kernel.role(role.name)
            word = "if" if number == 0 else "} else if"
            lines.append(f"{INDENT}{word} (warp < {first + row.all_warps}) {{  // {role.name}")
            lines.append(f"{INDENT * 2}const int instance = (warp - {first}) / {row.warps};")
            lines.append(f"{INDENT * 2}const int role_warp = (warp - {first}) % {row.warps};")
            lines.append(f"{INDENT * 2}const bool leads = role_warp == 0 && threadIdx.x % 32 == 0;")
            is_leading = leads(plan.kernel, [role.name])
            lines += [f"{INDENT * 2}if (rank == 0) {{"] if is_leading else []
            lines += role_lines(plan, role)
            lines += [f"{INDENT * 2}}}"] if is_leading else []
            first += row.all_warps
        lines.append(f"{INDENT}}}")
        if self.uses_tensor_memory or self.blocks > 1:
            lines.append(f"{INDENT}{meet}();")
        if self.uses_tensor_memory:
            lines.append(f"{INDENT}if (warp == 0) tensor_dealloc(shared.bars.tensor_memory, ALLOC_COLUMNS);")
        return "\n".join([*lines, "}"])

    def _encodings(self) -> Iterator[str]:
        """For the host: how the driver encodes the map of each tensor that the kernel names."""
        named = [tile for tile in self.mapped if self.plan.kernel.tile(tile.name).tensor is not None]
        if named:
            maps = [tile_map for tile in named if (tile_map := tile.tensor_map) is not None]
            functions = [encode_function(tile.name, tile_map) for tile, tile_map in zip(named, maps, strict=True)]
            head = "#ifndef __CUDACC_RTC__  // for the host\n#include <cuda.h>\n#include <cuda_runtime.h>"
            yield "\n\n".join([head, *functions, "#endif"])


def _taps(tile: PlacedTile) -> str:
    """The offsets of the last filter tap, as an example."""
    assert tile.convolution is not None
    offsets = tile.convolution.offsets
    place = "tap"
    while isinstance(offsets[-1], tuple):
        place += f" {len(offsets) - 1}"
        offsets = offsets[-1]
    return f"{place} has {', '.join(map(str, offsets))}"
