"""A matrix that a caller passes, as elements of a type."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.reading import as_array
from tilescope.rule import ARGUMENT_RANGE, ARGUMENT_TYPE


def element_matrix(argument: str, values: npt.ArrayLike, data_type: DataType) -> npt.NDArray[Any]:
    """A matrix of elements of the type, rounded as numpy rounds; narrow elements have a byte each.

    >>> element_matrix("a", [[0.1, 1.0]], DataType.named("bf16")).astype(float).tolist()
    [[0.10009765625, 1.0]]
    """
    dtype = data_type.numpy  # which refuses types that numpy does not have
    matrix = as_array(argument, values)
    try:
        elements = matrix if matrix.dtype == dtype else matrix.astype(dtype)
    except (TypeError, ValueError):
        raise ARGUMENT_TYPE.error(
            argument=argument,
            found=f"an array of {matrix.dtype}",
            limit=f"numbers that {data_type.name} can hold",
            fix="Use an array of floats.",
        ) from None
    if elements.ndim != 2 or 0 in elements.shape:
        raise ARGUMENT_RANGE.error(
            argument=argument,
            found=f"an array of shape {elements.shape}",
            limit="a matrix: two dimensions, neither empty",
            fix="Use an array of shape (64, 64).",
            shape=elements.shape,
        )
    return elements
