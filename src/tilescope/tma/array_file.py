r"""Arrays and dumps from files: what np.save writes, raw bytes, and the hexadecimal text of debuggers.

\x93NUMPY…                                  np.save: type and shape come with it
3f80 4000 …  00000000: 3f80 4000  |?.@.|    xxd, hexdump -C: bytes in memory order
0x7f00: 0x40003f80 0x40804040               cuda-gdb's x/…xw, printf: words, lowest byte first in memory
anything else                               the bytes themselves
"""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.rule import UNKNOWN_NAME, rule
from tilescope.sentence import shorten
from tilescope.tensor_map import TensorMap
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.array import ARRAY_BOX, metadata
from tilescope.tensor_map.map_arguments import MapArguments

Array = npt.NDArray[np.generic]
LARGEST_DUMP_BYTES = 16 << 20  # shared memory has less; a larger dump takes long to search
_MAGIC = b"\x93NUMPY"
_TEXT = re.compile(rb"[\x09-\x0d\x20-\x7e]*")
_ADDRESS = re.compile(
    rb"^[ \t]*(?:0[xX])?[0-9a-fA-F]+[ \t]*(?:<[^>\n]*>[ \t]*)?:(?=\s)|\|[^\n]*\|[ \t]*$", re.MULTILINE
)
_HEXDUMP = re.compile(rb"^([0-9a-fA-F]{7,16})  ((?:[0-9a-fA-F]{2} {1,2}){1,16})[^\n]*$", re.MULTILINE)
_XXD = re.compile(rb"^[0-9a-fA-F]{7,16}: ((?:[0-9a-fA-F]{2,4} )+) [^\n]*$", re.MULTILINE)
_OFFSET = re.compile(rb"^[0-9a-fA-F]{7,16}[ \t]*$", re.MULTILINE)  # hexdump ends with a line that has only the length

NPY_FILE = rule(
    "npy-file",
    "A .npy file holds one array of numbers, as np.save writes it.",
    argument="{file}",
    found="no array: {reason}",
    limit="one array of numbers, as np.save writes it",
    fix="Save it with np.save.",
    source="the format of np.save",
    passing='ts.tma.array_file.dump_bytes(ts.tma.array_file.as_npy(np.zeros(4, "f2")))',
    failing='ts.tma.array_file.dump_bytes(ts.tma.array_file.as_npy(np.zeros(4, "f2"))[:40])',
)
_NPY_ARCHIVE = NPY_FILE.worded(
    found="an archive of several arrays", fix="Save one array: np.save(FILE, archive[NAME])."
)
# np.save spells float8_e5m2 as '<f1', and np.load does not read that.
_NPY_OF_E5M2 = NPY_FILE.worded(fix='Save its bytes, np.save(…, array.view("u1")), and give --type e5m2.')
NPY_TYPE = rule(
    "npy-type",
    "Elements of a .npy file whose type numpy lacks, such as bfloat16 and fp8, are stored as a type of the same width.",
    argument="--type",
    found="{file} has elements of {dtype}, which say no type",
    limit="a type of the same width names them",
    fix="Say what they are, such as --type {example}.",
    source="np.save, which writes such elements as bare bytes",
    passing='ts.tma.array_file.with_named_elements(np.zeros(4, "V2"), "tensor.npy", "bf16")',
    failing='ts.tma.array_file.with_named_elements(np.zeros(4, "V2"), "tensor.npy", "e4m3")',
)
_NPY_NO_WIDTH = NPY_TYPE.worded(fix='No type has {element_bytes} bytes; save the bytes: np.save(…, array.view("u1")).')
_NPY_OTHER_WIDTH = NPY_TYPE.worded(
    found="--type {type} has {type_bits} bits, and the elements of {file} {element_bits}",
    fix="Use a type of {element_bits} bits, such as --type u{element_bits}.",
)
DUMP_TEXT = rule(
    "dump-text",
    "A dump as text is hexadecimal: whole bytes, or words of one width with the prefix 0x.",
    argument="dump",
    found="'{odd}' among {words:word} of text",
    limit="hexadecimal bytes, or words of one width marked by 0x",
    fix="Write it with np.save, dump the bytes to a .bin file, or paste what xxd or cuda-gdb's x/64xw prints.",
    source="what xxd, hexdump, cuda-gdb and printf write",
    passing='ts.tma.array_file.dump_bytes(b"0x40003f80 0x40804040")',
    failing='ts.tma.array_file.dump_bytes(b"3f8 400 404")',
)
_NO_NUMBER = DUMP_TEXT.worded(found="no number")
TILE_FILE = rule(
    "tile-file",
    "A file of raw bytes is a tile if it has the size of the type and shape.",
    argument="tile",
    found="{file} holds {bytes:byte}",
    limit="{shape: x } elements of {type} take {needed_bytes} bytes",
    fix="Write all {needed_bytes} bytes of the tile to the file, and no others.",
    source="rows x columns x bytes of an element",
    passing='ts.tma.array_file.tile_of(bytes(256), "tile.bin", "bf16", (8, 16))',
    failing='ts.tma.array_file.tile_of(bytes(255), "tile.bin", "bf16", (8, 16))',
)
_TILE_UNTOLD = TILE_FILE.worded(
    found="{file} holds {bytes:byte} and no array",
    limit="its type and shape are given separately",
    fix="Add --type and --shape, such as --type bf16 --shape 64x64, or save the tile with np.save.",
)
_TILE_OF_PARTS = TILE_FILE.worded(
    limit="a tile has elements of whole bytes", fix="Use --type u8 --shape {shape_in_bytes:x}: its rows in bytes."
)
_TILE_OF_OTHER_SHAPE = TILE_FILE.worded(fix="Use --shape {fitting:x}, or a --type of another width.")
_NO_BOX = ARRAY_BOX.worded(
    argument="--box",
    found="no box",
    limit="--npy needs --box, innermost first: the extents of one copy",
    fix="Add --box {example:,}, for example.",
)
_BOX_OF_OTHER_RANK = ARRAY_BOX.worded(
    argument="--box",
    found="--box {box:,} has {entries:entry|entries} and {file} {axes} axes",
    limit="one entry for each axis, innermost first",
    fix="Use {axes} entries; an array of shape {shape} has dims {dims}.",
)


