"""Every instruction that tilescope speaks of assembles for the chips it names, and what it refuses does not: NVRTC's ptxas says."""

import pytest
from cuda.core import Program, ProgramOptions

from tilescope.arch import ARCH
from tilescope.errors import RuleError
from tilescope.mma.fragment import fragment
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.pair_shares import pair_shares
from tilescope.mma.scale_format import SCALE_FORMATS
from tilescope.mma.scale_lanes import ScaleLanes
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.tmem_copy import CP_SHAPES, DECOMPRESSIONS, cp_shape
from tilescope.mma.tmem_form import TMEM_FORMS, named_move

BLACKWELL = ["sm_100a", "sm_103a", "sm_110a"]


def assembles(arch, *instructions):
    """Whether ptxas takes the instructions, each in a kernel of its own; its complaint where it does not."""
    kernels = "\n".join(
        f'extern "C" __global__ void k{number}(unsigned a, unsigned long long d) {{ asm volatile("{{ .reg .b32 r<132>; '
        f".reg .f32 f<4>; .reg .pred p; "
        f'setp.ne.u32 p, %0, 0; {text} }}" :: "r"(a), "l"(d)); }}'
        for number, text in enumerate(instructions)
    )
    try:
        Program(kernels, "c++", ProgramOptions(arch=arch)).compile("cubin")
    except Exception as error:  # noqa: BLE001  cuda.core's own class
        return str(error)
    return ""


def registers(count):
    return "{" + ", ".join(f"r{number}" for number in range(count)) + "}"


def move(name):
    """A load or store as PTX text: the address is operand 0."""
    found = named_move(name)
    words = name.split(".")
    form, count = found.form.name, f"x{found.repeats}"
    split = ", 64" if found.form.places > 1 else ""
    pack = f".{words[-1]}" if found.packed else ""
    if found.direction == "ld":
        return f"tcgen05.ld.sync.aligned.{form}.{count}{pack}.b32 {registers(found.registers)}, [%0]{split};"
    return f"tcgen05.st.sync.aligned.{form}.{count}{pack}.b32 [%0]{split}, {registers(found.registers)};"


ALL_MOVES = [
    f"tcgen05.{direction}.{name}.x{count}{pack}"
    for direction, packed in (("ld", ".pack::16b"), ("st", ".unpack::16b"))
    for name, form in TMEM_FORMS.items()
    for count in form.counts
    for pack in ("", packed)
]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("arch", BLACKWELL)
def test_every_load_and_store_assembles(arch):
    assert assembles(arch, *map(move, ALL_MOVES)) == ""


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (
            "tcgen05.ld.sync.aligned.16x256b.x64.b32 " + registers(128) + ", [%0];",
            lambda: fragment("tcgen05.ld.16x256b.x64"),
        ),
        ("tcgen05.ld.sync.aligned.32x32b.x3.b32 " + registers(3) + ", [%0];", lambda: fragment("tcgen05.ld.32x32b.x3")),
        ("tcgen05.cp.cta_group::1.64x128b [%0], %1;", lambda: cp_shape("64x128b")),
        ("tcgen05.cp.cta_group::1.128x128b.warpx4 [%0], %1;", lambda: cp_shape("128x128b.warpx4")),
        ("tcgen05.cp.cta_group::1.32x128b.warpx2::02_13 [%0], %1;", lambda: cp_shape("32x128b.warpx2::02_13")),
    ],
)
def test_what_we_refuse_does_not_assemble(text, ours):
    assert "error" in assembles("sm_100a", text)
    with pytest.raises(RuleError):
        ours()


def test_allocation_assembles_for_the_columns_we_allow():
    columns = [32, 64, 128, 256, 512]
    alloc = [f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], {each};" for each in columns]
    dealloc = [f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, {each};" for each in columns]
    assert assembles("sm_100a", *alloc, *dealloc, "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;") == ""
    for wrong in (48, 1024):
        assert "error" in assembles(
            "sm_100a", f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], {wrong};"
        )


@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_copies_and_shifts_assemble(arch):
    copies = [
        f"tcgen05.cp.cta_group::{group}.{shape}{spread} [%0], %1;"
        for group in (1, 2)
        for shape in CP_SHAPES
        for spread in ("", *(f".{name}" for name in DECOMPRESSIONS))
    ]
    for group in (1, 2):  # one kernel has one cta_group
        ours = [each for each in copies if f"::{group}." in each]
        assert assembles(arch, *ours, f"tcgen05.shift.cta_group::{group}.down [%0];") == ""


