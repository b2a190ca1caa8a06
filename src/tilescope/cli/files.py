"""The files that command lines name, read for the questions that use them.

A question does not open files: a command passes it their contents, with a name. The map in SOURCE is `source`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilescope.cli.command import STDOUT, Gather, Output, click_reader, is_file, step_counter
from tilescope.errors import RuleError, Violation
from tilescope.questions.question import Asked
from tilescope.sentence import shorten
from tilescope.written import extents

if TYPE_CHECKING:
    from tilescope.machine.launch.launch_description import LaunchDescription
    from tilescope.tma.array_file import Array

STDIN = "-"
LARGEST_LAUNCH_BYTES = 1 << 30
LARGEST_TILE_BYTES = 1 << 20
_HEXADECIMAL = re.compile(r"\s*(?:0[xX])?[0-9a-fA-F]{2}[0-9a-fA-FxX\s,:;+<>|{}()\[\]]{6,}")
# PTX, CUDA C++, Triton: what `run` takes, and no log has at the beginning of a line.
_KERNEL = re.compile(r"^\s*\.(?:version|target)\s|\b__global__\b|^\s*@(?:triton|gluon)\.jit\b", re.MULTILINE)
CUDA_SUFFIX = ".cu"
PYTHON_SUFFIX = ".py"
_PTX_OF_BINARY = "cuobjdump --dump-ptx prints the PTX of a program or a library; nvcc -ptx writes that of a source."
MOST_WORDS = 8  # that are decoded one by one; more are meant to be a map, of which some are missing


def with_map(asked: Asked, _: Output) -> Asked:
    """SOURCE, or JSON; without both and without options that describe a map, what stdin holds."""
    from tilescope.cli.map_source import read_source
    from tilescope.questions.map_inputs import MAP_INPUTS

    if "words" in asked and "from_json" in asked:
        raise click.UsageError("SOURCE and --from-json both give a map; give one of them.")
    if "from_json" in asked:
        return asked.saying(source=read_source((asked["from_json"],), as_json=True))
    if "words" in asked:
        return asked.saying(source=read_source(asked["words"]))
    if any(row.name in asked for row in MAP_INPUTS):
        return asked
    if sys.stdin.isatty():
        raise click.UsageError("describe a map: --type, --dims and --box, or a file, or - for stdin.")
    return asked.saying(source=read_source((STDIN,)))


def with_map_or_log(asked: Asked, output: Output) -> Asked:
    """A map; of a traceback or a log without one, its text, which `explain` answers."""
    from tilescope.cli.map_source import is_log
    from tilescope.tensor_map.text.pasted import NoDescriptorError

    try:
        return with_map(asked, output)
    except NoDescriptorError as error:
        if not is_log(error.text):
            raise
        return asked.saying(log=error.text)


def with_map_and_array(asked: Asked, output: Output) -> Asked:
    """An array as the tensor of a copy, which describes its own map; else a map."""
    if "npy" not in asked:
        return with_map(asked, output)
    from tilescope.tma.array_file import read_array

    for option, path in (("--out", output.out_path), ("--svg", output.svg_path)):
        if path is not None and path != STDOUT and path.exists() and path.samefile(asked["npy"]):
            sentence = f"--npy {asked['npy']} and {option} {path} are the same file; give {option} another."
            raise click.UsageError(sentence)  # the array is mapped into memory
    with_array = asked.saying(array=read_array(asked["npy"]))
    has_source = "words" in asked or "from_json" in asked
    return with_map(with_array, output) if has_source else with_array


def with_two_maps(asked: Asked, _: Output) -> Asked:
    """The two maps of `diff`, or the two logs."""
    from tilescope.cli.map_source import read_source

    if asked["one"] == asked["other"] == STDIN:
        raise click.UsageError("Only one of them can be -: stdin holds one map.")
    one_source = read_source((asked["one"],), takes_options=False)
    other_source = read_source((asked["other"],), takes_options=False)
    return asked.saying(one_source=one_source, other_source=other_source)


def with_word_or_map(asked: Asked, _: Output) -> Asked:
    """One number, several, or a map in bytes or words; the error for anything else mentions all of them.

    A number may be in the output of a debugger: "$1 = 0x4000004000010040".
    """
    from tilescope.cli.map_source import read_source
    from tilescope.mma.readings import pasted_word
    from tilescope.questions.decode_questions import require_rows
    from tilescope.tensor_map.text.pasted import NoDescriptorError

    require_rows(asked)
    words: tuple[str, ...] = asked["words"]
    numbers = [pasted_word(word) for word in words]
    if len(words) == 1 and numbers[0] is not None:
        return asked.saying(word=numbers[0])
    try:
        return asked.saying(source=read_source(words, takes_options=False))
    except RuleError as error:
        if None not in numbers and len(numbers) <= MOST_WORDS:
            return asked.saying(several=tuple(numbers))
        shown = error.words if isinstance(error, NoDescriptorError) else ()
        if len(shown) == 1:
            return asked.saying(word=shown[0])
        if 1 < len(shown) <= MOST_WORDS:
            return asked.saying(several=shown)
        raise RuleError(_told_of_words(error.violations)) from None


def _told_of_words(violations: Iterable[Violation]) -> list[Violation]:
    """The same refusals; of a text that is no descriptor, that one word would do too."""
    from tilescope.tensor_map.text.pasted import PASTED_DESCRIPTOR, paste_refused

    return [
        paste_refused(violation.values, or_word=True) if violation.rule == PASTED_DESCRIPTOR.name else violation
        for violation in violations
    ]


def with_dump_and_tile(asked: Asked, _: Output) -> Asked:
    """A dump of memory, and the tile that is looked for in it: files, or their bytes as text."""
    from tilescope.questions.identify_page import TILE_TEXT
    from tilescope.tma.array_file import LARGEST_DUMP_BYTES, dump_bytes, tile_of

    if asked["dump"] == asked["tile"] == STDIN:
        raise click.UsageError("Only one of them can be -: stdin holds one file.")
    dump = dump_bytes(_named_or_written(asked["dump"], LARGEST_DUMP_BYTES))
    content = _named_or_written(asked["tile"])
    name = asked["tile"] if asked["tile"] == STDIN or is_file(asked["tile"]) else TILE_TEXT
    tile = tile_of(content, name, asked.get("data_type"), asked.get("shape"))
    return asked.saying(dump_bytes=dump, tile_array=tile)


def _named_or_written(word: str, most_bytes: int = LARGEST_TILE_BYTES) -> bytes:
    """What a file holds, or the word itself where it names none and is hexadecimal text."""
    from tilescope.cli.map_source import read_input

    if word == STDIN or is_file(word):
        return read_input(word, most_bytes)
    if _HEXADECIMAL.fullmatch(word) is None:
        raise click.UsageError(f"there is no file {shorten(word, 80)!r}; bytes as text are hexadecimal.")
    return word.encode()


def with_description_or_tiles(asked: Asked, _: Output) -> Asked:
    """What one FILE describes as a pipeline, or tiles and their type."""
    from tilescope.cli.map_source import read_input

    words: tuple[str, ...] = asked.get("words", ())
    if not words or "template" in asked:
        return asked
    if len(words) > 1:
        *tiles, data_type = words
        read = click_reader(extents)
        return asked.saying(shapes=[read(tile) for tile in tiles], data_type=data_type)
    (name,) = words
    if name != STDIN and not Path(name).exists():
        raise click.UsageError(f"there is no file {name!r}; a planned pipeline is a tile and a type: 128x64 bf16.")
    return asked.saying(description=read_input(name), file_name="stdin" if name == STDIN else Path(name).name)


def with_kernel_file(asked: Asked, _: Output) -> Asked:
    """The kernel that a FILE describes, where its name is in the place of a tile; a known kernel has no file."""
    from tilescope.cli.map_source import read_input
    from tilescope.kernel_plan.known_kernels import known_kernel_names

    name = asked.get("tile")
    if not isinstance(name, str) or name in known_kernel_names():
        return asked
    if name != STDIN and not Path(name).exists():
        raise click.UsageError(
            f"{name!r} is not a tile such as 128x64, not a file, and not a known kernel: "
            f"{', '.join(known_kernel_names())}."
        )
    return asked.saying(description=read_input(name), file_name="stdin" if name == STDIN else Path(name).name)


def with_pasted_words(asked: Asked, _: Output) -> Asked:
    """The contents of a file or stdin, if its name or - replaces the words; for a kernel, the command that runs it."""
    words: tuple[str, ...] = asked.get("topic", ())
    if len(words) != 1 or not (words[0] == STDIN or _is_named_file(words[0])):
        return asked
    from tilescope.cli.map_source import read_input  # imports the readers of maps: most questions do not need them

    name = words[0]
    pasted = read_input(name).decode("utf-8", errors="replace").strip()
    if not pasted:
        shown = "stdin" if name == STDIN else name
        raise click.UsageError(f"{shown} holds no words; paste a line of a log, or name a topic.")
    if _KERNEL.search(pasted):
        file = "kernel.ptx" if name == STDIN else name
        raise click.UsageError(f"this is a kernel: tilescope run {file} says what it computes and does wrong.")
    return asked.saying(topic=(pasted,))


def _is_named_file(word: str) -> bool:
    """Whether a word is the name of a file; a word without a dot or a slash is a topic."""
    if "." not in word and "/" not in word:
        return False
    return is_file(word)


def with_counted_kernel(asked: Asked, output: Output) -> Asked:
    """What `with_kernel` gives, and a run that shows on a terminal how far it is."""
    return with_kernel(asked, output).saying(count_steps=step_counter)


def with_kernel(asked: Asked, output: Output) -> Asked:
    """The text of a kernel, or the kernel that is compiled; the launch file, and how arrays are read; or a Python program.

    Paths in a launch file are relative to its folder, or to the archive that contains it.
    """
    from tilescope.questions.program_questions import names_program

    file: str = asked.get("kernel", "")
    is_program = "module" in asked or (file.endswith(PYTHON_SUFFIX) and names_program(asked))
    if is_program:
        if "module" in asked and file:
            raise click.UsageError(f"{file} and -m {asked['module']} both name a program; keep one of them.")
        taken = output.as_json or output.is_quiet or output.is_stdout_taken
        return asked.saying(program=asked.get("module", file), is_stdout_taken=taken)
    asked = _with_arguments(asked)
    if asked.get("kernel") == asked.get("launch") == STDIN:
        raise click.UsageError("Only one of them can be -: stdin holds one file.")
    asked = _with_language(asked)
    _require_one_source(asked)
    asked = with_launch(_with_launch_beside(asked))
    if "triton" in asked or "cuda" in asked:
        return with_compiled(asked)
    if "kernel" not in asked:
        raise click.UsageError('name a file of PTX, or a --launch file with ptx = "kernel.ptx".')
    from tilescope.cli.map_source import read_input

    content = read_input(asked["kernel"])
    if b"\0" in content:
        raise click.UsageError(f"{asked['kernel']} is no text, and PTX is. {_PTX_OF_BINARY}")
    text = content.decode("utf-8", errors="replace")
    own_folder = Path() if asked["kernel"] == STDIN else Path(asked["kernel"]).parent
    folders = (*asked["folders"], own_folder)
    return asked.saying(ptx=text, read_source=lambda name: read_source_beside(folders, name))


def _with_arguments(asked: Asked) -> Asked:
    """Words behind a kernel's file are its arguments, as those of --arg are."""
    words: tuple[str, ...] = asked.get("program_arguments", ())
    if words and "args" in asked:
        raise click.UsageError(
            f"{shorten(' '.join(words), 60)!r} and --arg both give arguments; keep one of them, in the order of the parameters."
        )
    return asked.saying(args=words) if words else asked


