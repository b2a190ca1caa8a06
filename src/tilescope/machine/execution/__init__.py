"""What runs: the grid, barriers of threads, pending asynchronous work, faults and records."""
