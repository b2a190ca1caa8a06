"""Time checking, encoding, refusing and decoding one tensor map, compared with an empty call."""

from ratio import Work, print_ratios, run, sized

import tilescope as ts
from tilescope.tensor_map import samples

CALLS = sized(2000, tiny=2)
MATRIX = samples.MATRIX | {"swizzle": "128B"}
FIVE = {
    "data_type": "bf16",
    "dims": (64, 32, 32, 16, 8),
    "strides_bytes": (128, 4096, 131072, 2097152),
    "box": (64, 4, 4, 2, 2),
    "element_strides": (1, 2, 2, 1, 1),
    "swizzle": "128B",
}
REFUSED = MATRIX | {"box": (128, 300), "address": 8}
GOAL_SECONDS = 60e-6
GOAL_RANK_2_SECONDS = 30e-6


def nothing(**arguments):
    return arguments


def many(call):
    def calls():
        for _ in range(CALLS):
            call()

    return calls


def work(name, call, goal_seconds=None):
    return Work(name, many(call), units=CALLS, goal_seconds=goal_seconds)


def main():
    blob = ts.TensorMap(**MATRIX).encode()
    print_ratios(
        "one tensor map",
        work("a call that does nothing", lambda: nothing(**MATRIX)),
        work("check, rank 2", lambda: ts.TensorMap.check(**MATRIX)),
        work("check + encode, rank 2", lambda: ts.TensorMap(**MATRIX).encode(), GOAL_RANK_2_SECONDS),
        work("check + encode, rank 5", lambda: ts.TensorMap(**FIVE).encode(), GOAL_SECONDS),
        work("check + encode, im2col", lambda: ts.Im2colMap(**samples.IMAGES).encode(), GOAL_SECONDS),
        work("check, three rules broken", lambda: ts.TensorMap.check(**REFUSED)),
        work("decode", lambda: ts.decode_tensor_map(blob)),
    )


if __name__ == "__main__":
    run(main)
