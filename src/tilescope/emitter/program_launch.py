"""The launch of an emitted program as a launch file describes it, so that `tilescope run gemm.cu` needs no options.

It is the launch of the program's host code: grid, block, shared memory, arrays of the program's shape, and its tensor
maps. The arrays hold random numbers. A product that is too large to emulate is not made smaller: the launch then has
only one cluster of the grid.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import e, log2, prod, sqrt
from pathlib import PurePath

from tilescope.arithmetic import ceil_div
from tilescope.data_type import DataType
from tilescope.emitter.attention_program import AttentionKernel, describe_attention
from tilescope.emitter.gemm_facts import GemmOperand
from tilescope.emitter.gemm_parameters import Parameter, gemm_parameters
from tilescope.emitter.gemm_program import gemm_program
from tilescope.emitter.tile_program import MatrixFacts, tile_program
from tilescope.kernel_plan.planned_kernel import KernelPlan
from tilescope.machine.launch.launch_description import (
    ALL,
    ArgumentDescription,
    ArrayArgument,
    Blocks,
    BytesArgument,
    FillName,
    LaunchDescription,
    MapArgument,
    NumberArgument,
)
from tilescope.machine.launch.launch_file import format_launch
from tilescope.planner.gemm_maps import gemm_map, launch_rows
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.planned_scales import SCALE_SLOTS
from tilescope.planner.plans import Plan
from tilescope.sync.thread_limits import WARPGROUP_THREADS
from tilescope.tensor_map import TensorMap

MOST_PRODUCTS = 1 << 28  # multiplications of a GEMM whose launch runs every block: about a minute
_ATTENTION_SHAPE = (1, 2, 1, 200, 300)  # batches, heads, heads of K and V, queries and keys
_FIRST_BLOCK: Blocks = ((0,),)


def describe_program_launch(plan: Plan | GemmPlan | KernelPlan) -> LaunchDescription:
    """The launch of the CUDA program that `emit` writes for a plan.

    >>> from tilescope.planner import plan_gemm
    >>> launch = describe_program_launch(plan_gemm(256, 256, 128, "bf16", tile=(128, 128, 64), stages=2))
    >>> launch.entry, launch.grid, launch.block, [argument.name for argument in launch.arguments]
    ('gemm_kernel', (4,), (320,), ['a_map', 'b_map', 'c_map', 'm_rows'])
    """
    if isinstance(plan, KernelPlan):
        return _describe_attention(describe_attention(plan))
    return _describe_gemm(plan) if isinstance(plan, GemmPlan) else _describe_tile(plan)


def format_program_launch(plan: Plan | GemmPlan | KernelPlan, file: str) -> str:
    """The launch file of the program `file`."""
    launch = describe_program_launch(plan)
    comments = {}
    if launch.blocks != ALL:
        assert launch.grid is not None
        comments["blocks"] = f"of {prod(launch.grid)}; without this line every block runs, which takes long"
    return f"# The launch of {PurePath(file).name}: tilescope run {PurePath(file).name}\n{format_launch(launch, comments)}\n"


def _describe_gemm(gemm: GemmPlan) -> LaunchDescription:
    program = gemm_program(gemm)
    m, n, _ = gemm.shape
    operands = {operand.name: operand for operand in program.product.operands}
    arguments: list[ArgumentDescription]
    if program.product.tma:
        a, b, c = (_describe_operand_map(gemm, operands[name]) for name in ("a", "b", "c"))
        arguments = [a, b, *_describe_scales(gemm), c]
    else:
        arguments = [
            _describe_array("a_matrix", gemm.data_type, _stored_shape(gemm, operands["a"])),
            _describe_array("b_matrix", gemm.data_type, _stored_shape(gemm, operands["b"])),
            _describe_array("c_matrix", gemm.output_type, (m, n), "zeros"),
        ]
    for parameter in gemm_parameters(gemm):
        described = _describe_parameter(parameter)
        if parameter.by_map:  # it is stored like C
            shape = _stored_c(gemm)
            described = _describe_map(parameter.given, gemm.output_type, shape, gemm_map(gemm, "c"), parameter.fill)
        arguments.append(described)
    return LaunchDescription(
        entry="gemm_kernel",
        grid=(gemm.blocks_on(gemm.sms or gemm.clusters * prod(gemm.schedule.cluster)),),
        block=(program.work.threads,),
        cluster=(gemm.schedule.split,) if gemm.schedule.split > 1 else None,
        smem_bytes=gemm.smem_bytes,
        arch=program.work.target,
        blocks=ALL if prod(gemm.shape) <= MOST_PRODUCTS else _FIRST_BLOCK,
        arguments=tuple(arguments),
    )


def _describe_parameter(parameter: Parameter) -> ArgumentDescription:
    if not parameter.size:
        return NumberArgument(name=parameter.name, value=parameter.value)
    return ArrayArgument(
        name=parameter.name, data_type=parameter.data_type, shape=(parameter.size,), fill=parameter.fill
    )


def _describe_attention(kernel: AttentionKernel) -> LaunchDescription:
    """Two heads that share K and V, with rows that end inside a tile, and two blocks: a whole run takes seconds."""
    batches, heads, kv_heads, queries, keys = _ATTENTION_SHAPE
    rows, head_dim = kernel.tiles["q"].plan.problem.tile
    query_tiles = ceil_div(queries, rows)
    tiles = query_tiles * batches * heads
    scale_log2 = log2(e) / sqrt(head_dim)
    problem = struct.pack("<5if3i", *_ATTENTION_SHAPE, scale_log2, query_tiles, tiles, batches * heads)
    shapes = {
        "q": (batches, heads, queries, head_dim),
        "k": (batches, kv_heads, keys, head_dim),
        "v": (batches, kv_heads, keys, head_dim),
        "o": (batches, heads, queries, head_dim),
    }
    arguments: list[ArgumentDescription] = [_describe_head_map(kernel, name, shape) for name, shape in shapes.items()]
    arguments.append(BytesArgument(name="problem", content=problem.hex()))
    return LaunchDescription(
        entry="attention_kernel",
        grid=(min(tiles, 2),),
        block=((kernel.groups + 1) * WARPGROUP_THREADS,),
        smem_bytes=kernel.smem_bytes,
        arch="sm_90a",
        arguments=tuple(arguments),
    )


def _describe_head_map(kernel: AttentionKernel, name: str, shape: tuple[int, ...]) -> MapArgument:
    """The map of Q, K, V or O: head dimension, rows, heads and batches."""
    plan = kernel.tiles[name].plan
    _, _, rows, head_dim = shape
    flat = plan.tensor_map(0, (head_dim, rows) if plan.problem.major == "MN" else (rows, head_dim))
    row_bytes = flat.strides_bytes[0]
    tensor_map = TensorMap(
        flat.data_type,
        tuple(reversed(shape)),
        (row_bytes, row_bytes * rows, row_bytes * rows * shape[1]),
        (*flat.box, 1, 1),
        swizzle=flat.swizzle,
        l2_promotion="256B",
    )
    return _describe_map(f"{name}_map", plan.problem.data_type, shape, tensor_map, "zeros" if name == "o" else "random")


def _describe_operand_map(gemm: GemmPlan, operand: GemmOperand) -> MapArgument:
    tensor_map = gemm_map(gemm, operand.name)
    items = (gemm.batch.count,) if gemm.batch.stacks(operand.name) else ()
    if operand.name == "c":
        return _describe_map("c_map", gemm.output_type, _stored_c(gemm), tensor_map, "zeros")
    element, (rows, columns) = gemm.data_type, _stored_shape(gemm, operand)
    if element.bits < 8:  # an array has elements of whole bytes
        element, columns = DataType.named("u8"), columns * element.bits // 8
    return _describe_map(f"{operand.name}_map", element, (*items, rows, columns), tensor_map)


def _stored_c(gemm: GemmPlan) -> tuple[int, ...]:
    """The shape of C in global memory, outermost first."""
    items = (gemm.batch.count,) if gemm.batch.stacks("c") else ()
    return *items, launch_rows(gemm), gemm.product.c_shape[1]


def _describe_scales(gemm: GemmPlan) -> Iterator[MapArgument]:
    """The maps of the scale factors, all of them 1."""
    if gemm.scales is None:
        return
    m, n, k = gemm.shape
    scale_type = gemm.scales.scale_data_type
    for name, plan, rows in zip(SCALE_SLOTS, gemm.scale_plans, (m, n), strict=True):
        tensor_map = plan.tensor_map(0, rows, k)
        size = prod(tensor_map.dims) * tensor_map.data_type.bits // scale_type.bits
        yield _describe_map(f"{name}_map", scale_type, (size,), tensor_map, "ones")


def _stored_shape(gemm: GemmPlan, operand: GemmOperand) -> tuple[int, int]:
    """The shape of A or B in global memory, outermost first."""
    _, n, k = gemm.shape
    mn = launch_rows(gemm) if operand.name == "a" else n
    return (k, mn) if operand.transposed else (mn, k)


def _describe_tile(plan: Plan) -> LaunchDescription:
    program = tile_program(plan)
    matrix = program.matrix
    problem = plan.problem
    mn, k = matrix.shape
    mn_tiles, k_tiles = ceil_div(mn, problem.tile[0]), ceil_div(k, problem.tile[1])
    fill: FillName = "random" if problem.direction == "load" else "zeros"
    rows, columns = (k, mn) if matrix.transposed else (mn, k)
    data_type, shape = _describe_pitch(problem.data_type, rows, matrix)
    arguments: list[ArgumentDescription]
    if matrix.tma:
        tensor_map = plan.tensor_map(0, matrix.shape, (matrix.pitch_bytes,))
        arguments = [_describe_map("map", data_type, shape, tensor_map, fill)]
    else:
        arguments = [
            _describe_array("matrix", data_type, shape, fill),
            NumberArgument(name="rows", value=rows),
            NumberArgument(name="row_bytes", value=columns * problem.data_type.bits // 8),
            NumberArgument(name="pitch_bytes", value=matrix.pitch_bytes),
        ]
    if program.reader is not None:
        result_type = {"Element": problem.data_type, "float": DataType.named("f32"), "int": DataType.named("s32")}
        result_shape = (mn_tiles * problem.tile[0], k_tiles * problem.tile[1])
        arguments.append(_describe_array("result", result_type[program.reader.result_type], result_shape, "zeros"))
    arguments.append(NumberArgument(name="k_tiles", value=k_tiles))
    return LaunchDescription(
        entry="tile_kernel",
        grid=(mn_tiles,),
        block=(program.work.threads,),
        smem_bytes=program.work.smem_bytes,
        arch=program.work.target,
        arguments=tuple(arguments),
    )


def _describe_pitch(element: DataType, rows: int, matrix: MatrixFacts) -> tuple[DataType, tuple[int, int]]:
    """The array that holds the matrix with the ends of its rows: of elements, or of bytes where the pitch is not a multiple."""
    element_bytes = element.bits // 8
    if matrix.pitch_bytes % element_bytes:
        return DataType.named("u8"), (rows, matrix.pitch_bytes)
    return element, (rows, matrix.pitch_bytes // element_bytes)


def _describe_array(name: str, data_type: DataType, shape: tuple[int, ...], fill: FillName = "random") -> ArrayArgument:
    return ArrayArgument(name=name, data_type=data_type.ptx, shape=shape, fill=fill)


def _describe_map(
    name: str, data_type: DataType, shape: tuple[int, ...], tensor_map: TensorMap, fill: FillName = "random"
) -> MapArgument:
    """A tensor map with everything that the program's host half gives the driver."""
    options = {
        "data_type": tensor_map.data_type.tma.name,
        "dims": tensor_map.dims,
        "strides_bytes": tensor_map.strides_bytes,
        "box": tensor_map.box,
        "swizzle": tensor_map.swizzle.name,
        "l2_promotion": tensor_map.l2_promotion.name,
    }
    if tensor_map.data_type.is_packed:  # which the first architecture with TMA does not move
        options["arch"] = tensor_map.arch.name
    return MapArgument(name=name, array=_describe_array("", data_type, shape, fill), options=options)
