"""Multiplies two matrices with PyTorch: cuBLAS makes the maps."""

import torch

a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
print((a @ a).shape)
