"""The scalar instructions of random programs: those of sm_90 whose results the emulator computes bit for bit.

A pattern covers several instructions; alternatives are in braces:

    add{,.sat}.{s32,f16}      add.s32  add.f16  add.sat.s32  add.sat.f16

Functions with .approx are left out: no document fixes their bits. So are conversions between bf16 and 8 bits, for which
ptxas wants other registers than for all others; abs and neg of s16, since ptxas goes on in 32 bits, where -32768 has an
opposite; and abs and neg of floats: alone they make a NaN canonical, as part of the next instruction they do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tilescope.machine.arithmetic import Operation, operation

_INTEGERS = "{u16,s16,u32,s32,u64,s64}"
_WORDS = "{b16,b32,b64}"
_ALL_INTEGERS = "{u8,s8,u16,s16,u32,s32,u64,s64}"
_TO_NEAREST = "{,.rn}"
_ROUNDINGS = "{.rn,.rz,.rm,.rp}"
_HALVES = "{f16,f16x2}"
_BRAINS = "{bf16,bf16x2}"
_ORDERS = "{eq,ne,lt,le,gt,ge}"
_FLOAT_ORDERS = "{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}"
_COMBINED = "{lt,ge,eq}.{and,or,xor}.{s32,f32,u32,f64}"
_SELECTED = "b16,b32,b64,u16,s16,u32,s32,u64,s64,f32,f64"
PATTERNS = (
    f"{{add,sub,div,rem,sad,min,max}}.{_INTEGERS}",
    "{add,min,max}.{u16x2,s16x2}",
    "{add,sub}.sat.s32",
    "{min,max}.relu.{s32,s16x2}",
    f"{{mul,mad}}.{{lo,hi}}.{_INTEGERS}",
    "{mul,mad}.wide.{u16,s16,u32,s32}",
    "{mad,mad24}.hi.sat.s32",
    "{mul24,mad24}.{lo,hi}.{u32,s32}",
    "{abs,neg}.{s32,s64}",
    "{popc,clz,brev,bfi}.{b32,b64}",
    "bfind{,.shiftamt}.{u32,s32,u64,s64}",
    "bfe.{u32,s32,u64,s64}",
    "bmsk.{clamp,wrap}.b32",
    "szext.{clamp,wrap}.{u32,s32}",
    "shf.{l,r}.{clamp,wrap}.b32",
    "prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}",
    "lop3.b32",
    "fns.b32",
    f"{{shl,shr,cnot}}.{_WORDS}",
    f"shr.{_INTEGERS}",
    "{and,or,xor,not}.{b16,b32,b64,pred}",
    "dp4a.{u32,s32}.{u32,s32}",
    "dp2a.{lo,hi}.{u32,s32}.{u32,s32}",
    "{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32",
    "{add,sub,mul}{,.rn,.rz,.rm,.rp}.f64",
    f"{{add,sub,mul}}{_TO_NEAREST}{{,.ftz}}{{,.sat}}.{_HALVES}",
    f"{{add,sub,mul}}{_TO_NEAREST}.{_BRAINS}",
    f"fma{_ROUNDINGS}{{,.ftz}}{{,.sat}}.f32",
    f"fma{_ROUNDINGS}.f64",
    f"fma.rn{{,.ftz}}{{,.sat,.relu}}.{_HALVES}",
    f"fma.rn{{,.relu,.oob,.oob.relu}}.{_BRAINS}",
    f"fma.rn.oob{{,.relu}}.{_HALVES}",
    f"{{div,rcp,sqrt}}{_ROUNDINGS}{{.ftz.f32,.f32,.f64}}",
    "{abs,neg}.f64",
    "copysign.{f32,f64}",
    "testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}",
    "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.{f32,f16,f16x2}",
    "{min,max}{,.NaN}{,.xorsign.abs}.{bf16,bf16x2}",
    "{min,max}.f64",
    "setp.{eq,ne}.{b16,b32,b64}",
    f"setp.{_ORDERS}.{_INTEGERS}",
    "setp.{lo,ls,hi,hs}.{u16,u32,u64}",
    f"setp.{_FLOAT_ORDERS}{{,.ftz}}.{{f32,f16}}",
    f"setp.{_FLOAT_ORDERS}.{{f64,bf16}}",
    f"setp.{_COMBINED}",
    "setp.{lt,ge,eq}.{and,or,xor}.f16",
    f"selp.{{{_SELECTED}}}",
    f"slct.{{{_SELECTED}}}.{{s32,f32}}",
    "slct.ftz.{b32,u64}.f32",
    "set.lt{,.and}.{u32,s32,f32}.s32",
    "set.ge{,.and}.{u32,s32,f32}.{u32,f64}",
    "set.gtu{,.and}.{u32,s32,f32}.f32",
    "set.eq{,.and}.{u32,s32,f32}.b16",
    "set.le{,.and}.{u32,s32,f32}.u64",
    "set.gt{,.and}.{u32,s32,f32}.s16",
    "set.gt.ftz.{u32,s32,f32}.f32",
    "set.lt{,.ftz}.{u16,s16,u32,s32}.f16",
    "set.geu.{u16,s16,u32,s32}.bf16",
    "set.eq.{f16,bf16}.{f16,f32,s32,u64,f64,b16}",
    "set.lt{,.or}.{f16x2,u32,s32}.f16x2",
    "set.lt.{bf16x2,u32,s32}.bf16x2",
    "{mad.rn.f32,mad.rz.ftz.sat.f32,mad.rn.f64}",
    f"cvt.{_ALL_INTEGERS}.{_ALL_INTEGERS}",
    "cvt.sat.u8.{s8,u16,s16,u32,s32,u64,s64}",
    "cvt.sat.s8.{u8,u16,s16,u32,s32,u64,s64}",
    "cvt.sat.u16.{s8,s16,u32,s32,u64,s64}",
    "cvt.sat.s16.{u16,u32,s32,u64,s64}",
    "cvt.sat.u32.{s8,s16,s32,u64,s64}",
    "cvt.sat.s32.{u32,u64,s64}",
    "cvt.sat.u64.{s8,s16,s32,s64}",
    "cvt.sat.s64.u64",
    f"cvt.{{rni,rzi,rmi,rpi}}.{_ALL_INTEGERS}.{{f16,f32,f64}}",
    f"cvt.{{rni,rzi,rmi,rpi}}.{_INTEGERS}.bf16",
    f"cvt.rzi.sat.{_ALL_INTEGERS}.{{f16,f32,f64}}",
    f"cvt.rpi.ftz.{_ALL_INTEGERS}.f32",
    f"cvt{_ROUNDINGS}.{{f16,f32,f64}}.{_ALL_INTEGERS}",
    f"cvt{_ROUNDINGS}.bf16.{_INTEGERS}",
    f"cvt.rn.sat.{{f16,f32,f64}}.{_ALL_INTEGERS}",
    "cvt{,.rni,.rzi,.rmi,.rpi}{,.sat}.{f16.f16,f64.f64}",
    "cvt{,.rni,.rzi,.rmi,.rpi}{,.ftz}{,.sat}.f32.f32",
    "cvt{,.rni,.rzi,.rmi,.rpi}.bf16.bf16",
    "cvt{,.rn,.rz,.rm,.rp}.{f16.bf16,bf16.f16,f64.bf16}",
    "cvt{,.rn,.rz,.rm,.rp}{,.ftz}.f32.bf16",
    f"cvt{_ROUNDINGS}{{,.ftz}}{{,.sat}}.{{f16.f32,f32.f64}}",
    f"cvt{_ROUNDINGS}{{,.sat}}.f16.f64",
    f"cvt{_ROUNDINGS}{{,.ftz}}.bf16.f32",
    f"cvt{_ROUNDINGS}.bf16.f64",
    "cvt{,.ftz}{,.sat}.{f32.f16,f64.f32}",
    "cvt{,.sat}.f64.f16",
    "cvt.{rn,rz}{,.relu}{,.satfinite}.{f16x2,bf16x2}.f32",
    "cvt.{rn,rz}{.relu,.satfinite,.relu.satfinite}.{f16,bf16}.f32",
    "cvt.rna{,.satfinite}.tf32.f32",
    "cvt.{rn,rz}{,.relu}.tf32.f32",
    "cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.{f32,f16x2}",
    "cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2}",
    "cvt.pack.sat.{u16,s16}.s32",
    "cvt.pack.sat.{u8,s8,u4,s4,u2,s2}.s32.b32",
)
PAIR_PATTERNS = (  # of setp with two results: p|q
    f"setp.{_COMBINED}",
    "setp.{lt,neu,num}{,.xor}.{f16x2,bf16x2}",
)
_BRACES = re.compile(r"\{([^{}]*)\}")


class Form(NamedTuple):
    """An instruction with its modifiers, and the emulator's facts about it."""

    opcode: str
    operation: Operation


def expand_pattern(pattern: str) -> Iterator[str]:
    """The instructions of a pattern.

    >>> list(expand_pattern("add{,.sat}.{s32,f16}"))
    ['add.s32', 'add.f16', 'add.sat.s32', 'add.sat.f16']
    """
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    for choice in braces[1].split(","):
        yield from expand_pattern(pattern[: braces.start()] + choice + pattern[braces.end() :])


@cache
def forms_by_name() -> dict[str, tuple[Form, ...]]:
    """All forms, by the name of the instruction: a name is drawn first, so that cvt is not half of a program.

    >>> [form.opcode for form in forms_by_name()["popc"]]
    ['popc.b32', 'popc.b64']
    """
    grouped: dict[str, list[Form]] = {}
    for patterns, result_count in ((PATTERNS, 1), (PAIR_PATTERNS, 2)):
        for opcode in dict.fromkeys(opcode for pattern in patterns for opcode in expand_pattern(pattern)):
            name, *modifiers = opcode.split(".")
            form_operation = operation(name, tuple(modifiers), result_count=result_count)
            grouped.setdefault(name, []).append(Form(opcode, form_operation))
    return {name: tuple(forms) for name, forms in grouped.items()}
