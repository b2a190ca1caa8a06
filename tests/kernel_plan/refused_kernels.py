"""Kernels that public reports found too large, as data: their buffers are those of the reports."""

# triton-lang/triton, issue 9268: O has two buffers of 64 x 256, S0 and S1 64 columns each.
SIDE_BY_SIDE = {
    "arch": "sm_100",
    "roles": {"load": {"warps": 1}, "mma": {"warps": 1}, "softmax": {"warps": 4}},
    "tiles": {
        "Q": {"shape": [64, 64], "data_type": "bf16"},
        "K": {"shape": [64, 64], "data_type": "bf16"},
        "V": {"shape": [64, 256], "data_type": "bf16", "major": "MN"},
        "S0": {"shape": [64, 64], "data_type": "float32", "memory": "tensor", "share_lanes": False},
        "S1": {"shape": [64, 64], "data_type": "float32", "memory": "tensor", "share_lanes": False},
        "P": {"shape": [64, 64], "data_type": "bf16"},
        "O": {"shape": [64, 256], "data_type": "float32", "memory": "tensor", "stages": 2, "share_lanes": False},
    },
    "loops": {"kv": {}},
    "steps": [
        {"role": "load", "operation": "load", "writes": ["Q", "K", "V"], "loop": "kv"},
        {"role": "mma", "operation": "tcgen05.mma", "a": "Q", "b": "K", "writes": ["S0"], "loop": "kv"},
        {"role": "mma", "operation": "tcgen05.mma", "a": "Q", "b": "K", "writes": ["S1"], "loop": "kv"},
        {"role": "softmax", "operation": "threads", "reads": ["S0", "S1"], "writes": ["P"], "loop": "kv"},
        {"role": "mma", "operation": "tcgen05.mma", "a": "P", "b": "V", "writes": ["O"], "loop": "kv"},
        {"role": "softmax", "operation": "threads", "reads": ["O"], "loop": "kv"},
    ],
}

# state-spaces/mamba#1044: the explicit buffers of mamba3_mimo_bwd_bwd, in float32, with their lines.
_SQUARE = (
    "q_shared",  # 783
    "k_shared",  # 785
    "lkq_masked_or_dkq_masked",  # 790
    "dqk_from_diag",  # 794
    "q_pre_rot",  # 796
    "k_pre_rot",  # 797
    "dk_shared",  # 799
    "dq_shared",  # 800
    "k_pre_trap",  # 804
    "lkq_masked_dtype_buf",  # 1033
)
_STATES = ("dstates", "dPhiO", "PsiV", "states", "dPsiV_combined")  # 777, 781, 787, 789, 792
_ROWS = ("dout_shared", "v_shared")  # 780, 786
_SCALARS = ("scalars_897", "scalars_1001", "scalars_1224")
_MAMBA3_SHAPES = (
    {name: ["CHUNK * R", "N"] for name in _SQUARE}
    | {name: ["N", "P"] for name in _STATES}
    | {name: ["CHUNK", "P"] for name in _ROWS}
    | {"qk_dot": ["CHUNK", "R * R"]}  # 802
    | {name: ["CHUNK"] for name in _SCALARS}
)
MAMBA3_BACKWARD = {
    "arch": "sm_120",
    "sizes": {"N": 64, "P": 32, "R": 4, "CHUNK": 16},
    "roles": {"all": {"warps": 4}},
    "tiles": {name: {"shape": shape, "data_type": "float32"} for name, shape in _MAMBA3_SHAPES.items()},
    "loops": {"chunk": {}},
    "steps": [
        {"role": "all", "operation": "threads", "writes": list(_MAMBA3_SHAPES), "loop": "chunk"},
        {"role": "all", "operation": "threads", "reads": list(_MAMBA3_SHAPES), "loop": "chunk"},
    ],
}


def flashinfer_prefill(tiles_of_16, *, scales):
    """flashinfer-ai/flashinfer, pull request 4767: NVFP4 K and V of 16 rows a tile, a scale byte for 16 elements of each."""
    planes = {
        "K": {"shape": ["16 * KV", "D / 2"], "data_type": "uint8"},
        "V": {"shape": ["16 * KV", "D / 2"], "data_type": "uint8"},
    }
    if scales:
        planes["k_scales"] = {"shape": ["16 * KV", "D / 16"], "data_type": "uint8"}
        planes["v_scales"] = {"shape": ["16 * KV", "D / 16"], "data_type": "uint8"}
    return {
        "arch": "sm_86",
        "blocks_per_sm": 2,
        "sizes": {"KV": tiles_of_16, "D": 128},
        "roles": {"all": {"warps": 4}},
        "tiles": {"Q": {"shape": [128, "D"], "data_type": "bf16"}} | planes,
        "loops": {"kv": {}},
        "steps": [
            {"role": "all", "operation": "threads", "writes": ["Q"]},
            {"role": "all", "operation": "threads", "writes": list(planes), "loop": "kv"},
            {"role": "all", "operation": "threads", "reads": ["Q", *planes], "loop": "kv"},
        ],
    }
