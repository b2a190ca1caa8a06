// A race that leaves the right numbers: nothing orders the two lines below. README.md runs its PTX, made by
//     nvcc -ptx -lineinfo -arch=sm_90 reverse.cu
extern "C" __global__ void reverse(float* x)
{
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
