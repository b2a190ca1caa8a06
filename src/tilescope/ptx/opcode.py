"""The modifiers of an instruction by their meaning.

    ld.global.acquire.gpu.v4.b32        space global, order acquire, scope gpu, vector 4, types b32
    cvt.rn.satfinite.f16x2.f32          rounding rn, types f16x2 and f32, flag satfinite
    setp.lt.and.u32                     comparison lt, operation and, types u32
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
                                        family cp.async.bulk.tensor, rank 2, spaces shared::cluster and global,
                                        completion mbarrier::complete_tx::bytes

A word means the same in most instructions; `_MEANINGS` has these, `_OWN_MEANINGS` the others. Words that are part of the
instruction's name (`cp.async.bulk`) make its family. What no table has is `unknown`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

Meaning = Literal[
    "family",
    "spaces",
    "types",
    "vector",
    "scope",
    "order",
    "rounding",
    "comparison",
    "operation",
    "half",
    "mode",
    "cache",
    "hints",
    "shapes",
    "layouts",
    "rank",
    "count",
    "completion",
    "cta_group",
    "kind",
    "flags",
    "unknown",
]

_WORDS: dict[Meaning, str] = {
    "spaces": "global shared shared::cta shared::cluster local const param param::entry param::func",
    "types": (
        "pred b1 b8 b16 b32 b64 b128 b1024 u4 u8 u16 u32 u64 s4 s8 s16 s32 s64 u16x2 s16x2 "
        "f16 f16x2 bf16 bf16x2 tf32 f32 f32x2 f64 "
        "e4m3 e5m2 e3m2 e2m3 e2m1 ue8m0 ue4m3 e4m3x2 e5m2x2 e3m2x2 e2m3x2 e2m1x2 ue8m0x2 "
        "e4m3x4 e5m2x4 e3m2x4 e2m3x4 e2m1x4 b8x16 b6x16_p32 b4x16_p64"
    ),
    "vector": "v2 v4 v8",
    "scope": "cta cluster gpu sys",
    "order": "weak relaxed acquire release acq_rel sc volatile mmio",
    "rounding": "rn rz rm rp rna rs rni rzi rmi rpi",
    "comparison": "eq ne lt le gt ge ls hs equ neu ltu leu gtu geu num nan",
    "operation": "add min max inc dec exch cas and or xor popc",
    "half": "lo hi wide",
    "cache": "ca cg cs lu cv wb wt nc unified",
    "layouts": "row col",
    "rank": "1d 2d 3d 4d 5d",
    "count": "x1 x2 x4 x8 x16 x32 x64 x128",
    "completion": "mbarrier::complete_tx::bytes mbarrier::arrive::one bulk_group",
    "cta_group": "cta_group::1 cta_group::2",
    "flags": (
        "sync aligned uni to approx full ftz noftz sat satfinite relu oob NaN xorsign abs cc "
        "trans parity noComplete noinc read shiftamt wrap clamp L1 L2 "
        "tile tile::gather4 tile::scatter4 im2col im2col::w im2col::w::128 im2col_no_offs "
        "multicast::cluster multicast::cluster::all "
        "sync_restrict::shared::cta sync_restrict::shared::cluster "
        "pack::16b unpack::16b ashift block_scale scale_vec::1X scale_vec::2X scale_vec::4X block16 block32 "
        "warpx2::02_13 warpx2::01_23 warpx4"
    ),
}
"""The words that mean the same in every instruction but those below."""

_OWN_WORDS: dict[str, dict[Meaning, str]] = {
    "bar": {"family": "sync arrive red warp"},
    "barrier": {"family": "sync arrive red cluster wait"},
    "brx": {"family": "idx"},
    "clusterlaunchcontrol": {
        "family": (
            "try_cancel async query_cancel is_canceled "
            "get_first_ctaid get_first_ctaid::x get_first_ctaid::y get_first_ctaid::z"
        )
    },
    "cp": {"family": "async bulk tensor reduce prefetch commit_group wait_group wait_all mbarrier arrive"},
    "createpolicy": {"mode": "fractional range cvt"},
    "cvt": {"flags": "pack scaled::n2::ue8m0"},
    "fence": {"family": "proxy alias async async::generic tensormap::generic mbarrier_init"},
    "griddepcontrol": {"family": "launch_dependents wait"},
    "match": {"mode": "all any"},
    "mbarrier": {
        "family": "init inval arrive arrive_drop expect_tx complete_tx test_wait try_wait pending_count",
    },
    "membar": {"family": "proxy alias async tensormap::generic", "scope": "gl"},
    "mma": {"family": "sp sp::ordered_metadata"},
    "multimem": {"family": "ld_reduce st red cp async bulk reduce", "flags": "acc::f16 acc::f32"},
    "prefetch": {"flags": "tensormap"},
    "prmt": {"mode": "f4e b4e rc8 ecl ecr rc16"},
    "red": {"family": "async"},
    "set": {"comparison": "lo hi"},
    "setmaxnreg": {"mode": "inc dec"},
    "setp": {"comparison": "lo hi"},
    "shf": {"mode": "l r"},
    "shfl": {"mode": "up down bfly idx"},
    "st": {"family": "async bulk"},
    "tcgen05": {
        "family": (
            "alloc dealloc relinquish_alloc_permit ld st red mma sp ws cp commit shift wait::ld wait::st "
            "fence::before_thread_sync fence::after_thread_sync"
        ),
        "mode": "down",
    },
    "tensormap": {
        "family": "replace cp_fenceproxy tensormap::generic",
        "mode": (
            "global_address rank box_dim global_dim global_stride element_stride elemtype interleave_layout "
            "swizzle_mode swizzle_atomicity fill_mode"
        ),
    },
    "testp": {"mode": "finite infinite number notanumber normal subnormal"},
    "vote": {"mode": "all any uni ballot"},
    "wgmma": {"family": "fence mma_async sp commit_group wait_group"},
    "wmma": {"family": "load store mma", "mode": "a b c d"},
}
"""The words that mean something of their own in one instruction."""

_BY_PREFIX: dict[str, Meaning] = {
    "L1::": "hints",
    "L2::": "hints",
    "level::": "hints",
    "kind::": "kind",
    "collector::": "hints",
}
_SHAPE = re.compile(r"m[0-9]+n[0-9]+(?:k[0-9]+)?|[0-9]+x[0-9]+b(?:x2)?")  # m16n8k16, m8n8, 32x32b, 16x32bx2


def _meanings(words: dict[Meaning, str]) -> dict[str, Meaning]:
    """By word."""
    return {word: meaning for meaning, listed in words.items() for word in listed.split()}


_MEANINGS = _meanings(_WORDS)
_OWN_MEANINGS = {name: _meanings(words) for name, words in _OWN_WORDS.items()}


@dataclass(frozen=True, slots=True)
class Fields:
    """The meaning of an instruction's modifiers."""

    family: str  # the name with the words that belong to it: cp.async.bulk.tensor
    spaces: tuple[str, ...] = ()  # in their order: destination first
    types: tuple[str, ...] = ()  # in their order: result first
    vector: int = 1  # elements of an access
    scope: str | None = None  # cta, cluster, gpu, sys
    order: str | None = None  # relaxed, acquire, release, acq_rel, sc, volatile, weak, mmio
    rounding: str | None = None
    comparison: str | None = None
    operation: str | None = None  # of an atom, red, redux, bar.red, or the one that combines setp's result with another
    half: str | None = None  # lo, hi, wide
    mode: str | None = None  # of shfl, vote, match, prmt, shf, tensormap.replace …
    cache: str | None = None
    hints: tuple[str, ...] = ()  # L1:: and L2:: …
    shapes: tuple[str, ...] = ()  # m16n8k16, m8n8, 32x32b
    layouts: tuple[str, ...] = ()  # row, col
    rank: int | None = None  # of a tensor copy
    count: int | None = None  # x4: matrices, or columns of tensor memory
    completion: str | None = None  # how a bulk copy signals its completion
    cta_group: int | None = None
    kind: str | None = None  # of tcgen05.mma
    flags: frozenset[str] = frozenset()  # all others: sync, aligned, ftz, approx, trans …
    unknown: tuple[str, ...] = ()  # what no table has

    @property
    def space(self) -> str | None:
        """The first state space; None: a generic address."""
        return self.spaces[0] if self.spaces else None

    @property
    def type(self) -> str | None:
        """The first type."""
        return self.types[0] if self.types else None


