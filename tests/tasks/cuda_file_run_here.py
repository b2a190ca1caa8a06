"""A transpose in a .cu file: does it run, and what do its accesses to shared memory cost?"""

IS_SLOW = True
TRANSPOSE = """\
__global__ void transpose(float* out, const float* in, int width, int height) {
    __shared__ float tile[32][PITCH];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();
    int ox = blockIdx.y * 32 + threadIdx.x, oy = blockIdx.x * 32 + threadIdx.y;
    out[oy * height + ox] = tile[threadIdx.x][threadIdx.y];
}
"""
RUN = (
    "tilescope run transpose.cu --grid 2x2 --block 32x32 --arg f32:64x64:zeros --arg f32:64x64:arange --arg 64 --arg 64"
)


def solve(desk):
    desk.require("nvcc")
    desk.write("transpose.cu", TRANSPOSE.replace("PITCH", "32"))
    said = desk.type(RUN)
    assert said.status == 0
    assert said.first.startswith("transpose finished: 4 blocks of 1024 threads")
    assert "transpose.cu:7" in said.text
    assert "4096 wavefronts, 128 without conflicts" in said.text
    assert "Leave 4 bytes free after every 128" in said.text
    assert "64, 128, 192, 256" in said.text  # the first column of 0, 1, 2 …, behind its 0
    desk.write("transpose.cu", TRANSPOSE.replace("PITCH", "33"))
    cured = desk.type(RUN)
    assert cured.status == 0
    assert "run-bank-conflict" not in cured.text
