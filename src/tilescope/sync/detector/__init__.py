"""The happens-before data-race detector of one run."""
