"""Names as the source has them: C++ compilers write `_Z9transposePfPKfii` for `transpose(float*, const float*, int, int)`.

_Z  9transpose  PfPKfii                            a length and a name, then the types of the parameters
_ZN 7cutlass 13device_kernel I…E E v               N … E: the names of a scope; I … E: arguments of a template
I Li128E Lb1E f 6__half E                          <128, true, float, __half>: L … E is a value behind the letter of its type
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MANGLED = "_Z"
_QUALIFIERS = re.compile(r"[LrVK]*")  # internal linkage; restrict, volatile, const
_LENGTH = re.compile(r"[1-9]\d{0,3}")
_ANONYMOUS = "_GLOBAL__N"  # how compilers call a namespace without a name
_VALUE = re.compile(r"L(?P<type>[a-z])(?P<sign>n?)(?P<digits>\d{1,20})E")
_TRUTH = {"0": "false", "1": "true"}
_TYPES = {
    "a": "signed char",
    "b": "bool",
    "c": "char",
    "d": "double",
    "f": "float",
    "h": "unsigned char",
    "i": "int",
    "j": "unsigned",
    "l": "long",
    "m": "unsigned long",
    "s": "short",
    "t": "unsigned short",
    "x": "long long",
    "y": "unsigned long long",
}


class _Named(NamedTuple):
    name: str
    end: int  # where the name ends in the mangled one


def source_name(entry: str) -> str:
    """The name that a kernel has in its source, with its scope; a name that is not mangled comes back unchanged.

    >>> source_name("_Z9transposePfPKfii"), source_name("_ZN2ns4gemmILi128EEEvPf"), source_name("matmul_kernel")
    ('transpose', 'ns::gemm', 'matmul_kernel')
    """
    return _demangle(entry).name


def template_name(entry: str) -> str:
    """The same with the arguments of a template, where all of them are numbers, truths, plain types or names of classes.

    >>> template_name("_ZN2ns4gemmILi128ELb1EfEEvPf"), template_name("_Z4copyI6__halfEvPT_"), template_name("_Z3addPf")
    ('ns::gemm<128, true, float>', 'copy<__half>', 'add')
    """
    name, place = _demangle(entry)
    if entry[place : place + 1] != "I":
        return name
    place += 1
    arguments = []
    while entry[place : place + 1] != "E":
        argument = _argument(entry, place)
        if argument is None:
            return name
        arguments.append(argument.name)
        place = argument.end
    return f"{name}<{', '.join(arguments)}>"


def _argument(entry: str, place: int) -> _Named | None:
    """The argument of a template that begins at a place; None for one of another form."""
    value = _VALUE.match(entry, place)
    if value is not None:
        is_truth = value["type"] == "b"
        spelling = _TRUTH.get(value["digits"]) if is_truth else value["sign"].replace("n", "-") + value["digits"]
        return None if spelling is None else _Named(spelling, value.end())
    length = _LENGTH.match(entry, place)
    if length is not None:
        end = length.end() + int(length[0])
        return _Named(entry[length.end() : end], end)
    spelling = _TYPES.get(entry[place : place + 1])
    return None if spelling is None else _Named(spelling, place + 1)


def _demangle(entry: str) -> _Named:
    unread = _Named(entry, len(entry))
    if not entry.startswith(_MANGLED):
        return unread
    place = len(_MANGLED)
    is_scoped = entry[place : place + 1] == "N"
    names: list[str] = []
    place = _after_qualifiers(entry, place + is_scoped)
    while (length := _LENGTH.match(entry, place)) is not None:
        start = length.end()
        place = start + int(length[0])
        if place > len(entry):
            return unread
        names.append(entry[start:place])
        if not is_scoped:
            break
        place = _after_qualifiers(entry, place)
    named_scopes = [name for name in names if not name.startswith(_ANONYMOUS)]
    return _Named("::".join(named_scopes), place) if named_scopes else unread


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
