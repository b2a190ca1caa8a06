"""What the numbers of a pasted line come to, in sentences.

    Required: 131072, Hardware limit: 101376     29696 bytes too many; 3 stages fit instead of 4
    0x7f0000000040 … mod 128 = 64                64 bytes behind a multiple of 128; aligned to 64
    stride 1022                                  63 x 16 + 14: the next multiple of 16 is 1024
    box[0] = 512                                 twice 256
    128B swizzle, inner dimension 256 bytes      2 spans of 128: two boxes
    (0x1c400 bytes, 0xc000 max)                  115712 bytes; static shared memory ends at 49152
    dynamic shared memory size to 196608         fits sm_90, not sm_120
    how many stages of 128x128x64 fp16 on H100   (128 + 128) x 64 x 2 = 32768 bytes a stage: 7 fit

A reader looks for one pattern and gives a sentence, or nothing. Units are those of the message: bytes of shared memory,
columns of tensor memory. Targets and versions of PTX are read in toolkits.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from tilescope.arch import ARCH, KIB, Arch
from tilescope.arithmetic import ceil_div
from tilescope.sentence import counted, listed
from tilescope.symptoms.toolkits import target_sentences, version_sentences

Reader: TypeAlias = Callable[[str], Iterator[str]]

MAX_CHARACTERS = 8_000
_SENTENCES = 4  # of a question
_ALIGNMENT_BYTES = 16  # of addresses and strides in global memory
_MOST_BOX_ELEMENTS = 256
_STATIC_SMEM_BYTES = 48 * KIB  # of a block that was not given more, and of every block on cards before sm_70
_TURING_SMEM_BYTES = 64 * KIB
_STAGES_TRIED = (4, 3, 2)
_BARRIER_BYTES_PER_STAGE = 16  # a full and an empty mbarrier
_LEFT_OUT_OF_NAMES = {"rtx", "sxm", "pcie"}  # of cards: 4090 and H100 are specific, 6000 is not

_NUMBER = r"(0x[0-9a-f]+|\d[\d,_']*)"
_REQUIRED = re.compile(
    rf"require[sd]?\b\D{{0,20}}?{_NUMBER}.{{0,60}}?\blimit\w*\b\D{{0,12}}?{_NUMBER}", re.IGNORECASE | re.DOTALL
)
_TOO_MUCH = re.compile(
    rf"too much shared (?:data|memory)\D{{0,6}}\(?{_NUMBER} bytes(?:\W+{_NUMBER} bytes system)?\W+{_NUMBER}(?: bytes)? max",
    re.IGNORECASE,
)
_DYNAMIC = re.compile(rf"dynamic shared memory size to {_NUMBER}", re.IGNORECASE)
_EXCEEDS = re.compile(
    rf"(?:shared memory|smem)\D{{0,40}}?{_NUMBER}\s*(?:bytes|b)?\D{{0,40}}?"
    rf"(?:exceed\w*|larger than|greater than|>|more than|limit of|but only)\D{{0,40}}?{_NUMBER}",
    re.IGNORECASE,
)
_NUM_STAGES = re.compile(r"\bnum[_ ]?stages\W{0,3}(\d{1,2})\b|\b(\d{1,2})[- ]stages?\b", re.IGNORECASE)
_MOD = re.compile(r"(?:\bmod(?:ulo)?|%)\s*(\d{1,5})\s*(?:==?|is|was|gives|:)\s*(\d{1,5})\b", re.IGNORECASE)
_ADDRESS = re.compile(r"(?<!\bpc )\b0x[0-9a-f]{6,16}\b", re.IGNORECASE)
_SPEAKS_OF_ALIGNMENT = re.compile(
    r"align|multiple of|address|pointer|\bptr\b|invalid value|invalid argument", re.IGNORECASE
)
_STRIDE = re.compile(
    r"\b(global)?strides?(_bytes)?(?:\[\d\])?\s*(?:=|:|is|of|was)?\s*\(?(\d{2,13})\s*(b\b|bytes?)?", re.IGNORECASE
)
_ELEMENT_TYPE = re.compile(
    r"\b(?:(?:bf|fp|f|tf|float|bfloat|int|uint|s|u)(?P<bits>8|16|32|64)|(?P<half>half)|(?P<double>double)|(?P<fp8>e4m3|e5m2))\w*",
    re.IGNORECASE,
)
_PRODUCT_TILE = re.compile(r"\b(\d{2,3})\s*[x*\u00d7]\s*(\d{2,3})\s*[x*\u00d7]\s*(\d{2,3})\b", re.IGNORECASE)
_TARGET = re.compile(r"\bsm_?(\d{2,3})[af]?\b", re.IGNORECASE)
_BOX = re.compile(
    r"\b(?:box|boxdim|box_dim|block_shape|box dim(?:ension)?)(?:\[(\d)\])?\s*(?:=|:|is|of|size)*\s*(\d{3,6})\b",
    re.IGNORECASE,
)
_SPAN = re.compile(
    r"\b(?:swizzle[_ ]?)?(32|64|128)[_ ]?b(?:ytes?)?\b(?=\W+swizzl)|swizzl\w*\W{0,3}(32|64|128)[_ ]?b", re.IGNORECASE
)
_INNER_ROW = re.compile(
    r"\b(?:inner(?:most)?|contiguous)\s+(?:box\s+|tile\s+|block\s+)?(?:dim(?:ension)?|row|extent|box|width|size)s?"
    r"\s*(?:=|:|is|of|has|was)?\s*(\d{2,5})\s*(?:b\b|bytes?)",
    re.IGNORECASE,
)


def numbers_read(question: str) -> tuple[str, ...]:
    """What the numbers of a question come to; empty where it has none that are understood.

    >>> numbers_read("must be aligned to 128B, but got mod 128 = 64")
    ('A remainder of 64 by 128: aligned to 64 bytes, 64 bytes short of the next multiple of 128.',)
    """
    text = question[:MAX_CHARACTERS]
    sentences = [sentence for read in _READERS for sentence in read(text)]
    return tuple(dict.fromkeys(sentences))[:_SENTENCES]


def limit_broken(question: str) -> str:
    """The cause that the numbers of a question about a tensor map are: its stride, or its box; empty where they break no limit.

    >>> limit_broken("can I use TMA with stride 24 bytes"), limit_broken("TMA with stride 32 bytes")
    ('stride-16-bytes', '')
    """
    text = question[:MAX_CHARACTERS]
    readers = {"stride-16-bytes": (_strides,), "box-limits": (_boxes, _spans)}
    return next((cause for cause, read in readers.items() if any(any(reader(text)) for reader in read)), "")


def _number(written: str) -> int:
    """A number as messages write it: 131072, 131,072 or 0x20000."""
    plain = re.sub(r"[,_']", "", written)
    return int(plain, 16) if plain.casefold().startswith("0x") else int(plain)


def _shared_memory(text: str) -> Iterator[str]:
    """What exceeds shared memory, by how much, on which cards, and how many stages or which part of the tile fit."""
    if re.search(r"tensor memory|\btmem\b|register|threads?\b", text, re.IGNORECASE):
        return
    static = _TOO_MUCH.search(text)
    match = static or _REQUIRED.search(text) or _EXCEEDS.search(text)
    if match is None:
        return
    *parts, limit = (_number(written) for written in match.groups() if written)
    required = sum(parts)
    if not 0 < limit < required:
        return
    if static:
        yield _static(required, limit)
        return
    yield f"{required} bytes are {required - limit} more than the {limit} of {_whose(limit)}."
    yield _stages_that_fit(required, limit, _num_stages(text))
    yield _part_that_fits(required, limit)


def _dynamic(text: str) -> Iterator[str]:
    """The architectures whose blocks have as much shared memory as a launch requested: "Failed to set the … size to 196608"."""
    match = _DYNAMIC.search(text)
    if match is None:
        return
    required = _number(match[1])
    fitting = [name for name, row in ARCH.items() if row.smem_per_block_bytes >= required]
    short = [name for name in ARCH if name not in fitting]
    if not fitting:
        most = max(row.smem_per_block_bytes for row in ARCH.values())
        yield f"{required} bytes of shared memory fit no card's block: the most is {most}."
    elif short:
        limits = [f"{name} has {ARCH[name].smem_per_block_bytes}" for name in short]
        yield f"{required} bytes of shared memory fit a block on {listed(fitting)}; {listed(limits)}."


def _static(required: int, limit: int) -> str:
    """Where static shared memory would fit as dynamic memory."""
    names = [name for name, row in ARCH.items() if row.smem_per_block_bytes >= required]
    sentence = (
        f"{required} bytes of static shared memory are {required - limit} more than {limit}, the most that ptxas gives."
    )
    if not names:
        return f"{sentence} No block of any architecture has as much."
    return f"{sentence} As dynamic shared memory (extern __shared__, and the attribute that raises the limit) they fit {listed(names)}."


def _whose(limit_bytes: int) -> str:
    """The architectures with that many bytes of shared memory."""
    names = [name for name, row in ARCH.items() if row.smem_per_block_bytes == limit_bytes]
    if names:
        return f"a block on {listed(names)}"
    if limit_bytes == _STATIC_SMEM_BYTES:
        return "a block before sm_70, or without the attribute that raises the limit"
    return "a block on sm_75" if limit_bytes == _TURING_SMEM_BYTES else "a block there"


def _num_stages(text: str) -> int | None:
    """The stages in a message."""
    numbers = [int(first or second) for first, second in _NUM_STAGES.findall(text)]
    return next((number for number in numbers if number > 1), None)


def _stages_that_fit(required: int, limit: int, stages: int | None) -> str:
    """How many stages fit, where the buffers of the stages make up what is required."""
    tried = (stages,) if stages else _STAGES_TRIED
    fitting = {count: limit * count // required for count in tried}
    pairs = [f"{fits} instead of {count}" for count, fits in fitting.items() if fits]
    if not pairs:
        return f"Not even one of {counted(tried[0], 'stage')} fits: the tile itself is too large."
    return f"Fewer stages fit, if their buffers are all of it: {listed(pairs, 'or')}."


def _part_that_fits(required: int, limit: int) -> str:
    """The smallest halving of a tile that fits."""
    halvings = 1
    while required >> halvings > limit:
        halvings += 1
    part = {1: "half", 2: "a quarter"}.get(halvings, f"1/{1 << halvings}")
    return f"Or a smaller tile: with {part} of its k the same stages take {required >> halvings} bytes."


def _tensor_memory(text: str) -> Iterator[str]:
    """Columns of tensor memory beyond those that exist."""
    match = _REQUIRED.search(text)
    if match is None or not re.search(r"tensor memory|\btmem\b", text, re.IGNORECASE):
        return
    required, limit = _number(match[1]), _number(match[2])
    if 0 < limit < required:
        yield (
            f"{required} columns of tensor memory are {required - limit} more than the {limit} of a block: an f32 accumulator of "
            f"n columns takes n of them, two in turn 2n."
        )


def _remainder(text: str) -> Iterator[str]:
    """The alignment of an address whose remainder a line contains: mod 128 = 64."""
    for modulus_written, remainder_written in _MOD.findall(text):
        modulus, remainder = int(modulus_written), int(remainder_written)
        if 0 < remainder < modulus:
            aligned = remainder & -remainder
            yield (
                f"A remainder of {remainder} by {modulus}: aligned to {counted(aligned, 'byte')}, "
                f"{counted(modulus - remainder, 'byte')} short of the next multiple of {modulus}."
            )


def _addresses(text: str) -> Iterator[str]:
    """The alignment of addresses in a text about alignment."""
    if not _SPEAKS_OF_ALIGNMENT.search(text):
        return
    for written in list(dict.fromkeys(_ADDRESS.findall(text)))[:2]:
        address = int(written, 16)
        aligned = min(address & -address, 1024) if address else 1024
        if aligned >= 1024:
            yield f"{written} is a multiple of 1024."
        else:
            yield f"{written} is a multiple of {aligned}, not of {2 * aligned}: {_enough_for(aligned)}."


def _enough_for(aligned_bytes: int) -> str:
    """What an alignment is enough for."""
    if aligned_bytes < _ALIGNMENT_BYTES:
        return "too little for a tensor in global memory (16) and for a tile in shared memory (128)"
    if aligned_bytes < 128:
        return "enough for a tensor in global memory (16), too little for a tile in shared memory (128)"
    return "enough for a tensor and for a plain tile; a tile under the 128B swizzle wants 1024"


def _strides(text: str) -> Iterator[str]:
    """Strides in bytes that are no multiple of 16."""
    for of_map, in_bytes, written, unit in _STRIDE.findall(text)[:2]:
        stride = int(written)
        quotient, remainder = divmod(stride, _ALIGNMENT_BYTES)
        if not remainder:
            continue
        above = (quotient + 1) * _ALIGNMENT_BYTES
        sentence = f"A stride of {stride} bytes is {quotient} x 16 + {remainder}, not a multiple of 16: pad the rows to {above} bytes."
        if of_map or in_bytes or unit:
            yield sentence
        else:
            yield f"{sentence} {_as_elements(stride, _element_bytes(text) or 2)}"


def _as_elements(stride: int, element_bytes: int) -> str:
    """The same number as a stride in elements."""
    stride_bytes = stride * element_bytes
    quotient, remainder = divmod(stride_bytes, _ALIGNMENT_BYTES)
    description = f"{quotient} x 16 + {remainder}, none either" if remainder else "a multiple"
    return f"In elements of {counted(element_bytes, 'byte')} it is {stride_bytes} bytes, {description}."


def _element_bytes(text: str) -> int | None:
    """The bytes of an element of the type that a text names.

    >>> _element_bytes("a row of fp32"), _element_bytes("bfloat16 tiles"), _element_bytes("a row")
    (4, 2, None)
    """
    match = _ELEMENT_TYPE.search(text)
    if match is None:
        return None
    if match["bits"]:
        return int(match["bits"]) // 8
    if match["half"]:
        return 2
    return 8 if match["double"] else 1


def _architecture(text: str) -> Arch | None:
    """The architecture that a text names, or that of a card in it.

    >>> _architecture("on an H100").name, _architecture("for sm_120a").name, _architecture("6000 bytes on my card")
    ('sm_90', 'sm_120', None)
    """
    target = _TARGET.search(text)
    if target is not None:
        return ARCH.get(f"sm_{target[1]}")
    from tilescope.card import CARD  # late: few lines need it

    words = set(re.findall(r"\w+", text.casefold()))
    for name, card in CARD.items():
        if set(name.casefold().split()) - _LEFT_OUT_OF_NAMES <= words:
            return card.arch
    return None


def _stages_of_a_tile(text: str) -> Iterator[str]:
    """How many stages of a product's tile fit into a block: "stages of 128x128x64 fp16 on H100"."""
    tile = _PRODUCT_TILE.search(text)
    element_bytes = _element_bytes(text)
    if tile is None or element_bytes is None or "stage" not in text.casefold():
        return
    m, n, k = (int(written) for written in tile.groups())
    stage_bytes = (m + n) * k * element_bytes
    arch = _architecture(text) or ARCH["sm_90"]
    limit_bytes = arch.smem_per_block_bytes
    fitting = limit_bytes // (stage_bytes + _BARRIER_BYTES_PER_STAGE)
    yield (
        f"A stage of {m} x {n} x {k} has ({m} + {n}) x {k} x {element_bytes} = {stage_bytes} bytes: {counted(fitting, 'stage')} "
        f"with {_BARRIER_BYTES_PER_STAGE} bytes of mbarriers each fit the {limit_bytes} of a block on {arch.name}, "
        "less what an epilogue takes."
    )