def products(arch, group):
    """Block-scaled and plain instructions, with descriptors and the id, column and qualifier that we name."""
    masks = ", {" + ", ".join(["%0"] * 4 * group) + "}"
    plain = [("f16", "bf16"), ("tf32", "tf32"), ("f8f6f4", "e4m3"), ("i8", "s8")]
    for kind, data_type in plain:
        if kind == "i8" and not ARCH[arch.rstrip("a")].has("tcgen05_i8"):
            continue
        word = InstructionDescriptor(kind, 128, 64, a_type=data_type).encode()
        sparse = InstructionDescriptor(kind, 128 * group, 64, a_type=data_type, sparse=True).encode()
        yield f"tcgen05.mma.sp.cta_group::{group}.kind::{kind} [%0], %1, %1, [%0 + 128], {sparse}, p;"
        yield f"tcgen05.mma.sp.cta_group::{group}.kind::{kind} [%0], [%0 + 256], %1, [%0 + 128], {sparse}, p;"
        if group == 1:
            narrow = InstructionDescriptor(kind, 32, 64, a_type=data_type).encode()
            yield f"tcgen05.mma.ws.cta_group::1.kind::{kind} [%0], %1, %1, {narrow}, p;"
            yield f"tcgen05.mma.ws.sp.cta_group::1.kind::{kind} [%0], %1, %1, [%0 + 128], {sparse}, p;"
        yield f"tcgen05.mma.cta_group::{group}.kind::{kind} [%0], %1, %1, {word}, p;"
        yield f"tcgen05.mma.cta_group::{group}.kind::{kind} [%0], [%0], %1, {word}, p;"
        yield f"tcgen05.mma.cta_group::{group}.kind::{kind} [%0], %1, %1, {word}{masks}, p;"
    for name, row in SCALE_FORMATS.items():
        step = scale_layout(128, 256, name).steps()[-1]
        a_type = "e4m3" if row.mma_kind == "mxf8f6f4" else "e2m1"
        word = InstructionDescriptor(
            row.mma_kind,
            128,
            64,
            a_type=a_type,
            scale_type=row.scale_type,
            a_scale_id=step.scale_id,
            b_scale_id=step.scale_id,
        ).encode()
        block = row.qualifier.split("(")[1].rstrip(")")
        a_copy = f"tcgen05.mma.cta_group::{group}.kind::{row.mma_kind}.block_scale{block} [%0], [%0 + 256], %1, "
        yield f"{a_copy}{word}, [%0 + {step.column}], [%0], p;"
        scales = {
            "a_type": a_type,
            "scale_type": row.scale_type,
            "a_scale_id": step.scale_id,
            "b_scale_id": step.scale_id,
        }
        sparse = InstructionDescriptor(row.mma_kind, 128 * group, 64, sparse=True, **scales).encode()
        yield (
            f"tcgen05.mma.sp.cta_group::{group}.kind::{row.mma_kind}.block_scale{block} [%0], %1, %1, [%0 + 128], {sparse}, "
            f"[%0 + {step.column}], [%0], p;"
        )
        yield f"tcgen05.mma.cta_group::{group}.kind::{row.mma_kind}.block_scale{block} [%0], %1, %1, {word}, [%0 + {step.column}], [%0], p;"


@pytest.mark.thinned(4)
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
@pytest.mark.parametrize("group", [1, 2])
def test_products_assemble(arch, group):
    assert assembles(arch, *products(arch, group)) == ""


def test_k_96_assembles_with_its_descriptor():
    """ptxas does not look into the descriptor: the word says k = 96."""
    words = [
        InstructionDescriptor("mxf4nvf4", 256, 256, scale_type="ue4m3", k=96).encode(),
        InstructionDescriptor("mxf4", 256, 64, k=96).encode(),
    ]
    texts = [
        f"tcgen05.mma.cta_group::2.kind::{kind}.block_scale.{block} [%0], %1, %1, {word}, [%0 + 4], [%0], p;"
        for kind, block, word in (("mxf4nvf4", "block16", words[0]), ("mxf4", "block32", words[1]))
    ]
    assert assembles("sm_103a", *texts) == ""


@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
@pytest.mark.parametrize("group", [1, 2])
def test_commits_and_allocation_of_a_group_assemble(arch, group):
    """Commit with the mask that pair_shares names, and the waits, fences and allocation of the group."""
    mask, commit = (
        pair_shares((2, 2), 256, 64)[3].commit,
        f"tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster",
    )
    texts = [
        f"{commit}.b64 [%0];",
        f"{{ .reg .b16 m; mov.b16 m, {mask}; {commit}.multicast::cluster.b64 [%0], m; }}",
        f"tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%0], 64;",
        f"tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %0, 64;",
        f"tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;",
        "tcgen05.wait::ld.sync.aligned; tcgen05.wait::st.sync.aligned;",
        "tcgen05.fence::before_thread_sync; tcgen05.fence::after_thread_sync;",
    ]
    assert assembles(arch, *texts) == ""


def test_reductions_assemble_where_the_table_has_them():
    text = "tcgen05.ld.red.sync.aligned.32x32b.x8.max.f32 " + registers(8) + ", r9, [%0];"
    for name, arch in ARCH.items():
        if arch.has("tcgen05"):
            assert (assembles(f"{name}a", text) == "") == arch.has("tcgen05_ld_red"), name


def test_tensor_memory_exists_where_the_table_has_it():
    for name, arch in ARCH.items():
        if name >= "sm_100" or name == "sm_90":
            target = f"{name}a"
            assert (assembles(target, move("tcgen05.ld.32x32b.x1")) == "") == arch.has("tcgen05"), name
            assert (assembles(target, "tcgen05.shift.cta_group::1.down [%0];") == "") == arch.has("tcgen05_shift"), name


def test_scaled_products_of_sm_120_assemble():
    texts = []
    for name, row in SCALE_FORMATS.items():
        for thread_id in (0, 1):
            a, b = ScaleLanes(name, "A", thread_id=thread_id), ScaleLanes(name, "B", thread_id=2 * thread_id + 1)
            k, types = (32, "e4m3.e4m3") if row.mma_kind == "mxf8f6f4" else (64, "e2m1.e2m1")
            assert a.instruction == f"mma.m16n8k{k}"
            vector = row.qualifier.split()[0]
            texts.append(
                f"mma.sync.aligned.m16n8k{k}.row.col.kind::{row.mma_kind}.block_scale.scale_vec::{vector}.f32.{types}.f32."
                f"{row.scale_type} {{f0, f1, f2, f3}}, {{r4, r5, r6, r7}}, {{r8, r9}}, {{f0, f1, f2, f3}}, "
                f"r10, {{{a.byte_id}, {a.thread_id}}}, r11, {{{b.byte_id}, {b.thread_id}}};"
            )
    assert assembles("sm_120a", *texts) == ""
