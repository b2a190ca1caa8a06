"""Triton kernels of Liger-Kernel, unsloth, flash-linear-attention and vLLM: how they are launched, small, and what they compute.

Arguments are words, as in triton_launches.py; pointers that a launch leaves out are constants with the value None. A reference gets the
arguments as they were before the launch, and returns the expected arrays by their position.
"""

from functools import partial

import numpy as np
from triton_launches import TritonLaunch

LIGER = "src/liger_kernel/ops"
UNSLOTH = "unsloth/kernels"
FLA = "fla"
VLLM = "vllm"
EPSILON = 1e-5


def _wide(array):
    return array.astype(np.float64)


def sigmoid(x):
    return 1 / (1 + np.exp(-_wide(x)))


def silu(x):
    return _wide(x) * sigmoid(x)


def softmax(x):
    powers = np.exp(_wide(x) - _wide(x).max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def log_sum_exp(x):
    return np.log(np.exp(_wide(x)).sum(-1))


def gelu_by_tanh(x):
    x = _wide(x)
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x)))


def gelu(x):
    """By erf, from its integral: 0.5 (1 + erf(z)) for z = x / sqrt(2)."""
    x = _wide(x)
    points = np.linspace(0, 1, 2001)
    curve = np.exp(-((x[..., None] / np.sqrt(2) * points) ** 2))
    return 0.5 * x * (1 + 2 / np.sqrt(np.pi) * np.trapezoid(curve, points, axis=-1) * x / np.sqrt(2))


def root_mean_square(x):
    return np.sqrt((_wide(x) ** 2).mean(-1, keepdims=True) + EPSILON)


def normalized(x):
    x = _wide(x)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPSILON)


def rotated(x, cos, sin):
    """Rows of heads with both halves turned; cos and sin have a row for each token."""
    half = x.shape[-1] // 2
    first, second = _wide(x[..., :half]), _wide(x[..., half:])
    cos, sin = _wide(cos[:, None, :half]), _wide(sin[:, None, :half])
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def cross_entropy(a):
    logits, labels = _wide(a[0]), a[2]
    rows = np.arange(len(labels))
    gradient = softmax(logits)
    gradient[rows, labels] -= 1
    return {0: gradient / len(labels), 3: (log_sum_exp(logits) - logits[rows, labels]) / len(labels)}


def jensen_shannon(a):
    """Both arguments are logarithms; beta is 0.5."""
    q, p = np.exp(_wide(a[0])), np.exp(_wide(a[2]))
    mean = (p + q) / 2
    loss = 0.5 * p * np.log(p) + 0.5 * q * np.log(q) - mean * np.log(mean)
    return {4: loss / 4, 6: 0.5 * q * (np.log(q) - np.log(mean)) / 4}


def swiglu_gradient(a):
    gate = sigmoid(a[1])
    swish = _wide(a[1]) * gate
    return {1: a[0] * (swish * (1 - gate) + gate) * a[2], 2: a[0] * swish}


def unsloth_swiglu_gradient(a):
    gate = sigmoid(a[1])
    swish = _wide(a[1]) * gate
    return {0: swish * a[2], 1: a[0] * swish, 2: _wide(a[0]) * a[2] * gate * (1 + _wide(a[1]) * (1 - gate))}


def unsloth_gelu_gradient(a):
    x = _wide(a[1])
    slope = gelu(x) / x + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    return {0: gelu(x) * a[2], 1: a[0] * gelu(x), 2: _wide(a[0]) * a[2] * slope}


def group_norm(a):
    x = a[3].reshape(2, 2, 2 * 48)
    scale, shift = (np.repeat(_wide(a[index]).reshape(2, 2), 48, 1) for index in (12, 13))
    return {0: (normalized(x) * scale + shift).reshape(a[0].shape)}


def linear_attention(a, scale=0.5):
    """o_t = q_t H_t, H_t = H_(t-1) + k_t v_t^T, for every head."""
    q, k, v = (_wide(a[index]) for index in range(3))
    states = np.cumsum(np.einsum("thk,thv->thkv", k, v), 0)
    return {3: np.einsum("thk,thkv->thv", q, states) * scale}


