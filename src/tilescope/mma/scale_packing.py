"""Scale factors of blocks between a plain matrix and the atoms that kernels keep.

Four scales of a row are one 32-bit word. An atom of 512 bytes has 32 rows of 16 bytes; row l holds the words of the
matrix's rows l, 32 + l, 64 + l and 96 + l:

    scales (rows, blocks)             atoms, 512 bytes each, those along k one behind the other
    row 0    w00 w01 w02 …            atom 0:  w0,0   w32,0   w64,0   w96,0        ← 16 bytes
    row 1    w10 w11 …                         w1,0   w33,0   w65,0   w97,0
      …                                          …
    row 127                           atom 1:  w0,1   w32,1   w64,1   w96,1

cuBLAS, CUTLASS, cuDNN, Triton and JAX have the same; mxfp8, mxfp4 and nvfp4 do not differ in it. Padding is zero.

Kernels for few rows have a smaller atom (TensorRT-LLM and FlashInfer, where it is called 8x4, SWIZZLED_8x4 or R8c4): 8 rows x 4
scales, 32 bytes, the words of neighbouring rows one behind the other. A matrix of 8 rows then takes no padding to 128.

    atom 0:  w0,0  w1,0  w2,0  …  w7,0        atom 1:  w0,1  w1,1  …  w7,1

Large matrices take a loop that numba compiles (the extra `fast`), on two words of 64 bits at a time:

    rows l, 32 + l, 64 + l, 96 + l, words c and c + 1         four loads of 64 bits
        ▼ four lanes l at once: a whole line of 64 bytes
    atom c, rows l to l + 3;  atom c + 1, rows l to l + 3
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import ceil_div
from tilescope.errors import raise_all
from tilescope.reading import as_array, known_name, pair
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.swizzle.permutation import compiler, out_problems

SCALE_SIZE = rule(
    "scale-size",
    "Packed scale factors are whole atoms, of 512 bytes (128x4) or of 32 (8x4), padding included.",
    argument="packed",
    found="{size_bytes} bytes for {rows} x {blocks} scales",
    limit="they are stored in {atoms: x } atoms of {atom_bytes} bytes, {whole_bytes} bytes in all",
    fix="Pass all {whole_bytes} bytes, padding included.",
    source="cuBLAS, CUTLASS and cuDNN: scale factors in 128 x 4 tiles",
    passing="ts.unpack_scales(np.zeros(512, np.uint8), (100, 3))",
    failing="ts.unpack_scales(np.zeros(300, np.uint8), (100, 3))",
)
ATOM_ROWS = 128
ATOM_SCALES = 4
ATOM_BYTES = ATOM_ROWS * ATOM_SCALES
_WORD_BYTES = 4  # the scales of a row in an atom
ScaleAtomName = Literal["128x4", "8x4"]
_ATOMS_AT_ONCE = 4  # along the rows: what the caches hold
_COMPILED_FROM_BYTES = 1 << 20  # loading numba takes longer than packing less
_LOW = np.uint64(0xFFFF_FFFF)
_HALF = np.uint64(32)

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]


class ScaleAtom(NamedTuple):
    """The arrangement of the words of neighbouring rows in an atom: for each digit of the row its extent and its step in bytes."""

    row_digits: tuple[tuple[int, int], ...]  # the fastest digit first

    @property
    def rows(self) -> int:
        """Rows of the matrix in one atom."""
        return prod(extent for extent, _ in self.row_digits)

    @property
    def size_bytes(self) -> int:
        """Bytes of one atom."""
        return self.rows * ATOM_SCALES

    def row(self, byte: int) -> int:
        """The row, counted from the atom's first, whose word holds a byte of the atom.

        >>> SCALE_ATOM["128x4"].row(37 % 32 * 16 + 4), SCALE_ATOM["8x4"].row(37 % 8 * 4)
        (37, 5)
        """
        row = 0
        place = 1
        for extent, step_bytes in self.row_digits:
            row += byte // step_bytes % extent * place
            place *= extent
        return row


# 128x4: cuBLAS, CUTLASS and cuDNN. 8x4: TensorRT-LLM and FlashInfer, get_sf_out_offset_8x4 of their quantization kernels.
SCALE_ATOM: dict[str, ScaleAtom] = {
    "128x4": ScaleAtom(((32, 4 * _WORD_BYTES), (4, _WORD_BYTES))),
    "8x4": ScaleAtom(((8, _WORD_BYTES),)),
}


def pack_scales(scales: npt.ArrayLike, *, atom: ScaleAtomName = "128x4", out: Array | None = None) -> Array:
    """Scale factors (rows, blocks), one byte each, as the bytes of their atoms; further dimensions are batches.

    Arrays of ml_dtypes (float8_e8m0fnu, float8_e4m3fn) keep their type. Rows beyond a multiple of 128 (8 for atom
    "8x4") and blocks beyond a multiple of 4 are padded with zeros. `out` takes the result.

    >>> packed = pack_scales(np.arange(128 * 8, dtype=np.uint16).reshape(128, 8).astype(np.uint8))
    >>> packed.shape, int(packed[82])  # scale 5 * 8 + 2, of row 5 and block 2, at 5 * 16 + 2
    ((1024,), 42)
    >>> small = pack_scales(np.arange(8 * 8, dtype=np.uint8).reshape(8, 8), atom="8x4")
    >>> small.shape, small[:8].tolist()  # the words of rows 0 and 1
    ((64,), [0, 1, 2, 3, 8, 9, 10, 11])
    """
    rows_together = scale_atom(atom)
    plain = _one_byte("scales", scales, 2)
    *batch, rows, blocks = plain.shape
    padded_shape = _whole(rows, blocks, rows_together)
    packed = _target(out, (*batch, prod(padded_shape)), plain.dtype)
    if (rows, blocks) != padded_shape:
        further = [(0, 0)] * len(batch)
        plain = np.pad(plain.view(np.uint8), [*further, (0, padded_shape[0] - rows), (0, padded_shape[1] - blocks)])
    move = _move_small if atom == "8x4" else _move
    move(np.ascontiguousarray(plain).view(np.uint8), packed.view(np.uint8), to_atoms=True)
    return packed if out is None else out


def unpack_scales(
    packed: npt.ArrayLike, shape: tuple[int, int], *, atom: ScaleAtomName = "128x4", out: Array | None = None
) -> Array:
    """The scale factors (rows, blocks) in the bytes of their atoms: the inverse of `pack_scales`, padding dropped.

    `out` takes the result.

    >>> scales = np.arange(200 * 10).reshape(200, 10).astype(np.uint8)
    >>> bool((unpack_scales(pack_scales(scales), (200, 10)) == scales).all())
    True
    """
    rows_together = scale_atom(atom)
    atoms = _one_byte("packed", packed, 1)
    rows, blocks = pair("shape", shape, least=1)
    padded_shape = _whole(rows, blocks, rows_together)
    *batch, length = atoms.shape
    if length != prod(padded_shape):
        raise SCALE_SIZE.error(
            size_bytes=length,
            rows=rows,
            blocks=blocks,
            atoms=atom_grid(rows, blocks, rows_together.rows),
            atom_bytes=rows_together.size_bytes,
            whole_bytes=prod(padded_shape),
        )
    is_whole = (rows, blocks) == padded_shape
    plain = _target(out if is_whole else None, (*batch, *padded_shape), atoms.dtype)
    move = _move_small if atom == "8x4" else _move
    move(plain.view(np.uint8), np.ascontiguousarray(atoms).view(np.uint8), to_atoms=False)
    if out is None:
        return plain[..., :rows, :blocks]
    if not is_whole:
        _target(out, (*batch, rows, blocks), atoms.dtype)[...] = plain.view(np.uint8)[..., :rows, :blocks]
    return out


def scale_atom(name: object) -> ScaleAtom:
    """The atom of that name: "128x4" or "8x4"."""
    return SCALE_ATOM[known_name("atom", name, SCALE_ATOM, "atom of scale factors")]


def atom_grid(rows: int, blocks: int, atom_rows: int = ATOM_ROWS) -> tuple[int, int]:
    """Atoms along the rows and along k.

    >>> atom_grid(200, 10)
    (2, 3)
    """
    return ceil_div(rows, atom_rows), ceil_div(blocks, ATOM_SCALES)


def _whole(rows: int, blocks: int, atom: ScaleAtom) -> tuple[int, int]:
    """Rows and blocks of the atoms, padding included."""
    down, along = atom_grid(rows, blocks, atom.rows)
    return down * atom.rows, along * ATOM_SCALES


def _move_small(plain: Array, atoms: Array, *, to_atoms: bool) -> None:
    """Between whole 8x4 atoms and the matrix (..., rows, blocks) of their bytes."""
    along = plain.shape[-1] // ATOM_SCALES
    words = plain.view(np.uint32).reshape(-1, SCALE_ATOM["8x4"].rows, along)
    stored = atoms.view(np.uint32).reshape(-1, along, SCALE_ATOM["8x4"].rows)
    if to_atoms:
        stored[...] = words.swapaxes(1, 2)
    else:
        words[...] = stored.swapaxes(1, 2)


def _move(plain: Array, atoms: Array, *, to_atoms: bool) -> None:
    """Between whole 128x4 atoms and the matrix (..., rows, blocks) of their bytes."""
    along = plain.shape[-1] // ATOM_SCALES
    words = plain.view(np.uint32).reshape(-1, 4, 32, along)
    loops = _streaming() if plain.nbytes >= _COMPILED_FROM_BYTES and along % 2 == 0 else None
    if loops is not None and plain.ctypes.data % 8 == atoms.ctypes.data % 8 == 0:
        loop = loops.pack if to_atoms else loops.unpack
        loop(words.view(np.uint64), atoms.view(np.uint64).reshape(-1, along // 2, 2, 32, 2))
        return
    if not to_atoms:
        words[...] = atoms.view(np.uint32).reshape(-1, along, 32, 4).swapaxes(1, 3)
        return
    # numpy moves 16 bytes at a time faster than 4:
    # the words of rows l, 32 + l, … side by side, then whole rows of atoms.
    stored = atoms.view(np.complex128).reshape(-1, along, 32)
    piece = np.empty((_ATOMS_AT_ONCE, 32, along, 4), np.uint32)
    for first in range(0, len(words), _ATOMS_AT_ONCE):
        part = words[first : first + _ATOMS_AT_ONCE]
        target = piece[: len(part)]
        for row in range(4):
            target[..., row] = part[:, row]
        stored[first : first + len(part)] = target.view(np.complex128)[..., 0].swapaxes(1, 2)


class _Loops(NamedTuple):
    """The compiled loops to the atoms and back."""

    pack: Callable[[Words, Words], None]
    unpack: Callable[[Words, Words], None]


@lru_cache(maxsize=1)
def _streaming() -> _Loops | None:
    numba = compiler()
    return None if numba is None else _Loops(numba.compile_loop(_pack), numba.compile_loop(_unpack))


def _pack(rows: Words, atoms: Words) -> None:
    """From [128 rows as 4 x 32][double word] to [double word][which of the two][row l][pair of j], all of 64 bits."""
    for block in range(rows.shape[0]):
        for first in range(0, 32, 4):
            for double in range(rows.shape[3]):
                for lane in range(first, first + 4):
                    w0, w1 = rows[block, 0, lane, double], rows[block, 1, lane, double]
                    w2, w3 = rows[block, 2, lane, double], rows[block, 3, lane, double]
                    atoms[block, double, 0, lane, 0] = (w0 & _LOW) | (w1 << _HALF)
                    atoms[block, double, 0, lane, 1] = (w2 & _LOW) | (w3 << _HALF)
                    atoms[block, double, 1, lane, 0] = (w0 >> _HALF) | (w1 & ~_LOW)
                    atoms[block, double, 1, lane, 1] = (w2 >> _HALF) | (w3 & ~_LOW)


def _unpack(rows: Words, atoms: Words) -> None:
    """The way back."""
    for block in range(rows.shape[0]):
        for first in range(0, 32, 4):
            for double in range(rows.shape[3]):
                for lane in range(first, first + 4):
                    w01, w23 = atoms[block, double, 0, lane, 0], atoms[block, double, 0, lane, 1]
                    n01, n23 = atoms[block, double, 1, lane, 0], atoms[block, double, 1, lane, 1]
                    rows[block, 0, lane, double] = (w01 & _LOW) | (n01 << _HALF)
                    rows[block, 1, lane, double] = (w01 >> _HALF) | (n01 & ~_LOW)
                    rows[block, 2, lane, double] = (w23 & _LOW) | (n23 << _HALF)
                    rows[block, 3, lane, double] = (w23 >> _HALF) | (n23 & ~_LOW)


def _one_byte(argument: str, value: npt.ArrayLike, dimensions: int) -> Array:
    array = as_array(argument, value)
    if array.dtype.itemsize != 1 or array.dtype.kind in "bSU" or array.ndim < dimensions or 0 in array.shape:
        raise ARGUMENT_TYPE.error(
            argument=argument,
            found=f"an array of shape {array.shape}, {array.dtype}",
            limit=f"scale factors have one byte each, in at least {dimensions} dimensions",
            fix="Use an array of uint8, or of ml_dtypes.float8_e8m0fnu.",
            shape=array.shape,
        )
    return array


def _target(out: Array | None, wanted: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """An array for the result, or the bytes of `out`."""
    if out is None:
        return np.empty(wanted, dtype)
    raise_all(out_problems(out, prod(wanted)))
    return out.reshape(-1).view(np.uint8).reshape(wanted)
