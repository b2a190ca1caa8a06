"""A script of ours checks maps before a launch: it needs the broken rule and the value to use, as data."""

import json


def solve(desk):
    ask = "tilescope check --type bf16 --dims 4096,1000 --strides 8200 --box 128,64 --swizzle 128B --json"
    said = desk.type(ask)
    assert said.status == 1
    told = json.loads(said.out)
    assert told["accepted"] is False
    changes = {}
    for violation in told["violations"]:
        if violation["severity"] == "error":
            changes |= violation["change"]
    assert {violation["rule"] for violation in told["violations"]} >= {"stride-alignment", "swizzle-span"}
    assert changes == {"strides_bytes": [8208], "box": [64, 64]}
    mended = {"data_type": "bf16", "dims": [4096, 1000], "swizzle": "128B"} | changes
    desk.write("map.json", json.dumps(mended))
    assert json.loads(desk.type("tilescope check map.json --json").out)["accepted"] is True
