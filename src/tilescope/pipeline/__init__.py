"""Pipelines: barriers, slots and roles as data, and the simulation that finds hangs and races."""
