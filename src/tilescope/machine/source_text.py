"""The text of the source lines that a kernel was compiled from, as far as their files can be read."""

from __future__ import annotations

from collections.abc import Callable

from tilescope.machine.program import Program

ReadSource = Callable[[str], str | None]  # the name of a file as the PTX has it → its text


def no_source(_name: str) -> str | None:
    """What reads no file: a page has only the text of the kernel."""
    return None


def source_texts(program: Program, read: ReadSource) -> dict[str, str]:
    r"""Lines of source by the names that a run calls them by; of inlined code, the line of the kernel itself.

    >>> from tilescope.machine.kernel import Kernel
    >>> head = '.version 8.0 .target sm_90 .address_size 64 .file 1 "a.cu"'
    >>> kernel = Kernel(head + " .entry k() {\n.loc 1 2 0\nbar.sync 0;\nret; }")
    >>> source_texts(kernel.program, {"a.cu": "void k() {\n  sync();\n}"}.get)
    {'a.cu:2': '  sync();'}
    """
    lines_of_file: dict[str, list[str]] = {}
    texts = {}
    for instruction in program.instructions:
        if instruction is None or instruction.source is None:
            continue
        line = instruction.source.outermost
        if line.file not in lines_of_file:
            lines_of_file[line.file] = (read(line.file) or "").splitlines()
        lines = lines_of_file[line.file]
        if 1 <= line.line <= len(lines):
            texts[str(instruction.source)] = lines[line.line - 1]
    return texts
