"""Data races and their kin in words: the rules of synchronization, and the findings about conflicts."""
