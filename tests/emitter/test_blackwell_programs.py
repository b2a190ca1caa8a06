"""GEMM programs for Blackwell: compiled without spills, run by the machine with nothing found, and proven for every order."""

import re
from math import prod

import pytest
from blackwell_programs import PROGRAMS, launch_of, ptx_of
from emitter_toolchain import nvrtc_log

import tilescope as ts
from tilescope.emitter.emission import device_half

ONE_BLOCK, PAIR = list(PROGRAMS)[:2]
TARGETS = {"sm_100": ("100a", "103a", "100f"), "sm_103": ("100a", "103a", "103f"), "sm_120": ("120a", "120f")}
EVERY = [pytest.param(name, marks=[] if name in (ONE_BLOCK, PAIR) else [pytest.mark.slow]) for name in PROGRAMS]


@pytest.mark.slow
def test_there_are_programs_of_every_kind():
    plans = [program.plan() for program in PROGRAMS.values()]
    assert len(plans) >= 98
    assert {plan.schedule.multicast for plan in plans} >= {(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)}
    assert {plan.schedule.cta_group for plan in plans} == {1, 2}
    assert {plan.accumulators for plan in plans if plan.product.in_tensor_memory} == {1, 2}
    assert {plan.data_type.ptx for plan in plans} >= {"bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8", "e2m1"}
    assert {plan.scales.name for plan in plans if plan.scales} == {"mxfp8", "mxfp4", "nvfp4"}
    for program, plan in zip(PROGRAMS.values(), plans, strict=True):
        rounds = plan.clusters * prod(plan.schedule.cluster) // plan.blocks_on(plan.sms)
        assert rounds * plan.k_tiles >= 2 * plan.stages or program.shape[0] < 130, program.name


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", EVERY)
def test_the_kernel_gives_the_product_and_no_finding(name):
    launch = launch_of(PROGRAMS[name])
    for seed in (1, 2, 3):
        launch.c[...] = 77
        run = launch.run(seed)
        assert run.outcome == "finished"
        assert [str(finding) for finding in run.findings] == []
        assert launch.is_right(), seed
    found = ts.simulate(run.pipeline())
    assert found.verdict == "proven", found.sentence


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", EVERY)
def test_the_plan_s_own_pipeline_is_proven_too(name):
    gemm = PROGRAMS[name].plan()
    pipeline = ts.plan_pipeline(gemm)
    found = ts.simulate(pipeline)
    assert found.verdict == "proven", found.sentence
    counts = {barrier.name: (barrier.count, barrier.stages) for barrier in pipeline.barriers}
    group = gemm.schedule.cta_group
    if not gemm.accumulators:  # sm_120: every warp frees a stage
        assert counts == {"full": (1, gemm.stages), "empty": (gemm.warps[0] * gemm.warps[1], gemm.stages)}
        return
    along_m, along_n = gemm.schedule.multicast
    blocks = group * along_m * along_n
    readers = 130 * blocks + along_m * along_n
    asked = {"next_full": (1, 2), "next_empty": (readers, 2)} if gemm.schedule.dynamic else {}
    assert counts == asked | {
        "full": (1, gemm.stages),
        "empty": (along_m + along_n - 1, gemm.stages),  # a commit of every tile for whose blocks this one fetches
        "acc_full": (1, gemm.accumulators),
        "acc_empty": (128 * group, gemm.accumulators),
    }
    brought = group * sum(part.transaction_bytes for part in (gemm.a, gemm.b, *gemm.scale_plans))
    assert found.barriers[0].bytes == ((brought,) if group == 1 else (brought, 0)) * (along_m * along_n)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", EVERY)
def test_ptxas_spills_nothing(name):
    program = PROGRAMS[name]
    source = device_half(ts.emit(program.plan(), "cuda"))
    for target in TARGETS[program.arch]:
        if program.data_type in ("s8", "u8") and program.arch != "sm_120" and target != "100a":
            continue  # kind::i8 is sm_100a's alone
        assert spill_bytes(source, target) == 0, target


def test_few_registers_make_ptxas_spill():
    source = device_half(ts.emit(PROGRAMS[ONE_BLOCK].plan(), "cuda"))
    crowded = source.replace("__launch_bounds__(THREADS, 1)", "__launch_bounds__(1024, 1)")  # 64 registers a thread
    assert spill_bytes(crowded, "100a") > spill_bytes(source, "100a") == 0


def spill_bytes(source, target):
    """Bytes that ptxas, in NVRTC, says gemm_kernel spills."""
    lines = nvrtc_log(source, f"sm_{target}", "--ptxas-options=-v").splitlines()
    behind = lines[next(at for at, line in enumerate(lines) if "Function properties for gemm_kernel" in line) + 1]
    return sum(int(count) for count in re.findall(r"(\d+) bytes spill", behind))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rows", [1, 200, 300])
