"""A plan as source code."""
