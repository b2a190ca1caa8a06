"""A child without a card that does what tilescope says: `python predicting_child.py [WRONG] FOLDER`.

With WRONG it flips the last byte of every result, as a card that does something else would. Streams take as long as
their bytes do at 4000 GB/s.
"""

import base64
import json
import struct
import sys

FACTS = {"card": "stand-in", "arch": "sm_90", "driver": "0.0", "cuda": "0.0"}


def results(name, cases, wrong):
    from tilescope.gpu.streaming import moved_bytes
    from tilescope.gpu.suite_table import suite_named

    for case in cases:
        if name == "streams":
            yield struct.pack("<d", moved_bytes(case) / 4e12)
            continue
        data = suite_named(name).predict(case).data
        yield data[:-1] + bytes([data[-1] ^ 1]) if wrong and data else data


def say(answer):
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main():
    say({"ready": FACTS})
    for line in sys.stdin:
        question = json.loads(line)
        if question.get("about") == "card":
            say({"sms": 132, "clock_mhz": 1980, "memory_clock_mhz": 3201, "l2_bytes": 60 << 20})
            continue
        found = results(question["suite"], question["cases"], "WRONG" in sys.argv)
        say({"results": [base64.b64encode(each).decode() for each in found]})


if __name__ == "__main__":
    main()