def test_the_number_of_rows_is_an_argument_of_the_kernel(rows):
    launch = launch_of(PROGRAMS[ONE_BLOCK], rows=rows)
    assert launch.run().outcome == "finished"
    assert launch.is_right()


@pytest.mark.slow
def test_running_blocks_take_over_tiles_by_cluster_launch_control():
    dynamic = [each for each in PROGRAMS.values() if each.options.get("dynamic") and each.data_type == "bf16"]
    [program] = [each for each in dynamic if "multicast" not in each.options]
    launch = launch_of(program)
    run = launch.run(None)
    assert launch.is_right()
    assert 1 <= run.blocks_run < launch.blocks == program.plan().tiles


@pytest.mark.slow
def test_a_warp_whose_lanes_come_to_the_next_cluster_barrier_one_by_one_is_described():
    """Many pairs run, and the thread that initialised the barriers is a whole barrier ahead of its warp."""
    name = "sm_103-1032x136x1280-nvfp4-tile=(256,128,256)-cta_group=2-dynamic=True"
    run = launch_of(PROGRAMS[name]).run(1)
    assert run.blocks_run > 2
    assert ts.simulate(run.pipeline()).verdict == "proven"


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"cta_group": 1}, {"output_type": "f32"}], ids=str)
def test_a_plan_for_a_b200_runs_on_a_corner_of_its_matrix(options):
    """The tile, the stages and the tensor memory of a large product, by few blocks."""
    large = ts.plan_gemm(8192, 8192, 8192, "bf16", card="B200", **options)
    group = large.schedule.cta_group
    shape = (large.tile[0] + 8, large.tile[1] + 8, large.tile[2] * (large.stages + 1))
    asked = {"tile": large.tile, "stages": large.stages, "cta_group": group, "sms": group, **options}
    corner = type(PROGRAMS[ONE_BLOCK])("sm_100", shape, "bf16", asked)
    launch = launch_of(corner)
    run = launch.run()
    assert [finding.rule for finding in run.findings if finding.severity != "note"] == []
    assert launch.is_right()
    assert (corner.plan().smem_bytes, corner.plan().tmem_columns) == (large.smem_bytes, large.tmem_columns)


@pytest.mark.parametrize(
    ("data_type", "arch", "family"),
    [
        ("bf16", "sm_100", "compute_100f"),
        ("nvfp4", "sm_103", "compute_103f"),
        ("nvfp4", "sm_120", "compute_120f"),
        ("s8", "sm_100", None),  # kind::i8 is sm_100a's alone
        ("bf16", "sm_120", None),  # a plain target, which later chips run anyway
    ],
)
def test_a_program_names_the_target_of_its_family(data_type, arch, family):
    source = ts.emit(ts.plan_gemm(256, 256, 256, data_type, arch=arch), "cuda")
    assert (f"-gencode=arch={family}," in source) if family else ("of the family" not in source)


def test_the_kernel_s_text_holds_the_plan_s_numbers():
    gemm = PROGRAMS[PAIR].plan()
    source = ts.emit(gemm, "cuda")
    assert source.startswith("// GEMM 512 x 128 x 320 bf16, tile 256 x 64 x 64 of a pair of blocks\n")
    assert "a pair takes\n// one tile of C after another" in source
    assert f"constexpr int STAGES = {gemm.stages};" in source
    assert f"TMEM_COLUMNS = {gemm.tmem_columns};" in source
    assert "mbarrier_init(acc_empty + 8 * i, 256);  // every thread of the epilogue, of both blocks" in source
    assert "tcgen05_commit(empty + 8 * slot, 3 << rank);" in source
    assert "__cluster_dims__(2, 1, 1)" in source
    assert gemm.c_buffers == 2
    waits = [line.strip() for line in source.splitlines() if "bulk_wait_read<" in line]
    assert waits == [
        "if (threadIdx.x == 0) bulk_wait_read<1>();  // TMA has read the slice before the last",
        "if (threadIdx.x == 0) bulk_wait_read<0>();  // TMA has read the last slice",
    ]
    assert ts.emit(gemm, "python").count("np.int32(m)") == 1


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("mbarrier_init(acc_empty + 8 * i, 128)", "mbarrier_init(acc_empty + 8 * i, 96)"),
        ("mbarrier_init(empty + 8 * stage, 1)", "mbarrier_init(empty + 8 * stage, 2)"),
        ("t % 2 * COLUMNS, a, b", "0 * COLUMNS, a, b"),
    ],
    ids=["count of acc_empty", "count of empty", "one accumulator for two"],
)
def test_a_wrong_number_is_found(right, wrong):
    program = PROGRAMS[ONE_BLOCK]
    source = device_half(ts.emit(program.plan(), "cuda"))
    assert source.count(right) == 1
    launch = launch_of(program, ptx_of(program, source.replace(right, wrong)))
    run = launch.run()
    assert any(finding.severity == "error" for finding in run.findings)
