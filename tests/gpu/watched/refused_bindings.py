"""Encodes one map with cuda.bindings that the driver refuses."""

from cuda.bindings import driver

driver.cuInit(0)
_, device = driver.cuDeviceGet(0)
_, context = driver.cuDevicePrimaryCtxRetain(device)
driver.cuCtxSetCurrent(context)
_, memory = driver.cuMemAlloc(1 << 20)


def encode(address, box):
    wide, narrow = driver.cuuint64_t, driver.cuuint32_t
    return driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        2,
        address,
        [wide(512), wide(512)],
        [wide(1024)],
        [narrow(extent) for extent in box],
        [narrow(1), narrow(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )[0]


if __name__ == "__main__":
    print(encode(int(memory), (64, 64)).name)
    print(encode(int(memory) + 8, (128, 64)).name)
