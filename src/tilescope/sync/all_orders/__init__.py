"""The search over every order of a pipeline."""
