"""The PTX of a plan as a kernel whose shared memory can be seen: before it ends, the block writes its stage to global memory."""

import ctypes

import numpy as np

DUMP = """
  bar.sync 0;
  {{
    .reg .b32 %at, %from, %word;
    .reg .b64 %dump, %to;
    .reg .pred %end;
    ld.param.u64 %dump, [dump];
    cvta.to.global.u64 %dump, %dump;
    shl.b32 %at, %thread, 2;
dump_word:
    setp.ge.u32 %end, %at, {stage_bytes};
    @%end bra dumped;
    add.u32 %from, %base, %at;
    ld.shared.b32 %word, [%from];
    cvt.u64.u32 %to, %at;
    add.u64 %to, %dump, %to;
    st.global.b32 [%to], %word;
    mad.lo.u32 %at, %threads, 4, %at;
    bra dump_word;
dumped:
  }}
  ret;
}}
"""


def with_dump(text, stage_bytes):
    """The text with one more parameter, the global address to which the stage is written."""
    opened, parameters, body = text.rpartition(".param .u32 first_k)")
    kernel, end, _ = body.rpartition("  ret;\n}")
    assert parameters
    assert end
    return f"{opened}.param .u32 first_k,\n    .param .u64 dump){kernel}{DUMP.format(stage_bytes=stage_bytes)}"


def run_step(card, plan, text, arguments, threads=128):
    """Run the text on the card, and give the bytes of its stage; every argument is bytes, passed by value."""
    from cuda.bindings import driver

    from tilescope.gpu.driver.device import require_success

    image = np.frombuffer(with_dump(text, plan.stage_bytes).encode() + b"\0", np.uint8)
    stage = np.full(plan.stage_bytes, 0xEE, np.uint8)
    dump = card.upload(stage)
    function = require_success(
        driver.cuModuleGetFunction(require_success(driver.cuModuleLoadData(image.ctypes.data)), b"tile_step")
    )
    smem_bytes = plan.stage_bytes + 8
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    require_success(driver.cuFuncSetAttribute(function, attribute, smem_bytes))
    held = [ctypes.create_string_buffer(value, len(value)) for value in (*arguments, np.uint64(dump).tobytes())]
    pointers = np.array([ctypes.addressof(value) for value in held], np.uint64)
    require_success(driver.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, smem_bytes, 0, pointers.ctypes.data, 0))
    require_success(driver.cuCtxSynchronize())
    return card.download(dump, stage)
