"""The CUDA driver, and processes that own the card."""
