"""Names as the source has them: C++ compilers write `_Z9transposePfPKfii` for `transpose(float*, const float*, int, int)`.

_Z  9transpose  PfPKfii                            a length and a name, then the types of the parameters
_ZN 7cutlass 13device_kernel I…E E v               N … E: the names of a scope; I … E: arguments of a template
"""

from __future__ import annotations

import re

_MANGLED = "_Z"
_QUALIFIERS = re.compile(r"[LrVK]*")  # internal linkage; restrict, volatile, const
_LENGTH = re.compile(r"[1-9]\d{0,3}")
_ANONYMOUS = "_GLOBAL__N"  # how compilers call a namespace without a name


def source_name(entry: str) -> str:
    """The name that a kernel has in its source, with its scope; a name that is not mangled comes back unchanged.

    >>> source_name("_Z9transposePfPKfii"), source_name("_ZN2ns4gemmILi128EEEvPf"), source_name("matmul_kernel")
    ('transpose', 'ns::gemm', 'matmul_kernel')
    """
    if not entry.startswith(_MANGLED):
        return entry
    place = len(_MANGLED)
    is_scoped = entry[place : place + 1] == "N"
    names: list[str] = []
    place = _after_qualifiers(entry, place + is_scoped)
    while (length := _LENGTH.match(entry, place)) is not None:
        start = length.end()
        place = start + int(length[0])
        if place > len(entry):
            return entry
        names.append(entry[start:place])
        if not is_scoped:
            break
        place = _after_qualifiers(entry, place)
    named_scopes = [name for name in names if not name.startswith(_ANONYMOUS)]
    return "::".join(named_scopes) if named_scopes else entry


def _after_qualifiers(entry: str, place: int) -> int:
    qualifiers = _QUALIFIERS.match(entry, place)
    assert qualifiers is not None  # it may be empty
    return qualifiers.end()


def parameter_name(entry: str, parameter: str) -> str:
    """The name of a kernel's parameter, without the kernel's own name, which nvcc and Triton put before it.

    >>> parameter_name("_Z9transposePfPKfii", "_Z9transposePfPKfii_param_0"), parameter_name("fill", "out")
    ('param_0', 'out')
    """
    return parameter.removeprefix(f"{entry}_")
