"""The pages of the explorer in the order of the menu; every page is registered only here."""

from tilescope.questions import (
    agreement_questions,
    bank_questions,
    convolution_questions,
    copy_questions,
    decode_questions,
    difference_questions,
    fragment_questions,
    gemm_questions,
    identify_page,
    layout_questions,
    map_inputs,
    map_questions,
    operand_questions,
    pipeline_questions,
    plan_questions,
    run_page,
    swizzle_questions,
    symptom_page,
    tmem_page,
)
from tilescope.questions.page import Page
from tilescope.questions.question import Input
from tilescope.questions.run_examples import fill_example

KIND_OF_MAP = Input("kind", label="Kind of map")
MENU = (
    Page(
        "path",
        "Path",
        "One element from memory to the tensor core: its copy, its place in shared memory, the K step that reads it.",
        {
            "tile": plan_questions.PATH_FORM,
            "gemm": gemm_questions.GEMM_PATH_FORM,
            "map": agreement_questions.MAP_PATH_FORM,
        },
        chooser=Input("given", label="Element of"),
    ),
    Page(
        "plan",
        "Plan",
        "What to do with a tile: swizzle, boxes, copies and descriptors, ranked, with the reasons, and code to copy.",
        {"": plan_questions.PLAN_FORM},
        is_compared=True,
    ),
    Page(
        "gemm",
        "GEMM",
        "A matrix product planned whole: tile, stages, tensor maps, descriptors and epilogue, ranked, and code to copy.",
        {"": gemm_questions.GEMM_PLAN_FORM},
    ),
    Page(
        "kernel",
        "Kernel",
        "A whole kernel under one budget: shared memory over time, tensor memory, registers and barriers.",
        {"known": plan_questions.KERNEL_FORM, "text": plan_questions.KERNEL_TEXT_FORM},
        chooser=Input("given", label="Described by"),
        is_common=False,
    ),
    Page(
        "tensor-map",
        "Tensor map",
        "What the driver would say to a CUtensorMap: every broken rule with its fix, and the 128 bytes.",
        map_questions.CHECK_FORMS | {"bytes": decode_questions.BYTES_FORM},
        chooser=KIND_OF_MAP,
        pasted="What CUTLASS, TileLang or Triton print, a call in C++, JSON, words from cuda-gdb, or hex: it fills the "
        "fields.",
        redirect=map_inputs.filled_by_paste,
    ),
    Page(
        "diff",
        "Diff",
        "Two tensor maps compared: which arguments differ, what follows from them, and which words of the descriptors.",
        {"": difference_questions.DIFF_FORM},
        is_common=False,
    ),
    Page(
        "conv",
        "Convolution",
        "The im2col map of a convolution: corners, strides, the offsets of every filter tap, and the first copy.",
        {"": convolution_questions.CONV_FORM},
        is_common=False,
    ),
    Page(
        "load",
        "Load",
        "One TMA copy, byte for byte: where the box is in the tensor, and where its rows land in shared memory.",
        copy_questions.LOAD_FORMS,
        chooser=KIND_OF_MAP,
    ),
    Page(
        "swizzle",
        "Swizzle",
        "Where each 16-byte chunk of a line is stored in shared memory, under a hardware mode or any XOR.",
        {"": swizzle_questions.SWIZZLE_FORM},
        is_compared=True,
    ),
    Page(
        "layout",
        "Layout",
        "Any layout of shared memory or of threads, as CuTe, Triton, Mosaic or tilescope write it.",
        {"": layout_questions.DRAW_FORM},
    ),
    Page(
        "convert",
        "Convert",
        "A layout in another notation, or in all: every address of both texts is compared.",
        {"": layout_questions.CONVERT_FORM},
        is_common=False,
    ),
    Page(
        "identify",
        "Identify",
        "A tile in a dump of shared memory: its address, its layout, and the first byte that does not match.",
        {"": identify_page.IDENTIFY_FORM},
        is_common=False,
    ),
    Page(
        "banks",
        "Banks",
        "How many wavefronts a warp's accesses take, which lanes conflict, and a layout without conflicts.",
        {"tile": bank_questions.TILE_FORM, "layout": bank_questions.LAYOUT_FORM, "lanes": bank_questions.LANES_FORM},
        chooser=Input("given", label="Accessed is"),
        is_compared=True,
    ),
    Page(
        "tensor-core",
        "Tensor core",
        "What the tensor core reads and holds: operands, their descriptors, the bytes of each K step, fragments.",
        {
            "descriptors": operand_questions.DESCRIPTORS_FORM,
            "operand": operand_questions.LAYOUT_FORM,
            "fragment": fragment_questions.FRAGMENT_FORM,
            "word": decode_questions.WORD_FORM,
        },
        chooser=Input("show", label="Show"),
    ),
    Page(
        "tensor-memory",
        "Tensor memory",
        "Lanes and columns of tensor memory: where accumulators, operands and scale factors are stored, and what fits.",
        tmem_page.FORMS,
        chooser=Input("show", label="Show"),
    ),
    Page(
        "pipeline",
        "Pipeline",
        "Whether producers and consumers are right in every order: the timeline, what each barrier needs, the mistake "
        "marked.",
        {
            "tiles": pipeline_questions.TILES_FORM,
            "gemm": pipeline_questions.GEMM_FORM,
            "text": pipeline_questions.TEXT_FORM,
        },
        chooser=Input("given", label="Described by"),
        is_compared=True,
    ),
    Page(
        "run",
        "Run",
        "Run a kernel's PTX without a GPU, step by step: what is wrong by line and its fix, where every warp is, registers, "
        "copies, mbarriers, and who wrote what in shared memory.",
        {"": run_page.RUN_FORM},
        redirect=fill_example,
    ),
    Page(
        "symptoms",
        "Symptoms",
        "Type what you see, an error code or a few words: causes in order, how to tell them apart, the fix, and what "
        "tests each.",
        {"": symptom_page.SEEN_FORM},
    ),
)
