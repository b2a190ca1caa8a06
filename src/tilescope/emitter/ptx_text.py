"""The instructions of one copy and one consumer step, as PTX that assembles."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tilescope.emitter.role_text import expected_bytes, start_parity
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.plans import Plan

_VERSION = {"sm_80": "7.0", "sm_86": "7.1", "sm_89": "7.8", "sm_90": "8.0", "sm_90a": "8.0", "sm_120": "8.7"}
_DEFAULT_VERSION = "8.6"


def ptx_facts(plan: Plan, facts: dict[str, Any]) -> dict[str, Any]:
    """What the PTX text says beside the facts of the program."""
    lines = plan.layout.terms().ptx.splitlines()
    count = _registers(facts)
    said = {
        "ptx_version": _VERSION.get(facts["target"], _DEFAULT_VERSION),
        "address_ptx": lines,
        "registers": [(_kind(facts), count)] if count else [],
        "d_registers": [f"%d{number}" for number in range(count)],
        "consumer": facts.get("consumer", ""),
        "advances": "",
    }
    if facts["tma"]:
        said["copies"] = [_copy(copy) for copy in facts["copies"]]
    if facts["tma"] and facts["direction"] == "load":
        pipeline = plan_pipeline(plan)
        said |= {
            "full_count": pipeline.barriers[0].count,
            "expected_bytes": expected_bytes(pipeline),
            "start_parity": start_parity(pipeline, "consumer"),
        }
    if "descriptors" in facts:
        starts = [int(word, 0) for word in facts["descriptors"][0]]
        said["advances"] = ", ".join(str(after - before) for before, after in pairwise(starts)) or "nothing"
    if said["consumer"] == "mma":
        said["ldmatrix_ptx"] = _row_of_lane(facts) + lines
    return said


def _registers(facts: dict[str, Any]) -> int:
    if facts["direction"] == "store":
        return facts["stmatrix_count"] or 1
    return facts.get("wgmma_registers") or (4 if facts["consumer"] == "mma" else facts["vector_words"]["count"])


def _kind(facts: dict[str, Any]) -> str:
    if facts.get("wgmma_registers"):
        return "f32" if facts["accumulator"] == "float" else "s32"
    if facts["direction"] == "store" and not facts["stmatrix_count"]:
        return f"b{max(facts['element_bits'], 16)}"
    return "b16" if facts.get("vector_words", {}).get("ptx") == "b16" else "b32"


def _copy(copy: dict[str, Any]) -> dict[str, Any]:
    """A copy's shared address in %a, and the registers that hold its coordinates."""
    lines = [f"add.u32 %a, %base, {copy['offset']};"]
    registers = []
    for axis, coordinate in enumerate(copy["coords"]):
        name, _, offset = coordinate.partition(" + ")
        if name.isdigit():
            registers.append(name)
            continue
        index, _, divisor = name.partition(" / ")
        if not offset and not divisor:
            registers.append(f"%{index}")
            continue
        registers.append("%t" if axis % 2 else "%n")
        if divisor:
            lines.append(f"div.u32 {registers[-1]}, %{index}, {divisor};")
        if offset:
            lines.append(f"add.u32 {registers[-1]}, {registers[-1] if divisor else f'%{index}'}, {offset};")
    return {"lines": lines, "registers": registers}


def _row_of_lane(facts: dict[str, Any]) -> list[str]:
    """(%mn, %k) of the row that a lane addresses for ldmatrix.x4."""
    chunk = 128 // facts["element_bits"]
    rows = ["and.b32 %t, %lane, 15;", "mov.u32 %mn, %t;", "shr.u32 %t, %lane, 4;", f"mul.lo.u32 %k, %t, {chunk};"]
    if facts["transposed"]:
        rows = [
            "shr.u32 %t, %lane, 3;", "and.b32 %t, %t, 1;", "shl.b32 %mn, %t, 3;",
            "shr.u32 %t, %lane, 4;", "shl.b32 %t, %t, 3;", "and.b32 %k, %lane, 7;", "add.u32 %k, %k, %t;",
        ]  # fmt: skip
    return rows
