"""A planned kernel as CUDA: its shared memory, its barriers, and the loops of its roles, with named gaps for the arithmetic.

    struct Shared          a union of padded members, one for each tile, so that overlays have their addresses
    init_barriers          the counts of the plan
    kernel                 a branch for each role; waits, arrivals, copies and fences are those of the proven pipeline
    gap_consumer_3         what step 3 of the consumer computes: empty, until somebody writes it

A known kernel may bring the bodies of its gaps: `kernel_source(plan, bodies)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tilescope.emitter.device_functions import BULK_HELPERS, CLUSTER_HELPERS, HELPERS, TENSOR_MEMORY_HELPERS
from tilescope.emitter.map_encoding import encode_function
from tilescope.kernel_plan.cluster_arrivals import acting_blocks, every_block, leads
from tilescope.kernel_plan.handovers import Ring, derive_rings
from tilescope.kernel_plan.kernel_description import KernelStep
from tilescope.kernel_plan.kernel_pipeline import STEP_MARK
from tilescope.kernel_plan.planned_kernel import KernelPlan, PlacedTile
from tilescope.kernel_plan.ring_counters import round_number
from tilescope.pipeline.expression import reference
from tilescope.pipeline.parts import Loop, Role, Step
from tilescope.tensor_map import TensorMap

_INDENT = "    "
_ARITHMETIC = ("read", "write", "multiply")
_ARRIVING = ("arrive", "commit")
_COMMIT = {
    "wgmma": 'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");',
    "bulk": 'asm volatile("cp.async.bulk.commit_group;" ::: "memory");',
}
_WAIT_GROUP = {
    "wgmma": 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");',
    "bulk": 'asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");',
}
_FENCE = {
    "proxy.async": 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");',
    "tcgen05.after": 'asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");',
    "tcgen05.before": 'asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");',
}
_FIXED = {"commit": _COMMIT, "wait_group": _WAIT_GROUP, "fence": _FENCE}
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
        self.barriers = {row.name for row in plan.barriers}
        self.rings = derive_rings(plan.kernel)
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
                f"constexpr int COLUMN_{_identifier(row.name)} = {row.first_column};  // {row.columns} columns, lane {row.lane}"
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
                given = ", ".join(f'"r"(at[{place}])' for place in range(rank))
                out = ", ".join(f"%{place + 2}" for place in range(rank))
                yield (
                    f"__device__ __forceinline__ void copy_out(const Map* map, const void* from, const int (&at)[{rank}]) {{\n"
                    f'    asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%0, {{{out}}}], [%1];"\n'
                    f'        ::"l"(map), "r"(shared_address(from)), {given} : "memory");\n}}'
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
        given = [f'"r"(at[{place}])' for place in range(rank)]
        into = ", ".join(f"%{place + 3}" for place in range(rank))
        further = ""
        if is_im2col:
            taken.append(f"const unsigned short (&tap)[{rank - 2}]")
            given += [f'"h"(tap[{place}])' for place in range(rank - 2)]
            further = f", {{{', '.join(f'%{rank + 3 + place}' for place in range(rank - 2))}}}"
        if all_blocks:
            taken.append("unsigned short mask")
            given.append('"h"(mask)')
            further += f", %{rank + 3}"
        load = (
            f"cp.async.bulk.tensor.{rank}d{group}.shared::cluster.global{mode}.mbarrier::complete_tx::bytes{all_blocks}"
        )
        return (
            f"__device__ __forceinline__ void {name}({', '.join(taken)}) {{\n"
            f'    asm volatile("{load} [%0], [%1, {{{into}}}], [%2]{further};"\n'
            f'        ::"r"(shared_address(to)), "l"(map), "r"({bar}), {", ".join(given)} : "memory");\n}}'
        )

    def _declare_shared(self) -> str:
        """Shared memory: every tile at its own offset, those that lie over each other in the same bytes."""
        plan = self.plan
        alignment = max([tile.alignment_bytes for tile in plan.tiles] + [8])
        lines = [f"union alignas({alignment}) Shared {{", f"{_INDENT}unsigned char all[{plan.smem_bytes}];"]
        checks = [f'static_assert(sizeof(Shared) == {plan.smem_bytes}, "as planned");', *_OFFSETOF]
        for tile in plan.tiles:
            before = f"unsigned char before[{tile.offset_bytes}]; " if tile.offset_bytes else ""
            lines.append(f"{_INDENT}struct {{ {before}unsigned char data[{tile.size_bytes}]; }} {tile.name};")
            checks.append(
                f'static_assert(__builtin_offsetof(Shared, {tile.name}.data) % {tile.alignment_bytes} == 0, "{tile.name}");'
            )
        if plan.barriers or self.uses_tensor_memory:
            before = f"unsigned char before[{plan.barriers_offset_bytes}]; " if plan.barriers_offset_bytes else ""
            members = " ".join(f"unsigned long long {row.name}[{row.stages}];" for row in plan.barriers)
            pointer = " unsigned tensor_memory;" if self.uses_tensor_memory else ""
            lines.append(f"{_INDENT}struct {{ {before}{members}{pointer} }} bars;")
        lines.append("};")
        checks.append(
            f'#endif\nstatic_assert(sizeof(Shared) <= {plan.smem_limit_bytes}, "a block of {plan.arch.name}");'
        )
        return "\n".join([*lines, *checks])

    def _init(self) -> str:
        lines = ["__device__ __forceinline__ void init_barriers(Shared& shared) {"]
        stages = "for (int stage = 0; stage < {0}; ++stage)"
        lines += [
            f"{_INDENT}{stages.format(row.stages)} mbarrier_init(&shared.bars.{row.name}[stage], {row.count});"
            for row in self.plan.barriers
        ]
        lines.append(f'{_INDENT}asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");')
        return "\n".join([*lines, "}"])

    def _gaps(self) -> Iterator[str]:
        """A function for the arithmetic of each step, and one for the coordinates of each tile that is copied."""
        counters = "".join(f", int {name}" for name in self.loops)
        for place, step in enumerate(self.plan.kernel.steps):
            if step.operation not in ("load", "store"):
                name = _gap_name(step, place)
                body = self.bodies.get(name, f"{_INDENT}// {step.title}")
                yield (f"__device__ __forceinline__ void {name}(Shared& shared, int instance{counters}) {{\n{body}\n}}")
        for tile in self.unmapped:
            name = f"gap_offset_{tile.name}"
            body = self.bodies.get(name, f"{_INDENT}return 0;  // bytes from the start of {tile.name}")
            yield f"__device__ __forceinline__ long long {name}(int instance{counters}) {{\n{body}\n}}"
        for tile in self.mapped:
            assert tile.tensor_map is not None
            name = f"gap_coordinates_{tile.name}"
            body = self.bodies.get(name, f"{_INDENT}// of the tile's first element, innermost first")
            rank = tile.tensor_map.rank
            yield f"__device__ __forceinline__ void {name}(int (&at)[{rank}], int instance{counters}) {{\n{body}\n}}"
            if tile.convolution is not None:
                name = f"gap_tap_{tile.name}"
                body = self.bodies.get(name, f"{_INDENT}// offsets of the filter tap, innermost first: {_taps(tile)}")
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
            f"{_INDENT}extern __shared__ __align__(1024) unsigned char memory[];",
            f"{_INDENT}Shared& shared = *reinterpret_cast<Shared*>(memory);",
            f"{_INDENT}const int warp = threadIdx.x / 32;",
            f"{_INDENT}if (threadIdx.x == 0) init_barriers(shared);",
        ]
        meet = "cluster_sync" if self.blocks > 1 else "__syncthreads"
        if self.blocks > 1:
            lines.append(f"{_INDENT}const int rank = rank_in_cluster();")
        if self.has_leader:
            lines.append(f"{_INDENT}{meet}();  // both blocks run before columns of both are allocated")
        if self.uses_tensor_memory:
            lines.append(f"{_INDENT}if (warp == 0) tensor_alloc(&shared.bars.tensor_memory, ALLOC_COLUMNS);")
        lines.append(f"{_INDENT}{meet}();")
        first = 0
        for number, role in enumerate(plan.pipeline.roles):
            row = plan.kernel.role(role.name)
            word = "if" if number == 0 else "} else if"
            lines.append(f"{_INDENT}{word} (warp < {first + row.all_warps}) {{  // {role.name}")
            lines.append(f"{_INDENT * 2}const int instance = (warp - {first}) / {row.warps};")
            lines.append(f"{_INDENT * 2}const int role_warp = (warp - {first}) % {row.warps};")
            lines.append(f"{_INDENT * 2}const bool leads = role_warp == 0 && threadIdx.x % 32 == 0;")
            is_leading = leads(plan.kernel, [role.name])
            lines += [f"{_INDENT * 2}if (rank == 0) {{"] if is_leading else []
            lines += self._role(role)
            lines += [f"{_INDENT * 2}}}"] if is_leading else []
            first += row.all_warps
        lines.append(f"{_INDENT}}}")
        if self.uses_tensor_memory or self.blocks > 1:
            lines.append(f"{_INDENT}{meet}();")
        if self.uses_tensor_memory:
            lines.append(f"{_INDENT}if (warp == 0) tensor_dealloc(shared.bars.tensor_memory, ALLOC_COLUMNS);")
        return "\n".join([*lines, "}"])

    def _encodings(self) -> Iterator[str]:
        """For the host: how the driver encodes the map of each tensor that the kernel names."""
        named = [tile for tile in self.mapped if self.plan.kernel.tile(tile.name).tensor is not None]
        if named:
            maps = [tile_map for tile in named if (tile_map := tile.tensor_map) is not None]
            functions = [encode_function(tile.name, tile_map) for tile, tile_map in zip(named, maps, strict=True)]
            head = "#ifndef __CUDACC_RTC__  // for the host\n#include <cuda.h>\n#include <cuda_runtime.h>"
            yield "\n\n".join([head, *functions, "#endif"])

    def _role(self, role: Role) -> list[str]:
        """The steps of a role: the synchronization of the pipeline, and its arithmetic in the same places.

        A role that copies and issues products alone is one thread's work. Other threads would wait without arriving, and
        could miss a phase.
        """
        writer = _RoleWriter(self, role.name)
        if not writer.is_of_one_thread(role.steps):
            return writer.lines(role.steps, ())
        collective = [step for step in role.steps if isinstance(step, Step) and step.op == "registers"]
        alone = [step for step in role.steps if step not in collective]
        body = [f"{_INDENT}{line}" for line in writer.lines(alone, ())]
        return [*writer.lines(collective, ()), f"{_INDENT * 2}if (leads) {{", *body, f"{_INDENT * 2}}}"]

    def ring_of(self, barrier: str) -> Ring:
        """The ring whose tiles a barrier tells to be filled."""
        return next(ring for ring in self.rings if ring.is_passed_on and ring.barrier_name(1) == barrier)

    def stage_address(self, tile: PlacedTile, stage: str) -> str:
        """Where a stage of a tile starts, in C.

        Of two tiles of different sizes that take turns, a slot starts behind the slots before it, which hold the other tile
        and its own in turn.
        """
        ring = next(ring for ring in self.rings if tile.name in ring.tiles)
        if len(ring.fills) == 2:
            own, other = (self._slot_bytes(name) for name in (tile.name, *(set(ring.tiles) - {tile.name})))
            if own != other:
                return f"shared.{tile.name}.data + (({stage}) + 1) / 2 * {other} + ({stage}) / 2 * {own}"
        row = self.plan.kernel.tile(tile.name)
        copies = self.plan.kernel.copies_of(row)
        index = stage if copies == 1 else f"({stage}) * {copies} + instance"
        return (
            f"shared.{tile.name}.data" if index == "0" else f"shared.{tile.name}.data + ({index}) * {tile.stage_bytes}"
        )

    def _slot_bytes(self, name: str) -> int:
        tile = self.plan.tile(name)
        return self.plan.kernel.tile(name).stage_bytes if tile.plan is None else tile.plan.smem_bytes


class _RoleWriter:
    """Writes the steps of one role; the kernel's own steps are called where their actions are."""

    def __init__(self, writer: _Writer, name: str) -> None:
        self.writer = writer
        self.plan = writer.plan
        self.kernel = writer.plan.kernel
        self.role = self.kernel.role(name)
        self.called: set[int] = set()

    def is_of_one_thread(self, steps: Sequence[Step | Loop]) -> bool:
        """Whether one thread does all steps: copies and products of tcgen05, without a meeting of warps."""
        own = [step.operation for step in self.kernel.steps if step.role == self.role.name]
        is_alone = bool(own) and all(operation in ("load", "store", "tcgen05.mma") for operation in own)
        return is_alone and not any(_has_meeting(step) for step in steps)

    def lines(self, steps: Sequence[Step | Loop], path: tuple[str, ...]) -> list[str]:
        """The text of steps at one level of loops."""
        margin = _INDENT * (2 + len(path))
        own = [
            place
            for place, step in enumerate(self.kernel.steps)
            if step.role == self.role.name and self.kernel.path(step.loop) == path
        ]
        text: list[str] = []
        for step in steps:
            place = _first_place(step)
            if place is not None:
                text += [
                    f"{margin}{self._call(earlier)}" for earlier in own if earlier < place and self._is_due(earlier)
                ]
            if isinstance(step, Loop):
                counter = step.counter
                start, count = _in_c(step.start), _in_c(step.count)
                end = count if start == "0" else f"{start} + {count}"
                text.append(f"{margin}for (int {counter} = {start}; {counter} < {end}; ++{counter}) {{")
                text += self.lines(step.steps, (*path, counter))
                text.append(f"{margin}}}")
                continue
            if place in own and (step.op in _ARITHMETIC or step.op in _ARRIVING) and self._is_due(place):
                text.append(f"{margin}{self._call(place)}")
            is_own = place in own and self.kernel.steps[place].operation in ("load", "tcgen05.mma")
            only = "if (leads) " if is_own and step.op == "wait" else ""  # others would wait without arriving
            text += [f"{margin}{only}{line}" for line in self._action(step, place)]
        return text + [f"{margin}{self._call(place)}" for place in own if self._is_due(place)]

    def _is_due(self, place: int) -> bool:
        """Whether the arithmetic of a step is not called yet."""
        return place not in self.called and self.kernel.steps[place].operation not in ("load", "store")

    def _call(self, place: int) -> str:
        self.called.add(place)
        step = self.kernel.steps[place]
        inside = self.kernel.path(step.loop)
        counters = "".join(f", {name}" if name in inside else ", 0" for name in self.writer.loops)
        return f"{_gap_name(step, place)}(shared, instance{counters});"

    def _action(self, step: Step, place: int | None) -> list[str]:
        """The C of one step of the pipeline."""
        match step.op:
            case "wait" | "tail":
                return [f"mbarrier_wait({_bar(step.target)}, {_in_c(step.arguments['parity'])});"]
            case "expect":
                assert place is not None
                return self._load(step, place)
            case "arrive":
                is_of_warps = int(step.arguments.get("count", 1)) > 1
                who = "threadIdx.x % 32 == 0" if is_of_warps else "leads"
                meeting = ["__syncwarp();"] if is_of_warps else []
                return [*meeting, f"if ({_if_also(who, step)}) {_call_at('mbarrier_arrive', step)}"]
            case "commit" if step.target not in _COMMIT:
                return [f"if (leads) {_call_at('tensor_commit', step)}"]
            case "commit" | "wait_group" | "fence":
                return [_FIXED[step.op][str(step.target)]]
            case "sync":
                return [f"bar_sync({_in_c(step.target)}, {step.arguments['threads']});"]
            case "registers":
                change = "dec" if int(str(step.target)) < self.plan.entry_registers else "inc"
                return [f'asm volatile("setmaxnreg.{change}.sync.aligned.u32 {step.target};");']
            case "store":
                assert place is not None
                return self._store(place)
        return []

    def _load(self, step: Step, place: int) -> list[str]:
        """The bytes that are expected, and the copies that bring them."""
        barrier, stage = reference("expect", step.target)
        ring = self.writer.ring_of(barrier)
        arrives = step.arguments.get("arrive", True)
        expects = "mbarrier_arrive_expect" if arrives else "mbarrier_expect"
        bar = _bar(step.target)
        expected = f"{expects}({bar}, {step.arguments['bytes']});"
        condition = step.when
        text = ["if (leads) {", f"{_INDENT}if ({_in_c(condition)}) {expected}" if condition else f"{_INDENT}{expected}"]
        fill = next(names for names in ring.fills if set(names) & set(self.kernel.steps[place].writes))
        for name in fill:
            if name in self.kernel.steps[place].writes:
                text += [f"{_INDENT}{line}" for line in self._copies(self.plan.tile(name), place, _in_c(stage), bar)]
        return [*text, "}"]

    def _store(self, place: int) -> list[str]:
        """The copies of all tiles that a step stores; they are written once, at its first action."""
        if place in self.called:
            return []
        self.called.add(place)
        text = ["if (leads) {"]
        for name in self.kernel.steps[place].inputs:
            tile = self.plan.tile(name)
            ring = next(ring for ring in self.writer.rings if name in ring.tiles)
            stage = "0" if tile.stages == 1 else f"{round_number(self.kernel, ring.home)} % {tile.stages}"
            text += [f"{_INDENT}{line}" for line in self._copies(tile, place, stage, "")]
        return [*text, "}"]

    def _copies(self, tile: PlacedTile, place: int, stage: str, bar: str) -> list[str]:
        """The copies of a tile's boxes, in or out."""
        inside = self.kernel.path(self.kernel.steps[place].loop)
        counters = "".join(f", {name}" if name in inside else ", 0" for name in self.writer.loops)
        if tile.tensor_map is None or tile.plan is None:
            smem = self.writer.stage_address(tile, stage)
            size = self.kernel.tile(tile.name).stage_bytes
            from_start = f"global_{tile.name} + gap_offset_{tile.name}(instance{counters})"
            if bar:
                return [f"copy_bytes_in({smem}, {from_start}, {bar}, {size});"]
            return [f"copy_bytes_out({from_start}, {smem}, {size});"]
        rank = tile.tensor_map.rank
        text = [
            f"int at_{tile.name}[{rank}] = {{}};",
            f"gap_coordinates_{tile.name}(at_{tile.name}, instance{counters});",
        ]
        if tile.convolution is not None:
            text.append(f"unsigned short tap_{tile.name}[{rank - 2}] = {{}};")
            text.append(f"gap_tap_{tile.name}(tap_{tile.name}, instance{counters});")
        for copy in tile.plan.copies:
            coords = [*copy.coords, *(0 for _ in range(rank - len(copy.coords)))]
            at = [
                f"at_{tile.name}[{axis}] + {start}" if start else f"at_{tile.name}[{axis}]"
                for axis, start in enumerate(coords)
            ]
            smem = f"{self.writer.stage_address(tile, stage)} + {copy.smem_offset_bytes}"
            if bar:
                text.append(self._copy_in(tile, smem, bar, at))
            else:
                text.append(f"copy_out(&map_{tile.name}, {smem}, {{{', '.join(at)}}});")
        return text

    def _copy_in(self, tile: PlacedTile, smem: str, bar: str, at: list[str]) -> str:
        """A load: into one block, into all of them, or for the barrier of the first block."""
        multicast = self.kernel.tile(tile.name).multicast if self.writer.blocks > 1 else None
        if multicast == "slices":
            assert isinstance(tile.tensor_map, TensorMap)
            at = [at[0], f"{at[1]} + rank * {tile.tensor_map.box[1]}", *at[2:]]
            smem = f"{smem} + rank * {tile.tensor_map.smem_bytes}"
        given = f"{smem}, &map_{tile.name}, {bar}, {{{', '.join(at)}}}"
        if tile.convolution is not None:
            given += f", tap_{tile.name}"
        if multicast is not None:
            only_first = "if (rank == 0) " if multicast == "first" else ""
            return f"{only_first}copy_in_all({given}, {every_block(self.kernel)});"
        readers = [step.role for _, step in self.kernel.reads_of(tile.name)]
        return f"copy_in_for_first({given});" if leads(self.kernel, readers) else f"copy_in({given});"


