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
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.rule import rule
from tilescope.sentence import by, counted, shortened
from tilescope.tensor_map import TensorMap
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.array import ARRAY_BOX, metadata

LARGEST_DUMP_BYTES = 16 << 20  # shared memory has less; a larger dump takes long to search
_MAGIC = b"\x93NUMPY"
_ONE_ARRAY = "one array of numbers, as np.save writes it"
_TEXT = re.compile(rb"[\x09-\x0d\x20-\x7e]*")
_ADDRESS = re.compile(
    rb"^[ \t]*(?:0[xX])?[0-9a-fA-F]+[ \t]*(?:<[^>\n]*>[ \t]*)?:(?=\s)|\|[^\n]*\|[ \t]*$", re.MULTILINE
)
_HEXDUMP = re.compile(rb"^([0-9a-fA-F]{7,16})  ((?:[0-9a-fA-F]{2} {1,2}){1,16})[^\n]*$", re.MULTILINE)
_XXD = re.compile(rb"^[0-9a-fA-F]{7,16}: ((?:[0-9a-fA-F]{2,4} )+) [^\n]*$", re.MULTILINE)
_OFFSET = re.compile(rb"^[0-9a-fA-F]{7,16}[ \t]*$", re.MULTILINE)  # hexdump ends with the length alone

NPY_FILE = rule(
    "npy-file",
    "A .npy file holds one array of numbers, as np.save writes it.",
    source="the format of np.save",
    passing='ts.tma.array_file.dump_bytes(ts.tma.array_file.as_npy(np.zeros(4, "f2")))',
    failing='ts.tma.array_file.dump_bytes(ts.tma.array_file.as_npy(np.zeros(4, "f2"))[:40])',
)
NPY_TYPE = rule(
    "npy-type",
    "Elements of a .npy file that have no type there, as bfloat16 and fp8, are named by a type of their width.",
    source="np.save, which writes such elements as bare bytes",
    passing='ts.tma.array_file.with_named_elements(np.zeros(4, "V2"), "tensor.npy", "bf16")',
    failing='ts.tma.array_file.with_named_elements(np.zeros(4, "V2"), "tensor.npy", "e4m3")',
)
DUMP_TEXT = rule(
    "dump-text",
    "A dump as text is hexadecimal: whole bytes, or words of one width marked by 0x.",
    source="what xxd, hexdump, cuda-gdb and printf write",
    passing='ts.tma.array_file.dump_bytes(b"0x40003f80 0x40804040")',
    failing='ts.tma.array_file.dump_bytes(b"3f8 400 404")',
)
TILE_FILE = rule(
    "tile-file",
    "A file of bare bytes is a tile if the type and the shape that are said beside it take as many bytes.",
    source="rows x columns x bytes of an element",
    passing='ts.tma.array_file.tile_of(bytes(256), "tile.bin", "bf16", (8, 16))',
    failing='ts.tma.array_file.tile_of(bytes(255), "tile.bin", "bf16", (8, 16))',
)


def read_array(path: str | Path) -> np.ndarray[Any, Any]:
    """The array of a .npy file, read only where it is needed."""
    with Path(path).open("rb") as file:
        if file.read(2) == b"PK":
            fix = "Save one array: np.save(FILE, archive[NAME])."
            raise NPY_FILE.error(str(path), "an archive of several arrays", _ONE_ARRAY, fix)
    return _saved(path, str(path), mmap_mode="r")


def _saved(file: Any, name: str, **options: Any) -> np.ndarray[Any, Any]:
    """The array that np.save wrote to a file."""
    try:
        array: np.ndarray[Any, Any] = np.load(file, allow_pickle=False, **options)
    except (ValueError, EOFError, MemoryError, OverflowError, TypeError, SyntaxError) as error:
        fix = "Save it with np.save."
        if "'<f1'" in str(error):  # as which np.save spells float8_e5m2, and np.load does not read it
            fix = 'Save its bytes, np.save(…, array.view("u1")), and give --type e5m2.'
        reason = shortened(str(error), 60)
        raise NPY_FILE.error(name, f"no array: {reason}", _ONE_ARRAY, fix, reason=reason) from None
    return array


def as_npy(array: np.ndarray[Any, Any]) -> bytes:
    """The array as np.save writes it."""
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def with_named_elements(array: np.ndarray[Any, Any], path: str, type_name: str | None) -> np.ndarray[Any, Any]:
    """The array with elements of a type that has a name; numpy saves bfloat16 and fp8 as bare bytes."""
    try:
        DataType.named(array.dtype)
    except RuleError as error:
        if error.violations[0].rule != "unknown-name":  # it has a name, and cannot be moved
            raise
    else:
        return array
    size = array.dtype.itemsize
    found, limit = f"{path} has elements of {array.dtype.str}, which say no type", "a type of the same width names them"
    values = {"element_bytes": size, "element_bits": 8 * size}
    if size not in (1, 2, 4, 8):
        fix = f'No type has {size} bytes; save the bytes: np.save(…, array.view("u1")).'
    elif type_name is None:
        alike = {1: "e4m3", 2: "bf16"}.get(size, f"u{8 * size}")
        fix = f"Say what they are, such as --type {alike}."
    elif (bits := DataType.named(type_name).bits) == 8 * size:
        return array.view(f"u{size}")
    else:
        found, values["type_bits"] = f"--type {type_name} has {bits} bits, and the elements of {path} {8 * size}", bits
        fix = f"Use a type of {8 * size} bits, such as --type u{8 * size}."
    raise NPY_TYPE.error("--type", found, limit, fix, **values)


