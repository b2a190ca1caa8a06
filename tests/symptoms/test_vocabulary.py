"""Words of CuTe, CUTLASS, Triton and PTX lead to their topic first, and what the topic says is so."""

import re
import shlex

import numpy as np
import pytest

import tilescope as ts
from tilescope.arch import ARCH
from tilescope.card import CARD
from tilescope.cli import run
from tilescope.errors import RuleError
from tilescope.questions import topic_questions
from tilescope.symptoms import CAUSE, TERMS, diagnose

FEWEST_WORDS_SAID = 5  # of a first line that stands alone

# A word as people write it, and the topic that explains it.
WORDS = {
    # CuTe and CUTLASS
    "tma_partition": "tma_partition",
    "cpasync.tma_partition": "tma_partition",
    "unable to partition input tensors for TMA": "tma_partition",
    "group_modes": "group_modes",
    "cute.group_modes": "group_modes",
    "elect_one": "elect_one",
    "cute::elect_one_sync": "elect_one",
    "elect.sync": "elect_one",
    "PipelineTmaAsync": "PipelineTmaAsync",
    "producer_acquire": "PipelineTmaAsync",
    "producer_tail": "PipelineTmaAsync",
    "PipelineState": "PipelineTmaAsync",
    "PipelineTmaUmma": "PipelineTmaUmma",
    "PipelineUmmaAsync": "PipelineTmaUmma",
    "consumer_release": "consumer_release",
    "CooperativeGroup": "CooperativeGroup",
    "pipeline.CooperativeGroup": "CooperativeGroup",
    "NamedBarrier": "named barrier",
    "named barriers": "named barrier",
    "LDSM": "ldmatrix",
    "STSM": "ldmatrix",
    "LDSM atom": "LDSM atom",
    "SM75_U32x4_LDSM_N": "LDSM atom",
    "SM90_U16x8_STSM_T": "LDSM atom",
    "LdMatrix8x8x16bOp": "LDSM atom",
    "StageCountAuto": "StageCountAuto",
    "StageCountAutoCarveout": "StageCountAuto",
    "ping-pong": "ping-pong",
    "pingpong": "ping-pong",
    "KernelTmaWarpSpecializedPingpong": "ping-pong",
    "cooperative": "cooperative",
    "KernelTmaWarpSpecializedCooperative": "cooperative",
    "why two consumers": "cooperative",
    "TiledMMA": "TiledMMA",
    "make_tiled_mma": "TiledMMA",
    "Layout_K_SW128_Atom": "swizzle names",
    "GMMA::Layout_K_SW128_Atom": "swizzle names",
    "NVMMASharedLayout": "swizzle names",
    "K_SW128": "128B",
    "Swizzle<3,4,3>": "xor:3,4,3",
    "CU_TENSOR_MAP_SWIZZLE_128B": "128B",
    # Triton
    "TensorDescriptor": "host descriptor",
    "host-side descriptor": "host descriptor",
    "make_tensor_descriptor": "device descriptor",
    "tl.make_tensor_descriptor": "device descriptor",
    "triton.set_allocator": "device descriptor",
    "warp_specialize": "warp_specialize",
    # PTX
    "fence.proxy.async": "proxy fence",
    "fence.proxy.async.shared::cta": "proxy fence",
    "fence.proxy.async.shared::cluster": "proxy fence",
    "fence.proxy.async.global": "proxy fence",
    "fence.proxy.alias": "fence.proxy.alias",
    "fence.proxy.tensormap::generic.acquire": "tensormap fence",
    "fence.proxy.tensormap::generic.release": "tensormap fence",
    "fence.proxy.async::generic": "fence.proxy.async::generic",
    "fence.mbarrier_init": "fence.mbarrier_init",
    ".cta": "scope",
    ".cluster": "scope",
    ".gpu": "scope",
    ".sys": "scope",
    "scopes": "scope",
    "bar.sync": "named barrier",
    "bar.sync id": "named barrier",
    "bar.arrive": "named barrier",
    "__syncthreads": "named barrier",
    # maps, strides, layouts, architectures
    "object hygiene": "tensor map object",
    "where may a tensor map live": "tensor map object",
    "__grid_constant__": "tensor map object",
    "grid_constant": "tensor map object",
    "innermost stride": "innermost stride",
    "Last dimension must be contiguous": "innermost stride",
    "zero strides": "zero stride",
    "cp.reduce.async.bulk": "bulk reduction",
    "cp.reduce.async.bulk.tensor": "reduction",
    "warp tile": "warp tile",
    "8x4": "8x4 scale layout",
    "SWIZZLED_8x4": "8x4 scale layout",
    "128x4": "scale factor",
    "sm_107": "sm_107",
    "sm_107a": "sm_107",
    "Rubin": "sm_107",
}

