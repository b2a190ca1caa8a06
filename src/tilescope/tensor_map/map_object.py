"""Sentences about the memory of a tensor map object, shared by rules and causes of symptoms."""

MAP_ALIGNMENTS = "cuda.h aligns CUtensorMap to 64 bytes up to CUDA 12, to 128 from CUDA 13 on"
SIZE_FLAG_BUG = (
    "Blackwell now and then reads past the end of a tensor that is not dense and has less than 128 KiB behind it, because the "
    "driver set bit 21 of word 1 in its descriptor: a known issue of drivers 595.71.05 and 595.91.07, and no version is known "
    "to be free of it"
)
CLEAR_SIZE_FLAG = "Clear it after the encode call, as CUTLASS and Triton do: ((uint64_t*)&map)[1] &= ~(1ull << 21)."
