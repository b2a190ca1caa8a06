"""Integers, read by tilescope.reading."""

from tilescope.reading import integer as integer  # noqa: PLC0414
from tilescope.reading import integers as integers  # noqa: PLC0414