@cache
def fields_of(name: str, modifiers: tuple[str, ...]) -> Fields:
    """The modifiers of an instruction by their meaning.

    >>> load = fields_of("ld", ("global", "v4", "b32"))
    >>> load.space, load.vector, load.types
    ('global', 4, ('b32',))
    >>> fields_of("mbarrier", ("arrive", "expect_tx", "release", "cta", "shared::cta", "b64")).family
    'mbarrier.arrive.expect_tx'
    """
    words: dict[Meaning, list[str]] = {}
    for word in modifiers:
        words.setdefault(meaning_of(name, word), []).append(word)
    return Fields(
        family=".".join((name, *words.get("family", ()))),
        spaces=tuple(words.get("spaces", ())),
        types=tuple(words.get("types", ())),
        vector=_number_in(words.get("vector")) or 1,
        scope=_first(words.get("scope")),
        order=_first(words.get("order")),
        rounding=_first(words.get("rounding")),
        comparison=_first(words.get("comparison")),
        operation=_first(words.get("operation")),
        half=_first(words.get("half")),
        mode=_first(words.get("mode")),
        cache=_first(words.get("cache")),
        hints=tuple(words.get("hints", ())),
        shapes=tuple(words.get("shapes", ())),
        layouts=tuple(words.get("layouts", ())),
        rank=_number_in(words.get("rank")),
        count=_number_in(words.get("count")),
        completion=_first(words.get("completion")),
        cta_group=_number_in(words.get("cta_group")),
        kind=_first(words.get("kind")),
        flags=frozenset(words.get("flags", ())),
        unknown=tuple(words.get("unknown", ())),
    )


def meaning_of(name: str, word: str) -> Meaning:
    """The meaning of a modifier in the instruction of this name.

    >>> meaning_of("setp", "lo"), meaning_of("mul", "lo"), meaning_of("ld", "L1::no_allocate")
    ('comparison', 'half', 'hints')
    """
    meanings = _OWN_MEANINGS.get(name, {})
    if word in meanings:
        return meanings[word]
    if word in _MEANINGS:
        return _MEANINGS[word]
    if _SHAPE.fullmatch(word):
        return "shapes"
    prefix = word.partition("::")[0] + "::"
    return _BY_PREFIX.get(prefix, "unknown")


def _first(words: list[str] | None) -> str | None:
    return words[0] if words else None


def _number_in(words: list[str] | None) -> int | None:
    """4 of v4, 2 of 2d, 1 of cta_group::1."""
    if not words:
        return None
    return int("".join(character for character in words[0] if character.isdecimal()))
