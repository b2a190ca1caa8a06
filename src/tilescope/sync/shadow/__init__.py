"""Shadow memory: the last accesses of every cell."""