def _has_meeting(step: Step | Loop) -> bool:
    """Whether warps meet in a step, or inside a loop."""
    return any(_has_meeting(inner) for inner in step.steps) if isinstance(step, Loop) else step.op == "sync"


def _first_place(step: Step | Loop) -> int | None:
    """The place of the kernel's step that an action belongs to; of a loop, that of its first one."""
    if isinstance(step, Loop):
        return next((place for inner in step.steps if (place := _first_place(inner)) is not None), None)
    return int(step.at.removeprefix(STEP_MARK)) if step.at else None


def _taps(tile: PlacedTile) -> str:
    """The offsets of the last filter tap, as an example."""
    assert tile.convolution is not None
    offsets = tile.convolution.offsets
    place = "tap"
    while isinstance(offsets[-1], tuple):
        place += f" {len(offsets) - 1}"
        offsets = offsets[-1]
    return f"{place} has {', '.join(map(str, offsets))}"


def _if_also(who: str, step: Step) -> str:
    """The threads that do a step, in C: with its condition, if it has one."""
    return f"{who} && {_in_c(step.when)}" if step.when else who


def _call_at(function: str, step: Step) -> str:
    """A call for a barrier of the own block, or of those that the step's mask has."""
    mask = step.arguments.get("mask")
    return f"{function}({_bar(step.target)});" if mask is None else f"{function}_at({_bar(step.target)}, {mask});"


def _bar(target: object) -> str:
    """The address of a barrier, in C."""
    name, stage = reference("barrier", target)
    return f"&shared.bars.{name}[{_in_c(stage)}]"


def _in_c(expression: object) -> str:
    """An expression of the pipeline in C."""
    return str(expression).replace(" and ", " && ").replace(" or ", " || ")


def _gap_name(step: KernelStep, place: int) -> str:
    return f"gap_{_identifier(step.role)}_{place}"


def _identifier(text: str) -> str:
    """A name that C takes: S[1] is S_1."""
    return re.sub(r"\W+", "_", text).strip("_")
