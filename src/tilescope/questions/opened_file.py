"""A file that somebody drops on a page: the fields that its bytes fill.

    kernel.ptx  ── fields_of_text ──▶ {"ptx": ".version 8.0 …"}
    dump.npy    ── fields_of_dump ──▶ {"dump": "0000: 803f 0040 …"}

The browser sends the bytes; the server reads no files.
"""

from __future__ import annotations

import zipfile
import zlib
from io import BytesIO

from tilescope.questions.question import PAGE_LIMIT
from tilescope.tma.array_file import dump_bytes, saved_array

MAX_FILE_BYTES = 4 << 20
_BYTES_OF_LINE = 16
_ARCHIVE = b"PK"
_SAVED = b"\x93NUMPY"

NOT_TEXT = PAGE_LIMIT.worded(
    argument="{field}",
    found="a file of {count:byte} that is no text",
    limit="this field takes text in UTF-8",
    fix="Open the source, not what a compiler made of it.",
)
SEVERAL_ARRAYS = PAGE_LIMIT.worded(
    argument="{field}",
    found="an archive of the arrays {names:, }",
    limit="this field takes one array",
    fix="Call one of them {field}, or save it with np.save.",
)
BROKEN_ARCHIVE = PAGE_LIMIT.worded(
    argument="{field}",
    found="an archive that cannot be read",
    limit="an archive as np.savez writes it, of at most {most} bytes unpacked",
    fix="Save one array with np.save.",
)


def fields_of_text(field: str, content: bytes) -> dict[str, str]:
    """The field with the text of a file.

    >>> fields_of_text("ptx", b"ret;")
    {'ptx': 'ret;'}
    """
    text = _text_of(content)
    if text is None:
        raise NOT_TEXT.error(field=field, count=len(content))
    return {field: text}


def _text_of(content: bytes) -> str | None:
    """The content as text; None where it is none."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def fields_of_dump(field: str, content: bytes) -> dict[str, str]:
    """The field with the bytes of a dump: an array of NumPy, bare bytes, or text as it is."""
    if content.startswith((_ARCHIVE, _SAVED)):
        return {field: format_dump(dump_bytes(_array_of(field, content)).tobytes())}
    text = _text_of(content)
    return {field: format_dump(content) if text is None else text}


def fields_of_tile(field: str, content: bytes) -> dict[str, str]:
    """The field with the bytes of a tile, with the shape and the type of its array."""
    fields = fields_of_dump(field, content)
    if not content.startswith((_ARCHIVE, _SAVED)):
        return fields
    array = saved_array(_array_of(field, content), "the file")
    if array.ndim == 2:
        fields["shape"] = "x".join(map(str, array.shape))
    if array.dtype.kind in "iuf":
        fields["data_type"] = array.dtype.name
    return fields


def format_dump(content: bytes) -> str:
    """Bytes as xxd prints them, without the column of characters.

    >>> format_dump(bytes(range(4)))
    '0000: 0001 0203'
    """
    lines = []
    for start in range(0, len(content), _BYTES_OF_LINE):
        words = content[start : start + _BYTES_OF_LINE].hex(" ", 2)
        lines.append(f"{start:04x}: {words}")
    return "\n".join(lines)


def _array_of(field: str, content: bytes) -> bytes:
    """What np.save would write: the file itself, or the one array of an archive, or the one that the field is called."""
    if content.startswith(_SAVED):
        return content
    try:
        archive = zipfile.ZipFile(BytesIO(content))
    except zipfile.BadZipFile:
        raise BROKEN_ARCHIVE.error(field=field, most=MAX_FILE_BYTES) from None
    names = archive.namelist()
    file_name = f"{field}.npy"
    if file_name not in names and len(names) != 1:
        raise SEVERAL_ARRAYS.error(field=field, names=tuple(name.removesuffix(".npy") for name in names[:8]))
    entry = archive.getinfo(file_name if file_name in names else names[0])
    try:
        if entry.file_size <= MAX_FILE_BYTES:
            return archive.read(entry)
    except (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError, RuntimeError):  # damaged, or with a password
        pass
    raise BROKEN_ARCHIVE.error(field=field, most=MAX_FILE_BYTES)