def chunk_states(a):
    """The state before every chunk of 16 tokens."""
    k, v = (_wide(a[index]).reshape(3, 16, 2, 32) for index in (0, 1))
    sums = np.cumsum(np.einsum("cthk,cthv->chkv", k, v), 0)
    return {2: np.concatenate([np.zeros_like(sums[:1]), sums[:-1]])}


def chunk_outputs(a):
    q, k, v = (_wide(a[index]).reshape(3, 16, 2, 32) for index in range(3))
    scores = np.tril(np.einsum("cthk,cshk->chts", q, k))
    total = np.einsum("chts,cshv->cthv", scores, v) + np.einsum("cthk,chkv->cthv", q, _wide(a[3]))
    return {4: total.reshape(a[4].shape) * 0.5}


def hgrn(a):
    states = np.zeros(a[0].shape)
    state = np.zeros(a[0].shape[1])
    for step, (x, gate) in enumerate(zip(_wide(a[0]), _wide(a[1]), strict=True)):
        state = np.exp(gate) * state + x
        states[step] = state
    return {2: states}


def merged_splits(a):
    """Outputs of four splits, each with its log-sum-exp in the last column."""
    parts = _wide(a[0])
    weights = softmax(parts[..., 32])
    return {1: (parts[..., :32] * weights[..., None]).sum(2), 2: log_sum_exp(parts[..., 32])}


def prefill_attention(a):
    """Causal; one sequence of 48 tokens, two heads, scaled for exp2."""
    q, k, v = (_wide(a[index]) for index in range(3))
    scores = np.einsum("qhd,khd->hqk", q, k) * 0.25 * np.log(2)
    scores[:, ~np.tril(np.ones((48, 48), bool))] = -np.inf
    return {6: np.einsum("hqk,khd->qhd", softmax(scores), v)}


def scaled_blocks(a):
    """Scales for each row and 128 columns of A, and for each 128 x 128 block of B^T."""
    left = _wide(a[0]) * np.repeat(_wide(a[3]), 128, 1)
    right = _wide(a[1]) * np.repeat(np.repeat(_wide(a[4]), 128, 0), 128, 1)
    return {2: left @ right.T}


def _launch(source, folder, file, kernel, grid, arguments, constants, reference, **more):
    return TritonLaunch(
        f"{folder}/{file}.py", kernel, grid, arguments, constants, reference=reference, source=source, **more
    )


liger = partial(_launch, "Liger-Kernel", LIGER)
unsloth = partial(_launch, "unsloth", UNSLOTH)
fla = partial(_launch, "flash-linear-attention", FLA)
vllm = partial(_launch, "vLLM", VLLM)
BLOCK = {"BLOCK_SIZE": 256}
FLAT = {"BLOCK_SIZE": 256, "LONG_INDEXING": 0}
NO_SEQUENCES = {"cu_seqlens": None, "chunk_indices": None, "IS_VARLEN": False}
ROWS = "f32:4x200:zeros 200 f32:4x200 200"
STRIDED = {"D": 64, "B": 256}