def _with_language(asked: Asked) -> Asked:
    """FILE.cu and FILE.py:FUNCTION name what is compiled first, as --cuda and --triton do."""
    file: str = asked.get("kernel", "")
    if "cuda" in asked or "triton" in asked:
        return asked
    if file.endswith(CUDA_SUFFIX):
        return asked.saying(kernel=None, cuda=file)
    if file.partition(":")[0].endswith(PYTHON_SUFFIX):
        return asked.saying(kernel=None, triton=file)
    return asked


def _require_one_source(asked: Asked) -> None:
    options = [
        option for name, option in (("kernel", "FILE"), ("triton", "--triton"), ("cuda", "--cuda")) if name in asked
    ]
    if len(options) > 1:
        raise click.UsageError(f"{' and '.join(options)} both name a kernel; keep one of them.")
    if "triton" not in asked and ("signature" in asked or "constexprs" in asked):
        raise click.UsageError("--signature and --constexpr are for --triton.")
    if "options" in asked and "triton" not in asked and "cuda" not in asked:
        raise click.UsageError("--option is for --triton and --cuda.")


def _with_launch_beside(asked: Asked) -> Asked:
    """The launch file that `--emit cuda -o FILE.cu` writes, if neither a launch file nor arguments are passed."""
    from tilescope.machine.launch.launch_file import LAUNCH_SUFFIX

    if "cuda" not in asked or any(name in asked for name in ("launch", "args", "template")):
        return asked
    beside = Path(asked["cuda"]).with_suffix(LAUNCH_SUFFIX)
    return asked.saying(launch=str(beside), launch_beside=beside.name) if beside.is_file() else asked


