"""Choose the entry of a PTX text by name: its mangled name, its name in the source, or part of either.

void gemm<128, 64>(…) of namespace lib      _ZN3lib4gemmILi128ELi64EEEv…
"gemm"   "lib::gemm"   "gemm<128, 64>"      each chooses this entry, if no other has the same name
"""

from __future__ import annotations

from collections.abc import Sequence

from tilescope.ptx.source_name import source_name, template_name
from tilescope.ptx.syntax import Function, Module
from tilescope.rule import ptx_example, rule
from tilescope.sentence import format_value

ENTRY = rule(
    "kernel-entry",
    "The text has an entry with this name, in PTX or in its source, or exactly one that contains it.",
    argument="entry",
    found="{asked}",
    limit="the text has {known:, }",
    fix='Name one of them, or a part of only one name[[: {entry:="{nearest}"}]].',
    source="PTX ISA, .entry",
    passing=f"ts.Kernel({ptx_example('kernel-entry.ptx')}, entry='sca')",
    failing=f"ts.Kernel({ptx_example('kernel-entry.ptx')}, entry='add')",
)
NO_ENTRY = ENTRY.worded(
    found="a text without an entry",
    limit="a kernel is a __global__ function, in PTX an .entry; a template becomes one only where it is instantiated",
    fix="Add a kernel, or instantiate its template: template __global__ void scale<128>(float *);",
)


def choose_entry(module: Module, entry: str | None) -> Function:
    """The entry called `entry`; without a name, the only entry that is not empty (headers of CUB define an empty kernel)."""
    functions = module.entries
    if not functions:
        raise NO_ENTRY.error()
    candidates: Sequence[Function]
    if entry is None:
        candidates = [function for function in functions if not _is_empty(function)] or functions
    else:
        candidates = _find_entries(functions, entry)
    if len(candidates) == 1:
        return candidates[0]
    names = [_describe_entry(function.name, functions) for function in candidates or functions]
    raise ENTRY.error(
        asked="no entry is named" if entry is None else f"entry = {format_value(entry)}",
        known=names,
        nearest=names[0],
    )


def _is_empty(function: Function) -> bool:
    """Whether a kernel has no parameters and only returns."""
    return not function.parameters and all(instruction.name == "ret" for instruction in function.instructions or ())


def _find_entries(functions: Sequence[Function], entry: object) -> Sequence[Function]:
    """The kernels that a name matches: by PTX name, else by name in the source, else by part of either."""
    if not isinstance(entry, str):
        return ()
    name = entry.replace(" ", "")
    for is_match in (_is_ptx_name, _is_template, _is_source_name, _is_part):
        matches = [function for function in functions if is_match(function.name, name)]
        if matches:
            return matches
    return ()


def _is_ptx_name(name: str, wanted: str) -> bool:
    return name == wanted


def _is_template(name: str, wanted: str) -> bool:
    """Whether a kernel is gemm<128,64>, with its scope or without."""
    written = template_name(name).replace(" ", "")
    return wanted in (written, written.removeprefix(source_name(name).rpartition("::")[0]).removeprefix("::"))


def _is_source_name(name: str, wanted: str) -> bool:
    written = source_name(name)
    return wanted in (written, written.rpartition("::")[-1])


def _is_part(name: str, wanted: str) -> bool:
    return wanted in name or wanted in template_name(name).replace(" ", "")


def _describe_entry(name: str, functions: Sequence[Function]) -> str:
    """The name of a kernel in its source; its PTX name if another kernel has the same name in the source."""
    written = template_name(name)
    namesakes = [function for function in functions if template_name(function.name) == written]
    return written if len(namesakes) == 1 else name
