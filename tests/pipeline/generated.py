"""Random small pipelines as plain data, the same for the same seed: right ones, changed ones, and ones grown step by step.

    template   a right pipeline of a known kind, with random stages, steps, bytes, threads
    change     a template with one or two random changes, which may or may not break it
    grown      steps of random roles, each of which is right where it is appended: one order is right, others may not be

    name, data = next(pipelines(seed=7, count=1))

Which of them are right, `naive` knows.
"""

import random

from changed_pipelines import change
from grown_pipelines import Growth
from right_pipelines import TEMPLATES

KINDS = ("template", "change", "grown", "change", "grown", "change")


def pipelines(seed, count):
    """`count` pipelines with their names; each depends on the seed and its number alone."""
    for index in range(count):
        rng = random.Random(f"{seed} {index}")
        kind = KINDS[index % len(KINDS)]
        if kind == "grown":
            parts, data = ["grown"], Growth(rng).data
        else:
            name = rng.choice(list(TEMPLATES))
            parts, data = [name], TEMPLATES[name](rng)
        changes = {"template": 0, "change": rng.choice((1, 1, 1, 2)), "grown": rng.choice((0, 0, 0, 1))}[kind]
        parts += [change(rng, data) for _ in range(changes)]
        yield f"{kind} {seed}.{index}: {'; '.join(parts)}", data