def _show_recording(steps: int) -> None:
    """How far the recording of a run has come, in a line of the terminal that the next one replaces."""
    click.echo(f"\rrecording: {steps} steps ", err=True, nl=False)


def with_launch(asked: Asked) -> Asked:
    """The contents of the launch file, and a reader for the arrays that it names."""
    from tilescope.cli.map_source import read_input
    from tilescope.machine.launch.launch_archive import is_archive, read_archive
    from tilescope.machine.launch.launch_file import read_launch

    asked = asked.saying(progress=_show_recording if sys.stderr.isatty() else None)
    if "launch" not in asked:
        return asked.saying(folders=(), read_array=lambda name: read_array_beside(Path(), name))
    name: str = asked["launch"]
    shown = "stdin" if name == STDIN else Path(name).name
    folder = Path() if name == STDIN else Path(name).parent
    content = read_input(name, LARGEST_LAUNCH_BYTES)
    if is_archive(content):
        archive = read_archive(content, shown)
        asked = asked.saying(described=archive.launch, read_array=archive.read_array, folders=(folder,))
    else:
        launch = read_launch(content, shown)
        asked = asked.saying(
            described=launch, read_array=lambda file: read_array_beside(folder, file), folders=(folder,)
        )
    ptx = asked["described"].ptx
    has_kernel = any(source in asked for source in ("kernel", "triton", "cuda"))
    if has_kernel or not ptx:
        return asked
    return asked.saying(kernel=str(folder / ptx))


