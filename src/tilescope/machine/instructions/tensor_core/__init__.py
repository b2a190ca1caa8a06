"""mma, wgmma, wmma and tcgen05."""
