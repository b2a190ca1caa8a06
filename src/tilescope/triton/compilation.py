"""The message if Triton cannot compile a kernel: its name and place, the architecture, and the reason.

Triton's own exception goes on to the program, which may expect it; the sentence is added as a note.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from tilescope.triton.patches import Patches

_NOTE = "tilescope: "


def note_failed_compilations(triton: ModuleType, arch: str, patches: Patches) -> None:
    """Add a sentence with the kernel and the architecture to every exception of Triton's compiler."""
    function_type = triton.runtime.jit.JITFunction
    compile_kernel: Callable[..., object] = function_type._do_compile

    def compile_or_say_why(function: object, *arguments: object, **options: object) -> object:
        __tracebackhide__ = True
        try:
            return compile_kernel(function, *arguments, **options)
        except Exception as error:
            error.add_note(f"{_NOTE}{_describe_kernel(function)} cannot be compiled for {arch}: {_read_reason(error)}")
            raise

    patches.set(function_type, "_do_compile", compile_or_say_why)


def read_compile_failure(error: BaseException) -> str | None:
    """Triton's words and the sentence of a kernel that could not be compiled; None for another exception."""
    notes: list[str] = getattr(error, "__notes__", [])
    sentences = [note for note in notes if note.startswith(_NOTE)]
    return f"{error}\n{sentences[0]}" if sentences else None


def _describe_kernel(function: object) -> str:
    """Its name and place: add (kernels.py:12)."""
    python = getattr(function, "fn", None)
    code = getattr(python, "__code__", None)
    name = getattr(python, "__name__", "a kernel")
    return name if code is None else f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def _read_reason(error: Exception) -> str:
    """The last line of Triton's message, as a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[-1] if lines else type(error).__name__
    hint = "" if hasattr(error, "node") else " A kernel of another card needs its architecture, such as sm_100."
    return f"{reason.rstrip('.')}.{hint}"  # a mistake in the text has its node of the syntax tree