def with_compiled(asked: Asked) -> Asked:
    """The kernel that is compiled first."""
    from tilescope.questions.compiled_kernel import cuda_kernel, kernel_place, triton_kernel

    options = asked.get("options", ())
    described: LaunchDescription | None = asked.get("described")
    arch = asked.get("arch", None if described is None else described.arch)
    if "cuda" in asked:
        source = Path(asked["cuda"])
        entry = asked.get("entry", None if described is None else described.entry)
        compiled = cuda_kernel(asked["cuda"], entry, options, arch)
        if "launch_beside" in asked and described is not None:
            sentence = f"{compiled.sentence} {_describe_launch_beside(asked['launch_beside'], described)}"
            compiled = compiled._replace(sentence=sentence)
    else:
        if "entry" in asked:
            raise click.UsageError("--entry is for texts of several kernels; --triton names one.")
        source, _ = kernel_place(asked["triton"])
        signature = _signature(asked)
        compiled = triton_kernel(asked["triton"], signature, asked.get("constexprs", ()), options, arch)
        if "signature" not in asked:
            compiled = compiled._replace(sentence=f"{compiled.sentence} Types, by its arguments: {signature}.")
    folders = (*asked["folders"], source.parent)
    return asked.saying(
        made_kernel=compiled.kernel,
        compiled=compiled.sentence,
        kernel=str(source),
        read_source=lambda name: read_source_beside(folders, name),
    )


def _describe_launch_beside(name: str, launch: LaunchDescription) -> str:
    """The launch file that was found for a program, and the blocks that it runs unless they are all of the grid.

    >>> from tilescope.machine.launch.launch_description import LaunchDescription
    >>> _describe_launch_beside("gemm.launch.toml", LaunchDescription(grid=(132,), blocks=((0,),)))
    'Launched as gemm.launch.toml says, which runs 1 of 132 blocks.'
    """
    if launch.grid is None or isinstance(launch.blocks, str):
        return f"Launched as {name} says."
    return f"Launched as {name} says, which runs {len(launch.blocks)} of {prod(launch.grid)} blocks."


def _signature(asked: Asked) -> str:
    """The types of a Triton kernel's parameters: as passed, or those of the arguments."""
    from tilescope.machine.launch.argument_text import parse_arguments
    from tilescope.machine.launch.triton_signature import infer_signature

    if "signature" in asked:
        return str(asked["signature"])
    arguments = parse_arguments(asked["args"]) if "args" in asked else ()
    if "described" in asked and not arguments:
        arguments = asked["described"].arguments
    if not arguments:
        raise click.UsageError(
            "a kernel of Triton is compiled for the types of its parameters: give its arguments, such as "
            '--arg f16:1024 --arg 1024, or --signature "*fp16, i32".'
        )
    return infer_signature(arguments)


def read_array_beside(folder: Path, name: str) -> Array:
    """The array of a .npy file that is named by its place in a folder."""
    from tilescope.tma.array_file import read_array

    return read_array(folder / name)


def read_source_beside(folders: tuple[Path, ...], name: str) -> str | None:
    """The text of the file that a kernel was compiled from, if it is here or in one of the folders."""
    from tilescope.tensor_map.text.pasted_source import WHOLE_BYTES

    for folder in (Path(), *folders):
        path = folder / Path(name).name
        try:
            if path.is_file() and path.stat().st_size <= WHOLE_BYTES:
                return path.read_text("utf-8", errors="replace")
        except (OSError, ValueError):  # names that no file system takes
            continue
    return None


GATHERED: dict[str, Gather] = {  # by the question that uses them
    "explain": with_pasted_words,
    "check": with_map_or_log,
    "mma check": with_map,
    "load": with_map_and_array,
    "diff": with_two_maps,
    "decode": with_word_or_map,
    "identify": with_dump_and_tile,
    "plan": with_kernel_file,
    "pipeline": with_description_or_tiles,
    "run": with_counted_kernel,
}
