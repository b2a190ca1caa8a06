"""The one command that tests an answer on the user's own data: a kernel, a tensor map, a dump, a profile, a log.

>>> command_for("early-release")
'tilescope run kernel.ptx --launch launch.toml --prove'
>>> command_for("stride-16-bytes")
'tilescope check call.cu'
"""

from __future__ import annotations

from tilescope.symptoms.tables import CAUSE, SYMPTOM

_RUN = "tilescope run kernel.ptx --launch launch.toml"
_PROVE = f"{_RUN} --prove"
_BY_LINE = f"{_RUN} --by line"
_CHECK = "tilescope check call.cu"
_WATCH = "tilescope watch -- ./program"
_IDENTIFY = "tilescope identify dump.bin tile.npy"
_LOG = "tilescope explain log.txt"
# By the command of a cause, which has example numbers: the one that reads the user's own.
_BY_COMMAND = {
    "check": _CHECK,
    "load": _WATCH,
    "pipeline": _PROVE,
    "plan": _RUN,
    "mma": _RUN,
    "explain": _RUN,
    "banks": _BY_LINE,
    "gemm": _BY_LINE,
    "swizzle": _IDENTIFY,
    "decode": "tilescope decode 0x4000004000010040",
}
_OF_TOPIC = {
    "tensor map": _WATCH,
    "TMA": _WATCH,
    "box": _CHECK,
    "swizzle": _IDENTIFY,
    "layout": _IDENTIFY,
    "mbarrier": _PROVE,
    "parity": _PROVE,
    "stages": _PROVE,
    "named barrier": _PROVE,
    "bank": _BY_LINE,
    "wavefront": _BY_LINE,
    "toolkit-version": _LOG,
    "exit-status": _LOG,
    "architecture": _LOG,
    "swizzle-mode": _IDENTIFY,
    "majorness": _IDENTIFY,
    "uncoalesced": _BY_LINE,
    "swizzle-phase": _IDENTIFY,
    "map-small-tensor-flag": _WATCH,
    "freed-or-short-tensor": _WATCH,
}


def command_for(name: str) -> str:
    """The command that tests a cause, a symptom or a term on the user's own data."""
    if name in _OF_TOPIC:
        return _OF_TOPIC[name]
    if name in SYMPTOM:
        causes = SYMPTOM[name].causes
        return command_for(causes[0]) if causes else _LOG
    if name not in CAUSE:
        return _RUN
    return _BY_COMMAND[CAUSE[name].command.split()[1]]
