"""Runs of arithmetic instructions as machine code, made by LLVM (llvmlite, of the extra `fast`)."""
