"""A real card: what tilescope says held against it, and programs watched on it."""