# Words of every kernel, whoever wrote it, and kinds of questions about them.
GENERAL_WORDS = {
    "shared memory": "shared memory",
    "smem": "shared memory",
    "layout": "layout",
    "LinearLayout": "layout",
    "setmaxnreg": "setmaxnreg",
    "register stealing": "setmaxnreg",
    "registers": "registers",
    "warpgroup": "warpgroup",
    "num_warps": "warpgroup",
    "accumulator": "accumulator",
    "epilogue": "epilogue",
    "prefetch": "prefetch",
    "prefetch.tensormap": "prefetch",
    "cache hint": "cache hint",
    "evict_first": "cache hint",
    "persistent kernel": "persistent kernel",
    "CLC": "persistent kernel",
    "split-K": "split-K",
    "stream-K": "split-K",
    "block swizzle": "block swizzle",
    "rasterization": "block swizzle",
    "grouped GEMM": "grouped GEMM",
    "DSMEM": "distributed shared memory",
    "st.async": "distributed shared memory",
    "cooperative launch": "cooperative launch",
    "fp4": "scale factor",
    "what is e4m3": "e4m3",
    "what is 128B?": "128B",
    "what is sm_103a": "sm_103",
}

# What people write about them, and the cause to try first.
SENTENCES = {
    "cudaMemcpy of a tensor map to the device": "map-scope",
    "copies of the tensor map object": "map-placement",
    ".shared::cluster on sm_12x": "cluster-destination",
    "kernel deadlocks when elect_one is nested": "nested-elect",
    "cute.arch.elect_one around cute.copy hangs": "nested-elect",
    "error: unable to partition input tensors for TMA, which modes does it want?": "tma-partition-modes",
    "PipelineTmaAsync hangs, what size must the CooperativeGroup have": "cooperative-group-size",
    "Consumer arrival count must be aligned with warp size": "cooperative-group-size",
    "bar.sync hangs in a warp specialized kernel": "named-barrier-count",
    "NamedBarrier: Effective barrier_id should not exceed 16": "named-barrier-id",
    "Cooperative kernel requires Tile Size to be greater than or equal to 128 along the M-dimension.": "cooperative-tile",
    "StageCountAuto asks for too much smem with my epilogue": "stage-count-carveout",
    "every 8x8 block is transposed after ldmatrix": "ldsm-transpose",
    "TMA descriptors ignore the storage offset of a view": "map-view-offset",
    "tensormap.replace shrinks an extent, then the copy faults": "map-shrunk",
    "an array of tensor maps, only the first is right": "map-array-fence",
    "CUtensorMap copied with cudaMemcpy, which fence and scope": "map-scope",
    "make_tensor_descriptor overhead in every program": "map-per-block",
    "pointwise operations slower with TMA than without, descriptor setup overhead": "map-per-block",
    "TMA is slow on sm_120 with shared::cluster": "cluster-destination",
    "__cuda_syscall_cp_async_bulk_tensor_4d_tile_unicast": "cluster-destination",
    "clusters of 4 leave SMs idle": "idle-sms",
    "bank conflicts in the epilogue": "epilogue-conflicts",
    "one thread issues all TMA copies, is that the bottleneck": "one-issuer",
    "L2 promotion 256B is slower": "l2-promotion",
    "boxes of 16 bytes are slow": "narrow-boxes",
    "how many stages hide the latency": "few-stages",
    "stride of the last dimension must be 1": "innermost-stride",
    "TMA atomic add's res is wrong when smem is swizzled": "bulk-reduce-swizzle",
    "Incorrect results with cta.N = 192, swizzle straddles two warp tiles": "warp-tile-swizzle",
    "can a tensor map have zero strides": "zero-stride",
    "warp_specialize=True has no effect": "warp-specialize-ignored",
    "undefined reference to cuTensorMapEncodeTiled": "driver-symbol",
    "int32 overflow in the offsets of a tensor larger than 2GB": "index-overflow",
    "fp8 gemm loses precision over a large k": "fp8-accumulation",
    "RuntimeError: Only support head size 64, 128, and 256 for now": "head-dimension",
    "error: failed to legalize operation 'ttng.tmem_alloc'": "whole-atoms",
    "CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx": "earlier-fault",
    "descriptor must be aligned to 64": "map-alignment",
    "TMA fails if the tensor is sliced": "base-16-bytes",
}


