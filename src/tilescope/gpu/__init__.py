"""A real card: comparing tilescope's predictions with it, and watching programs on it."""