def _boxes(text: str) -> Iterator[str]:
    """Extents of a box beyond 256."""
    for axis, written in _BOX.findall(text)[:2]:
        extent = int(written)
        if extent > _MOST_BOX_ELEMENTS:
            copies = ceil_div(extent, _MOST_BOX_ELEMENTS)
            named = f"box[{axis}] = {extent}" if axis else f"A box of {extent} elements"
            yield f"{named} is more than 256, the most in any dimension: {copies} copies of at most 256."


def _spans(text: str) -> Iterator[str]:
    """Rows of a box that are wider than the span of the swizzle named with them."""
    span = _SPAN.search(text)
    row = _INNER_ROW.search(text)
    if span is None or row is None:
        return
    span_bytes = int(span[1] or span[2])
    row_bytes = int(row[1])
    if row_bytes > span_bytes:
        boxes = ceil_div(row_bytes, span_bytes)
        yield (
            f"A box row of {row_bytes} bytes is wider than the span of swizzle {span_bytes}B: take {boxes} boxes of at most "
            f"{span_bytes} bytes."
        )


_READERS: tuple[Reader, ...] = (
    _shared_memory,
    _stages_of_a_tile,
    _dynamic,
    _tensor_memory,
    _remainder,
    _strides,
    _boxes,
    _spans,
    _addresses,
    target_sentences,
    version_sentences,
)