def read_array(path: str | Path) -> Array:
    """The array of a .npy file, read only where it is needed."""
    with Path(path).open("rb") as file:
        if file.read(2) == b"PK":
            raise _NPY_ARCHIVE.error(file=str(path))
    return _read_saved(path, str(path), memory_mapped=True)


def _read_saved(file: str | Path | IO[bytes], name: str, *, memory_mapped: bool = False) -> Array:
    """The array that np.save wrote to a file."""
    try:
        array: Array = np.load(file, allow_pickle=False, mmap_mode="r" if memory_mapped else None)
    except (ValueError, EOFError, MemoryError, OverflowError, TypeError, SyntaxError) as error:
        wording = _NPY_OF_E5M2 if "'<f1'" in str(error) else NPY_FILE.wording
        reason = shorten(str(error), 60) if _has_magic(file) else "it does not begin as one, with \\x93NUMPY"
        raise wording.error(file=name, reason=reason) from None
    return array


def _has_magic(file: str | Path | IO[bytes]) -> bool:
    """Whether a file begins as np.save begins one; numpy takes any other for a pickle."""
    if isinstance(file, str | Path):
        with Path(file).open("rb") as opened:
            return opened.read(len(_MAGIC)) == _MAGIC
    file.seek(0)
    return file.read(len(_MAGIC)) == _MAGIC


def saved_array(content: bytes, name: str) -> Array:
    """The array that np.save wrote; `name` is that of the file, for a refusal.

    >>> saved_array(as_npy(np.zeros((2, 3), "f2")), "zeros.npy").shape
    (2, 3)
    """
    return _read_saved(BytesIO(content), name)


def as_npy(array: Array) -> bytes:
    """The array as np.save writes it."""
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def with_named_elements(array: Array, path: str, type_name: str | None) -> Array:
    """The array with elements of a type that has a name; numpy saves bfloat16 and fp8 as bare bytes."""
    if _has_a_name(array.dtype):
        return array
    size = array.dtype.itemsize
    if size not in (1, 2, 4, 8):
        raise _NPY_NO_WIDTH.error(file=path, dtype=array.dtype.str, element_bytes=size, element_bits=8 * size)
    if type_name is None:
        example = {1: "e4m3", 2: "bf16"}.get(size, f"u{8 * size}")
        raise NPY_TYPE.error(
            file=path, dtype=array.dtype.str, example=example, element_bytes=size, element_bits=8 * size
        )
    bits = DataType.named(type_name).bits
    if bits != 8 * size:
        raise _NPY_OTHER_WIDTH.error(
            file=path, type=type_name, type_bits=bits, element_bytes=size, element_bits=8 * size
        )
    return array.view(f"u{size}")


def _has_a_name(dtype: np.dtype[np.generic]) -> bool:
    """Whether elements have a type; RuleError if TMA cannot copy it."""
    try:
        DataType.named(dtype)
    except RuleError as error:
        if error.violations[0].rule != UNKNOWN_NAME.name:
            raise
        return False
    return True