@pytest.mark.parametrize(("word", "topic"), (WORDS | GENERAL_WORDS).items())
def test_a_word_leads_to_its_topic(word, topic):
    assert topic_questions.find(word).name == topic


@pytest.mark.parametrize(
    "word", ["PipelineTmaAsync", "elect_one", "NamedBarrier", "StageCountAuto", "fence.proxy.alias", "warp_specialize"]
)
def test_a_question_for_the_meaning_leads_to_the_topic(word):
    assert topic_questions.find(f"what is {word}").name == WORDS[word]


@pytest.mark.parametrize(("sentence", "cause"), SENTENCES.items())
def test_a_sentence_leads_to_its_cause_first(sentence, cause):
    assert diagnose(sentence).causes[0].name == cause


def commands_in(text):
    """The commands that a text quotes with their arguments; `tilescope decode` alone names a command only."""
    quoted = re.findall(r"`tilescope ([^`]*)`", text)
    return [command for command in quoted if " " in command and "…" not in command]


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_commands_in_a_meaning_run(term):
    for command in commands_in(term.meaning):
        assert run(shlex.split(command)) in (0, 1), command


def test_topics_of_cutlass_triton_and_ptx_say_where_they_stand():
    sources = ("CUTLASS", "CuTe", "Triton", "PTX ISA", "TensorRT-LLM")
    for name in set(WORDS.values()) - {
        "128B",
        "xor:3,4,3",
        "ldmatrix",
        "reduction",
        "scale factor",
        "warp tile",
        "zero stride",
        "tensormap fence",
    }:
        assert any(source in topic_questions.find(name).meaning for source in sources), name


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("from a parameter (const __grid_constant__), from constant or from global memory", "map-placement"),
        ("CUDA 12, to 128 from CUDA 13", "map-alignment"),
        ("is on the stack", "map-placement"),
        (".sys after cudaMemcpy", "map-scope"),
        ("each map of an array", "map-array-fence"),
        ("a view's own pointer", "map-view-offset"),
        ("shrinks an extent", "map-shrunk"),
        ("Made in every block", "map-per-block"),
        ("it may only be edited", "map-edited-in-use"),
    ],
)
def test_the_object_of_a_map_has_one_topic_that_leads_to_each_cause(said, cause):
    meaning = topic_questions.find("object hygiene").meaning
    assert said in meaning
    assert f"({cause})" in meaning
    assert CAUSE[cause].command


def test_the_blocks_that_fit_in_clusters_are_those_measured_on_an_h200():
    clusters_that_fit = {2: 66, 4: 30, 8: 15, 16: 7}
    blocks = {size: size * count for size, count in clusters_that_fit.items()}
    said = CAUSE["idle-sms"].mechanism
    assert blocks[2] == CARD["H200"].sms == 132
    assert "132 blocks fit in clusters of 2" in said
    assert "clusters of 4, 120 in 8 and 112 in 16" in said
    assert (blocks[4], blocks[8], blocks[16]) == (120, 120, 112)
    assert CAUSE["idle-sms"].basis == "measured"


def test_losses_by_promotion_are_those_of_the_measured_rates():
    none = {64: 4042, 32: 3480}  # GB/s of boxes by row bytes, H200
    best = {128: 4559, 64: 4519, 32: 3970}
    said = CAUSE["l2-promotion"].mechanism
    assert f"rows of 64 bytes {1 - none[64] / best[64]:.0%}".replace("%", " %") in said
    assert f"rows of 32 bytes {1 - none[32] / best[32]:.0%}".replace("%", " %") in said.replace("\n", " ")
    assert f"256B is {1 - 4231 / best[128]:.0%}".replace("%", " %") in said


def test_two_consumers_are_needed_for_the_registers_of_a_tile():
    registers = 128 * 256 // 128  # f32 accumulators of one warpgroup's 128 threads
    assert registers > 255
    assert f"{registers} registers a thread" in topic_questions.find("cooperative").meaning
    assert f"two warpgroups hold {registers // 2} each" in topic_questions.find("cooperative").meaning