def map_of_array(array: np.ndarray[Any, Any], path: str, asked: MapArguments | None) -> AnyMap:
    """The map of an array from a file: its type, dims and strides, with the arguments `asked` in their place."""
    arguments = {} if asked is None else dict(asked.given)
    tiled = asked is not None and asked.map_class is TensorMap
    if asked is None or (tiled and "box" not in arguments):
        fix = f"Add --box {','.join(str(min(extent, 64)) for extent in array.shape[::-1])}, for example."
        raise ARRAY_BOX.error(
            "--box", "no box", "--npy needs --box, innermost first: the extents of one copy", fix
        )
    array = with_named_elements(array, path, arguments.get("data_type"))
    if tiled and "dims" not in arguments:
        box = arguments.pop("box")
        if len(box) != array.ndim:
            raise ARRAY_BOX.error(
                "--box", f"--box {','.join(map(str, box))} has {counted(len(box), 'entry', 'entries')} and {path} {array.ndim} axes",
                "one entry for each axis, innermost first",
                f"Use {array.ndim} entries; an array of shape {array.shape} has dims {array.shape[::-1]}.",
            )  # fmt: skip
        return TensorMap.from_array(array, tuple(box)[::-1], **({"address": 0} | arguments))
    own = metadata(array)
    known = {"data_type": own.data_type, "dims": own.shape[::-1], "strides_bytes": own.strides_bytes[-2::-1]}
    return asked.completed(MapArguments(asked.map_class, known)).tensor_map()


def dump_bytes(content: bytes) -> npt.NDArray[np.uint8]:
    """The bytes that a file shows: of an array, of hexadecimal text, or its own.

    >>> [dump_bytes(text).tobytes().hex() for text in (b"0x7f00: 0x40003f80", b"00000000: 803f 0040  .?.@")]
    ['803f0040', '803f0040']
    """
    if content.startswith(_MAGIC):
        return np.frombuffer(_saved(BytesIO(content), "the dump").tobytes(), np.uint8)
    if not content.strip() or _TEXT.fullmatch(content) is None:
        return np.frombuffer(content, np.uint8)
    plain = _OFFSET.sub(b"", _ADDRESS.sub(b" ", _XXD.sub(rb"\1", _HEXDUMP.sub(rb"\2", content))))
    words = re.findall(rb"[^\s,;{}()\[\]]+", plain)
    marked = any(word[:2].lower() == b"0x" for word in words)
    number = re.compile(rb"0[xX][0-9a-fA-F]{1,16}" if marked else rb"(?:[0-9a-fA-F]{2})+")
    odd = next((word for word in words if number.fullmatch(word) is None), None)
    if odd is not None or not words:
        raise DUMP_TEXT.error(
            "dump", f"{shortened(odd.decode(), 20)!r} among {counted(len(words), 'word')} of text" if odd else "no number",
            "hexadecimal bytes, or words of one width marked by 0x",
            "Write it with np.save, dump the bytes to a .bin file, or paste what xxd or cuda-gdb's x/64xw prints.",
            words=len(words),
        )  # fmt: skip
    if not marked:
        return np.frombuffer(bytes.fromhex(b"".join(words).decode()), np.uint8)
    size = next(size for size in (1, 2, 4, 8) if 2 * size >= max(map(len, words)) - 2)
    return np.frombuffer(b"".join(int(word, 16).to_bytes(size, "little") for word in words), np.uint8)


def tile_of(content: bytes, path: str, type_name: str | None, shape: tuple[int, ...] | None) -> npt.NDArray[Any]:
    """The 2-D array of a file: of np.save, or bytes (or hexadecimal text) with a type and a shape."""
    if content.startswith(_MAGIC):
        array = np.ascontiguousarray(_saved(BytesIO(content), path))
        if array.dtype.kind == "V":
            array = with_named_elements(array, path, type_name)
        return array if shape is None or array.size != shape[0] * shape[1] else array.reshape(shape)
    held = dump_bytes(content)
    if type_name is None or shape is None:
        raise TILE_FILE.error(
            "tile", f"{path} holds {counted(len(held), 'byte')} and no array", "its type and shape are said beside it",
            "Add --type and --shape, such as --type bf16 --shape 64x64, or save the tile with np.save.", bytes=len(held),
        )  # fmt: skip
    (rows, columns), bits = shape, DataType.named(type_name).smem_bits
    needed_bytes = rows * columns * bits // 8
    if bits >= 8 and needed_bytes == len(held):
        return held.view(f"u{bits // 8}").reshape(shape)
    found = f"{path} holds {counted(len(held), 'byte')}"
    limit = f"{by(shape)} elements of {type_name} take {needed_bytes} bytes"
    fix = f"Write all {needed_bytes} bytes of the tile to the file, and no others."
    if bits < 8:
        limit = "a tile has elements of whole bytes"
        fix = f"Use --type u8 --shape {rows}x{columns * bits // 8}: its rows in bytes."
    elif len(held) and len(held) % (rows * bits // 8) == 0:
        fix = f"Use --shape {rows}x{len(held) // (rows * bits // 8)}, or a --type of another width."
    raise TILE_FILE.error("tile", found, limit, fix, bytes=len(held), shape=shape)
