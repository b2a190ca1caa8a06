"""What the kernels of Triton's repository compute, for the launches of triton_launches.py.

A reference gets the arguments of the launch as they were before it, and returns the expected arrays by their position.
"""

import numpy as np


def _wide(array):
    return array.astype(np.float64)


def product(a, b):
    """Of matrices: rows of the first with columns of the second."""
    return lambda arguments: {2: _wide(arguments[a]) @ _wide(arguments[b])}


def product_transposed(arguments):
    """The second matrix has its rows along n."""
    return {2: _wide(arguments[0]) @ _wide(arguments[1]).swapaxes(-1, -2)}


def _leaky_relu(values):
    return np.where(values >= 0, values, 0.01 * values)


def softmax(values):
    powers = np.exp(_wide(values) - _wide(values).max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def added(arguments):
    return {2: arguments[0] + arguments[1]}


def copied(arguments):
    return {1: arguments[0]}


def _attention(a):
    """Two heads of 128 rows, causal; scaled before exp2 by log2(e)."""
    q, k, v = (_wide(a[index]).reshape(2, 128, 64) for index in (4, 5, 6))
    scores = q @ k.swapaxes(1, 2) * a[0]
    scores[:, ~np.tril(np.ones((128, 128), bool))] = -np.inf
    return {7: softmax(scores) @ v}


def _layer_norm(a):
    x = _wide(a[0])
    centred = x - x.mean(1, keepdims=True)
    return {1: centred / np.sqrt(x.var(1, keepdims=True) + 1e-5) * a[2] + a[3], 4: x.mean(1)}


def _small_mma(a):
    return {3: _wide(a[0]) @ _wide(a[1]) + a[2]}


def _join_with_mma(a):
    x = _wide(a[0]).reshape(-1)[:512].reshape(32, 16)
    joined = np.stack([x, 2 * x], -1).reshape(32, 32)
    found = _wide(a[1]).reshape(-1)
    found[:1024] = (joined @ joined).reshape(-1)
    return {1: found}


def _welford(a):
    x = _wide(a[0])
    return {1: [x.mean()], 2: [x.var()], 3: [x.sum()], 4: [x.sum()]}


def _funnel(a):
    low, high = a[0].astype(np.uint32).astype(np.uint64), a[1].astype(np.uint32).astype(np.uint64)
    return {2: (((high << 32 | low) << 5) >> 32).astype(np.uint32).view(np.int32)}


def _shifted_bytes(a):
    return {1: (a[0].view(np.uint8) << 3).view(np.int8)}


# By the kernel's name in triton_launches.py, with its file where the name is not enough.
TRITON_REFERENCES = {
    "01-vector-add add_kernel": added,
    "02-fused-softmax softmax_kernel": lambda a: {0: softmax(a[1])},
    "03-matrix-multiplication matmul_kernel": product(0, 1),
    "05-layer-norm _layer_norm_fwd_fused": _layer_norm,
    "05-layer-norm _layer_norm_bwd_dwdb": lambda a: {2: _wide(a[0]).sum(0), 3: _wide(a[1]).sum(0)},
    "06-fused-attention _attn_fwd": _attention,
    "06-fused-attention _attn_bwd_preprocess": lambda a: {2: (_wide(a[0]) * a[1]).sum(1)},
    "07-extern-functions asin_kernel": lambda a: {1: np.arcsin(_wide(a[0]))},
    "09-persistent-matmul matmul_kernel": product(0, 1),
    "09-persistent-matmul matmul_kernel_persistent": product(0, 1),
    "09-persistent-matmul matmul_kernel_tma": product_transposed,
    "09-persistent-matmul matmul_kernel_tma_persistent": product_transposed,
    "09-persistent-matmul matmul_kernel_descriptor_persistent": product_transposed,
    "11-programmatic-dependent-launch add_kernel": added,
    "01-intro copy_scalar_kernel": copied,
    "01-intro memcpy_kernel": copied,
    "02-layouts memcpy_1d_kernel": copied,
    "02-layouts memcpy_2d_kernel": copied,
    "03-async-copy memcpy_1d_cpasync_kernel": copied,
    "03-async-copy elementwise_add_kernel": added,
    "03-async-copy elementwise_add_cpasync_kernel": added,
    "03-async-copy elementwise_add_pipelined_kernel": added,
    "04-tma memcpy_1d_tma_kernel": copied,
    "04-tma elementwise_add_tma_kernel": added,
    "05-wgmma small_mma_kernel": _small_mma,
    "05-wgmma blocked_matmul_pipelined_kernel": product(0, 1),
    "07-persistence matmul_pipelined_kernel": product(0, 1),
    "07-persistence persistent_matmul_kernel": product(0, 1),
    "08-warp-specialization elementwise_add_warp_specialized_kernel": added,
    "14-multicta multicta_softmax_kernel": lambda a: {1: softmax(a[0])},
    "test_core test_addptr.kernel": copied,
    "test_core test_broadcast.broadcast_kernel": lambda a: {2: np.tile(a[1], (32, 1))},
    "test_core test_where.where_kernel": lambda a: {3: np.where(a[0] != 0, a[1], a[2])},
    "test_core test_math_fma_op.kernel": lambda a: {0: _wide(a[1]) * a[2] + a[3]},
    "test_core test_transpose.kernel": lambda a: {0: np.concatenate([a[1][:2], a[0][2:]])},
    "test_core test_umulhi.kernel": lambda a: {
        2: (a[0].astype(np.uint32).astype(np.uint64) * a[1].astype(np.uint32) >> 32).astype(np.uint32).view(np.int32)
    },
    "test_core test_join.kernel": lambda a: {2: np.stack([a[0], a[1]], 1)},
    "test_core test_join_with_mma.kernel": _join_with_mma,
    "test_core test_split.kernel": lambda a: {1: a[0][::2], 2: a[0][1::2]},
    "test_core test_interleave.kernel": lambda _: {0: np.stack([np.arange(128), np.arange(128, 256)], 1)},
    "test_core test_tensor_atomic_rmw_block.kernel": lambda a: {0: np.minimum(a[0], np.arange(64).reshape(8, 8))},
    "test_core test_atomic_cas.serialized_add": lambda a: {0: a[0] + 4, 1: a[1]},
    "test_core test_tensor_atomic_cas.change_value": lambda _: {0: np.full(8, 2)},
    "test_core test_atomic_min_max_neg_zero.kernel": lambda a: {1: np.maximum(a[0], a[1]), 2: np.minimum(a[0], a[2])},
    "test_core test_scan_1d.scan_kernel": lambda a: {0: np.tile(np.cumsum(a[1]), (2, 1))},
    "test_core test_generic_reduction.var_mean_kernel": _welford,
    "test_core test_dot_mulbroadcasted.kernel": lambda a: {0: _wide(a[1]) @ a[2]},
    "test_core test_arange._kernel": lambda _: {0: np.arange(128)},
    "test_core test_masked_load_shared_memory._kernel": product(0, 1),
    "test_core test_load_cache_modifier._kernel": lambda a: {0: a[1]},
    "test_core test_store_eviction_policy._kernel": lambda a: {0: a[1]},
    "test_core test_inline_asm.kernel": _funnel,
    "test_core test_inline_asm_packed.kernel": _shifted_bytes,
    "test_core test_inline_asm_with_pointers.kernel": _shifted_bytes,
    "test_core test_while.kernel": lambda _: {3: [1], 4: [1], 5: [1]},
    "test_core test_nested_while.nested_while": lambda _: {0: [10]},
    "test_core test_constexpr_if_return.kernel": lambda _: {0: [4]},
    "test_core test_num_threads.kernel": lambda _: {0: [1] * 128 + [0] * 128},
    "test_core test_clamp.kernel": lambda a: {4: np.minimum(np.maximum(a[0], a[1]), a[2])},
    "test_core test_temp_var_in_loop.temp_in_loop": lambda _: {0: np.full(32, 2 + 3 + 2)},
    "test_core test_indirect_load.indirect_load": lambda a: {2: a[1][a[0]]},
    "test_core matmul_kernel": product(0, 1),
    "test_standard test_flip.flip_kernel": lambda a: {1: a[0][:, ::-1]},
    "test_tensor_descriptor test_tensor_descriptor_load.kernel": lambda a: {0: a[1][32:, 64:96]},
    "test_tensor_descriptor test_host_tensor_descriptor_load.kernel": lambda a: {0: a[1][32:, 64:96]},
    "test_tensor_descriptor test_tensor_descriptor_store.kernel": lambda a: {0: a[1]},
    "test_tensor_descriptor matmul_kernel_make_tensor_descriptor": product(0, 1),
    "test_tensor_descriptor batched_gemm_3d_tma_kernel": product_transposed,
    "test_tensor_descriptor matmul_kernel_host_tensor_descriptor": product(0, 1),
}


def reference_of(launch):
    """The reference of a launch: its own, or the one that the table has for its file and kernel."""
    if launch.reference is not None or launch.source != "Triton":
        return launch.reference
    if launch.constants.get("ACTIVATION"):
        return lambda a: {2: _leaky_relu(product(0, 1)(a)[2])}
    if launch.kernel == "blocked_matmul_kernel":
        return product_transposed if launch.constants["TRANSPOSE_B"] else product(0, 1)
    file = launch.file.rpartition("/")[2].removesuffix(".py")
    return TRITON_REFERENCES.get(f"{file} {launch.kernel}")