def map_of_array(array: Array, path: str, asked: MapArguments | None) -> AnyMap:
    """The map of an array from a file: its type, dims and strides, replaced by the arguments in `asked`."""
    is_tiled = asked is not None and asked.map_class is TensorMap
    if asked is None or (is_tiled and "box" not in asked.given):
        raise _NO_BOX.error(example=tuple(min(extent, 64) for extent in array.shape[::-1]))
    array = with_named_elements(array, path, asked.given.get("data_type"))
    if is_tiled and "dims" not in asked.given:
        return _tiled_map(array, path, asked)
    facts = metadata(array)
    arguments = {"data_type": facts.data_type, "dims": facts.shape[::-1], "strides_bytes": facts.strides_bytes[-2::-1]}
    return asked.completed(MapArguments(asked.map_class, arguments)).tensor_map()


def _tiled_map(array: Array, path: str, asked: MapArguments) -> TensorMap:
    """The map of a whole array in boxes."""
    options: dict[str, Any] = {"address": 0, **asked.given}
    box = tuple(options.pop("box"))
    if len(box) != array.ndim:
        raise _BOX_OF_OTHER_RANK.error(
            box=box,
            entries=len(box),
            file=path,
            axes=array.ndim,
            shape=array.shape,
            dims=array.shape[::-1],
        )
    return TensorMap.from_array(array, box[::-1], **options)


def dump_bytes(content: bytes) -> npt.NDArray[np.uint8]:
    """The bytes that a file shows: of an array, of hexadecimal text, or its own.

    >>> [dump_bytes(text).tobytes().hex() for text in (b"0x7f00: 0x40003f80", b"00000000: 803f 0040  .?.@")]
    ['803f0040', '803f0040']
    """
    if content.startswith(_MAGIC):
        return np.frombuffer(_read_saved(BytesIO(content), "the dump").tobytes(), np.uint8)
    if not content.strip() or _TEXT.fullmatch(content) is None:
        return np.frombuffer(content, np.uint8)
    plain = _OFFSET.sub(b"", _ADDRESS.sub(b" ", _XXD.sub(rb"\1", _HEXDUMP.sub(rb"\2", content))))
    words = re.findall(rb"[^\s,;{}()\[\]]+", plain)
    if not words:
        raise _NO_NUMBER.error(words=0)
    marked = any(word[:2].lower() == b"0x" for word in words)
    number = re.compile(rb"0[xX][0-9a-fA-F]{1,16}" if marked else rb"(?:[0-9a-fA-F]{2})+")
    for word in words:
        if number.fullmatch(word) is None:
            raise DUMP_TEXT.error(odd=shorten(word.decode(), 20), words=len(words))
    if not marked:
        return np.frombuffer(bytes.fromhex(b"".join(words).decode()), np.uint8)
    longest_digits = max(map(len, words)) - len("0x")
    size = next(size for size in (1, 2, 4, 8) if 2 * size >= longest_digits)
    return np.frombuffer(b"".join(int(word, 16).to_bytes(size, "little") for word in words), np.uint8)


def tile_of(content: bytes, path: str, type_name: str | None, shape: tuple[int, ...] | None) -> Array:
    """The 2-D array of a file: of np.save, or bytes (or hexadecimal text) with a type and a shape."""
    if content.startswith(_MAGIC):
        array = np.ascontiguousarray(_read_saved(BytesIO(content), path))
        if array.dtype.kind == "V":
            array = with_named_elements(array, path, type_name)
        if shape is None or array.size != shape[0] * shape[1]:
            return array
        return array.reshape(shape)
    data = dump_bytes(content)
    if type_name is None or shape is None:
        raise _TILE_UNTOLD.error(file=path, bytes=len(data))
    return _view_as_tile(data, path, type_name, shape)


def _view_as_tile(held: npt.NDArray[np.uint8], path: str, type_name: str, shape: tuple[int, ...]) -> Array:
    """Bare bytes as a tile of that type and shape."""
    rows, columns = shape
    bits = DataType.named(type_name).smem_bits
    if bits < 8:
        shape_in_bytes = (rows, columns * bits // 8)
        raise _TILE_OF_PARTS.error(file=path, bytes=len(held), shape=shape, shape_in_bytes=shape_in_bytes)
    needed_bytes = rows * columns * bits // 8
    if needed_bytes == len(held):
        return held.view(f"u{bits // 8}").reshape(shape)
    column_bytes = rows * bits // 8
    if len(held) and column_bytes and len(held) % column_bytes == 0:
        fitting = (rows, len(held) // column_bytes)
        raise _TILE_OF_OTHER_SHAPE.error(
            file=path, bytes=len(held), shape=shape, type=type_name, needed_bytes=needed_bytes, fitting=fitting
        )
    raise TILE_FILE.error(file=path, bytes=len(held), shape=shape, type=type_name, needed_bytes=needed_bytes)