LIBRARY_LAUNCHES = (
    liger(
        *("rms_norm", "_rms_norm_forward_kernel", 4, f"{ROWS} f32:200 1 f32:4:zeros 1 200 0.00001 0.0"),
        BLOCK | {"casting_mode": 0, "elementwise_affine": True},
        lambda a: {0: a[2] / root_mean_square(a[2]) * a[4]},
    ),
    liger(
        *(
            "layer_norm",
            "_layer_norm_forward_kernel",
            4,
            f"{ROWS} f32:200 1 f32:200 1 f32:4:zeros 1 f32:4:zeros 1 200 0.00001",
        ),
        *(BLOCK, lambda a: {0: normalized(a[2]) * a[4] + a[6]}),
    ),
    liger(
        *("swiglu", "_swiglu_forward_kernel", 4, "f32:4x200 f32:4x200 f32:4x200:zeros 200 1.0"),
        *(BLOCK | {"n_cols": 200}, lambda a: {2: silu(a[0]) * a[1]}),
    ),
    liger(
        *("swiglu", "_swiglu_backward_kernel", 4, "f32:4x200 f32:4x200 f32:4x200 200 1.0"),
        *(BLOCK | {"n_cols": 200}, swiglu_gradient),
    ),
    liger(
        *("geglu", "_geglu_tanh_forward_kernel", 4, "f32:4x200 f32:4x200 f32:4x200:zeros 200"),
        *(BLOCK | {"n_cols": 200}, lambda a: {2: gelu_by_tanh(a[0]) * a[1]}),
    ),
    liger(
        *("rope", "_triton_rope", 6, "f32:6x4x32 128 f32:6x2x32 64 f32:6x32 32 f32:6x32 32 6"),
        {
            "bs": 1,
            "cos_bs": 1,
            "n_qh": 4,
            "n_kh": 2,
            "hd": 32,
            "pad_n_qh": 4,
            "pad_n_kh": 2,
            "pad_hd": 32,
            "BLOCK_SIZE": 4,
            "BACKWARD_PASS": False,
        },
        lambda a: {0: rotated(a[0], a[4], a[6]), 2: rotated(a[2], a[4], a[6])},
    ),
    liger("softmax", "_softmax_single_block_forward_kernel", 4, f"{ROWS} 200", BLOCK, lambda a: {0: softmax(a[2])}),
    liger(
        *(
            "softmax",
            "_softmax_single_block_backward_kernel",
            4,
            "f32:4x200 200 f32:4x200 200 f32:4x200:zeros 200 200",
            BLOCK,
        ),
        lambda a: {4: a[2] * (_wide(a[0]) - (_wide(a[0]) * a[2]).sum(1, keepdims=True))},
    ),
    liger(
        *("cross_entropy", "liger_cross_entropy_kernel", 4),
        "f32:4x200 200 s64:4:arange f32:4:zeros 1 200 4 4 4.0 -100 0.0",
        {
            "Y_stride": 1,
            "weight_ptr": None,
            "z_loss_ptr": None,
            "token_accuracy_ptr": None,
            "token_accuracy_stride": 0,
            "predicted_tokens_ptr": None,
            "predicted_tokens_stride": 0,
            "lse_square_scale": 0.0,
            "label_smoothing": 0.0,
            "reduction": "mean",
            "RETURN_Z_LOSS": False,
            "RETURN_TOKEN_ACCURACY": False,
            "RETURN_PREDICTED_TOKENS": False,
            "BLOCK_SIZE": 64,
            "HAS_WEIGHT": False,
            "HAS_SOFTCAPPING": False,
            "HAS_GRADIENTS": True,
        },
        cross_entropy,
    ),
    liger(
        *("kl_div", "_kldiv_kernel_forward", 4, "f32:4x200 200 f32:4x200 200 f32:4x200:zeros 200 200 0.0000000001"),
        {"BLOCK_SIZE": 64, "log_target": True, "reduction": 0},
        lambda a: {4: np.exp(_wide(a[2])) * (_wide(a[2]) - a[0])},
    ),
    liger(
        *(
            "jsd",
            "_jsd_kernel",
            4,
            "f32:4x200 200 f32:4x200 200 f32:4x200:zeros 200 f32:4x200:zeros 200 s64:4:zeros 4 200",
        ),
        {"beta": 0.5, "ignore_index": -100, "BLOCK_SIZE": 64, "HAS_LABEL": False},
        jensen_shannon,
    ),
    liger(
        *("group_norm", "_group_norm_forward_kernel", (2, 2)),
        "f32:2x192:zeros 192 96 f32:2x192 192 96 f32:2x2:zeros 2 1 f32:2x2:zeros 2 1 f32:4 f32:4 96 2 0.00001",
        *({"BLOCK_SIZE": 64}, group_norm),
    ),
    liger(
        *("dyt", "_dyt_fwd_kernel", (2, 4), "f32:4x200 f32:4x200:zeros f32:1 f32:200 f32:200"),
        {"HAVE_BETA": True, "N": 200, "BLOCK_N": 128},
        lambda a: {1: np.tanh(_wide(a[2]) * a[0]) * a[3] + a[4]},
    ),
    unsloth(
        *("rms_layernorm", "_rms_layernorm_forward", 4, "f16:4x200:zeros f16:4x200 f16:200 f32:4:zeros"),
        BLOCK
        | {
            "Y_row_stride": 200,
            "X_row_stride": 200,
            "W_row_stride": 1,
            "r_row_stride": 1,
            "n_cols": 200,
            "eps": EPSILON,
        },
        lambda a: {0: a[1] / root_mean_square(a[1]) * a[2], 3: 1 / root_mean_square(a[1])[:, 0]},
    ),
    unsloth(
        *("layernorm", "layernorm_forward", 4, f"{ROWS} f32:200 f32:200 f32:4:zeros f32:4:zeros"),
        BLOCK | {"n_cols": 200, "eps": EPSILON},
        lambda a: {0: normalized(a[2]) * a[4] + a[5], 7: _wide(a[2]).mean(1)},
    ),
    unsloth("swiglu", "_fg_kernel", 4, "f16:1000 f16:1000 f16:1000:zeros 1000", FLAT, lambda a: {2: silu(a[0]) * a[1]}),
    unsloth("swiglu", "_DWf_DW_dfg_kernel", 4, "f16:1000 f16:1000 f16:1000 1000", FLAT, unsloth_swiglu_gradient),
    unsloth(
        "geglu",
        "_exact_forward_kernel",
        4,
        "f32:1000 f32:1000 f32:1000:zeros 1000",
        FLAT,
        lambda a: {2: gelu(a[0]) * a[1]},
    ),
    unsloth("geglu", "_exact_backward_kernel", 4, "f32:1000 f32:1000 f32:1000 1000", FLAT, unsloth_gelu_gradient),
    unsloth(
        *("fp8", "weight_dequant_kernel", (2, 2), "e4m3:64x128 f32:2x2 f32:64x128:zeros 64 128", {"BLOCK_SIZE": 64}),
        lambda a: {2: _wide(a[0]) * np.repeat(a[1].reshape(-1)[:2], 64)[None, :]},
    ),
    unsloth(
        *("fp8", "act_quant_kernel", 4, "f32:4x128 e4m3:4x128:zeros f32:4:zeros", {"BLOCK_SIZE": 128}),
        lambda a: {2: np.abs(a[0]).max(1) / 448},
    ),
    unsloth(
        *("fp8", "_w8a8_block_fp8_matmul", 2),
        "e4m3:64x256 e4m3:128x256 f32:64x128:zeros f32:64x2 f32:1x2 64 128 256 128 128 256 1 1 256 128 1 2 1 1 2",
        {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 8},
        scaled_blocks,
    ),
    fla(
        *("modules/l2norm", "l2norm_fwd_kernel1", 4, "f32:4x100 f32:4x100:zeros f32:4:zeros 0.00001 100", {"BD": 128}),
        lambda a: {1: a[0] / np.sqrt((_wide(a[0]) ** 2).sum(1, keepdims=True) + EPSILON)},
    ),
    fla(
        *("modules/l2norm", "l2norm_fwd_kernel", 2, "f32:20x100 f32:20x100:zeros f32:20:zeros 0.00001 20"),
        {"D": 100, "BD": 128, "NB": 1, "BT": 16},
        lambda a: {1: a[0] / np.sqrt((_wide(a[0]) ** 2).sum(1, keepdims=True) + EPSILON)},
    ),
    fla(
        *("modules/activations", "logsigmoid_fwd_kernel", 2, "f32:8x64 f32:8x64:zeros 64 64 2.0 512", STRIDED),
        lambda a: {1: np.log(sigmoid(a[0])) / 2},
    ),
    fla(
        *("modules/activations", "swiglu_fwd_kernel", 2, "f32:8x64 f32:8x64 f32:8x64:zeros 64 64 64 512", STRIDED),
        lambda a: {2: silu(a[0]) * a[1]},
    ),
    fla(
        *("ops/utils/cumsum", "chunk_local_cumsum_scalar_kernel", (3, 2), "f32:40x2 f32:40x2:zeros 1.0 40"),
        NO_SEQUENCES | {"B": 1, "H": 2, "BT": 16, "REVERSE": False, "HAS_SCALE": False},
        lambda a: {1: np.concatenate([np.cumsum(a[0][start : start + 16], 0) for start in (0, 16, 32)])},
    ),
    fla(
        *("ops/utils/cumsum", "chunk_global_cumsum_scalar_kernel", 2, "f32:40x2 f32:40x2:zeros 1.0 40"),
        {"cu_seqlens": None, "IS_VARLEN": False, "B": 1, "H": 2, "BT": 16, "REVERSE": True, "HAS_SCALE": False},
        lambda a: {1: np.cumsum(a[0][::-1], 0)[::-1]},
    ),
    fla(
        *("ops/utils/logsumexp", "logsumexp_fwd_kernel", (4, 1), "f32:4x100 f32:4:zeros 1.0"),
        {"D": 100, "B": 128, "HAS_SCALE": False},
        lambda a: {1: log_sum_exp(a[0])},
    ),
    fla(
        *(
            "ops/utils/logcumsumexp",
            "logcumsumexp_fwd_kernel",
            2,
            "f32:2x40x32 f32:2x40x32:zeros 40",
            {"S": 32, "BT": 16},
        ),
        lambda a: {1: np.log(np.cumsum(np.exp(_wide(a[0])), 1))},
    ),
    fla(
        "ops/utils/softmax",
        "softmax_fwd_kernel",
        4,
        "f32:4x100 f32:4x100:zeros",
        {"D": 100, "B": 128},
        lambda a: {1: softmax(a[0])},
    ),
    fla(
        *("ops/utils/pooling", "mean_pooling_fwd_kernel", (1, 3, 2), "f32:48x2x32 f32:3x2x32:zeros 48"),
        NO_SEQUENCES | {"H": 2, "D": 32, "BT": 16, "BD": 32},
        lambda a: {1: a[0].reshape(3, 16, 2, 32).mean(1)},
    ),
    fla(
        *("ops/hgrn/fused_recurrent", "fused_recurrent_hgrn_fwd_kernel", 2, "f32:20x64 f32:20x64 f32:20x64:zeros 20"),
        {
            "h0": None,
            "ht": None,
            "cu_seqlens": None,
            "IS_VARLEN": False,
            "D": 64,
            "BD": 32,
            "USE_INITIAL_STATE": False,
            "STORE_FINAL_STATE": False,
        },
        hgrn,
    ),
    fla(
        *("ops/common/fused_recurrent", "fused_recurrent_fwd_kernel", 2),
        "f32:20x2x32 f32:20x2x32 f32:20x2x32 f32:20x2x32:zeros 0.5 1 20",
        dict.fromkeys(("g", "g_gamma", "gk", "gv", "h0", "ht", "cu_seqlens"))
        | dict.fromkeys(
            (
                "REVERSE",
                "USE_G",
                "USE_G_GAMMA",
                "USE_GK",
                "USE_GV",
                "USE_INITIAL_STATE",
                "STORE_FINAL_STATE",
                "IS_VARLEN",
            ),
            False,
        )
        | {"H": 2, "K": 32, "V": 32, "BK": 32, "BV": 32, "STATE_V_FIRST": False},
        linear_attention,
    ),
    fla(
        *("ops/common/chunk_h", "chunk_fwd_kernel_h", (1, 1, 2), "f16:48x2x32 f16:48x2x32 f32:3x2x32x32:zeros 48"),
        dict.fromkeys(("g", "g_gamma", "gk", "gv", "h0", "ht", "cu_seqlens", "split_offsets"))
        | dict.fromkeys(
            (
                "USE_G",
                "USE_G_GAMMA",
                "USE_GK",
                "USE_GV",
                "USE_INITIAL_STATE",
                "STORE_FINAL_STATE",
                "IS_VARLEN",
                "STATE_V_FIRST",
            ),
            False,
        )
        | {"H": 2, "K": 32, "V": 32, "BT": 16, "BS": 16, "BK": 32, "BV": 32},
        chunk_states,
    ),
    fla(
        *("ops/common/chunk_o", "chunk_fwd_kernel_o", (1, 3, 2)),
        "f16:48x2x32 f16:48x2x32 f16:48x2x32 f16:3x2x32x32 f16:48x2x32:zeros 0.5 48",
        NO_SEQUENCES
        | {"g": None, "g_gamma": None, "USE_G": False, "USE_G_GAMMA": False, "STATE_V_FIRST": False}
        | {"H": 2, "HV": 2, "K": 32, "V": 32, "BT": 16, "BK": 32, "BV": 32},
        chunk_outputs,
    ),
    vllm(
        *("v1/attention/ops/triton_decode_attention", "_fwd_kernel_stage2", (1, 2)),
        "f32:1x2x4x33 f32:1x2x32:zeros f32:1x2:zeros s32@64 264 132 33 64 32 2",
        {"NUM_KV_SPLITS": 4, "BLOCK_DV": 32, "Lv": 32, "OUTPUT_FP16": False},
        merged_splits,
    ),
    vllm(
        *("v1/attention/ops/triton_prefill_attention", "_fwd_kernel", (1, 2, 2)),
        "f16:48x2x32 f16:48x2x32 f16:48x2x32 0.25 s32:1:zeros s32@48 f16:48x2x32:zeros 64 32 64 32 64 32 64 32",
        {
            "Sinks": None,
            "kv_group_num": 1,
            "BLOCK_M": 32,
            "BLOCK_DMODEL": 32,
            "BLOCK_N": 32,
            "IS_CAUSAL": True,
            "SLIDING_WINDOW_Q": 0,
            "SLIDING_WINDOW_K": 0,
            "SINKS_BIAS_KEY0": False,
            "USE_SINKS": False,
            "Lk": 32,
        },
        prefill_attention,
    ),
    vllm(
        *(
            "v1/worker/gpu/sample/min_p",
            "_min_p_kernel",
            4,
            "f32:4x300 300 s32:4:arange f32:4:zeros 300",
            {"BLOCK_SIZE": 128},
        ),
        lambda a: {0: a[0]},
    ),
    vllm(
        *(
            "v1/worker/gpu/sample/gumbel",
            "_temperature_kernel",
            (4, 3),
            "f32:4x300 300 s32:4:arange f32:4 300",
            {"BLOCK_SIZE": 128},
        ),
        lambda a: {0: a[0] / a[3][:, None]},
    ),
    vllm(
        *(
            "v1/worker/gpu/sample/logprob",
            "_topk_log_softmax_kernel",
            4,
            "f32:4x3:zeros f32:4x300 300 s64:4x3:arange 3 300",
        ),
        {"BLOCK_SIZE": 128, "TOPK_BLOCK_SIZE": 4},
        lambda a: {0: np.take_along_axis(_wide(a[1]), a[3], 1) - log_sum_exp(a[1])[:, None]},
    ),
    vllm(
        *(
            "v1/worker/gpu/sample/logprob",
            "_ranks_kernel",
            4,
            "s64:4:zeros f32:4x300 300 s64:4:arange 300",
            {"BLOCK_SIZE": 128},
        ),
        lambda a: {0: (a[1] >= a[1][np.arange(4), a[3]][:, None]).sum(1)},
    ),
    vllm(
        *(
            "v1/sample/rejection_sampler",
            "expand_kernel",
            4,
            "s32:6:zeros s32:4 s32:4:arange 100 7",
            {"MAX_NUM_TOKENS": 8},
        ),
        lambda a: {0: [*a[1][1:], 0, 0, 0]},
    ),
    vllm(
        *("v1/sample/rejection_sampler", "rejection_greedy_sample_kernel", 2),
        "s32:2x4:zeros s32:2:ones s32:1:ones s64:1:ones s32:2:ones 3",
        {
            "is_greedy_ptr": None,
            "uniform_probs_ptr": None,
            "synthetic_conditional_rates_ptr": None,
            "SYNTHETIC_MODE": False,
        },
        lambda _: {0: [[1, 1, 0, 0], [1, 0, 0, 0]]},
    ),
    vllm(
        *("model_executor/layers/fused_moe/moe_fused_mul_sum", "moe_fused_mul_sum_kernel", (2, 2)),
        "f32:6x2x100 f32:6x2 f32:6x100:zeros 6 200",
        {
            "top_ids_ptr": None,
            "expert_map_ptr": None,
            "has_expert_map": False,
            "top_k": 2,
            "size": 100,
            "BLOCK_M": 4,
            "BLOCK_K": 64,
        },
        lambda a: {2: (a[0] * a[1][..., None]).sum(1)},
    ),
    vllm(
        *("model_executor/layers/fused_moe/utils", "_count_expert_num_tokens", 8, "s32:100 s32:8:zeros 8 100"),
        {"expert_map": None, "HAS_EXPERT_MAP": False, "BLOCK_SIZE": 64},
        lambda a: {1: [(a[0] == expert).sum() for expert in range(8)]},
    ),
)
