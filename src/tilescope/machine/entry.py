"""Which entry of a PTX text a name means: in PTX, in its source, or a part of either.

void gemm<128, 64>(…) of namespace lib      _ZN3lib4gemmILi128ELi64EEEv…
"gemm"   "lib::gemm"   "gemm<128, 64>"      name it, if no other entry has that name
"""

from __future__ import annotations

from collections.abc import Sequence

from tilescope.ptx.source_name import source_name, template_name
from tilescope.ptx.syntax import Function, Module
from tilescope.rule import ptx_example, rule
from tilescope.sentence import printed

ENTRY = rule(
    "kernel-entry",
    "The text has an entry of the name that is asked for, in PTX or in its source, or exactly one that contains it.",
    argument="entry",
    found="{asked}",
    limit="the text has {known:, }",
    fix='Name one of them, or a part of only one name[[: {entry:="{nearest}"}]].',
    source="PTX ISA, .entry",
    passing=f"ts.Kernel({ptx_example('kernel-entry.ptx')}, entry='sca')",
    failing=f"ts.Kernel({ptx_example('kernel-entry.ptx')}, entry='add')",
)


def chosen_entry(module: Module, entry: str | None) -> Function:
    """The entry that a name means; without a name, the only one that does something: headers of CUB bring an empty one."""
    functions = module.entries
    found: Sequence[Function]
    if entry is None:
        found = [function for function in functions if not _is_empty(function)] or functions
    else:
        found = _named(functions, entry)
    if len(found) == 1:
        return found[0]
    names = [_telling_name(function.name, functions) for function in found or functions]
    raise ENTRY.error(
        asked="no entry is named" if entry is None else f"entry = {printed(entry)}",
        known=names or ["no entry"],
        nearest=names[0] if names else None,
    )


def _is_empty(function: Function) -> bool:
    """Whether a kernel takes nothing and does nothing but return."""
    return not function.parameters and all(one.name == "ret" for one in function.instructions or ())


def _named(functions: Sequence[Function], entry: object) -> Sequence[Function]:
    """The kernels that a name may mean: its own name first, then that in the source, then a part of either."""
    if not isinstance(entry, str):
        return ()
    asked = entry.replace(" ", "")
    for is_meant in (_is_own_name, _is_template, _is_in_source, _is_part):
        found = [function for function in functions if is_meant(function.name, asked)]
        if found:
            return found
    return ()


def _is_own_name(name: str, asked: str) -> bool:
    return name == asked


def _is_template(name: str, asked: str) -> bool:
    """Whether a kernel is gemm<128,64>, with its scope or without."""
    written = template_name(name).replace(" ", "")
    return asked in (written, written.removeprefix(source_name(name).rpartition("::")[0]).removeprefix("::"))


def _is_in_source(name: str, asked: str) -> bool:
    written = source_name(name)
    return asked in (written, written.rpartition("::")[-1])


def _is_part(name: str, asked: str) -> bool:
    return asked in name or asked in template_name(name).replace(" ", "")


def _telling_name(name: str, functions: Sequence[Function]) -> str:
    """The name that a kernel has in its source, or in PTX where the source gives the same name to another one."""
    written = template_name(name)
    same = [function for function in functions if template_name(function.name) == written]
    return written if len(same) == 1 else name