def test_stages_of_stage_count_auto_are_counted_as_cutlass_does():
    capacity = ARCH["sm_90"].smem_per_block_bytes
    assert f"{capacity:,} bytes for sm_90" in topic_questions.find("StageCountAuto").meaning
    assert f"{ARCH['sm_120'].smem_per_block_bytes:,} for sm_120" in topic_questions.find(
        "StageCountAuto"
    ).meaning.replace("\n", " ")
    stage_bytes = (128 * 64 + 256 * 64) * 2 + 16
    assert capacity // stage_bytes == ts.plan_gemm(4096, 4096, 4096, "bf16", tile=(128, 256, 64)).stages


def test_consumer_arrivals_of_two_warpgroups_are_eight():
    plan = ts.plan((128, 64), "bf16").best
    pipeline = ts.plan_pipeline(plan, stages=4, consumers=2, arrivals="warp")
    (empty,) = [barrier for barrier in pipeline.barriers if barrier.name == "empty"]
    assert empty.count == 8
    assert "8 for two warpgroups" in topic_questions.find("CooperativeGroup").meaning


def test_a_part_of_96_columns_is_no_whole_span_of_128_bytes():
    assert 96 * 2 % 128
    assert ts.plan((96, 64), "bf16", major="MN").best.swizzle.name == "64B"
    assert "64B here" in topic_questions.find("warp tile").meaning


def test_the_names_of_a_swizzle_are_one_address_map():
    addresses = np.arange(4096)
    cute = ts.Swizzle.xor(3, 4, 3)
    assert (ts.Swizzle.named("128B").apply(addresses) == cute.apply(addresses)).all()
    assert (ts.Swizzle.named("64B").apply(addresses) == ts.Swizzle.xor(2, 4, 3).apply(addresses)).all()
    assert (ts.Swizzle.named("128B_ATOM_32B").apply(addresses) == ts.Swizzle.xor(2, 5, 2).apply(addresses)).all()
    on_elements = ts.Swizzle.xor(3, 3, 3).apply(addresses)
    assert (on_elements * 2 == cute.apply(addresses * 2)).all()


def test_zero_strides_are_accepted_and_an_innermost_stride_is_refused():
    (warned,) = ts.TensorMap.check("bf16", (4096, 1000), (0,), (64, 64), swizzle="128B")
    assert (warned.rule, warned.severity) == ("stride-overlap", "warning")
    (refused,) = ts.TensorMap.check("bf16", (64, 64), (2, 128), (64, 64))
    assert refused.severity == "error"
    assert "leaves out dim 0" in refused.fix


def test_the_8x4_topic_has_the_formula_of_the_layout():
    scales = ts.scale_layout(33, 1024, "nvfp4", atom="8x4")
    along = scales.atoms[1]
    for i, b in [(0, 0), (5, 6), (32, 63), (17, 3)]:
        assert (i // 8 * along + b // 4) * 32 + i % 8 * 4 + b % 4 == scales.offset(i, b)
    assert "(i/8 * atoms along k + b/4) * 32 + (i mod 8) * 4 + b mod 4" in " ".join(
        topic_questions.find("8x4").meaning.split()
    )


@pytest.mark.parametrize("name", ["sm_107", "sm_107a", "SM107f", "10.7", "Rubin"])
def test_sm_107_is_explained_by_the_documents_and_refused_elsewhere(name):
    said = topic_questions.find("sm_107").meaning
    assert "327 KB a block" in said
    assert "576 columns of tensor memory" in " ".join(said.split())
    assert "Documented, not measured" in said
    with pytest.raises(RuleError) as refused:
        ts.Arch.named(name)
    (violation,) = refused.value.violations
    assert violation.rule == "arch-partly-known"
    assert "`tilescope explain sm_107`" in violation.fix


def test_a_check_for_sm_107_is_refused_with_a_sentence(capsys):
    assert run(["check", "--type", "bf16", "--dims", "64,64", "--box", "64,64", "--arch", "sm_107"]) == 2
    assert "documented in parts only" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_the_first_line_of_a_term_is_one_sentence_that_says_something(term):
    first = topic_questions.summarize_topic(topic_questions.find(term.name)).sentence
    said = first.removeprefix(f"{term.name}: ")
    assert re.search(r"(?<!e\.g)\. ", said) is None, first  # "… (wgmma, ldmatrix). producer_acquire waits …" were two
    assert len(said.split()) >= FEWEST_WORDS_SAID, first  # "Two things."
