"""Changed copies of a kernel: mutants, and remedies that are tried."""
