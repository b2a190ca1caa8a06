"""The arrays that a copy reads and writes, as plain bytes.

Any C-contiguous array will do, whatever its shape and type; bytes and other buffers too. What is written must be
writeable, and is written in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError, broken

Bytes = npt.NDArray[np.uint8]


def readable(argument: str, given: Any) -> Bytes:
    """The bytes of an array or buffer, in place.

    >>> readable("memory", np.array([1, 256], np.uint16)).tolist()
    [1, 0, 0, 1]
    """
    if isinstance(given, np.ndarray):
        array = given
        if array.dtype.hasobject:
            raise _refused(argument, f"an array of {array.dtype}", "plain numbers", "Give numbers, not objects.")
        if not array.flags.c_contiguous:
            raise _refused(
                argument, f"an array of shape {array.shape} with strides {array.strides}", "C-contiguous bytes",
                "Give the whole array, and let the tensor map's strides pick from it; or use np.ascontiguousarray "
                "(a copy, so not for what is written).",
            )  # fmt: skip
        return np.asarray(array).reshape(-1).view(np.uint8)
    try:
        return np.frombuffer(given, np.uint8)
    except (TypeError, ValueError, BufferError):
        found = f"a {type(given).__name__}"
        raise _refused(argument, found, "an array or a buffer of bytes", "Give a numpy array.") from None


def writeable(argument: str, given: Any) -> Bytes:
    """The same for an array that is written."""
    found = readable(argument, given)
    if not found.flags.writeable:
        raise _refused(
            argument, f"a read-only {type(given).__name__}", "an array that can be written in place",
            "Give a writeable array (np.array copies; np.load takes mmap_mode='r+').",
        )  # fmt: skip
    return found


def require_smem(argument: str, found: Bytes, needed_bytes: int) -> None:
    """Refuse shared memory that is shorter than the box of a copy."""
    if len(found) < needed_bytes:
        raise broken(
            "smem-extent", argument, f"{len(found)} bytes", f"the box in shared memory takes {needed_bytes} bytes",
            f"Give an array of at least {needed_bytes} bytes.",
        )  # fmt: skip


def _refused(argument: str, found: str, limit: str, fix: str) -> RuleError:
    return broken("array", argument, found, limit, fix)
