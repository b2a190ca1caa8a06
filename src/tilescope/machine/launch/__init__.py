"""How a kernel is launched: its arguments, shape and files; compiled from CUDA and Triton."""
